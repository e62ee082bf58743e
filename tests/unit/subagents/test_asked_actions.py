"""What another agent asks permission for is judged as a call of our own tool that does the same."""

from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.schema import ToolCallUpdate

from acp_agent.core.types import CallingAgent, JsonObject, ToolCall, ToolResult
from acp_agent.subagents.client import action_of
from tests.fakes.home import move_in
from tests.rows import each_row
from tests.unit.session.live_session import LiveSession

pytestmark = pytest.mark.anyio

FULL_AUTO = '[acp]\nauto_approve = "full-auto"\n[[agents.external]]\nname = "other"\ncommand = "other"\n'


def asked(kind: str | None = None, title: str = "Tidy up", places: tuple[str, ...] = (), **given: Any) -> JsonObject:
    """The arguments of a call that a question of another agent becomes."""
    places_ = [{"path": path} for path in places]
    call = {"toolCallId": "c", "title": title, "kind": kind, "rawInput": given, "locations": places_}
    return action_of("other", "its program", ToolCallUpdate.model_validate(call))


def no_walls(*_: object) -> None:
    """Build no sandbox."""


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveSession:
    move_in(monkeypatch, tmp_path, tmp_path)
    monkeypatch.setattr("acp_agent.session.factory.session_sandbox", no_walls)
    return LiveSession(tmp_path)


async def gate_of(live: LiveSession, action: JsonObject) -> str:
    """The gate that refuses an action; empty if it is allowed."""
    caller = CallingAgent("other-1", "other", "card")
    result: ToolResult = await live.tools.run(ToolCall("c", "agent_action", action, agent=caller))
    assert result.ruling is not None, result
    return "" if result.failure is None else result.ruling.gate


RULES = "".join(
    f'[[tools.permissions.{tool}]]\npattern = "{pattern}"\naction = "deny"\n'
    for tool, pattern in (
        *(("write", "generated/*"), ("edit", "edited/*"), ("delete_path", "src/*"), ("read", "*.key")),
        *(("fetch", "https://ruled.example/*"), ("move_path", "kept/*")),
    )
)


async def test_a_rule_of_our_own_tool_that_does_the_same_denies_it(live: LiveSession):
    live.open(FULL_AUTO + RULES)
    for action in (
        asked("edit", places=("generated/x",)),
        asked("edit", places=("edited/x",)),
        asked(places=("generated/x",)),
        asked("delete", places=("src/x",)),
        asked(file_path="src/x"),
        asked("move", places=("kept/x", "y")),
        asked("read", places=("x.key",)),
        asked("fetch", url="https://ruled.example/x"),
    ):
        assert await gate_of(live, action) == "permission", action
    assert await gate_of(live, asked("edit", places=("x",))) == ""


async def test_where_our_own_tool_is_not_there_it_may_not_do_the_same(live: LiveSession):
    live.open(f"{FULL_AUTO}[tools]\ndeny = ['bash', 'group:fs', 'fetch']\n")
    for action in (
        asked("execute", command="ls"),
        asked("edit", places=("x",)),
        asked("read", places=("x",)),
        asked("fetch", url="https://example.com/x"),
    ):
        assert await gate_of(live, action) == "selection", action


async def test_a_policy_about_our_own_tool_is_about_it(live: LiveSession):
    policy = "".join(f'[[tools.policy.rules]]\neffect = "deny"\ntool = "{tool}"\n' for tool in ("bash", "write"))
    live.open(f"{FULL_AUTO}[tools.policy]\nenabled = true\ndefault_effect = 'allow'\n{policy}")
    for action in (asked("execute", command="ls"), asked("edit", places=("x",))):
        assert await gate_of(live, action) == "policy", action


async def test_files_and_addresses_count_wherever_it_names_them(live: LiveSession):
    live.open(f"{FULL_AUTO}[tools.file]\ndeny_read = ['secrets/*']\n")
    many = tuple(f"x{number}" for number in range(100))
    for action in (
        asked("edit", file_path="../outside"),
        asked(filePath="/etc/x"),
        asked(edits=[{"path": "a"}, {"notebook_path": "/etc/x"}]),
        asked("read", absolute_path="secrets/x"),
        asked("edit", places=("secrets/x",)),
        asked("edit", places=(*many, "/etc/x")),
        asked("fetch", url="http://169.254.169.254/latest"),
        asked("execute", command="ls", cwd="/etc"),
    ):
        assert await gate_of(live, action) == "sandbox", action


async def test_what_it_would_run_counts_wherever_it_names_it(live: LiveSession):
    live.open(FULL_AUTO)
    for action in (
        asked("execute", "rm -rf / [in this folder] (tidy up)"),
        asked("execute", cmd=["bash", "-lc", "rm -rf /"]),
        asked(script="rm -rf /"),
    ):
        assert await gate_of(live, action) == "blocklist", action


@each_row("given", [{"paths": ["x"] * 9 + [str(each) for each in range(600)]}, {"url": [f"u{n}" for n in range(501)]}])
def test_more_than_can_be_judged_is_no_question(given: dict[str, Any]):
    with pytest.raises(RequestError):
        asked("edit", **given)
