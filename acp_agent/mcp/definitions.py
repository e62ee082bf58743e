"""The tools that a server lists, turned into definitions that are bounded, readable and free of hidden characters.

A tool is left out, and the user is told, if its description has characters that the user cannot see but the model
reads. Tools that are left out count toward the size limit of the server, so a long list of bad tools cannot cost much.

Model APIs refuse a whole request because of one schema that they do not take. No standard says what they refuse; their
error messages do (2025-2026): Anthropic wants JSON Schema draft 2020-12, parameter names `[a-zA-Z0-9_.-]{1,64}` and no
oneOf, anyOf or allOf at the top level. OpenAI also refuses enum and not at the top level, arrays without items and
objects without properties. Below the top level both take all of these keywords.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from acp_agent.core.mcp import McpDefinition, McpServer
from acp_agent.core.types import Json, JsonObject
from acp_agent.text import visible

MAX_SCHEMA: Final = 32 * 1024
"""The largest schema, in bytes of JSON."""
MAX_DEPTH: Final = 32
_PARAMETER: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOT_AT_TOP: Final = ("oneOf", "anyOf", "allOf", "enum", "not")
_TYPES: Final = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))
# The keywords of draft 2020-12 that hold one schema, a list of schemas, or an object of schemas.
_ONE: Final = frozenset(
    (
        *("items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties"),
        *("not", "if", "then", "else"),
    )
)
_LISTED: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))


def fit_schema(schema: Json) -> JsonObject:
    """Return the schema, which nests at most `MAX_DEPTH` deep, in a form that every API takes.

    The result is never stricter than the original. Rules at the top level (oneOf, ...) are dropped if `properties`
    describes the parameters; the server checks its calls in any case.

    Raises:
        ValueError: the schema cannot be made to fit; the message says why.

    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError("its schema is not the schema of an object")
    properties = schema.get("properties", {})
    rules = [keyword for keyword in _NOT_AT_TOP if keyword in schema]
    if rules and not properties:
        raise ValueError(f"its schema describes the parameters by {rules[0]} alone, which model APIs refuse")
    for name in properties if isinstance(properties, dict) else ():
        if not _PARAMETER.fullmatch(name):
            raise ValueError(f'"{visible(name[:60])}" is not a parameter name that model APIs take')
    root = {key: value for key, value in schema.items() if key not in rules}
    fit = _fit_object(root, root)
    fit = _fit_object(fit, fit)  # a reference may lead into what has changed
    return {**fit, **({} if "properties" in fit else {"properties": {}})}


def estimated_size(value: Json, limit: int) -> int:
    """Return a lower estimate of the bytes of a value as JSON. It stops counting above about `limit`."""
    found, rest = 0, [value]
    while rest and found <= limit:
        match rest.pop():
            case str(text):
                found += len(text) + 2
            case list(items):
                found += len(items) + 1
                rest += items[: limit + 1]
            case dict() as node if len(node) > limit:
                found += len(node)
            case dict() as node:
                found += 2 + sum(len(key) + 3 for key in node)
                rest += node.values()
            case _:
                found += 1
    return found


def _fit(node: Json, root: JsonObject) -> Json:
    match node:
        case bool():
            return node
        case dict():
            return _fit_object(node, root)
        case _:
            raise ValueError("its schema holds another value in the place of a schema")


def _fit_object(node: JsonObject, root: JsonObject) -> JsonObject:
    node = {key: value for key, value in node.items() if value is not None or key not in _NEVER_NULL}
    if isinstance(node.get("items"), list):  # the tuple of earlier drafts
        node["prefixItems"] = node.pop("items")
    for bound in _BOUNDS:
        if isinstance(node.get(bound), bool):  # of draft 4: whether the other bound is exclusive
            del node[bound]
    for key, value in node.items():
        right = _SHAPES.get(key)
        if right is not None and not right(value):
            raise ValueError(f'its schema holds a "{key}" that draft 2020-12 does not allow')
    reference = node.get("$ref")
    if isinstance(reference, str) and not _leads_somewhere(reference, root):
        raise ValueError("its schema refers to a part that it does not have")
    fit: JsonObject = {key: _fit_inside(key, value, root) for key, value in node.items()}
    kinds = node.get("type")
    if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and "items" not in fit:
        fit["items"] = {}  # the same meaning, written out
    return fit


