"""The conversation in the shape of Ollama's /api/chat. Source: ollama/ollama docs/api.md, api/types.go."""

from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from acp_agent.core.messages import (
    ImagePart,
    Message,
    OpaquePart,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import Json, JsonObject, ToolSpec
from acp_agent.llm.endpoint import Endpoint
from acp_agent.llm.json_wire import as_object

# What stands beside the conversation; any other field a user adds, such as temperature, is one of the `options`.
_FIELDS: Final = frozenset(
    {"format", "keep_alive", "logprobs", "messages", "model", "options", "shift", "stream", "think", "tools"}
    | {"top_logprobs", "truncate"}
)


def request_body(endpoint: Endpoint, request: ModelRequest, *, num_ctx: int | None, think: bool | str) -> JsonObject:
    """The body of POST /api/chat, streaming.

    num_ctx   the window to load the model with; None leaves it to the server
    think     ask for the thoughts apart from the text, or how hard to think; only for a model that has them, others
              are refused

    A conversation that does not fit is refused, not shortened: by itself the server would drop the oldest messages,
    or shift them out while it answers, and say nothing.
    """
    body: JsonObject = {
        "model": endpoint.model,
        "messages": _messages(endpoint, request),
        "stream": True,
        "truncate": False,
        "shift": False,
    }
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
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


def _tool(spec: ToolSpec) -> JsonObject:
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
    }


def _messages(endpoint: Endpoint, request: ModelRequest) -> list[Json]:
    out: list[Json] = []
    if request.system.strip():
        out.append({"role": "system", "content": request.system})
    tools = {use.id: use.name for message in request.messages for use in message.tool_uses}
    maker = endpoint.maker
    for message in endpoint.shown(request.messages):
        match message.role:
            case Role.USER:
                out.extend(_user(message, tools))
            case Role.ASSISTANT:
                out.extend(_assistant(maker, message))
            case _:
                assert_never(message.role)
    return out


def _user(message: Message, tools: Mapping[str, str]) -> Sequence[JsonObject]:
    """Tool results, one message each and first (L1.6), then their pictures, then what the user said.

    Not every template renders the pictures of a tool message, so they stand in the user's, in the order of a line
    each that says whose it is.
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
                pass  # nothing this API knows in a user's message
            case _:
                assert_never(part)
    content = "\n\n".join(filter(None, texts))
    if images:
        out.append({"role": "user", "content": content, "images": images})
    elif content:
        out.append({"role": "user", "content": content})
    return out


def _assistant(maker: str, message: Message) -> Sequence[JsonObject]:
    """The answer, its calls, and the thoughts, to the model that made them only (A16.6)."""
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
