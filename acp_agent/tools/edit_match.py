"""Find the string that `edit` replaces in a file, and say what is wrong if it is not there.

A model writes LF. If the string has no CR, CRLF line ends of the file are read as LF, and the replacement gets the line
ends found there. A string with a CR is taken literally, and so is its replacement; this edits line ends.

If the string is not in the file, `adapted` looks for a single place that differs only in line ends, in indentation, or
in characters that the model sees as escapes (`text.escaped`). The replacement is changed in the same way, and the
result says so. Otherwise the error shows the most similar lines. That search is linear in the file: a window of as many
lines as the string has moves over the file. The triples of characters that both share are counted, and only the best
few windows are compared.
"""

import difflib
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest
from typing import NamedTuple

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.secrets import placeholders
from acp_agent.text import unescaped
from acp_agent.tools.tool import numbered, split_lines

_MAX_TEXT = 1_000_000  # characters: in a longer text the search costs more than it helps
_MAX_SHOWN_LINES = 12
_MAX_SHOWN_CHARS = 200
_MAX_COMPARED = 4000  # characters of a window that are compared one by one
_MAX_CODE_POINTS = 4  # shown for each side of a difference
_CANDIDATES = 30  # the most windows that are compared
_MAX_SQUARES = 20_000_000  # the most windows times the squared length of the string; three are always compared
_MAX_PAIRS = 4_000_000  # equal characters of two windows; with more, a comparison takes minutes
_LIKE_ENOUGH = 0.5  # the share of the string's characters that a similar window has in common with it
_NUMBERED = re.compile(r" *\d+\t")
_LOOKALIKES = str.maketrans("\u2018\u2019\u201c\u201d\u2010\u2013\u2014\u2212", "''\"\"----")


class ExplainedFailure(ToolError):
    """A failure with lines of the file or of a diff to read below it. `block` has them, or is empty."""

    def __init__(self, what: str, advice: str, block: str = "") -> None:
        super().__init__(ToolErrorCategory.PERMANENT_FAILURE, what, advice)
        self.block = block


class NoMatch(ExplainedFailure):
    """The wanted string is not in the text. The block has the most similar lines with their numbers, or is empty."""

    def __init__(self, where: str, advice: str, nearest: str = "") -> None:
        super().__init__(f"old_string was not found{where}", advice, nearest)


def no_match(text: str, wanted: str) -> NoMatch:
    """Return the error for a string that is missing, with the most helpful advice.

    A redaction placeholder that `wanted` contains more often than the text was copied from redacted text.
    """
    hidden = placeholders(wanted) - placeholders(text)
    if hidden:
        stands = f"{', '.join(sorted(hidden))} stands for a value you were not shown; the file has the real one."
        return NoMatch("", f"You saw redacted text: {stands} Leave it out of old_string and edit around it.")
    lines = wanted.replace("\r\n", "\n").strip("\r\n").split("\n")
    if all(_NUMBERED.match(line) for line in lines):
        return NoMatch("", "Leave out the line numbers and tabs that read puts before each line.")
    unlike = NoMatch("", "Read the file again and copy the text exactly.")
    if len(text) > _MAX_TEXT or not any(line.strip() for line in lines):
        return unlike
    there = split_lines(text)
    first = _nearest(there, lines)
    if first is None:
        return unlike
    found = there[first : first + len(lines)]
    how = "differs only in blanks" if _squeezed(found) == _squeezed(lines) else "is the nearest"
    block = numbered(found[:_MAX_SHOWN_LINES], first + 1, _MAX_SHOWN_CHARS)
    difference = _difference("\n".join(found), "\n".join(lines))
    advice = f"{difference} Copy it exactly, blanks included."
    return NoMatch(f"; the text at line {first + 1} {how}", advice.lstrip(), block)


