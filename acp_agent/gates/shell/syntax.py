"""The syntax tree of a shell text, by tree-sitter-bash, with caps on size and time."""

import re
import time
from functools import cache
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from acp_agent.gates.shell.command import MAX_SECONDS

_CHUNK = 4096
_NOT_ASCII = re.compile(rb"[\x80-\xff]")

MAX_PIPES = 2000
"""Pipe characters of a text. The memory tree-sitter-bash takes grows with their square: 15,000 take 2 GB."""

MAX_TREE_DEPTH = 100
"""Nodes inside one another that are still walked; deeper texts count as unread."""


class Parsed(NamedTuple):
    """A tree and the bytes it was made from (nodes carry byte offsets)."""

    root: Node
    source: bytes

    def text(self, node: Node) -> str:
        """The source of a node. Cuts through a character give U+FFFD."""
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")


@cache
def _language() -> Language:
    return Language(tree_sitter_bash.language())


def deadline() -> float:
    """When a reading that starts now has to be over (monotonic seconds)."""
    return time.monotonic() + MAX_SECONDS


def parse(text: str, max_bytes: int, until: float) -> Parsed | str:
    """The tree of a text, or why there is none, as a phrase that follows "the command"."""
    try:
        source = text.encode()
    except UnicodeEncodeError:
        return "is not valid text"
    if len(source) > max_bytes:
        return f"is longer than {max_bytes // 1024} KiB"
    if source.count(b"|") > MAX_PIPES:
        return f"has more than {MAX_PIPES} pipes"
    # tree-sitter-bash 0.25.1 asks the C library about each character behind a brace, which crashes the process for
    # most of Unicode. To bash, whatever is not ASCII is a letter like any other; so is it to the parser now.
    letters = _NOT_ASCII.sub(b"x", source)
    if len(letters) <= _CHUNK:
        return Parsed(Parser(_language()).parse(letters).root_node, source)
    late = False

    def chunk(offset: int, _point: object) -> bytes:
        nonlocal late
        late = late or time.monotonic() > until
        return b"" if late else letters[offset : offset + _CHUNK]

    root = Parser(_language()).parse(chunk).root_node
    return "takes too long to parse" if late else Parsed(root, source)
