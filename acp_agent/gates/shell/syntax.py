r"""The syntax tree of a shell text, by tree-sitter-bash, with caps on size and time, and the proof that it is plain.

A plain tree has only syntax whose meaning is certain, and no byte that the parser may misread. The grammar alone is not
enough: tree-sitter-bash reads `git log<LF>\\evil x` as one command, bash as two. So every leaf and every gap between
leaves is checked as well.
"""

import re
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from acp_agent.gates.shell.command import CUT, CUT_IN_QUOTES, MAX_SECONDS, MAX_TREE_DEPTH, TOO_DEEP
from acp_agent.gates.shell.options import tables

_CHUNK = 4096
_LATE = "takes too long to parse"
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_ZERO = re.compile(rb"(<<-?[ \t]*+)?(?<![^\s;&|(`])0(?=>|<(?!<))")  # a descriptor, unless it ends a here-document

MAX_PIPES = 2000
"""The most pipe characters of a text. The memory of tree-sitter-bash grows with their square: 15,000 take 2 GB."""


class Parsed(NamedTuple):
    """A tree and the bytes it was made from (nodes carry byte offsets)."""

    root: Node
    source: bytes

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
    # tree-sitter-bash 0.25.1 asks the C library about each character after a brace, which crashes the process for most
    # of Unicode. To bash, any character outside ASCII is a letter, so the parser gets letters instead.
    letters = _NOT_ASCII.sub(b"x", source)
    if b"0<" in letters or b"0>" in letters:  # it takes the descriptor 0 for a word, but no other one
        letters = _ZERO.sub(lambda match: match[0] if match[1] else b"7", letters)
    if len(letters) <= _CHUNK:
        return Parsed(Parser(_language()).parse(letters).root_node, source)
    late = False

    def chunk(offset: int, _point: object) -> bytes:
        nonlocal late
        late = late or time.monotonic() > until
        return b"" if late else letters[offset : offset + _CHUNK]

    root = Parser(_language()).parse(chunk).root_node
    return _LATE if late else Parsed(root, source)


class Unseen(NamedTuple):
    """A substitution that bash runs and that the tree takes for text: its place, its text, whether it has backticks."""

    start: int
    text: str
    backtick: bool


_EVALUATORS = frozenset(("test", "let", "read", "printf", "wait", "mapfile", "readarray", "getopts"))
"""Commands of bash that evaluate the index of a variable in their arguments, as in `test -v x[$(word)]`."""

_INDEX = re.compile(rb"\w\[(?:(?!\w\[)[^\]])*?(?:\$\(|`[^`\]]*`)")
_ESCAPED_INDEX = re.compile(rb"\w\[(?:(?!\w\[)[^\]])*?\\(?:\$\(|`)")
_ESCAPED_MARK = re.compile(rb"\\(?:\$\((?!\()|`)")
_PROMPT = re.compile(rb"@P\}|\bPS[0-4]=")
_MARK = re.compile(rb"\\.|`|\$\(\(?", re.DOTALL)
_IN_BACKTICKS = re.compile(rb"(?:\\.|[^`\\])*", re.DOTALL)
_PARENTHESIS = re.compile(rb"\\.|[()]", re.DOTALL)
_ESCAPED = re.compile(r"\\([$`\\])")  # in a here-document
_ESCAPE_IN_BACKTICKS = re.compile(rb"\\([$`\\])")
_ESCAPE_IN_QUOTES = re.compile(rb"\\([$`\"])")


def unseen_substitutions(parsed: Parsed) -> list[Unseen]:
    """Return the substitutions that have no node, in their order.

    tree-sitter-bash 0.25.1 sees no backticks in here-documents and in `${x:-word}`. It takes the word in
    `"${x:-'$(word)'}"` for quoted text, but bash runs it. Of backticks inside backticks it sees the outer ones. Bash
    also runs what stands in a quoted index (`test -v 'x[$(word)]'`, `y='x[$(word)]'; ((y))`) or in a prompt
    (`PS4='$(word)'`).
    """
    source = parsed.source
    if b"`" not in source and b"$(" not in source:
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
            case _:
                pass
        return context

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
            self.found.append(_unseen(match.start(), text, backtick=False))
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
            self.found.append(_unseen(start, text, backtick=True))
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
    # The parser takes lines for words if the first one begins with a backslash.
    lines = parsed.source[redirect.start_byte : body.start_byte].partition(b"\n")[2]
    text = parsed.text(body) or lines.decode(errors="replace")
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
        yield _unseen(match.start(), source[at:close], backtick=match[0] == b"`")
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


