"""docs/agents.md, skills.md, custom-tools.md, hooks.md: each example, read out of its page, does what the page says."""

import json
import os
import re
import sys
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.config.agents_settings import AgentsSettings
from tests.e2e.aided import aided, last, offered, system
from tests.e2e.test_agents import FULL_AUTO, messages, nested, run
from tests.e2e.test_board import tasks, team
from tests.e2e.test_skills import put, users
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING
from tests.fakes.forked_command import run_forked
from tests.fakes.held import PATIENCE
from tests.fakes.model_script import Script, says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"^```(\w*)\n(.*?)\n```$", re.DOTALL | re.MULTILINE)


def examples(page: str) -> Sequence[tuple[str, str]]:
    """The language and the text of each example of a page, in order."""
    return EXAMPLE.findall((ROOT / "docs" / page).read_text("utf-8"))


def example(page: str, beginning: str) -> str:
    """The only example of a page that begins so, or has a first line that does."""
    (found,) = [text for _, text in examples(page) if text.startswith(beginning)]
    return f"{found}\n"


AGENTS = "agents.md"
TESTER = example(AGENTS, "---\nname: tester")


def test_each_example_of_the_four_pages_is_tried_here():
    """A new example breaks this: try it below, and count it."""
    pages = (AGENTS, "skills.md", "custom-tools.md", "hooks.md")
    assert [len(examples(page)) for page in pages] == [8, 3, 4, 1]


async def test_agents_that_are_defined_and_called_as_the_page_shows(tmp_path: Path):
    (ask,) = example(AGENTS, "@explore").splitlines()
    (evaluate,) = example(AGENTS, "/evaluate").splitlines()
    give, back = example(AGENTS, "/handoff").splitlines()
    users(tmp_path, "agents/tester.md", TESTER)
    steps = ["In load.py.", "Documented.", "REJECTED: not open()", "All of it.", "APPROVED", "Tests pass.", "Bye."]
    async with aided(tmp_path, run("tester", "test it"), "All pass.", "Tested.", *steps) as (session, model, _):
        assert "Tested." in await session.say("go")
        assert system(model.requests[1]).startswith(TESTER.rpartition("---\n")[2].strip())
        tools = offered(model.requests[1])
        assert {"read", "write", "edit", "bash", "diagnostics"} <= set(tools)
        assert not {"delete_path", "fetch", "agent"} & set(tools)
        assert "In load.py." in await session.say(ask)
        assert "find out things about a code base" in system(model.requests[3])
        told = await session.say(evaluate)
        assert "approved by review after 2 rounds" in json.dumps(session.calls[-1].final) + told
        criteria, _, task = evaluate.removeprefix("/evaluate ").partition(": ")
        assert criteria in last(model.requests[4])
        assert last(model.requests[4]).startswith(task)
        await session.say(give)
        assert give.removeprefix("/handoff tester ") in last(model.requests[8])
        assert set(offered(model.requests[8])) == set(tools)
        assert "tester hands back" in await session.say(back)
        await session.say("bye")
        assert "agent" in offered(model.requests[9])


async def test_quality_gates_as_the_page_configures_them(tmp_path: Path):
    script: Script = {
        "^Judge": [says("REJECTED: add() lacks one")],
        "^Add": [uses(("write", {"path": "a.py", "content": "x"})), says("Added.")],
        "(?s)quality gate tests failed, try 1 of 3.*no tests": [
            uses(("write", {"path": "ok", "content": ""})),
            says("Now it passes."),
        ],
        "^go": [uses(run("general", "Add it")), says("Done.")],
    }
    config = FULL_AUTO + example(AGENTS, "[[agents.gates]]")
    async with editing(tmp_path, script, capabilities=NOTHING, config=config) as editor:
        put(editor.workspace, "Makefile", "test:\n\t@test -e ok || { echo no tests >&2; exit 1; }\n")
        await editor.say(await editor.open(), "go")
    told = messages(editor)
    assert "Now it passes." in told
    assert "add() lacks one" in json.dumps([frame.update for frame in editor.recording.frames]), "told, not sent back"
    assert [call.first["title"] for call in editor.calls].count("make test") == 2


async def test_another_agent_as_the_page_configures_it(tmp_path: Path):
    fake = f'#!/bin/sh\ntest "$1" = --acp && exec {sys.executable} {ROOT}/tests/fakes/foreign_agent.py good\n'
    put(tmp_path / "bin", "qwen", fake).chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "OPENAI_API_KEY": "obviously-fake"}
    script: Script = {"^go": [uses(run("qwen", "do it")), says("Done.")]}
    config = FULL_AUTO + example(AGENTS, "[[agents.external]]")
    async with editing(tmp_path, script, capabilities=NOTHING, config=config, environment=environment) as editor:
        put(editor.workspace, "a.txt", "one\ntwo\n")
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "/agents")
    assert [call.status for call in nested(editor)["qwen: do it"]] == ["completed"] * 3
    assert "a second opinion on hard changes" in messages(editor)
    assert messages(editor).startswith("Done.")


