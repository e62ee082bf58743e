"""The tools over the editor's language servers: what they ask, and what they make of any answer."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access, PathSubject, ToolKind, ToolResult
from acp_agent.tools.lsp import LspLimits, actions, file_uri, lsp_tools, uri_path
from acp_agent.tools.lsp_answer import diagnostics, hover, places, symbols
from tests.fakes.fake_languages import FakeLanguages
from tests.rows import each_row
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

SMALL = LspLimits(references=2, workspace_symbols=2, diagnostics=2)
TOOLS = lsp_tools(lambda _method: True, SMALL)
FILES = {"src/a.py": "x = 1\n", "src/ü b.py": "y = 2\n"}
A, HERE = "file:///project/src/a.py", {"path": "src/a.py", "line": 3, "column": 5}


def span(line: int, column: int, width: int = 3) -> dict[str, Any]:
    """A range as LSP has it, from 0."""
    return {"start": {"line": line, "character": column}, "end": {"line": line, "character": column + width}}


async def ask(name: str, answer: Any, **arguments: object) -> tuple[ToolResult, FakeLanguages]:
    tool = next(tool for tool in TOOLS if tool.name == name)
    bench, languages = Workbench(FILES, tools=TOOLS), FakeLanguages({tool.method: answer})
    invocation = await bench.understand(name, **arguments)
    context = bench.context(invocation)
    context = replace(context, backends=replace(context.backends, languages=languages))
    return await invocation.run(context), languages


async def text(name: str, answer: Any, **arguments: object) -> str:
    return (await ask(name, answer, **arguments))[0].text


# ------------------------------------------------------------------------------------ what they are


def test_only_what_the_editor_serves_is_offered():
    assert [tool.name for tool in lsp_tools({"lsp/hover", "lsp/references"}.__contains__)] == [
        "lsp_hover",
        "lsp_references",
    ]


def test_they_read_and_what_they_say_comes_from_outside():
    for tool in TOOLS:
        spec = tool.spec()
        assert spec.kind in (ToolKind.READ, ToolKind.SEARCH)
        assert spec.external
        assert not spec.mutates
        assert not spec.cacheable
        assert 20 < len(spec.description) < 400
        Draft202012Validator.check_schema(spec.parameters)
        assert not [word for word in ('"title"', "$ref", "anyOf", "null") if word in json.dumps(spec.parameters)]


def test_all_seven_cost_a_model_little():
    specs = [[tool.name, tool.spec().description, tool.spec().parameters] for tool in TOOLS]
    assert len(json.dumps(specs, separators=(",", ":"))) < 3_500


async def test_the_file_is_a_subject_to_be_read_and_a_place_to_open():
    bench = Workbench(FILES, tools=TOOLS)

    invocation = await bench.understand("lsp_hover", **HERE)

    assert invocation.subjects == (PathSubject("src/a.py", Access.READ),)
    assert [(each.path, each.line) for each in invocation.locations] == [("/project/src/a.py", 3)]
    assert invocation.title == "lsp_hover src/a.py"


# --------------------------------------------------------------------------------- what they ask


@each_row(
    "name, arguments, asked",
    [
        ("lsp_hover", HERE, {"uri": A, "line": 2, "character": 4}),
        ("lsp_diagnostics", {"path": "src/ü b.py"}, {"uri": "file:///project/src/%C3%BC%20b.py"}),
        ("lsp_workspace_symbol", {"query": "Foo"}, {"query": "Foo"}),
        ("lsp_code_actions", HERE, {"uri": A, "range": span(2, 4, 0), "diagnostics": []}),
        (
            "lsp_code_actions",
            {**HERE, "end_line": 9},
            {
                "uri": A,
                "range": {"start": {"line": 2, "character": 4}, "end": {"line": 8, "character": 0}},
                "diagnostics": [],
            },
        ),
        (
            "lsp_references",
            {**HERE, "include_declaration": False},
            {"uri": A, "line": 2, "character": 4, "includeDeclaration": False, "include_declaration": False},
        ),
    ],
)
async def test_places_count_from_one_for_the_model_and_from_zero_on_the_wire(name, arguments, asked):
    _, languages = await ask(name, None, **arguments)

    assert [params for _, params in languages.asked] == [asked]


async def test_a_file_that_may_not_be_read_is_not_asked_about():
    with pytest.raises(Refused):
        await ask("lsp_hover", None, path="../secret", line=1, column=1)


async def test_an_editor_that_serves_it_no_more_is_an_error_the_model_reads():
    bench = Workbench(FILES, tools=TOOLS)

    with pytest.raises(ToolError, match="the editor does not offer lsp/hover"):
        await bench.run("lsp_hover", **HERE)


# ---------------------------------------------------------------------------- what they make of it


async def test_a_hover_in_any_of_its_shapes_is_text():
    assert await text("lsp_hover", {"contents": "plain"}, **HERE) == "plain"
    assert await text("lsp_hover", {"contents": {"kind": "markdown", "value": "**x**"}}, **HERE) == "**x**"
    pieces = ["a", {"language": "python", "value": "x: int"}]
    assert await text("lsp_hover", {"contents": pieces}, **HERE) == "a\n\n```python\nx: int\n```"
    assert "says nothing" in await text("lsp_hover", None, **HERE)


async def test_a_definition_in_any_of_its_shapes_is_a_place():
    link = {"targetUri": A, "targetRange": span(0, 0), "targetSelectionRange": span(7, 1)}
    for answer in ({"uri": A, "range": span(7, 1)}, [{"uri": A, "range": span(7, 1)}], [link]):
        result, _ = await ask("lsp_definition", answer, **HERE)
        assert result.text == "src/a.py:8:2"
        assert [(each.path, each.line) for each in result.locations] == [("/project/src/a.py", 8)]


async def test_what_is_elsewhere_is_named_and_no_more():
    answer = [{"uri": "file:///usr/lib/os.py", "range": span(1, 1)}, {"uri": "jdt://x/Y.class", "range": span(0, 0)}]
    result, _ = await ask("lsp_definition", answer, **HERE)

    assert result.text == "/usr/lib/os.py:2:2 (may not be read here)\njdt://x/Y.class:1:1 (may not be read here)"
    assert result.locations == ()


async def test_only_so_many_references_are_shown_and_each_once():
    found = [{"uri": A, "range": span(line, 0)} for line in (0, 0, 1, 2)]

    shown = await text("lsp_references", found, **HERE)

    assert shown == "src/a.py:1:1\nsrc/a.py:2:1\n[1 more: the first 2 are shown]"


async def test_problems_come_worst_first_on_a_line_each():
    found = [
        {"range": span(4, 2), "severity": 3, "message": "note"},
        {"range": span(1, 0), "severity": 2, "message": "unused\n  name", "code": "F401"},
        {"range": span(0, 0), "message": "broken", "code": {"value": 7}, "source": "x"},
    ]
    for answer in (found, {"kind": "full", "items": found}, {"diagnostics": found}):
        shown = await text("lsp_diagnostics", answer, path="src/a.py")
        assert shown.split("\n") == [
            "src/a.py:1:1  error  broken  [7]",
            "src/a.py:2:1  warning  unused name  [F401]",
            "[1 more: the first 2 are shown]",
        ]


async def test_names_inside_others_stand_below_them_further_in():
    method = {"name": "run", "kind": 6, "range": span(2, 4), "selectionRange": span(2, 8)}
    tree = [{"name": "Job", "kind": 5, "range": span(1, 0), "selectionRange": span(1, 6), "children": [method]}]

    assert await text("lsp_document_symbols", tree, path="src/a.py") == "class Job  2:7\n  method run  3:9"
    flat = [{"name": "run", "kind": 12, "location": {"uri": A, "range": span(2, 4)}}]
    assert await text("lsp_document_symbols", flat, path="src/a.py") == "function run  3:5"


async def test_symbols_of_the_project_come_with_their_places_and_only_so_many():
    found = [{"name": f"f{n}", "kind": 12, "location": {"uri": A, "range": span(n, 0)}} for n in range(3)]
    found[0]["location"] = {"uri": A}

    shown = await text("lsp_workspace_symbol", found, query="f")

    assert shown.split("\n") == [
        "function f0  src/a.py",
        "function f1  src/a.py:2:1",
        "[1 more: the first 2 are shown]",
    ]


async def test_only_actions_that_say_what_they_change_are_shown():
    fix = {
        "title": "Add import",
        "kind": "quickfix",
        "isPreferred": True,
        "edit": {"changes": {A: [{"range": span(0, 0, 0), "newText": "import os\n"}]}},
    }
    other = {
        "title": "Move",
        "edit": {
            "documentChanges": [
                {"kind": "create", "uri": "file:///project/src/new.py"},
                {"textDocument": {"uri": "file:///etc/x"}, "edits": [{"range": span(0, 0), "newText": "secret"}]},
            ]
        },
    }
    bare = {"title": "Run it", "command": {"title": "x", "command": "rm"}}

    shown = await text("lsp_code_actions", [bare, fix, other, {"title": "t", "edit": {}}], **HERE)

    assert shown.split("\n") == [
        "- Add import (quickfix), preferred",
        '    src/a.py:1:1-1:1 -> "import os\\n"',
        "- Move",
        "    src/new.py: create",
        "    /etc/x (may not be read here)",
    ]


async def test_hidden_characters_in_names_and_messages_are_shown_as_what_they_are():
    found = [{"range": span(0, 0), "message": "a\u202eb\x1b[31m", "code": "c\u200b"}]

    assert (
        await text("lsp_diagnostics", found, path="src/a.py") == "src/a.py:1:1  error  a\\u202eb\\u001b[31m  [c\\u200b]"
    )


async def test_an_answer_that_is_no_list_is_the_editors_mistake():
    with pytest.raises(ToolError, match="is not a list"):
        await ask("lsp_references", 7, **HERE)


KEYS = [
    *("uri", "range", "start", "end", "line", "character", "message", "severity", "code", "name", "kind", "children"),
    *("location", "contents", "value", "title", "edit", "changes", "documentChanges", "edits"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_whatever_comes_is_read_or_refused(answer):
    assert isinstance(hover(answer), str)
    for read in (places, diagnostics, symbols, actions):
        with suppress(ToolError):
            assert isinstance(read(answer), list)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_a_path_survives_its_uri(name):
    assert uri_path(file_uri(f"/{name}")) == f"/{name}"


@each_row("uri", ["", "http://x/y", "file://host/y", "file:///a%00b", "untitled:1", "file://[", "a\0"])
def test_what_is_no_file_has_no_path(uri):
    assert uri_path(uri) is None
