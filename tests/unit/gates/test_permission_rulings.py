"""On whose word a call ran, and which rule refused it: what the audit is told."""

import os
from dataclasses import replace

import pytest

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Decision, Invocation, Question
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import (
    Access,
    AgentSubject,
    ApprovedBy,
    CallOrigin,
    PathSubject,
    Ruling,
    ToolResult,
    UrlSubject,
)
from acp_agent.gates.gate import CallFacts
from acp_agent.gates.rules.permission_rules import Action, Rule
from tests.unit.gates.chain import Chain, ScriptedApprover, call, command, rules

pytestmark = pytest.mark.anyio


@pytest.fixture
def make(tmp_path):
    def chain(*answers: Decision, given: tuple[Rule, ...] = (), tool: str = "bash", **more) -> Chain:
        approver = ScriptedApprover(*answers)
        return Chain(str(tmp_path), str(tmp_path / "grants.toml"), given, approver=approver, tool=tool, **more)

    return chain


def write(path: str = "x") -> Invocation:
    return call("write", PathSubject(path, Access.WRITE), arguments={"path": path})


READ = call("read", PathSubject("x", Access.READ))
FETCH = call("fetch", UrlSubject("https://example.com/x"))


async def ruling(chain: Chain, invocation: Invocation) -> Ruling | None:
    return (await chain.run(invocation)).ruling


async def test_what_nobody_was_asked_about_ran_by_itself(make):
    auto = Ruling(approved_by=ApprovedBy.AUTO)
    assert await ruling(make(), READ) == auto
    assert await ruling(make(conduct=SessionOptions(auto_approve=AutoApprove.AUTO_EDIT)), write()) == auto
    for invocation in (write(), command("make"), FETCH):
        assert await ruling(make(conduct=SessionOptions(auto_approve=AutoApprove.FULL_AUTO)), invocation) == auto


async def test_what_the_user_allowed_or_typed_ran_on_his_word(make):
    user = Ruling(approved_by=ApprovedBy.USER)
    assert await ruling(make(Decision.ALLOW_ONCE), write()) == user
    assert await ruling(make(), command("make", origin=CallOrigin.USER)) == user
    assert await ruling(make(Decision.ALLOW_ALWAYS), command("make test")) == user
    typed = write()
    typed = replace(typed, call=replace(typed.call, origin=CallOrigin.USER))
    assert await ruling(make(given=rules("**"), tool="write"), typed) == user


async def test_an_answer_about_the_program_of_another_agent_covers_that_program_alone(make):
    def asked(identity: str) -> Invocation:
        return call("mcp_x_y", AgentSubject("codex", identity))

    await make(Decision.ALLOW_ALWAYS).run(asked("one"))
    stored = Ruling(approved_by=ApprovedBy.ALWAYS)
    assert await ruling(make(), asked("one")) == stored
    again = make(Decision.REJECT_ONCE)
    assert (await again.run(asked("two"))).failure is not None
    assert len(again.approver.questions) == 1


async def test_a_command_that_a_rule_and_an_answer_allow_ran_on_the_rule(make):
    await make(Decision.ALLOW_ALWAYS).run(command("make test"))
    assert await ruling(make(given=rules("make *")), command("make test")) == Ruling(approved_by=ApprovedBy.POLICY)
    both = await ruling(make(given=rules("ls *")), command("ls x && make test"))
    assert both == Ruling(approved_by=ApprovedBy.ALWAYS)


async def test_what_was_allowed_for_ever_ran_on_a_stored_answer(make):
    for invocation in (write(), command("make test"), command("python x.py"), FETCH):
        await make(Decision.ALLOW_ALWAYS).run(invocation)
        assert await ruling(make(), invocation) == Ruling(approved_by=ApprovedBy.ALWAYS), invocation.title


