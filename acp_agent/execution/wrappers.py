"""The executors between the gates and a tool, outermost first: cache( output( retry( changes( tool )))).

The cache keeps the results of reading calls until something changes. It is inside the gates, so that a kept result does
not get around a denial, and outside of the output pipeline, so that kept results are redacted. A kept result replaces
only the tool: audit, events and the loop see every call.

The output pipeline redacts, filters and cuts a result. A retry after a network error is no new call: it does not ask
the user and does not count for a quota. Only the last result is filtered, cached, recorded and read by the model.
"""

import asyncio
import hashlib
import json
import random
import sys
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

import anyio
import anyio.to_thread

from acp_agent.core.data import frozen
from acp_agent.core.errors import StoreUnavailable, ToolErrorCategory, ToolFailure
from acp_agent.core.services import Overflow
from acp_agent.core.types import (
    Access,
    AgentSubject,
    CallOrigin,
    Frame,
    Json,
    JsonObject,
    Location,
    McpSubject,
    PathSubject,
    ToolResult,
    UrlSubject,
)
from acp_agent.execution.runner import ToolExecutor
from acp_agent.gates.gate import CallFacts
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.log import Log
from acp_agent.output.filters.strategy import CommandRun
from acp_agent.output.pipeline import Pipeline, ResultSource
from acp_agent.text import visible
from acp_agent.tools.tool import changed as changes_of
from acp_agent.tools.tool import relative
from acp_agent.workspace.changed_files import MOST_DIFFS, CommandChanges, FileWatch
from acp_agent.workspace.glob import Glob
from acp_agent.workspace.snapshots import EntryChange
from acp_agent.workspace.undo import UndoError

_THINKING = "_tafc_think"
"""An argument in which some models think aloud. Calls that differ only in it are equal."""

Stamp: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Returns a text that differs for each state of the file at a call's path, or None. It never raises."""


@frozen
class Key:
    """The identity of a call: equal calls have equal keys.

    digest    of its arguments, its subjects and the state of the files that it reads
    lasting   whether its result is valid in later turns too, although the user may change files between two turns
    """

    tool: str
    digest: str
    lasting: bool


@frozen
class _Entry:
    """A result, its size in bytes, and the time at which it was stored."""

    result: ToolResult
    size: int
    since: float


