"""What models write, as HTML."""

import pytest

from acp_agent.cli.page.markdown import markdown

NOFOLLOW = 'rel="noopener noreferrer nofollow"'


@pytest.mark.parametrize(
    ("source", "html"),
    [
        ("one\ntwo\n\nthree", "<p>one\ntwo</p>\n<p>three</p>"),
        ("one  \ntwo\\\nthree", "<p>one<br>\ntwo<br>\nthree</p>"),
        ("# a\n###### b #\n#c", "<h3>a</h3>\n<h6>b</h6>\n<p>#c</p>"),
        (
            "**b** __b__ *i* _i_ ~~s~~ `c`",
            "<p><strong>b</strong> <strong>b</strong> <em>i</em> <em>i</em> <s>s</s> <code>c</code></p>",
        ),
        ("***both*** **a *b* c**", "<p><strong><em>both</em></strong> <strong>a <em>b</em> c</strong></p>"),
        ("a_b_c 2 * 3 * 4 __init__.py \\*x\\*", "<p>a_b_c 2 * 3 * 4 <strong>init</strong>.py *x*</p>"),
        ("`` a`b `` ` x ` `<b>`", "<p><code>a`b</code> <code>x</code> <code>&lt;b&gt;</code></p>"),
        (
            "- a\n- b\n  - c\n\n  d\n* e",
            "<ul><li>a</li><li><p>b</p>\n<ul><li>c</li></ul>\n<p>d</p></li><li>e</li></ul>",
        ),
        ("3. a\n4) b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("- a\n\n- b\n\ntext", "<ul><li>a</li><li>b</li></ul>\n<p>text</p>"),
        (
            "1. do:\n   ```sh\n   ls\n   ```\n2. b",
            (
                '<ol start="1"><li>do:\n'
                '<pre class="code"><span class="language">sh</span><code>ls</code></pre></li>'
                "<li>b</li></ol>"
            ),
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
        ("<b>&amp;</b>", "<p>&lt;b&gt;&amp;amp;&lt;/b&gt;</p>"),
        ("", ""),
    ],
)
def test_markdown_becomes_the_html_it_means(source, html):
    assert markdown(source) == html


@pytest.mark.parametrize(
    ("source", "html"),
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
        ("![](p.png)", '<span class="picture">picture</span> <span class="target">(p.png)</span>'),
        ("[a](src/a.py)", 'a <span class="target">(src/a.py)</span>'),
        ("[a](javascript:alert(1))", 'a <span class="target">(javascript:alert(1))</span>'),
        ("[a](https://user@evil.example)", 'a <span class="target">(https://user@evil.example)</span>'),
        ("[a](https://\u0430pple.example)", 'a <span class="target">(https://\u0430pple.example)</span>'),
        ("[a](https://[::1)", 'a <span class="target">(https://[::1)</span>'),
    ],
)
def test_a_link_leads_to_the_web_and_says_where(source, html):
    assert markdown(source) == f"<p>{html}</p>"


@pytest.mark.parametrize(
    "piece", ["`", "**", "[", "![](", "> ", "- ", "|", "```\n", "_a", "*a ", "https://", "<", "1. "]
)
def test_a_text_of_nothing_but_beginnings_takes_no_longer_than_others(piece):
    assert len(markdown(piece * (40_000 // len(piece)))) < 4_000_000
