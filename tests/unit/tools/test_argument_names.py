"""Arguments under other names, and of other types, are taken for what they mean; unknown ones are named."""

import json
from typing import Any

import pytest

from acp_agent.core.errors import ToolError
from acp_agent.core.types import Json, JsonObject
from acp_agent.shape import fields
from acp_agent.tools.registry import Registry, default_tools
from acp_agent.tools.tool import Tool
from tests.fakes.memory_files import MemoryFileSystem
from tests.rows import each_row
from tests.unit.tools.workbench import call

TOOLS = {tool.name: tool for tool in default_tools(compression=True, questions=True)}

ALIASES = {
    "bash": "cmd=command shell_command=command command_line=command timeout_seconds=timeout timeout_secs=timeout "
    "timeout_sec=timeout run_in_background=background is_background=background runInBackground=background",
    "process": "process_id=id shell_id=id bash_id=id",
    "read_overflow": "overflow_id=id",
    "read": "file_path=path file=path filepath=path filename=path target_file=path absolute_path=path filePath=path "
    "file-path=path max_lines=limit num_lines=limit line_count=limit start_line=offset line_offset=offset",
    "write": "file_path=path contents=content file_text=content file_content=content text=content",
    "edit": "file_path=path old_str=old_string old_text=old_string old=old_string search=old_string "
    "oldString=old_string new_str=new_string new_text=new_string new=new_string replace=new_string "
    "replacement=new_string replaceAll=replace_all all=replace_all global=replace_all",
    "list_directory": "dir=path directory=path dir_path=path folder=path",
    "find_path": "query=pattern q=pattern limit=max_results max_matches=max_results head_limit=max_results dir=path",
    "grep": "query=pattern regex=pattern search=pattern q=pattern context_lines=context -C=context -A=after "
    "after_context=after lines_after=after -B=before before_context=before lines_before=before include=glob "
    "file_pattern=glob type=file_type caseSensitive=case_sensitive",
    "move_path": "src=source from=source source_path=source old_path=source dest=destination dst=destination "
    "to=destination target=destination destination_path=destination new_path=destination",
    "fetch": "uri=url link=url",
    "web_scrape": "selector=select css_selector=select",
    "memory_search": "q=query text=query search=query pattern=query max_results=limit",
    "update_plan": "plan=entries todos=entries steps=entries",
}
"""Each name that models use, and the parameter that it means."""

ENTRIES: list[Json] = [{"content": "a", "status": "pending"}]
SAMPLES: JsonObject = {
    **dict.fromkeys(("path", "command", "old_string", "content", "pattern", "query", "source", "url", "select"), "a"),
    **dict.fromkeys(("destination", "new_string", "glob", "file_type"), "b"),
    **dict.fromkeys(("timeout", "limit", "offset", "max_results", "context", "before", "after"), 3),
    **dict.fromkeys(("replace_all", "case_sensitive", "background"), True),
    "action": "stop",
    "id": "p1",
    "entries": ENTRIES,
}


def given(tool: Tool[Any], *more: str) -> JsonObject:
    """Fit arguments: the required ones, and `more`."""
    return {key: SAMPLES[key] for key, field in fields(tool.params).items() if field.is_required() or key in more}


@each_row(
    "name, alias, parameter", [(tool, *pair.split("=")) for tool, pairs in ALIASES.items() for pair in pairs.split()]
)
def test_an_argument_under_another_name_is_the_argument(name: str, alias: str, parameter: str):
    tool = TOOLS[name]
    meant = given(tool, parameter)
    sent = {alias if key == parameter else key: value for key, value in meant.items()}
    assert tool.fitted(sent) == meant
    assert tool.parse(sent) == tool.parse(meant)


