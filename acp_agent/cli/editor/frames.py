"""What went over the wire, in order, and how to read and await it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import anyio

from acp_agent.core.types import Json, JsonObject


class Direction(StrEnum):
    """Who sent a frame."""

    TO_AGENT = "to_agent"
    FROM_AGENT = "from_agent"


class JsonRpcError(Exception):
    """An `error` member: received by a request of ours, or raised to be sent as the answer to one of theirs."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(f"{message} ({code})" if data is None else f"{message} ({code}): {data}")
        self.code = code
        self.message = message
        self.data = data


def at(value: Json, *path: str | int) -> Json:
    """The value below `value` at `path` (member names, list indexes); None where there is none."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: Json, *path: str | int) -> str:
    """The string at `path`, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def objects_at(value: Json, *path: str | int) -> list[JsonObject]:
    """The objects of the list at `path`, or an empty list."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class Frame:
    """One JSON-RPC message. `time` is on the monotonic clock, in seconds, when it was written or read whole."""

    direction: Direction
    message: JsonObject
    time: float

    @property
    def method(self) -> str:
        """The method of a request or notification; empty for a response."""
        return text_at(self.message, "method")

    @property
    def params(self) -> JsonObject:
        """The parameters of a request or notification; empty when there are none."""
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def update(self) -> JsonObject:
        """What a `session/update` of the agent says; empty for any other frame."""
        update = at(self.message, "params", "update")
        return update if self.method == "session/update" and isinstance(update, dict) else {}

    @property
    def is_request(self) -> bool:
        """Whether the sender waits for an answer."""
        return "method" in self.message and "id" in self.message

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return "method" not in self.message


class Recording:
    """Every frame of a connection in the order it passed, both directions. `watch` sees each as it passes."""

    def __init__(self, watch: Callable[[Frame], None] | None = None) -> None:
        self.frames: list[Frame] = []
        self._watch = watch
        self._grown = anyio.Event()

    def add(self, frame: Frame) -> None:
        """Append a frame and wake everybody who waits for one."""
        self.frames.append(frame)
        if self._watch is not None:
            self._watch(frame)
        self._grown.set()
        self._grown = anyio.Event()

    async def until(self, wanted: Callable[[Frame], bool], start: int = 0) -> int:
        """The index of the first frame from `start` on that is wanted, waiting for it as long as it takes."""
        while True:
            for index in range(start, len(self.frames)):
                if wanted(self.frames[index]):
                    return index
            start = len(self.frames)
            await self._grown.wait()

    def updates(self, kind: str = "") -> list[JsonObject]:
        """The agent's session updates in order, all or those whose `sessionUpdate` is `kind`."""
        found = [frame.update for frame in self.frames if frame.update]
        return [update for update in found if not kind or update.get("sessionUpdate") == kind]
