"""OutputExecutor: redact, filter and cut the result of a tool, and store a text that is not shown whole."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio.to_thread

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.services import Overflow
from acp_agent.core.types import Json, McpSubject, ToolResult, UrlSubject
from acp_agent.execution.runner import ToolExecutor
from acp_agent.gates.gate import CallFacts
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.output.filters.strategy import CommandRun
from acp_agent.output.pipeline import Pipeline, ResultSource

_INLINE_LIMIT = 16 * 1024
"""The most characters for which a thread would cost more than the work."""

Summarize: TypeAlias = Callable[[str], Awaitable[str]]
"""Returns a summary of a long text by a model; "" if that failed."""


class OutputExecutor:
    """Passes every result through the output pipeline.

    overflow    stores whole texts; None if they are not stored
    summarize   shortens a long text for the model; None for its head and tail
    """

    def __init__(
        self,
        wrapped: ToolExecutor,
        pipeline: Pipeline,
        overflow: Overflow | None = None,
        summarize: Summarize | None = None,
    ) -> None:
        self._wrapped = wrapped
        self._pipeline = pipeline
        self._overflow = overflow
        self._summarize = summarize

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Run the call and return its result as its readers get it."""
        result = await self._wrapped.execute(facts)
        source = _result_source(facts, result)
        if _size(result) < _INLINE_LIMIT:
            fitted = self._pipeline.apply(result, source)
        else:  # pure, so that a cancelled turn need not wait for it
            fitted = await anyio.to_thread.run_sync(self._pipeline.apply, result, source, abandon_on_cancel=True)
        if not fitted.whole or self._overflow is None:
            return fitted.finish()
        try:
            reference = await self._overflow.put(fitted.whole)
        except StoreUnavailable as error:
            return fitted.finish(trouble=str(error))
        summary = await self._summarize(fitted.result.text) if fitted.long and self._summarize else ""
        return fitted.finish(reference, summary=summary)


def _result_source(facts: CallFacts, result: ToolResult) -> ResultSource:
    run, source, envelope = None, None, result.envelope or {}
    landed = envelope.get("url")  # the URL after redirects
    if facts.commands and "exit_code" in envelope:  # a call that failed before has none
        line, code, stderr = facts.commands[-1], envelope["exit_code"], envelope.get("stderr")
        run = CommandRun(
            line.text,
            printing_commands(line),
            code if isinstance(code, int) else None,
            stderr if isinstance(stderr, str) else "",
        )
    for subject in facts.subjects:
        match subject:
            case UrlSubject(url):
                source = landed if isinstance(landed, str) else url
            case McpSubject(server):
                source = server
            case _:
                pass
    return ResultSource(facts.spec, facts.call.id, run, source)


def _size(result: ToolResult) -> int:
    """Return the number of characters and values of a result, counted only up to the limit that matters."""
    size = len(result.text) + len(result.display or "")
    waiting: list[Json] = [result.envelope]
    while waiting and size < _INLINE_LIMIT:
        match waiting.pop():
            case str() as text:
                size += len(text)
            case (list() | dict()) as values:
                size += len(values)
                if size < _INLINE_LIMIT:
                    waiting += [*values, *values.values()] if isinstance(values, dict) else values
            case _:
                pass
    return size
