"""Who wins: defaults < user < project < environment < flags; and where each value says it is from."""

import os

import pytest

from acp_agent.config.load import Flags, load
from acp_agent.config.settings import Settings
from acp_agent.core.session_options import Mode


def test_nothing_set_gives_the_defaults_of_the_requirements(loading):
    loaded = loading()
    assert not loaded.problems
    settings = loaded.settings
    assert settings.agent.max_tool_iterations == 200
    assert settings.tools.shell.timeout == 120
    assert settings.acp.terminal_timeout_secs == 120
    assert settings.tools.overflow.threshold == 50_000
    assert settings.tools.enabled
    assert settings.acp.auto_approve == "suggest"
    assert settings.llm.model is None


def test_each_source_beats_the_one_below(loading):
    user, project = "[acp]\nmode = 'code'", "[acp]\nmode = 'architect'"
    environ, flags = {"ACP_AGENT_ACP__MODE": "ask"}, Flags(mode="code")
    assert loading(user).settings.acp.mode is Mode.CODE
    assert loading(user, project).settings.acp.mode is Mode.ARCHITECT
    assert loading(user, project, environ).settings.acp.mode is Mode.ASK
    assert loading(user, project, environ, flags).settings.acp.mode is Mode.CODE


def test_a_value_knows_where_it_comes_from(loading, project):
    loaded = loading(
        "[agent]\nmax_tool_iterations = 50\n[tools.shell]\ntimeout = 9\nblocked_commands = ['a']",
        "[tools.shell]\nblocked_commands = ['b']",
        {"ACP_AGENT_ACP__TERMINAL_FORM": "line"},
        Flags(mode="ask"),
    )
    file = os.path.join(project, ".acp-agent", "config.toml")
    assert loaded.origins["agent.max_tool_iterations"] == loaded.file
    assert loaded.origins["tools.shell.timeout"] == loaded.file
    assert loaded.origins["tools.shell.blocked_commands"] == f"{file} over {loaded.file}"
    assert loaded.origins["acp.terminal_form"] == "ACP_AGENT_ACP__TERMINAL_FORM"
    assert loaded.origins["acp.mode"] == "--mode"
    assert "logging.level" not in loaded.origins


def test_flags_are_handed_to_the_server_as_pairs():
    pairs = ["--config", "/c", "--model", "a:b", "--mode", "ask"]
    assert Flags.from_argv(pairs) == Flags(config="/c", model="a:b", mode="ask")
    assert Flags.from_argv(()) == Flags()


def test_the_flag_names_the_file_before_the_variable(loading, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text("[logging]\nlevel = 'debug'")
    loaded = loading("[logging]\nlevel = 'error'", flags=Flags.from_argv(["--config", str(other)]))
    assert loaded.file == str(other)
    assert loaded.settings.logging.level == "debug"


@pytest.mark.parametrize("named", ["flag", "variable"])
def test_a_named_file_has_to_exist(tmp_path, named):
    missing = str(tmp_path / "missing.toml")
    flags, environ = (Flags(config=missing), {}) if named == "flag" else (Flags(), {"ACP_AGENT_CONFIG": missing})
    (problem,) = load(flags, environ).problems
    assert missing in str(problem)
    assert "exist" in str(problem)


def test_no_project_is_asked_when_there_is_none(loading, project):
    loading(None, "[acp]\nmode = 'ask'")
    assert load(Flags(), {"ACP_AGENT_CONFIG": os.devnull}, None).settings.acp.mode is Mode.CODE


def test_settings_cannot_be_changed(loading):
    settings = loading().settings
    with pytest.raises(AttributeError, match="does not change"):
        settings.agent.max_tool_iterations = 3
    assert isinstance(settings, Settings)