def _unseen(start: int, text: bytes, *, backtick: bool) -> Unseen:
    return Unseen(
        start, (_ESCAPE_IN_BACKTICKS.sub(rb"\1", text) if backtick else text).decode(errors="replace"), backtick
    )


_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ue000-\ue003{CUT}{CUT_IN_QUOTES}]")
_WORD = re.compile(r"[^\s\\{}'\"$`;&|<>()#][^\s\\{}'\"$`;&|<>()]*|\\[;()!]")
_BRACED = re.compile(r"\{\}|@\{[\w-]{0,32}\}|\^\{[\w-]{0,16}\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTES = str.maketrans("", "", "'\"")
_DESCRIPTOR = re.compile(r"[0-9]{1,9}")  # bash takes a number that is too large for a word
# Bash expands what stands behind `>&` a second time, also where it is quoted: `ls >&'$(evil)'` runs evil.
_EXPANDED_TWICE = re.compile(r"[A-Za-z0-9_./%+:@,-]+|'[A-Za-z0-9_./%+:@, -]*'|\"[A-Za-z0-9_./%+:@, -]*\"")
_IN_DOUBLE_QUOTES = re.compile(r"(?:[^\"\\$`]|\\[^\"\\$`\n])*")
_STATEMENTS = frozenset(("program", "list", "pipeline", "subshell", "compound_statement", "negated_command"))
_OPERATORS = frozenset(
    ("&&", "||", ";", "|", "|&", "&", "(", ")", "{", "}", "!", "\n", ">", ">>", "<", ">|", "&>", "&>>", ">&", "<&")
)

_REASONS = {
    "command_substitution": "uses a command substitution",
    "process_substitution": "uses a process substitution",
    "herestring_redirect": "uses a here-string",
    "heredoc_redirect": "uses a here-document",
    "simple_expansion": "uses a variable",
    "expansion": "uses a variable",
    "arithmetic_expansion": "uses arithmetic",
    "ansi_c_string": "uses an escaped string $'…'",
    "function_definition": "defines a function",
    "if_statement": "uses a condition",
    "test_command": "uses a test",
    "case_statement": "uses a case",
    "for_statement": "uses a loop",
    "c_style_for_statement": "uses a loop",
    "while_statement": "uses a loop",
    "declaration_command": "changes the shell itself",
    "unset_command": "changes the shell itself",
    "array": "uses an array",
}


class _NotPlain(Exception):
    """The tree is not plain. The message is the reason."""


@dataclass(slots=True)
class _Proof:
    """One pass over a tree.

    leaves     the checked spans in source order
    commands   how many commands were found so far
    """

    parsed: Parsed
    leaves: "list[_Leaf]" = field(default_factory=list)
    commands: int = 0


class _Leaf(NamedTuple):
    """A span of bytes, the number of its command (0 for none), and whether a blank must separate it from the next."""

    start: int
    end: int
    command: int
    word: bool


def why_not_plain(text: str, parsed: Parsed) -> str:
    """Return why a tree is not plain, as a phrase that follows "the command"; empty when it is."""
    if _CONTROL.search(text) or any(unicodedata.category(char) in ("Cf", "Zl", "Zp", "Co") for char in text):
        return "has control or invisible characters"
    if parsed.root.has_error:
        return "has a syntax error"
    proof = _Proof(parsed)
    try:
        _statement(proof, parsed.root, 0)
        _gaps(proof)
    except _NotPlain as found:
        return str(found)
    return ""


def _refuse(node: Node) -> _NotPlain:
    return _NotPlain(_REASONS.get(node.type, f"uses syntax that is not checked ({node.type})"))


def _statement(proof: _Proof, node: Node, depth: int) -> None:
    if depth > MAX_TREE_DEPTH:
        raise _NotPlain(TOO_DEEP)
    match node.type:
        case "command" | "redirected_statement" | "variable_assignment" | "variable_assignments":
            proof.commands += 1
            _command(proof, node, depth)
        case "comment":
            text = proof.parsed.text(node)
            if not text.startswith("#") or "\n" in text:
                raise _NotPlain("has a comment that is not plain")
            _leaf(proof, node, 0)
        case kind if kind in _STATEMENTS:
            for child in node.children:
                _statement(proof, child, depth + 1)
        case kind if kind in _OPERATORS and not node.is_named:
            _leaf(proof, node, 0)
        case _:
            raise _refuse(node)


def _command(proof: _Proof, node: Node, depth: int) -> None:
    """Check a simple command with its assignments and redirections. All its leaves share one number."""
    children = node.children
    alone = all(each.type == "file_redirect" for each in children)
    for child in children:
        match child.type:
            case "variable_assignment":
                _assignment(proof, child)
            case "command_name":
                _program(proof, child)
            case "file_redirect":
                _redirection(proof, child, alone=alone)
            case "variable_name" | "=" | "+=" if node.type == "variable_assignment":
                _assignment(proof, node)
                return
            case "command" | "variable_assignments" | "variable_assignment" if node.type == "redirected_statement":
                _command(proof, child, depth)
            case kind if kind in _STATEMENTS and node.type == "redirected_statement":
                _statement(proof, child, depth + 1)
            case _:
                _word(proof, child)


def _program(proof: _Proof, node: Node) -> None:
    """Check that the word that names the program is no reserved word, no pattern and no hidden assignment."""
    text = proof.parsed.text(node)
    if text in tables().reserved:
        raise _NotPlain(f"uses the shell word {text!r}")
    if any(char in text for char in "=*?["):
        raise _NotPlain("names its program by a pattern")
    for child in node.children:
        _word(proof, child)
    if text.translate(_QUOTES).rpartition("/")[2] == "time":
        _after_time(proof, node)


def _after_time(proof: _Proof, node: Node) -> None:
    """Check that no word behind `time` looks like an option or a variable but names a program.

    Behind the reserved word, bash takes the quoted `'A=1'` and `'-p'`, and a second `-p`, for programs. The program
    `time` takes any `A=1` for one.
    """
    reserved = proof.parsed.text(node) == "time" and node.prev_sibling is None
    word, last, odd = node.next_sibling, "", False
    while word and not odd:
        given = proof.parsed.text(word)
        bare = given.translate(_QUOTES)
        if "=" in given:
            odd = not reserved or not set("'\"").isdisjoint(given.partition("=")[0])
        elif bare in ("-p", "--", "time"):
            odd = bare != given or (bare != "time" and last in (bare, "--"))
        else:
            break
        word, last = word.next_sibling, bare
    behind = node.parent.next_sibling if node.parent and word is None else None
    if behind and behind.type == "file_redirect":
        odd = odd or "=" in proof.parsed.text(behind)  # `time >x 'A=1'`
    if odd:
        raise _NotPlain("has an odd word behind time")


def _assignment(proof: _Proof, node: Node) -> None:
    name, sign, *value = node.children
    if sign.type == "+=":
        raise _NotPlain("adds to a variable")
    if name.type != "variable_name" or not _NAME.fullmatch(proof.parsed.text(name)):
        raise _NotPlain("sets part of an array")
    _adjacent(node)
    if len(value) > 1:
        raise _refuse(value[1])
    start = len(proof.leaves)
    if value:
        _word(proof, value[0])
    proof.leaves[start:] = [_Leaf(node.start_byte, node.end_byte, proof.commands, word=True)]


def _redirection(proof: _Proof, node: Node, *, alone: bool) -> None:
    """Check a redirection. `alone` says that its command consists of redirections only."""
    for child in node.children:
        text = proof.parsed.text(child)
        before = child.prev_sibling.type if child.prev_sibling else ""
        if child.type == "file_descriptor":
            if child.next_sibling and child.next_sibling.start_byte != child.end_byte:
                raise _NotPlain("has a descriptor apart from its redirection")
            if not _DESCRIPTOR.fullmatch(text):
                raise _NotPlain("names a descriptor by a variable or a long number")
            _leaf(proof, child, proof.commands)
        elif not child.is_named:
            if text not in _OPERATORS:
                raise _NotPlain(f"uses the redirection {text!r}")
            _leaf(proof, child, proof.commands)
        elif before in (">&", "<&") and text[0] == "-" != text:
            raise _NotPlain("closes a descriptor in front of a word")
        elif before in (">&", "<&") and not _EXPANDED_TWICE.fullmatch(text):
            raise _NotPlain("has a redirection whose target bash expands twice")
        elif alone and before not in _OPERATORS and "=" in text:  # `>a >b x=1`
            raise _NotPlain("sets a variable behind its redirections")
        else:
            _word(proof, child)


def _word(proof: _Proof, node: Node) -> None:
    text = proof.parsed.text(node)
    match node.type:
        case "word" | "number":
            behind = proof.parsed.source[node.end_byte : node.end_byte + 1]
            if behind in (b"<", b">") and _DESCRIPTOR.fullmatch(text):
                raise _NotPlain("has a descriptor that the parser takes for a word")
            good = _WORD.fullmatch(text) is not None
        case "raw_string":
            good = len(text) >= 2 and text[0] == text[-1] == "'" and "'" not in text[1:-1]
        case "string":
            good = len(text) >= 2 and text[0] == text[-1] == '"' and bool(_IN_DOUBLE_QUOTES.fullmatch(text[1:-1]))
        case "concatenation":
            _concatenation(proof, node, text)
            return
        case _:
            raise _refuse(node)
    if not good:
        raise next(
            (_refuse(child) for child in node.children if child.type in _REASONS),
            _NotPlain("has a word that is not plain"),
        )
    _leaf(proof, node, proof.commands)


def _concatenation(proof: _Proof, node: Node, text: str) -> None:
    """Check a word of several parts. Its braces must have a form that bash never expands: `{}`, `HEAD^{tree}`."""
    _adjacent(node)
    unquoted = "".join(proof.parsed.text(child) for child in node.children if child.type in ("word", "number"))
    if "{" in unquoted or "}" in unquoted:
        rest = _BRACED.sub("x", text)
        if "," in text or ".." in text or not _WORD.fullmatch(rest):
            raise _NotPlain("uses braces")
        _leaf(proof, node, proof.commands)
        return
    start = len(proof.leaves)
    for child in node.children:
        _word(proof, child)
    proof.leaves[start:] = [_Leaf(node.start_byte, node.end_byte, proof.commands, word=True)]


def _adjacent(node: Node) -> None:
    for before, after in zip(node.children, node.children[1:], strict=False):
        if before.end_byte != after.start_byte:
            raise _NotPlain("has a word with a gap in it")


def _leaf(proof: _Proof, node: Node, command: int) -> None:
    if node.is_missing:
        raise _NotPlain("has a syntax error")
    word = node.is_named or node.type in ("!", "{", "}")  # to bash, `!'ls'` and `{ls` are names of programs
    proof.leaves.append(_Leaf(node.start_byte, node.end_byte, command, word=word))


def _gaps(proof: _Proof) -> None:
    """Check that there are only blanks between leaves, no newline inside a command, and a blank between words."""
    source = proof.parsed.source
    before = _Leaf(0, 0, 0, word=False)
    for leaf in proof.leaves:
        gap = source[before.end : leaf.start]
        same = leaf.command != 0 and leaf.command == before.command
        if leaf.start < before.end or gap.strip(b" \t" if same else b" \t\n"):
            raise _NotPlain("has bytes the parser skipped")
        after_mark = source[before.start : before.end] == b"!"  # with extglob, `!(ls)` is a pattern
        if before.word and (leaf.word or after_mark) and not gap:
            raise _NotPlain("has words that touch")
        before = leaf
    if source[before.end :].strip(b" \t\n"):
        raise _NotPlain("has bytes the parser skipped")
