"""The loop: prompt -> model -> tools -> model ... -> stop reason (L1, L2). Knows ports, no provider, tool or editor.

Whatever ends a turn, the history is one a model accepts, and the next prompt works:

    the model is done                END_TURN
    doom loop                        END_TURN, with a message
    the model API failed             END_TURN (MAX_TOKENS if the context was too long), with a message; `failure` set
    iteration cap                    MAX_TURN_REQUESTS, with a message
    context budget, output limit     MAX_TOKENS, with a message
    refusal                          REFUSAL, with a message; the prompt and all after it leave the history, as ACP says
    cancellation                     the cancellation goes on: whoever owns the scope answers `cancelled` (A13.4).
                                     What was said stays, calls without result are answered as cancelled (A13.6)
    a bug                            the exception goes on; the history is repaired all the same

Of several reasons the first counts: cancelled, max_tokens, max_turn_requests, refusal, end_turn (A12.6). A cancellation
that comes too late to be seen here is the scope owner's to put first.
"""

from dataclasses import dataclass
from typing import assert_never
from uuid import uuid4

import anyio

from acp_agent.agent import notes
from acp_agent.agent.doom_loop import DoomLoop
from acp_agent.agent.history import History, has_substance
from acp_agent.agent.reply import Reply
from acp_agent.agent.tool_calls import NOT_RUN, ToolCalls, with_fit_calls
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.events import EventSink, TextDelta, UsageChanged
from acp_agent.core.messages import Message, ModelDone, ModelStop, Role, StopReason, TextPart, Usage
from acp_agent.core.ports import ModelRequest, Provider, Toolset

_UNACCEPTABLE = (ProviderErrorKind.INVALID_REQUEST, ProviderErrorKind.CONTEXT_TOO_LONG)
"""Errors that a prompt which stays in the history would bring about again and again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a turn stops by itself.

    max_tool_iterations  model calls in one turn
    context_budget       tokens the conversation may fill; None takes the model's window
    budget_stop          part of the budget beyond which no further call is made
    max_output_tokens    of one model call; None leaves it to the provider
    max_parallel_tools   read-only calls that run at the same time
    """

    max_tool_iterations: int = 10
    context_budget: int | None = None
    budget_stop: float = 0.8
    max_output_tokens: int | None = None
    max_parallel_tools: int = 8


class Agent:
    """One conversation. One turn at a time; `provider` and `system_prompt` may be replaced between turns.

    history  the conversation, also across turns
    usage    tokens of all model calls so far
    failure  the error that ended the last turn, if one did
    """

    def __init__(
        self,
        provider: Provider,
        toolset: Toolset,
        history: History,
        emit: EventSink,
        limits: Limits,
        system_prompt: str,
    ) -> None:
        self.provider = provider
        self.toolset = toolset
        self.history = history
        self.emit = emit
        self.limits = limits
        self.system_prompt = system_prompt
        self.usage = Usage()
        self.failure: ProviderError | None = None

    async def run(self, prompt: Message) -> StopReason:
        """Answer one prompt, a user message. Raises only what cancels it, and bugs."""
        self.failure = None
        turn = _Turn(self)
        try:
            self.history.append(prompt)
            return await turn.run()
        except ProviderError as error:
            self.failure = error
            return await turn.explain(error)
        except anyio.get_cancelled_exc_class():
            self.history.repair(NOT_RUN)
            self.history.append(Message(Role.USER, (TextPart(notes.CANCELLED),)))
            raise
        finally:
            self.history.repair(NOT_RUN)


