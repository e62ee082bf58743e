"""Pages over the limit, for those who take their beginning (A24.9)."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.net.exchange import Body, ContentType
from tests.unit.net.tls_site import reply
from tests.unit.net.world import LIMIT, World

pytestmark = pytest.mark.anyio


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
    with anyio.fail_after(5):
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
