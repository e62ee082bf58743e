"""What the policy compares with a call: its name, texts, paths and URLs, and how far it is trusted."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from acp_agent.core.aliases import tool_id
from acp_agent.core.types import Json, Phase
from acp_agent.gates.facts import CallFacts, CommandFacts
from acp_agent.gates.paths.command_paths import path_words
from acp_agent.gates.rules.trust_level import TrustLevel
from acp_agent.gates.shell.command import Command, Plain
from acp_agent.gates.shell.programs import Programs, program_table

MAX_WORDS = 1000
"""The most paths of one command that are resolved. With more, its paths are unclear."""

_SEPARATORS = re.compile(r"[=:,@]")
_PATTERN = re.compile(r"[*?\[]")

RealPath = Callable[[str], str]
"""Returns where an absolute path leads, links followed, like `os.path.realpath`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A path or URL of a call.

    real        the resolved path: absolute, and relative to the session's folder if below it; empty if unresolvable
    spellings   all known ways to write it, with `real`
    taken       the spellings of a folder that is moved or deleted with everything below it
    above       the beginnings of all paths below it, if it is a folder that a command may search
    named       whether it may be no path: a deny rule applies to it, an allow rule ignores it
    """

    real: tuple[str, ...]
    spellings: tuple[str, ...]
    taken: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    named: bool = False


class PolicyFacts(NamedTuple):
    """What rules judge of a call.

    texts     every text among the arguments
    targets   its paths and URLs
    unclear   why it may have more of them; empty if these are all
    phase     the point of the turn at which it is made
    """

    tool: str
    trust: TrustLevel
    texts: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    unclear: str = ""
    phase: Phase = Phase.EXECUTOR


def tool_name(name: str) -> str:
    """Return a tool's name as rules see it: its id in lower case. Tools of MCP servers have qualified names."""
    return tool_id(name.strip()).lower()


def policy_facts(facts: CallFacts, trust: TrustLevel, cwd: str, realpath: RealPath, *, targets: bool) -> PolicyFacts:
    """Return what rules compare with a call. Paths are resolved only if a rule needs `targets`."""
    tool, call = tool_name(facts.spec.name), facts.call
    texts = (call.raw_arguments,) if call.arguments is None else tuple(_texts(call.arguments))
    if not targets:
        return PolicyFacts(tool, trust, texts, phase=call.phase)
    found = [_path(each.path, cwd, realpath, entry=each.access.of_the_entry) for each in facts.paths]
    found += [Target((url,), (url,)) for url in facts.urls]
    unclear = ""
    for command in facts.commands:
        words, doubt = _command_paths(command)
        found += [_named(word, kind, cwd, realpath) for word, kind in words.items()]
        unclear = unclear or doubt
    return PolicyFacts(tool, trust, texts, tuple(found), unclear, call.phase)


def _texts(value: Json) -> Iterator[str]:
    """Yield every text in a JSON value, however deep."""
    rest: list[Json] = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, list):
            rest.extend(each)
        elif isinstance(each, dict):
            rest.extend(each.values())


def _path(path: str, cwd: str, realpath: RealPath, *, entry: bool = False) -> Target:
    """Return a path as a target. For an `entry` that is moved or deleted, a link at its end is not followed."""
    joined = os.path.join(cwd, os.path.expanduser(path))
    lexical = _normal(joined)
    try:
        real = realpath(joined)
        folder, name = os.path.split(joined.rstrip("/"))
        if entry and name not in ("", ".", ".."):
            real = os.path.join(realpath(folder), name)
    except (OSError, ValueError):  # a NUL, or links in a circle: no allow rule applies
        return Target((), (path, lexical))
    names = (real, os.path.relpath(real, cwd)) if real.startswith(f"{cwd.rstrip('/')}/") else (real,)
    return Target(names, tuple(dict.fromkeys((*names, path, lexical))), (*names, lexical) if entry else ())


def _normal(path: str) -> str:
    """Return a path normalised as text, also without the second slash in front that POSIX keeps."""
    return "/" + os.path.normpath(path).lstrip("/")


class _Kind(Enum):
    """What the policy takes a word of a command for."""

    ENTERED = auto()  # a folder of `cd`, which by itself reads nothing
    NAMED = auto()  # it may be a path
    PATH = auto()  # it has a slash


def _named(word: str, kind: _Kind, cwd: str, realpath: RealPath) -> Target:
    """Return a word of a command as a target."""
    target = _path(word, cwd, realpath)
    real = target.real[0] if target.real else ""
    above = [f"{name.rstrip('/')}/" for name in target.spellings if name not in ("", ".")]
    if real and f"{cwd.rstrip('/')}/".startswith(f"{real.rstrip('/')}/"):
        above.append("")  # it is above all paths relative to the session's folder
    return replace(target, above=() if kind is _Kind.ENTERED else tuple(above), named=kind is not _Kind.PATH)


def _command_paths(line: CommandFacts) -> tuple[dict[str, _Kind], str]:
    """Return the words of a command that may be paths, seen from its folders, and why there may be more."""
    unclear = "" if isinstance(line.analysis, Plain) else line.analysis.reason
    found: dict[str, _Kind] = {}
    for command, _, folders, after in line.surveyed_steps:
        for word, kind in _words(command):
            for place in (*folders.places(word), *([word] if kind is _Kind.PATH else ())):
                found[place] = max(kind, found.get(place, kind), key=lambda each: each.value)
            matches = folders.matches(word, command)
            found.update(dict.fromkeys(matches or (), _Kind.PATH))
            unread = matches is None or any(map(_PATTERN.search, matches))
            unclear = unclear or ("names files by a pattern" if unread else "")
            if len(found) > MAX_WORDS:
                return found, f"names more than {MAX_WORDS} paths"
        if after.lost:
            return found, "changes the folder more often than can be followed"
    return found, unclear


def _words(command: Command) -> Iterator[tuple[str, _Kind]]:
    """Yield the words of one command that may be paths."""
    targets = (redirection.target for redirection in command.redirections if not redirection.harmless)
    for word in (*command.argv, *command.assignments, *targets):
        yield from ((each, _Kind.PATH) for each in _paths(word))
    if command.name in ("cd", "pushd"):
        yield from ((word, _Kind.ENTERED) for word in path_words(command))
        return
    deeds = Programs(program_table()).deeds(command)
    for word in path_words(command):
        if "/" in word or word not in deeds:
            yield word, _Kind.NAMED


def _paths(word: str) -> Iterator[str]:
    """Yield the possible paths in a word: the whole, the value of an option, the parts of `--file=/a` and `/a:/b`."""
    for piece in _SEPARATORS.split(word):
        if piece.startswith("-") and "/" in piece:
            yield piece[piece.find("/") :]
        elif "/" in piece or piece in ("~", ".."):
            yield piece
    if word.startswith(("/", "~", ".")):
        yield word
