"""The last gate: who is asked, when, and what becomes of the answer."""

import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.load import Flags, Loaded, load
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Decision, Invocation, Question
from acp_agent.core.session_options import AutoApprove, Mode, SessionOptions
from acp_agent.core.types import (
    Access,
    Ask,
    CallOrigin,
    CommandSubject,
    Deny,
    McpSubject,
    PathSubject,
    ToolResult,
    UrlSubject,
)
from acp_agent.execution.runner import GatedExecutor
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.gates.grants import Grant, GrantKind
from acp_agent.gates.rules.permission_rules import Action, Rule
from tests.fakes.passing_time import all_tasks_blocked
from tests.unit.gates import everyday, hostile
from tests.unit.gates.chain import SPECS, Chain, Judged, ScriptedApprover, call, command, full_auto, rules
from tests.unit.gates.test_policy import Fixed

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path) -> str:
    (tmp_path / "work" / "src").mkdir(parents=True)
    return os.fspath(tmp_path / "work")


@pytest.fixture
def make(root: str, tmp_path):
    def chain(
        *answers: Decision,
        level: AutoApprove = AutoApprove.SUGGEST,
        allow: tuple[Rule, ...] = (),
        tool: str = "bash",
    ) -> Chain:
        conduct, approver = SessionOptions(auto_approve=level), ScriptedApprover(*answers)
        return Chain(root, os.fspath(tmp_path / "grants.toml"), allow, conduct, approver=approver, tool=tool)

    return chain


def asked(chain: Chain) -> list[Question]:
    assert chain.approver is not None
    return chain.approver.questions


def wondering(chain: Chain, why: str = "why") -> Chain:
    """The chain, behind a gate that asks about every call."""
    return with_gate(chain, Fixed(Ask(why)), 0)


def with_gate(chain: Chain, gate: Gate, at: int) -> Chain:
    gates = chain.gates.in_order
    chain.gates = replace(chain.gates, in_order=(*gates[:at], gate, *gates[at:]))
    chain._executor = GatedExecutor(chain.gates, chain.recorder)
    return chain


def write(path: str = "src/x", number: int = 1) -> Invocation:
    return call("write", PathSubject(path, Access.WRITE), arguments={"path": path}, number=number)


CALLS = {
    "read": call("read", PathSubject("src/x", Access.READ)),
    "grep": call("grep"),
    "fetch": call("fetch", UrlSubject("https://example.com")),
    "write": write(),
    "move": call("move_path", PathSubject("a", Access.WRITE), PathSubject("b", Access.WRITE)),
    "delete": call("delete_path", PathSubject("a", Access.WRITE)),
    "command": command("make"),
    "reading command": command("ls"),
    "mcp": call("mcp_x_y", McpSubject("x", "y")),
}


@pytest.mark.parametrize(
    ("level", "asking"),
    [
        (AutoApprove.SUGGEST, {"fetch", "write", "move", "delete", "command", "mcp"}),
        (AutoApprove.AUTO_EDIT, {"fetch", "delete", "command", "mcp"}),
        (AutoApprove.FULL_AUTO, set()),
    ],
)
async def test_each_level_asks_for_its_kinds_and_says_so_beforehand(make, level: AutoApprove, asking: set[str]):
    for name, invocation in CALLS.items():
        chain = make(Decision.REJECT_ONCE, level=level)
        assert chain.asks(invocation) == (name in asking), name
        result = await chain.run(invocation)
        assert bool(asked(chain)) == (name in asking), name
        assert (result.failure is not None) == (name in asking), name


async def test_taking_an_entry_away_is_never_silent_whatever_the_kind(make):
    moving = call("move_path", PathSubject("a", Access.MOVE), PathSubject("b", Access.WRITE))
    taking = call("move_path", PathSubject("a", Access.DELETE), PathSubject("b", Access.WRITE))
    for invocation, asks in ((moving, False), (taking, True)):
        chain = make(Decision.REJECT_ONCE, level=AutoApprove.AUTO_EDIT)
        assert chain.asks(invocation) == asks
        await chain.run(invocation)
        assert bool(asked(chain)) == asks


