"""The messages that one session exchanges with its model. Every history that can be built is valid for every model API.

    - Roles alternate and the user begins. Two user messages in a row are merged.
    - No message is empty and no text is blank.
    - All tool uses of an assistant message are answered once, in order, at the start of the next message.
    - The ids of tool uses are not empty, and unique in the whole conversation.
    - Tool uses and thoughts belong to the assistant, results and images to the user.

Everything before the current turn can be shortened: old results become stubs, or a summary replaces all of it. The
summaries stand at the head and form the knowledge block. A turn begins with a prompt. A summary replaces everything
before the turn, and in a long turn also whole rounds behind its prompt. So no result is kept without its tool use.

Appending takes constant time. Shortening looks at the whole conversation.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple, assert_never

from acp_agent.agent import prompt as notes
from acp_agent.agent.tool_calls import result_part
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import ToolFinished
from acp_agent.core.messages import (
    ImagePart,
    Message,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.sessions import HistoryState

BYTES_PER_TOKEN = 4
_MOST_TOKENS = 10_000_000  # the largest window that a user can set
_IMAGE_TOKENS = 1_600  # what a picture of the largest useful size costs, independent of its bytes
_MESSAGE_TOKENS = 4  # role and separators


def text_tokens(text: str) -> int:
    """Return the tokens of a text, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def part_tokens(part: Part) -> int:
    """Return the tokens of a part of a message."""
    match part:
        case ImagePart():
            return _IMAGE_TOKENS
        case TextPart(text):
            return text_tokens(text)
        case ToolResultPart(text=text, images=images):
            return text_tokens(text) + _IMAGE_TOKENS * len(images)
        case ThoughtPart(text, opaque=opaque):
            return text_tokens(text) if opaque is None else text_tokens(json.dumps(opaque))
        case ToolUsePart(name=name, arguments=arguments, raw_arguments=raw):
            return text_tokens(name) + text_tokens(raw or json.dumps(arguments))
        case OpaquePart(payload=payload):
            return text_tokens(json.dumps(payload))
        case _:
            assert_never(part)


def parts_tokens(parts: Iterable[Part]) -> int:
    """Return the tokens of parts that join a message."""
    return sum(map(part_tokens, parts))


def messages_tokens(messages: Iterable[Message]) -> int:
    """Return the tokens of several messages."""
    return sum(_MESSAGE_TOKENS + parts_tokens(message.parts) for message in messages)


class _Fill(NamedTuple):
    """The size of a conversation in tokens.

    `tokens` is the last count of the model plus an estimate of later messages. `size` is our estimate of everything.
    """

    tokens: int = 0
    size: int = 0

    def without(self, tokens: int) -> "_Fill":
        """Return the fill after `tokens` were removed. It is never below its own estimated size."""
        size = self.size - tokens
        return _Fill(max(size, self.tokens - tokens), size)


