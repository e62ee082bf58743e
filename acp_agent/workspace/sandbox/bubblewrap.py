"""Contain commands with bubblewrap: namespaces of their own, a read-only system, and a filter of system calls.

The commands of a session share one network, in which there is nothing but 127.0.0.1: a server and the request to it
meet, and no packet leaves. A small process holds that network until the session ends; a command enters it by nsenter
and then drops all capabilities. Hosts of `network_allow` are reached through a proxy in this process, whose socket
listens in that network. https://github.com/containers/bubblewrap
"""

import json
import os
import select
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, lru_cache
from typing import NamedTuple

from acp_agent.core.process_limits import restore_limits
from acp_agent.net.proxy import AllowlistProxy
from acp_agent.workspace.beneath import identity
from acp_agent.workspace.processes.table import MOST_TASKS
from acp_agent.workspace.processes.tree import claim, release
from acp_agent.workspace.roots import is_below
from acp_agent.workspace.sandbox.landlock import close_nameless_sockets
from acp_agent.workspace.sandbox.seccomp import filter_program
from acp_agent.workspace.sandbox.walls import Launch, NetworkReach, PrivateHome, Walls, folders_above, make_place

_SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/run/current-system/sw/bin:/usr/local/bin"  # AppArmor knows the first
_NEEDED = 5.0  # seconds that a trial or a holder may take
_MOST_HELD = 2  # walls that are kept: those of commands that only read, and those of others
_STARTED = 60.0  # seconds after which a command that was to start has started
_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_SOMEBODY = 1000  # the user and group ID within the sandbox where the agent runs as root
_NO_FILE = "/dev/null"
_SYSTEM_BASH = ("/usr/bin/bash", "/bin/bash")
_SETTINGS = "/proc/sys"  # root may write there without capabilities
_FOR_ROOT = ("/proc/bus", "/proc/irq", "/proc/sysrq-trigger")  # likewise. bubblewrap covers these itself beside --dev
_LISTEN = """
import socket
made = socket.create_server(("127.0.0.1", 0), backlog=256)
socket.send_fds(socket.socket(fileno=0), [b"."], [made.fileno()])
"""
_OF_THE_KERNEL = ("/proc", "/dev", _SETTINGS)
_ELSEWHERE = "acp-agent: the terminal is on another machine than the agent, which cannot build its sandbox there"
_PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_PROXY_VARIABLES = {
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
    "NODE_USE_ENV_PROXY": "1",
    "npm_config_cache": "/tmp/npm-cache",  # noqa: S108 - the session's own, because the user's is read-only
}
_NO_RETRIES = {"npm_config_fetch_retries": "0", "PIP_RETRIES": "0"}
"""The variables of a command that reaches no host. npm would try for 73 seconds before it says so, and pip for 12."""
_Mounts = Mapping[str, Sequence[str]]
"""By the path of a mount: bubblewrap's option for it and, unless it is a new file system, its source."""
_quoted, _joined = lru_cache(1000)(shlex.quote), lru_cache(64)(shlex.join)
"""Quote words for a shell. Most of them, and their order, are the same for all commands of a session."""
_ESCAPES = {ord(letter): f"\\{ord(letter):03o}" for letter in "\\ \t\n"}  # of mountinfo
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount point
_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # on many systems, links to folders in /usr
# The kernel counts the processes of each namespace for itself, so the limit is set within. It does not count those of
# root. When memory runs out, it first ends processes with a high score. In dash, the option -u is called -p.
_LIMITS = (
    f"{{ ulimit -u {MOST_TASKS} || ulimit -p {MOST_TASKS}; ulimit -c 0; "
    "echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null"
)
_MOVED = "acp-agent: files or folders were moved while the sandbox was built, so the command was not run; try again"
# bubblewrap finds folders by their names. A process of an earlier command could put a link in the place of one between
# two looks, which leads bubblewrap out of the walls. So the command begins only if everything was mounted as it should.
_LOOK = (
    f"""while [ "$1" != -- ]; do case $_mounts in *" $1 "*) shift ;; *) echo '{_MOVED}' >&2; exit 126 ;; esac; done"""
)
_CHECKED = f'_mounts=$(command -p cat /proc/self/mountinfo) || exit 126; {_LOOK}; shift; {_LIMITS}; exec "$@"'
# bash can look by itself, in the shell that then runs the command: that saves three programs. This text is an
# argument of its own and no part of the command, so that bash's errors name the lines of the command and quote little
# else. If the first line of the command cannot be parsed, bash runs neither that line nor this text.
_CHECKED_BY_BASH = f"shift; _mounts=$(</proc/self/mountinfo) || exit 126; %s; {_LOOK}; shift; {_LIMITS}; unset _mounts"


