"""What we make of the events /responses and the servers like it really send."""

from typing import Any

import pytest

from acp_agent.core.messages import (
    ModelDone,
    ModelStop,
    ModelText,
    ModelThought,
    OpaquePart,
    TextPart,
    ThoughtPart,
    ToolUsePart,
    Usage,
)
from acp_agent.llm.responses import ResponsesReply
from tests.rows import each_row
from tests.unit.llm.responses_streams import call_item, ended, events, message_item, reasoning_item
from tests.unit.llm.streams import CALL, OTHER_CALL

LOOK = ToolUsePart("call_1", "bash", {"command": "ls -la", "note": "a\u2028b"})
READ = ToolUsePart("call_2", "read", {"path": "naïve 😀.py"})


def take(*stream: dict[str, Any]) -> tuple[str, ModelDone]:
    """What was shown, thoughts in brackets, and the message."""
    reply = ResponsesReply("acme", "gpt-9")
    shown = [event for each in stream for event in reply.feed(each["type"], each)]
    told = "".join(f"[{event.text}]" if isinstance(event, ModelThought) else event.text for event in shown)
    assert all(event.text for event in shown)
    return told.replace("][", ""), reply.done()


def added(item: dict[str, Any], index: int | None = 0) -> dict[str, Any]:
    at = {} if index is None else {"output_index": index}
    return {"type": "response.output_item.added", **at, "item": item}


def done(item: dict[str, Any], index: int | None = 0) -> dict[str, Any]:
    return {**added(item, index), "type": "response.output_item.done"}


def said(text: Any, index: int | None = 0, kind: str = "output_text", **fields: Any) -> dict[str, Any]:
    at = {} if index is None else {"output_index": index}
    return {"type": f"response.{kind}.delta", **at, "delta": text, **fields}


def argued(piece: str, index: int | None = 0, **fields: Any) -> dict[str, Any]:
    return said(piece, index, "function_call_arguments", **fields)


def summed(text: str, part: int = 0, index: int = 0) -> dict[str, Any]:
    return said(text, index, "reasoning_summary_text", summary_index=part)


# ---------------------------------------------------------------------------------- the usual


def test_a_whole_answer_says_everything_once_and_keeps_the_reasoning_as_it_came() -> None:
    told, whole = take(*events(thought=["Let me ", "see."], text=["Hel", "lo"], calls=[CALL, OTHER_CALL]))
    assert told == "[Let me see.]Hello"
    kept = {
        "model": "gpt-9",
        "item": reasoning_item("Let me see."),
        "next": {"type": "message", "id": "msg_1"},
    }
    assert whole.message.parts == (ThoughtPart("Let me see.", "acme", kept), TextPart("Hello"), LOOK, READ)
    assert whole.stop is ModelStop.TOOL_USE
    assert whole.usage == Usage(input=125, output=42, cache_read=2000)


def test_what_was_written_to_the_cache_is_no_plain_input() -> None:
    details = {"cached_tokens": 2000, "cache_write_tokens": 100}
    _, whole = take(ended(usage={"input_tokens": 2125, "input_tokens_details": details, "output_tokens": 42}))
    assert whole.usage == Usage(input=25, output=42, cache_read=2000, cache_write=100)
    assert whole.usage.context == 2167


@pytest.mark.parametrize("usage", [None, {}, [], {"input_tokens": None}, {"input_tokens": 1, "output_tokens": "x"}])
def test_usage_that_says_nothing_counts_nothing_wrong(usage: Any) -> None:
    _, whole = take(ended(message_item("x"), usage=usage))
    assert whole.usage.output == 0
    assert whole.usage.cache_read == 0


# ------------------------------------------------------------------------------ twice or never


@pytest.mark.parametrize("output", [[], [message_item("Hello")]])
def test_text_that_came_in_no_delta_is_said_once_from_what_came_whole(output: list[Any]) -> None:
    told, whole = take(added(message_item()), done(message_item("Hello")), ended(*output))
    assert told == whole.message.text == "Hello"


def test_text_that_only_the_end_tells_is_said() -> None:
    told, whole = take(ended(reasoning_item("hm"), message_item("Hel", "lo")))
    assert told == "[hm]Hello"
    assert whole.message.text == "Hello"


def test_what_the_last_delta_left_out_is_said_at_the_end() -> None:
    told, whole = take(said("Hel"), done(message_item("Hello")), ended(message_item("Hello, you")))
    assert told == whole.message.text == "Hello, you"


