"""What models write, as HTML."""

import html
import re

import lxml.html
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.cli.page import markdown
from tests.rows import each_row
from tests.sizes import sized

NOFOLLOW = 'rel="noopener noreferrer nofollow"'


@each_row(
    "source, expected",
    [
        ("one\ntwo\n\nthree", "<p>one\ntwo</p>\n<p>three</p>"),
        ("one  \ntwo\\\nthree", "<p>one<br>\ntwo<br>\nthree</p>"),
        ("# a\n###### b #\n#c", "<h3>a</h3>\n<h6>b</h6>\n<p>#c</p>"),
        (
            "**b** __b__ *i* _i_ ~~s~~ `c`",
            "<p><strong>b</strong> <strong>b</strong> <em>i</em> <em>i</em> <s>s</s> <code>c</code></p>",
        ),
        ("***both*** **a *b* c**", "<p><em><strong>both</strong></em> <strong>a <em>b</em> c</strong></p>"),
        ("a_b_c 2 * 3 * 4 __init__.py \\*x\\*", "<p>a_b_c 2 * 3 * 4 <strong>init</strong>.py *x*</p>"),
        ("`` a`b `` ` x ` `<b>`", "<p><code>a`b</code> <code>x</code> <code>&lt;b&gt;</code></p>"),
        (
            "- a\n- b\n  - c\n\n  d\n* e",
            "<ul><li><p>a</p></li><li><p>b</p><ul><li>c</li></ul><p>d</p></li></ul><ul><li>e</li></ul>",
        ),
        ("3. a\n4) b", '<ol start="3"><li>a</li></ol><ol start="4"><li>b</li></ol>'),
        ("- a\n\n- b\n\ntext", "<ul><li><p>a</p></li><li><p>b</p></li></ul><p>text</p>"),
        (
            "1. do:\n   ```sh\n   ls\n   ```\n2. b",
            ('<ol><li>do:<pre class="code"><span class="language">sh</span><code>ls</code></pre></li><li>b</li></ol>'),
        ),
        ("> a\n> > b\n\nc", "<blockquote><p>a</p>\n<blockquote><p>b</p></blockquote></blockquote>\n<p>c</p>"),
        (
            "```py\nx = '<a>'\n\n```\nafter",
            (
                '<pre class="code"><span class="language">py</span><code>'
                "x = &#x27;&lt;a&gt;&#x27;\n</code></pre>\n<p>after</p>"
            ),
        ),
        (
            "````\n```\n````\n~~~\nopen",
            '<pre class="code"><code>```</code></pre>\n<pre class="code"><code>open</code></pre>',
        ),
        ("a\n\n---\n\n* * *", "<p>a</p>\n<hr>\n<hr>"),
        (
            "|a|b|\n|-|:-:|\n|`x\\|y`|2|3|",
            (
                '<div class="scroll"><table>'
                "<thead><tr><th>a</th><th>b</th></tr></thead>"
                "<tbody><tr><td><code>x|y</code></td><td>2</td></tr></tbody></table></div>"
            ),
        ),
        ("a | b\nc", "<p>a | b\nc</p>"),
        ("[x]: src/a.py\n\n[x] a\x00b", "<p>[x]: src/a.py</p><p>[x] a\\u0000b</p>"),
        ("<b>&amp;</b>", "<p>&lt;b&gt;&amp;amp;&lt;/b&gt;</p>"),
        ("", ""),
    ],
)
def test_markdown_becomes_the_html_it_means(source, expected):
    assert tight(markdown(source)) == tight(expected)


def tight(written: str) -> str:
    """Without the line ends between elements, which show nothing."""
    return re.sub(r"(?<=>)\n+(?=<)", "", written)


@each_row(
    "source, expected",
    [
        (
            '[a **b**](https://x.example/?q=1&r=(2) "t")',
            f'<a href="https://x.example/?q=1&amp;r=(2)" {NOFOLLOW}>a <strong>b</strong></a>',
        ),
        ("see https://x.example/a.", f'see <a href="https://x.example/a" {NOFOLLOW}>https://x.example/a</a>.'),
        ("<https://x.example>", f'<a href="https://x.example" {NOFOLLOW}>https://x.example</a>'),
        (
            "[https://good.example](https://evil.example)",
            f'<a href="https://evil.example" {NOFOLLOW}>https://evil.example</a>',
        ),
        (
            "![a](https://x.example/p.png)",
            f'<a href="https://x.example/p.png" {NOFOLLOW}><span class="picture">a</span></a>',
        ),
        (
            "[see https://a.example/ ![a](https://x.example/p.png)](https://b.example/)",
            f'<a href="https://b.example/" {NOFOLLOW}>see https://a.example/ <span class="picture">a</span></a>',
        ),
        ("![](p.png)", '<span class="picture">picture</span> <span class="target">(p.png)</span>'),
        ("[a](src/a.py)", 'a <span class="target">(src/a.py)</span>'),
        ("[a](javascript:alert(1))", 'a <span class="target">(javascript:alert(1))</span>'),
        ("[a](https://user@evil.example)", 'a <span class="target">(https://user@evil.example)</span>'),
        ("[a](https://\u0430pple.example)", 'a <span class="target">(https://\u0430pple.example)</span>'),
        ("[a](https://[::1)", 'a <span class="target">(https://[::1)</span>'),
    ],
)
def test_a_link_leads_to_the_web_and_says_where(source, expected):
    assert markdown(source) == f"<p>{expected}</p>"


@each_row("piece", ["`", "**", "[", "![", "![](", "> ", "- ", "|", "```\n", "_a", "*a ", "https://", "<", "1. "])
def test_a_text_of_nothing_but_beginnings_takes_no_longer_than_others(piece):
    size = sized(4_000, 16_000)
    assert len(markdown(piece * (size // len(piece)))) < size * 100


def test_what_is_nested_too_deep_is_shown_as_it_was_written():
    source = "> " * 200 + "end"
    assert markdown(source) == f'<pre class="code"><code>{html.escape(source)}</code></pre>\n'


PIECES = (
    *("<script>", "</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "<a href=javascript:alert(1)>"),
    *(
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java\tscript:",
        "&#106;avascript:",
        "data:text/html,x",
        "vbscript:x",
    ),
    *(
        "https://x.example",
        "//x.example",
        "https://u@x.example",
        " onclick=alert(1) ",
        '" onmouseover="x',
        "' style='x",
    ),
    *(
        "[",
        "](",
        ")",
        "[a](",
        "![",
        "<",
        ">",
        "`",
        "```",
        "\n",
        "\n\n",
        "> ",
        "- ",
        "1. ",
        "|",
        "\n|-|-|\n",
        "# ",
        "\n=\n",
    ),
    *("*", "**", "_", "~~", "\\", "&lt;", "&quot;", "&#x3c;", " ", "    ", "a", "[a]: ", '"', "'", "\x00", "\u202e"),
)
ELEMENTS = {
    *("p", "div", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "span", "hr", "br", "a"),
    *("em", "strong", "s", "table", "thead", "tbody", "tr", "th", "td"),
}


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
@settings(max_examples=sized(100, 400), deadline=None)
def test_no_text_becomes_a_script_an_event_handler_or_another_kind_of_link(source):
    written = markdown(source)
    assert "<script" not in written.lower()
    for element in lxml.html.fragment_fromstring(written, create_parent="div").iter():
        assert element.tag in ELEMENTS
        assert set(element.attrib) <= {"class", "start", "href", "rel"}
        assert element.get("class") in (None, "code", "language", "scroll", "picture", "target")
        assert re.fullmatch(r"https?://[!-~]+|", element.get("href", ""))
