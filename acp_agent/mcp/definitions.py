"""A server's tools as it lists them, made into definitions: bounded, readable, and nothing in them hidden.

What cannot be shown to a user as it is read by a model is left out, and said (security.md 2.8). However much a server
lists, little of it is looked at: what is left out uses up the same limit as what is kept.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from acp_agent.core.mcp import McpDefinition, McpServer
from acp_agent.core.types import Json, JsonObject
from acp_agent.tools.visible import visible

MAX_SCHEMA: Final = 32 * 1024
"""Bytes, as JSON."""
MAX_DEPTH: Final = 32

_PARAMETER: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOT_AT_TOP: Final = ("oneOf", "anyOf", "allOf", "enum", "not")
_TYPES: Final = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))
# Where schemas are inside schemas (draft 2020-12): one, a list of them, or an object whose values are some.
_ONE: Final = frozenset(
    (
        *("items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties"),
        *("not", "if", "then", "else"),
    )
)
_LISTED: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))


def fit_schema(schema: Json) -> JsonObject:
    """The schema, of at most MAX_DEPTH, as every API takes it. It asks for no more than before, and may ask for less.

    Rules at the top give way where the parameters are known without them: the server judges its calls in any case.
    Raises ValueError, with the reason, for one that cannot be made to fit.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError("its parameters are described by no schema of an object")
    properties = schema.get("properties", {})
    rules = [keyword for keyword in _NOT_AT_TOP if keyword in schema]
    if rules and not properties:
        raise ValueError(f"its schema describes the parameters by {rules[0]} alone, which model APIs refuse")
    for name in properties if isinstance(properties, dict) else ():
        if not _PARAMETER.fullmatch(name):
            raise ValueError(f'"{visible(name[:60])}" is no name of a parameter that model APIs take')
    root = {key: value for key, value in schema.items() if key not in rules}
    return {**_fit_object(root, root), **({} if "properties" in root else {"properties": {}})}


def size_of(schema: Json) -> int:
    """Bytes as JSON, of a schema whose weight and depth are known to be bounded. Raises ValueError when too many."""
    try:
        size = len(json.dumps(schema, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        raise ValueError("its schema holds a number that is none") from None
    if size > MAX_SCHEMA:
        raise ValueError(f"its schema has {size} bytes, and {MAX_SCHEMA} is the most")
    return size


def weight(value: Json, limit: int) -> int:
    """Somewhat less than the bytes a value has as JSON. Takes about `limit` steps: beyond it nothing is looked at."""
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


# ------------------------------------------------------------------------------- schemas in schemas


def _fit(node: Json, root: JsonObject) -> Json:
    match node:
        case bool():
            return node
        case dict():
            return _fit_object(node, root)
        case _:
            raise ValueError("its schema holds something else where a schema belongs")


def _fit_object(node: JsonObject, root: JsonObject) -> JsonObject:
    for key, value in node.items():
        right = _SHAPES.get(key)
        if right is not None and not right(value):
            raise ValueError(f'its schema holds a "{key}" that is none in draft 2020-12')
    reference = node.get("$ref")
    if isinstance(reference, str) and not _leads_somewhere(reference, root):
        raise ValueError("its schema refers to a part that it does not have")
    fit: JsonObject = {key: _fit_inside(key, value, root) for key, value in node.items()}
    kinds = node.get("type")
    if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and "items" not in fit:
        fit["items"] = {}  # the same in other words
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
    """Whether a reference is a JSON pointer (RFC 6901) to a schema in here."""
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


def _is_kind(value: Json) -> bool:
    return isinstance(value, str) and value in _TYPES


def _is_types(value: Json) -> bool:
    return (isinstance(value, list) and bool(value) and all(map(_is_kind, value))) or _is_kind(value)


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_flag(value: Json) -> bool:
    return isinstance(value, bool)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == int(value)


def _is_list(value: Json) -> bool:
    return isinstance(value, list)


def _is_full_list(value: Json) -> bool:
    return isinstance(value, list) and bool(value)


def _is_object(value: Json) -> bool:
    return isinstance(value, dict)


def _is_names(value: Json) -> bool:
    names = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
    return isinstance(value, list) and len(set(names)) == len(value)


_SHAPES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "type": _is_types,
    "required": _is_names,
    "enum": _is_list,
    "examples": _is_list,
    **dict.fromkeys(_LISTED, _is_full_list),
    **dict.fromkeys(_NAMED, _is_object),
    **dict.fromkeys(("title", "description", "format", "pattern", "$ref", "$id", "$schema", "$comment"), _is_text),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_flag),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
}


