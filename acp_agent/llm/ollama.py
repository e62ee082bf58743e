"""Ollama's own API: /api/chat, streamed as NDJSON.

Source: ollama/ollama docs/api.md, docs/api/errors.mdx, api/types.go.

The OpenAI-compatible endpoint of Ollama takes no window size: it loads a model with the server's default, 4096 tokens
on most machines, and silently cuts a longer conversation.

Each line of an answer is one JSON object. A line ends at LF or CR, which JSON text cannot contain unescaped, and not at
U+2028, which it can. Lines are split as bytes and then decoded, because a chunk may end inside a character.
"""

import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import Final, assert_never

from acp_agent.core.data import frozen
from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import (
    ImagePart,
    Message,
    ModelDone,
    ModelEvent,
    ModelStop,
    ModelText,
    ModelThought,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
    Usage,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.endpoint import (
    ModelEndpoint,
    as_count,
    as_list,
    as_object,
    as_text,
    function_tool,
    read_arguments,
    read_object,
    text_of_arguments,
    write,
)
from acp_agent.llm.exchange import (
    ANSWER_LIMIT,
    HttpProvider,
    broken_stream,
    http_failure,
    read_rest,
    request_headers,
    stream_failure,
    wrong_content,
)
from acp_agent.net.client import HttpClient, HttpRequest, StreamedResponse

_NUM_CTX: Final = re.compile(r"^num_ctx\s+\"?(\d{1,9})\"?\s*$", re.MULTILINE)


@frozen
class ModelCard:
    """An Ollama server's description of a model (POST /api/show). Values that older servers leave out are unknown.

    context_length  the window it was trained for, in tokens; None if unknown
    num_ctx         the window that its Modelfile sets, in tokens; None leaves the window to the request
    remote          whether it runs on ollama.com, always with its whole window
    thinking        whether it takes the field `think`; None before the server was asked
    images, tools   whether it takes pictures, and makes tool calls; None if unknown
    """

    context_length: int | None = None
    num_ctx: int | None = None
    remote: bool = False
    thinking: bool | None = False
    images: bool | None = None
    tools: bool | None = None

    def window(self, usual: int) -> int:
        """Return the window to load the model with, in tokens.

        usual   the window of a model whose Modelfile sets none; a model trained for less gets less
        """
        longest = self.context_length
        if self.remote:
            return longest or usual
        wanted = self.num_ctx or usual
        return min(wanted, longest or wanted)


def read_card(document: JsonObject) -> ModelCard:
    """Return the card from the answer of /api/show. Values of a wrong form count as unknown."""
    info = as_object(document.get("model_info"))
    lengths = {name: as_count(value) for name, value in info.items() if name.endswith(".context_length")}
    own = f"{as_text(info.get('general.architecture'))}.context_length"
    num_ctx = _NUM_CTX.search(as_text(document.get("parameters")))
    capabilities = as_list(document.get("capabilities"))
    return ModelCard(
        context_length=lengths.get(own) or max(lengths.values(), default=0) or None,
        num_ctx=(int(num_ctx[1]) or None) if num_ctx else None,
        remote=bool(as_text(document.get("remote_host"))),
        thinking="thinking" in capabilities,
        images="vision" in capabilities if capabilities else None,
        tools="tools" in capabilities if capabilities else None,
    )


_NOTHING_SAID: Final = frozenset({"load", "unload"})


@frozen
class _Call:
    """A tool call, which the server sends whole. `arguments` is an object, or JSON text from some servers."""

    id: str
    name: str
    arguments: Json


class OllamaReply:
    """One assistant message in progress.

    maker   the `ModelEndpoint.maker` of the model
    seed    the bytes of the request. The id of a call that lacks one is derived from them and from its position, so
            the same answer always gives the same ids
    taken   the ids of calls that are already in the conversation
    """

    def __init__(self, maker: str, seed: bytes, taken: Iterable[str] = ()) -> None:
        self._maker = maker
        self._seed = seed
        self._taken = set(taken)
        self._text: list[str] = []
        self._thought: list[str] = []
        self._calls: list[_Call] = []
        self._stop_reason = ""
        self._usage = Usage()
        self.complete = False

    @property
    def only_loaded(self) -> bool:
        """True if the server took the request for one to load or unload the model, and generated nothing."""
        silent = not (self._text or self._thought or self._calls)
        return self.complete and silent and self._stop_reason in _NOTHING_SAID

    def feed(self, line: JsonObject) -> list[ModelText | ModelThought]:
        """Read one line. Return the deltas to show now."""
        message = as_object(line.get("message"))
        shown: list[ModelText | ModelThought] = []
        thought, text = as_text(message.get("thinking")), as_text(message.get("content"))
        if thought:
            self._thought.append(thought)
            shown.append(ModelThought(thought))
        if text:
            self._text.append(text)
            shown.append(ModelText(text))
        for item in as_list(message.get("tool_calls")):
            function = as_object(as_object(item).get("function"))
            call_id, name = as_text(as_object(item).get("id")), as_text(function.get("name"))
            if function:
                self._calls.append(_Call(call_id, name, function.get("arguments")))
        if line.get("done") is True:
            self.complete = True
            self._stop_reason = as_text(line.get("done_reason"))
            self._usage = Usage(as_count(line.get("prompt_eval_count")), as_count(line.get("eval_count")))
        return shown

    def done(self) -> ModelDone:
        """Return the whole message. Call it once, after `complete`."""
        parts: list[Part] = []
        if self._thought:
            parts.append(ThoughtPart("".join(self._thought), self._maker))
        if self._text:
            parts.append(TextPart("".join(self._text)))
        digest = hashlib.sha256(self._seed).hexdigest()[:24] if self._calls else ""
        sent: list[_Call] = []
        for place, call in enumerate(self._calls):
            if not call.id or call not in sent:  # an equal call with the same id was sent twice
                sent.append(call)
                parts.append(self._tool_use(call, f"call_{digest}_{place}"))
        stop = ModelStop.TOOL_USE if self._calls else ModelStop.END
        stop = ModelStop.MAX_TOKENS if self._stop_reason == "length" else stop
        return ModelDone(Message(Role.ASSISTANT, tuple(parts)), stop, self._usage)

    def _tool_use(self, call: _Call, spare_id: str) -> ToolUsePart:
        """Return the call. A missing or repeated id is replaced, since results name their call by id."""
        call_id = call.id if call.id and call.id not in self._taken else spare_id
        self._taken.add(call_id)
        raw = call.arguments
        if isinstance(raw, dict):
            return ToolUsePart(call_id, call.name, raw)
        text = text_of_arguments(raw)
        arguments = read_arguments(text)
        return ToolUsePart(call_id, call.name, arguments, "" if arguments is not None else text)


# The fields of the body. Any other field that a user adds, such as temperature, goes into `options`.
_FIELDS: Final = frozenset(
    {"format", "keep_alive", "logprobs", "messages", "model", "options", "shift", "stream", "think", "tools"}
    | {"top_logprobs", "truncate"}
)


def request_body(
    endpoint: ModelEndpoint, request: ModelRequest, *, num_ctx: int | None, think: bool | str
) -> JsonObject:
    """Return the body of POST /api/chat, streaming.

    num_ctx   the window to load the model with, in tokens; None leaves it to the server
    think     whether to ask for thoughts, or the level of thinking; models that cannot think refuse True and levels

    The request asks the server to refuse a conversation that does not fit. By default the server would drop the oldest
    messages, or shift them out while it answers, without saying so.
    """
    body: JsonObject = {
        "model": endpoint.model,
        "messages": _messages(endpoint, request),
        "stream": True,
        "truncate": False,
        "shift": False,
    }
    if request.tools:
        body["tools"] = [function_tool(spec) for spec in request.tools]
    if think:
        body["think"] = think
    options: JsonObject = {}
    if num_ctx:
        options["num_ctx"] = num_ctx
    max_tokens = request.max_tokens or endpoint.max_tokens
    if max_tokens:
        options["num_predict"] = max_tokens
    extra = endpoint.extra_body
    body |= {name: value for name, value in extra.items() if name in _FIELDS}
    options |= {name: value for name, value in extra.items() if name not in _FIELDS}
    options |= as_object(extra.get("options"))
    if options:
        body["options"] = options
    return body


def _messages(endpoint: ModelEndpoint, request: ModelRequest) -> list[Json]:
    out: list[Json] = []
    if request.system.strip():
        out.append({"role": "system", "content": request.system})
    tools = {use.id: use.name for message in request.messages for use in message.tool_uses}
    maker = endpoint.maker
    for message in endpoint.fit_images(request.messages):
        out.extend(_user(message, tools) if message.role is Role.USER else _assistant(maker, message))
    return out


def _user(message: Message, tools: Mapping[str, str]) -> Sequence[JsonObject]:
    """Return the tool results, one message each, then one message with their pictures and the user's words.

    Not every model's template renders the pictures of a tool message, so the user's message holds them. For each
    picture, in the same order, one line of its text says which call the picture came from.
    """
    out: list[JsonObject] = []
    texts: list[str] = []
    images: list[Json] = []
    for part in message.parts:
        match part:
            case ToolResultPart():
                name = tools.get(part.id, "")
                named: JsonObject = {"tool_name": name} if name else {}
                out.append({"role": "tool", **named, "tool_call_id": part.id, "content": part.text})
                for image in part.images:
                    images.append(image.data)
                    texts.append(f"[image {len(images)}: from tool call {name or part.id}]")
            case TextPart(text):
                texts.append(text)
            case ImagePart():
                images.append(part.data)
            case ThoughtPart() | ToolUsePart() | OpaquePart():
                pass  # this API has no such part in a user's message
            case _:
                assert_never(part)
    content = "\n\n".join(filter(None, texts))
    if content or images:
        pictures: JsonObject = {"images": images} if images else {}
        out.append({"role": "user", "content": content, **pictures})
    return out


def _assistant(maker: str, message: Message) -> Sequence[JsonObject]:
    """Return an answer of the model with its calls. Its thoughts are included only if this model made them."""
    out: JsonObject = {"role": "assistant", "content": message.text}
    thoughts = [part.text for part in message.parts if isinstance(part, ThoughtPart) and part.provider == maker]
    if any(thoughts):
        out["thinking"] = "".join(thoughts)
    calls: list[Json] = [
        {
            "id": use.id,
            "type": "function",
            "function": {"index": index, "name": use.name, "arguments": use.arguments or {}},
        }
        for index, use in enumerate(message.tool_uses)
    ]
    if calls:
        out["tool_calls"] = calls
    return [out] if calls or message.text else []


_BOM: Final = b"\xef\xbb\xbf"
_ENDED: Final = "ended its answer before it was whole"
_NOT_LINES: Final = ("text/html", "application/xhtml", "application/problem", "image/")
_OF_AN_ANSWER: Final = ("message", "done", "error")


async def _json_lines(endpoint: ModelEndpoint, answer: StreamedResponse) -> AsyncGenerator[JsonObject]:
    """Yield the objects of an answer. Raises ProviderError (PROTOCOL) if the answer is not NDJSON, or is cut off."""
    content_type = answer.headers.get("content-type", "").lower()
    if content_type.startswith(_NOT_LINES):
        raise wrong_content(endpoint, content_type, await answer.excerpt())
    doubtful = content_type.startswith("application/json")  # proxies send this type for NDJSON and for anything else
    async with (
        aclosing(answer.chunks(ANSWER_LIMIT)) as chunks,
        aclosing(split_lines(endpoint, chunks)) as lines,
    ):
        async for line in lines:
            try:
                item = read_object(line.decode("utf-8", "replace"))
            except ValueError as error:
                raise broken_stream(endpoint, f"sent a line that cannot be read ({error})") from error
            if doubtful and not any(key in item for key in _OF_AN_ANSWER):
                raise wrong_content(endpoint, content_type, line)
            doubtful = False
            yield item


async def split_lines(endpoint: ModelEndpoint, chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Yield the lines of a byte stream that are not blank, however the stream is divided into chunks.

    The last line may lack its line end, as from servers that do not stream. Raises ProviderError if that line was cut.
    """
    pending: list[bytes] = []
    first = True
    async for chunk in chunks:
        *ends, rest = chunk.replace(b"\r", b"\n").split(b"\n")
        for end in ends:
            line = b"".join((*pending, end)) if pending else end
            pending.clear()
            if first:
                line, first = line.removeprefix(_BOM), False
            if line.strip():
                yield line
        if rest:
            pending.append(rest)
    last = b"".join(pending)
    if first:
        last = last.removeprefix(_BOM)
    if last.strip():
        try:
            read_object(last.decode("utf-8", "replace"))
        except ValueError:
            raise broken_stream(endpoint, _ENDED) from None
        yield last


def _refusal(endpoint: ModelEndpoint, answer: StreamedResponse, body: bytes) -> ProviderError:
    """Return the error for a status other than 2xx, with a hint that helps on Ollama."""
    error = http_failure(endpoint, answer.status, answer.headers, body)
    hint = ""
    if answer.status == 404 and b"not found" in body and endpoint.model.encode() in body:
        hint = f" (`ollama pull {endpoint.model}` fetches a model)"
    elif answer.status == 404:
        hint = ' (a server that is not Ollama is a provider of type "openai")'
    elif answer.status == 401 and b"signin_url" in body:
        hint = " (for a cloud model: `ollama signin` on that machine)"
    return ProviderError(f"{error}{hint}", kind=error.kind, status=error.status, retry_after=error.retry_after)


_PATIENCE: Final = 0.25  # seconds to wait for the end of the connection after the last line
_CARD_PATIENCE: Final = 10.0  # seconds for /api/show, which computes nothing
_CARD_LIMIT: Final = 8 * 1024 * 1024  # bytes; it includes licences and templates


class OllamaProvider(HttpProvider):
    """A Provider for a model of Ollama's /api/chat.

    window, images, thinking   the user's settings; None takes the server's values for the model
    effort                     how hard a thinking model thinks; None leaves it to the server
    """

    def __init__(
        self,
        endpoint: ModelEndpoint,
        http: HttpClient,
        *,
        window: int | None = None,
        images: bool | None = None,
        thinking: bool | None = None,
        effort: str | None = None,
    ) -> None:
        super().__init__(endpoint, http)
        self._window = window
        self._images = images
        self._thinking = thinking
        self._effort = effort
        self._card = ModelCard(thinking=None)
        # An effort is sent only to a model that thinks. So the server is asked unless the user has set `thinking` too.
        self._asked = window is not None and images is not None and (thinking is not None or effort is None)

    @property
    def context_window(self) -> int:
        """The context window in tokens: the user's setting, else, after the first call, what the server said."""
        return self._window or self._card.window(self._endpoint.context_window)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream an answer, as the port says.

        For a request without messages, the server is asked only whether it has the model. /api/chat would load
        gigabytes into memory and generate nothing.

        Raises:
            ProviderError: also (PROTOCOL) for a stream that ends before a line with `done`.

        """
        if not request.messages:
            await self._ask_for_card()
            yield ModelDone(Message(Role.ASSISTANT, ()), ModelStop.END)
            return
        if not self._asked:
            with suppress(ProviderError):  # /api/chat may still work, or tells the reason; the next call asks again
                await self._ask_for_card()
        endpoint = self._endpoint
        body = write(self._body(request))
        reply = OllamaReply(endpoint.maker, body, (use.id for message in request.messages for use in message.tool_uses))
        async with (
            self._open("/api/chat", body, endpoint.timeout) as answer,
            aclosing(_json_lines(endpoint, answer)) as lines,
        ):
            async for line in lines:
                error: Json = line.get("error")
                if isinstance(error, str) and error:
                    error = {"message": error, "code": line.get("status")}
                if error:
                    raise stream_failure(endpoint, error)
                for delta in reply.feed(line):
                    yield delta
                if reply.complete:
                    break
            else:
                raise broken_stream(endpoint, _ENDED)
            await read_rest(lines, _PATIENCE)
        if reply.only_loaded:
            raise broken_stream(endpoint, f"found nothing to answer for {endpoint.model}: it only loaded the model")
        yield reply.done()

    def _body(self, request: ModelRequest) -> JsonObject:
        card = self._card
        images = next((said for said in (self._images, card.images) if said is not None), self._endpoint.images)
        thinks = card.thinking if self._thinking is None else self._thinking
        left_to_server = self._window is None and (card.remote or card.num_ctx is not None)
        body = request_body(
            replace(self._endpoint, images=images),
            request,
            num_ctx=None if left_to_server else self.context_window,
            think=(self._effort or True) if thinks else False,
        )
        may_think = self._thinking is False if card.thinking is None else card.thinking
        if may_think and not thinks:  # without the field a thinking model would think
            body["think"] = False
        return body

    @asynccontextmanager
    async def _open(self, path: str, body: bytes, patience: float) -> AsyncGenerator[StreamedResponse]:
        """Send a POST request and yield the open answer, which may be silent for `patience` seconds at most.

        Raises ProviderError.
        """
        headers = request_headers("application/x-ndjson, application/json", self._headers)
        request = HttpRequest(self.name, self._endpoint.base_url + path, headers, body, patience)
        async with self._http.send(request) as answer:
            if not answer.succeeded:
                raise _refusal(self._endpoint, answer, await answer.excerpt())
            yield answer

    async def _ask_for_card(self) -> None:
        """Ask the server about the model. Raises ProviderError, such as NOT_FOUND."""
        endpoint = self._endpoint
        patience = min(endpoint.timeout, _CARD_PATIENCE)
        async with self._open("/api/show", write({"model": endpoint.model}), patience) as answer:
            text = (await answer.excerpt(_CARD_LIMIT)).decode("utf-8", "replace")
        try:
            document = read_object(text)
        except ValueError as error:
            raise broken_stream(endpoint, f"sent a description of {endpoint.model} that cannot be read") from error
        self._card = read_card(document)
        self._asked = True
