"""The mode of a session decides what kinds of tools run at all."""

from dataclasses import replace

import pytest

from acp_agent.config.load import level_at_start
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.session_options import AutoApprove, Autonomy, Mode, SessionOptions
from acp_agent.core.types import (
    Access,
    Allow,
    CallingAgent,
    CallOrigin,
    CommandSubject,
    Deny,
    McpSubject,
    PathSubject,
    Ruling,
    ToolKind,
    ToolSpec,
    UrlSubject,
)
from acp_agent.gates.mode import READONLY_TOOLS, AutonomyGate, ModeGate
from acp_agent.tools.ask_user import AskUser
from acp_agent.tools.lsp import lsp_tools
from acp_agent.tools.registry import default_tools
from tests.rows import each_row
from tests.unit.gates.chain import SPECS, Judged, call, command

pytestmark = pytest.mark.anyio
PLAIN_READING = {"read", "grep", "fetch", "list_directory"}
SHELL = replace(SPECS["bash"], commands=True)


@pytest.mark.parametrize(
    ("mode", "allowed"), [(Mode.CODE, set(SPECS)), (Mode.ASK, PLAIN_READING), (Mode.ARCHITECT, PLAIN_READING)]
)
async def test_a_mode_allows_its_kinds_and_the_catalogue_says_the_same(mode: Mode, allowed: set[str]):
    gate = ModeGate(SessionOptions(mode=mode))
    assert {name for name, spec in SPECS.items() if gate.allows(spec)} == allowed
    for name in SPECS:
        assert ((await Judged(gate).execute(call(name))).failure is None) == (name in allowed)


async def test_a_refusal_is_policy_blocked_and_names_tool_and_mode_and_how_the_user_leaves_it():
    result = await Judged(ModeGate(SessionOptions(mode=Mode.ASK))).execute(call("write"))
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
    for part in ("'write'", "Read only mode ('ask')", "mode selector", "/mode code"):
        assert part in result.failure.message


@each_row("mode", list(Mode))
def test_the_mode_of_a_sub_agent_allows_nothing_that_its_session_does_not(mode: Mode):
    session = Judged(ModeGate(SessionOptions(mode=mode)))
    for own in Mode:
        agent = CallingAgent("x-1", "x", "card", own)
        alone = Judged(ModeGate(SessionOptions(mode=own)))
        for invocation in (*map(call, SPECS), replace(command("ls"), spec=SHELL), replace(command("rm a"), spec=SHELL)):
            made = replace(invocation, call=replace(invocation.call, agent=agent))
            both = session.judge(invocation) == alone.judge(invocation) == Allow()
            assert (session.judge(made) == Allow()) == both, (mode, own, invocation.spec.name)


@each_row("mode", [Mode.ASK, Mode.ARCHITECT])
def test_commands_that_only_read_run_in_every_mode_and_others_do_not(mode: Mode):
    gate = ModeGate(SessionOptions(mode=mode))
    assert gate.allows(SHELL)
    judged = Judged(gate)
    for text in ("ls", "cat a | head -n 3", "git log --oneline", "cd src && grep -rn x ."):
        assert judged.judge(replace(command(text), spec=SHELL)) == Allow(), text
        # One in the background, where the model could not look at it again.
        assert isinstance(judged.judge(command(text)), Deny), text
    for text in ("touch x", "ls > x", "make", "git commit -m x", "ls; rm x", "cat $(touch x)", "find . -delete", ""):
        refused = judged.judge(replace(command(text), spec=SHELL))
        assert isinstance(refused, Deny), text
        assert f"('{mode}')" in refused.reason
        assert "/mode code" in refused.reason


async def test_the_mode_is_read_anew_for_each_call():
    conduct = SessionOptions(mode=Mode.ASK)
    gate = Judged(ModeGate(conduct))
    assert (await gate.execute(call("write"))).failure is not None
    conduct.mode = Mode.CODE
    assert (await gate.execute(call("write"))).failure is None


async def test_a_reading_tool_that_starts_a_command_runs_in_code_mode_only():
    invocation = call("list_directory", CommandSubject("tree"))
    for mode in Mode:
        result = await Judged(ModeGate(SessionOptions(mode=mode))).execute(invocation)
        assert (result.failure is None) == (mode is Mode.CODE)


def gate(*, readonly: bool = True) -> AutonomyGate:
    return AutonomyGate(lambda: readonly)


