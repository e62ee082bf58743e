"""From a call to its result: parse the call, let the gates judge it, run its tool and show its progress to the user."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Protocol, TypeAlias, assert_never

import anyio
import anyio.lowlevel

from acp_agent.core.backends import FileSystem
from acp_agent.core.data import frozen
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.events import EventSink, Notice, Severity, ToolFinished, ToolStarted
from acp_agent.core.ports import Backends, Invocation, ToolContext
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.types import (
    Allow,
    ApprovedBy,
    Ask,
    CallOrigin,
    Deny,
    JsonObject,
    Phase,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
    Touches,
    tool_id,
)
from acp_agent.gates.gate import CallFacts, Gate, Gates
from acp_agent.gates.permission import Approved
from acp_agent.log import Log
from acp_agent.output.sanitize import faithful
from acp_agent.text import abbreviated, title
from acp_agent.workspace.beneath import category_of, in_words

Repair: TypeAlias = Callable[[ToolCall, ToolSpec, ToolFailure], Awaitable[JsonObject | None]]
"""A function that returns repaired arguments of a call, or None if it finds none.

Its parameters are the call, its tool, and the failure of the model's own arguments. It takes a bounded time and raises
only cancellation.
"""

REPAIRABLE = frozenset({ToolErrorCategory.INVALID_PARAMETERS, ToolErrorCategory.TYPE_MISMATCH})
"""Categories of failures that other arguments may avoid."""

_LONGEST = 500  # characters of the reason, and of the arguments


@frozen
class ArgumentRepairer:
    """A function that repairs arguments, and its name for the user."""

    repair: Repair
    name: str = "a model"


@frozen
class RepairedArguments:
    """Arguments that replace those of the model.

    reason   why the model's own arguments did not fit
    by       who repaired them, for the user
    """

    reason: str
    arguments: JsonObject
    by: str = "a model"

    @property
    def for_user(self) -> str:
        """The sentence that tells the user."""
        return f"the arguments did not fit and were repaired by {self.by}"

    def told_in(self, result: ToolResult) -> ToolResult:
        """Return the result with a line for the model, which would otherwise think that its arguments were right."""
        ran = _cut(json.dumps(self.arguments, ensure_ascii=False))
        note = f"[arguments repaired: yours did not fit ({_cut(self.reason)}), so the call was made with {ran}]"
        return replace(result, text=f"{result.text}\n\n{note}", display=result.shown)


def _cut(text: str) -> str:
    return abbreviated(" ".join(text.split()), _LONGEST)


_CLEAN_UP = 5.0
"""Seconds in which a cancelled call may show its end."""

_QUESTIONS = "questions"
"""The queue of the calls that ask the user."""

_ABORTED = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, "[cancelled] operation aborted"))

_log = Log(__name__)


class ToolExecutor(Protocol):
    """A step between a call and its result. Audit, cache, output and retry wrap another step, and so see both."""

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Return the result of the call. Raises cancellation, and the exceptions of bugs, which DynExecutor catches."""
        ...


class Catalogue(Protocol):
    """The part of the tool registry that DynExecutor uses."""

    def specs(self) -> Sequence[ToolSpec]:
        """Return every tool there is."""
        ...

    def is_starting(self, name: str) -> bool:
        """Return whether the tool of this name belongs to an MCP server that is starting."""
        ...

    async def wait_for(self, name: str) -> None:
        """Wait until the tool of this name is there, if it belongs to an MCP server that is starting."""
        ...

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        """Parse a call. Raises ToolError."""
        ...