def test_the_end_counts_where_it_says_something_else() -> None:
    told, whole = take(said("Hallo"), done(message_item("Hallo")), ended(message_item("Hello")))
    assert told == "Hallo"
    assert whole.message.parts == (TextPart("Hello"),)


def test_an_item_told_twice_is_one() -> None:
    told, whole = take(done(message_item("a")), done(message_item("a")), done(call_item(CALL), 1), ended())
    assert told == whole.message.text == "a"
    assert whole.message.tool_uses == (LOOK,)


@pytest.mark.parametrize("end", [ended(), {"type": "response.completed"}, {"type": "response.done", "response": None}])
def test_an_end_without_items_leaves_those_that_came(end: dict[str, Any]) -> None:
    stream = events(thought=["hm"], text=["a"], calls=[CALL])[:-1]
    told, whole = take(*stream, end)
    assert told == "[hm]a"
    assert [type(part) for part in whole.message.parts] == [ThoughtPart, TextPart, ToolUsePart]


def test_an_end_that_leaves_the_reasoning_out_says_no_text_again() -> None:
    told, whole = take(*events(thought=["hm"], text=["a"])[:-1], ended(message_item("a")))
    assert told == "[hm]a"
    assert whole.message.parts == (TextPart("a"),)


def test_pieces_whose_items_never_came_whole_are_what_there_is() -> None:
    told, whole = take(
        summed("hm"),
        said("a", 1),
        added(call_item({**CALL, "arguments": ""}), 2),
        argued(CALL["arguments"], 2),
    )
    assert told == "[hm]a"
    assert whole.message.parts == (ThoughtPart("hm", "acme"), TextPart("a"), LOOK)


# -------------------------------------------------------------------------------------- order


def test_items_stand_where_the_server_puts_them_however_they_come() -> None:
    _, whole = take(
        added(message_item(), 1),
        added(reasoning_item(), 0),
        said("b", 1),
        summed("hm"),
        done(call_item(CALL), 2),
        done(message_item("b"), 1),
        done(reasoning_item("hm"), 0),
        ended(),
    )
    assert [type(part) for part in whole.message.parts] == [ThoughtPart, TextPart, ToolUsePart]


def test_calls_whose_pieces_come_in_turns_keep_their_own() -> None:
    first, second = CALL["arguments"], OTHER_CALL["arguments"]
    for with_index in (True, False):
        at = [0, 1] if with_index else [None, None]
        _, whole = take(
            added(call_item({**CALL, "arguments": ""}, 0), at[0]),
            added(call_item({**OTHER_CALL, "arguments": ""}, 1), at[1]),
            argued(second[:9], at[1], item_id="fc_1"),
            argued(first[:5], at[0], item_id="fc_0"),
            argued(second[9:], at[1], item_id="fc_1"),
            argued(first[5:], at[0], item_id="fc_0"),
        )
        assert whole.message.tool_uses == (LOOK, READ)


def test_pieces_that_come_before_their_item_belong_to_it() -> None:
    _, whole = take(
        argued(CALL["arguments"][:5], 1),
        added(call_item({**CALL, "arguments": ""}), 1),
        argued(CALL["arguments"][5:], 1),
    )
    assert whole.message.tool_uses == (LOOK,)


def test_ids_that_change_from_event_to_event_do_not_matter() -> None:
    _, whole = take(
        added(message_item(item_id="x1")),
        said("a", item_id="x2"),
        said("b", item_id="x3"),
        done(message_item("ab", item_id="x4")),
    )
    assert whole.message.parts == (TextPart("ab"),)


@pytest.mark.parametrize("index", [0, None])
def test_a_server_that_numbers_no_item_or_all_of_them_0_is_understood(index: int | None) -> None:
    stream: list[dict[str, Any]] = [added(message_item(), index), said("a", index), done(message_item("a"), index)]
    for number, call in enumerate((CALL, OTHER_CALL)):
        stream.append(added(call_item({**call, "arguments": ""}, number), index))
        stream.append(argued(call["arguments"], index))
        stream.append(done(call_item(call, number), index))
    output = [message_item("a"), call_item(CALL, 0), call_item(OTHER_CALL, 1)]
    for end in (ended(), ended(*output)):
        told, whole = take(*stream, end)
        assert told == "a"
        assert whole.message.parts == (TextPart("a"), LOOK, READ)


