"""What we send to /responses."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ProviderError, ProviderErrorKind
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
from acp_agent.llm.endpoint import ModelEndpoint, thought_digests, without_thoughts, write
from acp_agent.llm.exchange import quirk_in
from acp_agent.llm.openai import request_body as chat_body
from acp_agent.llm.responses_request import (
    REFUSALS,
    ResponsesQuirk,
    family,
    refuses_thoughts,
    request_body,
)
from tests.contract.wire_rules import assert_responses_request
from tests.rows import each_row
from tests.unit.llm.responses_streams import ENCRYPTED, reasoning_item

ENDPOINT = ModelEndpoint("acme", "gpt-9", "http://127.0.0.1:1", 1000)
REASONER = replace(ENDPOINT, thinking=True)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = (ToolSpec("read", "read it", SCHEMA, ToolKind.READ, mutates=False),)
PICTURE = ImagePart("QUJD", "image/png")
URL = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,QUJD"}


def user(*parts: Any) -> Message:
    return Message(Role.USER, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Any) -> Message:
    return Message(Role.ASSISTANT, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def body(*messages: Message, endpoint: ModelEndpoint = ENDPOINT, quirks: Any = (), **fields: Any) -> Any:
    request = ModelRequest(fields.pop("system", ""), messages, **fields)
    return json.loads(request_body(endpoint, request, frozenset(quirks)))


def items(*messages: Message, endpoint: ModelEndpoint = ENDPOINT) -> Any:
    return body(*messages, endpoint=endpoint)["input"]


def words(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


def asked(*content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(content)}


def thought(item: dict[str, Any] | None = None, model: str = "gpt-9", provider: str = "acme", **following: Any) -> Any:
    kept = {"model": model, "item": item or reasoning_item("hm")}
    return ThoughtPart("hm", provider, {**kept, "next": following} if following else kept)


def test_the_whole_body_of_a_first_request() -> None:
    assert body(user("hi"), system="Be brief.", tools=TOOLS, endpoint=REASONER, max_tokens=500) == {
        "model": "gpt-9",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
        "max_output_tokens": 500,
        "instructions": "Be brief.",
        "tools": [
            {"type": "function", "name": "read", "description": "read it", "parameters": SCHEMA, "strict": False},
        ],
        "parallel_tool_calls": True,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    }


def test_a_model_that_does_not_reason_is_asked_nothing_about_it() -> None:
    assert body(user("hi")).keys() == {"model", "stream", "store", "input"}


def test_the_whole_conversation_of_a_tool_turn() -> None:
    assert items(
        user("look", PICTURE),
        assistant("Reading.", ToolUsePart("c1", "read", {"path": "ä"}), ToolUsePart("c2", "read", None, '{"path')),
        user(ToolResultPart("c1", "text"), ToolResultPart("c2", "", is_error=True), "by the way"),
        assistant("Done.", " "),
        user("thanks"),
    ) == [
        asked(words("look"), URL),
        {"type": "message", "role": "assistant", "content": "Reading."},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path":"ä"}'},
        {"type": "function_call", "call_id": "c2", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "text"},
        {"type": "function_call_output", "call_id": "c2", "output": ""},
        asked(words("by the way")),
        {"type": "message", "role": "assistant", "content": "Done."},
        asked(words("thanks")),
    ]


RESULTS = (ToolResultPart("c1", "Image: a.png", images=(PICTURE,)), ToolResultPart("c2", " ", images=(PICTURE,)))


def test_pictures_of_a_result_stand_in_it() -> None:
    uses = [ToolUsePart(id_, "read", {}) for id_ in ("c1", "c2")]
    assert items(user("look"), assistant(*uses), user(*RESULTS))[3:] == [
        {"type": "function_call_output", "call_id": "c1", "output": [words("Image: a.png"), URL]},
        {"type": "function_call_output", "call_id": "c2", "output": [URL]},
    ]


def test_pictures_follow_the_results_for_a_server_that_takes_only_text_there() -> None:
    uses = [ToolUsePart(id_, "read", {}) for id_ in ("c1", "c2")]
    sent = body(user("look"), assistant(*uses), user(*RESULTS, "see?"), quirks=[ResponsesQuirk.TEXT_RESULTS])["input"]
    assert sent[3:] == [
        {"type": "function_call_output", "call_id": "c1", "output": "Image: a.png"},
        {"type": "function_call_output", "call_id": "c2", "output": " "},
        asked(words("From tool call c1:"), URL, words("From tool call c2:"), URL, words("see?")),
    ]


def test_a_model_without_eyes_reads_what_it_is_not_shown() -> None:
    note = "[image/png not shown: gpt-9 takes no images]"
    seeing_nothing = [
        {"type": "function_call_output", "call_id": "c1", "output": f"Image: a.png\n{note}"},
        asked(words("look"), words(note)),
    ]
    parts = (RESULTS[0], "look", PICTURE)
    assert items(user(*parts), endpoint=replace(ENDPOINT, images=False)) == seeing_nothing
    assert body(user(*parts), quirks=[ResponsesQuirk.NO_IMAGES])["input"] == seeing_nothing


def test_old_pictures_make_room_for_new_ones() -> None:
    sent = items(*[user(PICTURE) for _ in range(21)])
    kinds = [part["type"] for item in sent for part in item["content"]]
    assert kinds == ["input_text"] * 11 + ["input_image"] * 10


# --------------------------------------------------------------------------------- reasoning


def test_reasoning_goes_back_byte_for_byte_before_what_it_led_to() -> None:
    first = reasoning_item("**Plan**\n\u2028", item_id="rs_a", of_the_future=[1.5, None, {"é": "😀"}])
    second = reasoning_item(item_id="rs_b", status="completed")
    turn = assistant(
        thought(first, type="function_call", id="fc_1"),
        ToolUsePart("c1", "read", {}),
        thought(second, type="message", id="msg_1", phase="final_answer"),
        "Done.",
    )
    sent = items(user("x"), turn, endpoint=REASONER)
    assert sent[1:] == [
        first,
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": "{}"},
        second,
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "phase": "final_answer",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
        },
    ]
    raw = request_body(REASONER, ModelRequest("", (user("x"), turn)), frozenset())
    assert write(first) in raw
    assert write(second) in raw


def test_what_an_id_is_kept_for_is_not_given_to_an_item_of_another_kind() -> None:
    sent = items(user("x"), assistant(thought(type="message", id="msg_1"), ToolUsePart("c1", "read", {})))
    assert sent[2].keys() == {"type", "call_id", "name", "arguments"}


@each_row(
    "stranger",
    [
        thought(provider="rival"),
        thought(model="gpt-8"),
        ThoughtPart("hm", "acme", {"reasoning_content": "hm"}),  # the same provider, spoken to by its other API
        ThoughtPart("hm", "acme", {"type": "thinking", "thinking": "hm"}),
        ThoughtPart("hm", "acme"),
        OpaquePart("rival", {"model": "gpt-9", "item": {"type": "web_search_call"}}),
    ],
)
def test_what_another_model_thought_is_not_sent(stranger: Any) -> None:
    assert items(user("x"), assistant(stranger, "done"))[1:] == [
        {"type": "message", "role": "assistant", "content": "done"}
    ]


def test_a_dated_edition_takes_up_what_its_model_thought() -> None:
    assert family("gpt-9-2026-08-07") == family("gpt-9-20260807") == "gpt-9"
    assert family("o4-mini") == "o4-mini"
    dated = replace(ENDPOINT, model="gpt-9-2026-08-07")
    assert items(user("x"), assistant(thought(), "done"), endpoint=dated)[1] == reasoning_item("hm")


def test_the_other_api_of_the_same_provider_is_not_sent_whole_items() -> None:
    request = ModelRequest("", (user("x"), assistant(thought(), "done")))
    assert json.loads(chat_body(ENDPOINT, request, frozenset()))["messages"] == [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "done"},
    ]


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    assert items(user("x"), assistant("so", thought()))[1:] == [
        {"type": "message", "role": "assistant", "content": "so"}
    ]
    assert len(items(user("x"), assistant(thought()))) == 1


def test_what_is_kept_for_a_text_that_is_not_sent_is_not_given_to_the_next() -> None:
    sent = items(user("x"), assistant(thought(type="message", id="msg_1"), " ", "done"))
    assert sent[1:] == [reasoning_item("hm"), {"type": "message", "role": "assistant", "content": "done"}]


def test_unknown_items_and_phases_go_back_in_their_place() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    phase = OpaquePart("acme", {"model": "gpt-9", "next": {"type": "message", "phase": "commentary"}})
    kept = OpaquePart("acme", {"model": "gpt-9", "item": search})
    assert items(user("x"), assistant(thought(), kept, phase, "Looking."))[1:] == [
        reasoning_item("hm"),
        search,
        {"type": "message", "role": "assistant", "phase": "commentary", "content": "Looking."},
    ]


def test_without_thoughts_nothing_of_the_reasoning_is_left() -> None:
    message = assistant(thought(type="message", id="msg_1"), "done")
    request = ModelRequest("", (user("x"), message))
    for unwanted in (thought_digests(request, opaque=True), None):
        bare = without_thoughts(message, unwanted)
        assert items(user("x"), bare)[1:] == [{"type": "message", "role": "assistant", "content": "done"}]
        assert thought_digests(ModelRequest("", (bare,)), opaque=True) == frozenset()


# ------------------------------------------------------------------------------------- fields


def test_the_users_own_fields_and_limits() -> None:
    endpoint = replace(REASONER, max_tokens=700, extra_body={"top_p": 0.5, "reasoning": {"effort": "high"}})
    sent = body(user("x"), endpoint=endpoint)
    assert (sent["top_p"], sent["max_output_tokens"]) == (0.5, 700)
    assert sent["reasoning"] == {"summary": "auto", "effort": "high"}
    assert body(user("x"), endpoint=endpoint, quirks=[ResponsesQuirk.NO_SUMMARY])["reasoning"] == {"effort": "high"}
    assert body(user("x"), max_tokens=1)["max_output_tokens"] == 16  # fewer are refused


def test_each_quirk_leaves_out_what_it_names() -> None:
    usual = body(user("x"), endpoint=REASONER, tools=TOOLS)
    for quirk, field in (
        (ResponsesQuirk.NO_ENCRYPTED, "include"),
        (ResponsesQuirk.NO_SUMMARY, "reasoning"),
        (ResponsesQuirk.NO_PARALLEL, "parallel_tool_calls"),
    ):
        sent = body(user("x"), endpoint=REASONER, tools=TOOLS, quirks=[quirk])
        assert usual.keys() - sent.keys() == {field}


def test_ids_too_long_for_the_api_are_replaced_and_still_pair() -> None:
    long = "call_" + "x" * 100
    sent = items(user("x"), assistant(ToolUsePart(long, "read", {})), user(ToolResultPart(long, "ok")))
    assert sent[1]["call_id"] == sent[2]["call_id"]
    assert len(sent[1]["call_id"]) <= 64
    assert items(user("x"), assistant(ToolUsePart("x" * 64, "read", {})))[1]["call_id"] == "x" * 64


def test_a_longer_conversation_starts_with_the_bytes_of_the_shorter() -> None:
    turns = (user("x"), assistant(thought(), "done"), user("more", PICTURE), assistant(ToolUsePart("c", "read", {})))
    sent = [request_body(REASONER, ModelRequest("s", turns[:n], TOOLS), frozenset()) for n in (1, 3)]
    assert sent[1].startswith(sent[0].removesuffix(b"]}"))
    assert sent[0] == request_body(REASONER, ModelRequest("s", turns[:1], TOOLS), frozenset())


PARTS = st.one_of(
    st.text(max_size=5).map(TextPart),
    st.builds(thought, model=st.sampled_from(["gpt-9", "gpt-8"]), provider=st.sampled_from(["acme", "rival"])),
    st.just(thought(type="message", id="msg_1")),
    st.just(OpaquePart("acme", {"model": "gpt-9", "next": {"type": "message", "phase": "commentary"}})),
    st.just(OpaquePart("acme", {"odd": True})),
)


@given(st.lists(PARTS, max_size=6), st.integers(0, 3))
def test_any_message_of_the_models_makes_a_request_the_api_takes(parts: list[Any], calls: int) -> None:
    unique = {id(part): part for part in parts if not isinstance(part, ThoughtPart)}.values()
    thought_digests = [part for part in parts if isinstance(part, ThoughtPart)][:1]  # one id, one item
    uses = [ToolUsePart(f"c{n}", "read", {"n": n}) for n in range(calls)]
    results = [ToolResultPart(use.id, "ok", images=(PICTURE,)) for use in uses]
    messages = (user("go"), assistant(*thought_digests, *unique, *uses), user(*results, "on"))
    assert_responses_request(request_body(REASONER, ModelRequest("s", messages, TOOLS), frozenset()))


# ------------------------------------------------------------------------------------ refusals


def refusal(text: str, status: int = 400) -> ProviderError:
    return ProviderError(text, kind=ProviderErrorKind.INVALID_REQUEST, status=status)


@each_row(
    "text, quirk",
    [
        ("Encrypted content is not supported with this model.", ResponsesQuirk.NO_ENCRYPTED),
        ("Unsupported parameter: 'include'", ResponsesQuirk.NO_ENCRYPTED),
        ("Your organization must be verified to generate reasoning summaries.", ResponsesQuirk.NO_SUMMARY),
        ("Unsupported parameter: 'reasoning.summary' is not supported with this model.", ResponsesQuirk.NO_SUMMARY),
        ("Unsupported parameter: 'reasoning'", ResponsesQuirk.NO_SUMMARY),
        ("Unsupported parameter: 'parallel_tool_calls'", ResponsesQuirk.NO_PARALLEL),
        ("Invalid type for 'input'.", ResponsesQuirk.TEXT_RESULTS),
        ("Invalid type for 'input[2].output': expected a string, but got an array", ResponsesQuirk.TEXT_RESULTS),
        ("image input is not supported - hint: you may need to provide the mmproj", ResponsesQuirk.NO_IMAGES),
        ("input_image is not supported", ResponsesQuirk.NO_IMAGES),
        ("something else", None),
    ],
)
def test_a_refusal_that_names_its_reason_is_understood(text: str, quirk: ResponsesQuirk | None) -> None:
    assert quirk_in(refusal(text), REFUSALS) is quirk
    assert not refuses_thoughts(refusal(text))


@each_row(
    "status, text",
    [
        (400, "The encrypted content gAAA...Rg== could not be verified."),
        (400, "The encrypted content for item rs_1 could not be verified. Reason: it could not be decrypted."),
        (400, "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
        (400, "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'."),
        (404, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
        (400, "Reasoning input items can only be provided to a reasoning or computer use model."),
    ],
)
def test_a_refusal_of_earlier_thoughts_is_understood(status: int, text: str) -> None:
    assert refuses_thoughts(refusal(text, status))
    assert not refuses_thoughts(refusal(text, 500))


def test_the_encrypted_part_is_in_what_goes_back() -> None:
    assert items(user("x"), assistant(thought(), "done"))[1]["encrypted_content"] == ENCRYPTED
