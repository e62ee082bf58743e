"""Custom tools: a user's file names the parameters of a tool and the command that it runs. See docs/custom-tools.md.

A call becomes a call of `bash` with the rendered command. Every gate judges that command as one of `bash`. Rules for
the tool's own name can only forbid more. The values of a call are single words of the command: nothing in them is
code for the shell.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import isfinite, prod
from typing import Any

from acp_agent.core.backends import FileSystem
from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolError
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Json, JsonObject, ToolCall, ToolKind, ToolSpec
from acp_agent.tools.tool import TYPES, Tool, expected, fitted_arguments, quote

PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}", re.ASCII)
_PLAIN = re.compile(r"[\w@%+:,./-]+", re.ASCII)
_MOST_PROBLEMS = 5
_MOST_WORDS = 10_000


@frozen
class CustomTool:
    """The definition of a custom tool.

    parameters   the JSON Schema of an object whose properties have plain types
    command      the program and its arguments, or a line of the shell; {{NAME}} stands for a parameter
    timeout      in seconds
    env          the variables that the command wants
    file         the path of its file as it is shown
    """

    name: str
    description: str
    parameters: JsonObject
    command: tuple[str, ...] | str
    timeout: int
    env: tuple[str, ...]
    file: str

    @property
    def properties(self) -> Mapping[str, Json]:
        """The schemas of the parameters by name."""
        found = self.parameters.get("properties")
        return found if isinstance(found, dict) else {}

    def spec(self) -> ToolSpec:
        """Return the definition for the model."""
        return ToolSpec(self.name, self.description, self.parameters, ToolKind.EXECUTE, mutates=True, commands=True)

    def rendered(self, arguments: JsonObject) -> str:
        """Return the command line of a call. Raises ToolError."""
        words = {name: _words(arguments.get(name, _default(schema))) for name, schema in self.properties.items()}
        if isinstance(self.command, str):
            return PLACEHOLDER.sub(lambda found: " ".join(map(_quoted, words[found[1]])), self.command)
        return " ".join(line for part in self.command for line in _rendered(part, words))


def _default(schema: Json) -> Json:
    return schema.get("default") if isinstance(schema, dict) else None


def _words(value: Json) -> list[str]:
    """Return the words of a value: none if it was not given, one for each item of a list."""
    match value:
        case None:
            return []
        case str():
            return [value]
        case list():
            return [word for item in value for word in _words(item)]
        case float() if value.is_integer():
            return [str(int(value))]
        case _:
            return [json.dumps(value)]


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _rendered(part: str, words: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the words that one argument becomes: one for each item of a list, and none for what was not given.

    Several lists in one argument make a word for each combination. Raises ToolError for too many.
    """
    pieces = PLACEHOLDER.split(part)  # texts, and names between them
    if len(pieces) == 1:
        yield part if _PLAIN.fullmatch(part) else _quoted(part)
        return
    given = [words[piece] if at % 2 else [piece] for at, piece in enumerate(pieces)]
    if prod(map(len, given)) > _MOST_WORDS:
        message = f"the lists of {quote(part)} make more than {_MOST_WORDS:,} words"
        raise ToolError.invalid(message, "Call the tool with shorter lists.")
    for chosen in product(*given):
        yield _quoted("".join(chosen))


