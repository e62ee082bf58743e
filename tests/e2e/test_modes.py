"""Modes and options: announced, checked, and enforced."""

from functools import partial

import pytest

from tests.fakes import editor as editors
from tests.fakes.answers import Call
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

WRITE = [uses(("write", {"path": "a.txt", "content": "a\n"})), says("ok")]
RUN = [uses(("bash", {"command": "touch touched"})), says("ok")]


async def test_a_mode_that_only_reads_changes_nothing_and_asks_nothing(tmp_path):
    async with editing(tmp_path, {"write": WRITE, "run": RUN}) as editor:
        session = await editor.open()
        for mode in ("ask", "architect"):
            assert await editor.ask("session/set_mode", {"sessionId": session, "modeId": mode}) == {}
            for prompt in ("write", "run"):
                assert await editor.say(session, prompt) == "end_turn"
                assert editor.calls[-1].status == "failed", (mode, prompt)
    assert len(editor.calls) == 4
    assert not editor.requests("session/request_permission")
    assert list(editor.workspace.iterdir()) == []


async def test_a_mode_that_only_reads_can_still_read(tmp_path):
    async with editing(tmp_path, [uses(("read", {"path": "a.txt"})), says("ok")]) as editor:
        (editor.workspace / "a.txt").write_text("a\n")
        session = await editor.open()
        await editor.ask("session/set_mode", {"sessionId": session, "modeId": "ask"})
        await editor.say(session, "go")
    assert editor.call.status == "completed"


async def test_a_mode_that_only_reads_offers_bash_for_commands_that_only_read(tmp_path):
    calls = [uses(("bash", {"command": "ls && cat a.txt"})), uses(("bash", {"command": "touch touched"})), says("ok")]
    for mode, name in (("ask", "Read only"), ("architect", "Plan")):
        folder = tmp_path / mode
        folder.mkdir()
        async with editing(folder, calls) as editor:
            (editor.workspace / "a.txt").write_text("needle\n")
            session = await editor.open()
            await editor.ask("session/set_mode", {"sessionId": session, "modeId": mode})
            await editor.say(session, "go")
            await editor.say(session, "/tools")
            assert "- `bash`" in editor.told
            assert "- `write`" not in editor.told
        assert [call.status for call in editor.calls] == ["completed", "failed"]
        assert "needle" in str(editor.calls[0])
        assert f"{name} mode ('{mode}')" in str(editor.calls[1])
        assert "/mode code" in str(editor.calls[1])
        assert not editor.requests("session/request_permission")


async def test_full_auto_does_not_lift_the_mode(tmp_path):
    async with editing(tmp_path, RUN) as editor:
        session = await editor.open()
        await editor.ask("session/set_mode", {"sessionId": session, "modeId": "ask"})
        await editor.ask(
            "session/set_config_option", {"sessionId": session, "configId": "auto_approve", "value": "full-auto"}
        )
        await editor.say(session, "go")
    assert editor.call.status == "failed"


async def test_set_mode_announces_the_mode_and_the_option_that_mirrors_it(tmp_path):
    async with editing(tmp_path, [says("hi")]) as editor:
        session = await editor.open()
        await editor.ask("session/set_mode", {"sessionId": session, "modeId": "ask"})
        assert (await editor.updated("current_mode_update"))["currentModeId"] == "ask"
        update = await editor.updated("config_option_update")
        assert {o["id"]: o["currentValue"] for o in update["configOptions"]} == {
            "mode": "ask",
            "model": f"scripted:{editor.home.root}/script.json",
        }


