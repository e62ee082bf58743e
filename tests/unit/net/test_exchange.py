"""Bodies of pages: how they are unpacked and decoded, and what is done with those too long, packed or binary."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from itertools import product

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolError
from acp_agent.net.exchange import Body, ContentType
from acp_agent.net.http1 import unpacker_of
from tests.rows import each_row
from tests.unit.net.tls_site import reply
from tests.unit.net.world import LIMIT, Category, World

pytestmark = pytest.mark.anyio


async def test_headers_that_never_end_are_ended_at_64_kib(world: World) -> None:
    async def headers(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-more: y\r\n" * 1000)
            await writer.drain()

    world.site.replies["/"] = headers
    category, message = await world.category()
    assert (category, message) == (Category.PERMANENT_FAILURE, "example.com sent more than 65536 bytes of headers")


async def test_interim_answers_that_never_end_count_as_headers(world: World) -> None:
    async def continues(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 50)
            await writer.drain()

    world.site.replies["/"] = continues
    _, message = await world.category()
    assert "65536 bytes of headers" in message


async def test_headers_just_under_the_limit_pass(world: World) -> None:
    world.site.replies["/"] = reply(b"x" * 1000, x_long="y" * 60_000)
    assert len((await world.get()).text) == 1000


async def test_a_body_that_never_ends_is_ended_at_the_limit(world: World) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
            await writer.drain()

    world.site.replies["/"] = endless
    category, message = await world.category()
    assert category is Category.PERMANENT_FAILURE
    assert message == f"the page of example.com is larger than {LIMIT} bytes, so it was discarded"
    assert world.records[0].response_bytes == LIMIT
    with anyio.fail_after(20):
        await world.site.hung_up.wait()


async def test_a_length_over_the_limit_is_refused_before_the_body(world: World) -> None:
    async def announce(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % (LIMIT + 1))
        await writer.wait_closed()  # no byte of the body is ever sent

    world.site.replies["/"] = announce
    _, message = await world.category()
    assert f"larger than {LIMIT} bytes" in message
    assert world.records[0].response_bytes == 0


async def test_a_body_of_exactly_the_limit_passes(world: World) -> None:
    world.site.replies["/"] = reply(b"x" * LIMIT)
    assert len((await world.get()).text) == LIMIT


def bomb() -> bytes:
    """16 MiB of zeros in 16 KiB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1 << 20)
    return b"".join(packer.compress(block) for _ in range(16)) + packer.flush()


async def test_a_bomb_is_stopped_at_the_limit(world: World) -> None:
    packed = bomb()
    assert len(packed) < LIMIT  # its length gives nothing away
    world.site.replies["/"] = reply(packed, content_encoding="gzip")
    category, message = await world.category()
    assert category is Category.PERMANENT_FAILURE
    assert f"larger than {LIMIT} bytes" in message
    assert world.records[0].response_bytes == LIMIT


@pytest.mark.parametrize(
    "member", [gzip.compress(b"x" * 100, mtime=0), gzip.compress(b"", mtime=0), b"\0"], ids=["small", "empty", "zero"]
)
async def test_members_that_never_end_are_stopped_at_the_limit(world: World, member: bytes) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-encoding: gzip\r\n\r\n" + GZIP)
        while True:
            writer.write(member * 500)
            await writer.drain()

    world.site.replies["/"] = endless
    _, message = await world.category()
    assert f"larger than {LIMIT} bytes" in message
    assert world.records[0].response_bytes <= LIMIT


@pytest.mark.parametrize("inner", [b"", b"members of nothing, then "], ids=["at once", "in a later member"])
async def test_a_bomb_is_never_unpacked_in_memory(inner: bytes) -> None:
    async def one_chunk() -> AsyncIterator[bytes]:
        yield packed

    packed = gzip.compress(inner, mtime=0) + bomb()
    body = Body("example.com", "gzip", LIMIT)
    tracemalloc.start()
    try:
        with pytest.raises(ToolError, match="larger than"):
            await body.read(one_chunk())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * LIMIT


