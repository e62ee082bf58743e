"""Schemas as model APIs take them. One that they refuse costs every request, not only the tool's calls."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.mcp.definitions import MAX_SCHEMA, estimated_size, fit_schema
from tests.rows import each_row

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def of(**properties):
    return {"type": "object", "properties": properties}


@each_row("key", ["filter[id]", "$top", "two words", "größe", "", "x" * 65])
def test_a_parameter_whose_name_model_apis_refuse_is_refused_and_named(key):
    with pytest.raises(ValueError, match="not a parameter name"):
        fit_schema(of(**{key: {"type": "string"}}))
    inner = of(a=of(**{key: {}}))
    assert fit_schema(inner) == inner  # they look at the top only


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf", "not", "enum"])
def test_a_rule_at_the_top_gives_way_where_the_parameters_are_known_without_it(keyword):
    rule = {"required": ["a"]} if keyword == "not" else [{"required": ["a"]}]
    plain = of(a={"type": "string", keyword: rule})
    assert fit_schema({**plain, keyword: rule}) == plain
    with pytest.raises(ValueError, match=keyword):
        fit_schema({"type": "object", keyword: rule})


def test_an_array_of_anything_says_so():
    given = of(a={"type": "array"}, b={"anyOf": [{"type": ["array", "null"]}]}, c={"type": "array", "items": {}})
    fit = of(a={"type": "array", "items": {}}, b={"anyOf": [{"type": ["array", "null"], "items": {}}]})
    assert fit_schema(given)["properties"] == {**fit["properties"], "c": {"type": "array", "items": {}}}
    assert "items" not in given["properties"]["a"]


def test_an_object_without_parameters_says_so():
    assert fit_schema({"type": "object"}) == {"type": "object", "properties": {}}


def test_what_is_an_example_and_no_schema_is_left_as_it_is():
    schema = of(a={"type": "object", "default": {"type": "array"}, "enum": [{"required": True}], "x-own": 1})
    assert fit_schema(schema) == schema


@pytest.mark.parametrize("reference", ["#", "#/$defs/a", "#/$defs/b~1c/properties/d%20e"])
def test_a_reference_that_leads_somewhere_passes(reference):
    schema = {**of(x={"$ref": reference}), "$defs": {"a": {}, "b/c": of(**{"d e": {}})}}
    assert fit_schema(schema) == schema


@pytest.mark.parametrize("reference", ["#/$defs/z", "#/$defs/a/0", "#anchor", "#/properties/list/anyOf/7"])
def test_a_reference_that_leads_nowhere_is_refused(reference):
    with pytest.raises(ValueError, match="refers to a part that it does not have"):
        fit_schema({**of(x={"$ref": reference}, list={"anyOf": [{}]}), "$defs": {"a": {}}})


@each_row(
    "part",
    [
        *({"type": "any"}, {"type": ["string", "text"]}, {"type": []}, {"required": True}),
        *({"required": [1]}, {"items": [{}, 1]}, {"items": "a"}, {"enum": "a"}, {"anyOf": []}),
        *({"anyOf": {}}, {"properties": []}, {"properties": {"a": "string"}}, {"minLength": -1}, {"pattern": 1}),
        *("string", None, 1, []),
    ],
)
def test_what_is_no_schema_of_draft_2020_12_is_refused(part):
    for schema in (of(a=part), {**of(), "$defs": {"a": part}}, of(a={"type": "array", "items": {"anyOf": [part]}})):
        with pytest.raises(ValueError, match="its schema"):
            fit_schema(schema)


@each_row(
    "part, fit",
    [
        ({"type": "string", "enum": None, "format": None, "minLength": None}, {"type": "string"}),
        ({"type": "object", "properties": None, "required": None}, {"type": "object"}),
        ({"type": "object", "additionalProperties": None}, {"type": "object"}),
        ({"default": None, "const": None}, {"default": None, "const": None}),
        ({"type": "array", "items": [{}, {"minimum": None}]}, {"type": "array", "prefixItems": [{}, {}], "items": {}}),
        ({"minimum": 1, "exclusiveMinimum": True, "exclusiveMaximum": False}, {"minimum": 1}),
    ],
)
def test_null_for_what_is_not_set_and_the_forms_of_earlier_drafts_are_taken(part, fit):
    for inside in (lambda schema: of(a=schema), lambda schema: {**of(), "$defs": {"a": schema}}):
        assert fit_schema(inside(part)) == inside(fit)


def test_a_reference_into_a_tuple_of_an_earlier_draft_is_refused():
    with pytest.raises(ValueError, match="refers to a part that it does not have"):
        fit_schema(of(a={"type": "array", "items": [{}]}, b={"$ref": "#/properties/a/items/0"}))


@given(st.dictionaries(st.sampled_from(["properties", "items", "anyOf", "$ref", "type", "required"]), JSON))
def test_what_comes_through_comes_through_again_as_it_is(schema):
    try:
        fit = fit_schema({**schema, "type": "object"})
    except ValueError:
        return
    assert fit_schema(fit) == fit


@given(JSON)
def test_a_weight_is_never_more_than_the_bytes(value):
    assert estimated_size(value, 10_000) <= len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("huge", ["y" * 10**7, [0] * 10**6, [[]] * 10**6, {"a": [{"b": "c" * 10**7}]}])
def test_weighing_stops_at_the_limit(huge):
    assert MAX_SCHEMA < estimated_size(huge, MAX_SCHEMA) <= MAX_SCHEMA + 10**7 + 100
