"""Events as they are kept: also a diff without secrets (S9.6).

Who reads along must see what would stand in the user's own file, and judge it; what is kept is a record.
"""

from collections.abc import Sequence
from dataclasses import replace

from anyio import to_thread

from acp_agent.core.events import ToolFinished, ToolStarted, TranscriptEvent
from acp_agent.core.redaction import Redact
from acp_agent.core.types import Diff

_MOMENT = 32 * 1024
"""Characters that nobody has to wait for."""


async def as_kept(event: TranscriptEvent, redact: Redact) -> TranscriptEvent:
    """An event without the secrets of its diffs, which are whole files: long ones are looked through in a thread."""
    match event:
        case ToolStarted(diffs=diffs) if diffs:
            return replace(event, diffs=await _redacted(diffs, redact))
        case ToolFinished(result=result) if result.diffs:
            return replace(event, result=replace(result, diffs=await _redacted(result.diffs, redact)))
        case _:
            return event


async def _redacted(diffs: Sequence[Diff], redact: Redact) -> tuple[Diff, ...]:
    def work() -> tuple[Diff, ...]:
        return tuple(
            Diff(redact(diff.path), None if diff.old_text is None else redact(diff.old_text), redact(diff.new_text))
            for diff in diffs
        )

    length = sum(len(diff.old_text or "") + len(diff.new_text) for diff in diffs)
    return work() if length <= _MOMENT else await to_thread.run_sync(work, abandon_on_cancel=True)
