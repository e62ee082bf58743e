"""The conversation as the store has it: no secret of the user's in it, and nothing written twice."""

import threading

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent.history import History, restored
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
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.redaction.rules import KnownSecrets
from acp_agent.session.engine import RedactedHistory

SECRET = "tok-obviously-fake-4711-abcdef"


def redactor() -> Redactor:
    secrets = KnownSecrets()
    secrets.add([SECRET])
    return Redactor(secrets)


def user(*parts: Part) -> Message:
    return Message(Role.USER, parts)


def agent(*parts: Part) -> Message:
    return Message(Role.ASSISTANT, parts)


def test_what_the_user_and_the_model_wrote_is_kept_without_secrets() -> None:
    history = History([user(TextPart(f"use {SECRET}")), agent(TextPart(f"I use {SECRET}."))])
    history.append(user(TextPart("go")))
    history.append(agent(ToolUsePart("1", "bash", {"command": f"curl -H {SECRET}", "deep": [{"a": SECRET}]})))
    kept = RedactedHistory(history, redactor()).state()
    assert SECRET not in repr(kept)
    assert [message.role for message in kept.messages] == [message.role for message in history.messages()]
    assert SECRET in repr(history.messages()), "the model goes on with what it was told"


def test_a_call_nobody_could_understand_is_kept_without_secrets_too_and_under_a_name() -> None:
    call = ToolUsePart("1", f"no-{SECRET}", None, f'{{"a": "{SECRET}')
    history = History([user(TextPart("go")), agent(call, ToolUsePart("2", "mcp__a.b", {}))])
    (kept, known) = RedactedHistory(history, redactor()).state().messages[-1].parts
    assert kept == ToolUsePart("1", "no-_REDACTED_known_", None, '{"a": "[REDACTED:known]')
    assert known == ToolUsePart("2", "mcp__a.b", {})


def test_what_is_signed_or_means_something_to_its_provider_only_stays_as_it_is() -> None:
    parts = (
        ThoughtPart(f"hm {SECRET}", "anthropic", {"thinking": SECRET, "signature": "x"}),
        OpaquePart("anthropic", {"type": "server_tool_use", "input": SECRET}),
        TextPart("Done."),
    )
    history = History([user(TextPart("go")), agent(*parts)])
    assert RedactedHistory(history, redactor()).state().messages[-1].parts == parts


def test_results_and_images_are_kept_as_they_are() -> None:
    """Results were redacted before anybody saw them."""
    image = ImagePart("image/png", "aGk=")
    history = History([user(TextPart("go"), image), agent(ToolUsePart("1", "read", {}))])
    history.append(user(ToolResultPart("1", "text", images=(image,))))
    assert RedactedHistory(history, redactor()).state().messages == history.messages()


def test_arguments_that_were_no_object_are_kept_as_the_model_wrote_them() -> None:
    history = History([user(TextPart("go")), agent(ToolUsePart("1", "bash", None, "{broken"))])
    assert RedactedHistory(history, redactor()).state().messages == history.messages()


def test_what_was_kept_before_is_the_very_same_so_that_nothing_of_it_is_written_again() -> None:
    history = History([user(TextPart(f"use {SECRET}")), agent(TextPart("yes"))])
    kept = RedactedHistory(history, redactor())
    first, again = kept.state(), kept.state()
    assert first.messages is again.messages
    history.append(user(TextPart("more")))
    more = kept.state()
    assert more.messages is not first.messages
    assert all(one is two for one, two in zip(first.messages, more.messages, strict=False))
    assert len(more.messages) == 3


def test_a_message_without_secrets_is_held_in_memory_once() -> None:
    history = History([user(TextPart("go")), agent(TextPart("yes"))])
    kept = RedactedHistory(history, redactor()).state()
    assert all(one is two for one, two in zip(kept.messages, history.messages(), strict=True))


def test_a_message_that_grew_is_kept_anew() -> None:
    """Two prompts in a row are one message."""
    history = History([user(TextPart("one"))])
    kept = RedactedHistory(history, redactor())
    kept.state()
    history.append(user(TextPart(SECRET)))
    (message,) = kept.state().messages
    assert message.parts[0] == TextPart("one")
    assert SECRET not in repr(message)


