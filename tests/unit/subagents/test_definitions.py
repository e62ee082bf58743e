"""Definitions of sub-agents: what is read, that they only narrow, and what is said of those that are wrong."""

import pytest

from acp_agent.core.delegation import BUILT_IN
from acp_agent.core.session_options import Mode
from acp_agent.extend.front_matter import MarkdownFile, parse
from acp_agent.extend.hooks import HookEvent
from acp_agent.extend.sources import SourceFile, SourceKind
from acp_agent.subagents.definitions import Definition, built_in, definitions, hooks_effect, read
from tests.rows import each_row


def source(front: str, body: str = "You test.\n", name: str = "tester") -> SourceFile:
    data = f"---\n{front}\n---\n{body}".encode()
    return SourceFile(SourceKind.AGENTS, name, f"/x/agents/{name}.md", f"agents/{name}.md", data, "")


def defined(front: str, body: str = "You test.\n") -> tuple[Definition, list[str]]:
    text = parse(source(f"description: tests\n{front}", body).data, "tester.md")
    assert isinstance(text, MarkdownFile)
    definition, problems = read(text, "tester")
    return definition, [str(problem) for problem in problems]


def has(definition: Definition, *names: str) -> list[str]:
    selection = definition.selection(["srv"])
    return [name for name in names if not selection.objection(name)]


def test_what_the_model_reads_of_our_own_is_what_they_are():
    assert tuple(each.offered for each in built_in()) == BUILT_IN


def test_our_own_that_only_read_have_no_tool_that_asks_and_none_of_the_conversation():
    for definition in built_in():
        assert has(definition, "agent", "update_plan", "compress_context", "memory_save", "memory_search") == []
        assert (has(definition, "ask_user") == []) == (definition.mode is Mode.ASK)
        assert has(definition, "read", "grep") == ["read", "grep"]


def test_what_lists_its_tools_can_also_read_the_rest_of_long_results_unless_that_is_denied():
    fronts = ("tools: [read]", "tools: {allow: [read], deny: [read_overflow]}", "tools: []")
    assert [has(defined(front)[0], "read", "read_overflow") for front in fronts] == [
        ["read", "read_overflow"],
        ["read"],
        [],
    ]


def test_a_file_of_claude_code_is_read_as_it_is():
    definition, problems = defined("name: code-reviewer\ntools: Read, Grep, Glob, Bash\nmodel: sonnet\ncolor: red")
    assert problems == ["tester.md, line 6: color: a key of other agents, which has no effect here"]
    assert (definition.name, definition.model, definition.mode) == ("code-reviewer", "", Mode.CODE)
    assert has(definition, "read", "grep", "find_path", "bash", "edit") == ["read", "grep", "find_path", "bash"]


@each_row(
    "front, names",
    [
        ("tools: {allow: [group:fs], deny: [write], except: [edit]}", ["read", "grep"]),
        ("tools: {except: [bash, edit, write]}", ["read", "grep", "fetch"]),
        ("tools: '*'", ["read", "grep", "bash", "edit", "write", "fetch"]),
        ("tools: [agent, read]", ["read"]),
        ("tools: []", []),
        ("tools: 7", []),
        ("tools: {allow: read, deni: [read]}", []),
        ("tools: Bash(git log:*), Read", ["read"]),
        ("disallowedTools: Bash, Edit", ["read", "grep", "write", "fetch"]),
        ("disallowedTools: Bash(rm *), Edit", ["read", "grep", "write", "fetch"]),
        ("disallowedTools: 7", []),
        ("tools: [read, mine]", ["read"]),
    ],
)
def test_tools_are_those_that_are_named_and_never_more(front: str, names: list[str]):
    definition, _ = defined(front)
    assert has(definition, "read", "grep", "bash", "edit", "write", "fetch", "agent") == names


@each_row(
    "front, mode, told",
    [
        ("permission_mode: plan", Mode.ARCHITECT, ""),
        ("permissionMode: plan", Mode.ARCHITECT, ""),
        ("permission_mode: read-only", Mode.ASK, ""),
        ("permissionMode: default", Mode.CODE, ""),
        ("permissionMode: bypassPermissions", Mode.CODE, "never freer than its session"),
        ("permissionMode: acceptEdits", Mode.CODE, "never freer than its session"),
        ("permission_mode: [plan]", Mode.ASK, "expected a text"),
        ("permission_mode: plam", Mode.ASK, "it may only read until this is corrected"),
    ],
)
def test_a_mode_only_takes_away(front: str, mode: Mode, told: str):
    definition, problems = defined(front)
    assert definition.mode is mode
    assert told in "".join(problems)
    assert bool(told) == bool(problems)


