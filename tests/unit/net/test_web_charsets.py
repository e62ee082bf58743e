"""Bodies in every character set of the web, named by a header, by the page itself, or wrongly."""

import pytest

from tests.unit.net.tls_site import reply
from tests.unit.net.world import Category, World

pytestmark = pytest.mark.anyio


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
    assert message == "the page of example.com is not valid UTF-8 at byte 2, so it is no text to read"


@pytest.mark.parametrize(
    ("head", "body", "text"),
    [
        ("<meta charset=iso-8859-1>", b"gr\xfcn", "grün"),
        ("<META CharSet = 'ISO-8859-1' />", b"gr\xfcn", "grün"),
        ("<meta name=x content='a > b'><meta charset=iso-8859-1>", b"gr\xfcn", "grün"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">', "мир".encode("cp1251"), "мир"),
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
)
@pytest.mark.parametrize("mime", ["text/html", "application/xhtml+xml"])
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
    assert message == "the page of example.com is not valid UTF-8 at byte 2, so it is no text to read"


async def test_a_stray_zero_byte_is_binary_however_long_the_page(world: World) -> None:
    world.site.replies["/"] = reply(b"x" * 1000 + b"\0\xff")
    assert "is binary" in (await world.category())[1]
