"""Prepare texts for people and models: make characters visible, cut, clip and wrap them, and escape fake marks."""

import hashlib
import json
import pkgutil
import re
import unicodedata
from collections.abc import Callable, Collection
from functools import cached_property
from itertools import islice
from typing import Any, AnyStr, Generic, cast

from acp_agent.core.types import Json, OutputStats


def lazy_regex(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return an expression that is compiled at its first use, because most processes use few of them.

    It has the methods of a compiled expression. The functions of `re` do not accept it.
    """
    return cast("re.Pattern[AnyStr]", _LazyRegex(source, flags))


class _LazyRegex(Generic[AnyStr]):
    def __init__(self, source: AnyStr, flags: int) -> None:
        self._source, self._flags = source, flags

    @cached_property
    def _compiled(self) -> re.Pattern[AnyStr]:
        return re.compile(self._source, self._flags)

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the expression, and keep it, so that it is not looked for here again."""
        return self.__dict__.setdefault(name, getattr(self._compiled, name))


def packaged_text(package: str, name: str) -> str:
    """Return the text of a file of this package, such as "parameters.json" of "acp_agent.tools"."""
    data = pkgutil.get_data(package, name)  # importlib.resources loads a megabyte of modules for the same
    assert data is not None
    return data.decode()


def packaged_table(package: str, name: str) -> dict[str, Any]:
    """Return the table NAME.toml of this package, such as "programs" of "acp_agent.gates.shell".

    A user waits for it at their first command, so it is read by rtoml: the parser of the standard library takes ten
    times as long. A test compares what the two read.
    """
    import rtoml  # noqa: PLC0415 - a process starts without a table

    return rtoml.loads(packaged_text(package, f"{name}.toml"))


_TITLE_LIMIT = 120
_SCAN_LIMIT = 2000  # characters of a text from which a title is made: a command may have ten megabytes
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # controls, bidi and zero-width, surrogates, separators
_BLANK_LETTERS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
BLANK = lazy_regex(f"[{_BLANK_LETTERS}\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Letters, marks and symbols that are invisible, which their Unicode categories do not show.

These are the ones of Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties, and the blank Braille pattern.
"""
_BLANK = frozenset(_BLANK_LETTERS)  # without variation selectors, which belong to the symbol before them
_LINE_END = lazy_regex(r"\s*[\r\n]+\s*")


def visible(text: str) -> str:
    """Return the text with every control, invisible or direction-changing character as its JSON escape.

    A model that copies the JSON escape into its next call names the same character again.
    """
    if text.isprintable() and _BLANK.isdisjoint(text):
        return text
    return "".join(
        json.dumps(char)[1:-1] if char in _BLANK or unicodedata.category(char) in _HIDDEN else char for char in text
    )


def visible_lines(text: str) -> str:
    """Do what `visible` does for each line of a text."""
    return "\n".join(map(visible, text.split("\n")))


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number and the name of what it counts: `1 line`, `1,200 lines`. `many` is a plural without `s`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def title(text: str) -> str:
    """Return one line of at most 120 characters, and an ellipsis if it was cut. Line ends become a visible sign.

    If they became blanks, two commands would look like one with more arguments.
    """
    text = text.strip()
    flat = visible(_LINE_END.sub(" ⏎ ", text[:_SCAN_LIMIT]).replace("\t", " "))
    if len(flat) <= _TITLE_LIMIT and len(text) <= _SCAN_LIMIT:
        return flat
    return f"{flat[:_TITLE_LIMIT]}…"


# ------------------------------------------------------------ characters that a reader does not see

_UNSEEN = lazy_regex(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e01ef]"
)
"""Controls without tab and line end, invisible and bidirectional characters, line separators, lone surrogates."""
_NOTE = lazy_regex(r" \[line \d+ holds U\+[0-9A-F]{4,6}(?:, U\+[0-9A-F]{4,6})*(?:, \.\.\.)?\]\Z")
_ESCAPABLE = lazy_regex(rf"{_UNSEEN.pattern}|\\(?=u[0-9A-Fa-f]{{4}})|(?<= )\[(?=line \d+ holds U\+)")
_ESCAPES = lazy_regex(r"(?:\\u[0-9A-Fa-f]{4})+")
_LINE_NUMBER = lazy_regex(r" *(\d{1,9})\t")
_LISTED_NUMBER = lazy_regex(r" *(\d{1,9})[\t:-]")
_FLAG = lazy_regex("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_PLAIN_ASCII = bytes([9, 10, *range(0x20, 0x7F)])
_SLICE = 1 << 20
_MOST_NAMED = 8


def escaped(text: str, *, listed: bool = False) -> str:
    r"""Return the text with each character that a reader would not see as its JSON escape, and a note on that line.

    `a<U+200B>b` becomes `a\u200bb [line 3 holds U+200B]`. On a line with a note, a backslash that stands before
    something like an escape is escaped itself, and so is the bracket of a text that only looks like a note. So
    `unescaped` restores every line exactly. Lines without a note are unchanged.

    Joiners between letters and in emoji stay as they are, and so do flags and the variants of Han characters.

    If a line begins with a number (`12<TAB>`; in a `listed` text also `12:` or `12-`), its note has this number.
    Otherwise the note has the line's place in the text.
    """
    if is_plain(text):
        return text
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if _UNSEEN.search(line) is not None or _NOTE.search(line) is not None:
            number = (_LISTED_NUMBER if listed else _LINE_NUMBER).match(line)
            lines[at] = _escaped_line(line, number[1] if number else str(at + 1))
    return "\n".join(lines)


def is_plain(text: str) -> bool:
    """Return True only if `escaped` changes nothing: there is no carriage return, control, invisible character or note.

    Printable ASCII is deleted first, which is as fast as reading memory.
    """
    for start in range(0, len(text), _SLICE):
        rest = text[start : start + _SLICE].encode("utf-8", "surrogatepass").translate(None, _PLAIN_ASCII)
        if rest and _UNSEEN.search(rest.decode("utf-8", "surrogatepass")) is not None:
            return False
    return "+" not in text or " holds U+" not in text  # finding one character is as fast as reading memory


def _escaped_line(line: str, number: str) -> str:
    belongs = {at for flag in _FLAG.finditer(line) for at in range(flag.start(), flag.end())}
    if _NOTE.search(line) is None and all(_belongs(line, found.start(), belongs) for found in _UNSEEN.finditer(line)):
        return line
    names = dict[str, None]()

    def escape(found: re.Match[str]) -> str:
        char = found[0]
        if char not in "\\[" and _belongs(line, found.start(), belongs):
            return char
        names[f"U+{ord(char):04X}"] = None
        return _json_escape(char)

    shown = _ESCAPABLE.sub(escape, line)
    named = [*names][:_MOST_NAMED] + ["..."] * (len(names) > _MOST_NAMED)
    return f"{shown} [line {number} holds {', '.join(named)}]"


def _belongs(line: str, at: int, flags: set[int]) -> bool:
    """Return whether an invisible character belongs to a visible word, emoji or Han character."""
    char, before, after = line[at], line[at - 1 : at], line[at + 1 : at + 2]
    if char in "\u200c\u200d" and before and after:
        left, right = unicodedata.category(before), unicodedata.category(after)
        return (left[0] in "LM" or left in ("So", "Sk") or at - 1 in flags) and (right[0] == "L" or right == "So")
    if "\U000e0100" <= char <= "\U000e01ef":
        return bool(before) and unicodedata.category(before) == "Lo"
    return at in flags


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def unescaped(text: str, *, every_line: bool = False) -> str:
    """Return the text that `escaped` was given. `every_line` also restores lines that have lost their note."""
    return "\n".join(_unescaped_line(line, every_line) for line in text.split("\n"))


def _unescaped_line(line: str, every_line: bool) -> str:  # noqa: FBT001
    note = _NOTE.search(line)
    if note is None and not every_line:
        return line
    return _ESCAPES.sub(_restored, line[: note.start()] if note else line)


def _restored(escapes: re.Match[str]) -> str:
    """Return the characters that the escapes stand for. Escapes that `escaped` never makes are returned unchanged."""
    units = bytes.fromhex(escapes[0].replace("\\u", ""))
    chars = units.decode("utf-16-be", "surrogatepass")
    if all(char in "\\[" or _UNSEEN.match(char) for char in chars):
        return chars
    return "".join(char if char in "\\[" or _UNSEEN.match(char) else _json_escape(char) for char in chars)


# ----------------------------------------------------------------------------------- cutting

SMALLEST_LIMIT = 256
_RESERVED = 128  # room for the marker line, whatever the numbers in it
_SNAP = 8  # a cut moves to a line end if that costs at most this part (1/8) of the half


def clip(text: str, limit: int) -> str:
    """Return `text` if it has at most `limit` characters, else its head, a marker line and its tail.

    The cuts fall on line ends if one is near. Raises ValueError for a limit under 256.
    """
    if limit < SMALLEST_LIMIT:
        raise ValueError(f"limit = {limit}: expected at least {SMALLEST_LIMIT} characters")
    if len(text) <= limit:
        return text
    half = (limit - _RESERVED) // 2
    head = text[: text.rfind("\n", half - half // _SNAP, half) + 1 or half]
    start = len(text) - half
    line_end = text.find("\n", start - 1, start + half // _SNAP)
    tail = text[line_end + 1 if line_end >= 0 else start :]
    left_out = len(text) - len(head) - len(tail)
    marker = f"[{left_out:,} characters left out here]"
    before = "" if head.endswith("\n") else "\n"
    return f"{head}{before}{marker}\n{tail}"


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can hold a text. It cannot hold the name of a file that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def abbreviated(text: str, limit: int) -> str:
    """Return the first `limit` characters of a text, and an ellipsis if there are more."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def some_of(names: Collection[str], most: int) -> str:
    """Return the first `most` names as a part of a sentence: `a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(islice(names, most)) + (f" and {more} more" if more > 0 else "")


def map_texts(value: Json, change: Callable[[str], str], *, keys: bool = True) -> Json:
    """Return a JSON value with every text in it changed, and by default the keys of its objects as well."""
    match value:
        case str():
            return change(value)
        case list():
            return [map_texts(item, change, keys=keys) for item in value]
        case dict():
            return {change(key) if keys else key: map_texts(item, change, keys=keys) for key, item in value.items()}
        case _:
            return value


def head_and_tail(text: str, longest: int) -> str:
    """Return a text, or its head and its tail with a note between: either end may be what matters."""
    if len(text) <= longest:
        return text
    head = longest * 2 // 3
    return f"{text[:head]} [... {len(text) - longest:,} characters ...] {text[len(text) - (longest - head) :]}"


def lines_left_out(count: int, what: str = "") -> str:
    """Return the note in place of lines that are left out: `[12 lines left out]`."""
    return f"[{counted(count, f'{what}line')} left out]"


NOTE_SIZE = 40
"""The length of a note about a cut. A line is not cut to save fewer characters."""


def shortened_line(line: str, limit: int) -> str:
    """Return a line of at most about `limit` characters, with a note where its middle was."""
    if len(line) <= limit + NOTE_SIZE:
        return line
    tail = limit // 5
    return f"{line[: limit - tail]} [{len(line) - limit:,} characters left out here] {line[-tail:]}"


def lines_of(text: str) -> int:
    """Return the number of lines. The last line counts even without a line feed."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def measure(raw: str, shown: str) -> OutputStats:
    """Return the numbers of lines and characters of `raw` and of its shown part."""
    lines = lines_of(raw)
    shown_lines = lines if shown is raw else lines_of(shown)
    return OutputStats(raw_lines=lines, shown_lines=shown_lines, raw_chars=len(raw), shown_chars=len(shown))


CONTINUED = "↪ "
"""The beginning of a continued line. No line of a wrapped text may begin with it otherwise."""

_TO_LAST_BLANK = lazy_regex(r".*\s", re.DOTALL)
_TO_WORD_END = lazy_regex(r".*[^\w]", re.DOTALL)


def wrap_line(line: str, width: int) -> list[str]:
    """Return the pieces of a line, each of at most `width` characters. Words are broken only if they are longer."""
    found: list[str] = []
    start, half = 0, width // 2
    while len(line) - start > width:
        late = line[start + half : start + width]
        break_ = _TO_LAST_BLANK.match(late) or _TO_WORD_END.match(late)
        end = start + (half + break_.end() if break_ else width)
        found.append(line[start:end])
        start = end
    return [*found, line[start:]]


# ------------------------------------------------------------------------ the marks of our prompts

TAGS = (
    "tool-output",
    "external-data",
    "user-notes",
    "project-notes",
    "workspace",
    "knowledge",
    "conversation",
    "skill",
    "hook-note",
)
"""The names of all tags that our prompts are built of: `<tag>`."""

ITSELF = "[the agent itself "
"""The beginning of a note about something that the agent did by itself."""

REFLECTION = "[self_reflection]"
"""The first line of a note about calls that failed again and again."""

_LIKE_OURS = lazy_regex(
    rf"<(?=\s{{0,16}}/?\s{{0,16}}(?:{'|'.join(TAGS)})\b)|\[(?=\s{{0,16}}/?\s{{0,16}}(?:the\sagent\sitself|self_reflection)\b)",
    re.IGNORECASE,
)
_ESCAPED = {"<": "&lt;", "[": "&#91;"}


def defanged(text: str) -> str:
    """Return the text with the first character of everything that looks like one of our marks escaped.

    Without this, such a mark in a text of a model, a page or a repository could pass for one of ours. `fenced` gives
    each fence an id that the text does not contain, but a reader may not compare the ids.
    """
    return _LIKE_OURS.sub(lambda mark: _ESCAPED[mark[0]], text)


def xml_escaped(text: str, *, quotes: bool = True) -> str:
    """Do what `html.escape` does. Its module would load the table of all entities, which takes 0.3 MB.

    quotes   whether the text stands in an attribute
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#x27;") if quotes else text


def fenced(tag: str, text: str, attributes: str = "") -> str:
    """Return a text in a fence that it cannot close. The same text gives the same bytes."""
    token = _token(text)
    return f'<{tag} id="{token}"{attributes}>\n{text}\n</{tag} id="{token}">'


def _token(text: str) -> str:
    """Return eight characters that do not occur in the text."""
    token = ""
    while not token or token in text:
        token = hashlib.sha256(f"{token}\n{text}".encode("utf-8", "replace")).hexdigest()[:8]
    return token


def plain(name: str) -> str:
    """Return a name on one line, so that the name of a folder cannot add a line to a prompt."""
    return "".join(char if char.isprintable() else f"\\u{{{ord(char):x}}}" for char in name)
