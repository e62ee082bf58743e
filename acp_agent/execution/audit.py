"""AuditExecutor: record every call before its result is shown."""

from collections.abc import Callable
from time import monotonic

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Invocation
from acp_agent.core.services import Egress
from acp_agent.core.types import (
    AgentSubject,
    CallOrigin,
    CommandSubject,
    McpSubject,
    PathSubject,
    Phase,
    Ruling,
    Subject,
    ToolCall,
    ToolResult,
    UrlSubject,
)
from acp_agent.execution.runner import ToolExecutor
from acp_agent.gates.gate import CallFacts
from acp_agent.store.audit import AuditLog
from acp_agent.store.audit_record import (
    Blocked,
    ClaimSource,
    EgressRecord,
    ExecutionEnv,
    Failed,
    Outcome,
    Redact,
    RolledBack,
    SandboxAround,
    Success,
    TimedOut,
    ToolRecord,
    recordable,
    redacted,
)

_NAME = 200  # characters of a tool's name, an id or a host
_SENTENCE = 1000  # characters of a reason, a rule, a path or a URL

_SOURCES = {
    "grep": ClaimSource.CODE_SEARCH,
    "diagnostics": ClaimSource.DIAGNOSTICS,
    "lsp_diagnostics": ClaimSource.DIAGNOSTICS,
    "lsp_workspace_symbol": ClaimSource.CODE_SEARCH,
    "lsp_definition": ClaimSource.CODE_SEARCH,
    "lsp_references": ClaimSource.CODE_SEARCH,
    "memory_save": ClaimSource.MEMORY,
    "memory_search": ClaimSource.MEMORY,
}
"""The source by tool, for tools whose subjects do not tell it."""

_SOURCES_OF_SUBJECTS: dict[type[Subject], ClaimSource] = {
    CommandSubject: ClaimSource.SHELL,
    UrlSubject: ClaimSource.WEB_SCRAPE,
    McpSubject: ClaimSource.MCP,
    AgentSubject: ClaimSource.AGENT,
    PathSubject: ClaimSource.FILE_SYSTEM,
}


@frozen
class Caller:
    """The session whose calls are recorded.

    session_id    the id of the ACP session
    cwd           its folder: absolute, links resolved
    trust         returns the present trust in a call
    sandbox       returns the name of the sandbox around commands; empty for none. The argument is True for commands in
                  the editor's terminal
    turn          returns what started the present turn; empty if the user did
    """

    session_id: str
    cwd: str
    trust: Callable[[Invocation], str]
    sandbox: Callable[[bool], str]
    turn: Callable[[], str] = str


