"""Asking the user for more than a yes or no (ACP "Elicitation"; requirements A28)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from acp_agent.core.types import JsonObject


class ElicitationAction(StrEnum):
    """What the user did: filled it in, said no, or closed it. No answer at all counts as the last."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Form:
    """Fields to be filled in; never a secret (ACP).

    schema    a flat JSON Schema object: properties of type string, number, integer, boolean, or an array of choices
    source    the MCP server that wants to know; empty for the agent itself
    call_id   the tool call it belongs to; empty for none
    """

    message: str
    schema: JsonObject
    source: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """A page the user should open in his browser. `id` names the request until it is complete."""

    message: str
    url: str
    id: str
    source: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """`content` fits the form's schema where the action is ACCEPT, else it is empty."""

    action: ElicitationAction
    content: JsonObject


class Elicitor(Protocol):
    """Someone who can be asked."""

    @property
    def forms(self) -> bool:
        """Whether forms can be shown."""
        ...

    @property
    def visits(self) -> bool:
        """Whether pages can be opened."""
        ...

    async def fill_in(self, form: Form) -> ElicitationAnswer:
        """What the user filled in, checked against the schema. Never raises but for cancellation."""
        ...

    async def visit(self, visit: Visit) -> ElicitationAnswer:
        """Whether the user agreed to open the page. Never raises but for cancellation."""
        ...

    def visited(self, visit_id: str) -> None:
        """What the page was for is done: the editor may close its hint (`elicitation/complete`)."""
        ...
