"""A conversation that goes on after the process that had it is gone (A6, A13.6; security.md 3)."""

from acp_agent.agent import notes
from acp_agent.agent.history import History
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.sessions import HistoryState

_LOST = ToolFailure(
    ToolErrorCategory.CANCELLED,
    "[interrupted] the agent was ended while this ran: what came of it is not known",
    "look at how things are before you do it again",
)


def restored(state: HistoryState) -> History:
    """The conversation as it was kept, and such that a model accepts it.

    A call whose result was not kept is answered as interrupted; a turn without an answer says so. What cannot follow
    the messages before it, in a damaged row's place, is left out with all behind it.
    """
    history = History()
    try:
        for message in state.messages:
            history.append(message)
        history.took_up(state.knowledge, state.tokens)
    except ValueError:
        history.took_up(state.knowledge, history.estimate())
    history.repair(_LOST)
    if history.awaits_reply and history.messages()[-1].parts[-1] != TextPart(notes.CANCELLED):
        history.append(Message(Role.USER, (TextPart(notes.INTERRUPTED),)))
    return history
