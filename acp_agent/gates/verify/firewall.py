"""Files and variables that hold secrets (requirements S2).

Sealed files (private keys, password hashes, a process's environment) are refused: no task needs to see them. Guarded
ones (`.env`, certificates' keys, credentials) are asked about. Paths are judged as they are written and as they
really are, so that no link hides one. A command is judged by the words that may be paths, one step milder where the
program shows nothing of its files (`ls -l .env`, `ssh -i key.pem`). Like every list of names it is a tripwire.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import assert_never

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access, Allow, Ask, Deny, PathSubject, Verdict
from acp_agent.gates.command import Command
from acp_agent.gates.command_paths import MAX_WORDS, Folders, path_words
from acp_agent.gates.verify.secret_files import Secrecy, secrecy
from acp_agent.gates.verify.verifier import Verifier

Resolve = Callable[[str, Access], str]
"""FileSystem.resolve: raises Refused or ToolError for a path that cannot be touched anyway."""

_LOOKERS = ("ls", "stat", "file", "du", "chmod", "chown", "mkdir", "touch", "basename", "dirname", "realpath")
_QUIET = frozenset((*_LOOKERS, "ssh", "ssh-add", "ssh-keygen", "ssh-copy-id"))
_ENV_FILE = "--env-file"
_KEY_USERS = ("scp", "sftp")
_SEARCHERS = frozenset(("grep", "egrep", "fgrep", "rg", "ag", "ack", "sed", "awk", "gawk", "jq"))
_SECRET_VARIABLE = re.compile(
    r"\$\{?((?:AWS|ACP_AGENT)_\w+|\w*(?:SECRET|TOKEN|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|PRIVATE_KEY)\w*)"
)


class Firewall(Verifier):
    """Keeps secrets where they are.

    resolve   where a path really leads
    """

    name = "firewall"

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    def path(self, subject: PathSubject) -> Verdict:
        try:
            real = self._resolve(subject.path, subject.access)
        except (Refused, ToolError):
            real = subject.path
        return _verdict(subject.path, max(secrecy(subject.path), secrecy(real)))

    def command(self, command: Command, folders: Folders) -> Verdict:
        words = dict.fromkeys(islice(_file_words(command), MAX_WORDS + 1))
        judged = len(words) * len(folders.possible)
        handled = _handled(command)
        worst, level = "", Secrecy.OPEN
        for word in words:
            matches = folders.matches(word, command) if judged <= MAX_WORDS else None
            judged += len(matches or ())
            if matches is None or judged > MAX_WORDS:
                return Ask(f"names more than {MAX_WORDS} files", firm=True)
            found, path = max((secrecy(place), place) for place in (*folders.places(word), *matches))
            if found and (handled is None or word in handled):
                found = Secrecy(found - 1)
            if found > level:
                worst, level = path if path in matches else word, found
        return _verdict(worst, level) if level else _variable(command)


def _handled(command: Command) -> frozenset[str] | None:
    """The words the program uses without showing what is in them; None for all of them."""
    if command.name in _QUIET:
        return None
    return frozenset(
        option.partition("=")[2] or value
        for option, value in pairwise((*command.own, ""))
        if option.startswith(_ENV_FILE) or (option == "-i" and command.name in _KEY_USERS)
    )


def _file_words(command: Command) -> Iterator[str]:
    """The words that may be files; also those below a folder that only a variable knows (`$PROJECT/.env`)."""
    yield from path_words(command)
    for word in (*command.own, *(redirection.target for redirection in command.redirections)):
        if "$" in word and not any(char.isspace() for char in word):
            yield word


def _variable(command: Command) -> Verdict:
    if command.name in _SEARCHERS:
        return Allow()
    found = next(filter(None, map(_SECRET_VARIABLE.search, (*command.own, *command.assignments))), None)
    return Ask(f"may show a secret: ${found[1]}", firm=True) if found else Allow()


def _verdict(path: str, level: Secrecy) -> Verdict:
    match level:
        case Secrecy.OPEN:
            return Allow()
        case Secrecy.GUARDED:
            return Ask(f"may show secrets: {path}", firm=True)
        case Secrecy.SEALED:
            return Deny(f"{path} holds secrets and stays closed", rule=f"firewall: {path}")
        case _:
            assert_never(level)
