"""fetch: pages as text."""

import pytest

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.services import WebCaller, WebPage
from acp_agent.core.types import ToolKind, UrlSubject
from acp_agent.tools.web import Fetch
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

URL = "https://e.com/a"


@pytest.fixture
def bench() -> Workbench:
    return Workbench(tools=[Fetch()])


async def test_a_page_is_read_as_text_from_outside(bench: Workbench):
    bench.web.put(URL, '<title>T</title><p>Go <a href="b">on</a>')

    result = await bench.run("fetch", url=URL)

    assert result.text == "# T\n\nGo [on](https://e.com/b)"
    assert Fetch().spec().external
    assert result.envelope == {"url": URL, "content_type": "text/html", "requested": URL}


async def test_a_page_after_redirects_is_named_by_where_it_came_from(bench: Workbench):
    bench.web.pages[URL] = WebPage("https://other.org/x/", "text/html", '<a href="y">z</a>')

    result = await bench.run("fetch", url=URL)

    assert result.text == "[z](https://other.org/x/y)"
    assert result.envelope == {"url": "https://other.org/x/", "content_type": "text/html", "requested": URL}


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/markdown", "application/xml"])
async def test_other_text_comes_as_it_is(bench: Workbench, kind: str):
    body = '{"a":\n  "<b>"}\n'
    bench.web.put(URL, body, kind)

    assert (await bench.run("fetch", url=URL)).text == body


@pytest.mark.parametrize(
    ("body", "text"), [("\n<!DOCTYPE html><h1>Hi</h1>", "# Hi"), ("<h1>no HTML</h1>", "<h1>no HTML</h1>")]
)
async def test_a_page_without_a_type_is_html_when_it_begins_like_html(bench: Workbench, body: str, text: str):
    bench.web.put(URL, body, "")

    assert (await bench.run("fetch", url=URL)).text == text


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/html", "<h1>Hi</h1><p>the<b", "# Hi\n\nthe"),
        ("text/plain", "<h1>the", "<h1>the"),
        ("text/html", "<p", ""),
    ],
)
async def test_a_page_that_was_cut_ends_with_a_word_about_it(bench: Workbench, kind: str, body: str, text: str):
    bench.web.pages[URL] = WebPage(URL, kind, body, truncated=True)

    result = await bench.run("fetch", url=URL)

    notice = "[The page goes on: it is larger than what is read of one page]"
    assert result.text == (f"{text}\n\n{notice}" if text else notice)


async def test_an_empty_page_is_a_notice(bench: Workbench):
    bench.web.put(URL, "<script>x</script>")

    result = await bench.run("fetch", url=URL)

    assert (result.text, result.shown) == (f"Nothing to read at {URL}",) * 2


async def test_the_call_names_its_url_and_reaches_the_web_in_its_own_name(bench: Workbench):
    bench.web.put(URL, "x")
    invocation = await bench.understand("fetch", url=URL)

    assert (invocation.subjects, invocation.title) == ((UrlSubject(URL),), f"fetch {URL}")
    assert (invocation.spec.kind, invocation.spec.mutates) == (ToolKind.FETCH, False)
    assert bench.web.asked == []
    await bench.execute(invocation)
    assert bench.web.asked == [(URL, WebCaller("fetch", invocation.call.id))]


@pytest.mark.parametrize("error", [Refused("not https"), None])
async def test_what_the_web_refuses_or_lacks_is_the_webs_own_error(bench: Workbench, error: Refused | None):
    if error:
        bench.web.pages[URL] = error
    with pytest.raises((Refused, ToolError), match=r"not https|404"):
        await bench.run("fetch", url=URL)


async def test_no_url_is_a_clear_error(bench: Workbench):
    for arguments in ({}, {"url": ""}, {"url": 7}):
        with pytest.raises(ToolError, match="url"):
            await bench.run("fetch", **arguments)
