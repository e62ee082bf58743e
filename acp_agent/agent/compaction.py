"""Keeps a conversation within the context of the model.

    soft threshold (60 %)   Old tool outputs are replaced by one line each, until two thirds of the threshold are
                            reached. No model is called. Since the prompt cache is lost, this is done only if it leads
                            well below the threshold.
    hard threshold (90 %)   A model writes a summary of everything before the current turn. If that does not lead
                            under the soft threshold, it covers the turn, too, except its prompt and the last rounds.
    /compact, compress_context   The user or the model asks for such a summary.
    context too long        The model refused the request. A summary is written, then every old output is replaced
                            except those of the last round.
    newest outputs          If they alone are too long, they are cut, so that the turn goes on.

Summaries form the knowledge block at the head of the conversation. They stay byte for byte until the block fills a
quarter of the budget; the next summary then covers the block, too. Messages are removed only after their summary has
arrived, so a failure loses nothing.
"""

import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Self
from uuid import uuid4

import anyio
from anyio import to_thread

from acp_agent.agent import summary
from acp_agent.agent.history import History, messages_tokens, part_tokens, parts_tokens
from acp_agent.core.data import frozen
from acp_agent.core.errors import AgentError, ProviderError, ProviderErrorKind, StoreUnavailable, ToolError
from acp_agent.core.events import CompactionChanged, CompactionStatus, EventSink, Notice, Severity
from acp_agent.core.messages import Message, Role, ToolResultPart
from acp_agent.core.ports import Provider
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.services import Compaction, Summaries, Summary
from acp_agent.core.sessions import OVERFLOW_PREFIX
from acp_agent.text import clip, counted

_TELLING = 2.0  # seconds that a cancelled turn waits for a slow editor


class CompactionProgress:
    """The progress of one compaction, reported to the user. A compaction that never began is not reported.

    If the block ends before `completed`, it is reported as failed for an AgentError, and as cancelled otherwise.
    """

    def __init__(self, emit: EventSink) -> None:
        self._emit = emit
        self._id = str(uuid4())
        self._open = False

    async def begun(self) -> None:
        """Report that a model is asked for the summary now."""
        self._open = True
        await self._emit(CompactionChanged(self._id, CompactionStatus.IN_PROGRESS))

    async def completed(self, summary: str) -> None:
        """Report that the summary has replaced the messages."""
        await self._end(CompactionStatus.COMPLETED, summary)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AgentError):
            await self._end(CompactionStatus.FAILED, error=str(error))
        await self._end(CompactionStatus.CANCELLED)

    async def _end(self, status: CompactionStatus, summary: str = "", error: str = "") -> None:
        if self._open:
            self._open = False
            with anyio.move_on_after(_TELLING, shield=True):  # a cancellation of the turn must not stop it
                await self._emit(CompactionChanged(self._id, status, summary, error))


_WORTH_IT = 100  # an output with fewer tokens is not cleared
_REFERENCE = re.compile(rf"{OVERFLOW_PREFIX}[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}", re.ASCII)


@frozen
class Pruning:
    """The results to replace, by id, and the estimated number of tokens that this frees."""

    stubs: dict[str, ToolResultPart] = field(default_factory=dict[str, ToolResultPart])
    freed: int = 0


def pruning(messages: Sequence[Message], wanted: float, *, kept_rounds: int) -> Pruning:
    """Plan to clear outputs, the oldest first, until `wanted` tokens are free. The last `kept_rounds` rounds stay.

    A cleared output keeps its id and whether it was an error, so it still answers its call.
    """
    names = {use.id: use.name for message in messages if message.role is Role.ASSISTANT for use in message.tool_uses}
    rounds = [message for message in messages if isinstance(message.parts[0], ToolResultPart)]  # results stand first
    stubs: dict[str, ToolResultPart] = {}
    freed = 0
    for message in rounds[: max(0, len(rounds) - kept_rounds)]:
        for part in message.parts:
            if freed >= wanted:
                return Pruning(stubs, freed)
            if isinstance(part, ToolResultPart) and (tokens := part_tokens(part)) >= _WORTH_IT:
                stubs[part.id] = ToolResultPart(part.id, _stub(names[part.id], part), part.is_error)
                freed += tokens - part_tokens(stubs[part.id])
    return Pruning(stubs, freed)


