"""What each model API demands of a request, written down from its documentation, apart from the code that builds one.

A body that breaks a rule fails the test with the rule's words. Sources: platform.claude.com "Messages", "Tool use",
"Extended thinking"; platform.openai.com "Create chat completion".
"""

import json
import re
from typing import Any, NoReturn

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC_FIELDS = {"model", "max_tokens", "stream", "system", "tools", "messages", "thinking"}
_OPENAI_FIELDS = {"model", "messages", "stream", "stream_options", "tools", "max_tokens", "max_completion_tokens"}
_OLLAMA_FIELDS = {"model", "messages", "stream", "tools", "options", "think", "truncate", "shift"}
_OPENAI_MESSAGE_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning_content", "reasoning"},
    "tool": {"role", "tool_call_id", "content"},
}


def strict_json(body: bytes) -> dict[str, Any]:
    """The body as a strict reader takes it: UTF-8, no NaN, no lone surrogate, no key twice."""
    document = json.loads(body.decode("utf-8"), parse_constant=_refused, object_pairs_hook=_once)
    json.dumps(document, ensure_ascii=False).encode("utf-8")
    assert isinstance(document, dict)
    return document


def _refused(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), "no key twice"
    return dict(pairs)


# ------------------------------------------------------------------------------------- anthropic


def assert_anthropic_request(body: bytes) -> None:
    """POST /v1/messages would accept it."""
    request = strict_json(body)
    assert not request.keys() - _ANTHROPIC_FIELDS, "no field the API does not know"
    assert request["model"]
    assert request["max_tokens"] > 0
    assert request["stream"] is True
    for block in request.get("system", []):
        assert block["text"].strip(), "no blank system block"
    _assert_tools([(tool["name"], tool["input_schema"]) for tool in request.get("tools", [])])
    assert request["messages"], "at least one message"
    assert body.count(b'"cache_control"') <= 4, "at most four cache marks"
    owed: list[str] = []
    ids: list[str] = []
    for position, message in enumerate(request["messages"]):
        assert message.keys() == {"role", "content"}
        assert message["role"] == ("assistant" if position % 2 else "user"), "roles alternate, the user begins"
        blocks = message["content"]
        assert isinstance(blocks, list)
        assert blocks, "no empty message"
        for block in blocks:
            _assert_block(block, message["role"])
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        first = [block.get("tool_use_id") for block in blocks[: len(owed)]]
        assert answered == first == owed, "results stand first, one for each use, in order, and no others"
        owed = [block["id"] for block in blocks if block["type"] == "tool_use"]
        ids += owed
        if message["role"] == "assistant":
            assert blocks[-1]["type"] not in ("thinking", "redacted_thinking"), "a thought is not the end of a message"
    assert request["messages"][-1]["role"] == "user", "the user spoke last"
    assert len(ids) == len(set(ids)), "tool-use ids are unique"


def _assert_block(block: dict[str, Any], role: str) -> None:
    match block["type"]:
        case "text":
            assert block["text"].strip(), "text blocks hold more than white space"
        case "thinking":
            assert role == "assistant"
            assert block["signature"], "a thought goes back with its signature"
        case "redacted_thinking":
            assert role == "assistant"
            assert block["data"]
        case "tool_use":
            assert role == "assistant"
            assert _ID.fullmatch(block["id"]), "ids are letters, digits, _ and -"
            assert _NAME.fullmatch(block["name"]), "tool names are letters, digits, _ and -, 1 to 64 of them"
            assert isinstance(block["input"], dict), "a tool's input is an object"
        case "tool_result":
            assert role == "user"
            assert not block.get("is_error") or block["content"], "an error says something"
        case "image":
            assert role == "user"
        case other:
            raise AssertionError(f"unknown block {other!r}")


# ---------------------------------------------------------------------------------------- openai


def assert_openai_request(body: bytes) -> None:
    """POST /chat/completions would accept it."""
    request = strict_json(body)
    assert not request.keys() - _OPENAI_FIELDS, "no field the API does not know"
    assert request["model"]
    assert request["stream"] is True
    _assert_tools([(tool["function"]["name"], tool["function"]["parameters"]) for tool in request.get("tools", [])])
    owed: list[str] = []
    ids: list[str] = []
    before = ""
    for position, message in enumerate(request["messages"]):
        role = message["role"]
        assert not message.keys() - _OPENAI_MESSAGE_FIELDS[role], "no field the API does not know"
        assert role != "system" or position == 0, "the system message comes first"
        if role == "tool":
            assert owed, "a tool message answers a call"
            assert message["tool_call_id"] == owed.pop(0), "one for each call, in order"
            assert isinstance(message["content"], str)
        else:
            assert not owed, "every call is answered before anybody else speaks"
            assert role != before, "roles alternate: templates of local models refuse the rest"
            assert role != "assistant" or before in ("user", "tool")
            owed = _spoken(message)
            ids += owed
        before = role
    assert request["messages"][-1]["role"] in ("user", "tool"), "it is the model's turn"
    assert not owed, "every call is answered"
    assert len(ids) == len(set(ids)), "call ids are unique"


def _spoken(message: dict[str, Any]) -> list[str]:
    """Check what a system, user or assistant message says; the ids of its calls."""
    content, calls = message["content"], message.get("tool_calls")
    assert calls is None or calls, "tool_calls is not empty"
    if content is None:
        assert calls, "no content only beside tool calls"
    elif isinstance(content, str):
        assert content.strip(), "no blank content"
    else:
        assert message["role"] == "user"
        assert content
    for call in calls or ():
        assert call.keys() == {"id", "type", "function"}
        assert call["type"] == "function"
        assert 0 < len(call["id"]) <= 40, "ids have 1 to 40 characters"
        assert _NAME.fullmatch(call["function"]["name"]), "tool names are letters, digits, _ and -, 1 to 64 of them"
        assert isinstance(strict_json(call["function"]["arguments"].encode("utf-8")), dict)
    return [call["id"] for call in calls or ()]


# ---------------------------------------------------------------------------------------- ollama


def assert_ollama_request(body: bytes) -> None:
    """POST /api/chat would accept it: as Chat Completions, but arguments are objects and a result names its tool."""
    request = strict_json(body)
    assert not request.keys() - _OLLAMA_FIELDS, "no field the API does not know"
    names: list[tuple[str, str]] = []
    for message in request["messages"]:
        for call in message.get("tool_calls", ()):
            assert isinstance(call["function"]["arguments"], dict), "arguments are an object"
            names.append((call["id"], call["function"]["name"]))
            call["function"] = {"name": names[-1][1], "arguments": json.dumps(call["function"]["arguments"])}
        if message["role"] == "tool":
            assert (message["tool_call_id"], message.pop("tool_name")) in names, "a result names the tool of its call"
        if "tool_calls" in message:
            message["content"] = message["content"] or None  # an empty string says the same here
        message.pop("thinking", None)
    kept = {name: request[name] for name in ("model", "messages", "stream", "tools") if name in request}
    assert_openai_request(json.dumps(kept).encode())


def _assert_tools(tools: list[tuple[str, dict[str, Any]]]) -> None:
    names = [name for name, _ in tools]
    assert all(_NAME.fullmatch(name) for name in names)
    assert len(names) == len(set(names)), "tool names are unique"
    assert all(schema["type"] == "object" for _, schema in tools)
