"""What a session has read or written, and what is different now."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_agent.core.sessions import SeenFile
from acp_agent.core.types import Access
from acp_agent.workspace.roots import Place, Roots
from acp_agent.workspace.seen_files import SeenFiles

LATER = 10**15
"""Nanoseconds after every file of these tests was written, so that file times prove something."""


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[Roots]:
    with Roots(str(tmp_path)) as roots:
        yield roots


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.py"
    path.write_text("one\ntwo\nthree\n")
    return path


@pytest.fixture
def seen(roots: Roots, file: Path) -> SeenFiles:
    later = file.stat().st_mtime_ns + LATER
    return SeenFiles(lambda: roots, now=lambda: later)


def test_an_unchanged_file_has_not_changed_and_a_touched_one_neither(seen: SeenFiles, file: Path):
    seen.note(str(file), "one\ntwo\nthree\n")
    assert seen.changed() == ()
    os.utime(file, ns=(1, 1))
    assert seen.changed() == ()


def test_files_that_are_as_they_were_cost_a_stat_and_no_question_whether_they_may_be_read(tmp_path: Path):
    """A long session has seen a thousand files and looks at all of them before each prompt."""
    asked: list[str] = []

    class CountingRoots(Roots):
        def place(self, path: str, access: Access, *, unasked: bool = False) -> Place:
            asked.append(path)
            return super().place(path, access, unasked=unasked)

    paths = [tmp_path / f"{number}.py" for number in range(20)]
    with CountingRoots(str(tmp_path)) as roots:
        seen = SeenFiles(lambda: roots, now=lambda: 10**19)
        for path in paths:
            path.write_text("same\n")
            seen.note(str(path), "same\n")
        asked.clear()
        assert seen.changed() == ()
        assert asked == []
        paths[7].write_text("other\n")
        assert seen.changed() == (str(paths[7]),)
        assert set(asked) == {str(paths[7])}


def test_whether_nothing_has_changed_is_seen_without_reading_unless_there_are_many_files(roots: Roots, tmp_path: Path):
    seen, near = SeenFiles(lambda: roots, now=lambda: 10**19), (tmp_path.stat().st_dev,)
    assert seen.is_unchanged(near)
    for number in range(100):
        (tmp_path / f"{number}.py").write_text("same\n")
        seen.note(str(tmp_path / f"{number}.py"), "same\n")
    assert seen.is_unchanged(near)
    assert not seen.is_unchanged((near[0] + 1,))  # that device may hang
    (tmp_path / "7.py").write_text("other\n")
    assert not seen.is_unchanged(near)
    (tmp_path / "7.py").write_text("same\n")
    assert not seen.is_unchanged(near)  # until it was read
    assert seen.changed() == ()
    assert seen.is_unchanged(near)
    (tmp_path / "7.py").unlink()
    assert not seen.is_unchanged(near)
    seen.forget(str(tmp_path / "7.py"))
    for number in (100, 101):
        assert seen.is_unchanged(near)
        (tmp_path / f"{number}.py").write_text("same\n")
        seen.note(str(tmp_path / f"{number}.py"), "same\n")
    assert not seen.is_unchanged(near)
    assert seen.changed() == ()


def test_a_link_on_the_way_to_a_file_that_leads_elsewhere_now_is_a_change(roots: Roots, tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"{name}\n")
    (tmp_path / "link").symlink_to("one")
    seen = SeenFiles(lambda: roots, now=lambda: 10**19)
    seen.note(str(tmp_path / "link/file"), "one\n")
    assert seen.changed() == ()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("two")
    assert seen.changed() == (str(tmp_path / "link/file"),)


def test_a_file_that_was_rewritten_or_deleted_has_changed(seen: SeenFiles, file: Path):
    seen.note(str(file), "one\ntwo\nthree\n")
    file.write_text("one\n2\nthree\n")
    assert seen.changed() == (str(file),)
    file.unlink()
    assert seen.changed() == (str(file),)


def test_a_change_within_the_same_tick_of_the_clock_is_found(roots: Roots, file: Path):
    status = file.stat()
    seen = SeenFiles(lambda: roots, now=lambda: status.st_mtime_ns)
    seen.note(str(file), "one\ntwo\nthree\n")
    file.write_text("one\nTWO\nthree\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert seen.changed() == (str(file),)


def test_an_unsaved_text_of_the_editor_is_no_change_on_disk(seen: SeenFiles, file: Path):
    seen.note(str(file), "unsaved\n")
    assert seen.changed() == ()


def test_a_bom_is_no_change(roots: Roots, file: Path):
    file.write_bytes(b"\xef\xbb\xbfone\n")
    seen = SeenFiles(lambda: roots, now=lambda: 0)
    seen.note(str(file), "one\n")
    assert seen.changed() == ()


def test_the_difference_is_a_diff_with_the_line_numbers_of_the_file(seen: SeenFiles):
    old = "".join(f"line {number}\n" for number in range(1, 101))
    seen.note("/a", old)
    assert seen.difference("/a", old) is None
    assert seen.difference("/never-seen", "x") is None
    assert seen.difference("/a", old.replace("line 50\n", "fifty\n")) == [
        "@@ -48,5 +48,5 @@",
        " line 48",
        " line 49",
        "-line 50",
        "+fifty",
        " line 51",
        " line 52",
    ]


def test_a_long_text_is_compared_but_its_difference_is_not_shown(seen: SeenFiles):
    seen.note("/a", "x" * 300_000)
    assert seen.difference("/a", "y") == []


def test_old_notes_and_texts_are_dropped(seen: SeenFiles):
    for number in range(2_001):
        seen.note(f"/{number}", "old")
    assert "/0" not in seen
    assert seen.difference("/1", "new") == [], "seen, but too long ago for its text"
    assert seen.difference("/2000", "new") == ["@@ -1 +1 @@", "-old", "+new"]


def test_a_forgotten_folder_takes_its_files_along(seen: SeenFiles):
    for path in ("/a/b", "/a/c/d", "/ab"):
        seen.note(path, "")
    seen.forget("/a")
    assert [path for path in ("/a/b", "/a/c/d", "/ab") if path in seen] == ["/ab"]


def test_a_moved_folder_takes_its_files_along(seen: SeenFiles):
    for path in ("/a/b", "/ab", "/new/b"):
        seen.note(path, path)
    seen.move("/a", "/new")
    assert [path for path in ("/a/b", "/ab", "/new/b") if path in seen] == ["/ab", "/new/b"]
    assert seen.difference("/new/b", "/a/b") is None


def test_what_is_kept_is_the_same_object_until_something_changes(seen: SeenFiles, file: Path):
    before = seen.kept()
    seen.note(str(file), "one\ntwo\nthree\n")
    kept = seen.kept()
    assert (dict(before), [*kept]) == ({}, [str(file)])
    assert seen.kept() is kept
    seen.forget(str(file))
    assert dict(seen.kept()) == {}


def test_a_resumed_session_knows_what_changed_since_it_was_used(roots: Roots, seen: SeenFiles, file: Path):
    seen.note(str(file), "one\ntwo\nthree\n")
    seen.note("/gone", "text")
    resumed = SeenFiles(lambda: roots, files=seen.kept())
    assert resumed.changed() == ()
    file.write_text("changed while nobody looked\n")
    assert resumed.changed() == (str(file),)
    diff = resumed.difference(str(file), file.read_text())
    assert diff is not None
    assert "+changed while nobody looked" in diff


def test_no_secret_is_kept_and_none_counts_as_a_difference(roots: Roots, file: Path):
    def redact(text: str) -> str:
        return text.replace("fake-secret", "[REDACTED]")

    seen = SeenFiles(lambda: roots, redact)
    seen.note("/a", "one\nfake-secret\n")
    seen.note("/fake-secret/a", "two\n")
    assert [(path, each.text) for path, each in seen.kept().items()] == [("/a", "one\n[REDACTED]\n")]
    assert seen.difference("/a", "1\nfake-secret\n") == ["@@ -1,3 +1,3 @@", "-one", "+1", " [REDACTED]", " "]
    assert seen.difference("/a", "one\nother\n") is not None


def test_a_file_that_may_not_be_read_any_more_is_not_told(roots: Roots):
    assert SeenFiles(lambda: roots, files={"/etc/passwd": SeenFile("unknown", "")}).changed() == ()
