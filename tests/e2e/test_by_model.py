"""What hangs on the model follows the one in force: its tools, and what /status says."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.aided import KEY, Aided, aided, llm, plays
from tests.e2e.model_servers import ThinkingModel, refusing_model, thinking_model
from tests.e2e.test_agents import FULL_AUTO, run
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

TOUCH = ("bash", {"command": "touch touched"})
NO_BASH = '[acp]\nauto_approve = "full-auto"\n[tools.by_model."small:*"]\ndeny = ["bash"]\n'


def offered(model: ThinkingModel) -> set[str]:
    """The tools of the last request."""
    return {tool["function"]["name"] for tool in model.requests[-1].get("tools", [])}


@asynccontextmanager
async def two_models(folder: Path, *steps: Any, first: str = "main") -> AsyncIterator[tuple[Aided, ThinkingModel]]:
    """A session with `main`, which has every tool, and `small`, which plays `steps` and has no bash."""
    async with AsyncExitStack() as stack:
        main = await stack.enter_async_context(thinking_model(plays("one", TOUCH, "two")))
        small = await stack.enter_async_context(thinking_model(plays(*steps)))
        config = llm(f"{first}:any", ("main", main.port), ("small", small.port)) + NO_BASH
        editor = await stack.enter_async_context(
            editing(folder, None, config=config, environment=KEY, capabilities=NOTHING)
        )
        yield Aided(editor), small


async def choose(session: Aided, how: str, model: str) -> None:
    if how == "/model":
        await session.say(f"/model {model}")
        return
    params = {"sessionId": session.id, "configId": "model", "value": model}
    await session.editor.ask("session/set_config_option", params)


@pytest.mark.parametrize("how", ["/model", "option"])
async def test_the_tools_of_a_model_follow_the_model_that_is_chosen(tmp_path: Path, how: str) -> None:
    async with two_models(tmp_path, TOUCH, "so be it", TOUCH, "done") as (session, small):
        assert (await session.say("hello")).endswith("one")
        await choose(session, how, "small:any")
        assert "Model: small:any" in await session.status()
        await session.say("go")
        assert "bash" not in offered(small)
        assert "read" in offered(small)
        assert [call.status for call in session.calls] == ["failed"]
        assert not (session.editor.workspace / "touched").exists()

        await choose(session, how, "main:any")
        assert "Model: main:any" in await session.status()
        await session.say("go")
        assert [call.status for call in session.calls] == ["failed", "completed"]


async def test_the_tools_of_a_model_follow_the_one_that_stands_in(tmp_path: Path) -> None:
    async with refusing_model(401) as gone, thinking_model(plays(TOUCH, "so be it")) as small:
        config = llm("gone:any", ("gone", gone.port), ("small", small.port), more='fallback = ["small:any"]\n')
        config += NO_BASH
        async with editing(tmp_path, None, config=config, environment=KEY, capabilities=NOTHING) as editor:
            session = Aided(editor)
            await session.say("go")
            assert [call.status for call in session.calls] == ["failed"]
            assert "bash" not in offered(small), "the second request of the turn"
            assert "Model: small:any; fallback: small:any" in await session.status()


async def test_the_model_for_exploring_is_that_of_explore_alone(tmp_path: Path):
    steps = (run("explore", "find it"), "found", run("general", "do it"), "report", "done")
    config = f'[agents]\nexplore_model = "chores:any"\n{FULL_AUTO}'
    async with aided(tmp_path, *steps, config=config) as (session, first, second):
        for answer, asked in (("found", (2, 1)), ("done", (5, 1))):
            assert answer in await session.say("go")
            assert (len(first.requests), len(second.requests)) == asked
