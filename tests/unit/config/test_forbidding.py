"""A value that forbids and cannot be understood never leaves more allowed than its default and the rest do."""

import pytest

from acp_agent.config.load import Flags, load, options_at_start
from acp_agent.config.tool_settings import DEFAULT_GROUPS, DenyGroup
from acp_agent.core.session_options import AutoApprove, Mode

BLOCKED = "ACP_AGENT_TOOLS__SHELL__BLOCKED_COMMANDS"


@pytest.mark.parametrize("value", ["['a b', 7, '']", "[7, 'a b']", "'a b'"])
@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("tools.shell", "blocked_commands"),
        ("tools.scrape", "denied_domains"),
        ("tools.protection", "protected_paths"),
        ("tools", "deny"),
    ],
)
def test_the_good_entries_of_a_faulty_list_forbid(loading, section: str, name: str, value: str):
    loaded = loading(f"[{section}]\n{name} = {value}\n")
    found = loaded.settings
    for part in section.split("."):
        found = getattr(found, part)
    assert getattr(found, name) == ("a b",)
    assert loaded.problems
    assert loaded.fault is None


def test_a_faulty_list_of_groups_adds_to_the_default_ones(loading):
    groups = loading(
        "[tools.shell]\nblocked_groups = ['destructive', 'destructiv']\n"
    ).settings.tools.shell.blocked_groups
    assert set(groups) == {*DEFAULT_GROUPS, DenyGroup.DESTRUCTIVE}


@pytest.mark.parametrize("text", ['["c", 7]', "[", "[7]"])
def test_a_faulty_variable_adds_to_what_the_file_forbids(loading, text: str):
    loaded = loading("[tools.shell]\nblocked_commands = ['a']\n", environ={BLOCKED: text})
    assert loaded.settings.tools.shell.blocked_commands[0] == "a"
    assert ("c" in loaded.settings.tools.shell.blocked_commands) is ("c" in text)


def test_a_sound_variable_stands_in_for_the_files_list(loading):
    loaded = loading("[tools.shell]\nblocked_commands = ['a', 7]\n", environ={BLOCKED: '["c"]'})
    assert loaded.settings.tools.shell.blocked_commands == ("c",)


def test_what_a_project_forbids_in_a_faulty_list_is_forbidden(loading):
    loaded = loading("[tools.shell]\nblocked_commands = ['a']\n", "[tools.shell]\nblocked_commands = ['b', 7]\n")
    assert loaded.settings.tools.shell.blocked_commands == ("a", "b")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("[tools]\nautonomy_level = 'reedonly'\n[acp]\nauto_approve = 'full-auto'\n", AutoApprove.AUTO_EDIT),
        ("[tools]\nautonomy_level = 'full'\n[acp]\nauto_approve = 'sugest'\n", AutoApprove.SUGGEST),
        ("[tools]\nautonomy_level = 7\n", AutoApprove.SUGGEST),
        ("[acp]\nauto_approve = true\n", AutoApprove.SUGGEST),
    ],
)
def test_a_level_nobody_understands_counts_as_the_default_that_was_chosen(loading, text: str, level: AutoApprove):
    assert options_at_start(loading(text)).auto_approve is level


def test_a_level_or_mode_nobody_understands_lifts_none_from_below(loading):
    environ = {
        "ACP_AGENT_TOOLS__AUTONOMY_LEVEL": "al",
        "ACP_AGENT_ACP__AUTO_APPROVE": "al",
        "ACP_AGENT_ACP__MODE": "al",
    }
    file = "[tools]\nautonomy_level = 'readonly'\n[acp]\nmode = 'ask'\nauto_approve = 'suggest'\n"
    conduct = options_at_start(loading(file, environ=environ))
    assert (conduct.readonly, conduct.mode, conduct.auto_approve) == (True, Mode.ASK, AutoApprove.SUGGEST)
    project = options_at_start(loading(file, "[tools]\nautonomy_level = 7\n[acp]\nmode = 7\n"))
    assert (project.readonly, project.mode) == (True, Mode.ASK)


def test_a_mode_nobody_understands_is_the_default_and_a_project_may_still_tighten_it(loading):
    assert options_at_start(loading("[acp]\nmode = 'aks'\n")).mode is Mode.CODE
    assert options_at_start(loading("[acp]\nmode = 'aks'\n", "[acp]\nmode = 'ask'\n")).mode is Mode.ASK


@pytest.mark.parametrize(
    "text",
    [
        "tools = 7",
        "[[tools]]",
        "[[tools.shell]]\nblocked_commands = ['x']",
        "[tools]\npolicy = 'deny'",
        "[tools]\npermissions = 'deny'",
        "[tools]\nallow = ['read', 7]",
        "[tools.by_model.x]\ndeny = 'bash'",
        "[tools.scrape]\nallowed_domains = 7",
        "[tools.file]\nallow_read = 7",
        "[tools.file]\nread_policy = 'x'",
        "[tools.file]\ndeny_reed = ['x']",
    ],
)
def test_what_leaves_open_what_is_forbidden_is_a_fault_of_the_users_own_sources_only(loading, text: str):
    own = loading(text + "\n")
    assert own.fault is not None
    assert own.fault in own.problems
    project = loading("", text + "\n")
    assert project.fault is None
    assert project.problems


def test_a_variable_can_leave_open_what_is_forbidden_too(loading):
    assert loading("", environ={"ACP_AGENT_TOOLS__ALLOW": "[7]"}).fault is not None


@pytest.mark.parametrize(
    "text",
    [
        "[tools.file]\nallowed_paths = 7",
        "[tools.shell]\nallowed_commands = 7",
        "[tools.protection]\nunprotected_paths = 7",
        "[agent]\nx = 1",
        "tool = 7",
    ],
)
def test_a_mistake_in_what_only_allows_is_no_fault(loading, text: str):
    loaded = loading(text + "\n")
    assert loaded.problems
    assert loaded.fault is None


def test_a_fault_is_found_behind_any_number_of_other_problems(loading):
    many = "\n".join(f"x{number} = 1" for number in range(100))
    assert loading(f"{many}\n[tools.file]\ndeny_read = 7\n").fault is not None


def test_a_broken_file_says_what_it_said_before_and_the_others_are_read_anew(tmp_path):
    file, folder = tmp_path / "config.toml", tmp_path / "work"
    (folder / ".acp-agent").mkdir(parents=True)
    project = folder / ".acp-agent" / "config.toml"
    file.write_text("[tools.shell]\nblocked_commands = ['a']\n")
    project.write_text("[tools.shell]\nblocked_commands = ['b']\n")
    flags = Flags(config=str(file))
    first = load(flags, {}, str(folder))
    project.write_text("[tools")
    file.write_text("[tools.shell]\nblocked_commands = ['c']\n")
    second = load(flags, {}, str(folder), first)
    assert second.settings.tools.shell.blocked_commands == ("c", "b")
    (problem,) = second.problems
    assert str(problem).startswith(f"{project}: expected TOML")
    assert str(problem).endswith("(at line 1, the end); its earlier content stays in force")
    file.unlink()
    project.unlink()
    third = load(flags, {}, str(folder), second)
    assert third.settings == second.settings
    assert third.fault is None
    assert ["gone" in str(problem) for problem in third.problems] == [True, True]


def test_what_a_file_said_shows_nowhere(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("[llm]\napi_key = 'sk-obviously-fake-0123456789'\n")
    assert "sk-obviously" not in repr(load(Flags(config=str(file)), {}))
