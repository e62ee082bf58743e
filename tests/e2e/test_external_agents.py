"""Other agents on the wire: what they ask goes through our gates, and what they do wrong costs only their own card."""

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.e2e.aided import SECRET, aided
from tests.e2e.test_agents import FULL_AUTO, agent, assert_no_card_is_open, messages, nested, parent_of, run
from tests.e2e.test_skills import users
from tests.fakes import editor as editors
from tests.fakes.answers import Call, allowing, choosing
from tests.fakes.editor import NOTHING, ScriptedEditor
from tests.fakes.held import Fifo, processes_ended
from tests.fakes.model_script import Script, says, uses, write_script

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)
ROOT = Path(__file__).parents[2]


def entry(behaviour: str, pids: Path, env: Mapping[str, str] = MappingProxyType({}), **more: Any) -> str:
    """Return the configuration of a colleague who behaves like this."""
    settings = {
        "name": "colleague",
        "command": sys.executable,
        "args": [str(ROOT / "tests/fakes/foreign_agent.py"), behaviour],
        "description": "does it otherwise",
        **more,
    }
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
    variables = {"PIDS": str(pids), "GIVEN": "${HANDED}", **env}
    given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in variables.items())
    return f"[[agents.external]]\n{lines}\nenv = {{ {given} }}\n"


GO: Script = {"^go": [uses(run("colleague", "do it")), says("done")]}


@asynccontextmanager
async def with_colleague(
    tmp_path: Path,
    behaviour: str,
    script: Script = GO,
    config: str = FULL_AUTO,
    decide: Callable[[dict[str, Any]], Awaitable[str | None]] = allowing,
    serves: str = __name__,
    **more: Any,
) -> AsyncGenerator[ScriptedEditor]:
    """An editor whose agent has a colleague. No process of the colleague is left when a turn has ended."""
    pids = tmp_path / "pids"
    settings = config + entry(behaviour, pids, **more)
    handed = {"HANDED": "by reference"}
    options = {"capabilities": NOTHING, "decide": decide, "environment": handed, "serves": serves}
    async with editing(tmp_path, script, config=settings, **options) as editor:
        (editor.workspace / "a.txt").write_text("one\ntwo\n")
        yield editor
        await processes_ended([int(line) for line in pids.read_text().split()] if pids.exists() else [])
        assert_no_card_is_open(editor)


async def go(editor: ScriptedEditor) -> tuple[str, str]:
    """Have the colleague do its turn. Return the status and the text of its card."""
    assert await editor.say(await editor.open(), "go") == "end_turn"
    return editor.calls[0].status, editor.calls[0].text


async def test_a_colleague_reads_writes_and_runs_commands_through_our_tools(tmp_path: Path):
    async with with_colleague(tmp_path, "good", serves="") as editor:  # the audit is of this test alone
        assert await go(editor) == ("completed", "b.txt holds ONE\nTWO (0)")
        assert (editor.workspace / "b.txt").read_text() == "ONE\nTWO\n"
        (file,) = Path(editor.home.data).rglob("audit.jsonl")
        records = [json.loads(line) for line in file.read_text().splitlines()]
    below = nested(editor)["colleague: do it"]
    assert [(call.kind, call.status) for call in below] == [
        ("read", "completed"), ("edit", "completed"), ("execute", "completed")
    ]  # fmt: skip
    assert below[2].first["title"] == "env LANG=C cat b.txt"
    assert [each["caller_id"].partition("/")[2] for each in records if "tool" in each] == [*["colleague-1"] * 3, ""]
    assert messages(editor) == "done"


async def test_another_acp_agent_runs_the_commands_of_its_model_as_they_are_written(tmp_path: Path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "config.toml").touch()
    model = write_script(inner, [uses(("bash", {"command": "echo one > made; cat made"})), says("It ran.")])
    env = {
        "ACP_AGENT_LLM__MODEL": model,
        "ACP_AGENT_ACP__AUTO_APPROVE": "full-auto",
        "ACP_AGENT_CONFIG": str(inner / "config.toml"),
        "ACP_AGENT_DATA_DIR": str(inner / "data"),
        "ACP_AGENT_TOOLS__SANDBOX__MODE": "off",
    }
    second = {"command": sys.executable, "args": ["-m", "acp_agent"], "env": env}
    async with with_colleague(tmp_path, "", config="", **second) as editor:
        assert await go(editor) == ("completed", "It ran.")
    (ran,) = nested(editor)["colleague: do it"]
    assert (ran.first["title"], ran.status) == ("echo one > made; cat made", "completed")
    assert "one" in ran.text
    asked = [question["toolCall"]["title"] for question in editor.requests("session/request_permission")]
    assert asked[1:] == ["echo one > made; cat made"], "asked once, and by what would run"


