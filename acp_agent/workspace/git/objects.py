"""A private git repository that keeps the contents of files for `/undo`.

The repository lies in the data folder (0700), never in the user's tree. Its objects hold the contents byte for byte. A
few files are written as loose objects by this module. Many at once go through `git update-index`, which packs them and
leaves an index, so that the next session need not read unchanged files again. Git runs without the configuration of
the user or the system, and the attributes and filters of the checkout do not apply.
"""

import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import weakref
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple, TypeAlias

from acp_agent.core.new_file import NewFile, open_folder
from acp_agent.core.untrusted import now_ns
from acp_agent.workspace.beneath import holding
from acp_agent.workspace.git.index import read_entries
from acp_agent.workspace.roots import Root

SETTLED = 20_000_000
"""Nanoseconds in which another change may not show: one tick of the file system's clock."""


class SnapshotOff(Exception):
    """The error if a folder cannot be looked at or its contents cannot be kept. The text tells the user why."""


class SnapshotLimits(NamedTuple):
    """The largest file whose content is kept, the most bytes of all contents of one root, and days that they last."""

    file_bytes: int = 10_000_000
    bytes: int = 1_000_000_000
    days: float = 7.0


_GIT_SECONDS = 60.0
_BATCH = 5000
"""Files that one run of git stores."""
_GUARDS = (
    *("--no-pager", "--literal-pathspecs", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "core.autocrlf=false", "-c", "core.safecrlf=false", "-c", "core.protectNTFS=false"),
    *("-c", "core.protectHFS=false", "-c", "core.fileMode=true", "-c", "core.symlinks=true"),
    *("-c", "core.trustctime=true", "-c", "core.splitIndex=false", "-c", "core.sparseCheckout=false"),
    *("-c", "core.bigFileThreshold=1", "-c", "core.compression=1", "-c", "core.fsync=none", "-c", "index.version=2"),
    *("-c", "index.sparse=false", "-c", "gc.auto=0", "-c", "pack.compression=1", "-c", "pack.window=0"),
)
_NAMES = re.compile(rb'"([0-9a-f]{40})"')
_ALONE = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "XDG_CONFIG_HOME": "/dev/null",
    "HOME": "/dev/null",
    "LC_ALL": "C",
}
_ATTRIBUTES = "* -text -ident -filter -eol -crlf !working-tree-encoding\n"

IndexStamp: TypeAlias = tuple[int, int, int, int]
"""Modification and status time in ns, size and inode, the latter two as the index keeps them: modulo 2 to the 32."""