@cache
def bubblewrap() -> str:
    """Return the path of bubblewrap, or "" where it is missing or cannot make namespaces. It is tried once.

    It and nsenter are taken from the system's folders only: PATH may name one that the model can write to.
    """
    found = shutil.which("bwrap", path=_SYSTEM_PATH)
    if found is None:
        return ""
    # It is the first process of its namespace, so no process outlives it.
    trial = [found, *_NAMESPACES, "--as-pid-1", "--unshare-net", "--ro-bind", "/", "/"]
    return found if _succeeds([*trial, "--proc", "/proc", "--dev", "/dev", "true"]) and _nsenter() else ""


def _succeeds(trial: Sequence[str]) -> bool:
    """Run a program, and return whether it ends well in time."""
    try:
        tried = subprocess.run(trial, capture_output=True, check=False, timeout=_NEEDED, env={"PATH": _SYSTEM_PATH})
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


@cache
def _may_be_confined() -> bool:
    """Return whether bubblewrap works in a thread that can get no new privileges: not if it has to become root."""
    return os.geteuid() == 0 or not os.stat(bubblewrap()).st_mode & stat.S_ISUID


@cache
def _nsenter() -> str:
    return shutil.which("nsenter", path=_SYSTEM_PATH) or ""


def trusted_bash(environment: Mapping[str, str]) -> str:
    """Return the path of the bash that commands with these variables get, or "" if it may not look at the mounts.

    It may if it is the system's own, which no command can change, and if no variable makes it run something first.
    """
    found = shutil.which("bash", path=environment.get("PATH", ""))
    prepared = any(name.startswith(("BASH", "SHELLOPTS")) for name in environment)
    return found if found in _SYSTEM_BASH and not prepared else ""


def _next_bytes(pipe: int, until: float) -> bytes:
    """Return the next bytes of a pipe; none at its end, or if none come in time."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return os.read(pipe, 4096) if poll.poll(max(0.0, until - time.monotonic()) * 1000) else b""


def _ends(process: "subprocess.Popen[bytes]") -> bool:
    """Wait for the end of a process. Return False if it does not come in time."""
    try:
        process.wait(_NEEDED)
    except subprocess.TimeoutExpired:
        return False
    return True


class _Holder:
    """A process that holds namespaces until `close`: `cat`, within what bubblewrap has built.

    Raises OSError if it cannot be made.

    words    the words that start bubblewrap, without the program that it runs

    pid      the process
    told     a descriptor that `select.poll` reports once the process was killed
    """

    def __init__(self, words: Sequence[str]) -> None:
        reading, writing = os.pipe()
        with open(reading, "rb") as told:
            try:
                builder = _holder_builder(words, reading, writing)
            finally:
                os.close(writing)
            claim(builder.pid)
            until, answer = time.monotonic() + _NEEDED, b""
            while part := _next_bytes(told.fileno(), until):
                answer += part
        assert builder.stdin is not None
        assert builder.stdout is not None
        self.pid, self._pipes, ready = 0, (builder.stdin, builder.stdout), b""
        with suppress(ValueError, KeyError, OSError):
            self.pid = int(json.loads(answer)["child-pid"])
            claim(self.pid)
            builder.stdin.write(b".")
            ready = _next_bytes(builder.stdout.fileno(), until)  # from then on all is built, and others may enter
        if ready:
            restore_limits(self.pid)
            builder.kill()  # it would only wait for the holder, and takes more memory
        else:
            self.close()
        if not _ends(builder):
            builder.kill()
            _ends(builder)
        release(builder.pid)
        if not ready:
            raise OSError("bubblewrap could not build namespaces that last")
        self.told = self._pipes[1].fileno()

    def close(self) -> None:
        """End the process. Commands that still run in its namespaces keep them."""
        told, answers = self._pipes
        told.close()
        end = select.poll()
        end.register(answers, 0)  # only its end counts
        if end.poll(_NEEDED * 1000) and self.pid:
            with suppress(ChildProcessError):  # orphans do not become our children
                os.waitpid(self.pid, 0)
            release(self.pid)
        answers.close()


def _holder_builder(words: Sequence[str], reading: int, writing: int) -> "subprocess.Popen[bytes]":
    """Start bubblewrap, and `cat` in it. It writes what it has made to a pipe."""
    return subprocess.Popen(
        [*words, "--info-fd", str(writing), "--", "cat"],
        # It ends when this end is closed, however this process dies. --die-with-parent would end it with
        # the thread that starts it.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        # bubblewrap's first process writes to the pipe and then lets its second one run. If the first died
        # in between, the second would wait for ever. So the first keeps a reader of the pipe, which spares
        # it SIGPIPE when this process dies.
        pass_fds=[reading, writing],
        env={"PATH": _SYSTEM_PATH},
        cwd="/",
        start_new_session=True,
    )


class SessionNetwork:
    """A network without any host but this one, for the commands of one session. It lasts until `close`.

    Commands can be started in it while it is open. Raises OSError if it cannot be made.

    enter   the words that start a command in it. Options of nsenter, or `--` and the command, follow
    end     its `poll(0)` returns something once the process that holds the network was killed
    """

    def __init__(self) -> None:
        words = [bubblewrap(), "--unshare-user", "--unshare-net", "--uid", "0", "--gid", "0"]
        self._holder = _Holder([*words, "--cap-add", "CAP_SYS_ADMIN", "--ro-bind", "/", "/"])
        self.end = select.poll()
        self.end.register(self._holder.told, 0)  # tells only the end
        spaces = f"/proc/{self._holder.pid}/ns"
        self.enter = (_nsenter(), f"--user={spaces}/user", f"--net={spaces}/net", "--preserve-credentials")

    def listener(self) -> socket.socket:
        """Return a socket that listens on 127.0.0.1 in this network. Raises OSError.

        A process that enters the network makes it, hands it over and ends.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = [*self.enter, "--", sys.executable, "-I", "-S", "-c", _LISTEN]
            try:
                subprocess.run(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=True,
                    timeout=_NEEDED,
                    env={"PATH": _SYSTEM_PATH},
                    cwd="/",
                )
                theirs.close()
                _, descriptors, _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
                return socket.socket(fileno=descriptors[0])
            except (subprocess.SubprocessError, IndexError):
                raise OSError("no proxy for `network_allow` could be made") from None

    def close(self) -> None:
        """End the network. Commands that still run in it keep it."""
        self._holder.close()


