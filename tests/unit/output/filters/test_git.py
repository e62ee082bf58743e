"""`git_diff` and `git_status` keep what matters of a diff and of a status."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Confidence
from acp_agent.output.filters.git import GitDiff, GitStatus, files_of
from acp_agent.output.filters.strategy import CommandRun
from tests.rows import each_row
from tests.unit.output.filters.samples import applied, sample, unchanged

DIFF = GitDiff()


@pytest.mark.parametrize("name", ["small", "combined", "binary", "noprefix", "word"])
def test_a_diff_within_the_limit_passes_as_it_is(name: str):
    assert unchanged(applied(DIFF, f"git_diff_{name}", "git diff", 0), f"git_diff_{name}", Confidence.FULL)


@pytest.mark.parametrize("name", ["stat", "name_only", "error"])
def test_output_without_a_patch_passes_as_it_is(name: str):
    assert unchanged(applied(DIFF, f"git_diff_{name}", "git diff --stat"), f"git_diff_{name}", Confidence.FALLBACK)


def test_over_the_limit_every_file_is_still_named_with_its_counts():
    result = applied(DIFF, "git_diff_big", "git diff", 0)
    assert result.confidence is Confidence.PARTIAL
    assert "[left out: src/f9.txt | +2 -2]\n" in result.text
    assert "[left out: src/f52.txt | +0 -40]\n" in result.text
    assert result.text.endswith("[54 files changed, +255 -245]\n")
    shown = [line for line in result.text.splitlines() if line.startswith("diff --git")]
    notes = [line for line in result.text.splitlines() if line.startswith("[left out: ")]
    listed = [note for note in notes if ", generated]" not in note and " hunks of " not in note]
    headless = [note for note in listed if not any(note.split()[2] in line for line in shown)]
    assert len(shown) + len(headless) == 54
    assert [line for line in result.text.splitlines() if line not in sample("git_diff_big").splitlines()] == [
        *notes,
        "[54 files changed, +255 -245]",
    ]


def test_hunks_stop_at_the_limit():
    for limit in (0, 9, 40, 500):
        text = GitDiff(limit).apply(sample("git_diff_big"), CommandRun("git diff")).text
        _, files = files_of(text.split("\n"))
        assert sum(file.size for file in files) <= limit


def test_binary_files_modes_and_renames_stay():
    text = applied(DIFF, "git_diff_big", "git diff").text
    assert "Binary files a/logo.png and b/logo.png differ" in text
    assert "old mode 100644\nnew mode 100755" in text


def test_lock_files_and_minified_ones_are_their_counts_even_below_the_limit():
    locks = [
        "a/Cargo.lock",
        "package-lock.json",
        "poetry.lock",
        "static/app.min.js",
    ]
    body = "".join(f"+line {i} of a lock file\n" for i in range(30))
    text = "".join(
        f"diff --git a/{name} b/{name}\nindex 1..2 100644\n--- a/{name}\n+++ b/{name}\n@@ -0,0 +1,30 @@\n{body}"
        for name in locks
    )
    result = DIFF.apply(text, CommandRun("git diff"))
    assert result.confidence is Confidence.PARTIAL
    assert "lock file" not in result.text
    for name in locks:
        assert f"[left out: {name} | +30 -0, generated]" in result.text


def patch_of(name: str, lines: list[str]) -> str:
    body = "".join(f"+{line}\n" for line in lines)
    head = f"diff --git a/{name} b/{name}\nindex 1..2 100644\n--- a/{name}\n+++ b/{name}\n"
    return f"{head}@@ -0,0 +1,{len(lines)} @@\n{body}"


CONFLICT = ["<<<<<<< HEAD", 'version = "1.5.9"', "=======", 'version = "2.5.0"', ">>>>>>> other"]


def test_conflict_markers_in_a_generated_file_that_is_not_shown_are_said():
    text = patch_of("Cargo.lock", ["line"] * 20 + CONFLICT)
    result = DIFF.apply(text, CommandRun("git diff"))
    assert result.confidence is Confidence.PARTIAL
    assert result.text.endswith("[left out: Cargo.lock | +25 -0, 2 conflict markers, generated]\n")


def test_conflict_markers_that_a_diff_takes_away_are_none():
    text = patch_of("Cargo.lock", ["line"] * 20 + CONFLICT).replace("\n+", "\n-").replace("-0,0 +1,25", "-1,25 +0,0")
    assert "[left out: Cargo.lock | +0 -25, generated]" in DIFF.apply(text, CommandRun("git diff")).text


def test_conflict_markers_behind_the_limit_are_said():
    text = patch_of("a.py", ["line"] * 40 + CONFLICT) + patch_of("b.py", ["line"] * 40 + CONFLICT)
    shown = GitDiff(20).apply(text, CommandRun("git diff")).text
    assert "[left out: a.py | +45 -0, 2 conflict markers]\n" in shown
    assert "[left out: b.py | +45 -0, 2 conflict markers]\n" in shown


def test_what_stands_before_and_behind_the_patch_stays():
    text = " a | 2 +-\n" + sample("git_diff_big") + "done by hand\n"
    result = DIFF.apply(text, CommandRun("git diff --stat -p; echo done by hand"))
    assert result.text.startswith(" a | 2 +-\ndiff --git")
    assert "done by hand" in result.text


def test_paths_are_read_from_every_kind_of_header():
    headers = {
        "diff --git a/src/x.py b/src/x.py": "src/x.py",
        "diff --git a/old name.py b/new name.py": "new name.py",
        "diff --git a/with b/in.py b/with b/in.py": "with b/in.py",
        'diff --git "a/\\303\\274.txt" "b/\\303\\274.txt"': "\\303\\274.txt",
        "diff --git src/x.py src/x.py": "src/x.py",
        "diff --cc a.txt": "a.txt",
        "diff --combined dir/a.txt": "dir/a.txt",
    }
    for header, path in headers.items():
        assert files_of([header])[1][0].path == path


def test_counts_of_a_combined_diff_are_those_of_its_lines():
    _, files = files_of(sample("git_diff_combined").split("\n"))
    assert [(file.path, file.added, file.removed) for file in files] == [("a.txt", 5, 0), ("b.txt", 5, 0)]
    assert files[1].trailer[0] == "* Unmerged path c.txt"


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=12), st.integers(0, 200))
def test_no_line_of_a_hunk_stands_without_its_header_and_no_file_is_lost(changes: list[tuple[int, int]], limit: int):
    text = ""
    for i, (removed, added) in enumerate(changes):
        text += f"diff --git a/f{i} b/f{i}\nindex 1..2 100644\n--- a/f{i}\n+++ b/f{i}\n"
        if removed or added:
            text += f"@@ -1,{removed} +1,{added} @@\n" + "-diff --git a/x b/x\n" * removed + "+@@ -1 +1 @@\n" * added
    result = GitDiff(limit).apply(text, CommandRun("git diff")).text
    for i in range(len(changes)):
        assert f"f{i}" in result
    headed = False
    for line in result.splitlines():
        headed = line.startswith("@@ ") or (headed and line[:1] in "+-")
        assert headed or not line.startswith(("-diff", "+@@"))


STATUS = GitStatus()
LONG = ["dirty", "clean", "conflict", "rebase", "detached", "no_commits", "verbose"]


@each_row("name", LONG)
def test_every_line_but_hints_and_files_of_long_sections_stays(name: str):
    result = applied(STATUS, f"git_status_{name}", "git status", 0)
    for line in sample(f"git_status_{name}").splitlines():
        if not line.startswith(("\t", "  (")):
            assert re.sub(r" \((use|create)\b.*\)$", "", line) in result.text


@each_row("name", LONG)
def test_no_hint_stays(name: str):
    assert '(use "git' not in applied(STATUS, f"git_status_{name}", "git status", 0).text
    assert "to track)" not in applied(STATUS, f"git_status_{name}", "git status", 0).text


def test_a_long_section_is_its_first_files_and_their_number():
    result = applied(STATUS, "git_status_dirty", "git status", 0)
    assert result.confidence is Confidence.PARTIAL
    assert "\t[34 more of 54 files in this section]\n" in result.text
    assert "\t[21 more of 41 files in this section]\n" in result.text
    assert "renamed:    src/f50.txt -> src/renamed.txt" in result.text
    assert "Your branch is ahead of 'origin/main' by 1 commit." in result.text


def test_conflicts_stay_however_many_there_are():
    files = "".join(f"\tboth modified:   src/f{i}.py\n" for i in range(80))
    text = (
        f'On branch main\nYou have unmerged paths.\n  (use "git merge --abort" to abort)\n\nUnmerged paths:\n{files}\n'
    )
    result = STATUS.apply(text, CommandRun("git status"))
    assert all(f"src/f{i}.py" in result.text for i in range(80))
    assert result.confidence is Confidence.FULL


def test_the_state_of_a_merge_or_rebase_stays():
    assert "You have unmerged paths." in applied(STATUS, "git_status_conflict", "git status").text
    text = applied(STATUS, "git_status_rebase", "git status").text
    assert "interactive rebase in progress; onto" in text
    assert "You are currently rebasing branch 'main'" in text


@pytest.mark.parametrize("name", ["git_status_short", "git_status_short_branch", "git_status_porcelain2"])
def test_short_and_porcelain_formats_pass_as_they_are(name: str):
    assert unchanged(applied(STATUS, name, "git status -s", 0), name, Confidence.FULL)


@pytest.mark.parametrize("text", ["", "fatal: not a git repository\n", "Auf Branch main\nnichts zu committen\n"])
def test_what_is_no_status_is_given_back_unchanged(text: str):
    result = STATUS.apply(text, CommandRun("git status", (), 128))
    assert (result.text, result.confidence) == (text, Confidence.FALLBACK)


def test_the_patch_of_status_v_stays_untouched():
    raw = sample("git_status_verbose")
    assert applied(STATUS, "git_status_verbose", "git status -v").text.endswith(raw[raw.index("diff --git") :])
