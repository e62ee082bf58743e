"""Names, aliases, arguments: what is understood and what is refused."""

import importlib
import json
import os
import pkgutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import acp_agent.tools
from acp_agent.core.errors import AgentError, BackendUnavailable, Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import ALIASES, CommandSubject, McpSubject, PathSubject, UrlSubject
from acp_agent.shape import fields
from acp_agent.tools.agent import AgentTool, EvaluateTool, HandoffTool
from acp_agent.tools.registry import Registry, catalogue, default_tools, every_tool, reserved_names
from acp_agent.tools.tool import Params, Part, Tool, schema, stored_schemas, told_schema
from tests.fakes.memory_files import MemoryFileSystem
from tests.rows import each_row
from tests.unit.tools.workbench import Workbench, call

pytestmark = pytest.mark.anyio

TOOLS = {tool.name: tool for tool in default_tools()}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet=st.characters()), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [*sorted({key for tool in TOOLS.values() for key in fields(tool.params)}), "file_path", "\ud800", ""]
)


async def test_an_alias_runs_our_tool_under_our_name():
    bench = Workbench({"a": "1\n"})

    invocation = await bench.understand("read_file", path="a")

    assert (invocation.call.name, invocation.spec.name) == ("read", "read")
    assert (await bench.execute(invocation)).text == "   1\t1"


async def test_case_does_not_matter():
    bench = Workbench({"a": ""})

    assert (await bench.understand("Read", path="a")).spec.name == "read"
    assert (await bench.understand("LS", path=".")).spec.name == "list_directory"


def test_every_alias_means_a_tool_and_none_is_advertised():
    names = {spec.name for spec in Registry((*default_tools(), AgentTool(), EvaluateTool(), HandoffTool())).specs()}

    assert set(ALIASES.values()) <= names
    assert not set(ALIASES) & names
    assert all(alias == alias.lower() for alias in ALIASES)


async def test_a_tool_of_that_very_name_wins_over_an_alias():
    class Glob(type(TOOLS["find_path"])):
        name = "glob"

    registry = Registry((*default_tools(), Glob(max_results=1)))

    invocation = await registry.understand(call("glob", {"pattern": "*"}), MemoryFileSystem())

    assert invocation.spec.name == "glob"


async def test_an_unknown_name_gets_the_names_there_are_and_the_nearest():
    with pytest.raises(ToolError) as error:
        await Workbench().understand("list_directry")

    assert error.value.failure.category is ToolErrorCategory.TOOL_NOT_FOUND
    assert str(error.value) == 'there is no tool "list_directry"'
    assert error.value.failure.suggestion == (
        "Use list_directory, or another of your tools: bash, process, read, write, edit, list_directory, find_path, "
        "grep, outline, create_directory, delete_path, move_path, copy_path, fetch, web_scrape, diagnostics, "
        "read_overflow, update_plan, memory_search, memory_save."
    )


async def test_tools_that_only_the_user_has_are_not_named_to_the_model():
    bench = Workbench(tools=(*default_tools(), AgentTool(), EvaluateTool(for_model=False)))
    with pytest.raises(ToolError) as error:
        await bench.understand("nosuch")
    assert error.value.failure.suggestion.endswith(" memory_save, agent.")


async def test_the_nearest_of_an_alias_is_the_tool_it_means():
    with pytest.raises(ToolError) as error:
        await Workbench().understand("read_fil")
    assert error.value.failure.suggestion.startswith("Use read, or another")


@each_row(
    "name, tool",
    [
        *(("apply_patch", "edit"), ("apply_diff", "edit"), ("replace_in_file", "edit"), ("search_replace", "edit")),
        *(("TodoWrite", "update_plan"), ("todo_write", "update_plan"), ("write_todos", "update_plan")),
        *(("exec_command", "bash"), ("shell_command", "bash"), ("write_stdin", "process"), ("read_many_files", "read")),
    ],
)
async def test_a_name_from_another_agent_leads_to_the_tool_for_that_work(name: str, tool: str):
    with pytest.raises(ToolError) as error:
        await Workbench().understand(name, nosuch=1)
    assert f"{tool}: " in str(error.value) or error.value.failure.suggestion.startswith(f"Use {tool},")


