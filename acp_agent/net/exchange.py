"""Send one request to a checked target and read its answer: a page, or the URL that it redirects to.

The body of the answer is unpacked, decoded to text, and limited in size before and after unpacking. httpcore's errors
are translated here.
"""

import codecs
import re
import ssl
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

import httpcore

from acp_agent import __version__
from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolError
from acp_agent.core.services import BlockReason, WebPage
from acp_agent.net.connection import REDIRECTS, Dial, PinnedBackend, network_errors, status_error
from acp_agent.net.hosts import ResolvedTarget, WebTarget
from acp_agent.net.http1 import WrongPackingError, unpacker_of
from acp_agent.net.urls import redirected

_CHARSETS: Final = frozenset(
    # By Python's names. Other codecs of Python are extremely slow or do not decode text, so they are not listed.
    (
        *("utf-8", "utf-16-be", "utf-16-le", "koi8-r", "koi8-u", "mac-roman", "tis-620"),
        *(f"iso8859-{number}" for number in range(2, 17)),
        *(f"cp{number}" for number in (866, 874, 932, 949, 950, *range(1250, 1259))),
        *("gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr"),
    )
)
_MEANT: Final = {"utf-16": "utf-16-le", "iso8859-1": "cp1252"}
"""Names that browsers read as another encoding (WHATWG Encoding, 4.2): "Latin 1" pages use Windows quotation marks."""
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_STRAY: Final = 100
"""A text is accepted if fewer than one character in this many is malformed."""


class NoTextError(ValueError):
    """Bytes that are not text. The message is the rest of a sentence: "is binary"."""


def decoded(data: bytes, charset: str, *, cut: bool) -> str:
    """Decode bytes by their byte order mark, else in the charset if it is one that the web uses, else as UTF-8.

    A stray malformed byte becomes U+FFFD. If the text is `cut`, its last incomplete character is left out.

    Raises:
        NoTextError: Too many bytes are malformed, or the text contains a zero byte.

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
    """Return Python's name of a charset that the web uses. For ASCII and for unknown charsets, return UTF-8."""
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
"""The first bytes of an HTML page, in which it must declare its character set (HTML, 4.2.5.4)."""
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_META: Final = re.compile(r"""<meta[\s/]((?:[^>"']|"[^"]*"|'[^']*')*)>""")
_ATTRIBUTE: Final = re.compile(r"""([^\s=/"']+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"']+))""")


@frozen
class ContentType:
    """A Content-Type header in lower case. Both members are empty if there was none."""

    mime: str
    charset: str

    @classmethod
    def read(cls, header: str) -> Self:
        """Return the content type of a header. A part that cannot be parsed is empty."""
        mime, *parameters = (part.strip().lower() for part in header.partition(",")[0].split(";"))
        named = (parameter.partition("=") for parameter in parameters)
        charset = next((value.strip(" \"'") for name, _, value in named if name.strip() == "charset"), "")
        return cls(mime, charset)

    @property
    def is_text(self) -> bool:
        """Return whether it names a text type, or no type at all, so that the body must be examined."""
        known = self.mime.startswith("text/") or self.mime in _TEXT_TYPES or self.mime.endswith(_TEXT_SUFFIXES)
        return known or not self.mime

    def charset_of(self, body: bytes) -> str:
        """Return the character set of a body: from the header, or else from the first bytes of an HTML page."""
        if self.charset or self.mime not in _HTML_TYPES:
            return self.charset
        return _declared(body[:_DECLARED_WITHIN].decode("latin-1").lower())


def _declared(start: str) -> str:
    """Return the charset of the first `<meta charset>` or `<meta http-equiv=content-type>` that has one, else ""."""
    for tag in _META.finditer(_COMMENT.sub("", start)):
        attributes = {name: double or single or bare for name, double, single, bare in _ATTRIBUTE.findall(tag[1])}
        charset = attributes.get("charset", "").strip()
        if attributes.get("http-equiv", "").strip() == "content-type":
            charset = charset or ContentType.read(attributes.get("content", "")).charset
        if charset:
            # The declaration could be read as ASCII, so the page is not in UTF-16, whatever it declares.
            return "utf-8" if charset.startswith("utf-16") else charset
    return ""


