"""Which files with definitions are found and used, and who has to agree to them."""

import os
import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.files import PathStamps
from acp_agent.core.errors import ToolError
from acp_agent.core.ports import Decision, Question
from acp_agent.core.untrusted import now_ns
from acp_agent.extend.sources import MOST, ExtensionSources, SourceFile, SourceKind, distinct
from acp_agent.store.decisions import TrustedFolders
from acp_agent.workspace.read_policy import ReadPolicy
from acp_agent.workspace.roots import Roots

pytestmark = pytest.mark.anyio


@dataclass
class Answers:
    """A user who gives one answer."""

    decision: Decision = Decision.ALLOW_ALWAYS
    asked: list[Question] = field(default_factory=list)

    async def ask(self, question: Question) -> Decision:
        self.asked.append(question)
        return self.decision


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("home/.config/acp-agent", "home/work/app", "data"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def put(world: Path, name: str, text: str = "x") -> Path:
    path = world / "home" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def opened(world: Path) -> Roots:
    return Roots(str(world / "home/work/app"))


def sources(world: Path, *, at_home: bool = False, **more) -> ExtensionSources:
    store = TrustedFolders(str(world / "data/trusted-folders.toml"), pytest.fail)
    config = str(world / "home/.config/acp-agent/config.toml")
    return ExtensionSources(config, str(world / "home/work/app"), store, at_home=lambda: at_home, **more)


def shown(files: tuple[SourceFile, ...]) -> list[str]:
    return [file.shown for file in files]


def later() -> int:
    """A time at which what was just written is no longer new."""
    return now_ns() + 1_000_000_000


_FILES = (
    *(".config/acp-agent/skills/pdf/SKILL.md", ".config/acp-agent/commands/a.md", ".config/acp-agent/commands/b/c.md"),
    *(".config/acp-agent/hooks.toml", "work/app/.claude/agents/one.md", "work/app/.claude/settings.json"),
    *("work/app/.acp-agent/tools/x.toml", "work/app/.agents/skills/y/SKILL.md", ".claude/commands/home.md"),
)
_CHANGES = st.sampled_from(["write", "remove", "link", "lost link", "remove folder"])


@given(st.lists(st.tuples(st.sampled_from(_FILES), _CHANGES, st.integers(1, 9)), max_size=8), st.booleans())
def test_while_sources_are_current_another_look_finds_the_same(tmp_path_factory, changes, trusted):
    world = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(world / "home"))
        for name in ("home/.config/acp-agent", "home/work/app"):
            (world / name).mkdir(parents=True)
        (world / "elsewhere").write_text("linked")
        near = (world.stat().st_dev,)
        with opened(world) as roots:
            allowed = roots if trusted else None
            made = sources(world, at_home=True, stamps=partial(PathStamps, later))
            for name, change, size in changes:
                made.refresh(allowed)
                assert made.is_current(allowed, near) or made.waiting or made.problems
                _change(world / "home" / name, change, size, world / "elsewhere")
                if made.is_current(allowed, near):
                    other = sources(world, at_home=True)
                    other.refresh(allowed)
                    found = [(each, made.files(each)) for each in SourceKind]
                    assert found == [(each, other.files(each)) for each in SourceKind]
                    assert (made.problems, made.waiting) == (other.problems, other.waiting)


