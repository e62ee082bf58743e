"""Answers that are kept for the next process: when they fit, and when the database is left to the server."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import SessionRecord, UsageTotals
from acp_agent.store.db import Database
from acp_agent.store.known_answers import KnownAnswers
from acp_agent.store.session_json import json_bytes, to_json
from acp_agent.store.sessions import SessionStore

pytestmark = pytest.mark.anyio
ANSWER = {"sessionId": "first", "modes": {"currentModeId": "suggest"}}
OPTIONS, USAGE = json_bytes(to_json(SessionOptions())), json_bytes(to_json(UsageTotals()))


def known(folder: Path, initialized: Any = None, **variables: str) -> KnownAnswers:
    environ = {"ACP_AGENT_DATA_DIR": str(folder), "ACP_AGENT_CONFIG": str(folder / "config.toml"), **variables}
    return KnownAnswers(environ, initialized or {"protocolVersion": 1})


def params(folder: Path, **members: Any) -> dict[str, Any]:
    return {"cwd": str(folder), "mcpServers": [], **members}


@pytest.fixture
async def folder(tmp_path) -> Path:
    """A data folder with a database of one session and one kept answer."""
    tmp_path.chmod(0o700)
    database = Database(str(tmp_path / "acp-agent.db"), lambda _: None)
    await SessionStore(database).create(SessionRecord("made-by-the-store", str(tmp_path)), SessionOptions())
    await database.aclose()
    known(tmp_path).keep(params(tmp_path), ANSWER, OPTIONS, USAGE)
    return tmp_path


def opened(answers: KnownAnswers, given: dict[str, Any]) -> dict[str, Any] | None:
    session = answers.open(given)
    answers.close()
    return None if session is None else session.answer


async def test_the_row_of_a_session_is_the_one_that_the_store_makes(folder):
    answer = opened(known(folder), params(folder))
    assert answer is not None
    assert answer["modes"] == ANSWER["modes"]
    with closing(sqlite3.connect(folder / "acp-agent.db")) as database:
        columns = "cwd, additional, title, prompts, model, conduct, tally, typeof(additional), typeof(conduct)"
        of = f"SELECT {columns}, updated_at = created_at FROM conversations WHERE id = ?"
        rows = {name: database.execute(of, (name,)).fetchone() for name in (answer["sessionId"], "made-by-the-store")}
    assert rows[answer["sessionId"]] == rows["made-by-the-store"] is not None


async def test_an_answer_fits_while_nothing_that_it_follows_from_is_different(folder):
    assert opened(known(folder, TERM_SESSION_ID=""), params(folder))
    different = {
        "a setting": opened(known(folder, ACP_AGENT_MODEL="other:model"), params(folder)),
        "a key": opened(known(folder, ANTHROPIC_API_KEY="obviously-fake"), params(folder)),
        "params that only the server reads": opened(known(folder), params(folder, _meta={"acp_agent": {"tools": []}})),
        "more folders": opened(known(folder), params(folder, additionalDirectories=["/"])),
        "a relative folder": opened(known(folder), params(folder, cwd=".")),
        "unknown params": opened(known(folder), params(folder, more=1)),
    }
    assert {name for name, answer in different.items() if answer} == set()
    (folder / "config.toml").write_text("")
    assert opened(known(folder), params(folder)) is None


async def test_params_of_initialize_that_are_nested_too_deeply_have_no_answer(folder):
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    answers = known(folder, initialized={"_meta": {"x": deep}})
    answers.keep(params(folder), ANSWER, OPTIONS, USAGE)
    assert opened(answers, params(folder)) is None


async def test_the_value_of_a_key_is_not_in_the_digest(folder):
    one, other = ({"ANTHROPIC_API_KEY": f"obviously-fake-{number}"} for number in (1, 2))
    known(folder, **one).keep(params(folder), ANSWER, OPTIONS, USAGE)
    assert opened(known(folder, **other), params(folder))


async def test_a_database_that_needs_care_is_left_to_the_server(folder):
    file = folder / "acp-agent.db"
    with sqlite3.connect(file) as other:
        other.execute("BEGIN IMMEDIATE")
        assert opened(known(folder), params(folder)) is None, "another process writes"
        other.execute("ROLLBACK")
        other.execute("PRAGMA user_version = 999")
    other.close()
    assert opened(known(folder), params(folder)) is None, "it is of a newer version"
    file.write_bytes(b"no database" * 100)
    assert opened(known(folder), params(folder)) is None, "it is damaged"
    file.unlink()
    assert opened(known(folder), params(folder)) is None, "it is missing"
    assert not file.exists()


async def test_damaged_answers_are_no_answers_and_the_newest_sixteen_are_kept(folder):
    kept = folder / "new-session.json"
    kept.write_text("[]")
    assert opened(known(folder), params(folder)) is None
    kept.write_text("{")
    assert opened(known(folder), params(folder)) is None
    kept.unlink()
    for number in range(17):
        known(folder, ACP_AGENT_MODEL=f"m:{number}").keep(params(folder), ANSWER, OPTIONS, USAGE)
    assert opened(known(folder, ACP_AGENT_MODEL="m:0"), params(folder)) is None
    assert opened(known(folder, ACP_AGENT_MODEL="m:1"), params(folder))
    assert opened(known(folder, ACP_AGENT_MODEL="m:16"), params(folder))
    assert kept.stat().st_mode & 0o777 == 0o600


async def test_long_answers_push_out_the_oldest_ones(folder):
    def keep(model: str, size: int) -> None:
        known(folder, ACP_AGENT_MODEL=model).keep(params(folder), {**ANSWER, "long": "x" * size}, OPTIONS, USAGE)

    def kept(model: str) -> bool:
        return opened(known(folder, ACP_AGENT_MODEL=model), params(folder)) is not None

    for number in range(5):
        keep(f"m:{number}", 300_000)
    assert [kept(f"m:{number}") for number in range(5)] == [False, False, True, True, True]
    keep("m:5", 2_000_000)
    assert (kept("m:4"), kept("m:5")) == (True, False), "an answer that can never be kept pushes out no other"


@pytest.mark.parametrize("damaged", ["{", "[]", "\xff", "[" * 100_000])
async def test_damaged_answers_are_replaced_by_the_next_one(folder, damaged):
    (folder / "new-session.json").write_text(damaged, encoding="latin-1")
    known(folder).keep(params(folder), ANSWER, OPTIONS, USAGE)
    assert opened(known(folder), params(folder))
