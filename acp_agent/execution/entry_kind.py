"""What an entry is, by its own status and never by what it points at."""

import os
import stat

from acp_agent.core.backends import EntryKind


def kind_of(mode: int) -> EntryKind:
    """The kind of an entry, by its lstat mode."""
    match stat.S_IFMT(mode):
        case stat.S_IFDIR:
            return EntryKind.DIRECTORY
        case stat.S_IFREG:
            return EntryKind.FILE
        case stat.S_IFLNK:
            return EntryKind.SYMLINK
        case _:
            return EntryKind.OTHER


def kind_of_entry(entry: "os.DirEntry[str]") -> EntryKind:
    """The kind of a scanned entry, without a system call where the directory itself tells; OTHER when it vanished."""
    if entry.is_symlink():
        return EntryKind.SYMLINK
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.DIRECTORY
    return EntryKind.FILE if entry.is_file(follow_symlinks=False) else EntryKind.OTHER