async def test_a_list_of_todos_as_other_agents_write_it_is_a_plan():
    todo = {"content": "Look", "status": "pending", "activeForm": "Looking"}
    invocation = await Workbench().understand("TodoWrite", todos=[todo])
    assert invocation.spec.name == "update_plan"


@pytest.mark.parametrize("name", ["", "zzz", "x" * 10_000, "\ud800\n"])
async def test_a_name_like_nothing_is_quoted_short(name: str):
    with pytest.raises(ToolError) as error:
        await Workbench().understand(name)

    assert error.value.failure.suggestion.startswith("Use one of your tools: bash, ")
    assert len(str(error.value)) < 330
    str(error.value).encode()


async def test_arguments_that_are_no_object_are_quoted_short():
    registry = Registry(default_tools())

    with pytest.raises(ToolError) as error:
        await registry.understand(call("read", None, '{"path": "a' + "b" * 500), MemoryFileSystem())

    assert error.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert str(error.value).startswith('read: the arguments are not a JSON object: "{\\"path\\": \\"ab')
    assert len(str(error.value)) < 200


async def test_no_arguments_at_all_are_called_nothing():
    with pytest.raises(ToolError, match="not a JSON object: nothing"):
        await Registry(default_tools()).understand(call("read", None), MemoryFileSystem())


async def test_every_problem_is_listed_with_key_value_and_what_was_expected():
    with pytest.raises(ToolError) as error:
        await Workbench().understand("read", fail_path="a", offset="ten", limit=0)

    assert error.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert str(error.value) == (
        "read: path is missing (expected a non-empty string); "
        'offset = "ten" (expected a whole number from -1000000000 to 1000000000); '
        "limit = 0 (expected a whole number, 1 or more); "
        'unknown key "fail_path" (known keys: path, offset, limit)'
    )


async def test_wrong_types_alone_are_a_type_mismatch():
    with pytest.raises(ToolError) as error:
        await Workbench().understand("grep", pattern=["x"], path=None, case_sensitive="yes")

    assert error.value.failure.category is ToolErrorCategory.TYPE_MISMATCH
    assert str(error.value) == (
        'grep: pattern = an array (expected a non-empty string); case_sensitive = "yes" (expected true or false)'
    )


async def test_very_many_problems_are_not_all_listed():
    with pytest.raises(ToolError, match="and 11 more problems"):
        await Workbench().understand("read", **{f"key{n}": n for n in range(20)})


@pytest.mark.parametrize(
    "error", [Refused("no"), BackendUnavailable("editor", "gone"), ToolError(ToolErrorCategory.TIMEOUT, "slow")]
)
async def test_a_preview_that_fails_shows_nothing_and_the_run_reports(error: AgentError):
    bench = Workbench({"a": "x\n"})
    bench.files.fail("a", error)

    for name, arguments in (
        ("edit", {"old_string": "x", "new_string": "y"}),
        ("write", {"content": "y"}),
        ("read", {}),
    ):
        invocation = await bench.understand(name, path="a", **arguments)

        assert (invocation.diffs, invocation.locations) == ((), ())
        assert (invocation.predicted_failure is None) is isinstance(
            error, BackendUnavailable
        )  # another backend may be found
        with pytest.raises(type(error)):
            await bench.execute(invocation)


async def test_an_edit_that_cannot_match_is_known_to_fail_before_anybody_is_asked():
    bench = Workbench({"a": "def one():\n    return first_value\n"})

    invocation = await bench.understand("edit", path="a", old_string="    return frist_value", new_string="3")

    assert invocation.predicted_failure == await bench.execute(invocation)
    assert invocation.predicted_failure is not None
    assert "return first_value" in invocation.predicted_failure.text


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match="share a name"):
        Registry((*default_tools(), TOOLS["bash"]))


