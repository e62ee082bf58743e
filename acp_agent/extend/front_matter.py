"""Markdown files with YAML front matter: agents, skills and commands that users write.

    ---
    name: explore
    description: Find out how a part of the project works
    tools: [read, grep]
    ---
    You are asked to find out ...

`parse` splits such a text, and `Fields` reads the keys that are known. A file without front matter is all body. Only
plain values are read: no anchors, no aliases, no tags, no key twice. Files in the wild often have an unquoted `: ` in a
description, or lines that are not indented. That is no YAML, and is then read as one text. PyYAML is loaded with the
first front matter.
"""

import json
import re
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from acp_agent.core.data import frozen
from acp_agent.text import abbreviated, visible

if TYPE_CHECKING:
    from yaml.events import Event
    from yaml.nodes import Node

MAX_FILE = 256 * 1024
"""Bytes of a definition's file."""
MAX_FRONT = 16 * 1024
"""Characters of front matter."""
_DEEPEST = 8  # lists and tables inside each other
_MOST_VALUES = 500  # keys and values. Reading a long list takes much longer than reading a long text
_SHOWN = 60  # characters of a value in a message
_LONGEST_NAME, _LONGEST_KEY = 64, 200
_FENCE = re.compile(r"---[ \t]*")
_LINE = re.compile(r"([A-Za-z_][\w-]*):[ \t]+(\S.*)")
_OPENING = tuple("\"'[{|>&*!%@`#")
_KEY = re.compile(r"(?!(?:user|assistant|context|example|commentary|response|result|reason):)[a-z][\w-]*:(?:\s.*)?")
"""A line with a key. A line that begins with an excluded word is text, since examples in descriptions begin so."""
_TAG = "tag:yaml.org,2002:"

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"
"""A value of front matter. Dates stay text."""


@frozen
class DefinitionProblem:
    """A problem of a definition, for the user.

    file     its path as it is shown
    key      the key that is wrong; "" if it is the whole file
    reason   what is there and what was expected
    line     the line in the file, from 1; 0 if it is not known
    minor    whether the definition works all the same. Only /status shows such a problem
    """

    file: str
    key: str
    reason: str
    line: int = 0
    minor: bool = False

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        return visible(": ".join(filter(None, (place, self.key[:_LONGEST_KEY], self.reason))))


@frozen
class MarkdownFile:
    """A parsed file.

    file     its path as it is shown
    values   the values of the front matter by key
    lines    the lines of the keys in the file, from 1
    body     the text behind the front matter, with LF as line end
    """

    file: str
    body: str
    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    lines: Mapping[str, int] = field(default_factory=dict[str, int])


