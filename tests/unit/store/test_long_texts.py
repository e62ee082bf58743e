"""Long texts are stored once: events store them, and messages refer to them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.events import TextDelta, ToolFinished, ToolStarted, TranscriptEvent, UsageChanged, UserMessage
from acp_agent.core.messages import Message, Role, TextPart, ToolResultPart, ToolUsePart
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, StoredEvent
from acp_agent.core.types import Diff, ImagePart, ToolKind, ToolResult
from acp_agent.store.db import Database
from acp_agent.store.session_json import read_session_file, session_object
from acp_agent.store.sessions import SessionStore, SqliteSessionRepository
from tests.unit.store.databases import integrity, opened, others, query

pytestmark = pytest.mark.anyio

OLD = Path(__file__).parents[2] / "fixtures" / "databases" / "version_3.sql"
LONG = "".join(f'line {number}: "quoted" \\ ü \ud800\n' for number in range(200))
RECORD = SessionRecord("s", "/home/me", title="t", created_at=1_000, updated_at=2_000, prompts=1)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "agent.db"


@asynccontextmanager
async def kept(path: Path) -> AsyncIterator[tuple[Database, SessionStore, SqliteSessionRepository]]:
    async with opened(path) as database:
        store = SessionStore(database, lambda: 5.0)
        await store.create(RECORD, SessionOptions())
        yield database, store, store.of("s")


def finished(text: str, call: str = "1") -> ToolFinished:
    """The end of a call as `bash` ends it: the text in our frame, for the user and for machines."""
    result = ToolResult(f"<output>\n{text}</output>", display=text, envelope={"stdout": text, "exit_code": 0})
    return ToolFinished(call, "bash", result, 0.5, call)


def history(*results: str) -> HistoryState:
    """A conversation with these results, of the calls "1", "2" and so on."""
    messages = [Message(Role.USER, (TextPart("go"),))]
    for number, text in enumerate(results, 1):
        messages.append(Message(Role.ASSISTANT, (ToolUsePart(str(number), "bash", {"command": "x"}),)))
        messages.append(Message(Role.USER, (ToolResultPart(str(number), f"<output>\n{text}</output>"),)))
    return HistoryState(tuple(messages), 0, 9)


async def told(repository: SqliteSessionRepository) -> list[TranscriptEvent]:
    return [each.event async for each in repository.events()]


async def stored_history(repository: SqliteSessionRepository) -> HistoryState:
    saved = await repository.snapshot()
    assert saved is not None
    return saved.history


def copies(path: Path, text: str) -> int:
    """How often the JSON of a text stands in the database."""
    tables = ("SELECT body FROM told", "SELECT body FROM messages", "SELECT text FROM texts")
    wanted = text.encode("utf-8", "surrogatepass")
    with closing(others(path)) as other:
        return sum(body.count(wanted) for each in tables for (body,) in other.execute(each))


def texts_of(path: Path, session: str) -> int:
    with closing(others(path)) as other:
        return other.execute("SELECT count(*) FROM texts WHERE conversation_id = ?", (session,)).fetchone()[0]


async def test_a_result_that_model_user_and_machines_read_is_stored_once(path):
    async with kept(path) as (_, _, repository):
        await repository.write(Change((finished(LONG),)))
        await repository.write(Change(history=history(LONG)))
        assert copies(path, "line 7:") == texts_of(path, "s") == 1
    async with kept(path) as (_, _, repository):
        assert await told(repository) == [finished(LONG)]
        assert await stored_history(repository) == history(LONG)


async def test_pictures_prompts_and_files_are_stored_once_too(path):
    picture = ImagePart("iVBOR" * 1_000, "image/png")
    started = ToolStarted("1", "write", "Write", ToolKind.EDIT, {"content": LONG}, diffs=(Diff("/a", None, LONG),))
    done = ToolFinished("1", "write", ToolResult("ok", diffs=(Diff("/a", None, LONG),), images=(picture,)), 0.1, "1")
    prompt = UserMessage((TextPart("see"), picture), "m")
    messages = (
        Message(Role.USER, (TextPart("see"), picture)),
        Message(Role.ASSISTANT, (ToolUsePart("1", "write", {"content": LONG}),)),
        Message(Role.USER, (ToolResultPart("1", "ok", images=(picture,)),)),
    )
    async with kept(path) as (_, _, repository):
        await repository.write(Change((prompt, started, done), HistoryState(messages)))
        assert copies(path, "line 7:") == copies(path, picture.data) == 1
        assert await told(repository) == [prompt, started, done]
        assert await stored_history(repository) == HistoryState(messages)


async def test_a_result_that_is_stored_before_its_event_is_whole_and_refers_to_it_later(path):
    async with kept(path) as (_, _, repository):
        await repository.write(Change(history=history(LONG)))
        async with opened(path) as elsewhere:  # as after a kill at this moment
            assert await stored_history(SessionStore(elsewhere).of("s")) == history(LONG)
        await repository.write(Change((finished(LONG),)))
        before = copies(path, "line 7:")
        longer = history(LONG, "short")
        await repository.write(
            Change(history=replace(longer, messages=(*history(LONG).messages, *longer.messages[3:])))
        )
        assert (before, copies(path, "line 7:")) == (2, 1)
        assert await stored_history(repository) == longer


async def test_an_event_whose_transaction_fails_leaves_no_text_and_no_reference(path):
    async with kept(path) as (database, _, repository):
        await database.write(
            query(
                "CREATE TRIGGER fails BEFORE INSERT ON told WHEN NEW.kind = 'usage' "
                "BEGIN SELECT raise(ABORT, 'now'); END"
            )
        )
        with pytest.raises(Exception, match="now"):
            await repository.write(Change((finished(LONG), UsageChanged(1, 2)), history(LONG)))
        assert (texts_of(path, "s"), await told(repository)) == (0, [])
        await database.write(query("DROP TRIGGER fails"))
        await repository.write(Change((finished(LONG),), history(LONG)))
        assert (await told(repository), await stored_history(repository)) == ([finished(LONG)], history(LONG))


async def test_short_texts_and_pieces_of_answers_stand_in_their_rows(path):
    async with kept(path) as (_, _, repository):
        answer = Message(Role.ASSISTANT, (TextPart(LONG),))
        await repository.write(Change((finished("short"), TextDelta(LONG, "m")), HistoryState((answer,))))
        assert texts_of(path, "s") == 0
        await repository.write(Change(replacements=(TextDelta("clean", "m"),)))
        assert await told(repository) == [finished("short"), TextDelta("clean", "m")]


async def test_a_compacted_conversation_no_longer_refers_to_what_the_transcript_still_shows(path):
    async with kept(path) as (_, _, repository):
        other = LONG.replace("line", "row")
        await repository.write(Change((finished(LONG), finished(other, "2")), history(LONG, other)))
        shorter = history("[cleared]", other)
        await repository.write(Change(history=shorter))
        assert await stored_history(repository) == shorter
        assert (copies(path, "line 7:"), copies(path, "row 7:")) == (1, 1)
        summary = HistoryState((Message(Role.USER, (TextPart("summary"),)),), 1, 5)
        await repository.write(Change(history=summary))
        assert await stored_history(repository) == summary
        assert await told(repository) == [finished(LONG), finished(other, "2")]


async def test_a_resumed_conversation_refers_to_the_texts_of_before(path):
    async with kept(path) as (_, _, repository):
        await repository.write(Change((finished(LONG),), history(LONG)))
    async with kept(path) as (_, _, repository):
        first, *others = (await stored_history(repository)).messages
        renewed = HistoryState((replace(first, parts=(TextPart("other"),)), *others))
        await repository.write(Change(history=renewed))  # all messages are written again
        assert copies(path, "line 7:") == 1
        assert await stored_history(repository) == renewed


async def test_a_fork_has_texts_of_its_own(path):
    async with kept(path) as (_, store, repository):
        await repository.write(Change((finished(LONG),), history(LONG)))
        assert await store.fork("s", replace(RECORD, id="copy"), SessionOptions())
        assert texts_of(path, "copy") == 1
        assert await store.delete("s")
        assert texts_of(path, "s") == 0
        fork = store.of("copy")
        assert (await told(fork), await stored_history(fork)) == ([finished(LONG)], history(LONG))


@pytest.mark.parametrize("end", ["delete", "clear"])
async def test_the_texts_of_a_session_that_is_deleted_or_cleared_are_gone(path, end):
    async with kept(path) as (_, store, repository):
        await repository.write(Change((finished(LONG),), history(LONG)))
        await (store.delete("s") if end == "delete" else repository.clear())
        assert texts_of(path, "s") == 0
    assert b"line 7:" not in path.read_bytes()
    assert integrity(path) == "ok"


async def test_an_exported_session_has_its_texts_and_is_imported_with_one_of_each(path, tmp_path):
    async with kept(path) as (_, store, repository):
        await repository.write(Change((finished(LONG),), history(LONG)))
        saved = await repository.snapshot()
        assert saved is not None
        back, events = read_session_file(await session_object(saved, repository.events()))
    assert (back.history, [each.event for each in events]) == (history(LONG), [finished(LONG)])
    async with opened(tmp_path / "other.db") as database:
        store = SessionStore(database)
        await store.import_session(back, events)
        assert copies(tmp_path / "other.db", "line 7:") == 1
        assert [each async for each in store.of("s").events()] == [StoredEvent(1, 5_000, finished(LONG))]
        assert await stored_history(store.of("s")) == history(LONG)


async def test_a_conversation_put_into_a_new_database_has_its_texts_without_the_events(path):
    async with kept(path) as (_, _, repository):
        await repository.write(Change((finished(LONG),), history(LONG)))
        path.unlink()
        await repository.write(Change((UsageChanged(1, 2),)))
        assert await stored_history(repository) == history(LONG)
        assert await told(repository) == [UsageChanged(1, 2)]


@pytest.mark.parametrize("wrong", ["DELETE FROM texts", "UPDATE texts SET text = 5", "UPDATE texts SET text = 'x'"])
async def test_a_row_whose_text_is_missing_or_damaged_is_left_out_and_no_other(path, wrong):
    async with kept(path) as (database, _, repository):
        await repository.write(Change((finished(LONG), UsageChanged(1, 2)), history(LONG)))
        await database.write(query(wrong))
        assert await told(repository) == [UsageChanged(1, 2)]
        saved = await stored_history(repository)
        assert (saved.messages, saved.lost) == (history(LONG).messages[:2], 1)


async def test_what_a_turn_that_was_cut_off_left_has_its_texts(path):
    prompt = UserMessage((TextPart(LONG),), "m")
    async with kept(path) as (_, _, repository):
        await repository.write(Change((prompt, finished(LONG))))
        with closing(others(path)) as other:
            other.execute("UPDATE conversations SET tally = ?", (b'{"under_way":true}',))
        saved = await repository.snapshot()
        assert saved is not None
        assert (saved.finished_calls, saved.user_words) == ((finished(LONG),), (LONG,))


PIECES = st.text(st.characters(exclude_categories=()), max_size=4) | st.sampled_from(("\x1a", '"', "\\", "\n"))
TEXTS = st.lists(PIECES, min_size=1, max_size=5).map(lambda pieces: "".join(pieces) * 300)


@settings(max_examples=settings.default.max_examples // 2)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), cut=st.integers(0, 900))
def test_any_texts_come_back_as_they_were(tmp_path_factory, texts, cut):
    first = texts[0]
    events = [
        ToolFinished(
            "1",
            "x",
            ToolResult(first, display=first[cut:], envelope={"a": [*texts, {first: texts[-1]}], "b": first}),
            0.1,
        ),
        ToolStarted("2", "x", "x", ToolKind.READ, {"texts": [*texts], "reference": {"$text": "\x1a"}}),
    ]
    messages = HistoryState((Message(Role.USER, tuple(ToolResultPart(str(n), text) for n, text in enumerate(texts))),))

    async def run() -> None:
        async with kept(tmp_path_factory.mktemp("texts") / "agent.db") as (_, _, repository):
            await repository.write(Change(events, messages), durable=False)
            assert await told(repository) == events
            assert await stored_history(repository) == messages

    anyio.run(run)


async def test_a_database_of_the_version_before_is_read_and_goes_on(path):
    with closing(others(path)) as old:
        old.executescript(OLD.read_text(encoding="utf-8"))
    text = "".join(f"line {number}\n" for number in range(200))
    async with opened(path) as database:
        store = SessionStore(database, lambda: 9.0)
        (record,) = await store.page()
        assert (record.id, record.title) == ("old", "An old session")
        repository = store.of("old")
        result = ToolResult(text, envelope={"stdout": text, "exit_code": 0})
        events = await told(repository)
        assert events[2] == ToolFinished("call-1", "bash", result, 0.5, "use-1")
        before = await stored_history(repository)
        assert [type(part).__name__ for message in before.messages for part in message.parts] == [
            "TextPart",
            "ToolUsePart",
            "ToolResultPart",
            "TextPart",
        ]
        assert before.messages[2].parts == (ToolResultPart("use-1", text),)
        assert (copies(path, "line 7\\n"), texts_of(path, "old")) == (3, 0)
        more = finished(LONG, "2")
        longer = (
            *before.messages,
            Message(Role.USER, (TextPart("again"),)),
            Message(Role.ASSISTANT, (ToolUsePart("2", "bash", {}),)),
            Message(Role.USER, (ToolResultPart("2", more.result.text),)),
        )
        await repository.write(Change((more,), replace(before, messages=longer)))
        assert copies(path, "line 7:") == 1
        assert await told(repository) == [*events, more]
        assert (await stored_history(repository)).messages == longer
        assert await store.fork("old", replace(record, id="new"), SessionOptions())
        assert await told(store.of("new")) == [*events, more]
    assert integrity(path) == "ok"
