"""Answers in the exact shape the APIs stream them, built from what they should mean."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

CALL = {"id": "call_1", "name": "bash", "arguments": '{"command": "ls -la", "note": "a\u2028b"}'}
OTHER_CALL = {"id": "call_2", "name": "read", "arguments": '{"path": "naïve 😀.py"}'}
SIGNATURE = "EqQBCgIYAhIkOpaqueSignature=="


def sse(payload: dict[str, Any], event: str | None = None, newline: str = "\n") -> bytes:
    """One event. Raw characters, not escapes: U+2028 and emoji travel as such."""
    head = f"event: {event}{newline}" if event else ""
    return f"{head}data: {json.dumps(payload, ensure_ascii=False)}{newline}{newline}".encode()


def anthropic(
    text: Sequence[str] = (),
    calls: Iterable[dict[str, str]] = (),
    thought: Sequence[str] = (),
    stop: str | None = None,
    newline: str = "\n",
    extra_blocks: Iterable[dict[str, Any]] = (),
) -> bytes:
    """A Messages stream: thinking with a signature, text, tool uses; pings and an event of the future between."""
    out: list[bytes] = []
    index = 0

    def add(kind: str, **fields: Any) -> None:
        out.append(sse({"type": kind, **fields}, kind, newline))

    usage = {"input_tokens": 25, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 2000}
    add(
        "message_start",
        message={"id": "msg_1", "role": "assistant", "content": [], "usage": {**usage, "output_tokens": 1}},
    )
    add("ping")
    if thought:
        add("content_block_start", index=index, content_block={"type": "thinking", "thinking": "", "signature": ""})
        for piece in thought:
            add("content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": piece})
        add("content_block_delta", index=index, delta={"type": "signature_delta", "signature": SIGNATURE})
        add("content_block_stop", index=index)
        index += 1
    for block in extra_blocks:
        add("content_block_start", index=index, content_block=block)
        add("content_block_stop", index=index)
        index += 1
    if text:
        add("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for piece in text:
            add("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
            add("event_of_the_future", payload={"index": index})
        add("content_block_stop", index=index)
        index += 1
    calls = list(calls)
    for call in calls:
        block = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
        add("content_block_start", index=index, content_block=block)
        middle = len(call["arguments"]) // 2
        for piece in ("", call["arguments"][:middle], call["arguments"][middle:]):
            add("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        add("content_block_stop", index=index)
        index += 1
    reason = stop or ("tool_use" if calls else "end_turn")
    add("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 42})
    add("message_stop")
    return b"".join(out)


OVERLOADED = sse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "error")


def chat_chunk(delta: dict[str, Any] | None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One chat.completion.chunk."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}


def openai(
    text: Sequence[str] = (),
    calls: Iterable[dict[str, str]] = (),
    thought: Sequence[str] = (),
    stop: str | None = None,
    newline: str = "\n",
    extra_blocks: Iterable[dict[str, Any]] = (),
) -> bytes:
    """A Chat Completions stream with usage and [DONE]; comments as some routers send them."""
    assert not list(extra_blocks), "Chat Completions has no blocks"
    out = [f": keep-alive{newline}{newline}".encode()]
    out.append(sse(chat_chunk({"role": "assistant", "content": ""}), newline=newline))
    out += [sse(chat_chunk({"reasoning_content": piece}), newline=newline) for piece in thought]
    out += [sse(chat_chunk({"content": piece}), newline=newline) for piece in text]
    calls = list(calls)
    for index, call in enumerate(calls):
        start = {"index": index, "id": call["id"], "type": "function"}
        start["function"] = {"name": call["name"], "arguments": ""}
        out.append(sse(chat_chunk({"tool_calls": [start]}), newline=newline))
        middle = len(call["arguments"]) // 2
        for piece in (call["arguments"][:middle], call["arguments"][middle:]):
            grown = {"index": index, "function": {"arguments": piece}}
            out.append(sse(chat_chunk({"tool_calls": [grown]}), newline=newline))
    out.append(sse(chat_chunk({}, stop or ("tool_calls" if calls else "stop")), newline=newline))
    usage = {"prompt_tokens": 2125, "completion_tokens": 42, "prompt_tokens_details": {"cached_tokens": 2000}}
    out.append(sse({**chat_chunk({}), "choices": [], "usage": usage}, newline=newline))
    out.append(f"data: [DONE]{newline}{newline}".encode())
    return b"".join(out)


def ollama_line(message: dict[str, Any] | None = None, done: str | None = None, **fields: Any) -> dict[str, Any]:
    """One object of an /api/chat stream; with `done` the last one."""
    line: dict[str, Any] = {"model": "m", "created_at": "2026-08-04T19:22:45.499127Z"}
    line["message"] = {"role": "assistant", "content": "", **(message or {})}
    return {**line, "done": done is not None, **({"done_reason": done} if done else {}), **fields}


def ndjson(*lines: dict[str, Any], newline: str = "\n") -> bytes:
    """Raw characters, not escapes: U+2028 and emoji travel as such."""
    return "".join(json.dumps(line, ensure_ascii=False) + newline for line in lines).encode()


def ollama_call(call: dict[str, str]) -> dict[str, Any]:
    """A tool call as Ollama sends it, its arguments an object; as text, as some servers do, where they are none."""
    try:
        arguments = json.loads(call["arguments"])
        json.dumps(arguments, allow_nan=False)
    except (ValueError, RecursionError):
        arguments = None
    sane = isinstance(arguments, dict) and len(call["arguments"]) < 200
    function = {"index": 0, "name": call["name"], "arguments": arguments if sane else call["arguments"]}
    return {**({"id": call["id"]} if call.get("id") else {}), "function": function}


def ollama(
    text: Sequence[str] = (),
    calls: Iterable[dict[str, str]] = (),
    thought: Sequence[str] = (),
    stop: str | None = None,
    newline: str = "\n",
    extra_blocks: Iterable[dict[str, Any]] = (),
) -> bytes:
    """An /api/chat stream: thoughts, text, each call in one piece, then a line with the counts."""
    assert not list(extra_blocks), "/api/chat has no blocks"
    lines = [ollama_line({"thinking": piece}) for piece in thought]
    lines += [ollama_line({"content": piece}, logprobs=[]) for piece in text]
    lines += [ollama_line({"tool_calls": [ollama_call(call)]}) for call in calls]
    counts = {"prompt_eval_count": 2125, "eval_count": 42, "total_duration": 4883583458, "load_duration": 1334875}
    return ndjson(*lines, ollama_line(done=stop or "stop", **counts), newline=newline)
