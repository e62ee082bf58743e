"""/review (A17.5): a prompt for the model, about the uncommitted changes or about what is at a path."""

import re
from dataclasses import dataclass
from uuid import uuid4

from acp_agent.core.ports import Toolset
from acp_agent.core.types import CallOrigin, ToolCall, ToolResult

_PATH = re.compile(r"[A-Za-z0-9_./ -]{1,512}")
_GIT = "git --no-pager -c color.ui=false -c core.fsmonitor=false"
_CHANGES = f"{_GIT} status --short && {_GIT} diff --no-ext-diff --no-textconv HEAD"
"""What git shows by itself: no program of the repository's configuration is to draw the differences."""

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

    The changes are git's answer to a command the user gave: it shows, passes the gates and is recorded as `/run` is.
    """
    if argument:
        if not _PATH.fullmatch(argument):
            return "Usage: `/review PATH`, of at most 512 letters, digits, blanks and any of `. / _ -`"
        return Review(f"Review what is at `{argument.strip()}`.\n\n{_HOW}")
    result = await toolset.run(ToolCall(str(uuid4()), "bash", {"command": _CHANGES}, origin=CallOrigin.USER))
    if reason := _no_changes(result):
        return reason
    return Review(f"Review the uncommitted changes, which git shows as follows.\n\n{result.text}\n\n{_HOW}")


def _no_changes(result: ToolResult) -> str:
    """Why there is nothing to review; empty where there is."""
    envelope = result.envelope or {}
    if result.failure is None and envelope.get("exit_code") == 0:
        return (
            "" if envelope.get("stdout") else "There are no uncommitted changes. Name what to review: `/review PATH`."
        )
    code = envelope.get("exit_code")
    why = result.failure.message if result.failure else f"git exited with code {code}"
    return f"The uncommitted changes cannot be seen: {why.rstrip('.')}. Name what to review: `/review PATH`."
