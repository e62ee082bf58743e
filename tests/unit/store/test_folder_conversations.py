"""The search in the earlier conversations of a folder: what is found, and what is not."""

import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from acp_agent.core.events import TextDelta, ThoughtDelta, UserMessage
from acp_agent.core.messages import TextPart
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import Change, SessionRecord
from acp_agent.store.conversations import FolderConversations, _folders
from acp_agent.store.db import Database
from acp_agent.store.session_rows import _unpacked
from acp_agent.store.sessions import SessionStore
from tests.unit.store.databases import opened

pytestmark = pytest.mark.anyio

HERE = "/home/me/project"


async def said(database: Database, name: str, *pairs: tuple[str, str], cwd: str = HERE, at: float = 1000) -> None:
    """Store a session: what the user said, and what the agent answered."""
    store = SessionStore(database, lambda: at)
    await store.create(SessionRecord(name, cwd, title=f"About {name}", updated_at=int(at * 1000)), SessionOptions())
    for number, (prompt, answer) in enumerate(pairs):
        events = (
            UserMessage((TextPart(prompt),), f"u{number}"),
            ThoughtDelta("a thought about zebras", f"t{number}"),
            TextDelta(answer, f"a{number}"),
        )
        await store.of(name).write(Change(events=events))


async def found(database: Database, query: str, limit: int = 5) -> Sequence[tuple[str, bool, str]]:
    past = FolderConversations(database, lambda: HERE, "now")
    return [(each.session, each.by_user, each.text) for each in await past.search(query, limit)]


@pytest.fixture
async def database(tmp_path):
    async with opened(tmp_path / "data" / "agent.db") as database:
        yield database


async def test_what_user_and_agent_said_is_found_by_its_words_with_session_and_time(database):
    await said(database, "one", ("Why does the parser fail?", "It reads one byte too far."), at=86_400)
    await said(database, "two", ("Rename the cache", "Renamed."))
    hits = await FolderConversations(database, lambda: HERE, "now").search("PARSERS byte xyzzy", 5)
    assert {(each.session, each.title, each.at, each.by_user, each.text) for each in hits} == {
        ("one", "About one", 86_400_000, True, "Why does the parser fail?"),
        ("one", "About one", 86_400_000, False, "It reads one byte too far."),
    }


async def test_other_folders_this_conversation_and_thoughts_are_not_searched(database):
    await said(database, "elsewhere", ("zebras elsewhere", "x"), cwd=f"{HERE}/below")
    await said(database, "now", ("zebras now", "x"))
    await said(database, "one", ("nothing", "x"))
    assert await found(database, "zebras") == []


async def test_a_rare_word_counts_more_than_many_common_ones(database):
    common = [(f"what do we know about the thing {number}", f"we know the thing {number}") for number in range(20)]
    await said(database, "common", *common)
    await said(database, "rare", ("retry with jitter", "Done."))
    assert (await found(database, "what do we know about the jitter"))[0] == ("rare", True, "retry with jitter")


async def test_one_session_gives_at_most_three_messages_and_a_fork_none_again(database):
    pairs = [(f"apples {number}", "ok") for number in range(9)]
    await said(database, "one", *pairs)
    await said(database, "fork", *pairs[:2])
    await said(database, "two", ("apples and pears", "ok"))
    hits = await found(database, "apples", 50)
    assert len(hits) == len({text for _, _, text in hits})
    assert max(sum(session == name for session, _, _ in hits) for name in ("one", "fork", "two")) == 3
    assert ("two", True, "apples and pears") in hits


async def test_a_query_without_words_gives_the_last_prompt_of_each_conversation_newest_first(database):
    await said(database, "old", ("first", "a"), ("then this", "b"), at=1000)
    await said(database, "new", ("continue the refactoring", "c"), at=2000)
    assert await found(database, " ? ") == [
        ("new", True, "continue the refactoring"),
        ("old", True, "then this"),
    ]
    assert len(await found(database, "", 1)) == 1


async def test_a_long_message_is_cut_around_the_word(database):
    await said(database, "one", ("filler " * 5000 + "needle " + "more " * 5000, "ok"))
    ((_, _, text),) = await found(database, "needle")
    assert "needle" in text
    assert text.startswith("…")
    assert text.endswith("…")
    assert len(text) < 500


def test_a_text_of_a_seen_file_that_cannot_be_read_is_none():
    whole = zlib.compress("a\ud800b".encode("utf-8", "surrogatepass"))
    assert _unpacked(whole) == "a\ud800b"
    assert [_unpacked(each) for each in (None, b"x", whole[:-4], zlib.compress(b"\xff"))] == [None] * 4
    text: Any = "no bytes"
    assert _unpacked(text) is None


def test_a_row_with_damaged_folders_has_none():
    assert _folders(b'["a", 5, "b"]') == ("a", "b")
    assert _folders(b"{") == _folders(b'{"a": 1}') == ()


async def test_scripts_without_blanks_are_found(database):
    await said(database, "one", ("構文解析を直して", "ok"))
    assert (await found(database, "解析"))[0][0] == "one"


async def test_only_the_newest_part_of_a_long_past_is_read(database):
    await said(database, "old", ("needle", "ok"), at=1000)
    for number in range(5):
        await said(database, f"big{number}", (f"{number} hay" * 200_000, "ok"), at=2000 + number)
    assert await found(database, "needle") == []
