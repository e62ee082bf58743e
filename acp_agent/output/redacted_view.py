"""What a session shows, without secrets: events, questions, and results that did not pass the output pipeline.

Two things are not redacted. A diff shows what would be in the user's own file and could not be judged otherwise. The
answer of the model contains no secret, because the model reads only redacted text. Many editors render titles, notices
and questions as Markdown, so quoted text in them must not load a picture.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import cast

from acp_agent.core import events
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.events import Event, EventSink
from acp_agent.core.ports import Approver, Decision, Question
from acp_agent.core.secrets import Redact
from acp_agent.core.types import Json, JsonObject, Location
from acp_agent.output.markdown_images import defused
from acp_agent.output.redaction.redactor import RedactionStream, Redactor
from acp_agent.output.sanitize import Escapes, sanitize

_BOUNDS = re.compile(r"([\n⏎]|\\[nr]|-{2,}[ ]?(?:BEGIN|END)[ ][A-Z0-9 ]{1,60}-{2,})")
"""Line ends, also written as escapes, and the two ends of a key."""
_DEEPEST = 100
"""The number of nested lists and objects that are shown. Deeper values are left out."""
_PATIENCE = 0.5
"""How many seconds an unfinished line may wait for its end when there is more output."""
_MOST_WAITING = 1024
"""How many bytes of an unfinished line may wait."""
_TAIL = 8 * 1024
"""How many characters at the end of a cancelled call's output stay visible."""


class RedactedEvents:
    """An EventSink in front of another one. It redacts progress as a stream, since a secret may be cut in two.

    Terminal codes are removed, because colours may hide a secret. Carriage returns stay.

    There is no timer. An unfinished line is shown with the next output that comes half a second or more later. A
    question without a line end is therefore shown when it is answered or when the call ends.
    """

    def __init__(self, emit: EventSink, redactor: Redactor, clock: Callable[[], float] = monotonic) -> None:
        self._emit = emit
        self._redactor = redactor
        self._clock = clock
        self._live: dict[str, _Live] = {}

    async def __call__(self, event: Event) -> None:
        redact = self._redactor
        match event:
            case events.ToolStarted():
                await self._emit(
                    replace(
                        event,
                        name=redact(event.name),
                        title=defused(redact(event.title)),
                        raw_input=cast("JsonObject", redact.json(event.raw_input)),
                        locations=event.locations and self._openable(event.locations),
                    )
                )
            case events.ToolProgress():
                if event.output:
                    if (live := self._live.get(event.call_id)) is None:
                        live = self._live[event.call_id] = _Live(RedactionStream(redact), event.before)
                    event = replace(event, output=live.feed(event.output, self._clock()), before="")
                if event.output or event.terminal_id is not None:
                    await self._emit(event)
            case events.ToolFinished():
                await self._finished(event)
            case events.Notice(severity, text):
                await self._emit(events.Notice(severity, defused(redact(text))))
            case _:
                await self._emit(event)

    async def _finished(self, event: events.ToolFinished) -> None:
        """Show the rest of the output, and the result. One that did not pass the pipeline has no stats: redact it."""
        live = self._live.pop(event.call_id, None)
        if live is not None and (rest := live.feed("", self._clock(), last=True)):
            await self._emit(events.ToolProgress(event.call_id, output=rest))
        redact, result = self._redactor, event.result
        failure = result.failure
        if result.locations:
            result = replace(result, locations=self._openable(result.locations))
        if result.stats is None:
            envelope = result.envelope
            result = replace(
                result,
                text=redact(result.text),
                failure=failure and replace(failure, message=redact(failure.message)),
                display=redact(result.shown),
                envelope=envelope if envelope is None else cast("JsonObject", redact.json(envelope)),
            )
        if live is not None and failure is not None and failure.category is ToolErrorCategory.CANCELLED:
            seen = redact(live.seen())  # redact again: an overwritten line may have been written in pieces
            result = replace(result, display=f"{seen}\n\n{result.shown}" if seen else result.shown)
        await self._emit(replace(event, name=redact(event.name), result=result))

    def _openable(self, locations: Sequence[Location]) -> tuple[Location, ...]:
        """Return the locations without secrets. A redacted path could not be opened."""
        return tuple(location for location in locations if self._redactor(location.path) == location.path)


class _Live:
    """The output of one running call."""

    def __init__(self, stream: RedactionStream, before: str) -> None:
        stream.follow(sanitize(before))
        self._stream = stream
        self._escapes = Escapes()
        self._since: float | None = None  # when the unfinished line began to wait
        self._tail = ""  # the end of what was returned
        self._is_cut = False  # whether `_tail` is not everything

    def feed(self, chunk: str, now: float, *, last: bool = False) -> str:
        """Return what can be shown at the time `now`, in seconds; after the last chunk all of it."""
        stream = self._stream
        late = not last and self._since is not None and now - self._since >= _PATIENCE
        given = stream.hurry() if late else ""
        given += stream.feed(self._escapes.feed(chunk, last=last))
        if waiting := stream.waiting:
            given += stream.finish() if last else stream.hurry() if waiting > _MOST_WAITING else ""
        if given or self._since is None:
            self._since = now if waiting and stream.waiting else None
        whole = self._tail + given
        self._tail = whole[-_TAIL:]
        self._is_cut |= len(whole) > _TAIL
        return given

    def seen(self) -> str:
        """Return the end of the output as a terminal shows it. It stays visible if the call has no other result."""
        tail = sanitize(self._tail).strip("\n")
        if not self._is_cut:
            return tail
        _, _, whole_lines = tail.partition("\n")
        return f"…\n{whole_lines or tail}"


class RedactedApprover:
    """An Approver in front of another one.

    Each line is redacted by itself, and so are the ends of a key and the text between them. The text between the ends
    of a false private key may be what runs or what is sent to a server, so the question must show it.
    """

    def __init__(self, approver: Approver, redactor: Redactor) -> None:
        self._approver = approver
        self._redactor = redactor

    async def ask(self, question: Question) -> Decision:
        redact = self._redactor

        def words(text: str) -> str:
            return "".join(map(redact, _BOUNDS.split(text)))

        return await self._approver.ask(
            replace(
                question,
                title=defused(words(question.title)),
                raw_input=_arguments(redact, words, question.raw_input),
                reasons=tuple(defused(words(reason)) for reason in question.reasons),
                always=defused(words(question.always)),
                option=defused(words(question.option)),
                denial=defused(words(question.denial)),
                locations=tuple(path for path in question.locations if redact(path) == path),
                command=defused(words(question.command)),
                text=defused(words(question.text)),
            )
        )


def _arguments(redactor: Redactor, words: Redact, arguments: JsonObject) -> JsonObject:
    """Return the arguments of a call without secrets. Long texts are redacted by line, others also by their names."""

    def shown(name: str, value: Json, depth: int) -> Json:
        match value:
            case str() if _BOUNDS.search(value):
                return words(value)
            case list() | dict() if not depth:
                return "[too deep to be shown]"
            case list():
                return [shown(name, each, depth - 1) for each in value]
            case dict():
                meant = value.get("name") or value.get("key")  # of an object with a `value`, as redaction reads it
                means = {"value": meant} if isinstance(meant, str) else {}
                return {words(each): shown(means.get(each, each), inner, depth - 1) for each, inner in value.items()}
            case _:
                return redactor.json(value, name)

    return {words(name): shown(name, value, _DEEPEST) for name, value in arguments.items()}
