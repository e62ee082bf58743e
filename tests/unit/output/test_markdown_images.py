"""What the text of an answer may not make an editor load: pictures and tags of HTML."""

import re
import threading
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.output.markdown_images import AnswerGuard, HtmlGuard, ImageGuard, defused
from tests.rows import each_row

REMOTE = [
    ("![a](https://e.example/?q=1)", r"![a]\(https://e.example/?q=1)"),
    ("![](//e.example/x)", r"![]\(//e.example/x)"),
    ("![`]`](http://e.example)", r"![`]`]\(http://e.example)"),
    ("![a\nb](\n<https://e.example>)", "![a\nb]\\(\n<https://e.example>)"),
    ("![](&#104;ttps://e.example)", r"![]\(&#104;ttps://e.example)"),
    (r"![](\\e.example\x)", r"![]\(\\e.example\x)"),
    ("[![badge](https://e.example/b)](docs/x.md)", r"[![badge]\(https://e.example/b)](docs/x.md)"),
    ("![x]\n\n[x]: https://e.example/x.png", "![x]\n\n[x]\\: https://e.example/x.png"),
]
HARMLESS = [
    "![a](img/x.png) and ![b](./y.svg)",
    "![a](data:image/png;base64,iVBORw0KGgo=)",
    "[docs](https://docs.example/page) and <https://docs.example>",
    "#![allow(dead_code)]\n\nSee [docs](https://docs.example).",
    "let v = vec![1, 2]; if (![1].includes(x)) { call(a[0](b)); }",
    "def f(x: dict[str, int]): return x[1:]",
    "a < b, <b>bold</b>, <T>, List<image_id>, x <imgx",
    "wow! (really) [1]: no",
]
PIECES = st.sampled_from(
    [
        "![",
        "a",
        "](",
        "https://e.example",
        "img.png",
        ")",
        "]",
        "]:",
        " ",
        "\n",
        "\n\n",
        "<",
        "img",
        " src=x>",
        "!",
        "(",
        "//e",
        "\t",
    ]
)


@each_row("text, broken", REMOTE)
def test_what_a_renderer_would_fetch_is_broken(text: str, broken: str):
    assert defused(text) == broken


@each_row("text", HARMLESS)
def test_what_fetches_nothing_stays_as_it_is(text: str):
    assert defused(text) == text


@given(st.lists(PIECES, max_size=40).map("".join), st.data())
def test_however_a_stream_is_cut_it_comes_out_the_same(text: str, data: st.DataObject):
    guard, out, rest = AnswerGuard(), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        out += guard.feed(rest[:size])
        rest = rest[size:]
    assert out + guard.feed("", last=True) == defused(text)


def test_other_threads_get_their_turn_while_a_long_text_is_looked_through():
    text, over, turns = "a line like any other of a log\n" * 150_000, threading.Event(), 0

    def look() -> None:
        assert defused(text) == text
        over.set()

    thread = threading.Thread(target=look)
    thread.start()
    while not over.wait(0.001):
        turns += 1
    thread.join()
    assert turns > 5


@each_row("before", range(64 * 1024 - 24, 64 * 1024 + 2))
def test_what_stands_across_two_pieces_of_a_long_text_is_broken(before: int):
    assert defused("x" * before + "![a](https://e.example)") == "x" * before + r"![a]\(https://e.example)"


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_paragraph_keeps_a_picture_with_a_target_elsewhere(text: str):
    for paragraph in re.split(r"\n[ \t]*(?=\n)", defused(text)):
        picture = paragraph.find("![")
        assert picture < 0 or not re.search(r"\]\(\s*<?(?:https:|//)", paragraph[picture:])


@given(st.lists(PIECES, max_size=40).map("".join))
def test_nothing_but_backslashes_is_added(text: str):
    assert defused(text).replace("\\", "") == text


def test_a_stream_holds_back_no_more_than_the_beginning_of_a_construct():
    guard = ImageGuard()
    assert guard.feed("![alt text") == "![alt text"
    assert guard.feed("](") == ""
    assert guard.feed("x" * 1000) != ""


def guarded(text: str) -> str:
    guard = HtmlGuard()
    return guard.feed(text) + guard.feed("", last=True)


