"""An answer's body: bounded before and after unpacking, and a text (T5.6, T5.17)."""

import codecs
import re
import zlib
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Final, Self

from acp_agent.core.errors import ToolError, ToolErrorCategory

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


_CHARSETS: Final = frozenset(
    # By Python's names, and no others: Python also knows codecs that take for ever or are not about text.
    (
        *("utf-8", "utf-16-be", "utf-16-le", "koi8-r", "koi8-u", "mac-roman", "tis-620"),
        *(f"iso8859-{number}" for number in range(2, 17)),
        *(f"cp{number}" for number in (866, 874, 932, 949, 950, *range(1250, 1259))),
        *("gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr"),
    )
)
_MEANT: Final = {"utf-16": "utf-16-le", "iso8859-1": "cp1252"}
"""What browsers take two names for (WHATWG Encoding, 4.2): pages in "Latin 1" have Windows' quotation marks."""
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_STRAY: Final = 100
"""One bad character in more than so many is a slip, and the rest worth reading."""


class NoTextError(ValueError):
    """Bytes that are no text; the message says why, as what follows a subject: "is binary"."""


def decoded(data: bytes, charset: str, *, cut: bool) -> str:
    """Bytes by their byte order mark, else by the charset if it is one of the web's, else as UTF-8.

    A stray byte becomes U+FFFD. Of a `cut` text, the character it was cut in is left out. Raises NoTextError when
    too much is no character, or it holds a zero byte's.
    """
    mark, name = next((known for known in _MARKS if data.startswith(known[0])), (b"", ""))
    name = name or _codec(charset)
    decoder = codecs.getincrementaldecoder(name)
    try:
        text = decoder().decode(data[len(mark) :], final=not cut)
    except UnicodeDecodeError as error:
        text = decoder("replace").decode(data[len(mark) :], final=not cut)
        if text.count("\ufffd") * _STRAY >= len(text):
            raise NoTextError(f"is not valid {name.upper()} at byte {len(mark) + error.start}") from None
    if "\0" in text:
        raise NoTextError("is binary")
    return text


def _codec(charset: str) -> str:
    """Python's name of a charset of the web; UTF-8 for ASCII, which is part of it, and for everything unknown."""
    try:
        name = codecs.lookup(charset[:40]).name if charset.isascii() else ""
    except (LookupError, ValueError):
        return "utf-8"
    name = _MEANT.get(name, name)
    return name if name in _CHARSETS else "utf-8"


_TEXT_TYPES: Final = frozenset(
    f"application/{name}"
    for name in (
        *("json", "xml", "xhtml+xml", "javascript", "x-javascript", "ecmascript", "yaml", "x-yaml", "toml", "x-toml"),
        *("ndjson", "x-ndjson", "jsonl", "json5", "graphql", "sql", "x-sh", "x-tex", "x-latex", "xml-dtd"),
    )
)
_TEXT_SUFFIXES: Final = ("+json", "+xml", "+yaml")
_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})

_DECLARED_WITHIN: Final = 1024
"""Bytes of a page in which it must name its character set (HTML, "specifying the document's character encoding")."""
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_META: Final = re.compile(r"""<meta[\s/]((?:[^>"']|"[^"]*"|'[^']*')*)>""")
_ATTRIBUTE: Final = re.compile(r"""([^\s=/"']+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"']+))""")


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

    def charset_of(self, body: bytes) -> str:
        """The character set named for a body: by the header, else by a page of HTML in its own first bytes."""
        if self.charset or self.mime not in _HTML_TYPES:
            return self.charset
        return _declared(body[:_DECLARED_WITHIN].decode("latin-1").lower())


def _declared(start: str) -> str:
    """What the first `<meta charset=...>`, or `<meta http-equiv=content-type ...>` with one, says; else ""."""
    for tag in _META.finditer(_COMMENT.sub("", start)):
        attributes = {name: double or single or bare for name, double, single, bare in _ATTRIBUTE.findall(tag[1])}
        charset = attributes.get("charset", "").strip()
        if attributes.get("http-equiv", "").strip() == "content-type":
            charset = charset or ContentType.read(attributes.get("content", "")).charset
        if charset:
            # What could be read up to here as ASCII is none of these, whatever it says.
            return "utf-8" if charset.startswith("utf-16") else charset
    return ""


class Body:
    """A body as it comes in.

    data       unpacked, and never longer than the limit, whatever is sent
    truncated  whether there was more, which only happens to those who asked for that
    """

    def __init__(self, host: str, encoding: str, limit: int, *, announced: int = 0, truncate: bool = False) -> None:
        """`limit` and `announced`, the Content-Length, are bytes; `truncate` is whether a beginning will do.

        Raises ToolError for a content-encoding that was not asked for, and for a length that is too large.
        """
        self._host = host
        self._limit = limit
        self._announced = announced
        self._truncate = truncate
        try:
            self._unpacker = unpacker_of(encoding)
        except WrongPackingError:
            raise self._wrongly_packed() from None
        self._received = 0
        self.data = bytearray()
        self.truncated = False
        if announced > limit and not truncate:
            raise self._too_large()

    async def read(self, chunks: AsyncIterable[bytes]) -> None:
        """Take it in, up to the limit. Raises ToolError when it is too large, or packed otherwise than it says."""
        async for chunk in chunks:
            self._take(chunk)
            if self._is_over():
                del self.data[self._limit :]
                if not self._truncate:
                    raise self._too_large()
                self.truncated = True
                return
            if self._unpacker and self._unpacker.ended:
                return
        if self._unpacker and not self._unpacker.complete:
            raise self._wrongly_packed()

    def _take(self, chunk: bytes) -> None:
        # One byte more than may be is enough to know: a bomb is never unpacked.
        room = self._limit + 1 - len(self.data)
        try:
            self.data += self._unpacker.unpack(chunk, room) if self._unpacker else chunk[:room]
        except WrongPackingError:
            raise self._wrongly_packed() from None
        self._received += len(chunk)

    def text(self, content_type: ContentType) -> str:
        """The body as text, by the charset its header or the page names. Raises ToolError when it is none."""
        try:
            data = bytes(self.data)
            return decoded(data, content_type.charset_of(data), cut=self.truncated)
        except NoTextError as error:
            message = f"the page of {self._host} {error}, so it is no text to read"
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, message) from None

    def _is_over(self) -> bool:
        """Whether there is more than the limit: of what was packed too, or it could go on for ever as nothing."""
        if len(self.data) == self._limit < self._announced:
            return True  # no need to wait for it
        return max(len(self.data), self._received) > self._limit

    def _too_large(self) -> ToolError:
        message = f"the page of {self._host} is larger than {self._limit} bytes, and nothing of it was kept"
        return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, "Ask for a smaller page, or a part of it.")

    def _wrongly_packed(self) -> ToolError:
        message = f"{self._host} sent a page with a wrong content-encoding"
        return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)
