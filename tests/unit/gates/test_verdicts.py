"""Each gate's verdicts as a whole: the words for the model, its advice, the rule for the audit, and the question."""

from dataclasses import replace
from typing import Any

import pytest

from acp_agent.core.errors import Refused, ToolErrorCategory
from acp_agent.core.ports import Invocation
from acp_agent.core.session_options import AutoApprove, Mode, SessionOptions
from acp_agent.core.types import (
    Access,
    Allow,
    Ask,
    CallingAgent,
    CallOrigin,
    CommandSubject,
    Deny,
    McpSubject,
    PathSubject,
    ToolCall,
    UrlSubject,
    Verdict,
)
from acp_agent.gates.adversarial import AdversarialGate
from acp_agent.gates.blocklist import BlocklistGate, BlocklistPolicy, Substitution
from acp_agent.gates.gate import ACTS_LATER, Gate, Gates
from acp_agent.gates.git_calls import GitGuard
from acp_agent.gates.limits import (
    AnomalyDetector,
    AnomalyGate,
    Outcome,
    Quota,
    QuotaGate,
    RateLimit,
    RateLimitGate,
)
from acp_agent.gates.mode import AutonomyGate, ModeGate
from acp_agent.gates.pins import PinBook, PinsGate
from acp_agent.gates.policy import Policy, PolicyGate
from acp_agent.gates.protected import ProtectedGate
from acp_agent.gates.rules.policy_rules import Effect, TrustLevel
from acp_agent.gates.sandbox import SandboxGate
from acp_agent.gates.selection import SelectionGate
from acp_agent.gates.trust import SessionTrust, TrustGate
from acp_agent.gates.utility import TurnCalls, UtilityGate
from acp_agent.store.decisions import Pin
from acp_agent.workspace.git.changes import GitChanges
from acp_agent.workspace.git.repositories import GitRepositories
from acp_agent.workspace.protected_paths import ProtectedPaths
from tests.unit.gates.chain import SPECS, call, command, inside

pytestmark = pytest.mark.anyio
BY_USER = CallOrigin.USER
FULL_AUTO = AutoApprove.FULL_AUTO
LEAVING = "the user leaves the mode with the editor's mode selector, or by typing /mode code"
SERVED = replace(call("mcp_x_y", McpSubject("x", "y")), spec=replace(SPECS["mcp_x_y"], server="x"))


def verdict(gate: Gate, invocation: Invocation, **more: Any) -> Verdict:
    return gate.judge(Gates((gate,), **more).facts(invocation))


def shell(text: str) -> Invocation:
    return replace(command(text), spec=replace(SPECS["bash"], commands=True))


def of_agent(invocation: Invocation, mode: Mode) -> Invocation:
    return replace(invocation, call=replace(invocation.call, agent=CallingAgent("scout-1", "scout", "card", mode)))


def by_user(invocation: Invocation) -> Invocation:
    return replace(invocation, call=replace(invocation.call, origin=BY_USER))


def test_the_mode_refuses_with_the_way_out_of_it():
    ask, code = (ModeGate(SessionOptions(mode=mode)) for mode in (Mode.ASK, Mode.CODE))
    leave = "Go on with what you can read, or tell the user to switch."
    report = "Go on with what you can read, and report."
    assert verdict(code, call("write")) == Allow()
    assert verdict(ask, call("write")) == Deny(
        f"'write' is not available in Read only mode ('ask'); {LEAVING}", advice=leave
    )
    assert verdict(ask, shell("make")) == Deny(
        f"this command may change something, and Read only mode ('ask') runs only commands that read; {LEAVING}",
        advice=leave,
    )
    assert verdict(ask, of_agent(call("write"), Mode.ASK)) == verdict(ask, call("write"))
    assert verdict(code, of_agent(call("write"), Mode.ASK)) == Deny(
        "'write' may change something, and scout may only read", advice=report
    )
    assert verdict(code, of_agent(shell("make"), Mode.ASK)) == Deny(
        "this command may change something, and scout may only read", advice=report
    )
    assert verdict(code, of_agent(shell("find . -name '*.py' | xargs wc -l"), Mode.ASK)) == Deny(
        "'xargs' in this command may change something, and scout may only read", advice=report
    )
    assert verdict(code, of_agent(call("write"), Mode.CODE)) == Allow()
    assert verdict(AutonomyGate(lambda: True), call("write")) == Deny(
        "'write' is not available: this session may only read", rule="autonomy_level = readonly"
    )