def _change(path: Path, change: str, size: int, target: Path) -> None:
    if change == "remove folder":
        shutil.rmtree(path.parent, ignore_errors=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if change == "write":
        path.write_text("x" * size)
    elif change != "remove":
        path.symlink_to(target if change == "link" else "nowhere")


def test_sources_are_not_current_for_others_that_may_be_read_and_while_files_wait(world):
    made, near = sources(world, stamps=partial(PathStamps, later)), (world.stat().st_dev,)
    with opened(world) as roots, opened(world) as others:
        assert not made.is_current(roots, near)
        made.refresh(roots)
        assert made.is_current(roots, near)
        assert not made.is_current(others, near)
        assert not made.is_current(None, near)
        put(world, "work/app/.acp-agent/agents/a.md", "text")
        made.refresh(roots)
        assert shown(made.waiting) == [".acp-agent/agents/a.md"]
        assert not made.is_current(roots, near)  # another session may hear the user's yes
        made.answer(made.waiting, trusted=True, lasting=False)
        made.refresh(roots)
        assert made.is_current(roots, near)


def test_sources_are_not_current_after_a_file_or_a_folder_could_not_be_read(world):
    near, skill = (world.stat().st_dev,), "work/app/.claude/skills/a/SKILL.md"
    (world / "elsewhere/a").mkdir(parents=True)
    (world / "elsewhere/a/SKILL.md").write_text("x")
    world.joinpath("home", "work", "app", ".claude").mkdir()
    found = dict[str, tuple[list[str], bool]]()

    def look(name: str) -> None:
        made = sources(world, stamps=partial(PathStamps, later))
        with opened(world) as roots:
            made.refresh(roots)
            found[name] = [str(each) for each in made.problems], made.is_current(roots, near)

    folder = world.joinpath("home", "work", "app", ".claude", "skills")
    look("nothing there")
    folder.symlink_to(world / "elsewhere")
    look("a folder outside the project")
    folder.unlink()
    folder.write_text("no folder")
    look("a file in place of the folder")
    folder.unlink()
    put(world, skill).unlink()
    os.mkfifo(world / "home" / skill)
    look("no regular file")
    assert found == {
        "nothing there": ([], True),
        "a folder outside the project": ([], False),
        "a file in place of the folder": ([], True),
        "no regular file": ([".claude/skills/a/SKILL.md: is not a regular file"], False),
    }


# ------------------------------------------------------------------------------------------- which


def test_the_users_files_are_used_as_they_are(world):
    put(world, ".config/acp-agent/agents/b.md")
    put(world, ".config/acp-agent/agents/a.md", "text")
    put(world, ".config/acp-agent/agents/.hidden.md")
    put(world, ".config/acp-agent/agents/notes.txt")
    put(world, ".config/acp-agent/skills/pdf/SKILL.md")
    put(world, ".config/acp-agent/skills/empty/other.md")
    put(world, ".config/acp-agent/hooks.toml")
    made = sources(world)
    assert made.files(SourceKind.AGENTS) == ()
    made.refresh(None)
    assert shown(made.files(SourceKind.AGENTS)) == [
        "~/.config/acp-agent/agents/a.md",
        "~/.config/acp-agent/agents/b.md",
    ]
    first = made.files(SourceKind.AGENTS)[0]
    assert (first.name, first.data, first.project, len(first.digest)) == ("a", b"text", False, 64)
    (skill,) = made.files(SourceKind.SKILLS)
    assert (skill.name, skill.folder) == ("pdf", str(world / "home/.config/acp-agent/skills/pdf"))
    assert [file.name for file in made.files(SourceKind.HOOKS)] == ["hooks"]
    assert (made.files(SourceKind.TOOLS), made.problems, made.waiting) == ((), (), ())


def test_commands_may_lie_in_folders_which_are_part_of_their_names(world):
    for name in ("top.md", "git/log.md", "git/deep/x.md", ".hidden/y.md", "git/notes.txt"):
        put(world, f".config/acp-agent/commands/{name}")
    made = sources(world)
    made.refresh(None)
    assert [file.name for file in made.files(SourceKind.COMMANDS)] == ["top", "git:log"]


def test_what_other_agents_have_at_home_is_used_only_if_the_user_wants(world):
    put(world, ".claude/skills/pdf/SKILL.md")
    made = sources(world)
    made.refresh(None)
    assert made.files(SourceKind.SKILLS) == ()
    made = sources(world, at_home=True)
    made.refresh(None)
    assert shown(made.files(SourceKind.SKILLS)) == ["~/.claude/skills/pdf/SKILL.md"]


def test_without_definitions_no_file_is_opened(world, monkeypatch):
    made = sources(world)
    monkeypatch.setattr(os, "listdir", pytest.fail)
    monkeypatch.setattr(os, "open", pytest.fail)
    made.refresh(None)
    assert made.files(SourceKind.SKILLS) == ()


def test_a_file_is_read_again_only_when_it_changes(world):
    path = put(world, ".config/acp-agent/agents/a.md", "one")
    os.utime(path, (1, 1))
    made = sources(world)
    made.refresh(None)
    before = made.files(SourceKind.AGENTS)
    made.refresh(None)
    assert made.files(SourceKind.AGENTS) is before
    put(world, ".config/acp-agent/agents/a.md", "two")
    made.refresh(None)
    assert [file.data for file in made.files(SourceKind.AGENTS)] == [b"two"]
    path.unlink()
    made.refresh(None)
    assert made.files(SourceKind.AGENTS) == ()


# --------------------------------------------------------------------------------- a project's files


async def test_a_projects_file_waits_for_the_users_yes_which_is_kept(world):
    put(world, "work/app/.acp-agent/agents/a.md", "Do it.")
    put(world, "work/app/.claude/skills/pdf/SKILL.md")
    user = Answers()
    with opened(world) as roots:
        made = sources(world)
        made.refresh(roots)
        assert (made.files(SourceKind.AGENTS), len(made.waiting)) == ((), 2)
        await made.ask(user, lambda file: f"{file.name}: {len(file.data)} bytes")
        made.refresh(roots)
        assert shown(made.files(SourceKind.AGENTS) + made.files(SourceKind.SKILLS)) == [
            ".acp-agent/agents/a.md",
            ".claude/skills/pdf/SKILL.md",
        ]
        (question,) = user.asked
        assert question.reasons[1:] == ("a: 6 bytes", "pdf: 1 bytes")
        later = sources(world)
        later.refresh(roots)
        await later.ask(user, str)
    assert (len(later.files(SourceKind.AGENTS)), later.waiting, len(user.asked)) == (1, (), 1)


async def test_a_file_that_changes_after_the_yes_is_not_used_until_the_next(world):
    put(world, "work/app/.acp-agent/agents/a.md", "one")
    user = Answers()
    with opened(world) as roots:
        made = sources(world)
        made.refresh(roots)
        await made.ask(user, str)
        put(world, "work/app/.acp-agent/agents/a.md", "two")
        made.refresh(roots)
        assert (made.files(SourceKind.AGENTS), [file.data for file in made.waiting]) == ((), [b"two"])
        put(world, "work/app/.acp-agent/agents/a.md", "one")
        made.refresh(roots)
    assert [file.data for file in made.files(SourceKind.AGENTS)] == [b"one"]


async def test_a_no_is_not_asked_again_and_yes_can_still_be_said(world):
    put(world, "work/app/.acp-agent/agents/a.md")
    user = Answers(Decision.REJECT_ONCE)
    with opened(world) as roots:
        made = sources(world)
        made.refresh(roots)
        for _ in range(2):
            await made.ask(user, str)
            made.refresh(roots)
        assert (made.files(SourceKind.AGENTS), len(made.waiting), len(user.asked)) == ((), 1, 1)
        made.answer(made.waiting, trusted=True, lasting=False)
        made.refresh(roots)
        assert (len(made.files(SourceKind.AGENTS)), made.waiting) == (1, ())
        later = sources(world)
        later.refresh(roots)
    assert len(later.waiting) == 1


async def test_no_answer_in_time_leaves_the_files_unused(world):
    class Silent:
        async def ask(self, question: Question) -> Decision:
            raise ToolError.__new__(ToolError)

    put(world, "work/app/.acp-agent/agents/a.md")
    with opened(world) as roots:
        made = sources(world)
        made.refresh(roots)
        with pytest.raises(ToolError):
            await made.ask(Silent(), str)
        made.refresh(roots)
    assert (made.files(SourceKind.AGENTS), len(made.waiting)) == ((), 1)


def test_nothing_of_a_folder_that_is_not_trusted_is_even_read(world):
    put(world, "work/app/.acp-agent/agents/a.md")
    made = sources(world)
    made.refresh(None)
    assert (made.files(SourceKind.AGENTS), made.waiting, made.problems) == ((), (), ())


def test_links_out_of_the_project_fifos_and_denied_files_are_refused(world):
    put(world, "secret.md", "secret")
    agents = put(world, "work/app/.acp-agent/agents/denied.md").parent
    (agents / "link.md").symlink_to(world / "home/secret.md")
    os.mkfifo(agents / "pipe.md")
    (agents / "folder.md").mkdir()
    put(world, "work/app/.acp-agent/agents/large.md", "x" * (256 * 1024 + 1))
    folder = str(world / "home/work/app")
    with Roots(folder, [str(world / "home")], policy=ReadPolicy(["**/denied.md"], folders=[folder])) as roots:
        made = sources(world)
        made.refresh(roots)
    assert made.waiting == ()
    assert [str(problem).removeprefix(".acp-agent/agents/") for problem in made.problems] == [
        "denied.md: may not be read (tools.file.deny_read)",
        "folder.md: is a directory, not a file",
        "large.md: expected at most 256 KiB",
        "link.md: expected a file inside the project, not a link out of it",
        "pipe.md: is not a regular file",
    ]


def test_a_copy_under_the_same_name_counts_once(world):
    put(world, "work/app/.agents/skills/pdf/SKILL.md")
    (world / "home/work/app/.claude").mkdir()
    (world / "home/work/app/.claude/skills").symlink_to("../.agents/skills")
    with opened(world) as roots:
        made = sources(world)
        made.refresh(roots)
    assert shown(made.waiting) == [".claude/skills/pdf/SKILL.md"]


def test_no_more_files_of_a_kind_than_the_most_are_read(world):
    for number in range(MOST + 5):
        put(world, f".config/acp-agent/agents/{number:03}.md", str(number))
    made = sources(world)
    made.refresh(None)
    assert len(made.files(SourceKind.AGENTS)) == MOST
    (problem,) = made.problems
    assert problem.file == f"~/.config/acp-agent/agents/{MOST}.md"
    assert problem.reason == f"expected at most {MOST} files of agents, and 8 MiB: the rest is not used"


def test_no_more_bytes_of_a_kind_than_the_most_are_kept(world, monkeypatch):
    monkeypatch.setattr("acp_agent.extend.sources.MOST_BYTES", 2_000)
    for name in "abc":
        put(world, f".config/acp-agent/agents/{name}.md", name * 900)
    made = sources(world)
    made.refresh(None)
    assert [file.name for file in made.files(SourceKind.AGENTS)] == ["a", "b"]
    assert "c.md: expected at most" in str(made.problems[0])


def test_a_link_that_leads_nowhere_is_named(world):
    folder = put(world, ".config/acp-agent/agents/a.md").parent
    (folder / "circle.md").symlink_to("circle.md")
    (folder / "nowhere.md").symlink_to("gone.md")
    (folder.parent / "skills" / "s").mkdir(parents=True)
    (folder.parent / "skills" / "s" / "SKILL.md").symlink_to("SKILL.md")
    made = sources(world)
    made.refresh(None)
    assert [file.name for file in made.files(SourceKind.AGENTS)] == ["a"]
    assert [os.path.basename(problem.file) for problem in made.problems] == ["circle.md", "nowhere.md", "SKILL.md"]
    assert {problem.reason for problem in made.problems} == {"is a link that leads to no file"}


def test_the_first_of_a_name_wins_and_the_others_are_told_why(world):
    put(world, ".config/acp-agent/agents/a.md", "mine")
    put(world, ".config/acp-agent/agents/z.md")
    put(world, "work/app/.acp-agent/agents/a.md", "theirs")
    put(world, "work/app/.acp-agent/agents/help.md")
    with opened(world) as roots:
        made = sources(world)
        made.refresh(roots)
        made.answer(made.waiting, trusted=True, lasting=False)
        made.refresh(roots)
    named = [(file.name, file, file.data) for file in made.files(SourceKind.AGENTS)]
    found, problems = distinct(named, {"help": "a built-in name"})
    assert found == {"a": b"mine", "z": b"x"}
    assert [*map(str, problems)] == [
        ".acp-agent/agents/a.md: name: 'a' is already defined in ~/.config/acp-agent/agents/a.md; this one is not used",
        ".acp-agent/agents/help.md: name: 'help' is a built-in name; this one is not used",
    ]
