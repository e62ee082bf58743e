"""The hooks of one session: their input, how they run, and the answers that they may give. See docs/hooks.md.

The model sees of a hook only the reason of a denial and a note after a call or at the session's start, both marked as a
hook's. A hook's commands are judged by the session's gates, run in its sandbox with the variables of its commands, and
recorded in the audit. They do not trigger hooks, because they do not go through the session's tools.
"""

import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from uuid import uuid4

import anyio

from acp_agent.core.backends import CommandOutcome, CommandRequest, Terminal
from acp_agent.core.data import frozen
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Backends, Invocation, ToolContext, never_run
from acp_agent.core.secrets import Redact
from acp_agent.core.types import (
    Allow,
    ApprovedBy,
    Ask,
    CallOrigin,
    CommandSubject,
    Deny,
    Json,
    JsonObject,
    McpSubject,
    ToolCall,
    ToolResult,
    Verdict,
)
from acp_agent.core.untrusted import json_value
from acp_agent.execution.audit import Auditor
from acp_agent.extend.hooks import THEIR_TOOLS, Hook, HookEvent, HookLibrary
from acp_agent.gates.gate import CallFacts, Gates
from acp_agent.session.verdicts import judged
from acp_agent.text import abbreviated, defanged, fenced, visible
from acp_agent.tools.bash import Bash
from acp_agent.workspace.roots import is_below

_HELD = frozenset(("blocklist", "policy", "sandbox", "verifiers", "permission"))
"""The gates whose refusals apply to the commands of hooks, as to commands that the user types."""
_SESSION = frozenset(("mode", "selection", "autonomy"))
"""The gates that limit what the session may do at all. They do not apply to hooks before a call: such a hook may deny
the call, so a stricter mode must not switch it off.
"""
_DEBOUNCE = 0.5  # seconds without a change before hooks are told of changes
_LAST = 1.5  # seconds for the hooks of a session's end
_BLOCKS = 2  # the exit code that denies
_REASON, _NOTE, _VARIABLE = 1000, 4000, 4096  # characters
_OUTPUT = 64 * 1024  # bytes of a call's output that a hook is given
_ANSWER = 1024 * 1024  # bytes that a hook may print
_MOST_BEGUN = 1000  # the most calls whose start time is remembered
_CANCELLED = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, "[cancelled] the hook did not end"))


@frozen
class HookDependencies:
    """The dependencies of a session's hooks.

    terminal    runs commands on this machine, in the session's sandbox
    gates       returns the gates in force
    backends    returns the backends, for tools of MCP servers
    understand  returns a call of an MCP server's tool, None for another tool. Raises ToolError
    auditor     None if calls are not recorded
    clean       removes secrets and invisible characters from a text
    mode        returns the mode of the session
    agent       returns the name of the agent to which the session was handed; empty for its own
    """

    session_id: str
    cwd: str
    terminal: Terminal
    gates: Callable[[], Gates]
    backends: Callable[[], Awaitable[Backends]]
    understand: Callable[[ToolCall], Awaitable[Invocation | None]]
    auditor: Auditor | None
    clean: Redact
    warn: Callable[[str], None]
    background: Callable[[Callable[[], Awaitable[None]]], object]
    mode: Callable[[], str]
    agent: Callable[[], str]


@frozen
class HookAnswer:
    """The answer of a hook.

    decision   "deny", "ask", or empty
    reason     why, in the hook's words
    note       a text for the model
    """

    decision: str = ""
    reason: str = ""
    note: str = ""


