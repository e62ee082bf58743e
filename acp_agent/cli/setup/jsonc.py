"""JSON with comments and trailing commas, edited in place: every byte outside the edited entry stays as it is.

The settings of Zed and VS Code are such files. A file that is strict JSON stays strict JSON.
"""

import json
import re
from collections.abc import Sequence

from acp_agent.core.data import frozen
from acp_agent.core.types import Json

_MARK = "\ufeff"  # the byte order mark at the start of a file
_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_SAME_LINE = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*.*?\*/))*", re.DOTALL)
_SCALAR = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|(?:true|false|null)\b'
)
_DEEPEST = 200
_UNIT = "  "  # the indent for a file without any


class JsoncFault(Exception):
    """The text is not JSON at a place, or not the JSON that is needed there. Lines and columns count from 1."""

    def __init__(self, text: str, position: int, what: str) -> None:
        before = text[:position]
        start = max(before.rfind("\n"), before.rfind("\r")) + 1
        lines = before.count("\n") + before.count("\r") - before.count("\r\n")
        column = position - start - text.startswith(_MARK, start, position) + 1
        super().__init__(f"line {lines + 1}, column {column}: {what}")


@frozen
class JsoncMember:
    """A member of an object. `start` is the position of its key, `comma` that of the comma behind it, or -1."""

    key: str
    start: int
    node: "JsoncNode"
    comma: int


@frozen
class JsoncNode:
    """A value and its place in the text. `members` is None if it is no object; of equal keys the last one counts."""

    start: int
    end: int
    value: Json
    members: tuple[JsoncMember, ...] | None = None

    def member(self, key: str) -> JsoncMember | None:
        """Return the member that counts under the key."""
        return next((each for each in reversed(self.members or ()) if each.key == key), None)


def parse(text: str) -> JsoncNode | None:
    """Return the value of a text, or None if it holds nothing but space and comments. Raises JsoncFault."""
    return _Reader(text).document()


def node_at(text: str, path: Sequence[str]) -> JsoncNode | None:
    """Return what stands at a path of keys, or None if there is nothing. Raises JsoncFault."""
    node = parse(text)
    for key in path:
        member = node.member(key) if node is not None else None
        node = member.node if member is not None else None
    return node


def value_at(text: str, path: Sequence[str]) -> Json:
    """Return the value at a path of keys, or None if there is none. Raises JsoncFault."""
    node = node_at(text, path)
    return node.value if node is not None else None


def with_value(text: str, path: Sequence[str], value: Json) -> str:
    """Return the text with the value at a path of keys. Objects on the way are made where they are missing.

    Where an object stands at the path, and the value is one as well, only the members that differ are set.

    Raises:
        JsoncFault: The text is no JSON, or something on the way is no object.

    """
    root = parse(text)
    if root is None:
        line = _newline(text)
        gap = line if text.strip(_MARK) and not text.endswith(("\n", "\r")) else ""
        return text + gap + _written(_nested(path, value), _UNIT, line) + line
    node = root
    for depth, key in enumerate(path):
        if node.members is None:
            raise JsoncFault(text, node.start, f"an object is needed here, for {key!r}")
        member = node.member(key)
        if member is None:
            return _inserted(text, root, node, key, _nested(path[depth + 1 :], value))
        node = member.node
    if isinstance(value, dict) and node.members is not None:
        for key, item in value.items():
            text = with_value(text, (*path, key), item)
        return text
    if node.value == value:
        return text
    line_start = text[_line_start(text, node.start) : node.start]
    indent = line_start[: len(line_start) - len(line_start.lstrip(" \t"))]
    written = _written(value, _unit(text, root), _newline(text) + indent)
    return text[: node.start] + written + text[node.end :]


