"""What a configuration says about a session's folders: who may read, change and see what."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from acp_agent.config.load import Flags, load
from acp_agent.core.errors import ConfigError, Refused
from acp_agent.core.types import Access
from acp_agent.session.toolset.settings import FolderRules
from acp_agent.workspace.roots import ReadableFolder

Making = Callable[[str], FolderRules]


@pytest.fixture
def making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Making:
    """The rules of a folder under a configuration of the user."""
    base = tmp_path.resolve()
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", str(base / "data"))
    (base / "work").mkdir()

    def make(config: str) -> FolderRules:
        (base / "config.toml").write_text(config)
        loaded = load(Flags(), {"ACP_AGENT_CONFIG": str(base / "config.toml")}, str(base / "work"))
        return FolderRules(loaded, str(base / "work"))

    return make


def test_commands_may_read_what_the_configuration_says_and_the_skills(making: Making) -> None:
    skills = [ReadableFolder("/skills/a", "a", "yours")]
    walls = making("[tools.sandbox]\nallow_read = ['/opt/x']\nallow_write = ['/opt/y']\n").walls(skills)
    assert walls is not None
    assert (walls.allow_read, tuple(walls.allow_write)) == (("/opt/x", "/skills/a"), ("/opt/y",))


def test_places_beside_the_configuration_are_ours_where_there_is_one(making: Making, tmp_path: Path) -> None:
    rules = making("")
    ours = str(tmp_path.resolve() / "hooks.toml"), str(tmp_path.resolve() / "skills")
    assert set(ours) <= set(rules._written_by_us)
    without = FolderRules(replace(rules.loaded, file=""), rules.folders[0])
    assert without._written_by_us == without._ours


@pytest.mark.parametrize("off", ['mode = "off"', 'profile = "off"'])
def test_a_sandbox_that_is_switched_off_has_no_walls(making: Making, off: str) -> None:
    assert making(f"[tools.sandbox]\n{off}\n").walls() is None
    assert making("").walls() is not None


def test_walls_protect_what_decides_and_not_what_projects_edit_every_day(making: Making, tmp_path: Path) -> None:
    walls, work = making("").walls(), tmp_path.resolve() / "work"
    assert walls is not None
    assert walls.protects(str(work / ".git/hooks/pre-commit"))
    assert not walls.protects(str(work / "AGENTS.md"))


def test_commands_see_nothing_of_our_own_wherever_it_is_kept(making: Making, tmp_path: Path) -> None:
    walls = making(
        '[acp]\npermission_file = "/kept/grants.toml"\n[audit]\nfile = "/kept/audit.jsonl"\n'
        '[tools.policy]\npolicy_file = "/kept/policy.toml"\n[tools.sandbox]\ndeny_read = ["/kept/mine"]\n'
    ).walls()
    assert walls is not None
    assert {
        "/kept/mine",
        "/kept/grants.toml",
        "/kept/audit.jsonl",
        "/kept/audit.jsonl.head",
        "/kept/policy.toml",
        str(tmp_path.resolve() / "data"),
        str(tmp_path.resolve() / "config.toml"),
    } <= set(walls.hidden)


def test_no_tool_changes_definitions_that_stand_beside_the_configuration(making: Making, tmp_path: Path) -> None:
    rules = FolderRules(making("").given, str(tmp_path.resolve()))
    for for_shell in (False, True):
        with rules.roots(for_shell=for_shell) as roots:
            for name in ("skills/a/SKILL.md", "hooks.toml", "config.toml"):
                assert roots.allows(str(tmp_path.resolve() / name), Access.READ)
                with pytest.raises(Refused, match="belongs to the agent"):
                    roots.resolve(name, Access.WRITE)


def test_no_tool_changes_a_hard_protected_path(making: Making) -> None:
    for for_shell in (False, True):
        with making("").roots(for_shell=for_shell) as roots, pytest.raises(Refused, match="is protected"):
            roots.resolve(".git/hooks/pre-commit", Access.WRITE)


def test_a_list_of_what_may_be_read_is_for_the_file_tools_and_an_exception_for_commands_too(making: Making) -> None:
    only = making('[tools.file]\nallow_read = ["src/**"]\n')
    with only.roots() as files, only.roots(for_shell=True) as commands:
        with pytest.raises(Refused):
            files.resolve("other.txt", Access.READ)
        assert commands.resolve("other.txt", Access.READ)
    except_one = making('[tools.file]\nread_policy = "carve_out"\ndeny_read = ["*.txt"]\nallow_read = ["open.txt"]\n')
    with except_one.roots(for_shell=True) as commands:
        assert commands.resolve("open.txt", Access.READ)
        with pytest.raises(Refused):
            commands.resolve("other.txt", Access.READ)


def test_no_yes_opens_the_secrets_in_a_skill(making: Making, tmp_path: Path) -> None:
    skill = ReadableFolder(str(tmp_path.resolve() / "skill"), "the skill")
    with making("").roots(skills=lambda: (skill,)) as roots:
        assert roots.readable.find(f"{skill.path}/notes.md", f"{skill.path}/notes.md") == skill
        assert roots.readable.find(f"{skill.path}/.ssh/id_rsa", f"{skill.path}/.ssh/id_rsa") is None


def test_rules_that_cannot_be_read_leave_no_folder_open(making: Making) -> None:
    broken = making("[tools.file]\ndeny_read = 'no list'\n")
    assert broken.loaded.fault is not None
    for for_shell in (False, True):
        with pytest.raises(ConfigError):
            broken.roots(for_shell=for_shell)


def test_a_folder_that_the_repository_names_for_its_hooks_is_protected(making: Making, tmp_path: Path) -> None:
    work = tmp_path.resolve() / "work"
    (work / ".git").mkdir()
    (work / ".git/config").write_text("[core]\n\thooksPath = tools/git\n")
    found = making("").protected.find(str(work / "tools/git/pre-commit"))
    assert found is not None
    assert not found.hard
    assert not found.everyday
    assert making("").protected.find(str(work / "tools/other")) is None
    assert making('[tools.protection]\nunprotected_paths = ["tools/git"]\n').protected.find("tools/git/a") is None


@pytest.mark.parametrize("place", [".", "..", "/", "../elsewhere", ""])
def test_no_folder_around_the_session_is_protected_because_of_hooks(making: Making, tmp_path: Path, place: str) -> None:
    work = tmp_path.resolve() / "work"
    (work / ".git").mkdir()
    (work / ".git/config").write_text(f"[core]\n\thooksPath = {place}\n")
    assert making("").protected.find(str(work / "a.txt")) is None


def test_a_linked_worktree_obeys_its_repository_about_the_place_of_hooks(making: Making, tmp_path: Path) -> None:
    work, main = tmp_path.resolve() / "work", tmp_path.resolve() / "main"
    git = main / ".git/worktrees/work"
    git.mkdir(parents=True)
    (main / ".git/config").write_text("[core]\n\thooksPath = tools\n")
    (git / "commondir").write_text("../..\n")
    (git / "gitdir").write_text(f"{work}/.git\n")
    (work / ".git").write_text(f"gitdir: {git}\n")
    assert making("").protected.find(str(work / "tools/pre-commit")) is not None