class Pins:
    """Decisions about definitions: one that the user once took, or none, or none that can be read."""

    def __init__(self, pin: Pin | None, trouble: str = "") -> None:
        self.pin = pin
        self.trouble = trouble

    def find(self, identity: str, tool: str) -> Pin | None:
        assert (identity, tool) == ("id-x", "y")
        return self.pin


def test_a_changed_definition_is_asked_about_or_refused_where_nobody_is_asked():
    other: Any = Pins(Pin("another digest", "What it was."))
    book, options = PinBook(other, {"x": "id-x"}), SessionOptions()
    asked = verdict(PinsGate(book, options), SERVED)
    assert isinstance(asked, Ask)
    assert asked == Ask(asked.reason, of_tool=True)
    assert asked.reason.startswith("the server x has changed what this tool is since you let it run; ")
    for invocation, auto in ((SERVED, FULL_AUTO), (by_user(SERVED), options.auto_approve)):
        assert verdict(PinsGate(book, SessionOptions(auto_approve=auto)), invocation) == Deny(
            "a tool of the server x may have changed since the user let it run; nobody is asked at this approval "
            "level, so it is refused; at another one the user would be asked",
            ToolErrorCategory.CONFIRMATION_REQUIRED,
            rule="changed definition",
        )
    for pins, told in ((Pins(None), Allow()), (Pins(None, "it is damaged"), None)):
        stored: Any = pins
        found = verdict(PinsGate(PinBook(stored, {"x": "id-x"}), options), SERVED)
        assert found == (
            told or Ask("whether you have let this tool run before is not known: it is damaged", of_tool=True)
        )


def test_limits_refuse_with_the_setting_that_sets_them():
    quota = Quota(1)
    quota.take(ToolCall("1", "read", {}))
    assert verdict(QuotaGate(quota), call("read", number=2)) == Deny(
        "quota_blocked: the 1 batches of tool calls of this session are used up (tools.max_tool_calls_per_session); "
        "/clear starts over",
        rule="max_tool_calls_per_session = 1",
    )
    limit = RateLimit(1, clock=lambda: 0.0)
    limit.take(ToolCall("1", "read", {}))
    refused = verdict(RateLimitGate(limit), call("read", number=2))
    assert isinstance(refused, Deny)
    assert refused == Deny(
        refused.reason,
        ToolErrorCategory.RATE_LIMITED,
        rule="calls_per_hour = 1",
        advice="The call is not repeated automatically: finish with what you have, and tell the user when to go on.",
    )
    assert refused.reason.startswith("rate limit: 1 tool calls an hour are allowed; the next one is possible in ")


async def _unheard(_: object) -> None:
    """Hear nothing."""


def test_a_tool_that_fails_too_often_is_refused_to_the_model():
    detector = AnomalyDetector(auto_block=True)
    for _ in range(20):
        detector.record("read", Outcome.BROKEN)
    (alarm,) = detector.alarms
    gate = AnomalyGate(detector, _unheard)
    assert verdict(gate, call("read")) == Deny(
        f"'read' is blocked: {alarm.failures} of its last {alarm.calls} calls failed. Do without it; the user can "
        "allow it again with /tools reset read",
        rule="failure rate 1.00",
    )
    assert verdict(gate, by_user(call("read"))) == Allow()
    assert verdict(gate, call("write")) == Allow()


def test_the_worth_of_a_call_and_what_was_wanted_are_recorded():
    low = verdict(UtilityGate(TurnCalls(), 0.5, weigh=lambda *_: 0.25), call("read"))
    assert isinstance(low, Deny)
    assert low == Deny(low.reason, rule="worth 0.25 < 0.50")
    none = verdict(UtilityGate(TurnCalls(), 0.5, weigh=lambda *_: float("nan")), call("read"))
    assert none == Deny("not run: the worth of this call cannot be computed", rule="worth nan")
    assert verdict(UtilityGate(TurnCalls(), 0.5, weigh=lambda *_: 0.5), call("read")) == Allow()


