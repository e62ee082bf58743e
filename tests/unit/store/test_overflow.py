"""What was too long to show: kept whole, for one conversation, for a while."""

import random
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.services import Overflow
from acp_agent.store.conversations import OverflowStore
from tests.sizes import sized
from tests.unit.store.databases import MIB, integrity, opened, others, overflows, query
from tests.unit.store.overflow_writer import CONVERSATION, kept, text_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data" / "agent.db"


@pytest.mark.parametrize(
    "text",
    ["", "plain\n", "é漢😀\r\n", "a\0b\x1b[0m\0", "half \ud800 of a pair \udc80", "\ufeffbom\u2028\x85"],
)
async def test_a_text_comes_back_as_it_was(path, text):
    async with overflows(path) as store:
        reference = await store.of("a").put(text)
        assert await store.of("a").get(reference) == text
    async with overflows(path) as store:
        assert await store.of("a").get(reference) == text


async def test_ten_megabytes_come_back_as_they_were(path):
    text = "".join(f"{number} building é\n" for number in range(500_000))[: 10 * MIB - 600_000]
    async with overflows(path) as store:
        overflow: Overflow = store.of("a")
        assert await overflow.get(await overflow.put(text)) == text


async def test_a_reference_is_taken_with_or_without_its_prefix_in_any_case(path):
    async with overflows(path) as store:
        overflow = store.of("a")
        reference = await overflow.put("text")
        prefix, _, key = reference.partition(":")
        assert prefix == "overflow"
        assert uuid.UUID(key).version == 4
        assert str(uuid.UUID(key)) == key
        for form in (reference, key, key.upper(), reference.upper(), f"Overflow:{key}", f" {reference}\n"):
            assert await overflow.get(form) == "text"


@pytest.mark.parametrize(
    "reference",
    [
        *("", "overflow:", "x", "overflow:overflow:{key}", "{key}0", "{key} {key}", "{bare}", "{{{key}}}", "%{key}"),
        *("urn:uuid:{key}", "{key}\0", "{key}' OR '1'='1", "' OR 1=1 --", "*", "%", "../{key}", "overflow: {key}"),
        *("٠٠٠٠٠٠٠٠-0000-4000-8000-000000000000", "0000000_-0000-4000-8000-000000000000", "\ud800"),
        *("{short}", "-{key}", "other:{key}", "a" * 100_000),
    ],
)
async def test_what_is_no_uuid_is_said_to_be_none(path, reference):
    async with overflows(path) as store:
        key = (await store.of("a").put("text")).removeprefix("overflow:")
        wrong = reference.replace("{key}", key).replace("{bare}", key.replace("-", "")).replace("{short}", key[:-1])
        with pytest.raises(ValueError, match=r"^id must be a valid UUID$"):
            await store.of("a").get(wrong)


async def test_thousands_of_foreign_or_malformed_ids_hit_nothing(path):
    chance = random.Random(5)
    async with overflows(path) as store:
        mine = [await store.of("mine").put(f"text {number}") for number in range(40)]
        foreign = [await store.of(name).put("secret") for name in ("", "mine ", "MINE", "min_", "%", "a", "b", "c")]
        overflow, answers = store.of("mine"), set()
        for number in range(sized(2_000, 10_000)):
            match number % 5:
                case 0:
                    reference = chance.choice(foreign)
                case 1:
                    reference = str(uuid.UUID(int=chance.getrandbits(128), version=4))
                case 2:  # one digit from a right one
                    right, at = chance.choice(mine), chance.randrange(9, 45)
                    reference = right[:at] + chance.choice("0123456789abcdef-") + right[at + 1 :]
                    if reference in mine:
                        continue
                case 3:
                    reference = chance.choice(mine)[: chance.randrange(45)] + chance.choice(["", "'", "%", "\0", ";--"])
                case _:
                    reference = "".join(chance.choices("0123456789abcdefABCDEF-:%'\" \0é", k=chance.randrange(60)))
            try:
                answers.add(await overflow.get(reference))
            except ValueError as error:
                answers.add(str(error))
        assert answers == {None, "id must be a valid UUID"}
        assert [await overflow.get(reference) for reference in mine] == [f"text {number}" for number in range(40)]


# ------------------------------------------------------------------------------------------- limits


async def test_a_text_over_the_limit_is_refused_with_both_numbers(path):
    async with overflows(path, max_bytes=10) as store:
        with pytest.raises(StoreUnavailable, match="the output has 12 bytes, more than the 10 that one output may"):
            await store.of("a").put("éééééé")
        assert not path.exists(), "nothing was opened for it"
        await store.of("a").put("ééééé")


async def test_zero_is_no_limit(path):
    async with overflows(path, max_bytes=0, conversation_bytes=0) as store:
        text = "x" * (11 * MIB)
        assert await store.of("a").get(await store.of("a").put(text)) == text