@each_row(
    "front, told",
    [
        ("max_running: 0", "max_running: expected a whole number from 1 to 64, got 0"),
        ("max_turns: 0", "max_turns: expected a whole number from 1 to 200, got 0"),
        ("max_turns: many", "max_turns: expected a whole number from 1 to 200, got 'many'"),
        ("background: perhaps", "background: expected true or false"),
        ("model: gpt", 'model: expected "PROVIDER:MODEL"; the session\'s model is used'),
        ("tools: Raed", "tools: no tool here is called 'Raed'; did you mean read?"),
        ("tools: {deny: [bsah]}", "tools: no tool here is called 'bsah'; did you mean bash?"),
        ("tools: Bash(git log *)", "tools: 'Bash(git log *)' names a part of a tool's calls"),
        ("skills: {a: b}", "skills: expected a list of texts"),
    ],
)
def test_a_bad_value_is_named_and_the_rest_works(front: str, told: str):
    definition, problems = defined(front)
    assert definition.name == "tester"
    assert told in problems[0]
    assert problems[0].startswith("tester.md, line 3: ")


def test_tools_that_only_claude_code_has_are_told_in_status_alone():
    text = parse(source("description: tests\ntools: Read, TodoWrite, WebSearch, NotebookRead, KillShell").data, "t.md")
    assert isinstance(text, MarkdownFile)
    definition, problems = read(text, "tester")
    assert [(str(each), each.minor) for each in problems] == [
        ("t.md, line 3: tools: not here, and left out: TodoWrite, WebSearch, NotebookRead", True)
    ]
    assert has(definition, "read", "process", "memory_search", "fetch") == ["read", "process"]


def test_tools_that_only_some_sessions_have_are_no_slips():
    definition, problems = defined("tools: [read, tasks, messages]")
    assert (has(definition, "tasks", "messages", "bash"), problems) == (["tasks", "messages"], [])


def test_a_description_that_is_too_long_is_cut_and_its_agent_works():
    found = definitions([source(f"description: {'word ' * 400}", name="long")])
    (problem,) = found.problems
    assert problem.minor
    assert str(problem) == "agents/long.md, line 2: description: only the first 1,000 of 1,999 characters are used"
    assert len(found.by_name["long"].description) == 999, "a blank at its end is left out"


def test_hooks_of_an_agent_are_about_calls_and_a_wrong_one_is_named():
    definition, problems = defined("hooks: {pre_tool_use: [{matcher: bash, command: ./check}]}")
    (hook,) = definition.hooks
    assert (hook.command, hook.event, hook.claude, problems) == ("./check", HookEvent.PRE_TOOL_USE, False, [])
    definition, problems = defined("hooks: {session_start: [{command: x}], pre_tool_use: [{command: x, tiemout: 1}]}")
    assert definition.hooks == ()
    assert (
        "hooks.session_start: unknown event (known events: pre_tool_use, post_tool_use, permission_denied)"
        in problems[0]
    )
    assert "hooks.pre_tool_use 1.tiemout: unknown key" in problems[1]
    assert "hooks: expected a table" in defined("hooks: [x]")[1][0]
    theirs = parse(source("hooks: {PreToolUse: [{hooks: [{command: ./x}]}], Stop: []}").data, "x.md")
    assert isinstance(theirs, MarkdownFile)
    assert hooks_effect(theirs) == "on pre_tool_use runs ./x"


def test_files_that_cannot_be_used_are_named_and_the_others_work():
    found = definitions(
        [
            source("description: first", name="one"),
            source("description: second\nname: One", name="two"),
            source("description: who?", name="back"),
            source("description: mine\nname: explore", name="three"),
            source("name: four", name="four"),
            source("description: x", "", name="five"),
            source("description: x\nname: no/name", name="six"),
            source("description: [", name="seven"),
        ]
    )
    assert list(found.by_name) == ["explore", "general", "review", "one"]
    assert found.by_name["one"].source == "agents/one.md"
    told = "\n".join(map(str, found.problems))
    for part in (
        "agents/two.md: name: 'One' is already defined in agents/one.md",
        "agents/back.md: name: 'back' is the word that ends a handoff",
        "agents/three.md: name: 'explore' is built in",
        "agents/four.md: description: expected what the agent is for",
        "agents/five.md: expected a text behind the front matter",
        "agents/six.md, line 3: name: expected letters",
        "agents/seven.md",
    ):
        assert part in told, part


@pytest.mark.parametrize("servers", [[], ["srv"]])
def test_tools_of_a_server_can_be_named(servers: list[str]):
    definition, problems = defined("tools: [read, 'mcp:srv']")
    assert problems == []
    assert not definition.selection(servers).objection("mcp_srv_find", "srv")
    assert definition.selection(servers).objection("mcp_other_find", "other")
