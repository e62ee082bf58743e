"""Refuse or ask about calls that touch files and variables with secrets.

Sealed files (private keys, password hashes, a process's environment) are refused: no task needs to see them. Guarded
ones (`.env`, keys of certificates, credentials) are asked about. Paths are judged as written and as resolved, so that
no link hides one. A command is judged by the words that may be paths. If the program does not show the content of its
files (`ls -l .env`, `ssh -i key.pem`), sealed files are asked about and guarded ones allowed. Secrets are recognized by
file name, which catches mistakes but not every attack.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import assert_never

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.secrets import Secrecy, secrecy
from acp_agent.core.types import Access, Allow, Ask, Deny, PathSubject, Verdict
from acp_agent.gates.gate import Resolve
from acp_agent.gates.git_calls import git_call
from acp_agent.gates.paths.command_paths import MAX_WORDS, URL, Folders, path_words
from acp_agent.gates.paths.unnamed_paths import name_list
from acp_agent.gates.shell.command import Command
from acp_agent.gates.verify.folder_readers import EXCLUDING, reading
from acp_agent.gates.verify.verifiers import Verifier
from acp_agent.workspace.command_files import FoundSecret, Look
from acp_agent.workspace.git.index import GitState

_LOOKERS = ("ls", "stat", "file", "du", "chmod", "chown", "mkdir", "touch", "basename", "dirname", "realpath")
_QUIET = frozenset((*_LOOKERS, "ssh", "ssh-add", "ssh-keygen", "ssh-copy-id"))
_QUIET_GIT = frozenset(("check-ignore", "check-attr"))  # they print information about a name, not about its file
_UNSHOWN_OPTIONS = ("--env-file", "--exclude")
_GLOB_OPTIONS = ("-g", "--glob", "--iglob")
_KEY_USERS = ("scp", "sftp")
_SEARCHERS = frozenset(("grep", "egrep", "fgrep", "rg", "ag", "ack", "sed", "awk", "gawk", "jq"))
_SECRET_VARIABLE = re.compile(
    r"\$\{?((?:AWS|ACP_AGENT)_\w+|\w*(?:SECRET|TOKEN|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|PRIVATE_KEY)\w*)"
)


Real = Callable[[str], str]
"""Returns the absolute path to which a path of a command leads, or the path itself if there is no link."""

Below = Callable[[Sequence[str], Look], Sequence[FoundSecret]]
"""Returns the files below folders that may hold secrets, those nearest to their folder first."""


def _as_written(path: str) -> str:
    return path


def _unlisted(folders: Sequence[str], look: Look) -> Sequence[FoundSecret]:
    del folders, look
    return ()


class Firewall(Verifier):
    """A verifier that protects files with secrets, whichever tool or command names them.

    resolve   returns where a path of a tool really leads
    real      returns where a path of a command really leads
    below     returns the secrets that a command finds if it reads a folder
    """

    name = "firewall"

    def __init__(self, resolve: Resolve, real: Real = _as_written, below: Below = _unlisted) -> None:
        self._resolve = resolve
        self._real = real
        self._below = below

    def path(self, subject: PathSubject) -> Verdict:
        try:
            real = self._resolve(subject.path, subject.access)
        except (Refused, ToolError):
            real = subject.path
        spelled = secrecy(subject.path)
        level = max(spelled, secrecy(real))
        return _verdict(subject.path, level, is_named=spelled is level)

    def paths(self, subjects: Sequence[PathSubject]) -> Verdict:
        """Return an Ask if a copy or move would give secret files names that no longer mark them as secret."""
        sources = [each.path for each in subjects if each.access in (Access.LIST, Access.MOVE)]
        targets = [each.path for each in subjects if each.access is Access.WRITE]
        for found in self._below(sources, Look()) if sources and targets else ():
            path = posixpath.normpath(posixpath.join(found.folder, found.path))
            if not all(secrecy(posixpath.join(target, found.path)) for target in targets):
                return Ask(f"may show secrets: {path}, which would get another name", firm=True)
        return Allow()

    def command(self, command: Command, folders: Folders) -> Verdict:
        words = dict.fromkeys(_file_words(command))
        judged = len(words) * len(folders.possible)
        worst, level, is_named = "", Secrecy.OPEN, False
        for word in words:
            matches = folders.matches(word, command) if judged <= MAX_WORDS else None
            judged += len(matches or ())
            if matches is None or judged > MAX_WORDS:
                return Ask(f"names more than {MAX_WORDS} files", firm=True)
            places = (*folders.places(word), *matches)
            spelled = max(secrecy(part) for place in places for part in (place, *_parts(place)))
            found, path = max((self._secrecy(place), place) for place in places)
            found = max(found, spelled)
            if found and _handles(command, word):
                found, spelled = Secrecy(found - 1), Secrecy(max(spelled - 1, 0))
            if found > level:
                worst, level = path if path in matches else word, found
                is_named = spelled is found and word not in command.patterns
        if level:
            return _verdict(worst, level, is_named=is_named)
        return self._read_below(command, folders) or _variable(command)

    def _secrecy(self, place: str) -> Secrecy:
        """Return the secrecy of a path, or of the path to which its links lead if that is higher."""
        return max(secrecy(place), secrecy(self._real(place)))

    def _read_below(self, command: Command, folders: Folders) -> Verdict | None:
        read = reading(command)
        if read is None:
            return None
        places = dict[str, str]()
        for named in read.folders:
            matches = folders.matches(named, command)
            if matches is None or len(places) > MAX_WORDS:
                return Ask(f"reads more than {MAX_WORDS} folders", firm=True)
            places.update((place, named) for place in (*folders.places(named), *matches))
        look = replace(read.look, ignores=False) if folders.changes_ignores else read.look
        if folders.changes_ignores and look.known and GitState.UNTRACKED in look.known:
            look = replace(look, known=look.known | GitState.IGNORED)
        for found in self._below((*places,), look):
            if read.shows(found._replace(folder=places[found.folder])):
                where = posixpath.normpath(posixpath.join(found.folder, found.path))
                return Ask(f"may show secrets: {where}, {read.how}", firm=True)
        return None


def _handles(command: Command, word: str) -> bool:
    """Return whether a program uses the file of a word without showing its content."""
    if command.name in _QUIET and not name_list(command):  # `file -f` prints the names that it reads
        return True
    if command.name == "git" and word in command.own and _git_handles(command, word):
        return True
    return any(
        word == (option.partition("=")[2] or value)
        for option, value in pairwise((*command.own, ""))
        if option.startswith(_UNSHOWN_OPTIONS)
        or (option == "-i" and command.name in _KEY_USERS)
        or (option in _GLOB_OPTIONS and value.startswith("!"))
    )


def _git_handles(command: Command, word: str) -> bool:
    """Return whether git excludes the path that a word names, or does not read the file's content."""
    if any(each.target == word for each in command.redirections):  # `check-attr --stdin` prints what it reads
        return False
    call = git_call(command)
    return word.startswith(EXCLUDING) or (call is not None and call.subcommand in _QUIET_GIT)


