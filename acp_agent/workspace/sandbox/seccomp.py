"""The system calls that a contained command may not make, as a program for the kernel's filter (seccomp).

The namespaces and Landlock hide files, processes and networks. This filter closes the doors through which a process
could get around them or reach faults of the kernel: mounts, new namespaces, keys, BPF, io_uring, the input of a
terminal, and rare kinds of sockets. https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import platform
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from acp_agent.workspace.sandbox.metadata import metadata_calls

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NOTIFY = 0x7FC00000
_EPERM, _ENOSYS, _EOPNOTSUPP, _EAFNOSUPPORT = 1, 38, 95, 97
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_NEW_NAMESPACES = 0x7E020000  # the CLONE_NEW... flags
_X32 = 0x40000000  # system calls of x86-64 with short pointers
_REQUESTS = (0x5412, 0x541C, 0x40086602, 0x401C5820)  # TIOCSTI, TIOCLINUX, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR
_TYPE, _STREAM = 0xF, 1  # of a socket
_LOCAL_FAMILIES = (1, 16)  # AF_UNIX, AF_NETLINK
_INTERNET_FAMILIES = (2, 10)  # AF_INET, AF_INET6


class _Machine(NamedTuple):
    """The differences between machines: the name in AUDIT_ARCH_..., and the numbers of system calls.

    refused    calls that no contained command may make
    shared     calls of memory, semaphores and queues that all processes of the system share
    attributes calls that change further attributes of files
    others     calls that set limits or the scheduling of the process in their first argument
    priorities like `others`, with the process in their second argument
    truncate   the call that empties a file by its path
    opens      the calls that open a file, each with the number of the argument that says how
    """

    architecture: int
    clone: int
    ioctl: int
    socket: int
    pair: int
    refused: tuple[int, ...]
    shared: tuple[int, ...]
    attributes: tuple[int, ...]
    others: tuple[int, ...]
    priorities: tuple[int, ...]
    truncate: int
    opens: tuple[tuple[int, int], ...]
    has_x32: bool = False


_COMMON = (*range(428, 434), *range(425, 428), 438, 442, 467)  # mounts by descriptor, io_uring, pidfd_getfd
_CLONE3, _OPENAT2 = 435, 437
_EMPTIED, _HOW = 0x200, 3  # O_TRUNC, O_ACCMODE
_MACHINES = {
    # ptrace is left out: it reaches the command's own processes only, and debuggers need it.
    "x86_64": _Machine(
        0xC000003E, clone=56, ioctl=16, socket=41, pair=53, has_x32=True,
        refused=(
            *(155, 161, 163, 164, 165, 166, 167, 168, 169),  # pivot_root, chroot, mount, swap, reboot ...
            *(103, 175, 176, 179, 246, 248, 249, 250, 272),  # syslog, modules, quotactl, kexec, keys, unshare
            *(298, 303, 304, 308, 310, 311, 312, 313, 320, 321, 323),  # perf, handles, setns, process_vm, kcmp, bpf
            *_COMMON,
        ),
        shared=(29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220, 240, 241),
        others=(142, 144, 203, 302, 314), priorities=(141, 251), truncate=76, opens=((2, 1), (257, 2)),
        attributes=(188, 189, 190, 197, 198, 199, 463, 466, 469),
    ),
    "aarch64": _Machine(
        0xC00000B7, clone=220, ioctl=29, socket=198, pair=199,
        refused=(
            *(39, 40, 41, 51, 60, 89, 97, 104, 105, 106, 116, 142, 170, 217, 218, 219, 224, 225),
            *(241, 264, 265, 268, 270, 271, 272, 273, 280, 282, 294),
            *_COMMON,
        ),
        shared=(*range(186, 197), 180, 181),
        others=(118, 119, 122, 261, 274), priorities=(140, 30), truncate=45, opens=((56, 2),),
        attributes=(5, 6, 7, 14, 15, 16, 463, 466, 469),
    ),
}  # fmt: skip


def filter_program(*, internet: bool, namespaces: bool, truncation: bool = False) -> bytes | None:
    """Return the filter as an array of struct sock_filter, or None for a machine whose numbers are not known here.

    internet     whether sockets of the internet may be made
    namespaces   whether the processes have namespaces of their own. If not, the filter refuses local sockets (a server
                 behind one could act for them), shared memory and limits of other processes, and the calls of
                 `metadata` wait for an answer
    truncation   whether the filter refuses to empty files that are opened for reading only: old Landlocks do not
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    families = (*(_LOCAL_FAMILIES if namespaces else ()), *(_INTERNET_FAMILIES if internet else ()))
    own = () if namespaces else _own_steps(machine)
    if truncation:
        own = (*_truncation_steps(machine), *own)
    return b"".join(struct.pack("<HBBI", *step) for step in _steps(machine, families, own))


