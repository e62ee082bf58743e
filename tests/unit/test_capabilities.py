"""What `initialize` answers, to whomever."""

import os
import sys

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.capabilities import AUTH_METHOD, LOGIN_METHOD, fork_offered, initialize_result
from acp_agent.cli.agent_process import Direction, RecordedFrame, Recording
from acp_agent.protocol import extensions, server
from acp_agent.tools.lsp import lsp_tools
from tests.rows import each_row
from tests.wire.schema import violations

STABLE, OLDER = {"auth": {"terminal": True}}, {"_meta": {"terminal-auth": True}}


def methods(capabilities: object) -> list:
    return initialize_result({"protocolVersion": 1, "clientCapabilities": capabilities})["authMethods"]


def test_a_client_without_a_terminal_is_offered_what_needs_none():
    assert [method["id"] for method in methods({"terminal": True})] == [AUTH_METHOD]
    assert "type" not in methods({})[0]


def test_a_client_that_says_so_is_offered_the_login_as_the_protocol_has_it():
    first, login = methods(STABLE)
    assert first["id"] == AUTH_METHOD
    assert (login["id"], login["type"], login["args"], login["env"]) == (LOGIN_METHOD, "terminal", ["login"], {})
    assert "_meta" not in login


def test_the_older_form_is_this_very_command_with_login_behind_it(monkeypatch, tmp_path):
    program = tmp_path / "acp-agent"
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [os.fspath(program), "acp", "--mode", "ask"])
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", "/data")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-obviously-fake")
    login = methods(OLDER)[1]
    assert "type" not in login  # the registry's check takes it for a terminal's by its _meta
    command = login["_meta"]["terminal-auth"]
    assert command["command"] == os.fspath(program)
    assert command["args"] == ["acp", "--mode", "ask", "login"]
    assert command["env"]["ACP_AGENT_DATA_DIR"] == "/data"
    assert "sk-obviously-fake" not in str(login)
    assert isinstance(command["label"], str)


def test_a_module_is_started_as_one_but_never_from_the_projects_folder(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/x/acp_agent/__main__.py"])
    command = methods(OLDER)[1]["_meta"]["terminal-auth"]
    assert [command["command"], *command["args"]] == [sys.executable, "-P", "-m", "acp_agent", "login"]


def test_who_knows_both_forms_gets_both_in_one_entry():
    _, login = methods(STABLE | OLDER)
    assert login["type"] == "terminal"
    assert login["_meta"]["terminal-auth"]["args"][-1] == "login"


@each_row("version", [0, -1, 2, 65_536, 10**30, 1.5, "1", None, [], True])
def test_every_version_is_answered_with_one(version):
    assert initialize_result({"protocolVersion": version})["protocolVersion"] == 1


def test_the_agent_is_called_acp_agent_and_no_client_reads_agent_twice():
    """Editors write "Agent" behind the title, or before it."""
    told = initialize_result()["agentInfo"]
    assert (told["name"], told["title"]) == ("acp-agent", "acp-agent")


def test_the_answer_owes_nothing_to_the_question():
    assert initialize_result() == initialize_result({})
    capabilities = initialize_result()["agentCapabilities"]
    assert capabilities["loadSession"] is True
    assert set(capabilities["sessionCapabilities"]) == {"list", "resume", "close", "delete", "additionalDirectories"}
    assert capabilities["auth"] == {"logout": {}}
    assert capabilities["_meta"]["acp_agent"]["config_options"] is True


def test_forking_is_offered_where_the_variable_says_so():
    assert [fork_offered({"ACP_AGENT_ACP_FORK": text}) for text in ("1", "true", "0", "")] == [True, True, False, False]
    assert not fork_offered({})
    assert initialize_result(fork=True)["agentCapabilities"]["sessionCapabilities"]["fork"] == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["auth", "terminal", "_meta", "terminal-auth", "fs"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(capabilities=JSON)
def test_whatever_a_client_sends_the_answer_is_one_of_the_protocols(capabilities):
    params = {"protocolVersion": 1, "clientCapabilities": capabilities}
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    answer = {"jsonrpc": "2.0", "id": 0, "result": initialize_result(params)}
    recording = Recording()
    recording.add(RecordedFrame(Direction.TO_AGENT, request, 0))
    recording.add(RecordedFrame(Direction.FROM_AGENT, answer, 0))
    assert violations(recording) == []
    offered = isinstance(capabilities, dict) and (
        (isinstance(capabilities.get("auth"), dict) and capabilities["auth"].get("terminal") is True)
        or (isinstance(capabilities.get("_meta"), dict) and capabilities["_meta"].get("terminal-auth") is True)
    )
    assert (len(answer["result"]["authMethods"]) == 2) is offered


def test_what_of_language_servers_is_understood_is_what_tools_ask_and_the_server_hears():
    said = initialize_result()["agentCapabilities"]["_meta"]["acp_agent"]["lsp"]
    assert sorted(said["methods"]) == sorted(tool.method for tool in lsp_tools(lambda _: True))
    assert said["notifications"] == [server.PUBLISH, server.SAVED]


def test_the_methods_of_our_own_that_are_offered_are_those_that_are_served():
    capabilities = initialize_result()["agentCapabilities"]
    assert capabilities["_meta"]["acp_agent"]["ext_methods"] == list(extensions.METHODS)
