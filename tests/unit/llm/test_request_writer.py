"""What is kept of one request for the next: the bytes are those of a request of which nothing was sent before."""

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

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
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import ToolKind, ToolSpec
from acp_agent.llm import anthropic, openai, responses_request
from acp_agent.llm.anthropic import AnthropicProvider
from acp_agent.llm.endpoint import (
    ModelEndpoint,
    RequestWriter,
    function_tool,
    thought_digests,
    write,
    write_all,
    write_array,
    write_body,
)
from acp_agent.llm.openai import OpenAIProvider, OpenAIQuirk
from acp_agent.llm.responses import ResponsesProvider
from acp_agent.llm.responses_request import ResponsesQuirk
from acp_agent.net.client import HttpClient
from tests.rows import each_row

ENDPOINT = ModelEndpoint("acme", "gpt-9", "http://127.0.0.1:1", 1000, thinking=True)
PICTURE = ImagePart("QUJD", "image/png")
REASONING = {"model": "gpt-9", "item": {"type": "reasoning", "id": "rs_1", "encrypted_content": "x"}}
TEXT = {"type": "text", "text": "kept"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "y"}


class Format(NamedTuple):
    """A wire format. `variants` are what servers refuse: the second argument of its functions."""

    provider: type[OpenAIProvider | AnthropicProvider | ResponsesProvider]
    writer: Callable[..., RequestWriter]
    body: Callable[..., bytes]
    variants: tuple[Any, ...]


REFUSED = thought_digests(
    ModelRequest("", (Message(Role.ASSISTANT, (ThoughtPart("hm", ENDPOINT.maker, SIGNED),)),)), opaque=False
)
CHAT_QUIRKS = (frozenset[OpenAIQuirk](), frozenset(OpenAIQuirk))
QUIRKS = (frozenset[ResponsesQuirk](), frozenset(ResponsesQuirk), frozenset((ResponsesQuirk.NO_IMAGES,)))
FORMATS = {
    "chat": Format(OpenAIProvider, openai.request_writer, openai.request_body, CHAT_QUIRKS),
    "anthropic": Format(
        AnthropicProvider, anthropic.request_writer, anthropic.request_body, (frozenset[str](), REFUSED)
    ),
    "responses": Format(ResponsesProvider, responses_request.request_writer, responses_request.request_body, QUIRKS),
}
OPAQUE = st.sampled_from([{"type": "odd"}, TEXT, REASONING])

TEXTS = st.sampled_from(["", " ", "a", 'ö" \x00\ud83d', '"messages":[]', "[]", '{"cache_control":1}'])
PARTS: st.SearchStrategy[Part] = st.one_of(
    TEXTS.map(TextPart),
    st.just(PICTURE),
    st.builds(ThoughtPart, TEXTS, st.sampled_from([ENDPOINT.maker, "rival"]), st.sampled_from([None, SIGNED])),
    st.builds(ThoughtPart, TEXTS, st.just("acme"), st.just(REASONING)),
    st.builds(
        OpaquePart, st.sampled_from([ENDPOINT.maker, "acme"]), st.sampled_from([{"type": "odd"}, TEXT, REASONING])
    ),
    st.builds(ToolUsePart, st.sampled_from(["c1", "c.2", "c" * 70]), TEXTS, st.none() | st.just({"n": [1]})),
    st.builds(ToolResultPart, st.just("c1"), TEXTS, st.booleans(), st.sampled_from([(), (PICTURE,), (PICTURE,) * 9])),
)
MESSAGES = st.builds(Message, st.sampled_from(Role), st.lists(PARTS, max_size=4).map(tuple))
SPECS = [ToolSpec(name, name, {"type": "object"}, ToolKind.READ, mutates=False) for name in ('"tools":[]', "ü")]


class Step(NamedTuple):
    """A change of a conversation: its messages from `start` to `end` are replaced. Then a request is made."""

    start: int
    end: int
    added: list[Message]
    system: str
    tools: tuple[ToolSpec, ...]
    max_tokens: int | None


PLACES = st.integers(-3, 9)
STEPS = st.builds(
    Step,
    st.just(99) | PLACES,  # most requests have only more messages than the one before
    st.just(99) | PLACES,
    st.lists(MESSAGES, max_size=4),
    TEXTS,
    st.lists(st.sampled_from([*SPECS, replace(SPECS[0], description="other")]), max_size=3).map(tuple),
    st.sampled_from([None, 7]),
)
EXTRAS: list[dict[str, Any]] = [{}, {"top_p": 1, "metadata": {"tools": []}}, {"tools": [], "messages": [], "input": 1}]


