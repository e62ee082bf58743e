"""Notes of all sessions: kept for good, found by words and by meaning, whatever a query holds."""

import math
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.errors import ProviderError, ProviderErrorKind, StoreUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.services import Memories
from acp_agent.store.memories import MemoryIndex, MemoryStore, terms_of
from tests.rows import each_row
from tests.unit.store.databases import integrity, opened, others, query
from tests.unit.store.memory_writer import indexed, notes

pytestmark = pytest.mark.anyio

NO_FTS = MemoryIndex("fts_that_is_not_there")


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data" / "agent.db"


@asynccontextmanager
async def memories(path: Path, *, max_notes: int = 100, max_bytes: int = 8192, **named):
    async with opened(path) as database:
        yield MemoryStore(database, max_notes=max_notes, max_bytes=max_bytes, **named)


async def contents(store: Memories, text: str, limit: int = 10) -> list[str]:
    return [note.content for note in await store.search(text, limit)]


class Meanings:
    """An Embedder: places a text by which of a few ideas it mentions."""

    IDEAS = (("cat", "kitten", "feline"), ("deploy", "ship", "release"), ("tab", "indent", "whitespace"))

    def __init__(self, model: str = "fake:ideas", *, dimensions: int = 0) -> None:
        self.model = model
        self.asked: list[list[str]] = []
        self.fault: Exception | None = None
        self.dimensions = dimensions
        self.answer: tuple[tuple[float, ...], ...] | None = None

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        self.asked.append(list(texts))
        if self.fault:
            raise self.fault
        return tuple(map(self._placed, texts)) if self.answer is None else self.answer

    def _placed(self, text: str) -> tuple[float, ...]:
        raw = [float(any(word in text.lower() for word in idea)) for idea in self.IDEAS]
        raw += [0.0] * self.dimensions
        length = math.hypot(*raw)
        return tuple(number / length for number in raw) if length else (0.0,) * len(raw)


class Hanging(Meanings):
    """Gives no answer any more after so many."""

    def __init__(self, *, after: int = 0) -> None:
        super().__init__()
        self.after = after

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        if len(self.asked) >= self.after:
            await anyio.sleep_forever()
        return await super().embed(texts)


class Picky(Meanings):
    """Refuses some notes: longer ones, say."""

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        placed = await super().embed(texts)
        if any("refused" in text for text in texts):
            raise broken()
        return placed


def broken() -> ProviderError:
    return ProviderError("the embedding model is gone", kind=ProviderErrorKind.NETWORK)


# ------------------------------------------------------------------------------------------ saving


async def test_a_note_is_there_after_the_process_that_saved_it(path):
    async with memories(path, now=lambda: 1234.9) as store:
        note, new = await store.save("  the user wants tabs\n")
        assert (note.content, note.created_at, new) == ("the user wants tabs", 1234, True)
    async with memories(path) as store:
        (found,) = await store.search("tabs", 5)
        assert (found.id, found.content, found.created_at) == (note.id, "the user wants tabs", 1234)
        assert found.score > 0


async def test_the_same_text_twice_is_one_note_of_the_later_time(path):
    times = iter([100.0, 200.0, 300.0])
    async with memories(path, now=lambda: next(times)) as store:
        first, _ = await store.save("tests run with make test")
        await store.save("something else")
        again, new = await store.save("tests  run\nwith make test")
        assert (again.id, again.content, again.created_at, new) == (first.id, first.content, 300, False)
        assert await contents(store, "") == ["tests run with make test", "something else"]


@pytest.mark.parametrize("text", ["", " \n\t\u2003", "\r\n"])
async def test_a_blank_note_is_refused(path, text):
    async with memories(path) as store:
        with pytest.raises(ToolError, match="blank") as caught:
            await store.save(text)
        assert caught.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
        assert not path.exists(), "nothing was opened for it"


async def test_a_note_that_is_deleted_is_found_by_nothing_and_leaves_no_word_behind(path):
    async with memories(path) as store:
        kept, _ = await store.save("tabs, not spaces")
        gone, _ = await store.save("the tabs of old")
        assert await store.delete(gone.id) == gone
        assert await store.delete(gone.id) is None
        assert await contents(store, "tabs") == await contents(store, "") == [kept.content]
        assert (await store.save(gone.content))[1]
    assert len(indexed(str(path))) == 2


@pytest.mark.parametrize("note", ["", "x", "-1", "1.0", "٣", "1; DROP TABLE memories", "9" * 40])
async def test_deleting_what_is_no_id_deletes_nothing(path, note):
    async with memories(path) as store:
        await store.save("kept")
        assert await store.delete(note) is None
        assert await contents(store, "") == ["kept"]


