"""Questions over `elicitation/create`: what the editor is sent, and what becomes of what it answers."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acp_agent.core.ports import ElicitationAction, ElicitationAnswer, Form, Visit
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol.client import Client
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.questions import LONGEST, EditorElicitor, fitting
from tests.rows import each_row
from tests.unit.protocol.wires import OtherEnd, connected
from tests.wire import schema

pytestmark = pytest.mark.anyio

BOTH = Client(elicit_forms=True, elicit_urls=True)
NAME: JsonObject = {"type": "object", "properties": {"name": {"type": "string", "title": "Name"}}, "required": ["name"]}
FORM = Form("Who are you?", NAME, call_id="call-1")
VISIT = Visit("Sign in.", "https://login.example/x", "visit-1", source="jira")
CANCELLED = ElicitationAnswer(ElicitationAction.CANCEL, {})
DECLINED = ElicitationAnswer(ElicitationAction.DECLINE, {})


def elicitor(peer: Peer, client: Client = BOTH, timeout: float = 0) -> EditorElicitor:
    return EditorElicitor(peer, "session", client, lambda text: text.replace("hunter2", "[REDACTED]"), timeout)


def lawful(request: Any) -> Any:
    """The params of a request, which must be what the protocol's own schema wants."""
    assert request["method"] == "elicitation/create"
    if schema.available():
        document = schema._schema()
        root = {"$ref": "#/$defs/CreateElicitationRequest", "$defs": document["$defs"]}
        assert [error.message for error in Draft202012Validator(root).iter_errors(request["params"])] == []
    return request["params"]


async def asked(question: Form | Visit, **answer: Any) -> tuple[ElicitationAnswer, Any]:
    """What comes of a question that is answered so, and the params that were sent."""
    found: list[Any] = []

    async def ask(peer: Peer) -> None:
        one = elicitor(peer)
        found.append(await (one.fill_in(question) if isinstance(question, Form) else one.visit(question)))

    async with connected() as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(ask, peer)
        request = await other.receive()
        other.send(id=request["id"], **answer)
    return found[0], lawful(request)


def accepts(**content: Any) -> dict[str, Any]:
    return {"result": {"action": "accept", "content": content}}


def test_what_the_client_can_show_is_read_from_its_capabilities():
    def client(elicitation: Any) -> Client:
        return Client.from_initialize({"clientCapabilities": {"elicitation": elicitation}})

    assert (client({"form": {}, "url": {}}).elicit_forms, client({"form": {}, "url": {}}).elicit_urls) == (True, True)
    assert (client({"form": {}}).elicit_forms, client({"form": {}}).elicit_urls) == (True, False)
    for nothing in (None, {}, {"form": None, "url": True}, [], "form"):
        assert (client(nothing).elicit_forms, client(nothing).elicit_urls) == (False, False)


async def test_a_form_of_the_agents_own_is_sent_as_the_protocol_has_it():
    answer, params = await asked(FORM, **accepts(name="Ada", other="dropped"))

    assert answer == ElicitationAnswer(ElicitationAction.ACCEPT, {"name": "Ada"})
    assert params == {
        "sessionId": "session",
        "toolCallId": "call-1",
        "mode": "form",
        "message": "Who are you?",
        "requestedSchema": NAME,
    }


async def test_a_form_of_a_server_names_it_and_hides_nothing():
    fields: JsonObject = {
        "pick": {"type": "string", "title": "a\u202eb", "oneOf": [{"const": "hunter2", "title": "is it hunter2?"}]}
    }
    form = Form("line one\nhunter2 \x1b[8m", {"type": "object", "properties": fields}, source="ji\u200bra")
    answer, params = await asked(form, **accepts(pick="hunter2"))

    assert params["message"] == "MCP server 'ji\\u200bra' asks: line one\n[REDACTED] \\u001b[8m"
    assert params["requestedSchema"]["properties"]["pick"] == {
        "type": "string",
        "title": "a\\u202eb",
        "oneOf": [{"const": "hunter2", "title": "is it [REDACTED]?"}],  # what is picked must mean the same
    }
    assert "toolCallId" not in params
    assert answer.content == {"pick": "hunter2"}


@pytest.mark.parametrize("at", range(7993, 8007))
async def test_a_long_text_is_never_cut_within_a_secret_that_the_user_is_then_shown(at: int):
    key, secret = "k" * 5000, "hunter2-in-full"
    text = f"{key}{' ' * (at - len(key))}{secret} and so on{'.' * 5000}"

    def redact(text: str) -> str:
        return text.replace(key, "[KEY]").replace(secret, "[REDACTED]")

    async def ask(peer: Peer) -> None:
        await EditorElicitor(peer, "session", BOTH, redact).fill_in(Form(text, NAME))

    async with connected() as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(ask, peer)
        request = await other.receive()
        other.send(id=request["id"], **accepts(name="Ada"))
    message = lawful(request)["message"]
    assert message.startswith("[KEY] ")
    assert message.endswith("…")
    assert "h" not in message


