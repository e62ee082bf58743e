"""The loop, turn by turn: streaming, tools, and each way a turn ends."""

import asyncio
from uuid import UUID

import anyio
import anyio.lowlevel
import pytest

from acp_agent.agent.turn import Limits
from acp_agent.core.errors import ProviderError, ProviderErrorKind, ToolErrorCategory, ToolFailure
from acp_agent.core.events import TextDelta, ThoughtDelta, UsageChanged
from acp_agent.core.messages import (
    ModelStop,
    Role,
    StopReason,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
    Usage,
)
from acp_agent.core.types import ImagePart, ToolCall, ToolResult
from tests.fakes.scripted_provider import Step, call, say, use
from tests.unit.agent.conversation import Conversation
from tests.unit.agent.conversation_rules import assert_acceptable

pytestmark = pytest.mark.anyio


def echo(received: ToolCall) -> str:
    return f"{received.name} {received.arguments}"


def provider_error(kind: ProviderErrorKind = ProviderErrorKind.SERVER) -> ProviderError:
    return ProviderError("scripted/script-1 answered 500: try later", kind=kind)


async def test_text_streams_as_it_comes_under_one_message_id() -> None:
    talk = Conversation([say("Hel", "", "lo")])
    assert await talk.prompt() is StopReason.END_TURN
    assert [event.text for event in talk.events if isinstance(event, TextDelta)] == ["Hel", "lo"]
    assert len(set(talk.text_ids)) == 1
    assert UUID(talk.text_ids[0])
    assert talk.said == ["Hello"]


async def test_a_thought_has_a_message_id_of_its_own_and_goes_back_to_the_model() -> None:
    talk = Conversation([say("Done.", thought="Hm."), say("Again.")])
    await talk.prompt()
    assert [event.text for event in talk.events if isinstance(event, ThoughtDelta)] == ["Hm."]
    assert set(talk.thought_ids).isdisjoint(talk.text_ids)
    await talk.prompt()
    assert ThoughtPart("Hm.", "scripted", {"signature": "fake"}) in talk.provider.requests[1].messages[1].parts


async def test_every_assistant_message_of_a_turn_has_its_own_id() -> None:
    talk = Conversation([use(call("look"), text="Looking."), say("Seen.")], {"look": echo})
    await talk.prompt()
    first, second = talk.text_ids
    assert first != second


async def test_an_answer_that_arrived_whole_is_told_whole_before_other_work_so_that_one_write_stores_it() -> None:
    talk, others = Conversation([say("Hel", "lo")]), list[int]()
    asyncio.get_running_loop().call_soon(lambda: others.append(len(talk.events)))
    await talk.prompt()
    assert others == []
    await anyio.lowlevel.checkpoint()
    assert others == [len(talk.events)]


async def test_text_that_came_in_one_piece_at_the_end_is_shown_all_the_same() -> None:
    talk = Conversation([Step(text="All at once.", streams=False)])
    await talk.prompt()
    assert talk.text == "All at once."


async def test_tool_results_reach_the_model_in_one_user_message_before_anything_else() -> None:
    talk = Conversation([use(call("look", id="a", at="x"), call("look", id="b", at="y")), say("ok")], {"look": echo})
    assert await talk.prompt() is StopReason.END_TURN
    last = talk.provider.requests[1].messages[-1]
    assert last.role is Role.USER
    assert [(part.id, part.text) for part in talk.results] == [("a", "look {'at': 'x'}"), ("b", "look {'at': 'y'}")]
    assert len(last.parts) == 2


async def test_a_tool_call_leaves_no_marker_in_the_text_the_user_reads() -> None:
    talk = Conversation([use(call("look"), text="Looking."), say("Seen", ".")], {"look": echo})
    await talk.prompt()
    assert talk.text == "Looking.\n\nSeen."
    assert talk.said == ["Looking.", "Seen."], "the model reads what it wrote, without the break"


async def test_every_call_gets_a_uuid_of_ours() -> None:
    talk = Conversation([use(call("look", id="x"), call("look", id="y")), say("ok")], {"look": echo})
    await talk.prompt()
    ids = {UUID(made.id) for made in talk.toolset.calls}
    assert len(ids) == 2


