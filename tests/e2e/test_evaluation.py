"""Work that agents do and judge, on the wire: rounds until the judge approves, and nothing left of them."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.aided import aided, offered
from tests.e2e.test_agents import FULL_AUTO, agent, assert_a_cancel_ends_all, assert_no_card_is_open, messages, nested
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING
from tests.fakes.held import Held
from tests.fakes.model_script import Script, Step, says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

ON = "[agents]\nevaluate = true\n"
JUDGE = "(?s)^Judge the work.*"


def evaluate(task: str, criteria: str = "it is short", **more: object) -> tuple[str, dict[str, Any]]:
    return "evaluate", {"task": task, "criteria": criteria, **more}


ROUNDS: dict[str, Sequence[Step]] = {
    f"{JUDGE}long draft": [uses(("read", {"path": "a.txt"})), says("Rejected: a.txt:1 is too long")],
    f"{JUDGE}short draft": [says("**APPROVED**, it is short")],
    "(?s)^Write it.*a.txt:1 is too long": [uses(("write", {"path": "a.txt", "content": "x"})), says("short draft")],
    "^Write it": [uses(("write", {"path": "a.txt", "content": "xxxx"})), says("long draft")],
}


async def test_work_that_is_rejected_is_done_again_with_the_reason_until_it_is_approved(tmp_path: Path):
    script: Script = {**ROUNDS, "^go": [uses(evaluate("Write it")), says("Done.")]}
    async with editing(tmp_path, script, capabilities=NOTHING, config=ON + FULL_AUTO) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
        assert (editor.workspace / "a.txt").read_text() == "x"
    card = editor.calls[0]
    assert card.first["title"] == "general, judged by review: Write it"
    assert card.final["content"][0]["content"]["text"] == "short draft\n\n[approved by review after 2 rounds]"
    assert (card.final["rawOutput"]["approved"], card.final["rawOutput"]["rounds"]) == (True, 2)
    assert [call.first["title"].split()[0] for call in nested(editor)[card.first["title"]]] == [
        "write",
        "read",
        "write",
    ]
    assert messages(editor) == "Done."
    assert_no_card_is_open(editor)


async def test_after_the_last_round_the_work_comes_back_with_the_reason_why_it_is_not_approved(tmp_path: Path):
    script: Script = {
        JUDGE: [says("I like it, but APPROVED is too strong a word.")],
        "^Write it": [says("a draft")],
        "^go": [uses(evaluate("Write it", rounds=2)), says("Done.")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=ON) as editor:
        await editor.say(await editor.open(), "go")
    told = editor.call.final["content"][0]["content"]["text"]
    assert (
        told
        == "a draft\n\nreview said last: I like it, but APPROVED is too strong a word.\n\n[not approved after 2 rounds]"
    )


async def test_the_user_has_work_judged_without_any_configuration_and_the_model_knows_it_later(tmp_path: Path):
    script: Script = {**ROUNDS, "(?s)I had sub-agents do and judge this.*short draft.*what": [says("It is short.")]}
    async with editing(tmp_path, script, capabilities=NOTHING, config=FULL_AUTO) as editor:
        session = await editor.open()
        await editor.say(session, "/evaluate it is short: Write it")
        await editor.say(session, "what is it?")
        await editor.say(session, "/evaluate Write it")
    told = messages(editor)
    assert told.startswith("short draft [approved by review after 2 rounds]It is short.")
    assert "Usage: `/evaluate CRITERIA: TASK`" in told


async def test_the_model_has_no_such_tool_where_it_is_not_configured(tmp_path: Path):
    async with aided(tmp_path, evaluate("Write it"), "done", config=FULL_AUTO) as (session, model, _):
        await session.say("go")
        assert "not among the tools of this session" in session.editor.call.text
    assert "evaluate" not in offered(model.requests[0])
    async with aided(tmp_path / "on", config=ON) as (session, model, _):
        await session.say("go")
    assert "evaluate" in offered(model.requests[0])


async def test_a_sub_agent_can_have_nothing_judged(tmp_path: Path):
    script: Script = {
        "^find": [uses(evaluate("Write it")), says("I could not.")],
        "^go": [uses(agent(op="run", agent="general", task="find")), says("done")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=ON + FULL_AUTO) as editor:
        await editor.say(await editor.open(), "go")
    (refused,) = nested(editor)["general: find"]
    assert "general has no tool 'evaluate'" in refused.text


@pytest.mark.parametrize("holds", ["generator", "evaluator"])
async def test_cancelling_ends_the_round_with_its_commands_and_cards(tmp_path: Path, holds: str):
    held_up = [uses(("bash", {"command": Held.COMMAND})), says("never")]
    script: Script = {
        JUDGE: held_up,
        "^Write it": held_up if holds == "generator" else [says("a draft")],
        "^go": [uses(evaluate("Write it", evaluator="general")), says("never")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=ON + FULL_AUTO) as editor:
        await assert_a_cancel_ends_all(editor)