class History:
    """The messages of a conversation, oldest first. Only one task uses them: a session has one turn at a time."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        """Start with messages that already follow the rules. Raises ValueError if they do not."""
        self._messages: list[Message] = []
        self._frozen: tuple[Message, ...] | None = None
        self._call_ids: set[str] = set()
        self._fill = _Fill()
        self._knowledge = 0  # number of parts of the first message that are summaries
        self._start: tuple[int, int] | None = None  # index of the message and part at which the current turn begins
        self._fill_before = _Fill()  # `_fill` at the beginning of the turn
        for message in messages:
            self.append(message)

    def messages(self) -> tuple[Message, ...]:
        """Return all messages. They are valid in a request while `awaits_reply` is True."""
        if self._frozen is None:
            self._frozen = tuple(self._messages)
        return self._frozen

    @property
    def awaits_reply(self) -> bool:
        """Whether the last message is the user's."""
        return bool(self._messages) and self._messages[-1].role is Role.USER

    @property
    def open_calls(self) -> tuple[ToolUsePart, ...]:
        """The tool uses that have no result yet."""
        return self._messages[-1].tool_uses if self._messages and not self.awaits_reply else ()

    @property
    def call_ids(self) -> AbstractSet[str]:
        """A live view of the ids of all tool uses."""
        return self._call_ids

    def highest_id(self, prefix: str) -> int:
        """Return the highest N of the ids `<prefix>N`, such as `p3`, in the messages; 0 if there is none."""
        ids, found = re.compile(rf"(?<![\w-]){re.escape(prefix)}([1-9][0-9]{{0,8}})(?![\w-])"), 0
        for part in (part for message in self._messages for part in message.parts):
            match part:
                case TextPart(text) | ToolResultPart(text=text):
                    pass
                case ToolUsePart(arguments=arguments, raw_arguments=raw):
                    text = raw or json.dumps(arguments)
                case _:
                    continue
            found = max(found, *map(int, ids.findall(text)), 0)
        return found

    def estimate(self) -> int:
        """Return the tokens of the conversation: the last count of the model, plus an estimate of later messages."""
        return self._fill.tokens

    def measured(self, tokens: int) -> None:
        """Note that the model counted `tokens` for everything up to and including the last message.

        A count larger than any window is ignored: some servers send a negative number as a huge unsigned one.
        """
        if tokens <= _MOST_TOKENS:
            self._fill = self._fill._replace(tokens=tokens)

    def restore_counts(self, knowledge: int, tokens: int) -> None:
        """Note how many leading parts are summaries and how many tokens were counted, after a session was restored."""
        first = self._messages[0].parts if self._messages else ()
        texts = len([*takewhile(lambda part: isinstance(part, TextPart), first)])
        self._knowledge = min(knowledge, texts)
        self.measured(tokens or self._fill.size)

    @property
    def summaries(self) -> int:
        """The number of parts of the first message that are summaries."""
        return self._knowledge

    # -------------------------------------------------------------------------------------- adding

    def append(self, message: Message) -> bool:
        """Add a message. Blank texts are left out, and so is a message without content. Return whether it was added.

        An assistant message needs a text or a tool use: one of thoughts alone is not valid.

        Raises:
            ValueError: The result would break a rule of the module. Nothing is changed.

        """
        parts: list[Part] = []
        tokens, has_content = 0, message.role is Role.USER
        for part in message.parts:
            if isinstance(part, TextPart) and not part.text.strip():
                continue
            parts.append(part)
            tokens += part_tokens(part)
            has_content = has_content or isinstance(part, TextPart | ToolUsePart)
        if message.role is Role.USER:
            self._check_user(parts)
        elif has_content:
            self._check_assistant(parts)
        if not parts or not has_content:
            return False
        if message.role is Role.USER and self.awaits_reply:
            self._messages[-1] = Message(Role.USER, (*self._messages[-1].parts, *parts))
        else:
            self._messages.append(Message(message.role, tuple(parts)))
            tokens += _MESSAGE_TOKENS
        self._fill = _Fill(self._fill.tokens + tokens, self._fill.size + tokens)
        self._frozen = None
        return True

    def _check_user(self, parts: Sequence[Part]) -> None:
        expected = [use.id for use in self.open_calls]
        given: list[str] = []
        results_first = True
        wrong: Part | None = None
        for at, part in enumerate(parts):
            if isinstance(part, ToolResultPart):
                results_first = results_first and len(given) == at
                given.append(part.id)
            elif wrong is None and isinstance(part, ToolUsePart | ThoughtPart):
                wrong = part
        if given != expected or not results_first:
            raise ValueError(f"tool results {given}: expected results for {expected}, in this order, before all else")
        if wrong is not None:
            raise ValueError(f"user message with a {type(wrong).__name__}: expected text, images and results")

    def _check_assistant(self, parts: Sequence[Part]) -> None:
        """Check an assistant message and note the ids of its calls."""
        if not self.awaits_reply:
            raise ValueError("assistant message after none of the user: expected the roles to alternate")
        ids: list[str] = []
        for part in parts:
            if isinstance(part, ToolResultPart | ImagePart):
                wrong = type(part).__name__
                raise ValueError(f"assistant message with a {wrong}: expected text, thoughts and tool uses")  # noqa: TRY004
            if isinstance(part, ToolUsePart):
                ids.append(part.id)
        if "" in ids or len(set(ids)) < len(ids) or not self._call_ids.isdisjoint(ids):
            raise ValueError(f"tool-use ids {ids}: expected each to be new and not empty")
        self._call_ids.update(ids)

    def repair(self, failure: ToolFailure, known: Mapping[str, ToolResultPart] = {}) -> None:
        """Answer every open tool use, for example when a turn ends early: with its result in `known`, or `failure`."""
        if calls := self.open_calls:
            lost = (ToolResultPart(use.id, failure.block(), is_error=True) for use in calls)
            self.append(Message(Role.USER, tuple(known.get(each.id, each) for each in lost)))

    def clear(self) -> None:
        self._replace([], None)
        self._fill = self._fill_before = _Fill()
        self._knowledge = 0

    # --------------------------------------------------------------------------------------- turns

    def begin_turn(self) -> None:
        """Begin a turn: everything appended from here to `end_turn` belongs to it. No tool use may be open."""
        self._start = self._end()
        self._fill_before = self._fill

    def end_turn(self) -> None:
        """End the turn. Its messages now belong to `earlier`."""
        self._start = None

    @property
    def in_turn(self) -> bool:
        return self._start is not None

    @property
    def turn_is_empty(self) -> bool:
        """Whether the current turn has no content yet."""
        return self._start is None or self._start == self._end()

    def forget_turn(self) -> None:
        """Remove everything that the current turn added. What was shortened meanwhile stays short."""
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
        """The messages between the knowledge block and the current turn."""
        before = self._before(self._turn_start())
        if self._knowledge:
            before[0] = replace(before[0], parts=before[0].parts[self._knowledge :])
        return tuple(message for message in before if message.parts)

    def begun(self, kept: int) -> tuple[Message, ...]:
        """Return the prompt of the current turn and all its rounds but the last `kept`. Empty without such rounds."""
        index, part = self._turn_start()
        rounds = len(self._messages[index + 1 :]) // 2 - kept
        if rounds <= 0:
            return ()
        prompt = replace(self._messages[index], parts=self._messages[index].parts[part:])
        return (prompt, *self._messages[index + 1 : index + 1 + 2 * rounds])

    def sum_up(self, knowledge: Sequence[TextPart], begun: int = 0) -> None:
        """Replace the knowledge block and all of `earlier` by `knowledge`. None of its texts may be blank.

        begun   the number of messages after the prompt of the current turn that `knowledge` replaces as well
        """
        index, part = self._turn_start()
        turn = self._messages[index:]
        first = turn[0].parts[part:] if turn else ()
        messages = [Message(Role.USER, (*knowledge, *first)), *unsigned(turn[1 + begun :])]
        self._shorten(messages, (0, len(knowledge)))
        self._knowledge = len(knowledge)

    def replace_results(self, results: Mapping[str, ToolResultPart]) -> None:
        """Replace the results with these ids by shorter ones."""
        messages: list[Message] = []
        for message in self._messages:
            new = [results.get(part.id, part) if isinstance(part, ToolResultPart) else part for part in message.parts]
            messages.append(message if tuple(new) == message.parts else replace(message, parts=tuple(new)))
        changed = [new is not old for new, old in zip(messages, self._messages, strict=True)]
        if True in changed:
            behind = changed.index(True) + 1
            self._shorten([*messages[:behind], *unsigned(messages[behind:])], self._start)

    def _shorten(self, messages: list[Message], start: tuple[int, int] | None) -> None:
        """Replace the messages; the current turn begins at `start`. Lower the count by the estimated difference."""
        old, old_before = self._messages, self._before(self._turn_start())
        self._replace(messages, None if self._start is None else start)
        self._fill = self._fill.without(_saved(old, messages))
        self._fill_before = self._fill_before.without(_saved(old_before, self._before(self._turn_start())))

    # -------------------------------------------------------------------------------------- within

    def _end(self) -> tuple[int, int]:
        """Return where the next user message begins. It is merged into a user message before it."""
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