async def test_a_policy_is_named_by_its_number_and_a_part_of_its_words():
    async def opinion(_: object) -> str:
        return answer

    nobody = Deny("blocked by a policy of the user ([tools.adversarial_policy])", rule="no policy was named")
    second = Deny("blocked by policy 2 of the user, which begins: nothi…", rule="policy 2")
    for answer, expected, noted in (
        ("ALLOW", Allow(), "allow"),
        ("DENY", nobody, "deny: "),
        ("DENY 0", nobody, "deny: "),
        ("DENY 3: x", nobody, "deny: x"),
        ("DENY 2", second, "deny: "),
        ("DENY 2: it leaves", second, "deny: it leaves"),
        ("perhaps", nobody, "deny: the answer is neither ALLOW nor DENY"),
    ):
        gate: Any = AdversarialGate(["x", "nothing out"], opinion, str, ())
        facts = Gates((gate,)).facts(call("write"))
        assert await gate.examine(facts) == expected, answer
        assert facts.opinions == [noted], answer


async def test_the_second_model_is_not_asked_about_the_users_own_exempt_and_refused_calls():
    asked = list[object]()

    async def opinion(request: object) -> str:
        asked.append(request)
        return "DENY 1"

    refusing: Any = ModeGate(SessionOptions(mode=Mode.ASK))
    for invocation, later, exempt, count in (
        (call("write"), (), (), 1),
        (by_user(call("write")), (), (), 0),
        (call("write"), (), ("write",), 0),
        (call("write"), (refusing,), (), 0),
        (call("read"), (refusing,), (), 1),
    ):
        asked.clear()
        gate: Any = AdversarialGate(["nothing"], opinion, str, later, exempt=exempt)
        found = await gate.examine(Gates((gate,)).facts(invocation))
        assert len(asked) == count
        assert isinstance(found, Deny if count else Allow)


def test_trust_refuses_and_asks_with_what_is_not_trusted():
    def found(invocation: Invocation, auto: AutoApprove = AutoApprove.SUGGEST, **trust: Any) -> Verdict:
        return verdict(TrustGate(SessionTrust(**trust), SessionOptions(auto_approve=auto)), invocation)

    untrusted, blocked = TrustLevel.UNTRUSTED, TrustLevel.BLOCKED
    write = call("write", PathSubject("a", Access.WRITE))
    fetch = call("fetch", UrlSubject("https://x.org/"))
    for level in ({"turn": blocked}, {"tools": {"write": blocked}}):
        assert found(write, **level) == Deny("'write' is blocked in this session", rule="blocked")
    for each in (write, fetch, command("ls"), call("delete_path")):
        name = each.spec.name
        assert found(each, turn=untrusted) == Deny(
            f"'{name}' is not available to an untrusted skill", rule="turn untrusted"
        )
    assert found(call("read", PathSubject("a", Access.READ)), turn=untrusted) == Allow()
    assert found(fetch, tools={"fetch": untrusted}) == Deny("'fetch' is not trusted with this", rule="tool untrusted")
    served = Ask("a tool of x, which is not trusted", of_tool=True)
    assert found(SERVED) == served
    assert found(SERVED, FULL_AUTO) == Deny(
        f"{served.reason}; full-auto does not ask, so it is refused; at another approval level the user would be asked",
        ToolErrorCategory.CONFIRMATION_REQUIRED,
        rule=served.reason,
    )
    assert found(by_user(SERVED), FULL_AUTO) == served
    assert found(call("grep"), tools={"grep": untrusted}) == Ask(
        "a tool of somebody else, which is not trusted", of_tool=True
    )
    assert found(write, workspace=untrusted) == Ask("this folder is not trusted")
    read = {"read_from": {"a page": False}}
    assert found(command("make"), **read) == Ask("no sandbox contains this command, and the agent has read a page")
    assert found(command("make"), read_from={"a page": True}) == Allow()
    assert found(by_user(command("make")), **read) == Allow()
    assert found(command("ls"), **read) == Allow()
    assert found(write, **read) == Allow()
    gate = TrustGate(SessionTrust(**read), SessionOptions())
    assert verdict(gate, command("make"), contained=True) == Allow()


