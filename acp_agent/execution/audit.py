"""AuditExecutor: record every call before its result is shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.services import Egress
from acp_agent.core.types import (
    CallOrigin,
    CommandSubject,
    JsonObject,
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
"""Tools whose subjects do not say what kind of event they are."""


def _unknown(_tool: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Caller:
    """The session whose calls are recorded.

    session_id    the id of the ACP session
    cwd           its folder: absolute, links resolved
    trust         returns the trust level of a tool by its id; None if it has none
    environment   returns where a tool runs now, by its id; None if that is unknown
    """

    session_id: str
    cwd: str
    trust: Callable[[str], str | None] = _unknown
    environment: Callable[[str], ExecutionEnv | None] = _unknown


class Auditor:
    """Makes the records of one session and lets them be written. It never raises if the file cannot be written."""

    def __init__(self, log: AuditLog, caller: Caller, redact: Redact) -> None:
        self._log = log
        self._caller = caller
        self._redact = redact

    def trouble(self) -> str:
        """Return why a call could not be recorded now, for the user; empty if it could."""
        why = self._log.trouble()
        return f"the audit file {self._log.path} cannot be written ({why})" if why else ""

    def record(self, facts: CallFacts, result: ToolResult, seconds: float) -> None:
        """Record a call that has ended."""
        record = self._record(facts.call, result, seconds, facts.subjects)
        self._log.append(
            replace(
                record,
                attempts=facts.attempts if facts.attempts > 1 else None,
                arguments_mended=facts.repaired or None,
                hallucination_suspected=bool(facts.suspects) or None,
            )
        )

    def record_misunderstood(self, call: ToolCall, result: ToolResult, seconds: float) -> None:
        """Record a call that was never understood, so that it has no subjects."""
        self._log.append(self._record(call, result, seconds, ()))

    def _record(self, call: ToolCall, result: ToolResult, seconds: float, subjects: Sequence[Subject]) -> ToolRecord:
        ruling, envelope = result.ruling or Ruling(), result.envelope or {}
        ran = "exit_code" in envelope
        outcome = _outcome(result, ran=ran)
        return ToolRecord(
            tool=self._text(call.name, _NAME),
            call=self._arguments(call),
            result=self._plain(outcome),
            correlation_id=call.id[:_NAME],
            duration_ms=_milliseconds(seconds),
            exit_code=_whole(envelope.get("exit_code")),
            signal=_word(envelope.get("signal")),
            truncated=bool(envelope.get("truncated")) if ran else None,
            cached=result.cached or None,
            trust=self._caller.trust(call.name),
            approved_by=None if isinstance(outcome, Blocked) else ruling.approved_by,
            gate=ruling.gate[:_NAME] or None,
            policy_match=self._text(ruling.rule, _SENTENCE) or None,
            error_category=result.failure and result.failure.category,
            claim_source=_source(call.name, subjects),
            mcp_server_id=next((each.server[:_NAME] for each in subjects if isinstance(each, McpSubject)), None),
            caller_id=self._caller.session_id[:_NAME],
            origin=None if call.origin is CallOrigin.MODEL else call.origin,
            phase=None if call.phase is Phase.EXECUTOR else call.phase,
            batch=call.batch[:_NAME] or None,
            execution_env=self._caller.environment(call.name),
            resolved_cwd=self._text(self._caller.cwd, _SENTENCE),
        )

    def egress(self, egress: Egress) -> None:
        """Record a request of a web tool."""
        self._log.append(
            EgressRecord(
                tool=self._text(egress.caller.tool, _NAME),
                correlation_id=egress.caller.call_id[:_NAME],
                url=self._text(egress.url, _SENTENCE),
                host=self._text(egress.host, _NAME),
                hop=egress.hop,
                address=egress.address,
                status=egress.status,
                duration_ms=_milliseconds(egress.duration),
                response_bytes=egress.response_bytes,
                blocked=True if egress.block_reason else None,
                block_reason=egress.block_reason,
                caller_id=self._caller.session_id[:_NAME],
            )
        )

    def _arguments(self, call: ToolCall) -> JsonObject:
        sent: JsonObject = {"arguments": call.raw_arguments} if call.arguments is None else call.arguments
        return recordable(sent, self._redact)

    def _text(self, text: str, longest: int) -> str:
        return redacted(text, self._redact, longest)

    def _plain(self, outcome: Outcome) -> Outcome:
        """Return the outcome with its texts redacted, because they may quote a command or a server."""
        match outcome:
            case Blocked(reason):
                return Blocked(self._text(reason, _SENTENCE))
            case Failed(message):
                return Failed(self._text(message, _SENTENCE))
            case _:
                return outcome


class AuditExecutor:
    """The outermost wrapper. A call that changes something does not start while records cannot be written.

    If only the record after the call fails, the user is warned and the result stands.
    """

    def __init__(self, wrapped: ToolExecutor, auditor: Auditor, clock: Callable[[], float] = monotonic) -> None:
        self._wrapped = wrapped
        self._auditor = auditor
        self._clock = clock

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Run the call and record it before its result is returned."""
        begun = self._clock()
        try:
            result = self._refusal(facts) or await self._wrapped.execute(facts)
        except BaseException as error:
            self._auditor.record(facts, _crashed(error), self._clock() - begun)
            raise
        self._auditor.record(facts, result, self._clock() - begun)  # no cancellation comes between
        return result

    def _refusal(self, facts: CallFacts) -> ToolResult | None:
        trouble = self._auditor.trouble() if facts.spec.mutates else ""
        if not trouble:
            return None
        why = f"{trouble}, and nothing is changed without a record; the user has to see to the file or its disk"
        return ToolResult.refused(why, ruling=Ruling("audit"))


def _crashed(error: BaseException) -> ToolResult:
    if isinstance(error, Exception):
        return ToolResult.crash(error)
    return ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, "cancelled"))


def _outcome(result: ToolResult, *, ran: bool) -> Outcome:
    """Return the exit code. `ran` tells a command that could not be executed (exit 126) from a refused one."""
    failure = result.failure
    if failure is None:
        return Success()
    match failure.category:
        case ToolErrorCategory.TIMEOUT:
            return TimedOut()
        case ToolErrorCategory.POLICY_BLOCKED | ToolErrorCategory.CONFIRMATION_REQUIRED if not ran:
            return Blocked(failure.message)
        case _ if result.ruling is not None and result.ruling.gate:
            return Blocked(failure.message)
        case _:
            return Failed(failure.message)


def _source(tool: str, subjects: Sequence[Subject]) -> ClaimSource | None:
    if tool in _SOURCES:
        return _SOURCES[tool]
    for subject in subjects:
        match subject:
            case CommandSubject():
                return ClaimSource.SHELL
            case UrlSubject():
                return ClaimSource.WEB_SCRAPE
            case McpSubject():
                return ClaimSource.MCP
            case PathSubject():
                return ClaimSource.FILE_SYSTEM
    return None


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _word(value: object) -> str | None:
    return value[:_NAME] if isinstance(value, str) and value else None
