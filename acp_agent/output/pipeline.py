"""The way of a tool's result to its readers: sanitize -> redact -> filter -> clip -> fence.

    every string     is sanitized and redacted
    model and user   get filtered command output; dropped lines that matter are put back
    user, editor     get at most `display` characters of each string
    model            gets at most `threshold` characters, and `preview` of a longer text that is stored; fenced as data

`apply` is pure and may run in any thread, which it should for megabytes of text. The caller then stores the whole text,
if it can, and calls `finish`.
"""

import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, cast

from acp_agent.core.data import frozen
from acp_agent.core.types import Frame, JsonObject, OutputStats, ToolKind, ToolResult, ToolSpec
from acp_agent.output.filters.engine import FilterEngine
from acp_agent.output.filters.strategy import CommandRun, Filtered, Restored
from acp_agent.output.redaction.redactor import Redacted, Redactor
from acp_agent.output.sanitize import faithful, fence, sanitize
from acp_agent.text import SMALLEST_LIMIT, clip, is_plain, lines_of, measure

_CATEGORY = re.compile(r"[a-z0-9_-]{1,40}")


def redaction_note(found: Mapping[str, int]) -> str:
    """Return `[security] 3 secrets redacted: api-key 2, password 1`, most frequent first; "" if there were none.

    Only categories that look like the redactor's own are named.
    """
    total = sum(found.values())
    if not total:
        return ""
    counts = sorted((+Counter(found)).items(), key=lambda one: (-one[1], one[0]))
    named = ", ".join(f"{name if _CATEGORY.fullmatch(name) else 'other'} {count}" for name, count in counts)
    return f"[security] {total} secret{'' if total == 1 else 's'} redacted: {named}"


_WORTH_IT = 200
"""How many characters a filter must save. The sentence that says where the whole text is stored needs most of them."""
_SHORT = 2000
"""An output of fewer characters is not filtered: the notes about missing lines would be as long as these lines."""