class HeldWalls:
    """Walls that are built once and copied for each command, which takes half of the time. They last until `close`.

    In its copy a command has its own processes, /proc and /dev/shm. Raises OSError if walls cannot be held here.

    words    the words that start a command in a copy. Further options of bubblewrap, or `--` and the command, follow
    places   the mounts that the command looks for
    holder   the process in which they are
    """

    def __init__(self, network: SessionNetwork, mounts: _Mounts, walls: Walls, user: Sequence[str]) -> None:
        outside = {path: how for path, how in mounts.items() if path not in _OF_THE_KERNEL}
        if any(is_below(path, "/dev") for path in outside):
            raise OSError("a copy has a /dev of its own")
        # A readable path that is missing now has no mount, but may come back.
        self._paths = [*{*outside, *walls.readable, *(how[-1] for how in outside.values() if len(how) > 1)}]
        # bubblewrap needs a /proc that shows the process which runs it. The one of a command covers it.
        held = {"/proc": ("--bind", "/proc"), "/dev": ("--dev",), **outside}
        building = [bubblewrap(), "--cap-drop", "ALL", *_mount_words(held, (*walls.hidden, "/dev"))]
        with ExitStack() as opened:
            self._changes = select.poll()
            self._watch("/proc/self/mountinfo", opened)
            self._identities = [*map(_identity, self._paths)]
            self.places = _places(mounts)
            self.holder = _Holder([*network.enter, "--", *building])
            opened.callback(self.holder.close)
            self._changes.register(self.holder.told, 0)
            self._watch(f"/proc/{self.holder.pid}/mountinfo", opened)
            enter = (*network.enter, f"--mount=/proc/{self.holder.pid}/ns/mnt", "--", bubblewrap(), *_NAMESPACES, *user)
            own = ("--tmpfs", _SHARED_MEMORY, "--proc", "/proc", *_covers())
            self.words = (*enter, "--cap-drop", "ALL", "--dev-bind", "/", "/", *own)
            if not _succeeds([*self.words, *_inside(self.places, ["true"], "")]):
                raise OSError("no command can enter walls that are held, or its mounts are others")
            self._opened = opened.pop_all()

    def _watch(self, table: str, opened: ExitStack) -> None:
        """Let `stand` see changes of a table of mounts. See proc(5)."""
        number = os.open(table, os.O_RDONLY | os.O_CLOEXEC)
        opened.callback(os.close, number)
        self._changes.register(number, select.POLLPRI)

    def stand(self) -> bool:
        """Return whether no mount has changed since they were built, and all paths lead to the same files."""
        return not self._changes.poll(0) and [*map(_identity, self._paths)] == self._identities

    def close(self) -> None:
        """End them. Commands that still run in a copy keep it."""
        self._opened.close()


