"""Find the simple commands whose output a command line prints, for the output filters.

The result decides how an output is shortened, not what may run. So, unlike the gates' readings, it may be wrong: it
assumes what a command line most likely does, leaves variables unknown, and gives up where the parser does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple

from acp_agent.core.data import frozen
from acp_agent.gates.shell.command import MAX_BYTES, MAX_DEPTH, MAX_TREE_DEPTH, ShellText
from acp_agent.gates.shell.options import peel, shell_call, tables
from acp_agent.gates.shell.words import fields, pieces
from acp_agent.gates.shell.wrappers import MAX_WRAPPERS, wrapper_of
from acp_agent.text import lazy_regex

if TYPE_CHECKING:  # they load the parser
    from tree_sitter import Node

    from acp_agent.gates.shell.syntax import Parsed, Parses

_OPERATORS = frozenset(("&&", "||", ";", ";;", "|", "|&", "&"))
_SEQUENCES = frozenset(
    ("program", "list", "pipeline", "negated_command", "do_group", "else_clause", "elif_clause", "case_item")
)
_COMPOUNDS = frozenset(
    (
        "subshell",
        "compound_statement",
        "if_statement",
        "case_statement",
        "for_statement",
        "c_style_for_statement",
        "while_statement",
    )
)
_MUTE = frozenset(
    ("variable_assignment", "variable_assignments", "declaration_command", "unset_command", "test_command")
)

_SILENT = frozenset(
    (
        *(":", "[", "alias", "break", "cd", "chmod", "chown", "continue", "exit", "export", "false", "hash", "kill"),
        *("local", "read", "return", "set", "shift", "shopt", "sleep", "test", "touch", "trap", "true", "ulimit"),
        *("umask", "unset", "wait"),
    )
)
"""Commands that print nothing if they succeed."""

_SILENT_UNLESS_VERBOSE = frozenset(("cp", "ln", "mkdir", "mv", "rm", "rmdir"))
_IN_PLACE = {"sed": lazy_regex(r"-[nErsuz]*i|--in-place"), "perl": lazy_regex(r"-[pnlawE0]*i")}
"""The options with which these commands write into their files, and print nothing."""
_QUIET = frozenset(("-q", "--quiet"))
_QUIET_IN_GIT = frozenset(
    ("checkout", "clone", "commit", "fetch", "init", "merge", "pull", "push", "rebase", "reset", "stash", "switch")
)
"""Commands of git that print nothing with `--quiet`. `log` and `show` do."""
_ADDING = frozenset(("--", "-A", "-u", "--all", "--update"))
_SPEAKING_WRAPPERS = frozenset(("script", "strace", "ltrace", "time", "valgrind", "watch"))
"""Wrappers that print text of their own, which a filter rule for the inner command must not remove."""

_PIPES = ("|", "|&")
_PASSING = frozenset(("cat", "head", "less", "more", "tail", "tee"))


class _Opaque(Exception):
    """Raised if it is unclear which commands print."""


class _Part(NamedTuple):
    """A command or compound command in a pipeline, and the redirections after it."""

    node: Node
    redirects: list[Node]


class _Printed(NamedTuple):
    """The words of a command that prints. `shown` is False if its output goes to a file and only stderr is seen."""

    words: str
    shown: bool = True


def printing_commands(shell: ShellText) -> tuple[str, ...]:
    """Return the commands whose output a text prints, in order; () if they are unknown or there are none.

    Each is returned as its words joined by spaces, without quotes, wrappers and the program's folder: "pytest -q" for
    `FOO=1 timeout 5 .venv/bin/pytest -q`. Silent commands (`cd`, `export`) are left out. Commands whose output goes to
    a file are left out if another command prints; else they are returned, because their stderr is printed.

    A pipeline counts as its first command if the others only pass on their input (`| tail -50`). If others select or
    transform it, the pipeline counts as the last of those, with "| " before it, so that no rule for `grep` matches it.

    Never raises.
    """
    if shell.literal is not None:
        words = (shell.literal.name, *shell.literal.argv[1:])
        return () if _is_silent(words) else (" ".join(words),)
    try:
        found = tuple(_Reading(shell.parses, 0).text(shell.text))
    except (_Opaque, RecursionError):
        return ()
    return tuple(each.words for each in found if each.shown) or tuple(each.words for each in found)


@frozen
class _Reading:
    """A reader of texts that are `depth` shells deep."""

    parses: Parses
    depth: int

    def text(self, text: str) -> Iterator[_Printed]:
        """Yield the commands of a text that print."""
        parsed = self.parses.parse(text, MAX_BYTES)
        if isinstance(parsed, str) or parsed.damaged or self.depth > MAX_DEPTH:
            raise _Opaque
        yield from self.row(parsed, parsed.root, 0)

    def row(self, parsed: Parsed, node: Node, level: int) -> Iterator[_Printed]:
        """Yield the commands that print in a node with a list of commands.

        The grammar attaches operators and redirections in other places than bash (`a && b | c > f` is a redirected
        pipeline of a list), so the tree is flattened first and read by bash's precedence.
        """
        pipelines: list[list[_Part]] = []
        operator = ""
        for each in (found for child in node.children for found in _flat(child, level + 1)):
            if each.type in _OPERATORS:
                operator = each.type
            elif each.type != "file_redirect":
                if operator not in _PIPES or not pipelines:
                    pipelines.append([])
                pipelines[-1].append(_Part(each, []))
                operator = ";"
            elif pipelines:
                pipelines[-1][-1].redirects.append(each)
        for parts in pipelines:
            yield from self._pipeline(parsed, parts, level)

    def _pipeline(self, parsed: Parsed, parts: list[_Part], level: int) -> Iterator[_Printed]:
        """Yield the commands that print in a pipeline."""
        last = len(parts) - 1
        while last and _passes_on(parsed, parts[last]):
            last -= 1
        shown = not any(_to_file(parsed, redirect) for part in parts[last:] for redirect in part.redirects)
        source = parts[last].node
        if last:
            words = _words(parsed, source) or (source.type.removesuffix("_statement"),)
            yield _Printed(" ".join(("|", *words)), shown)
            return
        for each in self._commands(parsed, source, level):
            yield _Printed(each.words, each.shown and shown)

    def _commands(self, parsed: Parsed, node: Node, level: int) -> Iterator[_Printed]:
        """Yield the commands that print in one part: itself, or those inside a compound command or a shell's `-c`."""
        if node.type in _MUTE:
            return
        if node.type in _COMPOUNDS:
            yield from self.row(parsed, node, level + 1)
            return
        words = _words(parsed, node)
        if not words or _is_silent(words):
            return
        if words[0] in tables().shells:
            texts = shell_call(words[1:]).texts
            if texts:
                for text in texts:
                    yield from _Reading(self.parses, self.depth + 1).text(text)
                return
        yield _Printed(" ".join(words))


