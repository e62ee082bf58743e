"""A server's questions between its calls and the user: time, order and withdrawal. Real servers: tests/mcp."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acp_agent.core.types import Json, JsonObject
from acp_agent.mcp.channel import MessageChannel
from acp_agent.mcp.elicitation import MAX_CHOICES, MAX_FIELDS, SecretRequestedError, ServerElicitations, form_schema
from tests.fakes.fake_elicitor import FakeElicitor
from tests.fakes.passing_time import all_tasks_blocked
from tests.rows import each_row
from tests.wire import schema

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
        with anyio.fail_after(20):
            while identity not in self._got:
                self._take(await self._wire.outgoing.receive())
        return self._got.pop(identity)

    async def none(self) -> bool:
        """Whether nothing is on its way."""
        await all_tasks_blocked()
        with suppress(anyio.WouldBlock):
            self._take(self._wire.outgoing.receive_nowait())
        return not self._got

    def _take(self, item: Any) -> None:
        message = item.message.model_dump(by_alias=True, exclude_none=True)
        self._got[message["id"]] = message.get("result") or message["error"]["code"]


@asynccontextmanager
async def served(user: FakeElicitor, patience: float = 60) -> AsyncGenerator[tuple[ServerElicitations, Answers]]:
    questions = ServerElicitations("jira", user, patience)
    channel = MessageChannel(on_list_changed=lambda: None, sleep=no_sleep, asker=questions)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(questions.serve, channel)
        await all_tasks_blocked()
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
            with anyio.fail_after(20):
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


@each_row("params", [None, [], {}, {"message": 5}, {**FORM, "mode": "x"}, {**VISIT, "elicitationId": ""}])
async def test_what_is_no_question_is_an_error(params: Any):
    async with served(FakeElicitor()) as (questions, answers):
        with questions.call(60):
            questions.asked("q", params)
            assert await answers.to("q") == -32602


def form(**fields: Any) -> Any:
    return {"type": "object", "properties": fields}


def field(**keywords: Any) -> Any:
    """What becomes of a single field."""
    properties = form_schema(form(name=keywords))["properties"]
    assert isinstance(properties, dict)
    return properties["name"]


@each_row(
    "keywords",
    [
        {"type": "string", "title": "T", "description": "D", "minLength": 1, "maxLength": 9, "default": "x"},
        {"type": "string", "format": "email"},
        {"type": "string", "pattern": "^[a-z]+$"},
        {"type": "string", "enum": ["a", "b"], "default": "a"},
        {"type": "string", "oneOf": [{"const": "a", "title": "A", "description": "first"}]},
        {"type": "integer", "minimum": 1, "maximum": 9, "default": 5},
        {"type": "number", "minimum": 0.5},
        {"type": "boolean", "default": True},
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1},
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "maxItems": 1},
    ],
)
def test_what_acp_has_comes_through_as_it_is(keywords: dict[str, Any]):
    assert field(**keywords) == keywords


@each_row(
    "keywords, becomes",
    [
        ({"type": "string", "format": "uuid", "x": 1, "minLength": -1}, {"type": "string"}),
        ({"type": "string", "pattern": "(?=a)b"}, {"type": "string"}),  # nothing that runs in linear time
        ({"type": "string", "minLength": 2.0}, {"type": "string", "minLength": 2}),
        ({"type": "string", "default": "a\u200bb"}, {"type": "string"}),
        ({"type": "integer", "minimum": True, "default": "5"}, {"type": "integer"}),
        ({"type": "string", "title": "a\u202eb"}, {"type": "string", "title": "a\\u202eb"}),
        (
            {"type": "string", "enum": ["a"], "enumNames": ["A"]},
            {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
        ),
        ({"type": "string", "oneOf": [{"const": "a"}]}, {"type": "string", "oneOf": [{"const": "a", "title": "a"}]}),
    ],
)
def test_what_acp_has_no_word_for_is_left_out(keywords: dict[str, Any], becomes: dict[str, Any]):
    assert field(**keywords) == becomes


@each_row(
    "asked",
    [
        None,
        [],
        {"type": "string"},
        {"type": "object", "properties": []},
        form(a={"type": "object"}),
        form(a={"type": "array", "items": {"type": "object"}}),
        form(a={"type": "array"}),
        form(a={"type": ["string", "null"]}),
        form(a={"$ref": "#/x"}),
        form(a=True),
        form(**{"a b": {"type": "string"}}),
        form(**{"a\u200b": {"type": "string"}}),
        form(**{f"f{number}": {"type": "boolean"} for number in range(MAX_FIELDS + 1)}),
        form(a={"type": "string", "enum": []}),
        form(a={"type": "string", "enum": ["x"] * (MAX_CHOICES + 1)}),
        form(a={"type": "string", "enum": ["a\u202eb"]}),
        form(a={"type": "string", "enum": [1]}),
        form(a={"type": "string", "oneOf": ["a"]}),
        form(a={"type": "string", "oneOf": {"const": "a"}}),
        form(a={"type": "string", "description": "x" * 40_000}),
    ],
)
def test_what_cannot_be_shown_is_refused_with_a_reason(asked: Json):
    with pytest.raises(ValueError, match=r"\w"):
        form_schema(asked)


@each_row(
    "fields",
    [
        {"password": {"type": "string"}},
        {"x": {"type": "string", "format": "password"}},
        {"x": {"type": "string", "title": "API key"}},
        {"x": {"type": "string", "description": "Paste your access token"}},
        {"pin": {"type": "integer"}},
        {"name": {"type": "string"}, "client_secret": {"type": "string"}},
    ],
)
def test_a_field_for_a_secret_is_refused(fields: dict[str, Any]):
    with pytest.raises(SecretRequestedError):
        form_schema(form(**fields))


def test_a_choice_about_secrets_holds_none():
    form_schema(form(token={"type": "string", "enum": ["keep", "rotate"]}, save_password={"type": "boolean"}))


def test_only_fields_there_are_can_be_needed():
    asked = {**form(a={"type": "string"}), "required": ["a", "b", 5], "title": "T"}

    assert form_schema(asked) == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "title": "T",
    }


_WORDS = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "email", "a", "\u202e", ""])
_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["const", "title", "enum", "anyOf", "oneOf", "type"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYWORDS = st.sampled_from(
    [
        *(
            "title",
            "description",
            "minLength",
            "maxLength",
            "pattern",
            "format",
            "default",
            "enum",
            "enumNames",
            "oneOf",
        ),
        *("minimum", "maximum", "items", "minItems", "maxItems", "anyOf"),
    ]
)


@given(_WORDS, st.dictionaries(_KEYWORDS, _VALUES, max_size=5), _VALUES)
def test_whatever_is_asked_what_is_shown_is_lawful(kind: str, keywords: dict[str, Any], required: Json):
    try:
        shown: JsonObject = form_schema({**form(a={"type": kind, **keywords}), "required": required})
    except (ValueError, SecretRequestedError):
        return
    if schema.available():
        document = schema._schema()
        judge = Draft202012Validator({"$ref": "#/$defs/ElicitationSchema", "$defs": document["$defs"]})
        assert [error.message for error in judge.iter_errors(shown)] == []
    Draft202012Validator.check_schema(shown)