async def test_what_its_command_prints_is_shown_while_it_runs(tmp_path: Path):
    async with with_colleague(tmp_path, "prints") as editor:
        wait, session = editor.fifo("go"), await editor.open()
        async with editor.prompting(session) as turn:
            shown = await editor.seen(lambda frame: "early" in json.dumps(frame.update.get("content")))
            wait.write_line("on")
        assert turn.stop_reason == "end_turn"
    (ran,) = nested(editor)["colleague: do it"]
    assert (shown.update["toolCallId"], parent_of(shown.update)) == (ran.id, editor.calls[0].id)
    assert editor.calls[0].text == "early\nlate"


async def test_it_reads_parts_of_files_and_hears_of_missing_ones(tmp_path: Path):
    async with with_colleague(tmp_path, "lines") as editor:
        assert await go(editor) == ("completed", json.dumps(["two\n", -32002]))


async def test_the_user_is_asked_before_it_starts_and_for_all_that_it_asks_us(tmp_path: Path):
    asked: list[str] = []

    async def look(call: Call) -> None:
        asked.append(json.dumps(call.params))
        await call.serve()

    async with with_colleague(tmp_path, "good", config="") as editor:
        editor.overrides["session/request_permission"] = look
        assert (await go(editor))[0] == "completed"
    assert "give work to colleague" in asked[0]
    assert "may read and change this folder by itself, with no sandbox around it" in asked[0]
    assert "every use of agent colleague" in asked[0]
    assert ["colleague (sub-agent colleague-1) asks" in each for each in asked] == [False, True, True]


async def test_one_that_is_switched_off_gets_no_work(tmp_path: Path):
    async with with_colleague(tmp_path, "good", enabled=False) as editor:
        status, told = await go(editor)
    assert status == "failed"
    assert "there is no sub-agent 'colleague'" in told


async def test_a_user_who_says_no_starts_nothing(tmp_path: Path):
    async with with_colleague(tmp_path, "good", config="", decide=choosing("reject_once")) as editor:
        assert (await go(editor))[0] == "failed"
        assert not (tmp_path / "pids").exists()


async def test_a_definition_with_its_name_in_other_letters_does_not_stand_in_for_its_question(tmp_path: Path):
    users(tmp_path, "agents/Colleague.md", "---\nname: Colleague\ndescription: harmless\n---\nDo it.\n")
    async with with_colleague(tmp_path, "good", config="", decide=choosing("reject_once"), serves="") as editor:
        assert (await go(editor))[0] == "failed"
        assert not (tmp_path / "pids").exists()
        assert "'Colleague' is an agent of the configuration; this one is not used" in messages(editor)


@pytest.mark.parametrize("config", ["[acp]\nmode = 'ask'\n", "[tools]\nautonomy_level = 'readonly'\n"])
async def test_where_nothing_may_change_it_is_not_started(tmp_path: Path, config: str):
    async with with_colleague(tmp_path, "good", config=config) as editor:
        assert (await go(editor))[0] == "failed"
        assert not (tmp_path / "pids").exists()


async def test_what_it_asks_to_do_by_itself_becomes_our_question_and_a_yes_is_to_that_once(tmp_path: Path):
    asked: list[str] = []

    async def look(call: Call) -> None:
        asked.append(json.dumps(call.params))
        await call.serve()

    async with with_colleague(tmp_path, "asks", config="") as editor:
        editor.overrides["session/request_permission"] = look
        assert await go(editor) == ("completed", "allow_once")
        assert not (editor.workspace / "made").exists(), "we run nothing of it"
    assert "colleague (sub-agent colleague-1) asks" in asked[1]
    assert "touch made" in asked[1]


async def test_what_our_gates_forbid_it_may_not_do_even_in_full_auto(tmp_path: Path):
    async with with_colleague(tmp_path, "asks_for_danger") as editor:
        assert await go(editor) == ("completed", "reject_once")
    assert nested(editor)["colleague: do it"][0].status == "failed"


async def test_files_outside_stay_outside(tmp_path: Path):
    async with with_colleague(tmp_path, "outside") as editor:
        (tmp_path / "outside.txt").write_text("secret")
        assert await go(editor) == ("completed", json.dumps([True] * 3))


async def test_lies_about_ids_are_answered_with_errors(tmp_path: Path):
    async with with_colleague(tmp_path, "lies") as editor:
        assert await go(editor) == ("completed", json.dumps([-32602, -32602, -32601, -32602]))


async def test_many_requests_at_once_are_all_answered(tmp_path: Path):
    async with with_colleague(tmp_path, "many") as editor:
        assert await go(editor) == ("completed", "True")