async def test_one_selector_says_how_freely_the_agent_acts_and_older_names_still_set_it(tmp_path):
    async with editing(tmp_path, [says("hi")]) as editor:
        await editor.initialize()
        opened = await editor.ask("session/new", {"cwd": str(editor.workspace), "mcpServers": []})
        session, shown = opened["sessionId"], [o["id"] for o in opened["configOptions"]]

        async def choose(option: str, value: str) -> str:
            params = {"sessionId": session, "configId": option, "value": value}
            found = await editor.ask("session/set_config_option", params)
            return {o["id"]: o["currentValue"] for o in found["configOptions"]}["mode"]

        assert shown == ["mode", "model"]
        names = [mode["name"] for mode in opened["modes"]["availableModes"]]
        assert names == ["Ask first", "Edit freely", "Full", "Plan", "Read only"]
        assert [o["name"] for o in opened["configOptions"][0]["options"]] == names
        assert await choose("mode", "auto-edit") == "auto-edit"
        assert await choose("auto_approve", "full-auto") == "full-auto"
        assert await choose("mode", "architect") == "architect"
        assert await choose("mode", "code") == "full-auto"
        assert await choose("autonomy_level", "readonly") == "ask"
        assert await choose("mode", "suggest") == "suggest"
        await editor.ask("session/set_mode", {"sessionId": session, "modeId": "full-auto"})
        assert (await editor.updated("current_mode_update"))["currentModeId"] == "auto-edit"
        await editor.say(session, "hi")
        seen = [u["currentModeId"] for u in editor.recording.updates("current_mode_update")]
        assert seen == ["auto-edit", "full-auto", "architect", "full-auto", "ask", "suggest", "full-auto"]
        loaded = await editor.ask(
            "session/load", {"sessionId": session, "cwd": str(editor.workspace), "mcpServers": []}
        )
        assert loaded["modes"]["currentModeId"] == "full-auto"


async def test_the_mode_option_is_the_same_switch(tmp_path):
    async with editing(tmp_path, WRITE) as editor:
        session = await editor.open()
        params = {"sessionId": session, "configId": "mode", "value": "architect"}
        answer = await editor.ask("session/set_config_option", params)
        assert {o["id"]: o["currentValue"] for o in answer["configOptions"]}["mode"] == "architect"
        assert (await editor.updated("current_mode_update"))["currentModeId"] == "architect"
        await editor.say(session, "go")
    assert editor.call.status == "failed"


async def test_a_mode_set_back_works_again(tmp_path):
    async with editing(tmp_path, WRITE) as editor:
        session = await editor.open()
        await editor.ask("session/set_mode", {"sessionId": session, "modeId": "ask"})
        await editor.ask("session/set_mode", {"sessionId": session, "modeId": "code"})
        await editor.say(session, "go")
    assert editor.call.status == "completed"


async def test_modes_belong_to_their_session(tmp_path):
    async with editing(tmp_path, WRITE) as editor:
        careful = await editor.open()
        other = await editor.new_session(str(editor.workspace))
        await editor.ask("session/set_mode", {"sessionId": careful, "modeId": "ask"})
        await editor.say(other, "go")
    assert editor.call.status == "completed"


# (method, parameters, one of these words is in the message)
WRONG = [
    ("session/set_mode", {"modeId": "yolo"}, ["mode"]),
    ("session/set_mode", {"modeId": ["ask"]}, ["mode"]),
    ("session/set_mode", {}, ["mode"]),
    ("session/set_config_option", {"configId": "colour", "value": "red"}, ["config"]),
    ("session/set_config_option", {"configId": "mode", "value": "yolo"}, ["mode"]),
    ("session/set_config_option", {"configId": "mode"}, ["mode"]),
    ("session/set_config_option", {"configId": "auto_approve", "value": True}, ["level", "value"]),
    ("session/set_config_option", {"configId": "auto_approve", "value": {"a": 1}}, ["level", "value"]),
    ("session/set_config_option", {"configId": ["mode"], "value": "ask"}, ["config"]),
]


async def test_unknown_modes_options_and_values_are_refused_and_change_nothing(tmp_path):
    async with editing(tmp_path, WRITE) as editor:
        session = await editor.open()
        for method, params, words in WRONG:
            error = await editor.error_of(method, {"sessionId": session, **params})
            assert error.code == -32600, params
            assert any(word in error.message for word in words), error.message
        await editor.say(session, "go")
    assert editor.call.status == "completed"


async def test_modes_of_a_session_nobody_opened_are_not_found(tmp_path):
    async with editing(tmp_path, [says("hi")]) as editor:
        await editor.initialize()
        assert (await editor.error_of("session/set_mode", {"sessionId": "x", "modeId": "ask"})).code == -32002
        params = {"sessionId": "x", "configId": "mode", "value": "ask"}
        assert (await editor.error_of("session/set_config_option", params)).code == -32002


HOLD = uses(("bash", {"command": "echo up > alive; read line < held"}))


