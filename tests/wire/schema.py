"""The protocol's own JSON schema as a judge of what the agent sends.

The schema lies beside the checkout (`../shared/acp/v1/schema.json`); where it is absent nothing is judged.
It allows members it does not know, so a misspelt optional member would pass. Ours does not: every object but
the free-form ones is closed before use.
"""

import copy
import functools
import itertools
import json
import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from acp_agent.cli.agent_process import Direction, RecordedFrame, Recording

SCHEMA_FILE = Path(__file__).resolve().parents[3] / "shared" / "acp" / "v1" / "schema.json"
UNSTABLE_FILE = SCHEMA_FILE.with_name("schema.unstable.json")

_FREE_FORM = {"_meta", "rawInput", "rawOutput", "data"}
_SMALL = 60_000  # below the greatest number any member may be
_COMPOSED = ("$ref", "allOf", "anyOf", "oneOf", "properties")


def available() -> bool:
    """Whether the schema is there."""
    return SCHEMA_FILE.is_file()


def violations(recording: Recording, file: Path = SCHEMA_FILE) -> list[str]:
    """What the schema says against the agent's messages, one line each; empty when the schema is absent.

    file   UNSTABLE_FILE for what is not stable yet (session/fork)
    """
    if not available():
        return []
    found, asked = [], {}
    for index, frame in enumerate(recording.frames):
        if frame.direction is Direction.TO_AGENT:
            if frame.is_request and isinstance(frame.message["id"], str | int):
                asked[frame.message["id"]] = frame.method
            continue
        found += [f"frame {index}: {problem}" for problem in _judge(frame, asked, file)]
    return found


def _judge(frame: RecordedFrame, asked: dict, file: Path) -> list[str]:
    message = frame.message
    envelope = {"jsonrpc", "id", "method", "params"} if frame.method else {"jsonrpc", "id", "result", "error"}
    problems = [f"unknown member {name!r}" for name in message if name not in envelope]
    if message.get("jsonrpc") != "2.0":
        problems.append("jsonrpc is not 2.0")
    if frame.method.startswith("_"):  # an extension of the client's (ACP "Extensibility")
        return problems
    if frame.method:
        return problems + _against(file, _types(file)["sent"].get(frame.method), frame.params, frame.method)
    if ("result" in message) == ("error" in message):
        return [*problems, "an answer has exactly one of result and error"]
    if "error" in message:
        return problems + _against(file, "Error", message["error"], "error")
    method = asked.get(message["id"], "?")
    if method.startswith("_"):  # what it answers is not the protocol's business
        return problems if isinstance(message["result"], dict) else [*problems, f"the answer to {method} is no object"]
    return problems + _against(file, _types(file)["answered"].get(method), message["result"], f"the answer to {method}")


def _against(file: Path, type_name: str | None, value: object, what: str) -> list[str]:
    if type_name is None:
        return [f"{what}: not a method of the protocol"]
    if _is_fine(file, type_name, json.dumps(_shape(value, _words(file)), sort_keys=True)):
        return []
    errors = _validator(file, type_name).iter_errors(value)
    return [f"{what}: {error.json_path}: {error.message[:300]}" for error in errors]


@functools.cache
def _is_fine(file: Path, type_name: str, shape: str) -> bool:
    """A shape is judged once: that takes 20 ms, and a conversation has hundreds of frames of a dozen shapes."""
    return _validator(file, type_name).is_valid(json.loads(shape))


def _shape(value: Any, words: frozenset[str]) -> Any:
    """The same value to the schema, which looks at no text but its own words, and at no number but its signs."""
    match value:
        case dict():
            return {key: type(item)() if key in _FREE_FORM else _shape(item, words) for key, item in value.items()}
        case list():
            return [shape for shape, _ in itertools.groupby(_shape(item, words) for item in value)]
        case str():
            return value if not value or value in words else "x"
        case bool() | None:
            return value
        case int() | float() if 0 < value <= _SMALL:
            return type(value)(1)
        case _:
            return value


@functools.cache
def _words(file: Path) -> frozenset[str]:
    """What the schema names: values of constants, kinds, methods."""
    return frozenset(re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(_schema(file), ensure_ascii=False)))


@functools.cache
def _schema(file: Path = SCHEMA_FILE) -> dict:
    return _close(copy.deepcopy(json.loads(file.read_text(encoding="utf-8"))))


@functools.cache
def _types(file: Path) -> dict[str, dict[str, str]]:
    """Method -> type name, of what the agent sends on its own and of what it answers."""
    types: dict[str, dict[str, str]] = {"sent": {}, "answered": {}}
    for name, definition in _schema(file)["$defs"].items():
        side, method = definition.get("x-side"), definition.get("x-method")
        if side in ("client", "protocol") and name.endswith(("Request", "Notification")):
            types["sent"][method] = name
        elif side == "agent" and name.endswith("Response"):
            types["answered"][method] = name
    return types


@functools.cache
def _validator(file: Path, type_name: str) -> Draft202012Validator:
    root = {"$ref": f"#/$defs/{type_name}", "unevaluatedProperties": False, "$defs": _schema(file)["$defs"]}
    return Draft202012Validator(root)


def _close(node):
    """Forbid unknown members wherever an object of a known shape stands; composition inside it stays possible."""
    if isinstance(node, list):
        return [_close(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {name: _close(value) for name, value in node.items()}
    places = [value for name, value in closed.get("properties", {}).items() if name not in _FREE_FORM]
    if isinstance(closed.get("items"), dict):
        places.append(closed["items"])
    for place in places:
        if isinstance(place, dict) and any(word in place for word in _COMPOSED):
            place["unevaluatedProperties"] = False
    return closed
