"""/review (A17.5): a prompt for the model, about the uncommitted changes or about what is at a path."""

import re
from dataclasses import dataclass
from uuid import uuid4

from acp_agent.core.backends import FileSystem
from acp_agent.core.ports import Toolset
from acp_agent.core.types import CallOrigin, ToolCall, ToolResult
from acp_agent.protocol.reviewed_repository import GIT, WHERE, look, objection, places

_PATH = re.compile(r"[A-Za-z0-9_./ -]{1,512}")
_CHANGES = (
    f"{GIT} status --short --ignore-submodules=all -- ."
    f" && {GIT} diff --no-color --no-ext-diff --no-textconv --ignore-submodules=all HEAD -- ."
)
"""What git shows by itself of the session's folder: no program of the repository's configuration, and none of what
submodules name, is to draw the differences."""

_HOW = """\
Look for what is wrong before what is ugly: bugs, security holes, broken promises to callers, errors nobody handles,
missing tests. Read the code around it and what calls it before you judge; in this turn you can read and search, and
nothing else. Answer with your findings, the worst first, each with file and line, what goes wrong, and how to mend it.
If you find nothing, say so. Change nothing."""


@dataclass(frozen=True, slots=True)
class Review:
    """What the model is asked, in a turn in which it can only read."""

    prompt: str


async def review_path(argument: str, files: FileSystem) -> Review | str:
    """The prompt about what is at a path, or at several with blanks between, or why there is none, for the user.

    Raises AgentError for a path that may not be read.
    """
    if not _PATH.fullmatch(argument):
        return "Usage: `/review PATH`, of at most 512 letters, digits, blanks and any of `. / _ -`"
    if await files.kind(argument) is None:
        for path in argument.split():
            if await files.kind(path) is None:
                return f"There is nothing at `{path}`: `/review PATH` expects a path below the folder of this session."
    return Review(f"Review what is at `{argument}`.\n\n{_HOW}")


async def review_changes(toolset: Toolset) -> Review | str:
    """The prompt about the uncommitted changes, or why there is none, for the user.

    They are git's answer to commands the user gave: these show, pass the gates and are recorded as `/run` is.
    """
    where = await _run(toolset, WHERE)
    if problem := _problem(where):
        return _unseen(problem)
    if _is_clipped(where) or (found := places(_stdout(where))) is None:
        return _unseen("git does not say clearly where its repository is")
    looked = await _run(toolset, look(found))
    if problem := _failure(looked) or objection(found, _exit_code(looked), _stdout(looked)):
        return _unseen(problem)
    if _is_clipped(looked):
        return _unseen("what was said of its repository was too long")
    result = await _run(toolset, _CHANGES)
    if problem := _problem(result):
        return _unseen(problem)
    if not _stdout(result):
        return "There are no uncommitted changes. Name what to review: `/review PATH`."
    return Review(f"Review the uncommitted changes, which git shows as follows.\n\n{result.text}\n\n{_HOW}")


async def _run(toolset: Toolset, command: str) -> ToolResult:
    return await toolset.run(ToolCall(str(uuid4()), "bash", {"command": command}, origin=CallOrigin.USER))


def _stdout(result: ToolResult) -> str:
    return str((result.envelope or {}).get("stdout") or "")


def _is_clipped(result: ToolResult) -> bool:
    return bool((result.envelope or {}).get("truncated"))


def _exit_code(result: ToolResult) -> object:
    return (result.envelope or {}).get("exit_code")


def _failure(result: ToolResult) -> str:
    return "" if result.failure is None else result.failure.message


def _problem(result: ToolResult) -> str:
    """Why a command told nothing; empty where it did."""
    code = _exit_code(result)
    return _failure(result) or ("" if code == 0 else f"git exited with code {code}")


def _unseen(why: str) -> str:
    return f"The uncommitted changes cannot be seen: {why.rstrip('.')}. Name what to review: `/review PATH`."
