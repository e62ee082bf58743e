"""When a session gets its title."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import pytest

from acp_agent.core.errors import ConfigError, StoreUnavailable
from acp_agent.core.messages import StopReason
from acp_agent.core.sessions import SessionRecord
from acp_agent.session.titles import TitleUpdater
from acp_agent.session.turn_slot import Answer
from tests.fakes.passing_time import all_tasks_blocked

pytestmark = pytest.mark.anyio

DONE = Answer(StopReason.END_TURN)


@dataclass
class Named:
    """A session as far as naming knows it, with its titles; `better` is what a model says, once `slow` is set.

    past   what the user has sent so far
    """

    title: str = ""
    better: str = "A better title"
    past: tuple[str, ...] = ()
    readable: bool = True
    slow: anyio.Event | None = None
    names: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.id = "12345678-9abc"
        self.transcript = self
        self.record = SessionRecord("s", "/work", title=self.title)

    def rename(self, title: str) -> None:
        self.names.append(title)

    async def set_title(self, title: str) -> None:
        self.titles.append(title)

    async def prompts(self) -> AsyncGenerator[str]:
        if not self.readable:
            raise StoreUnavailable("it is damaged")
        for prompt in self.past:
            yield prompt

    def first(self, prompt: str, session: str) -> str:
        assert session == self.id
        return prompt[:10]

    async def ask(self, prompt: str) -> str:
        self.asked.append(prompt)
        if self.slow is not None:
            await self.slow.wait()
        return self.better


class TitleWriter:
    def __init__(self, named: Named) -> None:
        self.first = named.first
        self.better = named.ask


@pytest.fixture
async def tasks() -> AsyncIterator[anyio.abc.TaskGroup]:
    async with anyio.create_task_group() as group:
        yield group


def naming(named: Named, tasks: anyio.abc.TaskGroup, slot: anyio.Semaphore | None = None) -> TitleUpdater:
    def background(task: Callable[[], Awaitable[None]]) -> None:
        tasks.start_soon(task)

    session: Any = named
    titles: Any = TitleWriter(named)
    return TitleUpdater(session, titles, background, slot or anyio.Semaphore(1))


async def test_the_first_words_are_the_title_at_once_and_a_better_one_comes_with_the_answer(
    tasks: anyio.abc.TaskGroup,
) -> None:
    named = Named()
    names = naming(named, tasks)
    names.began("Fix the tests please")
    assert named.names == ["Fix the te"], "the prompt is stored with it"
    await all_tasks_blocked()
    assert named.titles == ["Fix the te"]
    await names.answered(DONE)
    assert (named.titles, named.asked) == (["Fix the te", "A better title"], ["Fix the tests please"])


async def test_a_session_keeps_the_title_it_got(tasks: anyio.abc.TaskGroup) -> None:
    named = Named()
    names = naming(named, tasks)
    for prompt in ("one", "two", "three"):
        names.began(prompt)
        await all_tasks_blocked()
        await names.answered(DONE)
    assert named.titles == ["one", "A better title"]
    assert named.asked == ["one"]


async def test_a_session_that_comes_with_a_title_keeps_it(tasks: anyio.abc.TaskGroup) -> None:
    named = Named("It has one")
    names = naming(named, tasks)
    names.began("one")
    await names.answered(DONE)
    await all_tasks_blocked()
    assert (named.titles, named.asked) == ([], [])


@pytest.mark.parametrize("command", ["/status", "/model gpt", "/compact"])
async def test_a_command_gives_no_title(tasks: anyio.abc.TaskGroup, command: str) -> None:
    named = Named()
    names = naming(named, tasks)
    names.began(command)
    await names.answered(DONE)
    names.began("one")
    await all_tasks_blocked()
    await names.answered(DONE)
    assert named.titles == ["one", "A better title"]


@pytest.mark.parametrize(
    "answer", [Answer(StopReason.CANCELLED), Answer(StopReason.END_TURN, ConfigError("", "", "", "a model"))]
)
async def test_a_turn_that_came_to_nothing_gives_no_better_title_but_the_next_does(
    tasks: anyio.abc.TaskGroup, answer: Answer
) -> None:
    named = Named()
    names = naming(named, tasks)
    names.began("one")
    await all_tasks_blocked()
    await names.answered(answer)
    assert named.titles == ["one"]
    names.began("two")
    await names.answered(DONE)
    assert named.titles == ["one", "A better title"]


async def test_where_no_model_has_one_the_first_words_stay(tasks: anyio.abc.TaskGroup) -> None:
    named = Named(better="")
    names = naming(named, tasks)
    names.began("one")
    await all_tasks_blocked()
    await names.answered(DONE)
    assert named.titles == ["one"]


async def test_a_conversation_that_begins_anew_is_named_anew(tasks: anyio.abc.TaskGroup) -> None:
    named = Named("It has one")
    names = naming(named, tasks)
    names.forget()
    names.began("other")
    await all_tasks_blocked()
    await names.answered(DONE)
    assert named.titles == ["other", "A better title"]


async def test_a_title_made_up_for_what_was_cleared_never_comes_back(tasks: anyio.abc.TaskGroup) -> None:
    named = Named()
    names = naming(named, tasks)
    names.began("the old talk")
    await all_tasks_blocked()
    named.slow = anyio.Event()
    tasks.start_soon(names.answered, DONE)
    await all_tasks_blocked()
    names.forget()
    names.began("new")
    named.slow.set()
    await all_tasks_blocked()
    assert named.titles == ["the old ta", "new"]
    await names.answered(DONE)
    assert named.titles[2:] == ["A better title"]


async def test_a_title_that_comes_when_the_engine_is_gone_is_dropped(tasks: anyio.abc.TaskGroup) -> None:
    named = Named()
    names = naming(named, tasks)
    names.began("one")
    await all_tasks_blocked()
    named.slow = anyio.Event()
    tasks.start_soon(names.answered, DONE)
    await all_tasks_blocked()
    names.close()
    named.slow.set()
    await all_tasks_blocked()
    assert named.titles == ["one"]


async def test_the_better_title_nobody_waited_for_is_made_up_by_the_process_that_goes_on(
    tasks: anyio.abc.TaskGroup,
) -> None:
    named = Named("Fix the te", past=("/status", "Fix the tests please", "more"))
    names = naming(named, tasks)
    names.began("next")
    for _ in range(2):
        await names.answered(DONE)
    assert (named.titles, named.asked) == (["A better title"], ["Fix the tests please"])


async def test_a_store_that_cannot_be_read_costs_the_better_title_alone(tasks: anyio.abc.TaskGroup) -> None:
    named = Named("Fix the te", past=("Fix the tests please",), readable=False)
    names = naming(named, tasks)
    await names.answered(DONE)
    assert named.titles == []


async def test_no_model_is_asked_for_a_session_that_another_process_may_have(tasks: anyio.abc.TaskGroup) -> None:
    named = Named()
    names = naming(named, tasks)
    names.began("one")
    await all_tasks_blocked()
    names.close()
    await names.answered(DONE)
    assert (named.titles, named.asked) == (["one"], [])


async def test_models_write_the_titles_of_many_sessions_one_after_another(tasks: anyio.abc.TaskGroup) -> None:
    slot, sessions = anyio.Semaphore(1), [Named(slow=anyio.Event()) for _ in range(3)]
    for named in sessions:
        names = naming(named, tasks, slot)
        names.began("one")
        tasks.start_soon(names.answered, DONE)
    for done, named in enumerate(sessions, 1):
        await all_tasks_blocked()
        assert [len(each.asked) for each in sessions] == [1] * done + [0] * (3 - done)
        assert named.slow is not None
        named.slow.set()
    await all_tasks_blocked()
    assert [each.titles[-1] for each in sessions] == ["A better title"] * 3
