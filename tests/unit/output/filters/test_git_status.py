import re

import pytest

from acp_agent.core.types import Confidence
from acp_agent.output.filters.git import GitStatus
from acp_agent.output.filters.strategy import CommandRun
from tests.unit.output.filters.samples import applied, sample, unchanged

STATUS = GitStatus()
LONG = ["dirty", "clean", "conflict", "rebase", "detached", "no_commits", "verbose"]


@pytest.mark.parametrize("name", LONG)
def test_every_line_but_hints_and_files_of_long_sections_stays(name: str):
    result = applied(STATUS, f"git_status_{name}", "git status", 0)
    for line in sample(f"git_status_{name}").splitlines():
        if not line.startswith(("\t", "  (")):
            assert re.sub(r" \((use|create)\b.*\)$", "", line) in result.text


@pytest.mark.parametrize("name", LONG)
def test_no_hint_stays(name: str):
    assert '(use "git' not in applied(STATUS, f"git_status_{name}", "git status", 0).text
    assert "to track)" not in applied(STATUS, f"git_status_{name}", "git status", 0).text


def test_a_long_section_is_its_first_files_and_their_number():
    result = applied(STATUS, "git_status_dirty", "git status", 0)
    assert result.confidence is Confidence.PARTIAL
    assert "\t... and 34 more (54 in this section)\n" in result.text
    assert "\t... and 21 more (41 in this section)\n" in result.text
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