# -------------------------------------------------------------------------------------- calls


def test_arguments_of_another_type_are_no_empty_object() -> None:
    _, answer = take(done(call_item(CALL, arguments=["a"])), ended())
    (use,) = answer.message.tool_uses
    assert (use.arguments, use.raw_arguments) == (None, '["a"]')


def test_arguments_come_in_any_of_the_ways_servers_send_them() -> None:
    bare = {**CALL, "arguments": ""}
    whole = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": CALL["arguments"]}
    for stream in (
        [added(call_item(bare)), argued(CALL["arguments"][:7]), argued(CALL["arguments"][7:])],
        [added(call_item(bare)), whole],
        [added(call_item(bare)), argued("{", 0), whole],
        [done(call_item(CALL))],
        [added(call_item(bare)), argued(CALL["arguments"]), done(call_item(bare))],
        [added(call_item(CALL))],
        [ended(call_item(CALL))],
        [added(call_item(bare)), argued(CALL["arguments"]), ended(call_item(bare))],
        [done(call_item(CALL, arguments={"command": "ls -la", "note": "a\u2028b"}))],
        [done(call_item(CALL)), whole],  # late
    ):
        _, answer = take(*stream)
        assert answer.message.tool_uses == (LOOK,)
        assert answer.stop is ModelStop.TOOL_USE


def test_a_call_without_call_id_has_its_items_id_and_one_without_any_its_own() -> None:
    _, whole = take(done(call_item({**CALL, "id": ""})), done({**call_item({**OTHER_CALL, "id": ""}), "id": ""}, 1))
    assert whole.message.tool_uses[0].id == "fc_0"
    assert whole.message.tool_uses[1].id.startswith("call_")


def test_pieces_of_a_call_nobody_named_call_nothing() -> None:
    _, whole = take(argued('{"a"', 3), ended())
    assert whole.message.parts == ()
    assert whole.stop is ModelStop.END


# ------------------------------------------------------------------------------------ thoughts


def test_parts_of_a_summary_are_paragraphs() -> None:
    stream = [added(reasoning_item()), summed("**A**"), summed("\nb"), summed("**C**", 1)]
    told, whole = take(*stream, done(reasoning_item("**A**\nb", "**C**")))
    assert told == "[**A**\nb\n\n**C**]"
    thought = whole.message.parts[0]
    assert isinstance(thought, ThoughtPart)
    assert thought.text == "**A**\nb\n\n**C**"


def test_a_model_that_thinks_in_the_open_has_its_thought_kept_and_shown() -> None:
    item = {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "hm"}], "summary": []}
    told, whole = take(said("hm", kind="reasoning_text", content_index=0), done(item), done(message_item("a"), 1))
    assert told == "[hm]a"
    kept = {"model": "gpt-9", "item": item, "next": {"type": "message", "id": "msg_1"}}
    assert whole.message.parts[0] == ThoughtPart("hm", "acme", kept)


@pytest.mark.parametrize("encrypted", [None, ""])
def test_reasoning_that_is_at_the_server_alone_is_shown_and_not_kept(encrypted: str | None) -> None:
    stream = [done(reasoning_item("hm", encrypted_content=encrypted)), done(message_item("a"), 1)]
    _, whole = take(*stream)
    assert whole.message.parts == (ThoughtPart("hm", "acme"), TextPart("a"))
    _, silent = take(done(reasoning_item(encrypted_content=encrypted)), done(message_item("a"), 1))
    assert silent.message.parts == (TextPart("a"),)


def test_the_encrypted_part_of_the_items_own_end_counts() -> None:
    later = reasoning_item("hm", encrypted_content="gAAAAABother")
    _, whole = take(
        added(later), done(reasoning_item("hm")), done(message_item("a"), 1), ended(later, message_item("a"))
    )
    thought = whole.message.parts[0]
    assert isinstance(thought, ThoughtPart)
    assert thought.opaque is not None
    assert thought.opaque["item"] == reasoning_item("hm")


def test_a_half_told_reasoning_is_not_kept() -> None:
    _, whole = take(added(reasoning_item(encrypted_content="gAAAAABpart")), summed("hm"), said("a", 1))
    assert whole.message.parts == (ThoughtPart("hm", "acme"), TextPart("a"))