@given(st.sampled_from(sorted(TOOLS)), st.dictionaries(KEYS | st.text(alphabet=st.characters()), JSON, max_size=5))
def test_parsing_raises_nothing_but_tool_errors_that_can_be_sent(name: str, arguments: dict[str, object]):
    with suppress(ToolError):
        TOOLS[name].parse(arguments)


@given(st.sampled_from(sorted(TOOLS)), st.text(alphabet=st.characters()), JSON)
def test_whatever_was_sent_the_error_can_be_sent_back(name: str, key: str, value: object):
    with pytest.raises(ToolError) as error:
        TOOLS[name].parse({f"no {key}": value})

    assert error.value.failure.category.quality_failure
    error.value.failure.block().encode()


@given(st.data(), st.sampled_from(sorted(TOOLS)))
def test_what_the_schema_allows_is_what_parsing_takes(data: st.DataObject, name: str):
    """One source of truth: only NUL and half surrogate pairs are beyond what JSON Schema says."""
    text = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3)
    values = text | st.integers(-1, 1001) | st.booleans() | st.sampled_from([1.0, 1.5, [], {}])
    keys = st.sampled_from([*fields(TOOLS[name].params), "other"])
    arguments = data.draw(st.dictionaries(keys, values))
    allowed = Draft202012Validator(schema(TOOLS[name].params)).is_valid(arguments)

    try:
        TOOLS[name].parse(arguments)
    except ToolError:
        assert not allowed
    else:
        assert allowed
        Draft202012Validator(TOOLS[name].spec().parameters).validate(arguments)


@pytest.mark.parametrize("key", ["path", "content"])
def test_half_of_a_surrogate_pair_is_told_where_it_is(key: str):
    with pytest.raises(ToolError, match=f"write: {key} is not valid Unicode: half a surrogate pair at offset 3"):
        TOOLS["write"].parse({"path": "a", "content": "b", key: "caf\ud83d"})


def test_the_model_is_not_told_of_limits_that_no_call_reaches():
    told = json.dumps([tool.spec().parameters for tool in ALL_TOOLS])
    assert not [
        word
        for word in ("additionalProperties", '"minLength": 1', "1000000000", "maxItems", '"default": false')
        if word in told
    ]
    assert '"maximum": 600' in told
    nested = {"properties": {"minLength": {"minLength": 1, "type": "string"}}, "minimum": -5}
    assert told_schema(nested) == {"properties": {"minLength": {"type": "string"}}, "minimum": -5}


def test_arguments_nested_deeply_or_very_long_are_quoted_short():
    deep = json.loads("[" * 900 + "]" * 900)
    for value in (deep, 10**5000, {"a": deep}, "x" * 100_000):
        with pytest.raises(ToolError) as error:
            TOOLS["read"].parse({"path": "a", "offset": value})
        assert len(str(error.value)) < 200


