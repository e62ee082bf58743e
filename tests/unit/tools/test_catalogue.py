"""Rules every built-in tool keeps, and the catalogue as committed."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from acp_agent.core.types import CommandSubject, McpSubject, PathSubject, UrlSubject
from acp_agent.tools.registry import catalogue, default_tools
from acp_agent.tools.tool import Tool

COMMITTED = Path(__file__).parents[3] / "schemas" / "tools.schema.json"
TOOLS = default_tools(compression=True, questions=True)
SAMPLES = {
    "bash": {"command": "true"},
    "read": {"path": "a"},
    "write": {"path": "a", "content": ""},
    "edit": {"path": "a", "old_string": "x", "new_string": "y"},
    "list_directory": {"path": "a"},
    "find_path": {"pattern": "*"},
    "grep": {"pattern": "x"},
    "create_directory": {"path": "a"},
    "delete_path": {"path": "a"},
    "move_path": {"source": "a", "destination": "b"},
    "copy_path": {"source": "a", "destination": "b"},
    "fetch": {"url": "https://example.com/"},
    "web_scrape": {"url": "https://example.com/", "select": "a"},
    "diagnostics": {},
    "read_overflow": {"id": "overflow:00000000-0000-4000-8000-000000000000"},
    "update_plan": {"entries": [{"content": "x", "status": "pending"}]},
    "ask_user": {"questions": [{"question": "x"}]},
    "memory_search": {"query": "x"},
    "memory_save": {"content": "x"},
    "compress_context": {},
}
# What touches nothing but the agent's own store, what the conversation was shown, and the user's attention.
OURS = {"read_overflow", "update_plan", "ask_user", "memory_search", "memory_save", "compress_context"}
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)


def test_the_committed_catalogue_is_what_the_tools_say():
    assert json.loads(COMMITTED.read_text()) == catalogue(), "run `acp-agent schema tools > schemas/tools.schema.json`"


def test_the_catalogue_is_small():
    assert len(json.dumps(catalogue(), separators=(",", ":")).encode()) < 10 * 1024


def test_there_is_a_sample_call_for_every_tool():
    assert list(SAMPLES) == [tool.name for tool in TOOLS]


@each_tool
def test_every_tool_names_its_subjects(tool: Tool):
    """What is not named is not guarded; a mutating tool without subjects would pass every gate."""
    subjects = tool.subjects(tool.parse(SAMPLES[tool.name]))

    assert subjects or tool.name in OURS
    assert all(isinstance(subject, PathSubject | CommandSubject | UrlSubject | McpSubject) for subject in subjects)


@each_tool
def test_every_path_given_is_a_subject(tool: Tool):
    sample = SAMPLES[tool.name] | ({"path": "else/where"} if "path" in tool.params.model_fields else {})
    paths = {s.path for s in tool.subjects(tool.parse(sample)) if isinstance(s, PathSubject)}

    assert paths == {sample[key] for key in ("path", "source", "destination") if key in sample}


@each_tool
def test_every_schema_is_a_lean_object_schema(tool: Tool):
    parameters = tool.spec().parameters
    text = json.dumps(parameters)

    Draft202012Validator.check_schema(parameters)
    Draft202012Validator(parameters).validate(SAMPLES[tool.name])
    assert parameters["type"] == "object"
    assert parameters["additionalProperties"] is False
    assert not [word for word in ('"title"', "$defs", "$ref", "anyOf", "null") if word in text]


@each_tool
def test_every_tool_has_a_short_description_of_its_own(tool: Tool):
    assert "__doc__" in vars(tool.params)
    assert 20 < len(tool.spec().description) < 400
    assert "\n" not in tool.spec().description


@each_tool
def test_only_tools_that_change_nothing_are_cacheable(tool: Tool):
    assert not (tool.mutates and tool.cacheable)


@each_tool
def test_the_spec_is_the_same_object_every_turn(tool: Tool):
    assert tool.spec() is tool.spec()