BODY = b"packed text " * 500
GZIP = gzip.compress(BODY, mtime=0)  # no time, so that test ids stay the same
NOTHING = gzip.compress(b"", mtime=0)
HALVES = tuple(gzip.compress(half, mtime=0) for half in (BODY[:1000], BODY[1000:]))
RAW = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", GZIP),
        ("x-gzip", GZIP),
        ("GZIP", GZIP),
        ("gzip", GZIP + b"\0" * 100),
        ("gzip", GZIP + b"junk"),
        ("gzip", GZIP + b"\x1f"),
        ("gzip", HALVES[0] + HALVES[1]),
        ("gzip", HALVES[0] + b"\0" * 100 + HALVES[1] + NOTHING * 3),
        ("gzip", b"".join(gzip.compress(BODY[at : at + 5], mtime=0) for at in range(0, len(BODY), 5))),
        ("deflate", zlib.compress(BODY) + zlib.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("deflate", RAW.compress(BODY) + RAW.flush()),
        ("identity", BODY),
    ],
    ids=[
        *("gzip", "x-gzip", "upper case", "padding behind", "junk behind", "half a magic behind"),
        *("two members", "members with padding", "many members", "more zlib behind"),
        *("zlib", "bare deflate", "not packed"),
    ],
)
async def test_packed_bodies_are_unpacked_however_they_are_cut(world: World, encoding: str, packed: bytes) -> None:
    async def bit_by_bit(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-encoding: {encoding}\r\n\r\n".encode())
        for at in range(0, len(packed), max(1, len(packed) // 50)):
            writer.write(packed[at : at + max(1, len(packed) // 50)])
            await writer.drain()

    world.site.replies["/"] = bit_by_bit
    assert (await world.get()).text.encode() == BODY


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", b"this is not gzip"),
        ("gzip", GZIP[:-20]),
        ("gzip", GZIP + GZIP[:-20]),
        ("gzip", GZIP + GZIP[:2] + b"junk" * 5),
        ("deflate", b"\xff\xff\xff\xff"),
        ("deflate", b"x"),
        ("br", b"\x0b\x02\x80hello\x03"),
        ("zstd", b"\x28\xb5\x2f\xfd"),
        ("gzip, gzip", gzip.compress(GZIP, mtime=0)),
    ],
    ids=[
        "no gzip",
        "cut",
        "cut in the second",
        "junk in the second",
        "no deflate",
        "one byte",
        "brotli",
        "zstd",
        "twice",
    ],
)
async def test_a_wrong_content_encoding_is_an_error(world: World, encoding: str, packed: bytes) -> None:
    world.site.replies["/"] = reply(packed, content_encoding=encoding)
    category, message = await world.category()
    assert (category, message) == (
        Category.PERMANENT_FAILURE,
        "example.com sent a page with a wrong content-encoding",
    )


async def test_an_empty_body_is_an_empty_text_even_if_packed(world: World) -> None:
    world.site.replies["/"] = reply(b"", content_encoding="gzip")
    world.site.replies["/204"] = b"HTTP/1.1 204 No Content\r\n\r\n"
    assert (await world.get()).text == ""
    assert (await world.get("https://example.com/204")).text == ""


@pytest.mark.parametrize(
    "mime",
    [
        *("text/html", "text/csv", "text/x-made-up", "application/json", "application/ld+json", "application/xml"),
        *("application/atom+xml", "application/xhtml+xml", "application/javascript", "application/yaml"),
        *("application/toml", "image/svg+xml", "application/x-ndjson", "application/ndjson", "application/jsonl"),
        *("application/x-javascript", "application/ecmascript", "application/x-yaml", "application/x-toml"),
        *("application/json5", "application/graphql", "application/sql", "application/x-sh", "application/x-tex"),
        *("application/x-latex", "application/xml-dtd"),
    ],
)
async def test_text_types_are_read(world: World, mime: str) -> None:
    world.site.replies["/"] = reply(b"x", content_type=f"{mime.upper()} ; a=b")
    assert (await world.get()).content_type == mime


@pytest.mark.parametrize(
    "mime", ["image/png", "application/pdf", "application/octet-stream", "video/mp4", "application/zip", "nonsense"]
)
async def test_other_types_are_not_read(world: World, mime: str) -> None:
    world.site.replies["/"] = reply(b"x", content_type=mime)
    category, message = await world.category()
    assert category is Category.PERMANENT_FAILURE
    assert message == f"the page of example.com is {mime!r}, and only text can be read"
    assert world.records[0].response_bytes == 0


async def test_a_page_without_a_type_is_text_when_it_is_text(world: World) -> None:
    world.site.replies["/text"] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ngr\xc3\xbcn"
    world.site.replies["/png"] = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n\x89PNG\r\n\x1a\n"
    world.site.replies["/zeros"] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\0\0\0\0"
    page = await world.get("https://example.com/text")
    assert (page.content_type, page.text) == ("", "grün")
    assert (await world.category("https://example.com/png"))[0] is Category.PERMANENT_FAILURE
    assert "is binary" in (await world.category("https://example.com/zeros"))[1]


PARTS = st.lists(st.binary(max_size=200) | st.integers(0, 5000).map(bytes), min_size=1, max_size=6)


@given(parts=PARTS, padding=st.integers(0, 5), size=st.integers(1, 300))
def test_members_are_one_text_however_they_are_cut(parts: list[bytes], padding: int, size: int) -> None:
    packed = b"".join(gzip.compress(part, mtime=0) + bytes(padding) for part in parts)
    unpacker = unpacker_of("gzip")
    assert unpacker
    pieces = [piece for at in range(0, len(packed), size) for piece in unpacker.unpack(packed[at : at + size], 100_000)]
    assert b"".join(pieces) == b"".join(parts)
    assert (unpacker.complete, unpacker.ended) == (True, False)


@given(parts=PARTS, room=st.integers(1, 6000))
def test_never_more_than_the_room_is_unpacked_at_a_time(parts: list[bytes], room: int) -> None:
    unpacker = unpacker_of("gzip")
    assert unpacker
    packed = b"".join(gzip.compress(part, mtime=0) for part in parts)
    pieces = list(unpacker.unpack(packed, room))
    assert b"".join(pieces) == b"".join(parts)
    assert max(map(len, pieces), default=0) <= room


@pytest.mark.parametrize("behind", [zlib.compress(b"more"), b"junk", b"\0"])
def test_deflate_ends_once(behind: bytes) -> None:
    unpacker = unpacker_of("deflate")
    assert unpacker
    assert b"".join(unpacker.unpack(zlib.compress(b"text") + behind, 100)) == b"text"
    assert (unpacker.complete, unpacker.ended) == (True, True)


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("utf-8", "grün €".encode(), "grün €"),
        ('"UTF-8"', "grün".encode(), "grün"),
        ("iso-8859-1", b"gr\xfcn", "grün"),
        ("windows-1252", b"\x80", "€"),
        ("windows-1251", "мир".encode("cp1251"), "мир"),
        ("shift_jis", "日本".encode("shift_jis"), "日本"),
        ("gb18030", "中文".encode("gb18030"), "中文"),
        ("us-ascii", "grün".encode(), "grün"),
        ("utf-16le", "grün".encode("utf-16-le"), "grün"),
        ("made-up", "grün".encode(), "grün"),
        ("iso-8859-1", b"\xef\xbb\xbfgr\xc3\xbcn", "grün"),
        ("utf-8", "grün".encode("utf-16"), "grün"),
        ("unicode_escape", rb"\x41", r"\x41"),
        ("rot13", b"nop", "nop"),
        ("zlib", b"nop", "nop"),
    ],
)
async def test_a_charset_of_the_web_is_honoured_and_everything_else_is_utf_8(
    world: World, charset: str, body: bytes, text: str
) -> None:
    world.site.replies["/"] = reply(body, content_type=f"text/plain; charset={charset}")
    assert (await world.get()).text == text


@pytest.mark.parametrize("header", ["text/html", "text/html; charset=utf-8", "text/html; charset=nonsense"])
async def test_bytes_that_are_no_utf_8_are_an_error_that_says_where(world: World, header: str) -> None:
    world.site.replies["/"] = reply(b"gr\xfcn secret", content_type=header)
    category, message = await world.category()
    assert category is Category.PERMANENT_FAILURE
    assert message == "the page of example.com is not valid UTF-8 at byte 2, so it cannot be read as text"


@each_row(
    "head, body, text, mime",
    [
        (head, body, text, mime)
        for (head, body, text), mime in product(
            [
                ("<meta charset=iso-8859-1>", b"gr\xfcn", "grün"),
                ("<META CharSet = 'ISO-8859-1' />", b"gr\xfcn", "grün"),
                ("<meta name=x content='a > b'><meta charset=iso-8859-1>", b"gr\xfcn", "grün"),
                (
                    '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
                    "мир".encode("cp1251"),
                    "мир",
                ),
                ("<meta content='text/html;charset=koi8-r' http-equiv=content-type>", "мир".encode("koi8-r"), "мир"),
                ("<!-- <meta charset=koi8-r> --><meta charset=shift_jis>", "日本".encode("shift_jis"), "日本"),
                ("<meta name=description content='set charset=koi8-r'>", "grün".encode(), "grün"),
                ("<meta charset=made-up>", "grün".encode(), "grün"),
                ("<meta charset=rot13>", b"nop", "nop"),
                ("<meta charset>", "grün".encode(), "grün"),
                ("<meta charset=utf-16>", "grün".encode(), "grün"),
                ("\ufeff<meta charset=koi8-r>", "grün".encode(), "grün"),
                ("<meta-x charset=koi8-r>", "grün".encode(), "grün"),
                (" " * 1024 + "<meta charset=koi8-r>", "grün".encode(), "grün"),
                ("<meta " * 170, "grün".encode(), "grün"),
            ],
            ["text/html", "application/xhtml+xml"],
        )
    ],
)
async def test_a_page_of_html_may_name_its_charset_itself(
    world: World, mime: str, head: str, body: bytes, text: str
) -> None:
    world.site.replies["/"] = reply(head.encode() + body, content_type=mime)
    assert (await world.get()).text == head.removeprefix("\ufeff") + text


@pytest.mark.parametrize("header", ["text/html; charset=utf-8", "text/html; charset=made-up", "text/plain"])
async def test_the_charset_in_a_page_counts_in_html_without_another_only(world: World, header: str) -> None:
    body = "<meta charset=koi8-r>grün"
    world.site.replies["/"] = reply(body.encode(), content_type=header)
    assert (await world.get()).text == body


async def test_latin_1_is_what_browsers_take_it_for(world: World) -> None:
    world.site.replies["/"] = reply(b"\x93so\x94", content_type="text/html; charset=iso-8859-1")
    assert (await world.get()).text == "“so”"


async def test_a_stray_byte_among_many_good_characters_is_replaced(world: World) -> None:
    world.site.replies["/"] = reply(b"gr\xfcn" + b"x" * 97)
    assert (await world.get()).text == "gr\ufffdn" + "x" * 97
    world.site.replies["/"] = reply(b"gr\xfcn" + b"x" * 96)  # 1 in 100
    category, message = await world.category()
    assert category is Category.PERMANENT_FAILURE
    assert message == "the page of example.com is not valid UTF-8 at byte 2, so it cannot be read as text"


async def test_a_stray_zero_byte_is_binary_however_long_the_page(world: World) -> None:
    world.site.replies["/"] = reply(b"x" * 1000 + b"\0\xff")
    assert "is binary" in (await world.category())[1]


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"x" * (LIMIT + 1), ""),
        (b"x" * LIMIT * 3, ""),
        (gzip.compress(b"x" * LIMIT * 100, mtime=0), "gzip"),
        (gzip.compress(b"x" * 40_000, mtime=0) * 3, "gzip"),
    ],
    ids=["one byte over", "far over", "packed", "packed in members"],
)
async def test_a_page_over_the_limit_is_cut_at_it(world: World, body: bytes, encoding: str) -> None:
    world.site.replies["/"] = reply(body, content_encoding=encoding)
    page = await world.get(truncate=True)
    assert (page.text, page.truncated) == ("x" * LIMIT, True)
    assert world.records[0].response_bytes == LIMIT


