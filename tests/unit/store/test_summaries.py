"""Summaries are kept with their conversation."""

from pathlib import Path

import pytest

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.services import Compaction, Summaries, Summary
from acp_agent.store.conversations import ConversationSummaries
from tests.unit.store.databases import add, opened, query

pytestmark = pytest.mark.anyio

ALL = query("SELECT conversation_id, created_at, compaction_method, messages, tokens, text FROM summaries ORDER BY seq")


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data" / "agent.db"


@pytest.mark.parametrize("method", Compaction)
async def test_a_summary_is_there_after_the_process_that_kept_it(path, method):
    async with opened(path) as database:
        summaries: Summaries = ConversationSummaries(database, "a", now=lambda: 77.5)
        await summaries.add(Summary("what was done\né", method, 12, 3456))
    async with opened(path) as database:
        assert await database.read(ALL) == [("a", 77, method.value, 12, 3456, "what was done\né")]


async def test_a_conversation_that_is_known_stays_as_it_is(path):
    async with opened(path) as database:
        await database.write(add("a"))
        await ConversationSummaries(database, "a").add(Summary("x", Compaction.MANUAL, 1, 1))
        assert await database.read(query("SELECT id, created_at FROM conversations")) == [("a", 0)]


async def test_summaries_go_with_their_conversation(path):
    async with opened(path) as database:
        for name in ("a", "b"):
            await ConversationSummaries(database, name).add(Summary("x", Compaction.AUTONOMOUS, 1, 1))
        await database.write(query("DELETE FROM conversations WHERE id = 'a'"))
        assert [row[0] for row in await database.read(ALL)] == ["b"]


async def test_the_newest_fifty_of_a_conversation_stay(path):
    async with opened(path) as database:
        await ConversationSummaries(database, "other").add(Summary("other", Compaction.TRIGGERED, 1, 1))
        for number in range(53):
            await ConversationSummaries(database, "a").add(Summary(f"{number}", Compaction.TRIGGERED, number, 1))
        rows = await database.read(ALL)
        assert [row[5] for row in rows] == ["other", *(f"{number}" for number in range(3, 53))]


async def test_half_a_surrogate_pair_does_not_stop_a_summary(path):
    async with opened(path) as database:
        await ConversationSummaries(database, "a").add(Summary("half \udc80", Compaction.MANUAL, 1, 1))
        assert (await database.read(ALL))[0][5] == "half ?"


async def test_a_database_that_cannot_be_used_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    async with opened(tmp_path / "file" / "agent.db") as database:
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            await ConversationSummaries(database, "a").add(Summary("x", Compaction.MANUAL, 1, 1))