class Body:
    """A body while it is received.

    data       the unpacked bytes, never more than the limit
    truncated  True if the body was cut at the limit, which only happens if the caller asked for that
    """

    def __init__(self, host: str, encoding: str, limit: int, *, announced: int = 0, truncate: bool = False) -> None:
        """Prepare to receive a body.

        limit      the most bytes, packed and unpacked
        announced  the Content-Length in bytes
        truncate   True if the caller accepts the beginning of a larger body

        Raises:
            ToolError: The content-encoding was not asked for, or the announced length is above the limit.

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
        """Receive the body up to the limit.

        Raises ToolError if it is too large or does not match its content-encoding.
        """
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
        # One byte above the limit is enough to refuse the body, so a zip bomb is never unpacked.
        room = self._limit + 1 - len(self.data)
        try:
            for piece in self._unpacker.unpack(chunk, room) if self._unpacker else (chunk[:room],):
                self.data += piece
                if len(self.data) > self._limit:
                    break
        except WrongPackingError:
            raise self._wrongly_packed() from None
        self._received += len(chunk)

    def text(self, content_type: ContentType) -> str:
        """Return the body as text in the charset of its header or page. Raises ToolError if it is not text."""
        try:
            data = bytes(self.data)
            return decoded(data, content_type.charset_of(data), cut=self.truncated)
        except NoTextError as error:
            raise ToolError.permanent(f"the page of {self._host} {error}, so it cannot be read as text") from None

    def _is_over(self) -> bool:
        """Return whether the body exceeds the limit.

        Packed bytes count too, or an endless body could unpack to nothing.
        """
        if len(self.data) == self._limit < self._announced:
            return True  # the announced length already exceeds it
        return max(len(self.data), self._received) > self._limit

    def _too_large(self) -> ToolError:
        message = f"the page of {self._host} is larger than {self._limit} bytes, so it was discarded"
        return ToolError.permanent(message, "Ask for a smaller page, or a part of it.")

    def _wrongly_packed(self) -> ToolError:
        return ToolError.permanent(f"{self._host} sent a page with a wrong content-encoding")


_HEADERS: Final = (
    # No cookies, no credentials, no referrer; one connection per request.
    (b"User-Agent", f"acp-agent/{__version__}".encode()),
    (b"Accept", b"text/html, application/json, text/*;q=0.9, application/xml;q=0.9, */*;q=0.1"),
    (b"Accept-Encoding", b"gzip, deflate"),
    (b"Connection", b"close"),
)


@dataclass(slots=True)
class Hop:
    """What is known so far of one request. It becomes the request's audit record, even if the request fails."""

    number: int
    url: str
    host: str = ""
    address: str | None = None
    status: int | None = None
    received: int = 0
    blocked: BlockReason | None = None

    def locate(self, url: str, host: str) -> None:
        """Set the URL and host that were checked."""
        self.url, self.host = url, host

    def block(self, reason: BlockReason | None, host: str = "") -> None:
        """Set why the request is not made. `host` is used if no host is set yet."""
        self.host, self.blocked = self.host or host, reason


@frozen
class Redirect:
    """An answer that redirects to a URL. The URL was not checked yet."""

    url: str


PageOrRedirect: TypeAlias = WebPage | Redirect


async def ask(
    judged: ResolvedTarget, hop: Hop, *, dial: Dial, trust: ssl.SSLContext, limit: int, truncate: bool
) -> PageOrRedirect:
    """Send a GET request over a connection of its own and return the answer.

    A body of more than `limit` bytes, packed or not, is cut if `truncate`, else it is an error.

    Raises:
        RequestBlocked: The connection led to another address.
        ToolError: There was no usable answer for another reason.

    """
    target = judged.target
    url = httpcore.URL(scheme=b"https", host=target.host.encode(), port=target.port, target=target.resource)
    headers = [(b"Host", target.authority.encode()), *_HEADERS]
    backend = PinnedBackend(judged, dial)
    try:
        with network_errors(target.host):
            connection = httpcore.AsyncHTTPConnection(url.origin, ssl_context=trust, network_backend=backend)
            async with connection.stream("GET", url, headers=headers) as response:
                backend.head_received()
                hop.status = response.status
                return await _answer(target, response, hop, limit, truncate=truncate)
    finally:
        hop.address = backend.address
        await backend.aclose()


async def _answer(
    target: WebTarget, response: httpcore.Response, hop: Hop, limit: int, *, truncate: bool
) -> PageOrRedirect:
    """Return the page or the redirect in an answer. The body is read only for a page."""
    headers = _joined(response.headers)
    if response.status in REDIRECTS:
        return Redirect(redirected(target.url, _location(target, response.status, headers)))
    if not 200 <= response.status <= 299:
        raise status_error(target.host, response.status, headers.get("retry-after", ""))
    content_type = ContentType.read(headers.get("content-type", ""))
    if not content_type.is_text:
        raise ToolError.permanent(f"the page of {target.host} is {content_type.mime[:80]!r}, and only text can be read")
    # h11 accepts only digits. More than 18 digits are above every limit.
    announced = int(headers.get("content-length", "0")[:18])
    encoding = headers.get("content-encoding", "")
    body = Body(target.host, encoding, limit, announced=announced, truncate=truncate)
    try:
        await body.read(response.aiter_stream())
    finally:
        hop.received = len(body.data)
    return WebPage(target.url, content_type.mime, body.text(content_type), body.truncated)


def _joined(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lower-case name. Repeated headers are joined with a comma (RFC 9110, 5.3)."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        joined[key] = f"{joined[key]}, {text}" if key in joined else text
    return joined


def _location(target: WebTarget, status: int, headers: dict[str, str]) -> str:
    try:
        return headers["location"].encode("latin-1").decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        raise ToolError.permanent(f"{target.host} answered {status}, a redirect, without saying where to") from None
