import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from acp_agent.core.backends import EntryKind
from acp_agent.workspace.beneath import Cursor, Entered, Leaf, Left, Step, descend
from tests.unit.workspace.trees import few_descriptors, make_deep, nobodys_folder, open_fds

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


@pytest.fixture
def top(project: Path) -> Iterator[int]:
    fd = os.open(project, DIRECTORY)
    yield fd
    os.close(fd)


def told(step: Step) -> str:
    match step:
        case Leaf():
            return f"{step.kind} {step.path}"
        case Entered():
            return f"> {step.path}"
        case Left():
            return f"< {step.path}"


def test_each_directory_comes_before_and_after_what_is_in_it_and_links_are_not_entered(top: int, project: Path):
    (project / "b" / "deep").mkdir(parents=True)
    (project / "b" / "deep" / "file").write_text("")
    (project / "b" / "z").write_text("")
    (project / "a").symlink_to("b")
    os.mkfifo(project / "c")
    (project / "d").mkdir()
    with closing(descend(top, lambda path: path != "d")) as steps:
        assert [told(step) for step in steps] == [
            "symlink a",
            "> b",
            "> b/deep",
            "file b/deep/file",
            "< b/deep",
            "file b/z",
            "< b",
            "other c",
            "dir d",
        ]


def test_every_step_holds_the_directory_it_speaks_of(top: int, project: Path):
    (project / "a" / "b").mkdir(parents=True)
    (project / "a" / "file").write_text("")
    wanted = {"> a": "a", "> a/b": "a/b", "< a/b": "a", "file a/file": "a", "< a": "."}
    with closing(descend(top)) as steps:
        seen = {
            told(step): os.path.samestat(os.fstat(step.at), (project / wanted[told(step)]).stat()) for step in steps
        }
    assert seen == dict.fromkeys(wanted, True)


@pytest.mark.parametrize("target", ["../outside", "nowhere"])
def test_a_link_swapped_in_for_a_directory_is_not_entered(top: int, project: Path, target: str):
    (project / "a").mkdir()
    (project / "b").mkdir()
    with closing(descend(top)) as steps:
        first = next(steps)
        assert told(first) == "> a"
        (project / "b").rmdir()
        (project / "b").symlink_to(target)
        rest = list(steps)
    assert [told(step) for step in rest] == ["< a", "dir b"]
    assert isinstance(rest[1], Leaf)
    assert rest[1].error is not None
    assert rest[1].error.errno == errno.ELOOP


def test_what_vanishes_is_passed_over(top: int, project: Path):
    (project / "a").mkdir()
    (project / "b").mkdir()
    with closing(descend(top)) as steps:
        next(steps)
        (project / "b").rmdir()
        assert [told(step) for step in steps] == ["< a"]


def test_a_directory_moved_away_meanwhile_does_not_lead_back_to_where_it_went(top: int, project: Path, outside: Path):
    (project / "a").mkdir()
    cursor = Cursor(os.dup(top))
    cursor.enter("a")
    (project / "a").rename(outside / "a")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        cursor.leave()
    cursor.close()


def test_a_closed_walk_leaves_no_descriptor_wherever_it_stopped(top: int, project: Path):
    make_deep(project / "a", 5)
    before = open_fds()
    for stop in range(12):
        with closing(descend(top)) as steps:
            for _ in range(stop):
                next(steps, None)
    assert open_fds() == before


def test_a_tree_deeper_than_any_path_takes_a_handful_of_descriptors(top: int, project: Path):
    make_deep(project / "a", 450)
    with few_descriptors(6), closing(descend(top)) as steps:
        for step in steps:
            if isinstance(step, Left):
                os.rmdir(step.name, dir_fd=step.at)
            elif isinstance(step, Leaf):
                os.unlink(step.name, dir_fd=step.at)
    assert os.listdir(project) == []


def test_a_directory_that_may_not_be_looked_into_is_told_of_with_its_error():
    with nobodys_folder() as folder:
        (folder / "locked").mkdir(mode=0)
        fd = os.open(folder, DIRECTORY)
        with closing(descend(fd)) as steps:
            (step,) = steps
        os.close(fd)
    assert isinstance(step, Leaf)
    assert step.kind is EntryKind.DIRECTORY
    assert isinstance(step.error, PermissionError)