@pytest.mark.parametrize(
    ("behaviour", "reason", "more"),
    [
        ("dies", 'its program ended with 3, saying "out of luck"', {}),
        ("mute", "it did not open a session within 0.2 s", {"startup_timeout": 0.2}),
        ("hangs", "it sent nothing for 0.2 s", {"idle_timeout": 0.2}),
        ("floods", "it sent more than 4 million characters of messages", {}),
        ("babbles", "it sent 101 lines that are no messages", {}),
        ("locked", "it wants a login (A login): log in with its own program", {}),
        ("future", "it speaks version 9 of ACP, not 1", {}),
        ("vague", "its answer is not ACP", {}),
        (
            "good",
            "colleague cannot be started (No such file or directory: /nowhere/colleague)",
            {"command": "/nowhere/colleague"},
        ),
    ],
)
async def test_what_it_does_wrong_fails_its_card_with_the_reason(
    tmp_path: Path, behaviour: str, reason: str, more: dict[str, Any]
):
    async with with_colleague(tmp_path, behaviour, **more) as editor:
        status, text = await go(editor)
        assert (status, reason in text) == ("failed", True), text
        assert messages(editor) == "done", "the turn goes on"


async def test_a_variable_that_is_missing_fails_its_card(tmp_path: Path):
    settings = FULL_AUTO + entry("good", tmp_path / "pids")
    async with editing(tmp_path, GO, capabilities=NOTHING, config=settings) as editor:
        status, text = await go(editor)
    assert (status, "the variable HANDED to be set" in text) == ("failed", True), text
    assert "internal error" not in text


async def test_cancelling_the_turn_ends_its_processes_and_its_commands(tmp_path: Path):
    async with with_colleague(tmp_path, "holds") as editor:
        held = Fifo(editor.workspace / "pid")
        session = await editor.open()
        async with editor.prompting(session) as turn:
            shell = int(await held.line())
            await editor.cancel(session)
        held.close()
        assert turn.stop_reason == "cancelled"
        await processes_ended([shell])


async def test_a_spawned_task_is_announced_and_a_steered_one_knows_the_first(tmp_path: Path):
    script: Script = {
        "Its report:": [says("I know.")],
        "^go": [
            uses(agent(op="spawn", agent="colleague", task="first words")),
            uses(agent(op="steer", id="colleague-1", task="second words")),
            uses(agent(op="list", agent="otherwise")),
            says("I wait. "),
        ],
    }
    async with with_colleague(tmp_path, "repeats", script) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    steered = next(call for call in editor.calls if call.first["title"] == "colleague-1: second words")
    assert "first words" in steered.text
    assert "second words" in steered.text
    listed = next(call for call in editor.calls if call.first["title"] == "List the agents")
    assert "colleague: does it otherwise (configuration)" in listed.text
    assert "explore" not in listed.text
    assert messages(editor) == "I wait. I know."


async def test_an_agent_takes_no_more_tasks_than_its_configuration_says(tmp_path: Path):
    spawned = [uses(agent(op="spawn", agent="colleague", task=f"task {number}")) for number in range(3)]
    script: Script = {"^go": [*spawned, uses(agent(op="cancel", id="all")), says("enough")]}
    async with with_colleague(tmp_path, "hangs", script) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    refused = next(call for call in editor.calls if call.first["title"] == "colleague: task 2")
    assert "Agent at capacity (2/2): colleague" in refused.text


async def test_its_report_is_fenced_and_lowers_the_trust_in_the_conversation(tmp_path: Path):
    script: Script = {"^go": [uses(run("colleague", "do it")), says("done")], "/status": [says("-")]}
    async with with_colleague(tmp_path, "repeats", script) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "/status")
    assert "since the agent has read the agent colleague" in messages(editor)


async def test_work_that_is_judged_is_no_way_around_the_question(tmp_path: Path):
    call = ("evaluate", {"task": "do it", "criteria": "done", "generator": "colleague"})
    script: Script = {"^go": [uses(call), says("done")]}
    config = "[agents]\nevaluate = true\n"
    async with with_colleague(tmp_path, "good", script, config=config, decide=choosing("reject_once")) as editor:
        assert (await go(editor))[0] == "failed"
        assert not (tmp_path / "pids").exists()


async def test_a_judge_of_its_work_reads_its_report_without_secrets(tmp_path: Path):
    call = ("evaluate", {"task": "do it", "criteria": "done", "generator": "colleague"})
    config = f"{FULL_AUTO}[agents]\nevaluate = true\n{entry('leaks', tmp_path / 'pids')}"
    async with aided(tmp_path, call, "APPROVED", "done", config=config, environment={"HANDED": "-"}) as (
        session,
        main,
        _,
    ):
        assert "done" in await session.say("go")
    judge = json.dumps(main.requests[1])
    assert "The token is [REDACTED:token]" in judge
    assert SECRET not in judge
