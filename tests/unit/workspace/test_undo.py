"""Undo and redo of what the agent changed: byte for byte with modes, or refused with the difference."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.types import Access, PathSubject
from acp_agent.workspace.changed_files import FileWatch, SessionSnapshots
from acp_agent.workspace.git.objects import SnapshotLimits
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.undo import UndoError

LIMITS = SnapshotLimits()


class Agent:
    """A session that changes files in a folder."""

    def __init__(self, folder: Path, data: Path, limits: SnapshotLimits = LIMITS) -> None:
        self.folder = folder
        self.limits = limits
        self.roots = Roots(str(folder))
        self.snapshots = SessionSnapshots(str(data / "undo" / "one"), "session")
        self.watch = FileWatch(self.roots, self.snapshots, limits)

    def command(self, *steps: "Step") -> None:
        before = self.watch.before()
        for step in steps:
            step.run(self.folder)
        self.watch.since(before)

    def tool(self, name: str, step: "Step", access: Access = Access.WRITE) -> None:
        before = self.watch.before([PathSubject(name, access)])
        step.run(self.folder)
        self.watch.since(before)

    def undo(self, turn: int | None = None, *, redo: bool = False) -> None:
        self.snapshots.restore(self.roots, self.limits, turn, redo=redo)

    def refusal(self, turn: int | None = None, *, redo: bool = False) -> str:
        """Undo, and return why nothing was changed, "" if it was."""
        try:
            self.undo(turn, redo=redo)
        except UndoError as error:
            return str(error)
        return ""

    def close(self) -> None:
        self.snapshots.close()
        self.roots.close()


@contextmanager
def agent_in(folder: Path, limits: SnapshotLimits = LIMITS) -> Iterator[Agent]:
    work, data = folder / "work", folder / "data"
    work.mkdir(exist_ok=True)
    data.mkdir(exist_ok=True)
    agent = Agent(work, data, limits)
    try:
        yield agent
    finally:
        agent.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with agent_in(tmp_path) as made:
        yield made


class Step:
    """A change of one entry: what a command, a tool or the user does. What is impossible does nothing."""

    def __init__(self, verb: str, name: str, other: str = "", data: bytes = b"", mode: int = 0o644) -> None:
        self.verb, self.name, self.other, self.data, self.mode = verb, name, other, data, mode

    def __repr__(self) -> str:
        return f"Step{(self.verb, self.name, self.other, self.data, oct(self.mode))}"

    def run(self, folder: Path) -> None:
        path = folder / self.name
        try:
            match self.verb:
                case "write":
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(self.data)
                case "append":
                    with path.open("ab") as file:
                        file.write(self.data)
                case "link":
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.symlink_to(self.other)
                case "mode":
                    if not path.is_symlink():
                        path.chmod(self.mode)
                case "folder":
                    path.mkdir(parents=True, exist_ok=True)
                case "move":
                    (folder / self.other).parent.mkdir(parents=True, exist_ok=True)
                    path.rename(folder / self.other)
                case _:
                    (shutil.rmtree if path.is_dir() and not path.is_symlink() else os.unlink)(path)
        except (OSError, ValueError):
            pass


def tree(folder: Path) -> dict[str, object]:
    """Return every entry below a folder: its mode, and its bytes or target."""
    found: dict[str, object] = {}
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(at, name)
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                found[os.path.relpath(path, folder)] = os.readlink(path)
            elif stat.S_ISDIR(status.st_mode):
                found[os.path.relpath(path, folder)] = mode
            else:
                found[os.path.relpath(path, folder)] = (mode, Path(path).read_bytes())
    return found


NAMES = ("a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "x\ny", "d/\udcff", ".gitattributes")
CONTENTS = st.sampled_from((b"", b"one\n", b"two\r\n", b"\0\xff", b"* text=auto eol=crlf ident\n", b"$Id$\n"))
STEPS = st.builds(
    Step,
    st.sampled_from(("write", "write", "append", "link", "mode", "folder", "move", "delete")),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    CONTENTS,
    st.sampled_from((0o644, 0o755, 0o600, 0o444, 0o711, 0o700)),
)
CALLS = st.tuples(st.sampled_from(("command", "command", "tool", "user")), st.lists(STEPS, min_size=1, max_size=3))


def play(agent: Agent, who: str, steps: list[Step]) -> None:
    if who == "user":
        for step in steps:
            step.run(agent.folder)
    elif who == "command":
        agent.command(*steps)
    else:
        for step in (step for step in steps if "\udcff" not in step.name + step.other):  # no tool takes such a path
            if step.verb == "move":
                before = agent.watch.before([PathSubject(each, Access.MOVE) for each in (step.name, step.other)])
                step.run(agent.folder)
                agent.watch.since(before)
            elif step.verb == "delete":
                agent.tool(step.name, step, Access.DELETE)
            elif step.verb in ("write", "append"):
                if os.path.exists(agent.folder / step.name) or not os.path.islink(agent.folder / step.name):
                    agent.tool(step.name, step, Access.WRITE)
            else:
                agent.tool(step.name, step, Access.MOVE)


@given(st.lists(STEPS, max_size=8), st.lists(CALLS, min_size=1, max_size=4), st.lists(STEPS, max_size=2))
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_undo_restores_byte_for_byte_or_refuses_with_the_difference(
    start: list[Step], calls: list[tuple[str, list[Step]]], later: list[Step]
) -> None:
    with TemporaryDirectory() as folder, agent_in(Path(folder)) as agent:
        for step in start:
            step.run(agent.folder)
        before = tree(agent.folder)
        for who, steps in calls:
            play(agent, who, steps)
        left = tree(agent.folder)
        for step in later:
            step.run(agent.folder)
        after = tree(agent.folder)
        touched = bool(later) or any(who == "user" for who, _ in calls)
        refusal = agent.refusal()
        if refusal:
            assert touched or "nothing to undo" in refusal, refusal
            assert tree(agent.folder) == after, "nothing is changed by a refusal"
            return
        now = tree(agent.folder)
        for path in left.keys() | after.keys():
            if left.get(path) != after.get(path):
                assert now.get(path) == after.get(path), f"{path}, which the user changed since"
        if not touched:
            assert now == before
            agent.undo(redo=True)
            assert tree(agent.folder) == after
