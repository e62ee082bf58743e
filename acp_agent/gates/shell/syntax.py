"""The syntax tree of a shell text, by tree-sitter-bash, with caps on size and time.

It also finds the substitutions that bash runs and the tree lacks.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from acp_agent.gates.shell.command import MAX_SECONDS, Construct

_CHUNK = 4096
_LATE = "takes too long to parse"
_LETTERS = re.compile(rb"[\x80-\xff\r\x0b\x0c]")
_ZERO = re.compile(rb"(<<-?[ \t]*+)?(?<![^\s;&|(`])0(?=>|<(?!<))")  # a descriptor, unless it ends a here-document
_ESCAPED_BLANK = re.compile(rb"(?<!\\)((?:\\\\)*+)\\[ \t]")
_LONE_DOLLAR = re.compile(rb"(?<!\$)\$(?=[\s;&|)<>]|\Z)")
_BLANK_INDEX = re.compile(rb"(?<=\w\[)[ \t]+(?=\]\+?=)")
_INSIDE_WORD = re.compile(  # but not in `${#x}` and `${x[0]#y}`
    rb"(\$\{(?:[!\w]*+\[[^\]\n]{0,64}\]#)?)|([\[\]{}]|(?:(?<=[\s;&|(])|^)[A-Za-z_]\w*+)#"
)
_CONTINUED_WORD = re.compile(rb"(?:(?<=[^\s;&|()<>${\\])|(?<!\\)(?:\\\\)++)(?:\\\n)++#")
_FIRST_ESCAPE = re.compile(rb"[ \t]*+(\\[^\n])")
_DELIMITER = re.compile(rb"(?:[^\s;&|<>()`$#'\"\\]|\\[^\s#]|'[^'\n#]*'|\"[^\"\n#\\`$]*\")+")
_QUOTES = re.compile(rb"['\"\\]")
_CONTINUES = re.compile(rb"(?<!\\)(?:\\\\)*+\\\Z")
_LINE_END = re.compile(rb"(?<!\\)(?:\\\\)*+\n")

MAX_PIPES = 2000
"""The most pipe characters of a text. The memory of tree-sitter-bash grows with their square: 15,000 take 2 GB."""


class Parsed(NamedTuple):
    """A tree and the bytes it was made from (nodes carry byte offsets).

    damaged   whether the tree has an error, or takes for text what bash runs as commands
    """

    root: Node
    source: bytes
    damaged: bool

    def text(self, node: Node) -> str:
        """Return the source of a node. A character that the node's bounds cut becomes U+FFFD."""
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
    letters = _for_parser(source)
    root = _tree(letters, until)
    mended = _mended(root, letters) if root is not None else letters
    if mended != letters:
        root = _tree(mended, until)
    if root is None:
        return _LATE
    return Parsed(root, source, root.has_error or _is_misread(root, source))


def _tree(letters: bytes, until: float) -> Node | None:
    """Return the root of a tree, or None if it took too long."""
    if len(letters) <= _CHUNK:
        return Parser(_language()).parse(letters).root_node
    late = False

    def chunk(offset: int, _point: object) -> bytes:
        nonlocal late
        late = late or time.monotonic() > until
        return b"" if late else letters[offset : offset + _CHUNK]

    root = Parser(_language()).parse(chunk).root_node
    return None if late else root


def _for_parser(source: bytes) -> bytes:
    """Return a text of equal length that tree-sitter-bash 0.25.1 reads as bash reads this one."""
    # The parser asks the C library about each character after a brace, which crashes the process for most of Unicode.
    # To bash, a character outside ASCII is a letter, and so is a carriage return, which the parser takes for a blank.
    letters = _LETTERS.sub(b"x", source)
    if b"0<" in letters or b"0>" in letters:  # it takes the descriptor 0 for a word, but no other one
        letters = _ZERO.sub(lambda match: match[0] if match[1] else b"7", letters)
    if b"\\" in letters:  # it takes the line that ends with `> \ ` and the next one for a single one
        letters = _ESCAPED_BLANK.sub(rb"\1xx", letters)
    if b"$" in letters:  # it takes a lone $ and the word on the next line for a variable
        letters = _LONE_DOLLAR.sub(b"x", letters)
    if b"[" in letters:  # it takes `a[ ]=b c` for no assignment
        letters = _BLANK_INDEX.sub(lambda match: b"1" * len(match[0]), letters)
    if b"#" in letters:  # it takes the end of `}#; a` and of `a#; b` for a comment, and a # behind a line that goes on
        letters = _CONTINUED_WORD.sub(lambda match: b"x" * len(match[0]), letters)
        letters = _INSIDE_WORD.sub(lambda match: match[1] or match[2] + b"x", letters)
    return letters


