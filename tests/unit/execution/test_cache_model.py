"""Whatever runs beside whatever, no call is answered with what was no longer true when it was made.

Calls are coroutines that stop at every point where another may come in between; chance decides who goes on. The
model is the history of the files: an answer must be a state they had between the call's beginning and its end. What
the user changes behind the agent's back is allowed to show in listings no sooner than the next turn.
"""

import asyncio
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import Access, PathSubject, ToolCall, ToolKind, ToolResult, ToolSpec
from acp_agent.execution.wrappers import CacheExecutor, ResultCache
from acp_agent.gates.gate import CallFacts

FILES: tuple[str, ...] = ("a", "b")
ENTRIES = 3


class Pause:
    """Stops a coroutine until the machine lets it go on."""

    def __await__(self) -> Generator[None]:
        yield


class Bug(Exception):
    """What a mutating tool may end with."""


async def unused(_context: ToolContext) -> ToolResult:
    raise AssertionError


@dataclass
class Running:
    """A call under way, and the numbers of the states it may tell of begin with `since`."""

    work: Coroutine[object, None, ToolResult]
    what: str
    since: int


class Disk:
    """Files with a version each.

    states   every state there was, the last one being now
    known    the number of the oldest state a listing may still tell of: when the session last changed something
             itself, or the turn began
    """

    def __init__(self) -> None:
        self.states: list[dict[str, int]] = [dict.fromkeys(FILES, 0)]
        self.known = 0

    def change(self, file: str) -> None:
        self.states.append(self.states[-1] | {file: len(self.states)})

    def tells(self, what: str, state: int) -> str:
        return str(self.states[state] if what == "list" else self.states[state][what])

    async def stamp(self, path: str) -> str | None:
        await Pause()
        stamp = self.tells(path, -1)
        await Pause()
        return stamp

    async def execute(self, facts: CallFacts) -> ToolResult:
        await Pause()
        if facts.spec.mutates:
            return await self._write(facts.invocation)
        told = self.tells(facts.spec.name, -1)
        await Pause()
        return ToolResult(told)

    async def _write(self, invocation: Invocation) -> ToolResult:
        arguments = invocation.call.arguments or {}
        self.change(str(arguments["file"]))
        self.known = len(self.states) - 1
        await Pause()
        match arguments["ending"]:
            case "bug":
                raise Bug
            case "failure":
                return ToolResult.failed(ToolFailure(ToolErrorCategory.TIMEOUT, "too slow"))
            case _:
                return ToolResult("written")


class Session:
    """A session with several calls under way; `from_memory` counts the answers the cache gave."""

    def __init__(self) -> None:
        self.time = 0.0
        self.disk = Disk()
        self.cache = ResultCache(ttl=10, max_entries=ENTRIES, now=lambda: self.time)
        self.executor = CacheExecutor(self.disk, self.cache, self.disk.stamp)
        self.running: list[Running] = []
        self.from_memory = 0

    def happen(self, chance: Random) -> None:
        """Something, by chance: mostly a call begins or goes on, by one step, some, or to its end."""
        steps, file = chance.choice([1, 2, 3, 4, 99, 99]), chance.choice(FILES)
        match chance.choices(["read", "write", "go on", "cancel", "user", "else"], [8, 3, 6, 1, 1, 1])[0]:
            case "read":
                self.begin(self.reading(chance.choice((*FILES, "list", "list"))), steps)
            case "write":
                self.begin(self.writing(file, chance.choice(["well", "failure", "bug"])), steps)
            case "go on" if self.running:
                self.advance(chance.choice(self.running), steps)
            case "cancel" if self.running:
                self.cancel(chance.choice(self.running))
            case "user":
                self.disk.change(file)
            case _:
                self.something_else(chance.choice(["a new turn", "clear", "time"]))
        assert len(self.cache) <= ENTRIES

    def reading(self, what: str) -> Running:
        subject = PathSubject(".", Access.LIST) if what == "list" else PathSubject(what, Access.READ)
        spec = ToolSpec(what, "", {}, ToolKind.READ, mutates=False, cacheable=True)
        invocation = Invocation(ToolCall("1", what, {}), spec, what, unused, (subject,))
        since = self.disk.known if what == "list" else len(self.disk.states) - 1
        return Running(self.executor.execute(CallFacts(invocation)), what, since)

    def writing(self, file: str, ending: str) -> Running:
        spec = ToolSpec("write", "", {}, ToolKind.EDIT, mutates=True)
        call = ToolCall("1", "write", {"file": file, "ending": ending})
        invocation = Invocation(call, spec, "write", unused, (PathSubject(file, Access.WRITE),))
        return Running(self.executor.execute(CallFacts(invocation)), "write", 0)

    def begin(self, call: Running, steps: int) -> None:
        self.running.append(call)
        self.advance(call, steps)

    def advance(self, call: Running, steps: int) -> None:
        try:
            for _ in range(steps):
                call.work.send(None)
        except StopIteration as over:
            self.ended(call, over.value)
        except Bug:
            self.ended(call, None)

    def cancel(self, call: Running) -> None:
        with pytest.raises(asyncio.CancelledError):
            call.work.throw(asyncio.CancelledError())
        self.ended(call, None)

    def something_else(self, what: str) -> None:
        match what:
            case "a new turn":
                self.cache.turn_began()
                self.disk.known = len(self.disk.states) - 1
            case "clear":
                self.cache.clear()
                assert (len(self.cache), self.cache.hits, self.cache.misses) == (0, 0, 0)
            case _:
                self.time += 9

    def ended(self, call: Running, result: ToolResult | None) -> None:
        self.running.remove(call)
        if call.what == "write":
            self.disk.known = len(self.disk.states) - 1
        elif result is not None:
            true = {self.disk.tells(call.what, state) for state in range(call.since, len(self.disk.states))}
            assert result.text in true, (call.what, result)
            self.from_memory += result.cached

    def close(self) -> None:
        """End what is under way still."""
        for call in self.running:
            call.work.close()


@given(seed=st.integers(0, 2**32))
@example(seed=803224)
def test_no_call_is_answered_with_what_was_no_longer_true(seed: int) -> None:
    session, chance = Session(), Random(seed)
    try:
        for step in range(20_000):
            if step >= 400 and session.from_memory:
                break
            session.happen(chance)
    finally:
        session.close()
    assert session.from_memory > 0, "a cache that never answers would pass all the rest"