@frozen
class Sizes:
    """The number of characters that each reader gets.

    threshold   the most that the model gets of a text
    preview     the part of a longer text that the model gets if the whole text is stored, so that it can read the rest
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
    """The origin of a result.

    call_id   the UUID of the call
    run       the command that ran, None for other tools
    source    the URL or the MCP server that the text comes from, None for this machine
    """

    spec: ToolSpec
    call_id: str
    run: CommandRun | None = None
    source: str | None = None


@frozen
class Fitted:
    """A result that is complete but for the note that says where its whole text is stored.

    whole   the redacted text for the model before anything was left out, to be stored; "" if nothing was left out
    lines   the number of lines of `whole`
    long    whether the text is over the threshold, so that only a part of it can be shown
    telling the errors and warnings in the part of a command's long output that is left out
    partial whether `whole` is not all there was, because the terminal did not keep it
    """

    result: ToolResult
    whole: str
    lines: int
    long: bool
    telling: str
    partial: bool
    _sizes: Sizes
    _source: ResultSource
    _frame: Frame
    _note: str

    def finish(self, reference: str = "", trouble: str = "", summary: str = "") -> ToolResult:
        """Return the finished result.

        The text is fenced as data, unless it is an error or only reports what the tool did.

        reference   the name under which the whole text is stored, "" if it is not
        trouble     why it could not be stored, or ""
        summary     replaces a long text; "" for none
        """
        text, spec = summary, self._source.spec
        if not text:
            limit = self._sizes.preview if self.long and reference else self._sizes.threshold
            room = limit - len(self.telling) - 1 if self.telling else limit
            text = clip(self.result.text, room) + (f"\n{self.telling}" if self.telling else "")
        stats = self.result.stats and replace(self.result.stats, shown_lines=lines_of(text), shown_chars=len(text))
        if text and (self.result.failure is None or self._frame.head):
            if spec.external:
                text = fence(text, self._source.call_id, external=self._source.source or spec.name)
            elif spec.kind is ToolKind.EXECUTE or not spec.mutates:
                text = fence(text, self._source.call_id)
        kept = f"[the whole output was not stored: {trouble}]" if trouble else ""
        if reference:
            size = f"{self.lines} lines, {len(self.whole)} chars"
            what = "what was kept of the output" if self.partial else "the whole output"
            kept = f"[{what} ({size}) is {reference}: read_overflow reads or searches it]"
        parts = (self._frame.head, text, self._frame.ending, self._note, kept)
        return replace(self.result, text="\n".join(filter(None, parts)), stats=stats, frame=None)


class Pipeline:
    """Sanitizes, redacts, filters and cuts results.

    redactor   removes secrets from every string
    filters    shorten the output of commands; None if they are off
    """

    def __init__(self, sizes: Sizes, redactor: Redactor, filters: FilterEngine | None = None) -> None:
        self._sizes = sizes
        self._redactor = redactor
        self._filters = filters
        self._loading = threading.Lock()
        self.is_loaded = filters is None

    def load(self) -> None:
        """Load the filters, so that the first long output does not wait for them. Any thread may call this."""
        with self._loading:
            if self._filters is not None and not self.is_loaded:
                self._filters.load()
                _preserved("a line", "", "a line", suspects=False)
                self.is_loaded = True

    def apply(self, result: ToolResult, source: ResultSource) -> Fitted:
        """Return the result with text, display, envelope and failure ready to be shown, and with `stats` of the text.

        `envelope["truncated"]` becomes True if a string of the result was cut, or if the model gets only a part of the
        text. Diffs and locations are not changed, because an editor applies them to real files. Pictures contain no
        text and are not changed either.
        """
        strings = _Strings(self._redactor, self._sizes.display, terminal=source.spec.kind is ToolKind.EXECUTE)
        frame, failure, envelope = result.frame or Frame(), result.failure, None
        whole = text = self._redactor(result.text) if result.escaped else strings.redacted_text(result)
        filtered = None
        if self._filters is not None and source.run is not None and len(whole) >= min(_SHORT, self._sizes.threshold):
            self.load()
            filtered = shortened(whole, source.run, self._filters)
            if filtered is not None and len(filtered.text) + _WORTH_IT < len(whole):
                text = filtered.text
        long = len(text) > self._sizes.threshold
        shown = strings.clipped(text if result.display is None else strings.redacted(result.display))
        if result.envelope is not None:
            envelope = cast("JsonObject", self._redactor.json(result.envelope, clean=strings.shown))
            if strings.cut or long:
                envelope["truncated"] = True
        if result.frame is not None:
            frame = Frame(*map(strings.redacted, (frame.head, frame.headline, frame.ending)))
        if failure is not None:
            message, suggestion = map(strings.redacted, (failure.message, failure.suggestion))
            failure = replace(failure, message=strings.clipped(message), suggestion=strings.clipped(suggestion))
        note = redaction_note(strings.found) if strings.found else ""
        stats = measure(result.text, text)
        if filtered is not None:
            stats = replace(stats, rules=tuple(filtered.rules))
        display = "\n".join(filter(None, (frame.headline, shown, frame.ending, note)))
        fitted = replace(result, text=text, display=display, envelope=envelope, failure=failure, stats=stats, before="")
        is_document = filtered is None and self._filters is not None  # no rule: the output of `cat`, for example
        telling = self._telling(text, whole) if long and source.run is not None and not is_document else ""
        left_out = long or len(text) < len(whole)
        lines = (stats.raw_lines if whole is result.text else lines_of(whole)) if left_out else 0
        partial = bool((result.envelope or {}).get("truncated"))
        whole = whole if left_out else ""
        return Fitted(fitted, whole, lines, long, telling, partial, self._sizes, source, frame, note)

    def _telling(self, text: str, whole: str) -> str:
        """Return errors and warnings that a preview leaves out, in at most two fifths of its size."""
        room = self._sizes.preview * 2 // 5
        shown = clip(text, max(self._sizes.preview - room, SMALLEST_LIMIT))
        dropped = _preserved(text, shown, whole, suspects=False)
        return clip(dropped, room) if room >= SMALLEST_LIMIT else ""


class _Strings:
    """Cleans the strings of one result. Equal strings are cleaned once, since stdout often equals the text.

    found   the number of secrets of each category
    cut     whether a string was longer than `limit`
    """

    def __init__(self, redactor: Redactor, limit: int, *, terminal: bool) -> None:
        self._redactor = redactor
        self._limit = limit
        self._terminal = terminal
        self._clean: dict[str, str] = {}
        self.found = Counter[str]()
        self.cut = False

    def redacted(self, text: str, before: str = "") -> str:
        """Return the text, redacted, with invisible characters shown as escapes.

        If invisible characters split a secret, all of them are removed from the text instead.

        before   the text before it, which only gives context
        """
        if text not in self._clean:
            clean = bare = text
            if not is_plain(text):
                clean, bare = faithful(text, terminal=self._terminal), sanitize(text, terminal=self._terminal)
            before = sanitize(before, terminal=self._terminal)
            self._clean[text], found = self._redactor.redact(clean, before)
            split = self._redactor.redact(bare, before) if bare != clean else Redacted(bare)
            if sum(split.found.values()) > sum(found.values()):
                self._clean[text], found = split
            self.found |= found  # stdout and the text contain the same secrets
        return self._clean[text]

    def redacted_text(self, result: ToolResult) -> str:
        """Return the redacted text of a result. If stdout only adds a line end to it, redact both at once."""
        text, stdout = result.text, (result.envelope or {}).get("stdout")
        if isinstance(stdout, str) and len(stdout) == len(text) + 1 and stdout[-1] == "\n" and stdout.startswith(text):
            return self.redacted(stdout, result.before).removesuffix("\n")
        return self.redacted(text, result.before)

    def clipped(self, text: str) -> str:
        """Return at most `limit` characters of the text."""
        if len(text) <= self._limit:
            return text
        self.cut = True
        return clip(text, self._limit)

    def shown(self, text: str) -> str:
        """Return the text, redacted and clipped."""
        return self.clipped(self.redacted(text))


def shortened(text: str, run: CommandRun, filters: FilterEngine) -> Filtered | None:
    """Return the filtered output of a command, with dropped lines that matter put back. None if no rule matches."""
    filtered = filters.apply(text, run)
    if filtered is None or not filtered.removed or filtered.restored is Restored.NOTHING:
        return filtered
    suspects = filtered.restored is Restored.SUSPECTS and run.exit_code != 0
    kept = _preserved(text, filtered.text, text, suspects=suspects)
    return replace(filtered, text="\n".join((filtered.text.removesuffix("\n"), kept))) if kept else filtered


def _preserved(text: str, shown: str, whole: str, *, suspects: bool) -> str:
    from acp_agent.output.security_notes import preserved  # noqa: PLC0415 - it compiles a hundred expressions

    return preserved(text, shown, whole, suspects=suspects)


def stats_line(stats: OutputStats, name: str) -> str:
    """Return `[name] 342 lines -> 28 lines, 91.8% filtered`, or "" if no line was removed."""
    removed = stats.raw_lines - stats.shown_lines
    if removed <= 0:
        return ""
    return f"[{name}] {stats.raw_lines} lines -> {stats.shown_lines} lines, {removed / stats.raw_lines:.1%} filtered"
