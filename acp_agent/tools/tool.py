"""The base of every tool, its typed parameters, and the lines of a file as a model sees them.

A tool has a name, typed parameters, which are both the parser and the schema, the subjects it touches, and what it
does. A line ends only with LF or CRLF. `str.splitlines` also splits at form feeds, U+2028 and more, and would number
lines unlike every editor.
"""

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import Annotated, ClassVar, Generic, TypeVar, cast, get_args

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import AgentError, BackendUnavailable, Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import (
    Diff,
    Json,
    JsonObject,
    Location,
    PathSubject,
    Subject,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
)
from acp_agent.shape import AfterValidator, BeforeValidator, Field, Problem, Shape, ValidationError, fields
from acp_agent.text import NOTE_SIZE, packaged_text, title, visible

_MAX_PROBLEMS = 10
_MAX_QUOTED = 80
_ROOT = "the arguments"


def _whole(value: object) -> object:
    """Turn 5.0 into 5: JSON Schema calls it an integer, but Python's JSON parser returns a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _writable(value: str) -> str:
    """Return a text that a file may contain. Raises ValueError."""
    if "\0" in value:
        raise ValueError(f"contains a NUL character at offset {value.index(chr(0))}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"is not valid Unicode: half a surrogate pair at offset {error.start}") from None
    return value


WHOLE = BeforeValidator(_whole)
"""Makes an `Annotated[int, Field(...), WHOLE]` accept every number that JSON Schema calls an integer."""

Text = Annotated[str, AfterValidator(_writable)]
"""Any text without NUL characters and half surrogate pairs, which no file and no command line may contain."""

Name = Annotated[Text, Field(min_length=1)]
"""A path, a pattern or a command. It is not empty."""


PROCESSES = "processes"
"""The name of the queue for calls that start or follow background processes."""


class Params(Shape):
    """Base of every tool's parameters. The docstring of a subclass is the tool's description for the model.

    A parameter of type `X | None` with the default None has the schema of X, since null means "not given".
    """

    @classmethod
    def prepared(cls, value: object) -> object:
        """Return the arguments without optional ones that are null."""
        if not isinstance(value, dict):
            return value
        given, known = cast("dict[str, object]", value), fields(cls)
        if None not in given.values():
            return given
        return {
            key: item for key, item in given.items() if item is not None or key not in known or known[key].is_required()
        }


class Part(Params):
    """An object inside a tool's parameters."""


P = TypeVar("P", bound=Params)

_KEYWORDS = ("type", "properties", "required", "additionalProperties")


@cache
def stored_schemas() -> Mapping[str, JsonObject]:
    """Return what models are told of the parameters of built-in tools, by the dotted name of their class.

    It is stored, because making it takes pydantic. `ACP_AGENT_GOLDEN=write pytest tests/unit/tools/test_registry.py`
    renews the file.
    """
    return cast("Mapping[str, JsonObject]", json.loads(packaged_text("acp_agent.tools", "parameters.json")))


@cache
def schema(params: type[Params]) -> JsonObject:
    """Return the JSON Schema of a tool's parameters without `$ref`, which some models refuse. Nobody may change it."""
    from acp_agent.shape_models import lean_json_schema  # noqa: PLC0415 - pydantic, which good arguments do not need

    full = lean_json_schema(params)
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


_FARTHEST = 10**9
_UNTOLD = {"additionalProperties": (False,), "minLength": (1,), "minimum": (0, 1), "default": (False, 0, "")}
_NEVER_TOLD = ("maxLength", "maxItems")


def told_schema(node: Json) -> Json:
    """Return a schema without what a model takes for granted, and without limits that no sensible call reaches.

    The model pays for every word in each request. Arguments are parsed by the whole schema.
    """
    match node:
        case dict():
            told: JsonObject = {}
            for key, value in node.items():
                is_limit = key in ("minimum", "maximum") and isinstance(value, int) and abs(value) >= _FARTHEST
                is_word = not isinstance(value, dict | list)
                if is_limit or (is_word and (key in _NEVER_TOLD or value in _UNTOLD.get(key, ()))):
                    continue
                told[key] = told_schema(value)
            return told
        case list():
            return [told_schema(item) for item in node]
        case _:
            return node


@cache
def _told(model: type[Params]) -> tuple[str, JsonObject]:
    """Return the description and the schema of a tool's parameters for the model. Nobody may change it."""
    stored = stored_schemas().get(f"{model.__module__}.{model.__qualname__}")
    told = told_schema(schema(model)) if stored is None else stored
    return " ".join((model.__doc__ or "").split()), cast("JsonObject", told)