class ResultCache:
    """The kept results of one session. Only one event loop may use them, no threads.

    enabled      whether results are kept
    ttl          the seconds for which a result is valid; 0 until something changes
    max_entries, max_bytes   the limits beyond which the least recently used results are removed
    now          returns the time in seconds
    unsettled    returns whether a command runs beside the calls: it may change files at any time
    hits, misses   the counts of `get` since the start or the last `clear`
    generation   the number of changes so far; a call notes it at its beginning, for `put`
    """

    def __init__(
        self,
        *,
        enabled: bool = True,
        ttl: float = 300.0,
        max_entries: int = 256,
        max_bytes: int = 16 * 1024 * 1024,
        now: Callable[[], float] = monotonic,
        unsettled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.enabled = enabled
        self.unsettled = unsettled
        self.hits = 0
        self.misses = 0
        self._ttl = ttl
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._now = now
        self._entries = OrderedDict[Key, _Entry]()
        self._bytes = 0
        self._changing = 0
        self.generation = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> ToolResult | None:
        """Return the kept result for a key if it is still valid."""
        entry = self._entries.get(key)
        if entry is not None and self._ttl and self._now() - entry.since >= self._ttl:
            self._drop(key)
            entry = None
        if entry is None:
            self.misses += 1
            return None
        self._entries.move_to_end(key)
        self.hits += 1
        return entry.result

    def put(self, key: Key, result: ToolResult, generation: int) -> None:
        """Keep a result, unless something changed since `generation` or is changing now."""
        size = _size(result)
        if not self.enabled or self._changing or generation != self.generation or size > self._max_bytes:
            return
        self._drop(key)
        self._entries[key] = _Entry(result, size, self._now())
        self._bytes += size
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    @contextmanager
    def changing(self) -> Generator[None]:
        """Empty the cache before and after the block, and keep nothing meanwhile, since something changes."""
        self._empty()
        self._changing += 1
        try:
            yield
        finally:
            self._changing -= 1
            self._empty()

    def turn_began(self) -> None:
        """Remove the results that changes of the user since the last turn may have made wrong."""
        self.generation += 1
        for key in [key for key in self._entries if not key.lasting]:
            self._drop(key)

    def clear(self) -> None:
        """Remove everything and reset the counts, for `/clear`."""
        self._empty()
        self.hits = self.misses = 0

    def _empty(self) -> None:
        self.generation += 1
        self._entries.clear()
        self._bytes = 0

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


class CacheExecutor:
    """An executor that answers equal calls of cacheable tools with the kept result, marked as `cached`.

    A call that changes something empties the cache before and after it runs. If a call reads files, its key has their
    stamps from before the call: if a file changed meanwhile, no later call has the old stamp. The result of a call that
    reads a file without a stamp is never kept. The result of a search is neither kept nor used while files are
    `unsettled`.
    """

    def __init__(self, wrapped: ToolExecutor, cache: ResultCache, stamp: Stamp) -> None:
        self._wrapped = wrapped
        self._cache = cache
        self._stamp = stamp

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Return the kept result of an equal call, or run the call."""
        if facts.spec.mutates:
            with self._cache.changing():
                return await self._wrapped.execute(facts)
        generation = self._cache.generation
        key = await self._key(facts) if facts.spec.cacheable and self._cache.enabled else None
        if key is None:
            return await self._wrapped.execute(facts)
        kept = self._cache.get(key)
        if kept is not None:
            return replace(kept, cached=True)
        result = await self._wrapped.execute(facts)
        if result.failure is None:
            self._cache.put(key, result, generation)
        return result

    async def _key(self, facts: CallFacts) -> Key | None:
        """Return the key of a call, or None if it reads files whose state is unknown."""
        stamps: list[str] = []
        lasting = bool(facts.subjects)
        for subject in facts.subjects:
            match subject:
                case PathSubject(path, Access.READ):
                    stamp = await self._stamp(path)
                    if stamp is None:
                        return None
                    stamps.append(stamp)
                case UrlSubject():
                    pass
                case _ if self._cache.unsettled():
                    return None
                case _:
                    lasting = False
        return Key(facts.spec.name, _digest(facts, stamps), lasting)


def _digest(facts: CallFacts, stamps: list[str]) -> str:
    """Return the SHA-256 over sorted arguments, subjects (such as the commands that a tool chose) and stamps.

    Each agent reads a file itself, since the tool notes which agent knows which text of it.
    """
    reader = facts.call.agent.id if stamps and facts.call.agent is not None else ""
    arguments = {key: value for key, value in (facts.call.arguments or {}).items() if key != _THINKING}
    asked = (reader, json.dumps(arguments, sort_keys=True), *map(repr, facts.subjects), *stamps)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _size(result: ToolResult) -> int:
    """Return the bytes of a result's texts and pictures in memory."""
    frame = result.frame
    words = (result.text, result.display or "", *((frame.head, frame.headline, frame.ending) if frame else ()))
    pictures = (image.data for image in result.images)
    return sum(map(sys.getsizeof, (*words, *pictures))) + _json_size(result.envelope)


def _json_size(value: Json) -> int:
    match value:
        case dict():
            return sum(sys.getsizeof(key) + _json_size(each) for key, each in value.items())
        case list():
            return sum(map(_json_size, value))
        case _:
            return sys.getsizeof(value)


_LOAD_AFTER = 0.02
"""Seconds that a command runs until the filters are loaded. Most commands end before and print little."""
_INLINE_LIMIT = 16 * 1024
"""The most characters for which a thread would cost more than the work."""

Summarize: TypeAlias = Callable[[str], Awaitable[str]]
"""Returns a summary of a long text by a model; "" if that failed."""


class OutputExecutor:
    """An executor that passes every result through the output pipeline.

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
        """Run the call and return its result as its readers get it. Load the filters while a command runs."""
        later: asyncio.TimerHandle | None = None
        if facts.commands and not self._pipeline.is_loaded:
            later = asyncio.get_running_loop().call_later(_LOAD_AFTER, self._load)
        try:
            result = await self._wrapped.execute(facts)
        finally:
            if later is not None:
                later.cancel()
        source = _result_source(facts, result)
        if _output_size(result) < _INLINE_LIMIT:
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

    def _load(self) -> None:
        with suppress(RuntimeError):  # no thread can be started: the output waits instead
            threading.Thread(target=self._pipeline.load, daemon=True).start()


def _result_source(facts: CallFacts, result: ToolResult) -> ResultSource:
    run, source, envelope = None, None, result.envelope or {}
    landed = envelope.get("url")  # the URL after redirects
    if facts.commands and "exit_code" in envelope:  # a call that failed before has none
        line, code = facts.commands[-1], envelope["exit_code"]
        run = CommandRun(line.text, printing_commands(line), code if isinstance(code, int) else None)
    for subject in facts.subjects:
        match subject:
            case UrlSubject(url):
                source = landed if isinstance(landed, str) else url
            case McpSubject(source) | AgentSubject(source):
                pass
            case _:
                pass
    return ResultSource(facts.spec, facts.call.id, run, source)


def _output_size(result: ToolResult) -> int:
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


_MOST_NAMED = 20
"""Changed files that the model is told by name."""


Later: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, object]]], None]
"""Starts a task and does not wait for it."""


@frozen
class Transaction:
    """The rules for the changes of a command that fails (`[tools.shell] transactional`).

    scope        the paths, relative to the session's folder, whose changes are taken back
    rolls_back   whether any changes are taken back
    codes        the exit codes of a command that count as failed
    required     whether a command is refused if its changes could not be taken back
    """

    scope: tuple[Glob, ...]
    rolls_back: bool
    codes: tuple[int, ...]
    required: bool

    def rolled_back(self, result: ToolResult, found: CommandChanges, cwd: str) -> Sequence[EntryChange]:
        """Return the changes that are to be taken back after a command."""
        failed = self.rolls_back and (result.envelope or {}).get("exit_code") in self.codes
        named = [(each, relative(each.path, cwd)) for each in found.entries] if failed else ()
        return [each for each, path in named if any(glob.matches_whole(path) for glob in self.scope)]


def _ended(result: ToolResult, line: str) -> ToolResult:
    """Return a result with one more line after its text."""
    frame = result.frame or Frame()
    return replace(result, frame=replace(frame, ending="\n".join(filter(None, (frame.ending, line)))))


class ChangesExecutor:
    """An executor that notes for `/undo` what a call changes, and shows which files a command or server has changed.

    The user is shown diffs, the model one line with the names. The files are not looked at for a call that is proven
    only to read. If the folders have too many entries to look at, one line says so once.

    watch         looks at the files below the session's roots
    shown         whether changes are shown, or only noted
    transaction   the rules for the changes of a command that fails; None to keep them
    later         starts the look after a cancelled call, when its turn is answered and its commands have ended. None
                  makes the call wait for the look
    """

    def __init__(
        self,
        wrapped: ToolExecutor,
        watch: FileWatch,
        *,
        shown: bool = True,
        transaction: Transaction | None = None,
        later: Later | None = None,
    ) -> None:
        self._wrapped = wrapped
        self._later = later
        self._watch = watch
        self._is_shown = shown
        self._transaction = transaction
        self._told_limit = False

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Run the call. Look at all files before and after it, or only at those that its tool names."""
        paths = [each for each in facts.paths if each.access.changes]
        anything = bool(facts.commands) or (facts.spec.mutates and bool(facts.spec.server))
        if facts.only_reads or not (anything or paths):
            return await self._wrapped.execute(facts)
        places = None if anything else paths
        users = facts.call.origin is CallOrigin.USER
        before = await anyio.to_thread.run_sync(self._watch.before, places, abandon_on_cancel=True)
        rules = self._transaction if facts.commands and not users else None
        trouble = self._watch.trouble if rules else ""
        if trouble and rules and rules.required:
            why = f"the command did not run, because its changes could not be taken back: {trouble}"
            return ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, why))
        look, found, cancelled = partial(self._watch.since, before, noted=not users), CommandChanges(), False
        try:
            result = await self._wrapped.execute(facts)
        except anyio.get_cancelled_exc_class():
            cancelled = True
            raise
        finally:  # what a cancelled call has changed can be taken back too
            found = await self._found(facts, look, cancelled=cancelled)
        if not users and (found.changed or found.deleted or (paths and result.failure is None)):
            self._watch.count_change()
        if rules is not None:
            result = _ended(result, f"[changes could not be taken back: {trouble}]") if trouble else result
            changes = rules.rolled_back(result, found, self._watch.cwd)
            if changes:
                return await anyio.to_thread.run_sync(self._rolled_back, result, changes)
        line = self._line(found) if self._is_shown and anything else ""
        if not line:
            return result
        diffs = (*result.diffs, *found.diffs)
        lines = {each.path: each.line for each in changes_of(diffs)}
        locations = [Location(path, lines.get(path)) for path in found.changed[:MOST_DIFFS]]
        return replace(_ended(result, line), diffs=diffs, locations=(*result.locations, *locations))

    async def _found(self, facts: CallFacts, look: Callable[[], CommandChanges], *, cancelled: bool) -> CommandChanges:
        """Return what a call has changed. For a cancelled call, look later if possible, and return nothing now."""
        found = CommandChanges()
        if cancelled and self._later is not None:
            facts.clean_up.append(partial(self._note, self._later, look))  # after the clean-up of its command
        else:
            with anyio.CancelScope(shield=True):
                found = await anyio.to_thread.run_sync(look)
        return found

    @staticmethod
    async def _note(later: Later, look: Callable[[], CommandChanges]) -> None:
        later(partial(anyio.to_thread.run_sync, look))

    def _rolled_back(self, result: ToolResult, changes: Sequence[EntryChange]) -> ToolResult:
        """Take back the changes of a failed command. Return its result with a line about this."""
        try:
            restored = self._watch.roll_back(changes)
        except UndoError as error:
            failure = ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, f"its changes were not all taken back: {error}")
            return replace(_ended(result, f"[the command failed; {failure.message}]"), failure=failure)
        made = {each.path for each in changes if each.before is None}
        deleted = sum(path in made for path in restored.paths)
        kept = len(restored.paths) - deleted
        told = f"[the command failed, so what it changed was taken back: {kept} restored, {deleted} deleted]"
        counts: JsonObject = {"restored": kept, "deleted": deleted}
        return replace(_ended(result, told), envelope={**(result.envelope or {}), "rollback": counts})

    def _line(self, found: CommandChanges) -> str:
        parts: list[str] = []
        for what, paths in (("changed", found.changed), ("deleted", found.deleted)):
            names = [visible(relative(path, self._watch.cwd)) for path in paths[:_MOST_NAMED]]
            names += [f"and {len(paths) - _MOST_NAMED} more"] if len(paths) > _MOST_NAMED else []
            parts += [f"{what}: {', '.join(names)}"] if names else []
        if self._watch.limit and not self._told_limit:
            self._told_limit = True
            parts = [f"changed files are not named: over {self._watch.limit:,} entries below the session's folders"]
        return f"[{'; '.join(parts)}]" if parts else ""