async def test_a_note_that_is_too_long_is_refused_with_both_numbers(path):
    async with memories(path, max_bytes=10) as store:
        with pytest.raises(ToolError, match="12 bytes, more than the 10 a note may have"):
            await store.save("éééééé")
        assert (await store.save("ééééé"))[1]


async def test_the_note_nobody_saved_for_the_longest_time_makes_room(path):
    times = iter([500.0, 400.0, 300.0, 200.0, 100.0])  # a clock that runs backwards decides nothing
    async with memories(path, max_notes=3, now=lambda: next(times)) as store:
        for text in ("note one", "note two", "note three", "note one", "note four"):
            await store.save(text)
        assert await contents(store, "") == ["note four", "note one", "note three"]
        assert await contents(store, "two") == []
    assert indexed(str(path)) == notes(str(path))


async def test_a_number_is_never_given_again(path):
    async with memories(path, max_notes=1) as store:
        ids = [(await store.save(f"note {number}"))[0].id for number in range(4)]
        assert len(set(ids)) == 4


async def test_half_a_surrogate_pair_does_not_stop_a_note(path):
    async with memories(path) as store:
        assert (await store.save("half \ud800 of a pair"))[0].content == "half ? of a pair"


async def test_a_database_that_cannot_be_used_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    async with memories(tmp_path / "file" / "agent.db") as store:
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            await store.save("text")
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            await store.search("text", 5)


# --------------------------------------------------------------------------------------- searching


@pytest.mark.parametrize("index", [None, NO_FTS], ids=["fts5", "without"])
async def test_a_note_is_found_by_any_of_its_words(path, index):
    async with memories(path, index=index) as store:
        for text in ("The staging server is called Kestrel", "Use pnpm, never npm", "prefers short answers"):
            await store.save(text)
        assert await contents(store, "what is the name of the STAGING machine?") == [
            "The staging server is called Kestrel"
        ]
        assert await contents(store, "npm") == ["Use pnpm, never npm"]
        assert await contents(store, "kubernetes") == []


async def test_more_and_rarer_words_rank_higher_and_of_equals_the_newer(path):
    async with memories(path) as store:
        for text in ("the build is slow", "the build needs java 17", "java is fine", "the logo is blue", "the sky"):
            await store.save(text)
        assert (await contents(store, "which java does the build need"))[0] == "the build needs java 17"
        await store.save("logo colour one")
        await store.save("logo colour two")
        assert await contents(store, "colour") == ["logo colour two", "logo colour one"]
        scores = [note.score for note in await store.search("the build java", 10)]
        assert scores == sorted(scores, reverse=True)


async def test_other_forms_of_a_word_are_found(path):
    async with memories(path) as store:
        await store.save("Deploying runs the migrations first; el café está cerrado")
        for text in ("deploy", "migration", "deployed", "CAFE"):
            assert len(await contents(store, text)) == 1, text


async def test_scripts_without_blanks_are_found_inside_their_runs(path):
    async with memories(path) as store:
        await store.save("本番環境のデータベースは東京にあります")
        await store.save("ฐานข้อมูลอยู่ที่กรุงเทพ")
        assert await contents(store, "データベース") == ["本番環境のデータベースは東京にあります"]
        assert await contents(store, "東京 server") == ["本番環境のデータベースは東京にあります"]
        assert await contents(store, "กรุงเทพ") == ["ฐานข้อมูลอยู่ที่กรุงเทพ"]


QUERIES = (
    *(
        '"',
        "'",
        '"unclosed',
        "a AND",
        "NOT a",
        "NEAR(a b)",
        "a*",
        "content:a",
        "^a",
        "a - b",
        "(",
        "{a b}: c",
        "--",
    ),
    *("\0", "a\0b", "\ud800", "😀", "²", "%", "_", "\\", "a;DROP TABLE memories", "l'été", "x" * 1_000_000),
    *("word " * 200_000, "أهلا", "a\u0301", "OR", '" OR "1"="1', "__", "memory_words", "rowid:1", "+a", "a+b"),
)


@pytest.fixture(params=[None, NO_FTS], ids=["fts5", "without"])
async def noted(path, request):
    async with memories(path, index=request.param) as store:
        await store.save("a note about b and 1")
        yield store


@each_row("text", QUERIES)
async def test_no_query_is_more_than_words(noted, text):
    assert len(await noted.search(text, 5)) <= 1
    assert await contents(noted, "note") == ["a note about b and 1"]


