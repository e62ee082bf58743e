"""What must hold for a whole tree before it is deleted or moved (T4.3, T4.5, T4.9, T4.20)."""

import os
from collections.abc import Callable, Generator, Iterable
from typing import TypeAlias, assert_never

from anyio.from_thread import check_cancelled

from acp_agent.core.errors import Refused
from acp_agent.core.types import Access
from acp_agent.execution.path_errors import path_error
from acp_agent.execution.roots import Place, Roots
from acp_agent.execution.tree_descent import Entered, Leaf, Left, Step

Objection: TypeAlias = Callable[[str, os.stat_result | None], str | None]
"""Why an entry may not be touched, or None: by its path relative to the tree, and its status if it is a directory."""

_A_ROOT = "is a directory of this session, or has one below it"


def refuse_root(roots: Roots, place: Place, status: os.stat_result | None = None) -> None:
    """Refused when a root of the session is at the place or below it: by path, and with its status by identity."""
    if roots.holds_root(place.path) or (status is not None and roots.is_root(status)):
        raise Refused(f"{place.given}: {_A_ROOT}", "Name what is in it instead.")


def judged(roots: Roots, place: Place, steps: Iterable[Step], objection: Objection) -> Generator[Step]:
    """The same steps through the tree at `place`, each once it was found to be allowed.

    Raises Refused at the first objection and at a root of the session, ToolError for what cannot be looked into. Runs
    in a worker thread and stops when its task is cancelled.
    """
    path = ""
    try:
        for step in steps:
            check_cancelled()
            path = step.path
            reason = _reason(roots, step, objection)
            if reason is not None:
                raise Refused(f"{_named(roots, place, step)}: {reason}")
            if isinstance(step, Leaf) and step.error is not None:
                raise step.error
            yield step
    except OSError as error:
        raise path_error(error, os.path.join(place.given, path)) from error


def _reason(roots: Roots, step: Step, objection: Objection) -> str | None:
    match step:
        case Leaf():
            return objection(step.path, None)
        case Entered():
            status = os.fstat(step.at)
            return _A_ROOT if roots.is_root(status) else objection(step.path, status)
        case Left():
            return None
        case _:
            assert_never(step)


def _named(roots: Roots, place: Place, step: Step) -> str:
    """The entry as the model may know it: names that are hidden from listings stay so (T4.21)."""
    access = Access.READ if isinstance(step, Leaf) else Access.LIST
    if roots.allows(os.path.join(place.path, step.path), access):
        return os.path.join(place.given, step.path)
    return f"{place.given}: something below it"