@pytest.mark.parametrize("length", [0, LIMIT])
async def test_a_page_within_the_limit_is_whole(world: World, length: int) -> None:
    world.site.replies["/"] = reply(b"x" * length)
    page = await world.get(truncate=True)
    assert (len(page.text), page.truncated) == (length, False)


async def test_nothing_beyond_the_limit_is_waited_for_when_the_length_is_known(world: World) -> None:
    async def stall(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % 10**17)
        writer.write(b"x" * LIMIT)
        await writer.wait_closed()  # and no byte more

    world.site.replies["/"] = stall
    page = await world.get(truncate=True)
    assert (len(page.text), page.truncated) == (LIMIT, True)


async def test_a_page_that_never_ends_is_cut_and_hung_up_on(world: World) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 1000)
            await writer.drain()

    world.site.replies["/"] = endless
    assert (await world.get(truncate=True)).text == "x" * LIMIT
    with anyio.fail_after(20):
        await world.site.hung_up.wait()


async def test_a_length_nobody_can_count_is_still_a_page(world: World) -> None:
    world.site.replies["/"] = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: " + b"9" * 19 + b"\r\n\r\n" + b"x" * LIMIT
    )
    assert (await world.get(truncate=True)).truncated


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "utf-16-le", "gb18030", "shift_jis", "iso-2022-jp"])
@given(text=st.text("aé日€語\U0001f600", min_size=1, max_size=30), limit=st.integers(1, 60))
@example(text="日本語", limit=7)
@example(text="\U0001f600" * 3, limit=6)
def test_a_cut_leaves_whole_characters_and_never_more_than_the_limit(charset: str, text: str, limit: int) -> None:
    packed = text.encode(charset, errors="ignore")
    text = packed.decode(charset)

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(packed), 3):
            yield packed[at : at + 3]

    async def read() -> Body:
        body = Body("example.com", "", limit, truncate=True)
        await body.read(chunks())
        return body

    body = anyio.run(read)
    cut = body.text(ContentType("text/plain", charset))
    assert len(body.data) == min(limit, len(packed))
    assert body.truncated == (len(packed) > limit)
    assert text.startswith(cut)
    assert body.truncated or cut == text
    assert len(cut) >= (limit - 5) // 4 or cut == text
