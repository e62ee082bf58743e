"""What each model API demands of a request, written down from its documentation, apart from the code that builds one.

A body that breaks a rule fails the test with the rule's words. Sources: platform.claude.com "Messages", "Tool use",
"Extended thinking"; platform.openai.com "Create chat completion", "Create a model response", "Reasoning models".
"""

import json
import re
from typing import Any, NoReturn

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC_FIELDS = {"model", "max_tokens", "stream", "system", "tools", "messages", "thinking"}
_OPENAI_FIELDS = {"model", "messages", "stream", "stream_options", "tools", "max_tokens", "max_completion_tokens"}
_RESPONSES_FIELDS = {"model", "stream", "store", "include", "reasoning", "max_output_tokens", "instructions", "input"}
_RESPONSES_TOOL_FIELDS = {"tools", "parallel_tool_calls"}
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


# ------------------------------------------------------------------------------------- responses


def assert_responses_request(body: bytes) -> None:
    """POST /responses would accept it, from somebody who keeps nothing at the server."""
    request = strict_json(body)
    fields = _RESPONSES_FIELDS | (_RESPONSES_TOOL_FIELDS if "tools" in request else set())
    assert not request.keys() - fields, "no field the API does not know, none about tools without any"
    assert request["model"]
    assert (request["stream"], request["store"]) == (True, False)
    assert request.get("include", ["reasoning.encrypted_content"]) == ["reasoning.encrypted_content"]
    assert request.get("max_output_tokens", 16) >= 16
    assert request.get("instructions", "x").strip(), "no blank instructions"
    tools = request.get("tools", [])
    assert all(tool["type"] == "function" and tool["strict"] is False for tool in tools)
    _assert_tools([(tool["name"], tool["parameters"]) for tool in tools])
    owed: list[str] = []
    calls: list[str] = []
    ids: list[str] = []
    before: dict[str, Any] = {}
    for item in request["input"]:
        _assert_item(item, before)
        ids += [item["id"]] if "id" in item else []
        if item["type"] == "function_call":
            owed.append(item["call_id"])
            calls.append(item["call_id"])
        elif item["type"] == "function_call_output":
            assert item["call_id"] == owed.pop(0), "one output for each call, in order"
        elif item["type"] == "message" and item["role"] == "user":
            assert not owed, "every call is answered before the user speaks"
        before = item
    assert not owed, "every call is answered"
    assert before["type"] == "function_call_output" or before["role"] == "user", "it is the model's turn"
    assert len(calls) == len(set(calls)), "call ids are unique"
    assert len(ids) == len(set(ids)), "item ids are unique"


def _assert_item(item: dict[str, Any], before: dict[str, Any]) -> None:
    reasoned = before.get("type") == "reasoning"
    says = item["type"] == "function_call" or (item["type"] == "message" and item["role"] == "assistant")
    assert says or item["type"] == "reasoning" or not reasoned, "what the reasoning led to follows it"
    assert "id" not in item or reasoned or item["type"] == "reasoning", "an id is looked for with its reasoning"
    match item["type"]:
        case "message" if item["role"] == "user":
            assert item["content"]
            assert all(_is_input(part) for part in item["content"])
        case "message":
            assert item["role"] == "assistant"
            content = item["content"]
            if isinstance(content, str):
                assert item.keys() <= {"type", "role", "content", "phase"}
                assert content.strip()
            else:
                assert item.keys() >= {"type", "role", "content", "id", "status"}, "what the type of the SDK requires"
                assert all(part.keys() == {"type", "text", "annotations"} for part in content)
        case "function_call":
            assert item.keys() - {"id"} == {"type", "call_id", "name", "arguments"}
            assert 0 < len(item["call_id"]) <= 64, "ids have 1 to 64 characters"
            assert _NAME.fullmatch(item["name"]), "tool names are letters, digits, _ and -, 1 to 64 of them"
            assert isinstance(strict_json(item["arguments"].encode("utf-8")), dict)
        case "function_call_output":
            assert item.keys() == {"type", "call_id", "output"}
            output = item["output"]
            assert isinstance(output, str) or (output and all(_is_input(part) for part in output))
        case "reasoning":
            assert item["encrypted_content"] or item["content"], "nothing of it is at the server"
            assert isinstance(item["summary"], list)
        case other:
            raise AssertionError(f"unknown item {other!r}")


def _is_input(part: dict[str, Any]) -> bool:
    match part["type"]:
        case "input_text":
            return part.keys() == {"type", "text"} and bool(part["text"].strip())
        case "input_image":
            return part["detail"] == "auto" and part["image_url"].startswith("data:image/")
        case _:
            return False


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
