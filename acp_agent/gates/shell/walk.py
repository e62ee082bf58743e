"""Walk a tree and collect every simple command in source order, with its context and the values of its variables."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from acp_agent.gates.shell.command import CUT, MAX_DEPTH, MAX_TREE_DEPTH, TOO_DEEP, Construct, Redirection
from acp_agent.gates.shell.guesses import MAX_FED_TEXT, Candidate, Guesses, assigned
from acp_agent.gates.shell.lines import READS, ReadingText
from acp_agent.gates.shell.syntax import Parsed, Unseen, has_background, heredoc_text, is_literal, unseen_substitutions
from acp_agent.gates.shell.words import (
    OUTPUT,
    Piece,
    Word,
    closes,
    expanded_twice,
    here_text,
    pattern,
    pieces,
    slices,
)

_ELEMENT = re.compile(r"\A\[[^]]*\]\+?=")  # in an array: `([key]=value)`
_OPERATORS = {"&&": "&&", "||": "||", ";": ";", "|": "|", "|&": "|", "&": "&", "\n": ";"}
_WORDS = frozenset(
    (
        "word", "number", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation",
        "simple_expansion", "expansion", "arithmetic_expansion", "command_substitution", "process_substitution",
        "brace_expression", "variable_name", "regex", "extglob_pattern",
    )
)  # fmt: skip
_ROWS = frozenset(("list", "pipeline", "negated_command"))
_COMPOUNDS = frozenset(
    (
        "subshell", "compound_statement", "if_statement", "while_statement", "case_statement", "for_statement",
        "c_style_for_statement", "function_definition",
    )
)  # fmt: skip

MAX_COMMANDS = 1000
"""The most simple commands of one text that are read. A text with more counts as unread."""


@dataclass(slots=True)
class Walk:
    """One walk over a tree. `tree()` fills in the fields.

    parse     parses substitutions that the tree does not have; without it they are left out
    readers   the constructs, such as loops, that read lines of a known text
    unread    why the walk is incomplete, if it is
    damaged   whether the tree, or that of such a substitution, has an error
    """

    parsed: Parsed
    guesses: Guesses
    parse: Callable[[str], Parsed | str] | None = None
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    constructs: set[Construct] = field(default_factory=set[Construct])
    hazards: list[str] = field(default_factory=list[str])
    readers: list[ReadingText] = field(default_factory=list[ReadingText])
    unread: str = ""
    damaged: bool = False
    _unseen: list[Unseen] = field(default_factory=list[Unseen])
    _texts: int = 0
    _input: str = ""
    _printed: str = ""  # what the last substitution prints
    _operator: str = ""
    _left: bool = False
    _scopes: tuple[str, ...] = ()
    _count: int = 0

    def tree(self) -> "Walk":
        """Walk the whole tree."""
        self.damaged = self.parsed.damaged
        self._unseen = self._find_unseen()
        self._visit(self.parsed.root, 0)
        self._visit_unseen(len(self.parsed.source))
        return self

    def _find_unseen(self) -> list[Unseen]:
        """Return the substitutions without a node, last first. A damaged text is read in another way."""
        known = self.parse is None or self.parsed.damaged
        return [] if known else unseen_substitutions(self.parsed)[::-1]

    def _visit_unseen(self, end: int) -> None:
        """Visit the commands of the substitutions in front of a place that the tree does not have."""
        while self.parse is not None and self._unseen and self._unseen[-1].start < end:
            unseen = self._unseen.pop()
            self.constructs.add(unseen.form)
            parsed = self.parse(unseen.text) if self._texts < MAX_DEPTH else TOO_DEEP
            if isinstance(parsed, str):
                self.unread = parsed
                return
            self.damaged = self.damaged or parsed.damaged
            outer, fed = (self.parsed, self._unseen, self._operator), self.guesses.fed
            self.parsed, self._operator, self._texts = parsed, "", self._texts + 1
            self._unseen = self._find_unseen()
            self._scoped("(", parsed.root, 0)
            self._visit_unseen(len(parsed.source))
            self.parsed, self._unseen, self._operator = outer
            self._texts -= 1
            self.guesses.forget_fed_after(fed)

    def _visit(self, node: Node, depth: int) -> None:
        if depth > MAX_TREE_DEPTH:
            self.unread = TOO_DEEP
            return
        if len(self.candidates) > MAX_COMMANDS:
            self.unread = f"has more than {MAX_COMMANDS} commands"
            return
        match node.type:
            case "command" | "declaration_command" | "unset_command" | "variable_assignment" | "variable_assignments":
                self._visit_unseen(node.end_byte)
                self._command(node, depth)
            case "redirected_statement":
                self._visit_unseen(node.end_byte)
                self._redirected(node, depth)
            case "command_substitution" | "process_substitution":
                self._substitution(node, depth)
            case "function_definition":
                self._function(node, depth)
            case "negated_command":  # a command after `! cd x &&` runs only if the `cd` failed
                self._children(node, depth)
                self._left = True
            case "subshell" | "compound_statement":
                self._scoped("(" if node.type == "subshell" else "{", node, depth)
            case "if_statement" | "while_statement" | "case_statement" | "c_style_for_statement":
                self._scoped("?", node, depth)
            case "for_statement":
                self._loop(node)
                self._scoped("?", node, depth)
            case kind if kind in _OPERATORS and not node.is_named:
                self._operator = _OPERATORS[kind]
            case _:
                self._children(node, depth)

    def _scoped(self, bracket: str, node: Node, depth: int) -> None:
        self._count += 1
        outer, self._scopes = self._scopes, (*self._scopes, f"{bracket}{self._count}")
        given = self.guesses.fed if self._operator == "|" else self._input
        if given and self._reads(node):
            self._note_reader(node, given, self.guesses.known)
        self._children(node, depth)
        self._scopes = outer

    def _children(self, node: Node, depth: int) -> None:
        for child in node.children:
            self._visit(child, depth + 1)

    def _command(self, node: Node, depth: int) -> None:
        parts = [node] if node.type == "variable_assignment" else node.children
        for group in self._torn(parts):
            candidate = Candidate(joined=self._joined(), scopes=self._scopes)
            self.candidates.append(candidate)
            for child in group:
                self._part(candidate, child, depth)
            self._emitted(candidate)
        for child in parts:
            self._inside(child, depth + 1)

    def _torn(self, parts: list[Node]) -> list[list[Node]]:
        """Return the parts of a command, split where the parser may have joined two: at line ends and errors."""
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
        """Return the operator before the next command. `! a && b` is `a || b`."""
        left, self._left = self._left, False
        return "||" if left and self._operator == "&&" else self._operator

    def _part(self, candidate: Candidate, node: Node, depth: int) -> None:
        match node.type:
            case "variable_assignment":
                if candidate.words:  # export NAME=value
                    candidate.words.extend([Piece(each, quoted=True)] for each in self._assign(node))
                else:
                    candidate.assignments.extend(self._assign(node))
            case "number" | "command_name" if self._is_descriptor(node):
                pass
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

    def _is_descriptor(self, node: Node) -> bool:
        """Return whether a word is the descriptor of a here-document, as in `0<<< text`."""
        behind = self.parsed.source[node.end_byte : node.end_byte + 2]
        return behind == b"<<" and self.parsed.text(node).isdecimal()

    def _inside(self, node: Node, depth: int) -> None:
        """Visit the substitutions inside the words of a command."""
        operator, fed = self._operator, self.guesses.fed
        if node.type in ("command_substitution", "process_substitution"):
            self._substitution(node, depth)
        elif node.type == "subshell":  # `coproc (word)`
            self._visit(node, depth)
        elif depth > MAX_TREE_DEPTH:
            self.unread = TOO_DEEP
        elif node.type not in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
            if node.type == "expansion" and any(each.type in (":=", "=") for each in node.children):
                self.guesses.learn((found := pieces(self.parsed, node)[0]).variable, [found.text])
            for child in node.children:
                self._inside(child, depth + 1)
        self._operator = operator
        self.guesses.forget_fed_after(fed)

    def _substitution(self, node: Node, depth: int) -> None:
        if node.type == "process_substitution":
            self.constructs.add(Construct.PROCESS_SUBSTITUTION)
        else:
            backtick = self.parsed.source[node.start_byte : node.start_byte + 1] == b"`"
            self.constructs.add(Construct.BACKTICK if backtick else Construct.COMMAND_SUBSTITUTION)
        reads = any(each.type == ">(" for each in node.children[:1])  # what the outer command prints
        operator, self._operator, fed = self._operator, "|" if reads else "", self.guesses.fed
        self._scoped("(", node, depth)
        self._operator, self._printed = operator, self.guesses.fed.removeprefix(fed)
        if node.type == "process_substitution":  # its words stand for a file with what it prints
            self.guesses.write(OUTPUT, self._printed)

    def _redirected(self, node: Node, depth: int) -> None:
        """Visit a statement and its redirections, which belong to the last command in it."""
        before = len(self.candidates)
        redirects = [child for child in node.children if child.type.endswith("_redirect")]
        construct = _last_of(node.children[0])
        known = dict(self.guesses.known) if self._reads(construct) else {}
        for child in node.children:
            if not child.type.endswith("_redirect"):
                self._visit(child, depth + 1)
        if len(self.candidates) == before:
            self.candidates.append(Candidate(joined=self._joined(), scopes=self._scopes))
        candidate = self.candidates[-1]
        if len(redirects) > MAX_COMMANDS:
            self.unread = f"has more than {MAX_COMMANDS} redirections"
            return
        own = candidate.stdin
        for child in redirects:
            self._redirect(candidate, child, depth)
        self._emitted(candidate)
        given = candidate.stdin.removeprefix(own)
        if given and known:
            behind = [each for child in redirects for each in child.children if each.type in _ROWS]
            self._note_reader(construct, given, known, " ".join(map(self.parsed.text, behind)))
        if given and self.guesses.newest(*candidate.words)[:1] == ("exec",):
            self._input = given

    def _reads(self, node: Node) -> bool:
        """Return whether a node is a construct whose commands may read lines."""
        source = self.parsed.source
        return node.type in _COMPOUNDS and READS.search(source, node.start_byte, node.end_byte) is not None

    def _note_reader(self, node: Node, given: str, known: Mapping[str, tuple[str, ...]], behind: str = "") -> None:
        """Note a construct that reads lines of a text, with the rest of its pipeline."""
        if known:
            outer = node.parent
            end = outer.end_byte if outer is not None and outer.type == "pipeline" else node.end_byte
            text = self.parsed.source[node.start_byte : end].decode(errors="replace")
            self.readers.append(ReadingText(f"{text} {behind}", given, dict(known)))

    def _redirect(self, candidate: Candidate, node: Node, depth: int) -> None:
        match node.type:
            case "heredoc_redirect":
                self._heredoc(candidate, node, depth)
            case "herestring_redirect":
                self.constructs.add(Construct.HERE_STRING)
                words = [pieces(self.parsed, child) for child in node.children if child.type in _WORDS]
                candidate.feed("".join(f"{' '.join(form)}\n" for form in self.guesses.forms(*words)))
                self._printed = ""
                for child in node.children:
                    self._inside(child, depth + 1)
                candidate.feed(self._printed and f"{self._printed}\n")
                self.guesses.feed(candidate.stdin)
            case _:
                self._file(candidate, node, depth)

    def _file(self, candidate: Candidate, node: Node, depth: int) -> None:
        """Add `2>file` to a command, and the words after the file, which bash passes to the command."""
        descriptor = next((self.parsed.text(child) for child in node.children if child.type == "file_descriptor"), "")
        operator = next((child.type for child in node.children if not child.is_named), ">")
        targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
        words = [pieces(self.parsed, child) for child in targets]
        if operator.endswith("&-"):  # this closes a descriptor: it has no target, so all words belong to the command
            operator, forms = operator[:-1], [("-",)]
        elif operator in (">&", "<&") and closes(words[:1]):  # to bash, so does `>& -ls`
            words[0], forms = [words[0][0]._replace(text=words[0][0].text[1:]), *words[0][1:]], [("-",)]
        else:
            target, *words = words or [[Piece("-")]]
            forms = self.guesses.forms(target)
            candidate.patterns.add(pattern(target))
            if operator in (">&", "<&") and expanded_twice(target, forms):
                self.unread = "has a redirection whose target bash expands twice"
        named = [" ".join(form) for form in forms]
        candidate.redirections.extend(Redirection(operator, name, descriptor) for name in named)
        for word in words:
            self._more(candidate, word)
        for child in targets:
            self._inside(child, depth + 1)
        read = "\n".join(filter(None, map(self.guesses.written, named))) if operator == "<" else ""
        if read:
            candidate.feed(read)
            self.guesses.feed(read)

    def _more(self, candidate: Candidate, word: Word) -> None:
        """Add a word behind a redirection, which may set a variable: `>a >b x=1`."""
        name, equals, value = word[0].text.partition("=") if word else ("", "", "")
        if candidate.words or not equals or not name.removesuffix("+").isidentifier():
            candidate.words.append(word)
            return
        texts = [" ".join(form) for form in self.guesses.forms([word[0]._replace(text=value), *word[1:]])]
        self.guesses.learn(name.removesuffix("+"), assigned(name, texts, self.guesses.known))
        candidate.assignments.extend(f"{name}={text}" for text in texts)

    def _heredoc(self, candidate: Candidate, node: Node, depth: int) -> None:
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if body is not None:
            text = heredoc_text(self.parsed, node, body)
            if not is_literal(self.parsed, node):
                forms = self.guesses.forms(here_text(self.parsed, body))
                together = "\n".join(dict.fromkeys((text, *map(" ".join, forms))))
                text = together if len(together) <= max(MAX_FED_TEXT, len(text)) else text + CUT
            candidate.feed(text)
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
                    self._inside(child, depth + 1)
                case _:
                    self._emitted(candidate)
                    self._visit(child, depth + 1)

    def _emitted(self, candidate: Candidate) -> None:
        """Note that a command is complete and that the next one begins a new statement."""
        self._operator = ";"
        self.guesses.note(candidate)

    def _function(self, node: Node, depth: int) -> None:
        before = len(self.candidates)
        self._scoped("?", node, depth)
        name = next((self.parsed.text(child) for child in node.children if child.type == "word"), "")
        body = node.child_by_field_name("body")
        if body is not None:
            self.guesses.define(name, self.parsed.text(body))
        calls = [each for each in self.candidates[before:] if self.guesses.newest(*each.words)[:1] == (name,)]
        doubled = len(calls) > 1 and any(candidate.joined == "|" for candidate in calls)
        if doubled or (calls and has_background(node)):
            self.hazards.append("fork bomb")

    def _loop(self, node: Node) -> None:
        name = next((self.parsed.text(child) for child in node.children if child.type == "variable_name"), "")
        words = [pieces(self.parsed, child) for child in node.children[2:] if child.type in _WORDS]
        values = [part for word in words for form in self.guesses.forms(word) for part in form]
        values += [value for word in words for value in self._elements(word) if value not in values]
        if not any(child.type == "in" for child in node.children):
            values = [word for words in (self.guesses.arguments, *self.guesses.earlier) for word in words]
        if name:
            self.guesses.learn(name, values)

    def _elements(self, word: Word) -> list[str]:
        """Return the words with blanks that `"${x[@]}"` or `"$@"` may be."""
        names = {piece.variable for piece in word if piece.variable == "@" or (piece.changed and not piece.operator)}
        found = [value for name in names for value in self.guesses.known.get(name, ())]
        found += self.guesses.arguments if "@" in names else ()
        return [value for value in found if len(value.split()) > 1]

    def _assign(self, node: Node) -> list[str]:
        """Note a variable's value. Return the assignment as `NAME=value`, with each value that it may be."""
        name = node.children[0] if node.children else node
        value = node.children[-1] if len(node.children) > 2 else None
        is_array = value is not None and value.type == "array"
        parts = value.children if value is not None and is_array else [value]
        words = [pieces(self.parsed, part) for part in parts if part is not None and part.type in _WORDS]
        # An element of an array (`x[0]=`) may be the variable's own value.
        variable = name.children[0] if name.type == "subscript" and name.children else name
        own = self.parsed.text(variable) if variable.type == "variable_name" else ""
        forms = self.guesses.forms(*words, own=own)
        if words and own in self.guesses.known and node.children[1].type == "+=":
            before = Piece("", quoted=not is_array, variable=own)
            added = [[before], *words] if is_array else [[before, *words[0]]]
            forms = [*self.guesses.forms(*added, own=own), *forms]  # the value so far may be none
        texts = [" ".join(form) for form in forms]
        if own:
            parts = [_ELEMENT.sub("", part, count=1) for form in forms for part in form] if is_array else []
            rests = [rest for form in forms for rest in slices(form)] if is_array else []
            self.guesses.learn(own, [*texts, *parts])
            self.guesses.learn_slices(own, [*rests, *texts])
        return [f"{self.parsed.text(name)}={text}" for text in texts]


def _last_of(node: Node) -> Node:
    """Return the last statement of a row: redirections behind the row belong to it."""
    while node.type in _ROWS and node.named_children:
        node = node.named_children[-1]
    return node
