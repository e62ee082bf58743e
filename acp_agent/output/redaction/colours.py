"""Colour codes in a text that was not sanitized: they may stand before a secret, or inside it, and hide it (S9).

`grep --color` writes the `ghp_` that was looked for and the rest of the token in two colours.
"""

import re
from bisect import bisect_right

_COLOUR = re.compile(rb"\x1b(?:\[[0-?]{0,64}+[ -/]{0,8}+[@-~]|\([0-9A-Za-z])")


class Uncoloured:
    """A text without its colours and other short terminal codes, and where in the whole text each byte of it stands."""

    def __init__(self, data: bytes) -> None:
        pieces, self._here, self._there, position = list[bytes](), [0], [0], 0
        for code in _COLOUR.finditer(data):
            pieces.append(data[position : code.start()])
            position = code.end()
            self._here.append(self._here[-1] + len(pieces[-1]))
            self._there.append(position)
        self.text = b"".join((*pieces, data[position:]))

    def at(self, offset: int) -> int:
        """Where the byte at `offset` stands in the whole text; behind the codes before it."""
        piece = bisect_right(self._here, offset) - 1
        return self._there[piece] + offset - self._here[piece]


def uncoloured(data: bytes) -> Uncoloured | None:
    """A text without colours; None for one that has none."""
    return Uncoloured(data) if b"\x1b" in data and _COLOUR.search(data) else None
