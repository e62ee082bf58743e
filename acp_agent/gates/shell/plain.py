r"""The proof that a shell text is plain.

A plain tree has only syntax whose meaning is certain, and no byte that the parser may misread. The grammar alone is not
enough: tree-sitter-bash reads `git log<LF>\\evil x` as one command, bash as two. So every leaf and every gap between
leaves is checked as well.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from typing import NamedTuple

from tree_sitter import Node

from acp_agent.gates.shell.command import CUT, CUT_IN_QUOTES, MAX_TREE_DEPTH, TOO_DEEP
from acp_agent.gates.shell.options import tables
from acp_agent.gates.shell.syntax import Parsed

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
    if parsed.damaged:
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
