"""What the policy judges of a call: its name, texts, paths and URLs, and how far it is trusted (requirements S5)."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from acp_agent.core.ports import Invocation
from acp_agent.core.types import CommandSubject, Json, PathSubject, UrlSubject
from acp_agent.gates.command import Plain, analyse, survey
from acp_agent.gates.trust_level import TrustLevel

MAX_WORDS = 1000
"""Paths of one command that are looked at; with more, it cannot be told what it names."""

_ALIASES = {"shell": "bash", "sh": "bash"}
_SEPARATORS = re.compile(r"[=:,@]")

RealPath = Callable[[str], str]
"""Where an absolute path leads, links followed; like `os.path.realpath`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A path or URL of a call.

    real        what it is: absolute, and relative to the session's folder when below it; empty when it leads nowhere
    spellings   every way to write it that is known, `real` among them
    taken       the spellings of a folder that goes away with all below it
    """

    real: tuple[str, ...]
    spellings: tuple[str, ...]
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What rules judge of a call.

    texts     every text among the arguments
    targets   its paths and URLs
    unclear   why it may have more of them than can be seen; empty when these are all
    """

    tool: str
    trust: TrustLevel
    texts: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    unclear: str = ""


def tool_name(name: str) -> str:
    """A tool's name as rules see it (S5.5). Tools of MCP servers have qualified ones (S5.13)."""
    plain = name.strip().lower()
    return _ALIASES.get(plain, plain)


def call_facts(invocation: Invocation, trust: TrustLevel, cwd: str, realpath: RealPath, *, targets: bool) -> CallFacts:
    """What rules judge of a call. Paths are looked up only when `targets` says that some rule wants them."""
    tool = tool_name(invocation.spec.name)
    arguments = invocation.call.arguments
    texts = (invocation.call.raw_arguments,) if arguments is None else tuple(_texts(arguments))
    found: list[Target] = []
    unclear = ""
    for subject in invocation.subjects if targets else ():
        match subject:
            case PathSubject(path, access):
                found.append(_path(path, cwd, realpath, entry=access.of_the_entry))
            case UrlSubject(url):
                found.append(Target((url,), (url,)))
            case CommandSubject(command):
                words, doubt = _command_paths(command)
                found += [_path(word, cwd, realpath) for word in words]
                unclear = unclear or doubt
            case _:
                continue
    return CallFacts(tool, trust, texts, tuple(found), unclear)


def _texts(value: Json) -> Iterator[str]:
    """Every text in a JSON value, however deep."""
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
    """A path as a target. Of an entry that is moved or deleted, a link at the end is itself what is meant."""
    joined = os.path.join(cwd, os.path.expanduser(path))
    lexical = _normal(joined)
    try:
        real = realpath(joined)
        folder, name = os.path.split(joined.rstrip("/"))
        if entry and name not in ("", ".", ".."):
            real = os.path.join(realpath(folder), name)
    except (OSError, ValueError):  # a NUL in it, links that go in circles: nothing an allow rule could reach
        return Target((), (path, lexical))
    names = (real, os.path.relpath(real, cwd)) if real.startswith(f"{cwd.rstrip('/')}/") else (real,)
    return Target(names, tuple(dict.fromkeys((*names, path, lexical))), (*names, lexical) if entry else ())


def _normal(path: str) -> str:
    """Lexically normalised (S5.6); POSIX would keep a second slash in front."""
    return "/" + os.path.normpath(path).lstrip("/")


def _command_paths(text: str) -> tuple[list[str], str]:
    """The paths in a command that are written with a slash, and why there may be more (S5.6)."""
    analysis = analyse(text)
    unclear = "" if isinstance(analysis, Plain) else analysis.reason
    words: dict[str, None] = {}
    for command in survey(text).walk():
        targets = (redirection.target for redirection in command.redirections if not redirection.harmless)
        for word in (*command.argv, *command.assignments, *targets):
            words.update(dict.fromkeys(_paths(word)))
            if len(words) > MAX_WORDS:
                return list(words), f"names more than {MAX_WORDS} paths"
        if any("/" in pattern for pattern in command.patterns):
            unclear = unclear or "names files by a pattern"
    return list(words), unclear


def _paths(word: str) -> Iterator[str]:
    """What may be a path in a word: all of it, what is attached to an option, the pieces of `--file=/a`, `/a:/b`."""
    for piece in _SEPARATORS.split(word):
        if piece.startswith("-") and "/" in piece:
            yield piece[piece.find("/") :]
        elif "/" in piece or piece in ("~", ".."):
            yield piece
    if word.startswith(("/", "~", ".")):
        yield word
