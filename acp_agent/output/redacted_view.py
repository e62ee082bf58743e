"""Redact what a session shows: events, questions, and results that did not pass the output pipeline.

Two things are not redacted: diffs, because the user must see the exact change to their file to judge it, and answers of
the model, because the model reads only redacted text and what the user typed. Many editors render titles, notices and
questions as Markdown, so quoted text in them must not load a picture.
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
from acp_agent.core.types import Json, JsonObject, Location, ToolKind
from acp_agent.output.markdown_images import defused
from acp_agent.output.redaction.redactor import RedactionStream, Redactor
from acp_agent.output.sanitize import Escapes, fence, sanitize

_BOUNDS = re.compile(r"([\n⏎]|\\[nr]|-{2,}[ ]?(?:BEGIN|END)[ ][A-Z0-9 ]{1,60}-{2,})")
"""Line ends, also written as escapes, and the first and last line of a private key."""
_ENDS = frozenset(("", "\n", "⏎", "\\n", "\\r"))
"""Pieces without a secret. A long text has one after each line, and redacting it costs as much as redacting a line."""
_DEEPEST = 100
"""The number of nested lists and objects that are shown. Deeper values are left out."""
_PATIENCE = 0.5
"""How many seconds an unfinished line may wait for its end when there is more output."""
_MOST_WAITING = 1024
"""How many bytes of an unfinished line may wait."""
_TAIL = 8 * 1024
"""How many characters at the end of a cancelled call's output stay visible."""
_MOST_CANCELLED = 64
"""Of how many cancelled calls the output is kept for the model."""


class RedactedEvents:
    """An EventSink that redacts events and passes them to another one.

    Progress is redacted as a stream, since a secret may be split over two events. Terminal codes are removed from it,
    because colours may hide a secret. Carriage returns stay.

    There is no timer. An unfinished line is shown with the next output that comes half a second or more later. So a
    program's question without a line end is shown only when it is answered or when the call ends.
    """

    def __init__(self, emit: EventSink, redactor: Redactor, clock: Callable[[], float] = monotonic) -> None:
        self._emit = emit
        self._redactor = redactor
        self._clock = clock
        self._live: dict[str, _Live] = {}
        self._commands: set[str] = set()  # the calls that run a command
        self._cancelled: dict[str, str] = {}  # the ends of the outputs of cancelled commands

    async def __call__(self, event: Event) -> None:
        redact = self._redactor
        match event:
            case events.ToolStarted():
                if event.kind is ToolKind.EXECUTE:
                    self._commands.add(event.call_id)
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
        """Show the rest of the output, and the result. A result without stats did not pass the pipeline: redact it."""
        live, is_command = self._live.pop(event.call_id, None), event.call_id in self._commands
        self._commands.discard(event.call_id)
        if live is not None and (rest := live.feed("", self._clock(), last=True)):
            await self._emit(events.ToolProgress(event.call_id, output=rest))
        redact, result = self._redactor, event.result
        failure, ruling = result.failure, result.ruling
        if result.locations:
            result = replace(result, locations=self._openable(result.locations))
        if result.wall or (ruling is not None and ruling.rule):  # both may quote a path of the call
            ruling = ruling and replace(ruling, rule=redact(ruling.rule))
            result = replace(result, ruling=ruling, wall=redact(result.wall))
        if result.stats is None:
            envelope = result.envelope
            if failure is not None:
                failure = replace(failure, message=redact(failure.message), suggestion=redact(failure.suggestion))
            result = replace(
                result,
                text=redact(result.text),
                failure=failure,
                display=redact(result.shown),
                envelope=envelope if envelope is None else cast("JsonObject", redact.json(envelope)),
            )
        if live is not None and failure is not None and failure.category is ToolErrorCategory.CANCELLED:
            seen = redact(live.seen())  # redact again, since a carriage return may join pieces
            if seen:
                if is_command:  # what another agent said would reach the model without lowering the trust
                    self._keep(event.call_id, seen)
                result = replace(result, display=f"{seen}\n\n{result.shown}")
        await self._emit(replace(event, name=redact(event.name), result=result))

    def _keep(self, call_id: str, seen: str) -> None:
        self._cancelled[call_id] = seen
        if len(self._cancelled) > _MOST_CANCELLED:  # nobody asks about a command of the user or of a sub-agent
            del self._cancelled[next(iter(self._cancelled))]

    def output_of_cancelled(self, call_id: str) -> str:
        """Return the end of what a cancelled command had printed, in a fence, and forget it. Empty for nothing."""
        seen = self._cancelled.pop(call_id, "")
        return fence(seen, call_id) if seen else ""

    def _openable(self, locations: Sequence[Location]) -> tuple[Location, ...]:
        """Return the locations whose paths contain no secret. A redacted path could not be opened."""
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
        """Return the text that can be shown at the time `now`, in seconds. With `last`, return all of it."""
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
        """Return the end of the output as a terminal shows it, for a call that is cancelled."""
        tail = sanitize(self._tail).strip("\n")
        if not self._is_cut:
            return tail
        _, _, whole_lines = tail.partition("\n")
        return f"…\n{whole_lines or tail}"


class RedactedApprover:
    """An Approver that redacts questions and passes them to another one.

    Each line is redacted separately, and so are the first and last line of a private key. Otherwise a command between
    the two lines of a false key would be hidden from the user who is asked about it.
    """

    def __init__(self, approver: Approver, redactor: Redactor) -> None:
        self._approver = approver
        self._redactor = redactor

    async def ask(self, question: Question) -> Decision:
        redact = self._redactor

        def words(text: str) -> str:
            return "".join(piece if piece in _ENDS else redact(piece) for piece in _BOUNDS.split(text))

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
    """Return arguments without secrets. Texts of several lines are redacted line by line, others also by their name."""

    def shown(name: str, value: Json, depth: int) -> Json:
        match value:
            case str() if _BOUNDS.search(value):
                return words(value)
            case list() | dict() if not depth:
                return "[too deep to be shown]"
            case list():
                return [shown(name, each, depth - 1) for each in value]
            case dict():
                meant = value.get("name") or value.get("key")  # redaction takes it as the key of the object's `value`
                means = {"value": meant} if isinstance(meant, str) else {}
                return {words(each): shown(means.get(each, each), inner, depth - 1) for each, inner in value.items()}
            case _:
                return redactor.json(value, name)

    return {words(name): shown(name, value, _DEEPEST) for name, value in arguments.items()}
