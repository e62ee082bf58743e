"""Makes text from commands, files and servers harmless and plain (O1.10, requirements 2.11, security.md 2.7).

What goes: escape sequences (CSI, OSC and the other strings, charset, two-character ones; 7- and 8-bit), control
characters, bidi and invisible characters. A lone surrogate becomes U+FFFD, so the text always encodes.

Terminal output also loses what a terminal would have overwritten: of a line with carriage returns the last piece
counts. CRs right before LF are part of the line ending, so CRLF loses nothing. Runs of blank lines become one.
Documents (files, pages) keep their blank lines, and a CR ends a line there.

A sequence that never ends must not swallow text: without its terminator only the introducer is dropped. Nor may it
or an endless line fill the memory: both are given up at a fixed length, so state stays a few KiB.
"""

import re

_SLICE = 1 << 20  # characters handled at once: bounds what a regex holds beside the text
_LONGEST_OVERWRITTEN = 8192  # a longer piece of a line is no progress bar: it stays, and the CR after it ends the line
_LONGEST_STRING = 4096  # characters of an OSC, DCS, ... body

_CONTROL = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # all but TAB, LF, CR
_INERT = r"\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x8f\x91-\x97\x99\x9a\x9c"  # those that begin no sequence
_INVISIBLE = (  # zero-width, bidi, tag and other characters that show nothing but change what is read
    "\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
_PARAMETERS = r"[0-?]{0,64}+[ -/]{0,8}+"  # of a CSI
_BODY = rf"[^\x00-\x1f\x7f-\x9f]{{0,{_LONGEST_STRING}}}+"
_END = r"(?:\x07|\x1b\\|\x9c)"

# One leading class, so that the search runs at memory speed; what the character before begins is decided behind it.
_NOISE = re.compile(
    rf"""[{_CONTROL}{_INVISIBLE}](?:
        (?<=\x1b)(?: \[{_PARAMETERS}[@-~]? | [\]PX^_](?:{_BODY}{_END})? | [\x20-/]{{1,8}}+[0-~]? | [0-~] )
      | (?<=\x9b){_PARAMETERS}[@-~]?
      | (?<=[\x90\x98\x9d-\x9f]){_BODY}{_END}
      | [{_INERT}{_INVISIBLE}]++
    )?""",
    re.VERBOSE,
)
_UNFINISHED = re.compile(
    rf"(?:(?:\x1b\[|\x9b){_PARAMETERS}|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]){_BODY}\x1b?|\x1b[ -/]{{0,8}})\Z"
)
_LONGEST_UNFINISHED = _LONGEST_STRING + 8
_SUSPECT = re.compile(rf"[{_CONTROL}{_INVISIBLE}\ud800-\udfff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_PLAIN_ASCII = bytes([9, 10, 13, *range(0x20, 0x7F)])

_BLANK = rf"[ \t]{{0,{_LONGEST_OVERWRITTEN - 1}}}+\n"
_BLANK_RUN = re.compile(rf"(\n{_BLANK})(?:{_BLANK})++")
_BLANK_LINE = re.compile(_BLANK)


def sanitize(text: str, *, terminal: bool = True) -> str:
    """The whole of `text`, cleaned. Clean text comes back as it is, at the cost of one look.

    `terminal` is for what a command printed; without it the text is a document, whose lines all stay.
    """
    if _is_settled(text, terminal=terminal) and all(
        _is_plain(text[start : start + _SLICE]) for start in range(0, len(text), _SLICE)
    ):
        return text
    sanitizer = Sanitizer(terminal=terminal)
    pieces = [sanitizer.feed(text[start : start + _SLICE]) for start in range(0, len(text), _SLICE)]
    return "".join((*pieces, sanitizer.finish()))


class Sanitizer:
    """Cleans a stream. However the stream is cut into chunks, the pieces given back join to the same text.

    The last, unfinished line is held back until it ends (at most 8,192 characters, then it goes out in pieces).
    """

    def __init__(self, *, terminal: bool = True) -> None:
        self._escapes = Escapes()
        self._lines = _TerminalLines() if terminal else _DocumentLines()

    def feed(self, chunk: str) -> str:
        """What is certain after this chunk; may be empty."""
        return self._lines.feed(self._escapes.feed(chunk))

    def finish(self) -> str:
        """The rest. The sanitizer is of no use afterwards."""
        return self._lines.feed(self._escapes.finish()) + self._lines.finish()


class Escapes:
    """Takes noise out of a stream, holding back an escape sequence that has only begun; lines and CRs stay."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, chunk: str) -> str:
        """What is certain after this chunk, without noise."""
        text = self._held + chunk
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_UNFINISHED))
        end = unfinished.start() if unfinished else len(text)
        self._held = text[end:]
        return _without_noise(text[:end])

    def finish(self) -> str:
        """The rest."""
        return _without_noise(self._held)


class _DocumentLines:
    """Line endings to LF, nothing else."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        return _lf(text.removesuffix("\r"))

    def finish(self) -> str:
        return _lf(self._held)


class _TerminalLines:
    """Settles carriage returns and runs of blank lines.

    `_line` is the line under way, `_begun` whether its beginning went out already (it then is no blank line and
    cannot be overwritten), `_blank` whether the line before it was blank.
    """

    def __init__(self) -> None:
        self._line = ""
        self._begun = False
        self._blank = False

    def feed(self, text: str) -> str:
        head, newline, tail = text.rpartition("\n")
        out = self._complete(f"{self._line}{head}\n") if newline else ""
        self._line = tail if newline else self._line + tail
        given, self._line, begun = _settle(self._line, begun=self._begun)
        if given or begun:
            self._begun, self._blank = begun, False
        return out + given

    def finish(self) -> str:
        given, kept, _ = _settle(self._line, begun=self._begun)
        return given + kept.rstrip("\r")

    def _complete(self, block: str) -> str:
        """What stays of whole lines, of which the first may have begun earlier."""
        first = ""
        if self._begun:
            line, _, block = block.partition("\n")
            first, _, more = _settled(line, begun=True).partition("\n")
            first += "\n"
            block = f"{more}\n{block}" if more else block
            self._begun = False
        if "\r\n" in block:
            block = block.replace("\r\n", "\n")
        if "\r" in block:
            block = "\n".join(_settled(line) if "\r" in line else line for line in block.split("\n"))
        return first + self._collapse(block)

    def _collapse(self, block: str) -> str:
        """One blank line, the first, of every run."""
        if not block:
            return block
        last = block[block.rfind("\n", 0, -1) + 1 :]
        ends_blank = _BLANK_LINE.fullmatch(last) is not None
        block = _BLANK_RUN.sub(r"\1", f"\n{block}")[1:]
        if self._blank and (repeated := _BLANK_LINE.match(block)):
            block = block[repeated.end() :]
        self._blank = ends_blank
        return block


def _settled(line: str, *, begun: bool = False) -> str:
    """A whole line without its line feed, as it stays."""
    if not begun and len(line) < _LONGEST_OVERWRITTEN:
        return line.rstrip("\r").rpartition("\r")[2]
    given, kept, _ = _settle(line, begun=begun)
    return given + kept.rstrip("\r")


def _settle(line: str, *, begun: bool = False) -> tuple[str, str, bool]:
    """What of a line under way can go out, what is to be kept, and whether the kept part's line has begun.

    Kept is the last piece, unless it is too long to be overwritten, and the CR after it: the next character decides
    whether that ends the line or writes over it.
    """
    body = line.rstrip("\r")
    waiting = "\r" if len(body) < len(line) else ""
    first, *pieces = body.split("\r")
    given: list[str] = []
    if begun:
        given.append(first)
        if not pieces:
            return first, waiting, True
        given.append("\n")
    elif first:
        pieces.insert(0, first)
    *overwritten, last = pieces or [""]
    given += [f"{piece}\n" for piece in overwritten if len(piece) >= _LONGEST_OVERWRITTEN]
    if len(last) >= _LONGEST_OVERWRITTEN:
        return "".join((*given, last)), waiting, True
    return "".join(given), last + waiting, False


def _without_noise(text: str) -> str:
    if _is_plain(text):
        return text
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", _NOISE.sub("", text))


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _is_settled(text: str, *, terminal: bool) -> bool:
    """Whether no line of it would change."""
    if "\r" in text:
        return False
    return not terminal or (_BLANK_RUN.search(text) is None and _starts_settled(text))


def _starts_settled(text: str) -> bool:
    start = _BLANK_LINE.match(text)
    return start is None or _BLANK_LINE.match(text, start.end()) is None


def _is_plain(text: str) -> bool:
    """Whether nothing in it is noise.

    Printable ASCII is deleted at memory speed first, so the regex looks at the few characters left over.
    """
    rest = text.encode("utf-8", "surrogatepass").translate(None, _PLAIN_ASCII)
    return not rest or _SUSPECT.search(rest.decode("utf-8", "surrogatepass")) is None


_ACTING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_RETURNS = re.compile(r"\r(?!\n)")


class ControlGuard:
    """Shows the acting characters of a stream. However the stream is cut, the pieces given back join to the same text.

    At most one character is held back: a carriage return that a line feed may follow.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, chunk: str) -> str:
        """Return what is certain after this chunk; may be empty."""
        text = self._held + chunk
        self._held = "\r" if text.endswith("\r") else ""
        return _shown(text.removesuffix("\r"))

    def finish(self) -> str:
        """Return the rest."""
        rest, self._held = self._held, ""
        return _shown(rest)


def _shown(text: str) -> str:
    if "\r" in text:
        text = _RETURNS.sub("\n", text)
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
