"""Elicitation: questions that an MCP server asks the user (MCP 2025-11-25, "Elicitation").

A server may ask only while one of its tools is running, and only a few questions a call. When the last running call
ends, the open questions end too. The time in which the user is asked does not count as time of the call. A server is
not trusted: its texts are shortened and marked as the server's, and a form that asks for a secret is declined without
being shown.

ACP has fewer kinds of fields than JSON Schema (agentclientprotocol.com, schema v1, `ElicitationSchema`). A constraint
that ACP lacks is left out, since the server checks the answer in any case. A field of a kind that ACP lacks makes the
whole form impossible.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

import anyio
import anyio.abc

from acp_agent.core.ports import ElicitationAction, ElicitationAnswer, Elicitor, Form, Visit
from acp_agent.core.secrets import asks_for_secret, names_secret
from acp_agent.core.types import Json, JsonObject
from acp_agent.mcp.definitions import estimated_size
from acp_agent.net.hosts import browser_url
from acp_agent.regex import LinearRegex
from acp_agent.text import visible

if TYPE_CHECKING:
    from acp_agent.mcp.channel import MessageChannel

MAX_FIELDS: Final = 20
MAX_CHOICES: Final = 100
_MAX_SCHEMA: Final = 32 * 1024  # bytes
_LONGEST_TITLE: Final = 200  # characters
_LONGEST_DESCRIPTION: Final = 1000  # characters
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FORMATS: Final = frozenset(("email", "uri", "date", "date-time"))
_LENGTHS: Final = ("minLength", "maxLength")
_COUNTS: Final = ("minItems", "maxItems")
_RANGE: Final = ("minimum", "maximum")
_LARGEST_LENGTH: Final = 2**32 - 1  # lengths in ACP have 32 bits
_LARGEST_NUMBER: Final = 2**53  # JavaScript cannot represent all larger integers

_Item = TypeVar("_Item")


class SecretRequestedError(Exception):
    """A form asks for a secret, such as a password, a key or a token. Forms must not ask for secrets."""


def form_schema(schema: Json) -> JsonObject:
    """Return the schema in the form that ACP takes: flat, bounded and readable.

    Raises:
        ValueError: the form cannot be shown; the message says why.
        SecretRequestedError: the form asks for a secret.

    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError("requestedSchema is not the schema of an object")
    if estimated_size(schema, _MAX_SCHEMA) > _MAX_SCHEMA:
        raise ValueError(f"requestedSchema has more than {_MAX_SCHEMA} bytes")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS:
        raise ValueError(f"requestedSchema has no properties, or more than {MAX_FIELDS}")
    fields: JsonObject = {name: _field(name, field) for name, field in properties.items()}
    required = schema.get("required")
    needed: list[Json] = [name for name in fields if isinstance(required, list) and name in required]
    return {"type": "object", "properties": fields, "required": needed, **_words(schema)}


def _field(name: str, field: Json) -> JsonObject:
    if not _NAME.fullmatch(name) or not isinstance(field, dict):
        raise ValueError(f'"{visible(name[:64])}" is not a valid field name, or it has no schema')
    found: JsonObject = {"type": field.get("type"), **_words(field)}
    match field.get("type"):
        case "string":
            found |= _string_field(field)
        case "integer" | "number" as kind:
            found |= _limits(field, _RANGE, -_LARGEST_NUMBER, _LARGEST_NUMBER, whole=kind == "integer")
        case "boolean":
            pass
        case "array":
            found |= {**_limits(field, _COUNTS, 0, _LARGEST_LENGTH), "items": _items(field.get("items"))}
        case _:
            raise ValueError(
                f"{name} has a type that forms lack; they have string, number, integer, boolean, array of choices"
            )
    _refuse_secret(name, field, found)
    default = field.get("default")
    return {**found, "default": default} if _is_default(found, default) else found


def _refuse_secret(name: str, field: JsonObject, found: JsonObject) -> None:
    """Raise SecretRequestedError if the user would type a secret into this field. A list of choices holds no secret."""
    if found["type"] in ("boolean", "array") or "enum" in found or "oneOf" in found:
        return
    title, description = (str(field.get(key, "")) for key in ("title", "description"))
    if field.get("format") == "password" or names_secret(name) or names_secret(title) or asks_for_secret(description):
        raise SecretRequestedError(name)


def _words(node: JsonObject) -> JsonObject:
    """Return the title and the description of a node, if it has them."""
    limits = (("title", _LONGEST_TITLE), ("description", _LONGEST_DESCRIPTION))
    return {key: _cut(text, most) for key, most in limits if isinstance(text := node.get(key), str) and text}


def _cut(text: str, most: int) -> str:
    shown = visible(" ".join(text[: 2 * most].split()))
    return shown if len(shown) <= most and len(text) <= 2 * most else f"{shown[:most]}…"


