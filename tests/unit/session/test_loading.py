"""What every session loads, and what waits for those that need it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from acp_agent.workspace.sandbox.sandbox import SandboxTier, tier_works

LATE = (
    "acp_agent.agent.aids.selection",  # off by default
    "acp_agent.llm.scripted",  # a model that plays a script
    "acp_agent.mcp",  # no server is named
    "acp_agent.output.filters.rule_file",  # no command has run
    "acp_agent.output.filters.test_summary",  # no tests have run
    "acp_agent.output.security_notes",  # nothing was shortened
    "acp_agent.protocol.extensions",  # the client has asked for none of it
    "acp_agent.protocol.client_lsp",  # the client shares no language servers
    "acp_agent.tools.ask_user",  # the client shows no forms
    "acp_agent.tools.lsp",  # it shares no language servers
    "html.entities",  # no page was read
    "httpx",  # no model was asked
    "structlog",  # nothing is logged yet
    "tree_sitter",  # no command needs the parser, and no file was outlined
    "tree_sitter_bash",
)

_PROBE = """
import sys
import acp_agent.app, acp_agent.protocol.content, acp_agent.session.factory, acp_agent.session.processes
print("\\n".join(sys.modules))
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """Return the modules that a process has for a session, by their names."""
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=True, text=True, timeout=60)
    return set(probe.stdout.split())


def test_what_few_sessions_need_waits_for_them(loaded: set[str]):
    assert "acp_agent.session.factory" in loaded
    assert sorted(loaded & set(LATE)) == []


def test_a_session_loads_neither_sub_agents_nor_their_board_nor_yaml(loaded: set[str]):
    assert "acp_agent.session.processes" in loaded
    assert [name for name in loaded if name.startswith("acp_agent.subagents")] == []
    assert loaded & {"acp_agent.tools.board", "yaml"} == set()


def test_a_session_without_hooks_loads_nothing_of_them(loaded: set[str]):
    assert [name for name in loaded if "hooks" in name] == ["acp_agent.agent.hooks"]


def test_a_session_without_custom_tools_loads_nothing_of_them(loaded: set[str]):
    assert [name for name in loaded if "custom" in name] == []


def test_the_garbage_collector_is_at_work_again_when_a_part_is_loaded_or_cannot_be():
    code = """
import gc, anyio
from acp_agent.app import imported
print(anyio.run(imported, "acp_agent.session.processes").__name__, gc.isenabled())
try:
    anyio.run(imported, "acp_agent.compose.nothing")
except ModuleNotFoundError:
    print(gc.isenabled())
"""
    probe = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60)
    assert probe.stdout.split() == ["acp_agent.session.processes", "True", "True"]


_WATCHED = """
import os, sys, threading
def heard(event, arguments):
    if event == sys.argv[1] and sys.argv[2] in str(arguments[0]):
        os.write(2, b"in the main thread" if threading.current_thread() is threading.main_thread() else b"beside it")
        os._exit(0)
sys.addaudithook(heard)
from acp_agent import boot
boot.main()
"""


@pytest.mark.parametrize(
    ("event", "name"),
    [
        pytest.param("open", "redaction/rules.toml", id="the rules of redaction"),
        pytest.param(
            "subprocess.Popen",
            "bwrap",
            marks=pytest.mark.skipif(not tier_works(SandboxTier.BUBBLEWRAP), reason="bubblewrap does not work here"),
            id="the trial of the sandbox",
        ),
    ],
)
def test_a_new_session_has_this_made_ready_beside_the_main_thread_which_serves_the_editor(
    event: str, name: str, tmp_path: Path
):
    requests = {"initialize": {"protocolVersion": 1}, "session/new": {"cwd": str(tmp_path), "mcpServers": []}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}) + "\n"
        for method, params in requests.items()
    ]
    environment = {"HOME": str(tmp_path), "ACP_AGENT_DATA_DIR": str(tmp_path / "data"), "ACP_AGENT_MODEL": "scripted:x"}
    pipe = subprocess.PIPE
    watched = [sys.executable, "-c", _WATCHED, event, name]
    with subprocess.Popen(watched, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as agent:
        assert agent.stdin is not None
        assert agent.stderr is not None
        agent.stdin.writelines(lines)
        agent.stdin.flush()
        assert agent.stderr.read() == "beside it"
