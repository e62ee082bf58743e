"""Remove or escape the characters in a text of a command, file or server that act on a terminal or mislead a reader.

`faithful` prepares the text that a tool read for the model and the user. It drops nothing of a document: invisible
characters are shown as escapes and named on their line (`text.escaped`), since a model edits by what it reads. From the
output of a command it removes escape sequences (CSI, OSC and the other strings, charset, two-character ones; 7 and 8
bits). In such output, carriage returns and backspaces act as on a terminal: only the text after the last carriage
return of a line stays. A CR directly before LF belongs to the line end.

`sanitize` is for texts that are not copied back into a file: names, titles, messages. It removes all of these
characters. A lone surrogate becomes U+FFFD, so that the text can always be encoded.

An unfinished sequence must not swallow text, so only its introducer is removed. The length of sequences is limited, so
that `Escapes`, which cleans a stream, holds a few KiB.

An answer of the model is treated differently: see `markdown_images`.

`fence` marks the text of a tool as data for the model, so that it is not taken for instructions. It puts the text
between two lines with the same id. The id comes from the call's UUID, which is made after the text or is unknown to its
author, so nothing in the text can close the fence. Text of this machine is not changed: a model that edits a file needs
its exact characters. In text from outside, everything that looks like one of our marks is also escaped, for models that
do not compare ids. The system prompt (`agent/prompt.py`) explains the fence to the model.
"""

import hashlib
import re

from acp_agent.text import defanged, escaped, is_plain, lazy_regex, xml_escaped

_SLICE = 1 << 20  # characters handled at once, which limits the memory of a regular expression
# A longer piece of a line is not a progress bar: it stays, and the CR after it becomes a line end.
_LONGEST_OVERWRITTEN = 8192
_LONGEST_STRING = 4096  # characters of the body of an OSC, DCS, ...

