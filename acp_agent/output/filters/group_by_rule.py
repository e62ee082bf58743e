"""The strategy `group_by_rule`: the findings of a linter, grouped by rule with all their places."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from acp_agent.core.types import Confidence
from acp_agent.output.filters.strategy import Applied, Captures, CommandRun, decoded, encoded

_HEADING = re.compile(r"(?P<level>warning|error)(?:\[\w+\])?: (?P<message>.+)$")
_ANY_ERROR = re.compile(r"^(?:error(?:\[\w+\])?: |\S+:\d+:\d+: error)", re.MULTILINE)
_LEVELS = ("warning", "error")
_GENERATED = re.compile(r"(?:`[^`]+` \([^)]*\) generated \d+ warnings?|build failed, waiting|\d+ warnings? emitted)")
_CLIPPY_PAGE = re.compile(r"rust-clippy/\S{0,200}#(\w+)")
_PROGRESS = re.compile(
    r" {0,11}(?:Compiling|Downloading|Downloaded|Updating|Fetching|Fresh|Locking|Adding|Checking|Finished|Blocking) "
)
_NAMES = re.compile(r"`[^`]*`")


@dataclass(slots=True)
class _Finding:
    message: str
    places: list[str] = field(default_factory=list[str])
    rule: str = ""


class GroupByRule:
    """Groups findings by their rule.

    location_pattern   RE2; the place of a finding is the first group, or the whole match if there is no group
    rule_pattern       RE2; the same for its rule

    A finding begins with `warning: ...`. If the output has no such line, it begins with a line that contains a place.
    Linters often name a rule only at its first finding, so a later finding with a similar message gets the same rule.
    Findings without a rule are grouped by message. The confidence is Full, or Fallback with the unchanged text if there
    are no findings or if there is an error among them. Raises ValueError for an invalid pattern.
    """

    def __init__(self, location_pattern: str, rule_pattern: str) -> None:
        self._location = Captures(location_pattern)
        self._rule = Captures(rule_pattern)

    def apply(self, text: str, run: CommandRun) -> Applied:
        """See `Strategy.apply`."""
        del run
        if ("\nerror" in f"\n{text[:6]}" or "\nerror" in text or ": error" in text) and _ANY_ERROR.search(text):
            return Applied(text, Confidence.FALLBACK)
        findings, other = self._findings(encoded(text))
        if not findings:
            return Applied(text, Confidence.FALLBACK)
        shorter = "\n".join([*_grouped(findings), *other]) + "\n"
        return Applied(shorter if len(shorter) < len(text) else text, Confidence.FULL)

    def _findings(self, data: bytes) -> tuple[list[_Finding], list[str]]:
        """Return the findings, and the lines that belong to none."""
        places, rules = self._location.by_line(data), self._rule.by_line(data)
        headed = b"\nwarning: " in data or data.startswith(b"warning: ")
        findings: list[_Finding] = []
        other: list[str] = []
        current: _Finding | None = None
        previous, start = "", 0
        ascii_only = data.isascii()
        for line in decoded(data).split("\n"):
            place = places.get(start)
            if headed and line.startswith(_LEVELS) and (heading := _HEADING.match(line)):
                current = _Finding(heading["message"])
                findings.append(current)
            elif not headed and place is not None:
                current = _Finding(_message(line, place, previous), [place])
                findings.append(current)
                other = other[:-1] if other and other[-1].strip() == current.message else other
            elif current is None or not line or line.isspace():
                current = None
                other += [line] if line.strip() and not _PROGRESS.match(line) else []
            elif place is not None and not current.places:
                current.places.append(place)
            if current is not None and not current.rule and (start in rules or "rust-clippy/" in line):
                current.rule = rules.get(start) or _clippy_rule(line)
            previous = line
            start += (len(line) if ascii_only else len(encoded(line))) + 1
        return _real(findings, other), other


def _message(line: str, place: str, previous: str) -> str:
    """Return the rest of the line, or the line before if the place stands alone."""
    rest = line.replace(place, "", 1).strip(" \t:->")
    return rest or previous.strip()


def _clippy_rule(line: str) -> str:
    """Return the rule in the address of clippy's help. Every finding names that address."""
    page = _CLIPPY_PAGE.search(line)
    return f"clippy::{page[1]}" if page else ""


def _real(findings: Sequence[_Finding], other: list[str]) -> list[_Finding]:
    """Return the findings with a place. Cargo's counts are dropped; others without a place go to `other`."""
    other += [f"warning: {one.message}" for one in findings if not one.places and not _GENERATED.match(one.message)]
    return [one for one in findings if one.places]


def _grouped(findings: Sequence[_Finding]) -> list[str]:
    by_shape = {_shape(one.message): one.rule for one in reversed(findings) if one.rule}
    groups: dict[str, list[_Finding]] = {}
    for one in findings:
        groups.setdefault(one.rule or by_shape.get(_shape(one.message), "") or one.message, []).append(one)
    lines: list[str] = []
    for rule, group in groups.items():
        first = group[0].message
        said = "" if first == rule else f" {first}"
        lines.append(f"{rule} ({_count(len(group), 'warning')}):{said}")
        lines += [f"    {one.places[0]}" + ("" if one.message == first else f" {one.message}") for one in group]
    total = f"{_count(len(findings), 'warning')} total ({_count(len(groups), 'rule')})"
    return [*lines, total]


def _shape(message: str) -> str:
    """Return a message without the names in it."""
    return _NAMES.sub("`", message)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
