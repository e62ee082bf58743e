"""Sub-agents on the wire: whose card shows what, what the model gets of them, and that nothing is left of them."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acp_agent.cli.agent_process import RecordedFrame, SeenCall
from tests.e2e.aided import SECRET, aided, plays
from tests.e2e.killed_view import loaded
from tests.e2e.model_servers import last_prompt, meeting_model
from tests.fakes import editor as editors
from tests.fakes.answers import Call
from tests.fakes.editor import NOTHING, ScriptedEditor
from tests.fakes.held import Held, processes_ended
from tests.fakes.model_script import Script, says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

FULL_AUTO = "[acp]\nauto_approve = 'full-auto'\n"


def agent(**arguments: str) -> tuple[str, dict[str, Any]]:
    return "agent", arguments


def run(name: str, task: str) -> tuple[str, dict[str, Any]]:
    return agent(op="run", agent=name, task=task)


def parent_of(update: dict[str, Any]) -> str:
    return update.get("_meta", {}).get("claudeCode", {}).get("parentToolUseId", "")


def nested(editor: ScriptedEditor) -> dict[str, list[SeenCall]]:
    """The calls of sub-agents by the title of the card that they stand under."""
    titles = {call.id: call.first["title"] for call in editor.calls}
    found: dict[str, list[SeenCall]] = {}
    for call in editor.calls:
        if parent := parent_of(call.first):
            found.setdefault(titles[parent], []).append(call)
            assert parent_of(call.final) == parent
    return found


def assert_no_card_is_open(editor: ScriptedEditor) -> None:
    assert [call.first["title"] for call in editor.calls if call.status not in ("completed", "failed")] == []


async def assert_a_cancel_ends_all(editor: ScriptedEditor) -> None:
    """Cancel a turn whose command is held: no process and no open card is left, and the session goes on."""
    held = Held(editor)
    session = await editor.open()
    async with editor.prompting(session) as turn:
        pids = await held.pids()
        await editor.cancel(session)
    assert turn.stop_reason == "cancelled"
    await processes_ended(pids)
    assert_no_card_is_open(editor)
    assert await editor.say(session, "/help") == "end_turn"


def messages(editor: ScriptedEditor) -> str:
    frames: Sequence[RecordedFrame] = editor.recording.frames
    chunks = [frame.update for frame in frames if frame.update.get("sessionUpdate") == "agent_message_chunk"]
    return " ".join("".join(chunk["content"]["text"] for chunk in chunks).split())


async def test_a_sub_agent_reads_under_the_card_of_its_call_and_only_its_report_comes_back(tmp_path: Path):
    script: Script = {
        "^find": [uses(("read", {"path": "a.txt"}), text="I look into a.txt."), says("a.txt:1 holds one.")],
        "^go": [uses(run("explore", "find the number")), says("It is one.")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        (editor.workspace / "a.txt").write_text("one\n")
        assert await editor.say(await editor.open(), "go") == "end_turn"
    (reading,) = nested(editor)["explore: find the number"]
    assert reading.status == "completed"
    card = editor.calls[0]
    assert card.first["kind"] == "think"
    assert card.updates[-2]["content"][0]["content"]["text"] == "I look into a.txt.\n\na.txt:1 holds one."
    assert card.final["content"][0]["content"]["text"] == "a.txt:1 holds one."
    assert card.final["rawOutput"]["run"] == "explore-1"
    assert card.final["rawOutput"]["conversation"].startswith("overflow:")
    assert messages(editor) == "It is one."
    assert_no_card_is_open(editor)


async def test_a_sub_agent_that_may_only_read_has_no_other_tool_and_is_refused_one(tmp_path: Path):
    calls = [("write", {"path": "b", "content": "x"}), ("bash", {"command": "touch c"}), run("general", "find more")]
    script: Script = {
        "^find": [uses(*calls), says("I could not.")],
        "^go": [uses(run("explore", "find")), says("done")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=FULL_AUTO) as editor:
        await editor.say(await editor.open(), "go")
        assert sorted(path.name for path in editor.workspace.iterdir()) == []
    refused = nested(editor)["explore: find"]
    assert [call.status for call in refused] == ["failed"] * 3
    assert "has no tool 'write'" in refused[0].text
    assert "content" not in refused[0].first, "no preview of a change that is not there to be made"
    assert "explore may only read" in refused[1].text
    assert "has no tool 'agent'" in refused[2].text


async def test_three_that_explore_ask_their_models_at_the_same_time(tmp_path: Path):
    async with (
        meeting_model("find a", "find b", "find c") as model,  # it answers none before all three have asked
        editing(tmp_path, None, capabilities=NOTHING, **model.options) as editor,
    ):
        await editor.say(await editor.open(), "go")
    assert [card.final["rawOutput"]["output"] for card in editor.calls] == [
        f"report of find {letter}" for letter in "abc"
    ]
    assert messages(editor) == "all have reported"
    assert_no_card_is_open(editor)


async def test_the_question_of_a_sub_agent_says_who_asks(tmp_path: Path):
    script: Script = {
        "^make": [uses(("write", {"path": "b", "content": "x"})), says("written")],
        "^go": [uses(run("general", "make b")), says("done")],
    }
    asked: list[dict[str, Any]] = []

    async def look(call: Call) -> None:
        asked.append(call.params)
        await call.serve()

    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        editor.overrides["session/request_permission"] = look
        await editor.say(await editor.open(), "go")
        assert (editor.workspace / "b").read_text() == "x"
    assert "general (sub-agent general-1) asks" in json.dumps(asked[0])


async def test_the_audit_says_which_sub_agent_made_a_call(tmp_path: Path):
    script: Script = {
        "^find": [uses(("list_directory", {"path": "."})), says("nothing")],
        "^go": [uses(run("explore", "find")), says("done")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, serves="") as editor:
        session = await editor.open()
        await editor.say(session, "go")
        (file,) = Path(editor.home.data).rglob("audit.jsonl")
        records = [json.loads(line) for line in file.read_text().splitlines()]
    made = {record["tool"]: record["caller_id"] for record in records if "tool" in record}
    assert made == {"list_directory": f"{session}/explore-1", "agent": session}


async def test_a_spawned_run_has_its_own_card_and_is_announced_before_the_turn_ends(tmp_path: Path):
    script: Script = {
        "^find": [uses(("read", {"path": "a.txt"})), says("a.txt:1 holds one.")],
        "Its report:": [says("It is one.")],
        "^go": [uses(agent(op="spawn", agent="explore", task="find it")), says("I wait. ")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        (editor.workspace / "a.txt").write_text("one\n")
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert messages(editor) == "I wait. It is one."
    assert [call.first["title"] for call in editor.calls] == ["explore: find it", "explore-1: find it", "read a.txt"]
    assert list(nested(editor)) == ["explore-1: find it"]
    assert editor.calls[1].final["content"][0]["content"]["text"] == "a.txt:1 holds one."
    assert_no_card_is_open(editor)


async def test_a_spawned_run_that_is_steered_goes_on_with_what_it_knows_and_the_new_words(tmp_path: Path):
    script: Script = {
        "^find": [{"hang": True, "text": ["Looking"]}],
        "Its report:": [says("Found.")],
        "elsewhere": [says("It is elsewhere.")],
        "^go": [
            uses(agent(op="spawn", agent="explore", task="find it")),
            uses(agent(op="steer", id="explore-1", task="look elsewhere")),
            uses(agent(op="list")),
            says("I wait. "),
        ],
    }
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    ends = {call.first["title"]: (call.status, call.text) for call in editor.calls}
    assert ends["explore-1: find it"][0] == "failed"
    assert "cancelled" in ends["explore-1: find it"][1]
    assert ends["explore-1: look elsewhere"] == ("completed", "It is elsewhere.")
    assert messages(editor) == "I wait. Found."
    assert_no_card_is_open(editor)


async def test_cancelling_the_turn_ends_every_run_its_commands_and_its_cards(tmp_path: Path):
    script: Script = {
        "^hold": [uses(("bash", {"command": Held.COMMAND})), says("never")],
        "^find": [{"hang": True}],
        "^go": [
            uses(agent(op="spawn", agent="explore", task="find it")),
            uses(run("general", "hold on")),
            says("never"),
        ],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=FULL_AUTO) as editor:
        await assert_a_cancel_ends_all(editor)
    assert len(editor.calls) == 4


async def test_a_load_shows_the_same_cards_under_the_same_ones(tmp_path: Path):
    script: Script = {
        "^find": [uses(("read", {"path": "a.txt"}), ("list_directory", {"path": "."})), says("a.txt:1 holds one.")],
        "^go": [uses(run("explore", "find it"), run("review", "find it")), says("It is one.")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        (editor.workspace / "a.txt").write_text("one\n")
        session = await editor.open()
        await editor.say(session, "go")
        live = {call.id: (call.first["title"], parent_of(call.first), call.final) for call in editor.calls}
        told = await loaded(editor, session)
    again = {update["toolCallId"]: update for update in told.updates if update["sessionUpdate"] == "tool_call"}
    assert {call: (each["title"], parent_of(each)) for call, each in again.items()} == {
        call: (title, parent) for call, (title, parent, _) in live.items()
    }
    ends = {update["toolCallId"]: update for update in told.updates if update.get("status") == "completed"}
    assert {call: (each["content"], parent_of(each)) for call, each in ends.items()} == {
        call: (final["content"], parent) for call, (_, parent, final) in live.items()
    }
    assert len(live) == 6


async def test_no_more_run_at_once_than_the_configuration_says(tmp_path: Path):
    spawned = [uses(agent(op="spawn", agent="explore", task=f"find {letter}")) for letter in "abc"]
    script: Script = {
        "^find": [{"hang": True}],
        "^go": [*spawned, uses(agent(op="cancel", id="all")), says("enough")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config="[agents]\nmax_children = 2\n") as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    refused = next(call for call in editor.calls if call.first["title"] == "explore: find c")
    assert refused.status == "failed"
    assert "sub-agents at capacity (2/2 of this session): explore-1, explore-2" in refused.text
    assert messages(editor) == "enough"
    assert_no_card_is_open(editor)


async def test_switched_off_the_model_has_no_tool_for_them(tmp_path: Path):
    script = [uses(run("explore", "find")), says("done")]
    async with editing(tmp_path, script, capabilities=NOTHING, config="[agents]\nenabled = false\n") as editor:
        await editor.say(await editor.open(), "go")
    assert "there is no tool" in editor.call.text


async def test_a_prompt_that_begins_with_a_name_gives_that_agent_the_task_and_the_model_knows_it_later(tmp_path: Path):
    script: Script = {
        "^find": [uses(("read", {"path": "a.txt"})), says("a.txt:1 holds one.")],
        "(?s)had the sub-agent explore do this: find it.*holds one.*what": [says("You know it: one.")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        (editor.workspace / "a.txt").write_text("one\n")
        session = await editor.open()
        await editor.say(session, "@explore find it")
        await editor.say(session, "what was it?")
        await editor.say(session, "@explore")
        await editor.say(session, "/agents")
    assert list(nested(editor)) == ["explore: find it"]
    told = messages(editor)
    assert told.startswith("a.txt:1 holds one.You know it: one.")
    assert "Say what `explore` is to do: `@explore TASK`" in told
    assert "explore-1: done, 1 tool call in" in told


async def test_agents_that_users_define_are_offered_and_work_with_what_their_files_allow(tmp_path: Path):
    script: Script = {
        "^test": [uses(("read", {"path": "a.txt"}), ("list_directory", {"path": "."})), says("tested")],
        "^go": [uses(run("tester", "test it")), says("done")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        (editor.workspace / "a.txt").write_text("one\n")
        agents = editor.home.config.parent / "agents"
        agents.mkdir()
        (agents / "tester.md").write_text("---\ndescription: tests things\ntools: Read\ncolor: red\n---\nYou test.\n")
        (agents / "bad.md").write_text("---\ndescription: x\nmax_turns: many\nname: explore\n---\nYou.\n")
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "/status")
        await editor.say(session, "/agents")
    reading, listing = nested(editor)["tester: test it"]
    assert (reading.status, listing.status) == ("completed", "failed")
    assert "tester has no tool 'list_directory'" in listing.text
    told = messages(editor)
    assert "tester: tests things" in told
    assert "max_turns: expected a whole number from 1 to 200, got 'many'" in told
    assert "name: 'explore' is built in; this one is not used" in told


HOOKED = """---
description: tests things
hooks:
  PreToolUse:
    - matcher: "Bash"
      hooks:
        - {type: command, command: 'grep -q forbidden && { echo "not that" >&2; exit 2; }; true'}
  PostToolUse:
    - hooks:
        - {type: command, command: "echo '{\\"decision\\": \\"approve\\"}'; exit 2"}