def test_the_phase_of_a_message_is_kept_with_or_without_reasoning_before_it() -> None:
    commentary = message_item("Looking.", phase="commentary")
    phase = {"type": "message", "phase": "commentary"}
    _, whole = take(ended(commentary, call_item(CALL)))
    assert whole.message.parts == (OpaquePart("acme", {"model": "gpt-9", "next": phase}), TextPart("Looking."), LOOK)
    _, whole = take(ended(reasoning_item("hm"), commentary))
    thought = whole.message.parts[0]
    assert isinstance(thought, ThoughtPart)
    assert thought.opaque is not None
    assert thought.opaque["next"] == {"type": "message", "id": "msg_1", "phase": "commentary"}


def test_items_of_the_future_are_kept_in_their_place() -> None:
    odd = {"type": "dream", "id": "dr_1", "images": [1, {"a": None}]}
    _, whole = take(*events(text=["a"], extra_blocks=[odd]))
    assert whole.message.parts == (OpaquePart("acme", {"model": "gpt-9", "item": odd}), TextPart("a"))


# --------------------------------------------------------------------------------------- stops


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("", ModelStop.END),
        ("max_output_tokens", ModelStop.MAX_TOKENS),
        ("content_filter", ModelStop.REFUSAL),
        ("steered", ModelStop.END),
    ],
)
def test_why_a_response_is_incomplete_is_why_it_stopped(reason: str, stop: ModelStop) -> None:
    assert take(ended(message_item("x"), reason=reason))[1].stop is stop


@pytest.mark.parametrize("streamed", [True, False])
def test_a_refusal_is_said_and_is_one(streamed: bool) -> None:
    deltas = [said("I w"), said("No.", kind="refusal", content_index=1)] if streamed else []
    told, whole = take(*deltas, ended(message_item("I w", refusal="No.")))
    assert told == whole.message.text == "I wNo."
    assert whole.stop is ModelStop.REFUSAL
    assert take(*deltas, ended())[1].stop is (ModelStop.REFUSAL if streamed else ModelStop.END)


def test_an_answer_is_settled_only_when_every_item_is_and_the_last_says_or_calls() -> None:
    def settled(*stream: dict[str, Any]) -> bool:
        reply = ResponsesReply("acme", "gpt-9")
        for each in stream:
            reply.feed(each["type"], each)
        return reply.settled

    assert not settled()
    assert not settled(done(reasoning_item("hm")))
    assert settled(done(reasoning_item("hm")), done(message_item("a"), 1))
    assert settled(done(message_item("a")), done(call_item(CALL), 1))
    assert not settled(done(message_item("a")), added(call_item(CALL), 1))
    assert not settled(done(message_item("a"), 0), done(reasoning_item("hm"), 1))


# ------------------------------------------------------------------------------------ nonsense

NONSENSE: list[Any] = [
    None,
    0,
    True,
    "x",
    [],
    [None],
    {},
    {"type": 3},
    {"type": None, "content": [None, 3, {"text": 4}]},
]


@each_row("value", NONSENSE)
def test_nonsense_in_any_field_harms_nothing(value: Any) -> None:
    kinds = [
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.of_the_future",
    ]
    fields = ("item", "delta", "output_index", "item_id", "summary_index", "arguments")
    stream = [{"type": kind, field: value} for kind in kinds for field in fields]
    text = value if isinstance(value, str) else ""
    for end in (ended(), ended(message_item("ok")), {"type": "response.completed", "response": value}):
        _, whole = take(*stream, end)
        assert whole.message.text in ("ok", text * whole.message.text.count("x"))
    for field in ("output", "usage", "incomplete_details"):
        take(ended(**{field: value}))
    take(done({"type": "message", "content": value}), done({"type": "reasoning", "summary": value}, 1))


def test_events_of_no_kind_we_know_show_nothing() -> None:
    assert take(*({"type": f"response.odd_{number}"} for number in range(200)), {"type": ""})[0] == ""


def test_what_was_shown_is_what_is_kept_for_every_cut_of_an_answer() -> None:
    stream = events(thought=["Let me ", "see."], text=["Hel", "lo"], calls=[CALL])
    for cut in range(len(stream) + 1):
        reply = ResponsesReply("acme", "gpt-9")
        shown = [event for each in stream[:cut] for event in reply.feed(each["type"], each)]
        whole = reply.done().message
        assert "".join(event.text for event in shown if isinstance(event, ModelText)) == whole.text