_Step: TypeAlias = tuple[int, int, int, int]
"""The code, the steps to skip if the comparison holds, the steps to skip if not, and the operand."""
_REFUSE: _Step = (_RETURN, 0, 0, _ERRNO | _EPERM)
_PERMIT: _Step = (_RETURN, 0, 0, _ALLOW)


def _steps(machine: _Machine, families: Iterable[int], own: Iterable[_Step]) -> Iterator[_Step]:
    """Yield the steps of the filter. The steps `own` come while the number of the call is loaded."""
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _EQUAL, 1, 0, machine.architecture
    yield _REFUSE  # the calls of another architecture have other numbers
    yield _LOAD, 0, 0, _NUMBER
    if machine.has_x32:
        yield _AT_LEAST, 0, 1, _X32
        yield _REFUSE
    for number in machine.refused:
        yield _EQUAL, 0, 1, number
        yield _REFUSE
    yield _EQUAL, 0, 1, _CLONE3  # its flags are in memory, which a filter cannot read; libraries then use clone
    yield _RETURN, 0, 0, _ERRNO | _ENOSYS
    yield from own
    yield _EQUAL, 0, 4, machine.clone
    yield _LOAD, 0, 0, _ARGUMENTS
    yield _ANY_BIT, 0, 1, _NEW_NAMESPACES
    yield _REFUSE
    yield _PERMIT
    yield _EQUAL, 0, 2 + 2 * len(_REQUESTS), machine.ioctl
    yield _LOAD, 0, 0, _ARGUMENTS + 8
    for request in _REQUESTS:
        yield _EQUAL, 0, 1, request
        yield _REFUSE
    yield _PERMIT
    allowed = tuple(families)
    yield _EQUAL, 0, 2 + 2 * len(allowed), machine.socket
    yield _LOAD, 0, 0, _ARGUMENTS
    for family in allowed:
        yield _EQUAL, 0, 1, family
        yield _PERMIT
    yield _RETURN, 0, 0, _ERRNO | _EAFNOSUPPORT
    yield _PERMIT


def _truncation_steps(machine: _Machine) -> Iterator[_Step]:
    """Yield the steps for a Landlock that does not see how a file is emptied. The number of the call stays loaded."""
    yield _EQUAL, 0, 1, machine.truncate
    yield _REFUSE
    yield _EQUAL, 0, 1, _OPENAT2  # its flags are in memory, as those of clone3
    yield _RETURN, 0, 0, _ERRNO | _ENOSYS
    for number, argument in machine.opens:
        yield _EQUAL, 0, 5, number
        yield _LOAD, 0, 0, _ARGUMENTS + 8 * argument
        yield _AND, 0, 0, _EMPTIED | _HOW
        yield _EQUAL, 0, 1, _EMPTIED  # it is opened for reading only
        yield _REFUSE
        yield _PERMIT


def _own_steps(machine: _Machine) -> Iterator[_Step]:
    """Yield the steps for processes without namespaces of their own. The number of the call stays loaded."""
    for number in machine.shared:
        yield _EQUAL, 0, 1, number
        yield _REFUSE
    for number in machine.attributes:
        yield _EQUAL, 0, 1, number
        yield _RETURN, 0, 0, _ERRNO | _EOPNOTSUPP
    for number in metadata_calls():
        yield _EQUAL, 0, 1, number
        yield _RETURN, 0, 0, _NOTIFY
    for argument, numbers in ((0, machine.others), (1, machine.priorities)):
        for number in numbers:
            yield _EQUAL, 0, 4, number
            yield _LOAD, 0, 0, _ARGUMENTS + 8 * argument
            yield _EQUAL, 0, 1, 0  # the process itself
            yield _PERMIT
            yield _REFUSE
    yield _EQUAL, 0, 5, machine.pair
    yield _LOAD, 0, 0, _ARGUMENTS + 8
    yield _AND, 0, 0, _TYPE
    yield _EQUAL, 1, 0, _STREAM  # sockets of other types can send to any address
    yield _REFUSE
    yield _PERMIT
