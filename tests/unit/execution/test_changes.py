"""What the executor around a call does with the files that the call changed."""

import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Access, CallOrigin, Diff, PathSubject, ToolResult
from acp_agent.execution.wrappers import ChangesExecutor, Transaction
from acp_agent.gates.gate import CallFacts, Gates
from acp_agent.workspace.changed_files import CommandChanges
from acp_agent.workspace.glob import Glob
from acp_agent.workspace.snapshots import EntryChange
from acp_agent.workspace.undo import RestoredTurn, UndoError
from tests.unit.gates.chain import call, command

pytestmark = pytest.mark.anyio
WORK = "/project"
NOTHING = CommandChanges()
SOME = CommandChanges(("/project/a", "/project/b"), ("/project/c",), (Diff("/project/a", "1\n2\n", "1\n3\n"),))
Work = Callable[[], ToolResult]


class Watch:
    """A watch that finds what it is given, and notes what it is asked."""

    cwd = WORK
    trouble = ""
    limit = 0

    def __init__(self, found: CommandChanges = NOTHING) -> None:
        self.found = found
        self.counted = 0
        self.looked: list[object] = []
        self.taken_back: list[EntryChange] = []
        self.error: UndoError | None = None

    def before(self, places: Sequence[PathSubject] | None = None) -> str:
        self.looked.append(places if places is None else [each.path for each in places])
        return "before"

    def since(self, before: str, *, noted: bool) -> CommandChanges:
        assert before == "before"
        self.looked.append(noted)
        return self.found

    def count_change(self) -> None:
        self.counted += 1

    def roll_back(self, changes: Sequence[EntryChange]) -> RestoredTurn:
        self.taken_back += changes
        if self.error is not None:
            raise self.error
        return RestoredTurn(1, tuple(each.path for each in changes))


class Tool:
    """An executor that answers what it is told to."""

    def __init__(self, result: ToolResult | None = None) -> None:
        self.result = result or ToolResult("out")
        self.ran = 0

    async def execute(self, facts: CallFacts) -> ToolResult:
        self.ran += 1
        return self.result


FAILED = ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "no"))


def facts_of(invocation: Invocation) -> CallFacts:
    return Gates(()).facts(invocation)


async def outcome(watch: Watch, invocation: Invocation, tool: Tool | None = None, **options: Any) -> ToolResult:
    watching: Any = watch
    return await ChangesExecutor(tool or Tool(), watching, **options).execute(facts_of(invocation))


def ending(result: ToolResult) -> str:
    return "" if result.frame is None else result.frame.ending


def write(path: str = "a", origin: CallOrigin = CallOrigin.MODEL) -> Invocation:
    return call("write", PathSubject(path, Access.WRITE), PathSubject("seen", Access.READ), origin=origin)


async def test_a_call_that_only_reads_is_not_looked_at():
    for invocation in (command("ls"), call("read", PathSubject("a", Access.READ)), call("mcp_x_y")):
        watch = Watch(SOME)
        assert await outcome(watch, invocation) == ToolResult("out")
        assert (watch.looked, watch.counted) == ([], 0), invocation


async def test_a_command_is_looked_at_everywhere_and_a_tool_where_it_changes_something():
    watch = Watch(SOME)
    await outcome(watch, command("make"))
    assert watch.looked == [None, True]
    watch = Watch(SOME)
    await outcome(watch, write())
    assert watch.looked == [["a"], True]
    watch, served = Watch(SOME), call("mcp_x_y")
    result = await outcome(watch, replace(served, spec=replace(served.spec, server="x")))
    assert watch.looked == [None, True]
    assert "changed: a, b" in ending(result)
    watch = Watch(SOME)
    await outcome(watch, replace(served, spec=replace(served.spec, server="x", mutates=False)))
    assert watch.looked == []


async def test_what_a_command_changed_is_shown_to_the_user_and_named_to_the_model():
    tool = Tool(ToolResult("out", diffs=(Diff("/project/z", None, "z"),)))
    result = await outcome(Watch(SOME), command("make"), tool)
    assert ending(result) == "[changed: a, b; deleted: c]"
    assert [each.path for each in result.diffs] == ["/project/z", "/project/a"]
    assert [(each.path, each.line) for each in result.locations] == [("/project/a", 2), ("/project/b", None)]
    assert await outcome(Watch(SOME), command("make"), shown=False) == ToolResult("out")
    assert await outcome(Watch(), command("make")) == ToolResult("out")
    assert await outcome(Watch(SOME), write()) == ToolResult("out")


async def test_of_many_changed_files_twenty_are_named():
    for count, told in ((20, "f19]"), (21, "f19, and 1 more]")):
        found = CommandChanges(tuple(f"/project/f{number}" for number in range(count)))
        assert ending(await outcome(Watch(found), command("make"))).endswith(told)


async def test_that_the_folder_is_too_large_is_told_once():
    watch: Any = Watch(SOME)
    watch.limit = 1000
    executor = ChangesExecutor(Tool(), watch)
    first, second = [await executor.execute(facts_of(command("make"))) for _ in range(2)]
    assert ending(first) == "[changed files are not named: over 1,000 entries below the session's folders]"
    assert ending(second) == "[changed: a, b; deleted: c]"


