"""What was packed for the way, unpacked a bounded piece at a time (T5.17)."""

import zlib
from typing import Final

_MAGIC: Final = b"\x1f\x8b"
"""What every member of a gzip file begins with (RFC 1952, 2.3.1)."""


class WrongPackingError(ValueError):
    """A content-encoding that was not asked for, or a body that is not what it says."""


def unpacker_of(encoding: str) -> "Unpacker | None":
    """The unpacker for a Content-Encoding header; None for what is not packed. Raises WrongPackingError."""
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return Unpacker(gzip=True)
        case "deflate":
            return Unpacker(gzip=False)
        case _:
            raise WrongPackingError(encoding)


class Unpacker:
    """gzip of any number of members, zlib, or bare deflate.

    ended     what may still come means nothing
    complete  it may end here: before the beginning, or after an end
    """

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16) if gzip else None
        self._held = b""  # too little to tell what it begins
        self.ended = False
        self.complete = True

    def unpack(self, chunk: bytes, room: int) -> bytes:
        """What a chunk unpacks to: `room` bytes of it at most, one or more. Raises WrongPackingError."""
        unpacked = bytearray()
        packed, self._held = self._held + chunk, b""
        while packed and not self.ended and len(unpacked) < room:  # to zlib, no room would mean no limit
            if self._inflate is None:
                packed = self._begun(packed)
                continue
            self.complete = False
            try:
                unpacked += self._inflate.decompress(packed, room - len(unpacked))
            except zlib.error:
                raise WrongPackingError from None
            packed = b""
            if self._inflate.eof:
                packed = self._inflate.unused_data
                self._inflate, self.complete, self.ended = None, True, not self._gzip
        return bytes(unpacked)

    def _begun(self, packed: bytes) -> bytes:
        """Begin a member, or deflate; gives what is to be unpacked now: nothing, where nothing begins."""
        if self._gzip:
            packed = packed.lstrip(b"\0")  # padding
        if len(packed) < 2:
            self._held, self.complete = packed, self._gzip
            return b""
        if not self._gzip:
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS if _is_zlib(packed) else -zlib.MAX_WBITS)
        elif packed.startswith(_MAGIC):
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        else:
            self.ended = True
        return b"" if self.ended else packed


def _is_zlib(start: bytes) -> bool:
    """Whether it has zlib's header, as "deflate" should; some servers leave it out (RFC 9110, 8.4.1.2)."""
    return start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0