_log = Log(__name__)


@frozen
class ToolRetries:
    """The limits for repeating a call. All times are in seconds.

    attempts        further attempts after the first one; 0 for none
    base, longest   the n-th wait, counted from 0, is random between 0 and base * 2**n, at most `longest` (full jitter)
    budget          for all attempts of a call and the waits between them; the first attempt alone may take longer
    """

    attempts: int = 2
    base: float = 0.5
    longest: float = 5.0
    budget: float = 30.0

    def wait(self, number: int, chance: float) -> float:
        """Return the seconds before a repetition, counted from 0. `chance` is in [0, 1]."""
        return chance * min(self.base * 2.0 ** min(number, 64), self.longest)


class RetryExecutor:
    """An executor that repeats a call that failed with one of the four retryable categories.

    A call that changes something or runs a command is never repeated. An attempt that runs when the budget ends is
    cancelled, and the failure before it is returned.

    clock, sleep, chance   for tests; `chance` returns a number in [0, 1)
    """

    def __init__(
        self,
        wrapped: ToolExecutor,
        retries: ToolRetries,
        *,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._wrapped = wrapped
        self._retries = retries
        self._clock = clock
        self._sleep = sleep
        self._chance = chance

    async def execute(self, facts: CallFacts) -> ToolResult:
        """Run the call, several times if necessary."""
        begun = self._clock()
        result = await self._wrapped.execute(facts)
        repeatable = not (facts.spec.mutates or facts.commands)  # a command may change anything
        while repeatable and facts.attempts <= self._retries.attempts and result.failure is not None:
            if not result.failure.category.retryable:
                break
            wait = self._retries.wait(facts.attempts - 1, self._chance())
            if self._left(begun) <= wait:
                break
            _log.info("tool call repeated", tool=facts.spec.name, attempt=facts.attempts + 1, wait=round(wait, 2))
            await self._sleep(wait)
            again: ToolResult | None = None
            with anyio.move_on_after(self._left(begun)):
                facts.tried_again()
                again = await self._wrapped.execute(facts)
            if again is None:  # the time was up
                break
            result = again
        if facts.attempts == 1 or result.failure is None or not result.failure.category.retryable:
            return result
        return _counted(result, result.failure, facts.attempts)

    def _left(self, begun: float) -> float:
        """Return the remaining seconds of the budget, 0 or more."""
        return max(0.0, begun + self._retries.budget - self._clock())


def _counted(result: ToolResult, before: ToolFailure, attempts: int) -> ToolResult:
    """Return a result whose failure says how often it was tried."""
    failure = replace(before, message=f"{before.message} (tried {attempts} times)")
    text = failure.block() if result.text == before.block() else result.text
    display = failure.message if result.display == before.message else result.display
    frame = result.frame
    if frame is not None and frame.head == before.block():
        frame = replace(frame, head=failure.block(), headline=failure.headline)
    return replace(result, text=text, display=display, frame=frame, failure=failure)
