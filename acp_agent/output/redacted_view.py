"""What a session shows, without secrets (S9.6): events, the questions it asks, and results no output pipeline saw.

Two things go as they are: a diff, which shows what would stand in the user's own file and could not be judged
otherwise, and the answer of the model, who has seen redacted text only. Titles, notices and questions are markdown to
many editors: what they quote must not fetch a picture (security.md 2.7).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from acp_agent.core import events
from acp_agent.core.events import Event, EventSink
from acp_agent.core.ports import Approver, Decision, Question, Toolset
from acp_agent.core.types import JsonObject, Location, ToolCall, ToolResult, ToolSpec
from acp_agent.output.markdown_images import defused
from acp_agent.output.redaction import RedactionStream, Redactor


class RedactedEvents:
    """An EventSink before another. Progress of one call is a stream: a secret may be split between two pieces of it."""

    def __init__(self, emit: EventSink, redactor: Redactor) -> None:
        self._emit = emit
        self._redactor = redactor
        self._streams: dict[str, RedactionStream] = {}

    async def __call__(self, event: Event) -> None:
        match event:
            case events.ToolStarted():
                await self._emit(self._started(event))
            case events.ToolProgress():
                await self._progress(event)
            case events.ToolFinished():
                await self._finished(event)
            case events.Notice(severity, text):
                await self._emit(events.Notice(severity, _harmless(self._redactor, text)))
            case _:
                await self._emit(event)

    def _started(self, event: events.ToolStarted) -> events.ToolStarted:
        return replace(
            event,
            name=self._redactor(event.name),
            title=_harmless(self._redactor, event.title),
            raw_input=_object(self._redactor, event.raw_input),
            locations=self._openable(event.locations),
        )

    async def _progress(self, event: events.ToolProgress) -> None:
        if event.output:
            stream = self._streams.setdefault(event.call_id, self._redactor.stream())
            event = replace(event, output=stream.feed(event.output))
        if event.output or event.terminal_id is not None:
            await self._emit(event)

    async def _finished(self, event: events.ToolFinished) -> None:
        stream = self._streams.pop(event.call_id, None)
        rest = stream.finish() if stream is not None else ""
        if rest:
            await self._emit(events.ToolProgress(event.call_id, output=rest))
        await self._emit(replace(event, name=self._redactor(event.name), result=self._result(event.result)))

    def _result(self, result: ToolResult) -> ToolResult:
        """A result that did not come through the output pipeline: a refusal, or a call nobody could understand."""
        result = replace(result, locations=self._openable(result.locations))
        if result.stats is not None:
            return result
        return replace(
            result,
            display=self._redactor(result.shown),
            envelope=None if result.envelope is None else _object(self._redactor, result.envelope),
        )

    def _openable(self, locations: Sequence[Location]) -> tuple[Location, ...]:
        """A path with a secret in it cannot be shown, and redacted it could not be opened."""
        return tuple(location for location in locations if self._redactor(location.path) == location.path)


class RedactedApprover:
    """An Approver before another."""

    def __init__(self, approver: Approver, redactor: Redactor) -> None:
        self._approver = approver
        self._redactor = redactor

    async def ask(self, question: Question) -> Decision:
        redact = self._redactor
        return await self._approver.ask(
            replace(
                question,
                title=_harmless(redact, question.title),
                raw_input=_object(redact, question.raw_input),
                reasons=tuple(_harmless(redact, reason) for reason in question.reasons),
                always=_harmless(redact, question.always),
                locations=tuple(path for path in question.locations if redact(path) == path),
            )
        )


class RedactedToolset:
    """A Toolset before another: what the model reads of refusals, and of calls nobody could understand.

    They can quote a file, as a failed edit does, and did not come through the output pipeline.
    """

    def __init__(self, toolset: Toolset, redactor: Redactor) -> None:
        self._toolset = toolset
        self._redactor = redactor

    def specs(self) -> Sequence[ToolSpec]:
        return self._toolset.specs()

    async def run(self, call: ToolCall) -> ToolResult:
        result = await self._toolset.run(call)
        return result if result.stats is not None else replace(result, text=self._redactor(result.text))


def _harmless(redactor: Redactor, text: str) -> str:
    return defused(redactor(text))


def _object(redactor: Redactor, value: JsonObject) -> JsonObject:
    return cast("JsonObject", redactor.json(value))