def without_value(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at a path of keys. Raises JsoncFault if it is no JSON."""
    node = node_at(text, path[:-1])
    found = node.member(path[-1]) if node is not None else None
    if node is None or found is None:
        return text
    end = found.comma + 1 if found.comma >= 0 else found.node.end
    start = len(text[: found.start].rstrip(" \t"))
    if re.match(r"[ \t]*(?:\r?\n|\r|$)", text[end:]):  # the line is empty without it
        start -= len(text[:start]) - len(re.sub(r"(?:\r?\n|\r)\Z", "", text[:start]))
    before = text[:start]
    members = node.members or ()
    if found.comma < 0 and len(members) > 1:
        comma = members[-2].comma
        before = before[:comma] + before[comma + 1 :]
    return before + text[end:]


def is_bare(text: str, path: Sequence[str]) -> bool:
    """Return whether an object without members and comments stands at the path. Raises JsoncFault."""
    node = node_at(text, path)
    return node is not None and node.members == () and not text[node.start + 1 : node.end - 1].strip()


class _Reader:
    """Reads one text from its start to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = len(_MARK) if text.startswith(_MARK) else 0

    def document(self) -> JsoncNode | None:
        self._skip()
        if self._at == len(self._text):
            return None
        node = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._fault("nothing more is expected")
        return node

    def _value(self, depth: int) -> JsoncNode:
        if depth > _DEEPEST:
            raise self._fault(f"nested more than {_DEEPEST} deep")
        match self._peek():
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case _:
                return self._scalar("a value is expected")

    def _object(self, depth: int) -> JsoncNode:
        start, members = self._at, list[JsoncMember]()
        self._at += 1
        self._skip()
        while self._peek() != "}":
            key_start = self._at
            key = self._scalar("a key in double quotes or } is expected", only='"').value
            self._skip()
            if self._peek() != ":":
                raise self._fault(": is expected")
            self._at += 1
            self._skip()
            node = self._value(depth + 1)
            comma = self._comma("}")
            members.append(JsoncMember(str(key), key_start, node, comma))
            if comma < 0:
                break
        self._at += 1
        value: Json = {each.key: each.node.value for each in members}
        return JsoncNode(start, self._at, value, tuple(members))

    def _array(self, depth: int) -> JsoncNode:
        start, items = self._at, list[Json]()
        self._at += 1
        self._skip()
        while self._peek() != "]":
            items.append(self._value(depth + 1).value)
            if self._comma("]") < 0:
                break
        self._at += 1
        return JsoncNode(start, self._at, items)

    def _comma(self, closing: str) -> int:
        """Read the comma behind a value and return its position. Return -1 if the closing bracket is next."""
        self._skip()
        at = self._at
        if self._peek() == closing:
            return -1
        if self._peek() != ",":
            raise self._fault(f", or {closing} is expected")
        self._at += 1
        self._skip()
        return at

    def _scalar(self, expected: str, only: str = "") -> JsoncNode:
        start = self._at
        found = _SCALAR.match(self._text, start)
        if found is None or not found[0].startswith(only):
            raise self._fault(expected)
        self._at = found.end()
        try:
            return JsoncNode(start, self._at, json.loads(found[0]))
        except ValueError:  # an unknown escape, or a number of thousands of digits
            raise JsoncFault(self._text, start, "this value cannot be read") from None

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _fault(self, what: str) -> JsoncFault:
        if self._text.startswith("/*", self._at):
            what = "this comment does not end"
        return JsoncFault(self._text, self._at, what if self._peek() else f"the file ends here, but {what}")


def _nested(path: Sequence[str], value: Json) -> Json:
    for key in reversed(path):
        value = {key: value}
    return value


def _inserted(text: str, root: JsoncNode, holder: JsoncNode, key: str, value: Json) -> str:
    """Return the text with a new member behind the last one of an object, and behind comments on its line."""
    members = holder.members or ()
    last = members[-1] if members else None
    trailing = "," if last is not None and last.comma >= 0 else ""
    at = holder.start + 1 if last is None else last.comma + 1 if trailing else last.node.end
    found = _SAME_LINE.match(text, at)
    assert found is not None
    behind = found.end()
    name = json.dumps(key, ensure_ascii=False) + ": "
    if last is not None and not re.search(r"[\r\n]", text[holder.start : holder.end]):
        entry = " " + name + json.dumps(value, ensure_ascii=False) + trailing
    else:
        unit, line = _unit(text, root), _newline(text)
        outer = _indent(text, holder.start)
        inner = next((_indent(text, each.start) for each in members if _begins_line(text, each.start)), outer + unit)
        closing = "" if re.search(r"[\r\n]", text[behind : holder.end - 1]) else line + outer
        entry = line + inner + name + _written(value, unit, line + inner) + trailing + closing
    comma = "," if last is not None and not trailing else ""
    return text[:at] + comma + text[at:behind] + entry + text[behind:]


def _written(value: Json, unit: str, line: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", line)


def _newline(text: str) -> str:
    found = re.search(r"\r\n|\n|\r", text)
    return found[0] if found else "\n"


def _unit(text: str, root: JsoncNode) -> str:
    """Return the indent of the first member of the file that begins a line."""
    indents = (_indent(text, each.start) for each in root.members or () if _begins_line(text, each.start))
    return next(filter(None, indents), _UNIT)


def _line_start(text: str, at: int) -> int:
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def _indent(text: str, at: int) -> str:
    """Return the spaces and tabs at the start of the line that contains position `at`."""
    found = re.match(r"[ \t]*", text[_line_start(text, at) : at])
    assert found is not None
    return found[0]


def _begins_line(text: str, at: int) -> bool:
    start = _line_start(text, at)
    return start > 0 and not text[start:at].strip(" \t")
