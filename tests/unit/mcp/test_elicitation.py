"""A server's questions between its calls and the user: time, order and withdrawal. Real servers: tests/mcp."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from acp_agent.mcp.channel import MessageChannel
from acp_agent.mcp.elicitation import ServerElicitations
from tests.fakes.fake_elicitor import FakeElicitor

pytestmark = pytest.mark.anyio
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
VISIT = {"mode": "url", "message": "Go.", "url": "https://a.example/", "elicitationId": "theirs"}


async def no_sleep(seconds: float) -> None:
    del seconds


class Answers:
    """What the server is sent, by the id of its question."""

    def __init__(self, channel: MessageChannel) -> None:
        self._wire = channel
        self._got: dict[Any, Any] = {}

    async def to(self, identity: str) -> Any:
        with anyio.fail_after(5):
            while identity not in self._got:
                self._take(await self._wire.outgoing.receive())
        return self._got.pop(identity)

    async def none(self) -> bool:
        """Whether nothing is on its way."""
        await anyio.wait_all_tasks_blocked()
        with suppress(anyio.WouldBlock):
            self._take(self._wire.outgoing.receive_nowait())
        return not self._got

    def _take(self, item: Any) -> None:
        message = item.message.model_dump(by_alias=True, exclude_none=True)
        self._got[message["id"]] = message.get("result") or message["error"]["code"]


@asynccontextmanager
async def served(user: FakeElicitor, patience: float = 60) -> AsyncGenerator[tuple[ServerElicitations, Answers]]:
    questions = ServerElicitations("jira", lambda: user, patience)
    channel = MessageChannel(on_list_changed=lambda: None, sleep=no_sleep, asker=questions)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(questions.serve, channel)
        await anyio.wait_all_tasks_blocked()
        yield questions, Answers(channel)
        channel.mark_lost("over")
    channel.close()


async def test_a_user_who_does_not_answer_in_time_has_closed_the_question():
    user = FakeElicitor(hold=anyio.Event())
    async with served(user, patience=0.01) as (questions, answers):
        with questions.call(60):
            questions.asked("q", FORM)
            assert await answers.to("q") == {"action": "cancel"}


async def test_a_question_the_server_takes_back_is_gone_and_not_answered():
    user = FakeElicitor(hold=anyio.Event())
    async with served(user) as (questions, answers):
        with questions.call(60):
            questions.asked("q", FORM)
            await user.shown.wait()
            questions.withdrawn("q")
            questions.withdrawn("another")
            assert await answers.none()


async def test_the_same_id_twice_is_one_question():
    user = FakeElicitor(content={}, hold=anyio.Event())
    async with served(user) as (questions, answers):
        with questions.call(60):
            questions.asked("q", FORM)
            questions.asked("q", FORM)
            cast("anyio.Event", user.hold).set()
            await answers.to("q")
            assert await answers.none()
    assert len(user.asked) == 1


async def test_a_call_whose_time_is_up_takes_its_question_with_it_when_no_other_runs():
    user = FakeElicitor(hold=anyio.Event())
    async with served(user) as (questions, answers):
        with questions.call(60):
            with questions.call(60):
                questions.asked("q", FORM)
                await user.shown.wait()
            assert await answers.none()  # the other call may have asked
        assert await answers.to("q") == {"action": "cancel"}


async def test_a_call_stands_still_while_any_question_stands_and_goes_on_afterwards():
    user = FakeElicitor(hold=anyio.Event())
    over = anyio.Event()
    async with served(user) as (questions, _), anyio.create_task_group() as tasks:

        async def call() -> None:
            with questions.call(0.02):
                await anyio.sleep_forever()
            over.set()

        with questions.call(60):
            questions.asked("first", FORM)
            questions.asked("second", FORM)
            tasks.start_soon(call)
            await anyio.sleep(0.05)
            questions.withdrawn("first")
            await anyio.sleep(0.05)
            assert not over.is_set()
            questions.withdrawn("second")
            with anyio.fail_after(5):
                await over.wait()


async def test_the_end_of_a_visit_is_told_under_our_own_id_and_once():
    user = FakeElicitor(content={})
    async with served(user) as (questions, answers):
        with questions.call(60):
            questions.asked("q", VISIT)
            assert (await answers.to("q"))["action"] == "accept"
        questions.visited("theirs")
        questions.visited("theirs")
        questions.visited("another")
    assert user.gone == [user.asked[0].id]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "params", [None, [], {}, {"message": 5}, {**FORM, "mode": "x"}, {**VISIT, "elicitationId": ""}]
)
async def test_what_is_no_question_is_an_error(params: Any):
    async with served(FakeElicitor()) as (questions, answers):
        with questions.call(60):
            questions.asked("q", params)
            assert await answers.to("q") == -32602
