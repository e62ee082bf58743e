"""What can be said in the protocol, word by word, and which words a conversation used: both read off the JSON schema.

A word is a method, one of several alternatives of a type (an update, a content block, a stop reason, an option's type),
or a member of a capability object. Each belongs to who says it: alternatives for custom and future values are none.
"""

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from acp_agent.cli.agent_process import Direction, RecordedFrame
from tests.wire import schema

METHOD = "method"
_ALTERNATIVES = ("oneOf", "anyOf")


@dataclass(frozen=True, slots=True, order=True)
class Word:
    """`name` is one of what there is of a `kind`: METHOD, or a type of the schema."""

    by: Direction
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class _Message:
    """A type that stands in messages, and the method it belongs to: what is asked, told or answered."""

    by: Direction
    method: str
    type: str
    answer: bool


class Vocabulary:
    """All words of one schema."""

    def __init__(self, file: Path = schema.SCHEMA_FILE) -> None:
        self._types: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["$defs"]
        self._messages = {(each.by, each.method, each.answer): each for each in self._told()}

    def _told(self) -> Iterator[_Message]:
        served_by = {"agent": Direction.TO_AGENT, "client": Direction.FROM_AGENT}
        for name, each in self._types.items():
            method, side = each.get("x-method"), each.get("x-side")
            if method is None:
                continue
            answer = name.endswith("Response")
            for by in [served_by[side]] if side in served_by else list(Direction):  # else "protocol": both
                yield _Message(_other(by) if answer else by, method, name, answer)

    def all(self) -> set[Word]:
        """Every word there is."""
        words = {Word(each.by, METHOD, each.method) for each in self._messages.values() if not each.answer}
        for message in self._messages.values():
            words |= {Word(message.by, *said) for said in self._possible(message.type)}
        return words | {Word(Direction.FROM_AGENT, *said) for said in self._possible("Error")}

    def _possible(self, root: str) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        reached, waiting = {root}, [root]
        while waiting:
            name = waiting.pop()
            found |= {(name, word) for word in self._words_of(name)}
            news = set(_referred(self._types[name])) - reached
            reached |= news
            waiting += news
        return found

    def _words_of(self, name: str) -> Iterator[str]:
        definition = self._types[name]
        if name.endswith("Capabilities"):
            yield from (member for member in definition.get("properties", {}) if member != "_meta")
        for key in _ALTERNATIVES:
            yield from (_name(each) for each in definition.get(key, ()) if not _is_custom(each))

    def used(self, frames: Iterable[RecordedFrame]) -> set[Word]:
        """The words of a conversation. Messages that are not as the schema wants them do not count.

        The method of a request counts once it was answered with a result.
        """
        words: set[Word] = set()
        asked: dict[tuple[Direction, Any], str] = {}
        for frame in frames:
            if frame.method:
                said = self._in(frame.direction, frame.method, frame.params, answer=False)
                if said is None:
                    continue
                words |= said
                if frame.is_request:
                    asked[frame.direction, frame.message["id"]] = frame.method
                else:
                    words.add(Word(frame.direction, METHOD, frame.method))
            elif "error" in frame.message:
                words |= self._all_said(frame.direction, "Error", frame.message["error"])
            else:
                asker = _other(frame.direction)
                method = asked.get((asker, frame.message["id"]), "")
                said = self._in(frame.direction, method, frame.message["result"], answer=True)
                if said is not None:
                    words |= said | {Word(asker, METHOD, method)}
        return words & self.all()

    def _in(self, by: Direction, method: str, value: Any, *, answer: bool) -> set[Word] | None:
        """The words of a message; None for one the schema does not have."""
        message = self._messages.get((by, method, answer))
        if message is None or not self._valid({"$ref": f"#/$defs/{message.type}"}, value):
            return None
        return self._all_said(by, message.type, value)

    def _all_said(self, by: Direction, root: str, value: Any) -> set[Word]:
        return {Word(by, *said) for said in self._said(root, value)}

    # -------------------------------------------------------------------------------- a value's words

    def _said(self, name: str, value: Any) -> Iterator[tuple[str, str]]:
        definition = self._types[name]
        if name.endswith("Capabilities") and isinstance(value, dict):
            yield from (
                (name, member) for member, offered in value.items() if offered is True or isinstance(offered, dict)
            )
        for key in _ALTERNATIVES:
            fitting = (each for each in definition.get(key, ()) if self._valid(each, value))
            if (first := next(fitting, None)) is not None:
                yield name, _name(first)
        yield from self._below(definition, value)

    def _below(self, node: Any, value: Any) -> Iterator[tuple[str, str]]:
        if "$ref" in node:
            yield from self._said(node["$ref"].rpartition("/")[2], value)
        for each in node.get("allOf", ()):
            yield from self._below(each, value)
        for key in _ALTERNATIVES:
            yield from (
                said for each in node.get(key, ()) if self._valid(each, value) for said in self._below(each, value)
            )
        if isinstance(value, dict):
            for member, of in node.get("properties", {}).items():
                if member in value and isinstance(of, dict):
                    yield from self._below(of, value[member])
            if isinstance(of := node.get("additionalProperties"), dict):
                yield from (said for each in value.values() for said in self._below(of, each))
        if isinstance(value, list) and isinstance(node.get("items"), dict):
            yield from (said for each in value for said in self._below(node["items"], each))

    def _valid(self, node: Any, value: Any) -> bool:
        return self._validator(json.dumps(node)).is_valid(value)

    @functools.cache  # noqa: B019 - a vocabulary lives as long as the tests
    def _validator(self, node: str) -> Draft202012Validator:
        return Draft202012Validator({**json.loads(node), "$defs": self._types})


def _other(by: Direction) -> Direction:
    return Direction.TO_AGENT if by is Direction.FROM_AGENT else Direction.FROM_AGENT


def _is_custom(alternative: dict[str, Any]) -> bool:
    """Whether it stands for all that is not in the protocol (yet)."""
    return alternative.get("title", "").lower() == "other" and "const" not in alternative


def _name(alternative: dict[str, Any]) -> str:
    """What an alternative is called: by its tag, its title, or its type."""
    for member in alternative.get("properties", {}).values():
        if "const" in member:
            return str(member["const"])
    if isinstance(alternative.get("const"), str):  # numbers have a title
        return alternative["const"]
    if "title" in alternative:
        return alternative["title"]
    inside = [alternative, *alternative.get("allOf", ())]
    return next((each["$ref"].rpartition("/")[2] for each in inside if "$ref" in each), alternative.get("type", "?"))


def _referred(node: Any) -> Iterator[str]:
    """The types a node names, at any depth."""
    if isinstance(node, list):
        for each in node:
            yield from _referred(each)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].rpartition("/")[2]
        for each in node.values():
            yield from _referred(each)
