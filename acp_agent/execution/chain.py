"""The order of everything between a call and its tool: one list, outermost first.

The audit sees every verdict and every result. Denials come before anything that costs the user attention, and the
blocklist before all others. The permission gate is the last gate: it settles the questions the others collected.
The cache sits inside the gates, so that a kept answer is no way around a denial; output inside the cache, so that
whatever comes back is cleaned before anybody sees or keeps it.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import reduce
from typing import TypeAlias

from acp_agent.core.ports import ToolExecutor
from acp_agent.core.wrapper import Gate, WrapperExecutor

Link: TypeAlias = Callable[[ToolExecutor], ToolExecutor]


class Place(StrEnum):
    """Where a link stands; the order of the members is the order of the chain."""

    AUDIT = "audit"
    BLOCKLIST = "blocklist"
    QUOTA = "quota"
    RATE_LIMIT = "rate_limit"
    MODE = "mode"
    SELECTION = "selection"
    AUTONOMY = "autonomy"
    TRUST = "trust"
    POLICY = "policy"
    PINS = "pins"
    VERIFIERS = "verifiers"
    SANDBOX = "sandbox"
    PROTECTED = "protected"
    ANOMALY = "anomaly"
    UTILITY = "utility"
    GROUNDING = "grounding"
    PERMISSION = "permission"
    CACHE = "cache"
    OUTPUT = "output"
    RETRY = "retry"


def absent(wrapped: ToolExecutor) -> ToolExecutor:
    """The link of a concern that is switched off."""
    return wrapped


def build_chain(innermost: ToolExecutor, links: Mapping[Place, Link]) -> ToolExecutor:
    """Wrap `innermost` in a link for every place. Raises KeyError for a missing one: none is left out by chance."""
    return reduce(lambda wrapped, place: links[place](wrapped), reversed(Place), innermost)


def gates_of(chain: ToolExecutor) -> tuple[Gate, ...]:
    """The gates of a chain, outermost first."""
    gates: list[Gate] = []
    while isinstance(chain, WrapperExecutor):
        if isinstance(chain, Gate):
            gates.append(chain)
        chain = chain.wrapped
    return tuple(gates)
