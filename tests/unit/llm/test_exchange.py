"""The event splitter: line ends, chunking, and what the standard says about the rest."""

import itertools
from collections.abc import AsyncIterator

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.llm.exchange import EVENT_LIMIT, EventSplitter, EventTooLarge, ServerEvent, server_events
from tests.rows import each_row


def split(*chunks: bytes) -> list[ServerEvent]:
    splitter = EventSplitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)]


def test_data_lines_are_joined_and_the_event_is_named() -> None:
    assert split(b"event: ping\ndata: a\ndata:b\ndata\n\n") == [ServerEvent("ping", "a\nb\n")]


def test_an_unnamed_event_is_a_message_again_after_a_named_one() -> None:
    assert split(b"event: x\ndata: 1\n\ndata: 2\n\n") == [ServerEvent("x", "1"), ServerEvent("message", "2")]


def test_comments_and_unknown_fields_and_events_without_data_are_skipped() -> None:
    assert split(b": hi\n\nid: 7\nretry: 1\nevent: lost\n\nfoo\ndata: 1\n\n") == [ServerEvent("message", "1")]


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert split(b"data:  x\n\n") == [ServerEvent("message", " x")]


def test_a_byte_order_mark_is_dropped() -> None:
    assert split(b"\xef\xbb\xbfdata: 1\n\n") == [ServerEvent("message", "1")]


def test_an_unfinished_event_is_dropped() -> None:
    assert split(b"data: 1\n\ndata: 2\n") == [ServerEvent("message", "1")]


def test_a_crlf_cut_in_the_middle_is_one_line_end() -> None:
    assert split(b"data: 1\r", b"\ndata: 2\r", b"", b"\n\r", b"\n") == [ServerEvent("message", "1\n2")]


@each_row("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_nothing_but_cr_and_lf_ends_a_line(separator: str) -> None:
    assert split(f"data: a{separator}b\n\n".encode()) == [ServerEvent("message", f"a{separator}b")]


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    assert split(b"data: \xff\n\n") == [ServerEvent("message", "\ufffd")]


def test_an_event_without_end_is_refused() -> None:
    megabytes = [b"x" * (1024 * 1024)] * (EVENT_LIMIT // (1024 * 1024) + 1)
    with pytest.raises(EventTooLarge):
        split(*megabytes)


LINES = st.sampled_from(["data: x", 'data: {"a": "naïve 😀\u2028"}', "event: e", ": c", "", "data", "id: 1", "data:y"])


@given(
    lines=st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r", "\r\n"])), max_size=30),
    data=st.data(),
)
def test_the_same_bytes_give_the_same_events_under_every_chunking(
    lines: list[tuple[str, str]], data: st.DataObject
) -> None:
    stream = "".join(line + end for line, end in lines).encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=40)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert split(*pieces) == split(stream)


@pytest.mark.anyio
async def test_events_come_as_their_chunk_comes() -> None:
    second = anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"data: 1\n\nda"
        await second.wait()
        yield b"ta: 2\n\n"

    seen: list[str] = []
    with anyio.fail_after(20):
        async for block in server_events(chunks()):
            seen += [event.data for event in block]
            second.set()
    assert seen == ["1", "2"]


@pytest.mark.anyio
async def test_events_that_only_fill_a_pause_are_left_out() -> None:
    async def arriving() -> AsyncIterator[bytes]:
        yield b"data:\n\nevent: ping\ndata: 12:00\n\ndata: 1\n\ndata: \ndata:\n\n"

    assert [block async for block in server_events(arriving())] == [(ServerEvent("message", "1"),)]
