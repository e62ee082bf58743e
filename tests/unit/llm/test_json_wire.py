"""JSON from outside, and what may not get past."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import ToolKind, ToolSpec
from acp_agent.llm.endpoint import (
    MAX_DEPTH,
    as_count,
    function_tool,
    read_arguments,
    read_object,
    replace_surrogates,
    tool_bytes,
    write,
)
from acp_agent.tools.outline import Outline
from tests.rows import each_row

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_what_is_written_reads_back_the_same(value: dict) -> None:
    assert read_object(write(value).decode()) == value
    assert read_object(json.dumps(value)) == value


@given(st.text())
def test_whatever_text_is_read_gives_an_object_or_a_value_error(text: str) -> None:
    try:
        value = read_object(text)
    except ValueError:
        return
    assert isinstance(value, dict)
    write(value)


@given(st.text(alphabet=st.characters(min_codepoint=0xD700, max_codepoint=0xE000), max_size=10))
def test_mended_text_can_always_be_encoded(text: str) -> None:
    assert replace_surrogates(text).encode() or not text


def test_surrogate_pairs_are_joined_and_lone_ones_replaced_at_any_depth() -> None:
    text = r'{"a": ["\ud83d\ude00", {"\ud83d": "\ude00x"}]}'
    assert read_object(text) == {"a": ["😀", {"\ufffd": "\ufffdx"}]}


@each_row("text", ["", "[]", "null", "3", "{", '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', "{" * 99])
def test_what_is_no_strict_json_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the type is the contract
        read_object(text)


def test_nesting_is_bounded() -> None:
    def nested(levels: int) -> str:
        return '{"a": ' * levels + "1" + "}" * levels

    assert read_object(nested(MAX_DEPTH - 1))
    with pytest.raises(ValueError, match="deep"):
        read_object(nested(MAX_DEPTH + 1))
    with pytest.raises(ValueError, match="deep"):
        read_object(nested(100_000))


def test_a_number_with_too_many_digits_is_told_in_words_of_ours() -> None:
    with pytest.raises(ValueError, match=r"a number of more than 4,300 digits$"):
        read_object('{"a": ' + "9" * 5000 + "}")


def test_no_arguments_at_all_are_an_empty_object() -> None:
    assert read_arguments("") == {}
    assert read_arguments(" \n") == {}
    assert read_arguments("[]") is None


def test_a_count_is_a_positive_integer_or_nothing() -> None:
    assert [as_count(value) for value in (3, 3.0, 0, -1, True, 2.5, "4", None)] == [3, 3, 0, 0, 0, 0, 0, 0]
    assert [as_count(2**bits - 2) for bits in (32, 63, 64)] == [0, 0, 0]
    assert [as_count(2**bits - 1) for bits in (32, 63, 64)] == [0, 0, 0]  # -1 of a server that counts without a sign


def test_text_with_a_lone_surrogate_can_be_sent() -> None:
    assert write({"a": "x\ud83d"}) == b'{"a":"x?"}'


def test_the_tools_of_all_sessions_are_written_once() -> None:
    one, two = Outline().spec(), Outline().spec()
    assert tool_bytes(function_tool, one) is tool_bytes(function_tool, two)
    assert tool_bytes(function_tool, one) == write(function_tool(one))


def test_a_tool_with_other_words_or_parameters_is_written_anew() -> None:
    specs = [ToolSpec("a", words, {"type": kind}, ToolKind.READ, mutates=False) for words in "xy" for kind in "xy"]
    assert [tool_bytes(function_tool, each) for each in specs] == [write(function_tool(each)) for each in specs]
    assert len({tool_bytes(function_tool, each) for each in specs}) == 4


def test_a_tool_has_bytes_for_each_form_of_a_tool() -> None:
    spec = Outline().spec()
    assert tool_bytes(lambda each: {"name": each.name}, spec) == write({"name": spec.name})
    assert tool_bytes(function_tool, spec) == write(function_tool(spec))
