"""Opening a file below a directory without ever following a link (security.md 2.4).

Two ways with one contract: `KernelOpener` asks the kernel (openat2, Linux 5.6), `WalkOpener` opens one component
after the other. Both take a path that is already resolved, so an honest path has no link left in it and a link
found on the way was swapped in meanwhile: that is ELOOP.
"""

import ctypes
import errno
import os
import stat
import sys
from typing import Protocol

_OPENAT2 = 437
# From 5.1 on new system calls have one number on every architecture but alpha and mips.
_MACHINES = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "loongarch64", "armv7l", "i686")
_NO_MAGIC_LINKS = 0x02
_NO_SYMLINKS = 0x04
_BENEATH = 0x08
_TRIES = 16
_LONGEST = 4095  # the kernel's own limit, for the walk to have one too
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _ALWAYS


class Opener(Protocol):
    """Opens `relative` below the directory `root_fd`."""

    def __call__(self, root_fd: int, relative: str, flags: int) -> int:
        """A new fd, close-on-exec. `relative` is "." or a path without "..", ".", or a leading slash.

        Raises OSError; ELOOP or EXDEV when the path turned out to have a link in it or to lead away.
        """
        ...


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class KernelOpener:
    """openat2 with BENEATH, NO_SYMLINKS and NO_MAGICLINKS: one system call, no race left."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def __call__(self, root_fd: int, relative: str, flags: int) -> int:
        how = _OpenHow(flags | _ALWAYS, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGIC_LINKS)
        path = ctypes.c_char_p(os.fsencode(relative))
        code = 0
        for _ in range(_TRIES):
            fd = self._libc.syscall(
                ctypes.c_long(_OPENAT2),
                ctypes.c_long(root_fd),
                path,
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
            if fd >= 0:
                return fd
            code = ctypes.get_errno()
            if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: something was renamed while the kernel looked
                break
        raise OSError(code, os.strerror(code), relative)


class WalkOpener:
    """One component at a time, each opened from its parent's fd and never through a link."""

    def __call__(self, root_fd: int, relative: str, flags: int) -> int:
        if len(os.fsencode(relative)) > _LONGEST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), relative)
        *parents, last = relative.split("/")
        at = root_fd
        try:
            for name in parents:
                deeper = _step(at, name, _STEP)
                if at != root_fd:
                    os.close(at)
                at = deeper
            return _step(at, last, flags | _ALWAYS)
        finally:
            if at != root_fd:
                os.close(at)


def _step(at: int, name: str, flags: int) -> int:
    if name == "..":
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    try:
        return os.open(name, flags, dir_fd=at)
    except NotADirectoryError:
        # What a link gives to O_DIRECTORY; tell it from an honest file.
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def best_opener(root_fd: int) -> Opener:
    """The kernel's way where it works on this machine, tried on the root itself; else the walk."""
    if sys.platform == "linux" and os.uname().machine in _MACHINES:
        kernel = KernelOpener()
        try:
            os.close(kernel(root_fd, ".", os.O_RDONLY | os.O_DIRECTORY))
        except OSError as error:
            # Old kernels know no openat2, some containers forbid it. A root we may not read is another matter.
            if error.errno in (errno.ENOSYS, errno.EPERM):
                return WalkOpener()
        return kernel
    return WalkOpener()
