"""The calls the agent makes by itself, around what the model asks for (requirements S7). Off unless switched on.

    PLANNER      before the first inference of a turn: a search of the memory for the prompt
    VERIFIER     after a round that changed files: the project's checkers
    AUTONOMOUS   after a compaction: its summary goes to the memory, and nobody is asked

Each is a call like any other: it passes the whole chain, shows in the editor and is recorded, with its phase. The phase
is said here and nowhere else; nothing of the model's can say it.
"""

from collections.abc import Iterable
from uuid import uuid4

import anyio

from acp_agent.core.aliases import tool_id
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.memory import Summaries, Summary
from acp_agent.core.messages import Message, ToolUsePart
from acp_agent.core.phase import Phase
from acp_agent.core.ports import Toolset
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.tags import ITSELF
from acp_agent.core.types import Json, JsonObject, ToolCall, ToolResult

_SEARCH, _CHECK, _SAVE = "memory_search", "diagnostics", "memory_save"
_QUERY = 1_000  # characters of a prompt that are searched for
_FROM = "[summary of a conversation] "
_NOTE_BYTES = 8 * 1024
SECONDS = {Phase.PLANNER: 10.0, Phase.VERIFIER: 180.0, Phase.AUTONOMOUS: 10.0}
"""A call may take; one that asks the user waits for him within it."""

_CHANGING = frozenset({"edit", "write", "create_directory", "delete_path", "move_path", "copy_path"})
_UNWANTED = frozenset({ToolErrorCategory.POLICY_BLOCKED, ToolErrorCategory.CONFIRMATION_REQUIRED})


class PhaseCalls:
    """Makes them for one conversation. Raises nothing but cancellation.

    A tool the session does not offer is not called. A check that was refused, by the user or by a gate, is not tried
    again before `clear`: nobody wants the same question after each round.

    seconds      how long a call may take, by phase
    note_bytes   most bytes of UTF-8 the memory takes in one note
    redact       takes secrets out of what is searched for, before it is cut
    """

    def __init__(
        self,
        seconds: dict[Phase, float] | None = None,
        *,
        note_bytes: int = _NOTE_BYTES,
        redact: Redact = verbatim,
    ) -> None:
        self._seconds = seconds or SECONDS
        self._note_bytes = note_bytes
        self._redact = redact
        self._unwanted: set[str] = set()
        self._made: dict[Phase, int] = dict.fromkeys(SECONDS, 0)

    async def before_first_inference(self, prompt: Message, toolset: Toolset) -> str | None:
        """Text for the model behind the prompt: the notes that fit it; None for none."""
        query = " ".join(self._redact(prompt.text).split())[:_QUERY]
        result = await self._run(Phase.PLANNER, _SEARCH, {"query": query}, toolset) if query else None
        return _told(_SEARCH, result) if result is not None and _has(result, "ids") else None

    async def after_round(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]], toolset: Toolset) -> str | None:
        """Text for the model behind the results of a round: what the checkers complain of; None for nothing."""
        if not any(result.failure is None and _changed(use, result) for use, result in outcomes):
            return None
        result = await self._run(Phase.VERIFIER, _CHECK, {}, toolset)
        return _told(_CHECK, result) if result is not None and _has(result, "diagnostics") else None

    async def compacted(self, summary: str, toolset: Toolset) -> None:
        """Keep the summary of a compaction, as much as goes into one note. Asks nobody; every gate is obeyed.

        The note says what it is: no user has read it, as he has those that were asked for.
        """
        if text := summary.strip():
            note = f"{_FROM}{text}".encode("utf-8", "replace")[: self._note_bytes].decode("utf-8", "ignore")
            await self._run(Phase.AUTONOMOUS, _SAVE, {"content": note}, toolset)

    def clear(self) -> None:
        """The conversation begins anew."""
        self._unwanted.clear()
        self._made = dict.fromkeys(SECONDS, 0)

    def status(self) -> tuple[str, ...]:
        """A line for /status."""
        return (f"Phases: {', '.join(f'{phase} {count}' for phase, count in self._made.items())} calls",)

    async def _run(self, phase: Phase, tool: str, arguments: JsonObject, toolset: Toolset) -> ToolResult | None:
        """The result of one call; None when it was not made, failed, or took too long."""
        if tool in self._unwanted or all(spec.name != tool for spec in toolset.specs()):
            return None
        self._made[phase] += 1
        call = ToolCall(str(uuid4()), tool, arguments, batch=str(uuid4()), phase=phase)
        result: ToolResult | None = None
        with anyio.move_on_after(self._seconds[phase]):
            result = await toolset.run(call)
        if result is None or result.failure is None:
            return result
        if result.failure.category in _UNWANTED:
            self._unwanted.add(tool)
        return None


class RememberedSummaries:
    """Summaries that go to the memory as well (S7). `kept` is where they go first; None where nothing is kept."""

    def __init__(self, kept: Summaries | None, phases: PhaseCalls, toolset: Toolset) -> None:
        self._kept = kept
        self._phases = phases
        self._toolset = toolset

    async def add(self, summary: Summary) -> None:
        try:
            if self._kept is not None:
                await self._kept.add(summary)
        finally:
            await self._phases.compacted(summary.text, self._toolset)


def _changed(use: ToolUsePart, result: ToolResult) -> bool:
    """Whether a call that succeeded changed files, as far as can be seen: a command tells nobody."""
    return bool(result.diffs) or tool_id(use.name) in _CHANGING


def _has(result: ToolResult, name: str) -> bool:
    """Whether a list in the result's envelope has entries."""
    entries: Json = (result.envelope or {}).get(name)
    return isinstance(entries, list) and bool(entries)


def _told(tool: str, result: ToolResult) -> str:
    return f"{ITSELF}has called {tool}; it says:]\n{result.text}"
