"""Slash commands of a real agent: what the model is asked, what it may do, and what it has forgotten."""

import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import aided as aided_agents
from tests.e2e.aided import told

pytestmark = pytest.mark.anyio

aided = partial(aided_agents.aided, serves=__name__)

RULES = "[[tools.permissions.bash]]\npattern = 'git push*'\naction = 'deny'\n"
FULL_AUTO = "[acp]\nauto_approve = 'full-auto'\n"


async def test_a_review_reads_and_nothing_else_even_in_full_auto_and_the_next_turn_is_free_again(tmp_path: Path):
    steps = (
        ("write", {"path": "made.txt", "content": "x"}),
        ("bash", {"command": "touch made.txt"}),
        ("read", {"path": "seen.txt"}),
        "two findings",
        ("write", {"path": "after.txt", "content": "x"}),
        "done",
    )
    async with aided(tmp_path, *steps, config=FULL_AUTO) as (agent, model, _):
        work = agent.editor.workspace
        (work / "seen.txt").write_text("what is there\n")
        assert "two findings" in await agent.say("/review .")
        asked = model.requests[0]
        names = {tool["function"]["name"] for tool in asked["tools"]}
        assert {"read", "list_directory", "grep"} <= names
        assert names.isdisjoint({"write", "edit", "delete_path", "memory_save"}), "bash is there for commands that read"
        assert "Review what is at `.`" in told(asked)
        assert "what is there" in told(model.requests[3])
        assert not (work / "made.txt").exists()
        await agent.say("go on")
        assert (work / "after.txt").exists()


async def test_uncommitted_changes_are_what_is_reviewed(tmp_path: Path):
    async with aided(tmp_path, "fine") as (agent, model, _):
        work = agent.editor.workspace
        (work / "new.py").write_text("x = 1\n")
        subprocess.run(["git", "init", "-q"], cwd=work, check=True)  # noqa: ASYNC221 - done in a moment
        subprocess.run(["git", "add", "."], cwd=work, check=True)  # noqa: ASYNC221
        assert "cannot be seen" in await agent.say("/review")  # no commit yet
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, "commit", "-qm", "x"], cwd=work, check=True)  # noqa: ASYNC221
        (work / "new.py").write_text("x = 2\n")
        assert "fine" in await agent.say("/review")
        assert "+x = 2" in told(model.requests[0])


async def test_a_conversation_that_was_cleared_is_unknown_to_the_model(tmp_path: Path):
    async with aided(tmp_path, "one", "two") as (agent, model, _):
        await agent.say("the word is xyzzy")
        await agent.say("/run echo plugh")
        assert "forgotten" in await agent.say("/clear")
        await agent.say("what was the word?")
        assert "xyzzy" not in told(model.requests[1])
        assert "plugh" not in told(model.requests[1])
        assert "what was the word?" in told(model.requests[1])


async def test_a_conversation_that_was_cleared_has_no_plan(tmp_path: Path):
    plan = ("update_plan", {"entries": [{"content": "look", "status": "pending"}]})
    async with aided(tmp_path, plan, "planned") as (agent, _, _):
        await agent.say("make a plan")
        await agent.say("/clear")
        updates = [frame.update for frame in agent.editor.recording.frames]
        plans = [update["entries"] for update in updates if update.get("sessionUpdate") == "plan"]
        assert [len(entries) for entries in plans] == [1, 0]


async def test_a_conversation_that_was_cleared_gets_a_title_of_its_own(tmp_path: Path):
    async with aided(tmp_path, "one", "two") as (agent, _, _):
        await agent.say("the old talk")
        await agent.editor.seen(lambda frame: frame.update.get("title") == "the old talk")
        await agent.say("/clear")
        await agent.say("a new talk")
        await agent.editor.seen(lambda frame: frame.update.get("title") == "a new talk")


async def test_answers_of_the_agent_itself_are_not_sent_to_the_model(tmp_path: Path):
    async with aided(tmp_path, "one", config=RULES) as (agent, model, _):
        assert "denied" in await agent.say("/policy check git push")
        assert "ask" in await agent.say("/mode")
        assert "Did you mean `/cost`" in await agent.say("/csot")
        assert "no notes yet" in await agent.say("/memory")
        await agent.say("hello")
        assert told(model.requests[0]).count('"role"') == 1
        assert "does not report how many tokens its answers take" in await agent.say("/cost")
