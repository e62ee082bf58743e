"""What a session shows, without secrets (S9.6): events, the questions it asks, and results no output pipeline saw.

Two things go as they are: a diff, which shows what would stand in the user's own file and could not be judged
otherwise, and the answer of the model, who has seen redacted text only. Titles, notices and questions are markdown to
many editors: what they quote must not fetch a picture (security.md 2.7).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import cast

from acp_agent.core import events
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.events import Event, EventSink
from acp_agent.core.ports import Approver, Decision, Question, Toolset
from acp_agent.core.redaction import Redact
from acp_agent.core.types import Json, JsonObject, Location, ToolCall, ToolResult, ToolSpec
from acp_agent.output.markdown_images import defused
from acp_agent.output.redaction import RedactionStream, Redactor
from acp_agent.output.sanitize import Escapes, sanitize

_BOUNDS = re.compile(r"([\n⏎]|\\[nr]|-{2,}[ ]?(?:BEGIN|END)[ ][A-Z0-9 ]{1,60}-{2,})")
"""Line ends, written out ones too, and the two ends of a key."""
_DEEPEST = 100
"""Lists and objects in each other that are looked into; what lies deeper is not shown."""
_PATIENCE = 0.5
"""Seconds the beginning of a line waits for its end, when there is more output then."""
_MOST_WAITING = 1024
"""Bytes of such a beginning that wait no longer."""
_TAIL = 8 * 1024
"""Characters of a cancelled call's output that stay, as many as were shown while it ran."""


class RedactedEvents:
    """An EventSink before another. Progress of one call is a stream: a secret may be split between two pieces of it.

    What terminals act on is taken out of it: a secret split by colours is one all the same. Carriage returns stay.

    There is no timer here. The beginning of a line goes out with the next output half a second or more later; a
    question that waits in silence for its answer is seen when it gets one, or when the call ends.
    """

    def __init__(self, emit: EventSink, redactor: Redactor, clock: Callable[[], float] = monotonic) -> None:
        self._emit = emit
        self._redactor = redactor
        self._clock = clock
        self._live: dict[str, _Live] = {}

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
            if (live := self._live.get(event.call_id)) is None:
                live = self._live[event.call_id] = _Live(self._redactor.stream())
            event = replace(event, output=live.feed(event.output, self._clock()))
        if event.output or event.terminal_id is not None:
            await self._emit(event)

    async def _finished(self, event: events.ToolFinished) -> None:
        live = self._live.pop(event.call_id, None)
        rest = live.finish() if live is not None else ""
        if rest:
            await self._emit(events.ToolProgress(event.call_id, output=rest))
        result = self._result(event.result)
        if live is not None and result.failure is not None and result.failure.category is ToolErrorCategory.CANCELLED:
            seen = self._redactor(live.seen())  # once more: what stood on a line that was overwritten in pieces
            result = replace(result, display=f"{seen}\n\n{result.shown}" if seen else result.shown)
        await self._emit(replace(event, name=self._redactor(event.name), result=result))

    def _result(self, result: ToolResult) -> ToolResult:
        """A result that did not come through the output pipeline: a refusal, or a call nobody could understand."""
        result = replace(result, locations=self._openable(result.locations))
        if result.stats is not None:
            return result
        failure = result.failure
        return replace(
            result,
            text=self._redactor(result.text),
            failure=failure and replace(failure, message=self._redactor(failure.message)),
            display=self._redactor(result.shown),
            envelope=None if result.envelope is None else _object(self._redactor, result.envelope),
        )

    def _openable(self, locations: Sequence[Location]) -> tuple[Location, ...]:
        """A path with a secret in it cannot be shown, and redacted it could not be opened."""
        return tuple(location for location in locations if self._redactor(location.path) == location.path)


class _Live:
    """The output of one call under way."""

    def __init__(self, stream: RedactionStream) -> None:
        self._stream = stream
        self._escapes = Escapes()
        self._since: float | None = None  # when the beginning of a line began to wait
        self._tail = ""  # of what was given
        self._is_cut = False  # whether that is not all

    def feed(self, chunk: str, now: float) -> str:
        """What can be shown `now`, in seconds."""
        late = self._since is not None and now - self._since >= _PATIENCE
        given = self._stream.hurry() if late else ""
        given += self._stream.feed(self._escapes.feed(chunk))
        if self._stream.waiting > _MOST_WAITING:
            given += self._stream.hurry()
        if given or self._since is None:
            self._since = now if self._stream.waiting else None
        return self._given(given)

    def finish(self) -> str:
        """The rest."""
        return self._given(self._stream.feed(self._escapes.finish()) + self._stream.finish())

    def seen(self) -> str:
        """The end of what was given, as a terminal shows it: it stays when nothing else comes of a call."""
        tail = sanitize(self._tail).strip("\n")
        if not self._is_cut:
            return tail
        _, _, whole_lines = tail.partition("\n")
        return f"…\n{whole_lines or tail}"

    def _given(self, text: str) -> str:
        whole = self._tail + text
        self._tail = whole[-_TAIL:]
        self._is_cut |= len(whole) > _TAIL
        return text


class RedactedApprover:
    """An Approver before another.

    Each line is redacted by itself, and the ends of a key apart from what stands between them: between those of a
    made-up private key stands what runs, or what a server would be sent, and what is asked must show it.
    """

    def __init__(self, approver: Approver, redactor: Redactor) -> None:
        self._approver = approver
        self._redactor = redactor

    async def ask(self, question: Question) -> Decision:
        redact, words = self._redactor, _by_line(self._redactor)
        return await self._approver.ask(
            replace(
                question,
                title=defused(words(question.title)),
                raw_input=_arguments(redact, words, question.raw_input),
                reasons=tuple(defused(words(reason)) for reason in question.reasons),
                always=defused(words(question.always)),
                locations=tuple(path for path in question.locations if redact(path) == path),
                text=defused(words(question.text)),
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

    async def refuse(self, call: ToolCall, result: ToolResult) -> None:
        await self._toolset.refuse(call, result)


def _harmless(redactor: Redactor, text: str) -> str:
    return defused(redactor(text))


def _by_line(redactor: Redactor) -> Redact:
    """Line ends as they are, as a question shows them, or written out."""

    def redact(text: str) -> str:
        return "".join(map(redactor, _BOUNDS.split(text)))

    return redact


def _arguments(redactor: Redactor, words: Redact, arguments: JsonObject) -> JsonObject:
    """The arguments of a call: texts of several lines by line, others by their names too."""

    def shown(name: str, value: Json, depth: int) -> Json:
        match value:
            case str() if _BOUNDS.search(value):
                return words(value)
            case list() | dict() if not depth:
                return "[too deep to be shown]"
            case list():
                return [shown(name, each, depth - 1) for each in value]
            case dict():
                meant = value.get("name") or value.get("key")  # of an object with a `value`, as redaction takes it
                means = {"value": meant} if isinstance(meant, str) else {}
                return {words(each): shown(means.get(each, each), inner, depth - 1) for each, inner in value.items()}
            case _:
                return _object(redactor, {name: value}).popitem()[1]

    return {words(name): shown(name, value, _DEEPEST) for name, value in arguments.items()}


def _object(redactor: Redactor, value: JsonObject) -> JsonObject:
    return cast("JsonObject", redactor.json(value))
