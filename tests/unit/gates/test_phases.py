"""Phases at the gates: a policy may tell them apart, and the agent's own housekeeping is spared one question only."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from acp_agent.core.ports import Decision, Invocation
from acp_agent.core.session_options import Mode, SessionOptions
from acp_agent.core.types import Access, Ask, CommandSubject, Deny, McpSubject, PathSubject, Phase, UrlSubject
from acp_agent.gates.grants import Grant, GrantKind
from acp_agent.gates.policy import Policy
from acp_agent.gates.rules.permission_rules import Action
from acp_agent.gates.rules.policy_rules import Effect
from tests.unit.gates.chain import Chain, ScriptedApprover, call, command, rules
from tests.unit.gates.test_policy import allow, deny, gate, trace, verdict

pytestmark = pytest.mark.anyio

OTHERS = [phase for phase in Phase if phase is not Phase.AUTONOMOUS]


def at(invocation: Invocation, phase: Phase) -> Invocation:
    return replace(invocation, call=replace(invocation.call, phase=phase))


@pytest.fixture
def root(tmp_path: Path) -> str:
    folder = tmp_path / "project"
    folder.mkdir()
    return os.path.realpath(folder)


def chain(root: str, **more) -> Chain:
    return Chain(root, os.path.join(os.path.dirname(root), "grants.toml"), **more)


def writing(path: str = "a.txt", **more) -> Invocation:
    return call("write", PathSubject(path, Access.WRITE), arguments={"path": path}, **more)


# ------------------------------------------------------------------------------------------------- policies


@pytest.mark.parametrize("phase", Phase)
def test_a_rule_speaks_of_the_phases_it_names_and_without_any_of_all(phase):
    named = frozenset({Phase.PLANNER, Phase.VERIFIER})
    invocation = at(call("grep"), phase)
    assert verdict(gate(deny("grep", phases=named), default="allow"), invocation) == (
        "deny" if phase in named else "allow"
    )
    assert verdict(gate(allow("grep", phases=named)), invocation) == ("allow" if phase in named else "deny")
    assert verdict(gate(deny("grep"), default="allow"), invocation) == "deny"


def test_a_tool_denied_in_one_phase_only_is_offered_all_the_same():
    assert Policy((deny("grep", phases=[Phase.PLANNER]),), Effect.ALLOW).offers("grep")
    assert not Policy((deny("grep"),), Effect.ALLOW).offers("grep")


def test_the_trace_says_which_phase_it_was():
    lines = trace(gate(deny("grep", phases=[Phase.PLANNER]), default="allow"), call("grep"))
    assert lines[0].endswith("no match, the call is made in the phase executor")


# ------------------------------------------------------------------------------------------ the one question


async def test_housekeeping_is_not_asked_about_and_everything_else_is(root):
    session = chain(root)
    assert await session.fate(at(writing(), Phase.AUTONOMOUS)) == "silent"
    for number, phase in enumerate(OTHERS):
        assert await session.fate(at(writing(number=number), phase)) == "asked"


@pytest.mark.parametrize("path", [".git/config", ".env", "../outside.txt", "/etc/passwd"])
async def test_what_another_gate_asks_about_or_denies_is_no_housekeeping(root, path):
    os.mkdir(os.path.join(root, ".git"))
    session = chain(root)
    ours = await session.fate(at(writing(path), Phase.AUTONOMOUS))
    models = await session.fate(writing(path, number=2))
    assert ours == models != "silent"


@pytest.mark.parametrize(
    "invocation",
    [
        call("mcp_x_y", McpSubject("x", "y")),
        call("fetch", UrlSubject("https://example.com/?q=x")),
        call("write", PathSubject("a", Access.WRITE), UrlSubject("https://example.com")),
    ],
)
async def test_a_server_and_a_page_are_none(root, invocation):
    assert await chain(root).fate(at(invocation, Phase.AUTONOMOUS)) == "asked"


@pytest.mark.parametrize("text", ["rm -rf /", "sudo ls", "make", "python build.py"])
async def test_a_command_is_none_either(root, text):
    session = chain(root)
    ours = await session.fate(at(command(text), Phase.AUTONOMOUS))
    assert ours == await session.fate(command(text, number=2)) != "silent"


async def test_denials_hold(root):
    denied = chain(root, allow=rules("*", action=Action.DENY), tool="write")
    assert await denied.fate(at(writing(), Phase.AUTONOMOUS)) == "refused"
    for mode in (Mode.ASK, Mode.ARCHITECT):
        assert await chain(root, conduct=SessionOptions(mode)).fate(at(writing(), Phase.AUTONOMOUS)) == "refused"
    stored = chain(root)
    await stored.grants.remember(Grant("write", GrantKind.TOOL, "", allowed=False))
    assert await stored.fate(at(writing(), Phase.AUTONOMOUS)) == "refused"


async def test_a_pin_that_asks_is_put_to_the_user_whatever_the_phase(root):
    """The pins ask as every gate does."""
    session = chain(root, approver=ScriptedApprover(Decision.REJECT_ONCE))
    facts = session.gates.facts(at(call("mcp_x_y"), Phase.AUTONOMOUS))
    facts.asks.append(Ask("the server's tool has changed"))
    assert isinstance(session.permission.judge(facts), Ask)
    assert isinstance(await session.permission.examine(facts), Deny)
    assert len(session.approver.questions) == 1


async def test_where_there_is_nobody_to_ask_a_command_of_ours_does_not_run(root):
    session = chain(root, approver=None)
    result = await session.run(at(call("bash", CommandSubject("make")), Phase.AUTONOMOUS))
    assert result.failure is not None
    assert not session.recorder.ran
