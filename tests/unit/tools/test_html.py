"""HTML as text: what stays, what goes, and what hostile pages cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.services import WebPage
from acp_agent.tools import html_page
from acp_agent.tools.html_page import TreeBuilder, page_markdown, tree
from acp_agent.tools.html_page import plain_text as plain_text_of
from acp_agent.tools.web import is_html, readable
from tests.rows import each_row
from tests.sizes import sized

URL = "https://e.com/docs/page"


def text(body: str) -> str:
    return page_markdown(body, URL)


def plain_text(markup: str) -> str:
    return plain_text_of(tree(markup, TreeBuilder()))


@each_row(
    "markup, expected",
    [
        ("", ""),
        ("   ", ""),
        ("just words", "just words"),
        ("<p>a\n  b\t c</p><p>d</p>", "a b c\n\nd"),
        ("a<br>b<div>c</div>d", "a\nb\nc\nd"),
        ("<h1>One</h1><h3>Three <em>x</em></h3>y", "# One\n\n### Three x\n\ny"),
        ("<title>T</title><p>x", "# T\n\nx"),
        ("<title> T </title><h1>T</h1>x", "# T\n\nx"),
        ("&lt;b&gt; &amp; &eacute;&nbsp;&#x41;", "<b> & é\xa0A"),
        ("x <code>a  b</code>, <code>c`d</code>", "x `a b`, `` c`d ``"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("2 * 3 * a_b_c #d", "2 * 3 * a_b_c #d"),
        ("<blockquote><p>q</p></blockquote>z", "> q\n\nz"),
    ],
)
def test_blocks_words_and_entities(markup: str, expected: str):
    assert text(markup) == expected


@each_row(
    "markup, expected",
    [
        ('<a href="x">y</a>', "[y](https://e.com/docs/x)"),
        ('<a href="/x?a=1&amp;b=2">y\n z</a>', "[y z](https://e.com/x?a=1&b=2)"),
        ('<a href="//other.org/">y</a>', "[y](https://other.org/)"),
        ('<base href="https://b.org/z/"><a href="x">y</a>', "[y](https://b.org/z/x)"),
        ('<a href="x (1)">y</a>', "[y](https://e.com/docs/x%20%281%29)"),
        ('<a href="#part">y</a> <a name="n">n</a> <a href="">e</a>', "y n e"),
        ('<a href="javascript:alert(1)">y</a><a href="data:text/html,x">z</a>', "yz"),
        ('<a href="https://[">y</a>', "y"),
        (f'<a href="{"x" * 3000}">y</a>', "y"),
        ('<a href="x"><img src="i.png"></a>z', "z"),
        ('<a href="x"><img src="i.png" alt="Logo"></a>', "[Logo](https://e.com/docs/x)"),
        ('<a href="x"><div>a</div><p>b</p></a>', "[a b](https://e.com/docs/x)"),
        ('<a href="x">a<ul><li>b</ul></a>', "a\n\n- b"),
        ('<code>a <a href="x">b</a></code>', "`a [b](https://e.com/docs/x)`"),
        ('<pre><a href="x">b</a></pre>', "```\nb\n```"),
        ('<img src="https://evil.com/?data" alt="A  cat">', "A cat"),
        ('<img src="https://evil.com/?data">', ""),
    ],
)
def test_links_are_kept_absolute_and_pictures_leave_their_words_only(markup: str, expected: str):
    assert text(markup) == expected


def test_lists_are_nested_and_numbered():
    markup = "<ul><li>a<li>b<ul><li>c<p>d</ul></ul><ol><li>x<li><p>y</p><p>z</p></ol>"
    assert text(markup) == "- a\n- b\n  - c\n    d\n\n1. x\n2. y\n   z"


def test_many_items_and_what_follows_code_keep_their_form():
    assert text("<ul>" + "<li>x" * 20 + "</ul><pre>a</pre><h2>b</h2>") == "- x\n" * 20 + "\n```\na\n```\n\n## b"


def test_code_keeps_its_blanks_and_cannot_end_its_own_fence():
    markup = '<pre><code class="language-py">\ndef f():\n\n    <b>return</b>  "```"\n</code></pre>x'
    assert text(markup) == '````py\ndef f():\n\n    return  "```"\n````\n\nx'
    assert text("<pre><div>a</div><div>  b</div><br>c</pre>") == "```\na\n  b\nc\n```"
    assert plain_text("<pre>\na\n  b\n</pre>") == "a\n  b"


def test_a_table_of_words_becomes_rows():
    markup = '<table><caption>C</caption><tr><th>a<th>b|c<tr><td><p>1</p><p>2</p><td><a href="x">y</a></table>z'
    assert text(markup) == "C\n| a | b\\|c |\n|---|---|\n| 1 2 | [y](https://e.com/docs/x) |\n\nz"


def test_a_table_that_lays_out_a_page_becomes_blocks():
    markup = "<table><tr><td>a<td>b<ul><li>c</ul><tr><td><h2>D</h2>e<td>f</table>g"
    assert [line for line in text(markup).split("\n") if line] == ["a", "b", "- c", "## D", "e", "f", "g"]


@each_row(
    "hidden",
    [
        "<script>no</script>",
        "<style>no</style>",
        "<nav>no<ul><li>no</ul></nav>",
        "<noscript>no</noscript>",
        "<template>no</template>",
        "<svg><text>no</text></svg>",
        "<button>no</button>",
        "<!-- no -->",
        "<div hidden>no<p>no</p></div>",
        '<div style="color:red; DISPLAY : none">no</div>',
        '<span style="visibility:hidden">no</span>',
        '<span aria-hidden="true">no</span>',
        '<ul role="navigation"><li>no</ul>',
        '<p><input value="no" hidden>',
    ],
)
def test_what_nobody_would_see_is_dropped_and_what_follows_is_not(hidden: str):
    assert text(f"<p>a</p>{hidden}<p>b</p>") == "a\n\nb"


def test_a_page_that_hides_itself_until_its_scripts_ran_is_read():
    assert text('<body style="visibility:hidden"><p>x') == "x"


def test_the_plain_words_of_a_piece():
    markup = (
        '<h2>A <a href="x">b</a></h2><ul><li>c<li>d</ul><table><tr><td>1<td>2</table><nav>e</nav><script>no</script>'
    )
    assert plain_text(markup) == "A b\nc\nd\n1 2\ne"


MIB = 1024 * 1024
SIZE = sized(MIB // 4, MIB)


def repeated(piece: str, size: int = SIZE) -> str:
    return piece * (size // len(piece))


HOSTILE = {
    "deep": "<div>" * 100_000,
    "deep, with ends of what never began": "<div>" * 50_000 + "</b>" * 100_000,
    "unclosed tags": repeated("<a"),
    "unclosed values": repeated('<a b="'),
    "unclosed comments": repeated("<!--"),
    "processing instructions": repeated("<?"),
    "attributes": "<p " + " ".join(f"a{n}=1" for n in range(100_000)) + ">x",
    "one attribute": f'<a href="{"x" * MIB}">x',
    "less-than signs": repeated("<", SIZE // 8),
    "entities": repeated("&lt;", SIZE // 4),
    "entities in entities": "<!DOCTYPE x [" + '<!ENTITY a "&b;&b;"><!ENTITY b "&a;&a;">' * 99 + "]><p>&a;",
    "scripts in scripts": "<script>" + repeated("<!--<script>"),
    "items of one list": "<ol>" + repeated("<li>", SIZE // 4),
    "rows of one head": "<table><thead>" + repeated("<tr><td>", SIZE // 4),
    "columns that are one": "<table><tr>" + repeated("<td colspan=1000>x", SIZE // 4),
    "blanks in code": "<pre>x" + repeated(" ") + "x",
    "blanks as entities": "x" + repeated("&#32;", SIZE // 4) + "x",
    "code in lists in lists": "<ul><li>" * 200 + "<pre>" + repeated("\n"),
    "style": repeated(f'<i style="{";  " * 300}"></i>'),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(20)
def test_a_hostile_page_ends_and_gives_no_more_than_it_was(name: str):
    markup = HOSTILE[name]
    assert len(text(markup)) <= len(markup) + 200


def test_a_page_beyond_the_limits_is_read_up_to_there_and_says_so(monkeypatch: pytest.MonkeyPatch):
    assert text("<p>first</p>" + "<div>" * 20_000).startswith("first\n\n[The page goes on: it is nested more than 512")
    monkeypatch.setattr(html_page, "MAX_MARKUP", 20_000)
    cut = text("<p>word</p>" * 20_000)
    assert cut.endswith("[The page goes on: it has more than 20000 characters]")
    assert cut.count("word") < 20_000
    monkeypatch.setattr(html_page, "MAX_PIECES", 1000)
    assert text("&lt;" * 20_000).endswith("[The page goes on: it has more than 1000 pieces of text]")


def test_what_is_deeper_than_the_tree_leaves_its_words_and_nothing_hidden():
    deep = text("<ul><li><div>" * 100 + "one<p hidden>no</p><a href=x>two</a><p>three")
    assert deep.split() == [*"-" * 12, "onetwo", "three"]


def test_lines_with_long_prefixes_do_not_multiply_without_end():
    cut = text("<ul><li>" * 12 + "<pre>" + repeated("x\n", MIB))
    assert cut.endswith(f"[The page goes on: it has more than {16 * MIB} characters]")
    assert len(cut) < 16 * MIB


def test_long_addresses_behind_short_links_do_not_multiply_without_end(monkeypatch: pytest.MonkeyPatch):
    part = sized(8, 1)
    monkeypatch.setattr(html_page, "MAX_CHARS", html_page.MAX_CHARS // part)
    links = '<a href="x">y</a>' * (12_000 // part)
    assert len(page_markdown(links, f"https://e.com/{'x' * 2000}/")) < 20 * MIB // part


SOUP = """p /p a /a table /table tr td /td pre /pre li ul /ul ol /ol h2 /h2 blockquote /blockquote code /code
title /title nav /nav br hr !-- script /script"""
TAGS = [f"<{tag}>" for tag in SOUP.split()]
ODD = [
    "word",
    " ",
    "`",
    "|",
    "&",
    "<",
    "-->",
    "\ud800",
    "\0",
    "<b hidden>",
    "<base href=//[>",
    "<a href=x>",
    "<a href=http://[>",
]


@given(st.lists(st.sampled_from(TAGS + ODD), max_size=40))
def test_any_soup_of_tags_is_read(pieces: list[str]):
    markup = "".join(pieces)
    text(markup)
    plain_text(markup)


@each_row(
    "content_type, body, html",
    [
        ("text/html", "x", True),
        ("text/html; charset=utf-8", "x", True),
        ("application/xhtml+xml", "x", True),
        ("", "\n<!DOCTYPE html><p>x", True),
        ("", "{}", False),
        ("text/plain", "<html>", False),
        ("application/xml", "<a/>", False),
    ],
)
def test_what_is_read_as_html(content_type: str, body: str, *, html: bool):
    assert is_html(WebPage(URL, content_type, body)) == html


@pytest.mark.anyio
async def test_everything_but_html_comes_as_it_is():
    assert await readable(WebPage(URL, "application/json", '{"a":  1}\n')) == '{"a":  1}\n'
    assert await readable(WebPage(URL, "text/html", "<p>x")) == "x"
