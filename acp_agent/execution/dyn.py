"""DynExecutor: the front door of a session's tools (A33). What the loop calls, what an editor sees.

Whatever the backends behind it, every call shows as one ToolStarted and one ToolFinished with one id, and
nothing a call opened is given back before its last update went out (A19.11).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Protocol

import anyio

from acp_agent.core.aliases import tool_id
from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.events import EventSink, Notice, Severity, ToolFinished, ToolProgress, ToolStarted
from acp_agent.core.ports import Backends, Invocation, ToolContext, ToolExecutor
from acp_agent.core.types import Ask, CallOrigin, JsonObject, ToolCall, ToolKind, ToolResult, ToolSpec
from acp_agent.execution.mending import Mended, Mending
from acp_agent.log import Log
from acp_agent.text import title

_CLEAN_UP = 5.0
"""Seconds a call that was cancelled gets to say so and to give its terminal back."""

_MENDABLE = frozenset({ToolErrorCategory.INVALID_PARAMETERS, ToolErrorCategory.TYPE_MISMATCH})

_log = Log(__name__)


class Catalogue(Protocol):
    """What DynExecutor needs of the tool registry."""

    def specs(self) -> Sequence[ToolSpec]:
        """Every tool there is."""
        ...

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        """Parse a call. Raises ToolError."""
        ...


class DynExecutor:
    """A Toolset over any chain of executors and any backends.

    chain     wraps the innermost executor, which DynExecutor hands over, with the session's gates
    offers    whether the model may see a tool now (mode, rules that deny it whole)
    misunderstood   told of a call no executor ever sees, its result and how many seconds it took: for the audit
    mending         who mends arguments of the model's that do not fit; None = nobody does (L6.7)
    """

    def __init__(
        self,
        catalogue: Catalogue,
        chain: Callable[[Callable[[Invocation], ToolContext]], ToolExecutor],
        *,
        backends: Backends,
        cwd: str,
        emit: EventSink,
        offers: Callable[[ToolSpec], bool],
        misunderstood: Callable[[ToolCall, ToolResult, float], None] | None = None,
        mending: Mending | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._backends = backends
        self._cwd = cwd
        self._emit = emit
        self._offers = offers
        self._misunderstood = misunderstood
        self._mending = mending
        self._deferred: dict[str, list[Callable[[], Awaitable[None]]]] = {}
        self._executor = chain(self._context)

    # --------------------------------------------------------------------- Toolset: the loop's side

    def specs(self) -> Sequence[ToolSpec]:
        return [spec for spec in self._catalogue.specs() if self._offers(spec)]

    async def run(self, call: ToolCall) -> ToolResult:
        begun = monotonic()
        try:
            invocation, mended = await self._understood(call)
        except (ToolError, Refused) as error:
            result = ToolResult.failed(error.failure)
            await self._unheard(call, result, begun)
            return result
        if mended is not None:
            await self._emit(Notice(Severity.INFO, f"{invocation.spec.name}: {mended.for_user}"))
        await self._emit(_started(invocation))
        result = ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, "[cancelled] operation aborted"))
        try:
            result = await self.execute(invocation)
            result = mended.told_in(result) if mended is not None else result
        except Exception as error:  # noqa: BLE001 - a bug in a tool or gate costs the call, not the turn
            _log.error("tool call crashed", exc_info=True, tool=invocation.spec.name)
            result = ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, f"internal error: {error!r}"))
        finally:
            await self._finish(ToolFinished(call.id, invocation.spec.name, result, monotonic() - begun, call.use_id))
        return result

    async def refuse(self, call: ToolCall, result: ToolResult) -> None:
        await self._unheard(call, result, monotonic())

    async def _unheard(self, call: ToolCall, result: ToolResult, begun: float) -> None:
        """A call no executor sees shows and is recorded all the same."""
        await self._emit(self._not_understood(call))
        if self._misunderstood is not None:
            self._misunderstood(call, result, monotonic() - begun)
        await self._emit(ToolFinished(call.id, call.name, result, monotonic() - begun, call.use_id))

    async def _understood(self, call: ToolCall) -> tuple[Invocation, Mended | None]:
        """The call, and how its arguments were mended where they were. Raises ToolError or Refused."""
        try:
            return await self._catalogue.understand(call, self._backends.files), None
        except ToolError as error:
            mended = await self._mended(call, error.failure)
            if mended is None:
                raise
            return mended

    async def _mended(self, call: ToolCall, failure: ToolFailure) -> tuple[Invocation, Mended] | None:
        """One attempt to mend what the model got wrong, for a tool it may use; None when it does not fit either."""
        if self._mending is None or call.origin is not CallOrigin.MODEL or failure.category not in _MENDABLE:
            return None
        spec = next((each for each in self.specs() if each.name == tool_id(call.name)), None)
        arguments = None if spec is None else await self._mending.mend(call, spec, failure)
        if spec is None or arguments is None:
            return None
        other = replace(call, arguments=arguments, raw_arguments="")
        try:
            invocation = await self._catalogue.understand(other, self._backends.files)
        except (ToolError, Refused):  # the model shall hear of its own mistake instead
            return None
        self._mending.told(call.id)
        mended = Mended(failure.message, arguments, self._mending.by)
        # What the model never wrote changes nothing unseen: whatever rule or level would let it pass, but full-auto.
        return (invocation.asking(Ask(mended.for_user)) if spec.mutates else invocation), mended

    async def _finish(self, event: ToolFinished) -> None:
        """Tell the end, then give back. Also on the way out of a cancelled turn: a card must not spin on (A12.16)."""
        deferred = self._deferred.pop(event.call_id, [])
        try:
            with anyio.move_on_after(_CLEAN_UP, shield=True):
                await self._emit(event)
        finally:
            with anyio.CancelScope(shield=True):
                for give_back in deferred:
                    await give_back()

    # ------------------------------------------------------------- ToolExecutor: delegates everything

    async def execute(self, invocation: Invocation) -> ToolResult:
        return await self._executor.execute(invocation)

    async def execute_confirmed(self, invocation: Invocation) -> ToolResult:
        return await self._executor.execute_confirmed(invocation)

    def requires_confirmation(self, invocation: Invocation) -> bool:
        return self._executor.requires_confirmation(invocation)

    def is_retryable(self, invocation: Invocation) -> bool:
        return self._executor.is_retryable(invocation)

    # -----------------------------------------------------------------------------------------------

    def _context(self, invocation: Invocation) -> ToolContext:
        return ToolContext(
            call_id=invocation.call.id,
            cwd=self._cwd,
            previewed=invocation.diffs,
            backends=self._backends,
            progress=self._progress,
            defer=self._deferred.setdefault(invocation.call.id, []).append,
        )

    def _not_understood(self, call: ToolCall) -> ToolStarted:
        """A call with arguments that do not fit, or of a tool nobody knows, shows all the same."""
        spec = next((spec for spec in self._catalogue.specs() if spec.name == call.name), None)
        raw_input: JsonObject = {"arguments": call.raw_arguments} if call.arguments is None else call.arguments
        kind = ToolKind.OTHER if spec is None else spec.kind
        return ToolStarted(call.id, title(call.name), title(call.name) or "unnamed tool", kind, raw_input)

    async def _progress(self, event: ToolProgress) -> None:
        await self._emit(event)


def _started(invocation: Invocation) -> ToolStarted:
    return ToolStarted(
        call_id=invocation.call.id,
        name=invocation.spec.name,
        title=invocation.title,
        kind=invocation.spec.kind,
        raw_input=invocation.call.arguments or {},
        locations=invocation.locations,
        diffs=invocation.diffs,
    )
