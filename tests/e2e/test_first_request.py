"""The first request of a session as it reaches the model: small, equal from session to session, and true."""

import json
from pathlib import Path

import pytest

from tests.bench.first_request import AIM
from tests.e2e.aided import aided, offered, parameters, system
from tests.fakes.editor import EVERYTHING, NOTHING

pytestmark = pytest.mark.anyio


async def test_the_first_request_is_small_and_says_how_to_work_and_what_notes_mean(tmp_path: Path):
    async with aided(tmp_path) as (session, model, _):
        await session.say("go")
        await session.editor.say(await session.editor.open(), "go")
    first, second = (next(each for each in requests) for requests in (iter(model.requests), reversed(model.requests)))
    assert len(json.dumps(first, ensure_ascii=False, separators=(",", ":")).encode()) < AIM
    assert {"bash", "process", "read", "edit", "grep", "outline", "memory_search"} <= set(offered(first))
    for rule in (
        "Finish the work",
        "run together",
        "stays refused",
        "`background: true`",
        "Notes in brackets",
        "As long as",
    ):
        assert rule in system(first), rule
    assert "usually 120" in parameters(first, "bash")["properties"]["timeout"]["description"]
    assert (system(first), first["tools"]) == (system(second), second["tools"]), "the prompt cache of the provider"


@pytest.mark.parametrize(
    ("capabilities", "told"), [(NOTHING, False), (EVERYTHING, True)], ids=["nothing", "everything"]
)
async def test_the_editor_is_spoken_of_only_where_files_go_through_one(tmp_path: Path, capabilities, told: bool):
    async with aided(tmp_path, capabilities=capabilities) as (session, model, _):
        await session.say("go")
    assert ("the user's editor" in system(model.requests[0])) == told
