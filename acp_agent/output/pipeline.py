"""The way of a tool's result to its readers: sanitize -> redact -> filter -> clip -> fence.

    every string     is sanitized and redacted
    model and user   get filtered command output; dropped lines that matter are put back
    user, machines   get at most `display` characters
    model            gets at most `threshold` characters, or `preview` if the whole text is stored; fenced as data

`apply` is pure and may run in any thread, which it should for megabytes of text. The caller then stores the whole text,
if it can, and calls `finish`.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from acp_agent.core.errors import ToolFailure
from acp_agent.core.types import Frame, Json, JsonObject, OutputStats, ToolKind, ToolResult, ToolSpec
from acp_agent.output.filters.engine import FilterEngine
from acp_agent.output.filters.strategy import CommandRun, Filtered
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.sanitize import fence, sanitize
from acp_agent.text import SMALLEST_LIMIT, clip, measure

_CATEGORY = re.compile(r"[a-z0-9_-]{1,40}")


def redaction_note(found: Mapping[str, int]) -> str:
    """Return `[security] 3 secrets redacted: api-key 2, password 1`, most frequent first; "" if there were none.

    Only categories that look like the redactor's own are named.
    """
    counts = sorted(((name, count) for name, count in found.items() if count > 0), key=lambda one: (-one[1], one[0]))
    if not counts:
        return ""
    total = sum(count for _, count in counts)
    named = ", ".join(f"{name if _CATEGORY.fullmatch(name) else 'other'} {count}" for name, count in counts)
    return f"[security] {total} secret{'' if total == 1 else 's'} redacted: {named}"


_WORTH_IT = 200
"""How many characters a filter must save. The sentence that says where the whole text is costs most of them."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of characters that each reader gets.

    threshold   the most that the model gets of a text. There is no other such limit
    preview     the part of a longer text that the model gets if the whole text is stored and can be read on
    display     the most that the editor gets of each string: the display and every string of the envelope

    Raises ValueError for a limit under 256, or a preview over the threshold.
    """

    threshold: int = 50_000
    preview: int = 5_000
    display: int = 8 * 1024

    def __post_init__(self) -> None:
        for name in ("threshold", "preview", "display"):
            if (limit := getattr(self, name)) < SMALLEST_LIMIT:
                raise ValueError(f"{name} = {limit}: expected at least {SMALLEST_LIMIT} characters")
        if self.preview > self.threshold:
            raise ValueError(f"preview = {self.preview}: expected at most the threshold, {self.threshold}")


class ResultSource(NamedTuple):
    """Where a result comes from.

    call_id   the UUID of the call
    run       the command that ran, None for other tools
    source    the URL or the MCP server that the text comes from, None for this machine
    """

    spec: ToolSpec
    call_id: str
    run: CommandRun | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Fitted:
    """A result that is complete but for its end.

    whole   the redacted text for the model before anything was left out, to be stored. "" if nothing was left out
    long    whether it is over the threshold, so that only a part of it can be shown
    telling lines that matter from the part of a command's long output that is left out
    """

    result: ToolResult
    whole: str
    long: bool
    telling: str
    _sizes: Sizes
    _source: ResultSource
    _frame: Frame
    _note: str

    def finish(self, reference: str = "", trouble: str = "", summary: str = "") -> ToolResult:
        """Return the finished result.

        reference   the name under which the whole text is stored, "" if it is not
        trouble     why it could not be stored, or ""
        summary     replaces a long text
        """
        limit = self._sizes.preview if self.long and reference else self._sizes.threshold
        text = summary or self._clipped(limit)
        stats = self.result.stats and replace(
            self.result.stats, shown_lines=measure("", text).shown_lines, shown_chars=len(text)
        )
        parts = (
            self._frame.head,
            self._fenced(text),
            self._frame.ending,
            self._note,
            self._whole_note(reference, trouble),
        )
        return replace(self.result, text="\n".join(filter(None, parts)), stats=stats, frame=None)

    def _clipped(self, limit: int) -> str:
        if not self.telling:
            return clip(self.result.text, limit).text
        return f"{clip(self.result.text, limit - len(self.telling) - 1).text}\n{self.telling}"

    def _fenced(self, text: str) -> str:
        """Return the text fenced as data, unless it is an error or only reports what the tool did."""
        spec = self._source.spec
        foreign = spec.kind is ToolKind.EXECUTE or spec.external or not spec.mutates
        framed = self.result.failure is None or bool(self._frame.head)
        if not (foreign and framed and text):
            return text
        return fence(text, self._source.call_id, external=(self._source.source or spec.name) if spec.external else None)

    def _whole_note(self, reference: str, trouble: str) -> str:
        if reference:
            size = f"{measure(self.whole, '').raw_lines} lines, {len(self.whole)} chars"
            return f"[the whole output ({size}) is {reference}: read_overflow reads or searches it]"
        return f"[the whole output was not kept: {trouble}]" if trouble else ""


class Pipeline:
    """Fits results to their readers.

    redactor   removes secrets from every string
    filters    shorten the output of commands; None if they are off
    """

    def __init__(self, sizes: Sizes, redactor: Redactor, filters: FilterEngine | None = None) -> None:
        self._sizes = sizes
        self._redactor = redactor
        self._filters = filters

    def apply(self, result: ToolResult, source: ResultSource) -> Fitted:
        """Return the result with text, display, envelope and failure ready to be shown, and with `stats` of the text.

        `envelope["truncated"]` becomes True if a string of the result was cut. Diffs and locations are not changed,
        because an editor applies them to real files. Pictures contain no text and are not changed either.
        """
        return _PipelineRun(self._sizes, self._redactor, self._filters, source).apply(result)


class _PipelineRun:
    """One run over one result. Equal strings are processed once, since stdout often is the text."""

    def __init__(self, sizes: Sizes, redactor: Redactor, filters: FilterEngine | None, source: ResultSource) -> None:
        self._sizes = sizes
        self._redactor = redactor
        self._filters = filters
        self._source = source
        self._clean: dict[str, str] = {}
        self._found = Counter[str]()
        self._cut = False

    def apply(self, result: ToolResult) -> Fitted:
        whole = self._redacted(result.text)
        filtered = self._filtered(whole)
        text = whole if filtered is None else filtered.text
        long = len(text) > self._sizes.threshold
        shown = self._clip(text if result.display is None else self._redacted(result.display))
        envelope = self._object(result.envelope) if result.envelope is not None else None
        if envelope is not None and (self._cut or long):
            envelope["truncated"] = True
        frame = self._frame(result.frame or Frame())
        failure = self._failure(result.failure) if result.failure is not None else None
        note = redaction_note(self._found)
        fitted = replace(
            result,
            text=text,
            display="\n".join(filter(None, (frame.headline, shown, frame.ending, note))),
            envelope=envelope,
            failure=failure,
            stats=_stats(result.text, text, filtered),
        )
        left_out = long or len(text) < len(whole)
        telling = self._telling(text) if long and self._source.run is not None else ""
        return Fitted(fitted, whole if left_out else "", long, telling, self._sizes, self._source, frame, note)

    def _telling(self, text: str) -> str:
        """Return errors and warnings between the head and the tail of a preview, in two fifths of its room."""
        room = self._sizes.preview * 2 // 5
        dropped = _preserved(text, clip(text, max(self._sizes.preview - room, SMALLEST_LIMIT)).text)
        return clip(dropped, room).text if room >= SMALLEST_LIMIT else ""

    def _filtered(self, text: str) -> Filtered | None:
        """Return the filtered output of a command, or `text` itself if that would save next to nothing."""
        if self._filters is None or self._source.run is None:
            return None
        filtered = shortened(text, self._source.run, self._filters)
        if filtered is None or len(filtered.text) + _WORTH_IT < len(text):
            return filtered
        return replace(filtered, text=text)

    def _redacted(self, text: str) -> str:
        if text not in self._clean:
            redacted = self._redactor.redact(sanitize(text, terminal=self._source.spec.kind is ToolKind.EXECUTE))
            self._clean[text] = redacted.text
            self._found |= Counter(redacted.found)  # stdout and the text contain the same secrets
        return self._clean[text]

    def _clip(self, text: str) -> str:
        clipped = clip(text, self._sizes.display)
        self._cut = self._cut or clipped.omitted > 0
        return clipped.text

    def _object(self, value: JsonObject) -> JsonObject:
        return {key: self._json(item) for key, item in value.items()}

    def _json(self, value: Json) -> Json:
        match value:
            case str():
                return self._clip(self._redacted(value))
            case list():
                return [self._json(item) for item in value]
            case dict():
                return self._object(value)
            case _:
                return value

    def _frame(self, frame: Frame) -> Frame:
        return Frame(*map(self._redacted, (frame.head, frame.headline, frame.ending)))

    def _failure(self, failure: ToolFailure) -> ToolFailure:
        return replace(
            failure,
            message=self._clip(self._redacted(failure.message)),
            suggestion=self._clip(self._redacted(failure.suggestion)),
        )


def shortened(text: str, run: CommandRun, filters: FilterEngine) -> Filtered | None:
    """Return the filtered output of a command with dropped lines that matter. None if no rule matches."""
    filtered = filters.apply(text, run)
    if filtered is None or not filtered.removed:
        return filtered
    kept = _preserved(text, filtered.text)
    return replace(filtered, text="\n".join((filtered.text.removesuffix("\n"), kept))) if kept else filtered


def _preserved(text: str, shown: str) -> str:
    from acp_agent.output.security_notes import preserved  # noqa: PLC0415 - a hundred expressions, for what is shortened

    return preserved(text, shown)


def _stats(raw: str, text: str, filtered: Filtered | None) -> OutputStats:
    stats = measure(raw, text)
    if filtered is None:
        return stats
    return replace(stats, rules=tuple(filtered.rules), confidence=filtered.confidence)


def stats_line(stats: OutputStats, name: str) -> str:
    """Return `[name] 342 lines -> 28 lines, 91.8% filtered`, or "" if no line was removed."""
    removed = stats.raw_lines - stats.shown_lines
    if removed <= 0:
        return ""
    return f"[{name}] {stats.raw_lines} lines -> {stats.shown_lines} lines, {removed / stats.raw_lines:.1%} filtered"
