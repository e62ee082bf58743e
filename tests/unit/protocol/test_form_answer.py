"""Answers held against the form that was shown: nothing gets through that was not asked for (A28)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol.elicitation import LONGEST, fitting
from tests.rows import each_row

TITLED: list[Json] = [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]
FIELDS: JsonObject = {
    "text": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
    "mail": {"type": "string", "format": "email"},
    "page": {"type": "string", "format": "uri"},
    "day": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "date-time"},
    "plain": {"type": "string", "enum": ["x", "y"]},
    "titled": {"type": "string", "oneOf": TITLED},
    "whole": {"type": "integer", "minimum": 1, "maximum": 9},
    "number": {"type": "number", "minimum": 0.5},
    "flag": {"type": "boolean"},
    "many": {"type": "array", "items": {"anyOf": TITLED}, "minItems": 1},
    "few": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "maxItems": 1},
}
FORM: JsonObject = {"type": "object", "properties": FIELDS}


@pytest.mark.parametrize(
    "content",
    [
        {"text": "abc", "mail": "a@b.example", "page": "https://a.example/", "day": "2026-11-21"},
        {"time": "2026-11-21T10:00:00Z", "plain": "y", "titled": "b", "whole": 9, "number": 0.5, "flag": False},
        {"many": ["b", "r"], "few": []},
        {"number": 10**400},
        {},
    ],
)
def test_what_fits_is_handed_on(content: JsonObject):
    assert fitting(FORM, content) == content


@each_row(
    "content",
    [
        {"text": "a"},
        {"text": "abcdef"},
        {"text": "ABC"},
        {"text": 5},
        {"mail": "a.example"},
        {"page": "a b"},
        {"day": "tomorrow"},
        {"time": "10:00"},
        {"plain": "z"},
        {"titled": "Red"},
        {"whole": 0},
        {"whole": 1.5},
        {"whole": True},
        {"whole": "5"},
        {"number": float("nan")},
        {"number": float("inf")},
        {"flag": 1},
        {"flag": "true"},
        {"many": []},
        {"many": ["r", "r"]},
        {"many": ["r", "z"]},
        {"many": "r"},
        {"many": [["r"]]},
        {"few": ["x", "y"]},
        "yes",
        ["abc"],
        7,
    ],
)
def test_what_does_not_fit_spoils_the_answer(content: Json):
    assert fitting(FORM, content) is None


def test_a_whole_number_written_as_another_is_one():
    found = fitting(FORM, {"whole": 5.0})

    assert found == {"whole": 5}
    assert isinstance(found["whole"], int)


def test_a_field_that_is_needed_must_be_there_and_others_may_be_left_empty():
    form: JsonObject = {**FORM, "required": ["text"]}

    assert fitting(form, {"text": "abc", "whole": None, "mail": "", "unknown": [1]}) == {"text": "abc"}
    assert fitting(form, {}) is None
    assert fitting(form, None) is None
    assert fitting(form, {"text": ""}) is None
    assert fitting({"type": "object", "properties": {}}, None) == {}


def test_a_text_without_a_limit_has_one_all_the_same():
    form: JsonObject = {"type": "object", "properties": {"text": {"type": "string"}}}

    assert fitting(form, {"text": "x" * (LONGEST + 1)}) is None


_VALUES = (
    st.none() | st.booleans() | st.integers(-1, 10) | st.floats() | st.text(max_size=6) | st.sampled_from(["x", "abc"])
)


@given(st.dictionaries(st.sampled_from([*FIELDS, "other"]), _VALUES | st.lists(_VALUES, max_size=3), max_size=4))
def test_whatever_is_answered_what_is_handed_on_fits_the_schema(content: dict[str, Json]):
    found = fitting(FORM, content)

    assert found is None or Draft202012Validator(FORM).is_valid(found)
