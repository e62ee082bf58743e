"""Whether any of some 200 attempts gets out of the walls: as root and as a user, in each tier. 0 do."""

import ctypes
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from acp_agent.core.types import Access
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, tier_works, why_missing
from acp_agent.workspace.sandbox.walls import WallRules
from tests.unit.workspace.sandbox import escapes
from tests.unit.workspace.sandbox.escapes import CANARY, INSIDE, PROTECTED, changes

PYTHON = next((each for each in ("/usr/bin/python3", "/usr/local/bin/python3") if os.access(each, os.X_OK)), "")
NOBODY = 65534
PROTECTED_PATHS = ProtectedPaths()

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the attempts name system calls of x86-64"),
    pytest.mark.skipif(sys.platform != "linux" or not PYTHON, reason="no Python of the system runs the attempts"),
]


def protects(path: str) -> bool:
    found = PROTECTED_PATHS.find(path)
    return found is not None and not found.everyday


def refuses(path: str, access: Access) -> str | None:
    return "secret" if access is Access.READ and os.path.basename(path) == ".env" else None


def put(path: Path, text: str = f"{CANARY}\n", mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


class World:
    """The folders, processes, servers and terminals around a contained command, and how they are later."""

    def __init__(self, user: int, closing: ExitStack) -> None:
        self._closing = closing
        self.folder = Path(tempfile.mkdtemp(prefix="acp-agent-escapes-", dir="/tmp"))
        closing.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.root, self.outside, self.home = (self.folder / name for name in ("root", "outside", "home"))
        self._files()
        if user:
            subprocess.run(["chown", "-R", f"{user}:{user}", self.folder], check=True)
        self.folder.chmod(0o755)
        self.user = user
        self.facts: dict[str, object] = {
            "world": str(self.folder),
            "root": str(self.root),
            "src": str(self.root / "src"),
            "git": str(self.root / ".git"),
            "outside": str(self.outside),
            "targets": str(self.outside / "targets"),
            "secret": str(self.outside / "secret"),
            "home": str(self.home),
            "data": str(self.folder / "data"),
        }
        self._process()
        self._servers()
        self._shared()
        self._before = self._state()

    def _files(self) -> None:
        put(self.outside / "secret")
        put(self.outside / "program", f"#!/bin/sh\necho {CANARY}\n", 0o755)
        put(self.outside / f"{CANARY}.txt")
        for number in range(len(changes(SimpleNamespace(src=""), ""))):
            put(self.outside / f"targets/{number}/target", "as it was a\n")
            put(self.home / f".cargo/targets/{number}/target", "as it was a\n")
        for name in (".ssh/id_rsa", ".aws/credentials", ".netrc", ".cargo/credentials.toml", ".bashrc"):
            put(self.home / name)
        put(self.home / ".cargo/config.toml", "")
        put(self.folder / "data/credentials.toml")
        git = ["git", "-c", "init.templateDir=", "init", "-q"]
        subprocess.run([*git, str(self.root)], check=True)
        subprocess.run([*git, "--bare", str(self.root / ".git/modules/a")], check=True)
        for hooks in (self.root / ".git/hooks", self.root / ".git/modules/a/hooks"):
            put(hooks / "post-commit", "as it was\n")
        put(self.root / ".env", f"TOKEN={CANARY}\n")
        put(self.root / "pkg/.env", f"TOKEN={CANARY}\n")
        for name in (".vscode/tasks.json", "pkg/.vscode/tasks.json", ".envrc"):
            put(self.root / name, "as it was\n")
        put(self.root / "src/package.json", '{"scripts": {"x": "make"}}')
        shutil.copy(escapes.__file__, self.root / "src/escapes.py")

    def _process(self) -> None:
        """Start a process of the same user, with secrets in its variables, arguments and open files."""
        words = ["/bin/sh", "-c", f"echo ready; while :; do sleep 1; done # {CANARY}"]
        with (self.outside / "secret").open() as held:
            self.victim = subprocess.Popen(
                words,
                stdin=held,
                stdout=subprocess.PIPE,
                env={"KEY": CANARY, "PATH": "/usr/bin:/bin"},
                cwd=self.outside,
                start_new_session=True,
                **({"user": self.user, "group": self.user, "extra_groups": []} if self.user else {}),
            )
        assert self.victim.stdout is not None
        self.victim.stdout.readline()
        self._closing.callback(self._end)
        self.facts["victim"] = self.victim.pid

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.victim.pid, signal.SIGKILL)
        self.victim.wait()
        assert self.victim.stdout is not None
        self.victim.stdout.close()

    def _servers(self) -> None:
        abstract = f"\0acp-agent-escapes-{os.getpid()}-{id(self)}"
        unix, datagram = (str(self.outside / f"{name}.sock") for name in ("stream", "datagram"))
        wanted = [
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            ("unix", socket.AF_UNIX, socket.SOCK_STREAM, unix),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, abstract),
            ("datagram", socket.AF_UNIX, socket.SOCK_DGRAM, datagram),
        ]
        self._listening: dict[str, socket.socket] = {}
        for name, family, kind, address in wanted:
            made = self._closing.enter_context(socket.socket(family, kind))
            try:
                made.bind(address)
            except OSError:  # a machine without IPv6
                self.facts[name] = 9
                continue
            if kind == socket.SOCK_STREAM:
                made.listen()
            made.setblocking(False)
            self._listening[name] = made
            self.facts[name] = address if family == socket.AF_UNIX else made.getsockname()[1]
        for path in (unix, datagram):
            os.chmod(path, 0o777)
        self._terminal, slave = os.openpty()
        os.set_blocking(self._terminal, False)
        self._closing.callback(os.close, self._terminal)
        self._closing.callback(os.close, slave)
        self.facts["terminal"] = os.ttyname(slave)
        if self.user:
            os.chown(os.ttyname(slave), self.user, -1)

    def _shared(self) -> None:
        """Make memory and a queue that every process of the user can use."""
        library = ctypes.CDLL(None)
        shared = Path(f"/dev/shm/acp-agent-escapes-{os.getpid()}-{id(self)}")
        put(shared, mode=0o666)
        self._closing.callback(shared.unlink, missing_ok=True)
        segment = library.shmget(0, 4096, 0o1666)
        self._closing.callback(library.shmctl, segment, 0, None)
        queue = f"/acp-agent-escapes-{os.getpid()}-{id(self)}"
        library.mq_open(queue.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        self._closing.callback(library.mq_unlink, queue.encode())
        self.facts |= {"shared": str(shared), "segment": segment, "queue": queue, "key": segment | 1 << 24}

    def changed(self) -> list[str]:
        """Return what is other than before: files, and what servers, the terminal and the process were sent."""
        now = self._state()
        found = [self._named(path) for path in self._before.keys() | now if self._before.get(path) != now.get(path)]
        for name, server in self._listening.items():
            with suppress(BlockingIOError):
                if server.type == socket.SOCK_STREAM:
                    server.accept()[0].close()
                else:
                    server.recv(9)
                found.append(f"server {name}")
        with suppress(BlockingIOError):
            found.append(f"terminal {os.read(self._terminal, 99)!r}")
        made = ctypes.CDLL(None).shmget(self.facts["key"], 0, 0)
        if made >= 0:
            found.append("memory that all share")
            ctypes.CDLL(None).shmctl(made, 0, None)
        if self.victim.poll() is not None:
            found.append(f"process ended: {self.victim.returncode}")
        return sorted(found)

    def _named(self, path: str) -> str:
        parts = path.split("/")
        names = list(changes(SimpleNamespace(src=""), ""))
        number = next((int(part) for part in parts if part.isdigit()), None)
        return f"{path} ({names[number]})" if number is not None and "targets" in parts else path

    def _state(self) -> dict[str, tuple[object, ...]]:
        """Return mode, owner, times and content of everything but what commands may change."""
        found: dict[str, tuple[object, ...]] = {"shared": (Path(str(self.facts["shared"])).read_text(),)}
        for folder, names, files in os.walk(self.folder):
            if folder == str(self.root / "src") or folder.startswith(str(self.root / "src/")):
                continue
            for name in (*names, *files):
                path = os.path.join(folder, name)
                seen = os.lstat(path)
                kept = seen.st_mtime_ns if name == "target" else 0
                text = Path(path).read_bytes() if name in files and not os.path.islink(path) and seen.st_size else b""
                attributes = os.listxattr(path, follow_symlinks=False)
                free = "/.git/" in path and not {"hooks", "config"} & set(path.split("/"))
                if not path.startswith(f"{self.root}/") or (protects(path) and not free):
                    relative = os.path.relpath(path, self.folder)
                    found[relative] = (seen.st_mode, seen.st_uid, kept, text, tuple(attributes))
        return found


@pytest.fixture(params=[SandboxTier.BUBBLEWRAP, SandboxTier.LANDLOCK])
def tier(request) -> SandboxTier:
    if not tier_works(request.param):
        pytest.skip(why_missing(request.param))
    return request.param


@pytest.fixture(params=["as this user", "as nobody"])
def world(request) -> Iterator[World]:
    user = 0 if request.param == "as this user" else NOBODY
    if user and os.geteuid():
        pytest.skip("only root can become another user")
    with ExitStack() as closing:
        yield World(user, closing)


def in_a_process(user: int, work: Callable[[], str]) -> str:
    """Return what `work` returns in a child process that belongs to a user."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reading)
            if user:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            with open(writing, "w") as out:
                out.write(work())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading) as said:
        text = said.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return text


def attempts(world: World, tier: SandboxTier, *, held: bool) -> str:
    """Run all attempts within the walls, which may be held already, and return what they print."""
    environ = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(world.home), "OPENAI_API_KEY": CANARY}
    environment = child_environment(environ)
    hidden = (str(world.folder / "data"),)
    sandbox = SessionSandbox(WallRules((str(world.root),), protects, refuses, hidden=hidden), environment, tier)
    facts = json.dumps({**world.facts, "agent": os.getpid()})
    words = [PYTHON, "-I", str(world.root / "src/escapes.py"), facts]
    try:
        for _ in range(2 if held else 0):
            with sandbox.launch(["true"], str(world.root)):
                pass
        with sandbox.launch(words, str(world.root)) as launch:
            assert any(word.startswith("--mount=") for word in launch.arguments) == held
            started = launch.start(
                lambda: subprocess.Popen(
                    launch.arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    cwd=world.root,
                    env={**environment, **launch.variables},
                    start_new_session=True,
                    pass_fds=launch.descriptors,
                )
            )
        return f"{started.communicate()[0]}\n{started.returncode}"
    finally:
        sandbox.close()


@pytest.mark.parametrize("held", [False, True])
def test_no_attempt_gets_out(tier, world, held):
    if held and tier is not SandboxTier.BUBBLEWRAP:
        pytest.skip("only bubblewrap's walls are held")
    user = world.user or os.geteuid()
    count = len(INSIDE) + 2 * len(changes(SimpleNamespace(src=""), "")) + len(PROTECTED)
    print(f"walls: {tier.value}, user: {user}, attempts: {count}")
    said = in_a_process(world.user, lambda: attempts(world, tier, held=held))
    *found, code = said.splitlines()
    assert code == "0"
    assert [line for line in (*found, *world.changed()) if line] == []
