"""Pictures told by their bytes, from the header to the end."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.tools.read import picture_of
from tests.rows import each_row

MAGIC = b"\x89PNG\r\n\x1a\n"


def chunk(kind, data=b""):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width=10, height=20):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return MAGIC + header + chunk(b"IDAT", zlib.compress(b"\0" * height * (width + 1))) + chunk(b"IEND")


def riff(body):
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


PNG = png()
FRAME = b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 20, 10) + b"\x03" + b"\x01\x11\0" * 3
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab" + FRAME + b"\xff\xda\x00\x08\x01\x01\0\0\x3f\0" + b"scan\xff\0" + b"\xff\xd9"
GIF = b"GIF89a" + struct.pack("<HH", 10, 20) + b"\0\0\0" + b"," + b"\0" * 9 + b"\x02\x01\x44\0" + b";"
WEBP = riff(
    b"VP8X" + struct.pack("<I", 10) + b"\0" * 4 + b"\x09\0\0\x13\0\0" + b"VP8L" + struct.pack("<I", 4) + b"...."
)


@pytest.mark.parametrize(
    ("data", "mime_type"), [(PNG, "image/png"), (GIF, "image/gif"), (JPEG, "image/jpeg"), (WEBP, "image/webp")]
)
def test_type_and_size_are_read_from_the_header(data, mime_type):
    picture = picture_of(data)
    assert picture is not None
    assert (picture.mime_type, picture.width, picture.height, picture.trouble) == (mime_type, 10, 20, "")


@pytest.mark.parametrize("data", [PNG, GIF, JPEG, WEBP])
def test_a_picture_that_is_cut_anywhere_is_damaged(data):
    for end in range(12, len(data)):
        picture = picture_of(data[:end])
        assert picture is not None
        assert picture.trouble == "damaged", end


@pytest.mark.parametrize("data", [PNG, GIF, JPEG, WEBP])
def test_a_header_before_garbage_is_damaged(data):
    picture = picture_of(data[:34] + b"\x5a" * 500)
    assert picture is not None
    assert picture.trouble == "damaged"


@each_row(
    "data",
    [
        b"\xff\xd8\xff\xc0\x00\x11\x08\x00\x14\x00\x0a",  # 11 bytes, all header
        b"\xff\xd8" + FRAME + b"\xff\xd9",  # no scan
        MAGIC + PNG[8:33] + chunk(b"IEND"),  # no image data
        MAGIC + chunk(b"tEXt", b"x") + PNG[8:],  # not begun with its header
        PNG.replace(b"IDAT", b"IDAS"),  # a checksum that is wrong
        GIF.replace(b",", b"!"),  # no image
        riff(b"VP8X" + struct.pack("<I", 10) + b"\0" * 4 + b"\x09\0\0\x13\0\0"),  # nothing behind the header
    ],
)
def test_a_picture_without_a_picture_is_damaged(data):
    picture = picture_of(data)
    assert picture is not None
    assert picture.trouble == "damaged"


@pytest.mark.parametrize("data", [PNG, GIF, JPEG, WEBP])
def test_a_few_bytes_behind_the_end_do_no_harm(data):
    picture = picture_of(data + b"\0\0")
    assert picture is not None
    assert picture.trouble == ""


def test_many_tiny_parts_are_not_followed_without_end():
    picture = picture_of(PNG[:33] + chunk(b"IDAT") * 200_000 + chunk(b"IEND"))
    assert picture is not None
    assert picture.trouble == "damaged"


def test_a_wide_picture_is_too_large():
    wide = picture_of(png(8001, 1))
    assert wide is not None
    assert wide.trouble == "too large"


@given(st.sampled_from([b"", PNG[:33], b"\xff\xd8\xff", FRAME, b"GIF87a", b"RIFF1234WEBP"]), st.binary(max_size=60))
def test_no_bytes_are_a_crash(start, rest):
    picture = picture_of(start + rest)
    assert picture is None or picture.mime_type