async def test_a_query_without_a_word_gives_the_newest(path):
    async with memories(path) as store:
        assert await contents(store, " ") == []
        for number in range(5):
            await store.save(f"note {number}")
        for text in ("", " ", "*", "?!"):
            assert await contents(store, text, 2) == ["note 4", "note 3"]


async def test_what_a_process_without_fts_saved_is_found_by_the_next_that_has_it(path):
    async with memories(path) as with_it, memories(path, index=NO_FTS, max_notes=2) as without:
        await with_it.save("first apple")
        await without.save("second apple")
        await without.save("third apple")  # "first" makes room, and the index does not hear of it
        assert await contents(with_it, "first") == []
        await with_it.save("fourth apple")
        assert set(await contents(with_it, "apple")) == {"second apple", "third apple", "fourth apple"}
    assert indexed(str(path)) == notes(str(path))


@given(st.text())
def test_terms_are_few_short_and_nothing_but_letters_and_digits(text):
    terms = terms_of(text)
    assert len(terms.words) <= 32
    assert len(terms.pieces) <= 32
    assert all(word.isalnum() or word.replace("_", "a").isalnum() for word in terms.words)
    assert '"' not in "".join((*terms.words, *terms.pieces))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(content)")
        if terms.words:
            connection.execute("SELECT * FROM words WHERE words MATCH ?", (terms.match,)).fetchall()


# ---------------------------------------------------------------------------------------- meaning


async def test_a_note_is_found_by_its_meaning_where_no_word_fits(path):
    meanings = Meanings()
    async with memories(path, embedder=meanings) as store:
        assert store.method == "words and meaning (fake:ideas)"
        await store.save("My kitten is called Ada")
        await store.save("We release on Fridays")
        assert await contents(store, "feline") == ["My kitten is called Ada"]
        assert await contents(store, "when do we ship") == ["We release on Fridays"]
        assert await contents(store, "weather") == []


async def test_without_a_model_it_says_that_words_alone_count(path):
    async with memories(path) as store:
        assert store.method == "words"


async def test_what_both_rankings_know_comes_first(path):
    async with memories(path, embedder=Meanings()) as store:
        for text in ("the cat sleeps", "kitten food is in the shed", "shed key: under the mat"):
            await store.save(text)
        assert (await contents(store, "where is the shed with the feline food"))[0] == "kitten food is in the shed"


async def test_each_note_is_placed_once_for_each_model(path):
    first, second = Meanings("fake:one"), Meanings("fake:two")
    async with memories(path, embedder=first) as store:
        await store.save("cat one")
        await store.save("cat two")
        for _ in range(3):
            await store.search("feline", 5)
        assert [len(texts) for texts in first.asked] == [1, 2, 1, 1]
    async with memories(path, embedder=second) as store:
        assert len(await contents(store, "feline")) == 2
        assert [len(texts) for texts in second.asked] == [1, 2]


async def test_notes_get_their_place_in_bounded_portions_the_newest_first(path):
    meanings = Meanings()
    async with memories(path, embedder=meanings, max_notes=200) as store:
        for number in range(70):
            await store.save(f"cat {number} " + "x" * 5000)
        await store.search("feline", 5)
        await store.search("feline", 5)
        assert [len(texts) for texts in meanings.asked] == [1, *[8] * 8, 1, 6]
        assert meanings.asked[1][0].startswith("cat 69")
        assert max(len(text) for texts in meanings.asked for text in texts) == 2000


@pytest.mark.parametrize(
    "answer", [(), ((1.0,), (1.0,)), ((),), ((math.nan, 1.0, 0.0),), ((math.inf, 0.0, 0.0),), ((0.0, 0.0, 0.0),)]
)
async def test_an_answer_that_is_none_leaves_the_words(path, answer):
    meanings = Meanings()
    async with memories(path, embedder=meanings) as store:
        await store.save("the cat sleeps")
        meanings.answer = answer
        assert await contents(store, "cat") == ["the cat sleeps"]
        assert await contents(store, "feline") == []


async def test_a_model_that_fails_leaves_the_words_and_is_not_asked_again_for_a_minute(path):
    meanings, now = Meanings(), 1000.0
    meanings.fault = broken()
    async with memories(path, embedder=meanings, clock=lambda: now) as store:
        await store.save("the cat sleeps")
        assert await contents(store, "cat") == ["the cat sleeps"]
        assert store.method == "words only (fake:ideas failed)"
        meanings.fault = None
        now += 59
        assert await contents(store, "feline") == []
        assert len(meanings.asked) == 1
        now += 1
        assert await contents(store, "feline") == ["the cat sleeps"]
        assert store.method == "words and meaning (fake:ideas)"