def no_object(tool: str, sent: str) -> ToolError:
    """Return the error of a call whose arguments are not a JSON object. `sent` is what came instead."""
    message = f"{tool}: the arguments are not a JSON object: {quote(sent) if sent else 'nothing'}"
    return ToolError.invalid(message, "Send one JSON object that fits the schema.")


_ALIASES = {
    "path": "file_path file filepath filename file_name target_file absolute_path dir directory dir_path folder",
    "command": "cmd shell_command command_line",
    "timeout": "timeout_seconds timeout_secs timeout_sec timeout_ms",
    "background": "run_in_background is_background",
    "id": "process_id shell_id bash_id overflow_id task_id",
    "old_string": "old_str old_text old search",
    "new_string": "new_str new_text new replace replacement",
    "replace_all": "all global",
    "content": "contents file_text file_content text title subject",
    "pattern": "query regex search q",
    "query": "q text search pattern",
    "max_results": "limit max_matches head_limit",
    "limit": "max_lines num_lines line_count max_results",
    "offset": "start_line line_offset",
    "context": "context_lines _c",
    "before": "before_context lines_before _b",
    "after": "after_context lines_after _a depends_on dependencies blocked_by",
    "glob": "include file_pattern",
    "file_type": "type",
    "source": "src from source_path old_path",
    "destination": "dest dst to target destination_path new_path",
    "url": "uri link",
    "select": "selector css_selector",
    "entries": "plan todos steps",
    "text": "result content message body reason query",
    "details": "description text body",
    "agent": "subagent_type agent_type",
    "task": "prompt message words",
}
"""For parameters, the other names that models know from other tools. A tool's own parameters come first."""
_DROPPED = frozenset(("description", "explanation", "reason", "-n", "activeForm"))
"""Arguments that models add unasked. They only say what a call is for, or what the tool does anyway."""

_MILLISECONDS = 1000
_SPELLED = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")  # where to put `_`: filePath, file-path and -C


