"""Undo and redo of what the agent changed: byte for byte with modes, or refused with the difference."""

import os
import resource
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acp_agent.core.types import Access, PathSubject
from acp_agent.workspace import snapshots
from acp_agent.workspace.changed_files import FileWatch, SessionSnapshots
from acp_agent.workspace.git.objects import ObjectStore, SnapshotLimits, SnapshotOff
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.undo import Journal, RestoredTurn, UndoError

LIMITS = SnapshotLimits()


class Agent:
    """A session that changes files in a folder."""

    def __init__(self, folder: Path, data: Path, limits: SnapshotLimits = LIMITS, session: str = "session") -> None:
        self.folder = folder
        self.limits = limits
        self.roots = Roots(str(folder))
        self.snapshots = SessionSnapshots(str(data / "undo" / "one"), session)
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

    def undo(self, turn: int | None = None, *, redo: bool = False) -> RestoredTurn:
        return self.snapshots.restore(self.roots, self.limits, turn, redo=redo)

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
def agent_in(folder: Path, limits: SnapshotLimits = LIMITS, session: str = "session") -> Iterator[Agent]:
    work, data = folder / "work", folder / "data"
    work.mkdir(exist_ok=True)
    data.mkdir(exist_ok=True)
    agent = Agent(work, data, limits, session)
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


@given(st.lists(STEPS, max_size=8), st.lists(CALLS, min_size=1, max_size=4), st.lists(STEPS, max_size=2), st.booleans())
@example(
    start=[],
    calls=[("command", [Step("write", "a")]), ("user", [Step("write", "a", data=b"one\n")])],
    later=[Step("write", "a")],
    large=False,
)
@example(
    start=[Step("write", "d")],
    calls=[("command", [Step("move", "d", "a")]), ("tool", [Step("move", "d", "d/a")])],
    later=[],
    large=False,
)
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_undo_restores_byte_for_byte_or_refuses_with_the_difference(
    start: list[Step], calls: list[tuple[str, list[Step]]], later: list[Step], large: bool
) -> None:
    with (
        TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        agent_in(Path(folder)) as agent,
    ):
        patch.setattr(snapshots, "SMALL", 0 if large else 3000)
        for step in start:
            step.run(agent.folder)
        before = tree(agent.folder)
        left_by_agent = dict[str, object]()
        for who, steps in calls:
            earlier = tree(agent.folder)
            play(agent, who, steps)
            if who != "user":
                found = tree(agent.folder)
                paths = earlier.keys() | found.keys()
                left_by_agent |= {path: found.get(path) for path in paths if earlier.get(path) != found.get(path)}
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
            is_agents = path in left_by_agent and left_by_agent[path] == after.get(path)  # the user went back to it
            if left.get(path) != after.get(path) and not is_agents:
                assert now.get(path) == after.get(path), f"{path}, which the user changed since"
        if not touched:
            assert now == before
            agent.undo(redo=True)
            assert tree(agent.folder) == after


# ------------------------------------------------------------------------------------ what is kept


HOSTILE = "* text=auto eol=crlf ident working-tree-encoding=UTF-16 filter=evil\n"


def git(folder: Path, *args: str) -> None:
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=n@example.com", *args], cwd=folder, check=True)


