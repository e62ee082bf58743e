"""Models that stand in for one that does not answer (`[llm] fallback`)."""

import json
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from tests.e2e.aided import KEY, Aided, llm, plays, told
from tests.e2e.model_servers import refusing_model, thinking_model
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

HURRIED = {"environment": KEY, "capabilities": NOTHING, "short_waits": True}
LONG = "Think about this: " + "why does it fail? " * 200


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is ours, and where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_the_third_model_answers_when_one_is_gone_and_one_overloaded_and_so_it_does_for_chores(
    tmp_path, closed_port
):
    async with refusing_model(503) as overloaded, thinking_model(plays("one", "two", "three"), "It fails.") as third:
        places = ("gone", closed_port), ("full", overloaded.port), ("third", third.port)
        config = llm("gone:any", *places, more='fallback = ["full:any", "third:any"]\n')
        async with editing(
            tmp_path, None, config=config, environment=KEY, capabilities=NOTHING, short_waits=True
        ) as editor:
            session = Aided(editor)
            heard = await session.say(LONG)
            assert "trying again in" in heard
            assert "gone:any did not answer" in heard
            assert "asking full:any" in heard
            assert "full:any did not answer" in heard
            assert "(tried 3 times)" in heard
            assert "asking third:any" in heard
            assert heard.endswith("one")

            assert await session.say("And now?") == "two", "who stood in stays, and nobody is told again"
            assert told(third.requests[1]).count("Think about this") == 1

            status = await session.status()
            assert "Model: third:any; fallback: full:any, third:any" in status

            assert "Summed up 4 older messages (manual)" in await session.say("/compact")
            assert await session.say("Go on") == "three"
            assert "It fails." in told(third.requests[-1])
            assert "Think about this" not in told(third.requests[-1])


async def test_where_nobody_answers_each_reason_is_told_and_the_session_goes_on(tmp_path, closed_port):
    async with refusing_model(401) as locked:
        config = llm("gone:any", ("gone", closed_port), ("locked", locked.port), more='fallback = ["locked:any"]\n')
        async with editing(
            tmp_path, None, config=config, environment=KEY, capabilities=NOTHING, short_waits=True
        ) as editor:
            session = Aided(editor)
            for _ in range(2):
                heard = await session.say("Hello")
                assert "gone" in heard
                assert "nor did the fallback models answer" in heard
                assert "locked" in heard
            assert 'say "continue" to try again' in heard
            assert "/compact" in await session.say("/help")


async def test_what_the_models_took_and_cost_is_told_chores_included(tmp_path):
    script = tmp_path / "script.json"
    usage = {"input": 1_000_000, "output": 500_000}
    script.write_text(json.dumps({"turns": [{"steps": [{"text": "ok", "usage": usage}]}]}))
    price = '[[llm.models]]\nid = "scripted:"\ncontext_window = 5_000_000\nprice = { input = 2, output = 10 }\n'
    config = f'[llm]\nmodel = "scripted:{script}"\nfallback = ["scripted:demo"]\n{price}'
    async with editing(tmp_path, None, config=config, capabilities=NOTHING) as editor:
        session = Aided(editor)
        assert "Tokens:" not in await session.status()
        await session.say(LONG)
        assert "Tokens: 1,000,000 read, 500,000 written; $7.0000\n" in await session.status()
        assert "Summed up" in await session.say("/compact")
        assert "Tokens: 2,000,000 read, 1,000,000 written; $14.0000\n" in await session.status()
