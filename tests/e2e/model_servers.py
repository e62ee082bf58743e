"""Model servers that misbehave, over a real socket (OpenAI Chat Completions)."""

import json
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
from anyio.abc import SocketAttribute, SocketStream

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class StallingModel:
    """Begins an answer and never ends it.

    asked     set when a request has come
    hung_up   set when the agent closed its connection
    """

    port: int
    text: str
    asked: anyio.Event = field(default_factory=anyio.Event)
    hung_up: anyio.Event = field(default_factory=anyio.Event)

    @property
    def options(self) -> dict[str, Any]:
        """What `editing` needs to use it."""
        return {"config": _config("stalling", self.port), "environment": {"MODEL_KEY": "obviously-fake"}}

    async def serve(self, client: SocketStream) -> None:
        async with client:
            await _read_request(client)
            if self.text:
                await client.send(_HEAD + _chunk({"role": "assistant", "content": self.text}))
            self.asked.set()
            try:
                while True:
                    await client.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self.hung_up.set()


@asynccontextmanager
async def stalling_model(text: str) -> AsyncIterator[StallingModel]:
    """Says `text`, or nothing at all when it is empty, and then keeps the connection open."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        model = StallingModel(listener.extra(SocketAttribute.local_port), text)
        tasks.start_soon(listener.serve, model.serve)
        yield model
        tasks.cancel_scope.cancel()


@dataclass
class RefusingModel:
    """Answers every request with an HTTP error."""

    port: int
    status: int

    @property
    def options(self) -> dict[str, Any]:
        """What `editing` needs to use it."""
        return {"config": _config("refusing", self.port), "environment": {"MODEL_KEY": "obviously-fake"}}

    async def serve(self, client: SocketStream) -> None:
        body = b'{"error":{"message":"Incorrect API key provided","type":"invalid_request_error"}}'
        async with client:
            await _read_request(client)
            head = f"HTTP/1.1 {self.status} No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            await client.send(head.encode() + b"Connection: close\r\n\r\n" + body)


@asynccontextmanager
async def refusing_model(status: int) -> AsyncIterator[RefusingModel]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        model = RefusingModel(listener.extra(SocketAttribute.local_port), status)
        tasks.start_soon(listener.serve, model.serve)
        yield model
        tasks.cancel_scope.cancel()


@dataclass
class ListeningModel:
    """Remembers what it was sent. Answers with tool calls for each of `calls` in turn, and with "ok" after them."""

    port: int
    calls: list[tuple[str, dict[str, Any]]]
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def options(self) -> dict[str, Any]:
        """What `editing` needs to use it."""
        return {"config": _config("listening", self.port), "environment": {"MODEL_KEY": "obviously-fake"}}

    async def serve(self, client: SocketStream) -> None:
        async with client:
            request = json.loads(await _read_request(client))
            self.requests.append(request)
            await self.ready(request)
            wanted = self.answer(request)
            if wanted == HANGS_UP:
                return
            if wanted == HANGS:
                await anyio.sleep_forever()
            delta: dict[str, Any] = {"role": "assistant", "content": wanted}
            if not isinstance(wanted, str):
                delta = {
                    "role": "assistant",
                    "tool_calls": self._tools(wanted if isinstance(wanted, list) else [wanted]),
                }
            finish = "tool_calls" if "tool_calls" in delta else "stop"
            body = _chunk(delta) + _chunk({}, finish) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
            await client.send(_HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + body)

    def _tools(self, uses: "list[ToolUse]") -> list[dict[str, Any]]:
        return [
            {
                "index": index,
                "id": f"call-{len(self.requests)}-{index}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(uses)
        ]

    async def ready(self, request: dict[str, Any]) -> None:
        """Wait before answering."""

    def answer(self, request: dict[str, Any]) -> "str | ToolUse | list[ToolUse]":
        """What to say to a request, or to call."""
        del request
        return self.calls[len(self.requests) - 1] if len(self.requests) <= len(self.calls) else "ok"


@dataclass
class MeetingModel(ListeningModel):
    """Gives a prompt `go` to several agents in one answer, and answers theirs when all of them have asked.

    tasks   what each of them is told
    """

    tasks: Sequence[str] = ()
    _here: int = 0
    _met: anyio.Event = field(default_factory=anyio.Event)

    async def ready(self, request: dict[str, Any]) -> None:
        if last_prompt(request) in self.tasks:
            self._here += 1
            if self._here == len(self.tasks):
                self._met.set()
            await self._met.wait()

    def answer(self, request: dict[str, Any]) -> "str | ToolUse | list[ToolUse]":
        prompt = last_prompt(request)
        if prompt in self.tasks:
            return f"report of {prompt}"
        if any(message["role"] == "tool" for message in request["messages"]):
            return "all have reported"
        return [("agent", {"agent": "explore", "task": task}) for task in self.tasks]


def last_prompt(request: dict[str, Any]) -> str:
    """The last words of the user in a request."""
    said = [str(message["content"]) for message in request["messages"] if message["role"] == "user"]
    return said[-1] if said else ""


@asynccontextmanager
async def meeting_model(*tasks: str) -> AsyncIterator[MeetingModel]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        model = MeetingModel(listener.extra(SocketAttribute.local_port), [], tasks=tasks)
        group.start_soon(listener.serve, model.serve)
        yield model
        group.cancel_scope.cancel()


@dataclass
class ListingModel:
    """Lists its models, and answers nothing else."""

    port: int
    models: tuple[str, ...]

    @property
    def options(self) -> dict[str, Any]:
        """What `editing` needs to use it; no model is chosen."""
        config = "\n".join(line for line in _config("list", self.port).splitlines() if not line.startswith("model ="))
        environment = {"MODEL_KEY": "obviously-fake", "ACP_AGENT_LLM__LIST_MODELS": "true"}
        return {"config": config, "environment": environment}

    async def serve(self, client: SocketStream) -> None:
        async with client:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await client.receive()
            listed = json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(listed)}\r\n"
            await client.send(f"{head}Connection: close\r\n\r\n{listed}".encode())


@asynccontextmanager
async def listing_model(*models: str) -> AsyncIterator[ListingModel]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        model = ListingModel(listener.extra(SocketAttribute.local_port), models)
        tasks.start_soon(listener.serve, model.serve)
        yield model
        tasks.cancel_scope.cancel()


HANGS_UP, HANGS = "(hangs up)", "(hangs)"
"""Answers that are none."""

ToolUse: TypeAlias = tuple[str, dict[str, Any]]
Thought: TypeAlias = Generator[str | ToolUse, str]
"""What a model does: yields calls, and is sent what each of them said; yields texts, and is sent the next prompt."""


@dataclass
class ThinkingModel(ListeningModel):
    """Makes up its mind as it goes. Requests without tools, such as for a summary, are answered with `summary`."""

    thought: Thought = field(default_factory=lambda: (word for word in ()))
    summary: str = ""
    _begun: bool = False

    def answer(self, request: dict[str, Any]) -> str | ToolUse:
        if not request.get("tools"):
            return self.summary
        # What the loop itself remarks behind a result is not what the thought waits for.
        said = [
            text for each in request["messages"] if not str(text := each["content"]).startswith("[self_reflection]")
        ]
        told, self._begun = (said[-1], True) if self._begun else (None, True)
        try:
            return self.thought.send(told)
        except StopIteration:
            return "ok"


@asynccontextmanager
async def thinking_model(thought: Thought, summary: str = "") -> AsyncIterator[ThinkingModel]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        port = listener.extra(SocketAttribute.local_port)
        model = ThinkingModel(port, [], thought=thought, summary=summary)
        tasks.start_soon(listener.serve, model.serve)
        yield model
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def listening_model(*calls: tuple[str, dict[str, Any]]) -> AsyncIterator[ListeningModel]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        model = ListeningModel(listener.extra(SocketAttribute.local_port), list(calls))
        tasks.start_soon(listener.serve, model.serve)
        yield model
        tasks.cancel_scope.cancel()


def _config(name: str, port: int) -> str:
    return (
        f'[llm]\nmodel = "{name}:any"\n[[llm.providers]]\nname = "{name}"\ntype = "openai"\n'
        f'base_url = "http://127.0.0.1:{port}/v1"\napi_key_env = "MODEL_KEY"\n'
    )


async def _read_request(client: SocketStream) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await client.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while len(body) < int(lengths[0]):
        body += await client.receive()
    return body


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    event: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "any"}
    event["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
    line = b"data: " + json.dumps(event).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(line), line)