async def test_no_words_of_a_question_have_an_editor_fetch_a_picture_and_values_stay_as_they_are():
    picture, harmless = "![x](https://evil.example/p)", r"![x]\(https://evil.example/p)"
    field: JsonObject = {
        "type": "string",
        "title": picture,
        "description": picture,
        "default": picture,
        "oneOf": [{"const": picture, "title": picture}],
    }
    form = Form(picture, {"type": "object", "properties": {"p": field}}, source="jira")
    answer, params = await asked(form, **accepts(p=picture))

    assert answer.content == {"p": picture}
    assert params["message"] == f"MCP server 'jira' asks: {harmless}"
    assert params["requestedSchema"]["properties"]["p"] == {
        "type": "string",
        "title": harmless,
        "description": harmless,
        "default": picture,
        "oneOf": [{"const": picture, "title": harmless}],
    }
    _, params = await asked(Visit(picture, "https://login.example/x", "visit-1"), result={"action": "cancel"})
    assert harmless in params["message"]


@each_row(
    "answer, meant",
    [
        ({"result": {"action": "decline"}}, DECLINED),
        ({"result": {"action": "cancel"}}, CANCELLED),
        ({"result": {"action": "_custom", "content": {"name": "Ada"}}}, CANCELLED),
        ({"result": {"action": "accept", "content": {"name": 5}}}, CANCELLED),
        ({"result": {"action": "accept"}}, CANCELLED),
        ({"result": {"content": {"name": "Ada"}}}, CANCELLED),
        ({"result": "accept"}, CANCELLED),
        ({"result": None}, CANCELLED),
        ({"error": {"code": -32601, "message": "Method not found"}}, CANCELLED),
    ],
)
async def test_only_a_yes_that_fits_the_form_counts(answer: dict[str, Any], meant: ElicitationAnswer):
    assert (await asked(FORM, **answer))[0] == meant


async def test_a_page_is_named_whole_with_its_real_host_and_its_end_is_told_once():
    visit = Visit("Sign in.", "https://\u0430pple.com/x?y=1", "visit-1", source="jira")
    answers: list[ElicitationAnswer] = []
    async with connected() as (peer, other):
        one = elicitor(peer)

        async def ask() -> None:
            answers.append(await one.visit(visit))

        one.visited("visit-1")  # nobody was sent there yet
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            request = await other.receive()
            params = lawful(request)
            other.send(id=request["id"], result={"action": "accept"})
        one.visited("visit-1")
        one.visited("visit-1")
        one.visited("another")
        assert await other.receive() == {
            "jsonrpc": "2.0",
            "method": "elicitation/complete",
            "params": {"elicitationId": "visit-1"},
        }
        peer.post_notification("test/nothing_between", {})
        assert (await other.receive())["method"] == "test/nothing_between"
    assert answers == [ElicitationAnswer(ElicitationAction.ACCEPT, {})]
    assert (params["url"], params["elicitationId"]) == ("https://xn--pple-43d.com/x?y=1", "visit-1")
    assert params["message"].startswith("MCP server 'jira' asks you to open https://xn--pple-43d.com/x?y=1\nSign in.")


async def test_a_page_that_may_mislead_is_not_shown():
    async with connected() as (peer, _other):
        for url in ("http://example.com/", "https://a@b.example/", "javascript:alert(1)"):
            assert await elicitor(peer).visit(Visit("Go.", url, "1")) == CANCELLED


async def test_an_editor_is_asked_only_for_what_it_can_show():
    async with connected() as (peer, _other):
        assert await elicitor(peer, Client(elicit_urls=True)).fill_in(FORM) == CANCELLED
        assert await elicitor(peer, Client(elicit_forms=True)).visit(VISIT) == CANCELLED


async def test_a_question_nobody_answers_is_withdrawn_and_a_late_answer_means_nothing():
    async with connected() as (peer, other):
        one = elicitor(peer, timeout=0.01)
        assert await one.fill_in(FORM) == CANCELLED
        request = await other.receive()
        assert (await other.receive())["params"] == {"requestId": request["id"]}
        other.send(id=request["id"], **accepts(name="late"))
        assert await one.fill_in(FORM) == CANCELLED


async def test_the_end_of_a_turn_withdraws_its_question():
    async with connected() as (peer, other), anyio.create_task_group() as turn:
        turn.start_soon(elicitor(peer).fill_in, FORM)
        request = await other.receive()
        turn.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            withdrawn = await other.receive()
    assert withdrawn == {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": request["id"]}}


async def test_an_editor_that_goes_answers_nothing():
    async with connected() as (peer, other):

        async def hang_up() -> None:
            await other.receive()
            other.end()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang_up)
            assert await elicitor(peer).fill_in(FORM) == CANCELLED


async def test_one_question_is_shown_at_a_time_four_wait_and_more_are_turned_away():
    answers: list[tuple[int, ElicitationAction]] = []
    async with connected() as (peer, other):
        one = elicitor(peer)

        async def ask(number: int) -> None:
            answers.append((number, (await one.fill_in(Form(f"question {number}", NAME))).action))

        async with anyio.create_task_group() as tasks:
            for number in range(7):
                tasks.start_soon(ask, number)
            for number in range(5):
                request = await other.receive()
                assert request["params"]["message"] == f"question {number}"
                if number == 0:
                    assert answers == [(5, ElicitationAction.CANCEL), (6, ElicitationAction.CANCEL)]
                await answer_twice(other, request["id"])
    assert answers[2:] == [(number, ElicitationAction.ACCEPT) for number in range(5)]


