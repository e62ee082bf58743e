r"""Whether a tree is plain: only syntax whose meaning is certain, and no byte the parser could have misread.

The grammar alone is not enough: tree-sitter-bash reads `git log<LF>\\evil x` as one command, bash as two. So
every leaf and every gap between leaves is checked as well (security.md 2.1, "gap audit").
"""

import re
import unicodedata
from dataclasses import dataclass, field

from tree_sitter import Node

from acp_agent.gates.shell.syntax import MAX_TREE_DEPTH, Parsed
from acp_agent.gates.shell.tables import tables

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ue000-\ue003]")
_WORD = re.compile(r"[^\s\\{}'\"$`;&|<>()#][^\s\\{}'\"$`;&|<>()]*|\\;")
_BRACED = re.compile(r"\{\}|@\{[\w-]{0,32}\}|\^\{[\w-]{0,16}\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    """Found something; the message is the reason."""


@dataclass(slots=True)
class _Audit:
    """One pass over a tree. `leaves` are the checked spans in source order; `commands` numbers the commands."""

    parsed: Parsed
    leaves: "list[_Leaf]" = field(default_factory=list)
    commands: int = 0


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A span of bytes, the number of its command (0 = none), and whether a blank must part it from the next word."""

    start: int
    end: int
    command: int
    word: bool


def why_not_plain(text: str, parsed: Parsed) -> str:
    """Why a tree is not plain, as a phrase that follows "the command"; empty when it is."""
    if _CONTROL.search(text) or any(unicodedata.category(char) in ("Cf", "Zl", "Zp", "Co") for char in text):
        return "has control or invisible characters"
    if parsed.root.has_error:
        return "has a syntax error"
    audit = _Audit(parsed)
    try:
        _statement(audit, parsed.root, 0)
        _gaps(audit)
    except _NotPlain as found:
        return str(found)
    return ""


def _refuse(node: Node) -> _NotPlain:
    return _NotPlain(_REASONS.get(node.type, f"uses syntax that is not checked ({node.type})"))


def _statement(audit: _Audit, node: Node, depth: int) -> None:
    if depth > MAX_TREE_DEPTH:
        raise _NotPlain("is nested too deep")
    match node.type:
        case "command" | "redirected_statement" | "variable_assignment" | "variable_assignments":
            audit.commands += 1
            _command(audit, node, depth)
        case "comment":
            _comment(audit, node)
        case kind if kind in _STATEMENTS:
            for child in node.children:
                _statement(audit, child, depth + 1)
        case kind if kind in _OPERATORS and not node.is_named:
            _leaf(audit, node, 0)
        case _:
            raise _refuse(node)


def _command(audit: _Audit, node: Node, depth: int) -> None:
    """A simple command with its assignments and redirections; all its leaves share one number."""
    for child in node.children:
        match child.type:
            case "variable_assignment":
                _assignment(audit, child)
            case "command_name":
                _program(audit, child)
            case "file_redirect":
                _redirection(audit, child)
            case "variable_name" | "=" | "+=" if node.type == "variable_assignment":
                _assignment(audit, node)
                return
            case "command" | "variable_assignments" | "variable_assignment" if node.type == "redirected_statement":
                _command(audit, child, depth)
            case kind if kind in _STATEMENTS and node.type == "redirected_statement":
                _statement(audit, child, depth + 1)
            case _:
                _word(audit, child)


def _program(audit: _Audit, node: Node) -> None:
    """The word that names the program: no reserved word, no pattern, no assignment in disguise."""
    text = audit.parsed.text(node)
    if text in tables().reserved:
        raise _NotPlain(f"uses the shell word {text!r}")
    if any(char in text for char in "=*?["):
        raise _NotPlain("names its program by a pattern")
    for child in node.children:
        _word(audit, child)


def _assignment(audit: _Audit, node: Node) -> None:
    name, _, *value = node.children
    if name.type != "variable_name" or not _NAME.fullmatch(audit.parsed.text(name)):
        raise _NotPlain("sets part of an array")
    _adjacent(node)
    if len(value) > 1:
        raise _refuse(value[1])
    start = len(audit.leaves)
    if value:
        _word(audit, value[0])
    audit.leaves[start:] = [_Leaf(node.start_byte, node.end_byte, audit.commands, word=True)]


def _redirection(audit: _Audit, node: Node) -> None:
    for child in node.children:
        if child.type == "file_descriptor" and child.next_sibling and child.next_sibling.start_byte != child.end_byte:
            raise _NotPlain("has a descriptor apart from its redirection")
        if child.type == "file_descriptor" or not child.is_named:
            text = audit.parsed.text(child)
            if child.type != "file_descriptor" and text not in _OPERATORS:
                raise _NotPlain(f"uses the redirection {text!r}")
            if child.type == "file_descriptor" and not text.isdigit():
                raise _NotPlain("names a descriptor by a variable")
            _leaf(audit, child, audit.commands)
        else:
            _word(audit, child)


def _word(audit: _Audit, node: Node) -> None:
    text = audit.parsed.text(node)
    match node.type:
        case "word" | "number":
            good = _WORD.fullmatch(text) is not None
        case "raw_string":
            good = len(text) >= 2 and text[0] == text[-1] == "'" and "'" not in text[1:-1]
        case "string":
            good = len(text) >= 2 and text[0] == text[-1] == '"' and bool(_IN_DOUBLE_QUOTES.fullmatch(text[1:-1]))
        case "concatenation":
            _concatenation(audit, node, text)
            return
        case _:
            raise _refuse(node)
    if not good:
        raise next(
            (_refuse(child) for child in node.children if child.type in _REASONS),
            _NotPlain("has a word that is not plain"),
        )
    _leaf(audit, node, audit.commands)


def _concatenation(audit: _Audit, node: Node, text: str) -> None:
    """Parts without a gap. Braces only in forms bash never expands: `{}`, `stash@{0}`, `HEAD^{tree}`."""
    _adjacent(node)
    unquoted = "".join(audit.parsed.text(child) for child in node.children if child.type in ("word", "number"))
    if "{" in unquoted or "}" in unquoted:
        rest = _BRACED.sub("x", text)
        if "," in text or ".." in text or not _WORD.fullmatch(rest):
            raise _NotPlain("uses braces")
        _leaf(audit, node, audit.commands)
        return
    start = len(audit.leaves)
    for child in node.children:
        _word(audit, child)
    audit.leaves[start:] = [_Leaf(node.start_byte, node.end_byte, audit.commands, word=True)]


def _adjacent(node: Node) -> None:
    for before, after in zip(node.children, node.children[1:], strict=False):
        if before.end_byte != after.start_byte:
            raise _NotPlain("has a word with a gap in it")


def _comment(audit: _Audit, node: Node) -> None:
    text = audit.parsed.text(node)
    if not text.startswith("#") or "\n" in text:
        raise _NotPlain("has a comment that is not plain")
    _leaf(audit, node, 0)


def _leaf(audit: _Audit, node: Node, command: int) -> None:
    if node.is_missing:
        raise _NotPlain("has a syntax error")
    audit.leaves.append(_Leaf(node.start_byte, node.end_byte, command, word=node.is_named))


def _gaps(audit: _Audit) -> None:
    """Only blanks between leaves; inside one command no newline; words apart from one another."""
    source = audit.parsed.source
    before = _Leaf(0, 0, 0, word=False)
    for leaf in audit.leaves:
        gap = source[before.end : leaf.start]
        same = leaf.command != 0 and leaf.command == before.command
        if leaf.start < before.end or gap.strip(b" \t" if same else b" \t\n"):
            raise _NotPlain("has bytes the parser skipped")
        if before.word and leaf.word and not gap:
            raise _NotPlain("has words that touch")
        before = leaf
    if source[before.end :].strip(b" \t\n"):
        raise _NotPlain("has bytes the parser skipped")