def _file_words(command: Command) -> Iterator[str]:
    """Yield the words that may be files, including those with a variable in them (`$PROJECT/.env`)."""
    yield from path_words(command)
    targets = [each.target for each in command.redirections] if command.redirections else ()
    for word in (*command.own, *targets):
        if "$" in word and not any(map(str.isspace, word)):
            yield word


def _variable(command: Command) -> Verdict:
    if command.name in _SEARCHERS:
        return Allow()
    found = next(filter(None, map(_SECRET_VARIABLE.search, (*command.own, *command.assignments))), None)
    return Ask(f"may show a secret: ${found[1]}", firm=True) if found else Allow()


def _parts(word: str) -> tuple[str, ...]:
    """Return the parts of a word between its colons: `HEAD:id_rsa`, `~/.ssh:/keys:ro`, `host:.env`."""
    return tuple(part for part in word.split(":") if part) if ":" in word and not URL.match(word) else ()


def _verdict(path: str, level: Secrecy, *, is_named: bool) -> Verdict:
    """Return the verdict on a secret.

    is_named   whether the path itself has the name of a secret. A rule for exactly this path may then allow it
    """
    match level:
        case Secrecy.OPEN:
            return Allow()
        case Secrecy.GUARDED:
            return Ask(f"may show secrets: {path}", firm=True, by_name=is_named)
        case Secrecy.SEALED:
            reason = f"{path} holds secrets, so it may not be used"
            return Deny(
                reason, rule=f"firewall: {path}", advice="Do without it, or ask the user for what you need of it."
            )
        case _:
            assert_never(level)