class DynExecutor:
    """The entry point to a session's tools: a Toolset over any backends and any executors.

    Every call sends one ToolStarted and one ToolFinished with the same id. The terminals and files that a call opened
    are released after its last update was sent.

    executor        runs the parsed calls
    gates           tell which tools the model may see
    files           the files that previews of changes read
    misunderstood   records a call that no executor runs, its result and its duration in seconds
    redact          removes secrets from refusals and failures, which do not pass the output pipeline
    repairer        repairs arguments that do not fit their tool; None if they are not repaired
    """

    def __init__(
        self,
        catalogue: Catalogue,
        executor: ToolExecutor,
        gates: Gates,
        *,
        files: FileSystem,
        emit: EventSink,
        misunderstood: Callable[[ToolCall, ToolResult, float], None] | None = None,
        repairer: ArgumentRepairer | None = None,
        redact: Redact = verbatim,
    ) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._gates = gates
        self._files = files
        self._emit = emit
        self._misunderstood = misunderstood
        self._repairer = repairer
        self._redact = redact

    def specs(self) -> Sequence[ToolSpec]:
        """Return the tools that the model may see now."""
        return self._gates.offered(self._catalogue.specs())

    async def announce(self, call: ToolCall) -> Touches:
        """Show the start of a call that will run later, and return what it touches.

        The call is parsed again when it runs, since earlier calls may change the files that it names. A call that
        cannot be parsed touches nothing, unless it may still run: its arguments may be repaired, or its server is
        starting.
        """
        try:
            facts = self._gates.facts(await self._catalogue.understand(call, self._files))
        except Exception as error:  # noqa: BLE001 - `run` meets the same error, and then only the call fails
            await self._show_start(self._start_of(call))
            may_run = self._repairer is not None or self._catalogue.is_starting(call.name)
            return Touches(alone=may_run or not isinstance(error, ToolError | Refused))
        await self._show_start(_start(facts))
        try:
            return self._touched(facts)
        except Exception:  # noqa: BLE001 - a bug may fail the call when it runs, but not the turn
            _log.error("tool call could not be judged", exc_info=True, tool=facts.spec.name)
            return Touches(alone=True)

    async def _show_start(self, start: ToolStarted) -> None:
        """Show the start of an announced call. A cancellation waits, so that the caller can show its end."""
        with anyio.move_on_after(_CLEAN_UP, shield=True):
            await self._emit(start)

    def _touched(self, facts: CallFacts) -> Touches:
        """Return what a call touches. Calls that ask the user share a queue, so that one waits for the other."""
        spec = facts.spec
        if spec.delegates:
            return Touches(alone=spec.alone)
        unseen = any(not line.only_reads for line in facts.commands)
        if unseen or (spec.mutates and not facts.paths and not spec.server and not facts.commands):
            return Touches(alone=True)
        queues = {_QUESTIONS} if spec.asks or self._gates.asks(facts) else set[str]()
        if not facts.subjects:
            queues.add(spec.name)  # a call may depend on the effect of an earlier call of the same tool
        if spec.queue:
            queues.add(spec.queue)
        reads, changes = set("/" if facts.commands else ""), set[str]()
        for subject in facts.paths:
            try:
                path = self._files.resolve(subject.path, subject.access)
            except (Refused, ToolError):  # a gate will refuse the call
                continue
            (changes if subject.access.changes else reads).add(path)
        server = spec.server if spec.mutates else ""
        return Touches(frozenset(reads), frozenset(changes), server, frozenset(queues))

    async def run(self, call: ToolCall, *, announced: bool = False) -> ToolResult:
        """Run a call and return its result. Raises nothing but cancellation."""
        begun, repaired = monotonic(), None
        try:
            try:
                if self._catalogue.is_starting(call.name):
                    if not announced:
                        await self.announce(call)
                        announced = True
                    await self._catalogue.wait_for(call.name)
                invocation = await self._catalogue.understand(call, self._files)
            except ToolError as error:
                invocation, repaired = await self._repaired(call, error)
        except Exception as error:  # noqa: BLE001 - a bug may fail the call, but not the turn
            result = _not_understood(call, error)
            await self._show_unrun(call, result, begun, announced=announced)
            return replace(result, text=self._redact(result.text))
        except anyio.get_cancelled_exc_class():
            if announced:
                await self._show_unrun(call, _ABORTED, begun, announced=True)
            raise
        facts = self._gates.facts(invocation, repaired.for_user if repaired is not None else "")
        result = _ABORTED
        try:
            if not announced:
                await self._emit(_start(facts))
            result = replace(await self._executor.execute(facts), read_only=facts.only_reads)
            result = repaired.told_in(result) if repaired is not None else result
            if invocation.note:
                result = replace(result, text=f"{result.text}\n\n{invocation.note}", display=result.shown)
        except Exception as error:  # noqa: BLE001 - a bug may fail the call, but not the turn
            _log.error("tool call crashed", exc_info=True, tool=invocation.spec.name)
            result = ToolResult.crash(error)
        finally:
            await self._finish(facts, result, monotonic() - begun)
        # A refusal did not pass the output pipeline, and may quote a file, such as after a failed edit.
        if result.stats is not None:
            return result
        return replace(result, text=self._redact(faithful(result.text, terminal=False)))

    async def refuse(self, call: ToolCall, result: ToolResult, *, announced: bool = False) -> None:
        """Show and record a call that does not run."""
        await self._show_unrun(call, result, monotonic(), announced=announced)

    def _start_of(self, call: ToolCall) -> ToolStarted:
        """Return the start event of a call that was not parsed."""
        spec = next((spec for spec in self._catalogue.specs() if spec.name == call.name), None)
        raw_input: JsonObject = {"arguments": call.raw_arguments} if call.arguments is None else call.arguments
        kind = ToolKind.OTHER if spec is None else spec.kind
        name = title(call.name)
        return ToolStarted(call.id, name, name or "unnamed tool", kind, raw_input, parent=call.parent)

    async def _show_unrun(self, call: ToolCall, result: ToolResult, begun: float, *, announced: bool) -> None:
        """Show and record a call that no executor runs. A cancellation waits until the end of the call is shown."""
        try:
            if not announced:
                await self._emit(self._start_of(call))
        finally:
            if self._misunderstood is not None:
                self._misunderstood(call, result, monotonic() - begun)
            with anyio.move_on_after(_CLEAN_UP, shield=True):
                await self._emit(ToolFinished(call.id, call.name, result, monotonic() - begun, call.use_id))

    async def _repaired(self, call: ToolCall, error: ToolError) -> tuple[Invocation, RepairedArguments]:
        """Try once to repair the arguments of a tool that the model may use. Raises `error` if that fails."""
        if self._repairer is None or call.origin is not CallOrigin.MODEL or error.failure.category not in REPAIRABLE:
            raise error
        spec = next((each for each in self.specs() if each.name == tool_id(call.name)), None)
        arguments = None if spec is None else await self._repairer.repair(call, spec, error.failure)
        if arguments is None:
            raise error
        try:
            invocation = await self._catalogue.understand(
                replace(call, arguments=arguments, raw_arguments=""), self._files
            )
        except (ToolError, Refused):  # the model gets the error of its own arguments instead
            raise error from None
        repaired = RepairedArguments(error.failure.message, arguments, self._repairer.name)
        await self._emit(Notice(Severity.INFO, f"{invocation.spec.name}: {repaired.for_user}"))
        return invocation, repaired

    async def _finish(self, facts: CallFacts, result: ToolResult, seconds: float) -> None:
        """Show the end of the call, then release its terminals and files, even if the turn is cancelled."""
        event = ToolFinished(facts.call.id, facts.call.name, result, seconds, facts.call.use_id)
        try:
            with anyio.move_on_after(_CLEAN_UP, shield=True):
                await self._emit(event)
        finally:
            with anyio.CancelScope(shield=True):
                for give_back in facts.clean_up:
                    await give_back()


