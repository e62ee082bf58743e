"""The facts about the folder that the model is told with a prompt, and what others see of them."""

import json
import os
import subprocess
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.e2e import aided as aided_agents
from tests.e2e.aided import Request, last, rows, system, told
from tests.fakes.held import PATIENCE

pytestmark = pytest.mark.anyio

aided = partial(aided_agents.aided, serves=__name__)

ALONE = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def git(folder: Path, *args: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=trunk")
    subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True, env={**os.environ, **ALONE})


def repository(folder: Path) -> Path:
    """A repository with one commit in the session's folder."""
    work = folder / "work"
    work.mkdir()
    (work / "a.py").write_text("a = 1\n")
    (work / "Makefile").write_text("test:\n\ttrue\n")
    for args in (("init",), ("add", "."), ("commit", "-m", "first")):
        git(work, *args)
    return work


def facts(request: Request) -> str:
    """The facts in the newest message, without the fence."""
    return last(request).partition('<workspace id="')[2].partition("\n")[2].partition("\n</workspace")[0]


async def test_a_prompt_tells_date_branch_and_tests_and_the_next_only_what_is_new(tmp_path):
    work = repository(tmp_path)
    async with aided(tmp_path) as (session, model, _):
        await session.say("go")
        first = facts(model.requests[0]).splitlines()
        assert last(model.requests[0]).startswith("go\n\n<workspace")
        assert first[0].startswith("Date: 20")
        assert "Git branch: trunk" in first
        git(work, "switch", "-c", "topic")
        await session.say("go on")
        assert "Git branch: topic" in facts(model.requests[1])
        assert "Date" not in facts(model.requests[1])
        (work / "a.py").write_text("a = 2\n")
        (work / "new\nfile").write_text("")
        with anyio.fail_after(PATIENCE):  # git answers in the background
            while "2: a.py, new\\u{a}file" not in told(model.requests[-1]).replace("\\\\", "\\"):
                await session.say("go on")
        assert "Likely test command: `make test`" in json.dumps(model.requests)
        earlier, later = model.requests[0]["messages"], model.requests[1]["messages"]
        assert later[: len(earlier)] == earlier, "the same prefix, for the prompt cache"
        assert len({system(request) for request in model.requests}) == 1


async def test_a_file_that_changed_since_the_model_read_it_is_named_with_the_next_prompt(tmp_path):
    work = repository(tmp_path)
    async with aided(tmp_path, ("read", {"path": "a.py"}), "read", "known") as (session, model, _):
        await session.say("read it")
        (work / "a.py").write_text("a = 1000\n")
        await session.say("go on")
        assert "Changed on disk since you last saw them: a.py" in facts(model.requests[-1])
        await session.say("go on")
        assert "Changed on disk" not in facts(model.requests[-1])


@pytest.mark.parametrize("facts_wanted", [True, False], ids=["with facts", "without"])
async def test_a_resumed_session_learns_what_changed_meanwhile_and_cannot_overwrite_it_unseen(
    tmp_path: Path, facts_wanted: bool
):
    work = repository(tmp_path)
    (work / "b.py").write_text("b = 1\n")
    config = "" if facts_wanted else "[agent]\nfacts = false\n"
    reads = ("read", {"path": "a.py"}), ("read", {"path": "b.py"})
    async with aided(tmp_path, *reads, "read", config=config, serves="") as (session, _, _):
        await session.say("read them")
        identity = session.id
    (work / "a.py").write_text("a = 1000\n")
    edit = ("edit", {"path": "a.py", "old_string": "1000", "new_string": "2"})
    async with aided(tmp_path, edit, edit, "done", config=config, serves="") as (session, model, _):
        await session.editor.initialize()
        await session.editor.ask(
            "session/load", {"sessionId": identity, "cwd": str(session.editor.workspace), "mcpServers": []}
        )
        await session.editor.say(identity, "go on")
    known = facts(model.requests[0])
    assert ("Changed on disk since you last saw them: a.py" in known) == facts_wanted
    assert "b.py" not in known.partition("Changed on disk")[2]
    refused = last(model.requests[1])
    assert "a.py was changed since you last read or wrote it" in refused
    assert "-a = 1\n+a = 1000\n" in refused
    assert (work / "a.py").read_text() == "a = 2\n", "repeated, after it was shown what changed"


async def test_the_user_is_not_shown_the_facts_and_has_not_typed_them(tmp_path):
    repository(tmp_path)
    async with aided(tmp_path, serves="") as (session, model, chores):
        await session.say("go")
        assert "Git branch: trunk" in facts(model.requests[0])
        frames = json.dumps([frame.message for frame in session.editor.recording.frames])
        assert "Git branch" not in frames
        assert "Git branch" not in json.dumps(chores.requests)
    ((stored,),) = rows(tmp_path, "SELECT group_concat(body, ' ') FROM told WHERE kind = 'user'")
    assert "Git branch" not in (stored if isinstance(stored, str) else stored.decode())


async def test_whoever_switches_the_facts_off_sends_none(tmp_path):
    repository(tmp_path)
    async with aided(tmp_path, config="[agent]\nfacts = false\n") as (session, model, _):
        await session.say("go")
        assert last(model.requests[0]) == "go"


async def test_a_program_that_the_repository_names_does_not_run(tmp_path):
    work = repository(tmp_path)
    ran = tmp_path / "ran"
    (work / ".gitattributes").write_text("* filter=x\n")
    for key in ("filter.x.clean", "core.fsmonitor"):
        git(work, "config", key, f"touch {ran};cat")
    (work / "a.py").write_text("a = 2\n")
    async with aided(tmp_path) as (session, model, _):
        await session.say("go")
        with anyio.fail_after(PATIENCE):
            while "Uncommitted files: 2: " not in told(model.requests[-1]):
                await session.say("go on")
    assert not ran.exists()