async def test_reads_run_together_and_their_results_come_in_request_order() -> None:
    both_started = anyio.Event()
    slow_may_end = anyio.Event()

    async def slow(_: ToolCall) -> str:
        await both_started.wait()
        await slow_may_end.wait()
        return "slow"

    async def fast(_: ToolCall) -> str:
        both_started.set()
        slow_may_end.set()
        return "fast"

    talk = Conversation([use(call("slow"), call("fast")), say("ok")], {"slow": slow, "fast": fast})
    await talk.prompt()
    assert [part.text for part in talk.results] == ["slow", "fast"]
    assert talk.toolset.log == [("start", "slow"), ("start", "fast"), ("end", "fast"), ("end", "slow")]


async def test_a_mutating_call_waits_for_the_reads_before_it_and_holds_up_those_behind_it() -> None:
    async def read(_: ToolCall) -> str:
        await anyio.lowlevel.checkpoint()
        return "r"

    async def write(_: ToolCall) -> str:
        await anyio.lowlevel.checkpoint()
        return "w"

    calls = [call("read"), call("read"), call("write"), call("write"), call("read")]
    talk = Conversation([use(*calls), say("ok")], {"read": read, "write": write}, mutating=("write",))
    await talk.prompt()
    assert talk.toolset.log[:4] == [("start", "read"), ("start", "read"), ("end", "read"), ("end", "read")]
    assert talk.toolset.log[4:8] == [("start", "write"), ("end", "write")] * 2
    assert [part.text for part in talk.results] == ["r", "r", "w", "w", "r"]


async def test_no_more_reads_run_at_once_than_the_limit() -> None:
    running = 0
    most = 0

    async def read(_: ToolCall) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return "r"

    talk = Conversation(
        [use(*(call("read") for _ in range(100))), say("ok")],
        {"read": read},
        limits=Limits(max_parallel_tools=3, max_calls=100),
    )
    await talk.prompt()
    assert len(talk.results) == 100
    assert most == 3


async def test_a_failed_call_is_an_error_for_the_model() -> None:
    failure = ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "no such file: a.py")
    talk = Conversation([use(call("read")), say("ok")], {"read": lambda _: ToolResult.failed(failure)})
    await talk.prompt()
    assert talk.results[0].is_error
    assert talk.results[0].text == failure.block()


async def test_pictures_of_a_result_reach_the_model_with_it() -> None:
    picture = ImagePart("QUJD", "image/png")
    shows = ToolResult("Image: a.png", images=(picture,))
    talk = Conversation([use(call("read")), say("ok")], {"read": lambda _: shows})
    await talk.prompt()
    (result,) = talk.results
    assert (result.text, result.images) == ("Image: a.png", (picture,))


async def test_an_unknown_tool_and_bad_arguments_are_left_to_the_toolset_to_answer() -> None:
    broken = ToolUsePart("b", "look", None, '{"path": ')
    talk = Conversation([use(call("nope"), broken), say("ok")], {"look": echo})
    await talk.prompt()
    assert [made.name for made in talk.toolset.calls] == ["nope", "look"]
    assert talk.toolset.calls[1].raw_arguments == '{"path": '
    assert all(result.text.startswith("[error] ") for result in talk.results)


async def test_a_call_id_that_comes_twice_in_one_message_runs_once() -> None:
    talk = Conversation([use(call("add", id="x", n=1), call("add", id="x", n=1)), say("ok")], {"add": echo})
    await talk.prompt()
    assert len(talk.toolset.calls) == 1
    first, second = talk.results
    assert not first.is_error
    assert second.is_error
    assert "was not run" in second.text
    assert_acceptable(talk.history.messages())