COMMITTED = Path(__file__).parents[3] / "schemas" / "tools.schema.json"
ALL_TOOLS = every_tool()
SAMPLES = {
    "bash": {"command": "true"},
    "process": {"action": "list"},
    "read": {"path": "a"},
    "write": {"path": "a", "content": ""},
    "edit": {"path": "a", "old_string": "x", "new_string": "y"},
    "list_directory": {"path": "a"},
    "find_path": {"pattern": "*"},
    "grep": {"pattern": "x"},
    "outline": {},
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
    "agent": {"agent": "explore", "task": "x"},
    "evaluate": {"task": "x", "criteria": "y"},
    "handoff": {"agent": "explore", "message": "x"},
    "load_skill": {"name": "x"},
    "invoke_skill": {"name": "x", "arguments": "y"},
    "skill_search": {"query": "x"},
    "tasks": {"action": "create", "tasks": [{"content": "x", "after": ["1"]}]},
    "messages": {"action": "send", "to": "main", "text": "x"},
    "scheduler": {"when": "at 9", "prompt": "x"},
}
# What touches nothing but the agent's own store, what the conversation was shown, and the user's attention.
# A process was judged when it started; what is written to a shell is a subject (test_process.py).
# A sub-agent's own calls are judged one by one.
OURS = {
    *("process", "read_overflow", "update_plan", "ask_user", "memory_search", "memory_save", "compress_context"),
    *("agent", "evaluate", "handoff", "load_skill", "invoke_skill", "skill_search", "tasks", "messages", "scheduler"),
}
OPTIONAL = {"evaluate", "handoff", "load_skill", "invoke_skill", "skill_search", "tasks", "messages", "scheduler"}
each_tool = each_row("tool", ALL_TOOLS, [tool.name for tool in ALL_TOOLS])


def test_what_models_are_told_of_parameters_is_stored_as_it_would_be_made():
    """`ACP_AGENT_GOLDEN=write` stores it. Parts are told with the parameters that hold them."""
    for module in pkgutil.iter_modules(acp_agent.tools.__path__):
        importlib.import_module(f"acp_agent.tools.{module.name}")
    kinds = [kind for kind in subclasses(Params) if kind.__module__.startswith("acp_agent.tools.")]
    made = {f"{kind.__module__}.{kind.__qualname__}": told_schema(schema(kind)) for kind in kinds}
    file = Path(acp_agent.tools.__path__[0]) / "parameters.json"
    if os.environ.get("ACP_AGENT_GOLDEN") == "write":
        file.write_text(json.dumps(dict(sorted(made.items())), indent=1, ensure_ascii=False) + "\n")
        stored_schemas.cache_clear()
    assert stored_schemas() == made


def subclasses(kind: type[Params]) -> list[type[Params]]:
    direct = [each for each in kind.__subclasses__() if each is not Part]
    return [*direct, *(each for child in direct for each in subclasses(child))]


def test_the_committed_catalogue_is_what_the_tools_say():
    assert json.loads(COMMITTED.read_text()) == catalogue(), "run `acp-agent schema tools > schemas/tools.schema.json`"


def test_no_tool_of_a_user_may_have_the_name_of_one_that_only_a_configuration_offers():
    assert reserved_names() >= {*OPTIONAL, "agent_action"}


def test_the_catalogue_is_small():
    """Without the tools that only a configuration gives to the model."""
    usual = [tool for tool in catalogue()["tools"] if tool["name"] not in OPTIONAL]
    assert len(json.dumps(usual, separators=(",", ":")).encode()) < 10_500


def test_there_is_a_sample_call_for_every_tool():
    assert list(SAMPLES) == [tool.name for tool in ALL_TOOLS]


@each_tool
def test_every_tool_names_its_subjects(tool: Tool):
    """What is not named is not guarded; a mutating tool without subjects would pass every gate."""
    subjects = tool.subjects(tool.parse(SAMPLES[tool.name]))

    assert subjects or tool.name in OURS
    assert all(isinstance(subject, PathSubject | CommandSubject | UrlSubject | McpSubject) for subject in subjects)


@each_tool
def test_every_path_given_is_a_subject(tool: Tool):
    sample = SAMPLES[tool.name] | ({"path": "else/where"} if "path" in fields(tool.params) else {})
    paths = {s.path for s in tool.subjects(tool.parse(sample)) if isinstance(s, PathSubject)}

    assert paths == {sample[key] for key in ("path", "source", "destination") if key in sample}


@each_tool
def test_every_schema_is_a_lean_object_schema(tool: Tool):
    parameters = tool.spec().parameters
    text = json.dumps(parameters)

    Draft202012Validator.check_schema(parameters)
    Draft202012Validator(parameters).validate(SAMPLES[tool.name])
    assert parameters["type"] == "object"
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
