"""Walk a tree and collect every simple command in source order, with its context and the values of its variables."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from acp_agent.gates.shell.command import CUT, MAX_DEPTH, MAX_TREE_DEPTH, TOO_DEEP, Command, Construct, Redirection
from acp_agent.gates.shell.options import MAX_SHIFTS, MAX_VALUES, parameters, suffixes
from acp_agent.gates.shell.syntax import Parsed, Unseen, is_literal, unseen_substitutions
from acp_agent.gates.shell.words import Piece, Word, ansi_c, emptied, pieces, spread, unknown, variants

_ESCAPED = re.compile(r"\\([$`\\])")  # in a here-document
_GLOB = frozenset("*?[")
_PRINTERS = frozenset(("echo", "printf", "print"))
_READERS_OF_INPUT = frozenset(("read", "mapfile", "readarray"))
_DECLARERS = frozenset(("declare", "typeset", "local"))
_COPIERS = frozenset(("cp", "mv", "ln", "install"))
_PASSING = frozenset(("cat", "tee", "head", "tail", "sed", "tr", "rev", "sort", "uniq", "grep", "tac"))

MAX_FED_TEXT = 256 * 1024
"""The most characters of printed text that are kept, in case a shell reads them. A reader of more counts as unread."""

MAX_PIPED = 4 * MAX_FED_TEXT
"""The most characters that all commands of a text read from pipes. A text whose commands read more counts as unread."""

MAX_VALUE = 4096
"""The most characters of a variable's value that are kept. CUT stands for the others. No path and no name is longer."""

MAX_FOUND = 4000
"""The most commands of one text once variables are replaced by all their values. A text with more counts as unread."""

MAX_SPREAD = 300_000
"""The most words of all commands of one text with the values of their variables. A text with more counts as unread."""


TOO_MANY_WORDS = f"has more than {MAX_SPREAD:,} words with the values of its variables"


@dataclass(slots=True)
class Candidate:
    """A simple command while it is collected."""

    words: list[Word] = field(default_factory=list[Word])
    assignments: list[str] = field(default_factory=list[str])
    redirections: list[Redirection] = field(default_factory=list[Redirection])
    patterns: set[str] = field(default_factory=set[str])
    joined: str = ""
    scopes: tuple[str, ...] = ()
    stdin: str = ""

    def feed(self, text: str) -> None:
        """Add a text to its input."""
        self.stdin += text


