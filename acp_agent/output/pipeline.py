"""The way of a tool's words to their readers: sanitize -> stages (redact -> filter) -> clip.

Stages are handed in: the redactor and the filters are stages. Every reader's strings take the same way; a stage
that is for one reader only looks at `Source.reader`. The order of the stages is the order of the list.

Pure and without state between calls, so it may run in any thread; for megabytes of text it should.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from acp_agent.core.errors import ToolFailure
from acp_agent.core.types import Json, JsonObject, OutputStats, ToolKind, ToolResult, ToolSpec
from acp_agent.output.clip import SMALLEST_LIMIT, clip, measure
from acp_agent.output.sanitize import sanitize


class Reader(StrEnum):
    """Who reads a string of a result (see ToolResult)."""

    MODEL = "model"
    USER = "user"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a text comes from and whom it is for."""

    spec: ToolSpec
    reader: Reader


class Stage(Protocol):
    """One step between sanitize and clip. Must not raise: a text it cannot treat it gives back."""

    def __call__(self, text: str, source: Source) -> str:
        """The whole text, changed or not."""
        ...


class Pipeline:
    """Fits results to their readers.

    threshold      characters of `text` the model gets at most (O5.13: the one and only such limit)
    display_limit  characters of each string the editor gets at most: the display and every string of the envelope
    stages         what happens between sanitize and clip, in order

    Raises ValueError for a limit under 256.
    """

    def __init__(self, threshold: int, display_limit: int, stages: Sequence[Stage] = ()) -> None:
        for name, limit in (("threshold", threshold), ("display_limit", display_limit)):
            if limit < SMALLEST_LIMIT:
                raise ValueError(f"{name} = {limit}: expected at least {SMALLEST_LIMIT} characters")
        self._threshold = threshold
        self._display_limit = display_limit
        self._stages = tuple(stages)

    def apply(self, result: ToolResult, spec: ToolSpec) -> ToolResult:
        """The result with text, display, envelope and failure fit to be shown, and `stats` of the text.

        `envelope["truncated"]` becomes true when a string of the result was cut (O5.16). Diffs and locations stay as
        they are, an editor applies them to real files; and pictures, which hold no words.
        """
        return _Application(self._threshold, self._display_limit, self._stages, spec).apply(result)


class _Application:
    """One run over one result. Equal strings (stdout often is the text) are treated once."""

    def __init__(self, threshold: int, display_limit: int, stages: tuple[Stage, ...], spec: ToolSpec) -> None:
        self._limits = {Reader.MODEL: threshold, Reader.USER: display_limit, Reader.MACHINE: display_limit}
        self._stages = stages
        self._spec = spec
        self._sanitized: dict[str, str] = {}
        self._cut = False

    def apply(self, result: ToolResult) -> ToolResult:
        text = self._fit(result.text, Reader.MODEL)
        shown = self._fit(result.shown, Reader.USER)
        envelope = self._fit_object(result.envelope) if result.envelope is not None else None
        if envelope is not None and self._cut:
            envelope["truncated"] = True
        return replace(
            result,
            text=text,
            display=None if shown == text else shown,
            envelope=envelope,
            failure=self._fit_failure(result.failure) if result.failure is not None else None,
            stats=measure(result.text, text),
        )

    def _fit(self, text: str, reader: Reader) -> str:
        if text not in self._sanitized:
            self._sanitized[text] = sanitize(text, terminal=self._spec.kind is ToolKind.EXECUTE)
        source = Source(self._spec, reader)
        fitted = self._sanitized[text]
        for stage in self._stages:
            fitted = stage(fitted, source)
        clipped = clip(fitted, self._limits[reader])
        self._cut = self._cut or clipped.omitted > 0
        return clipped.text

    def _fit_object(self, value: JsonObject) -> JsonObject:
        return {key: self._fit_json(item) for key, item in value.items()}

    def _fit_json(self, value: Json) -> Json:
        match value:
            case str():
                return self._fit(value, Reader.MACHINE)
            case list():
                return [self._fit_json(item) for item in value]
            case dict():
                return self._fit_object(value)
            case _:
                return value

    def _fit_failure(self, failure: ToolFailure) -> ToolFailure:
        return replace(
            failure,
            message=self._fit(failure.message, Reader.MACHINE),
            suggestion=self._fit(failure.suggestion, Reader.MACHINE),
        )


def stats_line(stats: OutputStats, name: str) -> str:
    """`[name] 342 lines -> 28 lines, 91.8% filtered`, or nothing when no line was removed (O1.16)."""
    removed = stats.raw_lines - stats.shown_lines
    if removed <= 0:
        return ""
    return f"[{name}] {stats.raw_lines} lines -> {stats.shown_lines} lines, {removed / stats.raw_lines:.1%} filtered"