@each_row(
    "name, sent, fit",
    [
        ("read", {"path": "a", "limit": "3"}, {"path": "a", "limit": 3}),
        ("read", {"path": "a", "limit": " 3.0 "}, {"path": "a", "limit": 3.0}),
        ("edit", given(TOOLS["edit"]) | {"replace_all": "true"}, given(TOOLS["edit"]) | {"replace_all": True}),
        ("edit", given(TOOLS["edit"]) | {"replace_all": "False"}, given(TOOLS["edit"]) | {"replace_all": False}),
        ("bash", {"command": "a", "timeout": "60"}, {"command": "a", "timeout": 60}),
        ("bash", {"command": "a", "timeout": 120_000}, {"command": "a", "timeout": 120}),
        ("bash", {"command": "a", "timeout": "120000"}, {"command": "a", "timeout": 120}),
        ("bash", {"command": "a", "timeout_ms": 30_000}, {"command": "a", "timeout": 30}),
        ("bash", {"command": "a", "timeout_ms": 1}, {"command": "a", "timeout": 1}),
        ("bash", {"command": "a", "description": "why", "explanation": "x"}, {"command": "a"}),
        ("grep", {"pattern": "a", "-n": True, "head_limit": 3}, {"pattern": "a", "max_results": 3}),
        ("read", {"file_path": "a", "path": "a"}, {"path": "a"}),
        ("read", {"file_path": "a", "offset": None}, {"path": "a", "offset": None}),
        ("diagnostics", {"path": "a", "kind": "Check"}, {"path": "a", "kind": "check"}),
        ("update_plan", {"entries": json.dumps(ENTRIES)}, {"entries": ENTRIES}),
        ("update_plan", {"entries": ENTRIES[0]}, {"entries": ENTRIES}),
        ("write", {"path": "a.json", "content": "[1]"}, {"path": "a.json", "content": "[1]"}),
        ("write", {"path": "a", "content": "3"}, {"path": "a", "content": "3"}),
    ],
)
def test_a_value_of_another_type_is_read_as_the_schema_wants_it(name: str, sent: JsonObject, fit: JsonObject):
    assert TOOLS[name].fitted(sent) == fit
    TOOLS[name].parse(sent)


@each_row(
    "name, sent, message",
    [
        ("read", {"path": "a", "colour": "red"}, 'unknown key "colour"'),
        ("read", {"file_path": "a", "path": "b"}, 'unknown key "file_path"'),
        ("read", {"path": 7}, "path = 7"),
        ("read", {"path": "a", "limit": "NaN"}, "limit ="),
        ("read", {"path": "a", "limit": "true"}, "limit ="),
        ("edit", given(TOOLS["edit"]) | {"replace_all": "yes"}, "replace_all ="),
        ("bash", {"command": ["ls"]}, "command ="),
        ("bash", {"command": "a", "timeout": 601}, "timeout = 601"),
        ("bash", {"command": "a", "timeout": 700_000}, "timeout = 700"),
        ("bash", {"cmd": "a", "script": "b"}, 'unknown key "script"'),
        ("update_plan", {"entries": "[1"}, "entries ="),
    ],
)
def test_what_cannot_be_told_is_named(name: str, sent: JsonObject, message: str):
    with pytest.raises(ToolError) as raised:
        TOOLS[name].parse(sent)
    assert message in str(raised.value)


@pytest.mark.anyio
async def test_the_call_that_gates_and_audit_see_has_the_tools_own_names():
    sent = call("read_file", {"file_path": "a", "limit": "3", "description": "x"})
    invocation = await Registry(default_tools()).understand(sent, MemoryFileSystem())
    assert (invocation.call.name, invocation.call.arguments) == ("read", {"path": "a", "limit": 3})
    assert invocation.note == ""


@pytest.mark.anyio
async def test_only_a_timeout_in_milliseconds_is_told():
    registry = Registry(default_tools())
    told = await registry.understand(call("bash", {"command": "a", "timeout": 120_000}), MemoryFileSystem())
    assert told.note == "[timeout read as milliseconds: 120 s]"


@pytest.mark.anyio
async def test_arguments_that_were_encoded_twice_are_read():
    raw = json.dumps(json.dumps({"file_path": "a"}))
    invocation = await Registry(default_tools()).understand(call("read", None, raw), MemoryFileSystem())
    assert invocation.call.arguments == {"path": "a"}


@pytest.mark.anyio
async def test_a_number_over_its_maximum_is_limited_and_the_model_is_told():
    registry = Registry(default_tools())
    understood = await registry.understand(call("grep", {"pattern": "x", "after": 65}), MemoryFileSystem())
    assert understood.call.arguments == {"pattern": "x", "after": 20}
    assert understood.note == "[after limited to 20]"
    plain = await registry.understand(call("grep", {"pattern": "x", "after": 20}), MemoryFileSystem())
    assert plain.note == ""
