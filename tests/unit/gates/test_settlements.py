"""What a question offers and says, as a whole, and what becomes of its answer."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.ports import Decision, Form
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Access, AgentSubject, Allow, ApprovedBy, Ask, Deny, PathSubject, UrlSubject, Verdict
from acp_agent.gates.gate import CallFacts, unasked
from acp_agent.gates.grants import Grant, GrantKind, GrantsInForce, GrantStore
from acp_agent.gates.permission import (
    Approved,
    PermissionGate,
    Settlement,
    command_question,
    folder_question,
    reading,
    tool_question,
    url_question,
    whole_tool,
)
from acp_agent.gates.rules.permission_rules import Judgement
from acp_agent.workspace.roots import Roots
from tests.fakes.fake_elicitor import FakeElicitor
from tests.rows import each_row
from tests.unit.gates.chain import SPECS, ScriptedApprover, Warnings, call, command

pytestmark = pytest.mark.anyio

DIGEST = "d" * 64


def granted(tool: str, kind: GrantKind, key: str = "") -> Grant:
    return Grant(tool, kind, key, allowed=True)


# ------------------------------------------------------------------------------------ what it offers


@each_row(
    "offered, words",
    [
        (Settlement(Allow(), whole="edit"), "every edit"),
        (Settlement(Allow(), whole="bash"), "every use of bash"),
        (Settlement(Allow(), whole="db_query"), "every use of db_query"),
        (Settlement(Allow(), grants=(granted("write", GrantKind.TOOL),)), "every write"),
        (Settlement(Allow(), grants=(granted("write", GrantKind.PAYLOAD, DIGEST),)), "exactly this"),
        (Settlement(Allow(), grants=(reading("/opt", allowed=True),)), "reading /opt"),
        (
            Settlement(
                Allow(),
                grants=(
                    granted("bash", GrantKind.PREFIX, "git push"),
                    granted("fetch", GrantKind.PREFIX, "https://good.com/"),
                ),
            ),
            "`git push …`, pages of good.com",
        ),
    ],
)
def test_the_option_of_a_question_names_what_always_covers(offered: Settlement, words: str):
    assert offered.option == words


def facts(invocation, *asks: Ask) -> CallFacts:
    return CallFacts(invocation).apart(list(asks))


def fetching(length: int) -> str:
    return "https://good.com/".ljust(length, "a")


EXACT = granted("bash", GrantKind.PAYLOAD, DIGEST)
PUSH = granted("bash", GrantKind.PREFIX, "git push")
SITE = granted("fetch", GrantKind.PREFIX, "https://good.com/")
WRITE = granted("write", GrantKind.TOOL)
SERVED = granted("mcp_x_y", GrantKind.PAYLOAD, "consent")
REVIEWER = granted("write", GrantKind.PAYLOAD, "identity")
THIS_WRITE = granted("write", GrantKind.PAYLOAD, DIGEST)
LS = command("ls")
WRITING = call("write", PathSubject("x", Access.WRITE))
READING = call("read", PathSubject("x", Access.READ))
ASKED, OF_TOOL = Ask("why"), Ask("new server", of_tool=True)


@each_row(
    "made, expected",
    [
        (
            lambda: command_question(facts(LS), Judgement(None), DIGEST),
            Settlement(Ask("runs a command"), (), "", (EXACT,), EXACT),
        ),
        (
            lambda: command_question(
                facts(LS), Judgement(None, ("no rule allows ls", "odd"), needed=("git push",)), DIGEST
            ),
            Settlement(Ask("no rule allows ls\nodd"), ("odd",), "git push …, but nothing that destroys", (PUSH,), PUSH),
        ),
        (
            lambda: command_question(facts(LS, ASKED), Judgement(None, needed=("git push",)), DIGEST),
            Settlement(Ask("why"), ("why",), "", (EXACT,), EXACT),
        ),
        (
            lambda: url_question(facts(call("fetch", UrlSubject("https://good.com/"))), ("https://a.com/", ""), DIGEST),
            Settlement(
                Ask("its host is not plain to see: read the whole address\naddress: https://good.com/"),
                ("its host is not plain to see: read the whole address", "address: https://good.com/"),
                "",
                (granted("fetch", GrantKind.PAYLOAD, DIGEST),),
                granted("fetch", GrantKind.PAYLOAD, DIGEST),
            ),
        ),
        (
            lambda: url_question(facts(call("fetch", UrlSubject("https://good.com/"))), ("",), DIGEST),
            Settlement(
                Ask("its host is not plain to see: read the whole address\naddress: https://good.com/"),
                ("its host is not plain to see: read the whole address", "address: https://good.com/"),
                "",
                (granted("fetch", GrantKind.PAYLOAD, DIGEST),),
                granted("fetch", GrantKind.PAYLOAD, DIGEST),
            ),
        ),
        (
            lambda: url_question(facts(call("fetch", UrlSubject(fetching(100)))), ("https://good.com/",), DIGEST),
            Settlement(Ask("reaches good.com"), ("reaches good.com",), "pages of good.com", (SITE,), SITE),
        ),
        (
            lambda: url_question(facts(call("fetch", UrlSubject(fetching(101)))), ("https://good.com/",), DIGEST),
            Settlement(
                Ask(f"reaches good.com\naddress: {fetching(101)}"),
                ("reaches good.com", f"address: {fetching(101)}"),
                "pages of good.com",
                (SITE,),
                SITE,
            ),
        ),
        (
            lambda: tool_question(facts(WRITING), DIGEST, WRITE, deletes=False),
            Settlement(Ask("write changes things"), (), "every use of write", (WRITE,), WRITE, "write"),
        ),
        (
            lambda: tool_question(facts(replace(WRITING, summary="writes x")), DIGEST, WRITE, deletes=False),
            Settlement(Ask("writes x"), (), "every use of write", (WRITE,), WRITE, "write"),
        ),
        (
            lambda: tool_question(facts(READING), DIGEST, whole_tool("read", ""), deletes=False),
            Settlement(
                Ask("no rule for read allows this"),
                ("no rule for read allows this",),
                "every use of read",
                (whole_tool("read", ""),),
                whole_tool("read", ""),
                "read",
            ),
        ),
        (
            lambda: tool_question(facts(WRITING), DIGEST, WRITE, deletes=True),
            Settlement(Ask("write changes things"), (), "", (THIS_WRITE,), THIS_WRITE),
        ),
        (
            lambda: tool_question(facts(WRITING, OF_TOOL), DIGEST, WRITE, deletes=False),
            Settlement(Ask("new server"), ("new server",), "", (THIS_WRITE,), THIS_WRITE),
        ),
        (
            lambda: tool_question(facts(call("mcp_x_y"), OF_TOOL), DIGEST, SERVED, deletes=False),
            Settlement(
                Ask("new server"),
                ("new server",),
                "every use of mcp_x_y, as its server describes it now",
                (SERVED,),
                whole_tool("mcp_x_y", ""),
                "mcp_x_y",
            ),
        ),
        (
            lambda: tool_question(facts(call("mcp_x_y"), ASKED, OF_TOOL), DIGEST, SERVED, deletes=False),
            Settlement(
                Ask("why\nnew server"),
                ("why", "new server"),
                "",
                (granted("mcp_x_y", GrantKind.PAYLOAD, DIGEST),),
                granted("mcp_x_y", GrantKind.PAYLOAD, DIGEST),
            ),
        ),
        (
            lambda: tool_question(
                facts(call("write", AgentSubject("reviewer", "identity"))), DIGEST, REVIEWER, deletes=False
            ),
            Settlement(
                Ask("write changes things"),
                (),
                "every use of write for reviewer, as now configured",
                (REVIEWER,),
                REVIEWER,
                "write reviewer",
            ),
        ),
        (
            lambda: folder_question(
                facts(READING, Ask("reads /a", folders=("/a",)), Ask("reads /b", folders=("/a", "/b")))
            ),
            Settlement(
                Ask("reads /a\nreads /b"),
                ("reads /a", "reads /b"),
                "reading /a, /b, except files that may hold secrets",
                (reading("/a", allowed=True), reading("/b", allowed=True)),
            ),
        ),
    ],
)
def test_a_question_says_and_offers_exactly_this(made: Callable[[], Settlement], expected: Settlement):
    assert made() == expected


# --------------------------------------------------------------------------- what becomes of the answer


class Asked:
    """A permission gate of a folder, whose user gives these answers."""

    def __init__(
        self,
        folder: Path,
        *answers: Decision,
        elicitor: FakeElicitor | None = None,
        level: AutoApprove = AutoApprove.SUGGEST,
    ) -> None:
        self.folder = os.path.realpath(folder)
        self.approver = ScriptedApprover(*answers)
        self.grants = GrantsInForce(GrantStore(os.path.join(folder, "grants.toml"), Warnings()))
        self.gate = PermissionGate(
            rules={},
            options=SessionOptions(auto_approve=level),
            grants=self.grants,
            approver=self.approver,
            files=Roots(self.folder),
            elicitor=elicitor,
        )


@each_row(
    "written, says",
    [
        ({"reason": " not\u202e here "}, "denied by the user, who says: not\\u202e here"),
        ({"reason": ""}, "denied by the user (asked about: why)"),
        ({"reason": 7}, "denied by the user (asked about: why)"),
        ({}, "denied by the user (asked about: why)"),
        (None, "denied by the user (asked about: why)"),
    ],
)
async def test_the_model_is_told_why_the_user_said_no_in_their_words(tmp_path: Path, written, says: str):
    elicitor = FakeElicitor(written)
    asked = Asked(tmp_path, Decision.REJECT_ONCE, elicitor=elicitor)
    assert await asked.gate.examine(facts(WRITING, ASKED)) == Deny(says)
    (form,) = elicitor.asked
    assert isinstance(form, Form)
    assert (form.message.partition("?")[0], form.call_id) == ("Why not", "call-1")


async def test_the_user_is_asked_for_a_reason_only_after_a_no_and_only_by_editors_with_forms(tmp_path: Path):
    for answer, forms in ((Decision.REJECT_ONCE, False), (Decision.ALLOW_ONCE, True), (Decision.REJECT_ALWAYS, True)):
        elicitor = FakeElicitor({"reason": "x"}, forms=forms)
        await Asked(tmp_path, answer, elicitor=elicitor).gate.examine(facts(WRITING, ASKED))
        assert elicitor.asked == [], answer


async def test_the_reasons_of_a_question_about_a_servers_tool_are_not_repeated_to_the_model(tmp_path: Path):
    served = replace(call("mcp_x_y"), spec=replace(SPECS["mcp_x_y"], server="x"))
    verdict = await Asked(tmp_path, Decision.REJECT_ONCE).gate.examine(facts(served, ASKED))
    assert verdict == Deny("denied by the user")


async def test_a_folder_outside_is_readable_only_for_the_call_that_was_approved(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "work").mkdir()
    ask = Ask("reads it", folders=(str(outside),))
    for answer, opened in ((Decision.ALLOW_ONCE, 1), (Decision.REJECT_ONCE, 0), (Decision.CANCELLED, 0)):
        call_facts = facts(READING, ask)
        await Asked(tmp_path / "work", answer).gate.examine(call_facts)
        assert len(call_facts.clean_up) == opened, answer
    call_facts = facts(WRITING, ASKED)
    await Asked(tmp_path / "work", Decision.ALLOW_ONCE).gate.examine(call_facts)
    assert call_facts.clean_up == []


async def test_an_answer_about_folders_is_remembered_for_them_and_a_refusal_of_several_for_none(tmp_path: Path):
    one, two = (str(tmp_path / name) for name in ("one", "two"))
    reads_both = facts(READING, Ask("reads one", folders=(one,)), Ask("reads two", folders=(two,)))
    asked = Asked(tmp_path, Decision.REJECT_ALWAYS, Decision.REJECT_ALWAYS, Decision.ALLOW_ALWAYS)
    assert isinstance(await asked.gate.examine(reads_both), Deny)
    assert asked.gate.answers() == ()
    await asked.gate.examine(facts(READING, Ask("reads one", folders=(one,))))
    refused = replace(reading(one, allowed=False), project=asked.folder)
    assert asked.gate.answers() == (refused,)
    denial = await asked.gate.examine(reads_both)
    assert denial == Deny(
        f'denied by the user: they answered "always reject" to {refused.covered}', rule=refused.covered
    )
    assert isinstance(denial, Deny)
    assert denial.advice == "Do it another way, or ask the user to revoke that answer (/permissions)."
    assert len(asked.approver.questions) == 2
    await asked.gate.examine(facts(READING, Ask("reads two", folders=(two,))))
    assert isinstance(await asked.gate.examine(facts(READING, Ask("reads two", folders=(two,)))), Allow)
    assert len(asked.approver.questions) == 3


async def test_an_answer_of_the_project_can_be_widened_and_revoked_through_the_gate(tmp_path: Path):
    asked = Asked(tmp_path, Decision.ALLOW_ALWAYS)
    await asked.gate.examine(facts(WRITING))
    (kept,) = asked.gate.answers()
    assert kept == replace(WRITE, project=asked.folder)
    assert await asked.gate.widen(kept) is True
    assert asked.gate.answers() == (WRITE,)
    assert await asked.gate.revoke(WRITE) is True
    assert asked.gate.answers() == ()


async def test_a_denial_of_the_shell_hides_tools_that_run_commands_and_no_others(tmp_path: Path):
    asked = Asked(tmp_path)
    runs = replace(SPECS["write"], name="run_tests", commands=True)
    assert (asked.gate.allows(runs), asked.gate.allows(SPECS["write"])) == (True, True)
    await asked.grants.remember(Grant("bash", GrantKind.TOOL, "", allowed=False))
    assert (asked.gate.allows(runs), asked.gate.allows(SPECS["write"])) == (False, True)


@each_row(
    "asks, verdict",
    [
        ((Ask("why"),), Approved(ApprovedBy.AUTO)),
        ((Ask("why"), Ask("firm", firm=True)), unasked("firm")),
        ((Ask("each", firm=True, each_time=True),), Ask("each")),
        ((Ask("why"), Ask("each", firm=True, each_time=True)), Ask("why\neach")),
    ],
)
def test_full_auto_answers_no_question_of_every_time_and_refuses_firm_ones(
    tmp_path: Path, asks: tuple[Ask, ...], verdict: Verdict
):
    assert Asked(tmp_path, level=AutoApprove.FULL_AUTO).gate.judge(facts(WRITING, *asks)) == verdict


async def test_an_answer_that_was_cancelled_or_unusable_is_told_apart_from_a_no(tmp_path: Path):
    verdicts = [
        await Asked(tmp_path, answer).gate.examine(facts(WRITING))
        for answer in (Decision.CANCELLED, Decision.UNANSWERED)
    ]
    assert verdicts == [
        Deny("the question was cancelled", ToolErrorCategory.CANCELLED),
        Deny(
            "the editor gave no usable answer to the question whether this call may run, so it did not run",
            ToolErrorCategory.CONFIRMATION_REQUIRED,
        ),
    ]


async def test_an_approval_of_exactly_this_covers_no_other_name_that_is_no_utf8(tmp_path: Path):
    """The digest once took every character that UTF-8 cannot hold for a question mark."""
    asked = Asked(tmp_path, Decision.ALLOW_SESSION)
    made, others = "caf\udce9", ("caf\udce8", "caf?")

    def writing(name: str) -> CallFacts:
        invocation = call("write", PathSubject(name, Access.WRITE))
        return facts(replace(invocation, call=replace(invocation.call, arguments={"path": name})), ASKED)

    assert isinstance(await asked.gate.examine(writing(made)), Approved)
    assert isinstance(asked.gate.judge(writing(made)), Approved)
    for other in others:
        assert isinstance(asked.gate.judge(writing(other)), Ask)