def test_the_policy_says_no_more_than_that_it_refuses(tmp_path):
    def found(policy: Policy) -> Verdict:
        gate = PolicyGate(policy, cwd=str(tmp_path), realpath=str, trust=lambda _: TrustLevel.TRUSTED)
        return verdict(gate, call("read", PathSubject("a", Access.READ)))

    assert found(Policy()) == Allow()
    refused = found(Policy(default=Effect.DENY))
    assert isinstance(refused, Deny)
    assert refused == Deny(refused.reason, rule="")
    broken = Policy(fault="line 3 is no rule")
    assert found(broken) == Deny(broken.status, rule="unreadable")


def test_the_blocklist_says_what_to_do_instead():
    def found(text: str, substitution: Substitution = Substitution.INSPECT, **more: Any) -> Verdict:
        return verdict(BlocklistGate(BlocklistPolicy(substitution=substitution)), command(text), **more)

    blocked = "the command is blocked, because it"
    refused = found("sudo ls")
    assert isinstance(refused, Deny)
    assert refused == Deny(
        refused.reason, rule="sudo", advice="Do it without this command, or tell the user what to run."
    )
    assert refused.reason.startswith(f"{blocked} matches 'sudo'")
    assert found("ls\0") == Deny(f"{blocked} holds a NUL character")
    unread = found("$(" * 300)
    assert isinstance(unread, Deny)
    assert unread == Deny(unread.reason, advice="Write it out plainly.")
    assert found("echo " + "${a:-" * 300 + "x" + "}" * 300) == Deny(
        f"{blocked} is nested too deep and cannot be checked", advice="Write it out plainly."
    )
    text = "echo $(ls)"
    asked = found(text, Substitution.ASK)
    assert isinstance(asked, Ask)
    assert found(text, Substitution.BLOCK) == Deny(
        f"{blocked} {asked.reason}; run the commands one by one and write the values out"
    )
    assert found(text) == Allow()
    deleted = found("rm $(ls)")
    assert isinstance(deleted, Ask)
    assert deleted == Ask(deleted.reason, firm=True)
    assert deleted.reason.endswith(" names what rm deletes")
    assert found("rm $(ls)", contained=True) == Allow()
    ran = found('bash -c "$(cat x)"')
    assert isinstance(ran, Deny)
    assert ran.reason.endswith(" runs cannot be told")


def test_tools_that_are_left_out_are_refused_with_the_entry_that_does():
    class Chosen:
        """A selection that excludes what it is told to."""

        is_everything = False

        def __init__(self, *excluded: str) -> None:
            self.excluded = excluded

        def objection(self, name: str, server: str = "", *, commands: bool = False) -> str:
            return f"deny {name}" if name in self.excluded else ""

    def gate(*excluded: str, only: tuple[str, ...] | None = None, agent: Any = None) -> Gate:
        chosen: Any = Chosen(*excluded)
        return SelectionGate(lambda: chosen, lambda: only, lambda: agent)

    assert verdict(gate("read"), call("read")) == Deny(
        "'read' is not among the tools of this session", rule="deny read"
    )
    assert verdict(gate("read"), by_user(call("read"))) == verdict(gate("read"), call("read"))
    assert verdict(gate("read"), call("grep")) == Allow()
    acting = replace(call("grep"), spec=replace(SPECS["grep"], acts_as=("read",)))
    assert verdict(gate("read"), acting) == Deny("'grep' is not among the tools of this session", rule="deny read")
    users = replace(call("grep"), spec=replace(SPECS["grep"], users_only=True))
    assert verdict(gate(), users) == Deny("'grep' is not among the tools of this session", rule="agents")
    assert verdict(gate(), by_user(users)) == Allow()
    left = {"rule": "allowed-tools"}
    assert verdict(gate(only=("read",)), call("grep")) == Deny("'grep' is not among the tools of this command", **left)
    assert verdict(gate(only=("read",)), call("read")) == Allow()
    assert verdict(gate(only=("read",)), by_user(call("grep"))) == Allow()
    assert verdict(gate(agent=Chosen("grep")), call("grep")) == Deny(
        "'grep' is not among the tools of this agent", **left
    )
    assert verdict(gate(agent=Chosen("grep")), call("read")) == Allow()


