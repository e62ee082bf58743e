"""Contain commands on macOS with sandbox-exec: the walls as a profile of Seatbelt.

Of several rules that match, the last one holds. So the rule that denies a frozen or hidden path comes after the rule
that allows its folder. https://reverse.put.as/wp-content/uploads/2011/09/Apple-Sandbox-Guide-v1.0.pdf
"""

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from acp_agent.workspace.roots import is_below
from acp_agent.workspace.sandbox.walls import Launch, NetworkReach, PrivateHome, Walls, folders_above

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_SYSTEM = """
/System /Library /usr /bin /sbin /private/etc /opt /Applications/Xcode.app /private/var/db/dyld /private/var/select
/private/var/db/timezone
""".split()  # noqa: SIM905 - a table
_BASE = """\
(version 1)
(deny default)
(allow process-fork process-exec)
(allow signal process-info* (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem ipc-posix-shm*)
(allow pseudo-tty)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.bsd.dirhelper"))
(allow file-read-metadata)
(allow file-read* file-test-existence (literal "/"))
(allow file-read* file-write* file-ioctl
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/ptmx")
  (require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))
(allow file-read* (literal "/dev/random") (literal "/dev/urandom") (subpath "/dev/fd"))
"""
_NETWORK = {
    NetworkReach.NONE: "",
    NetworkReach.SESSION: """\
(allow network-bind network-inbound (local ip "localhost:*"))
(allow network-outbound (remote ip "localhost:*"))
""",
    NetworkReach.ALL: """\
(allow network* (local ip) (remote ip))
(allow network-outbound (literal "/private/var/run/mDNSResponder"))
(allow system-socket)
(allow mach-lookup
  (global-name "com.apple.SecurityServer") (global-name "com.apple.trustd") (global-name "com.apple.trustd.agent")
  (global-name "com.apple.SystemConfiguration.configd") (global-name "com.apple.networkd"))
""",
}


def profile(walls: Walls, private: Iterable[str]) -> str:
    """Return the profile of the walls. `private` are further folders that may be changed."""
    own = tuple(private)
    parts = (
        _rule("allow", "file-read*", _below((*_SYSTEM, *walls.readable, *walls.writable, *own))),
        _rule("allow", "file-write*", _below((*walls.writable, *own))),
        _rule("deny", "file-write*", _below(walls.frozen)),
        _rule("deny", "file-write-unlink", (f"(literal {_quoted(path)})" for path in _kept(walls))),
        _rule("deny", "file-read* file-write*", _below(walls.hidden)),
        _rule("allow", "network-bind network-outbound", (f"(subpath {_quoted(path)})" for path in own)),
    )
    return _BASE + "".join(parts) + _NETWORK[walls.network]


def _kept(walls: Walls) -> Iterator[str]:
    """Yield the folders that may not be renamed, because a rule names the path of something below them."""
    closed = (*walls.frozen, *walls.hidden)
    yield from dict.fromkeys(
        folder for path in closed for folder in folders_above(path) if any(is_below(folder, w) for w in walls.writable)
    )


def _rule(action: str, operations: str, filters: Iterable[str]) -> str:
    lines = [f"  {each}" for each in filters]
    return "\n".join((f"({action} {operations}", *lines)) + ")\n" if lines else ""


def _below(paths: Iterable[str]) -> Iterator[str]:
    return (f"(subpath {_quoted(path)})" for path in paths)


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


class SeatbeltSandbox:
    """The sandbox of one session on macOS.

    folder   an empty private folder. The variables of commands name its folders `tmp` and `home`
    """

    def __init__(self, folder: str) -> None:
        self._home = PrivateHome(os.path.realpath(folder))

    @contextmanager
    def launch(self, command: Sequence[str], cwd: str, walls: Walls) -> Generator[Launch]:
        """Yield how a command is started within walls."""
        del cwd  # any folder can be entered
        variables = self._home.variables(walls)
        yield Launch((SANDBOX_EXEC, "-p", profile(walls, self._home.folders), *command), variables=variables)

    def close(self) -> None:
        """Do nothing: nothing is held."""
