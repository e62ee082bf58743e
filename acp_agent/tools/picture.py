"""Pictures that models accept, recognised by their bytes and not by a name: type, size and completeness.

Nothing is decompressed. Only completeness is checked.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_PICTURE: Final = 3_932_160
"""The largest picture in bytes: 5 MiB of base64, the smallest limit of the large model APIs."""
MAX_SIDE: Final = 8000
"""The longest side in pixels, the smallest limit of the large model APIs."""
_MOST_CHUNKS: Final = 20_000
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class Picture(NamedTuple):
    """What the bytes say. Width and height are 0 if the header is invalid or the end is missing.

    An API refuses such a picture, and with it every later request of the conversation.
    """

    mime_type: str
    width: int
    height: int

    @property
    def trouble(self) -> str:
        """Return why a model must not be sent it, "" if it may."""
        if not (self.width and self.height):
            return "damaged"
        return "too large" if max(self.width, self.height) > MAX_SIDE else ""


def picture_of(data: bytes) -> Picture | None:
    """Return the picture, None if the bytes are not a picture that models accept."""
    mime_type = "image/webp" if data.startswith(b"RIFF") and data[8:12] == b"WEBP" else ""
    mime_type = mime_type or next((known for magic, known in _MAGIC if data.startswith(magic)), "")
    if not mime_type:
        return None
    try:
        width, height = _size(data, mime_type) if _is_whole(data, mime_type) else (0, 0)
    except struct.error:
        width, height = 0, 0
    return Picture(mime_type, width, height)


def _size(data: bytes, mime_type: str) -> tuple[int, int]:
    match mime_type:
        case "image/png":
            return struct.unpack_from(">II", data, 16)
        case "image/gif":
            return struct.unpack_from("<HH", data, 6)
        case "image/webp":
            return _webp_size(data)
        case _:
            return _jpeg_size(data)


def _webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            low_width, high_width, low_height, high_height = struct.unpack_from("<HBHB", data, 24)
            return (high_width << 16 | low_width) + 1, (high_height << 16 | low_height) + 1
        case _:
            return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Read the first frame header: SOF0 to SOF15 without the three numbers that mean tables."""
    for kind, at in _jpeg_segments(data):
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
    return 0, 0


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield kind and place of each segment up to the first scan (SOS). Raises struct.error if the data ends before."""
    at = 2
    while True:
        mark, kind, length = struct.unpack_from(">BBH", data, at)
        if mark != 0xFF:
            return
        if kind == 0xFF:  # padding
            at += 1
            continue
        yield kind, at
        if kind == 0xDA:
            return
        at += 2 + length


# ---------------------------------------------------------------------------- from beginning to end


def _is_whole(data: bytes, mime_type: str) -> bool:
    """Return whether a picture has an end and data before it. Raises struct.error if the data ends too soon."""
    match mime_type:
        case "image/png":
            return _png_is_whole(data)
        case "image/gif":
            return b"," in data[13:] and data.rstrip(b"\0").endswith(b";")
        case "image/webp":
            return _webp_is_whole(data)
        case _:
            scan = next((at for kind, at in _jpeg_segments(data) if kind == 0xDA), len(data))
            return data.find(b"\xff\xd9", scan) >= 0


def _png_is_whole(data: bytes) -> bool:
    """Return whether all chunks have the right checksums, with the header first and the end last."""
    at, kinds = 8, set[bytes]()
    for number in range(_MOST_CHUNKS):
        length, kind = struct.unpack_from(">I4s", data, at)
        (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
        if (number == 0) != (kind == b"IHDR") or checksum != zlib.crc32(memoryview(data)[at + 4 : at + 8 + length]):
            return False
        if kind == b"IEND":
            return b"IDAT" in kinds
        kinds.add(kind)
        at += 12 + length
    return False


def _webp_is_whole(data: bytes) -> bool:
    """Return whether the file is as long as it says and contains an image or frames."""
    (size,) = struct.unpack_from("<I", data, 4)
    end, at, kinds = size + 8, 12, set[bytes]()
    for _ in range(_MOST_CHUNKS):
        if at >= end:
            break
        kind, length = struct.unpack_from("<4sI", data, at)
        kinds.add(kind)
        at += 8 + length + length % 2
    return end <= len(data) and end <= at <= end + 1 and bool(kinds & {b"VP8 ", b"VP8L", b"ANMF"})
