"""A conversation that goes on after the process that had it is gone (A6, A13.6; security.md 3)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from acp_agent.agent import notes
from acp_agent.agent.history import History, unsigned
from acp_agent.agent.tool_calls import result_part
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import ToolFinished
from acp_agent.core.messages import Message, Role, TextPart, ToolResultPart
from acp_agent.core.sessions import HistoryState

_INTERRUPTED = ToolFailure(
    ToolErrorCategory.CANCELLED,
    "[interrupted] the agent was ended while this ran: what came of it is not known",
    "look at how things are before you do it again",
)
_MOST_SAID = 64 * 1024
"""Characters of an answer without an end that are worth keeping."""


def _untold() -> None:
    """Nobody is told."""


def restored(
    state: HistoryState,
    damaged: Callable[[], None] = _untold,
    cut: str | None = None,
    ended: Sequence[ToolFinished] = (),
) -> History:
    """The conversation as it was kept, and such that a model accepts it.

    A call whose result was not kept is answered as interrupted. Where a row was damaged, what cannot follow the
    messages before it is left out or has a note before it; what can stays.

    damaged   told when rows could not be read, or what can be read does not fit together
    cut       where a turn broke off: what the user has seen of the answer that was being told, without secrets. It
              joins the conversation, and behind it or the results stands a note
    ended     calls of that turn that had ended, also those of a round of which others had not
    """
    history = History()
    sound = state.lost == 0
    for message in state.messages:
        try:
            history.append(message)
        except ValueError:
            sound = False
            _mend(history, message)
    if not sound:
        damaged()
        history = History(unsigned(history.messages()))  # thoughts are signed for what stood before them
    if state.messages[:1] == history.messages()[:1]:
        history.took_up(state.knowledge, state.tokens if sound else history.estimate())
    if cut is not None:
        _break_off(history, cut, {each.use_id: result_part(each.use_id, each.result) for each in ended})
    history.repair(_INTERRUPTED)
    return history


def _break_off(history: History, said: str, known: Mapping[str, ToolResultPart]) -> None:
    """End a turn as far as it came. One whose last answer is whole has ended by itself."""
    if history.awaits_reply:
        history.append(Message(Role.ASSISTANT, (TextPart(said[:_MOST_SAID]),)))
    elif not history.open_calls:
        return
    history.repair(_INTERRUPTED, known)
    history.append(Message(Role.USER, (TextPart(notes.INTERRUPTED),)))


def _mend(history: History, message: Message) -> None:
    """Put a message where what it followed is gone, without what means nothing there."""
    history.repair(_INTERRUPTED)
    if message.role is Role.USER:
        parts = tuple(part for part in message.parts if not isinstance(part, ToolResultPart))
        _appended(history, replace(message, parts=parts))
        return
    if not history.awaits_reply:
        history.append(Message(Role.USER, (TextPart(notes.LOST),)))
    _appended(history, message)


def _appended(history: History, message: Message) -> None:
    """Add it where it fits at all."""
    try:
        history.append(message)
    except ValueError:
        return