def _saved(old: Sequence[Message], new: Sequence[Message]) -> int:
    """Return by how many tokens `new` is smaller than `old`. Messages that are in both are not looked at."""
    before, now = {id(message) for message in old}, {id(message) for message in new}
    gone = messages_tokens(message for message in old if id(message) not in now)
    return gone - messages_tokens(message for message in new if id(message) not in before)


def unsigned(messages: Iterable[Message]) -> list[Message]:
    """Return the messages without the thoughts that are valid only while all messages before them stay the same.

    Newer models of Anthropic refuse a signed thought after any earlier message has changed, see "Preserved thinking" on
    platform.claude.com. Reasoning without a signature stays, because some servers want it back within a turn.
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
    "[interrupted] the agent was ended while this ran: its outcome is not known",
    "check what it has changed before you do it again",
)
_MOST_SAID = 64 * 1024
"""How many characters of an unfinished answer are kept."""


def restored(
    state: HistoryState,
    damaged: Callable[[], None] | None = None,
    cut: str | None = None,
    ended: Sequence[ToolFinished] = (),
) -> History:
    """Return a stored conversation in a form that a model accepts.

    A call without a stored result is answered as interrupted. If a row is damaged, messages that cannot follow the
    previous ones are left out or get a note before them.

    damaged   is called if rows could not be read or do not fit together
    cut       the part of an unfinished answer that the user has seen, redacted; None if no turn broke off. It becomes
              an assistant message, and a note follows it
    ended     the results of that turn's finished calls, also of a round that was not finished
    """
    history = History()
    sound = state.lost == 0
    for message in state.messages:
        try:
            history.append(message)
        except ValueError:
            sound = False
            _append_unconnected(history, message)
    if not sound:
        if damaged is not None:
            damaged()
        history = History(unsigned(history.messages()))  # thoughts are signed for the messages before them
    if state.messages[:1] == history.messages()[:1]:
        history.restore_counts(state.knowledge, state.tokens if sound else history.estimate())
    if cut is not None:
        _break_off(history, cut, {each.use_id: result_part(each.use_id, each.result) for each in ended})
    history.repair(_INTERRUPTED)
    return history


def _break_off(history: History, said: str, known: Mapping[str, ToolResultPart]) -> None:
    """End a turn that broke off. Do nothing if its last answer is complete, because it then ended normally."""
    if history.awaits_reply:
        history.append(Message(Role.ASSISTANT, (TextPart(said[:_MOST_SAID]),)))
    elif not history.open_calls:
        return
    history.repair(_INTERRUPTED, known)
    history.append(Message(Role.USER, (TextPart(notes.INTERRUPTED),)))


def _append_unconnected(history: History, message: Message) -> None:
    """Add a message whose predecessors are missing, without the parts that need them."""
    history.repair(_INTERRUPTED)
    if message.role is Role.USER:
        parts = tuple(part for part in message.parts if not isinstance(part, ToolResultPart))
        message = replace(message, parts=parts)
    elif not history.awaits_reply:
        history.append(Message(Role.USER, (TextPart(notes.LOST),)))
    with suppress(ValueError):
        history.append(message)