@dataclass(slots=True)
class Guesses:
    """The values that a text gives to its variables. The proof does not guess: `known` is empty there.

    known       the values that variables were seen to take, newest first
    files       the texts that were written to files, by file name
    functions   the bodies of functions, by name
    arguments   the values of `$1`, `$2`, …
    fed         the text printed so far, which may be piped into a shell
    unread      why not every value was followed; empty if every one was
    cut         whether more was printed than is kept
    piped       the number of characters that were read from pipes
    """

    known: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    files: dict[str, str] = field(default_factory=dict[str, str])
    functions: dict[str, str] = field(default_factory=dict[str, str])
    arguments: tuple[str, ...] = ()
    fed: str = ""
    unread: str = ""
    cut: bool = False
    piped: int = 0

    def learn(self, name: str, values: list[str]) -> None:
        """Note that a variable was set to one of these values. Without values nothing changes."""
        if self.known and values:
            values = list(dict.fromkeys((*map(_kept, values), *self.known.get(name, ()))))
            self.known[name] = tuple(values[:MAX_VALUES])
            if len(values) > MAX_VALUES:
                self.unread = f"gives a variable more than {MAX_VALUES} values"

    def define(self, name: str, body: str) -> None:
        """Note the body of a function. An earlier body stays, because it may have run before."""
        if self.known:
            self.functions[name] = f"{self.functions[name]}\n{body}" if name in self.functions else body

    def give(self, words: tuple[str, ...]) -> None:
        """Note that `$1`, `$2`, … and `$@` were set."""
        if self.unread:
            return
        self.unset(*(str(place) for place in range(len(words) + 1, len(self.arguments) + 1)))
        if not words:
            self.unset("@", "*")
        self.arguments = words[:MAX_VALUES]
        for name, value in parameters(words).items():
            self.learn(name, list(value))

    def shift(self) -> None:
        """Note that the arguments were shifted. The number is unknown, since a loop may shift repeatedly."""
        words, self.arguments = self.arguments if not self.unread else (), ()
        if len(words) > MAX_SHIFTS:
            self.unread = f"shifts among more than {MAX_SHIFTS} words"
            return
        for place in range(1, min(len(words), 9) + 1):
            self.learn(str(place), [*words[place - 1 :], ""])
        for name in ("@", "*"):
            self.learn(name, [*suffixes(words), ""])

    def unset(self, *names: str) -> None:
        """Note that variables or elements of arrays (`x[0]`) were unset. Unknown variables stay unknown."""
        for name in (each.partition("[")[0] for each in names):
            if name in self.known:
                self.learn(name, [""])

    def feed(self, text: str) -> None:
        """Note that a text was printed."""
        fed = f"{self.fed}\n{text}"
        self.fed, self.cut = fed[-MAX_FED_TEXT:], self.cut or len(fed) > MAX_FED_TEXT

    def read_fed(self) -> str:
        """Return the text printed so far, for a command or a file that receives it."""
        self.piped += len(self.fed)
        if self.cut or self.piped > MAX_PIPED:
            self.unread = "pipes too much text"
            return ""
        return self.fed

    def forget_fed_after(self, fed: str) -> None:
        """Restore an earlier value of `fed`, because the output of an inner command is not the outer one's."""
        self.fed = fed

    def words(self, *words: Word) -> tuple[str, ...]:
        """Return the words with the most recent values of their variables."""
        return variants(list(words), self.known, 1)[0]

    def _set_variables(self, name: str, args: tuple[str, ...], stdin: str) -> None:
        """Note what built-in commands put into variables: `printf -v`, `read`, `mapfile`."""
        if name == "printf" and (variable := _printed_into(args)):
            words = args[2:] if args[0] == "-v" else args[1:]
            self.learn(variable, [_filled(words), "".join(words[1:]), *words])
        elif name in _READERS_OF_INPUT:
            text = stdin or self.read_fed()
            words = dict.fromkeys(map(_kept, (text.strip(), *text.split())))
            values = [*words][: MAX_VALUES + 1]  # one too many marks the text as unread
            for word in args:
                if word.isidentifier():
                    self.learn(word, values)
        elif name in _DECLARERS and any(word[:1] == "-" and word[1:2] != "-" and "n" in word for word in args):
            self.unread = "uses a name reference"

    def note(self, candidate: Candidate) -> None:
        """Note a complete command. A later command may run what it prints or writes."""
        if not self.known:
            return
        if candidate.joined == "|" and not candidate.stdin:
            candidate.stdin = self.read_fed()
        if spread(candidate.words, self.known) > MAX_SPREAD:
            self.unread = TOO_MANY_WORDS
            return
        argv = self.words(*candidate.words)
        name = argv[0].rpartition("/")[2] if argv else ""
        if name in _PRINTERS:
            text = " ".join(word for word in argv[1:] if not word.startswith("-"))
            self.feed(ansi_c(text) if "\\" in text else text)
            self.feed("\n".join((*argv[2:], _filled(argv[1:]))) if name == "printf" and argv[2:] else "")
        self._set_variables(name, argv[1:], candidate.stdin)
        if name == "set":
            self.give(_set(argv[1:]))
        if name == "shift":
            self.shift()
        if name == "unset":
            self.unset(*argv[1:])
        if name in _COPIERS and len(argv) > 2 and (copied := self.files.get(argv[-2].removeprefix("./"))):
            self.files[argv[-1].removeprefix("./")] = copied
        targets = [each.target for each in candidate.redirections if each.writes]
        targets += [word for word in argv[1:] if name == "tee"]
        written = candidate.stdin if name in _PASSING else self.read_fed() if targets and name in _PRINTERS else ""
        if written:
            self.files.update(dict.fromkeys((target.removeprefix("./") for target in targets), written))


def _kept(value: str) -> str:
    return value if len(value) <= MAX_VALUE else value[:MAX_VALUE] + CUT


def _filled(words: tuple[str, ...]) -> str:
    """Return what printf prints for a format and its words, if each is filled in by `%s`."""
    filled = words[0] if words else ""
    for word in words[1:]:
        filled = filled.replace("%s", word, 1)
    return ansi_c(filled) if "\\" in filled else filled