async def test_two_agents_work_through_a_board_as_the_page_shows(tmp_path: Path):
    (prompt,) = example(AGENTS, "Create the tasks").splitlines()
    entries = [{"id": "parser", "content": "Write it"}, {"id": "tests", "content": "Test it", "after": ["parser"]}]
    entries.append({"id": "docs", "content": "Describe it"})
    first = [
        [tasks("claim")],
        [tasks("complete", id="parser")],
        [tasks("claim", id="tests")],
        [tasks("complete", id="tests")],
    ]
    second = [[tasks("claim")], [tasks("complete", id="docs")]]
    plays = {
        prompt: [[tasks("create", tasks=entries)], [run("general", "first")], [run("general", "second")], "All done."],
        "first": [*first, "Two are done."],
        "second": [*second, "The last is done."],
    }
    async with team(tmp_path, FULL_AUTO, **plays) as (editor, _):
        await editor.say(await editor.open(), prompt)
        plan = editor.recording.updates("plan")[-1]["entries"]
    assert [entry["status"] for entry in plan] == ["completed"] * 3
    assert messages(editor) == "All done."


def test_the_page_shows_the_defaults_of_the_section_agents():
    shown = tomllib.loads(example(AGENTS, "[agents]\n"))["agents"]
    defaults = AgentsSettings().model_dump()
    assert shown == {name: defaults[name] for name in shown}
    assert set(defaults) - set(shown) == {"external", "gates"}, "which have their own examples"


async def test_a_skill_a_command_and_a_rule_as_the_page_shows_them(tmp_path: Path):
    skill = users(tmp_path, "skills/release-notes/SKILL.md", example("skills.md", "---\nname: release-notes"))
    put(skill.parent, "scripts/commits.sh", "echo commits since $1\n")
    users(tmp_path, "commands/explain.md", example("skills.md", "---\ndescription: Find out where"))
    put(tmp_path / "work", ".claude/rules/api.md", example("skills.md", "---\npaths:"))
    script = ("bash", {"command": f"sh {skill.parent}/scripts/commits.sh v2"})
    async with aided(tmp_path, script, "Noted.", "In div.py.") as (session, model, _):
        await session.say("/release-notes v2")
        assert "- release-notes: Write release notes from the commits since the last tag" in system(model.requests[0])
        assert "Check every input of an endpoint." in system(model.requests[0])
        assert "Run this skill's `scripts/commits.sh v2` in the project." in last(model.requests[0])
        assert "FORGE_TOKEN" in last(model.requests[0]), "commands do not see it"
        assert "commits since v2" in last(model.requests[1])
        assert "FORGE_TOKEN" in await session.status()
        await session.say("/explain division by zero")
        assert 'Where does "division by zero" come from?' in last(model.requests[2])
        assert set(offered(model.requests[2])) == {"read", "grep", "find_path"}


CUSTOM = "custom-tools.md"
DEPLOY = example(CUSTOM, 'name = "deploy"')


async def test_custom_tools_as_the_page_shows_them(tmp_path: Path):
    page = (ROOT / "docs" / CUSTOM).read_text()
    shown = re.search(r"Its call `(\{.*?\})` is the command line\n\n```\n(.*?)\n```", page)
    assert shown is not None
    users(tmp_path, "tools/deploy.toml", DEPLOY)
    users(tmp_path, "tools/count.toml", example(CUSTOM, 'description = "Count'))
    put(tmp_path / "work", "deploy.sh", '#!/bin/sh\necho "deployed $1 $2"\n').chmod(0o755)
    put(tmp_path / "work", "a b.txt", "one\nit's two\n")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("deploy", json.loads(shown[1])),
        ("deploy", {"env": "moon"}),
        ("count", {"text": "it's"}),
    ]
    async with aided(tmp_path, *calls, "Done.", config=FULL_AUTO) as (session, model, _):
        await session.say("go")
        assert session.calls[0].first["title"] == shown[2]
        assert "deployed --env=staging a b.html" in last(model.requests[1])
        assert "env" in last(model.requests[2])
        assert "moon" in last(model.requests[2])
        assert "2 ./a b.txt" in last(model.requests[3])


def test_the_check_of_a_custom_tool_prints_what_the_page_shows(tmp_path: Path):
    command, *shown = example(CUSTOM, "$ acp-agent").splitlines()
    assert command == """$ acp-agent tools check deploy.toml '{"env": "live"}'"""
    put(tmp_path, "deploy.toml", DEPLOY)
    environment = {**os.environ, "HOME": str(tmp_path), "ACP_AGENT_CONFIG": str(put(tmp_path, "config.toml", ""))}
    done = run_forked(["tools", "check", "deploy.toml", '{"env": "live"}'], environment, str(tmp_path), PATIENCE)
    for part in re.split(r"^ *\.\.\.\n", "\n".join((*shown, "")), flags=re.MULTILINE):
        assert part in done.stdout
    assert done.returncode == 3


async def test_hooks_as_the_page_shows_them(tmp_path: Path):
    users(tmp_path, "hooks.toml", example("hooks.md", "[[pre_tool_use]]"))
    put(tmp_path / "bin", "ruff", '#!/bin/sh\necho "$@" > formatted.new; mv formatted.new formatted\n').chmod(0o755)
    path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    write = ("write", {"path": "src/a.py", "content": "x"})
    steps = [("bash", {"command": "echo npm publish"}), ("bash", {"command": "echo fine"}), write, "done"]
    async with aided(tmp_path, *steps, config=FULL_AUTO, environment=path, short_waits=True) as (session, model, _):
        await session.say("go")
        assert "denies this call: only the release job publishes" in last(model.requests[1])
        assert "fine" in last(model.requests[2])
        work = session.editor.workspace
        with anyio.fail_after(PATIENCE):
            while not ((work / "formatted").exists() and (work / "turns.log").exists()):  # noqa: ASYNC110 - hooks end behind the turn
                await anyio.sleep(0.01)
        assert (work / "formatted").read_text() == f"format {work}/src/a.py\n"
