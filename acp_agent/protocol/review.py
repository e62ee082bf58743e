"""/review (A17.5): a prompt for the model, about the uncommitted changes or about what is at a path."""

import re
from dataclasses import dataclass
from uuid import uuid4

from acp_agent.core.ports import Toolset
from acp_agent.core.types import CallOrigin, ToolCall, ToolResult
from acp_agent.tools.visible import visible

_PATH = re.compile(r"[A-Za-z0-9_./ -]{1,512}")
_GIT = (
    "GIT_ALLOW_PROTOCOL= git --no-pager --no-optional-locks"
    " -c color.ui=false -c core.fsmonitor=false -c core.hooksPath=/dev/null"
)
_CHANGES = (
    f"{_GIT} status --short --ignore-submodules=all"
    f" && {_GIT} diff --no-ext-diff --no-textconv --ignore-submodules=all HEAD"
)
"""What git shows by itself: no program of the repository's configuration is to draw the differences.

No hook, and none of what submodules name. No protocol either: from a partial clone git fetches what is not there, and
its configuration says by which program.
"""
_PROGRAMS = (
    f"{_GIT} config --includes --show-scope --name-only"
    " --get-regexp '^(filter[.].*[.](clean|process|smudge)|hook[.].*[.]command)$'"
)
"""What git would run all the same, one `SCOPE KEY` a line: no option switches filters off."""
_OF_THE_REPOSITORY = frozenset(("local", "worktree"))
"""Scopes of a configuration that came with the files. What the user has set for all repositories is his own choice."""
_MOST_NAMED = 3
_LONGEST_KEY = 80  # characters

_HOW = """\
Look for what is wrong before what is ugly: bugs, security holes, broken promises to callers, errors nobody handles,
missing tests. Read the code around it and what calls it before you judge; in this turn you can read and search, and
nothing else. Answer with your findings, the worst first, each with file and line, what goes wrong, and how to mend it.
If you find nothing, say so. Change nothing."""


@dataclass(frozen=True, slots=True)
class Review:
    """What the model is asked, in a turn in which it can only read."""

    prompt: str


async def review(argument: str, toolset: Toolset) -> Review | str:
    """The prompt, or why there is none, for the user.

    The changes are git's answer to commands the user gave: they show, pass the gates and are recorded as `/run` is.
    """
    if argument:
        if not _PATH.fullmatch(argument):
            return "Usage: `/review PATH`, of at most 512 letters, digits, blanks and any of `. / _ -`"
        return Review(f"Review what is at `{argument.strip()}`.\n\n{_HOW}")
    if problem := _programs(await _run(toolset, _PROGRAMS)):
        return _unseen(problem)
    result = await _run(toolset, _CHANGES)
    if reason := _no_changes(result):
        return reason
    return Review(f"Review the uncommitted changes, which git shows as follows.\n\n{result.text}\n\n{_HOW}")


async def _run(toolset: Toolset, command: str) -> ToolResult:
    return await toolset.run(ToolCall(str(uuid4()), "bash", {"command": command}, origin=CallOrigin.USER))


def _programs(result: ToolResult) -> str:
    """Why git's own commands would run programs nobody has agreed to, or why nobody knows; empty where they do not."""
    envelope = result.envelope or {}
    if result.failure is not None or envelope.get("exit_code") not in (0, 1):  # 1: there is no such key
        return _problem(result)
    lines = map(str.split, str(envelope.get("stdout") or "").splitlines())
    keys = [
        visible(" ".join(words[1:])[:_LONGEST_KEY]) for words in lines if words[:1] and words[0] in _OF_THE_REPOSITORY
    ]
    if not keys:
        return ""
    named = ", ".join(f"`{key}`" for key in keys[:_MOST_NAMED]) + (" and more" if len(keys) > _MOST_NAMED else "")
    return f"git would run programs this repository's own configuration names ({named})"


def _no_changes(result: ToolResult) -> str:
    """Why there is nothing to review; empty where there is."""
    envelope = result.envelope or {}
    if result.failure is not None or envelope.get("exit_code") != 0:
        return _unseen(_problem(result))
    return "" if envelope.get("stdout") else "There are no uncommitted changes. Name what to review: `/review PATH`."


def _problem(result: ToolResult) -> str:
    code = (result.envelope or {}).get("exit_code")
    return result.failure.message if result.failure else f"git exited with code {code}"


def _unseen(why: str) -> str:
    return f"The uncommitted changes cannot be seen: {why.rstrip('.')}. Name what to review: `/review PATH`."