def _fit_inside(key: str, value: Json, root: JsonObject) -> Json:
    if key in _ONE:
        return _fit(value, root)
    if key in _LISTED and isinstance(value, list):
        return [_fit(each, root) for each in value]
    if key in _NAMED and isinstance(value, dict):
        return {name: _fit(each, root) for name, each in value.items()}
    return value


def _leads_somewhere(reference: str, root: JsonObject) -> bool:
    """Return True if a reference is a JSON pointer (RFC 6901) to a part of this schema."""
    found: Json = root
    first, *steps = unquote(reference.removeprefix("#")).split("/")
    for step in steps:
        match found:
            case dict():
                found = found.get(step.replace("~1", "/").replace("~0", "~"))
            case list() if step.isdecimal() and len(step) < 6 and int(step) < len(found):
                found = found[int(step)]
            case _:
                return False
    return not first and isinstance(found, dict | bool)


def _is_type(value: Json) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return bool(kinds) and all(isinstance(each, str) and each in _TYPES for each in kinds)


def _instance_of(kind: type) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, kind)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == int(value)


def _is_full_list(value: Json) -> bool:
    return isinstance(value, list) and bool(value)


def _is_names(value: Json) -> bool:
    names = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
    return isinstance(value, list) and len(set(names)) == len(value)


_SHAPES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "type": _is_type,
    "required": _is_names,
    "enum": _instance_of(list),
    "examples": _instance_of(list),
    **dict.fromkeys(_LISTED, _is_full_list),
    **dict.fromkeys(_NAMED, _instance_of(dict)),
    **dict.fromkeys(
        ("title", "description", "format", "pattern", "$ref", "$id", "$schema", "$comment"), _instance_of(str)
    ),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _instance_of(bool)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
}


_NEVER_NULL: Final = frozenset(_SHAPES) | _ONE
"""The keywords for which null is the same as none. Programs in Go write an empty list as null."""
_BOUNDS: Final = ("exclusiveMinimum", "exclusiveMaximum")


MAX_TOOLS: Final = 200
MAX_LISTED: Final = 1024 * 1024
"""The most bytes of descriptions and schemas of one server, including the tools that are left out."""
MAX_DESCRIPTION: Final = 2048
"""The longest description, in bytes of UTF-8."""

