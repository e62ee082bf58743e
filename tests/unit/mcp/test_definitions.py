"""Tools as servers list them, bounded and shown as they are read."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.mcp import McpOrigin, McpServer, StdioServer
from acp_agent.mcp.definitions import MAX_DEPTH, MAX_DESCRIPTION, MAX_LISTED, MAX_SCHEMA, MAX_TOOLS, ToolListing

SCHEMA = {"type": "object"}
SERVER = McpServer("s", StdioServer("x"), McpOrigin.CONFIG)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=6,
)


def catalogue(*tools, server=SERVER):
    made = ToolListing(server)
    made.add(tools)
    return made


def tool(name="t", description="d", schema=SCHEMA):
    return {"name": name, "description": description, "inputSchema": schema}


@given(
    st.lists(
        JSON | st.fixed_dictionaries({"name": st.text(min_size=1) | JSON, "description": JSON, "inputSchema": JSON})
    )
)
def test_whatever_a_server_lists_what_comes_through_is_bounded_and_visible(tools):
    made = catalogue(*tools)
    for definition in made.definitions():
        assert len(definition.description.encode()) <= MAX_DESCRIPTION
        said = definition.name + definition.description + json.dumps(definition.parameters, ensure_ascii=False)
        assert not [char for char in said if char not in "\n\t" and unicodedata.category(char) in {"Cc", "Cf", "Cs"}]
        assert definition.parameters["type"] == "object"
    told = "".join(made.troubles)
    assert not [char for char in told if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]


@given(
    st.text(
        alphabet=st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Co", "Cn"], exclude_characters="\n\t"), min_size=1
    )
)
def test_no_hidden_character_comes_through_anywhere(hidden):
    hiding = (
        tool(description=f"a{hidden}b"),
        tool(schema={**SCHEMA, "title": hidden}),
        tool(schema={**SCHEMA, "properties": {f"a{hidden}": {}}}),
        tool(schema={**SCHEMA, "enum": [["x", {"y": hidden}]]}),
    )
    for one in hiding:
        if one["description"] != "a\r\nb":
            assert catalogue(one).definitions() == ()


def test_ordinary_text_of_the_world_comes_through():
    said = "Größe — 尺寸 مرحبا שלום हिन्दी ❤️ 👍🏽\n\tindented\r\nCRLF"
    (definition,) = catalogue(tool(description=said)).definitions()
    assert definition.description == said.replace("\r\n", "\n")


@pytest.mark.parametrize("hidden", ["\ufe00", "\ufe0f\ufe0e", "\U000e0100", "\u3164", "\u2800"])
def test_characters_that_are_no_controls_and_show_nothing_are_refused_too(hidden):
    assert catalogue(tool(description=f"a{hidden}b")).definitions() == ()


def test_a_missing_description_is_an_empty_one():
    assert catalogue({"name": "t", "inputSchema": SCHEMA}).definitions()[0].description == ""


def test_a_schema_as_deep_or_large_as_may_be_passes_and_one_step_more_does_not():
    deep = {"type": "object", "x": 1}
    for _ in range(MAX_DEPTH - 1):
        deep = {"type": "object", "x": deep}
    assert catalogue(tool(schema=deep)).definitions()
    assert not catalogue(tool(schema={"type": "object", "x": deep})).definitions()
    room = MAX_SCHEMA - len(json.dumps({"type": "object", "x": ""}))
    assert catalogue(tool(schema={"type": "object", "x": "y" * room})).definitions()
    assert not catalogue(tool(schema={"type": "object", "x": "y" * (room + 1)})).definitions()


def test_all_tools_together_have_a_limit_too():
    wide = {"type": "object", "x": "y" * 30_000}
    made = catalogue(*(tool(f"t{number}", schema=wide) for number in range(100)))
    assert len(made.definitions()) == MAX_LISTED // 30_030
    assert made.full
    many = catalogue(*(tool(f"t{number}") for number in range(MAX_TOOLS + 1)))
    assert (len(many.definitions()), many.full) == (MAX_TOOLS, True)


def test_tools_that_are_left_out_use_up_the_limit_too():
    huge = {"type": "object", "x": ["y" * 1000] * 8000}
    made = catalogue(*(tool(f"t{number}", schema=huge) for number in range(100)))
    assert made.full
    made.add([tool("later")])
    assert made.definitions() == ()
    empty = catalogue(*[{}] * 100_000)
    assert empty.full


def test_of_a_long_description_only_what_is_kept_is_read():
    counted = 0

    class Counted(str):
        __slots__ = ()

        def __getitem__(self, key):
            nonlocal counted
            part = super().__getitem__(key)
            counted += len(part)
            return part

        def replace(self, *_):
            raise AssertionError("all of it was read")

        encode = __iter__ = replace

    (definition,) = catalogue(tool(description=Counted("d\r\n" * 10**6))).definitions()
    assert len(definition.description.encode()) <= MAX_DESCRIPTION
    assert definition.description.endswith("[cut]")
    assert 0 < counted <= 4 * MAX_DESCRIPTION


def test_a_tool_whose_parameters_model_apis_refuse_is_left_out_and_the_reason_told():
    made = catalogue(tool("bad", schema={**SCHEMA, "properties": {"filter[id]": {}}}), tool("good"))
    assert [definition.name for definition in made.definitions()] == ["good"]
    assert made.troubles == ['bad was left out: "filter[id]" is not a parameter name that model APIs take']


def test_what_is_complained_of_is_bounded():
    assert len(catalogue(*[7] * 1000).troubles) == 10


@pytest.mark.parametrize(
    ("allow", "deny", "left"), [((), (), "abc"), (("a",), (), "a"), ((), ("b",), "ac"), (("a", "b"), ("b",), "a")]
)
def test_deny_wins_and_an_empty_allow_means_all(allow, deny, left):
    server = McpServer("s", StdioServer("x"), McpOrigin.CONFIG, allow=allow, deny=deny)
    made = catalogue(*map(tool, "abc"), server=server)
    assert "".join(definition.name for definition in made.definitions()) == left
    assert made.troubles == []
