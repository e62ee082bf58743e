"""Bytes from a server, cut into messages however the pipe cut them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.mcp.channel import MESSAGE_LIMIT, BrokenServerError, LineSplitter, SseSplitter

CHUNKS = st.lists(st.binary(max_size=20), max_size=20)


def fed(splitter, chunks):
    return [piece for chunk in chunks for piece in splitter.feed(chunk)]


@given(CHUNKS)
def test_lines_are_the_same_under_every_chunking(chunks):
    whole = b"".join(chunks)
    assert fed(LineSplitter(), chunks) == fed(LineSplitter(), [whole]) == whole.split(b"\n")[:-1]


@given(
    st.lists(
        st.sampled_from([b"data: a", b"data:", b"data:b ", b"\n", b"\r\n", b":c\n", b"id: 1\n", b"x"]), max_size=30
    )
)
def test_events_are_the_same_under_every_chunking(chunks):
    whole = b"".join(chunks)
    assert (
        fed(SseSplitter(), chunks)
        == fed(SseSplitter(), [whole])
        == fed(SseSplitter(), [bytes([byte]) for byte in whole])
    )


def test_the_data_lines_of_an_event_are_joined_and_everything_else_is_passed_over():
    said = b": comment\nevent: message\nid: 7\nretry: 0\ndata: {\ndata:  1}\r\n\r\n\n\ndata: two\n\ndata: cut off"
    assert fed(SseSplitter(), [said]) == [b"{\n 1}", b"two"]


def test_a_line_that_never_ends_is_given_up_at_the_limit():
    lines = LineSplitter()
    assert fed(lines, [b"x" * MESSAGE_LIMIT]) == []
    with pytest.raises(BrokenServerError, match="more than 8388608 bytes"):
        fed(lines, [b"x"])


def test_a_line_at_the_limit_passes():
    assert len(fed(LineSplitter(), [b"x" * MESSAGE_LIMIT + b"\n"])[0]) == MESSAGE_LIMIT


def test_an_event_of_many_lines_is_given_up_at_the_limit():
    events = SseSplitter()
    piece = b"data:" + b"x" * (MESSAGE_LIMIT // 4) + b"\n"
    with pytest.raises(BrokenServerError, match="an event of more than"):
        fed(events, [piece] * 5)
