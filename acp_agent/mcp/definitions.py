"""A server's tools as it lists them, made into definitions: bounded, readable, and nothing in them hidden.

What cannot be shown to a user as it is read by a model is left out, and said (security.md 2.8).
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from acp_agent.core.mcp import McpDefinition, McpServer
from acp_agent.core.types import Json, JsonObject
from acp_agent.tools.visible import visible

MAX_TOOLS: Final = 200
MAX_LISTED: Final = 1024 * 1024
"""Bytes of all descriptions and schemas of one server."""
MAX_DESCRIPTION: Final = 2048
"""Bytes, UTF-8."""
MAX_SCHEMA: Final = 32 * 1024
MAX_DEPTH: Final = 32

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
                return
            try:
                self._add(tool)
            except ValueError as error:
                self._complain(str(error))

    def note(self, trouble: str) -> None:
        """Something is missing from the list."""
        self._complain(trouble)

    def definitions(self) -> tuple[McpDefinition, ...]:
        """What came through, in the server's order."""
        return tuple(self._found.values())

    def _add(self, tool: Json) -> None:
        name = _name(tool)
        if name in self._found:
            raise ValueError(f"{name} is listed twice, and only the first was kept")
        if name in self._server.deny or (self._server.allow and name not in self._server.allow):
            return
        definition, size = _definition(name, tool)
        if len(self._found) == MAX_TOOLS or self._size + size > MAX_LISTED:
            self.full = True
            raise ValueError(f"only the first {len(self._found)} tools were kept")
        self._found[name] = definition
        self._size += size

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


def _definition(name: str, tool: Json) -> tuple[McpDefinition, int]:
    fields = tool if isinstance(tool, dict) else {}
    said, schema = fields.get("description"), fields.get("inputSchema")
    try:
        description = _description(said)
        size = _check_schema(schema)
    except ValueError as error:
        raise ValueError(f"{name} was left out: {error}") from None
    return McpDefinition(name, description, schema if isinstance(schema, dict) else {}), size + len(description)


def _description(said: Json) -> str:
    match said:
        case None:
            return ""
        case str():
            text = said.replace("\r\n", "\n")
        case _:
            raise ValueError("its description is no text")
    _refuse_hidden(text, "its description")
    data = text.encode()
    if len(data) <= MAX_DESCRIPTION:
        return text
    return data[: MAX_DESCRIPTION - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def _check_schema(schema: Json) -> int:
    """The schema's size. Raises ValueError for one that cannot be offered."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError("its parameters are described by no schema of an object")
    _check_node(schema, 0)
    try:
        size = len(json.dumps(schema, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        raise ValueError("its schema holds a number that is none") from None
    if size > MAX_SCHEMA:
        raise ValueError(f"its schema has {size} bytes, and {MAX_SCHEMA} is the most")
    return size


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
    found = next((char for char in text if char not in "\n\t" and _hides(char)), None)
    if found is None and _SELECTORS.search(text):
        found = "\ufe0f"
    if found is not None:
        raise ValueError(f"{where} holds a control or invisible character (U+{ord(found):04X})")


def _hides(char: str) -> bool:
    if char.isascii():
        return char < " " or char == "\x7f"
    return unicodedata.category(char) in _HIDDEN or _BLANK.match(char) is not None
