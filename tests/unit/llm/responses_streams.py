"""Answers in the exact shape the Responses API streams them, built from what they should mean."""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.unit.llm.streams import sse

ENCRYPTED = "gAAAAABfakefakefake=="
USAGE = {
    "input_tokens": 2125,
    "input_tokens_details": {"cached_tokens": 2000, "cache_write_tokens": 0},
    "output_tokens": 42,
    "output_tokens_details": {"reasoning_tokens": 30},
    "total_tokens": 2167,
}

RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-9-2026-08-07",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
}


def message_item(*texts: str, item_id: str = "msg_1", refusal: str = "", **fields: Any) -> dict[str, Any]:
    """A whole message, one part for each text."""
    content: list[dict[str, Any]] = [{"type": "output_text", "text": each, "annotations": []} for each in texts]
    content += [{"type": "refusal", "refusal": refusal}] if refusal else []
    return {
        "id": item_id,
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
        **fields,
    }


def call_item(call: dict[str, str], number: int = 0, **fields: Any) -> dict[str, Any]:
    """A whole call."""
    told = {"call_id": call["id"], "name": call["name"], "arguments": call["arguments"]}
    return {"id": f"fc_{number}", "type": "function_call", "status": "completed", **told, **fields}


def reasoning_item(*summaries: str, item_id: str = "rs_1", **fields: Any) -> dict[str, Any]:
    """A whole reasoning item, encrypted."""
    summary = [{"type": "summary_text", "text": each} for each in summaries]
    return {"id": item_id, "type": "reasoning", "summary": summary, "encrypted_content": ENCRYPTED, **fields}


def ended(*output: dict[str, Any], reason: str = "", **fields: Any) -> dict[str, Any]:
    """The last event: completed, or incomplete for a reason."""
    status = "incomplete" if reason else "completed"
    response = {
        **RESPONSE,
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": list(output),
        "usage": USAGE,
        **fields,
    }
    return {"type": f"response.{status}", "response": response}


def events(
    text: Sequence[str] = (),
    calls: Iterable[dict[str, str]] = (),
    thought: Sequence[str] = (),
    stop: str | None = None,
    extra_blocks: Iterable[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """A stream, event by event: reasoning with its summary, items of any kind, a message, function calls."""
    out: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []

    def add(kind: str, **fields: Any) -> None:
        out.append({"type": kind, "sequence_number": len(out), **fields})

    def begin(item: dict[str, Any]) -> dict[str, Any]:
        add("response.output_item.added", output_index=len(output), item={**item, "status": "in_progress"})
        return {"item_id": item["id"], "output_index": len(output)}

    def end(item: dict[str, Any]) -> None:
        add("response.output_item.done", output_index=len(output), item=item)
        output.append(item)

    for kind in ("response.created", "response.in_progress"):
        add(kind, response={**RESPONSE, "status": "in_progress", "output": []})
    if thought:
        at = begin(reasoning_item(encrypted_content="gAAAAABpart"))
        add("response.reasoning_summary_part.added", **at, summary_index=0, part={"type": "summary_text", "text": ""})
        for piece in thought:
            add("response.reasoning_summary_text.delta", **at, summary_index=0, delta=piece)
        add("response.reasoning_summary_text.done", **at, summary_index=0, text="".join(thought))
        part = {"type": "summary_text", "text": "".join(thought)}
        add("response.reasoning_summary_part.done", **at, summary_index=0, part=part)
        end(reasoning_item("".join(thought)))
    for item in extra_blocks:
        begin(item)
        end(item)
    refusal = "I cannot help with that." if stop == "refusal" else ""
    if text or refusal:
        at = begin(message_item())
        _say(add, at, text, refusal)
        end(message_item(*(["".join(text)] if text else []), refusal=refusal))
    for number, call in enumerate(calls):
        at = begin(call_item({**call, "arguments": ""}, number))
        middle = len(call["arguments"]) // 2
        for piece in ("", call["arguments"][:middle], call["arguments"][middle:]):
            add("response.function_call_arguments.delta", **at, delta=piece)
        add("response.function_call_arguments.done", **at, arguments=call["arguments"])
        end(call_item(call, number))
    last = ended(*output, reason="" if refusal else stop or "")
    add(last.pop("type"), **last)
    return out


def _say(add: Any, at: dict[str, Any], text: Sequence[str], refusal: str) -> None:
    """A message's parts: deltas, with an event of the future between, and the same again, whole."""
    if text:
        part = {"type": "output_text", "text": "", "annotations": []}
        add("response.content_part.added", **at, content_index=0, part=part)
        for piece in text:
            add("response.output_text.delta", **at, content_index=0, delta=piece, logprobs=[])
            add("response.of_the_future", payload=at)
        add("response.output_text.done", **at, content_index=0, text="".join(text), logprobs=[])
        add("response.content_part.done", **at, content_index=0, part={**part, "text": "".join(text)})
    if refusal:
        index = int(bool(text))
        add("response.refusal.delta", **at, content_index=index, delta=refusal)
        add("response.refusal.done", **at, content_index=index, refusal=refusal)


def responses(newline: str = "\n", **answer: Any) -> bytes:
    """The stream of `events`, in bytes."""
    return b"".join(sse(event, event["type"], newline) for event in events(**answer))