def _string_field(field: JsonObject) -> JsonObject:
    choices = _choices(field, "oneOf")
    if choices is not None:
        return choices
    found = _limits(field, _LENGTHS, 0, _LARGEST_LENGTH)
    pattern, form = field.get("pattern"), field.get("format")
    if isinstance(pattern, str) and _is_usable(pattern):
        found["pattern"] = pattern
    return {**found, "format": form} if isinstance(form, str) and form in _FORMATS else found


def _items(items: Json) -> JsonObject:
    """Return the choices of a field that takes several choices."""
    choices = _choices(items, "anyOf") if isinstance(items, dict) else None
    if choices is None:
        raise ValueError("an array in a form is a list of choices, with an enum or anyOf in its items")
    return {"type": "string", **choices} if "enum" in choices else choices


def _choices(node: JsonObject, titled: str) -> JsonObject | None:
    """Return the choices of a node, or None if it has none. Raises ValueError if they cannot be shown."""
    match node:
        case {"enum": list(values), "enumNames": list(names)} if len(values) == len(names):
            named = _bounded(list(zip(values, names, strict=True)))
            return {titled: [_option(value, name, "") for value, name in named]}
        case {"enum": list(values)}:
            return {"enum": [_constant(value) for value in _bounded(values)]}
        case _:
            options = node.get(titled)
    if options is None:
        return None
    listed = options if isinstance(options, list) else []
    described = [each if isinstance(each, dict) else {} for each in _bounded(listed)]
    return {titled: [_option(each.get("const"), each.get("title"), each.get("description")) for each in described]}


def _bounded(choices: Sequence[_Item]) -> Sequence[_Item]:
    """Return the choices. Raises ValueError if there are none or too many."""
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise ValueError(f"a field has {len(choices)} choices, and 1 to {MAX_CHOICES} can be shown")
    return choices


def _option(value: Json, title: Json, description: Json) -> JsonObject:
    words = _words({"title": title, "description": description})
    return {"const": _constant(value), "title": words.get("title", value), **words}


def _constant(value: Json) -> str:
    """Return a choice that can be shown exactly as it is. Raises ValueError for any other."""
    if not isinstance(value, str) or visible(value) != value or len(value) > _LONGEST_DESCRIPTION:
        raise ValueError("a choice is not a text, is too long, or holds an invisible character")
    return value


def _limits(field: JsonObject, keys: Sequence[str], least: int, most: int, *, whole: bool = True) -> JsonObject:
    found: JsonObject = {}
    for key in keys:
        value = field.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            continue
        if not whole or value == int(value):
            found[key] = int(value) if whole else value
    return found


def _is_usable(pattern: str) -> bool:
    try:
        LinearRegex(pattern)
    except ValueError:
        return False
    return visible(pattern) == pattern and len(pattern) <= _LONGEST_TITLE


def _is_default(found: JsonObject, default: Json) -> bool:
    """Return True if the default value has the right type and is fully visible."""
    match found["type"], default:
        case "string", str():
            return visible(default) == default and len(default) <= _LONGEST_DESCRIPTION
        case "boolean", bool():
            return True
        case "integer" | "number", bool():
            return False
        case ("integer", int()) | ("number", int() | float()):
            return -_LARGEST_NUMBER <= default <= _LARGEST_NUMBER
        case _:
            return False


MOST_A_CALL: Final = 5
"""The most questions that a server may ask for each running call."""
PATIENCE: Final = 120.0
"""The seconds that a question waits for its answer."""

_LONGEST_MESSAGE: Final = 2000  # characters
_LONGEST_VISIT_ID: Final = 200  # characters
_MOST_VISITS: Final = 16
_NO_METHOD: Final = -32601
_INVALID_PARAMS: Final = -32602
_CANCELLED: Final = ElicitationAnswer(ElicitationAction.CANCEL, {})
_DECLINED: Final = ElicitationAnswer(ElicitationAction.DECLINE, {})


