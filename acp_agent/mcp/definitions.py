"""A server's tools as it lists them, made into definitions: bounded, readable, and nothing in them hidden.

What cannot be shown to a user as it is read by a model is left out, and said (security.md 2.8). However much a server
lists, little of it is looked at: what is left out uses up the same limit as what is kept.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from acp_agent.core.mcp import McpDefinition, McpServer
from acp_agent.core.types import Json, JsonObject
from acp_agent.mcp.schemas import MAX_DEPTH, MAX_SCHEMA, fit_schema, size_of, weight
from acp_agent.tools.visible import visible

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
