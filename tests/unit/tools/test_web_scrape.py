"""web_scrape: parts of pages by CSS selector."""

import sys

import pytest

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.services import WebCaller, WebPage
from acp_agent.core.types import ToolKind, UrlSubject
from acp_agent.tools import html_page, web
from acp_agent.tools.web import WebScrape
from tests.sizes import sized
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

URL = "https://e.com/a"
PAGE = """<html><body><h1 class="big one">Title</h1>
<ul><li><a href="x" data-n="1">First <b>link</b></a><li><a href="/y">Second</a><li>None</ul>
<pre>a
  b</pre><!-- c --><p>&lt;p&gt;</p></body></html>"""


@pytest.fixture
def bench() -> Workbench:
    bench = Workbench(tools=[WebScrape()])
    bench.web.put(URL, PAGE)
    return bench


async def scraped(bench: Workbench, select: str, **more: object) -> str:
    return (await bench.run("web_scrape", url=URL, select=select, **more)).shown


@pytest.mark.parametrize(
    ("select", "extract", "expected"),
    [
        ("li a", "text", "First link\nSecond"),
        ("li a", "everything", "First link\nSecond"),
        ("h1", "html", '<h1 class="big one">Title</h1>'),
        ("li a", "attr:href", "x\n/y"),
        ("li a", "attr:DATA-n", "1"),
        ("h1", "attr:class", "big one"),
        ("pre, p", "text", "a\n  b\n\n<p>"),
        ("p", "html", "<p>&lt;p&gt;</p>"),
        ("li:has(> a[href^='/'])", "text", "Second"),
    ],
)
async def test_text_html_and_attributes(bench: Workbench, select: str, extract: str, expected: str):
    assert await scraped(bench, select, extract=extract) == expected


@pytest.mark.parametrize(("select", "extract"), [("video", "text"), ("h1", "attr:href"), ("b, [hidden]", "attr:id")])
async def test_nothing_found_says_so_by_the_selector(bench: Workbench, select: str, extract: str):
    assert await scraped(bench, select, extract=extract) == f"No results for selector: {select}"


async def test_results_come_from_outside(bench: Workbench):
    result = await bench.run("web_scrape", url=URL, select="h1")

    assert result.text == "Title"
    assert WebScrape().spec().external
    assert result.envelope == {"url": URL, "content_type": "text/html", "requested": URL}


async def test_the_limit_counts_results_and_says_when_there_are_more(bench: Workbench):
    assert await scraped(bench, "li", limit=2) == "First link\nSecond\n[there are more than 2 results]"
    assert await scraped(bench, "li", limit=3) == "First link\nSecond\nNone"
    with pytest.raises(ToolError, match="from 1 to 100"):
        await scraped(bench, "li", limit=0)


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("a[", "Malformed attribute selector"),
        ("a:nope", ":nope"),
        ("::before", "Pseudo-element"),
        (" ", "Expected a selector"),
        ("a" * 300, "longer than 256 characters"),
        ("div > " * 36 + "a", "more than 32 parts"),
        (":not(" * 40 + "a" + ")" * 40, "more than 32 parts"),
        (":has(:has(:has(*)))", "nested"),
    ],
)
async def test_a_selector_that_is_none_is_known_before_anybody_is_asked(bench: Workbench, select: str, reason: str):
    invocation = await bench.understand("web_scrape", url=URL, select=select)

    assert invocation.predicted_failure is not None
    assert invocation.predicted_failure.failure is not None
    assert invocation.predicted_failure.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert reason in invocation.predicted_failure.failure.message
    assert "\n" not in invocation.predicted_failure.failure.message
    with pytest.raises(ToolError, match="CSS selector"):
        await bench.execute(invocation)


async def test_what_is_not_html_is_left_to_fetch(bench: Workbench):
    bench.web.put(URL, "{}", "application/json")
    with pytest.raises(ToolError, match="application/json, not HTML") as caught:
        await scraped(bench, "a")
    assert "fetch" in caught.value.failure.suggestion


@pytest.mark.parametrize(
    ("select", "limit", "found"),
    [
        ("li", 10, "one\ntw\n"),
        ("li", 1, "one\n[there are more than 1 results]\n"),
        ("a", 10, "No results for selector: a\n"),
    ],
)
async def test_results_of_a_page_that_was_cut_say_so(bench: Workbench, select: str, limit: int, found: str):
    bench.web.pages[URL] = WebPage(URL, "text/html", "<ul><li>one<li>tw", truncated=True)
    result = await bench.run("web_scrape", url=URL, select=select, limit=limit)
    notice = "[The page goes on: it is larger than what is read of one page]"
    assert result.shown == found + notice
    assert notice in result.text


async def test_the_call_names_its_url_and_reaches_the_web_in_its_own_name(bench: Workbench):
    invocation = await bench.understand("web_scrape", url=URL, select="a")

    assert (invocation.subjects, invocation.title) == ((UrlSubject(URL),), f"scrape {URL}")
    assert (invocation.spec.kind, invocation.spec.mutates) == (ToolKind.FETCH, False)
    await bench.execute(invocation)
    assert bench.web.asked == [(URL, WebCaller("web_scrape", invocation.call.id))]


async def test_a_page_too_deep_or_too_large_is_an_error_with_a_way_on(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
):
    bench.web.put(URL, "<div>" * 100_000)
    with pytest.raises(ToolError, match="512 elements deep"):
        await scraped(bench, "div")
    monkeypatch.setattr(html_page, "MAX_SELECTED", 1000)
    bench.web.put(URL, "<i></i>" * 5000)
    with pytest.raises(ToolError, match="more than 1000 elements") as caught:
        await scraped(bench, "i")
    assert "fetch" in caught.value.failure.suggestion


async def test_results_that_hold_one_another_end_at_a_limit(bench: Workbench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(web, "MAX_CHARS", 10_000)
    bench.web.put(URL, "<div>" * 60 + "x" * 3000)
    text = await scraped(bench, "div", limit=100, extract="html")
    assert len(text) < 11_000
    assert text.endswith("are left out: over 10000 characters in all]")


@pytest.mark.parametrize("body", ["", "page.html", "https://e.com/x", "\ud800", "\0", "<"])
async def test_a_page_of_nothing_much_has_no_results(bench: Workbench, body: str):
    bench.web.put(URL, body)
    assert await scraped(bench, "a") == "No results for selector: a"


SELECTORS = [
    "x " + "div " * 14 + "div",
    "div > " * 15 + "nope",
    ":not(" * 14 + "nope" + ")" * 14,
    ":nth-last-child(3 of p):nth-child(99999999999999999999n - 1 of p)",
    "p ~ " * 15 + "nope",
    ':-soup-contains("nope")' * 8,
]


@pytest.mark.parametrize("select", SELECTORS)
@pytest.mark.timeout(20)
def test_hostile_selectors_take_a_time_in_proportion_to_the_page(select: str):
    steps = [_calls(size, select) for size in sized((1, 2), (2, 4))]
    assert steps[1] < steps[0] * 3, steps


def _calls(size: int, select: str) -> int:
    """Python calls one selection makes on a page of that size, deep and wide: counted, so that no clock is asked."""
    page = ("<div>" * 200 + "x" + "</div>" * 200) * size + "<p>x</p>" * 200 * size
    counted = [0]

    def count(frame: object, event: str, argument: object) -> None:
        del frame, argument
        counted[0] += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        html_page.selected(page, select, 100)
    finally:
        sys.setprofile(before)
    return counted[0]