def test_a_new_turn_reads_only_what_was_added_to_the_journal_since_the_last(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    journal, other = Journal(str(tmp_path), "session"), Journal(str(tmp_path), "session")
    assert journal.next_turn() == 1
    for number in range(1, 9):
        journal.append(number, ())
    assert journal.next_turn() == 9
    (file,) = (tmp_path / "sessions").iterdir()
    with file.open("r+") as lines:
        lines.write('{"turn": 9')  # in place of turn 1
    assert journal.next_turn() == 9, "what was read is not read again"
    other.append(12, ())
    other.begin(3)
    assert journal.next_turn() == 13, "another process took something back meanwhile"
    with file.open("a") as lines:
        lines.write('{"turn": 70, "chan')  # it was killed
    assert journal.next_turn() == 13
    journal.append(13, ())
    assert journal.next_turn() == 14
    file.unlink()
    other.append(2, ())
    assert journal.next_turn() == 3, "the old journal was removed and a new one begun"


def test_many_files_go_through_git_byte_for_byte_and_the_users_repository_is_not_touched(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = agent.folder
    git(work, "init", "-q")
    (work / ".git/hooks/post-index-change").write_text("#!/bin/sh\ntouch ../ran\n")
    (work / ".git/hooks/post-index-change").chmod(0o755)
    (work / ".gitattributes").write_text(HOSTILE)
    home = tmp_path / "home"
    home.mkdir()
    program = f'[core]\n\tfsmonitor = touch {tmp_path}/ran\n[filter "evil"]\n\tclean = touch {tmp_path}/ran\n'
    (home / ".gitconfig").write_text(program)
    (work / ".git/config").write_text((work / ".git/config").read_text() + program)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(work / ".git"))
    for number in range(300):
        (work / f"{number}\n \\\udcff.txt").write_bytes(b"a\r\n$Id$\n\xff" + bytes([number % 256]))
    (work / "nested").mkdir()
    monkeypatch.delenv("GIT_DIR")
    git(work / "nested", "init", "-q")
    (work / "nested/in.txt").write_text("in\n")
    before, repository = tree(work), tree(work / ".git")
    agent.command(*(Step("write", path, data=b"changed") for path in before if path.endswith("txt")))
    assert tree(work) != before
    assert list((tmp_path / "data/undo/one/objects/pack").iterdir()), "git packed them"
    agent.undo()
    assert tree(work) == before
    assert tree(work / ".git") == repository
    assert not (tmp_path / "ran").exists()


def test_a_new_session_need_not_read_what_git_has_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with agent_in(tmp_path) as agent:
        for number in range(300):
            (agent.folder / str(number)).write_bytes(bytes([number % 256]))
        agent.command(Step("write", "0", data=b"new"))
        os.utime(next((tmp_path / "data/undo/one").glob("index-*")), (2**31, 2**31))  # long after the files
    read: list[str] = []
    original = snapshots.read_entry
    noted: Any = lambda fd, name, most: read.append(name) or original(fd, name, most)  # noqa: E731
    monkeypatch.setattr(snapshots, "read_entry", noted)
    with agent_in(tmp_path) as agent:
        agent.command(Step("delete", "1"))
        assert set(read) <= {"0"}, "it may have been written too recently to tell by its times"
        agent.undo()
        assert (agent.folder / "1").read_bytes() == b"\1"
        agent.undo()
        assert (agent.folder / "0").read_bytes() == b"\0"


def test_ignored_files_are_covered_where_a_tool_names_them_and_rules_that_change_delete_nothing(agent: Agent) -> None:
    (agent.folder / ".gitignore").write_text("build/\n*.log\n")
    for name in ("build/x", "a.log"):
        Step("write", name, data=b"old").run(agent.folder)
    agent.command(Step("write", ".gitignore"), Step("write", "build/y", data=b"y"))
    before = tree(agent.folder)
    agent.snapshots.turn_began()
    agent.tool("a.log", Step("write", "a.log", data=b"new"))
    agent.tool("build", Step("delete", "build"), Access.DELETE)
    agent.undo()
    assert tree(agent.folder) == before
    agent.undo()
    assert sorted(tree(agent.folder)) == [".gitignore", "a.log", "build", "build/x", "build/y"]


def test_what_is_noted_of_a_call_after_the_next_turn_began_counts_to_its_own_turn(agent: Agent) -> None:
    before = agent.watch.before()
    Step("write", "first", data=b"1").run(agent.folder)
    agent.snapshots.turn_began()
    agent.watch.since(before)
    agent.command(Step("write", "second", data=b"2"))
    agent.undo()
    assert sorted(tree(agent.folder)) == ["first"]
    agent.undo()
    assert sorted(tree(agent.folder)) == []


def test_files_that_were_written_side_by_side_into_a_new_folder_are_taken_back(agent: Agent) -> None:
    names = ("new/deep/a", "new/deep/b", "new/c")
    calls = [agent.watch.before([PathSubject(name, Access.WRITE)]) for name in names]
    for name in names:
        Step("write", name, data=b"x").run(agent.folder)
    for call in calls:
        agent.watch.since(call)
    agent.undo()
    assert tree(agent.folder) == {}
    agent.undo(redo=True)
    assert set(names) <= tree(agent.folder).keys()


def test_a_file_that_the_user_put_into_the_agents_folder_comes_back_there(agent: Agent) -> None:
    agent.command(Step("write", "d/b"))
    Step("write", "d/mine", data=b"mine").run(agent.folder)
    agent.command(Step("move", "d/mine", "a"))
    assert agent.undo().kept == (str(agent.folder / "d"),)
    assert sorted(tree(agent.folder)) == ["d", "d/mine"]
    agent.undo(redo=True)
    assert sorted(tree(agent.folder)) == ["a", "d", "d/b"]


def test_a_folder_that_the_user_renamed_stops_it(agent: Agent) -> None:
    Step("write", "d/a").run(agent.folder)
    Step("write", "b", data=b"old").run(agent.folder)
    agent.command(Step("delete", "d/a"), Step("write", "b", data=b"new"))
    Step("move", "d", "e").run(agent.folder)
    assert "`d`: it is gone" in agent.refusal()
    assert (agent.folder / "b").read_bytes() == b"new"


def test_large_files_are_left_out_and_named(tmp_path: Path) -> None:
    with agent_in(tmp_path, SnapshotLimits(file_bytes=100)) as agent:
        (agent.folder / "large").write_bytes(b"x" * 101)
        (agent.folder / "small").write_bytes(b"x")
        agent.command(Step("write", "large", data=b"y" * 200), Step("write", "small", data=b"y"))
        restored = agent.undo()
        assert restored.left_out == (str(agent.folder / "large"),)
        assert (agent.folder / "small").read_bytes() == b"x"


@pytest.mark.parametrize("limits", [SnapshotLimits(bytes=100), None], ids=["too large", "no git"])
def test_where_nothing_can_be_kept_it_is_said_and_nothing_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: SnapshotLimits | None
) -> None:
    if limits is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    with agent_in(tmp_path, limits or LIMITS) as agent:
        for name in "abc":
            (agent.folder / name).write_bytes(b"x" * 90)
        before = agent.watch.before()
        (agent.folder / "a").write_bytes(b"y")
        agent.watch.since(before)
        before = agent.watch.before()
        (agent.folder / "b").write_bytes(b"y")
        assert [diff.path for diff in agent.watch.since(before).diffs] == [str(agent.folder / "b")]
        assert ("git is not installed" if limits is None else "holds more than") in agent.refusal()
        assert (agent.folder / "c").exists()