@given(
    st.sampled_from(sorted(FORMATS)),
    st.integers(0, 2),
    st.sampled_from(EXTRAS),
    st.lists(STEPS, min_size=2, max_size=8),
)
def test_a_request_of_any_conversation_is_written_as_if_it_were_the_first(
    name: str, variant: int, extra: dict[str, Any], steps: list[Step]
) -> None:
    made = FORMATS[name]
    refused = made.variants[variant % len(made.variants)]
    endpoint = replace(ENDPOINT, extra_body=extra, images=variant != 1)
    kept, history = made.writer(endpoint, refused), list[Message]()
    for step in steps:
        history[step.start : step.end] = step.added
        request = ModelRequest(step.system, tuple(history), step.tools, step.max_tokens)
        sent = made.body(endpoint, request, refused, kept)
        assert sent == made.body(endpoint, request, refused)
        assert {**json.loads(sent), **extra} == json.loads(sent)


@each_row("name", FORMATS)
def test_a_message_is_written_once_however_many_requests_it_is_in(name: str) -> None:
    made, written = FORMATS[name], list[Message]()
    own = made.writer(ENDPOINT, frozenset())

    def counted(message: Message) -> bytes:
        written.append(message)
        return own.messages([message])[0]

    writer = RequestWriter(ENDPOINT, counted, function_tool)
    uses = [Message(Role.ASSISTANT, (ToolUsePart(f"c{n}", "read", {}),)) for n in range(5)]
    results = [Message(Role.USER, (ToolResultPart(f"c{n}", "ok"),)) for n in range(5)]
    told = (Message(Role.USER, (TextPart("go"),)), *itertools.chain.from_iterable(zip(uses, results, strict=True)))
    for count in range(1, len(told) + 1, 2):
        made.body(ENDPOINT, ModelRequest("s", told[:count]), frozenset(), writer)
    assert written == [*told]
    changed = (*told[:3], Message(Role.ASSISTANT, (TextPart("instead"),)), *told[4:])
    made.body(ENDPOINT, ModelRequest("s", changed), frozenset(), writer)
    assert written == [*told, changed[3]]


@each_row("name", FORMATS)
def test_a_model_writes_of_a_request_what_the_last_one_did_not_have(name: str) -> None:
    http, serialized = HttpClient(), 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal serialized
        serialized += event == "call" and frame.f_code is write.__code__

    provider = FORMATS[name].provider(ENDPOINT, http)
    roles = itertools.cycle(Role)
    told = tuple(Message(next(roles), (TextPart(f"{n}"),)) for n in range(51))
    numbers: list[int] = []
    for count in (49, 51):
        sys.setprofile(counted)
        try:
            provider._body(ModelRequest("s", told[:count], (*SPECS,)))
        finally:
            sys.setprofile(None)
        numbers.append(serialized)
    assert numbers[0] >= 50
    assert numbers[1] - numbers[0] == 3, "two messages, and the members that are short"


def test_of_a_conversation_with_many_pictures_only_the_messages_that_lose_one_are_written_again() -> None:
    written: list[Message] = []

    def counted(message: Message) -> bytes:
        written.append(message)
        return b"{}"

    writer = RequestWriter(ENDPOINT, counted, function_tool)
    told = tuple(Message(Role.USER, (ToolResultPart(f"c{n}", "ok", images=(PICTURE,)),)) for n in range(21))
    writer.messages(writer.fit_images(told[:20]))
    assert written == [*told[:20]]
    fit = writer.fit_images(told)  # the first eleven are left out
    assert [each is before for each, before in zip(fit, told, strict=True)] == [False] * 11 + [True] * 10
    writer.messages(fit)
    assert written[20:] == [*fit[:11], told[20]]


def test_what_is_written_already_stands_in_a_body_as_it_is() -> None:
    body = write_body({"a": 1, "b": write_array([b'{"x":1}', b"", write_all([{}, {}])]), "c": "d", "e": (b"[", b"]")})
    assert json.loads(body) == {"a": 1, "b": [{"x": 1}, {}, {}], "c": "d", "e": []}
    assert write_body({"a": 1, "c": "d"}) == write({"a": 1, "c": "d"})
    assert write_array([]) == write_array([b""]) == (b"[", b"]")
