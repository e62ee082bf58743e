"""Named groups of commands that are refused or asked about together (`deny_groups.toml`).

They extend the built-in blocklist. Like it, they are compared with the parsed commands of a line, including those
behind wrappers and in nested shells. The blocklist provides the function that compares a pattern with a command.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from types import MappingProxyType
from typing import NamedTuple, cast

from acp_agent.gates.paths.command_paths import path_words
from acp_agent.gates.shell.command import Command, Survey
from acp_agent.gates.shell.options import operands, option_texts, shell_call, tables
from acp_agent.regex import Regex, compiled
from acp_agent.text import packaged_table


class Group(NamedTuple):
    """One group. `deny_groups.toml` explains the keys."""

    name: str
    about: str
    asks: bool
    evaluates: bool
    hidden: bool
    patterns: tuple[str, ...]
    bare: tuple[str, ...]
    fetched: frozenset[str]
    assignments: tuple[str, ...]
    paths: tuple[str, ...]
    words: tuple[str, ...]
    words_of: frozenset[str]
    words_but: frozenset[str]
    code: tuple[tuple[str, ...], ...]


@cache
def deny_groups() -> Mapping[str, Group]:
    """Return the packaged groups by name. They are read once, when the first command is judged."""
    data = packaged_table("acp_agent.gates.rules", "deny_groups")
    return MappingProxyType({name: _group(name, cast("dict[str, object]", table)) for name, table in data.items()})


def _group(name: str, table: Mapping[str, object]) -> Group:
    def texts(key: str) -> tuple[str, ...]:
        return tuple(cast("list[str]", table.get(key, [])))

    return Group(
        name=name,
        about=cast("str", table["about"]),
        asks=table.get("asks") is True,
        evaluates=table.get("evaluates") is True,
        hidden=table.get("hidden") is True,
        patterns=texts("patterns"),
        bare=texts("bare"),
        fetched=frozenset(texts("fetched")),
        assignments=texts("assignments"),
        paths=texts("paths"),
        words=texts("words"),
        words_of=frozenset(texts("words_of")),
        words_but=frozenset(texts("words_but")),
        code=tuple(map(tuple, cast("list[list[str]]", table.get("code", [])))),
    )


Matches = Callable[[str, Command], bool]
"""Returns whether a pattern such as "git push --force" names a command."""

_SUBSTITUTED = "$()"
_WILDCARDS = ("*", "?", "[")
_EVALUATORS = frozenset(("eval", "source", "."))
_SETTERS = frozenset(("export", "declare", "typeset", "local", "readonly"))
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=")


def find_in_groups(found: Survey, groups: Iterable[str], matches: Matches, *, asking: bool = False) -> str:
    """Return the part of a text that belongs to one of these groups, such as "remote_exec: curl | sh"; empty for none.

    asking    whether to check the groups that ask instead of those that refuse
    """
    for name in groups:
        group, what, fetches = deny_groups()[name], "", ""
        if group.asks is not asking:
            continue
        for command in found.walk():
            what = what or next(_single(group, command, matches), "")
            fetches = fetches or (command.name if command.name in group.fetched else "")
        what = what or (_fetched(fetches, group.fetched, found.commands) if fetches else "")
        if what:
            return f"{name}: {what}"
    return ""


def _single(group: Group, command: Command, matches: Matches) -> Iterator[str]:
    """Yield the matches of one single command with a group."""
    name, args = command.name, command.argv[1:]
    for pattern in patterns_for(group.patterns, name):
        if matches(pattern, command):
            yield pattern
    if name in group.bare and not args and not command.runs:
        yield name
    for word in (*command.assignments, *(args if name in _SETTERS else ())):
        variable = _ASSIGNED.match(word)
        if variable and any(fnmatchcase(variable[1], each) for each in group.assignments):
            yield f"{variable[1]}=…"
    if group.paths:
        yield from (word for word in path_words(command) if _is_below(word, group.paths))
    program = tables().interpreter(name) or name
    if group.words and (not group.words_of or program in group.words_of) and program not in group.words_but:
        words = ((word, word.encode(errors="replace")) for word in args)
        yield from (word[:80] for word, data in words for each in group.words if _regex(each).fullmatch(data))
    if group.code and tables().interpreter(name):
        texts = [code.encode(errors="replace") for code in _codes(command)]
        found = (each for text in texts for each in group.code if all(_regex(one).search(text) for one in each))
        yield from (each[0] for each in found)
    if group.evaluates and name in _EVALUATORS and any(_SUBSTITUTED in word or "`" in word for word in args):
        yield f"{name} $(…)"
    if group.hidden and command.argv and not set(_WILDCARDS).isdisjoint(name):
        yield command.argv[0]


@cache
def _regex(pattern: str) -> Regex:
    """Return a compiled expression, by RE2: long words and texts take linear time. Its `.` matches line ends too."""
    return compiled(f"(?s){pattern}", lines=True, captures=False)


def patterns_for(patterns: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the patterns that may match a program. Most are skipped because they begin with another letter."""
    return _with_initial(patterns, name.casefold()[:1])


