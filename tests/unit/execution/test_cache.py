"""The result cache: the same answer without the tool, and never an answer that is no longer true."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import anyio
import anyio.lowlevel
import pytest

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import (
    Access,
    CallingAgent,
    CommandSubject,
    ImagePart,
    JsonObject,
    PathSubject,
    Subject,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
    UrlSubject,
)
from acp_agent.execution.wrappers import CacheExecutor, ChangesExecutor, Key, ResultCache
from acp_agent.gates.gate import CallFacts
from acp_agent.workspace import snapshots
from acp_agent.workspace.changed_files import CommandChanges, FileWatch, SessionSnapshots, StateBefore
from acp_agent.workspace.roots import Roots
from tests.fakes.passing_time import all_tasks_blocked

pytestmark = pytest.mark.anyio

Task: TypeAlias = Callable[[], Coroutine[Any, Any, object]]
READ = PathSubject("a", Access.READ)
LIST = PathSubject(".", Access.LIST)
WEB = UrlSubject("https://example.com/")


async def unused(_context: ToolContext) -> ToolResult:
    raise AssertionError


def call(
    name: str = "grep",
    *subjects: Subject,
    arguments: JsonObject | None = None,
    mutates: bool = False,
    cacheable: bool = True,
) -> Invocation:
    spec = ToolSpec(name, "", {}, ToolKind.OTHER, mutates, cacheable=cacheable and not mutates)
    return Invocation(ToolCall("1", name, arguments or {}), spec, name, unused, subjects or (LIST,))


class World:
    """The tool, the files' stamps and the clock. Each run gives a new text: "grep 1", "grep 2".

    during   what happens while a tool runs
    """

    def __init__(
        self, *, enabled: bool = True, ttl: float = 300, max_entries: int = 100, max_bytes: int = 1_000_000
    ) -> None:
        self.runs: list[str] = []
        self.stamps: dict[str, str | None] = {"a": "1"}
        self.time = 0.0
        self.during: Callable[[], ToolResult | None] = lambda: None
        self.cache = ResultCache(
            enabled=enabled, ttl=ttl, max_entries=max_entries, max_bytes=max_bytes, now=lambda: self.time
        )
        self.executor = CacheExecutor(self, self.cache, self.stamp)

    async def stamp(self, path: str) -> str | None:
        return self.stamps.get(path)

    async def execute(self, facts: CallFacts) -> ToolResult:
        self.runs.append(facts.spec.name)
        return self.during() or ToolResult(f"{facts.spec.name} {len(self.runs)}")

    async def ask(self, invocation: Invocation) -> ToolResult:
        return await self.executor.execute(CallFacts(invocation))


class RecordingWatch(FileWatch):
    """Looks at the files below the roots, keeps nothing for `/undo`, and remembers what it has `found`."""

    def __init__(self, roots: Roots) -> None:
        super().__init__(roots, SessionSnapshots("/dev/null/undo/a", "a"), None)
        self.found: list[CommandChanges] = []

    def since(self, look: StateBefore, *, noted: bool = True) -> CommandChanges:
        self.found.append(super().since(look, noted=noted))
        return self.found[-1]


async def test_that_the_folders_are_too_large_for_finding_changes_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MOST_ENTRIES", 2)
    for name in "abc":
        (tmp_path / name).touch()
    with Roots(str(tmp_path)) as roots:
        executor = ChangesExecutor(World(), FileWatch(roots, SessionSnapshots("/dev/null/undo/a", "a"), None))
        results = [await executor.execute(CallFacts(call("bash", CommandSubject("make")))) for _ in range(2)]
    said = "[changed files are not named: over 2 entries below the session's folders]"
    assert [result.frame.ending if result.frame else "" for result in results] == [said, ""]


async def test_what_a_cancelled_command_has_changed_is_looked_at_behind_its_own_clean_up(tmp_path: Path) -> None:
    facts, later = CallFacts(call("bash", CommandSubject("make"))), list[Task]()

    class Command(World):
        async def execute(self, facts: CallFacts) -> ToolResult:
            (tmp_path / "made").touch()
            await anyio.sleep_forever()
            raise AssertionError

    with Roots(str(tmp_path)) as roots:
        watch = RecordingWatch(roots)
        executor = ChangesExecutor(Command(), watch, later=later.append)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.execute, facts)
            await all_tasks_blocked()
            while not (tmp_path / "made").exists():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert (later, watch.found) == ([], [])
        (tmp_path / "made by its clean-up").touch()
        for clean_up in facts.clean_up:
            await clean_up()
        for task in later:
            await task()
    assert [Path(path).name for path in watch.found[0].changed] == ["made", "made by its clean-up"]


async def test_what_a_cancelled_command_has_changed_is_noted_also_where_nobody_looks_later(tmp_path: Path) -> None:
    class Command(World):
        async def execute(self, facts: CallFacts) -> ToolResult:
            (tmp_path / "made").touch()
            tasks.cancel_scope.cancel()
            await anyio.lowlevel.checkpoint()
            raise AssertionError

    with Roots(str(tmp_path)) as roots:
        watch = RecordingWatch(roots)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ChangesExecutor(Command(), watch).execute, CallFacts(call("bash", CommandSubject("make"))))
    assert [Path(path).name for each in watch.found for path in each.changed] == ["made"]


async def test_a_command_whose_changes_stay_has_failed_for_that(tmp_path: Path) -> None:
    class Failing(World):
        async def execute(self, facts: CallFacts) -> ToolResult:
            (tmp_path / "made").touch()
            return ToolResult("no", envelope={"exit_code": 1})

    with Roots(str(tmp_path)) as roots:
        watch = FileWatch(roots, SessionSnapshots("/dev/null/undo/a", "a"), None)
        rules = cast("Any", SimpleNamespace(rolled_back=lambda *_: ["a change"], required=False))
        executor = ChangesExecutor(Failing(), watch, transaction=rules)
        result = await executor.execute(CallFacts(call("bash", CommandSubject("make"))))
    assert result.failure is not None
    assert result.failure.message == "its changes were not all taken back: Undo is off."


# ------------------------------------------------------------------------------------ hits and misses


async def test_the_same_call_is_answered_from_memory_and_marked() -> None:
    world = World()

    first, second = await world.ask(call()), await world.ask(call())

    assert (first.text, first.cached) == ("grep 1", False)
    assert (second.text, second.cached) == ("grep 1", True)
    assert (world.runs, world.cache.hits, world.cache.misses) == (["grep"], 1, 1)


async def test_arguments_count_whatever_their_order_and_thinking_aloud_does_not() -> None:
    world = World()
    await world.ask(call(arguments={"a": 1, "b": {"c": [1, 2], "d": "é\ud800"}}))

    again = await world.ask(call(arguments={"_tafc_think": "hm", "b": {"d": "é\ud800", "c": [1, 2]}, "a": 1}))
    others = [
        await world.ask(call(arguments={"a": 1, "b": {"c": [2, 1], "d": "é\ud800"}})),
        await world.ask(call(arguments={"a": "1", "b": {"c": [1, 2], "d": "é\ud800"}})),
        await world.ask(call("find_path", arguments={"a": 1, "b": {"c": [1, 2], "d": "é\ud800"}})),
    ]

    assert again.cached
    assert [other.cached for other in others] == [False, False, False]


async def test_a_search_is_made_again_while_a_command_runs_in_the_background_and_a_read_is_not() -> None:
    world, read = World(), call("read", READ)
    world.cache.unsettled = lambda: True

    asked = [await world.ask(each) for each in (call(), call(), read, read)]

    assert [each.cached for each in asked] == [False, False, False, True]


async def test_a_tool_that_chose_another_command_is_asked_again() -> None:
    world = World()
    await world.ask(call("diagnostics", CommandSubject("ruff check"), LIST))

    assert not (await world.ask(call("diagnostics", CommandSubject("mypy"), LIST))).cached
    assert (await world.ask(call("diagnostics", CommandSubject("ruff check"), LIST))).cached


async def test_a_tool_that_is_not_cacheable_is_never_answered_from_memory() -> None:
    world = World()

    for _ in range(2):
        assert not (await world.ask(call("read_overflow", cacheable=False))).cached
    assert len(world.cache) == 0


async def test_a_failure_is_never_kept() -> None:
    world = World()
    world.during = lambda: ToolResult.failed(ToolFailure(ToolErrorCategory.NETWORK_ERROR, "no network"))
    await world.ask(call("fetch", WEB))
    world.during = lambda: None

    assert not (await world.ask(call("fetch", WEB))).cached
    assert (await world.ask(call("fetch", WEB))).cached


async def test_a_call_that_was_cancelled_leaves_nothing_behind() -> None:
    class Endless(World):
        async def execute(self, facts: CallFacts) -> ToolResult:
            await anyio.sleep_forever()
            return await super().execute(facts)

    world = Endless()
    for invocation in (call(), call("bash", mutates=True)):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await world.ask(invocation)

    world.cache.put(Key("t", "d", lasting=True), ToolResult("x"), world.cache.generation)
    assert len(world.cache) == 1, "nothing is thought to be changing still"


async def test_switched_off_it_keeps_nothing_and_counts_nothing() -> None:
    world = World(enabled=False)

    for _ in range(2):
        assert not (await world.ask(call())).cached
    world.cache.put(Key("t", "d", lasting=True), ToolResult("x"), world.cache.generation)
    assert (len(world.cache), world.cache.hits, world.cache.misses) == (0, 0, 0)


# ---------------------------------------------------------------------------------------- changes


@pytest.mark.parametrize("ending", ["well", "failed", "raised"])
async def test_any_mutating_call_empties_it_however_it_ends(ending: str) -> None:
    world = World()
    await world.ask(call())
    await world.ask(call("fetch", WEB))

    def end() -> ToolResult | None:
        assert len(world.cache) == 0
        if ending == "raised":
            raise RuntimeError("a bug")
        return ToolResult.failed(ToolFailure(ToolErrorCategory.TIMEOUT, "slow")) if ending == "failed" else None

    world.during = end
    try:
        await world.ask(call("mcp_server_tool", mutates=True))
    except RuntimeError:
        assert ending == "raised"
    world.during = lambda: None

    assert not (await world.ask(call())).cached
    assert not (await world.ask(call("fetch", WEB))).cached


async def test_a_read_that_began_before_a_change_is_not_kept_after_it() -> None:
    began, changed = anyio.Event(), anyio.Event()

    class Slow(World):
        async def execute(self, invocation: Invocation) -> ToolResult:
            result = await super().execute(invocation)
            if invocation.spec.name == "grep":
                began.set()
                await changed.wait()
            return result

    world = Slow()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.ask, call())
        await began.wait()
        await world.ask(call("write", mutates=True))
        changed.set()

    assert not (await world.ask(call())).cached


async def test_what_is_read_while_something_changes_is_not_kept() -> None:
    changing, reading, changed, read = (anyio.Event() for _ in range(4))

    class Slow(World):
        async def execute(self, invocation: Invocation) -> ToolResult:
            if invocation.spec.mutates:
                changing.set()
                await changed.wait()
            result = await super().execute(invocation)
            if invocation.spec.name == "slow":
                reading.set()
                await read.wait()
            return result

    world = Slow()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.ask, call("bash", mutates=True))
        await changing.wait()
        for _ in range(2):
            assert not (await world.ask(call())).cached
        tasks.start_soon(world.ask, call("slow"))
        await reading.wait()
        changed.set()
        await all_tasks_blocked()
        read.set()

    assert not (await world.ask(call())).cached
    assert not (await world.ask(call("slow"))).cached


# ------------------------------------------------------------------------------------ files and turns


async def test_a_file_is_read_again_when_its_stamp_is_another() -> None:
    world = World()
    await world.ask(call("read", READ))
    assert (await world.ask(call("read", READ))).cached

    world.stamps["a"] = "2"
    assert not (await world.ask(call("read", READ))).cached
    assert (await world.ask(call("read", READ))).cached


async def test_each_agent_reads_a_file_itself_and_searches_are_shared() -> None:
    """The tool notes which agent knows which text of a file, so that `write` replaces nothing that the agent missed."""
    world, agent = World(), CallingAgent("general-1", "general", "card")

    def by_agent(invocation: Invocation) -> Invocation:
        return replace(invocation, call=replace(invocation.call, agent=agent))

    for asked in (call("read", READ), call("grep", LIST)):
        await world.ask(asked)
        await world.ask(by_agent(asked))
        await world.ask(by_agent(asked))
        await world.ask(asked)
    assert world.runs == ["read", "read", "grep"]


async def test_a_file_without_a_stamp_is_read_each_time() -> None:
    world = World()
    world.stamps["a"] = None

    for _ in range(2):
        assert not (await world.ask(call("read", READ))).cached
    assert len(world.cache) == 0


async def test_what_was_read_while_a_file_changed_is_found_by_nobody() -> None:
    world = World()
    world.during = lambda: world.stamps.update(a="2")
    await world.ask(call("read", READ))
    world.during = lambda: None

    assert not (await world.ask(call("read", READ))).cached


async def test_a_new_turn_drops_what_the_user_may_have_changed_and_keeps_files_and_pages() -> None:
    world = World()
    kept = [call("read", READ), call("fetch", WEB)]
    dropped = [
        call(),
        call("grep", READ, LIST),
        call("mixed", WEB, LIST),
        replace(call("memory_search"), subjects=()),
    ]
    for invocation in kept + dropped:
        await world.ask(invocation)
    world.cache.turn_began()

    assert [(await world.ask(invocation)).cached for invocation in kept] == [True, True]
    assert [(await world.ask(invocation)).cached for invocation in dropped] == [False] * 4


async def test_a_call_that_outlived_its_turn_is_not_kept_for_the_next() -> None:
    world = World()
    world.during = world.cache.turn_began
    await world.ask(call())

    assert len(world.cache) == 0


# ------------------------------------------------------------------------------------ time and room


async def test_an_answer_is_good_until_its_time_is_over_and_a_hit_does_not_prolong_it() -> None:
    world = World()
    await world.ask(call())
    for time, cached in ((299.9, True), (300, False), (599, True)):
        world.time = time
        assert (await world.ask(call())).cached is cached, time


async def test_without_a_time_an_answer_is_good_until_something_changes() -> None:
    world = World(ttl=0)
    await world.ask(call())
    world.time = 1e9

    assert (await world.ask(call())).cached


async def test_clearing_forgets_the_answers_and_the_counts() -> None:
    world = World()
    await world.ask(call())
    await world.ask(call())
    world.cache.clear()

    assert (len(world.cache), world.cache.hits, world.cache.misses) == (0, 0, 0)
    assert not (await world.ask(call())).cached


async def test_the_answers_used_least_recently_go_first() -> None:
    world = World(max_entries=2)
    for name in ("one", "two", "one", "three"):
        await world.ask(call(name))

    assert (await world.ask(call("one"))).cached
    assert (await world.ask(call("three"))).cached
    assert not (await world.ask(call("two"))).cached


@pytest.mark.parametrize(
    "large",
    [
        ToolResult("x" * 8000),
        ToolResult("", display="x" * 8000),
        ToolResult("", envelope={"a": ["x" * 8000]}),
        ToolResult("", images=(ImagePart("x" * 8000, "image/png"),)),
    ],
)
async def test_room_is_counted_in_bytes_of_everything_an_answer_holds(large: ToolResult) -> None:
    world = World(max_bytes=20_000)
    world.during = lambda: large
    for name in ("one", "two", "three"):
        await world.ask(call(name))
    assert len(world.cache) == 2

    world.during = lambda: ToolResult("x" * 20_001)
    await world.ask(call("too large"))
    assert len(world.cache) == 2
    assert (await world.ask(call("three"))).cached


def test_a_change_gives_back_the_room_of_what_it_removed() -> None:
    cache, key, large = ResultCache(max_bytes=5000), Key("read", "1", True), ToolResult("x" * 3000)
    cache.put(key, large, cache.generation)
    with cache.changing():
        assert len(cache) == 0
    cache.put(key, large, cache.generation)
    assert len(cache) == 1
