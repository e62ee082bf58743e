"""An answer's body: bounded after unpacking, of a text type, in a known character set (T5.6, T5.17, T5.18)."""

import codecs
import zlib
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Final, Self

from acp_agent.core.errors import ToolError, ToolErrorCategory

_TEXT_TYPES: Final = frozenset(
    f"application/{name}"
    for name in (
        *("json", "xml", "xhtml+xml", "javascript", "x-javascript", "ecmascript", "yaml", "x-yaml", "toml", "x-toml"),
        *("ndjson", "x-ndjson", "jsonl", "json5", "graphql", "sql", "x-sh", "x-tex", "x-latex", "xml-dtd"),
    )
)
_TEXT_SUFFIXES: Final = ("+json", "+xml", "+yaml")

_CHARSETS: Final = frozenset(
    # By Python's names, and no others: Python also knows codecs that take for ever or are not about text.
    (
        *("utf-8", "utf-16", "utf-16-be", "utf-16-le", "koi8-r", "koi8-u", "mac-roman", "tis-620"),
        *(f"iso8859-{number}" for number in range(1, 17)),
        *(f"cp{number}" for number in (866, 874, 932, 949, 950, *range(1250, 1259))),
        *("gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr"),
    )
)
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True, slots=True)
class ContentType:
    """A Content-Type header, in lower case; both empty when there was none."""

    mime: str
    charset: str

    @classmethod
    def read(cls, header: str) -> Self:
        """Never fails: what cannot be understood is empty."""
        mime, *parameters = (part.strip().lower() for part in header.partition(",")[0].split(";"))
        named = (parameter.partition("=") for parameter in parameters)
        charset = next((value.strip(" \"'") for name, _, value in named if name.strip() == "charset"), "")
        return cls(mime, charset)

    @property
    def is_text(self) -> bool:
        """Whether it names a text type, or nothing, which only the body can tell then."""
        known = self.mime.startswith("text/") or self.mime in _TEXT_TYPES or self.mime.endswith(_TEXT_SUFFIXES)
        return known or not self.mime


class Body:
    """A body as it comes in. `data` is unpacked and never longer than the limit, whatever is sent."""

    def __init__(self, host: str, encoding: str, limit: int) -> None:
        """Raises ToolError for a content-encoding that was not asked for."""
        self._host = host
        self._limit = limit
        self._unpacker = _unpacker(host, encoding)
        self.data = bytearray()

    async def read(self, chunks: AsyncIterable[bytes]) -> None:
        """Take it in. Raises ToolError when it is too large, or packed otherwise than it says."""
        async for chunk in chunks:
            # One byte more than may be is enough to know: a bomb is never unpacked.
            room = self._limit + 1 - len(self.data)
            self.data += self._unpacker.unpack(chunk, room) if self._unpacker else chunk[:room]
            if len(self.data) > self._limit:
                del self.data[self._limit :]
                raise too_large(self._host, self._limit)
            if self._unpacker and self._unpacker.ended:
                return  # what follows the end of the packed data means nothing
        if self._unpacker and not self._unpacker.complete:
            raise wrongly_packed(self._host)

    def text(self, charset: str) -> str:
        """The body by its byte order mark, else by the charset if it is one of the web's, else as UTF-8.

        Raises ToolError when it is not that.
        """
        name = next((name for mark, name in _MARKS if self.data.startswith(mark)), None) or _codec(charset)
        try:
            text = self.data.decode(name)
        except UnicodeDecodeError as error:
            raise _no_text(self._host, f"is not valid {name.upper()} at byte {error.start}") from None
        if "\0" in text:
            raise _no_text(self._host, "is binary")
        return text


class _Unpacker:
    """gzip, zlib or bare deflate, at most so many bytes at a time."""

    def __init__(self, host: str, *, gzip: bool) -> None:
        self._host = host
        self._held = b""
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16) if gzip else None
        self._begun = False

    @property
    def ended(self) -> bool:
        return self._inflate is not None and self._inflate.eof

    @property
    def complete(self) -> bool:
        """Whether it may end here: after the end, or before the beginning."""
        return self.ended or not self._begun

    def unpack(self, chunk: bytes, room: int) -> bytes:
        self._begun = self._begun or bool(chunk)
        if self._inflate is None:
            self._held += chunk
            if len(self._held) < 2:
                return b""
            chunk = self._held
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS if _is_zlib(chunk) else -zlib.MAX_WBITS)
        try:
            return self._inflate.decompress(chunk, room)
        except zlib.error:
            raise wrongly_packed(self._host) from None


def _is_zlib(start: bytes) -> bool:
    """Whether it has zlib's header, as "deflate" should; some servers leave it out (RFC 9110, 8.4.1.2)."""
    return start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0


def _unpacker(host: str, encoding: str) -> _Unpacker | None:
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return _Unpacker(host, gzip=True)
        case "deflate":
            return _Unpacker(host, gzip=False)
        case _:
            raise wrongly_packed(host)


def _codec(charset: str) -> str:
    """Python's name of a charset of the web; UTF-8 for ASCII, which is part of it, and for everything unknown."""
    try:
        name = codecs.lookup(charset[:40]).name if charset.isascii() else ""
    except LookupError:
        return "utf-8"
    return name if name in _CHARSETS else "utf-8"


def too_large(host: str, limit: int) -> ToolError:
    """The error for a page over the limit, announced or found out."""
    message = f"the page of {host} is larger than {limit} bytes, and nothing of it was kept"
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, "Ask for a smaller page, or a part of it.")


def wrongly_packed(host: str) -> ToolError:
    """The error for a body that is not what its content-encoding says, or whose encoding was not asked for."""
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{host} sent a page with a wrong content-encoding")


def _no_text(host: str, what: str) -> ToolError:
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"the page of {host} {what}, so it is no text to read")