async def test_nobody_is_asked_about_a_call_that_cannot_work(make):
    chain = make(Decision.ALLOW_ONCE)
    flawed = replace(write(), predicted_failure=ToolResult.refused("no such text in the file"))
    assert not chain.asks(flawed)
    assert (await chain.run(flawed)).failure is not None
    assert asked(chain) == []
    assert chain.recorder.ran == []


async def test_allow_once_runs_once(make):
    chain = make(Decision.ALLOW_ONCE)
    assert (await chain.run(write())).failure is None
    assert len(chain.recorder.ran) == 1
    assert (await chain.run(write())).failure is not None
    assert len(asked(chain)) == 2


async def test_reject_once_is_policy_blocked_and_not_kept(make):
    chain = make(Decision.REJECT_ONCE, Decision.ALLOW_ONCE)
    result = await chain.run(write())
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert result.failure.message == "denied by the user"
    assert (await chain.run(write())).failure is None


async def test_a_cancelled_question_is_cancelled(make):
    result = await make(Decision.CANCELLED).run(write())
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.CANCELLED


async def test_with_nobody_to_ask_the_call_needs_confirmation(root: str, tmp_path):
    chain = Chain(root, os.fspath(tmp_path / "grants.toml"), approver=None)
    result = await chain.run(write())
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.CONFIRMATION_REQUIRED
    assert (await chain.run(CALLS["read"])).failure is None


async def test_allow_always_covers_the_tool_and_survives_a_restart(make):
    assert (await make(Decision.ALLOW_ALWAYS).run(write())).failure is None
    chain = make()
    assert (await chain.run(write("src/other"))).failure is None
    assert asked(chain) == []
    assert (await chain.run(call("edit", PathSubject("x", Access.WRITE)))).failure is not None


