"""Packed bodies of any number of members, cut into any chunks, unpacked into any room."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.net.exchange import unpacker_of

PARTS = st.lists(st.binary(max_size=200) | st.integers(0, 5000).map(bytes), min_size=1, max_size=6)


@given(parts=PARTS, padding=st.integers(0, 5), size=st.integers(1, 300))
def test_members_are_one_text_however_they_are_cut(parts: list[bytes], padding: int, size: int) -> None:
    packed = b"".join(gzip.compress(part, mtime=0) + bytes(padding) for part in parts)
    unpacker = unpacker_of("gzip")
    assert unpacker
    unpacked = b"".join(unpacker.unpack(packed[at : at + size], 100_000) for at in range(0, len(packed), size))
    assert unpacked == b"".join(parts)
    assert (unpacker.complete, unpacker.ended) == (True, False)


@given(parts=PARTS, room=st.integers(1, 6000))
def test_never_more_than_the_room_is_unpacked(parts: list[bytes], room: int) -> None:
    unpacker = unpacker_of("gzip")
    assert unpacker
    packed = b"".join(gzip.compress(part, mtime=0) for part in parts)
    assert unpacker.unpack(packed, room) == b"".join(parts)[:room]


@pytest.mark.parametrize("behind", [zlib.compress(b"more"), b"junk", b"\0"])
def test_deflate_ends_once(behind: bytes) -> None:
    unpacker = unpacker_of("deflate")
    assert unpacker
    assert unpacker.unpack(zlib.compress(b"text") + behind, 100) == b"text"
    assert (unpacker.complete, unpacker.ended) == (True, True)