async def test_calls_of_an_answer_beyond_the_cap_are_refused_and_told() -> None:
    many = [use(*(call("add", n=n) for n in range(2000))), use(call("add", n=2000)), say("ok")]
    talk = Conversation(many, {"add": echo})
    await talk.prompt()
    assert [made.arguments for made in talk.toolset.calls] == [{"n": n} for n in (*range(64), 2000)]
    assert [part.is_error for part in talk.results] == [False] * 64 + [True] * 1936 + [False]
    assert "more than 64 tool calls (agent.max_tool_calls_per_answer), so this one was not run" in talk.results[64].text
    assert_acceptable(talk.history.messages())


async def test_hundreds_of_calls_run_across_a_turn() -> None:
    script = [use(*(call("add", n=64 * answer + n) for n in range(64))) for answer in range(8)]
    talk = Conversation([*script, say("ok")], {"add": echo})
    await talk.prompt()
    assert len(talk.toolset.calls) == 512
    assert not any(part.is_error for part in talk.results)


async def test_a_call_sent_twice_takes_no_place_of_one_that_may_run() -> None:
    calls = [call("add", id="x", n=1), call("add", id="x", n=1), call("add", n=2), call("add", n=3)]
    talk = Conversation([use(*calls), say("ok")], {"add": echo}, limits=Limits(max_calls=2))
    await talk.prompt()
    assert [made.arguments for made in talk.toolset.calls] == [{"n": 1}, {"n": 2}]


async def test_calls_without_an_id_each_get_one_and_run() -> None:
    talk = Conversation([use(call("look", id="", n=1), call("look", id="", n=2)), say("ok")], {"look": echo})
    await talk.prompt()
    assert [made.arguments for made in talk.toolset.calls] == [{"n": 1}, {"n": 2}]
    assert_acceptable(talk.history.messages())


async def test_an_id_known_from_an_earlier_message_is_made_unique_and_the_call_runs() -> None:
    script = [use(call("look", id="call_0", n=1)), use(call("look", id="call_0", n=2)), say("ok")]
    talk = Conversation(script, {"look": echo})
    await talk.prompt()
    assert [made.arguments for made in talk.toolset.calls] == [{"n": 1}, {"n": 2}]
    assert_acceptable(talk.history.messages())


async def test_usage_is_told_after_every_model_call_and_summed_up() -> None:
    first = Step(calls=(call("look"),), usage=Usage(input=10, output=5, cache_read=100, cache_write=1))
    talk = Conversation([first, Step(text="ok", usage=Usage(input=200, output=7))], {"look": echo})
    await talk.prompt()
    assert talk.usage == [UsageChanged(116, 200_000), UsageChanged(207, 200_000)]


async def test_usage_is_estimated_for_a_model_that_reports_none() -> None:
    talk = Conversation([Step(text="x" * 4000, usage=Usage())])
    await talk.prompt()
    assert 1000 <= talk.usage[0].used <= 1100


async def test_an_answer_whose_prompt_was_not_counted_does_not_empty_the_conversation() -> None:
    talk = Conversation([Step(text="x" * 4000, usage=Usage(output=1000))])
    await talk.prompt("y" * 4000)
    assert talk.usage[0].used > 2000


async def test_a_count_that_no_model_can_hold_does_not_fill_the_conversation() -> None:
    talk = Conversation([Step(text="ok", usage=Usage(input=2**31 - 1, output=2**31 - 1)), Step(text="fine")])
    assert [await talk.prompt(), await talk.prompt()] == [StopReason.END_TURN] * 2
    assert talk.usage[0].used < 100


async def test_the_iteration_cap_ends_the_turn_and_the_next_prompt_goes_on() -> None:
    script = [*(use(call("look", n=n)) for n in range(3)), say("rest")]
    talk = Conversation(script, {"look": echo}, limits=Limits(max_tool_iterations=3))
    assert await talk.prompt() is StopReason.MAX_TURN_REQUESTS
    assert len(talk.toolset.calls) == 3
    assert "3 rounds" in talk.text
    assert await talk.prompt("continue") is StopReason.END_TURN
    assert_acceptable(talk.history.messages())


