"""Logged in, logged out: who gets -32000, and when."""

import pytest

from acp_agent.capabilities import EXT_METHODS
from acp_agent.core.errors import ConfigError
from acp_agent.protocol.jsonrpc import RpcError
from acp_agent.protocol.server import AuthState

pytestmark = pytest.mark.anyio

WORK = ["session/new", "session/load", "session/resume", "session/fork", "session/list", "session/prompt"]
WORK += ["session/set_mode", "session/set_config_option", *EXT_METHODS, "session/whatever_comes"]
ALWAYS = ["initialize", "authenticate", "logout", "session/close", "session/delete", "session/cancel"]


def refused(state: AuthState, methods: list[str]) -> list[str]:
    """The methods answered with -32000."""
    codes = dict.fromkeys(methods, 0)
    for method in methods:
        try:
            state.admit(method)
        except RpcError as error:
            codes[method] = error.code
    return [method for method, code in codes.items() if code == -32000]


async def test_nobody_has_to_authenticate_first():
    assert refused(AuthState(list), WORK + ALWAYS) == []


async def test_after_logout_all_that_shows_or_does_something_waits_for_authenticate():
    removed: list[str] = []
    state = AuthState(lambda: removed.append("keys"))
    await state.logout()
    assert removed == ["keys"]
    assert refused(state, WORK + ALWAYS) == WORK
    await state.logout()  # a second one is no error
    state.authenticate({"methodId": "acp-agent"})
    assert refused(state, WORK) == []


@pytest.mark.parametrize(
    ("method", "said"),
    [("acp-agent-login", "is run in a terminal"), ("other", "unknown method"), (None, "unknown"), (["x"], "unknown")],
)
async def test_another_method_is_no_valid_parameter_and_lets_nobody_in(method, said):
    state = AuthState(list)
    await state.logout()
    with pytest.raises(RpcError, match=said) as caught:
        state.authenticate({"methodId": method})
    assert caught.value.code == -32602
    assert refused(state, ["session/new"]) == ["session/new"]


async def test_keys_that_cannot_be_removed_are_told_and_the_connection_is_logged_out_all_the_same():
    def forget() -> None:
        raise ConfigError(
            "/data/credentials.toml", "", "", "expected a file that can be written: Read-only file system"
        )

    state = AuthState(forget)
    with pytest.raises(RpcError, match=r"stored keys are still there: .*Read-only") as caught:
        await state.logout()
    assert caught.value.code == -32603
    assert refused(state, ["session/prompt"]) == ["session/prompt"]
