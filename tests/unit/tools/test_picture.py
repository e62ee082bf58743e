"""Pictures told by their first bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.tools.picture import picture_of

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08" + struct.pack(">HH", 20, 10)


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (PNG + struct.pack(">II", 10, 20), ("image/png", 10, 20)),
        (b"GIF89a" + struct.pack("<HH", 10, 20), ("image/gif", 10, 20)),
        (JPEG, ("image/jpeg", 10, 20)),
        (b"RIFF....WEBPVP8X" + b"\0" * 8 + b"\x09\0\0\x13\0\0", ("image/webp", 10, 20)),
    ],
)
def test_type_and_size_are_read_from_the_header(data, facts):
    picture = picture_of(data)
    assert picture is not None
    assert (picture.mime_type, picture.width, picture.height, picture.trouble) == (*facts, "")


def test_a_header_that_is_cut_short_is_a_damaged_picture_and_a_wide_one_too_large():
    cut, wide = picture_of(PNG), picture_of(PNG + struct.pack(">II", 8001, 1))
    assert cut is not None
    assert wide is not None
    assert (cut.trouble, wide.trouble) == ("damaged", "too large")


@given(st.sampled_from([b"", PNG, b"\xff\xd8\xff", b"GIF87a", b"RIFF1234WEBP"]), st.binary(max_size=60))
def test_no_bytes_are_a_crash(start, rest):
    picture = picture_of(start + rest)
    assert picture is not None or not start
