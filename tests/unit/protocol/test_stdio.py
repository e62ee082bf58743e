"""The stream: pipes, files and /dev/null, in pieces of any size."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.protocol import stdio
from acp_agent.protocol.stdio import LineReader, MessageWriter, Overlong
from tests.fakes.passing_time import all_tasks_blocked

pytestmark = pytest.mark.anyio


@pytest.fixture
def fds() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def pipe(fds: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        fds.callback(close, end)
    return ends


def close(fd: int) -> None:
    with suppress(OSError):  # a test may have closed it
        os.close(fd)


async def collect(fd: int, unread: bytes = b"") -> list[bytes | Overlong]:
    with anyio.fail_after(10):
        return [line async for line in LineReader(fd, unread).lines()]


async def test_lines_come_whole_however_they_were_written(fds: ExitStack) -> None:
    read, write = pipe(fds)
    lines: list[bytes | Overlong] = []

    async def consume() -> None:
        lines.extend(await collect(read))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        for piece in (b"on", b"e\ntw", b"o\n\nthr", b"ee\nunterminated"):
            os.write(write, piece)
            await anyio.lowlevel.checkpoint()
        os.close(write)
    assert lines == [b"one", b"two", b"", b"three", b"unterminated"]


async def test_what_boot_did_not_look_at_comes_first(fds: ExitStack) -> None:
    read, write = pipe(fds)
    os.write(write, b"lf\nsecond\n")
    os.close(write)
    assert await collect(read, unread=b"zero\nha") == [b"zero", b"half", b"second"]


async def test_a_regular_file_can_be_the_stream(tmp_path: Path, fds: ExitStack) -> None:
    source = tmp_path / "input"
    source.write_bytes(b"a\nb\n")
    fd = os.open(source, os.O_RDONLY)
    fds.callback(close, fd)
    assert await collect(fd) == [b"a", b"b"]


async def test_dev_null_ends_at_once(fds: ExitStack) -> None:
    fd = os.open(os.devnull, os.O_RDWR)
    fds.callback(close, fd)
    assert await collect(fd) == []


async def test_a_line_over_the_limit_is_drained_and_the_next_one_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fds: ExitStack
) -> None:
    monkeypatch.setattr(stdio, "LINE_LIMIT", 1000)
    source = tmp_path / "input"
    source.write_bytes(b"x" * 1000 + b"\n" + b"y" * 1_000_000 + b"\nnext\n" + b"z" * 1001)
    fd = os.open(source, os.O_RDONLY)
    fds.callback(close, fd)
    long, too_long, following, unterminated = await collect(fd)
    assert long == b"x" * 1000
    assert isinstance(too_long, Overlong)
    assert following == b"next"
    assert isinstance(unterminated, Overlong)


@given(st.lists(st.binary(max_size=20), max_size=20), st.lists(st.integers(1, 30), max_size=30))
async def test_any_split_of_the_bytes_gives_the_same_lines(lines: list[bytes], sizes: list[int]) -> None:
    whole = [line.replace(b"\n", b"") for line in lines]
    data = b"".join(line + b"\n" for line in whole)
    read, write = os.pipe()
    try:
        reader = LineReader(read)
        got: list[bytes | Overlong] = []

        async def consume() -> None:
            async for line in reader.lines():
                got.append(line)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            for size in sizes:
                os.write(write, data[:size])
                data = data[size:]
                await anyio.lowlevel.checkpoint()
            os.write(write, data)
            os.close(write)
    finally:
        os.close(read)
    assert got == whole


async def test_messages_arrive_in_order_and_whole_past_a_full_pipe(fds: ExitStack) -> None:
    read, write = pipe(fds)
    writer = MessageWriter(write)
    messages = [{"n": n, "pad": "x" * 5000} for n in range(200)]  # 1 MB through a 64 KiB pipe
    received: list[bytes | Overlong] = []

    async def consume() -> None:
        async for line in LineReader(read).lines():
            received.append(line)
            if len(received) == len(messages):
                return

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            for message in messages:
                writer.post(message)  # nobody reads yet, and posting does not block
            tasks.start_soon(consume)
            await writer.flush()
            while len(received) < len(messages):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert [json.loads(line) for line in received if isinstance(line, bytes)] == messages


async def test_messages_that_can_wait_are_written_together_and_keep_their_place(fds: ExitStack) -> None:
    read, write = pipe(fds)
    writer = MessageWriter(write)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            await all_tasks_blocked()
            for n in range(100):
                writer.post({"n": n}, at_once=False)
            await anyio.wait_readable(read)
            first = os.read(read, 65_536)
            for n in range(100, 103):
                writer.post({"n": n}, at_once=n == 101)
            second = os.read(read, 65_536)
            await writer.flush()
            third = os.read(read, 65_536)
            tasks.cancel_scope.cancel()
    written = [[json.loads(line)["n"] for line in data.splitlines()] for data in (first, second, third)]
    assert written == [[*range(100)], [100, 101], [102]]


async def test_a_reader_that_falls_behind_makes_senders_wait(fds: ExitStack) -> None:
    read, write = pipe(fds)
    writer = MessageWriter(write)
    for _ in range(30):
        writer.post({"pad": "x" * 100_000})
    with anyio.move_on_after(0.05) as waiting:
        await writer.room()
    assert waiting.cancelled_caught
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            tasks.start_soon(collect, read)
            await writer.room()
            tasks.cancel_scope.cancel()


async def test_a_reader_that_is_gone_is_noticed_and_harms_nobody(fds: ExitStack) -> None:
    read, write = pipe(fds)
    os.close(read)
    writer = MessageWriter(write)
    writer.post({"a": 1})
    assert writer.broken
    writer.post({"b": 2})
    with anyio.fail_after(20):
        await writer.run()
        await writer.flush()
        await writer.room()


async def test_whoever_waits_learns_that_the_reader_is_gone(fds: ExitStack) -> None:
    read, write = pipe(fds)
    writer = MessageWriter(write)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            await anyio.lowlevel.checkpoint()
            os.close(read)
            writer.post({"a": 1})


async def test_a_regular_file_can_take_the_answers(tmp_path: Path, fds: ExitStack) -> None:
    target = tmp_path / "output"
    fd = os.open(target, os.O_WRONLY | os.O_CREAT)
    fds.callback(close, fd)
    writer = MessageWriter(fd)
    writer.post({"a": "x" * 100_000})
    assert json.loads(target.read_bytes()) == {"a": "x" * 100_000}


async def test_half_a_surrogate_pair_is_replaced_since_many_readers_refuse_the_whole_line(
    tmp_path: Path, fds: ExitStack
) -> None:
    target = tmp_path / "output"
    fd = os.open(target, os.O_WRONLY | os.O_CREAT)
    fds.callback(close, fd)
    MessageWriter(fd).post({"path": "/n\udcff", "\ud83d": ["\U0001f600", "\\ud800"]})
    assert json.loads(target.read_bytes()) == {"path": "/n?", "?": ["\U0001f600", "\\ud800"]}
