"""What each slash command does, and what the user is told: every branch of the handler."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent.agent.history import History
from acp_agent.core.data import frozen
from acp_agent.core.delegation import AgentRun, OfferedAgent, RunState
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import UsageChanged
from acp_agent.core.messages import StopReason, Usage
from acp_agent.core.services import Compaction
from acp_agent.core.types import CallOrigin, ToolCall, ToolResult
from acp_agent.gates.gate import Gates
from acp_agent.gates.limits import Outcome
from acp_agent.gates.permission import PermissionGate
from acp_agent.session.slash.commands import ALWAYS, CommandName
from acp_agent.session.slash.handler import SlashCommandHandler
from acp_agent.session.toolset.extensions import Expansion
from acp_agent.session.turn_slot import Answer
from tests.fakes.fake_toolset import FakeToolset
from tests.unit.session.test_slash_handler import Configured, configured

pytestmark = pytest.mark.anyio
__all__ = ["configured"]  # the fixture
ON = "[agents]\nenabled = true\n"


async def say(desk: SlashCommandHandler, name: CommandName, argument: str = "") -> Any:
    files: Any = None
    return await desk.run(name, argument, files)


def texts(history: History) -> list[str]:
    return [each.text for each in history.messages()]


def conversing(desk: SlashCommandHandler, **more: Any) -> History:
    """Give the desk a conversation with a history."""
    history = History()
    conversation: Any = SimpleNamespace(history=history, agent=None, status=lambda: ("Context: half",), **more)
    desk._conversation = conversation
    return history


# --------------------------------------------------------------------------------------- sub-agents


class Agents:
    """One sub-agent, with one run."""

    def offered(self) -> Sequence[OfferedAgent]:
        return (OfferedAgent("scout", "Looks around.", source="project"),)

    def runs(self) -> Sequence[AgentRun]:
        return (AgentRun("r1", "scout", "look", RunState.FAILED, "no network", 3.0, calls=2),)


async def test_a_task_is_given_as_the_users_call_and_its_report_is_for_the_model_too(configured: Configured):
    desk, _, events, _ = configured(ON)
    history = conversing(desk)
    desk._toolset = tools = FakeToolset({"agent": lambda _: ToolResult("a ``` report", display="shown")})
    assert await desk.give("scout", "look around") == "shown"
    (call,) = tools.calls
    assert (call.name, call.arguments, call.origin) == (
        "agent",
        {"agent": "scout", "task": "look around"},
        CallOrigin.USER,
    )
    (told,) = texts(history)
    assert told.startswith("I had the sub-agent scout do this: look around\n\n")
    assert "report" in told
    assert [type(each) for each in events] == [UsageChanged]
    assert await desk.give("scout", " ") == "Say what `scout` is to do: `@scout TASK`"
    assert len(tools.calls) == 1


async def test_of_a_task_that_failed_the_user_hears_why_and_the_model_nothing(configured: Configured):
    desk, fixed, events, _ = configured(ON)
    history = conversing(desk)
    failure = ToolFailure(ToolErrorCategory.POLICY_BLOCKED, "refused")
    desk._toolset = FakeToolset({"agent": lambda _: ToolResult.failed(failure)})
    fixed.window = lambda: 0  # type: ignore[method-assign]
    assert await desk.give("scout", "look") == "refused"
    assert (texts(history), events) == ([], [])


async def test_a_task_is_evaluated_by_criteria_and_half_a_command_gets_the_usage(configured: Configured):
    desk, *_ = configured("[agents]\nenabled = false\n")
    assert await desk.evaluate("short: do it") == "Sub-agents are switched off (`agents.enabled`)."
    desk, *_ = configured(ON)
    history = conversing(desk)
    desk._toolset = tools = FakeToolset({"evaluate": lambda _: ToolResult("passed")})
    for text in ("do it", ": do it", "short:", "short:  "):
        assert (await desk.evaluate(text)).startswith("Usage: `/evaluate CRITERIA: TASK`")
    assert tools.calls == []
    assert await say(desk, CommandName.EVALUATE, " short : do it ") == "passed"
    assert tools.calls[0].arguments == {"criteria": "short", "task": "do it"}
    assert texts(history)[0].startswith("I had sub-agents do and judge this:  short : do it")


async def test_the_agents_and_their_runs_are_listed_where_there_are_any(configured: Configured):
    desk, *_ = configured("[agents]\nenabled = false\n", agents=Agents())
    assert await say(desk, CommandName.AGENTS) == "Sub-agents are switched off (`agents.enabled`)."
    assert desk.mentioned(["@scout look"]) is None
    desk, *_ = configured(ON, agents=Agents())
    told = await say(desk, CommandName.AGENTS)
    assert "- scout: Looks around. (project)" in told
    assert "- r1: failed, 2 tool calls in 3 s; why: no network; task: look" in told
    assert desk.mentioned(["@scout look"]) == ("scout", "look")
    assert desk.mentioned(["@other look"]) is None


class Handoff:
    """A session that goes on under whatever it is told to."""

    name = ""

    def status(self) -> Sequence[str]:
        return ("Under no agent.",)

    async def to(self, name: str) -> str:
        self.name = name
        return f"Under {name}."


async def test_the_session_is_handed_over_with_words_for_the_model_or_without(configured: Configured):
    desk, *_ = configured(handoff=Handoff())
    assert (await say(desk, CommandName.HANDOFF)).startswith("Under no agent.\n\nUsage")
    assert await say(desk, CommandName.HANDOFF, "scout") == "Under scout."
    told = await say(desk, CommandName.HANDOFF, "guide  go on here")
    assert told == Expansion("[This conversation was handed over: you go on with it as guide.]\n\ngo on here")


# ------------------------------------------------------------------------------------------ schedule


class Schedule:
    """A schedule that repeats what it is told."""

    async def now(self, words: str) -> str:
        return f"now {words}"

    async def command(self, text: str) -> str:
        return f"command {text}"


async def test_a_scheduled_prompt_is_run_for_the_model_and_the_rest_is_answered(configured: Configured):
    desk, fixed, *_ = configured()
    session: Any = fixed
    session.scheduler = None
    assert await say(desk, CommandName.SCHEDULE, "run 1") == (
        "Nothing can be scheduled: this conversation is not stored."
    )
    session.scheduler = Schedule()
    assert await say(desk, CommandName.SCHEDULE, "run 1") == Expansion("now 1")
    assert await say(desk, CommandName.SCHEDULE, "run") == Expansion("now ")
    assert await say(desk, CommandName.SCHEDULE, "cancel 1") == "command cancel 1"
    assert await say(desk, CommandName.SCHEDULE) == "command "


async def test_the_turn_of_a_scheduled_prompt_is_recorded_where_there_is_an_audit(configured: Configured):
    recorded = list[object]()
    call, result = ToolCall("1", "scheduled", {}), ToolResult("done")
    configured()[0].record(call, result, 2.0)
    configured(record=lambda *each: recorded.append(each))[0].record(call, result, 2.0)
    assert recorded == [(call, result, 2.0)]


async def test_the_calls_of_the_conversation_are_counted(configured: Configured):
    desk, _, _, gates = configured()
    assert desk.calls == 0
    gates.quota.take(ToolCall("1", "read", {}))
    gates.quota.take(ToolCall("2", "read", {}))
    assert desk.calls == gates.quota.use.calls == 2


# --------------------------------------------------------------------------------------------- hooks


async def test_hooks_hear_of_the_end_of_a_turn_and_of_the_session(configured: Configured):
    heard = list[str]()

    class Hooks:
        async def turn_ended(self, reason: str) -> None:
            heard.append(reason)

        async def ended(self) -> None:
            heard.append("the session")

        async def notes(self) -> str:
            return "a note"

    without, *_ = configured()
    await without.turn_ended(Answer(StopReason.END_TURN))
    await without.session_ended()
    assert await without.hook_notes() == ""
    desk, *_ = configured(hooks=Hooks)
    await desk.turn_ended(Answer(StopReason.CANCELLED))
    await desk.session_ended()
    assert await desk.hook_notes() == "a note"
    assert heard == ["cancelled", "the session"]


# -------------------------------------------------------------------------------- status and trust


async def test_the_status_has_a_line_for_each_subject(configured: Configured):
    desk, fixed, _, gates = configured("[llm]\nfallback = ['ollama:a', 'ollama:b']\n", more=lambda: ("More: a line",))
    conversing(desk)
    models: Any = fixed
    models.in_force = "p:one"
    models.usage = SimpleNamespace(status=lambda: ("Tokens: 3 read",), tokens=Usage(input=3), cost=None, complete=True)
    for number in range(20):
        gates.anomalies.record("bash", Outcome.BROKEN)
        gates.quota.take(ToolCall(str(number), "bash", {}))
    gates.trust.has_read(("a site",))
    use = gates.quota.use
    status = list(desk.status())
    assert status[:2] == ["Model: p:one; fallback: ollama:a, ollama:b", "Mode: Ask first (`suggest`)"]
    assert status[2:4] == ["Context: half", "Tokens: 3 read"]
    limit = "" if use.limit is None else f"; {use.limit} rounds are allowed"
    assert status[4] == f"Tool calls: 20 in {use.batches} rounds{limit}"
    assert status[5] == "Blocked: bash, 100% of its calls failed (`/tools reset bash`)"
    assert "since the agent has read a site" in status[6]
    assert status[-2:] == ["More: a line", f"Configuration: {fixed.loaded.file}"]
    assert (await say(desk, CommandName.STATUS)).startswith("- Model: p:one")
    assert (await say(desk, CommandName.COST)).startswith("- 3 tokens sent")
    models.in_force = ""
    models.usage.tokens, models.usage.complete = Usage(), True
    assert desk.status()[0] == "Model: none is configured"
    assert await say(desk, CommandName.COST) == "No model was asked yet."


async def test_one_round_is_told_in_the_singular(configured: Configured):
    desk, fixed, _, gates = configured()
    conversing(desk)
    models: Any = fixed
    models.in_force, models.usage = "p:one", SimpleNamespace(status=tuple)
    gates.quota.take(ToolCall("1", "read", {}))
    told = next(each for each in desk.status() if each.startswith("Tool calls"))
    assert told.partition(";")[0] == "Tool calls: 1 in 1 round"


async def test_notes_are_told_to_be_off_where_they_are(configured: Configured):
    desk, *_ = configured(notes=lambda: None)
    assert (await say(desk, CommandName.MEMORY)).startswith("No notes are stored")


async def test_the_servers_are_listed_or_that_there_are_none(configured: Configured):
    desk, fixed, *_ = configured()
    assert await say(desk, CommandName.MCP) == "This session has no MCP servers."
    fixed.servers = ("one (client) ready",)
    assert await say(desk, CommandName.MCP) == "- one (client) ready"


class Brought:
    """What a folder brings: one file waits for the user, or none does."""

    def __init__(self, *files: str) -> None:
        self.files = files

    async def accept(self) -> str:
        return "used"

    def waiting(self) -> Sequence[str]:
        return self.files


async def test_trust_is_told_reset_and_given_to_what_the_folder_brings(configured: Configured):
    desk, _, _, gates = configured(extensions=Brought("- a skill"))
    gates.trust.has_read(("a site",))
    told = await say(desk, CommandName.TRUST)
    assert "since the agent has read a site" in told
    assert told.endswith("\n\nFiles of this folder that are not used:\n\n- a skill")
    assert await say(desk, CommandName.TRUST, "accept") == "used"
    assert gates.trust.read_from
    assert (await say(desk, CommandName.TRUST, "reset")).startswith("The conversation is trusted again")
    assert not gates.trust.read_from
    assert (await say(desk, CommandName.TRUST, "me")).startswith("Usage: `/trust`")
    told = await say(configured(extensions=Brought())[0], CommandName.TRUST)
    assert "nothing from outside was read." in told
    assert "not used" not in told


# ----------------------------------------------------------------------------------- tools, answers


async def test_tools_are_listed_by_their_first_sentence(configured: Configured):
    desk, *_ = configured()
    assert await say(desk, CommandName.TOOLS) == "No tool is available."
    desk._toolset = FakeToolset({"read": lambda _: ""})
    assert await say(desk, CommandName.TOOLS) == "Tools in this mode:\n\n- `read` The read tool"


async def test_a_blocked_tool_is_allowed_again_alone_or_with_all(configured: Configured):
    desk, _, _, gates = configured()

    def block(*names: str) -> None:
        for name in names:
            for _ in range(20):
                gates.anomalies.record(name, Outcome.BROKEN)

    assert (await say(desk, CommandName.TOOLS, "again")).startswith("Usage: `/tools`")
    assert await say(desk, CommandName.TOOLS, "reset") == "No tool was blocked."
    assert await say(desk, CommandName.TOOLS, "reset bash") == "`bash` was not blocked."
    block("bash", "read")
    told = await say(desk, CommandName.TOOLS, "reset bash")
    assert told == "The failures of `bash` no longer count; the agent may use it again."
    assert [each.tool for each in gates.anomalies.alarms] == ["read"]
    block("bash")
    told = await say(desk, CommandName.TOOLS, "reset")
    assert "`bash`" in told
    assert "`read`" in told
    assert gates.anomalies.alarms == ()


@frozen
class Given:
    """An answer of the user."""

    told: str
    widens: bool
    project: str = "/work"


class Answers(PermissionGate):
    """A permission gate with two answers, of which one may hold everywhere."""

    def __init__(self) -> None:
        self.given: list[Any] = [Given("always allow ls", widens=True), Given("always allow that", widens=False)]
        self.done = list[object]()
        self.writes = True

    def answers(self) -> Any:
        return tuple(self.given)

    async def revoke(self, grant: Any) -> bool:
        self.done.append(("revoke", grant.told))
        return self.writes

    async def widen(self, grant: Any) -> bool:
        self.done.append(("widen", grant.told))
        return True


async def test_answers_are_listed_revoked_and_widened_by_their_numbers(configured: Configured):
    nothing = "You have not answered “always” to anything in this project."
    assert await say(configured(gates=lambda: Gates(()))[0], CommandName.PERMISSIONS) == nothing
    gate = Answers()
    desk, *_ = configured(gates=lambda: Gates((gate,)))
    listed = await say(desk, CommandName.PERMISSIONS)
    assert listed.startswith("Your answers:\n\n1. always allow ls\n2. always allow that\n\n`/permissions revoke N`")
    wrong = ("revoke", "revoke 0", "revoke 3", "revoke x", "revoke 1 2", "everywhere", "everywhere 3", "drop 1")
    for text in (*wrong, f"revoke {'1' * 5000}"):
        told = await say(desk, CommandName.PERMISSIONS, text)
        assert told.startswith("Usage: `/permissions`"), text
        assert told.endswith("with N from 1 to 2"), text
    assert gate.done == []
    assert await say(desk, CommandName.PERMISSIONS, "revoke 2") == "Revoked: always allow that"
    gate.writes = False
    assert await say(desk, CommandName.PERMISSIONS, "revoke 1") == "Revoked until the agent ends: always allow ls"
    assert await say(desk, CommandName.PERMISSIONS, "everywhere 1") == "Changed: always allow ls"
    told = await say(desk, CommandName.PERMISSIONS, "everywhere 2")
    assert told.startswith("This cannot hold everywhere: always allow that.")
    assert gate.done == [("revoke", "always allow that"), ("revoke", "always allow ls"), ("widen", "always allow ls")]
    gate.given = []
    assert await say(desk, CommandName.PERMISSIONS, "revoke 1") == nothing


# ---------------------------------------------------------------------------- undo, compact, others


async def test_changes_are_taken_back_and_brought_back_and_the_model_hears_of_it(configured: Configured):
    asked = list[object]()

    async def restore(number: int | None, *, redo: bool) -> str:
        asked.append((number, redo))
        return "2 files"

    desk, *_ = configured(restore=restore)
    history = conversing(desk)
    assert await say(desk, CommandName.UNDO) == "2 files"
    assert await say(desk, CommandName.REDO, "7") == "2 files"
    assert asked == [(None, False), (7, True)]
    assert "".join(texts(history)) == (
        "I took back changes that you made to files. 2 filesI brought back changes that you made to files. 2 files"
    )
    assert await say(desk, CommandName.UNDO, "x") == "Usage: `/undo` or `/undo TURN`, the turn's number"
    assert await say(desk, CommandName.REDO, "1" * 300) == "Usage: `/redo` or `/redo TURN`, the turn's number"
    assert len(asked) == 2


async def test_a_summary_is_made_with_its_focus_and_the_window_is_told_anew(configured: Configured):
    asked = list[object]()

    class Compactor:
        async def compact(self, why: Compaction, focus: str) -> str:
            asked.append((why, focus))
            return "summed up"

    desk, fixed, events, _ = configured()
    conversing(desk, compactor=Compactor())
    assert await say(desk, CommandName.COMPACT, "the tests") == "summed up"
    assert asked == [(Compaction.MANUAL, "the tests")]
    assert events == [UsageChanged(0, 1000)]
    desk._conversation.agent = SimpleNamespace(provider=SimpleNamespace(context_window=77))  # type: ignore[misc]
    await say(desk, CommandName.COMPACT)
    assert events[1:] == [UsageChanged(0, 77)]
    desk._conversation.agent = None  # type: ignore[misc]
    fixed.window = lambda: 0  # type: ignore[method-assign]
    await say(desk, CommandName.COMPACT)
    assert len(events) == 2


async def test_a_command_without_its_words_gets_the_usage_and_one_with_too_many_is_not_run(configured: Configured):
    desk, *_ = configured()
    assert await say(desk, CommandName.RUN) == "Usage: `/run COMMAND`"
    assert desk._toolset.calls == []  # type: ignore[attr-defined]
    told = await say(desk, CommandName.HELP, "me")
    assert told != await say(desk, CommandName.HELP)


async def test_the_editor_is_offered_what_is_available_and_what_the_user_brings(configured: Configured):
    desk, *_ = configured("[memory]\nenabled = false\n[scheduler]\nenabled = false\n")
    assert {each.name for each in desk.offered()} == {each.value for each in ALWAYS}