class ServerElicitations:
    """The elicitation requests of one server, in all its sessions.

    The channel calls `asked`, `withdrawn` and `visited`, which must not block.

    elicitor   asks the user; None if the editor cannot ask
    """

    def __init__(self, server: str, elicitor: Elicitor | None, patience: float = PATIENCE) -> None:
        self._server = server
        self.elicitor = elicitor
        self._patience = patience
        self._channel: MessageChannel | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._calls: dict[anyio.CancelScope, float] = {}  # seconds that each call had left when begun or paused
        self._questions_left = 0
        self._open_requests: dict[int | str, anyio.CancelScope] = {}
        self._visits: dict[str, str] = {}  # our ids of the visited pages, by the server's ids

    @property
    def calls(self) -> int:
        """Return the number of running calls."""
        return len(self._calls)

    async def serve(self, channel: "MessageChannel") -> None:
        """Handle the requests of a channel until it is lost."""
        self._channel = channel
        try:
            async with anyio.create_task_group() as self._tasks:
                await channel.lost.wait()
                self._tasks.cancel_scope.cancel()
        finally:
            self._channel = self._tasks = None
            self._visits.clear()

    @contextmanager
    def call(self, seconds: float) -> Generator[None]:
        """Run the body as a tool call of at most `seconds`, not counting the time in which the user is asked.

        At the timeout the body is cancelled without an error.
        """
        with anyio.CancelScope() as scope:
            self._calls[scope] = seconds
            self._questions_left += MOST_A_CALL
            if not self._open_requests:
                self._resume(scope)
            try:
                yield
            finally:
                del self._calls[scope]
                if not self._calls:
                    self._questions_left = 0
                    for question in self._open_requests.values():
                        question.cancel()

    def _resume(self, scope: anyio.CancelScope) -> None:
        scope.deadline = anyio.current_time() + self._calls[scope]

    def asked(self, identity: int | str, params: Json) -> None:
        """Answer an elicitation request, or start to ask the user, whose answer is sent later."""
        elicitor, channel, tasks = self.elicitor, self._channel, self._tasks
        if channel is None or tasks is None or identity in self._open_requests:
            return
        if elicitor is None or not (elicitor.forms or elicitor.visits):
            channel.refuse(identity, _NO_METHOD, "this client does not offer elicitation")
        elif not self._calls:
            channel.answer(identity, _result(_CANCELLED))
        elif not self._questions_left:
            channel.answer(identity, _result(_DECLINED))
        else:
            self._questions_left -= 1
            scope = anyio.CancelScope()
            if not self._open_requests:
                for call in self._calls:
                    if call.deadline != inf:
                        self._calls[call] = max(0.0, call.deadline - anyio.current_time())
                        call.deadline = inf
            self._open_requests[identity] = scope
            tasks.start_soon(self._answer_request, channel, identity, params, scope)

    def withdrawn(self, identity: int | str) -> None:
        """Drop a request that the server has cancelled."""
        scope = self._open_requests.pop(identity, None)
        if scope is not None:
            scope.cancel()

    def visited(self, visit: str) -> None:
        """Tell the elicitor that the server has completed the interaction on a page that the user visited."""
        shown = self._visits.pop(visit, None)
        if shown is not None and self.elicitor is not None:
            self.elicitor.visited(shown)

    async def _answer_request(
        self, channel: "MessageChannel", identity: int | str, params: Json, scope: anyio.CancelScope
    ) -> None:
        answer, wrong = _CANCELLED, ""
        try:
            with scope, anyio.move_on_after(self._patience):
                answer = await self._ask(params if isinstance(params, dict) else {})
        except SecretRequestedError:
            answer = _DECLINED
        except ValueError as error:
            wrong = str(error)
        finally:
            wanted = self._open_requests.get(identity) is scope
            if wanted:
                del self._open_requests[identity]
            if not self._open_requests:
                for call in self._calls:
                    self._resume(call)
        if wrong and wanted:
            channel.refuse(identity, _INVALID_PARAMS, wrong)
        elif wanted:
            channel.answer(identity, _result(answer))

    async def _ask(self, params: JsonObject) -> ElicitationAnswer:
        """Ask the user, and return their answer.

        Raises:
            ValueError: the request cannot be shown.
            SecretRequestedError: the request asks for a secret.

        """
        elicitor = self.elicitor
        if elicitor is None:
            return _CANCELLED
        match params.get("mode", "form"), params.get("message"):
            case "form", str(message) if elicitor.forms:
                schema = form_schema(params.get("requestedSchema"))
                if asks_for_secret(message):
                    raise SecretRequestedError(message)
                return await elicitor.fill_in(Form(_visible_message(message), schema, source=self._server))
            case "url", str(message) if elicitor.visits:
                return await self._visit(elicitor, message, params)
            case _:
                raise ValueError("this client does not offer elicitation of this mode, or the message is missing")

    async def _visit(self, elicitor: Elicitor, message: str, params: JsonObject) -> ElicitationAnswer:
        match params:
            case {"url": str(url), "elicitationId": str(theirs)} if 0 < len(theirs) <= _LONGEST_VISIT_ID:
                shown = str(uuid4())
            case _:
                raise ValueError("url or elicitationId is missing or too long")
        visit = Visit(_visible_message(message), browser_url(url), shown, source=self._server)
        answer = await elicitor.visit(visit)
        if answer.action is ElicitationAction.ACCEPT:
            self._visits[theirs] = shown
            for forgotten in [*self._visits][:-_MOST_VISITS]:
                del self._visits[forgotten]
        return answer


def _visible_message(message: str) -> str:
    """Return the server's message with hidden characters made visible, shortened to 2,000 characters."""
    lines = "\n".join(map(visible, message[: 2 * _LONGEST_MESSAGE].splitlines()))
    whole = len(lines) <= _LONGEST_MESSAGE and len(message) <= 2 * _LONGEST_MESSAGE
    return lines if whole else f"{lines[:_LONGEST_MESSAGE]}…"


def _result(answer: ElicitationAnswer) -> JsonObject:
    """Return the MCP `ElicitResult` of an answer."""
    content: JsonObject = {"content": answer.content} if answer.action is ElicitationAction.ACCEPT else {}
    return {"action": answer.action.value, **content}
