"""Walk a tree and collect every simple command in source order, with its context."""

from dataclasses import dataclass, field

from tree_sitter import Node

from acp_agent.gates.shell.candidates import Candidate, Guesses, pattern
from acp_agent.gates.shell.command import Construct, Redirection
from acp_agent.gates.shell.options import suffixes
from acp_agent.gates.shell.syntax import MAX_TREE_DEPTH, Parsed
from acp_agent.gates.shell.words import Piece, pieces

_OPERATORS = {"&&": "&&", "||": "||", ";": ";", "|": "|", "|&": "|", "&": "&", "\n": ";"}
_CONSTRUCTS = {
    "process_substitution": Construct.PROCESS_SUBSTITUTION,
    "herestring_redirect": Construct.HERE_STRING,
}
_WORDS = frozenset(
    (
        "word", "number", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation",
        "simple_expansion", "expansion", "arithmetic_expansion", "command_substitution", "process_substitution",
        "brace_expression", "variable_name", "regex", "extglob_pattern",
    )
)  # fmt: skip

MAX_COMMANDS = 1000
"""The most simple commands of one text that are read. A text with more counts as unread."""


@dataclass(slots=True)
class Walk:
    """One walk over a tree. `tree` fills in the other fields. `unread` says why the walk is incomplete."""

    parsed: Parsed
    guesses: Guesses
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    constructs: set[Construct] = field(default_factory=set[Construct])
    hazards: list[str] = field(default_factory=list[str])
    unread: str = ""
    _operator: str = ""
    _left: bool = False

    def tree(self) -> "Walk":
        """Walk the whole tree."""
        self._visit(self.parsed.root, 0)
        return self

    def _visit(self, node: Node, depth: int) -> None:
        if depth > MAX_TREE_DEPTH:
            self.unread = "is nested too deep"
            return
        if len(self.candidates) > MAX_COMMANDS:
            self.unread = f"has more than {MAX_COMMANDS} commands"
            return
        match node.type:
            case "command" | "declaration_command" | "unset_command":
                self._command(node, depth)
            case "variable_assignment" | "variable_assignments":
                self._command(node, depth)
            case "redirected_statement":
                self._redirected(node, depth)
            case "command_substitution" | "process_substitution":
                self._substitution(node, depth)
            case "function_definition":
                self._function(node, depth)
            case "subshell" | "negated_command":  # what follows `! cd x &&` runs where the `cd` failed
                self._children(node, depth)
                self._left = True
            case "for_statement":
                self._loop(node)
                self._children(node, depth)
            case kind if kind in _OPERATORS and not node.is_named:
                self._operator = _OPERATORS[kind]
            case _:
                self._children(node, depth)

    def _children(self, node: Node, depth: int) -> None:
        for child in node.children:
            self._visit(child, depth + 1)

    def _command(self, node: Node, depth: int) -> None:
        parts = [node] if node.type == "variable_assignment" else node.children
        for group in self._torn(parts):
            candidate = Candidate(joined=self._joined())
            self.candidates.append(candidate)
            for child in group:
                self._part(candidate, child, depth)
            self._emitted(candidate)
        for child in parts:
            self._inside(child, depth + 1)

    def _torn(self, parts: list[Node]) -> list[list[Node]]:
        """Return the parts of a command, cut where the parser joined two: at a bare line end or an error inside it."""
        groups: list[list[Node]] = [[]]
        end = parts[0].start_byte if parts else 0
        for child in parts:
            gap = self.parsed.source[end : child.start_byte]
            if child.type == "ERROR" or b"\n" in gap.replace(b"\\\n", b""):
                groups.append([])
            groups[-1].append(child)
            end = child.end_byte
        return [group for group in groups if group]

    def _joined(self) -> str:
        """Return the operator before the next command; behind a subshell `&&` does not carry its directory on."""
        left, self._left = self._left, False
        return ";" if left and self._operator == "&&" else self._operator

    def _part(self, candidate: Candidate, node: Node, depth: int) -> None:
        match node.type:
            case "variable_assignment":
                if candidate.words:  # export NAME=value
                    candidate.words.append([Piece(self._assign(node), quoted=True)])
                else:
                    candidate.assignments.append(self._assign(node))
            case "command_name":
                candidate.words.append(pieces(self.parsed, node))
            case "file_redirect" | "herestring_redirect" | "heredoc_redirect":
                self._redirect(candidate, node, depth)
            case kind if kind in _WORDS:
                candidate.words.append(pieces(self.parsed, node))
            case "export" | "declare" | "typeset" | "readonly" | "local" | "unset" | "unsetenv":
                candidate.words.append([Piece(node.type)])
            case _:
                pass

    def _inside(self, node: Node, depth: int) -> None:
        """Visit the substitutions inside the words of a command."""
        operator, fed = self._operator, self.guesses.fed
        if node.type in ("command_substitution", "process_substitution"):
            self._substitution(node, depth)
        elif depth > MAX_TREE_DEPTH:
            self.unread = "is nested too deep"
        elif node.type not in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
            for child in node.children:
                self._inside(child, depth + 1)
        self._operator = operator
        self.guesses.forget_fed_after(fed)

    def _substitution(self, node: Node, depth: int) -> None:
        backtick = self.parsed.source[node.start_byte : node.start_byte + 1] == b"`"
        default = Construct.BACKTICK if backtick else Construct.COMMAND_SUBSTITUTION
        self.constructs.add(_CONSTRUCTS.get(node.type, default))
        operator, self._operator = self._operator, ""
        self._children(node, depth)
        self._operator = operator

    def _redirected(self, node: Node, depth: int) -> None:
        """Visit a statement and its redirections, which belong to the last command in it."""
        before = len(self.candidates)
        redirects = [child for child in node.children if child.type.endswith("_redirect")]
        for child in node.children:
            if not child.type.endswith("_redirect"):
                self._visit(child, depth + 1)
        if len(self.candidates) == before:
            self.candidates.append(Candidate(joined=self._joined()))
        candidate = self.candidates[-1]
        if len(redirects) > MAX_COMMANDS:
            self.unread = f"has more than {MAX_COMMANDS} redirections"
            return
        for child in redirects:
            self._redirect(candidate, child, depth)
        self._emitted(candidate)

    def _redirect(self, candidate: Candidate, node: Node, depth: int) -> None:
        match node.type:
            case "heredoc_redirect":
                self._heredoc(candidate, node, depth)
            case "herestring_redirect":
                self.constructs.add(Construct.HERE_STRING)
                words = [child for child in node.children if child.type in _WORDS]
                parts = (part for word in words for part in self.guesses.words(pieces(self.parsed, word)))
                candidate.feed(" ".join(parts) + "\n")
                self.guesses.feed(candidate.stdin)
                for child in node.children:
                    self._inside(child, depth + 1)
            case _:
                self._file(candidate, node, depth)

    def _file(self, candidate: Candidate, node: Node, depth: int) -> None:
        """Add `2>file` to a command, and the words behind the file, which bash passes to the command."""
        descriptor = next((self.parsed.text(child) for child in node.children if child.type == "file_descriptor"), "")
        operator = next((child.type for child in node.children if not child.is_named), ">")
        targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
        if operator.endswith("&-"):  # closes a descriptor: has no target, all words belong to the command
            operator, words, targets = operator[:-1], targets, []
        else:
            words = targets[1:]
        target = " ".join(self.guesses.words(pieces(self.parsed, targets[0]))) if targets else "-"
        candidate.redirections.append(Redirection(operator, target, descriptor))
        candidate.patterns.add(pattern(pieces(self.parsed, targets[0])) if targets else "")
        candidate.words.extend(pieces(self.parsed, child) for child in words)
        for child in (*targets[:1], *words):
            self._inside(child, depth + 1)

    def _heredoc(self, candidate: Candidate, node: Node, depth: int) -> None:
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if body is not None:
            candidate.feed(self.parsed.text(body))
            self.guesses.feed(candidate.stdin)
            self._inside(body, depth + 1)
        for child in node.children:
            match child.type:
                case "file_redirect":
                    self._file(candidate, child, depth)
                case "heredoc_body":
                    continue
                case kind if kind in _WORDS:
                    candidate.words.append(pieces(self.parsed, child))
                case _:
                    self._emitted(candidate)
                    self._visit(child, depth + 1)

    def _emitted(self, candidate: Candidate) -> None:
        """Note that a command is complete. What follows is a new statement."""
        self._operator = ";"
        self.guesses.note(candidate)

    def _function(self, node: Node, depth: int) -> None:
        before = len(self.candidates)
        self._children(node, depth)
        name = next((self.parsed.text(child) for child in node.children if child.type == "word"), "")
        body = node.child_by_field_name("body")
        if body is not None:
            self.guesses.define(name, self.parsed.text(body))
        calls = [candidate for candidate in self.candidates[before:] if self.guesses.argv(candidate)[:1] == (name,)]
        doubled = len(calls) > 1 and any(candidate.joined == "|" for candidate in calls)
        if doubled or (calls and _has_background(node)):
            self.hazards.append("fork bomb")

    def _loop(self, node: Node) -> None:
        name = next((self.parsed.text(child) for child in node.children if child.type == "variable_name"), "")
        values = [
            part
            for child in node.children[2:]
            if child.type in _WORDS
            for part in self.guesses.words(pieces(self.parsed, child))
        ]
        if not any(child.type == "in" for child in node.children):
            values = list(self.guesses.arguments)
        if name and values:
            self.guesses.learn(name, values)

    def _assign(self, node: Node) -> str:
        """Note a variable's value. Return the assignment as `NAME=value`."""
        name = node.children[0] if node.children else node
        value = node.children[-1] if len(node.children) > 2 else None
        parts = value.children if value is not None and value.type == "array" else [value]
        words = [pieces(self.parsed, part) for part in parts if part is not None and part.type in _WORDS]
        values = tuple(word for part in words for word in self.guesses.words(part))
        text = " ".join(values)
        if name.type == "variable_name":
            of_array = value is not None and value.type == "array"
            self.guesses.learn(self.parsed.text(name), [text, *values, *suffixes(values)] if of_array else [text])
        return f"{self.parsed.text(name)}={text}"


def _has_background(node: Node) -> bool:
    todo = list(node.children)
    while todo:
        child = todo.pop()
        if child.type == "&":
            return True
        todo.extend(child.children)
    return False
