"""Forms of servers, reduced to what ACP has: flat, bounded, readable, no secret in them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acp_agent.core.types import Json, JsonObject
from acp_agent.mcp.elicitation import MAX_CHOICES, MAX_FIELDS, SecretRequestedError, form_schema
from tests.wire import schema


def form(**fields: Any) -> Any:
    return {"type": "object", "properties": fields}


def field(**keywords: Any) -> Any:
    """What becomes of a single field."""
    properties = form_schema(form(name=keywords))["properties"]
    assert isinstance(properties, dict)
    return properties["name"]


@pytest.mark.parametrize(
    "keywords",
    [
        {"type": "string", "title": "T", "description": "D", "minLength": 1, "maxLength": 9, "default": "x"},
        {"type": "string", "format": "email"},
        {"type": "string", "pattern": "^[a-z]+$"},
        {"type": "string", "enum": ["a", "b"], "default": "a"},
        {"type": "string", "oneOf": [{"const": "a", "title": "A", "description": "first"}]},
        {"type": "integer", "minimum": 1, "maximum": 9, "default": 5},
        {"type": "number", "minimum": 0.5},
        {"type": "boolean", "default": True},
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1},
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "maxItems": 1},
    ],
)
def test_what_acp_has_comes_through_as_it_is(keywords: dict[str, Any]):
    assert field(**keywords) == keywords


@pytest.mark.parametrize(
    ("keywords", "becomes"),
    [
        ({"type": "string", "format": "uuid", "x": 1, "minLength": -1}, {"type": "string"}),
        ({"type": "string", "pattern": "(?=a)b"}, {"type": "string"}),  # nothing that runs in linear time
        ({"type": "string", "minLength": 2.0}, {"type": "string", "minLength": 2}),
        ({"type": "string", "default": "a\u200bb"}, {"type": "string"}),
        ({"type": "integer", "minimum": True, "default": "5"}, {"type": "integer"}),
        ({"type": "string", "title": "a\u202eb"}, {"type": "string", "title": "a\\u202eb"}),
        (
            {"type": "string", "enum": ["a"], "enumNames": ["A"]},
            {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
        ),
        ({"type": "string", "oneOf": [{"const": "a"}]}, {"type": "string", "oneOf": [{"const": "a", "title": "a"}]}),
    ],
)
def test_what_acp_has_no_word_for_is_left_out(keywords: dict[str, Any], becomes: dict[str, Any]):
    assert field(**keywords) == becomes


@pytest.mark.parametrize(
    "asked",
    [
        None,
        [],
        {"type": "string"},
        {"type": "object", "properties": []},
        form(a={"type": "object"}),
        form(a={"type": "array", "items": {"type": "object"}}),
        form(a={"type": "array"}),
        form(a={"type": ["string", "null"]}),
        form(a={"$ref": "#/x"}),
        form(a=True),
        form(**{"a b": {"type": "string"}}),
        form(**{"a\u200b": {"type": "string"}}),
        form(**{f"f{number}": {"type": "boolean"} for number in range(MAX_FIELDS + 1)}),
        form(a={"type": "string", "enum": []}),
        form(a={"type": "string", "enum": ["x"] * (MAX_CHOICES + 1)}),
        form(a={"type": "string", "enum": ["a\u202eb"]}),
        form(a={"type": "string", "enum": [1]}),
        form(a={"type": "string", "oneOf": ["a"]}),
        form(a={"type": "string", "oneOf": {"const": "a"}}),
        form(a={"type": "string", "description": "x" * 40_000}),
    ],
)
def test_what_cannot_be_shown_is_refused_with_a_reason(asked: Json):
    with pytest.raises(ValueError, match=r"\w"):
        form_schema(asked)


@pytest.mark.parametrize(
    "fields",
    [
        {"password": {"type": "string"}},
        {"x": {"type": "string", "format": "password"}},
        {"x": {"type": "string", "title": "API key"}},
        {"x": {"type": "string", "description": "Paste your access token"}},
        {"pin": {"type": "integer"}},
        {"name": {"type": "string"}, "client_secret": {"type": "string"}},
    ],
)
def test_a_field_for_a_secret_is_refused(fields: dict[str, Any]):
    with pytest.raises(SecretRequestedError):
        form_schema(form(**fields))


def test_a_choice_about_secrets_holds_none():
    form_schema(form(token={"type": "string", "enum": ["keep", "rotate"]}, save_password={"type": "boolean"}))


def test_only_fields_there_are_can_be_needed():
    asked = {**form(a={"type": "string"}), "required": ["a", "b", 5], "title": "T"}

    assert form_schema(asked) == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "title": "T",
    }


_WORDS = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "email", "a", "\u202e", ""])
_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["const", "title", "enum", "anyOf", "oneOf", "type"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYWORDS = st.sampled_from(
    [
        *(
            "title",
            "description",
            "minLength",
            "maxLength",
            "pattern",
            "format",
            "default",
            "enum",
            "enumNames",
            "oneOf",
        ),
        *("minimum", "maximum", "items", "minItems", "maxItems", "anyOf"),
    ]
)


@given(_WORDS, st.dictionaries(_KEYWORDS, _VALUES, max_size=5), _VALUES)
def test_whatever_is_asked_what_is_shown_is_lawful(kind: str, keywords: dict[str, Any], required: Json):
    try:
        shown: JsonObject = form_schema({**form(a={"type": kind, **keywords}), "required": required})
    except (ValueError, SecretRequestedError):
        return
    if schema.available():
        document = schema._schema()
        judge = Draft202012Validator({"$ref": "#/$defs/ElicitationSchema", "$defs": document["$defs"]})
        assert [error.message for error in judge.iter_errors(shown)] == []
    Draft202012Validator.check_schema(shown)
