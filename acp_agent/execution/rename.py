"""Renaming that never replaces anything (T4.20).

The kernel does it in one step: renameat2 with RENAME_NOREPLACE on Linux, renameatx_np with RENAME_EXCL on macOS.
Where the call or the file system cannot, a file gets its new name as a hard link, which fails when the name is
taken, and then loses the old one. For a directory, and where there are no hard links, the new name is looked at
before an ordinary rename: something that appears in between is then replaced if it is a file or an empty directory.
"""

import contextlib
import ctypes
import errno
import os
import stat
import sys

_CALLS = {"linux": ("renameat2", 1), "darwin": ("renameatx_np", 4)}  # name, the flag that forbids replacing
# No such call, a sandbox that forbids it, a file system that does not know the flag.
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ENOTSUP})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})


def rename_new(from_fd: int, old: str, to_fd: int, new: str) -> None:
    """Give the entry `old` of one directory the name `new` in another. A link is renamed itself.

    Raises OSError: FileExistsError when the name is taken, EXDEV between file systems, EINVAL for a directory into
    itself.
    """
    name, flag = _CALLS.get(sys.platform, ("", 0))
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None) if name else None
    code = errno.ENOSYS
    if call is not None:
        if call(from_fd, ctypes.c_char_p(os.fsencode(old)), to_fd, ctypes.c_char_p(os.fsencode(new)), flag) == 0:
            return
        code = ctypes.get_errno()
    if code not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code), new)
    rename_new_by_steps(from_fd, old, to_fd, new)


def rename_new_by_steps(from_fd: int, old: str, to_fd: int, new: str) -> None:
    """`rename_new` where the kernel has no such call."""
    is_directory = stat.S_ISDIR(os.stat(old, dir_fd=from_fd, follow_symlinks=False).st_mode)
    if not is_directory and _linked(from_fd, old, to_fd, new):
        try:
            os.unlink(old, dir_fd=from_fd)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                os.unlink(new, dir_fd=to_fd)
            raise
        return
    with contextlib.suppress(FileNotFoundError):
        os.stat(new, dir_fd=to_fd, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
    os.rename(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd)


def _linked(from_fd: int, old: str, to_fd: int, new: str) -> bool:
    """Whether the entry has the new name too, as a hard link. False where there are none."""
    try:
        os.link(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            return False
        raise
    return True
