"""A model server on loopback that knows when each request came and when each answer was out.

What lies between the end of one answer and the next request is the agent's own: the tool and all around it.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Model(ThreadingHTTPServer):
    """Plays OpenAI Chat Completions: a tool call for each of `arguments`, then a word. None stalls for good.

    What it plays may be changed between turns.

    pieces   how many deltas the text of an answer comes in
    latency  seconds before each answer to a request with tools
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, tool: str, arguments: list[dict[str, Any]] | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tool = tool
        self.arguments = arguments
        self.pieces = 1
        self.latency = 0.0
        self.arrived: list[float] = []
        self.answered: list[float] = []
        self.received: list[int] = []  # bytes of each request
        self.stalling = threading.Event()
        self.over = threading.Event()

    @property
    def config(self) -> str:
        return (
            f'[llm]\nmodel = "bench:any"\n[agent]\nmax_tool_iterations = 100\n[[llm.providers]]\nname = "bench"\n'
            f'type = "openai"\nbase_url = "http://127.0.0.1:{self.server_port}/v1"\napi_key_env = "BENCH_KEY"\n'
        )

    @property
    def overheads(self) -> list[float]:
        """Seconds between an answer and the request after it, one for each tool call."""
        return [came - out for out, came in zip(self.answered, self.arrived[1:], strict=False)]


@contextmanager
def serving(tool: str, arguments: list[dict[str, Any]] | None) -> Iterator[Model]:
    """A model server, until the body is left."""
    model = Model(tool, arguments)
    thread = threading.Thread(target=model.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        model.over.set()
        model.shutdown()
        thread.join()
        model.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or its 40 ms would be measured
    wbufsize = -1
    server: Model

    def do_POST(self) -> None:
        arrived = time.monotonic()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(body)
        if not request.get("tools"):
            self._answer({"content": "ok"}, "stop")  # a side request, such as one for a title
            return
        roles = [message["role"] for message in request["messages"]]
        step = roles[::-1][: roles[::-1].index("user")].count("tool")  # of this turn
        self.server.arrived.append(arrived)
        self.server.received.append(len(body))
        if self.server.arguments is None:
            self.server.stalling.set()
            self.server.over.wait()
            return
        self.server.over.wait(self.server.latency)
        if step >= len(self.server.arguments):
            self._answer({"content": "done "}, "stop", self.server.pieces)
        else:
            function = {"name": self.server.tool, "arguments": json.dumps(self.server.arguments[step])}
            call = {"index": 0, "id": f"call_{step}", "type": "function", "function": function}
            self._answer({"tool_calls": [call]}, "tool_calls")
        self.server.answered.append(time.monotonic())

    def _answer(self, delta: dict[str, Any], finish: str, pieces: int = 1) -> None:
        choices = [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]
        end = [{"index": 0, "delta": {}, "finish_reason": finish}]
        head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "any"}
        events = [json.dumps({**head, "choices": part}) for part in (*[choices] * pieces, end)]
        body = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *args: object) -> None:
        """Silence: the table is the output."""
