"""The board of tasks and the mail of sub-agents on the wire: what the editor shows, and what each model reads."""

import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute

from tests.e2e.aided import aided, offered
from tests.e2e.killed_view import loaded
from tests.e2e.model_servers import ListeningModel, ToolUse
from tests.e2e.test_agents import agent, assert_no_card_is_open, messages, nested, run
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING, ScriptedEditor
from tests.fakes.model_script import Script, says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

ON = "[agents]\nboard = true\n"
TASKS = [{"id": "a", "content": "Do a"}, {"id": "b", "content": "Do b", "after": ["a"]}]


Step = str | list[ToolUse]


@dataclass
class TeamModel(ListeningModel):
    """Plays several agents at once: each conversation has the steps of its first prompt, whatever it is told later."""

    plays: dict[str, Sequence[Step]] = field(default_factory=dict[str, Sequence[Step]])

    def answer(self, request: dict[str, Any]) -> Step:
        said = request["messages"]
        first = next(str(each["content"]) for each in said if each["role"] == "user")
        steps = next(steps for prompt, steps in self.plays.items() if first.startswith(prompt))
        return steps[sum(each["role"] == "assistant" for each in said)]

    def read_by(self, prompt: str) -> str:
        """What the agent with this first prompt had read at the end."""
        mine = [each["messages"] for each in self.requests if str(each["messages"][1]["content"]).startswith(prompt)]
        return "\n".join(str(each["content"]) for each in mine[-1][1:])