@pytest.mark.parametrize("hostile_one", ["session", "process"])
async def test_git_obeys_the_repository_of_the_session_also_where_its_folder_may_not_be_read(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile_one: str
):
    here = {"session": Path(root), "process": tmp_path / "elsewhere"}
    for folder in here.values():
        for name in ("objects", "refs"):
            (folder / ".git" / name).mkdir(parents=True)
        (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (here[hostile_one] / ".git" / "config").write_text("[core]\n\tfsmonitor = ./evil.sh\n")
    monkeypatch.chdir(here["process"])
    file = tmp_path / "config.toml"
    file.write_text('[tools.file]\ndeny_read = ["**"]\n')
    chain = Chain(root, os.devnull, loaded=load(Flags(), {"ACP_AGENT_CONFIG": str(file)}))
    await chain.run(command("git commit -m x"))
    assert chain.approver is not None
    (question,) = chain.approver.questions
    assert any("core.fsmonitor" in reason for reason in question.reasons) == (hostile_one == "session")


async def test_always_holds_in_the_project_also_where_its_folder_may_not_be_read(root: str, tmp_path: Path):
    config = tmp_path / "config.toml"
    config.write_text('[tools.file]\ndeny_read = ["**"]\n')
    loaded = load(Flags(), {"ACP_AGENT_CONFIG": str(config)})
    chain = Chain(root, os.devnull, approver=ScriptedApprover(Decision.ALLOW_ALWAYS), loaded=loaded)
    await chain.run(command("git commit -m x"))
    assert [(grant.key, grant.project) for grant in chain.grants.listed()] == [("git commit", os.path.realpath(root))]


def delete(path: str) -> Invocation:
    made = call("delete_path", PathSubject(path, Access.DELETE), arguments={"path": path})
    return replace(made, summary=f"deletes {path}")


async def test_always_for_a_deletion_covers_that_deletion_alone(make):
    first = make(Decision.ALLOW_ALWAYS)
    assert (await first.run(delete("build"))).failure is None
    (question,) = asked(first)
    assert question.title == "deletes build"
    assert question.always == "exactly this text in this folder"
    chain = make()
    assert await chain.fate(delete("build")) == "silent"
    assert await chain.fate(delete("src")) == "asked"


async def test_never_for_a_deletion_covers_that_deletion_alone(make):
    await make(Decision.REJECT_ALWAYS).run(delete("src"))
    chain = make()
    assert await chain.fate(delete("src")) == "refused"
    assert await chain.fate(delete("build")) == "asked"
    assert chain.permission.allows(SPECS["delete_path"])


async def test_a_yes_to_the_whole_tool_does_not_delete_but_a_rule_does(make):
    chain = make()
    await chain.grants.remember(Grant("delete_path", GrantKind.TOOL, "", allowed=True))
    assert await chain.fate(delete("src")) == "asked"
    ruled = make(allow=rules("build"), tool="delete_path")
    assert await ruled.fate(delete("build")) == "silent"
    refusing = make(level=AutoApprove.FULL_AUTO)
    await refusing.grants.remember(Grant("delete_path", GrantKind.TOOL, "", allowed=False))
    assert await refusing.fate(delete("src")) == "refused"


async def test_always_for_a_move_covers_the_tool(make):
    moving = call("move_path", PathSubject("a", Access.MOVE), PathSubject("b", Access.WRITE))
    chain = make(Decision.ALLOW_ALWAYS)
    await chain.run(moving)
    assert asked(chain)[0].always == "every use of move_path"


async def test_reject_always_denies_the_tool_for_ever_and_hides_it(make):
    await make(Decision.REJECT_ALWAYS).run(write())
    chain = make(level=AutoApprove.FULL_AUTO)
    assert (await chain.run(write())).failure is not None
    assert asked(chain) == []
    assert not chain.permission.allows(SPECS["write"])
    assert chain.permission.allows(SPECS["edit"])
    user = replace(write(), call=replace(write().call, origin=CallOrigin.USER))
    assert (await chain.run(user)).failure is not None


@pytest.mark.parametrize(
    ("approved", "silent", "asking"),
    [
        (
            "git add x",
            ["git add -A", "timeout 5 git add x", "/usr/bin/git add x"],
            ["git push", "git add x > y", "git add x; evil", "git -c a=b add x", "./git add x"],
        ),
        ("git add x && git commit -m y", ["git add z", "git commit -m w; git add q"], ["git push"]),
        ("make test", ["make test -j4"], ["make deploy", "make test deploy"]),
        ("npm run build", ["npm run build"], ["npm run deploy", "npm install"]),
        ("python x.py", ["python x.py"], ["python y.py", "python x.py y", "python  x.py"]),
        ("bash -c 'evil 1'", ["bash -c 'evil 1'"], ["bash -c 'evil 2'", "evil 1"]),
        ("timeout 5 evil", ["timeout 5 evil"], ["timeout 6 evil", "evil"]),
        ("for x in 1; do evil; done", ["for x in 1; do evil; done"], ["for x in 2; do evil; done", "evil"]),
        ("git log | python x.py", ["git log | python x.py"], ["git log > x", "python x.py"]),
        ("cat /etc/hostname", ["cat /etc/hostname"], ["cat /etc/passwd", "cat x > y"]),
        ("ls > out", ["ls > out"], ["ls > out2"]),
    ],
)
async def test_allow_always_for_commands_covers_a_prefix_or_the_exact_text(
    make, approved: str, silent: list[str], asking: list[str]
):
    first = make(Decision.ALLOW_ALWAYS)
    assert (await first.run(command(approved))).failure is None
    chain = make()
    for text in silent:
        assert await chain.fate(command(text)) == "silent", text
    for text in asking:
        assert await chain.fate(command(text)) == "asked", text


async def test_an_exact_approval_holds_in_its_own_folder_only(make, tmp_path):
    await make(Decision.ALLOW_ALWAYS).run(command("python x.py"))
    (tmp_path / "elsewhere").mkdir()
    other = Chain(os.fspath(tmp_path / "elsewhere"), os.fspath(tmp_path / "grants.toml"))
    assert await other.fate(command("python x.py")) == "asked"


async def test_reject_always_for_a_command_denies_its_prefix_and_for_several_the_exact_text(make):
    await make(Decision.REJECT_ALWAYS).run(command("git push"))
    await make(Decision.REJECT_ALWAYS).run(command("git add x; git commit -m y"))
    chain = make(level=AutoApprove.FULL_AUTO)
    for text in ("git push origin", "true && git push", "for x in 1; do git push; done", "git add x; git commit -m y"):
        assert await chain.fate(command(text)) == "refused", text
    assert await chain.fate(command("git add x")) == "silent"
    assert chain.permission.allows(SPECS["bash"])


async def test_the_question_says_what_always_would_cover(make):
    chain = make()
    await chain.run(command("git add x && git commit -m y"))
    await chain.run(command("python x.py"))
    await chain.run(write())
    first, second, third = (question.always for question in asked(chain))
    assert first == "git add …, git commit …"
    assert second == "exactly this text in this folder"
    assert third == "every use of write"


@pytest.mark.parametrize(
    ("text", "always"),
    [
        ("git push origin main", "git push …, but nothing that destroys"),
        ("git add x && git push", "git add …, git push …, but nothing that destroys"),
        ("sed -n 1p x; make", "make …"),
        ("git -C sub clean -n", "git clean …, but nothing that destroys"),
        ("git fetch", "git fetch …, but nothing that destroys"),
        ("npm run build", "npm run build …"),
        ("make lint", "make lint …"),
    ],
)
async def test_the_question_says_that_always_leaves_out_what_destroys(make, text: str, always: str):
    chain = make()
    await chain.run(command(text))
    assert asked(chain)[0].always == always


async def test_one_question_settles_the_asks_of_all_gates(make):
    chain = wondering(make(Decision.ALLOW_ONCE), "an earlier gate wonders")
    assert (await chain.run(command("cat /etc/hostname > out"))).failure is None
    (question,) = asked(chain)
    assert question.reasons[:3] == ("an earlier gate wonders", "outside the workspace: /etc/hostname", "writes to out")


async def test_an_ask_of_another_gate_is_not_silenced_by_a_rule_but_by_full_auto(make):
    invocation = call("read")
    chain = wondering(make(allow=rules("*"), tool="read"))
    assert await chain.fate(invocation) == "asked"
    assert asked(chain)[0].always.startswith("exactly this text")
    assert await wondering(make(level=AutoApprove.FULL_AUTO)).fate(invocation) == "silent"
    await wondering(make(Decision.ALLOW_ALWAYS)).run(invocation)
    assert await wondering(make()).fate(invocation) == "silent"
    assert await wondering(make()).fate(call("read", arguments={"path": "other"})) == "asked"


async def test_what_the_user_typed_is_not_asked_about_but_denied_all_the_same(make):
    chain = make(allow=rules("git push*", action=Action.DENY))
    assert await chain.fate(command("python x.py > /tmp/y", origin=CallOrigin.USER)) == "silent"
    assert await chain.fate(command("git push", origin=CallOrigin.USER)) == "refused"
    assert await chain.fate(command("sudo ls", origin=CallOrigin.USER)) == "blocked"
    assert await chain.fate(command("cat ../x", origin=CallOrigin.USER)) == "refused"


class Always(ScriptedApprover):
    """Allows all, always."""

    async def ask(self, question: Question) -> Decision:
        self.questions.append(question)
        return Decision.ALLOW_ALWAYS


class Refused(NamedTuple):
    """A call that a gate refuses: under a configuration, after a call that failed."""

    invocation: Invocation
    config: str = ""
    first: Invocation | None = None
    conduct: SessionOptions = SessionOptions()
    foreign: tuple[str, ...] = ()


AGAIN = call("read", number=2)
REFUSED = {
    "blocklist": Refused(command("sudo ls")),
    "quota": Refused(AGAIN, "[tools]\nmax_tool_calls_per_session = 1", call("read")),
    "rate_limit": Refused(AGAIN, "[tools.rate_limit]\ncalls_per_hour = 1", call("read")),
    "mode": Refused(command("ls"), conduct=SessionOptions(Mode.ASK)),
    "selection": Refused(command("ls"), "[tools]\ndeny = ['bash']"),
    "autonomy": Refused(command("ls"), conduct=SessionOptions(readonly=True)),
    "trust": Refused(call("mcp_x_y", McpSubject("x", "y"), CommandSubject("ls"))),
    "policy": Refused(command("ls"), "[tools.policy]\nenabled = true\ndefault_effect = 'deny'"),
    "verifiers": Refused(command("cat ~/.ssh/id_rsa")),
    "sandbox": Refused(command("cat ../x")),
    "protected": Refused(command("touch .envrc"), conduct=full_auto()),
    "anomaly": Refused(AGAIN, "[tools.anomaly]\nwindow_size = 1", call("read")),
    "utility": Refused(call("read"), "[tools.utility]\nenabled = true\nthreshold = 1"),
    "permission": Refused(command("git push"), "[[tools.permissions.bash]]\npattern = 'git *'\naction = 'deny'"),
}
WATCHED = "[tools.utility]\nenabled = true\n[agent]\nhallucination_detection = true"


def configured(folder: Path, text: str) -> Loaded:
    file = folder / "config.toml"
    file.write_text(text)
    loaded = load(Flags(), {"ACP_AGENT_CONFIG": os.fspath(file)})
    assert loaded.problems == ()
    return loaded


@pytest.mark.parametrize("gate", REFUSED)
async def test_whatever_gate_refuses_a_call_nothing_is_asked_and_no_yes_runs_it(root: str, tmp_path: Path, gate: str):
    invocation, config, first, conduct, foreign = REFUSED[gate]
    loaded = configured(tmp_path, config)
    grants = os.fspath(tmp_path / "grants.toml")
    chain = Chain(root, grants, conduct=conduct, approver=Always(), loaded=loaded, foreign=foreign)
    if first is not None:
        slow = ToolResult.failed(ToolFailure(ToolErrorCategory.TIMEOUT, "slow"))
        failing = Judged(*chain.gates.in_order, behind=Answering(slow))
        assert (await failing.execute(first)).failure is slow.failure
    assert not chain.asks(invocation)
    for _ in range(2):
        result = await chain.run(invocation)
        assert result.failure is not None
        assert result.ruling is not None
        assert result.ruling.gate == gate
    assert asked(chain) == []
    assert chain.recorder.ran == []
    assert not os.path.exists(grants)


class Answering:
    """The executor behind the gates: gives the same result for every call."""

    def __init__(self, result: ToolResult) -> None:
        self.result = result

    async def execute(self, facts: CallFacts) -> ToolResult:
        return self.result


def test_every_gate_that_refuses_calls_is_tried(root: str, tmp_path: Path):
    chain = Chain(root, os.fspath(tmp_path / "grants.toml"), loaded=configured(tmp_path, WATCHED))
    assert {gate.name for gate in chain.gates.in_order} - {"grounding"} == set(REFUSED)


HOSTILE = (*hostile.U, *(text for table in (hostile.A, hostile.B, hostile.C) for text, _ in table))


@given(
    text=st.sampled_from([*HOSTILE, *everyday.COMMANDS, *everyday.CONSTRUCTS]),
    level=st.sampled_from(AutoApprove),
    denied=st.sampled_from(["git push*", "rm *", "cat *", "*"]),
    at=st.none() | st.integers(0, 20),
)
async def test_what_is_refused_when_the_user_says_no_is_refused_unasked_when_he_says_always(
    tmp_path_factory: pytest.TempPathFactory, text: str, level: AutoApprove, denied: str, at: int | None
):
    """`at` is where one more gate stands that refuses everything."""
    folder = tmp_path_factory.getbasetemp()

    def chain(approver: ScriptedApprover) -> Chain:
        given_rules = (*rules(denied, action=Action.DENY), *rules("*"))
        made = Chain(os.fspath(folder), os.devnull, given_rules, SessionOptions(auto_approve=level), approver=approver)
        return made if at is None else with_gate(made, Fixed(Deny("no")), at % len(made.gates.in_order))

    fate, agreed = await chain(ScriptedApprover()).fate(command(text)), chain(Always())
    result = await agreed.run(command(text))
    assert fate in ("blocked", "refused") or (at is None and denied != "*" and text not in hostile.U)
    if fate in ("blocked", "refused"):
        assert result.failure is not None
        assert asked(agreed) == []
        assert agreed.recorder.ran == []


async def test_deny_rules_hold_at_every_level_and_hide_whole_tools(make):
    for level in AutoApprove:
        chain = make(level=level, allow=rules("*", action=Action.DENY), tool="write")
        assert await chain.fate(write()) == "refused"
        assert not chain.permission.allows(SPECS["write"])
        assert not chain.asks(write())


async def test_path_rules_see_the_real_path(make, root: str):
    os.symlink(os.path.join(root, "src"), os.path.join(root, "link"))
    chain = make(allow=(*rules("src/secret*", action=Action.DENY), *rules("src/*")), tool="write")
    assert await chain.fate(write("src/x")) == "silent"
    assert await chain.fate(write(os.path.join(root, "src/x"))) == "silent"
    assert await chain.fate(write("link/x")) == "silent"
    assert await chain.fate(write("src/../y")) == "asked"
    for path in ("src/secret", "link/secret", "src/./secret1", os.path.join(root, "src/secret")):
        assert await chain.fate(write(path)) == "refused", path


async def test_every_path_of_a_call_must_be_allowed(make):
    chain = make(allow=rules("src/*"), tool="move_path")
    both = call("move_path", PathSubject("src/a", Access.WRITE), PathSubject("src/b", Access.WRITE))
    one = call("move_path", PathSubject("src/a", Access.WRITE), PathSubject("b", Access.WRITE))
    assert await chain.fate(both) == "silent"
    assert await chain.fate(one) == "asked"


async def test_rules_match_urls_and_arguments_of_other_tools(make):
    chain = make(allow=rules("https://example.com/*", action=Action.DENY), tool="fetch")
    assert await chain.fate(call("fetch", UrlSubject("https://EXAMPLE.com/x"))) == "refused"
    assert await chain.fate(call("fetch", UrlSubject("https://example.org/x"))) == "asked"
    chain = make(allow=rules('{"a":1,"b":*}'), tool="mcp_x_y")
    assert await chain.fate(call("mcp_x_y", McpSubject("x", "y"), arguments={"b": 2, "a": 1})) == "silent"
    assert await chain.fate(call("mcp_x_y", McpSubject("x", "y"), arguments={"a": 2})) == "asked"


async def test_a_handwritten_approval_of_the_whole_shell_still_asks_about_what_is_unclear(make, tmp_path):
    (tmp_path / "grants.toml").write_text('[tools]\nbash = "allow"\n')
    chain = make()
    assert await chain.fate(command("git log && ls")) == "silent"
    assert await chain.fate(command("npm run build")) == "silent"
    assert await chain.fate(command("python x.py")) == "asked"
    assert await chain.fate(command("git log > x")) == "asked"
    assert await chain.fate(command("x=1; $x")) == "asked"


async def test_a_denial_of_the_whole_shell_ends_what_names_no_program_too(make):
    chain = make()
    await chain.grants.remember(Grant("bash", GrantKind.TOOL, "", allowed=False))
    for text in ("ls", "x=1", "> out.txt", "'"):
        assert await chain.fate(command(text)) == "refused", text


async def test_rules_may_be_replaced_while_a_session_runs(make):
    chain = make()
    assert await chain.fate(command("make")) == "asked"
    chain.permission.rules = {"bash": rules("make *")}
    assert await chain.fate(command("make")) == "silent"


class SlowApprover:
    """Answers when told to, and counts how many questions are open at once."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.asked = 0
        self.open = 0
        self.most = 0
        self.first = anyio.Event()
        self.answer = anyio.Event()

    async def ask(self, question: Question) -> Decision:
        self.asked += 1
        self.open += 1
        self.most = max(self.most, self.open)
        self.first.set()
        await self.answer.wait()
        self.open -= 1
        return self.decision


async def together(chain: Chain, approver: SlowApprover, *invocations: Invocation) -> list[ToolResult]:
    results: list[ToolResult] = []

    async def run(invocation: Invocation) -> None:
        results.append(await chain.run(invocation))

    async with anyio.create_task_group() as group:
        for invocation in invocations:
            group.start_soon(run, invocation)
        await approver.first.wait()
        await all_tasks_blocked()
        approver.answer.set()
    return results


async def test_questions_of_one_session_are_asked_one_after_another(make):
    chain = make()
    approver = SlowApprover(Decision.ALLOW_ONCE)
    chain.permission._approver = approver
    results = await together(chain, approver, *(write(number=number) for number in range(3)))
    assert approver.asked == 3
    assert approver.most == 1
    assert all(result.failure is None for result in results)


async def test_always_answers_the_questions_that_were_waiting(make):
    chain = make()
    approver = SlowApprover(Decision.ALLOW_ALWAYS)
    chain.permission._approver = approver
    results = await together(chain, approver, *(write(number=number) for number in range(3)))
    assert approver.asked == 1
    assert all(result.failure is None for result in results)
    assert chain.grants.find("write", GrantKind.TOOL, "", os.path.realpath(chain.root)) is True
    assert chain.grants.find("write", GrantKind.TOOL, "", "/elsewhere") is None


async def test_a_call_that_runs_does_not_hold_up_the_next_question(make):
    chain = make()
    approver = SlowApprover(Decision.ALLOW_ONCE)
    approver.answer.set()
    chain.permission._approver = approver
    running, done = anyio.Event(), anyio.Event()

    async def slow(facts: CallFacts) -> ToolResult:
        if facts.call.id == "call-1":
            running.set()
            await done.wait()
        return ToolResult("ran")

    chain.recorder.execute = slow
    async with anyio.create_task_group() as group:
        group.start_soon(chain.run, write(number=1))
        await running.wait()
        assert (await chain.run(write(number=2))).failure is None
        done.set()


async def test_a_cancelled_turn_leaves_the_next_question_possible(make):
    chain = make()
    approver = SlowApprover(Decision.ALLOW_ONCE)
    chain.permission._approver = approver
    async with anyio.create_task_group() as group:
        group.start_soon(chain.run, write())
        await approver.first.wait()
        group.cancel_scope.cancel()
    approver.answer.set()
    assert (await chain.run(write())).failure is None


async def test_what_may_not_be_read_may_not_be_edited_nor_searched_either(tmp_path):
    """An edit that does not match answers with what the file holds."""
    chain = Chain(str(tmp_path), str(tmp_path / "grants"), rules("*.env", action=Action.DENY), tool="read")
    predicted_failure = ToolResult("SECRET=not-a-real-one")
    edit = call("edit", PathSubject(".env", Access.READ), PathSubject(".env", Access.WRITE))
    grep = call("grep", PathSubject(".env", Access.READ))
    listing = call("list_directory", PathSubject("secrets.env", Access.LIST))

    for invocation in (replace(edit, predicted_failure=predicted_failure), edit, grep, listing):
        result = await chain.run(invocation)
        assert result.failure is not None
        assert "SECRET" not in result.text
    assert chain.approver is not None
    assert chain.approver.questions == []


async def test_a_call_that_is_known_to_fail_is_answered_without_a_question(tmp_path):
    chain = Chain(str(tmp_path), str(tmp_path / "grants"))
    predicted_failure = ToolResult("old_string was not found")

    assert (
        await chain.run(replace(call("edit", PathSubject("a", Access.WRITE)), predicted_failure=predicted_failure))
        is predicted_failure
    )
    assert chain.approver is not None
    assert chain.approver.questions == []
    assert chain.recorder.ran == []


async def test_an_answer_that_is_none_does_not_count_as_the_users_no(tmp_path):
    chain = Chain(str(tmp_path), str(tmp_path / "grants"), approver=ScriptedApprover(Decision.UNANSWERED))

    result = await chain.run(command("make"))

    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.CONFIRMATION_REQUIRED
    assert "user" not in result.failure.message
    assert chain.recorder.ran == []


async def test_denials_written_by_hand_in_the_form_of_the_binary_hold_under_every_rule(make, tmp_path):
    (tmp_path / "grants.toml").write_text("[tools.bash.patterns]\ngit = 'deny'\nrm = 'deny'\ndocker = 'reject'\n")
    for level in AutoApprove:
        chain = make(level=level, allow=rules("*"))
        for text in ("git status", "rm x", "docker ps", "env git log", "/bin/rm x"):
            assert await chain.fate(command(text)) == "refused", text
        assert await chain.fate(command("ls")) == "silent"


@pytest.mark.parametrize(
    ("approved", "destroying"),
    [
        ("git push", ["git push --force", "git push origin :main", "git push origin +main"]),
        ("git clean -n", ["git clean -fd"]),
        ("git reset", ["git reset --hard"]),
        ("git branch", ["git branch -D x"]),
        ("git stash", ["git stash clear"]),
        ("sed -n 1p x", ["sed -i d README.md"]),
    ],
)
async def test_always_for_a_prefix_does_not_cover_what_destroys(make, approved: str, destroying: list[str]):
    await make(Decision.ALLOW_ALWAYS).run(command(approved))
    chain = make()
    assert await chain.fate(command(approved)) == "silent"
    for text in destroying:
        assert await chain.fate(command(text)) == "asked", text
    await make(Decision.ALLOW_ALWAYS).run(command(destroying[0]))
    assert await make().fate(command(destroying[0])) == "silent"


async def test_always_for_a_program_nobody_knows_covers_this_text_alone(make):
    await make(Decision.ALLOW_ALWAYS).run(command("unheard-of make"))
    chain = make()
    assert await chain.fate(command("unheard-of make")) == "silent"
    assert await chain.fate(command("unheard-of rm -rf src")) == "asked"


@pytest.mark.parametrize(
    ("pattern", "text", "fate"),
    [
        *(("cat *", text, "asked") for text in ("cat .env", "cat notes.txt", "cat x.py .env", "cat -n .env")),
        *(("cat .env", text, "silent") for text in ("cat .env", "cat '.env'")),
        *(("cat .env", text, "asked") for text in ("cat notes.txt", "cat .env.local", "cat .env; cat prod.env")),
        *(("cat notes.txt", text, "asked") for text in ("cat notes.txt", "cat .env")),
        *(("cat .en?", text, "asked") for text in ("cat .env",)),
        *(("grep *", text, "asked") for text in ("grep -r KEY .", "grep KEY .env")),
        *(("cat *", text, "silent") for text in ("cat src/x.py",)),
        *(("cat .ssh/id_rsa", text, "refused") for text in ("cat .ssh/id_rsa",)),
    ],
)
async def test_a_rule_covers_a_secret_only_when_it_names_it(make, root: str, pattern: str, text: str, fate: str):
    plant_secrets(root)
    assert await make(allow=rules(pattern, "cat x.py")).fate(command(text)) == fate


@pytest.mark.parametrize(("pattern", "fate"), [("*", "asked"), ("**/.env", "asked"), (".env", "silent")])
async def test_a_rule_for_a_tool_covers_a_secret_only_when_it_names_it(make, root: str, pattern: str, fate: str):
    plant_secrets(root)
    chain = make(allow=rules(pattern), tool="read")
    assert await chain.fate(call("read", PathSubject(".env", Access.READ))) == fate
    assert await chain.fate(call("read", PathSubject("notes.txt", Access.READ))) == "asked"


@pytest.mark.parametrize(("path", "fate"), [(".env", "asked"), ("notes.txt", "asked"), (".ssh/id_rsa", "refused")])
async def test_whatever_names_a_secret_meets_the_same_verdict(make, root: str, path: str, fate: str):
    plant_secrets(root)
    everything = ("cat *", "head *", "grep *", "git *", "cp *")
    for text in ("cat {}", "head -n1 {}", "grep x {}", "git diff --no-index -- x.py {}", "cp {} y", "cat < {}"):
        assert await make(allow=rules(*everything)).fate(command(text.format(path))) == fate, text
    for tool, access in (("read", Access.READ), ("grep", Access.LIST), ("move_path", Access.MOVE)):
        if path != "notes.txt" or access is not Access.MOVE:  # what is moved is the link
            assert await make(allow=rules("*"), tool=tool).fate(call(tool, PathSubject(path, access))) == fate, tool


def plant_secrets(root: str) -> None:
    os.mkdir(os.path.join(root, ".ssh"))
    for name in (".env", ".env.local", "prod.env", ".ssh/id_rsa", "src/x.py", "x.py"):
        with open(os.path.join(root, name), "w") as file:
            file.write("KEY=1\n")
    os.symlink(".env", os.path.join(root, "notes.txt"))
