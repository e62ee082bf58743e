"""Custom tools as users write them: one TOML file each, in `tools`.

    name = "deploy"
    description = "Deploy the site to an environment"
    command = ["./deploy.sh", "--env", "{{env}}"]

    [parameters]
    type = "object"
    required = ["env"]
    properties.env = { type = "string", enum = ["staging", "production"] }

A file with any mistake defines no tool, because a part of a definition might run something that its author did not
intend. See docs/custom-tools.md.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import cast

from acp_agent.core.secrets import Redact
from acp_agent.core.types import Json, JsonObject
from acp_agent.core.untrusted import toml_table
from acp_agent.extend.front_matter import DefinitionProblem, Fields, Value
from acp_agent.extend.sources import SourceFile, distinct
from acp_agent.text import defanged, plain
from acp_agent.tools.custom import PLACEHOLDER, CustomTool, objection_to

_NAME = re.compile(r"(?!mcp_)[a-z][a-z0-9_]{0,63}")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MOST_PARAMETERS = 30
_LONGEST = 1024  # characters of a description
_LONGEST_COMMAND = 4096
_LONGEST_SCHEMA = 8192
_DEEPEST = 2  # a list of plain values

_SCHEMA = ("type", "properties", "required", "additionalProperties", "description")
_ANY = ("type", "description", "enum", "default")
_OF_TYPE: Mapping[str, tuple[str, ...]] = {
    "string": (*_ANY, "minLength", "maxLength"),
    "integer": (*_ANY, "minimum", "maximum"),
    "number": (*_ANY, "minimum", "maximum"),
    "boolean": ("type", "description", "default"),
    "array": ("type", "description", "default", "items", "minItems", "maxItems"),
}
_LENGTHS = ("minLength", "maxLength", "minItems", "maxItems")
_RANGE = ("minimum", "maximum")
_A_TEXT = f"expected a text of at most {_LONGEST:,} characters"

_IN_TEMPLATE = ("`", "((", "[[", "$[", "<<", "${", "$'", '$"')
"""Texts that a template with placeholders may not contain, because quotes have another meaning inside them."""


def table_of(file: SourceFile) -> Mapping[str, Value] | DefinitionProblem:
    """Return the table of a TOML file, or the problem if it cannot be read."""
    try:
        return cast("Mapping[str, Value]", toml_table(file.data.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        return DefinitionProblem(file.shown, "", f"expected text in UTF-8, but byte {error.start} is not")
    except ValueError as error:
        return DefinitionProblem(file.shown, "", f"expected TOML: {error}")


def read_tool(file: SourceFile, clean: Redact = str) -> tuple[CustomTool | None, Sequence[DefinitionProblem]]:
    """Return the tool of a file, and the problems of the file. The tool is None if it is not usable or switched off.

    clean   removes secrets and invisible characters from what the model reads
    """
    table = table_of(file)
    if isinstance(table, DefinitionProblem):
        return None, (table,)
    fields = Fields(file.shown, table)
    name = fields.name(_NAME, "a-z, 0-9 and _ after a letter, at most 64 characters, and not mcp_ in front", file.name)
    description = fields.description(most=_LONGEST)
    if not description and "description" not in (each.key for each in fields.problems):
        fields.refuse("description", "what the tool does, for the model")
    command = _command(fields, table)
    timeout, env = fields.number("timeout", 60, 1, 600), fields.texts("env")
    if not all(map(_VARIABLE.fullmatch, env)):
        fields.refuse("env", "names of variables, without values")
    enabled = fields.flag("enabled", default=True)
    parameters = _cleaned(fields.table("parameters"), clean)
    wrong = [*_wrong_parameters(parameters), *_wrong_command(command, parameters)]
    fields.note_unknown()
    problems = (*fields.problems, *(DefinitionProblem(file.shown, key, reason) for key, reason in wrong))
    if wrong or not (fields.is_usable and enabled):
        return None, problems
    shown = plain(defanged(clean(description)))
    schema: JsonObject = {"type": "object", "properties": {}, **parameters}
    return CustomTool(name, shown, schema, command, timeout, env, file.shown), problems


def _command(fields: Fields, table: Mapping[str, Value]) -> tuple[str, ...] | str:
    given = table.get("command")
    if isinstance(given, list):
        fields.texts("command")
        words = tuple(map(str, given))  # unlike `texts`, this keeps blanks
        if not words or not words[0] or "\0" in "".join(words) or sum(map(len, words)) > _LONGEST_COMMAND:
            fields.refuse("command", "a program and its arguments")
        return words
    line = fields.text("command", most=_LONGEST_COMMAND)
    if not line or "\0" in line:
        fields.refuse("command", "a list of a program and its arguments, or a line of the shell")
    return line


def _cleaned(table: Mapping[str, Value], clean: Redact) -> JsonObject:
    """Return a schema whose descriptions are fit for the model."""

    def fit(value: Json, key: str = "") -> Json:
        match value:
            case dict():
                return {name: fit(each, name) for name, each in value.items()}
            case str() if key == "description":
                return plain(defanged(clean(value)))
            case _:
                return value

    fitted = fit(cast("Json", dict(table)))
    assert isinstance(fitted, dict)
    return fitted


# ----------------------------------------------------------------------------------- the parameters


def _wrong_parameters(schema: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a schema: a key and the reason."""
    for key in schema:
        if key not in _SCHEMA:
            yield f"parameters.{key}", f"expected only {', '.join(_SCHEMA)}"
    if len(str(schema)) > _LONGEST_SCHEMA:
        yield "parameters", f"expected at most {_LONGEST_SCHEMA:,} characters"
    if schema.get("type", "object") != "object":
        yield "parameters.type", 'expected "object"'
    if schema.get("additionalProperties", False) is not False:
        yield "parameters.additionalProperties", "expected false"
    if not _is_description(schema.get("description", "")):
        yield "parameters.description", _A_TEXT
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or len(properties) > _MOST_PARAMETERS:
        yield "parameters.properties", f"expected a table of at most {_MOST_PARAMETERS} parameters"
        return
    named = [each for each in required if isinstance(each, str)] if isinstance(required, list) else []
    if named != required or len({*named}) < len(named) or not properties.keys() >= {*named}:
        yield "parameters.required", "expected a list of names of parameters, each once"
    for name, each in properties.items():
        where = f"parameters.properties.{name}"
        if not _PARAMETER.fullmatch(name):
            yield where, "expected letters, digits and _ as a name"
        yield from ((f"{where}{key}", reason) for key, reason in _wrong_value(each, 1))