async def test_what_a_rule_allows_ran_on_a_rule_also_beside_a_stored_answer(make):
    policy = Ruling(approved_by=ApprovedBy.POLICY)
    assert await ruling(make(given=rules("x"), tool="write"), write()) == policy
    assert await ruling(make(given=rules("https://example.com/*"), tool="fetch"), FETCH) == policy
    await make(Decision.ALLOW_ALWAYS).run(command("make test"))
    assert await ruling(make(given=rules("make *")), command("make test")) == policy
    mixed = await ruling(make(given=rules("ls *")), command("ls; make test"))
    assert mixed == Ruling(approved_by=ApprovedBy.ALWAYS)


async def test_a_rule_that_denies_is_named_with_its_place(make):
    given = (*rules("git status*"), *rules("git push*", "*secret*", action=Action.DENY))
    result = await make(given=given).run(command("echo hi; git push --force"))
    assert result.ruling == Ruling("permission", "git push* (rule 2 of bash)")
    assert "'git push*' ([[tools.permissions.bash]] rule 2)" in result.text
    result = await make(given=given).run(command("cat secret"))
    assert result.ruling == Ruling("permission", "*secret* (rule 3 of bash)")


@pytest.mark.parametrize(
    ("tool", "invocation", "rule"),
    [
        ("write", write("src/key"), "src/* (rule 3 of write)"),
        ("write", write("key"), "key (rule 2 of write)"),
        ("fetch", FETCH, "https://* (rule 4 of fetch)"),
        ("read", call("grep", PathSubject("key", Access.READ)), "key (rule 2 of read)"),
    ],
)
async def test_of_several_rules_the_one_that_matched_first_is_named(make, tool: str, invocation: Invocation, rule: str):
    denied = rules("key", "src/*", "https://*", "*", action=Action.DENY)
    assert await ruling(make(given=(*rules("README"), *denied), tool=tool), invocation) == Ruling("permission", rule)


async def test_of_two_paths_the_denied_one_counts(make):
    given = (*rules("a"), *rules("b", action=Action.DENY))
    both = call("move_path", PathSubject("a", Access.WRITE), PathSubject("b", Access.WRITE))
    assert await ruling(make(given=given, tool="move_path"), both) == Ruling("permission", "b (rule 2 of move_path)")


@pytest.mark.parametrize(
    "decision", [Decision.REJECT_ONCE, Decision.REJECT_ALWAYS, Decision.CANCELLED, Decision.UNANSWERED]
)
async def test_a_question_that_ends_otherwise_names_the_gate(make, decision: Decision):
    assert await ruling(make(decision), write()) == Ruling("permission")


async def test_a_stored_denial_and_nobody_to_ask_name_the_gate(make, tmp_path):
    await make(Decision.REJECT_ALWAYS).run(write())
    assert await ruling(make(), write()) == Ruling("permission", "every use of write")
    alone = Chain(str(tmp_path), str(tmp_path / "none.toml"), approver=None)
    assert await ruling(alone, command("make")) == Ruling("permission")


async def test_a_ruling_of_the_tool_keeps_its_rule(make):
    chain = make()

    async def rule_only(_: CallFacts) -> ToolResult:
        return replace(ToolResult("ran"), ruling=Ruling(rule="noted"))

    chain.recorder.execute = rule_only
    assert await ruling(chain, READ) == Ruling(rule="noted", approved_by=ApprovedBy.AUTO)


class Absent:
    """Nobody is there; the question runs out."""

    async def ask(self, question: Question) -> Decision:
        raise ToolError(ToolErrorCategory.CONFIRMATION_REQUIRED, "the user did not answer within 5 s")


async def test_a_question_that_ran_out_refuses_the_call_and_nothing_is_remembered(make, tmp_path):
    chain = make()
    chain.permission._approver = Absent()
    result = await chain.run(command("make"))
    assert result.failure is not None
    assert (result.failure.category, result.failure.message) == (
        ToolErrorCategory.CONFIRMATION_REQUIRED,
        "the user did not answer within 5 s",
    )
    assert result.ruling == Ruling("permission")
    assert chain.recorder.ran == []
    assert not os.path.exists(tmp_path / "grants.toml")
    assert await make().fate(command("make")) == "asked"
