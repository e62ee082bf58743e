"""The conversation one session has with its model. Only sequences every model API accepts can be built.

    roles alternate, the user begins; two messages of one user in a row become one
    no message is empty, no text blank
    an assistant message's tool uses are answered all, once, in order, at the start of the very next message (L1.6)
    tool-use ids are not empty and unique in the whole conversation
    tool uses and thoughts are the assistant's, results and images the user's

What lies before the current turn can be shortened (L11): old results by stubs, or all of it by a summary. Summaries
stand at the head, one after the other: the knowledge block. A message that lost its tool uses cannot leave a result
behind, for a turn begins with a prompt, and what lies before that goes as a whole.

Appending costs the same however long the conversation is; shortening looks at all of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import takewhile

from acp_agent.agent import notes
from acp_agent.agent.tokens import message_tokens, messages_tokens, parts_tokens
from acp_agent.agent.tool_calls import result_part
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import ToolFinished
from acp_agent.core.messages import (
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.sessions import HistoryState


@dataclass(frozen=True, slots=True)
class _Fill:
    """How full a conversation is. `tokens` is what a model counted and what came since, `size` our estimate of all."""

    tokens: int = 0
    size: int = 0

    def added(self, tokens: int) -> "_Fill":
        return _Fill(self.tokens + tokens, self.size + tokens)

    def without(self, tokens: int) -> "_Fill":
        """What is left is never less than its own size: a count of tokens and an estimate of them may be far apart."""
        size = self.size - tokens
        return _Fill(max(size, self.tokens - tokens), size)


class History:
    """Messages, oldest first. Not for two tasks at once: a session has one turn at a time."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        """Start with messages that already follow the rules. Raises ValueError where they do not."""
        self._messages: list[Message] = []
        self._frozen: tuple[Message, ...] | None = None
        self._call_ids: set[str] = set()
        self._fill = _Fill()
        self._knowledge = 0  # parts of the first message that are summaries
        self._start: tuple[int, int] | None = None  # message and part the current turn begins with
        self._fill_before = _Fill()  # what `_fill` was when it began
        for message in messages:
            self.append(message)

    def messages(self) -> tuple[Message, ...]:
        """All of them; fit for a request while `awaits_reply` holds."""
        if self._frozen is None:
            self._frozen = tuple(self._messages)
        return self._frozen

    @property
    def awaits_reply(self) -> bool:
        """Whether the user spoke last."""
        return bool(self._messages) and self._messages[-1].role is Role.USER

    @property
    def open_calls(self) -> tuple[ToolUsePart, ...]:
        """Tool uses that wait for their results."""
        return self._messages[-1].tool_uses if self._messages and not self.awaits_reply else ()

    @property
    def call_ids(self) -> AbstractSet[str]:
        """Every tool-use id in use, now and later: a view."""
        return self._call_ids

    def estimate(self) -> int:
        """Tokens the conversation fills: what was measured, and what was added since by its size."""
        return self._fill.tokens

    def measured(self, tokens: int) -> None:
        """The model counted `tokens` for everything up to and including the last message."""
        self._fill = replace(self._fill, tokens=tokens)

    def took_up(self, knowledge: int, tokens: int) -> None:
        """Its first parts are summaries, and so many tokens were measured: what its messages alone do not say."""
        first = self._messages[0].parts if self._messages else ()
        texts = len([*takewhile(lambda part: isinstance(part, TextPart), first)])
        self._knowledge = min(knowledge, texts)
        self.measured(tokens or self._fill.size)

    @property
    def summaries(self) -> int:
        """How many parts of the first message are summaries."""
        return self._knowledge

    # -------------------------------------------------------------------------------------- adding

    def append(self, message: Message) -> None:
        """Add a message; blank texts are left out, and a message without any content altogether.

        Raises ValueError, and changes nothing, if the result would break a rule of the module.
        """
        parts = tuple(part for part in message.parts if not _is_blank(part))
        if message.role is Role.USER:
            self._append_user(parts)
        else:
            self._append_assistant(parts)
        self._frozen = None

    def repair(self, failure: ToolFailure, known: Mapping[str, ToolResultPart] = {}) -> None:
        """Answer every open tool use, as happens when a turn ends early (A13.6): by `failure` where none is `known`."""
        if calls := self.open_calls:
            lost = (ToolResultPart(use.id, failure.block(), is_error=True) for use in calls)
            self.append(Message(Role.USER, tuple(known.get(each.id, each) for each in lost)))

    def clear(self) -> None:
        """Forget everything."""
        self._replace([], None)
        self._fill = self._fill_before = _Fill()
        self._knowledge = 0

    # --------------------------------------------------------------------------------------- turns

    def begin_turn(self) -> None:
        """What is appended from here on is the current turn, up to `end_turn`. No tool use may be open."""
        self._start = self._end()
        self._fill_before = self._fill

    def end_turn(self) -> None:
        """From here on the last turn counts with those before it."""
        self._start = None

    @property
    def in_turn(self) -> bool:
        """Whether a turn is under way."""
        return self._start is not None

    @property
    def turn_is_empty(self) -> bool:
        """Whether the current turn has said nothing yet."""
        return self._start is None or self._start == self._end()

    def forget_turn(self) -> None:
        """Take back all that the current turn has said; what was shortened meanwhile stays so."""
        if not self.turn_is_empty:
            self._replace(self._before(self._turn_start()), self._start)
            self._fill = self._fill_before

    # ---------------------------------------------------------------------------------- shortening

    @property
    def knowledge(self) -> tuple[TextPart, ...]:
        """The summaries at the head."""
        parts = self._messages[0].parts[: self._knowledge] if self._knowledge else ()
        return tuple(part for part in parts if isinstance(part, TextPart))

    @property
    def earlier(self) -> tuple[Message, ...]:
        """What lies between the knowledge block and the current turn."""
        before = self._before(self._turn_start())
        if self._knowledge:
            before[0] = replace(before[0], parts=before[0].parts[self._knowledge :])
        return tuple(message for message in before if message.parts)

    def sum_up(self, knowledge: Sequence[TextPart]) -> None:
        """Put `knowledge` in the place of the knowledge block and all of `earlier`. No text of it may be blank."""
        index, part = self._turn_start()
        turn = self._messages[index:]
        first = turn[0].parts[part:] if turn else ()
        messages = [Message(Role.USER, (*knowledge, *first)), *unsigned(turn[1:])]
        self._shorten(messages, (0, len(knowledge)))
        self._knowledge = len(knowledge)

    def replace_results(self, results: Mapping[str, ToolResultPart]) -> None:
        """Put shorter results in the place of those with the same ids."""
        messages = [_with_results(message, results) for message in self._messages]
        changed = [new is not old for new, old in zip(messages, self._messages, strict=True)]
        if True in changed:
            behind = changed.index(True) + 1
            self._shorten([*messages[:behind], *unsigned(messages[behind:])], self._start)

    def _shorten(self, messages: list[Message], start: tuple[int, int] | None) -> None:
        """Take other messages, the current turn beginning at `start`. The measure shrinks as the estimate does."""
        old, old_before = self._messages, self._before(self._turn_start())
        self._replace(messages, None if self._start is None else start)
        self._fill = self._fill.without(_saved(old, messages))
        self._fill_before = self._fill_before.without(_saved(old_before, self._before(self._turn_start())))

    # -------------------------------------------------------------------------------------- within

    def _end(self) -> tuple[int, int]:
        """Where the next user message would begin: it joins one that is there."""
        count = len(self._messages)
        return (count - 1, len(self._messages[-1].parts)) if self.awaits_reply else (count, 0)

    def _turn_start(self) -> tuple[int, int]:
        return self._end() if self._start is None else self._start

    def _before(self, position: tuple[int, int]) -> list[Message]:
        index, part = position
        messages = self._messages[:index]
        if part:
            messages.append(replace(self._messages[index], parts=self._messages[index].parts[:part]))
        return messages

    def _replace(self, messages: list[Message], start: tuple[int, int] | None) -> None:
        self._messages = messages
        self._frozen = None
        self._call_ids = {use.id for message in messages for use in message.tool_uses}
        self._start = start

    def _append_user(self, parts: tuple[Part, ...]) -> None:
        results = tuple(takewhile(lambda part: isinstance(part, ToolResultPart), parts))
        expected = [use.id for use in self.open_calls]
        given = [part.id for part in parts if isinstance(part, ToolResultPart)]
        if given != expected or len(results) != len(given):
            raise ValueError(f"tool results {given}: expected results for {expected}, in this order, before all else")
        if wrong := [part for part in parts if isinstance(part, ToolUsePart | ThoughtPart)]:
            raise ValueError(f"user message with a {type(wrong[0]).__name__}: expected text, images and results")
        if not parts:
            return
        if self.awaits_reply:
            last = self._messages[-1]
            self._messages[-1] = replace(last, parts=(*last.parts, *parts))
            self._fill = self._fill.added(parts_tokens(parts))
        else:
            self._add(Message(Role.USER, parts))

    def _append_assistant(self, parts: tuple[Part, ...]) -> None:
        if not has_substance(parts):
            return
        if not self.awaits_reply:
            raise ValueError("assistant message after none of the user: expected the roles to alternate")
        if wrong := [part for part in parts if isinstance(part, ToolResultPart | ImagePart)]:
            raise ValueError(
                f"assistant message with a {type(wrong[0]).__name__}: expected text, thoughts and tool uses"
            )
        ids = [part.id for part in parts if isinstance(part, ToolUsePart)]
        if "" in ids or len(set(ids)) < len(ids) or not self._call_ids.isdisjoint(ids):
            raise ValueError(f"tool-use ids {ids}: expected each to be new and not empty")
        self._add(Message(Role.ASSISTANT, parts))
        self._call_ids.update(ids)

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        self._fill = self._fill.added(message_tokens(message))


def has_substance(parts: tuple[Part, ...]) -> bool:
    """Whether an assistant message says or does anything: thoughts alone cannot stand in a conversation."""
    return any(isinstance(part, ToolUsePart) or (isinstance(part, TextPart) and not _is_blank(part)) for part in parts)


def _is_blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _with_results(message: Message, results: Mapping[str, ToolResultPart]) -> Message:
    if not isinstance(message.parts[0], ToolResultPart):  # results stand first
        return message
    parts = tuple(results.get(part.id, part) if isinstance(part, ToolResultPart) else part for part in message.parts)
    return message if parts == message.parts else replace(message, parts=parts)


def _saved(old: Sequence[Message], new: Sequence[Message]) -> int:
    """Tokens by which `new` is the smaller one; messages that stand in both are not looked at."""
    before, now = {id(message) for message in old}, {id(message) for message in new}
    gone = messages_tokens(message for message in old if id(message) not in now)
    return gone - messages_tokens(message for message in new if id(message) not in before)


def unsigned(messages: Iterable[Message]) -> list[Message]:
    """The messages without thoughts that are good only behind exactly what preceded them.

    Newer models of Anthropic refuse a signed thought once anything before it has changed (platform.claude.com,
    "Preserved thinking"). Reasoning that bears no signature stays: some servers want it back within a turn.
    """
    return [
        replace(message, parts=tuple(part for part in message.parts if not _is_signed(part)))
        if any(map(_is_signed, message.parts))
        else message
        for message in messages
    ]


def _is_signed(part: Part) -> bool:
    opaque = part.opaque if isinstance(part, ThoughtPart) else None
    return opaque is not None and ("signature" in opaque or opaque.get("type") == "redacted_thinking")


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
