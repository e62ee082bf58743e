"""Quality gates on the wire: what fails goes back to the one who worked, and the user is told what stays wrong."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.test_agents import FULL_AUTO, assert_a_cancel_ends_all, assert_no_card_is_open, messages, nested, run
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING
from tests.fakes.held import Held
from tests.fakes.model_script import Script, Step, says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

CHECK = 'echo x >> tries; echo "try $(wc -l < tries)" >&2; test $(wc -l < tries) -gt 2'
JUDGE = "(?s)^Judge the work.*"


def gate(**keys: object) -> str:
    written = (
        f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in keys.items()
    )
    return "\n".join((FULL_AUTO, "[[agents.gates]]", "name = 'tests'", *written, ""))


def writes(text: str = "x", **more: str) -> Step:
    return uses(("write", {"path": "a.txt", "content": text}), **more)


async def test_a_command_that_fails_twice_sends_the_turn_back_with_what_it_says_and_then_lets_it_end(tmp_path: Path):
    script: Script = {
        "(?s)tests failed, try 1 of 3.*try 1\n": [writes("y"), says("Corrected.")],
        "(?s)tests failed, try 2 of 3.*try 2\n": [says("Again.")],
        "^go": [writes(), says("Done.")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=gate(command="sh check")) as editor:
        (editor.workspace / "check").write_text(CHECK)
        session = await editor.open()
        assert await editor.say(session, "go") == "end_turn"
        assert [call.first["title"] for call in editor.calls if call.first["kind"] == "execute"] == ["sh check"] * 3
        assert messages(editor) == "Done. Corrected. Again."
        (file,) = Path(editor.home.data).rglob("audit.jsonl")
        assert file.read_text().count('"verifier"') >= 3
    assert_no_card_is_open(editor)


async def test_after_its_retries_the_user_is_told_plainly(tmp_path: Path):
    script: Script = {"tests failed, try": [says("Again.")], "^go": [writes(), says("Done.")]}
    async with editing(tmp_path, script, capabilities=NOTHING, config=gate(command="false", max_retries=1)) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert messages(editor) == "Done. Again. The quality gate tests failed (2 times). Its card says why."


async def test_a_turn_that_changes_nothing_fires_no_gate_and_one_that_does_not_block_only_tells(tmp_path: Path):
    script: Script = {
        "^look": [uses(("list_directory", {"path": "."})), says("Seen.")],
        "^go": [writes(), says("Done.")],
    }
    config = gate(command="false", block_on_failure=False)
    async with editing(tmp_path, script, capabilities=NOTHING, config=config) as editor:
        session = await editor.open()
        await editor.say(session, "look")
        assert len(editor.calls) == 1
        await editor.say(session, "go")
    assert messages(editor).endswith(
        "Done. The quality gate tests failed (once, and does not block). Its card says why."
    )


async def test_an_evaluator_that_runs_beside_by_its_definition_still_judges(tmp_path: Path):
    script: Script = {
        JUDGE: [says("REJECTED: a.txt is empty")],
        "a.txt is empty": [says("I see.")],
        "^go": [writes(), says("Done.")],
    }
    config = gate(evaluator="judge", criteria="it is good", max_retries=1)
    async with editing(tmp_path, script, capabilities=NOTHING, config=config) as editor:
        agents = editor.home.config.parent / "agents"
        agents.mkdir()
        (agents / "judge.md").write_text("---\ndescription: judges\nbackground: true\n---\nYou judge.\n")
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert messages(editor) == "Done. I see. The quality gate tests failed (2 times). Its card says why."
    assert_no_card_is_open(editor)


async def test_a_gate_asks_like_any_call_and_a_refused_one_is_no_failure_of_the_work(tmp_path: Path):
    script: Script = {"^go": [writes(), says("Done.")]}
    config = gate(command="make it").replace("full-auto", "auto-edit")
    async with editing(tmp_path, script, capabilities=NOTHING, config=config) as editor:
        editor.overrides["session/request_permission"] = lambda call: call.reply(
            {"outcome": {"outcome": "selected", "optionId": "reject_once"}}
        )
        assert await editor.say(await editor.open(), "go") == "end_turn"
        (question,) = editor.requests("session/request_permission")
    assert "a check that you have configured asks" in json.dumps(question), "since no model has called it"
    assert "The quality gate tests could not be run: " in messages(editor)


async def test_an_evaluator_judges_a_turn_and_its_own_run_fires_no_gate(tmp_path: Path):
    judged: Sequence[Step] = [uses(("write", {"path": "b", "content": "x"})), says("REJECTED: a.txt:1 is empty")]
    script: Script = {
        "(?s)tests failed, try 1 of 2.*a.txt:1 is empty": [writes("full"), says("Corrected.")],
        f"{JUDGE}": judged,
        "^go": [writes(), says("Done.")],
    }
    config = gate(evaluator="general", criteria="nothing is empty", max_retries=1)
    config += "[[agents.gates]]\nname = 'reports'\nevent = 'delegation'\ncommand = 'touch fired'\n"
    async with editing(tmp_path, script, capabilities=NOTHING, config=config) as editor:
        await editor.say(await editor.open(), "go")
        assert not (editor.workspace / "fired").exists()
    assert messages(editor) == "Done. Corrected. The quality gate tests failed (2 times). Its card says why."


async def test_a_report_of_a_sub_agent_that_fails_goes_back_to_it_before_anybody_reads_it(tmp_path: Path):
    script: Script = {
        "tests failed, try 1": [writes("y"), says("second report")],
        "tests failed, try 2": [says("third report")],
        "^write": [writes(), says("first report")],
        "^go": [uses(run("general", "write it")), says("Done.")],
    }
    config = gate(event="delegation", command="sh check")
    async with editing(tmp_path, script, capabilities=NOTHING, config=config) as editor:
        (editor.workspace / "check").write_text(CHECK)
        await editor.say(await editor.open(), "go")
    assert editor.calls[0].final["rawOutput"]["output"] == "third report"
    titles = [call.first["title"] for call in nested(editor)["general: write it"]]
    assert titles.count("sh check") == 3
    assert messages(editor) == "Done."


async def test_agents_that_only_read_and_work_that_is_judged_in_rounds_fire_no_gate(tmp_path: Path):
    script: Script = {"^find": [says("found")], JUDGE: [says("approved")], "^make": [writes(), says("made")]}
    config = gate(event="delegation", command="touch fired")
    async with editing(tmp_path, script, capabilities=NOTHING, config=config) as editor:
        session = await editor.open()
        await editor.say(session, "@explore find")
        await editor.say(session, "/evaluate it is: make")
        assert not (editor.workspace / "fired").exists()
        await editor.say(session, "@general make")
        assert (editor.workspace / "fired").exists()


@pytest.mark.parametrize("event", ["turn", "delegation"])
async def test_cancelling_ends_a_gate_with_its_processes(tmp_path: Path, event: str):
    script: Script = {"^make": [writes(), says("made")], "^go": [writes(), uses(run("general", "make")), says("Done.")]}
    async with editing(
        tmp_path, script, capabilities=NOTHING, config=gate(event=event, command=Held.COMMAND)
    ) as editor:
        await assert_a_cancel_ends_all(editor)
