"""Long turns of a real agent: how many rounds they have, what the model is told, and what ends them."""

from functools import partial
from pathlib import Path

import pytest

from tests.e2e import aided as aided_agents
from tests.e2e import thoughts as thoughts_agents
from tests.e2e.aided import told
from tests.e2e.thoughts import Mind, go
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)
aided = partial(aided_agents.aided, serves=__name__)
thinking = partial(thoughts_agents.thinking, serves=__name__)
FULL_AUTO = "[acp]\nauto_approve = 'full-auto'\n"


async def test_a_turn_has_more_rounds_than_any_task_of_a_day(tmp_path: Path):
    mind = Mind()
    commands = [f"echo {number}" for number in range(60)]
    async with thinking(tmp_path, mind.run(*commands), config=FULL_AUTO) as (editor, _):
        await go(editor)
    assert len(editor.calls) == 60


@pytest.mark.parametrize(
    ("config", "stop"), [("", "max_turn_requests"), ("[agent]\nmax_tool_iterations = 0\n", "end_turn")]
)
async def test_a_turn_has_200_rounds_by_default_and_no_limit_with_0(tmp_path: Path, config: str, stop: str):
    script = [uses(("read", {"path": "a.txt", "offset": number})) for number in range(1, 203)]
    async with editing(tmp_path, [*script, says("done")], config=config, capabilities=NOTHING) as editor:
        (editor.workspace / "a.txt").write_text("".join(f"{number}\n" for number in range(300)))
        assert await editor.say(await editor.open(), "go") == stop
    assert len(editor.calls) == (200 if stop == "max_turn_requests" else 202)


async def test_the_model_is_told_five_rounds_before_the_end(tmp_path: Path):
    limit = "[agent]\nmax_tool_iterations = 7\n"
    steps = [("bash", {"command": f"echo {number}"}) for number in range(9)]
    async with aided(tmp_path, *steps, config=limit + FULL_AUTO) as (agent, model, _):
        await agent.ends("go", "max_turn_requests")
    assert "[5 more rounds of tool calls in this turn" not in told(model.requests[1])
    assert "[5 more rounds of tool calls in this turn" in told(model.requests[2])
    assert len(model.requests) == 7


async def test_the_model_reads_what_repeats_before_the_turn_is_ended(tmp_path: Path):
    mind = Mind()
    async with thinking(tmp_path, mind.run(*["touch a && cat b"] * 9), config=FULL_AUTO) as (editor, _):
        (editor.workspace / "a").touch()
        await go(editor)
    noted = ["[repeated: bash failed in the same way in the last 3 rounds" in said for said in mind.said]
    assert noted == [False, False, True, False, False]
    assert len(editor.calls) == 6
    assert "the same output again and again" in editor.text


async def test_looking_again_until_something_changes_is_no_repetition(tmp_path: Path):
    mind = Mind()

    def waits():
        for second in range(8):
            (editor.workspace / "log.txt").write_text(f"12:00:0{second} waiting\n")
            yield from mind.call(("read", {"path": "log.txt"}))

    async with thinking(tmp_path, waits()) as (editor, _):
        await go(editor)
    assert len(mind.said) == 8
    assert not any("repeated" in said for said in mind.said)


async def test_polling_a_background_process_is_no_repetition(tmp_path: Path):
    mind = Mind()
    polls = [("process", {"action": "output", "id": "p1"})] * 8
    calls = (
        ("bash", {"command": "echo on; sleep 60", "background": True}),
        *polls,
        ("process", {"action": "stop", "id": "p1"}),
    )
    async with thinking(tmp_path, mind.call(*calls), config=FULL_AUTO, short_waits=True) as (editor, _):
        await go(editor)
    assert len(editor.calls) == 10
    assert not any("repeated" in said for said in mind.said)


async def test_calls_under_the_names_and_types_of_other_agents_run_and_only_what_matters_is_told(tmp_path: Path):
    mind = Mind()
    calls = [
        ("bash", {"cmd": "echo one > a.txt", "timeout": "5", "description": "Write a file"}),
        ("read_file", {"filePath": "a.txt", "offset": "1", "explanation": "to see it"}),
        ("str_replace", {"filename": "a.txt", "old_str": "one", "new_str": "two", "replace_all": "true"}),
        ("search", {"query": "two", "path": "."}),
        ("update_plan", {"todos": '[{"content": "step", "status": "completed"}]'}),
        ("bash", {"command": "cat a.txt", "timeout": 120_000}),
        ("read", {"path": "a.txt", "colour": "red"}),
    ]
    async with thinking(tmp_path, mind.call(*calls), config=FULL_AUTO) as (editor, _):
        await go(editor)
    assert [call.status for call in editor.calls] == ["completed"] * 6 + ["failed"]
    assert editor.calls[0].first["rawInput"] == {"command": "echo one > a.txt", "timeout": 5}
    noted = ["[timeout read as milliseconds: 120 s]" in said for said in mind.said]
    assert noted == [False] * 5 + [True, False]
    assert 'unknown key "colour"' in mind.said[-1]


async def test_commands_that_time_out_or_fail_do_not_take_bash_away(tmp_path: Path):
    mind = Mind()
    calls = [("bash", {"command": f"sleep 9{number}"}) for number in range(3)]
    failing = [("bash", {"command": f"cat missing-{number}; exit 127", "timeout": 60}) for number in range(5)]
    last = ("bash", {"command": "echo still here", "timeout": 60})
    config = f"{FULL_AUTO}[tools.anomaly]\nwindow_size = 3\n[tools.shell]\ntimeout = 0.1\n"
    async with thinking(tmp_path, mind.call(*calls, *failing, last), config=config) as (editor, _):
        await go(editor)
    assert "still here" in mind.said[-1]


async def test_a_blocked_tool_is_allowed_again_by_a_command_of_the_user(tmp_path: Path):
    config = f"{FULL_AUTO}[tools.anomaly]\nwindow_size = 3\n"
    steps = [("read", {"path": f"missing-{number}.txt"}) for number in range(4)]
    async with aided(tmp_path, *steps, "no", "yes", config=config) as (agent, model, _):
        await agent.say("go")
        assert "read" not in {tool["function"]["name"] for tool in model.requests[4]["tools"]}
        assert "`read`" in await agent.say("/tools reset read")
        assert "`read` was not blocked." in await agent.say("/tools reset read")
        assert "No tool was blocked." in await agent.say("/tools reset")
        await agent.say("again")
        assert "read" in {tool["function"]["name"] for tool in model.requests[5]["tools"]}
