"""What the Anthropic and the OpenAI API demand of a conversation, written down apart from the code that builds it."""

from acp_agent.core.messages import Message, Role, TextPart, ThoughtPart, ToolResultPart, ToolUsePart


def assert_acceptable(messages: tuple[Message, ...]) -> None:
    """The messages could be sent to either API as they are."""
    assert_anthropic(messages)
    assert_openai(messages)


def assert_anthropic(messages: tuple[Message, ...]) -> None:
    """Messages API: alternation, no empty content, results first and complete in the message after their uses."""
    ids: list[str] = []
    owed: list[str] = []
    for index, message in enumerate(messages):
        assert message.role is (Role.ASSISTANT if index % 2 else Role.USER), "roles alternate, the user begins"
        assert message.parts, "no empty message"
        assert all(part.text.strip() for part in message.parts if isinstance(part, TextPart)), "no blank text"
        results = [part.id for part in message.parts if isinstance(part, ToolResultPart)]
        first = [part.id for part in message.parts[: len(results)] if isinstance(part, ToolResultPart)]
        assert results == first == owed, "results stand first, answer all uses once, in order, and nothing else"
        uses = [part for part in message.parts if isinstance(part, ToolUsePart)]
        assert not uses or message.role is Role.ASSISTANT
        owed = [use.id for use in uses]
        ids += owed
        if message.role is Role.ASSISTANT:
            assert any(not isinstance(part, ThoughtPart) for part in message.parts), "a thought alone is no message"
        else:
            assert not any(isinstance(part, ThoughtPart) for part in message.parts)
    assert not owed, "every use is answered"
    assert all(ids), "no empty id"
    assert len(ids) == len(set(ids)), "ids are unique"


def assert_openai(messages: tuple[Message, ...]) -> None:
    """Chat Completions: each assistant message with tool_calls is followed by one tool message for each call."""
    flat: list[tuple[str, list[str]]] = []
    for message in messages:
        results = [("tool", [part.id]) for part in message.parts if isinstance(part, ToolResultPart)]
        if message.role is Role.ASSISTANT:
            flat.append(("assistant", [use.id for use in message.tool_uses]))
        else:
            flat += results
            if len(results) < len(message.parts):
                flat.append(("user", []))
    waiting: list[str] = []
    for role, ids in flat:
        if role == "tool":
            assert ids[0] in waiting, "a tool message answers a call of the assistant message before it"
            waiting.remove(ids[0])
        else:
            assert not waiting, "tool messages come directly after their assistant message"
        if role == "assistant":
            waiting = ids
    assert not waiting
