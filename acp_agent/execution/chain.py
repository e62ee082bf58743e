"""The order of everything between a call and its tool: one list, outermost first.

Denials come before anything that costs the user attention, and the blocklist before everything. The
permission gate is the last gate: it settles the questions the others collected. Output sits inside, so
that whatever comes back is cleaned before anybody sees it.
"""

from collections.abc import Callable
from functools import reduce
from typing import TypeAlias

from acp_agent.core.ports import ToolExecutor

Link: TypeAlias = Callable[[ToolExecutor], ToolExecutor]


def build_chain(
    innermost: ToolExecutor, *, blocklist: Link, mode: Link, sandbox: Link, permission: Link, output: Link
) -> ToolExecutor:
    """Wrap `innermost` in its gates and wrappers."""
    outermost_first = (blocklist, mode, sandbox, permission, output)
    return reduce(lambda wrapped, link: link(wrapped), reversed(outermost_first), innermost)