def _stub(name: str, part: ToolResultPart) -> str:
    pictures = f" and {len(part.images)} images" if part.images else ""
    again = "If it is still needed, make the call again."
    if references := _REFERENCE.findall(part.text):  # the last one is ours
        again = f"The whole output is {references[-1]}: read_overflow reads or searches it."
    return f"[The output of {name} was cleared to save room: {len(part.text):,} characters{pictures}. {again}]"


_SHORTEST = 1_000  # characters of an output that is cut
_CUT = "[This output was cut, because the conversation fills the context. Ask for less at a time.]"


def cutting(messages: Sequence[Message], wanted: float) -> Pruning:
    """Plan to cut the longest outputs of all rounds, until `wanted` tokens are free. At last, their pictures go."""
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResultPart)]
    plan, limit = Pruning(), max((len(part.text) for part in results), default=0) + _SHORTEST
    while plan.freed < wanted and limit > _SHORTEST:
        limit = max(limit * 4 // 5, _SHORTEST)
        shorter = {part.id: _shorter(part, limit) for part in results}
        saved = {part.id: part_tokens(part) - part_tokens(shorter[part.id]) for part in results}
        gains = {id_: tokens for id_, tokens in saved.items() if tokens > 0}
        plan = Pruning({id_: shorter[id_] for id_ in gains}, sum(gains.values()))
    return plan


def _shorter(part: ToolResultPart, limit: int) -> ToolResultPart:
    text, images = part.text.removesuffix(f"\n{_CUT}"), part.images
    if images and limit == _SHORTEST:
        text, images = f"{text}\n[{counted(len(images), 'image')} left out]", ()
    elif len(text) <= limit:
        return part
    return replace(part, text=f"{clip(text, limit)}\n{_CUT}", images=images)


_WINDOW = 32_000  # tokens assumed for a model whose context window is not known
_SUMMARY = (256, 4_000)  # fewest and most tokens of a summary
_SUMMARY_PART = 20  # a summary may have this fraction (1/20) of the budget
_KNOWLEDGE_PART = 4  # fraction (1/4) of the budget at which the knowledge block is summed up itself
_DOWN_TO = 2 / 3  # of the soft threshold: where clearing stops
_WELL_UNDER = 5 / 6  # of the soft threshold: clearing must reach this to be worth the prompt cache
_MUCH = 0.1  # of the budget: what clearing must free so that it comes before a summary of the running turn
_LOOK_AGAIN = 0.05  # of the budget: how much must be added before clearing is planned again
_KEPT_ROUNDS = 2  # rounds whose outputs are not cleared, unless a summary is not enough
_REFUSED = 3 / 4  # of a conversation that the model refused as too long: the most that is sent again


@frozen
class Thresholds:
    """Fractions of the budget at which the conversation is shortened. `soft` is below `hard`.

    automatic   False if only the user or the model may ask for it
    """

    soft: float = 0.6
    hard: float = 0.9
    automatic: bool = True


@frozen
class SummarySettings:
    """The settings of summaries.

    provider   returns the model that writes them, or raises an AgentError that says what is missing
    summaries  the store of summaries, or None
    redact     removes secrets from the request and from the answer. It may be called in any thread
    seconds    the time a summary may take
    """

    provider: Callable[[], Awaitable[Provider]]
    summaries: Summaries | None = None
    redact: Redact = verbatim
    seconds: float = 120.0


class Compactor:
    """A shortener of one conversation, for turns, and as a `Compressor` for `compress_context`.

    budget   returns the tokens that the conversation may fill, 0 if that is not known
    """

    def __init__(
        self,
        history: History,
        emit: EventSink,
        summarizing: SummarySettings,
        budget: Callable[[], int],
        thresholds: Thresholds,
    ) -> None:
        self._history = history
        self._emit = emit
        self._summarizing = summarizing
        self._budget = budget
        self._thresholds = thresholds
        self._running = False
        self._failed = False  # in this turn: after one failure no further summary is tried
        self._count = 0
        self._no_use_up_to = 0.0  # tokens up to which clearing is known not to help

    # ------------------------------------------------------------------------------ for the loop

    def begin(self) -> None:
        self._failed = False

    async def make_room(self, budget: int) -> bool:
        """Shorten the conversation before a model call if that is due. `budget` is in tokens and positive.

        Return False if there may be too little room, so that the turn stops early. Raises only cancellation.
        """
        used, limits = self._history.estimate(), self._thresholds
        if not limits.automatic:
            return False
        if used <= budget * limits.soft:
            return True
        if self._no_use_up_to >= used <= budget * limits.hard:
            return True
        plan = pruning(self._history.messages(), used - budget * limits.soft * _DOWN_TO, kept_rounds=_KEPT_ROUNDS)
        if used - plan.freed <= budget * limits.soft * _WELL_UNDER:
            await self._prune(plan)
            return True
        if used <= budget * limits.hard:
            self._no_use_up_to = used + budget * _LOOK_AGAIN
            return True
        if not self._history.earlier and used - plan.freed <= budget * limits.hard and plan.freed >= budget * _MUCH:
            await self._prune(plan)  # before a summary takes rounds of the turn itself
            return True
        if not await self._triggered() and plan.stubs:
            await self._prune(plan)
        if self._history.estimate() > budget * limits.hard:
            await self._cut(budget * (limits.soft + limits.hard) / 2)
        return self._history.estimate() <= budget * limits.hard

    async def shorten(self) -> bool:
        """Shorten the conversation as far as possible, because the model refused it. Return whether it is shorter."""
        before = self._history.estimate()
        if not self._thresholds.automatic:
            return False
        await self._triggered()
        plan = pruning(self._history.messages(), math.inf, kept_rounds=1)
        if plan.stubs:
            await self._prune(plan)
        if self._history.estimate() > before * _REFUSED:
            await self._cut(before * _REFUSED)
        return self._history.estimate() < before

    async def _cut(self, room: float) -> None:
        """Bring the conversation down to `room` tokens: clear the outputs before the last round, then cut the rest."""
        plan = pruning(self._history.messages(), self._history.estimate() - room, kept_rounds=1)
        if plan.stubs:
            await self._prune(plan)
        before = self._history.estimate()
        plan = cutting(self._history.messages(), before - room) if before > room else Pruning()
        if plan.stubs:
            self._history.replace_results(plan.stubs)
            what = counted(len(plan.stubs), "tool output")
            told = f"Cut {what} to fit the context: {_tokens(before, self._history.estimate())}."
            await self._emit(Notice(Severity.INFO, told))

    async def _triggered(self) -> bool:
        """Summarize, unless that has failed in this turn or would save nothing. Return whether it succeeded."""
        earlier, used = self._history.earlier, self._history.estimate()
        long = not earlier or used - messages_tokens(earlier) > self._budget() * self._thresholds.soft
        begun = self._history.begun(_KEPT_ROUNDS) if long else ()
        if self._failed or messages_tokens((*earlier, *begun[1:])) < _summary_tokens(self._budget()) // 2:
            return False
        try:
            told = await self.compact(Compaction.TRIGGERED, begun=begun)
        except ToolError as error:
            self._failed = True
            await self._emit(Notice(Severity.WARNING, str(error)))
            return False
        await self._emit(Notice(Severity.INFO, told))
        return True

    async def _prune(self, plan: Pruning) -> None:
        before = self._history.estimate()
        self._history.replace_results(plan.stubs)
        told = f"Cleared {len(plan.stubs)} old tool outputs: {_tokens(before, self._history.estimate())}."
        await self._emit(Notice(Severity.INFO, told))

    # ------------------------------------------------------------------------- for other callers

    async def compress(self, focus: str) -> str:
        told = await self.compact(Compaction.AUTONOMOUS, focus)
        await self._emit(Notice(Severity.INFO, told))
        return told

    async def compact(self, method: Compaction, focus: str = "", begun: Sequence[Message] = ()) -> str:
        """Replace everything before the current turn by a summary. Return one line that says what was done.

        focus   what the summary must keep above all, in the words of the user or the model
        begun   the prompt of the current turn, which stays, and the rounds behind it that the summary replaces as well

        Raises:
            ToolError: permanent_failure if there is nothing to sum up, no summary came, or another one is being
                written. The conversation is unchanged.

        """
        if self._running:
            raise _nothing_removed("a summary is being written already")
        self._running = True
        try:
            async with CompactionProgress(self._emit) as card:
                return await self._compact(method, focus, begun, card)
        finally:
            self._running = False

    def clear(self) -> None:
        """Forget the counts, because a new conversation begins."""
        self._failed, self._count, self._no_use_up_to = False, 0, 0.0

    def status(self) -> Sequence[str]:
        """Return lines for /status. None while compaction is off and nothing was summed up."""
        limits, used, budget = self._thresholds, self._history.estimate(), self._budget()
        if not limits.automatic and not self._count:
            return ()
        when = "old messages are summed up on request only"
        if limits.automatic:
            when = f"old output is left out at {limits.soft:.0%}, old messages are summed up at {limits.hard:.0%}"
        return (f"Context: {used:,} of {budget:,} tokens; {when}; summaries: {self._count}",)

    async def _compact(self, method: Compaction, focus: str, begun: Sequence[Message], card: CompactionProgress) -> str:
        history, budget = self._history, self._budget() or _WINDOW
        earlier = history.earlier
        if not (earlier or begun):
            raise _nothing_removed("there is nothing before the current turn")
        kept = history.knowledge
        covered = parts_tokens(kept) > budget // _KNOWLEDGE_PART
        old = (Message(Role.USER, kept), *earlier) if covered else earlier
        gone, before = (*old, *begun[1:]), history.estimate()
        replaced = messages_tokens(gone)
        tokens = _summary_tokens(budget)
        record = await self._record((*old, *begun), focus, tokens, card)
        section = summary.section(record, of_turn=bool(begun))
        if part_tokens(section) >= replaced:
            raise _nothing_removed("the summary was no shorter")
        history.sum_up((section,) if covered else (*kept, section), len(begun[1:]))
        self._count += 1
        self._no_use_up_to = 0.0
        await card.completed(record)
        await self._store(Summary(record, method, len(gone), replaced))
        said = _tokens(before, history.estimate())
        return f"Summed up {len(gone)} older messages ({method}): {said}."

    async def _record(self, messages: Sequence[Message], focus: str, tokens: int, card: CompactionProgress) -> str:
        """Ask for the summary and return it as the history stores it. Raises ToolError."""
        how = self._summarizing
        try:
            provider = await how.provider()
            await card.begun()
            room = (provider.context_window or _WINDOW) // 2
            try:
                text = await self._ask(provider, messages, focus, room, tokens)
            except ProviderError as error:
                if error.kind is not ProviderErrorKind.CONTEXT_TOO_LONG and not isinstance(error, summary.EmptySummary):
                    raise
                # A fallback model with a smaller window may have answered.
                room = min(room, (provider.context_window or _WINDOW) // 2)
                text = await self._ask(provider, messages, focus, room // 4, tokens)
        except AgentError as error:
            raise _nothing_removed(str(error).rstrip(".")) from error
        return summary.fit(how.redact(text), tokens)

    async def _ask(self, provider: Provider, messages: Sequence[Message], focus: str, room: int, tokens: int) -> str:
        asked = partial(
            summary.summary_request, messages, focus, room=room, tokens=tokens, redact=self._summarizing.redact
        )
        request = await to_thread.run_sync(asked, abandon_on_cancel=True)
        done = await summary.ask(provider, request, seconds=self._summarizing.seconds)
        return done.message.text

    async def _store(self, made: Summary) -> None:
        if self._summarizing.summaries is None:
            return
        try:
            await self._summarizing.summaries.add(made)
        except StoreUnavailable as error:
            await self._emit(Notice(Severity.WARNING, f"The summary was not stored: {error}"))


CompactorFactory = Callable[[History, EventSink, Callable[[], int]], Compactor]
"""Makes the compactor of a conversation. The last argument returns the tokens that the conversation may fill."""


def _summary_tokens(budget: int) -> int:
    """Return the most tokens of a summary."""
    return min(max(budget // _SUMMARY_PART, _SUMMARY[0]), _SUMMARY[1])


def _tokens(before: int, after: int) -> str:
    return f"about {before:,} -> {after:,} tokens"


def _nothing_removed(why: str) -> ToolError:
    return ToolError.permanent(f"The conversation was not summed up: {why}. Nothing was removed.")
