"""The sandbox of a session: which tier this machine has, how a command is started in it, and what its walls stopped."""

import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum

from acp_agent.workspace.processes.environment import PrivateFolder
from acp_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox, Launch, bubblewrap
from acp_agent.workspace.sandbox.walls import NetworkReach, WallRules, Walls

_FRESH = 10.0  # seconds for which the walls that were found hold


class SandboxTier(StrEnum):
    """What builds the walls on this machine."""

    BUBBLEWRAP = "bwrap"
    NONE = "none"


def sandbox_tier() -> SandboxTier:
    """Return the best tier that works on this machine. The first call tries it, which takes some milliseconds."""
    return SandboxTier.BUBBLEWRAP if bubblewrap() else SandboxTier.NONE


class SessionSandbox:
    """The sandbox for the commands of one session. It has a private /tmp and home, which `close` deletes.

    rules         what the walls are made from
    environment   the variables of the commands
    """

    def __init__(self, rules: WallRules, environment: Mapping[str, str]) -> None:
        self._rules = rules
        self._environment = environment
        self._folder = PrivateFolder(whole=True)
        self._bubblewrap: BubblewrapSandbox | None = None
        self._walls: Walls | None = None
        self._looked = 0.0

    @property
    def folder(self) -> str:
        """The private folder of the session, for its /tmp and home."""
        return self._folder.path()

    def adopt(self, rules: WallRules) -> None:
        """Make the walls of new commands from other rules, because the configuration has changed."""
        self._rules, self._walls = rules, None

    @contextmanager
    def launch(self, command: Sequence[str], cwd: str, network: NetworkReach | None = None) -> Generator[Launch]:
        """Yield how to start a command within the walls. Its descriptors are open in the body. Raises OSError.

        network   the hosts that it can reach, if not those of the session
        """
        walls = self.walls()
        if network is not None:
            walls = replace(walls, network=network)
        self._bubblewrap = self._bubblewrap or BubblewrapSandbox(self._folder.path())
        with self._bubblewrap.launch(command, cwd, walls) as launch:
            yield launch

    def walls(self) -> Walls:
        """Return the walls as they were found less than `_FRESH` seconds ago. It blocks for some milliseconds."""
        if self._walls is None or time.monotonic() - self._looked > _FRESH:
            self._walls = self._rules.walls(self._environment)
            self._looked = time.monotonic()
        return self._walls

    def close(self) -> None:
        """End the session's network and delete its private folders. It blocks."""
        if self._bubblewrap is not None:
            self._bubblewrap.close()
            self._bubblewrap = None
        self._folder.close()


# ------------------------------------------------------------------------------------------- what stopped a command

_PATH = r"[`'\"\u2018]?(/[^\s'\"`\u2019:,]+|[\w.~][^\s'\"`\u2019:,]*)"
_SIGNS = (
    (re.compile(rf"{_PATH}['\"`\u2019]?: Read-only file system"), "{} may only be read"),
    (re.compile(rf"EROFS: [^,\n]*, \w+ {_PATH}"), "{} may only be read"),
    (re.compile(rf"Read-only file system[^\n]*?: {_PATH}"), "{} may only be read"),
    (re.compile(r"Read-only file system|os error 30"), "a file outside the session's folders may only be read"),
    (re.compile(r"[Cc]ould not resolve host:? '?([\w.-]+)"), "the host {} cannot be reached"),
    (re.compile(r"(?:ENOTFOUND|EAI_AGAIN) ([\w.-]+)"), "the host {} cannot be reached"),
    (re.compile(r"host='([\w.-]+)', port=\d+\): Max retries"), "the host {} cannot be reached"),
    (re.compile(r"dial tcp: lookup ([\w.-]+)"), "the host {} cannot be reached"),
    (
        re.compile(
            r"Temporary failure in name resolution|Name or service not known|getaddrinfo failed|Network is unreachable"
            r"|ENETUNREACH|[Cc]ould not resolve (?:host|proxy)|failed to lookup address"
        ),
        "no host but this one can be reached",
    ),
)


def wall_named(output: str, exit_code: int | None) -> str:
    """Return which wall a command that failed ran into, by what it printed, or ""."""
    if not exit_code:
        return ""
    for sign, words in _SIGNS:
        found = sign.search(output)
        if found is not None:
            return words.format(*found.groups())
    return ""