async def test_the_oldest_texts_of_a_conversation_make_room_and_no_others(path):
    async with overflows(path, conversation_bytes=100) as store:
        other = await store.of("b").put("y" * 100)
        references = [await store.of("a").put(f"{number}" * 30) for number in range(5)]
        left = [reference for reference in references if await store.of("a").get(reference) is not None]
        assert left == references[2:]
        whole = await store.of("a").put("z" * 100)
        assert [await store.of("a").get(reference) for reference in left] == [None] * 3
        assert await store.of("a").get(whole) == "z" * 100
        assert await store.of("b").get(other) == "y" * 100
        with pytest.raises(StoreUnavailable, match="101 bytes, more than the 100 that one conversation may keep"):
            await store.of("a").put("z" * 101)
        assert await store.of("a").get(whole) == "z" * 100


async def test_which_is_oldest_does_not_depend_on_the_clock(path):
    times = iter([1000.0, 500.0, 10.0, 2000.0])
    async with overflows(path, conversation_bytes=2, now=lambda: next(times)) as store:
        references = [await store.of("a").put("x") for _ in range(4)]
        assert [await store.of("a").get(reference) for reference in references] == [None, None, "x", "x"]


async def test_the_texts_of_a_conversation_go_with_it(path):
    async with overflows(path) as store:
        mine, other = await store.of("a").put("x"), await store.of("b").put("y")
        await store.database.write(query("DELETE FROM conversations WHERE id = 'a'"))
        assert await store.of("a").get(mine) is None
        assert await store.of("b").get(other) == "y"
        assert await store.database.read(query("SELECT count(*) FROM tool_overflow")) == [(1,)]


async def test_a_text_without_a_conversation_cannot_be(path):
    insert = query("INSERT INTO tool_overflow VALUES (1, 'x', 'nobody', 0, 0, '')")
    async with overflows(path) as store:
        with pytest.raises(StoreUnavailable, match="FOREIGN KEY constraint failed"):
            await store.database.write(insert)


# ------------------------------------------------------------------------------------------ retention

DAY = 86_400.0


async def fill(store: OverflowStore, count: int) -> None:
    """So many texts of a byte, of the first day, in one transaction."""
    rows = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ?) SELECT i, i, 'a', 0, 1, x'78' FROM n"
    )
    await store.database.write(query("INSERT INTO conversations (id, created_at) VALUES ('a', 0)"))
    await store.database.write(query(f"INSERT INTO tool_overflow {rows}", count))


async def test_what_is_older_than_the_retention_goes_and_the_rest_stays(path):
    clock = [0.0]
    async with overflows(path, now=lambda: clock[0]) as store:
        references = []
        for day in range(10):
            clock[0] = day * DAY
            references.append(await store.of("a").put(f"{day}"))
        clock[0] = 10 * DAY
        assert await store.purge(7) == 3
        assert await store.purge(7) == 0
        assert [await store.of("a").get(reference) for reference in references] == [*[None] * 3, *"3456789"]


async def test_a_purge_is_done_in_batches_of_rows_and_of_bytes(path):
    clock = [0.0]
    async with overflows(path, now=lambda: clock[0]) as store:
        await fill(store, 450)
        big = [await store.of("b").put("x" * (6 * MIB)) for _ in range(4)]
        clock[0] = 100 * DAY
        changes: list[int] = []
        with closing(others(path)) as other, anyio.move_on_after(20):
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    while True:
                        (left,) = other.execute("SELECT count(*) FROM tool_overflow").fetchone()
                        if not changes or changes[-1] != left:
                            changes.append(left)
                        await anyio.sleep(0.001)

                tasks.start_soon(watch)
                assert await store.purge(7) == 454
                tasks.cancel_scope.cancel()
        steps = {before - after for before, after in zip([454, *changes], changes, strict=False)}
        assert max(steps) <= 200
        assert await store.of("b").get(big[0]) is None
    assert path.stat().st_size < MIB, "the space went back to the disk"


async def test_others_write_while_a_purge_goes_on(path):
    clock = [0.0]
    async with overflows(path, now=lambda: clock[0]) as store:
        await fill(store, 1000)
        clock[0] = 100 * DAY
        written: list[str] = []
        async with anyio.create_task_group() as tasks, opened(path) as other:
            ended = anyio.Event()

            async def purge() -> None:
                assert await store.purge(7) == 1000
                ended.set()

            tasks.start_soon(purge)
            while not ended.is_set():
                await other.write(query("INSERT INTO conversations (id, created_at) VALUES (?, 0)", f"{len(written)}"))
                written.append("")
        assert len(written) >= 5, "once between any two batches at least"


# ------------------------------------------------------------------------------------ several at once