class Auditor:
    """A writer of the records of one session to the audit. It does not raise if the file cannot be written.

    trust   returns the present trust in a call
    """

    def __init__(self, log: AuditLog, caller: Caller, redact: Redact) -> None:
        self.trust = caller.trust
        self._log = log
        self._caller = caller
        self._redact = redact

    def trouble(self) -> str:
        """Return why a call could not be recorded now, for the user; empty if it could."""
        why = self._log.trouble()
        return f"the audit file {self._log.path} cannot be written ({why})" if why else ""

    def record(
        self, call: ToolCall, result: ToolResult, seconds: float, facts: CallFacts | None = None, trust: str = ""
    ) -> None:
        """Record a call that has ended.

        facts   None for a call that could not be parsed
        trust   the trust in the call when it began
        """
        self._log.append(self._made(call, result, seconds, facts, trust))

    def _made(
        self, call: ToolCall, result: ToolResult, seconds: float, facts: CallFacts | None, trust: str
    ) -> ToolRecord:
        ruling, envelope, sent = result.ruling or Ruling(), result.envelope or {}, call.arguments
        code, signal, ran = envelope.get("exit_code"), envelope.get("signal"), "exit_code" in envelope
        outcome, subjects = self._outcome(result, ran=ran), facts.subjects if facts else ()
        place, sandbox = self._place(result, facts)
        opinion = facts.opinions[-1] if facts and facts.opinions else ""
        # The session, `SESSION/schedule` in a scheduled turn, and behind that `/RUN` for a sub-agent.
        maker = (self._caller.session_id[:_NAME], self._caller.turn(), call.agent.id if call.agent else "")
        return ToolRecord(
            tool=self._text(call.name, _NAME),
            call=recordable({"arguments": call.raw_arguments} if sent is None else sent, self._redact),
            result=outcome,
            correlation_id=call.id[:_NAME],
            duration_ms=round(seconds * 1000, 1),
            exit_code=code if isinstance(code, int) else None,
            signal=signal[:_NAME] if isinstance(signal, str) and signal else None,
            truncated=bool(envelope.get("truncated")) if ran else None,
            cached=result.cached or None,
            trust=trust or None,
            approved_by=None if isinstance(outcome, Blocked) else ruling.approved_by,
            gate=ruling.gate[:_NAME] or None,
            policy_match=self._text(ruling.rule, _SENTENCE) or None,
            error_category=result.failure and result.failure.category,
            claim_source=_SOURCES.get(call.name) or (_SOURCES_OF_SUBJECTS[type(subjects[0])] if subjects else None),
            mcp_server_id=next((each.server[:_NAME] for each in subjects if isinstance(each, McpSubject)), None),
            caller_id="/".join(filter(None, maker))[:_NAME],
            origin=None if call.origin is CallOrigin.MODEL else call.origin,
            phase=None if call.phase is Phase.EXECUTOR else call.phase,
            batch=call.batch[:_NAME] or None,
            attempts=facts.attempts if facts and facts.attempts > 1 else None,
            arguments_mended=(facts and facts.repaired) or None,
            adversarial_policy_decision=self._text(opinion, _SENTENCE) if opinion else None,
            hallucination_suspected=bool(facts and facts.suspects) or None,
            execution_env=place,
            sandbox=sandbox,
            resolved_cwd=self._text(self._caller.cwd, _SENTENCE),
        )

    def _place(self, result: ToolResult, facts: CallFacts | None) -> tuple[ExecutionEnv | None, SandboxAround | None]:
        """Return where a call ran, and the sandbox around its command. Both are None for a call within the agent."""
        if not result.place or facts is None:
            served = facts is not None and facts.spec.server and result.ruling and result.ruling.approved_by
            return ExecutionEnv.SERVER if served else None, None
        place = ExecutionEnv(result.place)
        around = self._caller.sandbox(place is ExecutionEnv.EDITOR)
        if not around:
            return place, None
        left = facts.unsandboxed or facts.call.origin is CallOrigin.USER
        return place, SandboxAround.UNSANDBOXED if left else SandboxAround(around)

    def egress(self, egress: Egress) -> None:
        """Record a request of a web tool, or a connection of a contained command."""
        self._log.append(
            EgressRecord(
                tool=self._text(egress.caller.tool, _NAME),
                correlation_id=egress.caller.call_id[:_NAME],
                url=self._text(egress.url, _SENTENCE),
                host=self._text(egress.host, _NAME),
                hop=egress.hop,
                address=egress.address,
                status=egress.status,
                duration_ms=round(egress.duration * 1000, 1),
                response_bytes=egress.response_bytes,
                blocked=True if egress.block_reason else None,
                block_reason=egress.block_reason,
                method=egress.method,
                caller_id="/".join(filter(None, (self._caller.session_id, self._caller.turn())))[:_NAME],
            )
        )

    def _text(self, text: str, longest: int) -> str:
        return redacted(text, self._redact, longest)

    def _outcome(self, result: ToolResult, *, ran: bool) -> Outcome:
        """Return the outcome, with its text redacted, because that may quote a command or a server.

        ran   whether a command ran. One that could not be executed (exit 126) has the same category as a refused one,
              but it is not recorded as blocked
        """
        failure = result.failure
        if failure is None:
            match (result.envelope or {}).get("rollback"):
                case {"restored": int(restored), "deleted": int(deleted)}:
                    return RolledBack(restored, deleted)
                case _:
                    return Success()
        message = self._text(failure.message, _SENTENCE)
        match failure.category:
            case ToolErrorCategory.TIMEOUT:
                return TimedOut()
            case ToolErrorCategory.POLICY_BLOCKED | ToolErrorCategory.CONFIRMATION_REQUIRED if not ran:
                return Blocked(message)
            case _ if result.ruling is not None and result.ruling.gate:
                return Blocked(message)
            case _:
                return Failed(message)


class AuditExecutor:
    """The outermost wrapper. A call that may change something does not start while records cannot be written.

    If only the record after the call fails, the user is warned and the result stands.
    """

    def __init__(self, wrapped: ToolExecutor, auditor: Auditor, clock: Callable[[], float] = monotonic) -> None:
        self._wrapped = wrapped
        self._auditor = auditor
        self._clock = clock

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Run the call and record it before its result is returned."""
        begun, trust = self._clock(), self._auditor.trust(facts.invocation)
        try:
            trouble = self._auditor.trouble() if facts.spec.mutates and not facts.only_reads else ""
            if trouble:
                why = f"{trouble}, and nothing is changed without a record; the user must repair the file or its disk"
                result = ToolResult.refused(why, ruling=Ruling("audit"))
            else:
                result = await self._wrapped.execute(facts)
        except BaseException as error:
            cancelled = ToolFailure(ToolErrorCategory.CANCELLED, "cancelled")
            ended = ToolResult.crash(error) if isinstance(error, Exception) else ToolResult.failed(cancelled)
            self._auditor.record(facts.call, ended, self._clock() - begun, facts, trust)
            raise
        self._auditor.record(facts.call, result, self._clock() - begun, facts, trust)  # no await, so no cancellation
        return result
