"""Which notes are found and how much of them is read, whatever they are."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.files import PathStamps
from acp_agent.config.settings import NOTE_FILES
from acp_agent.core.untrusted import now_ns
from acp_agent.workspace.project_notes import HEAD, FoundNotes, NoteReader, project_files, users_file
from acp_agent.workspace.read_policy import ReadPolicy
from acp_agent.workspace.roots import Roots
from tests.rows import each_row

pytestmark = pytest.mark.anyio


def found(roots: Roots, *names: str) -> FoundNotes:
    return project_files(roots, names or NOTE_FILES, PathStamps())


def sources(roots: Roots, *names: str) -> list[str]:
    return [file.source for file in found(roots, *names).files]


def texts(roots: Roots) -> list[str]:
    return [file.text for file in found(roots).files]


@contextmanager
def below(folder: Path, *more: Path) -> Iterator[Roots]:
    with Roots(str(folder), [str(each) for each in more]) as made:
        yield made


# ------------------------------------------------------------------------------------------- which


def test_of_one_folder_the_first_name_is_read(project, roots):
    assert found(roots) == FoundNotes()
    (project / ".cursorrules").write_text("old rules")
    assert sources(roots) == [".cursorrules"]
    (project / "CLAUDE.md").write_text("claude")
    assert sources(roots) == ["CLAUDE.md"]
    (project / "AGENTS.md").write_text("agents")
    (file,) = found(roots).files
    assert (file.source, file.text, file.users, file.more) == ("AGENTS.md", "agents", False, False)


def test_a_name_may_have_folders(project, roots):
    (project / ".github").mkdir()
    (project / ".github" / "copilot-instructions.md").write_text("x")
    assert sources(roots) == [".github/copilot-instructions.md"]


@pytest.mark.parametrize("blank", ["", " \n\t\n", "\ufeff"])
def test_a_blank_file_leaves_the_place_to_the_next(project, roots, blank):
    (project / "AGENTS.md").write_text(blank)
    (project / "CLAUDE.md").write_text("claude")
    assert sources(roots) == ["CLAUDE.md"]
    assert found(roots).troubles == ()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be"])
def test_a_file_is_read_in_the_encoding_that_its_mark_says(project, roots, encoding):
    mark = "" if encoding == "utf-8-sig" else "\ufeff"
    (project / "AGENTS.md").write_bytes(f"{mark}Grüße\n".encode(encoding))
    assert texts(roots) == ["Grüße\n"]


def test_folders_above_count_up_to_the_repositorys_outermost_first(project):
    inner = project / "repo" / "packages" / "app"
    inner.mkdir(parents=True)
    (project / "repo" / ".git").mkdir()
    for folder in (project, project / "repo", project / "repo" / "packages", inner):
        (folder / "AGENTS.md").write_text(folder.name)
    with below(inner, project) as roots:
        assert texts(roots) == ["repo", "packages", "app"]
        assert sources(roots) == ["../../AGENTS.md", "../AGENTS.md", "AGENTS.md"]


def test_a_work_tree_has_a_file_in_place_of_its_folder(project):
    inner = project / "src"
    inner.mkdir()
    (project / ".git").write_text("gitdir: elsewhere\n")
    (project / "AGENTS.md").write_text("outer")
    with below(inner, project) as roots:
        assert texts(roots) == ["outer"]


def test_nothing_above_the_roots_is_looked_into(project):
    inner = project / "src"
    inner.mkdir()
    (project / ".git").mkdir()
    (project / "AGENTS.md").write_text("outer")
    (inner / "AGENTS.md").write_text("inner")
    with below(inner) as roots:
        assert texts(roots) == ["inner"]


def test_without_a_repository_the_sessions_folder_alone_counts(project):
    inner = project / "src"
    inner.mkdir()
    (project / "AGENTS.md").write_text("outer")
    (inner / "AGENTS.md").write_text("inner")
    with below(inner, project) as roots:
        assert texts(roots) == ["inner"]


def test_no_more_than_sixteen_folders_are_looked_into(project):
    (project / ".git").mkdir()
    inner = project.joinpath(*"abcdefghijklmnopqrstuvwxyz")
    inner.mkdir(parents=True)
    (project / "AGENTS.md").write_text("far away")
    (inner / "AGENTS.md").write_text("here")
    with below(inner, project) as roots:
        assert texts(roots) == ["here"]


# --------------------------------------------------------------------------------------- hostile ones


def test_of_a_gigabyte_only_the_beginning_is_read(project, roots):
    with open(project / "AGENTS.md", "wb") as file:
        file.write(b"a line\n" * 20_000)
        file.truncate(1 << 30)
    (note,) = found(roots).files
    assert note.more
    assert len(note.text) <= HEAD
    assert set(note.text.splitlines()) == {"a line"}, "and ends between two lines"


def test_a_file_that_never_breaks_its_line_is_cut_anyway(project, roots):
    (project / "AGENTS.md").write_text("é" * HEAD)
    (note,) = found(roots).files
    assert note.more
    assert set(note.text) <= {"é", "\ufffd"}


def test_a_pipe_is_left_out_and_nobody_waits_for_it(project, roots):
    os.mkfifo(project / "AGENTS.md")
    (project / "CLAUDE.md").write_text("claude")
    assert sources(roots) == ["CLAUDE.md"]
    (trouble,) = found(roots).troubles
    assert trouble.endswith("AGENTS.md: is not a regular file")


def test_a_socket_and_a_folder_are_left_out(project, roots, monkeypatch):
    (project / "CLAUDE.md").mkdir()
    monkeypatch.chdir(project)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("AGENTS.md")
        assert found(roots).files == ()
        assert len(found(roots).troubles) == 2


@pytest.mark.parametrize("data", [b"\0", b"ELF\0\1\2", "a\0b".encode("utf-16"), b"text\n" * 100 + b"\0"])
def test_what_is_no_text_is_left_out(project, roots, data):
    (project / "AGENTS.md").write_bytes(data)
    assert found(roots).files == ()
    assert found(roots).troubles == ("left out of the prompt: AGENTS.md: is not text",)


def test_bytes_that_are_no_utf_8_are_marked_and_the_rest_is_kept(project, roots):
    (project / "AGENTS.md").write_bytes(b"caf\xe9 au lait\nnext \xff\xfe")
    assert texts(roots) == ["caf\ufffd au lait\nnext \ufffd\ufffd"]


def test_a_mark_of_byte_order_is_no_part_of_the_text(project, roots):
    (project / "AGENTS.md").write_bytes(b"\xef\xbb\xbftext")
    assert texts(roots) == ["text"]


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../outside/secret", "../outside/AGENTS.md", "/dev/zero", "/dev/tty"]
)
def test_a_link_that_leads_out_is_left_out(project, outside, roots, target):
    (outside / "AGENTS.md").write_text("SECRET")
    (project / "AGENTS.md").symlink_to(target)
    assert found(roots).files == ()
    assert "outside the directories of this session" in found(roots).troubles[0]


def test_a_link_in_the_folder_of_a_name_does_not_lead_out_either(project, outside, roots):
    (outside / "copilot-instructions.md").write_text("SECRET")
    (project / ".github").symlink_to(outside)
    assert found(roots).files == ()


@pytest.mark.parametrize("target", [".env", "src/settings.py", "AGENTS.md", "gone", "loop"])
def test_a_link_must_lead_to_notes(project, roots, target):
    (project / ".env").write_text("TOKEN=1")
    (project / "src").mkdir()
    (project / "src" / "settings.py").write_text("TOKEN = 1")
    (project / "loop").symlink_to("loop")
    (project / "AGENTS.md").symlink_to(target)
    assert found(roots).files == ()
    assert len(found(roots).troubles) == 1


@pytest.mark.parametrize("target", ["CLAUDE.md", "docs/guide.md", "docs/agents.md"])
def test_a_link_to_notes_inside_is_followed(project, roots, target):
    (project / "docs").mkdir()
    (project / target).write_text("notes")
    (project / "AGENTS.md").symlink_to(target)
    assert texts(roots) == ["notes"]


@pytest.mark.parametrize("pattern", ["AGENTS.md", "**/*.md", "docs"])
def test_what_may_not_be_read_is_left_out(project, pattern):
    (project / "docs").mkdir()
    (project / "docs" / "AGENTS.md").write_text("notes")
    (project / "AGENTS.md").symlink_to("docs/AGENTS.md")
    policy = ReadPolicy([pattern], folders=[str(project)])
    with Roots(str(project), policy=policy) as roots:
        assert found(roots).files == ()
        assert "may not be read" in found(roots).troubles[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_the_system_forbids_is_left_out(project, roots):
    (project / "AGENTS.md").write_text("notes")
    (project / "AGENTS.md").chmod(0)
    assert found(roots).files == ()
    assert found(roots).troubles[0].endswith("permission denied")


@given(
    st.lists(
        st.sampled_from(["file", "link", "loop", "out", "folder", "pipe", "binary", "none"]), min_size=5, max_size=5
    )
)
def test_whatever_stands_there_at_most_one_is_read_and_nothing_raised(tmp_path_factory, kinds):
    project = tmp_path_factory.mktemp("any").resolve()
    (project / ".github").mkdir()
    (project / "notes.md").write_text("linked")
    for name, kind in zip(NOTE_FILES, kinds, strict=True):
        _make(project / name, kind)
    with below(project) as roots:
        files = found(roots).files
        assert len(files) <= 1
        expected = next(({"file": "text", "link": "linked"}[kind] for kind in kinds if kind in ("file", "link")), None)
        assert [file.text for file in files] == ([] if expected is None else [expected])


def _make(path: Path, kind: str) -> None:
    match kind:
        case "file":
            path.write_text("text")
        case "link":
            path.symlink_to("../notes.md" if path.parent.name == ".github" else "notes.md")
        case "loop":
            path.symlink_to(path.name)
        case "out":
            path.symlink_to("/etc/passwd")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "binary":
            path.write_bytes(b"\0\1")
        case _:
            pass


def test_what_is_not_there_is_no_trouble_whatever_is_denied(project):
    with Roots(str(project), policy=ReadPolicy(["**/*.md", ".cursorrules"], folders=[str(project)])) as roots:
        assert found(roots) == FoundNotes()


# ------------------------------------------------------------------------------------- the user's own


def test_the_users_file_is_read_wherever_his_link_leads(tmp_path):
    (tmp_path / "dotfiles").write_text("mine")
    (tmp_path / "AGENTS.md").symlink_to("dotfiles")
    (file,) = users_file(str(tmp_path / "AGENTS.md"), PathStamps()).files
    assert (file.text, file.users) == ("mine", True)


def test_no_users_file_is_no_trouble(tmp_path):
    assert users_file(str(tmp_path / "AGENTS.md"), PathStamps()) == FoundNotes()
    assert users_file(str(tmp_path / "gone" / "AGENTS.md"), PathStamps()) == FoundNotes()


@pytest.mark.parametrize("kind", ["loop", "folder", "pipe", "binary"])
def test_a_users_file_that_is_none_is_told(tmp_path, kind):
    _make(tmp_path / "AGENTS.md", kind)
    result = users_file(str(tmp_path / "AGENTS.md"), PathStamps())
    assert result.files == ()
    assert len(result.troubles) == 1


# ------------------------------------------------------------------------------------------- read again


def old_enough() -> PathStamps:
    """Stamps at a time at which what was just written is no longer new."""
    return PathStamps(lambda: now_ns() + 1_000_000_000)


@each_row(
    "name, kind, project_holds, users_hold",
    [
        ("AGENTS.md", "file", True, True),
        ("AGENTS.md", "none", True, True),
        ("AGENTS.md", "binary", False, False),
        ("AGENTS.md", "out", False, True),  # the user's own link may lead anywhere
        ("AGENTS.md", "loop", False, False),
        (".claude/rules/a.md", "file", True, True),
        (".claude/rules/a.md", "binary", False, False),
        (".claude/rules", "file", False, True),
        (".claude/rules", "none", True, True),
    ],
)
def test_notes_that_were_left_out_are_read_again_though_nothing_changed(
    tmp_path, name, kind, project_holds, users_hold
):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    _make(tmp_path / name, kind)
    project, users, near = old_enough(), old_enough(), {os.stat(each).st_dev for each in (tmp_path, "/etc/passwd")}
    with below(tmp_path.resolve()) as roots:
        project_files(roots, NOTE_FILES, project)
    users_file(str(tmp_path / name), users)
    assert (project.hold(near), users.hold(near)) == (project_holds, users_hold)


def test_rules_are_read_again_after_they_changed_and_after_their_folder_moved_out_behind_a_link(
    project, outside, roots
):
    (project / ".claude" / "rules").mkdir(parents=True)
    (project / ".claude" / "rules" / "a.md").write_text("old rule")
    stamps, near = old_enough(), (project.stat().st_dev,)
    assert [file.text for file in project_files(roots, NOTE_FILES, stamps).files] == ["old rule"]
    assert stamps.hold(near)
    (project / ".claude" / "rules" / "a.md").write_text("rule")
    assert not stamps.hold(near)
    stamps, near = old_enough(), (project.stat().st_dev,)
    assert [file.text for file in project_files(roots, NOTE_FILES, stamps).files] == ["rule"]
    assert stamps.hold(near)
    (project / ".claude").rename(outside / "moved")
    (project / ".claude").symlink_to(outside / "moved")
    assert (project / ".claude" / "rules" / "a.md").read_text() == "rule"
    assert not stamps.hold(near), "but tools may not read it any more"
    assert texts(roots) == []


# ------------------------------------------------------------------------------------------- in time


async def test_nobody_waits_for_a_disk_that_does_not_answer():
    answers = threading.Event()

    def look() -> FoundNotes:
        answers.wait(10)
        return FoundNotes(troubles=("late",))

    reader = NoteReader(seconds=0.05)
    try:
        assert await reader.read(look) is None
        with anyio.fail_after(20):
            assert await reader.read(FoundNotes) is None, "one look at a time"
    finally:
        answers.set()
    with anyio.fail_after(20):
        while await reader.read(lambda: FoundNotes(troubles=("now",))) != FoundNotes(troubles=("now",)):
            await checkpoint()


async def test_a_reader_that_was_cancelled_reads_again():
    reader = NoteReader()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await reader.read(FoundNotes)
    assert await reader.read(lambda: FoundNotes(troubles=("x",))) == FoundNotes(troubles=("x",))