def _printed_into(args: tuple[str, ...]) -> str:
    """Return the variable that `printf -v NAME` sets; empty for none."""
    for at, word in enumerate(args):
        if word == "-v":
            return args[at + 1] if at + 1 < len(args) else ""
        if not word.startswith("-v"):
            return ""
        return word[2:]
    return ""


def _set(args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that `set` makes the shell's arguments (`$1`, …): all but its own options."""
    at = 0
    while at < len(args) and args[at][:1] in ("-", "+") and args[at] not in ("-", "--"):
        at += 2 if args[at].endswith("o") else 1
    return args[at + (args[at : at + 1] in (("-",), ("--",))) :]


def _split(known: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the values of variables with blanks where a changed IFS splits them; nothing if it was not changed."""
    marks = "".join(known.get("IFS", ())).replace(" ", "")
    if not marks:
        return {}
    blanks = dict.fromkeys(map(ord, marks), " ")
    return {name: tuple(value.translate(blanks) for value in values) for name, values in known.items()}


def commands(
    candidates: list[Candidate], guesses: Guesses, finish: Callable[[Command], Command]
) -> tuple[Command, ...]:
    """Return the candidates as commands, one for each combination of their variables' values.

    finish   adds the commands that a command starts
    """
    found: list[Command] = []
    words, fields = 0, _split(guesses.known)
    for candidate in candidates:
        if len(found) > MAX_FOUND:  # the survey reports that it is incomplete
            break
        words += spread(candidate.words, guesses.known)
        if words > MAX_SPREAD:
            guesses.unread = TOO_MANY_WORDS
            break
        forms = variants(candidate.words, guesses.known)
        if guesses.known and any(piece.variable for word in candidate.words for piece in word):
            forms += variants(emptied(candidate.words, guesses.known), guesses.known)
            if any(piece.changed for word in candidate.words for piece in word):
                unsure = [[unknown(piece) for piece in word] for word in candidate.words]
                forms += variants(unsure, guesses.known) + variants(emptied(unsure, guesses.known), guesses.known)
        if fields and any(piece.variable for word in candidate.words for piece in word):
            forms += variants(candidate.words, fields)
        patterns = (candidate.patterns | {pattern(word) for word in candidate.words}) - {""}
        quoted = {
            "".join(piece.text for piece in word)
            for word in candidate.words
            if all(piece.quoted and not piece.variable for piece in word)
        }
        if any(map(_lacks_words, forms)):
            guesses.unread = "expands to more words, or to longer ones, than are read"
        for argv in forms:
            if argv or candidate.assignments or candidate.redirections:
                # The values of variables and the words in braces may contain patterns too.
                more = {word for word in argv if not _GLOB.isdisjoint(word)} - quoted if guesses.known else ()
                command = Command(argv, tuple(candidate.redirections), tuple(candidate.assignments), candidate.joined)
                known = replace(command, scopes=candidate.scopes, stdin=candidate.stdin)
                found.append(finish(replace(known, patterns=frozenset({*patterns, *more}))))
    return tuple(found)


def _lacks_words(argv: tuple[str, ...]) -> bool:
    """Return whether a command has more words than are known. What a command only prints is judged where it is read."""
    return bool(argv) and CUT in "".join(argv) and argv[0].rpartition("/")[2] not in _PRINTERS


def pattern(word: Word) -> str:
    """Return the text of a word that bash may replace by file names; empty for any other word."""
    unquoted = any(not piece.quoted and not _GLOB.isdisjoint(piece.text) for piece in word)
    return "".join(piece.text for piece in word) if unquoted else ""


_OPERATORS = {"&&": "&&", "||": "||", ";": ";", "|": "|", "|&": "|", "&": "&", "\n": ";"}
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
    """One walk over a tree. `tree()` fills in the fields.

    parse     parses substitutions that the tree does not have; without it they are left out
    unread    why the walk is incomplete, if it is
    damaged   whether the tree, or that of such a substitution, has an error
    """

    parsed: Parsed
    guesses: Guesses
    parse: Callable[[str], Parsed | str] | None = None
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    constructs: set[Construct] = field(default_factory=set[Construct])
    hazards: list[str] = field(default_factory=list[str])
    unread: str = ""
    damaged: bool = False
    _unseen: list[Unseen] = field(default_factory=list[Unseen])
    _texts: int = 0
    _operator: str = ""
    _left: bool = False
    _scopes: tuple[str, ...] = ()
    _count: int = 0

    def tree(self) -> "Walk":
        """Walk the whole tree."""
        self.damaged = self.parsed.root.has_error
        self._unseen = self._find_unseen()
        self._visit(self.parsed.root, 0)
        self._visit_unseen(len(self.parsed.source))
        return self

    def _find_unseen(self) -> list[Unseen]:
        """Return the substitutions without a node, last first. A damaged text is read in another way."""
        known = self.parse is None or self.parsed.root.has_error
        return [] if known else unseen_substitutions(self.parsed)[::-1]

    def _visit_unseen(self, end: int) -> None:
        """Visit the commands of the substitutions in front of a place that the tree does not have."""
        while self.parse is not None and self._unseen and self._unseen[-1].start < end:
            unseen = self._unseen.pop()
            self.constructs.add(Construct.BACKTICK if unseen.backtick else Construct.COMMAND_SUBSTITUTION)
            parsed = self.parse(unseen.text) if self._texts < MAX_DEPTH else TOO_DEEP
            if isinstance(parsed, str):
                self.unread = parsed
                return
            self.damaged = self.damaged or parsed.root.has_error
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
            case "negated_command":  # a command after `! cd x &&` runs in the old folder: the `cd` failed
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
        """Return the operator before the next command."""
        left, self._left = self._left, False
        return ";" if left and self._operator == "&&" else self._operator

    def _part(self, candidate: Candidate, node: Node, depth: int) -> None:
        match node.type:
            case "variable_assignment":
                if candidate.words:  # export NAME=value
                    candidate.words.append([Piece(self._assign(node), quoted=True)])
                else:
                    candidate.assignments.append(self._assign(node))
            case "number" if self.parsed.source[node.end_byte : node.end_byte + 2] == b"<<":
                pass  # a descriptor: `0<<< text`
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
            self.unread = TOO_DEEP
        elif node.type not in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
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
        operator, self._operator = self._operator, ""
        self._scoped("(", node, depth)
        self._operator = operator

    def _redirected(self, node: Node, depth: int) -> None:
        """Visit a statement and its redirections, which belong to the last command in it."""
        before = len(self.candidates)
        redirects = [child for child in node.children if child.type.endswith("_redirect")]
        for child in node.children:
            if not child.type.endswith("_redirect"):
                self._visit(child, depth + 1)
        if len(self.candidates) == before:
            self.candidates.append(Candidate(joined=self._joined(), scopes=self._scopes))
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
        """Add `2>file` to a command, and the words after the file, which bash passes to the command."""
        descriptor = next((self.parsed.text(child) for child in node.children if child.type == "file_descriptor"), "")
        operator = next((child.type for child in node.children if not child.is_named), ">")
        targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
        if operator.endswith("&-"):  # this closes a descriptor: it has no target, so all words belong to the command
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
            # The parser takes lines for words if the first one begins with a backslash.
            lines = self.parsed.source[node.start_byte : body.start_byte].partition(b"\n")[2]
            text = self.parsed.text(body) or lines.decode(errors="replace")
            candidate.feed(text if is_literal(self.parsed, node) else _ESCAPED.sub(r"\1", text))
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
        calls = [
            candidate for candidate in self.candidates[before:] if self.guesses.words(*candidate.words)[:1] == (name,)
        ]
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
        if name:
            self.guesses.learn(name, values)

    def _assign(self, node: Node) -> str:
        """Note a variable's value. Return the assignment as `NAME=value`."""
        name = node.children[0] if node.children else node
        value = node.children[-1] if len(node.children) > 2 else None
        parts = value.children if value is not None and value.type == "array" else [value]
        words = [pieces(self.parsed, part) for part in parts if part is not None and part.type in _WORDS]
        values = tuple(word for part in words for word in self.guesses.words(part))
        text = " ".join(values)
        # An element of an array (`x[0]=`) may be the variable's own value.
        variable = name.children[0] if name.type == "subscript" and name.children else name
        if variable.type == "variable_name":
            of_array = value is not None and value.type == "array"
            self.guesses.learn(self.parsed.text(variable), [text, *values, *suffixes(values)] if of_array else [text])
        return f"{self.parsed.text(name)}={text}"


def _has_background(node: Node) -> bool:
    todo = list(node.children)
    while todo:
        child = todo.pop()
        if child.type == "&":
            return True
        todo.extend(child.children)
    return False
