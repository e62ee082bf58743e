"""What the user should hear of outside of what he asked for."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from acp_agent.core.events import Event, Notice, Severity
from acp_agent.core.redaction import Redact


class Notices:
    """Notices that wait for a turn: told when one begins or ends, for then somebody reads them."""

    def __init__(self, waiting: Sequence[Notice] = ()) -> None:
        self._waiting = list(waiting)

    def add(self, notice: Notice) -> None:
        """Keep one to be told."""
        self._waiting.append(notice)

    def warn(self, problem: str) -> None:
        """Keep a warning to be told."""
        self.add(Notice(Severity.WARNING, problem))

    async def tell(self, emit: Callable[[Event], Awaitable[None]], redact: Redact) -> None:
        """Tell all there are, without secrets."""
        while self._waiting:
            notice = self._waiting.pop(0)
            await emit(replace(notice, text=redact(notice.text)))