def test_a_conversation_that_was_shortened_is_kept_short() -> None:
    history = History([user(TextPart("one")), agent(TextPart("yes")), user(TextPart("two")), agent(TextPart("no"))])
    kept = RedactedHistory(history, redactor())
    kept.state()
    history.sum_up([TextPart(f"all of it, {SECRET}")])
    state = kept.state()
    assert (len(state.messages), state.knowledge) == (1, 1)
    assert SECRET not in repr(state)
    history.clear()
    state = kept.state()
    assert (state.messages, state.knowledge, state.tokens) == ((), 0, 0)


def test_what_was_measured_is_kept_though_nothing_was_said() -> None:
    history = History([user(TextPart("one"))])
    kept = RedactedHistory(history, redactor())
    before = kept.state()
    history.measured(4711)
    assert kept.state().tokens == 4711
    assert kept.state().messages is before.messages


STEPS = st.lists(st.sampled_from(["say", "secret", "answer", "forget", "shorten", "look"]), max_size=12)


@given(steps=STEPS)
@pytest.mark.filterwarnings("error")
def test_whatever_happens_to_a_conversation_what_is_kept_is_it_without_secrets(steps: list[str]) -> None:
    history, redact = History(), redactor()
    kept = RedactedHistory(history, redact)
    for number, step in enumerate(steps):
        match step:
            case "say" | "secret":
                history.append(user(TextPart(f"{number} {SECRET if step == 'secret' else ''}")))
            case "answer" if history.awaits_reply:
                history.append(agent(TextPart(f"{number}")))
            case "forget":
                history.clear()
            case "shorten" if history.earlier:
                history.sum_up([TextPart("so far")])
            case _:
                kept.state()
    assert kept.state() == RedactedHistory(history, redact).state()
    assert SECRET not in repr(kept.state())


def test_what_the_store_has_already_is_not_looked_at_again() -> None:
    before = (user(TextPart(SECRET)), agent(TextPart("yes")), user(TextPart("two")), agent(TextPart("no")))
    history = restored(HistoryState(before))
    kept = RedactedHistory(history, redactor(), before)
    assert kept.state().messages == before
    assert all(one is two for one, two in zip(kept.state().messages, before, strict=True))
    history.append(user(TextPart(f"more of {SECRET}")))
    assert kept.state().messages[:4] == before
    assert SECRET not in repr(kept.state().messages[4])


def test_what_became_of_damaged_messages_is_kept_anew() -> None:
    before = (user(TextPart("one")), agent(ToolUsePart("1", "bash", {"command": SECRET})), agent(TextPart("yes")))
    history = restored(HistoryState(before))
    state = RedactedHistory(history, redactor(), before).state()
    assert state.messages[0] is before[0]
    assert len(state.messages) == len(history.messages())
    assert state.messages[-1] == before[-1]


class Watched(Redactor):
    """Remembers which thread looked at long texts."""

    def __init__(self) -> None:
        secrets = KnownSecrets()
        secrets.add([SECRET])
        super().__init__(secrets)
        self.threads: list[int] = []

    def __call__(self, text: str) -> str:
        if len(text) > 30_000:
            self.threads.append(threading.get_ident())
        return super().__call__(text)


@pytest.mark.anyio
async def test_long_messages_are_looked_at_once_and_in_a_thread() -> None:
    redactor, long = Watched(), "word " * 10_000 + SECRET
    history = History([user(TextPart(long)), agent(ToolUsePart("1", "write", {"text": long}, f'{{"text": "{long}"}}'))])
    kept = RedactedHistory(history, redactor)
    await kept.redact_long()
    looked = len(redactor.threads)
    assert looked >= 3
    assert threading.get_ident() not in redactor.threads
    state = kept.state()
    await kept.redact_long()
    assert kept.state().messages is state.messages
    assert len(redactor.threads) == looked
    assert SECRET not in repr(state)


@pytest.mark.anyio
async def test_what_is_said_while_long_messages_are_looked_at_is_kept_too() -> None:
    history = History([user(TextPart("word " * 100_000))])
    kept = RedactedHistory(history, redactor())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kept.redact_long)
        await anyio.lowlevel.checkpoint()
        history.append(agent(TextPart(f"I use {SECRET}.")))
    assert len(kept.state().messages) == 2
    assert SECRET not in repr(kept.state())
