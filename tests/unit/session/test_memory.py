"""A session's memory stands behind the session's redactor, over real SQLite."""

from contextlib import closing
from pathlib import Path

import pytest

from acp_agent.store.memories import MemoryStore
from tests.fakes.home import move_in
from tests.unit.session.live_session import LiveSession
from tests.unit.store.databases import opened, others

pytestmark = pytest.mark.anyio

TOKEN = "ghp_" + "0fAkE1" * 6  # the form of a GitHub token, obviously fake


async def test_what_the_model_saves_is_kept_without_secrets_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    move_in(monkeypatch, tmp_path)
    path = tmp_path / "agent.db"
    async with opened(path) as database:
        notes = MemoryStore(database, max_notes=10, max_bytes=8192)
        live = LiveSession(tmp_path, notes).open()
        saved = await live.call("memory_save", content=f"the CI token is {TOKEN}")
        alone = await live.call("memory_save", content=TOKEN)
        found = await live.call("memory_search", query=f"CI token {TOKEN}")
    assert "without the secrets in it" in saved.text
    assert "nothing but a secret" in alone.text
    assert "the CI token is [REDACTED:" in found.text
    with closing(others(path)) as connection:
        [(kept,)] = connection.execute("SELECT content FROM memories").fetchall()
    assert kept.startswith("the CI token is [REDACTED:")
    assert TOKEN not in kept
