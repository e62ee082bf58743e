"""The address and limits of one configured model, and helpers to fit a conversation to it."""

import hashlib
import json
import math
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from operator import is_
from typing import TYPE_CHECKING, Final, Generic, NoReturn, TypeAlias, TypeVar

from acp_agent.core.data import frozen
from acp_agent.core.messages import Message, OpaquePart, Part, TextPart, ThoughtPart, ToolResultPart, ToolUsePart
from acp_agent.core.types import ImagePart, Json, JsonObject, ToolSpec
from acp_agent.text import is_utf8

if TYPE_CHECKING:
    from acp_agent.core.ports import ModelRequest

_MOST_IMAGES = 20
"""The most pictures in one request. With more, Anthropic's API refuses pictures of over 2000 pixels."""
_MOST_IMAGE_CHARS = 16 * 1024 * 1024
"""The most base64 of pictures in one request. The smallest limit of the large APIs is 20 MB for a request (Gemini)."""

_Item = TypeVar("_Item")
_SNAPSHOT = re.compile(r"-\d{4}-?\d\d-?\d\d$")


@frozen
class ModelEndpoint:
    """One model at one address. The catalog has filled in every default.

    provider        the configured name, for messages
    base_url        without a slash at the end
    api_key         empty if the server wants none; never in a repr
    key_source      where the user would correct the key, such as "ANTHROPIC_API_KEY"
    timeout         the seconds of silence allowed between two pieces of an answer
    context_window  tokens, input and output together
    max_tokens      tokens of one answer; None leaves the limit to the server
    thinking        whether the model thinks before it answers: it takes `thinking: {type: adaptive}` (Anthropic), or
                    is a reasoning model (OpenAI)
    images          whether the model takes pictures
    extra_body      the fields of every request body that the user has set, such as temperature or effort; they are the
                    same in every request of a session, which keeps the prompt cache
    """

    provider: str
    model: str
    base_url: str
    context_window: int
    api_key: str = field(default="", repr=False)
    key_source: str = "its API key"
    timeout: float = 300.0
    max_tokens: int | None = None
    thinking: bool = False
    images: bool = True
    extra_body: JsonObject = field(default_factory=dict[str, Json])

    @property
    def maker(self) -> str:
        """The `provider` field of this model's thoughts and opaque parts: provider and model, without the date.

        A signature is valid only for the model that gave it, so a model is sent only the thoughts of its own `maker`.
        """
        return f"{self.provider}:{family(self.model)}"

    def fit_images(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the conversation with a short text in place of each picture that cannot be sent to the model."""
        if not have_images(messages):
            return messages
        sizes = [len(image.data) for message in messages for part in message.parts for image in _images(part)]
        left_out = _left_out(sizes) if self.images else len(sizes)
        why = (
            "no longer shown: many pictures came after it"
            if self.images
            else f"not shown: {self.model} takes no images"
        )
        shown: list[Message] = []
        for message in messages:
            parts: list[Part] = []
            before = left_out
            for part in message.parts:
                count = min(len(_images(part)), left_out)
                left_out -= count
                parts.append(_without(part, count, why))
            shown.append(message if left_out == before else replace(message, parts=tuple(parts)))
        return shown


def have_images(messages: Sequence[Message]) -> bool:
    """Return whether there is a picture in any of the messages."""
    return any(_images(part) for message in messages for part in message.parts)


def begins_with(items: Sequence[object], beginning: Sequence[object]) -> bool:
    """Return whether a sequence begins with these very objects. Compares identities, since conversations are long."""
    return len(items) >= len(beginning) and all(map(is_, beginning, items))


def family(model: str) -> str:
    """Return the id of a model without the date of a snapshot. The models of a family accept each other's reasoning."""
    return _SNAPSHOT.sub("", model)


def _left_out(sizes: Sequence[int]) -> int:
    """Return how many pictures, oldest first, do not fit into a request.

    A full request is emptied to half at once, because each change costs the provider's prompt cache.
    """
    first = total = 0
    for number, size in enumerate(sizes, 1):
        total += size
        if number - first > _MOST_IMAGES or total > _MOST_IMAGE_CHARS:
            while first < number - 1 and (number - first > _MOST_IMAGES // 2 or total > _MOST_IMAGE_CHARS // 2):
                total -= sizes[first]
                first += 1
    return first


def _images(part: Part) -> tuple[ImagePart, ...]:
    match part:
        case ImagePart():
            return (part,)
        case ToolResultPart():
            return part.images
        case _:
            return ()


def _without(part: Part, count: int, why: str) -> Part:
    """Return the part without its first `count` pictures."""
    if count == 0:
        return part
    notes = [f"[{image.mime_type} {why}]" for image in _images(part)[:count]]
    if isinstance(part, ToolResultPart):
        return replace(part, text="\n".join((part.text, *notes)).lstrip("\n"), images=part.images[count:])
    return TextPart(notes[0])


def thought_digests(request: "ModelRequest", *, opaque: bool) -> frozenset[str]:
    """Return digests of the thoughts in a request. With `opaque`, include the opaque parts.

    A server takes a thought back only at its original place and only while it knows the key that sealed it. A thought
    that was refused once would be refused in every later request, so providers remember the digests of refused
    thoughts.
    """
    kinds = (ThoughtPart, OpaquePart) if opaque else (ThoughtPart,)
    parts = (part for message in request.messages for part in message.parts)
    return frozenset(_digest(part) for part in parts if isinstance(part, kinds))


def without_thoughts(message: Message, unwanted: frozenset[str] | None) -> Message:
    """Return the message without the thoughts and opaque parts that have these digests; for None, without any."""
    if unwanted is not None and not unwanted:
        return message
    thoughts = (ThoughtPart, OpaquePart)
    left = (
        part
        for part in message.parts
        if not (isinstance(part, thoughts) and (unwanted is None or _digest(part) in unwanted))
    )
    return replace(message, parts=tuple(left))


def _digest(part: ThoughtPart | OpaquePart) -> str:
    kept = json.dumps(part.opaque if isinstance(part, ThoughtPart) else part.payload)
    return hashlib.sha256(kept.encode("utf-8", "replace")).hexdigest()


def tool_use(
    call_id: str, name: str, arguments: JsonObject | None, raw: str, seen: dict[str, list[ToolUsePart]], prefix: str
) -> ToolUsePart | None:
    """Return the call with an id that is unique within the answer, since results name their call by id.

    Return None for a call that equals an earlier one, id included: the server has sent one call twice.

    seen     the calls of the answer so far as they were sent, by id
    prefix   begins the id that replaces a missing or repeated one
    """
    use = ToolUsePart(call_id, name, arguments, "" if arguments is not None else raw)
    sent = seen.setdefault(call_id, [])
    if call_id and use in sent:
        return None
    sent.append(use)
    return use if call_id and len(sent) == 1 else replace(use, id=f"{prefix}_{uuid.uuid4().hex[:24]}")


def function_tool(spec: ToolSpec) -> JsonObject:
    """Return a tool as Chat Completions and Ollama take it."""
    function: JsonObject = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def arguments_text(use: ToolUsePart) -> str:
    """Return a call's arguments as valid JSON, even if the model's were not: many servers refuse any other history."""
    return json.dumps(use.arguments or {}, ensure_ascii=False, separators=(",", ":"))


MAX_DEPTH: Final = 64
_UNSIGNED: Final = 2**31  # from here on a number of 32 bits may be a negative one without its sign
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is out of range")
    return value


# One of each for all calls: `json.loads` with options builds a new one each time, which costs more than the parse.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def read_object(text: str) -> JsonObject:
    """Return a JSON object. Raises ValueError: not JSON, not an object, NaN or infinity, too deep."""
    try:
        value: Json = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError as error:
        if str(error).startswith("Exceeds the limit"):  # Python advises to call a function of it
            raise ValueError(f"a number of more than {sys.get_int_max_str_digits():,} digits") from error
        raise
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - the text is wrong, not the caller
    if text.count("{") + text.count("[") > MAX_DEPTH:
        _check_depth(value)
    if ("\\u" in text and _SURROGATE_ESCAPE.search(text)) or not (text.isascii() or is_utf8(text)):
        return {replace_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def text_of_arguments(arguments: Json) -> str:
    """Return a call's arguments as JSON text, "" for none. Some servers send a value instead of its text."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def read_arguments(raw: str) -> JsonObject | None:
    """Return the arguments of a tool call: `{}` for blank text, None for anything that is not a JSON object."""
    if not raw.strip():
        return {}
    try:
        return read_object(raw)
    except ValueError:
        return None


def write(value: Json) -> bytes:
    """Return compact UTF-8, keys in the given order. The same value gives the same bytes, for prompt caching."""
    return _ENCODER.encode(value).encode("utf-8", "replace")


def write_all(values: Iterable[JsonObject]) -> bytes:
    """Return several objects with commas between them."""
    return b",".join(map(write, values))


Written: TypeAlias = tuple[bytes, ...]
"""JSON in pieces that are joined as they are."""


def write_body(members: Mapping[str, Json | Written]) -> bytes:
    """Return an object with these members. Those that are written already come last.

    members   at least one that is not written. The names of the written ones are ASCII
    """
    short: JsonObject = {name: value for name, value in members.items() if not isinstance(value, tuple)}
    pieces = [write(short)[:-1]]
    for name, value in members.items():
        if isinstance(value, tuple):
            pieces += b',"%s":' % name.encode(), *value
    return b"".join((*pieces, b"}"))


def write_array(items: Iterable[bytes]) -> Written:
    """Return an array of items that are written already. Empty ones are left out."""
    pieces = [piece for item in items if item for piece in (b",", item)]
    return (b"[", *pieces[1:], b"]")


class _SameTool:
    """The key of a tool in a cache. Two tools are equal if they have the same name, description and parameters object.

    form   how the tool is written, which is a part of the key
    """

    def __init__(self, form: Callable[[ToolSpec], JsonObject], spec: ToolSpec) -> None:
        self.form, self.spec = form, spec
        self._is = form, spec.name, spec.description, id(spec.parameters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameTool) and other._is == self._is

    def __hash__(self) -> int:
        return hash(self._is)


@lru_cache(maxsize=512)
def _tool_bytes(tool: _SameTool) -> bytes:
    return write(tool.form(tool.spec))


def tool_bytes(form: Callable[[ToolSpec], JsonObject], spec: ToolSpec) -> bytes:
    """Return the JSON of `form(spec)`. Sessions share it, since their tools have the same parameters object."""
    return _tool_bytes(_SameTool(form, spec))


class _KeptJson(Generic[_Item]):
    """A cache of the JSON of a list's items, such as a conversation's, from one request to the next."""

    def __init__(self, made: Callable[[_Item], bytes]) -> None:
        self._made = made
        self._items: tuple[_Item, ...] = ()
        self._written: list[bytes] = []  # of each item

    def each(self, items: Iterable[_Item]) -> list[bytes]:
        """Return the JSON of each item. Only items that are new since the last call are written."""
        now = tuple(items)
        if begins_with(now, self._items):
            written = [*self._written, *map(self._made, now[len(self._items) :])]
        else:
            before = dict(zip(map(id, self._items), self._written, strict=True))
            written = [before[id(item)] if id(item) in before else self._made(item) for item in now]
        self._items, self._written = now, written
        return [*written]


class RequestWriter:
    """The JSON of the prompts, tools and messages of a model's requests, kept from one request to the next.

    Only what is new is serialized, since a conversation may be long.

    message   returns the JSON of a message, without brackets if it is several objects; may be empty
    tool      returns a tool as the API takes it. It is a function of a module, so that all sessions share its results
    """

    def __init__(
        self, endpoint: ModelEndpoint, message: Callable[[Message], bytes], tool: Callable[[ToolSpec], JsonObject]
    ) -> None:
        self._endpoint = endpoint
        self._without_images: tuple[Message, ...] = ()
        self._systems = _KeptJson[str](write)
        self._messages = _KeptJson[Message](message)
        self._tools = _KeptJson[ToolSpec](partial(tool_bytes, tool))

    def system(self, prompt: str) -> bytes:
        """Return the system prompt as JSON."""
        return self._systems.each((prompt,))[0]

    def tools(self, specs: Sequence[ToolSpec]) -> list[bytes]:
        """Return the JSON of each tool."""
        return self._tools.each(specs)

    def messages(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the JSON of each message of a conversation that `fit_images` returned."""
        return self._messages.each(messages)

    def fit_images(self, messages: tuple[Message, ...]) -> Sequence[Message]:
        """Return the conversation as the endpoint fits it. Only new messages are searched for pictures."""
        known = self._without_images
        if begins_with(messages, known) and not have_images(messages[len(known) :]):
            self._without_images = messages
            return messages
        return self._endpoint.fit_images(messages)


def replace_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    if is_utf8(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def as_object(value: Json) -> JsonObject:
    """Return the object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return the list, or an empty one for any other value."""
    return value if isinstance(value, list) else []


def as_text(value: Json) -> str:
    """Return the string, or an empty one for any other value."""
    return value if isinstance(value, str) else ""


def as_count(value: Json) -> int:
    """Return a positive integer below 2**31, or 0 for any other value. Some servers write -1 without its sign.

    Gateways written in Java or Lua write integers as 3.0.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _UNSIGNED else 0


def _check_depth(value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for holder in level
            if isinstance(holder, dict | list)
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _without_surrogates(value: Json) -> Json:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