def _mended(root: Node, letters: bytes) -> bytes:
    """Return a text of equal length without two things that the parser has misread in this one.

    It takes all behind `a ==` for an expression, and a here-document that begins with a backslash for commands.
    """
    text, todo = bytearray(letters), [root] if b"<<" in letters or b"=" in letters else []
    while todo:
        node = todo.pop()
        if node.type == "command" and any(each.type == "regex" for each in node.children):
            for each in node.children:
                if each.type in ("==", "=~"):
                    text[each.start_byte : each.end_byte] = b"xx"
        elif node.type == "heredoc_redirect":
            found = {child.type: child for child in node.children}
            first = _LINE_END.search(letters, found["heredoc_start"].end_byte) if "heredoc_start" in found else None
            body = found.get("heredoc_body")
            is_empty = body is None or body.start_byte == body.end_byte
            if first and is_empty and (escape := _FIRST_ESCAPE.match(letters, first.end())):
                text[escape.start(1) : escape.end(1)] = b"xx"
        todo.extend(node.children)
    return bytes(text)


def _is_misread(root: Node, source: bytes) -> bool:
    """Return whether a tree takes for the text of a here-document what bash runs as commands.

    In `cat <<E; ls`, `ls *<<E` and `cat <<E |`, the parser ends the here-document too late.
    """
    todo = [root] if b"<<" in source else []
    while todo:
        node = todo.pop()
        if node.type == "heredoc_redirect" and not _ends_as_for_bash(node, source):
            return True
        todo.extend(node.children)
    return False


def _ends_as_for_bash(redirect: Node, source: bytes) -> bool:
    """Return whether a here-document certainly ends for bash where its node ends."""
    found = {child.type: child for child in redirect.children}
    start, end = found.get("heredoc_start"), found.get("heredoc_end")
    if start is None or end is None:
        return False
    shown = source[start.start_byte : start.end_byte]
    first = _LINE_END.search(source, start.end_byte)
    if first is None or not _DELIMITER.fullmatch(shown):
        return False
    delimiter, at, is_nested = _QUOTES.sub(b"", shown), first.end(), _is_in_substitution(redirect)
    while at <= end.start_byte:
        stop = source.find(b"\n", at)
        stop = len(source) if stop < 0 else stop
        line = source[at:stop]
        text = line.lstrip(b"\t") if "<<-" in found else line
        if text == delimiter or (is_nested and text.startswith(delimiter) and b")" in text):  # `$(cat <<E … E)`
            begin = at + len(line) - len(text)
            return (end.start_byte, end.end_byte) == (begin, begin + len(delimiter))
        if delimiter == shown and _CONTINUES.search(line):
            # Bash joins the line and the next one: the delimiter ends nothing there, but may stand on both.
            after = source.find(b"\n", stop + 1)
            joined = line[:-1] + source[stop + 1 : len(source) if after < 0 else after]
            if _CONTINUES.search(joined) or (joined.lstrip(b"\t") if "<<-" in found else joined) == delimiter:
                return False
            stop = len(source) if after < 0 else after
        at = stop + 1
    return False


def _is_in_substitution(node: Node) -> bool:
    """Return whether a node is inside `$(…)`, `<(…)` or `>(…)`."""
    above = node.parent
    while above is not None and above.type not in ("command_substitution", "process_substitution"):
        above = above.parent
    return above is not None


class Unseen(NamedTuple):
    """A substitution that bash runs and that the tree takes for text: its place, its text and its form."""

    start: int
    text: str
    form: Construct


_EVALUATORS = frozenset(("test", "let", "read", "printf", "wait", "mapfile", "readarray", "getopts"))
"""Commands of bash that evaluate the index of a variable in their arguments, as in `test -v x[$(word)]`."""