def _is_description(value: Json) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST


def _wrong_value(schema: Json, depth: int) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the schema of one value."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    known = _OF_TYPE.get(kind) if isinstance(kind, str) else None
    if not isinstance(schema, dict) or known is None or (kind == "array" and depth == _DEEPEST):
        yield ".type", f"expected one of {', '.join(each for each in _OF_TYPE if each != 'array' or depth == 1)}"
        return
    for key, value in schema.items():
        if key not in known:
            yield f".{key}", f"expected only {', '.join(known)} for {kind}"
        elif key == "description" and not _is_description(value):
            yield ".description", _A_TEXT
        elif key in _LENGTHS and objection_to(value, {"type": "integer", "minimum": 0}):
            yield f".{key}", "expected a whole number from 0 on"
        elif key in _RANGE and objection_to(value, {"type": "number"}):
            yield f".{key}", "expected a number"
    options = schema.get("enum", [])
    typed = {"type": kind}
    if "enum" in schema and not (
        isinstance(options, list) and options and not any(objection_to(each, typed) for each in options)
    ):
        yield ".enum", f"expected a list of values of type {kind}"
    elif "items" in schema or kind == "array":
        inside = [*_wrong_value(schema.get("items", {"type": "string"}), depth + 1)]
        yield from ((f".items{key}", reason) for key, reason in inside)
        if inside:
            return
    if "default" in schema and (why := objection_to(schema["default"], schema)):
        yield ".default", why


# ---------------------------------------------------------------------------------------- the command


def _wrong_command(command: tuple[str, ...] | str, parameters: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the placeholders of a command."""
    properties = parameters.get("properties")
    names = properties if isinstance(properties, dict) else {}
    parts = (command,) if isinstance(command, str) else command
    used = {found[1] for part in parts for found in PLACEHOLDER.finditer(part)}
    for name in sorted(used - names.keys()):
        yield "command", f"{{{{{name}}}}} is no parameter"
    for name in names:
        if name not in used:
            yield "command", f"expected {{{{{name}}}}} in it, or no parameter of this name"
    if used and isinstance(command, str) and (why := _unsafe(command)):
        yield "command", why


def _unsafe(template: str) -> str:
    """Return why a quoted value might not stay one word at a placeholder of a template; empty if it surely does."""
    found = next((each for each in _IN_TEMPLATE if each in template), "")
    if found:
        return f"expected no {found} beside placeholders; use a script, or a list of arguments"
    quote, at = "", 0
    while at < len(template):
        char, here = template[at], PLACEHOLDER.match(template, at)
        if here:
            before = template[at - 1 : at]
            if quote:
                return f"{here[0]} stands inside quotes: values are quoted already"
            if before in ("$", "["):
                return f"{here[0]} stands behind {before}, which changes what its quotes mean"
            at = here.end()
            continue
        if char == "\\" and quote != "'":
            if PLACEHOLDER.match(template, at + 1):
                return "expected no backslash in front of a placeholder"
            at += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and template[at - 1 : at] in ("", " ", "\t", "\n", ";", "&", "|", "(", ")"):
            return "expected no comment beside placeholders"
        at += 1
    return "expected the end of the quotes" if quote else ""


class CustomTools:
    """The custom tools of one session.

    reserved   the names of other tools, with what they are
    clean      removes secrets and invisible characters from a text
    """

    def __init__(self, reserved: Collection[str], clean: Redact) -> None:
        self._reserved = dict.fromkeys(reserved, "a tool of the agent itself")
        self._clean = clean
        self._files: tuple[SourceFile, ...] = ()
        self.all: tuple[CustomTool, ...] = ()
        self.problems: tuple[DefinitionProblem, ...] = ()

    def read(self, files: tuple[SourceFile, ...]) -> None:
        """Read the tools of these files. Do nothing if the files are the same as before."""
        if files is self._files:
            return
        read = [(file, *read_tool(file, self._clean)) for file in files]
        found, twice = distinct([(tool.name, file, tool) for file, tool, _ in read if tool], self._reserved)
        self._files = files
        self.all = tuple(found.values())
        self.problems = (*(each for _, _, problems in read for each in problems), *twice)

    def status(self) -> Sequence[str]:
        """Return a line for /status."""
        return (f"Custom tools: {', '.join(tool.name for tool in self.all)}",) if self.all else ()


def effect(file: SourceFile) -> str:
    """Return what the tool of a file runs, for the question about a project's files."""
    table = table_of(file)
    if isinstance(table, DefinitionProblem):
        return ""
    command = json.dumps(table.get("command", ""), ensure_ascii=False, default=str)
    return f"runs {command}: {table.get('description', '')}"
