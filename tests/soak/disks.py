"""Disks that are full, read-only, slow or locked for a while, during a story.

full        a tmpfs in a mount namespace of our own, which a file fills to the last bytes and then leaves again
read-only   the same, mounted anew; the data folder or the workspace
slow        strace lets the agent and its commands wait after each write to a file (`inject=...:delay_exit`)
locked      another connection holds the write lock of the database
"""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from tests.e2e.killed_story import BEFORE, StoryModel, story_model
from tests.e2e.killed_view import loaded, lost
from tests.e2e.killing import CLIENTS, assert_audit_whole, assert_files, prepare, shown
from tests.fakes.editor import AGENT, ScriptedEditor, editing
from tests.soak.case import Case, until
from tests.soak.endings import ended

TROUBLES = ("full", "read-only data", "read-only workspace", "slow", "locked briefly", "locked for long")
_SIZE = 24  # MiB of the disk that becomes full
_MOST = 15.0
"""Seconds that a story may take to its last command, beside the trouble."""


async def trouble(case: Case) -> None:
    """A story with a trouble in it, the end of the trouble, and the end of the agent."""
    what = TROUBLES[case.seed % len(TROUBLES)]
    case.during.append(what)
    async with story_model() as model:
        if what == "slow":
            await _slow(case, model)
        elif what.startswith("locked"):
            await _locked(case, model, what)
        elif not _works("unshare", "-Urm", "true"):
            case.skip("no user namespace can be made")
        elif what == "full":
            await _full(case, model)
        else:
            await _read_only(case, model, what.removeprefix("read-only "))


def _works(*command: str) -> bool:
    return (
        shutil.which(command[0]) is not None
        and not subprocess.run(command, capture_output=True, check=False).returncode
    )


# ----------------------------------------------------------------------------------------------- slow, locked


async def _slow(case: Case, model: StoryModel) -> None:
    strace = shutil.which("strace") or case.skip("strace is not installed, which makes a disk slow")
    slowed = "inject=pwrite64,fdatasync,fsync,rename,ftruncate:delay_exit=20000"  # microseconds
    calls = "trace=pwrite64,fdatasync,fsync,rename,ftruncate"
    agent = [strace, "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", calls, "-e", slowed, *AGENT]
    if not _works(*agent[: -len(AGENT)], "true"):
        case.skip("strace may trace no process here")
    session, editor, start = await _story(case, model, agent, _no_trouble)
    await _look(case, model, session, editor, start)


async def _locked(case: Case, model: StoryModel, what: str) -> None:
    @asynccontextmanager
    async def lock(editor: ScriptedEditor) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_hold, editor.home.data / "acp-agent.db")
            yield
            tasks.cancel_scope.cancel()

    async def _hold(path: Path) -> None:
        long = what == "locked for long"
        with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as other:
            for _ in range(1 if long else 4):
                await anyio.sleep(case.random.uniform(0, 0.4))
                other.execute("BEGIN IMMEDIATE")
                await anyio.sleep(case.random.uniform(6, 8) if long else case.random.uniform(0.05, 1.5))
                other.execute("ROLLBACK")

    session, editor, start = await _story(case, model, AGENT, lock, seconds=9 if what == "locked for long" else 5)
    await _look(case, model, session, editor, start)


# ----------------------------------------------------------------------------------------------- full, read-only


@dataclass
class Disk:
    """A small disk, which only the agents in a mount namespace see, in place of the data folder and the workspace."""

    pid: int
    folder: Path

    def agent(self) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-U", "-m", "--preserve-credentials", *AGENT]

    def inside(self, path: Path) -> Path:
        """Where we see what the agent sees."""
        return Path(f"/proc/{self.pid}/root{path}")

    def run(self, *command: str) -> None:
        enter = ["nsenter", "-t", str(self.pid), "-U", "-m", "--preserve-credentials"]
        subprocess.run([*enter, *command], check=True)

    def copy_out(self) -> None:
        """Lay the files where agents without the disk look."""
        for name, target in (("data", "home/data"), ("work", "work")):
            source = self.inside(self.folder / "disk" / name)
            shutil.copytree(source, self.folder / target, symlinks=True, dirs_exist_ok=True)


@contextmanager
def _disk(folder: Path) -> Iterator[Disk]:
    for name in ("home/data", "work", "disk"):
        (folder / name).mkdir(parents=True)
    script = (
        f'mount -t tmpfs -o size={_SIZE}m tmpfs "$0/disk" && mkdir "$0/disk/data" "$0/disk/work" && '
        'mount --bind "$0/disk/data" "$0/home/data" && mount --bind "$0/disk/work" "$0/work" && echo ready && exec cat'
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["unshare", "-Urm", "sh", "-c", script, str(folder)], **pipes) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        yield Disk(holder.pid, folder)
        holder.stdin.close()


