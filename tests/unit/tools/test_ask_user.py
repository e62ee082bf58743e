"""ask_user: the form the user sees, and what the model hears of his answer."""

from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import ElicitationAction, Form
from acp_agent.core.types import ToolResult
from acp_agent.tools.ask_user import AskUser
from tests.fakes.fake_elicitor import FakeElicitor
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

COLOUR = {"question": "Which colour?", "options": [{"label": "red", "description": "warm"}, {"label": "blue"}]}
PARTS = {"question": "Which parts?", "options": [{"label": "api"}, {"label": "cli"}], "multiple": True}
NAME = {"question": "What is it called?"}


async def asked(elicitor: FakeElicitor | None, *questions: object) -> ToolResult:
    bench = Workbench(tools=[AskUser()])
    invocation = await bench.understand("ask_user", questions=list(questions))
    context = bench.context(invocation)
    return await invocation.run(replace(context, backends=replace(context.backends, elicitor=elicitor)))


async def form_of(*questions: object) -> Any:
    elicitor = FakeElicitor()
    await asked(elicitor, *questions)
    (form,) = elicitor.asked
    assert isinstance(form, Form)
    assert form.call_id
    Draft202012Validator.check_schema(form.schema)
    return form


async def test_a_single_question_is_the_message_and_its_options_one_field_beside_a_note() -> None:
    form = await form_of(COLOUR)

    assert form.message == "Which colour?"
    assert form.source == ""
    assert form.schema["properties"]["q1"] == {
        "type": "string",
        "title": "Your answer",
        "oneOf": [{"const": "red", "title": "red", "description": "warm"}, {"const": "blue", "title": "blue"}],
    }
    assert form.schema["properties"]["note"]["type"] == "string"
    assert form.schema["required"] == []  # what none of the options says goes into the note


async def test_several_questions_are_fields_with_the_questions_over_them() -> None:
    long = {"question": "Tell me, " + "x" * 200}
    form = await form_of(PARTS, NAME, long)

    fields = form.schema["properties"]
    assert fields["q1"]["items"] == {"anyOf": [{"const": "api", "title": "api"}, {"const": "cli", "title": "cli"}]}
    assert fields["q2"] == {"type": "string", "title": "What is it called?", "minLength": 1}
    assert (fields["q3"]["title"], fields["q3"]["description"]) == ("Question 3", long["question"])
    assert form.schema["required"] == ["q2", "q3"]


async def test_without_options_there_is_no_note() -> None:
    assert list((await form_of(NAME)).schema["properties"]) == ["q1"]


async def test_the_model_reads_each_answer_below_its_question() -> None:
    elicitor = FakeElicitor(content={"q2": ["api", "cli"], "q3": "Ada", "note": "red is too loud"})
    result = await asked(elicitor, COLOUR, PARTS, NAME)

    assert result.text == (
        "Which colour?\n→ (no answer)\nWhich parts?\n→ api, cli\nWhat is it called?\n→ Ada\n"
        "The user adds: red is too loud"
    )


@pytest.mark.parametrize(
    ("action", "told"), [(ElicitationAction.DECLINE, "declined to answer"), (ElicitationAction.CANCEL, "closed the")]
)
async def test_a_no_is_told_plainly_and_is_no_failure(action: ElicitationAction, told: str) -> None:
    result = await asked(FakeElicitor(otherwise=action), NAME)

    assert told in result.text
    assert result.failure is None


@pytest.mark.parametrize("elicitor", [None, FakeElicitor(forms=False)])
async def test_where_no_form_can_be_shown_the_model_is_told_to_ask_in_its_answer(elicitor: FakeElicitor | None) -> None:
    with pytest.raises(ToolError, match="cannot show questions") as caught:
        await asked(elicitor, NAME)
    assert "Ask in your answer" in caught.value.failure.suggestion


async def test_a_question_for_a_secret_reaches_nobody() -> None:
    elicitor = FakeElicitor()
    with pytest.raises(ToolError, match="question 2 asks for a secret") as caught:
        await asked(elicitor, NAME, {"question": "Please paste your API key"})
    assert caught.value.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert elicitor.asked == []


async def test_two_options_that_look_the_same_are_refused() -> None:
    with pytest.raises(ToolError, match="two options with the same label"):
        await asked(FakeElicitor(), {"question": "Which?", "options": [{"label": "a"}, {"label": "a"}]})


@pytest.mark.parametrize("count", [0, 5])
async def test_it_is_one_to_four_questions(count: int) -> None:
    with pytest.raises(ToolError, match="a list of 1 to 4"):
        await asked(FakeElicitor(), *[NAME] * count)
