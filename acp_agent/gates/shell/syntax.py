"""The syntax tree of a shell text, by tree-sitter-bash, with caps on size and time."""

import re
import time
from functools import cache
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from acp_agent.gates.shell.command import MAX_SECONDS

_CHUNK = 4096
_LATE = "takes too long to parse"
_NOT_ASCII = re.compile(rb"[\x80-\xff]")

MAX_PIPES = 2000
"""The most pipe characters of a text. The memory of tree-sitter-bash grows with their square: 15,000 take 2 GB."""

MAX_TREE_DEPTH = 100
"""The most nodes inside one another that are walked. Deeper texts count as unread."""


class Parsed(NamedTuple):
    """A tree and the bytes it was made from (nodes carry byte offsets)."""

    root: Node
    source: bytes

    def text(self, node: Node) -> str:
        """Return the source of a node. Cuts through a character give U+FFFD."""
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")


@cache
def _language() -> Language:
    return Language(tree_sitter_bash.language())


class Parses:
    """The trees of a shell text and of the texts inside it. Each text is parsed at most once.

    seconds   the time for all of them together; texts parsed later count as unread
    """

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        self._known: dict[str, Parsed | str] = {}
        self._left = seconds

    def parse(self, text: str, max_bytes: int) -> Parsed | str:
        """Return the tree of a text, or why there is none, as a phrase that follows "the command"."""
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            return "is not valid text"
        if size > max_bytes:
            return f"is longer than {max_bytes // 1024} KiB"
        if text not in self._known:
            begun = time.monotonic()
            self._known[text] = _parse(text.encode(), begun + self._left) if self._left > 0 else _LATE
            self._left -= time.monotonic() - begun
        return self._known[text]


def _parse(source: bytes, until: float) -> Parsed | str:
    if source.count(b"|") > MAX_PIPES:
        return f"has more than {MAX_PIPES} pipes"
    # tree-sitter-bash 0.25.1 asks the C library about each character behind a brace, which crashes the process for most
    # of Unicode. To bash, any character outside ASCII is a letter, so the parser gets letters instead.
    letters = _NOT_ASCII.sub(b"x", source)
    if len(letters) <= _CHUNK:
        return Parsed(Parser(_language()).parse(letters).root_node, source)
    late = False

    def chunk(offset: int, _point: object) -> bytes:
        nonlocal late
        late = late or time.monotonic() > until
        return b"" if late else letters[offset : offset + _CHUNK]

    root = Parser(_language()).parse(chunk).root_node
    return _LATE if late else Parsed(root, source)