async def _full(case: Case, model: StoryModel) -> None:
    with _disk(case.folder) as disk:
        ballast = disk.inside(case.folder / "disk") / "ballast"

        @asynccontextmanager
        async def fill(_editor: ScriptedEditor) -> AsyncIterator[None]:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(filling)
                yield
                tasks.cancel_scope.cancel()
            ballast.unlink(missing_ok=True)

        async def filling() -> None:
            await anyio.sleep(case.random.uniform(0, 1.5))
            system = os.statvfs(ballast.parent)
            free = system.f_bavail * system.f_frsize - case.random.choice((0, 0, 4096, 40_000, 100_000))
            with ballast.open("wb") as file, contextlib.suppress(OSError):  # the agent has written meanwhile
                os.posix_fallocate(file.fileno(), 0, max(free, 4096))
            await anyio.sleep(case.random.uniform(0.2, 3))
            ballast.unlink()

        session, editor, start = await _story(case, model, disk.agent(), fill, disk=disk, seconds=5)
        disk.copy_out()
    await _look(case, model, session, editor, start)


async def _read_only(case: Case, model: StoryModel, what: str) -> None:
    name = {"data": "home/data", "workspace": "work"}[what]
    with _disk(case.folder) as disk:
        prepare(disk.inside(case.folder / "work"))
        disk.run("mount", "-o", "remount,bind,ro", str(case.folder / name))
        session, editor, start = await _story(case, model, disk.agent(), _no_trouble, disk=disk)
        disk.copy_out()
    if what == "data":
        with case.judged("half files"):
            assert_files(editor.workspace)
        return
    with case.judged("half files"):
        now = {path.name: path.read_text() for path in editor.workspace.iterdir()}
        assert now == BEFORE
    await _look(case, model, session, editor, start)


# ----------------------------------------------------------------------------------------------- the story


@asynccontextmanager
async def _no_trouble(_editor: ScriptedEditor) -> AsyncIterator[None]:
    yield


async def _story(
    case: Case, model: StoryModel, agent: list[str], troubled: Any, *, disk: Disk | None = None, seconds: float = 0
) -> tuple[str, ScriptedEditor, int]:
    """Tell the story with the trouble, cancel its last command, have one more turn, and end the agent."""
    options = {**model.options, "capabilities": CLIENTS["plain"], "cold": True, "lawful": False, "agent": agent}
    if what := disk:
        options["environment"] = {**options["environment"], "TMPDIR": str(what.folder)}
    async with editing(case.folder, None, **options) as editor:
        if disk is None or os.access(disk.inside(editor.workspace), os.W_OK):
            prepare(disk.inside(editor.workspace) if disk else editor.workspace)
        session = await editor.open()
        start = len(editor.recording.frames)
        begun = time.monotonic()
        stops: list[str] = []

        async def tell() -> None:
            for part in ("first", "second"):
                stops.append(await editor.prompt(session, f"tell the {part} part"))

        async with troubled(editor), anyio.create_task_group() as tasks:
            tasks.start_soon(tell)
            with anyio.move_on_after(_MOST + seconds):
                await editor.recording.until(lambda frame: "echo waiting" in str(frame.update), start)
            await anyio.sleep(max(0.0, begun + seconds - time.monotonic()))
            while len(stops) < 2:
                await editor.cancel(session)
                await until(lambda: len(stops) == 2, 2)
                if time.monotonic() - begun > 2 * _MOST + seconds:
                    case.fault("other", f"the story did not end: {stops}")
                    tasks.cancel_scope.cancel()
                    break
        for _ in range(2):
            if await editor.say(session, "/help") != "end_turn":
                case.fault("other", "the session does not work any more")
        case.check_log(editor)
        case.check_answers(editor.recording.frames, alive=True)
        await ended(case, editor, case.random.choice(("SIGKILL", "SIGTERM", "EOF")))
    return session, editor, start


async def _look(case: Case, model: StoryModel, session: str, before: ScriptedEditor, start: int) -> None:
    """Have another agent load the session on a disk in order."""
    told = shown(session, before.recording.frames[start:])
    with case.judged("torn lines"):
        full = "full" in case.during  # then the last line may be torn, until the next call is recorded
        assert_audit_whole(before.home.data, unfinished=full, torn=full)
    with case.judged("half files"):
        assert_files(before.workspace)
    options = {**model.options, "capabilities": CLIENTS["plain"], "lawful": False}
    async with editing(case.folder, None, **options) as editor:
        await editor.initialize()
        with case.judged("lost rows"):
            missing = lost(told.live, await loaded(editor, session), told.prompts)
            assert not missing, "\n".join(missing)[:2000]
        if await editor.say(session, "/help") != "end_turn":
            case.fault("other", "the session does not work any more")
    with case.judged("lost rows"), closing(sqlite3.connect(editor.home.data / "acp-agent.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