def test_what_was_not_seen_for_an_error_is_not_the_agents(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    (agent.folder / "mine").write_bytes(b"mine")
    agent.command(Step("write", "a"))

    def full(*_: object) -> str:
        raise SnapshotOff("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "put_object", full)
        (agent.folder / "later").write_bytes(b"later")
        agent.command(Step("write", "b"))
    agent.command(Step("write", "c"))
    agent.undo()
    assert {"mine", "later"} <= tree(agent.folder).keys()


def test_one_file_that_cannot_be_restored_keeps_no_other_from_it(agent: Agent) -> None:
    """The limit is a real one: no file of this process may grow beyond it."""
    for name in ("large", "small"):
        (agent.folder / name).write_bytes(b"old" * (100_000 if name == "large" else 1))
    agent.command(Step("write", "large", data=b"new"), Step("write", "small", data=b"new"), Step("write", "made"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        refused = agent.refusal()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "Only a part is restored. Not restored: `large` (" in refused
    assert {path.name: path.stat().st_size for path in agent.folder.iterdir()} == {"large": 3, "small": 3}
    assert (agent.folder / "small").read_bytes() == b"old"
    assert agent.refusal() == "", "the same again restores the rest"
    assert (agent.folder / "large").stat().st_size == 300_000


def test_what_one_call_changed_is_taken_back_as_far_as_it_goes_and_can_be_undone_later(agent: Agent) -> None:
    (agent.folder / "large").write_bytes(b"old" * 100_000)
    before = agent.watch.before()
    (agent.folder / "large").write_bytes(b"new")
    (agent.folder / "made").touch()
    changes = agent.watch.since(before).entries
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(UndoError, match=r"Not restored: `large` \("):
            agent.watch.roll_back(changes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in agent.folder.iterdir()] == ["large"]
    assert agent.refusal() == ""
    assert (agent.folder / "large").stat().st_size == 300_000


def test_the_oldest_changes_are_removed_where_all_of_them_are_too_large(tmp_path: Path) -> None:
    for number in range(3):  # three sessions, each with a file that no compression makes smaller
        with agent_in(tmp_path, session=f"session {number}") as agent:
            agent.command(Step("write", "a", data=os.urandom(100_000)))
            agent.snapshots.turn_began()
            agent.command(Step("delete", "a"))
    store = tmp_path / "data/undo/one"
    ages = {journal: at for at, journal in enumerate(sorted((store / "sessions").iterdir(), key=os.path.getmtime))}
    for journal, at in ages.items():
        os.utime(journal, (at + (now := time.time()) - 100, now + at - 100))
    os.utime(store / "pruned", (0, 0))
    limits = SnapshotLimits(bytes=250_000)
    with agent_in(tmp_path, limits, session="session 2") as agent:
        assert agent.refusal() == ""
        assert (agent.folder / "a").stat().st_size == 100_000
    assert list((store / "sessions").iterdir()) == [max(ages, key=lambda journal: ages[journal])]
    sizes = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    assert 100_000 < sizes < 250_000


def test_what_is_old_or_too_much_is_removed_and_the_rest_can_be_restored(tmp_path: Path) -> None:
    store = tmp_path / "data/undo/one"
    with agent_in(tmp_path) as agent:
        (agent.folder / "a").write_bytes(b"one")
        agent.command(Step("write", "a", data=b"two"))
        agent.snapshots.turn_began()
        agent.command(Step("write", "a", data=b"three"))
        unused = agent.snapshots.store(LIMITS).put(b"nobody refers to this")
    os.utime(store / "pruned", (0, 0))
    (store.parent / "old").mkdir()
    (store.parent / "old/lock").touch()
    os.utime(store.parent / "old/lock", (0, 0))
    with agent_in(tmp_path) as agent:
        agent.undo()
        assert (agent.folder / "a").read_bytes() == b"two"
        assert not (store.parent / "old").exists()
        assert agent.snapshots.store(LIMITS).get([unused]) == {}
        os.utime(store / "pruned", (0, 0))
        with agent_in(tmp_path) as other:
            assert other.refusal() == "", "nothing is removed while another process uses it"
    (journal,) = (store / "sessions").iterdir()
    os.utime(journal, (0, 0))
    os.utime(store / "pruned", (0, 0))
    with agent_in(tmp_path) as agent:
        assert "nothing to undo" in agent.refusal()
        assert not journal.exists()


# ------------------------------------------------------------------------------------ killed


CALLS_OF_A_RESTORE = ("replace", "unlink", "mkdir", "rmdir", "symlink", "fchmod", "link")


def test_a_restore_that_is_killed_anywhere_is_finished_by_the_next(tmp_path: Path) -> None:
    """Kill it before its first, second ... system call that changes something, each time from the same state."""
    with agent_in(tmp_path) as agent:
        work = agent.folder
        for step in (
            Step("write", "changed", data=b"old"),
            Step("write", "d/gone", data=b"gone"),
            Step("write", "was_file", data=b"file"),
            Step("write", "was_folder/in", data=b"in"),
            Step("link", "link", "changed"),
            Step("folder", "empty"),
        ):
            step.run(work)
        (work / "d").chmod(0o711)
        before = tree(work)
        agent.command(
            Step("write", "changed", data=b"new"),
            *(Step("delete", name) for name in ("d", "was_file", "was_folder", "link", "empty")),
            Step("write", "was_file/now/folder", data=b"x"),
            Step("write", "was_folder", data=b"now a file"),
            Step("link", "link", "elsewhere"),
            Step("write", "made/new", data=b"new"),
        )
        saved, journal = tmp_path / "saved", next((tmp_path / "data/undo/one/sessions").iterdir())
        shutil.copytree(work, saved, symlinks=True)
        written, number, code = journal.read_bytes(), 0, 9
        while code:
            for path in work.iterdir():
                Step("delete", path.name).run(work)
            shutil.copytree(saved, work, symlinks=True, dirs_exist_ok=True)
            journal.write_bytes(written)
            code, number = killed_at(agent, number), number + 1
            if code:
                assert agent.refusal() == ""
            assert tree(work) == before, f"killed before call {number}"
    assert number > 20


def killed_at(agent: Agent, number: int) -> int:
    """Undo in a child that dies before the given call that changes something. Return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = number

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)
            return real(*args, **more)

        return call

    for name in CALLS_OF_A_RESTORE:
        setattr(os, name, counted(getattr(os, name)))
    code = 1
    try:
        agent.undo()
        code = 0
    finally:
        os._exit(code)