def _covers() -> list[str]:
    """Return bubblewrap's words for what covers parts of a copy's /proc.

    Each mount of a source costs a look at all mounts, so what no command needs becomes an empty folder.
    """
    words = ["--ro-bind-try", _SETTINGS, _SETTINGS]
    for path in _FOR_ROOT if os.geteuid() == 0 else ():
        words += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind-try", path, path]
    return words


def _identity(path: str) -> tuple[int, ...] | None:
    """Return what tells the file at a path from others as long as it exists, or None. A mounted file exists.

    A renamed file takes its mount along, even if a hard link then gets the earlier name. So the number of links counts.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (*identity(status), 0 if stat.S_ISDIR(status.st_mode) else status.st_nlink)


class BubblewrapSandbox:
    """The sandbox of one session.

    folder   an empty private folder, whose folders `tmp` and `home` stand for /tmp and for the user's home
    proxy    starts a proxy on a socket that listens, for walls with one
    home     another folder that stands for the home
    bash     the shell of the commands, if it may look at the mounts (`trusted_bash`); else ""
    """

    def __init__(
        self, folder: str, proxy: Callable[[socket.socket], AllowlistProxy], home: str = "", bash: str = ""
    ) -> None:
        self._start_proxy = proxy
        self.bash = bash
        self._proxy: AllowlistProxy | None = None
        self._home = PrivateHome(folder, home)
        # Without these a command would be root, the only user in the session's network.
        user, group = (os.geteuid(), os.getegid()) if os.geteuid() else (_SOMEBODY, _SOMEBODY)
        self._user = ("--uid", f"{user}", "--gid", f"{group}")
        self._filter = os.path.join(folder, "seccomp.bpf")
        self._network: SessionNetwork | None = None
        self._known: dict[Walls, HeldWalls | None] = {}  # of earlier commands, the last used at the end
        self._left = deque[tuple[float, HeldWalls]]()  # since when they are out of use
        self._may_hold = True
        program = filter_program(internet=True, namespaces=True)
        self._filters = program is not None
        with open(self._filter, "wb") as file:
            file.write(program or b"")

    @contextmanager
    def launch(self, command: Sequence[str], cwd: str, walls: Walls) -> Generator[Launch]:
        """Yield how a command is started within walls. Its descriptors are open in the body. Raises OSError."""
        descriptors: list[int] = []
        try:
            if self._filters:  # opened anew, because bubblewrap reads it from its position to its end
                descriptors.append(os.open(self._filter, os.O_RDONLY | os.O_CLOEXEC))
            words, places = self._built(walls)
            started = (*words, *_beginning(cwd, *descriptors), *_inside(places, command, self.bash))
            # In a network of its own a command has its own local sockets without a path; in that of the machine, all.
            confine = close_nameless_sockets if walls.network is NetworkReach.ALL and _may_be_confined() else None
            yield Launch(started, tuple(descriptors), 1, variables=self._variables(walls), confine=confine)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def shell_text(
        self, command: Sequence[str], cwd: str, walls: Walls, environment: Mapping[str, str], own: Mapping[str, str]
    ) -> str:
        """Return a line for `sh` that runs a command within walls, with only these variables. Raises OSError.

        If another machine runs the line, it says so and fails. `own` are the variables that no other command has.
        """
        built, places = self._built(walls)
        number = 9  # the most that every shell can redirect
        words = (*built, *_beginning(cwd, *([number] if self._filters else ())), "--clearenv")
        start = _joined((*words, *_set({**environment, **self._variables(walls)})))
        run = " ".join((start, *map(_quoted, (*_set(own), *_inside(places, command, self.bash)))))
        filtered = shlex.quote(self._filter)
        missing = f"[ -f {filtered} ] || {{ echo {shlex.quote(_ELSEWHERE)} >&2; exit 126; }}"
        return f"{missing}; export LC_ALL=C; exec {number}<{filtered} {run}"  # so that the programs load no locale

    def holds(self, walls: Walls) -> bool:
        """Return whether these walls were held for an earlier command."""
        return self._known.get(walls) is not None

    def _built(self, walls: Walls) -> tuple[Sequence[str], Sequence[str]]:
        """Return the words that build walls or copy held ones, and the mounts that the command looks for.

        Raises OSError.
        """
        words = [bubblewrap(), *_NAMESPACES, "--cap-drop", "ALL", *self._user]
        if walls.network is NetworkReach.SESSION:
            if self._network is not None and self._network.end.poll(0):
                self.close()
            self._network = self._network or SessionNetwork()
            held = self._held(walls, self._network)
            if held is not None:
                return held.words, held.places
            words = [*self._network.enter, "--", *words]
        elif walls.network is NetworkReach.NONE:
            words.append("--unshare-net")
        mounts = self._mounts(walls)
        return (*words, *_mount_words(mounts, walls.hidden)), _places(mounts)

    def _held(self, walls: Walls, network: SessionNetwork) -> HeldWalls | None:
        """Return held walls, or None for the first command with these walls or after a change, which builds its own.

        The second one holds them. Walls that are out of use are kept for commands that have yet to start.
        """
        known = walls in self._known
        held = self._known.pop(walls, None)
        if held is not None and not held.stand():
            self._leave(held)
            held = None
        elif known and held is None and self._may_hold:
            try:
                held = HeldWalls(network, self._mounts(walls), walls, self._user)
            except OSError:
                self._may_hold = False
        self._known[walls] = held
        if len(self._known) > _MOST_HELD:
            oldest = self._known.pop(next(iter(self._known)))
            if oldest is not None:
                self._leave(oldest)
        return held

    def _leave(self, held: HeldWalls) -> None:
        now = time.monotonic()
        while self._left and now - self._left[0][0] > _STARTED:
            self._left.popleft()[1].close()
        self._left.append((now, held))

    def _variables(self, walls: Walls) -> dict[str, str]:
        """Return the variables that tell programs which hosts they reach, once `_built` has made the network.

        Raises OSError.
        """
        if walls.network is NetworkReach.ALL:
            return {}
        if not walls.proxied or walls.network is not NetworkReach.SESSION or self._network is None:
            return _NO_RETRIES
        self._proxy = self._proxy or self._start_proxy(self._network.listener())
        return _PROXY_VARIABLES | dict.fromkeys(_PROXY_NAMES, f"http://127.0.0.1:{self._proxy.port}")

    def close(self) -> None:
        """End the session's network and the held walls. The next command that needs them makes others."""
        for held in (*filter(None, self._known.values()), *(held for _, held in self._left)):
            held.close()
        self._known.clear()
        self._left.clear()
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.close()
        network, self._network = self._network, None
        if network is not None:
            network.close()

    def _mounts(self, walls: Walls) -> _Mounts:
        """Return the mounts within the walls. Raises OSError."""
        temporary, home = self._home.folders
        mounts: dict[str, Sequence[str]] = {"/proc": ("--proc",), "/dev": ("--dev",)}
        mounts |= {"/tmp": ("--bind", temporary), "/var/tmp": ("--bind", temporary)}  # noqa: S108 - a mount point
        if walls.home != "/":  # that one is always new, and read-only
            mounts[walls.home] = ("--bind", home)
        mounts |= {path: ("--ro-bind", path) for path in (_SETTINGS, *walls.readable) if os.path.exists(path)}
        mounts |= {path: ("--bind", path) for path in (*walls.writable, *walls.pinned)}
        mounts |= {path: ("--ro-bind-try", path) for path in walls.frozen}
        mounts |= {path: ("--tmpfs",) if os.path.isdir(path) else ("--ro-bind", _NO_FILE) for path in walls.hidden}
        if walls.network is NetworkReach.ALL:
            names = os.path.realpath("/etc/resolv.conf")
            mounts.setdefault(names, ("--ro-bind", names))
        for place, private in ((walls.home, home), ("/tmp", temporary), ("/var/tmp", temporary)):  # noqa: S108 - likewise
            if place in mounts and mounts[place][-1] == private:
                mounts |= _kept_places(mounts, place, private)
        # Before each mount bubblewrap reads the list of all of them, so /sys comes last: it may hold many mounts.
        return {path: mounts[path] for path in sorted(mounts, key=lambda path: (is_below(path, "/sys"), path))}