class SessionHooks:
    """The hooks of one session. It implements `ToolHooks` for calls, and has methods for the other events."""

    def __init__(self, library: HookLibrary, needs: HookDependencies) -> None:
        self._library = library
        self._needs = needs
        self._bash = Bash().spec()
        self._begun = dict[str, float]()  # the start time of each call, by its id
        self._changed = dict[str, None]()
        self._due = 0.0
        self._waiting = self._started = False
        self._notes = list[str]()
        self._noted = anyio.Event()  # set when the hooks of the session's start have run

    # ------------------------------------------------------------------------------------------ calls

    async def before(self, facts: CallFacts) -> Verdict:
        """Run the hooks before a call. Return the first denial, else an Ask if a hook wants one, else Allow."""
        if len(self._begun) >= _MOST_BEGUN:  # `after` does not see a call that was cancelled
            del self._begun[next(iter(self._begun))]
        self._begun[facts.call.id] = monotonic()
        wish: Ask | None = None
        for hook in self._about(HookEvent.PRE_TOOL_USE, facts):
            answer = await self._run(hook, self._of_call(hook, facts))
            told = f"a hook of the user ({hook.file}) "
            if answer.decision == "deny":
                return Deny(f"{told}denies this call: {self._line(answer.reason)}", rule=hook.command or hook.mcp)
            if answer.decision == "ask":
                wish = Ask(f"{told}asks: {self._line(answer.reason)}", firm=True)
        return wish or Allow()

    async def after(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Run the hooks after a call, or after its refusal. Return the result, to which hooks may only add notes."""
        begun = self._begun.pop(facts.call.id, None)
        if result.ruling is not None and result.ruling.gate:
            self._tell_refusal(self._about(HookEvent.PERMISSION_DENIED, facts), facts, result)
            return result
        self._note_changes(facts, result)
        took = "" if begun is None else str(round((monotonic() - begun) * 1000))
        notes = list[str]()
        for hook in self._about(HookEvent.POST_TOOL_USE, facts):
            response: JsonObject = {"output": result.text[:_OUTPUT], "success": result.failure is None}
            given = self._of_call(hook, facts, tool_response=response)
            answer = await self._run(hook, given, {"ACP_AGENT_TOOL_DURATION_MS": took})
            notes += self._note_of(hook, answer.note or answer.reason)
        return replace(result, text="\n\n".join((result.text, *notes)), display=result.shown) if notes else result

    def _note_of(self, hook: Hook, note: str) -> Sequence[str]:
        """Return a note for the model in a fence; empty if there is no note."""
        text = defanged(self._needs.clean(note.strip()))[:_NOTE]
        return (fenced("hook-note", text, f' from="{visible(hook.file)}"'),) if text else ()

    def _about(self, event: HookEvent, facts: CallFacts) -> Sequence[Hook]:
        maker = facts.call.agent
        hooks = self._library.of(event, (self._needs.agent() if maker is None else maker.name).lower())
        return [hook for hook in hooks if hook.is_about(*_names(facts))] if hooks else ()

    def _tell_refusal(self, hooks: Sequence[Hook], facts: CallFacts, result: ToolResult) -> None:
        """Run the hooks of a refusal in the background."""
        reason = result.failure.message if result.failure else ""
        variables = {"ACP_AGENT_DENIED_TOOL": facts.call.name, "ACP_AGENT_DENY_REASON": reason}
        self._later([(hook, self._of_call(hook, facts, reason=reason), variables) for hook in hooks])

    def _of_call(self, hook: Hook, facts: CallFacts, **more: Json) -> JsonObject:
        arguments = dict(facts.call.arguments or {})
        if hook.claude and isinstance(path := arguments.get("path"), str):
            arguments["file_path"] = os.path.join(self._needs.cwd, path)
        name = _their_name(facts) if hook.claude else facts.call.name
        call: JsonObject = {"tool_name": name, "tool_input": arguments, "tool_use_id": facts.call.id}
        return {**self._given(hook.event), **call, **more}

    def _given(self, event: HookEvent) -> JsonObject:
        needs = self._needs
        return {
            "session_id": needs.session_id,
            "transcript_path": "",
            "cwd": needs.cwd,
            "permission_mode": needs.mode(),
            "hook_event_name": event.claude_name,
        }

    # ------------------------------------------------------------------------------ besides the calls

    def began(self, source: str, take_moved_from: Callable[[], str]) -> None:
        """Run the hooks of the session's start, at its first prompt, and those of a move if it has moved."""
        if self._started:
            return
        self._started = True
        moved_from = take_moved_from()
        self._needs.background(partial(self._tell_start, source))
        if moved_from:
            folders = {"ACP_AGENT_OLD_CWD": moved_from, "ACP_AGENT_NEW_CWD": self._needs.cwd}
            paths: JsonObject = {"old_cwd": moved_from, "new_cwd": self._needs.cwd}
            moving = self._library.of(HookEvent.CWD_CHANGED)
            self._later([(hook, {**self._given(hook.event), **paths}, folders) for hook in moving])

    async def _tell_start(self, source: str) -> None:
        try:
            for hook in self._library.of(HookEvent.SESSION_START):
                answer = await self._run(hook, {**self._given(hook.event), "source": source})
                self._notes += self._note_of(hook, answer.note)
        finally:
            self._noted.set()

    async def notes(self) -> str:
        """Wait for the hooks of the session's start. Return their notes at the first call, then nothing."""
        if self._started:
            await self._noted.wait()
        notes, self._notes = self._notes, []
        return "\n\n".join(notes)

    async def turn_ended(self, reason: str) -> None:
        """Run the hooks of a turn's end."""
        for hook in self._library.of(HookEvent.TURN_COMPLETE):
            given: JsonObject = {**self._given(hook.event), "stop_hook_active": False, "stop_reason": reason}
            await self._run(hook, given, {"ACP_AGENT_TURN_STOP_REASON": reason})

    async def ended(self) -> None:
        """Run the hooks of the session's end, for at most 1.5 s."""
        with anyio.move_on_after(_LAST):
            for hook in self._library.of(HookEvent.SESSION_END):
                await self._run(hook, {**self._given(hook.event), "reason": "other"})

    def _note_changes(self, facts: CallFacts, result: ToolResult) -> None:
        """Note the files that a call changed. Hooks run when no other change follows within half a second."""
        if facts.only_reads or not self._library.of(HookEvent.FILE_CHANGED):
            return
        named = [os.path.join(self._needs.cwd, each.path) for each in facts.paths if each.access.changes]
        if result.failure is not None and not facts.commands:
            return
        self._changed |= dict.fromkeys([*named, *(each.path for each in result.locations)])
        self._due = anyio.current_time() + _DEBOUNCE
        if self._changed and not self._waiting:
            self._waiting = True
            self._needs.background(self._tell_changes)

    async def _tell_changes(self) -> None:
        while self._due > anyio.current_time():  # noqa: ASYNC110 - another change moves the deadline
            await anyio.sleep_until(self._due)
        self._waiting = False
        paths, self._changed = [*self._changed], {}
        cwd = self._needs.cwd
        for hook in self._library.of(HookEvent.FILE_CHANGED):
            below = (path for path in paths if is_below(path, cwd))
            about = [each for each in below if hook.glob is None or hook.glob.matches(each[len(cwd) :].lstrip("/"))]
            if about:
                given: JsonObject = {**self._given(hook.event), "file_path": about[0], "file_paths": [*about]}
                await self._run(hook, given, {"ACP_AGENT_CHANGED_PATH": "\n".join(about)})

    # ---------------------------------------------------------------------------------------- running

    def _later(self, runs: Sequence[tuple[Hook, JsonObject, Mapping[str, str]]]) -> None:
        async def run() -> None:
            for hook, given, variables in runs:
                await self._run(hook, given, variables)

        if runs:
            self._needs.background(run)

    async def _run(self, hook: Hook, given: JsonObject, variables: Mapping[str, str] | None = None) -> HookAnswer:
        """Run one hook and return its answer. A failure is reported to the user and does not deny the call."""
        call = ToolCall(str(uuid4()), "hook", {"event": str(hook.event), "command": hook.command or hook.mcp})
        begun, facts, result = monotonic(), self._facts(hook, call), _CANCELLED
        try:
            with anyio.fail_after(hook.timeout):
                if hook.mcp:
                    result, answer = await self._call(hook)
                else:
                    result, answer = await self._command(hook, facts, _input(given), variables or {})
        except (ToolError, Refused, BackendUnavailable, TimeoutError) as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            result, answer = ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, why)), HookAnswer()
        finally:
            if self._needs.auditor is not None:
                self._needs.auditor.record(call, result, monotonic() - begun, facts)
        if result.failure is not None and not answer.decision:
            why = self._line(result.failure.message)
            self._needs.warn(f"hook {visible(hook.command or hook.mcp)} ({hook.file}, {hook.event}): {why}")
        return answer

    def _facts(self, hook: Hook, call: ToolCall) -> CallFacts:
        subjects = (CommandSubject(hook.command),) if hook.command else ()
        return self._needs.gates().facts(Invocation(call, self._bash, hook.command, never_run, subjects))

    async def _command(
        self, hook: Hook, facts: CallFacts, given: bytes, variables: Mapping[str, str]
    ) -> tuple[ToolResult, HookAnswer]:
        gates = self._needs.gates().in_order
        if not gates:
            raise Refused("nothing runs in this session")
        held = _HELD if hook.event is HookEvent.PRE_TOOL_USE else _HELD | _SESSION
        # By approving the file the user has approved its commands, so they count as typed by the user.
        typed = self._facts(hook, replace(facts.call, origin=CallOrigin.USER))
        for gate in gates:
            if gate.name in held and isinstance(verdict := gate.judge(typed), Deny):
                return gate.refusal(verdict), HookAnswer()
        text = "\n".join((*_exports({**variables, **self._folders()}), hook.command))
        request = CommandRequest(text, self._needs.cwd, hook.timeout, _ANSWER, stream_limit=_ANSWER, stdin=given)
        command = await self._needs.terminal.start(request)
        try:
            outcome = await command.wait(_unheard)
        finally:
            await command.release()
        envelope: JsonObject = {"exit_code": outcome.exit_code, "signal": outcome.signal}
        ran = ToolResult(outcome.output, envelope=envelope, place="local").ruled(ApprovedBy.AUTO)
        answer = _answer(outcome)
        if (why := _failure(outcome)) and not answer.decision:
            ran = replace(ran, failure=ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, why))
        return ran, answer

    def _folders(self) -> Mapping[str, str]:
        return {"ACP_AGENT_PROJECT_DIR": self._needs.cwd, "CLAUDE_PROJECT_DIR": self._needs.cwd}

    async def _call(self, hook: Hook) -> tuple[ToolResult, HookAnswer]:
        """Call an MCP server's tool, if the gates allow it without a question. Return the result and its answer."""
        invocation = await self._needs.understand(ToolCall(str(uuid4()), hook.mcp, dict(hook.arguments)))
        if invocation is None:
            raise Refused(f"there is no tool {hook.mcp}")
        gates = self._needs.gates()
        found = judged(gates.facts(invocation), gates.in_order)
        if found.word != "allow":
            raise Refused(f"the session does not allow {hook.mcp} without a question")
        backends = await self._needs.backends()
        given_back = list[Callable[[], Awaitable[None]]]()
        context = ToolContext(invocation.call.id, self._needs.cwd, (), backends, _unheard, given_back.append)
        try:
            result = await invocation.run(context)
        finally:
            for give_back in given_back:
                await give_back()
        return result, answer_in(result.text)

    def _line(self, text: str) -> str:
        return abbreviated(" ".join(defanged(self._needs.clean(text)).split()), _REASON) or "no reason is given"


