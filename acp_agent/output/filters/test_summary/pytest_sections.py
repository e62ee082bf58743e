"""The sections of pytest's report: failures, warnings, the short summary and those of plugins."""

import re
from collections.abc import Sequence

from acp_agent.output.filters.test_summary.pieces import Parsed
from acp_agent.output.filters.test_summary.shorten import clipped, shorten

_TITLE = re.compile(r"_+ (?!_ )(?P<title>\S(?:.*\S)?) _+$")
_TRACE_RULE = re.compile(r"(?:_ )+_?$")
_LINE_STYLE = re.compile(r"(?:\S.*:\d+: \S|\[XPASS\(strict\)\])")
_ERROR_LINE = "E  "
_ORIGIN = re.compile(r"\+ +(?:where|and) ")  # of a value in the message
_WORKER = re.compile(r"\[gw\d+\] \w+ -- Python ")
_LISTED = re.compile(r"(?:FAILED|ERROR|SUBFAILED|SUBFAIL)\b")
_WARNING = re.compile(r"\s+(?P<place>\S.*?:\d+): (?P<message>\S.*)$")
_MESSAGE_LINES = 3
_MOST_WARNINGS = 20
_MOST_NOTES = 20
_SECTION_LINES = 40


def failures(lines: Sequence[str], parsed: Parsed) -> None:
    """One failure a heading `____ name ____`; with --tb=line, one a `path:line: …`."""
    block: list[str] = []
    titled = False
    for line in lines:
        first = line[:1]
        if first == "_" and _TITLE.match(line) and not _TRACE_RULE.match(line):
            _close(block, parsed)
            block, titled = [line], True
        elif not titled and _LINE_STYLE.match(line):
            _close([*block, line], parsed)
            block = []
        elif first != "[" or not _WORKER.match(line):
            block.append(line)
    _close(block, parsed)


def _close(block: list[str], parsed: Parsed) -> None:
    if not any(line.strip() for line in block):
        return
    whole = "ERROR collecting" in block[0]
    said = [line[1:].strip() for line in block if line.startswith(_ERROR_LINE)]
    message = "; ".join([line for line in said if line and not _ORIGIN.match(line)][:_MESSAGE_LINES])
    if not message:
        message = next((line.strip() for line in reversed(block[1:]) if line.strip()), "")
    parsed.fail(list(block), message, whole=whole)
    parsed.broken |= whole


def short_summary(lines: Sequence[str], parsed: Parsed) -> None:
    """Every line that names a failure stays; of those about skipped and passed tests a few, and none."""
    notes: list[str] = []
    for line in lines:
        if _LISTED.match(line):
            parsed.keep(clipped(line))
        elif line.strip() and not line.startswith("PASSED"):
            notes.append(line)
    for line in notes[:_MOST_NOTES]:
        parsed.keep(clipped(line))
    if len(notes) > _MOST_NOTES:
        parsed.keep(f"... and {len(notes) - _MOST_NOTES} more")
        parsed.cut = True


def warnings(lines: Sequence[str], parsed: Parsed) -> None:
    """How many, and each different message with the first place it came from."""
    first: dict[str, str] = {}
    count = 0
    for line in lines:
        if warning := _WARNING.match(line):
            count += 1
            first.setdefault(warning["message"], warning["place"])
    if not first:
        other("warnings:", lines, parsed)
        return
    parsed.keep(f"warnings: {len(first)} different, at {count} places")
    for message, place in list(first.items())[:_MOST_WARNINGS]:
        parsed.keep(clipped(f"  {message} ({place})"))
    if len(first) > _MOST_WARNINGS:
        parsed.keep(f"  ... and {len(first) - _MOST_WARNINGS} more")
        parsed.cut = True


def other(heading: str, lines: Sequence[str], parsed: Parsed) -> None:
    """A plugin's section (coverage, durations), its middle left out when it is long."""
    solid = [line for line in lines if line.strip()]
    kept, cut = shorten(solid, _SECTION_LINES)
    parsed.cut |= cut
    for line in (heading, *kept):
        parsed.keep(line)
