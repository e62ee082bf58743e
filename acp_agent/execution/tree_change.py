"""Making, deleting, moving and copying entries below the roots (T4.19, T4.20): interim."""

from acp_agent.core.backends import Copied, Deleted
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.execution.roots import Roots

_NOT_YET = ToolError(ToolErrorCategory.PERMANENT_FAILURE, "not there yet")


def make_directory(roots: Roots, path: str) -> bool:
    """See FileSystem.make_directory."""
    raise _NOT_YET


def delete(roots: Roots, path: str, *, recursive: bool) -> Deleted:
    """See FileSystem.delete."""
    raise _NOT_YET


def move(roots: Roots, source: str, destination: str) -> None:
    """See FileSystem.move."""
    raise _NOT_YET


def copy(roots: Roots, source: str, destination: str) -> Copied:
    """See FileSystem.copy."""
    raise _NOT_YET
