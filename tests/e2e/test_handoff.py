"""Handoff on the wire: the session goes on under another definition, narrowed, also after a load, and back."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.aided import aided, last, offered, plays, system
from tests.e2e.killed_view import loaded
from tests.e2e.test_agents import FULL_AUTO, agent, messages
from tests.e2e.test_no_model import LOGS_IN
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING, ScriptedEditor
from tests.fakes.held import Held, processes_ended
from tests.fakes.model_script import Script, says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

ON = "[agents]\nhandoff = true\n"
FRONT = "---\ndescription: tests things\ntools: [read, write, handoff]\n---\nYou test.\n"


def handoff(to: str, message: str) -> tuple[str, dict[str, Any]]:
    return "handoff", {"agent": to, "message": message}


def define(editor: ScriptedEditor) -> Path:
    agents = editor.home.config.parent / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "tester.md").write_text(FRONT)
    return agents / "tester.md"


WRITE = ("write", {"path": "a.txt", "content": "x"})


async def test_the_user_hands_over_to_one_that_only_reads_and_takes_the_session_back(tmp_path: Path):
    script: Script = {
        "(?s)handed over: you go on with it as explore.*look": [uses(WRITE), says("I may not.")],
        "again": [uses(WRITE), says("Still not.")],
        "now": [uses(WRITE), says("Written.")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=FULL_AUTO) as editor:
        session = await editor.open()
        await editor.say(session, "/handoff explore look around")
        await editor.say(session, "again")
        assert not (editor.workspace / "a.txt").exists()
        await editor.say(session, "/status")
        await editor.say(session, "/handoff back")
        await editor.say(session, "now")
        assert (editor.workspace / "a.txt").exists()
        await editor.say(session, "/handoff nobody")
    assert [call.status for call in editor.calls] == ["failed", "failed", "completed"]
    told = messages(editor)
    assert "Agent: explore (`/handoff back` ends it)" in told
    assert "explore hands back" in told
    assert "there is no agent nobody. Agents: " in told


async def test_a_load_goes_on_under_the_same_agent_and_one_that_is_gone_gives_no_rights_back(tmp_path: Path):
    script: Script = {"go": [uses(("bash", {"command": "touch b"})), says("No.")]}
    async with editing(tmp_path, script, capabilities=NOTHING, config=FULL_AUTO) as editor:
        file = define(editor)
        session = await editor.open()
        await editor.say(session, "/handoff tester")
        await editor.ask("session/close", {"sessionId": session})
        await loaded(editor, session)
        await editor.say(session, "go")
        assert "not among the tools of this agent" in editor.call.text
        file.unlink()
        await editor.say(session, "go")
        assert "`/handoff back` continues without it" in messages(editor)
        assert len(editor.calls) == 1
        await editor.say(session, "/handoff back go")
        assert (editor.workspace / "b").exists()


async def test_the_model_hands_over_within_the_turn_and_the_next_call_has_the_prompt_and_tools(tmp_path: Path):
    answers = (handoff("explore", "find it"), handoff("back", "go on"), "done")
    async with aided(tmp_path, *answers, config=ON + FULL_AUTO) as (session, model, _):
        assert "done" in await session.say("go")
    first, second, third = model.requests
    assert "write" in offered(first)
    assert "write" not in offered(second)
    assert "find out things about a code base" in system(second)
    assert last(second).startswith("[This conversation was handed over: you go on with it as explore.]\n\nfind it")
    assert (system(third), offered(third)) == (system(first), offered(first))


async def test_the_model_has_no_such_tool_where_it_is_not_configured_and_a_sub_agent_never(tmp_path: Path):
    async with aided(tmp_path, config=FULL_AUTO) as (session, model, _):
        await session.say("go")
    assert "handoff" not in offered(model.requests[0])
    script: Script = {
        "^find": [uses(handoff("explore", "x")), says("I could not.")],
        "^go": [uses(agent(op="run", agent="general", task="find")), says("done")],
    }
    async with editors.editing(tmp_path / "on", script, capabilities=NOTHING, config=ON + FULL_AUTO) as editor:
        await editor.say(await editor.open(), "go")
    assert "general has no tool 'handoff'" in editor.calls[1].text


async def test_cancelling_under_another_agent_ends_its_commands_and_the_handoff_stays(tmp_path: Path):
    script: Script = {"go": [uses(handoff("general", "x")), uses(("bash", {"command": Held.COMMAND})), says("never")]}
    async with editing(tmp_path, script, capabilities=NOTHING, config=ON + FULL_AUTO) as editor:
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            pids = await held.pids()
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        await processes_ended(pids)
        assert [call.status in ("completed", "failed") for call in editor.calls] == [True, True]
        await editor.say(session, "/status")
    assert "Agent: general" in messages(editor)


async def test_an_agent_answers_with_its_own_model_and_one_without_a_model_takes_over_nothing(tmp_path: Path):
    async with aided(tmp_path, handoff("broken", "go on"), "done", config=ON + FULL_AUTO) as (session, first, second):
        agents = define(session.editor)
        for name, model in (("other", "chores:any"), ("broken", "nobody:none")):
            agents.with_name(f"{name}.md").write_text(f"---\ndescription: x\nmodel: {model}\n---\nYou test.\n")
        await session.say("/handoff tester")
        assert "done" in await session.say("go")
        assert [call.status for call in session.editor.calls] == ["failed"]
        assert "Agent: tester (`/handoff back` ends it)" in await session.status()
        assert (len(first.requests), second.requests) == (2, [])
        await session.say("/handoff other")
        await session.say("go")
        assert (len(first.requests), len(second.requests)) == (2, 1)


async def test_an_agent_whose_model_is_not_configured_takes_over_nothing_and_the_refusal_says_what_to_configure(
    tmp_path: Path,
):
    keyless = '[[llm.providers]]\nname = "keyless"\ntype = "anthropic"\n'
    async with aided(tmp_path, "the session's own", "still", config=keyless + FULL_AUTO) as (session, first, second):
        agents = define(session.editor)
        for name, model in (("other", "chores:any"), ("lost", "nobody:none"), ("locked", "keyless:any")):
            agents.with_name(f"{name}.md").write_text(f"---\ndescription: x\nmodel: {model}\n---\nYou test.\n")
        for words in ("", " look around"):
            told = await session.say(f"/handoff lost{words}")
            for part in ("the agent lost cannot take over", "nobody:none", "[[llm.providers]]", "~/agents/lost.md"):
                assert part in told
            assert "goes on as `lost`" not in told
        assert "acp-agent login --provider keyless" in await session.say("/handoff locked")
        assert (first.requests, second.requests) == ([], []), "no words of a refused handoff reach a model"
        assert "Agent:" not in await session.status()
        assert "the session's own" in await session.say("go")
        await session.say("/handoff other")
        assert "the agent lost cannot take over" in await session.say("/handoff lost")
        assert "Agent: other (`/handoff back` ends it)" in await session.status()
        await session.say("go")
        assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.parametrize("capabilities", [NOTHING, LOGS_IN], ids=["no login", "a login"])
async def test_an_agent_cannot_hand_back_to_a_session_whose_own_model_has_no_key(
    tmp_path: Path, capabilities: dict[str, Any]
):
    environment = {"ACP_AGENT_MODEL": "anthropic:any"}
    options: dict[str, Any] = {"environment": environment, "capabilities": capabilities}
    async with aided(tmp_path, config=ON + FULL_AUTO, **options) as (session, first, second):
        second.thought = plays(handoff("back", "go on"), "still other")
        file = define(session.editor).with_name("other.md")
        file.write_text("---\ndescription: x\nmodel: chores:any\n---\nYou test.\n")
        await session.say("/handoff other")
        assert "still other" in await session.say("go")
        assert session.editor.call.status == "failed"
        assert "acp-agent login --provider anthropic" in session.editor.call.text
        assert "Agent: other (`/handoff back` ends it)" in await session.status()
        assert first.requests == []
