"""Contain commands with Landlock and a filter of system calls, where no namespaces can be made.

A thread of its own restricts itself, starts the command and ends. The command inherits the restriction, and so does
everything that it starts. A rule of Landlock allows a folder with all that lies below, and no other rule can take back
a part of it. So a folder above something frozen or hidden may only be listed, and each of its entries gets a rule of
its own. Nothing can be made, renamed or deleted directly in such a folder.
https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
import stat
import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from enum import IntFlag
from functools import cache

from acp_agent.workspace.beneath import holding
from acp_agent.workspace.roots import is_below
from acp_agent.workspace.sandbox.metadata import serve
from acp_agent.workspace.sandbox.seccomp import filter_program
from acp_agent.workspace.sandbox.walls import Launch, NetworkReach, PrivateHome, Walls, folders_above

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, on every machine
_VERSION = 1
_PATH_BENEATH = 1
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER = 1, 1 << 3
_NO_NEW_PRIVILEGES, _DROP_FROM_BOUND = 38, 24
_CAPABILITY_VERSION = 0x20080522
_TRUNCATE_ABI, _NETWORK_ABI, SCOPE_ABI = 3, 4, 6
_TCP = 0b11  # bind and connect
_NAMELESS, _SCOPES = 0b01, 0b11  # abstract sockets; these and signals
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Without the folders of processes, which show the arguments of other processes.
_PROC = """
sys meminfo cpuinfo stat uptime loadavg version filesystems vmstat cgroups devices swaps pressure
""".split()  # noqa: SIM905 - a table


class Right(IntFlag):
    """The rights to files and folders, as the kernel numbers them."""

    EXECUTE = 1
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


_READ = Right.EXECUTE | Right.READ_FILE | Right.READ_DIR
_WRITE = (
    *(Right.WRITE_FILE, Right.TRUNCATE, Right.REFER, Right.REMOVE_DIR, Right.REMOVE_FILE),
    *(Right.MAKE_DIR, Right.MAKE_REG, Right.MAKE_SOCK, Right.MAKE_FIFO, Right.MAKE_SYM),
)
_CHANGE = _READ | sum(_WRITE, Right(0))
_DEVICE = Right.READ_FILE | Right.WRITE_FILE | Right.TRUNCATE | Right.IOCTL_DEV
_OF_FILES = Right.EXECUTE | _DEVICE


def known_rights(abi: int) -> Right:
    """Return the rights that a version of Landlock can refuse. It cannot restrict any others."""
    newest = Right.MAKE_SYM if abi < 2 else Right.REFER if abi < 3 else Right.TRUNCATE if abi < 5 else Right.IOCTL_DEV
    return Right((newest << 1) - 1)


@cache
def landlock_abi() -> int:
    """Return the version of Landlock in this kernel, or 0 if it has none or the filter is not known for the machine."""
    if os.uname().sysname != "Linux" or filter_program(internet=False, namespaces=False) is None:
        return 0
    return max(0, ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION)))


@cache
def landlock_works() -> bool:
    """Return whether commands can be contained here. It is tried once, in a thread that ends.

    The kernel allows only one filter that waits for answers. So it does not work in a container that has one, or if the
    agent itself runs within walls like these.
    """
    program = filter_program(internet=False, namespaces=False)
    if not landlock_abi() or program is None:
        return False

    def tried() -> None:
        with holding(_new_ruleset(landlock_abi(), tcp=False)) as ruleset:
            os.close(_confine(ruleset, program))

    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(tried).result()
    except OSError:
        return False
    return True


def landlock_limits(abi: int) -> tuple[str, ...]:
    """Return what this tier cannot do with a version of Landlock, in words for the user."""
    return (
        "no entry is made, renamed or deleted directly in a folder with protected files below (a repository's top)",
        "no command reaches another one on 127.0.0.1, and none makes a local socket or a terminal",
        "the usual folders for temporary files and shared memory are closed: TMPDIR names a private one",
        *(("commands can send signals to other processes of the user",) if abi < SCOPE_ABI else ()),
    )


def close_nameless_sockets() -> None:
    """Forbid local sockets without a path, which others made, to this thread and to all that it starts from now on.

    An X11 server listens on one, and a program that connects can type into any window. Before Linux 6.12 the kernel
    cannot close them, and this function does nothing. Raises OSError.
    """
    if landlock_abi() < SCOPE_ABI:
        return
    attributes = struct.pack("=3Q", 0, 0, _NAMELESS)
    with holding(_called(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))) as ruleset:
        _check(ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0))))
        _called(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))


def grants(walls: Walls) -> dict[str, Right]:
    """Return the rights that implement the walls, by path. A right also holds for everything below its path."""
    found: dict[str, Right] = {}
    for paths, rights in ((walls.readable, _READ), (walls.writable, _CHANGE)):
        closed = frozenset((*walls.hidden, *(walls.frozen if rights is _CHANGE else ())))
        above = frozenset(folder for path in closed for folder in folders_above(path))
        for path in paths:
            found |= dict(_around(path, rights, walls.hidden, closed, above))
    return found


def _around(
    path: str, rights: Right, hidden: Iterable[str], closed: frozenset[str], above: frozenset[str]
) -> Iterator[tuple[str, Right]]:
    """Yield a path with its rights, or its entries instead if something below it is closed.

    closed   the paths that may not be changed, and the hidden ones
    above    the folders with a closed path below
    """
    if path in closed:
        if path in hidden:
            return
        rights = _READ
    if path not in above:
        yield path, rights
        return
    yield path, Right.READ_DIR
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink():
                yield from _around(entry.path, rights, hidden, closed, above)


class LandlockSandbox:
    """The sandbox of one session.

    folder   an empty private folder. The variables of commands name its folders `tmp` and `home`
    abi      the version of Landlock to use, not above that of the kernel
    """

    def __init__(self, folder: str, abi: int | None = None) -> None:
        self._home = PrivateHome(folder)
        self._abi = landlock_abi() if abi is None else abi
        self._made: tuple[Walls, tuple[int, ...], int] | None = None  # walls, times of folders, and their ruleset

    @contextmanager
    def launch(self, command: Sequence[str], cwd: str, walls: Walls) -> Generator[Launch]:
        """Yield how a command is started within walls. It must be started in the body. Raises OSError."""
        del cwd  # unused: the walls let a command start in any folder
        variables = self._home.variables(walls)
        program = filter_program(
            internet=walls.network is NetworkReach.ALL, namespaces=False, truncation=self._abi < _TRUNCATE_ABI
        )
        assert program is not None  # landlock_abi is 0 otherwise
        ruleset = os.dup(self._ruleset(walls))  # a copy: the next command may close it before this one has started
        listeners: list[int] = []

        def confine() -> None:
            listeners.append(_confine(ruleset, program))

        try:
            yield Launch(tuple(command), variables=variables, confine=confine)
        finally:  # not in `confine`, because the thread that `serve` starts would be confined too
            os.close(ruleset)
            for listener in listeners:
                serve(listener, (*walls.writable, *self._home.folders), (*walls.frozen, *walls.hidden))

    def close(self) -> None:
        """Close the ruleset. Commands that run keep their walls."""
        made, self._made = self._made, None
        if made is not None:
            os.close(made[2])

    def _ruleset(self, walls: Walls) -> int:
        """Return the descriptor of a ruleset for these walls.

        It is made again if the walls changed, or if a folder whose entries have rules of their own did.
        """
        if self._made is not None:
            known, times, ruleset = self._made
            if known == walls and times == _times(walls):
                return ruleset
            self.close()
        times = _times(walls)  # before the folders are listed, so that a change during the listing is noticed
        ruleset = _new_ruleset(self._abi, tcp=walls.network is NetworkReach.ALL)
        try:
            allowed = grants(walls)
            allowed |= dict.fromkeys(self._home.folders, _CHANGE) | dict.fromkeys(_DEVICES, _DEVICE)
            allowed |= {f"/proc/{name}": _READ for name in _PROC}
            if walls.network is NetworkReach.ALL:
                allowed.setdefault(os.path.realpath("/etc/resolv.conf"), _READ)
            for path, rights in allowed.items():
                _allow(ruleset, path, rights & known_rights(self._abi))
        except BaseException:
            os.close(ruleset)
            raise
        self._made = walls, times, ruleset
        return ruleset


def _times(walls: Walls) -> tuple[int, ...]:
    """Return the times of the last changes of the folders whose entries have rules of their own."""
    seen = (*walls.writable, *walls.readable)
    closed = (*walls.hidden, *walls.frozen)
    folders = {
        folder for path in closed for folder in folders_above(path) if any(is_below(folder, each) for each in seen)
    }
    return tuple(_changed(folder) for folder in sorted(folders))


def _changed(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _new_ruleset(abi: int, *, tcp: bool) -> int:
    """Return the descriptor of a ruleset that refuses everything that this version can refuse. Raises OSError."""
    fields = [int(known_rights(abi))]
    if abi >= _NETWORK_ABI:
        fields.append(0 if tcp else _TCP)
    if abi >= SCOPE_ABI:
        fields.append(_SCOPES)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _called(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    os.set_inheritable(ruleset, False)
    return ruleset


def _allow(ruleset: int, path: str, rights: Right) -> None:
    """Add a rule for a path. Add none if the path is gone or has become a link. Raises OSError."""
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    with holding(fd):
        mode = os.fstat(fd).st_mode
        rights = rights if stat.S_ISDIR(mode) else rights & _OF_FILES
        if rights and not stat.S_ISLNK(mode):
            rule = struct.pack("=Qi", rights, fd)
            _called(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0))


def _confine(ruleset: int, program: bytes) -> int:
    """Put the walls around this thread and all that it starts from now on. Raises OSError.

    Return the descriptor by which calls ask for an answer.
    """
    library = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _drop_capabilities(library)
    _check(library.prctl(_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0))))
    _called(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    number = _SECCOMP[os.uname().machine]
    return _called(number, ctypes.c_uint(_SET_FILTER), ctypes.c_uint(_NEW_LISTENER), filter_)


def _drop_capabilities(library: ctypes.CDLL) -> None:
    """Take the capabilities of root from this thread, for good. Raises OSError."""
    if os.geteuid() == 0:
        number = 0
        while library.prctl(_DROP_FROM_BOUND, *map(ctypes.c_ulong, (number, 0, 0, 0))) == 0:
            number += 1
        header, none = struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)
        _check(library.capset(header, none))


def _called(number: int, *arguments: object) -> int:
    return _check(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments))


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
