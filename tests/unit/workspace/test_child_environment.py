import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ConfigError
from acp_agent.workspace.processes.environment import child_environment, hidden_variables, input_file
from tests.rows import each_row

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-fake-1",
    "OPENAI_API_KEY": "sk-fake-2",
    "OPENAI_BASE_URL": "http://127.0.0.1:1",
    "MISTRAL_API_KEY": "fake-3",
    "ACP_AGENT_CONFIG": "fake-4",
    "AWS_SECRET_ACCESS_KEY": "fake-5",
    "GOOGLE_APPLICATION_CREDENTIALS": "fake-6",
    "GITHUB_TOKEN": "fake-7",
    "MY_API_KEY": "fake-8",
    "BASH_ENV": "/tmp/evil",
    "LD_PRELOAD": "/tmp/evil.so",
    "PROMPT_COMMAND": "evil",
    "lc_api_key": "fake-9",
}
USUAL = {"PATH": "/bin", "HOME": "/home/me", "LANG": "C.UTF-8", "LC_ALL": "C", "TZ": "UTC", "VIRTUAL_ENV": "/v"}
FIXED = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
GIT_NAMES = ["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0", "GIT_CONFIG_KEY_1", "GIT_CONFIG_VALUE_1"]


def test_the_usual_variables_pass_and_secrets_do_not():
    assert child_environment({**SECRETS, **USUAL, "TERM": "xterm", "PAGER": "less"}) == {**USUAL, **FIXED}


def test_an_input_is_read_from_its_beginning():
    with input_file(b"typed\n") as file:
        assert file.read() == b"typed\n"


def test_named_ones_pass_too():
    assert child_environment({**SECRETS, **USUAL}, ["GITHUB_TOKEN", "NOT_SET"]) == {
        **USUAL,
        **FIXED,
        "GITHUB_TOKEN": "fake-7",
    }


@pytest.mark.parametrize(
    "name", ["ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ACP_AGENT_MODEL", "AWS_PROFILE", "x_api_key"]
)
def test_our_own_and_the_keys_of_model_apis_cannot_even_be_named(name: str):
    with pytest.raises(ConfigError, match=name):
        child_environment({}, ["PATH", name])


@given(
    st.sampled_from(["ANTHROPIC_", "OPENAI_", "AWS_", "ACP_AGENT_", "LC_", "PATH", ""]),
    st.text("ABC_xyz", max_size=5),
    st.sampled_from(["_API_KEY", "_api_key", ""]),
)
def test_what_passes_is_unchanged_and_never_a_key(start: str, middle: str, end: str):
    name = start + middle + end
    passed = child_environment({name: "canary"})
    if passed.get(name) == "canary":
        assert start in ("LC_", "PATH", "")
        assert end == ""
    assert passed.keys() - FIXED.keys() <= {name}


def git(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = child_environment({"PATH": os.environ["PATH"], "HOME": str(folder), **variables}, GIT_NAMES)
    return subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_bare_repository_that_came_with_a_folder_runs_nothing(tmp_path: Path):
    assert git(tmp_path, "init", "-q", "--bare", "shipped").returncode == 0
    shipped = tmp_path / "shipped"
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/planted'\n")
    hook.chmod(0o700)
    plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    settings = "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = work\n"
    (shipped / "config").write_text(settings)
    (shipped / "work").mkdir()
    (shipped / "work" / "file").write_text("x")
    subprocess.run(["git", "add", "-A"], cwd=shipped, env=plain, check=True)
    (shipped / "config").write_text(f"{settings}fsmonitor = {hook}\n")
    subprocess.run(["git", "status"], cwd=shipped, env=plain, capture_output=True, check=False)
    assert (tmp_path / "planted").exists(), "else there is nothing to protect from"
    (tmp_path / "planted").unlink()
    done = git(shipped, "status")
    assert done.returncode != 0
    assert "bare repository" in done.stderr
    assert not (tmp_path / "planted").exists()


def test_settings_of_git_that_the_user_passes_on_stay_in_force(tmp_path: Path):
    mine = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Ann"}
    assert git(tmp_path, "config", "--get", "user.name", **mine).stdout == "Ann\n"
    assert git(tmp_path, "config", "--get", "safe.bareRepository", **mine).stdout == "explicit\n"
    lifting = {**mine, "GIT_CONFIG_KEY_0": "safe.bareRepository", "GIT_CONFIG_VALUE_0": "all"}
    assert git(tmp_path, "config", "--get", "safe.bareRepository", **lifting).stdout == "explicit\n"


@each_row("count", ["", "0", "-1", "x", "2", "9" * 5000, "\u0663"])
def test_a_count_that_is_none_breaks_no_git(tmp_path: Path, count: str):
    mine = {"GIT_CONFIG_COUNT": count, "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Ann"}
    done = git(tmp_path, "config", "--get", "safe.bareRepository", **mine)
    assert (done.stdout, done.stderr) == ("explicit\n", "")


def test_where_an_editor_gives_the_environment_keys_are_hidden_and_nothing_else():
    hidden = hidden_variables({**SECRETS, **USUAL, "NOT A NAME_API_KEY": "x"}, (), ("MY_OWN", "LOCAL_KEY"))
    unhidden = {"GITHUB_TOKEN", "BASH_ENV", "LD_PRELOAD", "PROMPT_COMMAND"}
    assert set(SECRETS) - set(hidden) == unhidden
    assert not set(USUAL) & set(hidden)
    assert {"MY_OWN", "LOCAL_KEY", "GROQ_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"} <= set(hidden)
    assert "NOT A NAME_API_KEY" not in hidden


def test_what_no_command_of_this_machine_sees_is_hidden_in_an_editor_as_well():
    for name in SECRETS:
        if name not in child_environment(SECRETS, ["GITHUB_TOKEN", "BASH_ENV", "LD_PRELOAD", "PROMPT_COMMAND"]):
            assert name in hidden_variables(SECRETS, (), ()), name


def test_what_the_user_lets_commands_see_stays_in_an_editor_unless_no_setting_may():
    hidden = hidden_variables({}, ("MY_OWN", "REPLICATE_API_TOKEN", "ANTHROPIC_API_KEY"), ("MY_OWN",))
    assert {"MY_OWN", "REPLICATE_API_TOKEN"}.isdisjoint(hidden)
    assert "ANTHROPIC_API_KEY" in hidden