class _Turn:
    """What is true for one run only."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._history = agent.history
        self._before = agent.history.snapshot()
        self._doom_loop = DoomLoop()
        self._kept_reply = False  # whether the history has any word of the model from this turn
        self._spoke = False  # whether the user saw any text in this turn
        self._in_text = False  # whether text was the last thing the user saw

    async def run(self) -> StopReason:
        if self._history.snapshot() == self._before:
            return await self._stop(StopReason.END_TURN, notes.EMPTY_PROMPT)
        rounds = self._agent.limits.max_tool_iterations
        for left in reversed(range(rounds)):
            stop = await self._over_budget() or await self._iterate(is_last=left == 0)
            if stop is not None:
                return stop
        return await self._stop(StopReason.MAX_TURN_REQUESTS, notes.too_many_rounds(rounds))

    async def explain(self, error: ProviderError) -> StopReason:
        """Tell the user of a failed call. A prompt that can never be accepted leaves the history."""
        kept = self._kept_reply or error.kind not in _UNACCEPTABLE
        if not kept:
            self._history.restore(self._before)
        too_long = error.kind is ProviderErrorKind.CONTEXT_TOO_LONG
        stop = StopReason.MAX_TOKENS if too_long else StopReason.END_TURN
        return await self._stop(stop, notes.provider_failed(error, prompt_kept=kept))

    async def _iterate(self, *, is_last: bool) -> StopReason | None:
        """One model call and its tools. None when the model wants to go on."""
        specs = tuple(self._agent.toolset.specs())
        request = ModelRequest(
            self._agent.system_prompt, self._history.messages(), specs, self._agent.limits.max_output_tokens
        )
        done, reused = await self._call_model(request)
        uses = self._history.open_calls
        match done.stop:
            case ModelStop.MAX_TOKENS:
                return await self._stop(StopReason.MAX_TOKENS, notes.CUT_OFF_IN_CALL if uses else notes.CUT_OFF)
            case ModelStop.REFUSAL:
                self._history.restore(self._before)
                return await self._stop(StopReason.REFUSAL, notes.REFUSAL)
            case ModelStop.END | ModelStop.TOOL_USE:
                pass
            case _:
                assert_never(done.stop)
        if not uses:
            return await self._stop(StopReason.END_TURN, "" if self._spoke else notes.EMPTY_ANSWER)
        calls = ToolCalls(uses, specs, reused)
        try:
            await calls.run(self._agent.toolset, self._agent.limits.max_parallel_tools)
        finally:
            self._history.append(calls.message())
        self._in_text = False
        if self._doom_loop.watch(calls.outcomes()) and not is_last:  # the iteration cap goes first (A12.6)
            return await self._stop(StopReason.END_TURN, notes.DOOM_LOOP)
        return None

    async def _call_model(self, request: ModelRequest) -> tuple[ModelDone, frozenset[str]]:
        """The end of a call, and the ids of its tool uses that must not run. What was said is kept, come what may."""
        agent = self._agent
        budget = agent.limits.context_budget or agent.provider.context_window
        reply = Reply(agent.emit, keeps=budget)  # as many bytes as tokens fit: a quarter of it
        reused = frozenset[str]()
        try:
            done = await reply.read(agent.provider.stream(request))
        finally:
            message, reused = with_fit_calls(reply.message, self._history.call_ids)
            self._history.append(message)
            self._kept_reply = self._kept_reply or has_substance(message.parts)
            self._spoke = self._spoke or reply.spoke
            self._in_text = self._in_text or reply.spoke
        agent.usage += done.usage
        if done.usage.context:
            self._history.measured(done.usage.context)
        await agent.emit(UsageChanged(done.usage.context or self._history.estimate(), agent.provider.context_window))
        return done, reused

    async def _over_budget(self) -> StopReason | None:
        limits = self._agent.limits
        budget = limits.context_budget or self._agent.provider.context_window
        used = self._history.estimate()
        if not budget or used <= budget * limits.budget_stop:
            return None
        if not self._kept_reply:
            self._history.restore(self._before)
        return await self._stop(StopReason.MAX_TOKENS, notes.over_budget(used, budget, prompt_kept=self._kept_reply))

    async def _stop(self, reason: StopReason, note: str) -> StopReason:
        if note:
            await self._agent.emit(TextDelta(f"\n\n{note}" if self._in_text else note, str(uuid4())))
        return reason
