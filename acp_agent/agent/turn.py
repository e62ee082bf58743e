"""The loop: prompt -> model -> tools -> model ... -> stop reason. It knows ports, but no provider, tool or editor.

However a turn ends, the history is valid and the next prompt works:

    the model is done              END_TURN
    doom loop                      END_TURN, with a note, after the model was told what repeats
    the model API failed           END_TURN, or MAX_TOKENS if the context was too long, with a note; `failure` is set
    iteration cap                  MAX_TURN_REQUESTS, with a note
    context budget, output limit   MAX_TOKENS, with a note
    refusal                        REFUSAL, with a note. As ACP demands, the prompt and all after it leave the history
    cancellation                   The exception goes on, and the owner of the scope answers `cancelled`. What was said
                                   stays. Calls without a result are answered as cancelled
    a bug                          The exception goes on. The history is repaired

If several reasons apply, the first of these counts: cancelled, max_tokens, max_turn_requests, refusal, end_turn. The
owner of the scope handles a cancellation that comes too late to be seen here.
"""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from itertools import count
from uuid import uuid4

import anyio

from acp_agent.agent import prompt as notes
from acp_agent.agent.history import History
from acp_agent.agent.hooks import Hooks, Received
from acp_agent.agent.tool_calls import CUT_OFF, MOST_CALLS, NOT_RUN, ToolCalls, result_part, with_fit_calls
from acp_agent.core.data import frozen
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.events import EventSink, TextDelta, ThoughtDelta, UsageChanged
from acp_agent.core.messages import (
    Message,
    ModelDone,
    ModelEvent,
    ModelStop,
    ModelText,
    ModelThought,
    Role,
    StopReason,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.ports import ModelRequest, Provider, Toolset
from acp_agent.core.types import ToolResult, ToolSpec, tool_id
from acp_agent.text import lazy_regex

_CLOSING = 2.0  # seconds a provider gets to close its connection


PARAGRAPH = "\n\n"
"""The text before each further message of a turn, because many clients join all text of a turn to one message."""


class Reply:
    """The answer of the model in one call.

    keeps     how many bytes of an unfinished answer are kept
    opening   what the user is shown before its text; the history does not have it
    done      the end of the call, or None
    spoke     whether the user has seen any text of it
    shown     whether the user has seen anything of it
    """

    def __init__(self, emit: EventSink, keeps: int, opening: str = "") -> None:
        self._emit = emit
        self._keeps = keeps
        self._opening = opening
        self._text_id = str(uuid4())
        self._thought_id = str(uuid4())
        self._said: list[str] = []
        self.done: ModelDone | None = None
        self.spoke = False
        self.shown = False

    @property
    def message(self) -> Message:
        """The whole message, or the text so far. An unfinished thought has no signature and is not kept."""
        if self.done is not None:
            return self.done.message
        said = "".join(self._said).encode("utf-8", "replace")[: self._keeps].decode("utf-8", "ignore")
        return Message(Role.ASSISTANT, (TextPart(said),))

    async def read(self, events: AsyncIterator[ModelEvent]) -> ModelDone:
        """Read the stream to its end, then close it. Raises ProviderError, also if the stream has no end event."""
        try:
            async for event in events:
                match event:
                    case ModelText(text):
                        await self._say(text)
                    case ModelThought(text):
                        if text:
                            self.shown = True
                            await self._emit(ThoughtDelta(text, self._thought_id))
                    case ModelDone():
                        self.done = event
                        break
        finally:
            if isinstance(events, AsyncGenerator):
                if self.done is not None:  # nothing is left to close but the generators
                    await events.aclose()
                else:
                    with anyio.move_on_after(_CLOSING, shield=True):
                        await events.aclose()
        if self.done is None:
            raise ProviderError("the answer broke off before its end", kind=ProviderErrorKind.PROTOCOL)
        if not self._said:  # the endpoint does not stream
            await self._say(self.done.message.text)
        return self.done

    async def _say(self, text: str) -> None:
        if text:
            self._said.append(text)
            self.spoke = self.spoke or not text.isspace()
            self.shown = True
            opening, self._opening = self._opening, ""
            await self._emit(TextDelta(opening + text, self._text_id))


LIMIT = 3
"""The number of rounds with equal output, one after another, after which the model is told, or the turn ends."""

TOLD_BEFORE = 5
"""The number of model calls before the limit of a turn at which the model is told of the limit."""

_LOOKED_AT = 4_000
"""Characters at the head and at the tail of an output that are compared. This keeps a hundred calls cheap."""

_VOLATILE = lazy_regex(
    r"""
      [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}                 # UUID
    | \d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?  # ISO date and time
    | \b\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?\b                                         # time of day, stopwatch
    | \b\d+(?:\.\d+)?\s?(?:ns|[uµ]s|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b  # duration
    | \b0x[0-9a-f]+\b                                                              # address
    | \b[0-9a-f]{7,64}\b                                                           # commit, digest, epoch
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)

_OUR_IDS = lazy_regex(r'\bid="[0-9a-f]{8}"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b', re.ASCII)
"""The ids that we put around an output ourselves."""


class Repetition(Enum):
    """The result of `DoomLoop.watch`: no loop, a loop that the model must be told of, or a loop that ends the turn."""

    NONE = auto()
    TOLD = auto()
    ENDED = auto()


class DoomLoop:
    """A detector of rounds that repeat within one turn."""

    def __init__(self) -> None:
        self._last = b""
        self._equal = 0
        self._told = set[bytes]()

    def watch(self, calls: Sequence[tuple[ToolUsePart, ToolResult]]) -> Repetition:
        """Take the calls of one round, without those of polling tools, and their results. An empty round is ignored.

        Rounds are equal if their outputs are equal apart from ids, digests, times and durations. In the output of a
        call that changes nothing only our own ids are ignored, since the model may wait for the rest to change. A
        successful call is compared together with its arguments: three different commands that print nothing are no
        loop. A failed call is compared by its output alone: the same failure with ever new arguments is a loop.

        The model is told of a loop once. If it comes to the same point again, the turn ends.
        """
        if not calls:
            return Repetition.NONE
        digest = hashlib.sha256()
        for use, result in calls:
            output = _ends(result.text)
            if result.failure is None:
                arguments = use.raw_arguments if use.arguments is None else json.dumps(use.arguments, sort_keys=True)
                output = f"{use.name}\n{_ends(arguments)}\n{output}"
            volatile = _OUR_IDS if result.read_only else _VOLATILE
            digest.update(volatile.sub("~", output).encode("utf-8", "surrogatepass") + b"\0")
        round_ = digest.digest()
        self._equal = self._equal + 1 if round_ == self._last else 1
        self._last = round_
        if self._equal < LIMIT:
            return Repetition.NONE
        self._equal = 0
        if round_ in self._told:
            return Repetition.ENDED
        self._told.add(round_)
        return Repetition.TOLD


def _with_note(part: ToolResultPart, use: ToolUsePart, result: ToolResult) -> ToolResultPart:
    """Return the part of a result. If it belongs to `use`, it gets a note that the result repeats."""
    if part.id != use.id:
        return part
    note = notes.repeats(use.name, LIMIT, failed=result.failure is not None)
    return replace(part, text=f"{part.text}\n\n{note}")


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _LOOKED_AT else f"{text[:_LOOKED_AT]}{text[-_LOOKED_AT:]}"


_UNACCEPTABLE = (ProviderErrorKind.INVALID_REQUEST, ProviderErrorKind.CONTEXT_TOO_LONG)
"""Errors that would occur again with every request if the prompt stayed in the history."""

_BUDGET_STOP = 0.8
"""The fraction of the budget after which no further call is made, unless the conversation is shortened."""


_MOST_CUT_OFF = 2
"""How many answers in a row may reach the output limit in a call before the turn ends."""


@frozen
class Limits:
    """The limits at which a turn stops by itself.

    max_tool_iterations  model calls in one turn. 0 for no limit
    context_budget       tokens that the conversation may fill. None means the model's context window
    max_parallel_tools   number of tool calls of one answer that run at the same time
    max_calls            number of tool calls of one answer that run
    """

    max_tool_iterations: int = 200
    context_budget: int | None = None
    max_parallel_tools: int = 8
    max_calls: int = MOST_CALLS

    def budget(self, window: int) -> int:
        """Return the tokens that the conversation may fill in a window of this size. 0 if that is not known."""
        return min(self.context_budget or window, window or self.context_budget or 0)


class Agent:
    """One conversation. It runs one turn at a time. `provider` and `system_prompt` may change between turns.

    hooks    the parts of its turns beside the model and the tools
    failure  the error that ended the last turn, or None
    """

    def __init__(
        self,
        provider: Provider,
        toolset: Toolset,
        history: History,
        emit: EventSink,
        limits: Limits,
        system_prompt: str,
        *,
        hooks: Hooks | None = None,
    ) -> None:
        self.provider = provider
        self.toolset = toolset
        self.history = history
        self.emit = emit
        self.limits = limits
        self.system_prompt = system_prompt
        self.hooks = Hooks() if hooks is None else hooks
        self.failure: ProviderError | None = None
        self._specs: tuple[ToolSpec, ...] | None = None

    def use(self, provider: Provider, system_prompt: str, specs: Sequence[ToolSpec] | None = None) -> None:
        """Ask another model, or with another system prompt, from the next turn on.

        specs   the tools with which that turn begins; None to ask the toolset when it begins
        """
        self.provider, self.system_prompt = provider, system_prompt
        self._specs = None if specs is None else tuple(specs)

    def take_specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the turn begins with."""
        specs, self._specs = self._specs, None
        return tuple(self.toolset.specs()) if specs is None else specs

    @property
    def budget(self) -> int:
        """The tokens that the conversation may fill, 0 if that is not known."""
        return self.limits.budget(self.provider.context_window)

    async def run(self, prompt: Message, facts: str = "") -> StopReason:
        """Answer one prompt, a user message. Raises only cancellation and bugs.

        facts   what the model is told beside the user's words, in the same message
        """
        self.failure = None
        self.history.begin_turn()
        turn = _Turn(self)
        try:
            self.history.append(prompt)
            if self.hooks.began is not None:
                self.hooks.began()
            return await turn.run(prompt, facts)
        except ProviderError as error:
            self.failure = error
            return await turn.explain(error)
        except anyio.get_cancelled_exc_class():
            await self._end_work()
            by_user = self.hooks.session_ended is None or not self.hooks.session_ended()
            note = notes.CANCELLED if by_user else notes.INTERRUPTED
            self.history.append(Message(Role.USER, (TextPart(note),)))
            raise
        finally:
            await self._end_work()
            self.history.end_turn()

    async def _end_work(self) -> None:
        """End the work in the background. Repair the history and add the results of the work, for the next turn."""
        news = "" if self.hooks.reports is None else await self.hooks.reports.end()
        self.history.repair(NOT_RUN)
        if news:
            self.history.append(Message(Role.USER, (TextPart(news),)))


class _Turn:
    """The state of one turn."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._hooks = agent.hooks
        self._history = agent.history
        self._doom_loop = DoomLoop()
        self._kept_reply = False  # whether the history has any text of the model from this turn
        self._spoke = False  # whether the user saw any text in this turn
        self._shown = False  # whether the user saw anything of the last model call
        self._cut_off = 0  # answers in a row that reached the output limit in a call
        self._overflowed = False  # whether the model has refused the conversation as too long in this turn

    async def run(self, prompt: Message, facts: str) -> StopReason:
        if self._history.turn_is_empty:
            return await self._stop(StopReason.END_TURN, notes.EMPTY_PROMPT)
        self._tell_model(facts)
        hooks, toolset = self._hooks, self._agent.toolset
        if hooks.limiter is not None:
            hooks.limiter.begin()
        if hooks.observer is not None:
            hooks.observer.begin()
        if hooks.checks is not None:
            hooks.checks.begin()
        specs: tuple[ToolSpec, ...] | None = self._agent.take_specs()
        await hooks.selection.begin(prompt, specs)
        if hooks.phases is not None:
            self._tell_model(await hooks.phases.before_first_inference(prompt, toolset))
        rounds = self._agent.limits.max_tool_iterations
        for number in count(1):
            self._tell_model(hooks.reports.news() if hooks.reports is not None else "")
            stop = await self._over_budget() or await self._iterate(specs, is_last=number == rounds)
            if stop is not None:
                return stop
            specs = None
            if number == rounds:
                break
            if rounds and rounds - number == min(TOLD_BEFORE, rounds - 1):
                self._tell_model(notes.few_rounds_left(rounds - number))
        return await self._stop(StopReason.MAX_TURN_REQUESTS, notes.too_many_rounds(rounds))

    async def explain(self, error: ProviderError) -> StopReason:
        """Tell the user that a model call failed. A prompt that is never going to be accepted leaves the history."""
        kept = self._kept_reply or error.kind not in _UNACCEPTABLE
        if not kept:
            self._history.forget_turn()
        too_long = error.kind is ProviderErrorKind.CONTEXT_TOO_LONG
        stop = StopReason.MAX_TOKENS if too_long else StopReason.END_TURN
        return await self._stop(stop, notes.provider_failed(error, prompt_kept=kept))

    async def _iterate(self, specs: tuple[ToolSpec, ...] | None, *, is_last: bool) -> StopReason | None:
        """Make one model call and run its tools. Return None if the model wants to go on.

        specs   the tools that it may call; None to ask for them
        """
        specs = tuple(self._agent.toolset.specs()) if specs is None else specs
        done, received = await self._call_model(specs)
        uses = self._history.open_calls
        if done.stop is ModelStop.MAX_TOKENS:
            return await self._cut_short(in_call=bool(uses))
        if done.stop is ModelStop.REFUSAL:
            self._history.forget_turn()
            return await self._stop(StopReason.REFUSAL, notes.REFUSAL)
        self._cut_off = 0
        if not uses:
            return await self._answered(is_last=is_last)
        calls, hooks, toolset = ToolCalls(received), self._hooks, self._agent.toolset
        polling = {spec.name for spec in specs if spec.polls}
        try:
            await calls.run(toolset, self._agent.limits.max_parallel_tools)
        finally:  # every call gets a result in the history, however the turn ends
            outcomes = calls.outcomes(hooks.printed)
            counted = [outcome for outcome in outcomes if tool_id(outcome[0].name) not in polling]
            repetition = self._doom_loop.watch(counted)
            results = [result_part(use.id, result) for use, result in outcomes]
            if repetition is Repetition.TOLD:
                results = [_with_note(part, *counted[-1]) for part in results]
            self._history.append(Message(Role.USER, tuple(results)))
            hooks.selection.finished(outcomes)
        if hooks.observer is not None:
            self._tell_model(hooks.observer.finished(outcomes))
        if repetition is Repetition.ENDED and not is_last:  # the iteration cap takes precedence
            return await self._stop(StopReason.END_TURN, notes.DOOM_LOOP)
        if hooks.phases is not None:
            self._tell_model(await hooks.phases.after_round(outcomes, toolset))
        return None

    async def _cut_short(self, *, in_call: bool) -> StopReason | None:
        """Go on after a call that the output limit cut, so that the model tries a smaller one. Else end the turn."""
        self._history.repair(CUT_OFF)
        self._cut_off += 1
        if in_call and self._cut_off <= _MOST_CUT_OFF:
            return None
        return await self._stop(StopReason.MAX_TOKENS, notes.CUT_OFF_IN_CALL if in_call else notes.CUT_OFF)

    async def _answered(self, *, is_last: bool) -> StopReason | None:
        """End the turn, as the model wants. Return None if it must read something first."""
        hooks, note = self._hooks, "" if self._spoke else notes.EMPTY_ANSWER
        news = await hooks.reports.wait() if hooks.reports is not None and not is_last else ""
        if not news and hooks.checks is not None:
            check = await hooks.checks.answered(is_last=is_last)
            news, note = check.feedback, check.note or note
        if news:
            self._tell_model(news)
            return None
        return await self._stop(StopReason.END_TURN, note)

    async def _call_model(self, specs: tuple[ToolSpec, ...]) -> tuple[ModelDone, Received]:
        """Call the model. Return the end of the call and the answer as the history keeps it.

        If the conversation is too long for the model after all, it is shortened and sent again, once a turn.
        """
        try:
            return await self._read_reply(specs)
        except ProviderError as error:
            if error.kind is not ProviderErrorKind.CONTEXT_TOO_LONG or self._shown or self._overflowed:
                raise
            self._overflowed = True
            if self._hooks.limiter is None or not await self._hooks.limiter.shorten():
                raise
        return await self._read_reply(specs)

    async def _read_reply(self, specs: tuple[ToolSpec, ...]) -> tuple[ModelDone, Received]:
        """Send one request. Even a failed answer joins the history, without what the tool selection had added."""
        agent, hooks = self._agent, self._hooks
        offered = tuple(hooks.selection.offered(specs))
        request = ModelRequest(agent.system_prompt, self._history.messages(), offered)
        # An unfinished reply may fill a quarter of the budget: a byte for each token of it, and a token has about four.
        reply = Reply(agent.emit, keeps=agent.budget, opening=PARAGRAPH if self._spoke else "")
        try:
            done = await reply.read(agent.provider.stream(request))
        finally:
            fit = with_fit_calls(reply.message, self._history.call_ids, agent.limits.max_calls)
            received = hooks.selection.received(fit.message)
            if fit.answered:
                received = replace(received, answered={**received.answered, **fit.answered})
            self._kept_reply = self._history.append(received.message) or self._kept_reply
            self._shown = reply.shown
            self._spoke = self._spoke or reply.spoke
        if done.usage.context > done.usage.output:  # else the prompt was not counted
            self._history.measured(done.usage.context)
        await agent.emit(UsageChanged(self._history.estimate(), agent.provider.context_window))
        return done, received

    def _tell_model(self, note: str | None) -> None:
        """Add a text of ours behind the prompt or the results, in the same message."""
        if note:
            self._history.append(Message(Role.USER, (TextPart(note),)))

    async def _over_budget(self) -> StopReason | None:
        budget, limiter = self._agent.budget, self._hooks.limiter
        if not budget or (limiter is not None and await limiter.make_room(budget)):
            return None
        used = self._history.estimate()
        if used <= budget * _BUDGET_STOP:
            return None
        if not self._kept_reply:
            self._history.forget_turn()
        return await self._stop(StopReason.MAX_TOKENS, notes.over_budget(used, budget, prompt_kept=self._kept_reply))

    async def _stop(self, reason: StopReason, note: str) -> StopReason:
        if note:
            await self._agent.emit(TextDelta(f"{PARAGRAPH}{note}" if self._spoke else note, str(uuid4())))
        return reason