class _Mount(NamedTuple):
    """A mount in mountinfo. `root` is the mounted part of the file system, and `kind` the type of the file system."""

    root: str
    kind: str


def _mount_words(mounts: _Mounts, unchanged: Sequence[str]) -> list[str]:
    """Return bubblewrap's words for mounts and links, and for the folders that become read-only when all are there."""
    words = [word for path, (how, *source) in mounts.items() for word in (how, *source, path)]
    for link in filter(os.path.islink, _LINKS):
        words += ["--symlink", os.readlink(link), link]
    for path in filter(os.path.isdir, (*unchanged, "/")):
        words += ["--remount-ro", path]
    return words


def _beginning(cwd: str, filtering: int | None = None) -> list[str]:
    """Return bubblewrap's words for where a command begins, and for the descriptor of its filter of system calls."""
    return ["--chdir", cwd] if filtering is None else ["--chdir", cwd, "--seccomp", str(filtering)]


def _set(variables: Mapping[str, str]) -> list[str]:
    """Return bubblewrap's words that set variables."""
    return [word for name, value in variables.items() for word in ("--setenv", name, value)]


def _places(mounts: _Mounts) -> Sequence[str]:
    """Return how /proc/self/mountinfo lists mounts, without those of the kernel. Raises OSError."""
    table = _mount_table()
    return [*filter(None, (_place(path, how, table) for path, how in mounts.items() if path not in _OF_THE_KERNEL))]


