"""Places nothing may wipe: system folders, home folders, disks."""

import posixpath
import re
from fnmatch import fnmatchcase

from acp_agent.gates.shell.tables import tables

_HOMES = ("home", "Users")
_EVERYTHING = re.compile(r"[*?.\[\]!^{},]*")
_HOME_ITSELF = re.compile(r"~[\w.-]*")
_DISK = re.compile(
    r"/dev/(?:r?(?:sd|hd|vd|xvd|nvme|mmcblk|disk|dm-|md|loop|ram|zram|sr|nbd|fd\d)|mapper/|disk/|block/|mem$|kmem$|port$)|/proc/sysrq-trigger$"
)
_SOCKET = re.compile(r"/dev/(?:tcp|udp)/")

MAX_PATTERN = 64
"""Characters of one folder name of a path; no system folder has a longer one."""


def is_disk(path: str) -> bool:
    """Whether a path is a disk, a partition, the machine's memory or its off switch. Patterns like /dev/sd* count."""
    return _DISK.match(_collapsed(path)) is not None


def is_socket(path: str) -> bool:
    """Whether bash would open a network connection for this redirection target."""
    return _SOCKET.match(_collapsed(path)) is not None


def is_system_root(path: str, folder: str = "") -> bool:
    """Return whether wiping a path wipes the system or a home: see `system_root`."""
    return bool(system_root(path, folder))


def system_root(path: str, folder: str = "") -> str:
    """Return what is wiped with a path: `~` for a home, a folder of the system, `/`; empty for nothing of the kind.

    `/`, `/*`, `//etc/.`, `~`, `/home/anyone` and `/e*c` are all found. `folder` is where a relative path starts, when
    that is known.
    """
    if not path.startswith(("/", "~")):
        if not folder:
            return ""
        path = posixpath.join(folder, path)
    if path.startswith("~"):
        home, _, rest = path.partition("/")
        inside = [part for part in rest.split("/") if part not in ("", ".")]
        return "~" if _HOME_ITSELF.fullmatch(home) and all(_EVERYTHING.fullmatch(part) for part in inside) else ""
    parts = [part for part in _collapsed(path).split("/") if part]
    while parts and _EVERYTHING.fullmatch(parts[-1]):
        parts.pop()
    if len(parts) == 2 and parts[0] in _HOMES:
        return "~"
    roots = sorted(tables().danger["system"])  # "/" first, which a pattern such as `/*` means as well
    return next((root for root in roots if _same(parts, root.split("/")[1:] if root != "/" else [])), "")


def _same(parts: list[str], known: list[str]) -> bool:
    if len(parts) != len(known) or any(len(part) > MAX_PATTERN for part in parts):
        return False
    return all(fnmatchcase(name, part) for name, part in zip(known, parts, strict=True))


def _collapsed(path: str) -> str:
    """`//etc/./x/..` as `/etc`."""
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else path