async def test_a_stricter_mode_counts_at_once_also_for_a_turn_that_runs(tmp_path):
    async with editing(tmp_path, [HOLD, *WRITE]) as editor:
        alive, held = editor.fifo("alive"), editor.fifo("held")
        session = await editor.open()
        await editor.ask("session/set_mode", {"sessionId": session, "modeId": "full-auto"})
        async with editor.prompting(session) as turn:
            await alive.line()
            await editor.ask("session/set_mode", {"sessionId": session, "modeId": "architect"})
            held.write_line()
        assert turn.stop_reason == "end_turn"
        assert [call.status for call in editor.calls] == ["completed", "failed"]
        assert "not available in Plan mode" in str(editor.calls[1])
        assert "counts from your next prompt on" not in editor.told
    assert not (editor.workspace / "a.txt").exists()


async def test_a_lower_approval_level_makes_the_next_call_of_a_running_turn_ask(tmp_path):
    async with editing(tmp_path, [HOLD, *WRITE]) as editor:
        alive, held = editor.fifo("alive"), editor.fifo("held")
        session = await editor.open()
        await editor.ask("session/set_mode", {"sessionId": session, "modeId": "full-auto"})
        async with editor.prompting(session):
            await alive.line()
            params = {"sessionId": session, "configId": "mode", "value": "suggest"}
            await editor.ask("session/set_config_option", params)
            held.write_line()
        assert len(editor.requests("session/request_permission")) == 1


async def test_a_looser_mode_waits_for_the_next_prompt_and_the_user_is_told(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "read line < held"})), *WRITE]) as editor:
        held = editor.fifo("held")
        session = await editor.open()
        async with editor.prompting(session):
            await editor.requested("session/request_permission")
            for mode in ("auto-edit", "full-auto"):
                await editor.ask("session/set_mode", {"sessionId": session, "modeId": mode})
            held.write_line()
        assert len(editor.requests("session/request_permission")) == 2
        assert editor.told.count("Full counts from your next prompt on; this turn goes on as Ask first.") == 1
        assert editor.told.count("Edit freely counts from your next prompt on") == 1
        held.write_line()
        await editor.say(session, "again")
        assert len(editor.requests("session/request_permission")) == 2


FULL_LATER = "Full counts from your next prompt on; this turn goes on as Ask first."


async def test_a_looser_mode_chosen_while_the_projects_files_are_asked_about_waits_for_the_next_prompt(tmp_path):
    async with editing(tmp_path, {"go": [*RUN[:1], *WRITE], "again": RUN}) as editor:
        skill = editor.workspace / ".acp-agent" / "skills" / "greet" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("---\nname: greet\ndescription: Greet\n---\nGreet.\n")
        session = await editor.open()

        async def choose_meanwhile(call: Call) -> None:
            if len(editor.requests("session/request_permission")) == 1:
                await editor.ask("session/set_mode", {"sessionId": session, "modeId": "full-auto"})
            await call.serve()

        editor.overrides["session/request_permission"] = choose_meanwhile
        await editor.say(session, "go")
        asked = editor.requests("session/request_permission")
        assert "skill greet" in str(asked[0])
        assert len(asked) == 3, "the command and the file are asked about, too"
        assert editor.told.count(FULL_LATER) == 1
        await editor.say(session, "again")
        assert len(editor.requests("session/request_permission")) == 3


async def test_handing_back_within_a_turn_puts_no_looser_mode_in_force(tmp_path):
    back = uses(("handoff", {"agent": "back", "message": "go on"}))
    config = "[agents]\nhandoff = true\n"
    async with editing(tmp_path, {"go": [*RUN[:1], back, *WRITE], "again": WRITE}, config=config) as editor:
        session = await editor.open()

        async def choose_meanwhile(call: Call) -> None:
            await editor.ask("session/set_mode", {"sessionId": session, "modeId": "full-auto"})
            await call.serve()

        editor.overrides["session/request_permission"] = choose_meanwhile
        await editor.say(session, "go")
        assert "Nothing was handed over." in editor.calls[1].text
        assert len(editor.requests("session/request_permission")) == 2
        assert editor.told.count(FULL_LATER) == 1
        await editor.say(session, "again")
        assert len(editor.requests("session/request_permission")) == 2
