"""Requests and streams in the shapes OpenAI publishes as types: strict servers, such as vLLM, check with them."""

import json
from functools import cache
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from acp_agent.core.messages import (
    ImagePart,
    Message,
    OpaquePart,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import ToolKind, ToolSpec
from acp_agent.llm.endpoint import ModelEndpoint
from acp_agent.llm.responses_request import ResponsesQuirk, request_body
from tests.unit.llm.responses_streams import events, reasoning_item
from tests.unit.llm.streams import CALL, OTHER_CALL

PICTURE = ImagePart("QUJD", "image/png")
SPEC = ToolSpec("read", "read it", {"type": "object", "properties": {}}, ToolKind.READ, mutates=False)
REASONED = {"model": "gpt-9", "item": reasoning_item("hm"), "next": {"type": "message", "id": "msg_1"}}
PHASE = {"model": "gpt-9", "next": {"type": "message", "phase": "commentary"}}
CONVERSATION = (
    Message(Role.USER, (TextPart("look"), PICTURE)),
    Message(
        Role.ASSISTANT,
        (
            ThoughtPart("hm", "acme", REASONED),
            TextPart("So."),
            ToolUsePart("c1", "read", {}),
            ToolUsePart("c2", "read", {}),
        ),
    ),
    Message(Role.USER, (ToolResultPart("c1", "text"), ToolResultPart("c2", "", images=(PICTURE,)), TextPart("on"))),
    Message(Role.ASSISTANT, (OpaquePart("acme", PHASE), TextPart("Looking."))),
    Message(Role.USER, (TextPart("thanks"),)),
)


@cache
def request_types() -> TypeAdapter[Any]:
    from openai.types.responses import response_create_params  # noqa: PLC0415 - takes a second, for these tests alone

    return TypeAdapter(response_create_params.ResponseCreateParamsStreaming)


@cache
def event_types() -> TypeAdapter[Any]:
    from openai.types.responses import ResponseStreamEvent  # noqa: PLC0415 - as above

    return TypeAdapter(ResponseStreamEvent)


@pytest.mark.parametrize("quirks", [(), tuple(ResponsesQuirk)])
def test_every_kind_of_item_we_send_is_of_the_published_types(quirks: tuple[ResponsesQuirk, ...]) -> None:
    endpoint = ModelEndpoint("acme", "gpt-9", "http://127.0.0.1:1", 1000, thinking=True)
    request = ModelRequest("Be brief.", CONVERSATION, (SPEC,), 500)
    body = json.loads(request_body(endpoint, request, frozenset(quirks)))
    types = request_types()
    checked = json.loads(types.dump_json(types.validate_python(body, strict=True)))
    assert len(checked["input"]) == len(body["input"])
    body["input"][2] = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]}
    with pytest.raises(ValidationError):  # what such a server refuses
        types.validate_python(body, strict=True)


@pytest.mark.parametrize("stop", [None, "max_output_tokens", "content_filter", "refusal"])
def test_the_streams_of_these_tests_are_of_the_published_types(stop: str | None) -> None:
    types = event_types()
    for event in events(text=["a", "b"], thought=["hm"], calls=[CALL, OTHER_CALL], stop=stop):
        if event["type"] != "response.of_the_future":
            assert types.validate_python(event).type == event["type"]
