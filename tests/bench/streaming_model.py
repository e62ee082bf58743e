"""A model server on loopback that streams long answers and says, inside the first piece, when it sent it."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PIECES = 2_000
"""Text deltas of one answer; a tool call in 300 pieces comes before the end of an Anthropic answer."""
CALL_PIECES = 300
PIECE = "some words "
"""Each text delta but the first, which is the time of its sending."""


class StreamingModel(ThreadingHTTPServer):
    """Plays Anthropic Messages and OpenAI Chat Completions, by the path that is asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def streaming() -> Iterator[StreamingModel]:
    """The server, until the body is left."""
    model = StreamingModel()
    thread = threading.Thread(target=model.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        model.shutdown()
        thread.join()
        model.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        first, rest = _anthropic() if self.path.endswith("/messages") else _chat()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        time.sleep(0.02)  # the headers arrive before the first piece, as from a model that thinks
        self._chunk(first.replace(b"@@@", str(time.monotonic()).encode()))
        time.sleep(0.02)  # the first piece arrives alone
        self._chunk(rest)
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *args: object) -> None:
        """Silence: the table is the output."""


def _event(payload: dict[str, Any]) -> bytes:
    name = f"event: {payload['type']}\n" if "type" in payload else ""
    return f"{name}data: {json.dumps(payload)}\n\n".encode()


def _anthropic() -> tuple[bytes, bytes]:
    def delta(index: int, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": fields}

    usage = {"input_tokens": 10, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    text = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    first = [{"type": "message_start", "message": {**head, "usage": usage}}, text]
    rest = [
        *(delta(0, type="text_delta", text=PIECE) for _ in range(PIECES - 1)),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": call},
        delta(1, type="input_json_delta", partial_json='{"path": "'),
        *(delta(1, type="input_json_delta", partial_json="name/") for _ in range(CALL_PIECES)),
        delta(1, type="input_json_delta", partial_json='"}'),
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2_300}},
        {"type": "message_stop"},
    ]
    begun = b"".join(map(_event, first)) + _event(delta(0, type="text_delta", text="@@@"))
    return begun, b"".join(map(_event, rest))


def _chat() -> tuple[bytes, bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        return _event({**head, "choices": choices})

    rest = [chunk({"content": PIECE}) for _ in range(PIECES - 1)]
    return chunk({"role": "assistant", "content": "@@@"}), b"".join([*rest, chunk({}, "stop"), b"data: [DONE]\n\n"])