def _inside(places: Sequence[str], command: Sequence[str], bash: str) -> Sequence[str]:
    """Return the words that look for the mounts within the walls, set limits there, and run a command.

    bash   the shell that does all of that if the command is a line for it; "" if none does
    """
    match command:
        case [shell, "-c", "--", line] if bash and shell in ("bash", bash):
            checked = _CHECKED_BY_BASH % _all_in_order(len(places))
            return ("--", bash, "-c", f'eval "$1"; {line}', "bash", checked, *places, "--")
        case _:
            return ("--", "/bin/sh", "-c", _CHECKED, "sh", *places, "--", *command)


@cache
def _all_in_order(count: int) -> str:
    """Return a step of bash that looks for all places at once. It drops them if they are there, in their order.

    The kernel lists mounts in the order in which they were made. Where it does not, each place is looked for.
    """
    pattern = "".join([f'*" ${{{number}}} "' for number in range(1, count + 1)])
    return f"case $_mounts in {pattern}*) shift {count} ;; esac"


def _place(path: str, how: Sequence[str], table: Mapping[str, _Mount]) -> str:
    """Return how /proc/self/mountinfo lists a mount, from its root on; "" if nothing is mounted. See proc(5)."""
    source = how[-1] if len(how) > 1 else ""
    if how[0].endswith("-try") and not os.path.lexists(source):
        return ""
    if not source:
        return f"/ {path.translate(_ESCAPES)}"
    name = source.translate(_ESCAPES)
    point = next(filter(table.__contains__, (name, *folders_above(name))))
    mount = table[point]
    inner = "" if mount.kind.startswith("nfs") else name.removeprefix(point.rstrip("/"))  # NFS does not report it
    return f"{os.path.normpath(mount.root.rstrip('/') + inner or '/')} {path.translate(_ESCAPES)}"


def _mount_table() -> dict[str, _Mount]:
    """Return what is mounted on this machine by its place, as mountinfo writes it. Raises OSError."""
    table = dict[str, _Mount]()
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words = line.split(" ")
            table[words[4]] = _Mount(words[3], words[words.index("-") + 1])  # a later one covers those before it
    return table


def _kept_places(mounts: _Mounts, place: str, private: str) -> dict[str, tuple[str, ...]]:
    """Make the places for mounts within a private folder, and return mounts that keep the folders above them in place.

    bubblewrap follows links on its way to a mount, out of the walls as well. A command could leave one there for the
    next command. What is mounted cannot be renamed, so such a folder keeps its place. Raises OSError.

    place   where `private` is mounted
    """
    kept: dict[str, tuple[str, ...]] = {}
    for path in mounts:
        inner = path != place and is_below(path, place)
        if not inner or next(filter(mounts.__contains__, folders_above(path))) != place:
            continue
        names = path.removeprefix(f"{place.rstrip('/')}/").split("/")
        make_place(private, names, folder=os.path.isdir(path))
        for count in range(1, len(names)):
            above = "/".join(names[:count])
            kept[os.path.join(place, above)] = ("--bind", os.path.join(private, above))
    return kept
