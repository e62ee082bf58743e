"""Lines of text put together from pieces: blanks settled, prefixes of lists and quotes in front."""

import re

_BLANKS = re.compile(r"[ \t\n\r\f]+")  # HTML's own; a no-break space is there to stay
_DEEPEST = 12  # prefixes shown at once; what is nested deeper is not pushed in any further


def collapsed(text: str) -> str:
    """The text as one line, as a browser shows it."""
    return _BLANKS.sub(" ", text).strip(" ")


class Lines:
    """Gathers pieces to lines, and lines to a text.

    size   characters of the finished lines
    """

    def __init__(self) -> None:
        self.size = 0
        self._done: list[str] = []
        self._pieces: list[str] = []
        self._prefixes: list[tuple[str, str]] = []
        self._gap = False

    def add(self, piece: str) -> None:
        """More of the line under way."""
        self._pieces.append(piece)

    def end(self, *, gap: bool = False, verbatim: bool = False) -> None:
        """End the line under way, if there is one.

        gap        an empty line comes before the next
        verbatim   it is code: blanks and line ends stay
        """
        text = "".join(self._pieces)
        self._pieces.clear()
        if verbatim:
            text = text.removeprefix("\n").rstrip()
            for line in text.split("\n") if text else ():
                self.whole(line)
        elif line := collapsed(text):
            self.whole(line)
        self._gap = self._gap or gap

    def whole(self, line: str) -> None:
        """A finished line, taken as it is."""
        if self._gap and self._done:
            self._done.append("")
        self._gap = False
        prefix = "".join(first for first, _ in self._prefixes[:_DEEPEST])
        self._prefixes = [(rest, rest) for _, rest in self._prefixes]
        self._done.append(f"{prefix}{line}".rstrip(" "))
        self.size += len(self._done[-1]) + 1

    def push(self, first: str, rest: str) -> None:
        """From here on, lines begin with `rest`; the next one with `first`."""
        self._prefixes.append((first, rest))

    def pop(self) -> None:
        """The last prefix ends."""
        self._prefixes.pop()

    def text(self) -> str:
        """The finished lines."""
        return "\n".join(self._done)