class CustomCommand:
    """A custom tool among the tools of a session. It is no `Tool`, because its parameters are no class.

    bash       the tool that runs its calls
    variables  returns the names of the variables that commands see
    """

    def __init__(self, tool: CustomTool, bash: Tool[Any], variables: Callable[[], Collection[str]]) -> None:
        self._tool = tool
        self._bash = bash
        self._variables = variables
        self._spec = tool.spec()

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self._tool.name

    def spec(self) -> ToolSpec:
        """Return the definition for the model."""
        return self._spec

    def fitted(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments under the tool's own names and with values of its types, where they fit."""
        return fitted_arguments(arguments, self._tool.parameters)

    async def understand(self, call: ToolCall, arguments: JsonObject, files: FileSystem) -> Invocation:
        """Return the call as an invocation of `bash`. Raises ToolError for arguments that do not fit."""
        tool = self._tool
        given: JsonObject = {name: value for name, value in arguments.items() if value is not None}
        check(tool, given)
        seen = self._variables() if tool.env else ()
        if missing := [name for name in tool.env if name not in seen]:
            raise ToolError.permanent(
                f"{tool.name} wants {', '.join(missing)}, which commands do not see",
                "Tell the user: `tools.shell.env_allow` names the variables that commands see.",
            )
        command: JsonObject = {"command": tool.rendered(given), "timeout": tool.timeout}
        invocation = await self._bash.understand(replace(call, arguments=command, raw_arguments=""), command, files)
        named = replace(invocation.call, name=tool.name)
        return replace(invocation, call=named, summary=f"the custom tool {tool.name} ({tool.file})")


# -------------------------------------------------------------------------------------- arguments


def example(tool: CustomTool) -> JsonObject:
    """Return arguments that the tool's schema allows, with a value for every parameter."""
    return {name: _example(name, schema) for name, schema in tool.properties.items()}


def _example(name: str, schema: Json) -> Json:
    if not isinstance(schema, dict):
        return name
    options, low, high = schema.get("enum"), schema.get("minimum"), schema.get("maximum")
    match schema.get("type"):
        case _ if "default" in schema:
            return schema["default"]
        case _ if isinstance(options, list):
            return options[0]
        case "integer" | "number":
            return low if low is not None else min(1, high) if isinstance(high, int | float) else 1
        case "boolean":
            return True
        case "array":
            count = schema.get("minItems", 1)
            return [_example(name, schema.get("items"))] * (int(count) if isinstance(count, int | float) else 1)
        case _:
            least, most = schema.get("minLength"), schema.get("maxLength")
            text = name.ljust(int(least), "x") if isinstance(least, int | float) else name
            return text[: int(most)] if isinstance(most, int | float) else text


def check(tool: CustomTool, arguments: JsonObject) -> None:
    """Raise ToolError (invalid_parameters) with each argument that the tool's schema does not allow."""
    properties, required = tool.properties, tool.parameters.get("required")
    wrong = [
        f"{name} is missing (expected {expected(properties[name])})"
        for name in (required if isinstance(required, list) else ())
        if isinstance(name, str) and name not in arguments
    ]
    known = ", ".join(properties) or "none"
    wrong += [f"unknown key {quote(name)} (known keys: {known})" for name in arguments if name not in properties]
    wrong += [
        f"{name} = {quote(value)} ({objection})"
        for name, value in arguments.items()
        if name in properties and (objection := objection_to(value, properties[name]))
    ]
    if wrong:
        raise ToolError.invalid(f"{tool.name}: {'; '.join(wrong[:_MOST_PROBLEMS])}")


def objection_to(value: Json, schema: Json) -> str:
    """Return why a value does not fit the schema of a parameter; empty if it does."""
    if not isinstance(schema, dict):
        return ""
    kind, options = schema.get("type"), schema.get("enum")
    flag = isinstance(value, bool)
    typed = isinstance(value, (str,) if kind == "string" else TYPES[str(kind)]) and flag == (kind == "boolean")
    part = kind == "integer" and isinstance(value, float) and not value.is_integer()
    if not typed or part or (isinstance(options, list) and value not in options):
        return f"expected {expected(schema)}"
    match value:
        case float() if not isfinite(value):
            return "expected a number"
        case str() if "\0" in value:
            return "contains a NUL character"
        case str():
            return _beyond(len(value), schema, "Length", "characters")
        case list():
            inside = (objection_to(item, schema.get("items")) for item in value)
            return _beyond(len(value), schema, "Items", "items") or next(filter(None, inside), "")
        case int() | float() if not flag:
            return _beyond(value, schema, "imum", "")
        case _:
            return ""


def _beyond(size: float, schema: JsonObject, what: str, unit: str) -> str:
    low, high = schema.get(f"min{what}"), schema.get(f"max{what}")
    if isinstance(low, int | float) and size < low:
        return f"expected at least {low} {unit}".strip()
    if isinstance(high, int | float) and size > high:
        return f"expected at most {high} {unit}".strip()
    return ""