_INDEX = re.compile(rb"\w\[(?:(?!\w\[)[^\]])*?(?:\$\(|`[^`\]]*`)")
_ESCAPED_INDEX = re.compile(rb"\w\[(?:(?!\w\[)[^\]])*?\\(?:\$\(|`)")
_ESCAPED_MARK = re.compile(rb"\\(?:\$\((?!\()|`)")
_PROCESS = re.compile(rb"\\.|[<>]\(", re.DOTALL)
_PROMPT = re.compile(rb"@P\}|\bPS[0-4]=")
_MARK = re.compile(rb"\\.|`|\$\(\(?", re.DOTALL)
_IN_BACKTICKS = re.compile(rb"(?:\\.|[^`\\])*", re.DOTALL)
_PARENTHESIS = re.compile(rb"\\.|[()]", re.DOTALL)
_ESCAPED = re.compile(r"\\([$`\\])")  # in a here-document
_ESCAPE_IN_BACKTICKS = re.compile(rb"\\([$`\\])")
_ESCAPE_IN_QUOTES = re.compile(rb"\\([$`\"])")


def unseen_substitutions(parsed: Parsed) -> list[Unseen]:
    """Return the substitutions that have no node, in their order.

    tree-sitter-bash 0.25.1 sees no backticks in here-documents and in `${x:-word}`, and no `<(word)` in the latter. It
    takes the word in `"${x:-'$(word)'}"` for quoted text, but bash runs it. Of backticks inside backticks it sees the
    outer ones. Bash also runs what stands in a quoted index (`test -v 'x[$(word)]'`, `y='x[$(word)]'; ((y))`) or in a
    prompt (`PS4='$(word)'`).
    """
    source = parsed.source
    if not any(mark in source for mark in (b"`", b"$(", b"<(", b">(")):
        return []
    scan = _Scan(parsed, prompts=_PROMPT.search(source) is not None)
    todo: list[tuple[Node, _Context]] = [(parsed.root, _Context())]
    while todo:
        node, context = todo.pop()
        inside = scan.enter(node, context)
        if inside is not None:
            todo.extend((child, inside) for child in node.children)
    return sorted([*scan.found, *_marked(source, sorted(scan.literal), scan.seen)])


class _Context(NamedTuple):
    """What holds in a node: whether single quotes quote nothing, and whether bash evaluates quoted text later."""

    unquoted: bool = False
    evaluated: bool = False


@dataclass(slots=True)
class _Scan:
    """One pass over a tree.

    prompts   whether a quoted value of a variable may be expanded as a prompt
    literal   the spans of text that bash does not expand
    seen      the places where a substitution that has a node begins or ends
    found     the backticks inside backticks
    """

    parsed: Parsed
    prompts: bool
    literal: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    seen: set[int] = field(default_factory=set[int])
    found: list[Unseen] = field(default_factory=list[Unseen])

    def enter(self, node: Node, context: _Context) -> _Context | None:
        """Note a node. Return what holds in it; None if its text needs no further look."""
        match node.type:
            case "raw_string" | "ansi_c_string" | "comment":
                return self._text(node, context)
            case "heredoc_redirect" if is_literal(self.parsed, node):
                bodies = (each for each in node.children if each.type == "heredoc_body")
                self.literal += ((each.start_byte, each.end_byte) for each in bodies)
            case "string" | "heredoc_body" | "subscript":
                if node.type == "string" and context.evaluated:
                    self._escaped(node)
                return context._replace(unquoted=True)
            case "variable_assignment" | "declaration_command" | "unset_command" | "test_command":
                return context._replace(evaluated=True)
            case "do_group":  # of a loop over an expression
                return context._replace(unquoted=False)
            case "command":
                return _Context(evaluated=any(self.parsed.text(each) in _EVALUATORS for each in node.children))
            case "arithmetic_expansion" | "compound_statement" | "c_style_for_statement" if _is_arithmetic(node):
                self.seen.add(node.start_byte)
                return context._replace(unquoted=True)
            case "command_substitution":
                return self._substitution(node)
            case "word" | "regex" if not context.unquoted:
                self._processes(node)
            case _:
                pass
        return context

    def _processes(self, node: Node) -> None:
        """Note the process substitutions in a word."""
        source, at, end = self.parsed.source, node.start_byte, node.end_byte
        while match := _PROCESS.search(source, at, end):
            at = match.end()
            if match[0][-1:] == b"(":
                close = _closing(source, at, end)
                self.found.append(_unseen(match.start(), source[at:close], Construct.PROCESS_SUBSTITUTION))
                at = close + 1

    def _escaped(self, node: Node) -> None:
        r"""Note the escaped substitutions of a string that bash evaluates again: `let "x[\\$(word)]"`."""
        source = self.parsed.source
        if not self.prompts and _ESCAPED_INDEX.search(source, node.start_byte, node.end_byte) is None:
            return
        at, end = node.start_byte, node.end_byte
        while match := _ESCAPED_MARK.search(source, at, end):
            if match[0][-1:] == b"(":
                close = _closing(source, match.end(), end)
            else:
                close = source.find(b"\\`", match.end(), end)
                close = end if close < 0 else close
            # What is inside it is found when it is read.
            text = _ESCAPE_IN_QUOTES.sub(rb"\1", source[match.end() : close])
            self.found.append(_unseen(match.start(), text))
            at = close + 1

    def _text(self, node: Node, context: _Context) -> _Context | None:
        """Note quoted text, unless bash expands it all the same."""
        if node.type != "comment":
            if context.unquoted:
                return context
            if context.evaluated and (
                self.prompts or _INDEX.search(self.parsed.source, node.start_byte, node.end_byte)
            ):
                return None
        self.literal.append((node.start_byte, node.end_byte))
        return None

    def _substitution(self, node: Node) -> _Context:
        start, source = node.start_byte, self.parsed.source
        self.seen |= {start, node.end_byte - 1}
        text = source[start + 1 : node.end_byte - 1]
        if source[start : start + 1] == b"`" and b"\\`" in text:
            self.found.append(_unseen(start, text, Construct.BACKTICK))
        return _Context()