def fitted_arguments(arguments: JsonObject, parameters: JsonObject) -> JsonObject:
    """Return the arguments under the names of a schema and with values of its types, where they fit."""
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        return arguments
    fit = {key: value for key, value in arguments.items() if key in properties}
    for key, value in arguments.items():
        if key in properties:
            continue
        spelled = _SPELLED.sub("_", key).lower()
        names = (name for name in properties if spelled == name or spelled in _ALIASES.get(name, "").split())
        name = next(names, "")
        meant: Json = value
        if spelled.endswith("_ms") and isinstance(value, int):
            meant = max(1, value // _MILLISECONDS)
        if name and fit.setdefault(name, meant) == meant:
            continue
        if name or key not in _DROPPED:
            fit[key] = value
    return {key: _fitted_value(value, properties.get(key), key) for key, value in fit.items()}


def _fitted_value(value: Json, parameter: Json, key: str = "") -> Json:
    """Return a value as its schema wants it: `"3"` as 3, JSON in a string read, one item as a list, ms as seconds."""
    if not isinstance(parameter, dict):
        return value
    kind, items, options = parameter.get("type"), parameter.get("items"), parameter.get("enum")
    if isinstance(value, str) and kind in TYPES:
        read = _read(value)
        value = read if isinstance(read, TYPES[str(kind)]) and isinstance(read, bool) is (kind == "boolean") else value
    if kind == "array" and isinstance(items, dict) and isinstance(value, TYPES.get(str(items.get("type")), str)):
        value = [value]
    most = parameter.get("maximum")
    match value:
        case dict() if kind == "object":
            return fitted_arguments(value, parameter)
        case list() if kind == "array":
            return [_fitted_value(item, items) for item in value]
        case str() if isinstance(options, list):
            return next((option for option in options if str(option).lower() == value.lower()), value)
        case int() if key == "timeout" and isinstance(most, int) and value > most and value % _MILLISECONDS == 0:
            return value // _MILLISECONDS
        case int() if key in _AMOUNTS and isinstance(most, int) and value > most:
            return most
        case _:
            return value


_AMOUNTS = ("before", "after", "context", "limit", "max_results", "max_diagnostics")  # lowered to their maximum
_NUMBER = (int, float)
TYPES = {"integer": _NUMBER, "number": _NUMBER, "boolean": (bool,), "array": (list,), "object": (dict,)}


def _read(text: str) -> Json:
    """Return the value of a JSON text, or the text itself. `True` and `False` are read as well."""
    word = text.strip()
    try:
        return cast("Json", json.loads(word.lower() if word in ("True", "False") else word, parse_constant=str))
    except (ValueError, RecursionError):
        return text


def object_in(text: str) -> JsonObject | None:
    """Return the JSON object in arguments that were encoded twice; None if there is none."""
    once = _read(text)
    twice = _read(once) if isinstance(once, str) else None
    return twice if isinstance(twice, dict) else None


def _describe(problems: Sequence[Problem], parameters: JsonObject) -> str:
    lines = [_problem(problem, parameters) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more problems")
    return "; ".join(lines)


def _problem(problem: Problem, parameters: JsonObject) -> str:
    """Return one problem in words: key, value, expected."""
    place = problem["loc"]
    key = ".".join(map(str, place)) if place else _ROOT
    parameter = _at(parameters, place) if place else None
    match problem["type"]:
        case "missing":
            return f"{key} is missing (expected {expected(parameter)})"
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
            return f"{key} = {quote(problem['input'])} (expected {expected(parameter)})"
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


def expected(parameter: Json) -> str:
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


_COUNTED = 100_000


def split_lines(text: str) -> list[str]:
    """Return the lines without their ends. A text that ends with a line end has no empty last line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def cut(line: str, limit: int, counted: int = _COUNTED) -> str:
    """Return the line, or its first `limit` characters and how many are missing, if that is clearly shorter.

    counted   the largest number of missing characters that is named exactly
    """
    missing = len(line) - limit
    if missing <= NOTE_SIZE:
        return line
    # Of a very long line only the beginning may have been read.
    return f"{line[:limit]}… [{missing if missing <= counted else f'over {counted}'} more characters]"


def numbered(lines: Iterable[str], first: int, limit: int) -> str:
    """Return lines with their numbers. `first` counts from 1. Long lines are cut."""
    return "\n".join(f"{number:>4}\t{cut(line, limit)}" for number, line in enumerate(lines, first))


def skipped(offset: int) -> int:
    """Return how many lines come before line `offset`, which counts from 1; 0 means 1. A negative one is unchanged."""
    return offset - 1 if offset > 0 else offset


def first_changed_line(old: str, new: str) -> int:
    """Return the number of the first new line that differs, from 1; of the last line if only the end is missing."""
    before, after = old.split("\n"), new.split("\n")
    differ = (number for number, (left, right) in enumerate(zip(before, after, strict=False), 1) if left != right)
    return next(differ, min(len(before) + 1, len(after)) if old != new else 1)


def relative(path: str, base: str) -> str:
    """Return the absolute `path` relative to the folder `base` if it is below it, else unchanged."""
    prefix = base if base.endswith(os.sep) else base + os.sep
    return path.removeprefix(prefix) if path != base else "."


async def fail(error: AgentError, context: ToolContext) -> ToolResult:
    """Raise the error. This is the run of a call that must fail with the error of its preview."""
    del context
    raise error


class Tool(ABC, Generic[P]):
    """A tool that the model can call. One object serves all calls of a session, also those that run together.

    name        the name for the model and the audit log
    verb        how titles of its calls begin, for the user; empty for its name
    kind        how an editor draws it
    mutates     whether it changes anything; True if in doubt
    cacheable   whether the same call gives the same answer until something changes
    external    whether its result comes from outside: the web, an MCP server
    asks        whether its calls are questions to the user
    polls       whether calls look at something that runs, so that equal ones are no repetition
    commands    whether calls are command lines and nothing else
    params      the model of its parameters, which the base names: `Tool[ReadParams]`
    """

    name: ClassVar[str]
    verb: ClassVar[str] = ""
    mutates: ClassVar[bool]
    cacheable: ClassVar[bool] = False
    external: ClassVar[bool] = False
    asks: ClassVar[bool] = False
    polls: ClassVar[bool] = False
    commands: ClassVar[bool] = False
    kind: ToolKind
    params: type[P]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in getattr(cls, "__orig_bases__", ()):
            for kind in get_args(base):
                if isinstance(kind, type):
                    cls.params = cast("type[P]", kind)

    def spec(self) -> ToolSpec:
        """Return the tool's definition for the model, made once: prompt caches need the same bytes every turn."""
        return self._spec

    @cached_property
    def _spec(self) -> ToolSpec:
        spec = partial(ToolSpec, self.name, *_told(self.params), self.kind, self.mutates, cacheable=self.cacheable)
        return spec(external=self.external, asks=self.asks, polls=self.polls, commands=self.commands)

    def fitted(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments, under the tool's own names and with values of its types if they do not fit as sent."""
        try:
            self.params.model_validate(arguments)
        except ValidationError:
            return fitted_arguments(arguments, schema(self.params))
        return arguments

    def spec_of(self, params: P) -> ToolSpec:
        """Return the definition for one call. A call may change less than the tool can."""
        del params
        return self.spec()

    def parse(self, arguments: JsonObject) -> P:
        """Return the typed parameters. An optional one with null counts as not given.

        Arguments under other names and of other types are taken for what they mean. Raises ToolError with the key and
        value of each problem and what was expected: type_mismatch if every problem is a wrong type, else
        invalid_parameters.
        """
        with suppress(ValidationError):
            return self.params.model_validate(arguments)
        try:
            return self.params.model_validate(self.fitted(arguments))
        except ValidationError as error:
            problems = error.problems
        category = ToolErrorCategory.INVALID_PARAMETERS
        if all(problem["type"].endswith("_type") for problem in problems):
            category = ToolErrorCategory.TYPE_MISMATCH
        raise ToolError(category, f"{self.name}: {_describe(problems, schema(self.params))}")

    def title(self, params: P) -> str:
        """Return one line for the user: the command, or the tool's verb and the path or URL of the call."""
        for field in ("command", "path", "url"):
            value = getattr(params, field, None) if field in params.model_fields_set else None
            if isinstance(value, str):
                return title(value) if field == "command" else f"{self.verb or self.name} {title(value)}"
        return self.verb or self.name

    @abstractmethod
    def subjects(self, params: P) -> tuple[Subject, ...]:
        """Return everything that the call touches. What is missing here is not guarded."""

    def locations(self, params: P, files: FileSystem) -> tuple[Location, ...]:
        """Return places worth opening when the call starts: the paths that it touches. May raise as `resolve` does."""
        found: list[Location] = []
        for subject in self.subjects(params):
            if isinstance(subject, PathSubject):
                with suppress(ToolError, Refused):  # the run or a gate reports the error
                    found.append(Location(files.resolve(subject.path, subject.access)))
        return tuple(dict.fromkeys(found))

    async def preview(self, params: P, files: FileSystem) -> tuple[Diff, ...]:
        """Return the change as it would be made now. Raises ToolError, Refused or BackendUnavailable."""
        del params, files
        return ()

    async def summary(self, params: P, files: FileSystem) -> str:
        """Return what the call does, with a verb, for the user who is asked. Empty if title and diffs say it.

        Raises as `preview` does, so that the user is not asked about a call that is known to fail.
        """
        del params, files
        return ""

    @abstractmethod
    async def run(self, params: P, context: ToolContext) -> ToolResult:
        """Do it. Raises ToolError, Refused or BackendUnavailable."""

    def failed(self, error: ToolError | Refused) -> ToolResult:
        """Return the result of a run that fails with this error."""
        return ToolResult.failed(error.failure)

    def is_final(self, error: ToolError | Refused) -> bool:
        """Return whether the run must fail with this error of the preview, even if it could succeed by then."""
        del error
        return False

    async def understand(self, call: ToolCall, arguments: JsonObject, files: FileSystem) -> Invocation:
        """Return the invocation for the gates. Raises ToolError for arguments that do not fit.

        If the preview fails, no change is shown. The run then reports the error, unless it succeeds by then.
        """
        params = self.parse(arguments)
        run = partial(self.run, params)
        diffs, locations, summary, predicted_failure = tuple[Diff, ...](), tuple[Location, ...](), "", None
        try:
            diffs = await self.preview(params, files)
            locations = changed(diffs) if diffs else self.locations(params, files)
            summary = await self.summary(params, files)
        except (ToolError, Refused) as error:
            predicted_failure = self.failed(error)
            run = partial(fail, error) if self.is_final(error) else run
        except BackendUnavailable:
            pass  # the run may find another backend
        return Invocation(
            call=replace(call, name=self.name),
            spec=self.spec_of(params),
            title=self.title(params),
            run=run,
            subjects=self.subjects(params),
            diffs=diffs,
            locations=locations,
            predicted_failure=predicted_failure,
            summary=summary,
        )


class SessionTool(Tool[P]):
    """A tool that touches nothing but what belongs to the session: its conversation, its store, its user."""

    def subjects(self, params: P) -> tuple[Subject, ...]:
        del params
        return ()


def changed(diffs: tuple[Diff, ...]) -> tuple[Location, ...]:
    """Return where each changed file changes first."""
    return tuple(Location(diff.path, first_changed_line(diff.old_text or "", diff.new_text)) for diff in diffs)