def parse(data: bytes, file: str) -> MarkdownFile | DefinitionProblem:
    """Return the parsed file, or why it cannot be used."""
    if len(data) > MAX_FILE:
        return DefinitionProblem(file, "", f"expected at most {MAX_FILE // 1024} KiB, got {len(data):,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return DefinitionProblem(file, "", f"expected text in UTF-8, but byte {error.start} is not", line)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        return DefinitionProblem(file, "", "expected text, got a NUL character", line)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not _FENCE.fullmatch(lines[0]):
        return MarkdownFile(file, "\n".join(lines))
    end = next((at for at, line in enumerate(lines[1:], start=1) if _FENCE.fullmatch(line)), 0)
    if not end:
        return DefinitionProblem(file, "", "expected a line --- that ends the front matter", 1)
    front = "\n".join(lines[1:end])
    if len(front) > MAX_FRONT:
        return DefinitionProblem(
            file, "", f"expected at most {MAX_FRONT:,} characters of front matter, got {len(front):,}", 1
        )
    body = "\n".join(lines[end + 1 :]).lstrip("\n")
    try:
        values, places = _front_matter(front)
    except _Unusable as problem:
        if not problem.is_syntax or (loose := _loose(front)) is None:
            return DefinitionProblem(file, problem.key, problem.reason, problem.line)
        values, places = loose
    return MarkdownFile(file, body, values, places)


def _loose(front: str) -> "tuple[dict[str, Value], dict[str, int]] | None":
    """Return the probable values of front matter that is not YAML, as many files have it; None if they are not clear.

    First the value of each line is read as one text, then all lines of a description are.
    """
    for quoted in (_quoted, _quoted_description):
        with suppress(_Unusable):
            return _front_matter(quoted(front))
    return None


def _quoted(front: str) -> str:
    """Return front matter with quotes around texts of one line, so that colons and brackets in them mean nothing."""

    def quote(line: str) -> str:
        found = _LINE.fullmatch(line.rstrip())
        text = found[2] if found is not None else ""
        colons = text[:1] not in _OPENING and (": " in text or text.endswith(":"))
        hint = found is not None and found[1] == "argument-hint" and text.startswith("[")  # [file] [--all]
        return f"{found[1]}: {json.dumps(text, ensure_ascii=False)}" if found and (colons or hint) else line

    return "\n".join(map(quote, front.split("\n")))


def _quoted_description(front: str) -> str:
    """Return front matter with quotes around a plain description of several lines, up to the next key.

    The lines that belong to it are empty afterwards, so that keys keep their lines.
    """
    lines = front.split("\n")
    starts = [at for at, line in enumerate(lines) if _KEY.fullmatch(line)]
    for start, end in pairwise((*starts, len(lines))):
        found = _LINE.fullmatch(lines[start].rstrip())
        if found is None or found[1] != "description" or found[2][:1] in _OPENING:
            continue
        text = "\n".join((found[2], *lines[start + 1 : end])).strip()
        lines[start:end] = [f"{found[1]}: {json.dumps(text, ensure_ascii=False)}", *[""] * (end - start - 1)]
    return "\n".join(lines)


class _Loader(Protocol):
    """The part of PyYAML's loader that is used. PyYAML has no types."""

    def check_event(self) -> bool: ...

    def get_event(self) -> "Event": ...

    def get_single_node(self) -> "Node | None": ...


class _Unusable(Exception):
    """Front matter that cannot be used. `line` is the line in the file, `is_syntax` whether it is no YAML at all."""

    def __init__(self, reason: str, line: int, key: str = "", *, is_syntax: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.line, self.key, self.is_syntax = reason, line, key, is_syntax


def _front_matter(text: str) -> tuple[dict[str, Value], dict[str, int]]:
    """Return the values, and the lines of the keys. Raises _Unusable."""
    import yaml  # noqa: PLC0415 - only users with definitions need it

    with _yaml_errors():
        depth = values = 0
        loader = cast("_Loader", yaml.SafeLoader(text))
        while loader.check_event():
            event = loader.get_event()
            line = event.start_mark.line + 2
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise _Unusable("expected plain values, without anchors (&) and aliases (*)", line)
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            values += isinstance(event, yaml.NodeEvent)
            if depth > _DEEPEST:
                raise _Unusable(f"expected values nested at most {_DEEPEST} deep", line)
            if values > _MOST_VALUES:
                raise _Unusable(f"expected at most {_MOST_VALUES} keys and values", line)
        top = cast("_Loader", yaml.SafeLoader(text)).get_single_node()
    if top is None:
        return {}, {}
    if not isinstance(top, yaml.MappingNode):
        raise _Unusable("expected keys with values, such as `name: text`", top.start_mark.line + 2)
    lines = {str(key.value): key.start_mark.line + 2 for key, _ in top.value}
    table = _value(top)
    assert isinstance(table, dict)
    return table, lines


@contextmanager
def _yaml_errors() -> Generator[None]:
    import yaml  # noqa: PLC0415 - likewise

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = f"expected YAML: {error.problem or error.context}"
        raise _Unusable(reason, mark.line + 2 if mark else 1, is_syntax=True) from None
    except yaml.YAMLError as error:
        raise _Unusable(f"expected YAML: {str(error).splitlines()[0]}", 1, is_syntax=True) from None


def _value(node: "Node") -> Value:
    """Return the value of a node. Raises _Unusable."""
    import yaml  # noqa: PLC0415 - likewise

    match node:
        case yaml.MappingNode():
            table = dict[str, Value]()
            for key, each in node.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else None
                line = key.start_mark.line + 2
                if name is None:
                    raise _Unusable("expected a text as key", line)
                if name in table:
                    raise _Unusable("expected each key once", line, name)
                table[name] = _value(each)
            return table
        case yaml.SequenceNode():
            return [_value(each) for each in node.value]
        case _:
            return _scalar(str(node.tag).removeprefix(_TAG), str(node.value), node.start_mark.line + 2)


def _scalar(tag: str, text: str, line: int) -> Value:
    match tag:
        case "str" | "timestamp" | "value" | "merge":
            return text
        case "null":
            return None
        case "bool":
            return text.lower() in ("true", "yes", "on")
        case "int" | "float":
            return _number(text)
        case _:
            raise _Unusable(f"expected plain values, got the tag {text_of(tag)}", line)


def _number(text: str) -> Value:
    """Return a decimal number; other forms, such as 0x10 and 12:30, stay text."""
    for kind in (int, float) if len(text) <= 20 else ():
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def text_of(value: Value) -> str:
    """Return the text of a value for a message."""
    match value:
        case str():
            return repr(abbreviated(value, _SHOWN))
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case list() | dict():
            return abbreviated(json.dumps(value, ensure_ascii=False, default=str), _SHOWN)
        case _:
            return str(value)


OTHERS_KEYS = frozenset(
    (
        "agent", "allowed-tools", "alwaysApply", "argument-hint", "arguments", "color", "context",
        "disable-model-invocation", "disallowed-tools", "effort", "globs", "hooks", "initialPrompt", "is_background",
        "isolation", "mcpServers", "memory", "model", "paths", "permission", "readonly", "shell", "subtask",
        "temperature", "top_p", "user-invocable", "when_to_use",
    )
)  # fmt: skip
"""Keys that other agents know in front matter of some kind."""
_FOR_PEOPLE = frozenset(
    ("author", "category", "compatibility", "keywords", "license", "metadata", "tags", "title", "version")
)
"""Keys of front matter that no agent needs."""


class Fields:
    """A reader of the known keys of one file.

    A value of the wrong type is a problem; the key then has its default, so that the rest works. After all methods were
    called, `note_unknown` notes the other keys.
    """

    def __init__(self, file: str, values: Mapping[str, Value], lines: Mapping[str, int] | None = None) -> None:
        self._file = file
        self._values = values
        self._lines = lines or {}
        self._known = dict[str, None]()
        self.problems = list[DefinitionProblem]()

    @property
    def is_usable(self) -> bool:
        """Whether nothing but minor problems was found."""
        return all(each.minor for each in self.problems)

    def note_unknown(self, ignored: Collection[str] = ()) -> None:
        """Note the keys that no method was called with.

        ignored   keys that other agents know, which are minor problems
        """
        for key in self._values:
            if key in self._known or (ignored and key in _FOR_PEOPLE):
                continue
            if key in ignored:
                self.remark(key, "a key of other agents, which has no effect here")
                continue
            near = get_close_matches(key[:100], self._known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f" (known keys: {', '.join(self._known)})"
            self._note(key, f"unknown key{hint}")

    def refuse(self, key: str, expected: str, default: Value = None) -> None:
        """Note that the value of a key, or its default, is not what was expected."""
        self._note(key, f"expected {expected}, got {text_of(self._values.get(key, default))}")

    def remark(self, key: str, reason: str) -> None:
        """Note a minor problem."""
        self._note(key, reason, minor=True)

    def _note(self, key: str, reason: str, *, minor: bool = False) -> None:
        self.problems.append(DefinitionProblem(self._file, key, reason, self._lines.get(key, 0), minor))

    def _get(self, key: str) -> Value:
        self._known[key] = None
        return self._values.get(key)

    def name(self, form: re.Pattern[str], expected: str, default: str, *, titles: bool = False) -> str:
        """Return the name, by default that of the file. It is empty if it does not have the form.

        titles   whether a name with blanks is a title, as in public collections. The default is the name then
        """
        given = self._values.get("name")
        is_title = titles and isinstance(given, str) and " " in given.strip()
        name = self.text("name", default, most=_LONGEST_NAME)
        name = default if is_title else name
        if form.fullmatch(name):
            return name
        self.refuse("name", expected, default)
        return ""

    def text(self, key: str, default: str = "", *, most: int = 2000) -> str:
        """Return a text without blanks around it. A number is text as well, since YAML needs no quotes."""
        match self._get(key):
            case None:
                return default
            case str(text) if len(text) <= most:
                return text.strip()
            case int(number) | float(number) if not isinstance(number, bool):
                return str(number)
            case _:
                self.refuse(key, f"a text of at most {most:,} characters")
                return default

    def description(self, default: str = "", *, most: int) -> str:
        """Return the description. The end of one that is too long is left out: other agents may allow more."""
        text = self.text("description", default, most=MAX_FRONT)
        if len(text) <= most:
            return text
        self.remark("description", f"only the first {most:,} of {len(text):,} characters are used")
        return text[:most].strip()

    def texts(self, key: str, *, blanks: bool = False) -> tuple[str, ...]:
        """Return a list of texts: a YAML list, or one text with commas, or with blanks too, as Claude Code has them."""
        match self._get(key):
            case None:
                return ()
            case str(text):
                return tuple(filter(None, _split(text, blanks=blanks)))
            case list(items) if all(isinstance(item, str) for item in items):
                return tuple(str(item).strip() for item in items)
            case _:
                self.refuse(key, "a list of texts")
                return ()

    def number(self, key: str, default: int, least: int, most: int) -> int:
        """Return a whole number from `least` to `most`."""
        match self._get(key):
            case None:
                return default
            case int(number) if not isinstance(number, bool) and least <= number <= most:
                return number
            case _:
                self.refuse(key, f"a whole number from {least} to {most}")
                return default

    def flag(self, key: str, default: bool = False) -> bool:  # noqa: FBT001 - a value like the others
        """Return true or false."""
        match self._get(key):
            case None:
                return default
            case bool(value):
                return value
            case _:
                self.refuse(key, "true or false")
                return default

    def table(self, key: str) -> Mapping[str, Value]:
        """Return a table; an empty one by default."""
        match self._get(key):
            case None:
                return {}
            case dict(table):
                return table
            case _:
                self.refuse(key, "a table")
                return {}


def _split(text: str, *, blanks: bool) -> Iterator[str]:
    """Yield the parts between commas, and between blanks if wanted, that are in no brackets.

    `Bash(git add:*, git log), Read` has two.
    """
    depth = start = 0
    for at, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(0, depth - 1)
        elif not depth and (char == "," or (blanks and char.isspace())):
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()
