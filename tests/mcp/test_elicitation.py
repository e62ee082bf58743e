"""Servers that ask the user, as real programs (requirements A28, E6; MCP "Elicitation")."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.mcp import McpOrigin, McpServer, McpState, StdioServer
from acp_agent.core.ports import ElicitationAction, Form, Visit
from acp_agent.mcp.client_session import VERSIONS
from acp_agent.mcp.elicitation import MOST_A_CALL
from tests.fakes.fake_elicitor import FakeElicitor
from tests.mcp.stage import Stage, http, on_stage, stdio
from tests.mcp.web_server import event, stream, web_server

pytestmark = pytest.mark.anyio

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORM = {"mode": "form", "message": "Who are you?", "requestedSchema": NAME}
VISIT = {"mode": "url", "message": "Sign in.", "url": "https://login.example/", "elicitationId": "theirs"}


async def elicited(stage: Stage, *questions: Any) -> Any:
    """What the server was answered, in the order of its questions; and what it was told we can."""
    await stage.reach(McpState.READY)
    return json.loads(await stage.call(json.dumps(questions)))


async def test_a_form_and_a_page_reach_the_user_in_the_servers_name_and_his_answers_the_server():
    user = FakeElicitor(content={"name": "Ada"})
    async with on_stage(stdio("elicits"), elicitor=user) as stage:
        told = await elicited(stage, FORM, VISIT)

    assert told["capabilities"]["elicitation"] == {"form": {}, "url": {}}
    assert told["got"][0] == {"action": "accept", "content": {"name": "Ada"}}
    assert told["got"][1]["action"] == "accept"
    form, visit = user.asked
    assert form == Form("Who are you?", NAME, source="hostile")
    assert isinstance(visit, Visit)
    assert (visit.url, visit.source) == ("https://login.example/", "hostile")
    assert visit.id != "theirs"  # two servers may use the same


async def test_only_what_the_editor_can_show_is_offered_and_the_rest_refused():
    user = FakeElicitor(content={}, visits=False)
    async with on_stage(stdio("elicits"), elicitor=user) as stage:
        told = await elicited(stage, VISIT)

    assert (told["capabilities"]["elicitation"], told["got"]) == ({"form": {}}, [-32602])


async def test_where_nobody_can_be_asked_nothing_is_offered():
    async with on_stage(stdio("elicits")) as stage:
        told = await elicited(stage, FORM)

    assert (told["capabilities"], told["got"]) == ({}, [-32601])


async def test_what_no_form_may_ask_is_declined_unseen_and_what_none_can_is_an_error():
    def form(**fields: Any) -> dict[str, Any]:
        return {"message": "Please.", "requestedSchema": {"type": "object", "properties": fields}}

    user = FakeElicitor(content={})
    questions = [
        form(apiKey={"type": "string"}),
        {**FORM, "message": "Enter your password"},
        form(deep={"type": "object", "properties": {}}),
        {**VISIT, "url": "http://evil.example/"},
    ]
    async with on_stage(stdio("elicits"), elicitor=user) as stage:
        told = await elicited(stage, *questions)

    assert told["got"] == [{"action": "decline"}, {"action": "decline"}, -32602, -32602]
    assert user.asked == []


async def test_a_flood_of_questions_is_declined_but_for_a_few():
    user = FakeElicitor(content={"name": "Ada"})
    async with on_stage(stdio("elicits"), elicitor=user) as stage:
        told = await elicited(stage, *[FORM] * 50)
        again = await elicited(stage, FORM)  # the next call has its own

    assert [each["action"] for each in told["got"]].count("accept") == MOST_A_CALL
    assert len(user.asked) == MOST_A_CALL + 1
    assert again["got"][0]["action"] == "accept"


async def test_without_a_call_nobody_is_asked():
    user = FakeElicitor(content={})
    async with on_stage(stdio("elicits_alone"), elicitor=user) as stage:
        await stage.until(lambda: "result" in stage.definition().description)
        told = stage.definition().description

    assert json.loads(told)["result"] == {"action": "cancel"}
    assert user.asked == []


async def test_the_time_a_user_takes_is_not_the_calls():
    user = FakeElicitor(content={"name": "Ada"}, hold=anyio.Event())

    async def answer_late() -> None:
        await user.shown.wait()
        await anyio.sleep(1)
        assert user.hold is not None
        user.hold.set()

    async with on_stage(stdio("elicits", tool_timeout=0.8), elicitor=user) as stage:
        await stage.reach(McpState.READY)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_late)
            assert (await elicited(stage, FORM))["got"][0]["action"] == "accept"


async def test_a_call_that_is_cancelled_takes_its_question_with_it():
    user = FakeElicitor(hold=anyio.Event())
    async with on_stage(stdio("elicits"), elicitor=user) as stage:
        await stage.reach(McpState.READY)
        async with anyio.create_task_group() as turn:
            turn.start_soon(elicited, stage, FORM)
            await user.shown.wait()
            turn.cancel_scope.cancel()
        user.hold, user.content = None, {"name": "Ada"}
        assert (await elicited(stage, FORM))["got"][0]["action"] == "accept"


async def test_a_server_that_dies_takes_its_question_with_it():
    user = FakeElicitor(hold=anyio.Event())
    async with on_stage(stdio("elicits"), elicitor=user) as stage:
        await stage.reach(McpState.READY)
        failures = []

        async def call() -> None:
            failures.append(await stage.failure(json.dumps([FORM])))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await user.shown.wait()
            stage.connection.close()
    assert failures[0].category is ToolErrorCategory.NETWORK_ERROR


async def test_a_genuine_server_asks_and_is_answered():
    user = FakeElicitor(content={"name": "Ada", "seats": 2, "window": True})
    command = (str(Path(__file__).with_name("genuine_asking.py")),)
    async with on_stage(
        McpServer("genuine", StdioServer(sys.executable, command), McpOrigin.CONFIG), elicitor=user
    ) as stage:
        await stage.reach(McpState.READY)
        booked = (await stage.reply({}, "book")).text
        assert "accept" in booked
        assert "name='Ada', seats=2, window=True" in booked
        assert (await stage.reply({}, "sign_in")).text == "accept"
        user.content, user.otherwise = None, ElicitationAction.DECLINE
        assert (await stage.reply({}, "book")).text == "decline"
    form, visit, _ = user.asked
    assert isinstance(form, Form)
    assert isinstance(visit, Visit)
    assert form.schema["properties"]["name"]["minLength"] == 2
    assert form.schema["properties"]["seats"]["maximum"] == 9
    assert user.gone == [visit.id]


async def test_a_question_may_come_among_the_events_of_a_call_over_http():
    user = FakeElicitor(content={"name": "Ada"})
    answered = anyio.Event()

    async def call(request, writer):
        stream(writer)
        asked = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": FORM}
        writer.write(event(json.dumps(asked).encode()))
        await writer.drain()
        await answered.wait()
        (got,) = [each.message["result"] for each in web.asked if each.message.get("id") == "q"]
        writer.write(event(request.text(json.dumps(got))))

    async def hear(web):
        while not any(each.message.get("id") == "q" for each in web.asked):
            web.came.clear()
            await web.came.wait()
        answered.set()

    async with web_server(tools_call=call) as web, on_stage(http(web.port), elicitor=user) as stage:
        await stage.reach(McpState.READY)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hear, web)
            with anyio.fail_after(10):
                assert json.loads(await stage.call()) == {"action": "accept", "content": {"name": "Ada"}}


def test_we_speak_the_versions_the_package_does():
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION  # noqa: PLC0415 - only here

    assert HANDSHAKE_PROTOCOL_VERSIONS == VERSIONS
    assert VERSIONS[-1] == LATEST_HANDSHAKE_VERSION