def _not_understood(call: ToolCall, error: Exception) -> ToolResult:
    if isinstance(error, ToolError | Refused):
        return ToolResult.failed(error.failure)
    _log.error("tool call could not be understood", exc_info=True, tool=call.name)
    return ToolResult.crash(error)


def _start(facts: CallFacts) -> ToolStarted:
    """Return the start event of a parsed call."""
    invocation = facts.invocation
    return ToolStarted(
        call_id=invocation.call.id,
        name=invocation.call.name,
        title=invocation.title,
        kind=invocation.spec.kind,
        raw_input=invocation.call.arguments or {},
        locations=invocation.locations,
        diffs=invocation.diffs,
        containment=facts.containment,
        parent=invocation.call.parent,
    )


class GatedExecutor:
    """An executor that lets every gate judge a call, in their order, and runs it if none refuses.

    The first Deny ends the call. The last gate settles the questions of the others. If it leaves a question unsettled,
    the call is refused.
    """

    def __init__(self, gates: Gates, allowed: ToolExecutor) -> None:
        self._gates = gates.in_order
        self._allowed = allowed

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Judge the call once and run it. The gates that it passed see the result."""
        passed: list[Gate] = []
        approval: ApprovedBy | None = None
        refused: ToolResult | None = None
        try:
            for gate in self._gates:
                verdict = await gate.examine(facts)
                match verdict:
                    case Deny():
                        refused = gate.refusal(verdict)
                        break
                    case Ask():
                        facts.asks.append(verdict)
                    case Approved(by):
                        approval = by
                    case Allow():
                        pass
                    case _:
                        assert_never(verdict)
                passed.append(gate)
            if refused is None and facts.asks and approval is None:
                reasons = "; ".join(ask.reason for ask in facts.asks)
                category = ToolErrorCategory.CONFIRMATION_REQUIRED
                refused = ToolResult.refused(f"{reasons}; nobody can be asked", category)
            result = refused or (await self._allowed.execute(facts)).ruled(approval or ApprovedBy.AUTO)
        except Exception as error:
            for gate in reversed(passed):
                await gate.conclude(facts, ToolResult.crash(error))
            raise
        for gate in reversed(passed):
            result = await gate.conclude(facts, result)
        return result


class ToolRunner:
    """The innermost executor: runs the tool and turns its errors into results.

    cwd    the session's folder
    emit   sends the progress of a call to the user
    """

    def __init__(self, backends: Backends, cwd: str, emit: EventSink) -> None:
        self._backends = backends
        self._cwd = cwd
        self._emit = emit

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Run the tool. Raises only the exceptions of bugs in it.

        An unexpected error of the operating system becomes a result with its category and without the path. A call of a
        cancelled turn does not begin, because a tool may start something before its first await.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        context = ToolContext(
            call_id=facts.call.id,
            cwd=self._cwd,
            previewed=facts.invocation.diffs,
            backends=self._backends,
            progress=self._emit,
            defer=facts.clean_up.append,
            by_user=facts.call.origin is CallOrigin.USER,
            verifies=facts.call.phase is Phase.VERIFIER,
            read_only=facts.only_reads,
            agent=facts.call.agent,
        )
        try:
            return await facts.invocation.run(context)
        except (ToolError, Refused) as error:
            return ToolResult.failed(error.failure)
        except BackendUnavailable as error:
            return ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, str(error)))
        except OSError as error:
            _log.warning("tool call met an unmapped error", exc_info=True, tool=facts.spec.name)
            return ToolResult.failed(ToolFailure(category_of(error), f"{facts.spec.name}: {in_words(error)}"))
