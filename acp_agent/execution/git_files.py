"""What git's index says of the files of a repository that may hold secrets. Nothing here runs git."""

import os
import stat
from collections.abc import Iterator, Mapping

from acp_agent.core.secret_files import secrecy
from acp_agent.execution import git_index
from acp_agent.execution.git_folder import Looks
from acp_agent.gates.git_config_reader import NotReadable
from acp_agent.gates.verify.reading import Known

_HASHES = (20, 32)


class GitFiles:
    """The files in the index of one repository. Raises ValueError or NotReadable where git finds none.

    top      its worktree, absolute
    looks    what was read, and whether that is still the same
    """

    def __init__(self, top: str) -> None:
        self.top = top
        self.looks = Looks()
        self._folder = _git_folder(top, self.looks)
        self._common = self.looks.common(self._folder)
        self._folders = set[str]()
        self._secrets: Mapping[str, git_index.Entry] = {
            entry.path: entry for entry in self._entries() if self._notes(entry)
        }

    def known(self, wanted: Known) -> Iterator[str]:
        """Yield the absolute paths of the secrets in the index of which git knows one of these."""
        for entry in self._secrets.values():
            path = os.path.join(self.top, entry.path)
            if (
                Known.TRACKED in wanted
                or (Known.CHANGED in wanted and _is_changed(path, entry))
                or (Known.STAGED in wanted and self._is_staged(entry))
            ):
                yield path

    def holds(self, path: str) -> bool:
        """Return whether a secret is in the index, by its absolute path."""
        return os.path.relpath(path, self.top) in self._secrets

    def holds_below(self, folder: str) -> bool:
        """Return whether the index has files below a folder, so that this is no repository of its own to git."""
        return os.path.relpath(folder, self.top) in self._folders

    def _notes(self, entry: git_index.Entry) -> bool:
        folder = os.path.dirname(entry.path)
        while folder and folder not in self._folders:
            self._folders.add(folder)
            folder = os.path.dirname(folder)
        return not entry.is_repository and bool(secrecy(os.path.join(self.top, entry.path)))

    def _entries(self) -> Iterator[git_index.Entry]:
        try:
            listed = [each.path for each in self.looks.entries(self._folder)]
        except NotReadable:
            listed = []
        shared = [path for path in listed if os.path.basename(path).startswith("sharedindex.")]
        for path in (os.path.join(self._folder, "index"), *shared):
            try:
                data = self.looks.content(path, git_index.MAX_BYTES)
            except NotReadable:
                continue
            yield from _read(data) if data else ()

    def _is_staged(self, entry: git_index.Entry) -> bool:
        """Return whether the content came after the last commit: its object is newer than the log of HEAD."""
        made = self._changed(os.path.join(self._common, "objects", entry.name[:2], entry.name[2:]))
        return made > self._changed(os.path.join(self._folder, "logs", "HEAD"))

    @staticmethod
    def _changed(path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns
        except OSError:
            return 0


def holds_repository(folder: str) -> bool:
    """Return whether a folder has a `.git` that git takes for a repository's."""
    looks = Looks()
    try:
        return looks.is_git_folder(_git_folder(folder, looks))
    except (ValueError, NotReadable):
        return False


def _git_folder(top: str, looks: Looks) -> str:
    dot = os.path.join(top, ".git")
    if looks.is_folder(dot):
        return dot
    return os.path.realpath(os.path.join(top, looks.line(dot).removeprefix("gitdir: ")))


def _read(data: bytes) -> list[git_index.Entry]:
    """Return the files of an index, whatever the size of its hashes; none of one that cannot be read."""
    for size in _HASHES:
        try:
            found = [*git_index.entries(data, size)]
        except (ValueError, OverflowError):
            continue
        if all(stat.S_IFMT(entry.mode) for entry in found):
            return [entry for entry in found if entry.path]
    return []


def _is_changed(path: str, entry: git_index.Entry) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    seconds, nanoseconds = divmod(status.st_mtime_ns, 1_000_000_000)
    if status.st_size & 0xFFFFFFFF != entry.size or seconds & 0xFFFFFFFF != entry.seconds:
        return True
    return bool(nanoseconds and entry.nanoseconds and nanoseconds != entry.nanoseconds)