_LEAST_TOOL_SIZE: Final = 200
"""The bytes that each entry counts at least toward `MAX_LISTED`."""
_MOST_TROUBLES: Final = 10
_CUT: Final = "… [cut]"
_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that show nothing, except the two that select how an emoji is drawn."""
_SELECTORS: Final = re.compile("[\ufe0e\ufe0f]{2}")


class ToolListing:
    """The tools of one server, read one by one.

    troubles   what was left out or shortened and why, as texts for the user
    full       True if the limits are reached, so that further tools would be left out
    """

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._found: dict[str, McpDefinition] = {}
        self._size = 0
        self.troubles: list[str] = []
        self.full = False

    def add(self, tools: Iterable[Json]) -> None:
        """Read a page of the list."""
        for tool in tools:
            if self.full:
                break
            try:
                self._add(tool)
            except ValueError as error:
                if len(self.troubles) < _MOST_TROUBLES:
                    self.troubles.append(str(error))
        if self.full:
            self.note(f"only the first {len(self._found)} tools were kept")

    def note(self, trouble: str) -> None:
        """Report that part of the list is missing. The report comes first, since those on single tools may be long."""
        self.troubles.insert(0, trouble)

    def definitions(self) -> tuple[McpDefinition, ...]:
        """Return the accepted tools in the server's order."""
        return tuple(self._found.values())

    def _add(self, tool: Json) -> None:
        if not self._count_size(_LEAST_TOOL_SIZE):
            return
        name = _name(tool)
        if name in self._found:
            raise ValueError(f"{name} is listed twice, and only the first was kept")
        if name in self._server.deny or (self._server.allow and name not in self._server.allow):
            return
        fields = tool if isinstance(tool, dict) else {}
        said, schema = fields.get("description"), fields.get("inputSchema")
        heavy = estimated_size(schema, MAX_SCHEMA)
        spoken = min(len(said), MAX_DESCRIPTION) if isinstance(said, str) else 0
        if not self._count_size(min(heavy, MAX_SCHEMA) + spoken) or len(self._found) == MAX_TOOLS:
            self.full = True
            return
        try:
            parameters, size = _parameters(schema, heavy)
            self._found[name] = McpDefinition(name, _description(said), parameters)
            self._size += size - heavy
        except ValueError as error:
            raise ValueError(f"{name} was left out: {error}") from None

    def _count_size(self, size: int) -> bool:
        """Count this size toward the limit. Return True if the limit is not exceeded."""
        self._size += size
        self.full = self._size > MAX_LISTED
        return not self.full


def _name(tool: Json) -> str:
    match tool:
        case {"name": str(name)} if _NAME.fullmatch(name):
            return name
        case {"name": str(name)}:
            raise ValueError(f'"{visible(name[:60])}" was left out: this is not a valid tool name')
        case _:
            raise ValueError("a tool without a name was left out")


def _description(said: Json) -> str:
    match said:
        case None:
            return ""
        case str():
            text = said[: 2 * MAX_DESCRIPTION + 2].replace("\r\n", "\n")  # longer than any description that is kept
        case _:
            raise ValueError("its description is not a text")
    _refuse_hidden(text, "its description")
    data = text.encode()
    if len(data) <= MAX_DESCRIPTION:
        return text
    return data[: MAX_DESCRIPTION - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def _parameters(schema: Json, heavy: int) -> tuple[JsonObject, int]:
    """Return the schema for models, and its original size in bytes. Raises ValueError if it cannot be offered."""
    if heavy > MAX_SCHEMA:
        raise ValueError(f"its schema has more than {MAX_SCHEMA} bytes")
    _check_schema(schema, 0)
    try:
        size = len(json.dumps(schema, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        raise ValueError("its schema holds NaN or infinity") from None
    if size > MAX_SCHEMA:
        raise ValueError(f"its schema has {size} bytes, and {MAX_SCHEMA} is the most")
    return fit_schema(schema), size


def _check_schema(node: Json, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"its schema nests more than {MAX_DEPTH} deep")
    match node:
        case str():
            _refuse_hidden(node, "its schema")
        case list():
            for item in node:
                _check_schema(item, depth + 1)
        case dict():
            reference = node.get("$ref")
            if isinstance(reference, str) and not reference.startswith("#"):
                raise ValueError("its schema refers to another document")
            for key, value in node.items():
                _refuse_hidden(key, "its schema")
                _check_schema(value, depth + 1)
        case _:
            pass


def _refuse_hidden(text: str, where: str) -> None:
    found = None
    if not text.isprintable() or _BLANK.search(text):
        found = next((char for char in text if char not in "\n\t" and _hides(char)), None)
    if found is None and _SELECTORS.search(text):
        found = "\ufe0f"
    if found is not None:
        raise ValueError(f"{where} holds a control or invisible character (U+{ord(found):04X})")


def _hides(char: str) -> bool:
    if char.isascii():
        return char < " " or char == "\x7f"
    return unicodedata.category(char) in _HIDDEN or _BLANK.match(char) is not None