_CONTROL = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # all but TAB, LF, CR
_INERT = r"\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x8f\x91-\x97\x99\x9a\x9c"  # those that begin no escape sequence
_INVISIBLE = (  # zero-width, bidirectional, tag and other characters that are not visible but change how text reads
    "\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
_PARAMETERS = r"[0-?]{0,64}+[ -/]{0,8}+"  # of a CSI
_BODY = rf"[^\x00-\x1f\x7f-\x9f]{{0,{_LONGEST_STRING}}}+"
_END = r"(?:\x07|\x1b\\|\x9c)"

# The pattern begins with one character class, so that the search is as fast as reading memory. The look-behinds after
# it decide what kind of sequence begins there.
_NOISE = lazy_regex(
    rf"""[{_CONTROL}{_INVISIBLE}](?:
        (?<=\x1b)(?: \[{_PARAMETERS}[@-~]? | [\]PX^_](?:{_BODY}{_END})? | [\x20-/]{{1,8}}+[0-~]? | [0-~] )
      | (?<=\x9b){_PARAMETERS}[@-~]?
      | (?<=[\x90\x98\x9d-\x9f]){_BODY}{_END}
      | [{_INERT}{_INVISIBLE}]++
    )?""",
    re.VERBOSE,
)
_UNFINISHED = lazy_regex(
    rf"(?:(?:\x1b\[|\x9b){_PARAMETERS}|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]){_BODY}\x1b?|\x1b[ -/]{{0,8}})\Z"
)
_LONGEST_UNFINISHED = _LONGEST_STRING + 8
_SUSPECT = lazy_regex(rf"[{_CONTROL}{_INVISIBLE}\ud800-\udfff]")
_SURROGATE = lazy_regex(r"[\ud800-\udfff]")
_PLAIN_ASCII = bytes([9, 10, 13, *range(0x20, 0x7F)])

_OVERWRITTEN = lazy_regex(r"^[^\r\n]*+\r[^\n]*+", re.MULTILINE)
_OVERSTRUCK = lazy_regex(r"[^\x08\r\n]\x08")
_MOST_OVERSTRUCK = 200  # characters of one line that backspaces may reach back
_SEQUENCE = lazy_regex(
    rf"""[\x1b\x90\x98\x9b\x9d-\x9f](?:
        (?<=\x1b)(?: \[{_PARAMETERS}[@-~]? | [\]PX^_](?:{_BODY}{_END})? | [\x20-/]{{1,8}}+[0-~]? | [0-~] )?
      | (?<=\x9b){_PARAMETERS}[@-~]?
      | (?<=[\x90\x98\x9d-\x9f]){_BODY}{_END}
    )""",
    re.VERBOSE,
)


def faithful(text: str, *, terminal: bool) -> str:
    """Return the text with invisible characters shown as escapes. `text.unescaped` restores them. See the module.

    terminal   True for the output of a command; otherwise the text is a document, of which nothing is dropped
    """
    if is_plain(text):
        return text
    if terminal:
        text = _SEQUENCE.sub("", text).replace("\r\n", "\n")
        for _ in range(_MOST_OVERSTRUCK if "\b" in text else 0):
            text, count = _OVERSTRUCK.subn("", text)
            if not count:
                break
        if "\r" in text:
            text = _OVERWRITTEN.sub(_last_written, text)
    elif "\r" in text:
        text = text.replace("\r\n", "\n")
    return escaped(text, listed=not terminal)


def sanitize(text: str, *, terminal: bool = True) -> str:
    """Return the text without control and invisible characters and escape sequences. See the module.

    terminal   True for the output of a command; otherwise the text is a document, whose lines all stay
    """
    if "\r" not in text and _is_plain(text):
        return text
    escapes = Escapes()
    pieces = [escapes.feed(text[start : start + _SLICE]) for start in range(0, len(text), _SLICE)]
    text = "".join((*pieces, escapes.feed("", last=True))).replace("\r\n", "\n")
    if not terminal:
        return text.replace("\r", "\n")
    return _OVERWRITTEN.sub(_last_written, text) if "\r" in text else text


def _last_written(line: re.Match[str]) -> str:
    """Return the visible part of a line with carriage returns: the last piece, and any too long for a progress bar."""
    text = line[0].rstrip("\r")
    if len(text) < _LONGEST_OVERWRITTEN:
        return text.rpartition("\r")[2]
    *overwritten, last = text.split("\r")
    return "".join((*(f"{piece}\n" for piece in overwritten if len(piece) >= _LONGEST_OVERWRITTEN), last))


class Escapes:
    """A filter that removes escape sequences and control characters from a stream, except line ends and CRs."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, chunk: str, *, last: bool = False) -> str:
        """Return the cleaned text up to an unfinished sequence at the end. With `last`, return all of it."""
        text = self._held + chunk
        self._held = ""
        if _is_plain(text):
            return text
        if not last and (unfinished := _UNFINISHED.search(text, max(0, len(text) - _LONGEST_UNFINISHED))):
            text, self._held = text[: unfinished.start()], text[unfinished.start() :]
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", _NOISE.sub("", text))


def _is_plain(text: str) -> bool:
    """Return whether the text contains nothing to remove.

    Printable ASCII is deleted first, which is fast, so that the regular expression looks at few characters.
    """
    for start in range(0, len(text), _SLICE):
        rest = text[start : start + _SLICE].encode("utf-8", "surrogatepass").translate(None, _PLAIN_ASCII)
        if rest and _SUSPECT.search(rest.decode("utf-8", "surrogatepass")) is not None:
            return False
    return True


_LOCAL = "tool-output"
_EXTERNAL = "external-data"
_LONGEST_SOURCE = 2048


def fence(text: str, call_id: str, *, external: str | None = None) -> str:
    """Return `text` in its fence.

    The text never contains the id of the fence, so the id need not be secret and may be the same in every request.

    external   the URL or MCP server that the text comes from; None for this machine
    """
    tag, source = _LOCAL, ""
    if external is not None:
        tag, text = _EXTERNAL, defanged(text)
        source = f' source="{xml_escaped(" ".join(sanitize(external[:_LONGEST_SOURCE]).split()))}"'
    seed = token = ""
    while not token or token in text:
        seed = hashlib.sha256((seed or call_id).encode("utf-8", "backslashreplace")).hexdigest()
        token = seed[:8]
    newline = "" if text.endswith("\n") else "\n"
    return f'<{tag} id="{token}"{source}>\n{text}{newline}</{tag} id="{token}">'
