"""The system calls that a contained command may not make, as a program for the kernel's filter (seccomp).

The namespaces and Landlock hide files, processes and networks. This filter closes the doors through which a process
could get around them or reach faults of the kernel: mounts, new namespaces, keys, BPF, io_uring, the input of a
terminal, and rare kinds of sockets. https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import platform
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_NEW_NAMESPACES = 0x7E020000  # the CLONE_NEW... flags
_X32 = 0x40000000  # system calls of x86-64 with short pointers
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX
_LOCAL_FAMILIES = (1, 16)  # AF_UNIX, AF_NETLINK
_INTERNET_FAMILIES = (2, 10)  # AF_INET, AF_INET6


class _Machine(NamedTuple):
    """What differs between machines: the name in AUDIT_ARCH_..., and the numbers of system calls."""

    architecture: int
    clone: int
    ioctl: int
    socket: int
    refused: tuple[int, ...]
    has_x32: bool = False


_COMMON = (*range(428, 434), *range(425, 428), 438, 442, 467)  # mounts by descriptor, io_uring, pidfd_getfd
_CLONE3 = 435
_MACHINES = {
    # ptrace is left out: it reaches the command's own processes only, and debuggers need it.
    "x86_64": _Machine(
        0xC000003E, clone=56, ioctl=16, socket=41, has_x32=True,
        refused=(
            *(155, 161, 163, 164, 165, 166, 167, 168, 169),  # pivot_root, chroot, mount, swap, reboot ...
            *(103, 175, 176, 179, 246, 248, 249, 250, 272),  # syslog, modules, quotactl, kexec, keys, unshare
            *(298, 303, 304, 308, 310, 311, 312, 313, 320, 321, 323),  # perf, handles, setns, process_vm, kcmp, bpf
            *_COMMON,
        ),
    ),
    "aarch64": _Machine(
        0xC00000B7, clone=220, ioctl=29, socket=198,
        refused=(
            *(39, 40, 41, 51, 60, 89, 97, 104, 105, 106, 116, 142, 170, 217, 218, 219, 224, 225),
            *(241, 264, 265, 268, 270, 271, 272, 273, 280, 282, 294),
            *_COMMON,
        ),
    ),
}  # fmt: skip


def filter_program(*, internet: bool) -> bytes | None:
    """Return the filter as an array of struct sock_filter, or None for a machine whose numbers are not known here.

    internet   whether sockets of the internet may be made
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    families = (*_LOCAL_FAMILIES, *(_INTERNET_FAMILIES if internet else ()))
    return b"".join(struct.pack("<HBBI", *step) for step in _steps(machine, families))


def _steps(machine: _Machine, families: Iterable[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the steps: code, steps to skip if the comparison holds, steps to skip if not, operand."""
    refuse = (_RETURN, 0, 0, _ERRNO | _EPERM)
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _EQUAL, 1, 0, machine.architecture
    yield refuse  # the calls of another architecture have other numbers
    yield _LOAD, 0, 0, _NUMBER
    if machine.has_x32:
        yield _AT_LEAST, 0, 1, _X32
        yield refuse
    for number in machine.refused:
        yield _EQUAL, 0, 1, number
        yield refuse
    yield _EQUAL, 0, 1, _CLONE3  # its flags are in memory, which a filter cannot read; libraries then use clone
    yield _RETURN, 0, 0, _ERRNO | _ENOSYS
    yield _EQUAL, 0, 4, machine.clone
    yield _LOAD, 0, 0, _ARGUMENTS
    yield _ANY_BIT, 0, 1, _NEW_NAMESPACES
    yield refuse
    yield _RETURN, 0, 0, _ALLOW
    yield _EQUAL, 0, 2 + 2 * len(_TERMINAL_INPUT), machine.ioctl
    yield _LOAD, 0, 0, _ARGUMENTS + 8
    for request in _TERMINAL_INPUT:
        yield _EQUAL, 0, 1, request
        yield refuse
    yield _RETURN, 0, 0, _ALLOW
    allowed = tuple(families)
    yield _EQUAL, 0, 2 + 2 * len(allowed), machine.socket
    yield _LOAD, 0, 0, _ARGUMENTS
    for family in allowed:
        yield _EQUAL, 0, 1, family
        yield _RETURN, 0, 0, _ALLOW
    yield _RETURN, 0, 0, _ERRNO | _EAFNOSUPPORT
    yield _RETURN, 0, 0, _ALLOW
