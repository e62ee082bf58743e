"""Tool calls that the agent makes by itself during a turn. They are off by default.

    PLANNER      before the first model call of a turn: search the memory for notes that fit the prompt
    VERIFIER     after a round that changed files: run the project's checkers
    AUTONOMOUS   after a compaction: save its summary to the memory, without asking the user

Each call passes all gates, is shown in the editor and is recorded with its phase. The agent itself sets the phase, so
no text of the model can claim one.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from uuid import uuid4

import anyio

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.messages import Message, ToolUsePart
from acp_agent.core.ports import Toolset
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.services import Summaries, Summary
from acp_agent.core.types import Json, JsonObject, Phase, ToolCall, ToolResult, tool_id
from acp_agent.text import ITSELF, REFLECTION

_SEARCH, _CHECK, _SAVE = "memory_search", "diagnostics", "memory_save"
_QUERY = 1_000  # characters of the prompt that are searched for
_NOTE_PREFIX = "[summary of a conversation] "
_NOTE_BYTES = 8 * 1024
SECONDS = {Phase.PLANNER: 10.0, Phase.VERIFIER: 180.0, Phase.AUTONOMOUS: 10.0}
"""The time a call may take, by phase. Waiting for the user's permission counts."""

_CHANGING = frozenset({"edit", "write", "create_directory", "delete_path", "move_path", "copy_path"})
_REFUSALS = frozenset({ToolErrorCategory.POLICY_BLOCKED, ToolErrorCategory.CONFIRMATION_REQUIRED})


class PhaseCalls:
    """The agent's own calls in one conversation. The methods raise only cancellation.

    A tool that the session does not have is not called. After the user or a gate has refused a call, its tool is not
    called again before `clear`, so that the user does not see the same question after every round.

    seconds      the time a call may take, by phase
    note_bytes   the largest size of a note in the memory, in bytes of UTF-8
    redact       removes secrets from the text to search for, before the text is cut
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
        self._refused: set[str] = set()
        self._made: dict[Phase, int] = dict.fromkeys(SECONDS, 0)

    async def before_first_inference(self, prompt: Message, toolset: Toolset) -> str | None:
        """Return the notes that fit the prompt, as text that the model gets after the prompt; None for none.

        Raises only cancellation.
        """
        query = " ".join(self._redact(prompt.text).split())[:_QUERY]
        result = await self._run(Phase.PLANNER, _SEARCH, {"query": query}, toolset) if query else None
        return _report(_SEARCH, result) if result is not None and _has(result, "ids") else None

    async def after_round(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]], toolset: Toolset) -> str | None:
        """Return the report of the checkers, as text that the model gets after the results; None for none.

        Raises only cancellation.
        """
        changes = (result.diffs or tool_id(use.name) in _CHANGING for use, result in outcomes if result.failure is None)
        if not any(changes):  # the result of a shell command has diffs only if tools.shell.show_changes is on
            return None
        result = await self._run(Phase.VERIFIER, _CHECK, {}, toolset)
        return _report(_CHECK, result) if result is not None and _has(result, "diagnostics") else None

    async def compacted(self, summary: str, toolset: Toolset) -> None:
        """Save the summary of a compaction to the memory, as much of it as fits into one note.

        The user is not asked, but every gate applies. The note begins by saying that it is a summary.
        """
        if text := summary.strip():
            note = f"{_NOTE_PREFIX}{text}".encode("utf-8", "replace")[: self._note_bytes].decode("utf-8", "ignore")
            await self._run(Phase.AUTONOMOUS, _SAVE, {"content": note}, toolset)

    def clear(self) -> None:
        """Allow refused calls again, because a new conversation begins."""
        self._refused.clear()
        self._made = dict.fromkeys(SECONDS, 0)

    def status(self) -> tuple[str, ...]:
        return (f"Phases: {', '.join(f'{phase} {count}' for phase, count in self._made.items())} calls",)

    async def _run(self, phase: Phase, tool: str, arguments: JsonObject, toolset: Toolset) -> ToolResult | None:
        """Run one call and return its result. Return None if it was not made, failed or took too long."""
        if tool in self._refused or all(spec.name != tool for spec in toolset.specs()):
            return None
        self._made[phase] += 1
        call = ToolCall(str(uuid4()), tool, arguments, batch=str(uuid4()), phase=phase)
        result: ToolResult | None = None
        with anyio.move_on_after(self._seconds[phase]):
            result = await toolset.run(call)
        if result is None or result.failure is None:
            return result
        if result.failure.category in _REFUSALS:
            self._refused.add(tool)
        return None


class RememberedSummaries:
    """A store of summaries that also saves them to the memory. `store` also gets them, unless it is None."""

    def __init__(self, store: Summaries | None, phases: PhaseCalls, toolset: Callable[[], Toolset]) -> None:
        self._store = store
        self._phases = phases
        self._toolset = toolset

    async def add(self, summary: Summary) -> None:
        try:
            if self._store is not None:
                await self._store.add(summary)
        finally:
            await self._phases.compacted(summary.text, self._toolset())


def _has(result: ToolResult, name: str) -> bool:
    """Return whether the list `name` in the result's envelope has entries."""
    entries: Json = (result.envelope or {}).get(name)
    return isinstance(entries, list) and bool(entries)