def _flat(node: Node, level: int) -> Iterator[Node]:
    """Yield the commands, operators and redirections of a list in source order. Words and functions print nothing."""
    if level > MAX_TREE_DEPTH:
        raise _Opaque
    kind = node.type
    operator = kind in _OPERATORS and not node.is_named
    if operator or kind in _MUTE or kind in _COMPOUNDS or kind in ("command", "file_redirect"):
        yield node
    elif kind in _SEQUENCES or kind in ("redirected_statement", "heredoc_redirect"):
        for child in node.children:
            yield from _flat(child, level + 1)


def _words(parsed: Parsed, node: Node) -> tuple[str, ...]:
    """Return the words of a command without wrappers and the program's folder. Variables stay as written."""
    if node.type != "command":
        return ()
    end = node.start_byte
    words: list[str] = []
    for child in node.children:
        if b"\n" in parsed.source[end : child.start_byte].replace(b"\\\n", b""):
            raise _Opaque  # the parser read two commands as one
        end = child.end_byte
        if child.is_named and child.type not in ("variable_assignment", "file_redirect", "herestring_redirect"):
            words += fields(pieces(parsed, child), {})
    argv = _peeled(tuple(words))
    return (argv[0].rstrip("/").rpartition("/")[2], *argv[1:]) if argv else ()


def _peeled(argv: tuple[str, ...]) -> tuple[str, ...]:
    for _ in range(MAX_WRAPPERS):
        name = argv[0].rpartition("/")[2] if argv else ""
        wrapper, skip = wrapper_of(name, argv[1:]) if name not in _SPEAKING_WRAPPERS else (None, 0)
        if wrapper is None or wrapper.appended or wrapper.joined:
            return argv
        inner = peel(wrapper, argv[1 + skip :])
        if inner.unclear or inner.texts or not inner.argv:
            return argv
        argv = inner.argv
    return argv


def _is_silent(words: tuple[str, ...]) -> bool:
    name, *arguments = words
    if name in ("source", "."):  # a script may print, but these only set variables
        return bool(arguments) and arguments[0].endswith(("/activate", "env"))
    if name in _IN_PLACE:
        options = takewhile(lambda word: word[:1] == "-", arguments)
        return any(_IN_PLACE[name].match(word) for word in options)
    if name == "git":
        if arguments[:1] == ["add"]:
            return all(word[:1] != "-" or word in _ADDING for word in arguments)
        pairs = pairwise(("", *arguments))
        command = next((word for before, word in pairs if word[:1] != "-" and before not in ("-C", "-c")), "")
        return command in _QUIET_IN_GIT and not _QUIET.isdisjoint(arguments)
    if name in _SILENT_UNLESS_VERBOSE:
        return not any(word == "--verbose" or (word[:1] == "-" != word[1:2] and "v" in word) for word in arguments)
    return name in _SILENT


def _passes_on(parsed: Parsed, part: _Part) -> bool:
    """Return whether a command in a pipeline only passes on its input, or the beginning or end of it."""
    words = _words(parsed, part.node)
    if not words or words[0] not in _PASSING:
        return False
    name, *arguments = words
    match name:
        case "tee" | "less" | "more":
            return True
        case "cat":
            return set(arguments) <= {"-"}
        case _:  # head and tail: options and their numbers, but no file
            return all(word[:1] in ("-", "+") or word.rstrip("kKMGb").isdigit() for word in arguments)


def _to_file(parsed: Parsed, redirect: Node) -> bool:
    """Return whether a redirection sends stdout elsewhere."""
    if any(child.type == "file_descriptor" and parsed.text(child) != "1" for child in redirect.children):
        return False
    operator = next((child.type for child in redirect.children if not child.is_named), "")
    target = parsed.text(redirect.children[-1])
    if operator == ">&":
        return not target.isdigit()
    return operator in (">", ">>", ">|", "&>", "&>>") and target not in ("/dev/stdout", "/dev/stderr", "/dev/tty")
