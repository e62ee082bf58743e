"""A story told by a real model server in many small pieces: words, plans, files, commands (for test_killed_turns.py).

The server knows from each request alone where the story is, so that an agent may die at any point and another go on.
"""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

from tests.contract.wire_rules import assert_openai_request
from tests.e2e.model_servers import _HEAD, ListeningModel, _chunk, _read_request

PAUSE = 0.001
"""Seconds before each piece."""
OLD, NEW, NEWER = ("".join(f"{word} {number}\n" for number in range(9_000)) for word in ("old", "new", "newer"))
EDITED, EDITED_TWICE = OLD.replace("old 0\n", "first\n"), OLD.replace("old 0\n", "first\nsecond\n")
BEFORE = {"edited.txt": OLD, "replaced.txt": OLD, "moved.txt": OLD}
MAY_BE = {
    "edited.txt": {OLD, EDITED, EDITED_TWICE},
    "replaced.txt": {OLD, NEW},
    "made.txt": {None, NEW, NEWER},
    "moved.txt": {OLD, None},
    "sub/moved.txt": {OLD, None},
}


@dataclass(frozen=True)
class Step:
    """One answer of the model. `thought` and `text` are numbers of pieces."""

    thought: int = 0
    text: int = 0
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()

    def pieces(self, name: str) -> Iterator[dict[str, Any]]:
        """The deltas."""
        yield from ({"reasoning_content": f"{name}-thought-{number} "} for number in range(self.thought))
        yield from ({"content": f"{name}-{number} "} for number in range(self.text))
        for number, (tool, arguments) in enumerate(self.calls):
            function = {"name": tool, "arguments": json.dumps(arguments)}
            yield {
                "tool_calls": [{"index": number, "id": f"{name}-{number}", "type": "function", "function": function}]
            }


def _bash(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command, **more}


def _plan(done: int) -> tuple[str, dict[str, Any]]:
    entries = [{"content": f"step {n}", "status": "completed" if n < done else "pending"} for n in range(3)]
    return "update_plan", {"entries": entries}


STORY = {
    "first": (
        Step(30, 30, (_plan(0),)),
        Step(0, 10, (("read", {"path": "edited.txt", "limit": 20}), _bash("seq 1 20000"))),
        Step(0, 10, (("edit", {"path": "edited.txt", "old_string": "old 0\n", "new_string": "first\n"}),)),
        Step(
            10,
            0,
            (("write", {"path": "made.txt", "content": NEW}), ("write", {"path": "replaced.txt", "content": NEW})),
        ),
        Step(0, 5, (("move_path", {"source": "moved.txt", "destination": "sub/moved.txt"}),)),
        Step(0, 5, (_plan(1), _bash("for n in 1 2 3 4 5 6; do echo line $n; sleep 0.02; done; exit 3"))),
        Step(0, 60, (_bash("sleep 300", background=True),)),
        Step(0, 3),
    ),
    "second": (
        Step(10, 10, (("edit", {"path": "edited.txt", "old_string": "first\n", "new_string": "first\nsecond\n"}),)),
        Step(0, 10, (("write", {"path": "made.txt", "content": NEWER}), _plan(3))),
        Step(0, 20, (_bash("(setsid sleep 300 &) ; sleep 300 & echo waiting; sleep 300"),)),
    ),
    "third": (Step(3, 3, (("read", {"path": "edited.txt", "limit": 20}),)), Step(0, 5)),
}
PLANS = [json.dumps(_plan(done)[1]["entries"]) for done in (0, 1, 3)]


def told_by_model(kind: str, *turns: str) -> str:
    """All that the user is shown of the model in turns: "content", its messages apart, or "reasoning_content"."""
    told = ""
    for turn in turns:
        said = ([each.get(kind, "") for each in step.pieces(f"{turn}-{n}")] for n, step in enumerate(STORY[turn]))
        texts = (text for pieces in said if (text := "".join(pieces)))
        told += ("\n\n" if kind == "content" else "").join(texts)
    return told


class StoryModel(ListeningModel):
    """Tells STORY with a pause before each piece."""

    async def serve(self, client: SocketStream) -> None:
        async with client:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                await self._tell(client)

    async def _tell(self, client: SocketStream) -> None:
        request = json.loads(await _read_request(client))
        self.requests.append(request)
        turn, number = _position(request["messages"])
        steps = STORY[turn]
        step = steps[number] if number < len(steps) else Step(0, 1)  # a call that the story ends with came to an end
        await client.send(_HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        for piece in step.pieces(f"{turn}-{number}"):
            await anyio.sleep(PAUSE)
            await client.send(_chunk(piece))
        await client.send(_chunk({}, "tool_calls" if step.calls else "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def _position(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """The turn that runs, and how many answers it has had."""
    answers = 0
    for message in reversed(messages):
        if message["role"] == "assistant":
            answers += 1
        elif message["role"] == "user" and (asked := re.findall(r"tell the (\w+) part", json.dumps(message))):
            return asked[-1], answers
    raise AssertionError("no prompt in the request")


@asynccontextmanager
async def story_model() -> AsyncIterator[StoryModel]:
    """The server; afterwards every request it got was one that the API accepts."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        model = StoryModel(listener.extra(SocketAttribute.local_port), [])
        tasks.start_soon(listener.serve, model.serve)
        yield model
        tasks.cancel_scope.cancel()
    for request in model.requests:
        assert_openai_request(json.dumps(request).encode())