async def answer_twice(other: OtherEnd, request_id: int) -> None:
    """Nobody minds the second one."""
    other.send(id=request_id, **accepts(name="first"))
    other.send(id=request_id, **accepts(name="second"))
    await anyio.lowlevel.checkpoint()


async def test_an_answer_that_comes_when_nobody_wants_it_any_more_is_none():
    found: list[ElicitationAnswer] = []
    turn_goes_on = True

    async def ask(peer: Peer) -> None:
        one = EditorElicitor(peer, "session", BOTH, str, wanted=lambda: turn_goes_on)
        found.extend([await one.fill_in(FORM), await one.visit(VISIT)])

    async with connected() as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(ask, peer)
        request = await other.receive()
        turn_goes_on = False
        other.send(id=request["id"], **accepts(name="Ada"))
    assert found == [CANCELLED, CANCELLED]


async def test_nothing_is_asked_when_nobody_wants_to_know():
    async with connected() as (peer, _):
        one = EditorElicitor(peer, "session", BOTH, str, wanted=lambda: False)
        assert [await one.fill_in(FORM), await one.visit(VISIT)] == [CANCELLED, CANCELLED]


TITLED: list[Json] = [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]
FIELDS: JsonObject = {
    "text": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
    "mail": {"type": "string", "format": "email"},
    "page": {"type": "string", "format": "uri"},
    "day": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "date-time"},
    "plain": {"type": "string", "enum": ["x", "y"]},
    "titled": {"type": "string", "oneOf": TITLED},
    "whole": {"type": "integer", "minimum": 1, "maximum": 9},
    "number": {"type": "number", "minimum": 0.5},
    "flag": {"type": "boolean"},
    "many": {"type": "array", "items": {"anyOf": TITLED}, "minItems": 1},
    "few": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "maxItems": 1},
}
SCHEMA: JsonObject = {"type": "object", "properties": FIELDS}


@pytest.mark.parametrize(
    "content",
    [
        {"text": "abc", "mail": "a@b.example", "page": "https://a.example/", "day": "2026-11-21"},
        {"time": "2026-11-21T10:00:00Z", "plain": "y", "titled": "b", "whole": 9, "number": 0.5, "flag": False},
        {"many": ["b", "r"], "few": []},
        {"number": 10**400},
        {},
    ],
)
def test_what_fits_is_handed_on(content: JsonObject):
    assert fitting(SCHEMA, content) == content


@each_row(
    "content",
    [
        {"text": "a"},
        {"text": "abcdef"},
        {"text": "ABC"},
        {"text": 5},
        {"mail": "a.example"},
        {"page": "a b"},
        {"day": "tomorrow"},
        {"time": "10:00"},
        {"plain": "z"},
        {"titled": "Red"},
        {"whole": 0},
        {"whole": 1.5},
        {"whole": True},
        {"whole": "5"},
        {"number": float("nan")},
        {"number": float("inf")},
        {"flag": 1},
        {"flag": "true"},
        {"many": []},
        {"many": ["r", "r"]},
        {"many": ["r", "z"]},
        {"many": "r"},
        {"many": [["r"]]},
        {"few": ["x", "y"]},
        "yes",
        ["abc"],
        7,
    ],
)
def test_what_does_not_fit_spoils_the_answer(content: Json):
    assert fitting(SCHEMA, content) is None


def test_a_whole_number_written_as_another_is_one():
    found = fitting(SCHEMA, {"whole": 5.0})

    assert found == {"whole": 5}
    assert isinstance(found["whole"], int)


def test_a_field_that_is_needed_must_be_there_and_others_may_be_left_empty():
    form: JsonObject = {**SCHEMA, "required": ["text"]}

    assert fitting(form, {"text": "abc", "whole": None, "mail": "", "unknown": [1]}) == {"text": "abc"}
    assert fitting(form, {}) is None
    assert fitting(form, None) is None
    assert fitting(form, {"text": ""}) is None
    assert fitting({"type": "object", "properties": {}}, None) == {}


def test_a_text_without_a_limit_has_one_all_the_same():
    form: JsonObject = {"type": "object", "properties": {"text": {"type": "string"}}}

    assert fitting(form, {"text": "x" * (LONGEST + 1)}) is None


_VALUES = (
    st.none() | st.booleans() | st.integers(-1, 10) | st.floats() | st.text(max_size=6) | st.sampled_from(["x", "abc"])
)


@given(st.dictionaries(st.sampled_from([*FIELDS, "other"]), _VALUES | st.lists(_VALUES, max_size=3), max_size=4))
def test_whatever_is_answered_what_is_handed_on_fits_the_schema(content: dict[str, Json]):
    found = fitting(SCHEMA, content)

    assert found is None or Draft202012Validator(SCHEMA).is_valid(found)
