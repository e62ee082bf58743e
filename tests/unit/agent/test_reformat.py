"""One bounded request for arguments that fit; whatever comes back, nothing but an object is taken."""

import json

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent.aids.arguments import Reformatter, parsed
from acp_agent.core.errors import ProviderError, ProviderErrorKind, ToolErrorCategory, ToolFailure
from acp_agent.core.messages import ModelStop
from acp_agent.core.types import JsonObject, ToolCall, ToolKind, ToolSpec
from tests.fakes.scripted_provider import Hang, Script, ScriptedProvider, Step, call, say, use
from tests.rows import each_row

pytestmark = pytest.mark.anyio

SPEC = ToolSpec("read", "Reads.", {"type": "object"}, ToolKind.READ, mutates=False)
FAILURE = ToolFailure(ToolErrorCategory.TYPE_MISMATCH, "path: a text expected")
SECRET = "fake-secret-0123456789"


class Mender:
    """A reformatter over a scripted model."""

    def __init__(self, *script: Script, seconds: float = 5.0) -> None:
        self.provider = ScriptedProvider(script)
        self.mend = Reformatter("small:model", self._model, lambda t: t.replace(SECRET, "[X]"), seconds=seconds)

    async def _model(self) -> ScriptedProvider:
        return self.provider

    async def __call__(self, arguments: JsonObject | None, raw: str = "") -> JsonObject | None:
        return await self.mend(ToolCall("1", "read", arguments, raw), SPEC, FAILURE)


async def test_the_model_is_given_the_schema_the_mistake_and_the_arguments_and_no_tools():
    mender = Mender(say('{"path": "a"}'))
    assert await mender({"path": 3}) == {"path": "a"}
    [request] = mender.provider.requests
    assert json.loads(request.messages[0].text) == {
        "tool": "read",
        "description": "Reads.",
        "schema": {"type": "object"},
        "error": "path: a text expected",
        "arguments": '{"path": 3}',
    }
    assert not request.tools
    assert mender.mend.status() == ("Argument repair: by small:model, 1 of 1 calls repaired",)


@each_row(
    "answer",
    [
        say("null"),
        say(""),
        say("I cannot do that."),
        say('["path"]'),
        say('{"path": NaN}'),
        say('{"path": 1e999}'),
        say('{"path": '),
        say("{" * 100_000 + "}"),
        say('{"a":' * 100_000 + "1" + "}" * 100_000),
        say('{"path": 3}'),  # what was there before
        use(call("read", path="a")),
        Step(text='{"path": "a"}', stop=ModelStop.MAX_TOKENS),
        Step(text='{"path": "a"}', stop=ModelStop.REFUSAL),
        Step(text='{"path": "a"}', ends=False),
        ProviderError("down", kind=ProviderErrorKind.NETWORK),
    ],
)
async def test_what_is_no_object_is_no_answer(answer):
    mender = Mender(answer)
    assert await mender({"path": 3}) is None
    assert mender.mend.attempts == 1
    assert mender.mend.repaired == 0


async def test_a_model_that_does_not_answer_in_time_is_left():
    hang = Hang()
    mender = Mender(Step(hang=hang), seconds=0.01)
    assert await mender({"path": 3}) is None
    assert hang.reached.is_set()
    assert mender.provider.closed == 1


async def test_a_model_that_is_not_there_is_no_trouble():
    async def nobody() -> ScriptedProvider:
        raise ProviderError("no such provider", kind=ProviderErrorKind.NOT_CONFIGURED)

    mend = Reformatter("x:y", nobody, lambda text: text)
    assert await mend(ToolCall("1", "read", {"path": 3}), SPEC, FAILURE) is None


@each_row(
    "arguments, raw",
    [
        ({"path": "x" * 10_000}, ""),
        (None, ""),
        (None, "  "),
        (None, "{" * 9000),
        ({"path": SECRET}, ""),
        (None, SECRET),
    ],
)
async def test_nothing_is_sent_where_nothing_good_can_come_back(arguments, raw):
    mender = Mender()
    assert await mender(arguments, raw) is None
    assert not mender.provider.requests


async def test_a_cancelled_turn_is_not_held_up():
    hang = Hang()
    mender = Mender(Step(hang=hang), seconds=600)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mender, {"path": 3})
        await hang.reached.wait()
        tasks.cancel_scope.cancel()
    assert mender.provider.closed == 1


@given(st.text())
def test_any_text_is_an_object_or_nothing(answer):
    value = parsed(answer)
    assert value is None or isinstance(value, dict)


@given(
    st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())),
    st.text(st.characters(exclude_characters="{}")),
)
def test_an_object_is_found_among_other_words(table, words):
    assert parsed(f"{words}{json.dumps(table)}{words}") == table
