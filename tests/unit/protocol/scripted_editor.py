"""An editor that answers file and terminal requests as a test says."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from acp_agent.core.errors import BackendUnavailable
from acp_agent.protocol.peer import Peer
from tests.unit.protocol.wires import OtherEnd, connected

Answer = Callable[[dict[str, Any]], Any]
REFUSALS = [-32603, -32600, -32602, -32000, -32800, -1, 0, 1, 403]
"""Codes of errors that are refusals, and do not mean that the editor cannot."""


class Refusal(Exception):
    """The editor answers with this error."""

    def __init__(self, code: int, message: str = "no") -> None:
        super().__init__(message)
        self.code = code


def write(params: dict[str, Any]) -> Any:
    """What an honest editor does."""
    path = Path(params["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(params["content"], newline="")
    return {}


class Editor:
    """Answers by method; NEVER leaves a request open. Remembers every request in order."""

    NEVER = object()

    def __init__(self, peer: Peer, **answers: Any) -> None:
        self.peer = peer
        self.answers = {name.replace("_", "/", 1): answer for name, answer in answers.items()}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.grown = anyio.Event()
        self.open: dict[str, Any] = {}
        self.other: OtherEnd | None = None

    def settle(self, method: str, result: Any) -> None:
        """Answer the last request of this method that was left open."""
        assert self.other is not None
        self.other.send(id=self.open.pop(method), result=result)

    async def serve(self, other: OtherEnd) -> None:
        self.other = other
        while True:
            request = await other.receive()
            method, params = request["method"], request["params"]
            self.requests.append((method, params))
            self.grown.set()
            self.grown = anyio.Event()
            answer = self.answers.get(method, write if method == "fs/write_text_file" else {})
            if answer is self.NEVER:
                self.open[method] = request["id"]
                continue
            try:
                result = answer(params) if callable(answer) else answer
            except Refusal as refusal:
                other.send(id=request["id"], error={"code": refusal.code, "message": str(refusal)})
            else:
                other.send(id=request["id"], result=result)

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]


@asynccontextmanager
async def editor(**answers: Any) -> AsyncIterator[Editor]:
    async with connected() as (peer, other):
        editing = Editor(peer, **answers)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(editing.serve, other)
            yield editing
            tasks.cancel_scope.cancel()


async def quiet(_output: str) -> None:
    pass


async def tell_nobody(_error: BackendUnavailable) -> None:
    pass


def refuse(code: int, message: str = "no") -> Answer:
    def answer(_params: dict[str, Any]) -> Any:
        raise Refusal(code, message)

    return answer