def test_what_is_known_before_any_gate_is_asked_about():
    def asks(invocation: Invocation, repair: str = "") -> list[Ask]:
        return Gates(()).facts(invocation, repair).asks

    later = replace(call("write"), spec=replace(SPECS["write"], acts_later=True))
    assert asks(call("write")) == asks(call("read"), "mended") == []
    assert asks(call("write"), "mended") == [Ask("mended")]
    assert asks(later, "mended") == [Ask("mended"), Ask(ACTS_LATER, firm=True, each_time=True)]


def test_the_sandbox_asks_for_each_thing_that_leaves_it(tmp_path):
    gate = SandboxGate(
        inside(str(tmp_path)),
        inside(str(tmp_path)),
        refuse_url=lambda url: Refused("no", "Use curl.") if "x" in url else None,
    )
    refused = verdict(gate, call("fetch", UrlSubject("https://x/")))
    assert (refused, refused.advice) == (Deny("no"), "Use curl.")
    assert verdict(gate, call("fetch", UrlSubject("https://y/"))) == Allow()
    outside = "outside the workspace: /etc/hosts"
    assert verdict(gate, command("cat /etc/hosts")) == Ask(outside, firm=True)
    free = call("bash", CommandSubject("cat /etc/hosts", unsandboxed=True))
    assert verdict(gate, free) == Ask(f"leaves the sandbox; {outside}", firm=True, each_time=True)
    assert verdict(gate, call("bash", CommandSubject("ls", unsandboxed=True))) == Ask(
        "leaves the sandbox", firm=True, each_time=True
    )
    assert verdict(gate, command("cat /etc/hosts"), contained=True) == Allow()
    assert verdict(gate, call("bash", CommandSubject("ls", typed=True))) == Ask(
        "typed into a program that runs commands, in a folder that is not known", firm=True
    )
    climbing = verdict(gate, command("cat ../x"))
    assert climbing == Deny("'../x' leads out of the workspace", advice="Name a path inside of it.")


def test_a_protected_path_is_refused_or_asked_about_with_why(tmp_path):
    def found(invocation: Invocation, auto: AutoApprove = AutoApprove.SUGGEST) -> Verdict:
        resolve = inside(str(tmp_path))
        git = GitGuard(GitRepositories(resolve, str(tmp_path)), changes=GitChanges(resolve))
        options = SessionOptions(auto_approve=auto)
        paths = ProtectedPaths()
        gate = ProtectedGate(paths=paths, options=options, resolve=resolve, resolve_command=resolve, git=git)
        return verdict(gate, invocation)

    hook = ProtectedPaths().find(f"{tmp_path}/.git/hooks/x")
    soft = ProtectedPaths().find(f"{tmp_path}/.envrc")
    assert hook is not None
    assert soft is not None
    assert (hook.hard, soft.hard, soft.everyday) == (True, False, False)
    written = call("write", PathSubject(".git/hooks/x", Access.WRITE))
    assert found(written) == Deny(f".git/hooks/x is protected: {hook.reason}", rule=hook.reason)
    asked = Ask(f".envrc is protected: {soft.reason}", firm=True)
    assert found(call("write", PathSubject(".envrc", Access.WRITE))) == asked
    refused = found(call("write", PathSubject(".envrc", Access.WRITE)), FULL_AUTO)
    assert isinstance(refused, Deny)
    assert (refused.category, refused.rule) == (ToolErrorCategory.CONFIRMATION_REQUIRED, asked.reason)
    assert found(command("cp a .envrc")) == Ask(f"may change .envrc, which is protected: {soft.reason}", firm=True)
    assert found(command("ls")) == Allow()
