import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ConfigError
from acp_agent.execution.child_environment import child_environment

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
FIXED = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


def test_the_usual_variables_pass_and_secrets_do_not():
    assert child_environment({**SECRETS, **USUAL, "TERM": "xterm", "PAGER": "less"}) == {**USUAL, **FIXED}


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
