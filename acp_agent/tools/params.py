"""What a tool may be given: a typed model that is both the parser and the schema (requirements T1.1)."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.types import Json, JsonObject
from acp_agent.tools.visible import visible

_MAX_PROBLEMS = 10
_MAX_QUOTED = 80
_ROOT = "the arguments"


def _whole(value: object) -> object:
    """JSON Schema calls 5.0 an integer; Python's JSON parser makes a float of it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _no_nul(value: str) -> str:
    if "\0" in value:
        msg = f"contains a NUL character at offset {value.index(chr(0))}"
        raise ValueError(msg)
    return value


WHOLE = BeforeValidator(_whole)
"""Makes an `Annotated[int, Field(...), WHOLE]` take every number JSON Schema calls an integer."""

Text = Annotated[str, AfterValidator(_no_nul)]
"""Any text but NUL characters, which no file or command line of ours may hold (A23.2)."""

Name = Annotated[Text, Field(min_length=1)]
"""A path, a pattern or a command: not empty."""


class Params(BaseModel):
    """Base of every tool's parameters. The docstring of a subclass is the tool's description for the model.

    A parameter of type `X | None` with the default None shows as X in the schema: null means "not given".
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


P = TypeVar("P", bound=Params)


class _Lean(GenerateJsonSchema):
    """Leaves out what no model needs: titles, null types and null defaults."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        lean = super().default_schema(schema)
        return {key: value for key, value in lean.items() if key != "default" or value is not None}


def schema(model: type[Params]) -> JsonObject:
    """The JSON Schema object of a tool's parameters."""
    full = model.model_json_schema(schema_generator=_Lean)
    keys = ("type", "properties", "required", "additionalProperties", "$defs")
    return {key: full[key] for key in keys if key in full}


def parse(model: type[P], tool: str, arguments: JsonObject) -> P:
    """The arguments of one call, checked. An optional one that is null counts as not given.

    Raises ToolError (type_mismatch when every problem is a wrong type, else invalid_parameters) naming each
    problem's key and value and what was expected.
    """
    optional = {key for key, field in model.model_fields.items() if not field.is_required()}
    given = {key: value for key, value in arguments.items() if value is not None or key not in optional}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    category = ToolErrorCategory.INVALID_PARAMETERS
    if all(problem["type"].endswith("_type") for problem in problems):
        category = ToolErrorCategory.TYPE_MISMATCH
    raise ToolError(category, f"{tool}: {_describe(problems, schema(model))}")


def no_object(tool: str, sent: str) -> ToolError:
    """The error of a call whose arguments are no JSON object; `sent` is what came instead."""
    told = f"{tool}: the arguments are not a JSON object: {quote(sent) if sent else 'nothing'}"
    return ToolError(ToolErrorCategory.INVALID_PARAMETERS, told, "Send one JSON object that fits the schema.")


def _describe(problems: Sequence[ErrorDetails], parameters: JsonObject) -> str:
    properties = parameters.get("properties")
    assert isinstance(properties, dict)
    lines = [_problem(problem, properties) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more problems")
    return "; ".join(lines)


def _problem(problem: ErrorDetails, properties: dict[str, Json]) -> str:
    """One problem in words: key, value, expected."""
    key = str(problem["loc"][0]) if problem["loc"] else _ROOT
    match problem["type"]:
        case "missing":
            return f"{key} is missing (expected {_expected(properties[key])})"
        case "extra_forbidden":
            return f"unknown key {quote(key)} (known keys: {', '.join(properties)})"
        case "string_unicode":
            return f"{visible(key)} is not valid Unicode (half a surrogate pair)"
        case "value_error":
            return f"{key} {problem['ctx']['error'] if 'ctx' in problem else problem['msg']}"
        case _ if key in properties:
            return f"{key} = {quote(problem['input'])} (expected {_expected(properties[key])})"
        case _:
            return f"{visible(key)}: {problem['msg']}"


def _expected(parameter: Json) -> str:
    """What a parameter's schema asks for, in words."""
    if not isinstance(parameter, dict):
        return "another value"
    low, high = parameter.get("minimum"), parameter.get("maximum")
    options = parameter.get("enum")
    if isinstance(options, list):
        return f"one of {', '.join(map(str, options))}"
    match parameter.get("type"):
        case "integer" if low is not None and high is not None:
            return f"a whole number from {low} to {high}"
        case "integer":
            return "a whole number" if low is None else f"a whole number, {low} or more"
        case "boolean":
            return "true or false"
        case "string":
            return "a non-empty string" if parameter.get("minLength") else "a string"
        case other:
            return f"{other}"


def quote(value: object) -> str:
    """A value from the model, short and on one line, whatever it is."""
    match value:
        case str():
            short = json.dumps(value[:_MAX_QUOTED], ensure_ascii=False)
            return visible(short if len(value) <= _MAX_QUOTED else f"{short}…")
        case list():
            return "an array"
        case dict():
            return "an object"
        case bool() | None:
            return json.dumps(value)
        case int() if abs(value) > 10**_MAX_QUOTED:
            return "a very long number"
        case _:
            return f"{value}"