async def test_a_note_the_model_refuses_does_not_stop_the_search_by_meaning(path):
    meanings, now = Picky(), 1000.0
    async with memories(path, embedder=meanings, clock=lambda: now) as store:
        await store.save("the cat sleeps")
        await store.search("feline", 5)
        await store.save("a note that is refused")
        for _ in range(3):
            assert await contents(store, "feline") == ["the cat sleeps"]
        assert [len(texts) for texts in meanings.asked] == [1, 1, 1, 1, 1, 1]  # the note once, not each time
        now += 60
        await store.search("feline", 5)
        assert len(meanings.asked) == 8


async def test_a_model_that_hangs_leaves_the_words(path):
    async with memories(path, embedder=Hanging(), seconds=0.01) as store:
        await store.save("the cat sleeps")
        assert await contents(store, "cat") == ["the cat sleeps"]


async def test_notes_that_were_placed_before_the_model_hung_count_and_stay(path):
    meanings = Hanging(after=2)
    async with memories(path, embedder=meanings, seconds=0.2) as store:
        for number in range(12):
            await store.save(f"cat {number}")
        assert len(await contents(store, "feline", 50)) == 8
    async with memories(path, embedder=Meanings()) as store:
        assert len(await contents(store, "feline", 50)) == 12


async def test_a_model_that_changed_under_its_name_is_not_compared(path):
    async with memories(path, embedder=Meanings()) as store:
        await store.save("the cat sleeps")
        await store.search("feline", 5)
    async with memories(path, embedder=Meanings(dimensions=2)) as store:
        assert await contents(store, "feline") == []
        assert await contents(store, "cat") == ["the cat sleeps"]


async def test_vectors_go_with_their_note(path):
    async with memories(path, embedder=Meanings(), max_notes=2) as store:
        for number in range(4):
            await store.save(f"cat {number}")
            await store.search("feline", 5)
    with closing(others(path)) as connection:
        assert connection.execute("SELECT count(*) FROM memory_vectors").fetchone() == (2,)


# --------------------------------------------------------------------------------- several at once


async def test_two_processes_save_at_once_and_lose_nothing(path):
    async def write(prefix: str) -> None:
        command = [sys.executable, "-m", "tests.unit.store.memory_writer", "write", str(path), prefix, "15"]
        await anyio.run_process(command, stderr=subprocess.PIPE)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write, "one")
        tasks.start_soon(write, "two")
    assert len(notes(str(path))) == 30
    assert indexed(str(path)) == notes(str(path))
    assert integrity(path) == "ok"


async def test_a_writer_that_is_killed_leaves_all_or_nothing(path):
    command = [sys.executable, "-m", "tests.unit.store.memory_writer", "kills", str(path), "6"]
    told = (await anyio.run_process(command, stderr=subprocess.PIPE)).stdout.split()
    assert int(told[-1]) > 6


async def test_a_cancelled_save_keeps_all_or_nothing(path):
    async with memories(path) as store:
        for milliseconds in range(8):
            with anyio.move_on_after(milliseconds / 1000):
                await store.save(f"note {milliseconds}")
        await store.save("last")
    assert indexed(str(path)) == notes(str(path))


async def test_a_search_goes_on_while_somebody_else_writes(path):
    async with memories(path) as store:
        await store.save("kept")
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await contents(store, "kept") == ["kept"]


# ------------------------------------------------------------------------------ against a simple list


@settings(max_examples=settings.default.max_examples // 3)  # each syncs a disk a dozen times
@given(st.lists(st.sampled_from(["a", "b", "c", "d", "e f", "e  f"]), max_size=12), st.integers(1, 4))
def test_any_row_of_saves_keeps_what_a_list_keeps(tmp_path_factory, saves, room):
    async def run() -> None:
        model: list[str] = []
        async with memories(tmp_path_factory.mktemp("model") / "agent.db", max_notes=room) as store:
            for text in saves:
                same = " ".join(text.split())
                known = next((each for each in model if " ".join(each.split()) == same), None)
                note, new = await store.save(text)
                assert (note.content, new) == (known or text, known is None)
                model = [*(each for each in model if each != known), known or text][-room:]
            assert await contents(store, "") == model[::-1]
            for text in "abcd":
                assert await contents(store, text) == [each for each in model if each == text]

    anyio.run(run)


async def test_the_statements_use_the_indexes(path):
    from acp_agent.store import memories as module  # noqa: PLC0415 - its statements

    async with opened(path) as database:
        for statement in (module._NEWEST, module._MAKE_ROOM):
            plan = await database.read(query(f"EXPLAIN QUERY PLAN {statement}", 5))
            assert any("memories_by_recency" in row[3] for row in plan), plan
