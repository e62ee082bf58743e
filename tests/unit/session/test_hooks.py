"""The hooks of a session: what they are given, what holds for their commands, and what becomes of their answers."""

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from acp_agent.core.backends import CommandOutcome, CommandRequest
from acp_agent.core.errors import BackendUnavailable, ToolErrorCategory, ToolFailure
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import (
    Access,
    Allow,
    ApprovedBy,
    Ask,
    CallOrigin,
    Deny,
    Json,
    JsonObject,
    Location,
    McpSubject,
    PathSubject,
    ToolCall,
    ToolResult,
    Verdict,
)
from acp_agent.extend.hooks import Hook, HookEvent
from acp_agent.gates.gate import CallFacts, Gate, Gates
from acp_agent.regex import LinearRegex
from acp_agent.session.toolset.hooks import HookDependencies, SessionHooks
from acp_agent.workspace.glob import FileGlob
from tests.fakes.fake_terminal import FakeCommand, Script
from tests.fakes.passing_time import all_tasks_blocked
from tests.unit.gates.chain import call, command

pytestmark = pytest.mark.anyio
OK = Script()


class Terminal:
    """Plays the script of the last line of a command: those before set variables."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = scripts
        self.started: list[FakeCommand] = []

    async def start(self, request: CommandRequest) -> FakeCommand:
        script = self.scripts.get(request.command.splitlines()[-1], OK)
        if script.refuses is not None:
            raise script.refuses
        self.started.append(FakeCommand(request, script))
        return self.started[-1]

    @property
    def ran(self) -> list[str]:
        return [each.request.command.splitlines()[-1] for each in self.started]

    def given(self, number: int = -1) -> dict[str, Any]:
        return json.loads(self.started[number].request.stdin or b"")

    def variables(self, number: int = -1) -> list[str]:
        return self.started[number].request.command.splitlines()[:-1]


class Library:
    """Hooks, of which those of `scout` count only for the agent of that name."""

    def __init__(self, *hooks: Hook) -> None:
        self.hooks = hooks

    def of(self, event: HookEvent, agent: str = "") -> Sequence[Hook]:
        return [each for each in self.hooks if each.event is event and each.file in ("hooks.toml", agent)]


class Auditor:
    """Notes what is recorded."""

    def __init__(self) -> None:
        self.records: list[tuple[ToolCall, ToolResult]] = []
        self.facts: list[CallFacts] = []

    def record(self, call: ToolCall, result: ToolResult, seconds: float, facts: CallFacts) -> None:
        assert seconds >= 0
        self.records.append((call, result))
        self.facts.append(facts)


class Fixed(Gate):
    """A gate that says one thing to all calls and notes who makes them."""

    def __init__(self, name: str, verdict: Verdict) -> None:
        self.name = name
        self.verdict = verdict
        self.origins: list[CallOrigin] = []

    def judge(self, facts: CallFacts) -> Verdict:
        self.origins.append(facts.call.origin)
        return self.verdict


class Session:
    """The hooks of a session, and what they did."""

    def __init__(self, *hooks: Hook, scripts: Mapping[str, Script] | None = None, gates: Sequence[Gate] = ()) -> None:
        self.terminal: Any = Terminal(scripts or {})
        self.auditor: Any = Auditor()
        self.warned: list[str] = []
        self.later: list[Callable[[], Awaitable[None]]] = []
        self.agent = ""
        self.invocation: Any = None
        self.backends: Any = object()
        library: Any = Library(*hooks)
        self.needs = HookDependencies(
            "s1",
            "/project",
            self.terminal,
            lambda: Gates(tuple(gates or (Fixed("blocklist", Allow()),))),
            self._backends,
            self._understand,
            self.auditor,
            lambda text: text.replace("hunter2", "[REDACTED]"),
            self.warned.append,
            self.later.append,
            lambda: "suggest",
            lambda: self.agent,
        )
        self.hooks = SessionHooks(library, self.needs)

    async def _backends(self) -> Any:
        return self.backends

    async def _understand(self, call: ToolCall) -> Any:
        return self.invocation and replace(self.invocation, call=call)

    async def background(self) -> None:
        """Run what was put off."""
        later, self.later[:] = [*self.later], []
        for each in later:
            await each()


def hook(event: HookEvent, line: str = "check", **more: Any) -> Hook:
    return Hook(event, more.pop("file", "hooks.toml"), line, **more)


def facts_of(invocation: Any) -> CallFacts:
    return Gates(()).facts(invocation)


def says(**answer: Json) -> Script:
    return Script(stdout=json.dumps(answer))


BEFORE, AFTER, DENIED = HookEvent.PRE_TOOL_USE, HookEvent.POST_TOOL_USE, HookEvent.PERMISSION_DENIED


# ------------------------------------------------------------------------------------ before a call


async def test_a_hook_is_given_the_call_and_the_folder():
    session = Session(hook(BEFORE, timeout=7))
    assert await session.hooks.before(facts_of(command("ls"))) == Allow()
    request = session.terminal.started[0].request
    assert (request.cwd, request.timeout) == ("/project", 7)
    assert session.terminal.given() == {
        "session_id": "s1",
        "transcript_path": "",
        "cwd": "/project",
        "permission_mode": "suggest",
        "hook_event_name": "PreToolUse",
        "tool_name": "bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": "call-1",
    }
    assert session.terminal.variables() == [
        "export ACP_AGENT_PROJECT_DIR='/project'",
        "export CLAUDE_PROJECT_DIR='/project'",
    ]
    assert session.terminal.started[0].releases == 1
    ((made, result),) = session.auditor.records
    assert (made.name, made.arguments) == ("hook", {"event": "pre_tool_use", "command": "check"})
    assert result.envelope == {"exit_code": 0, "signal": None}
    assert (result.place, result.failure) == ("local", None)
    assert result.ruling is not None
    assert result.ruling.approved_by is ApprovedBy.AUTO
    assert session.warned == []


async def test_a_hook_in_the_form_of_claude_code_is_given_its_names_and_a_whole_path():
    session = Session(hook(BEFORE, claude=True), hook(BEFORE))
    facts = facts_of(call("write", PathSubject("a.py", Access.WRITE), arguments={"path": "a.py"}))
    await session.hooks.before(facts)
    theirs, ours = session.terminal.given(0), session.terminal.given(1)
    assert theirs["tool_name"] == "Write"
    assert theirs["tool_input"] == {"path": "a.py", "file_path": "/project/a.py"}
    assert (ours["tool_name"], ours["tool_input"]) == ("write", {"path": "a.py"})
    await session.hooks.before(facts_of(call("mcp_x_y", McpSubject("x", "y"), arguments={"path": 5})))
    assert session.terminal.given(2)["tool_name"] == "mcp__x__y"
    assert session.terminal.given(2)["tool_input"] == {"path": 5}


async def test_the_first_denial_ends_a_call_and_a_question_waits_for_the_others():
    asks, denies = says(decision="ask", reason="sure?"), Script(stderr="no hunter2\n", exit_code=2)
    session = Session(hook(BEFORE, "a"), hook(BEFORE, "d"), hook(BEFORE, "x"), scripts={"a": asks, "d": denies})
    verdict = await session.hooks.before(facts_of(command("ls")))
    assert verdict == Deny("a hook of the user (hooks.toml) denies this call: no [REDACTED]", rule="d")
    assert session.terminal.ran == ["a", "d"]
    session = Session(hook(BEFORE, "a"), hook(BEFORE, "x"), scripts={"a": asks})
    verdict = await session.hooks.before(facts_of(command("ls")))
    assert verdict == Ask("a hook of the user (hooks.toml) asks: sure?", firm=True)
    assert session.terminal.ran == ["a", "x"]


async def test_a_reason_is_one_line_and_not_longer_than_a_thousand_characters():
    for said, told in (("", "no reason is given"), ("a\nb", "a b"), ("x" * 1000, "x" * 1000)):
        session = Session(hook(BEFORE), scripts={"check": Script(stderr=said, exit_code=2)})
        verdict = await session.hooks.before(facts_of(command("ls")))
        assert isinstance(verdict, Deny)
        assert verdict.reason.endswith(f"denies this call: {told}")
    session = Session(hook(BEFORE), scripts={"check": Script(stderr="x" * 1001, exit_code=2)})
    verdict = await session.hooks.before(facts_of(command("ls")))
    assert isinstance(verdict, Deny)
    assert verdict.reason.endswith(f" {'x' * 1000}…")


async def test_a_matcher_and_an_agent_choose_the_calls():
    session = Session(
        hook(BEFORE, "shell", matcher=LinearRegex("Bash|mcp__x__y")), hook(BEFORE, "scouts", file="scout")
    )
    await session.hooks.before(facts_of(call("read")))
    assert session.terminal.ran == []
    await session.hooks.before(facts_of(command("ls")))
    await session.hooks.before(facts_of(call("mcp_x_y", McpSubject("x", "y"))))
    assert session.terminal.ran == ["shell", "shell"]
    session.agent = "Scout"
    await session.hooks.before(facts_of(call("read")))
    assert session.terminal.ran[2:] == ["scouts"]


async def test_a_hook_that_fails_is_told_and_denies_nothing():
    for script, why in (
        (Script(exit_code=1, stderr="no python\n"), "exit 1: no python"),
        (Script(exit_code=3, stdout='{"decision": "deny"}'), "exit 3: "),
        (Script(timed_out=True), "no answer in time"),
        (Script(stdout='{"reason": "long', truncated=True), "it printed more than 1024 KB"),
        (Script(refuses=BackendUnavailable("no shell", "none is left")), "no shell: none is left"),
        (Script(breaks=BackendUnavailable("the editor", "it is gone")), "the editor: it is gone"),
    ):
        session = Session(hook(BEFORE), scripts={"check": script})
        assert await session.hooks.before(facts_of(command("ls"))) == Allow()
        assert [each.strip() for each in session.warned] == [f"hook check (hooks.toml, pre_tool_use): {why}".strip()], (
            why
        )
        ((_, result),) = session.auditor.records
        assert result.failure is not None
        assert result.failure.message == why
        assert all(each.releases == 1 for each in session.terminal.started)


async def test_a_hook_that_is_cancelled_is_on_record_and_without_an_audit_nothing_is():
    session = Session(hook(BEFORE), scripts={"check": Script(hangs=True)})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.hooks.before, facts_of(command("ls")))
        await all_tasks_blocked()
        tasks.cancel_scope.cancel()
    ((_, result),) = session.auditor.records
    assert result.text.startswith("[cancelled]") or "the hook did not end" in result.text
    assert session.terminal.started[0].releases == 1
    session = Session(hook(BEFORE))
    unrecorded: Any = SessionHooks(session.hooks._library, replace(session.needs, auditor=None))
    assert await unrecorded.before(facts_of(command("ls"))) == Allow()


async def test_what_the_user_may_not_type_a_hook_may_not_run():
    for name, holds_before, holds_after in (
        ("blocklist", True, True),
        ("policy", True, True),
        ("sandbox", True, True),
        ("verifiers", True, True),
        ("permission", True, True),
        ("mode", False, True),
        ("selection", False, True),
        ("autonomy", False, True),
        ("quota", False, False),
    ):
        for event, holds in ((BEFORE, holds_before), (AFTER, holds_after)):
            gate = Fixed(name, Deny("not here"))
            session = Session(hook(event), gates=[Fixed("blocklist", Ask("?")), gate])
            if event is BEFORE:
                await session.hooks.before(facts_of(command("ls")))
            else:
                await session.hooks.after(facts_of(command("ls")), ToolResult("out"))
            assert (session.terminal.ran == []) is holds, (name, event)
            assert (["not here" in each for each in session.warned] == [True]) is holds, (name, event)
            assert set(gate.origins) <= {CallOrigin.USER}
    session = Session(hook(BEFORE))
    nothing: Any = SessionHooks(session.hooks._library, replace(session.needs, gates=lambda: Gates(())))
    await nothing.before(facts_of(command("ls")))
    assert session.warned == ["hook check (hooks.toml, pre_tool_use): nothing runs in this session"]


# ------------------------------------------------------------------------------------- after a call


async def test_a_hook_after_a_call_sees_its_output_and_adds_a_fenced_note():
    noting = says(hookSpecificOutput={"additionalContext": "a note hunter2 "})
    blocking = says(decision="block", reason="the tests fail")
    session = Session(
        hook(AFTER, "n"), hook(AFTER, "b"), hook(AFTER, "x"), hook(DENIED), scripts={"n": noting, "b": blocking}
    )
    facts = facts_of(command("ls"))
    await session.hooks.before(facts)
    result = await session.hooks.after(facts, ToolResult("out", display="shown"))
    given = session.terminal.given(0)
    assert given["hook_event_name"] == "PostToolUse"
    assert given["tool_response"] == {"output": "out", "success": True}
    assert session.terminal.variables(0)[0].startswith("export ACP_AGENT_TOOL_DURATION_MS='")
    assert session.terminal.variables(0)[0] != "export ACP_AGENT_TOOL_DURATION_MS=''"
    first, second = result.text.removeprefix("out\n\n").split("\n\n")
    assert first.startswith("<hook-note ")
    assert 'from="hooks.toml"' in first
    assert "\na note [REDACTED]\n" in first
    assert "\nthe tests fail\n" in second
    assert result.display == "shown"
    failed = ToolResult.failed(ToolFailure(ToolErrorCategory.TIMEOUT, "late"))
    session = Session(hook(AFTER))
    assert await session.hooks.after(facts, failed) == failed
    assert session.terminal.given()["tool_response"]["success"] is False
    assert session.terminal.variables()[0] == "export ACP_AGENT_TOOL_DURATION_MS=''"


async def test_a_refusal_is_told_in_the_background_to_the_hooks_about_it():
    session = Session(hook(AFTER, "after"), hook(DENIED, "denied"))
    refused = ToolResult.failed(ToolFailure(ToolErrorCategory.POLICY_BLOCKED, "it's not allowed"))
    refused = refused.ruled(ApprovedBy.AUTO)
    assert refused.ruling is not None
    refused = replace(refused, ruling=replace(refused.ruling, gate="policy"))
    assert await session.hooks.after(facts_of(command("ls")), refused) == refused
    assert session.terminal.ran == []
    await session.background()
    assert session.terminal.ran == ["denied"]
    assert session.terminal.given()["reason"] == "it's not allowed"
    assert session.terminal.variables()[:2] == [
        "export ACP_AGENT_DENIED_TOOL='bash'",
        """export ACP_AGENT_DENY_REASON='it'"'"'s not allowed'""",
    ]
    session = Session(hook(AFTER, "after"))
    await session.hooks.after(facts_of(command("ls")), refused)
    assert session.later == []


# ------------------------------------------------------------------------------ besides the calls


def nowhere() -> str:
    return ""


async def test_the_start_is_told_once_with_its_notes_and_a_move_too():
    note = says(hookSpecificOutput={"additionalContext": "welcome"})
    start, moved = HookEvent.SESSION_START, HookEvent.CWD_CHANGED
    session = Session(hook(start, "a"), hook(start, "b"), hook(moved, "m"), scripts={"a": note, "b": note})
    assert await session.hooks.notes() == ""
    session.hooks.began("resume", lambda: "/before")
    session.hooks.began("resume", lambda: "/before")
    assert len(session.later) == 2
    async with anyio.create_task_group() as tasks:
        told = list[str]()

        async def wait() -> None:
            told.append(await session.hooks.notes())

        tasks.start_soon(wait)
        await all_tasks_blocked()
        assert told == []
        await session.background()
    assert session.terminal.ran == ["a", "b", "m"]
    assert session.terminal.given(0)["source"] == "resume"
    assert session.terminal.given(2) | {"old_cwd": "/before", "new_cwd": "/project"} == session.terminal.given(2)
    assert session.terminal.variables(2)[:2] == [
        "export ACP_AGENT_OLD_CWD='/before'",
        "export ACP_AGENT_NEW_CWD='/project'",
    ]
    assert told[0].count("welcome") == 2
    assert await session.hooks.notes() == ""
    session = Session(hook(start, "a"), hook(moved, "m"))
    session.hooks.began("startup", nowhere)
    await session.background()
    assert session.terminal.ran == ["a"]


async def test_the_ends_of_turns_and_of_the_session_are_told():
    session = Session(hook(HookEvent.TURN_COMPLETE, "turn"), hook(HookEvent.SESSION_END, "end"))
    await session.hooks.turn_ended("end_turn")
    assert session.terminal.ran == ["turn"]
    assert session.terminal.given()["hook_event_name"] == "Stop"
    assert session.terminal.given()["stop_reason"] == "end_turn"
    assert session.terminal.given()["stop_hook_active"] is False
    assert session.terminal.variables()[0] == "export ACP_AGENT_TURN_STOP_REASON='end_turn'"
    await session.hooks.ended()
    assert session.terminal.ran == ["turn", "end"]
    assert session.terminal.given()["reason"] == "other"


async def test_hooks_of_a_session_that_ends_have_little_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.session.toolset.hooks._LAST", 0)
    session = Session(hook(HookEvent.SESSION_END), scripts={"check": Script(hangs=True)})
    with anyio.fail_after(10):
        await session.hooks.ended()


async def test_changed_files_are_told_together_to_the_hooks_about_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.session.toolset.hooks._DEBOUNCE", 0.001)
    changed = HookEvent.FILE_CHANGED
    session = Session(
        hook(changed, "all"), hook(changed, "python", glob=FileGlob("*.py")), hook(changed, "c", glob=FileGlob("*.c"))
    )

    async def change(invocation: Any, result: ToolResult) -> None:
        await session.hooks.after(facts_of(invocation), result)

    failed = ToolResult.failed(ToolFailure(ToolErrorCategory.TIMEOUT, "late"))
    write = call("write", PathSubject("a.py", Access.WRITE), PathSubject("seen", Access.READ))
    await change(write, failed)
    await change(call("read", PathSubject("a.py", Access.READ)), ToolResult("out"))
    await change(command("ls"), ToolResult("out", locations=(Location("/project/x"),)))
    assert session.later == []
    await change(write, ToolResult("out"))
    await change(command("make"), replace(failed, locations=(Location("/project/d/b.py"), Location("/elsewhere/x.py"))))
    await change(call("write", PathSubject("/project/notes", Access.WRITE)), ToolResult("out"))
    assert len(session.later) == 1
    await session.background()
    assert session.terminal.ran == ["all", "python"]
    assert session.terminal.given(0)["file_path"] == "/project/a.py"
    assert session.terminal.given(0)["file_paths"] == ["/project/a.py", "/project/d/b.py", "/project/notes"]
    assert session.terminal.given(1)["file_paths"] == ["/project/a.py", "/project/d/b.py"]
    await change(write, ToolResult("out"))
    await session.background()
    assert session.terminal.given()["file_paths"] == ["/project/a.py"]
    assert os.path.basename(session.terminal.variables()[0]) == "a.py'"
    without = Session(hook(AFTER))
    await without.hooks.after(facts_of(write), ToolResult("out"))
    assert without.later == []


async def test_a_hook_gets_whole_paths_only_and_those_that_are_no_utf_8_as_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.session.toolset.hooks._DEBOUNCE", 0.001)
    session = Session(hook(HookEvent.FILE_CHANGED, 'printf %s "$ACP_AGENT_CHANGED_PATH"'))
    names = ["it's \udcff\n\udc80é", *(f"{number:04}" for number in range(400))]
    changed = tuple(Location(f"/project/{name}") for name in names)
    await session.hooks.after(facts_of(command("make")), ToolResult("out", locations=changed))
    await session.background()
    text = session.terminal.started[-1].request.command.encode()
    told = (await anyio.run_process(["bash", "-c", text])).stdout
    paths = told.removeprefix(b"/project/it's \xff\n\x80\xc3\xa9\n").decode().split("\n")
    assert 200 < len(paths) < 400
    assert paths == [f"/project/{number:04}" for number in range(len(paths))]


# --------------------------------------------------------------------------------- tools of servers


async def test_a_servers_tool_is_called_if_the_session_allows_it_without_a_question():
    given_back = list[str]()

    async def give_back() -> None:
        given_back.append("lease")

    async def run(context: ToolContext) -> ToolResult:
        assert (context.cwd, context.backends) == ("/project", session.backends)
        context.defer(give_back)
        return ToolResult('{"decision": "deny", "reason": "the server says no"}')

    arguments: JsonObject = {"a": 1}
    for verdict, why in ((Allow(), ""), (Ask("?"), "without a question"), (Deny("no"), "without a question")):
        session = Session(hook(BEFORE, "", mcp="mcp_x_y", arguments=arguments), gates=[Fixed("mode", verdict)])
        session.invocation = replace(call("mcp_x_y", McpSubject("x", "y")), run=run)
        given_back.clear()
        answer = await session.hooks.before(facts_of(command("ls")))
        ((made, _),) = session.auditor.records
        assert made.arguments == {"event": "pre_tool_use", "command": "mcp_x_y"}
        assert session.auditor.facts[0].subjects == ()
        if why:
            assert answer == Allow()
            assert why in session.warned[0]
            assert given_back == []
        else:
            assert isinstance(answer, Deny)
            assert answer.reason.endswith("the server says no")
            assert answer.rule == "mcp_x_y"
            assert given_back == ["lease"]
    session = Session(hook(BEFORE, "", mcp="mcp_x_y"))
    assert await session.hooks.before(facts_of(command("ls"))) == Allow()
    assert "there is no tool mcp_x_y" in session.warned[0]


def test_an_outcome_without_an_exit_code_is_no_answer():
    from acp_agent.session.toolset.hooks import HookAnswer, _answer  # noqa: PLC0415 - only here

    outcome = CommandOutcome('{"decision": "deny"}', '{"decision": "deny"}', "", None, "SIGKILL", truncated=False)
    assert _answer(outcome) == HookAnswer()
