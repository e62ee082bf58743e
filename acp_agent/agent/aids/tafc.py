"""Think-augmented function calling: tools with a demanding schema get a place to reason in before the arguments (L3).

What the model writes there is nobody's: it is taken off before an answer is kept, run, audited or shown.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import Message, Part, ToolUsePart
from acp_agent.core.types import Json, JsonObject, ToolResult, ToolSpec

FIELD = "_tafc_think"
"""The added property. A tool's own `thinking` is another thing (requirements section 4 row 8)."""

DEFAULT_THRESHOLD = 0.6

_DESCRIPTION = (
    "Fill this in first: reason step by step about what is asked and which value each argument needs. "
    "It is not passed on to the tool."
)
_ONLY_THOUGHT = ToolFailure(
    ToolErrorCategory.INVALID_PARAMETERS,
    f"The call had a {FIELD} and no arguments, so it was not run.",
    "Call the tool again with its arguments; {} if it needs none.",
)

_REQUIRED_WEIGHT, _REQUIRED_FULL = 0.4, 6
_NESTING_WEIGHT, _NESTING_FULL = 0.3, 4
_ENUM_WEIGHT, _ENUM_FULL = 0.3, 10

_MOST_NODES = 2_000  # of a schema, which a server may have made to expand without an end
_WITHIN = ("anyOf", "oneOf", "allOf")

_SPELLED = re.compile(  # JSON may write any letter as its number
    "".join(f"(?:{char}|\\\\u{ord(char):04x}|\\\\u{ord(char.upper()):04x})" for char in FIELD), re.IGNORECASE
)


class Tafc:
    """Dresses the tools whose complexity is at least `threshold`, and takes the thoughts out of what comes back.

    A spec is scored once: the same spec gives the same object every time, so that requests stay equal byte by byte.
    """

    def __init__(self, threshold: float = DEFAULT_THRESHOLD) -> None:
        self.threshold = fit_threshold(threshold)
        self._dressed: dict[str, tuple[ToolSpec, ToolSpec]] = {}

    def dressed(self, spec: ToolSpec) -> ToolSpec:
        """The spec with the field in front of its properties, or as it is."""
        known = self._dressed.get(spec.name)
        if known is None or known[0] != spec:
            known = self._dressed[spec.name] = (spec, self._dress(spec))
        return known[1]

    def status(self, specs: Sequence[ToolSpec]) -> str:
        """One line for /status on what becomes of `specs`."""
        thinking = sum(self.dressed(spec) is not spec for spec in specs)
        return f"TAFC: threshold={self.threshold:g}, thinking={thinking} of {len(specs)} tools"

    def _dress(self, spec: ToolSpec) -> ToolSpec:
        own = spec.parameters.get("properties")
        if not isinstance(own, dict) or not own or complexity(spec.parameters) < self.threshold:
            return spec  # without properties there is nothing to think about, and every call would be a thought alone
        properties: JsonObject = {FIELD: {"type": "string", "description": _DESCRIPTION}}
        properties |= {name: schema for name, schema in own.items() if not is_thought(name)}
        return replace(spec, parameters={**spec.parameters, "properties": properties})


@dataclass(frozen=True, slots=True)
class Stripped:
    """A message without thoughts in its calls, and the answer to calls that were nothing else, by id."""

    message: Message
    answered: dict[str, ToolResult]


def strip(message: Message) -> Stripped:
    """Take the field off every call, dressed or not: a model goes on writing what it once saw.

    Only top-level arguments are looked at: that is where the field was offered, and what lies deeper is data, such as a
    file about this very field. Of raw arguments, which could not be read as an object, nothing is kept from the field
    on: where the thought ends cannot be told.
    """
    parts: list[Part] = []
    answered: dict[str, ToolResult] = {}
    for part in message.parts:
        if not isinstance(part, ToolUsePart):
            parts.append(part)
            continue
        bare = _bare(part)
        parts.append(bare)
        if part.arguments and not bare.arguments:
            answered[part.id] = ToolResult.failed(_ONLY_THOUGHT)
    return Stripped(replace(message, parts=tuple(parts)), answered)


def is_thought(name: str) -> bool:
    """Whether an argument of this name is the model's own reasoning: the field, or anything that begins like it."""
    return name.lower().startswith(FIELD)


def fit_threshold(threshold: float) -> float:
    """The threshold within 0 to 1; the default for what is no finite number (L3)."""
    return min(max(threshold, 0.0), 1.0) if math.isfinite(threshold) else DEFAULT_THRESHOLD


def complexity(schema: JsonObject) -> float:
    """How demanding the arguments are, from 0 to 1 (requirements section 4 row 9).

    The sum of three parts, none of which can make up for the others:

    0.4 * required names, those of inner objects too, 6 or more being full
    0.3 * levels of objects and arrays below the top one, 4 or more being full
    0.3 * values that enumerations list, all together, 10 or more being full

    `$ref` into the schema itself is followed. Of a schema with very many nodes only the first 2,000 count.
    """
    required = depth = values = 0
    for node, level in _nodes(schema):
        required += len(_list(node, "required"))
        values += len(_list(node, "enum")) + ("const" in node)
        depth = max(depth, level)
    return (
        _REQUIRED_WEIGHT * min(required / _REQUIRED_FULL, 1.0)
        + _NESTING_WEIGHT * min(depth / _NESTING_FULL, 1.0)
        + _ENUM_WEIGHT * min(values / _ENUM_FULL, 1.0)
    )


def _bare(use: ToolUsePart) -> ToolUsePart:
    """The call without thoughts."""
    spelled = _SPELLED.search(use.raw_arguments)
    raw = use.raw_arguments[: spelled.start()] if spelled else use.raw_arguments
    kept = use.arguments and {name: value for name, value in use.arguments.items() if not is_thought(name)}
    return replace(use, arguments=kept, raw_arguments=raw)


def _nodes(schema: JsonObject) -> list[tuple[JsonObject, int]]:
    """Every schema in a schema with its level: containers below the top one count, alternatives do not.

    Breadth first, and no deeper than what makes a difference: schemas that contain themselves come to an end.
    """
    found = [(schema, 0)]
    for node, level in found:  # which grows meanwhile
        room = _MOST_NODES - len(found)
        if level < _NESTING_FULL and room:
            found += ((inner, level + _is_container(inner)) for inner in islice(_inner(node, schema), room))
    return found


def _inner(node: JsonObject, root: JsonObject) -> Iterator[JsonObject]:
    properties = node.get("properties")
    held = [*properties.values()] if isinstance(properties, dict) else []
    held += [node.get("items"), node.get("additionalProperties")]
    for word in _WITHIN:
        held += _list(node, word)
    for each in held:
        if isinstance(each, dict):
            yield _resolved(each, root)


def _is_container(node: JsonObject) -> bool:
    return any(isinstance(node.get(word), dict) for word in ("properties", "items", "additionalProperties"))


def _resolved(node: JsonObject, root: JsonObject) -> JsonObject:
    """What a `$ref` within the schema leads to, one step; the node itself where it leads nowhere."""
    reference = node.get("$ref")
    if not isinstance(reference, str) or not f"{reference}/".startswith("#/"):
        return node
    target: Json = root
    for step in reference.split("/")[1:]:
        target = target.get(step) if isinstance(target, dict) else None
    return target if isinstance(target, dict) else node


def _list(node: JsonObject, word: str) -> list[Json]:
    value = node.get(word)
    return value if isinstance(value, list) else []