LOADING = [
    '<img src="https://e.example/?q=1">',
    "<IMG SRC=x>",
    "<img\nsrc=x>",
    "<img/src=x>",
    "<img",
    '<iframe src="//e.example"></iframe>',
    "<script>fetch(1)</script>",
    "<svg><image href=x></svg>",
    '<b style="background:url(//e.example)">',
    "<b\tSTYLE = x>",
    "<table background=x>",
    "<a href=x onmouseover=y>",
    "<p><video poster=x>",
    '<custom-element data-src="x" src="y">',
    "<" + "x" * 65 + " src=x>",
    '<b title="' + "x" * 600 + '" style=x>',
    "\\<img src=x>",
    "`<img src=x>`",
    "> ```html\n> <img src=x>\n> ```",
    "```\n<img src=x>\n```",
    "<div>\n```html\n<img src=x>\n```",
    "<pre>\n\n```html\n<img src=x>\n```",
    "<!--\n\n```html\n\n-->\n<img src=x>\n```",
    " ```html\n```\n```html\n<img src=x>",
    "````html\n```\n````\n```html\n<img src=x>\n```",
    "```html\nx ``` <img src=x>\n```",
    "```html\nx\n``` \n<img src=x>",
    "~~~html\n```\n<img src=x>\n~~~",
]
HARMLESS_TAGS = [
    "a < b && c > d, a<b, x <= y, 1 <2",
    "List<String>, Map<K, V>, vector<int> data = 3, <T>, Vec<Box<dyn Fn()>>",
    "<https://docs.example> and <mail@e.example>",
    "<b>bold</b> <kbd>Ctrl</kbd><br/> <details open><summary>more</summary></details>",
    '<a href="https://docs.example">docs</a>',
    "cat <script.sh >out; sort <image.txt",
    "</script> </img>",
    "<!-- a remark --> <!DOCTYPE html> <?php ?>",
    "<",
    "it ends with <b",
    '```html\n<img src="https://e.example">\n<script src=x></script>\n```',
    '# Page\n\nHere it is:\n```html title="a"\n<img src=x>\n```\n\nand\n\n~~~~html\n<img src=y>\n~~~~\n',
    "```html\r\n<img src=x>\r\n```\r\n",
]
TAG_PIECES = st.sampled_from(
    [
        *(
            "<",
            ">",
            "img",
            "b",
            "script",
            "pre",
            "!--",
            "-->",
            "/",
            " ",
            "\n",
            "\n\n",
            "\t",
            "a",
            "=",
            "src=",
            "style =",
        ),
        *(
            "```",
            "````",
            "~~~",
            "```html\n",
            "~~~css\n",
            "\n```\n",
            "`",
            '"',
            "x" * 70,
            " y" * 300,
            "\\",
            "é",
            ">\n",
            "<div>",
        ),
    ]
)
TEXTS = st.lists(TAG_PIECES, max_size=40).map("".join)


@each_row("text", LOADING)
def test_a_tag_that_loads_is_broken(text: str) -> None:
    assert guarded(text) != text
    assert loaded(guarded(text)) == []


@each_row("text", HARMLESS_TAGS)
def test_what_loads_nothing_stays_as_it_is(text: str) -> None:
    assert guarded(text) == text


def test_a_broken_tag_reads_as_what_it_is() -> None:
    assert guarded('see <img src="https://e.example/x">!') == 'see <\\img src="https://e.example/x">!'


class _Loaded(HTMLParser):
    """What a browser would look at: tags by name, and those with an attribute that loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        loading = {"img", "script", "iframe", "svg", "image", "video", "style"}
        if tag in loading or any(re.fullmatch("src|style|poster|background|on.*", name) for name, _ in attrs):
            self.found.append(tag)

    handle_startendtag = handle_starttag


def loaded(text: str) -> list[str]:
    """The loading tags of a text for a renderer that knows no code at all."""
    parser = _Loaded()
    parser.feed(text)
    return parser.found


@given(TEXTS)
@example("<html\n<!--src=>")
def test_without_a_fence_no_tag_that_loads_is_left(text: str) -> None:
    text = re.sub("[`~]", "", text)
    assert loaded(re.sub("<!--|<[?]", "<_", guarded(text))) == []


@given(TEXTS)
def test_nothing_but_backslashes_behind_an_opening_bracket_is_added(text: str) -> None:
    assert guarded(text).replace("<\\", "<") == text.replace("<\\", "<")


@given(TEXTS, st.data())
def test_however_a_stream_of_tags_is_cut_it_comes_out_the_same(text: str, data: st.DataObject) -> None:
    guard, out, rest = HtmlGuard(), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        out += guard.feed(rest[:size])
        rest = rest[size:]
    assert out + guard.feed("", last=True) == guarded(text)


@each_row("text", [*LOADING, *HARMLESS_TAGS])
def test_character_by_character_it_comes_out_the_same(text: str) -> None:
    guard = HtmlGuard()
    assert "".join([*map(guard.feed, text), guard.feed("", last=True)]) == guarded(text)


def test_a_stream_holds_back_no_more_than_the_beginning_of_a_tag() -> None:
    guard = HtmlGuard()
    assert guard.feed("text ") == "text "
    assert guard.feed("<i") == ""
    assert guard.feed("mg ") == "<\\img "
    assert guard.feed("<b " + "x " * 300) != ""


@given(TEXTS)
def test_a_whole_text_loses_its_tags_too(text: str) -> None:
    text = re.sub("[`~!?]", "", text)
    assert loaded(defused(text)) == []


MARKDOWN = st.sampled_from(
    [
        *("<img src=x>", "<script src=y>", "<div>", "<pre>", "</pre>", "<!--", "-->", "<textarea>", "<?", "?>", "<a\n"),
        *("\n", "\n\n", "```", "````", "~~~", "```html\n", "~~~html\n", "\n```\n", "\n```html\n", "``` \n", "`", "'\n"),
        *("- ", "  ", "    ", "> ", "1. ", "a", "[a]: x '", "|a|\n|-|\n", "***\n", "# ", "\\", "<b title='", "'>"),
    ]
)


@given(st.lists(MARKDOWN, max_size=18).map("".join))
def test_a_renderer_that_passes_html_through_finds_no_tag_that_loads_whatever_is_code_to_it(text: str) -> None:
    render = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True}).render
    assert not {"img", "script"} & set(loaded(render(guarded(text))))
