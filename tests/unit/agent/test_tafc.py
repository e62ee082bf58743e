"""A place to think before demanding arguments: who gets it, and that nothing of it is left behind."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent.aids.arguments import FIELD, Tafc, complexity, fit_threshold, is_thought, strip
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.messages import Message, Role, TextPart, ThoughtPart, ToolUsePart
from acp_agent.core.types import Json, JsonObject, ToolKind, ToolSpec
from acp_agent.tools.registry import default_tools
from tests.rows import each_row

THOUGHT = "the user surely means the staging cluster"

DEMANDING: JsonObject = {
    "type": "object",
    "properties": {
        "owner": {"type": "string"},
        "repo": {"type": "string"},
        "event": {"enum": ["APPROVE", "REQUEST_CHANGES", "COMMENT"]},
        "comments": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "side": {"enum": ["LEFT", "RIGHT"]}},
                "required": ["path", "side"],
            },
        },
    },
    "required": ["owner", "repo", "event", "comments"],
    "additionalProperties": False,
}


def tool(parameters: JsonObject, name: str = "review") -> ToolSpec:
    return ToolSpec(name, "Reviews.", parameters, ToolKind.OTHER, mutates=True)


def calling(arguments: JsonObject | None, raw: str = "") -> Message:
    return Message(Role.ASSISTANT, (TextPart("so:"), ToolUsePart("c1", "review", arguments, raw)))


# ------------------------------------------------------------------------------------------------- who gets it


def test_a_demanding_tool_gets_the_field_in_front_and_need_not_fill_it():
    spec = tool(DEMANDING)

    dressed = Tafc(0.6).with_field(spec)

    assert [*dressed.parameters["properties"]] == [FIELD, "owner", "repo", "event", "comments"]
    assert dressed.parameters["properties"][FIELD]["type"] == "string"
    assert dressed.parameters["required"] == DEMANDING["required"]
    assert dressed.parameters["additionalProperties"] is False
    assert FIELD not in spec.parameters["properties"], "the tool's own schema stays as it was"


def test_none_of_the_built_in_tools_is_demanding():
    tafc = Tafc()
    assert all(tafc.with_field(each.spec()) is each.spec() for each in default_tools())


def test_the_score_just_at_the_threshold_counts():
    score = complexity(DEMANDING)
    assert Tafc(score).with_field(tool(DEMANDING)) != tool(DEMANDING)
    assert Tafc(min(1.0, score + 1e-9)).with_field(tool(DEMANDING)) == tool(DEMANDING)


def test_a_tool_without_parameters_is_left_alone_at_any_threshold():
    for parameters in ({"type": "object"}, {"type": "object", "properties": {}}):
        assert Tafc(0.0).with_field(tool(parameters)) == tool(parameters)


def test_the_same_spec_gives_the_same_object_and_a_changed_one_is_looked_at_anew():
    tafc = Tafc()
    first = tafc.with_field(tool(DEMANDING))
    assert tafc.with_field(tool(json.loads(json.dumps(DEMANDING)))) is first
    plain = tool({"type": "object", "properties": {"a": {}}})
    assert tafc.with_field(plain) is plain
    assert tafc.with_field(tool(DEMANDING)) == first


@each_row(
    "schema, score",
    [
        ({}, 0.0),
        ({"properties": {name: {} for name in "abcdef"}}, 0.0),
        ({"properties": {}, "required": ["a", "b", "c"]}, 0.2),
        ({"required": [*"abcdefghi"]}, 0.4),
        ({"properties": {"a": {"enum": [1, 2, 3, 4, 5]}}}, 0.15),
        ({"properties": {"a": {"enum": [*range(50)]}}}, 0.3),
        ({"properties": {"a": {"anyOf": [{"const": 1}, {"const": 2}, {"type": "null"}]}}}, 0.06),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}}}}, 0.075),
        ({"properties": {"a": {"items": {"properties": {"b": {"items": {"properties": {"c": {}}}}}}}}}, 0.3),
        (
            {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"properties": {}, "required": ["b"]}}},
            0.4 / 6 + 0.075,
        ),
        ({"properties": {"a": {"$ref": "#/$defs/none"}, "b": {"$ref": 7}}, "required": "a", "enum": {}}, 0.0),
    ],
)
def test_the_score_adds_up_required_names_nesting_and_choices(schema, score):
    assert complexity(schema) == pytest.approx(score)


def test_a_schema_that_contains_itself_is_scored_all_the_same():
    tree: JsonObject = {"properties": {"children": {"items": {"$ref": "#"}}}, "required": ["children"]}
    assert complexity(tree) > 0.3
    fan: list[Json] = [{"$ref": "#/$defs/a"}] * 5_000
    assert complexity({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": fan}}}) == 0.0


JSONS = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["properties", "required", "enum", "items", "anyOf", "$ref", "const", "a"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["properties", "required", "items", "oneOf", "$defs"]), JSONS, max_size=5))
def test_any_schema_has_a_score_from_0_to_1_and_is_dressed_the_same_way_twice(schema):
    assert 0.0 <= complexity(schema) <= 1.0
    made = [json.dumps(Tafc(0.3).with_field(tool(schema)).parameters) for _ in range(2)]
    assert made[0] == made[1]


@each_row(
    "threshold, fit",
    [(0.5, 0.5), (-1, 0), (7, 1), (float("nan"), 0.6), (float("inf"), 0.6), (float("-inf"), 0.6)],
)
def test_a_threshold_is_brought_into_its_range(threshold, fit):
    assert fit_threshold(threshold) == Tafc(threshold).threshold == fit


def test_status_says_how_many_tools_think():
    plain = tool({"type": "object"}, "plain")
    assert Tafc().status([tool(DEMANDING), plain]) == "Thinking before calls (TAFC): 1 of 2 tools ask for it"


# ------------------------------------------------------------------------------------------- what is taken off


def test_the_thought_is_taken_off_and_the_call_goes_on():
    stripped = strip(calling({FIELD: THOUGHT, "owner": "me", "_TAFC_Thinking": [THOUGHT], "repo": "r"}))

    assert stripped.message == calling({"owner": "me", "repo": "r"})
    assert not stripped.answered


def test_a_tools_own_thinking_is_an_argument_like_any_other():
    own = calling({"thinking": "x", "_tafc": 1, "tafc_think": 2, "think": 3, "thoughts": {FIELD: "deeper is data"}})
    assert strip(own).message == own


def test_a_call_that_is_a_thought_and_nothing_else_is_answered_with_what_to_do():
    stripped = strip(calling({FIELD: THOUGHT}))

    assert stripped.message == calling({})
    failure = stripped.answered["c1"].failure
    assert failure is not None
    assert failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert "with its arguments" in stripped.answered["c1"].text
    assert THOUGHT not in stripped.answered["c1"].text


def test_a_call_without_arguments_is_no_thought():
    assert not strip(calling({})).answered


@each_row(
    "raw",
    [
        f'{{"{FIELD}": "{THOUGHT}", "owner": "me"',
        f'{{"owner": "me", "{FIELD}": "{THOUGHT}',
        f'{{"{FIELD.upper()}ing": "he said "{THOUGHT}" so", "a": 1}}',
        f"{{'{FIELD}': '{THOUGHT}'}}",
        f"{{{FIELD}: {THOUGHT}}}",
        f'{{"\\u005ftafc\\u005FTHINK": "{THOUGHT}"',
        f'{{"_t\\u0061fc_\\u0054hink": "{THOUGHT}"',
        json.dumps(json.dumps({FIELD: THOUGHT})),
        json.dumps([{"arguments": {FIELD: THOUGHT}}]),
    ],
)
def test_arguments_nobody_can_read_leak_no_thought(raw):
    stripped = strip(calling(None, raw))

    (use,) = stripped.message.tool_uses
    assert use.arguments is None
    assert THOUGHT not in use.raw_arguments
    assert raw.startswith(use.raw_arguments)
    assert not stripped.answered, "what is wrong with them is for the tool to say"


def test_unreadable_arguments_without_a_thought_stay_as_they_are():
    broken = calling(None, '{"path": "a", ')
    assert strip(broken).message == broken


def test_raw_arguments_beside_readable_ones_keep_no_thought_either():
    stripped = strip(calling({FIELD: THOUGHT, "a": 1}, json.dumps({FIELD: THOUGHT, "a": 1})))
    (use,) = stripped.message.tool_uses
    assert use.arguments == {"a": 1}
    assert THOUGHT not in use.raw_arguments


def test_everything_else_in_a_message_stays_and_each_call_is_looked_at_by_itself():
    message = Message(
        Role.ASSISTANT,
        (
            ThoughtPart(f"about {FIELD}", "p", {"signature": "s"}),
            ToolUsePart("a", "x", {FIELD: THOUGHT}),
            TextPart(FIELD),
            ToolUsePart("b", "x", {FIELD: THOUGHT, "y": None}),
            ToolUsePart("c", "x", {"y": 1}),
        ),
    )

    stripped = strip(message)

    assert [*stripped.answered] == ["a"]
    assert [use.arguments for use in stripped.message.tool_uses] == [{}, {"y": None}, {"y": 1}]
    assert [part for part in stripped.message.parts if not isinstance(part, ToolUsePart)] == [
        message.parts[0],
        message.parts[2],
    ]


NAMES = st.text(max_size=6) | st.sampled_from(["thinking", "think", "_tafc", "path"])
THOUGHTS = st.builds(
    lambda field, upper, tail: "".join(c.upper() if u else c for c, u in zip(field, upper, strict=False)) + tail,
    st.just(FIELD),
    st.lists(st.booleans(), min_size=len(FIELD), max_size=len(FIELD)),
    st.text(max_size=3),
)


@given(st.dictionaries(NAMES, JSONS, max_size=5), st.dictionaries(THOUGHTS, JSONS, max_size=3), st.randoms())
def test_no_real_argument_is_lost_and_no_thought_is_kept(real, thoughts, random):
    mixed = [*real.items(), *thoughts.items()]
    random.shuffle(mixed)

    stripped = strip(calling(dict(mixed)))

    (use,) = stripped.message.tool_uses
    assert use.arguments == real
    assert not any(map(is_thought, use.arguments))
    assert bool(stripped.answered) == (bool(thoughts) and not real)
    assert strip(stripped.message).message == stripped.message


@given(THOUGHTS, st.text(), st.text(max_size=20))
def test_whatever_stands_behind_the_field_in_broken_arguments_is_gone(field, thought, before):
    (use,) = strip(calling(None, f'{before}"{field}": {thought}')).message.tool_uses
    assert f'{before}"'.startswith(use.raw_arguments)