@lru_cache(1024)
def _with_initial(patterns: tuple[str, ...], initial: str) -> tuple[str, ...]:
    if initial in _WILDCARDS:
        return patterns
    return tuple(each for each in patterns if each.strip().casefold()[:1] in (initial, *_WILDCARDS))


def _fetched(fetches: str, fetchers: frozenset[str], commands: tuple[Command, ...]) -> str:
    """Return how fetched data reaches a shell: through a pipe, as a substitution, or as a file that is run later."""
    names = set[str]()
    for line in _lines(commands):
        feeding = ""
        for command in line:
            feeding = feeding if command.joined == "|" else ""
            for each in command.walk():
                if feeding and _reads_program(each):
                    return f"{feeding} | {each.name}"
                runs = each.name in _EVALUATORS or _runs_code(each)
                if runs and any(_SUBSTITUTED in word for word in each.argv[1:]):
                    return f"{each.name} $({fetches} …)"
                if posixpath.basename(_script(each)) in names:
                    return f"{fetches} … {_script(each)}"
            here = [each for each in command.walk() if each.name in fetchers]
            feeding = here[0].name if here else feeding
            names |= {name for each in here for name in _saved(each)}
    return ""


def _lines(commands: tuple[Command, ...]) -> Iterator[tuple[Command, ...]]:
    """Yield the commands of the line itself, then those that each of them starts."""
    yield commands
    for command in commands:
        if command.runs:
            yield from _lines(command.runs)


def _saved(command: Command) -> Iterator[str]:
    """Return the possible names of a fetched file: a word, the end of a URL, the target of a redirection."""
    words = (*command.argv[1:], *(each.target for each in command.redirections if each.writes))
    return (name for word in words if (name := posixpath.basename(word.partition("?")[0].partition("=")[2] or word)))


def _script(command: Command) -> str:
    """Return the file that a command runs: its own path, or the first operand of a shell or an interpreter."""
    if _runs_code(command):
        operand = next(iter(operands(command.argv[1:])), "")
        return "" if operand == "-" else operand
    if command.name in _EVALUATORS:
        return next(iter(operands(command.argv[1:])), "")
    return command.argv[0] if command.argv and "/" in command.argv[0] else ""


def _runs_code(command: Command) -> bool:
    name = command.name
    return name in tables().shells or (bool(tables().interpreter(name)) and not name.endswith("awk"))


def _reads_program(command: Command) -> bool:
    """Return whether a shell or interpreter takes its program from its input."""
    args = command.argv[1:]
    if command.name in tables().shells:
        call = shell_call(args)
        return not call.texts and (call.stdin or not call.operands or call.operands[0] in ("-", "/dev/stdin"))
    known = tables().interpreter(command.name) if _runs_code(command) else ""
    if known in ("", "ssh", "java", "psql", "mysql", "sqlite3"):  # their input is data, or runs on another host
        return command.name in ("source", ".") and args[:1] in (("-",), ("/dev/stdin",))
    plain = operands(args)
    return not option_texts(tables().interpreters[known], args) and "-m" not in args and plain[:1] in ([], ["-"])


def _codes(command: Command) -> list[str]:
    known = tables().interpreter(command.name)
    plain = operands(command.argv[1:])
    codes = option_texts(tables().interpreters[known], command.argv[1:])
    codes += plain[:1] if known.endswith("awk") else []
    return [*codes, command.stdin] if command.stdin else codes


def _is_below(word: str, patterns: tuple[str, ...]) -> bool:
    """Return whether one of the globs names a path or a folder above it."""
    names, absolute = _names(posixpath.normpath(word)), word.startswith("/")
    for wanted in map(_names_of_pattern, patterns):
        if wanted[0] != "**":
            if absolute and _begins(names, wanted):
                return True
            continue
        rest, count = wanted[1:], len(wanted) - 1
        if any(_begins(names[at : at + count], rest) for at in range(len(names))):
            return True
    return False


def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


_names_of_pattern = lru_cache(1024)(_names)  # only patterns are cached, since words may be long


def _begins(names: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(names) >= len(wanted) and all(fnmatchcase(name, each) for name, each in zip(names, wanted, strict=False))