async def test_the_agents_changes_are_counted_and_the_users_are_not():
    for invocation, found, result, counted in (
        (command("make"), SOME, ToolResult("out"), 1),
        (command("make"), CommandChanges(("/project/a",)), ToolResult("out"), 1),
        (command("make"), CommandChanges((), ("/project/a",)), FAILED, 1),
        (command("make"), NOTHING, ToolResult("out"), 0),
        (write(), NOTHING, ToolResult("out"), 1),
        (write(), NOTHING, FAILED, 0),
        (write(origin=CallOrigin.USER), SOME, ToolResult("out"), 0),
        (command("make", origin=CallOrigin.USER), SOME, ToolResult("out"), 0),
    ):
        watch = Watch(found)
        await outcome(watch, invocation, Tool(result))
        assert watch.counted == counted, (invocation, found)
        assert watch.looked[-1] is (invocation.call.origin is not CallOrigin.USER)


# ------------------------------------------------------------------------------- cancelled calls


class Endless(Tool):
    """A tool that is cancelled while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = anyio.Event()

    async def execute(self, facts: CallFacts) -> ToolResult:
        self.begun.set()
        await anyio.sleep_forever()
        raise AssertionError


async def cancelled(watch: Watch, **options: Any) -> CallFacts:
    watching: Any = watch
    tool, facts = Endless(), facts_of(command("make"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ChangesExecutor(tool, watching, **options).execute, facts)
        await tool.begun.wait()
        tasks.cancel_scope.cancel()
    return facts


async def test_a_cancelled_call_is_looked_at_at_once_or_after_its_command_has_ended():
    watch = Watch(SOME)
    facts = await cancelled(watch)
    assert (watch.looked, facts.clean_up) == ([None, True], [])

    begun = list[Callable[[], Coroutine[Any, Any, object]]]()
    watch = Watch(SOME)
    facts = await cancelled(watch, later=begun.append)
    assert watch.looked == [None]
    (note,) = facts.clean_up
    await note()
    assert watch.looked == [None]
    (look,) = begun
    assert await look() == SOME
    assert watch.looked == [None, True]


async def test_a_call_that_ends_is_looked_at_before_its_result():
    watch, begun = Watch(SOME), list[object]()
    assert "changed: a" in ending(await outcome(watch, command("make"), later=begun.append))
    assert begun == []


# ----------------------------------------------------------------------------------- transactions

IN_SRC = Transaction((Glob("src/*.py"), Glob("docs/**")), rolls_back=True, codes=(1, 2), required=False)
ENTRIES = tuple(
    EntryChange(f"/project/{name}", before, after)
    for name, before, after in (
        ("src/a.py", None, "new"),
        ("src/b.py", "old", "new"),
        ("src/c.txt", "old", "new"),
        ("docs/d/e", "old", None),
        ("srcs/f.py", None, "new"),
    )
)
CHANGED: CommandChanges = SOME._replace(entries=ENTRIES)  # type: ignore[arg-type]


def exits(code: int) -> Tool:
    return Tool(ToolResult("out", envelope={"exit_code": code}))


rolled: Callable[..., Any] = functools.partial(outcome, invocation=command("make"), transaction=IN_SRC)


async def test_what_a_failed_command_changed_in_its_scope_is_taken_back():
    watch = Watch(CHANGED)
    result = await rolled(watch, tool=exits(1))
    assert [each.path for each in watch.taken_back] == ["/project/src/a.py", "/project/src/b.py", "/project/docs/d/e"]
    assert result.envelope == {"exit_code": 1, "rollback": {"restored": 2, "deleted": 1}}
    assert ending(result) == "[the command failed, so what it changed was taken back: 2 restored, 1 deleted]"


async def test_nothing_is_taken_back_without_a_failure_in_a_scope_or_of_the_users_own_command():
    other = CommandChanges(entries=ENTRIES[-1:])
    for found, tool, more in (
        (CHANGED, exits(0), {}),
        (CHANGED, exits(3), {}),
        (CHANGED, Tool(), {}),
        (other, exits(1), {}),
        (CHANGED, exits(1), {"transaction": replace(IN_SRC, rolls_back=False)}),
        (CHANGED, exits(1), {"transaction": None}),
        (CHANGED, exits(1), {"invocation": command("make", origin=CallOrigin.USER)}),
        (CHANGED, exits(1), {"invocation": write()}),
    ):
        watch = Watch(found)
        result = await rolled(watch, tool=tool, **more)
        assert watch.taken_back == [], more
        assert "rollback" not in (result.envelope or {})


async def test_a_change_that_could_not_be_taken_back_fails_the_call():
    watch = Watch(CHANGED)
    watch.error = UndoError("the disk is full")
    result = await rolled(watch, tool=exits(1))
    assert result.failure is not None
    assert result.failure.message == "its changes were not all taken back: the disk is full"
    assert "the command failed; its changes were not all taken back" in ending(result)


async def test_a_command_whose_changes_could_not_be_taken_back_runs_only_where_it_may():
    watch, tool = Watch(CHANGED), exits(1)
    watch.trouble = "no room"
    result = await rolled(watch, tool=tool, transaction=replace(IN_SRC, required=True))
    assert tool.ran == 0
    assert result.failure is not None
    assert result.failure.message.endswith("because its changes could not be taken back: no room")
    result = await rolled(watch, tool=exits(0))
    assert ending(result).startswith("[changes could not be taken back: no room]")
    for more in ({"transaction": None}, {"invocation": command("make", origin=CallOrigin.USER)}):
        assert "no room" not in ending(await rolled(watch, tool=exits(0), **more))
