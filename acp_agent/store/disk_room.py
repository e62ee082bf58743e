"""Room on the disk for what a file will be appended to, set aside before it is needed."""

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import TypeAlias, cast

_Fallocate: TypeAlias = Callable[[int, int, int, int], int]

_KEEP_SIZE = 1  # the file's length stays what it is
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENODEV})


def set_aside(fd: int, size: int) -> None:
    """Have the next `size` bytes behind the end of an open file on its disk, whatever else fills it meanwhile.

    Where the file system cannot promise that, look whether there is as much room now. Raises OSError when there is not.
    """
    end = os.fstat(fd).st_size
    call = _fallocate()
    code = errno.ENOSYS
    while call is not None:
        if call(fd, _KEEP_SIZE, end, size) == 0:
            return
        code = ctypes.get_errno()
        if code != errno.EINTR:
            break
    if code not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code))
    room = os.fstatvfs(fd)
    if room.f_blocks > 0 and room.f_bavail * room.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@cache
def _fallocate() -> _Fallocate | None:
    """Return Linux's call, with 64-bit offsets; None where there is no such call."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return cast("_Fallocate | None", call)