def _nearest(there: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Return the first line of the window most similar to the wanted lines; None if none is similar.

    Blanks count little. Of equal windows the first is returned.
    """
    pattern = "\n".join(line.strip() for line in wanted)[:_MAX_COMPARED]
    best, score = None, 0.0
    few = max(3, min(_CANDIDATES, _MAX_SQUARES // max(1, len(pattern) ** 2)))
    for likeness, first in sorted(nlargest(few, _windows(there, wanted)), key=lambda one: one[1]):
        if likeness < _LIKE_ENOUGH / 2:
            continue
        window = "\n".join(line.strip() for line in there[first : first + len(wanted)])[:_MAX_COMPARED]
        matcher = _comparison(window, pattern)
        same = sum(size for _, _, size in matcher.get_matching_blocks())
        exact = sum(left == right for left, right in zip(there[first:], wanted, strict=False)) / len(wanted)
        closeness = same / len(pattern) if pattern else 0.0
        if closeness >= _LIKE_ENOUGH and (value := closeness + matcher.ratio() + exact / 10) > score + 1e-9:
            best, score = first, value
    return best


def _comparison(one: str, two: str) -> difflib.SequenceMatcher[str]:
    """Return a comparison of two texts. If too many of their characters are equal, frequent ones begin no match."""
    counts = Counter(two)
    pairs = sum(count * counts[char] for char, count in Counter(one).items())
    return difflib.SequenceMatcher(None, one, two, autojunk=pairs > _MAX_PAIRS)


def _windows(there: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[float, int]]:
    """Yield the likeness of each window, 0 to 1, and its first line, which counts from 0."""
    size = len(wanted)
    goal = Counter(triple for line in wanted for triple in _triples(line))
    sides = [_triples(line) for line in there]
    seen = Counter[str]()
    shared = inside = 0
    for last, entering in enumerate(sides):
        leaving = sides[last - size] if last >= size else ()
        for triple in leaving:
            seen[triple] -= 1
            shared -= seen[triple] < goal[triple]
        for triple in entering:
            shared += seen[triple] < goal[triple]
            seen[triple] += 1
        inside += len(entering) - len(leaving)
        if inside and (last >= size - 1 or last == len(sides) - 1):
            yield 2 * shared / (goal.total() + inside), max(0, last - size + 1)


def _triples(line: str) -> list[str]:
    squeezed = "".join(line.split())
    return [squeezed[at : at + 3] for at in range(max(1, len(squeezed) - 2))] if squeezed else []


def _squeezed(lines: Iterable[str]) -> str:
    return "".join("".join(lines).split())


def _difference(found: str, sent: str) -> str:
    """Return the first difference that cannot be seen, in code points; "" if there is none.

    A visible difference is not named. Otherwise a model could find a hidden secret, one character at a time.
    """
    found, sent = found[:_MAX_COMPARED], sent[:_MAX_COMPARED]
    changes = _comparison(found, sent).get_opcodes()
    for number, (tag, start, end, first, last) in enumerate(changes):
        at_edge = number in (0, len(changes) - 1)
        if tag == "equal" or (at_edge and first == last):  # old_string may begin and end within a line
            continue
        theirs, yours = _whole(found, start, end), _whole(sent, first, last)
        if _as_seen(theirs) == _as_seen(yours):
            line = found.count("\n", 0, start) + 1
            return f"In line {line} of it the file has {_code_points(theirs)}, you sent {_code_points(yours)}."
    return ""


def _whole(text: str, start: int, end: int) -> str:
    """Return a part of the text with the combining characters after it, and the letter before them."""
    while end < len(text) and unicodedata.combining(text[end]):
        end += 1
    while 0 < start < len(text) and unicodedata.combining(text[start]):
        start -= 1
    return text[start:end]


def _as_seen(part: str) -> str:
    """Return what a reader sees of it, roughly: no blanks, no accents, no invisible characters, plain quotes."""
    plain = unicodedata.normalize("NFKD", part.translate(_LOOKALIKES))
    return "".join(char for char in plain if unicodedata.category(char)[0] not in "ZMC")


def _code_points(part: str) -> str:
    named = " ".join(f"U+{ord(char):04X}" for char in part[:_MAX_CODE_POINTS])
    return f"{named} ..." if len(part) > _MAX_CODE_POINTS else named or "nothing"


# ---------------------------------------------------------------------------- what differs a little


class Adapted(NamedTuple):
    """An edit of the only place that differs from old_string in a harmless way. `how` names the difference."""

    text: str
    places: int
    how: str


def adapted(text: str, old: str, new: str) -> Adapted | None:
    """Replace the only place that differs from `old` in nothing but escapes, line ends or indentation.

    Return None if there is no such place, or more than one.
    """
    if len(text) > _MAX_TEXT:
        return None
    for reading in _READINGS:
        real = reading(old)
        if real != old and real and (found := _once(text, real, reading(new))):
            return Adapted(*found, "the escapes in old_string and new_string stand for the characters they name")
    if "\r" in old and (found := _once(text, old.replace("\r\n", "\n"), new.replace("\r\n", "\n"))):
        return Adapted(*found, "applied with the file's line ends")
    return _reindented(text, old.replace("\r\n", "\n"), new.replace("\r\n", "\n"))


def _cut_off(text: str) -> str:
    """Return the text with its escapes read. Read those of the last line even if its note was not copied."""
    head, end, last = text.rpartition("\n")
    return f"{unescaped(head)}{end}{unescaped(last, every_line=True)}"


def _with_literal_end(text: str) -> str:
    """Return the text with its escapes read, except in its last line.

    If that line was copied in part, what looks like a note at its end may be text of the file.
    """
    head, end, last = text.rpartition("\n")
    return f"{unescaped(head)}{end}{last}"


_READINGS = (unescaped, _cut_off, partial(unescaped, every_line=True), _with_literal_end)
"""The ways of reading the escapes in a text that was shown."""


def check_readings(text: str, old: str) -> None:
    """Raise ToolError if the text contains more than one reading of `old`: as it is, or with its escapes read."""
    if "\\u" not in old:
        return
    folded = text.replace("\r\n", "\n")
    found = {each for reading in _READINGS if (each := reading(old)) and each in folded}
    if len(found) + (old in folded and old not in found) > 1:
        raise ToolError.permanent(
            "old_string fits the file in more than one way: an escape or a note in it may also be text of the file",
            "Copy more of it: whole lines with their notes, and lines around it.",
        )


def _once(text: str, old: str, new: str) -> tuple[str, int] | None:
    try:
        return replace_exactly(text, old, new)
    except ToolError:
        return None


def _reindented(text: str, old: str, new: str) -> Adapted | None:
    """Replace the only place that differs from `old` in its indentation; None if there is not exactly one."""
    wanted = old.split("\n")
    body = [line.lstrip(" \t") for line in wanted]
    there = split_lines(text)
    bare = [line.lstrip(" \t") for line in there]
    size = len(body) - (body[-1] == "" and len(body) > 1)  # the empty text after the last line end is not a line
    if sum(map(len, body)) == 0:
        return None
    whole, part = ("\n".join(("", *lines, "")) for lines in (bare, body[:size]))
    at = whole.find(part)
    if at < 0 or whole.find(part, at + 1) >= 0:
        return None
    first = whole.count("\n", 0, at)
    found = there[first : first + size]
    indents = _indents(wanted[:size], found)
    lines = None if indents is None else _with_indents(new.split("\n"), indents, within=not _indent_of(old))
    if lines is None:
        return None
    if not _indent_of(old):  # old_string begins after the indentation, which stays
        found[0] = bare[first]
    result = _once(text, "\n".join(found) + "\n" * (size < len(body)), "\n".join(lines))
    return None if result is None else Adapted(*result, "applied with the file's indentation")


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indents(wanted: Sequence[str], found: Sequence[str]) -> Mapping[str, str] | None:
    """Return the file's indentation for each indentation of old_string; None if one stands for several."""
    indents = dict[str, str]()
    for number, (ours, theirs) in enumerate(zip(wanted, found, strict=True)):
        ours_indent, their_indent = _indent_of(ours), _indent_of(theirs)
        if not ours.strip() or (number == 0 and not ours_indent):
            continue
        if indents.setdefault(ours_indent, their_indent) != their_indent:
            return None
    return indents


def _with_indents(lines: Sequence[str], indents: Mapping[str, str], *, within: bool) -> list[str] | None:
    """Return the lines of new_string with the file's indentation; None if that of a line cannot be known."""
    made = list[str]()
    for number, line in enumerate(lines):
        indent = _indent_of(line)
        if not line.strip() or (number == 0 and within):
            made.append(line)
            continue
        changed = _indent(indent, indents)
        if changed is None:
            return None
        made.append(changed + line[len(indent) :])
    return made


def _indent(indent: str, indents: Mapping[str, str]) -> str | None:
    """Return the file's indentation for an indentation of new_string; None if it is unclear.

    If old_string has no such indentation, the others must all differ from the file's by the same text or ratio.
    """
    if indent in indents:
        return indents[indent]
    pairs = list(indents.items())
    if pairs and all(theirs.endswith(ours) for ours, theirs in pairs):
        added = {theirs[: len(theirs) - len(ours)] for ours, theirs in pairs}
        return f"{added.pop()}{indent}" if len(added) == 1 else None
    if pairs and all(ours.endswith(theirs) for ours, theirs in pairs):
        left_out = {ours[: len(ours) - len(theirs)] for ours, theirs in pairs}
        lost = left_out.pop()
        return indent.removeprefix(lost) if not left_out and indent.startswith(lost) else None
    units = {(ours[:1], len(ours) / len(theirs), theirs[:1]) for ours, theirs in pairs if ours and theirs}
    if len(units) != 1 or any(len({*ours}) > 1 or len({*theirs}) > 1 for ours, theirs in pairs):
        return None
    ((char, ratio, theirs),) = units
    length = len(indent) / ratio
    return theirs * int(length) if not indent.strip(char) and length.is_integer() else None


# ------------------------------------------------------------------------------------ what is exact

_MAX_COUNTED = 100
_MAX_LISTED = 10
_LONE_LF = re.compile(r"(?<!\r)\n")


class _Span(NamedTuple):
    """The place of a match in the original text: first offset, and the one after the last."""

    start: int
    end: int


class _Folded:
    """A text to search, with CRLF read as LF if wanted, and a mapping to the offsets of the original text."""

    def __init__(self, text: str, *, fold: bool) -> None:
        self._pairs: list[int] = []  # offsets in the folded text of the line ends that were CRLF
        self._folded = text
        if fold:
            self._folded = text.replace("\r\n", "\n")
            self._pairs = [match.start() - i for i, match in enumerate(re.finditer("\r\n", text))]

    def spans(self, wanted: str, *, overlapping: bool) -> Iterator[_Span]:
        """Yield every place of `wanted`, in order."""
        step = 1 if overlapping else len(wanted)
        at = self._folded.find(wanted)
        while at != -1:
            yield _Span(self._offset(at), self._offset(at + len(wanted)))
            at = self._folded.find(wanted, at + step)

    def _offset(self, folded: int) -> int:
        return folded + bisect_left(self._pairs, folded)


def replace_exactly(text: str, old: str, new: str, *, every: bool = False) -> tuple[str, int]:
    """Return the text with `old` replaced by `new`, and the number of replacements.

    `old` must occur exactly once, counting overlaps, unless `every` is True.

    Raises:
        ToolError: invalid_parameters if `old` is empty or nothing would change; permanent_failure if `old` is missing
            (NoMatch) or occurs more than once, with the number and the lines.

    """
    if not old or old == new:
        what = "old_string is empty" if not old else "old_string and new_string are the same"
        advice = "Copy old_string from the file, and put what the file should say into new_string."
        raise ToolError.invalid(f"{what}: nothing to replace", advice)
    adapt = "\r\n" in text and "\r" not in old
    found = _Folded(text, fold=adapt)
    spans = found.spans(old, overlapping=False) if every else _only(found, text, old)
    changed, count = _replaced(text, spans, new, adapt=adapt)
    if count == 0:
        raise no_match(text, old)
    if changed == text:
        msg = "new_string differs from old_string only in line ends, and the file keeps its own: nothing to replace"
        raise ToolError.invalid(msg)
    return changed, count


def _only(found: _Folded, text: str, old: str) -> list[_Span]:
    """Return the only match, or no match. Raises ToolError if there are more."""
    spans: list[_Span] = []
    for span in found.spans(old, overlapping=True):
        spans.append(span)
        if len(spans) == _MAX_COUNTED:
            break
    if len(spans) <= 1:
        return spans
    lines = list(dict.fromkeys(str(text.count("\n", 0, span.start) + 1) for span in spans))
    listed = ", ".join(lines[:_MAX_LISTED] + ["…"] * (len(lines) > _MAX_LISTED))
    where = f"{'lines' if len(lines) > 1 else 'line'} {listed}"
    count = f"at least {_MAX_COUNTED}" if len(spans) == _MAX_COUNTED else f"{len(spans)}"
    raise ToolError.permanent(
        f"old_string occurs {count} times ({where}); it must occur exactly once",
        "Add lines around it to old_string until it is unique, or set replace_all.",
    )


def _replaced(text: str, spans: Iterable[_Span], new: str, *, adapt: bool) -> tuple[str, int]:
    """Return the text with every span replaced, and their number. `adapt` gives `new` the line ends found there."""
    crlf = _LONE_LF.sub("\r\n", new) if adapt else new
    pieces: list[str] = []
    done, until, adapted = 0, -1, new
    for span in spans:
        if span.start > until:  # the next line end decides, or the last one of the text if none follows
            following = text.find("\n", span.start)
            until = len(text) if following == -1 else following
            deciding = text.rfind("\n") if following == -1 else following
            adapted = crlf if text[deciding - 1 : deciding] == "\r" else new
        pieces += (text[done : span.start], adapted)
        done = span.end
    return "".join((*pieces, text[done:])), len(pieces) // 2
