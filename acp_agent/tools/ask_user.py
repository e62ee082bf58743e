"""ask_user: the model asks questions, and the user answers them in a form (ACP, "Elicitation").

It exists only if the editor can show forms. Otherwise the model asks in its answer and ends the turn. It asks at every
approval level, because the question of the model is not a call that needs permission.
"""

from typing import Annotated

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import ElicitationAction, ElicitationAnswer, Form, ToolContext
from acp_agent.core.secrets import asks_for_secret
from acp_agent.core.types import Json, JsonObject, ToolKind, ToolResult
from acp_agent.shape import Field
from acp_agent.text import title
from acp_agent.tools.tool import Name, Params, Part, SessionTool, Text

_LABEL = 120  # characters of a question that are shown as the label of a field
_NOTE = "note"


class AnswerOption(Part):
    """An answer that the user can choose."""

    label: Annotated[Name, Field(max_length=100)]
    description: Annotated[Text, Field(max_length=300)] = ""


class UserQuestion(Part):
    """One question. Without options the user answers in their own words."""

    question: Annotated[Name, Field(max_length=1000)]
    options: Annotated[list[AnswerOption], Field(max_length=20)] = Field(default_factory=list[AnswerOption])
    multiple: bool = False


class AskUserParams(Params):
    """Ask the user what only they can decide. Without options they answer in their own words. Never ask for secrets."""

    questions: Annotated[list[UserQuestion], Field(min_length=1, max_length=4)]


class AskUser(SessionTool[AskUserParams]):
    """The tool that shows questions to the user, as one form, through `Backends.elicitor`."""

    name = "ask_user"
    kind = ToolKind.OTHER
    mutates = False
    asks = True

    def title(self, params: AskUserParams) -> str:
        return title(params.questions[0].question)

    async def run(self, params: AskUserParams, context: ToolContext) -> ToolResult:
        _refuse_unfit(params)
        elicitor = context.backends.elicitor
        if elicitor is None or not elicitor.forms:
            message = "this editor cannot show questions"
            raise ToolError.permanent(message, "Ask in your answer, and end your turn with it.")
        message = params.questions[0].question if len(params.questions) == 1 else "Some questions before I go on:"
        if context.agent is not None:
            message = f"{context.agent.name} (sub-agent {context.agent.id}) asks: {message}"
        answer = await elicitor.fill_in(Form(message, _schema(params), call_id=context.call_id))
        return ToolResult(
            _answered(params, answer), envelope={"action": answer.action.value, "content": answer.content}
        )


def _refuse_unfit(params: AskUserParams) -> None:
    """Raise ToolError for questions that must not be shown."""
    for number, each in enumerate(params.questions, 1):
        labels = [option.label for option in each.options]
        if len(set(labels)) != len(labels):
            raise ToolError.invalid(f"question {number} has two options with the same label")
        if asks_for_secret(each.question):
            message = f"question {number} asks for a secret, which must not pass through this conversation"
            instead = (
                "Ask the user to put it into an environment variable or a file of their own, and to tell you its name."
            )
            raise ToolError(ToolErrorCategory.POLICY_BLOCKED, message, instead)


# ------------------------------------------------------------------------------------------ the form


def _schema(params: AskUserParams) -> JsonObject:
    """Return the form: one field for each question. A choice is optional, because a note may answer instead."""
    alone = len(params.questions) == 1
    fields: dict[str, Json] = {
        f"q{number}": _field(each, number, alone=alone) for number, each in enumerate(params.questions, 1)
    }
    required: list[Json] = [f"q{number}" for number, each in enumerate(params.questions, 1) if not each.options]
    if any(each.options for each in params.questions):
        fields[_NOTE] = {"type": "string", "title": "Something else", "description": "In your own words; may be empty"}
    return {"type": "object", "properties": fields, "required": required}


def _field(question: UserQuestion, number: int, *, alone: bool) -> JsonObject:
    field: JsonObject = {"title": "Your answer"} if alone else _heading(question.question, number)
    if not question.options:
        return {"type": "string", **field, "minLength": 1}
    options: list[Json] = [_option(each) for each in question.options]
    if question.multiple:
        return {"type": "array", **field, "items": {"anyOf": options}}
    return {"type": "string", **field, "oneOf": options}


def _heading(text: str, number: int) -> JsonObject:
    if len(text) <= _LABEL and "\n" not in text:
        return {"title": text}
    return {"title": f"Question {number}", "description": text}


def _option(choice: AnswerOption) -> JsonObject:
    described: JsonObject = {"description": choice.description} if choice.description else {}
    return {"const": choice.label, "title": choice.label, **described}


# -------------------------------------------------------------------------------------- the answer


def _answered(params: AskUserParams, answer: ElicitationAnswer) -> str:
    match answer.action:
        case ElicitationAction.DECLINE:
            return "The user declined to answer. Go on with what you know, or say what you cannot do without it."
        case ElicitationAction.CANCEL:
            return "The user closed the question without an answer. Do not ask the same again; go on, or end your turn."
        case ElicitationAction.ACCEPT:
            lines = [
                f"{each.question}\n→ {_words(answer.content.get(f'q{number}'))}"
                for number, each in enumerate(params.questions, 1)
            ]
            note = answer.content.get(_NOTE)
            return "\n".join([*lines, f"The user adds: {note}"] if note else lines)


def _words(value: Json) -> str:
    match value:
        case str() if value.strip():
            return value
        case list() if value:
            return ", ".join(map(str, value))
        case _:
            return "(no answer)"