def _report(tool: str, result: ToolResult) -> str:
    return f"{ITSELF}has called {tool}; it says:]\n{result.text}"


@frozen
class Record:
    """The number of calls of one model, and how many of them were mistakes of the model."""

    calls: int = 0
    mistakes: int = 0

    @property
    def score(self) -> float:
        """Return the expected share of correct calls, 0 to 1, by the rule of succession. It is 0.5 without any call."""
        return (self.calls - self.mistakes + 1) / (self.calls + 2)


REPEATED = 2
"""The number of failures of one tool in a turn after which the model gets advice."""

_WRONG_ARGUMENTS = frozenset({ToolErrorCategory.INVALID_PARAMETERS, ToolErrorCategory.TYPE_MISMATCH})


class Reflection:
    """An observer that counts failures: by tool, for advice to the model, and by model, for the user.

    The count of a tool returns to 0 when a call of it succeeds, and when a turn begins. Calls that a gate, the user or
    an outside failure stopped do not count in the record of a model.

    model   returns the model whose calls are running, as "PROVIDER:MODEL"
    """

    def __init__(self, model: Callable[[], str]) -> None:
        self._model = model
        self._records: dict[str, Record] = {}
        self._failures: Counter[str] = Counter()

    def of(self, model: str) -> Record:
        return self._records.get(model, Record())

    def begin(self) -> None:
        self._failures.clear()

    def clear(self) -> None:
        """Forget all counts, because a new conversation begins."""
        self._failures.clear()
        self._records.clear()

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> str | None:
        """Count the calls of one round. Return a block for the model to read behind the results, or None."""
        model = self._model()
        record = self._records.get(model, Record())
        failed: dict[str, None] = {}
        for use, result in outcomes:
            if result.failure is None:
                record = Record(record.calls + 1, record.mistakes)
                self._failures.pop(use.name, None)
                failed.pop(use.name, None)
                continue
            if result.failure.category.quality_failure:
                record = Record(record.calls + 1, record.mistakes + 1)
            if result.failure.category in _WRONG_ARGUMENTS:
                self._failures[use.name] += 1
                failed[use.name] = None
        self._records[model] = record
        if not failed:
            return None
        lines = [_advice(name, self._failures[name]) for name in failed if self._failures[name] >= REPEATED]
        return "\n".join((REFLECTION, *lines)) if lines else None

    def status(self) -> tuple[str, ...]:
        """Return lines for /status, one for each model that made a mistake."""
        return tuple(
            f"Reputation: {model} {record.score:.2f} ({record.mistakes} of {record.calls} calls did not fit their tool)"
            for model, record in self._records.items()
            if record.mistakes
        )


def _advice(tool: str, failures: int) -> str:
    return (
        f"{tool}: {failures} calls in this turn had arguments that do not fit. Before the next one, compare what you "
        "sent with the tool's schema, field by field, and change what the errors name; or do it another way."
    )