def test_the_tools_of_readonly_are_those_of_the_seeds_and_what_reads_the_agents_own():
    assert {
        "read",
        "find_path",
        "grep",
        "list_directory",
        "web_scrape",
        "fetch",
    } <= READONLY_TOOLS
    offered = {tool.name for tool in default_tools() if gate().allows(tool.spec())}
    assert offered == {tool.name for tool in default_tools()} & READONLY_TOOLS
    assert {"read", "grep", "outline", "find_path", "list_directory", "update_plan"} <= offered
    assert offered.isdisjoint({"bash", "write", "edit", "delete_path", "move_path", "copy_path", "diagnostics"})


def test_language_servers_and_the_user_may_be_asked_in_readonly():
    asking = (AskUser(), *lsp_tools(lambda _: True))
    assert len(asking) == 8
    assert all(gate().allows(tool.spec()) for tool in asking)


def test_above_readonly_everything_is_offered_and_passes():
    for spec in SPECS.values():
        assert gate(readonly=False).allows(spec)
    assert Judged(gate(readonly=False)).judge(command("ls")) == Allow()


def test_a_name_from_the_list_is_not_enough():
    assert not gate().allows(ToolSpec("read", "", {}, ToolKind.READ, mutates=True))
    for subject in (CommandSubject("ls"), McpSubject("s", "read"), PathSubject("x", Access.WRITE)):
        assert isinstance(Judged(gate()).judge(call("read", PathSubject("y", Access.READ), subject)), Deny)
    for subject in (PathSubject("x", Access.READ), PathSubject("x", Access.LIST), UrlSubject("https://a.example")):
        assert Judged(gate()).judge(call("read", subject)) == Allow()


async def test_a_refused_tool_is_refused_also_when_the_user_calls_it():
    for invocation in (command("ls"), command("ls", origin=CallOrigin.USER), call("write"), call("mcp_x_y")):
        result = await Judged(gate()).execute(invocation)
        assert result.failure is not None
        assert result.ruling == Ruling("autonomy", "autonomy_level = readonly")


async def test_the_level_is_read_anew_for_each_call():
    levels = [True]
    changing = Judged(AutonomyGate(lambda: levels[0]))
    assert (await changing.execute(command("ls"))).failure is not None
    levels[0] = False
    assert (await changing.execute(command("ls"))).failure is None


SUGGEST, EDIT, FULL = AutoApprove.SUGGEST, AutoApprove.AUTO_EDIT, AutoApprove.FULL_AUTO


@each_row(
    "autonomy, auto_approve, level",
    [
        (None, None, SUGGEST),
        (Autonomy.SUPERVISED, None, SUGGEST),
        (Autonomy.READONLY, None, SUGGEST),
        (Autonomy.FULL, None, FULL),
        (None, EDIT, EDIT),
        (None, FULL, FULL),
        (Autonomy.FULL, SUGGEST, SUGGEST),
        (Autonomy.FULL, EDIT, EDIT),
        (Autonomy.FULL, FULL, FULL),
        (Autonomy.SUPERVISED, FULL, EDIT),
        (Autonomy.READONLY, FULL, EDIT),
        (Autonomy.SUPERVISED, EDIT, EDIT),
        (Autonomy.SUPERVISED, SUGGEST, SUGGEST),
    ],
)
def test_of_the_two_levels_the_tighter_one_holds_and_what_nobody_set_does_not_count(autonomy, auto_approve, level):
    assert level_at_start(autonomy, auto_approve) is level


def test_choosing_a_level_in_one_word_sets_the_other_setting_along():
    conduct = SessionOptions()
    for level, auto_approve in (
        (Autonomy.FULL, FULL),
        (Autonomy.READONLY, SUGGEST),
        (Autonomy.FULL, FULL),
        (Autonomy.SUPERVISED, SUGGEST),
    ):
        conduct.choose_autonomy(level)
        assert (conduct.autonomy, conduct.auto_approve) == (level, auto_approve)
    conduct.auto_approve = EDIT
    conduct.choose_autonomy(Autonomy.SUPERVISED)
    assert conduct.auto_approve is EDIT


def test_saying_more_never_loosens_what_was_said():
    """Whatever is set tighter, the level at the start is no looser: what lets a project lower either."""
    order = [FULL, EDIT, SUGGEST]
    levels = [Autonomy.FULL, Autonomy.SUPERVISED, Autonomy.READONLY]
    for approve in order:
        starts = [order.index(level_at_start(level, approve)) for level in levels]
        assert starts == sorted(starts)
        assert starts[0] == order.index(approve)
    for level in levels:
        starts = [order.index(level_at_start(level, approve)) for approve in order]
        assert starts == sorted(starts)
    assert [order.index(level_at_start(level, None)) for level in levels] == [0, 2, 2]
