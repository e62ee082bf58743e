"""The wire formats models are spoken to in, as far as a fault has to know them, and a server that plays raw bytes.

A new wire format takes every fault and oddity of `model_faults` with one line in FORMATS.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from acp_agent.config.llm_settings import OpenAIApi, ProviderType
from tests.contract.wire_rules import (
    assert_anthropic_request,
    assert_ollama_request,
    assert_openai_request,
    assert_responses_request,
)
from tests.fakes.scripted_http import Cut, Hang, Reply, Reset, ScriptedHttp
from tests.unit.llm import responses_streams, streams
from tests.unit.llm.streams import sse

JsonDict = dict[str, Any]


def tool(name: str, call_id: str = "call_1", **arguments: Any) -> dict[str, str]:
    """A call as `streams` takes it."""
    return {"id": call_id, "name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}


# -------------------------------------------------------------------------------------- formats


@dataclass(frozen=True)
class WireFormat:
    """A wire format under test.

    base    what follows the server's address in `base_url`
    stream  builds an answer, as in `streams`
    frame   one event or line of the stream, as raw bytes, of any text
    error   an error that comes in the place of an event
    empty   events that hold nothing new, legal anywhere after the first
    whole   an answer that is one call with its arguments in one piece, as careless servers send it
    check   raises AssertionError for a request body the API would refuse
    cut     its word for an answer that reached the limit
    lacks   names of faults and oddities it has no way to show
    settled configuration that chooses it, and with which the server is asked nothing but for the answer
    """

    type: ProviderType
    base: str
    stream: Callable[..., bytes]
    frame: Callable[[str], bytes]
    error: JsonDict
    empty: Sequence[JsonDict]
    whole: Callable[[dict[str, str]], bytes]
    check: Callable[[bytes], None]
    cut: str = "max_tokens"
    lacks: frozenset[str] = frozenset()
    settled: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def begun(self, **answer: Any) -> bytes:
        """The first half of an answer; of a text, the first piece is in it and the second is not."""
        stream = self.stream(**(answer or {"text": ["Half", "@@@"]}))
        end = stream.index(b"@@@")  # the first: what some formats repeat comes later
        return stream[: stream.rfind(b"\n", 0, end) + 1]

    def parted(self, stream: bytes, word: bytes) -> tuple[bytes, bytes]:
        """The stream up to the end of the event with the word, and what follows."""
        end = b"\n\n" if self.frame("").endswith(b"\n\n") else b"\n"
        at = stream.index(end, stream.index(word)) + len(end)
        return stream[:at], stream[at:]


def sse_event(text: str) -> bytes:
    """A server-sent event."""
    return b"data: " + text.encode() + b"\n\n"


def ndjson_line(text: str) -> bytes:
    """A line of NDJSON."""
    return text.encode() + b"\n"


def _ollama_whole(call: dict[str, str]) -> bytes:
    calls = [{"function": {"name": call["name"], "arguments": call["arguments"]}}]  # a string, where an object belongs
    return streams.ndjson(streams.ollama_line({"tool_calls": calls}, "stop"))


def _anthropic_whole(call: dict[str, str]) -> bytes:
    block = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": json.loads(call["arguments"])}
    start = {"type": "content_block_start", "index": 0, "content_block": block}
    events = [start, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    return b"".join(sse(payload, payload["type"]) for payload in events)


def _openai_whole(call: dict[str, str]) -> bytes:
    function = {"name": call["name"], "arguments": json.loads(call["arguments"])}  # an object, where a string belongs
    calls = [{"id": call["id"], "type": "function", "function": function}]
    return sse(streams.chat_chunk({"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"))


def _responses_whole(call: dict[str, str]) -> bytes:
    item = responses_streams.call_item(call) | {"arguments": json.loads(call["arguments"])}  # where a string belongs
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    events = [done, responses_streams.ended()]
    return b"".join(sse(payload, payload["type"]) for payload in events)


_OVERLOADED: JsonDict = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
_ANTHROPIC_EMPTY: Sequence[JsonDict] = (
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {}},
    {"type": "content_block_delta", "index": 7, "delta": None},
    {"type": "message_delta", "delta": {}, "usage": None},
    {"type": "of_the_future"},
    {},
)
_OPENAI_EMPTY: Sequence[JsonDict] = (
    streams.chat_chunk({}),
    streams.chat_chunk(None),
    streams.chat_chunk({"content": None, "tool_calls": None, "reasoning_content": ""}, ""),
    {"choices": [], "usage": None, "error": None},
    {"choices": None},
    {},
)
_RESPONSES_EMPTY: Sequence[JsonDict] = (
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": ""},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": None},
    {"type": "response.function_call_arguments.done", "output_index": 7, "arguments": ""},
    {"type": "response.in_progress", "response": None, "error": None},
    {"type": "response.of_the_future"},
    {"type": "keepalive"},
    {},
)
_OLLAMA_EMPTY: Sequence[JsonDict] = (
    streams.ollama_line(),
    streams.ollama_line({"content": None, "thinking": "", "tool_calls": None}),
    streams.ollama_line({"tool_calls": [None, {}, {"function": None}]}),
    {"message": None, "error": "", "done": None},
    {},
)

ANTHROPIC = WireFormat(
    ProviderType.ANTHROPIC,
    "",
    streams.anthropic,
    sse_event,
    _OVERLOADED,
    _ANTHROPIC_EMPTY,
    _anthropic_whole,
    assert_anthropic_request,
)
OPENAI = WireFormat(
    ProviderType.OPENAI,
    "/v1",
    streams.openai,
    sse_event,
    {"error": {"message": "Overloaded", "code": 529}},
    _OPENAI_EMPTY,
    _openai_whole,
    assert_openai_request,
)
OLLAMA = WireFormat(
    ProviderType.OLLAMA,
    "",
    streams.ollama,
    ndjson_line,
    {"error": "Overloaded", "status": 529},
    _OLLAMA_EMPTY,
    _ollama_whole,
    assert_ollama_request,
    cut="length",
    lacks=frozenset({"a refusal"}),
    settled={"context_window": 32_768, "images": False},
)
RESPONSES = WireFormat(
    ProviderType.OPENAI,
    "/v1",
    responses_streams.responses,
    sse_event,
    _OVERLOADED,
    _RESPONSES_EMPTY,
    _responses_whole,
    assert_responses_request,
    cut="max_output_tokens",
    settled={"api": OpenAIApi.RESPONSES, "thinking": True},
)
FORMATS = {"anthropic": ANTHROPIC, "openai": OPENAI, "ollama": OLLAMA, "responses": RESPONSES}


def rewritten(stream: bytes, change: Callable[[JsonDict], JsonDict]) -> bytes:
    """The stream with every JSON object in it, at any depth, changed."""

    def deep(value: Any) -> Any:
        if isinstance(value, list):
            return [deep(item) for item in value]
        return change({key: deep(item) for key, item in value.items()}) if isinstance(value, dict) else value

    lines: list[bytes] = []
    for line in stream.split(b"\n"):
        head, brace, rest = line.partition(b"{")
        is_json = brace and head in (b"", b"data: ")
        lines.append(
            head + json.dumps(deep(json.loads(brace + rest)), ensure_ascii=False).encode() if is_json else line
        )
    return b"\n".join(lines)


# --------------------------------------------------------------------------------------- server


@dataclass(frozen=True)
class Endless:
    """Send this again and again, until the client closes the connection."""

    data: bytes


@dataclass(frozen=True)
class Raw:
    """Bytes instead of an answer's head, and how the connection goes on."""

    data: bytes
    then: Hang | Cut | Reset


Played: TypeAlias = Reply | Raw | Endless


class FaultyHttp(ScriptedHttp):
    """A scripted server that also answers with raw bytes, and without end."""

    async def _answer(self, reply: Played, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        match reply:
            case Reply():
                return await super()._answer(reply, reader, writer)
            case Endless(data):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                with contextlib.suppress(ConnectionError):
                    while not writer.is_closing():
                        writer.write(data)
                        await writer.drain()
                        await asyncio.sleep(0)
                self.client_closed.set()
            case Raw(data, Hang()):
                writer.write(data)
                with contextlib.suppress(ConnectionError):
                    await reader.read(1)
            case Raw(data, then):
                writer.write(data)
                await writer.drain()
                if isinstance(then, Reset):
                    sock: socket.socket = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    writer.transport.abort()
        return False