async def test_two_processes_write_and_lose_nothing(path):
    command = [sys.executable, "-m", "tests.unit.store.overflow_writer", "write", str(path), "40"]
    outputs: list[bytes] = []

    async def write() -> None:
        outputs.append((await anyio.run_process(command, stderr=subprocess.PIPE)).stdout)

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(write)
    told = [line.split() for output in outputs for line in output.decode().splitlines()]
    assert len({reference for reference, _ in told}) == 80
    there = kept(str(path))
    assert {reference: text_of(int(seed)).encode() for reference, seed in told} == there
    async with overflows(path) as store:
        for reference, seed in told:
            assert await store.of(CONVERSATION).get(reference) == text_of(int(seed))
    assert integrity(path) == "ok"


async def test_a_cancelled_put_keeps_all_or_nothing(path):
    async with overflows(path) as store:
        overflow = store.of("a")
        for milliseconds in range(12):
            with anyio.move_on_after(milliseconds / 1000):
                await overflow.put("x" * 2 * MIB)
        await overflow.put("last")
        sizes = await store.database.read(query("SELECT DISTINCT length(content) FROM tool_overflow"))
        assert {size for (size,) in sizes} <= {4, 2 * MIB}
    assert integrity(path) == "ok"


async def test_no_text_is_kept_while_somebody_else_locks_the_database(path):
    async with opened(path, patience=0.1) as database, overflows(path) as store:
        overflow = store.of("a")
        first = await overflow.put("first")
        with closing(others(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            store.database = database
            with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
                await overflow.put("second")
            assert await overflow.get(first) == "first"


# --------------------------------------------------------------------------------- against a dictionary

NAMES = st.sampled_from(["a", "b", "é"])
ACTIONS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.text(max_size=20)),
    st.tuples(st.just("get"), NAMES, st.integers(0, 30)),
    st.tuples(st.just("delete"), NAMES, st.none()),
    st.tuples(st.just("purge"), NAMES, st.integers(0, 5)),
    st.tuples(st.just("wait"), NAMES, st.integers(0, 3)),
    st.tuples(st.just("reopen"), NAMES, st.none()),
)
CAP = 60


class Model:
    """What a conversation should keep: reference -> (day, text), oldest first."""

    def __init__(self) -> None:
        self.day = 0
        self.kept: dict[str, dict[str, tuple[int, str]]] = {}

    def put(self, name: str, reference: str, text: str) -> None:
        texts = self.kept.setdefault(name, {})
        while sum(len(kept.encode()) for _, kept in texts.values()) + len(text.encode()) > CAP:
            del texts[next(iter(texts))]
        texts[reference] = (self.day, text)

    def purge(self, days: int) -> int:
        old = [(name, reference) for name, texts in self.kept.items() for reference in texts]
        old = [(name, reference) for name, reference in old if self.kept[name][reference][0] < self.day - days]
        for name, reference in old:
            del self.kept[name][reference]
        return len(old)


async def compare(path: Path, actions: list[tuple]) -> None:
    model, references = Model(), list[str]()
    made = partial(overflows, path, max_bytes=50, conversation_bytes=CAP, now=lambda: (1000 + model.day) * DAY)
    stack = made()
    store = await stack.__aenter__()
    try:
        for action, name, value in actions:
            match action:
                case "put" if len(value.encode()) > 50:
                    with pytest.raises(StoreUnavailable):
                        await store.of(name).put(value)
                case "put":
                    references.append(await store.of(name).put(value))
                    model.put(name, references[-1], value)
                case "get" if references:
                    reference = references[value % len(references)]
                    expected = model.kept.get(name, {}).get(reference, (0, None))[1]
                    assert await store.of(name).get(reference) == expected
                case "delete":
                    await store.database.write(query("DELETE FROM conversations WHERE id = ?", name))
                    model.kept.pop(name, None)
                case "purge":
                    assert await store.purge(value) == model.purge(value)
                case "wait":
                    model.day += value
                case "reopen":
                    await stack.__aexit__(None, None, None)
                    stack = made()
                    store = await stack.__aenter__()
                case _:
                    pass
    finally:
        await stack.__aexit__(None, None, None)
    expected = {reference: text for texts in model.kept.values() for reference, (_, text) in texts.items()}
    if path.exists():
        assert {reference: content.decode() for reference, content in kept(str(path)).items()} == expected


@settings(max_examples=settings.default.max_examples // 3)  # each syncs a disk dozens of times
@given(actions=st.lists(ACTIONS, max_size=20))
def test_any_row_of_actions_keeps_what_a_dictionary_keeps(tmp_path_factory, actions):
    anyio.run(compare, tmp_path_factory.mktemp("model") / "agent.db", actions)


def test_the_statements_use_the_indexes():
    from acp_agent.store import conversations  # noqa: PLC0415 - its statements
    from acp_agent.store.schema import migrate  # noqa: PLC0415

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        for statement, values in ((conversations._DROP_OLDEST_OUTPUTS, ("a", 1)), (conversations._PURGE, (1, 2, 3))):
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
            assert any("USING COVERING INDEX" in step for step in plan), plan
            assert not any(step.startswith("SCAN tool_overflow") for step in plan), plan
