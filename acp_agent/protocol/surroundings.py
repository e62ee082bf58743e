"""What a session is given by the process it lives in."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acp_agent.core.sessions import SessionSnapshot
from acp_agent.protocol.answer import Engine
from acp_agent.protocol.peer import Peer

if TYPE_CHECKING:
    from acp_agent.protocol.session import Session

Background = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a session is given by the process it lives in.

    make_engine   makes what answers its prompts, to go on with what was saved. Raises AgentError
    background    runs a task
    clock         milliseconds since 1970
    """

    peer: Peer
    make_engine: Callable[["Session", SessionSnapshot | None], Awaitable[Engine]]
    background: Background
    clock: Callable[[], int]
