"""What is said to a model that calls a tool wrongly again, and what counts for its reputation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent.aids.phases import Record, Reflection
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import ToolUsePart
from acp_agent.core.types import ToolResult
from tests.rows import each_row

WORTH_IT = (ToolErrorCategory.INVALID_PARAMETERS, ToolErrorCategory.TYPE_MISMATCH)
OTHERS = [each for each in ToolErrorCategory if each not in WORTH_IT]
FINE = ToolResult("fine")


def outcome(result: ToolResult | ToolErrorCategory, tool: str = "edit") -> tuple[ToolUsePart, ToolResult]:
    if isinstance(result, ToolErrorCategory):
        result = ToolResult.failed(ToolFailure(result, "no"))
    return ToolUsePart("u", tool, {}), result


def reflection() -> Reflection:
    return Reflection(lambda: "p:m")


@pytest.mark.parametrize("category", WORTH_IT)
def test_a_second_call_that_does_not_fit_is_worth_a_word(category):
    watch = reflection()
    assert watch.finished([outcome(category)]) is None
    told = watch.finished([outcome(category)])
    assert told is not None
    assert told.startswith("[self_reflection]\nedit: 2 calls in this turn had arguments that do not fit.")


@each_row("category", OTHERS)
def test_no_other_failure_is_however_often_it_comes(category):
    watch = reflection()
    assert all(watch.finished([outcome(category)] * 5) is None for _ in range(5))


def test_tools_are_counted_apart_and_told_of_together():
    watch = reflection()
    wrong = ToolErrorCategory.TYPE_MISMATCH
    assert watch.finished([outcome(wrong, "edit"), outcome(wrong, "write")]) is None
    told = watch.finished([outcome(wrong, "edit"), outcome(wrong, "write"), outcome(wrong, "read")])
    assert told is not None
    assert [line.partition(":")[0] for line in told.splitlines()] == ["[self_reflection]", "edit", "write"]
    assert watch.finished([outcome(FINE, "read")]) is None


def test_a_conversation_that_begins_anew_has_no_mistake_in_it():
    watch, wrong = reflection(), ToolErrorCategory.INVALID_PARAMETERS
    watch.finished([outcome(wrong)])
    assert watch.status()
    watch.clear()
    assert watch.status() == ()
    assert watch.finished([outcome(wrong)]) is None


def test_a_success_and_a_new_turn_start_the_count_over():
    watch, wrong = reflection(), ToolErrorCategory.INVALID_PARAMETERS
    watch.finished([outcome(wrong)])
    watch.finished([outcome(FINE)])
    assert watch.finished([outcome(wrong)]) is None
    watch.begin()
    assert watch.finished([outcome(wrong)]) is None
    assert watch.finished([outcome(wrong), outcome(FINE)]) is None


def test_outcomes_may_come_as_an_iterator():
    watch, wrong = reflection(), ToolErrorCategory.INVALID_PARAMETERS
    assert watch.finished(iter([outcome(wrong), outcome(wrong)])) is not None
    assert watch.status() == ("Reputation: p:m 0.25 (2 of 2 calls did not fit their tool)",)


@each_row("category", ToolErrorCategory)
def test_three_categories_count_against_a_model_and_the_others_say_nothing_of_it(category):
    reputation = Reflection(lambda: "p:m")
    reputation.finished([outcome(category)])
    mistaken = category.value in ("tool_not_found", "invalid_parameters", "type_mismatch")
    assert reputation.of("p:m") == (Record(1, 1) if mistaken else Record())


def test_each_model_has_its_own_record_and_a_spotless_one_is_not_told():
    model = "p:a"
    reputation = Reflection(lambda: model)
    reputation.finished([outcome(FINE)] * 8)
    model = "p:b"
    reputation.finished([outcome(ToolErrorCategory.TOOL_NOT_FOUND), outcome(FINE)])
    assert reputation.of("p:a").score == 0.9
    assert reputation.status() == ("Reputation: p:b 0.50 (1 of 2 calls did not fit their tool)",)
    assert reputation.of("p:c").score == 0.5


@given(st.integers(0, 10**6), st.data())
def test_a_score_lies_between_nothing_and_one_and_falls_with_each_mistake(calls, data):
    mistakes = data.draw(st.integers(0, calls))
    assert 0 < Record(calls, mistakes).score < 1
    assert mistakes == 0 or Record(calls, mistakes).score < Record(calls, mistakes - 1).score