def _is_arithmetic(node: Node) -> bool:
    """Return whether a node is an expression, in which bash ignores quotes, and not a group of commands."""
    return node.type == "arithmetic_expansion" or any(each.type == "((" for each in node.children[:2])


def is_literal(parsed: Parsed, redirect: Node) -> bool:
    """Return whether a here-document has a quoted delimiter, so that bash replaces nothing in it."""
    start = next((each for each in redirect.children if each.type == "heredoc_start"), None)
    return start is not None and not set("'\"\\").isdisjoint(parsed.text(start))


def has_background(node: Node) -> bool:
    """Return whether a node has a command that runs in the background."""
    todo = list(node.children)
    while todo:
        child = todo.pop()
        if child.type == "&":
            return True
        todo.extend(child.children)
    return False


def heredoc_text(parsed: Parsed, redirect: Node, body: Node) -> str:
    """Return the text of a here-document."""
    text = parsed.text(body)
    return text if is_literal(parsed, redirect) else _ESCAPED.sub(r"\1", text)


def _marked(source: bytes, literal: list[tuple[int, int]], seen: set[int]) -> Iterator[Unseen]:
    """Yield the substitutions that begin outside literal text and not where a node begins or ends."""
    at, spans = 0, iter((*literal, (len(source), len(source))))
    start, end = next(spans)
    while match := _MARK.search(source, at):
        while end <= match.start():
            start, end = next(spans)
        if start <= match.start() < end:
            at = end
            continue
        at = match.end()
        if match.start() in seen or match[0][:1] == b"\\" or match[0] == b"$((":
            continue
        if match[0] == b"`":
            inner = _IN_BACKTICKS.match(source, at)
            close = inner.end() if inner is not None else at
        else:
            close = _closing(source, at, len(source))
        form = Construct.BACKTICK if match[0] == b"`" else Construct.COMMAND_SUBSTITUTION
        yield _unseen(match.start(), source[at:close], form)
        at = close + 1


def _closing(source: bytes, at: int, end: int) -> int:
    """Return the place of the closing parenthesis, or `end` if there is none before it. Quotes are ignored.

    at   the place behind the opening parenthesis
    """
    depth = 1
    for match in _PARENTHESIS.finditer(source, at, end):
        depth += {b"(": 1, b")": -1}.get(match[0], 0)
        if not depth:
            return match.start()
    return end


def _unseen(start: int, text: bytes, form: Construct = Construct.COMMAND_SUBSTITUTION) -> Unseen:
    text = _ESCAPE_IN_BACKTICKS.sub(rb"\1", text) if form is Construct.BACKTICK else text
    return Unseen(start, text.decode(errors="replace"), form)