MAX_TOOLS: Final = 200
MAX_LISTED: Final = 1024 * 1024
"""Bytes of all descriptions and schemas of one server, those that are left out included."""
MAX_DESCRIPTION: Final = 2048
"""Bytes, UTF-8."""

_ANY_TOOL: Final = 200
"""Bytes of that limit each entry uses up, whatever it is."""
_CUT: Final = "… [cut]"
_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that show nothing, but for the two that say whether an emoji is drawn as one."""
_SELECTORS: Final = re.compile("[\ufe0e\ufe0f]{2}")


class Catalogue:
    """The tools of one server, read one by one.

    troubles   what was left out or cut, and why, fit for the user
    full       whether more tools would be left out anyway
    """

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._found: dict[str, McpDefinition] = {}
        self._size = 0
        self.troubles: list[str] = []
        self.full = False

    def add(self, tools: Iterable[Json]) -> None:
        """Take in a page of the list."""
        for tool in tools:
            if self.full:
                break
            try:
                self._add(tool)
            except ValueError as error:
                self._complain(str(error))
        if self.full:
            self.note(f"only the first {len(self._found)} tools were kept")

    def note(self, trouble: str) -> None:
        """Part of the list is missing: said first, since what is told of single tools may be long."""
        self.troubles.insert(0, trouble)

    def definitions(self) -> tuple[McpDefinition, ...]:
        """What came through, in the server's order."""
        return tuple(self._found.values())

    def _add(self, tool: Json) -> None:
        if not self._use_up(_ANY_TOOL):
            return
        name = _name(tool)
        if name in self._found:
            raise ValueError(f"{name} is listed twice, and only the first was kept")
        if name in self._server.deny or (self._server.allow and name not in self._server.allow):
            return
        fields = tool if isinstance(tool, dict) else {}
        said, schema = fields.get("description"), fields.get("inputSchema")
        heavy = weight(schema, MAX_SCHEMA)
        spoken = min(len(said), MAX_DESCRIPTION) if isinstance(said, str) else 0
        if not self._use_up(min(heavy, MAX_SCHEMA) + spoken) or len(self._found) == MAX_TOOLS:
            self.full = True
            return
        try:
            parameters, size = _parameters(schema, heavy)
            self._found[name] = McpDefinition(name, _description(said), parameters)
            self._size += size - heavy
        except ValueError as error:
            raise ValueError(f"{name} was left out: {error}") from None

    def _use_up(self, size: int) -> bool:
        """Whether there is still room after that much more."""
        self._size += size
        self.full = self._size > MAX_LISTED
        return not self.full

    def _complain(self, trouble: str) -> None:
        if len(self.troubles) < 10:
            self.troubles.append(trouble)


def _name(tool: Json) -> str:
    match tool:
        case {"name": str(name)} if _NAME.fullmatch(name):
            return name
        case {"name": str(name)}:
            raise ValueError(f'"{visible(name[:60])}" was left out: that is no name of a tool')
        case _:
            raise ValueError("a tool without a name was left out")


def _description(said: Json) -> str:
    match said:
        case None:
            return ""
        case str():
            text = said[: 2 * MAX_DESCRIPTION + 2].replace("\r\n", "\n")  # more than enough to be cut
        case _:
            raise ValueError("its description is no text")
    _refuse_hidden(text, "its description")
    data = text.encode()
    if len(data) <= MAX_DESCRIPTION:
        return text
    return data[: MAX_DESCRIPTION - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def _parameters(schema: Json, heavy: int) -> tuple[JsonObject, int]:
    """The schema as models get it, and its bytes as it came. Raises ValueError for one that cannot be offered."""
    if heavy > MAX_SCHEMA:
        raise ValueError(f"its schema has more than {MAX_SCHEMA} bytes")
    _check_node(schema, 0)
    size = size_of(schema)
    return fit_schema(schema), size


def _check_node(node: Json, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"its schema nests more than {MAX_DEPTH} deep")
    match node:
        case str():
            _refuse_hidden(node, "its schema")
        case list():
            for item in node:
                _check_node(item, depth + 1)
        case dict():
            _check_object(node, depth)
        case _:
            pass


def _check_object(node: JsonObject, depth: int) -> None:
    reference = node.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        raise ValueError("its schema refers to another document")
    for key, value in node.items():
        _refuse_hidden(key, "its schema")
        _check_node(value, depth + 1)


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