class ObjectStore:
    """A private git repository that keeps contents. Its methods block; worker threads may share it.

    folder   its git folder, made with mode 0700
    held     whether to lock it, so that `prune_stores` does not remove it
    """

    def __init__(self, folder: str, *, held: bool = True) -> None:
        """Open or make the repository. Raises SnapshotOff."""
        self.folder = folder
        self._release: weakref.finalize[[int], ObjectStore] | None = None
        self._git = shutil.which("git") or ""
        if not self._git:
            raise SnapshotOff("git is not installed")
        try:
            for name in ("objects", "refs", "info", "sessions"):
                os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)
            for name, text in (
                ("config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"),
                ("info/attributes", _ATTRIBUTES),
                ("HEAD", "ref: refs/heads/none\n"),
                ("pruned", ""),
            ):
                if not os.path.exists(os.path.join(folder, name)):
                    self._write(name, text.encode())
            if held:
                lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._release = weakref.finalize(self, os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_SH)
                os.utime(lock)
        except OSError as error:
            raise SnapshotOff(f"{folder} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Release the repository. It is safe to call twice."""
        if self._release is not None:
            self._release()

    def wants(self, size: int) -> bool:
        """Return True: only the disk limits the contents."""
        del size
        return True

    def put(self, data: bytes) -> str:
        """Keep these bytes and return the name of their object. Raises SnapshotOff."""
        return self.put_object(b"blob", data)

    def put_object(self, kind: bytes, data: bytes) -> str:
        """Keep an object of git and return its name. Raises SnapshotOff."""
        name = object_name(data, kind)
        path = os.path.join("objects", name[:2], name[2:])
        if not os.path.exists(os.path.join(self.folder, path)):
            try:
                packed = zlib.compressobj(1)
                parts = [packed.compress(b"%s %d\0" % (kind, len(data))), packed.compress(data), packed.flush()]
                self._write(path, b"".join(parts))
            except OSError as error:
                raise SnapshotOff(f"{self.folder} cannot be written: {error.strerror}") from error
        return name

    def get(self, names: Collection[str]) -> dict[str, bytes]:
        """Return the contents of objects. Those that are gone are left out."""
        found, packed = dict[str, bytes](), list[str]()
        for name in dict.fromkeys(names):
            try:
                with open(os.path.join(self.folder, "objects", name[:2], name[2:]), "rb") as file:
                    found[name] = zlib.decompress(file.read()).partition(b"\0")[2]
            except (OSError, zlib.error):
                packed.append(name)
        if packed:
            with suppress(SnapshotOff):
                found |= _batch(self.run("cat-file", "--batch", given="".join(f"{name}\n" for name in packed).encode()))
        return found

    def stored(self, root: Root) -> Iterator[tuple[str, IndexStamp, str]]:
        """Yield what the index keeps of a folder: a file's path, stamp and object. Nothing if it cannot be read."""
        try:
            with open(index_file(self.folder, root), "rb") as file:
                written = os.fstat(file.fileno()).st_mtime_ns
                data = file.read()
        except OSError:
            return
        with suppress(ValueError):
            yield from _read_index(data, written)

    def add(self, root: Root, paths: Sequence[str]) -> None:
        """Keep many regular files, and note them in the index. Files that cannot be read may be missing there."""
        for start in range(0, len(paths), _BATCH):
            given = b"".join(os.fsencode(path) + b"\0" for path in paths[start : start + _BATCH])
            with suppress(OSError, SnapshotOff), open(os.path.join(self.folder, "adding"), "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):  # only a killed git leaves it behind
                    os.unlink(f"{index_file(self.folder, root)}.lock")
                self.run("update-index", "-z", "--add", "--remove", "--stdin", root=root, given=given)

    def run(self, *args: str, root: Root | None = None, given: bytes = b"") -> bytes:
        """Return what git prints. Raises SnapshotOff."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        variables |= _ALONE | {
            "GIT_DIR": self.folder,
            "GIT_WORK_TREE": self.folder if root is None else root.path,
            "GIT_INDEX_FILE": os.path.join(self.folder, "no-index") if root is None else index_file(self.folder, root),
        }
        try:
            return subprocess.run(
                [self._git, *_GUARDS, *args],
                cwd=self.folder if root is None else root.path,
                env=variables,
                input=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_GIT_SECONDS,
                check=True,
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise SnapshotOff(f"git failed: {type(error).__name__}") from error

    def _write(self, name: str, data: bytes) -> None:
        """Write a file in one step. Raises OSError."""
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open_folder(os.path.dirname(path)) as directory, closing(NewFile(directory, 0o600)) as new:
            new.write(data)
            with suppress(FileExistsError):  # another thread wrote the same object
                if not new.take_name(os.path.basename(path)):
                    new.replace(os.path.basename(path))


def index_file(folder: str, root: Root) -> str:
    """Return the path of the index of a root, in a repository's folder."""
    return os.path.join(folder, f"index-{hashlib.sha256(os.fsencode(root.path)).hexdigest()[:16]}")


def object_name(data: bytes, kind: bytes = b"blob") -> str:
    """Return the name that git gives to an object."""
    digest = hashlib.sha1(b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


def _batch(answer: bytes) -> dict[str, bytes]:
    """Return the contents in an answer of `git cat-file --batch`."""
    found, at = dict[str, bytes](), 0
    while at < len(answer):
        end = answer.index(b"\n", at)
        words = answer[at:end].split()
        at = end + 1
        if len(words) == 3:
            size = int(words[2])
            found[words[0].decode()] = answer[at : at + size]
            at += size + 1
    return found


def _read_index(data: bytes, written: int) -> Iterator[tuple[str, IndexStamp, str]]:
    """Yield the files of an index. Files that were written just before the index are left out. Raises ValueError."""
    for entry in read_entries(data):
        if entry.changed < written - SETTLED and stat.S_ISREG(entry.mode):
            modified = entry.seconds * 10**9 + entry.nanoseconds
            yield entry.path, (modified, entry.changed, entry.size, entry.inode), entry.name


_PRUNED = 24 * 3600.0
"""Seconds between two prunings of one repository."""


def prune_stores(parent: str, own: str, limits: SnapshotLimits) -> None:
    """Remove what is older or larger than the limits: whole repositories that were not used, and parts of `own`.

    parent   the folder of all repositories. Those that another process uses stay unchanged
    own      the repository that is about to be used
    """
    now = now_ns() / 1e9
    with suppress(OSError):
        for name in os.listdir(parent):
            folder = os.path.join(parent, name)
            lock = os.path.join(folder, "lock")
            with suppress(OSError, SnapshotOff):
                old = now - os.stat(lock).st_mtime > limits.days * 86400
                if not (old or (folder == own and os.stat(os.path.join(folder, "pruned")).st_mtime < now - _PRUNED)):
                    continue
                fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
                with holding(fd):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if old:
                        shutil.rmtree(folder)
                    else:
                        _prune(folder, now, limits)


def _prune(folder: str, now: float, limits: SnapshotLimits) -> None:
    """Delete old journals, then the oldest ones while the repository is too large, and all unused objects."""
    os.utime(os.path.join(folder, "pruned"))
    sessions = os.path.join(folder, "sessions")
    ages = {path: os.stat(path).st_mtime for name in os.listdir(sessions) if (path := os.path.join(sessions, name))}
    journals = sorted(ages, key=lambda path: ages[path])
    store = ObjectStore(folder, held=False)
    while True:
        while journals and ages[journals[0]] < now - limits.days * 86400:
            os.unlink(journals.pop(0))
        kept = set[str]()
        for path in journals:
            with open(path, "rb") as file:
                kept.update(each.decode() for each in _NAMES.findall(file.read()))
        for name in os.listdir(folder):
            if name.startswith("index-") and not name.endswith(".lock"):
                with open(os.path.join(folder, name), "rb") as file, suppress(ValueError):
                    kept.update(each[2] for each in _read_index(file.read(), 1 << 62))
        names = sorted(_existing(store, kept))
        lines = (b"100644 %08d\0" % number + bytes.fromhex(name) for number, name in enumerate(names))
        tree = store.put_object(b"tree", b"".join(lines))
        store.run("update-ref", "refs/undo/kept", tree)
        store.run("repack", "-a", "-d", "-q")
        store.run("prune", "--expire=now")
        if not journals or _size(folder) <= limits.bytes:
            return
        for path in journals[: len(journals) // 2 + 1]:
            os.unlink(path)
        del journals[: len(journals) // 2 + 1]


def _existing(store: ObjectStore, names: Iterable[str]) -> Iterator[str]:
    """Yield the names of objects that are there."""
    asked = "".join(f"{name}\n" for name in names).encode()
    for line in store.run("cat-file", "--batch-check", given=asked).splitlines() if asked else ():
        words = line.split()
        if len(words) == 3:
            yield words[0].decode()


def _size(folder: str) -> int:
    """Return the bytes of a repository on the disk."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(path, name)).st_blocks * 512
    return total
