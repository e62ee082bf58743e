"""The parameters of a tool: a typed model that is both the parser and the schema."""

import json
import os
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access, Json, JsonObject
from acp_agent.text import visible

_MAX_PROBLEMS = 10
_MAX_QUOTED = 80
_ROOT = "the arguments"
_KEYWORDS = ("type", "properties", "required", "additionalProperties")


def _whole(value: object) -> object:
    """Turn 5.0 into 5: JSON Schema calls it an integer, but Python's JSON parser returns a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _no_nul(value: str) -> str:
    if "\0" in value:
        msg = f"contains a NUL character at offset {value.index(chr(0))}"
        raise ValueError(msg)
    return value


WHOLE = BeforeValidator(_whole)
"""Makes an `Annotated[int, Field(...), WHOLE]` accept every number that JSON Schema calls an integer."""

Text = Annotated[str, AfterValidator(_no_nul)]
"""Any text without NUL characters, which no file and no command line may contain."""

Name = Annotated[Text, Field(min_length=1)]
"""A path, a pattern or a command. It is not empty."""


class Params(BaseModel):
    """Base of every tool's parameters. The docstring of a subclass is the tool's description for the model.

    A parameter of type `X | None` with the default None has the schema of X, since null means "not given".
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Part(Params):
    """An object inside a tool's parameters. An optional key with null counts as not given."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        given = cast("dict[str, object]", value)
        optional = {key for key, field in cls.model_fields.items() if not field.is_required()}
        return {key: item for key, item in given.items() if item is not None or key not in optional}


P = TypeVar("P", bound=Params)


class _Lean(GenerateJsonSchema):
    """Leaves out what the model does not need: titles, null types and null defaults."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        lean = super().default_schema(schema)
        return {key: value for key, value in lean.items() if key != "default" or value is not None}


def schema(model: type[Params]) -> JsonObject:
    """Return the JSON Schema object of a tool's parameters without `$ref`, which some model APIs do not accept."""
    full = model.model_json_schema(schema_generator=_Lean)
    return {key: _spelled_out(full[key], full.get("$defs", {})) for key in _KEYWORDS if key in full}


def _spelled_out(node: Json, parts: JsonObject) -> Json:
    """Return the schema with each Part written out where it is referred to."""
    match node:
        case {"$ref": str(reference)}:
            part = parts[reference.removeprefix("#/$defs/")]
            assert isinstance(part, dict)
            return _spelled_out({key: part[key] for key in _KEYWORDS if key in part}, parts)
        case dict():
            return {key: _spelled_out(value, parts) for key, value in node.items()}
        case list():
            return [_spelled_out(item, parts) for item in node]
        case _:
            return node


def parse(model: type[P], tool: str, arguments: JsonObject) -> P:
    """Return the checked arguments of a call. An optional one with null counts as not given.

    Raises ToolError with the key and value of each problem and what was expected: type_mismatch if every problem is a
    wrong type, else invalid_parameters.
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
    """Return the error of a call whose arguments are not a JSON object. `sent` is what came instead."""
    message = f"{tool}: the arguments are not a JSON object: {quote(sent) if sent else 'nothing'}"
    return ToolError(ToolErrorCategory.INVALID_PARAMETERS, message, "Send one JSON object that fits the schema.")


def _describe(problems: Sequence[ErrorDetails], parameters: JsonObject) -> str:
    lines = [_problem(problem, parameters) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more problems")
    return "; ".join(lines)


def _problem(problem: ErrorDetails, parameters: JsonObject) -> str:
    """Return one problem in words: key, value, expected."""
    place = problem["loc"]
    key = ".".join(map(str, place)) if place else _ROOT
    parameter = _at(parameters, place) if place else None
    match problem["type"]:
        case "missing":
            return f"{key} is missing (expected {_expected(parameter)})"
        case "extra_forbidden":
            match _at(parameters, place[:-1]):
                case {"properties": dict(properties)}:
                    return f"unknown key {quote(key)} (known keys: {', '.join(properties)})"
                case _:
                    return f"unknown key {quote(key)}"
        case "string_unicode":
            return f"{visible(key)} is not valid Unicode (half a surrogate pair)"
        case "value_error":
            return f"{key} {problem['ctx']['error'] if 'ctx' in problem else problem['msg']}"
        case _ if parameter is not None:
            return f"{key} = {quote(problem['input'])} (expected {_expected(parameter)})"
        case _:
            return f"{visible(key)}: {problem['msg']}"


def _at(schema: JsonObject, place: Sequence[int | str]) -> Json:
    """Return the schema of the value at a place, None if there is none."""
    found: Json = schema
    for step in place:
        found = found.get("items" if isinstance(step, int) else "properties") if isinstance(found, dict) else None
        if isinstance(step, str):
            found = found.get(step) if isinstance(found, dict) else None
    return found


def _expected(parameter: Json) -> str:
    """Return in words what a parameter's schema asks for."""
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
            longest = f" of at most {most} characters" if (most := parameter.get("maxLength")) else ""
            return f"{'a non-empty string' if parameter.get('minLength') else 'a string'}{longest}"
        case "array" if (most := parameter.get("maxItems")) is not None:
            return f"a list of {parameter.get('minItems', 0)} to {most}"
        case other:
            return f"{other}"


def quote(value: object) -> str:
    """Return a value from the model, short and on one line."""
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


def pattern_below(pattern: str, path: str, context: ToolContext, *, key: str) -> str:
    """Return the glob relative to `path`. An absolute glob must lie below it.

    `key` is the name of the parameter. Raises ToolError that says what to give instead.
    """
    if not pattern.startswith("/"):
        if ".." not in pattern.split("/"):
            return pattern
        raise _elsewhere(key, pattern, 'Give the folder as path, and a pattern below it without "..".')
    written = os.path.normpath(os.path.join(context.cwd, path))
    for folder in (written, context.files.resolve(path, Access.LIST)):
        rest = pattern.removeprefix(folder.rstrip("/") + "/")
        if rest != pattern and rest.strip("/") and ".." not in rest.split("/"):
            return rest.lstrip("/") if "/" in rest.rstrip("/") else f"./{rest}"
    folder, _, name = pattern.rstrip("/").rpartition("/")
    while any(mark in folder for mark in "*?[{"):
        folder, _, above = folder.rpartition("/")
        name = f"{above}/{name}"
    raise _elsewhere(key, pattern, f"Give path = {quote(folder or '/')} and {key} = {quote(name)}.")


def _elsewhere(key: str, pattern: str, suggestion: str) -> ToolError:
    message = f'{key} = {quote(pattern)} (expected a pattern below path, without "..")'
    return ToolError(ToolErrorCategory.INVALID_PARAMETERS, message, suggestion)