async def _unheard(_: object) -> None:
    """Ignore the progress of a hook, which has no card."""


def _input(given: JsonObject) -> bytes:
    return json.dumps(given, ensure_ascii=False).encode("utf-8", "replace")


def _names(facts: CallFacts) -> Iterator[str]:
    """Yield the names by which a matcher may name a call. A custom tool's call is also one of the tool that runs it."""
    yield from dict.fromkeys((facts.call.name, facts.spec.name, _their_name(facts)))


def _their_name(facts: CallFacts) -> str:
    served = next((each for each in facts.subjects if isinstance(each, McpSubject)), None)
    if served is not None:
        return f"mcp__{served.server}__{served.tool}"
    return THEIR_TOOLS.get(facts.spec.name, facts.spec.name)


def _exports(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield shell lines that set variables. Of a value that is too long only whole lines are kept, if it has several.

    A file name that is no UTF-8 keeps its bytes.
    """
    for name, value in variables.items():
        text = value.replace("\0", "")
        if len(text) > _VARIABLE:
            lines, _, last = text[:_VARIABLE].rpartition("\n")
            text = lines or last
        quoted = text.replace("'", "'\"'\"'")
        yield f"export {name}='{_BYTES.sub(_escaped, quoted)}'"


_BYTES = re.compile("[\udc80-\udcff]+")
"""What Python has in place of bytes that are no UTF-8."""


def _escaped(found: re.Match[str]) -> str:
    """Return the bytes for a place within single quotes."""
    codes = "".join(rf"\x{ord(char) - 0xDC00:02x}" for char in found[0])
    return f"'$'{codes}''"


def _answer(outcome: CommandOutcome) -> HookAnswer:
    """Return the answer of a command: a denial for exit code 2, with stderr as the reason, else the JSON on stdout."""
    if outcome.exit_code == _BLOCKS:
        return HookAnswer("deny", outcome.stderr.strip())
    return answer_in(outcome.stdout) if outcome.exit_code == 0 else HookAnswer()


def _failure(outcome: CommandOutcome) -> str:
    """Return why a hook failed; empty if it did not."""
    if outcome.timed_out:
        return "no answer in time"
    if outcome.exit_code:
        return f"exit {outcome.exit_code}: {outcome.stderr.strip()}"
    return f"it printed more than {_ANSWER // 1024} KB" if outcome.truncated else ""


def answer_in(text: str) -> HookAnswer:
    """Return the answer in a text that is one JSON object. An "allow" in it changes nothing."""
    found: Json = None
    if text.lstrip().startswith("{"):
        with suppress(ValueError):
            found = json_value(text)
    if not isinstance(found, dict):
        return HookAnswer()
    specific = found.get("hookSpecificOutput")
    inside = specific if isinstance(specific, dict) else {}
    note = inside.get("additionalContext")
    word = inside.get("permissionDecision", found.get("decision"))
    if found.get("continue") is False:
        word = "deny"
    reasons = (inside.get("permissionDecisionReason"), found.get("reason"), found.get("stopReason"))
    reason = next((each for each in reasons if isinstance(each, str)), "")
    decision = {"block": "deny", "deny": "deny", "ask": "ask"}.get(word if isinstance(word, str) else "", "")
    return HookAnswer(decision, reason if decision else "", note if isinstance(note, str) else "")