async def test_a_repetition_is_told_to_the_model_in_the_result_and_ends_the_turn_when_it_goes_on() -> None:
    talk = Conversation([use(call("other"), call("look", n=1)) for _ in range(9)], {"look": echo, "other": echo})
    assert await talk.prompt() is StopReason.END_TURN
    assert len(talk.toolset.calls) == 12
    assert "same output" in talk.text
    noted = [number for number, part in enumerate(talk.results) if "[repeated: look gave the same output" in part.text]
    assert noted == [5]
    assert_acceptable(talk.history.messages())


async def test_a_model_that_is_told_of_its_repetition_and_changes_its_way_goes_on() -> None:
    script = [*(use(call("look", n=1)) for _ in range(3)), use(call("look", n=2)), say("found")]
    talk = Conversation(script, {"look": echo})
    assert await talk.prompt() is StopReason.END_TURN
    assert talk.text == "found"


async def test_polling_is_no_repetition() -> None:
    script = [*(use(call("process", action="output")) for _ in range(12)), say("ready")]
    talk = Conversation(script, {"process": lambda _: "(no new output)"}, polling=("process",))
    assert await talk.prompt() is StopReason.END_TURN
    assert talk.text == "ready"
    assert not any("repeated" in part.text for part in talk.results)


async def test_the_model_is_told_five_rounds_before_the_end_and_once() -> None:
    talk = Conversation(
        [use(call("look", n=n)) for n in range(20)], {"look": echo}, limits=Limits(max_tool_iterations=12)
    )
    assert await talk.prompt() is StopReason.MAX_TURN_REQUESTS
    told = [part.text for part in talk.provider.requests[7].messages[-1].parts if isinstance(part, TextPart)]
    assert told == ["[5 more rounds of tool calls in this turn: finish, or say what is done and what is left]"]
    for before, after in zip(talk.provider.requests, talk.provider.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages, "what was sent stays as it is, for the cache"
    notes = [part for message in talk.history.messages() for part in message.parts if part == TextPart(told[0])]
    assert len(notes) == 1


async def test_a_turn_without_a_limit_of_rounds_goes_on_until_the_model_is_done() -> None:
    script = [*(use(call("look", n=n)) for n in range(250)), say("done")]
    talk = Conversation(script, {"look": echo}, limits=Limits(max_tool_iterations=0))
    assert await talk.prompt() is StopReason.END_TURN
    assert len(talk.toolset.calls) == 250
    notes = [part for message in talk.history.messages()[1:] for part in message.parts if isinstance(part, TextPart)]
    assert notes == [TextPart("done")], "the model is told of no limit"


async def test_the_iteration_cap_comes_before_a_doom_loop() -> None:
    talk = Conversation(
        [use(call("look", n=1)) for _ in range(6)], {"look": echo}, limits=Limits(max_tool_iterations=6)
    )
    assert await talk.prompt() is StopReason.MAX_TURN_REQUESTS


CUT_OFF = Step(text="I write. ", calls=(ToolUsePart("", "look", None, '{"content": "lon'),), stop=ModelStop.MAX_TOKENS)


async def test_a_model_that_hits_its_output_limit_in_a_call_is_told_so_and_goes_on() -> None:
    talk = Conversation([CUT_OFF, use(call("look", n=1)), say("done")], {"look": echo})
    assert await talk.prompt() is StopReason.END_TURN
    assert [made.arguments for made in talk.toolset.calls] == [{"n": 1}]
    told = talk.provider.requests[1].messages[-1].parts[0]
    assert isinstance(told, ToolResultPart)
    assert told.is_error
    assert "reached the output limit in the middle of a call, so none of its calls was run" in told.text
    assert "in smaller parts" in told.text
    assert "output limit" not in talk.text
    assert_acceptable(talk.history.messages())


async def test_three_answers_in_a_row_that_are_cut_off_in_a_call_end_the_turn() -> None:
    script = [CUT_OFF, CUT_OFF, use(call("look", n=1)), CUT_OFF, CUT_OFF, CUT_OFF, say("never asked for")]
    talk = Conversation(script, {"look": echo})
    assert await talk.prompt() is StopReason.MAX_TOKENS
    assert len(talk.provider.requests) == 6
    assert "output limit in the middle of a tool call" in talk.text
    assert "in smaller parts" in talk.results[-1].text
    assert_acceptable(talk.history.messages())


async def test_a_turn_stops_at_80_percent_of_the_context_budget() -> None:
    full = Step(calls=(call("look"),), usage=Usage(input=750, output=51))
    talk = Conversation([full, say("never asked for")], {"look": echo}, context_window=1000)
    assert await talk.prompt() is StopReason.MAX_TOKENS
    assert "new session" in talk.text
    assert len(talk.provider.requests) == 1
    assert_acceptable(talk.history.messages())


async def test_the_budget_counts_what_tools_said_since_the_last_call() -> None:
    talk = Conversation([use(call("look"))], {"look": lambda _: "x" * 4000}, limits=Limits(context_budget=1200))
    assert await talk.prompt() is StopReason.MAX_TOKENS


async def test_a_budget_over_the_models_window_does_not_widen_it() -> None:
    full = Step(calls=(call("look"),), usage=Usage(input=750, output=51))
    talk = Conversation([full], {"look": echo}, context_window=1000, limits=Limits(context_budget=100_000))
    assert await talk.prompt() is StopReason.MAX_TOKENS


async def test_a_model_that_does_not_say_its_window_is_not_stopped() -> None:
    talk = Conversation([Step(text="ok", usage=Usage(input=900_000))] * 2, context_window=0)
    assert await talk.prompt() is StopReason.END_TURN
    assert await talk.prompt() is StopReason.END_TURN


async def test_a_prompt_over_the_budget_is_not_sent_and_not_kept() -> None:
    talk = Conversation([say("ok")], limits=Limits(context_budget=1000))
    assert await talk.prompt("x" * 4000) is StopReason.MAX_TOKENS
    assert "not sent" in talk.text
    assert talk.provider.requests == []
    assert talk.history.messages() == ()
    assert await talk.prompt("short") is StopReason.END_TURN


async def test_an_answer_cut_off_at_the_output_limit_ends_the_turn() -> None:
    talk = Conversation([Step(text="It is", stop=ModelStop.MAX_TOKENS), say("it.")])
    assert await talk.prompt() is StopReason.MAX_TOKENS
    assert talk.said == ["It is"]
    assert await talk.prompt("continue") is StopReason.END_TURN


async def test_a_call_cut_off_at_the_output_limit_does_not_run() -> None:
    cut = ToolUsePart("t", "write", None, '{"path": "a.py", "content": "x')
    whole = call("write", path="b.py")
    script = [Step(text="Writing.", calls=(whole, cut), stop=ModelStop.MAX_TOKENS), say("Then not.")]
    talk = Conversation(script, {"write": echo})
    assert await talk.prompt() is StopReason.END_TURN
    assert talk.toolset.calls == []
    assert [part.is_error for part in talk.results] == [True, True]
    assert_acceptable(talk.history.messages())


async def test_a_refusal_takes_the_prompt_and_all_after_it_out_of_the_history() -> None:
    script = [say("Hi."), use(call("look")), Step(text="No", calls=(call("look"),), stop=ModelStop.REFUSAL), say("ok")]
    talk = Conversation(script, {"look": echo})
    await talk.prompt("hello")
    before = talk.history.messages()
    assert await talk.prompt("something bad") is StopReason.REFUSAL
    assert talk.history.messages() == before
    assert len(talk.toolset.calls) == 1
    assert "refused" in talk.text
    assert await talk.prompt("something good") is StopReason.END_TURN


@pytest.mark.parametrize("empty", [Step(), Step(text="  \n"), Step(thought="Hm.")])
async def test_an_empty_answer_is_told_and_not_kept(empty: Step) -> None:
    talk = Conversation([empty, say("ok")])
    assert await talk.prompt("one") is StopReason.END_TURN
    assert "no answer" in talk.text
    assert talk.said == []
    assert await talk.prompt("two") is StopReason.END_TURN
    assert_acceptable(talk.history.messages())


async def test_an_empty_end_after_text_and_tools_needs_no_comment() -> None:
    talk = Conversation([use(call("look"), text="Looking."), Step()], {"look": echo})
    assert await talk.prompt() is StopReason.END_TURN
    assert talk.text == "Looking."


async def test_a_provider_error_is_told_in_its_own_words_and_ends_the_turn() -> None:
    talk = Conversation([provider_error(), say("ok")])
    assert await talk.prompt() is StopReason.END_TURN
    assert "scripted/script-1 answered 500: try later" in talk.text
    assert talk.agent.failure is not None
    assert talk.said == []
    assert await talk.prompt("continue") is StopReason.END_TURN
    assert talk.agent.failure is None
    assert [part.text for part in talk.history.messages()[0].parts if isinstance(part, TextPart)] == ["go", "continue"]


async def test_a_provider_error_in_mid_stream_keeps_what_was_said_and_not_the_error() -> None:
    talk = Conversation([Step(text=("Half ", "an ans"), thought="Hm.", failure=provider_error())])
    assert await talk.prompt() is StopReason.END_TURN
    assert talk.said == ["Half an ans"]
    assert len(set(talk.text_ids)) == 2
    assert_acceptable(talk.history.messages())


async def test_a_provider_error_after_tools_leaves_their_results_in_place() -> None:
    talk = Conversation([use(call("look", id="a")), provider_error(), say("ok")], {"look": echo})
    assert await talk.prompt() is StopReason.END_TURN
    assert [part.id for part in talk.results] == ["a"]
    assert await talk.prompt("continue") is StopReason.END_TURN
    assert len(talk.toolset.calls) == 1
    assert_acceptable(talk.history.messages())


async def test_a_stream_without_an_end_is_a_provider_error() -> None:
    talk = Conversation([Step(text="Half", ends=False)])
    assert await talk.prompt() is StopReason.END_TURN
    assert "broke off" in talk.text
    assert talk.agent.failure is not None
    assert talk.agent.failure.kind is ProviderErrorKind.PROTOCOL
    assert talk.said == ["Half"]


@pytest.mark.parametrize(
    ("kind", "stop"),
    [
        (ProviderErrorKind.INVALID_REQUEST, StopReason.END_TURN),
        (ProviderErrorKind.CONTEXT_TOO_LONG, StopReason.MAX_TOKENS),
    ],
)
async def test_a_prompt_the_model_cannot_take_does_not_spoil_the_session(
    kind: ProviderErrorKind, stop: StopReason
) -> None:
    talk = Conversation([say("Hi."), provider_error(kind), say("ok")])
    await talk.prompt("hello")
    before = talk.history.messages()
    assert await talk.prompt("poison") is stop
    assert talk.history.messages() == before
    assert await talk.prompt("fine") is StopReason.END_TURN


async def test_a_prompt_without_content_is_answered_without_the_model() -> None:
    talk = Conversation([])
    assert await talk.prompt("  ") is StopReason.END_TURN
    assert talk.text
    assert talk.history.messages() == ()


async def test_a_bug_in_a_tool_goes_on_as_an_exception_and_the_history_is_good() -> None:
    def crash(_: ToolCall) -> str:
        raise ZeroDivisionError

    talk = Conversation(
        [use(call("crash"), call("look")), say("ok")], {"crash": crash, "look": echo}, mutating=("crash",)
    )
    with pytest.raises(ExceptionGroup) as raised:
        await talk.prompt()
    assert raised.group_contains(ZeroDivisionError)
    assert [part.is_error for part in talk.results] == [True, True]
    assert await talk.prompt("continue") is StopReason.END_TURN
    assert_acceptable(talk.history.messages())


async def test_the_system_prompt_and_the_tools_are_the_same_in_every_request() -> None:
    talk = Conversation([use(call("look")), say("ok"), say("ok")], {"look": echo})
    await talk.prompt()
    await talk.prompt()
    assert len({request.system for request in talk.provider.requests}) == 1
    first, *others = talk.provider.requests
    assert first.tools == tuple(talk.toolset.specs())
    assert all(request.tools == first.tools for request in others)


async def test_a_stream_is_closed_when_its_end_was_read() -> None:
    talk = Conversation([say("ok")])
    await talk.prompt()
    assert talk.provider.closed == 1
