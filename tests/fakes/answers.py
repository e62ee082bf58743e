"""How an editor may answer what the agent asks: honestly, wrongly, late, twice, never."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from acp_agent.cli.agent_process import RecordedFrame
from tests.fakes.held import PATIENCE
from tests.fakes.plain_editor import PlainEditor

if TYPE_CHECKING:
    from tests.fakes.editor import ScriptedEditor


@dataclass
class Call:
    """One request of the agent that the test answers as it likes, or not at all."""

    editor: "ScriptedEditor"
    frame: RecordedFrame

    @property
    def params(self) -> dict[str, Any]:
        return self.frame.params

    async def reply(self, result: Any) -> None:
        await self.send({"result": result})

    async def refuse(self, code: int, message: str) -> None:
        await self.send({"error": {"code": code, "message": message}})

    async def send(self, members: dict[str, Any]) -> None:
        """An answer with any members at all beside `jsonrpc` and `id`."""
        await self.editor.agent.send({"jsonrpc": "2.0", "id": self.frame.message["id"], **members})

    async def serve(self) -> None:
        """The honest answer."""
        await PlainEditor.answer(self.editor, self.frame)


Override = Callable[[Call], Awaitable[None]]


def refusing(code: int, message: str) -> Override:
    async def refuse(call: Call) -> None:
        await call.refuse(code, message)

    return refuse


def answering(result: Any) -> Override:
    async def answer(call: Call) -> None:
        await call.reply(result)

    return answer


async def never(call: Call) -> None:
    """No answer, ever."""


async def twice(call: Call) -> None:
    await call.serve()
    await call.serve()


class Holding:
    """An override that keeps requests for the test to answer when it wants to."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._arrived = anyio.Event()

    async def __call__(self, call: Call) -> None:
        self.calls.append(call)
        self._arrived.set()
        self._arrived = anyio.Event()

    async def next(self, number: int = 1) -> Call:
        """The `number`-th request, waiting for it."""
        with anyio.fail_after(PATIENCE):
            while len(self.calls) < number:
                await self._arrived.wait()
        return self.calls[number - 1]


def choosing(kind: str | None) -> Callable[[dict[str, Any]], Awaitable[str | None]]:
    """A user who always picks the option of a kind, or with this id; None dismisses the question."""

    async def decide(params: dict[str, Any]) -> str | None:
        offered = params["options"]
        return next((each["optionId"] for each in offered if kind in (each["kind"], each["optionId"])), None)

    return decide


allowing = choosing("allow_once")
rejecting = choosing("reject_once")
dismissing = choosing(None)