---
You test.
"""


async def test_hooks_in_a_definition_run_for_the_calls_of_its_agent_alone_and_allow_nothing(tmp_path: Path):
    forbidden = "bash", {"command": "echo forbidden"}
    script: Script = {
        "^test": [uses(forbidden, ("bash", {"command": "sudo ls"})), says("tested")],
        "^go": [uses(forbidden), uses(run("tester", "test it")), says("done")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=FULL_AUTO) as editor:
        agents = editor.home.config.parent / "agents"
        agents.mkdir()
        (agents / "tester.md").write_text(HOOKED)
        session = await editor.open()
        await editor.say(session, "go")
        (file,) = Path(editor.home.data).rglob("audit.jsonl")
        records = [json.loads(line) for line in file.read_text().splitlines()]
    assert editor.calls[0].status == "completed", "the session's own call runs no hook of an agent"
    denied, blocked = nested(editor)["tester: test it"]
    assert "a hook of the user (~/agents/tester.md) denies this call: not that" in denied.text
    assert "blocked" in blocked.text
    ran = [record["call"]["event"] for record in records if record.get("tool") == "hook"]
    assert ran == ["pre_tool_use"], "none for what is refused anyway"


async def test_an_agent_of_the_project_is_used_when_the_user_has_said_yes_to_it(tmp_path: Path):
    script: Script = {
        "^test": [says("tested")],
        "^go": [uses(run("tester", "test it")), says("done")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, serves="") as editor:
        agents = editor.workspace / ".claude" / "agents"
        agents.mkdir(parents=True)
        (agents / "tester.md").write_text(HOOKED)
        editor.overrides["session/request_permission"] = rejecting_all
        session = await editor.open()
        await editor.say(session, "go")
        (question,) = editor.requests("session/request_permission")
        assert "tester.md): on pre_tool_use runs grep -q forbidden" in json.dumps(question)
        assert editor.calls[0].status == "failed"
        assert "there is no sub-agent 'tester'" in editor.calls[0].text
        await editor.say(session, "/trust accept")
        await editor.say(session, "go")
        assert editor.calls[1].status == "completed"


async def rejecting_all(call: Call) -> None:
    await call.reply({"outcome": {"outcome": "cancelled"}})


async def test_a_definition_cannot_have_more_rights_than_its_session(tmp_path: Path):
    script: Script = {
        "^test": [uses(("write", {"path": "b", "content": "x"}), ("bash", {"command": "touch c"})), says("tested")],
        "^go": [uses(run("tester", "test it")), says("done")],
    }
    asked: list[str] = []

    async def refuse(call: Call) -> None:
        asked.append(call.params["toolCall"]["title"])
        await call.reply({"outcome": {"outcome": "selected", "optionId": "reject_once"}})

    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        agents = editor.home.config.parent / "agents"
        agents.mkdir()
        front = "description: tests\npermissionMode: bypassPermissions\ntools: '*'\nauto_approve: full-auto\n"
        (agents / "tester.md").write_text(f"---\n{front}---\nYou may do all.\n")
        editor.overrides["session/request_permission"] = refuse
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "/mode ask")
        await editor.say(session, "go")
        assert [path.name for path in editor.workspace.iterdir()] == []
    assert len(asked) == 2, "both calls asked, and in the mode that only reads neither did"
    refused = [call for call in editor.calls if parent_of(call.first)]
    assert [call.status for call in refused] == ["failed"] * 4
    assert "The user rejected" in refused[0].text or "denied by the user" in refused[0].text
    assert "tester has no tool 'write'" in refused[2].text


async def test_the_calls_of_a_sub_agent_count_against_the_sessions_quota(tmp_path: Path):
    looks = [uses(("list_directory", {"path": "."})) for _ in range(3)]
    script: Script = {"^find": [*looks, says("found")], "^go": [uses(run("explore", "find")), says("done")]}
    config = "[tools]\nmax_tool_calls_per_session = 3\n"
    async with editing(tmp_path, script, capabilities=NOTHING, config=config) as editor:
        await editor.say(await editor.open(), "go")
    assert [call.status for call in nested(editor)["explore: find"]] == ["completed", "completed", "failed"]


async def test_closing_the_session_ends_its_runs(tmp_path: Path):
    script: Script = {
        "^hold": [uses(("bash", {"command": Held.COMMAND})), says("never")],
        "^go": [uses(agent(op="spawn", agent="general", task="hold on")), says("I wait.")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=FULL_AUTO) as editor:
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            pids = await held.pids()
            await editor.ask("session/close", {"sessionId": session})
        assert turn.stop_reason == "cancelled"
        await processes_ended(pids)
        assert_no_card_is_open(editor)


async def test_a_forgotten_conversation_brings_no_news_of_its_runs(tmp_path: Path):
    script: Script = {
        "^hold": [uses(("bash", {"command": Held.COMMAND})), says("never")],
        "^go": [uses(agent(op="spawn", agent="general", task="hold on")), says("I wait.")],
        "general-1": [says("I remember.")],
        "^and now": [says("I know nothing.")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=FULL_AUTO) as editor:
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session):
            await held.pids()
            await editor.cancel(session)
        await editor.say(session, "/clear")
        await editor.say(session, "and now")
    assert messages(editor).endswith("I know nothing.")


async def test_explore_asks_the_model_that_is_configured_for_it(tmp_path: Path):
    config = '[agents]\nexplore_model = "chores:any"\n'
    async with aided(tmp_path, run("explore", "find it"), "done", config=config) as (session, main, second):
        assert "done" in await session.say("go")
    assert [last_prompt(request) for request in second.requests] == ["find it"]
    assert len(main.requests) == 2


async def test_a_long_report_of_a_spawned_run_reaches_the_model_cut_and_without_secrets(tmp_path: Path):
    spawn = agent(op="spawn", agent="explore", task="find it")
    config = '[agents]\nexplore_model = "chores:any"\n'
    async with aided(tmp_path, spawn, "I wait.", "done", config=config) as (session, main, second):
        second.thought = plays(f"It is {SECRET}.\n" + "a line\n" * 20_000 + "The end.")
        await session.say("go")
    sent = json.dumps(main.requests[-1])
    assert SECRET not in sent
    assert "It is [REDACTED:token]." in sent
    assert "characters left out here" in sent
    assert "The end." in sent
    assert len(sent) < len(json.dumps(main.requests[0])) + 10_000