@asynccontextmanager
async def team(
    folder: Path, config: str = "", **plays: Sequence[Step]
) -> AsyncIterator[tuple[ScriptedEditor, TeamModel]]:
    """An editor whose agents play these steps by their first prompts, with a board."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        model = TeamModel(listener.extra(SocketAttribute.local_port), [], plays=plays)
        group.start_soon(listener.serve, model.serve)
        options = {**model.options, "config": f"{model.options['config']}{ON}{config}"}
        async with editing(folder, None, capabilities=NOTHING, **options) as editor:
            yield editor, model
        group.cancel_scope.cancel()


def tasks(action: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "tasks", {"action": action, **more}


def mail(action: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "messages", {"action": action, **more}


def plans(editor: ScriptedEditor) -> list[list[str]]:
    """Each plan that the editor showed: a line a task, with its status."""
    found = [frame.update for frame in editor.recording.frames if frame.update.get("sessionUpdate") == "plan"]
    return [[f"{each['content']}: {each['status']}" for each in plan["entries"]] for plan in found]


async def test_the_editor_shows_the_board_as_the_plan_after_each_change(tmp_path: Path):
    steps = [tasks("create", tasks=TASKS), tasks("claim"), tasks("complete", id="a", text="done"), tasks("list")]
    script = [*(uses(step) for step in steps), says("done")]
    async with editing(tmp_path, script, capabilities=NOTHING, config=ON) as editor:
        await editor.say(await editor.open(), "go")
    assert plans(editor) == [
        ["a: Do a: pending", "b: Do b (waits for a): pending"],
        ["a: Do a (main): in_progress", "b: Do b (waits for a): pending"],
        ["a: Do a (main): completed", "b: Do b: pending"],
    ]
    assert "a is done; 1 task not done\nready now:\n- b [ready] Do b" in editor.calls[2].text
    assert editor.requests("session/request_permission") == []


async def test_two_that_work_side_by_side_share_the_board_and_write_to_each_other(tmp_path: Path):
    both = [run("explore", "first"), run("explore", "second")]
    async with team(
        tmp_path,
        first=[
            [tasks("claim")],
            [mail("read", wait=60)],
            [tasks("complete", id="a", text="42")],
            [mail("send", to="explore-2", text="a is done")],
            "first is done",
        ],
        second=[
            [mail("send", to="explore-1", text="I wait for a")],
            [mail("read", wait=60)],
            [tasks("claim")],
            [tasks("complete", id="b")],
            [mail("send", to="main", text="all done")],
            "second is done",
        ],
        go=[[tasks("create", tasks=TASKS)], both, [mail("read")], "done"],
    ) as (editor, model):
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert "from explore-2:\n    I wait for a" in model.read_by("first")
    assert "from explore-1:\n    a is done" in model.read_by("second")
    assert "- a [done by explore-1] Do a\n    result:\n    42" in model.read_by("second")
    assert "[1 unread message from explore-2: read with the tool messages]" in model.read_by("go")
    assert "from explore-2:\n    all done" in model.read_by("go")
    assert plans(editor)[-1] == ["a: Do a (explore-1): completed", "b: Do b (explore-2): completed"]
    assert [call.status for call in editor.calls] == ["completed"] * len(editor.calls)


async def test_a_task_that_a_colleague_has_is_refused_with_its_name_and_comes_back_when_it_ends(tmp_path: Path):
    both = [run("explore", "first"), run("explore", "second")]
    async with team(
        tmp_path,
        first=[[tasks("claim", id="a")], [mail("read", wait=60)], *["first is done"] * 2],
        second=[[tasks("claim", id="a")], [mail("send", to="explore-1", text="go on")], *["second is done"] * 2],
        go=[[tasks("create", tasks=TASKS)], both, "done"],
    ) as (editor, model):
        await editor.say(await editor.open(), "go")
    got, refused = sorted((call for call in editor.calls if call.first["title"] == "Claim a"), key=lambda c: c.status)
    assert (got.status, refused.status) == ("completed", "failed")
    owner = "explore-1" if "explore-1 works on it" in got.text else "explore-2"
    assert f"{owner} works on a" in refused.text
    assert plans(editor)[-1][0] == f"a: Do a (given back by {owner}, which ended): pending"
    assert "[You still have a: complete or release it" in model.read_by("first" if owner == "explore-1" else "second")
    assert "[gave back: a]" in model.read_by("go")


async def test_a_spawned_run_that_writes_wakes_the_main_agent_that_waits_for_it_and_reads_the_answer(tmp_path: Path):
    async with team(
        tmp_path,
        find=[[mail("send", to="main", text="which one?")], [mail("read", wait=60)], "I took the second."],
        go=[
            [agent(op="spawn", agent="explore", task="find it")],
            "I wait. ",
            [mail("read"), mail("send", to="explore-1", text="the second")],
            "I wait again. ",
            "Good.",
        ],
    ) as (editor, model):
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert "from explore-1:\n    which one?" in model.read_by("go")
    assert "from main:\n    the second" in model.read_by("find")
    assert messages(editor) == "I wait. I wait again. Good."
    assert_no_card_is_open(editor)


async def test_a_main_agent_that_waits_for_a_message_reads_the_report_of_one_that_ends_without_any(tmp_path: Path):
    async with team(
        tmp_path,
        find=["I found it."],
        go=[[agent(op="spawn", agent="explore", task="find it")], [mail("read", wait=60)], "done", "done"],
    ) as (editor, model):
        assert await editor.say(await editor.open(), "go") == "end_turn"
    third = [each["messages"] for each in model.requests if str(each["messages"][1]["content"]).startswith("go")][2]
    said = "\n".join(str(each["content"]) for each in third)
    assert "no messages\nyou are main; you can write to: nobody now" in said
    assert "I found it." in said


async def test_what_a_cancelled_turn_leaves_is_free_again_and_a_load_shows_the_board(tmp_path: Path):
    script: Script = {
        "^find": [uses(tasks("claim")), {"hang": True}],
        "^go": [uses(tasks("create", tasks=TASKS)), uses(run("explore", "find it")), says("never")],
        "^again": [uses(tasks("claim")), says("I have it.")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING, config=ON) as editor:
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await editor.seen(lambda frame: "a: Do a (explore-1)" in json.dumps(frame.update))
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        left = ["a: Do a (given back by explore-1, which was cancelled): pending", "b: Do b (waits for a): pending"]
        assert plans(editor)[-1] == left
        await editor.ask("session/close", {"sessionId": session})
        told = await loaded(editor, session)
        assert [f"{each['content']}: {each['status']}" for each in told.plan or ()] == left
        await editor.say(session, "again")
        assert plans(editor)[-1][0] == "a: Do a (main): in_progress"


async def test_kill_9_loses_no_task_and_a_load_gives_back_what_its_sub_agents_had(tmp_path: Path):
    script: Script = {
        "^find": [uses(tasks("claim")), {"hang": True}],
        "^go": [uses(tasks("create", tasks=TASKS)), uses(run("explore", "find it")), says("never")],
        "^again": [uses(tasks("list")), says("done")],
    }
    options: dict[str, Any] = {"capabilities": NOTHING, "config": ON}
    async with editors.editing(tmp_path, script, lawful=False, **options) as editor:
        session = await editor.open()
        prompt = editor.prompt_params(session, "go")
        await editor.send_line({"jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": prompt})
        await editor.seen(lambda frame: "a: Do a (explore-1)" in json.dumps(frame.update))
        os.kill(editor.agent.pid, signal.SIGKILL)
        await editor.agent.wait()
    async with editors.editing(tmp_path, script, **options) as editor:
        await editor.initialize()
        told = await loaded(editor, session)
        back = "given back by explore-1, which ended with the agent's process"
        assert [each["content"] for each in told.plan or ()] == [f"a: Do a ({back})", "b: Do b (waits for a)"]
        await editor.say(session, "again")
        assert f"- a [ready] Do a ({back})" in editor.calls[-1].text


async def test_without_the_key_the_model_has_its_own_plan_and_neither_tool(tmp_path: Path):
    async with aided(tmp_path) as (session, model, _):
        await session.say("go")
    async with aided(tmp_path / "on", config=ON) as (session, other, _):
        await session.say("go")
    off, on = set(offered(model.requests[0])), set(offered(other.requests[0]))
    assert (off - on, on - off) == ({"update_plan"}, {"tasks", "messages"})


async def test_a_sub_agent_whose_definition_does_not_allow_them_has_no_board_and_gets_no_mail(tmp_path: Path):
    async with team(
        tmp_path,
        test=[[tasks("list"), mail("read")], "tested"],
        go=[
            [agent(op="spawn", agent="tester", task="test it"), mail("send", to="tester-1", text="hello")],
            "I wait. ",
            "done",
        ],
    ) as (editor, _):
        agents = editor.home.config.parent / "agents"
        agents.mkdir()
        (agents / "tester.md").write_text("---\ndescription: tests things\ntools: Read\n---\nYou test.\n")
        await editor.say(await editor.open(), "go")
    (sent,) = [call.text for call in editor.calls if call.first["title"] == "Message to tester-1: hello"]
    assert "nobody here is called 'tester-1'" in sent
    assert ["tester has no tool" in call.text for call in nested(editor)["tester-1: test it"]] == [True, True]
