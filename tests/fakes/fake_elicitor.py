"""A user who can be asked: he writes down what he is shown and answers as he was told, or when he is told."""

from dataclasses import dataclass, field

import anyio

from acp_agent.core.ports import ElicitationAction, ElicitationAnswer, Form, Visit
from acp_agent.core.types import JsonObject


@dataclass
class FakeElicitor:
    """Implements core.elicitation.Elicitor.

    content   what he fills in; None: he answers `otherwise`
    hold      with this he answers nothing before it is set
    """

    content: JsonObject | None = None
    otherwise: ElicitationAction = ElicitationAction.DECLINE
    forms: bool = True
    visits: bool = True
    hold: anyio.Event | None = None
    asked: list[Form | Visit] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    shown: anyio.Event = field(default_factory=anyio.Event)

    async def fill_in(self, form: Form) -> ElicitationAnswer:
        return await self._ask(form)

    async def visit(self, visit: Visit) -> ElicitationAnswer:
        return await self._ask(visit)

    def visited(self, visit_id: str) -> None:
        self.gone.append(visit_id)

    async def _ask(self, question: Form | Visit) -> ElicitationAnswer:
        self.asked.append(question)
        self.shown.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.content is None:
            return ElicitationAnswer(self.otherwise, {})
        return ElicitationAnswer(ElicitationAction.ACCEPT, self.content)
