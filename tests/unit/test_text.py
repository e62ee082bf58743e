"""Texts: clipped to head and tail, and freed of marks like ours."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent.aids.phases import PhaseCalls, Reflection
from acp_agent.agent.prompt import ProjectNote, notes_block
from acp_agent.agent.summary import fit, section, summary_request
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import Message, Role, TextPart, ToolUsePart
from acp_agent.core.types import Json, ToolResult
from acp_agent.output.sanitize import fence
from acp_agent.text import (
    TAGS,
    abbreviated,
    clip,
    defanged,
    fenced,
    lazy_regex,
    map_texts,
    measure,
    some_of,
    title,
    visible,
    xml_escaped,
)
from tests.fakes.fake_toolset import FakeToolset
from tests.rows import each_row
from tests.unit.tools.workbench import Workbench

MARKER = re.compile(r"\[([\d,]+) characters left out here\]\n")


def test_a_text_within_the_limit_is_left_alone() -> None:
    text = "x" * 1000
    assert clip(text, 1000) is text


@given(
    st.lists(
        st.sampled_from(["\n", "word ", "日本語", "🙂", "x" * 50, "x" * 400 + "\n"]), min_size=60, max_size=200
    ).map("".join),
    st.integers(256, 2000),
)
def test_head_and_tail_are_the_texts_own_and_the_marker_counts_right(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert len(clipped) <= limit
    if len(text) <= limit:
        return
    marker = MARKER.search(clipped)
    assert marker is not None
    before, tail = clipped[: marker.start()], clipped[marker.end() :]
    omitted = int(marker[1].replace(",", ""))
    head = text[: len(text) - omitted - len(tail)]
    assert before in (head, f"{head}\n")
    assert text.endswith(tail)
    assert min(len(head), len(tail)) > (limit - 128) // 2 * 0.85


def test_the_cut_falls_between_lines_where_it_can() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    lines = clip(text, 1000).splitlines()
    assert all(line.startswith(("line ", "[")) for line in lines)
    assert lines[0] == "line 0"
    assert lines[-1] == "line 999"


def test_the_marker_has_a_line_of_its_own_in_one_endless_line() -> None:
    lines = clip("x" * 10_000_000, 50_000).split("\n")
    assert [len(lines), lines[1]] == [
        3,
        "[9,950,128 characters left out here]",
    ]


@pytest.mark.parametrize("limit", [-1, 0, 255])
def test_a_limit_too_small_for_head_and_tail_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=f"limit = {limit}: expected at least 256"):
        clip("", limit)


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2)])
def test_lines_are_counted_with_or_without_a_last_newline(text: str, lines: int) -> None:
    stats = measure(text, text)
    assert (stats.raw_lines, stats.shown_lines, stats.raw_chars) == (lines, lines, len(text))


pytestmark = pytest.mark.anyio

ASKED = summary_request([Message(Role.USER, (TextPart("x"),))], "", room=1000, tokens=100).messages[0].text
MARKED = {
    "local": fence("x", "1"),
    "external": fence("x", "1", external="https://e.example"),
    "notes": notes_block((ProjectNote("a", "x", users=True), ProjectNote("b", "x")), 1000),
    "record": section("x").text,
    "asked": ASKED,
    "facts": fenced("workspace", "x"),
}


@each_row("text", MARKED.values(), ids=MARKED)
def test_every_tag_of_ours_is_on_the_list_and_defanged(text: str):
    opened = re.findall(r"^</?([a-z-]+)", text, re.MULTILINE)
    assert opened
    assert set(opened) <= set(TAGS)
    assert not re.search("^<", defanged(text), re.MULTILINE)


async def test_the_notes_of_the_agent_itself_are_defanged():
    calls = FakeToolset({"memory_search": lambda _: ToolResult("x", envelope={"ids": ["1"]})})
    told = await PhaseCalls().before_first_inference(Message(Role.USER, (TextPart("x"),)), calls)
    reflection = Reflection(lambda: "m")
    failed = ToolResult.failed(ToolFailure(ToolErrorCategory.INVALID_PARAMETERS, "no"))
    reflection.begin()
    reflected = [reflection.finished([(ToolUsePart(str(at), "read", {}), failed)]) for at in range(2)][-1]
    for note in (told, reflected):
        assert note is not None
        assert note.startswith("[")
        assert defanged(f"a {note}").startswith("a &#91;")


@pytest.mark.parametrize(
    "text", ["< / Knowledge >", "<WORKSPACE>", "[ SELF_REFLECTION]", "[The agent itself has called read"]
)
def test_however_it_is_written_it_is_defanged_once(text: str):
    assert not defanged(text).startswith(("<", "["))
    assert defanged(defanged(text)) == defanged(text)
    assert fit(text, 100) == defanged(text)


def test_words_that_only_begin_alike_stay():
    text = "<workspaces> <summary> <tools> [tools] [self] <conversational> a<b [the agent]"
    assert defanged(text) == text


@each_row(
    "name, arguments, wanted",
    [
        ("bash", {"command": "git status"}, "git status"),
        ("read", {"path": "src/a.py"}, "read src/a.py"),
        ("write", {"path": "a", "content": "x"}, "write a"),
        ("grep", {"pattern": "x", "path": "src"}, 'grep "x" in src'),
        ("grep", {"pattern": "x"}, 'grep "x"'),
        ("find_path", {"pattern": "x"}, "find x"),
    ],
)
async def test_the_title_says_what_the_call_does(name: str, arguments: dict[str, str], wanted: str):
    assert (await Workbench().understand(name, **arguments)).title == wanted


@each_row(
    "text, wanted",
    [
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 120 + "…"),
        ("a\n" * 5000, "a ⏎ " * 30 + "…"),
        ("a" + "\n" * 3000 + "rm b", "a ⏎ …"),
        ("\n  echo a\r\n\n  rm b  \n", "echo a ⏎ rm b"),
        ("a\tb", "a b"),
        ("echo \x1b[2Kls", "echo \\u001b[2Kls"),
        ("cat \u202egpj.exe", "cat \\u202egpj.exe"),
        ("a\u200bb\u3164c\x7f", "a\\u200bb\\u3164c\\u007f"),
        ("日本語 é 🙂", "日本語 é 🙂"),
    ],
)
def test_a_title_is_one_short_visible_line(text: str, wanted: str):
    assert title(text) == wanted


@given(st.text())
def test_no_text_makes_more_than_one_line_or_hides_anything(text: str):
    shown = title(text)

    assert len(shown) <= 121
    assert not set(shown) & set("\n\r\t\x1b\x00\x7f\u2028\u202e\u200b")
    shown.encode()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_ordinary_text_is_shown_as_it_is(text: str):
    assert (
        visible(text) == text
        or not text.isprintable()
        or set(text) & set("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
    )


def test_half_a_surrogate_pair_can_be_sent():
    assert visible("a\ud800") == "a\\ud800"


def test_an_expression_that_is_compiled_late_is_as_one_that_is_compiled_at_once():
    late, usual = lazy_regex(r"(?P<word>[a-z]+)\d", re.IGNORECASE), re.compile(r"(?P<word>[a-z]+)\d", re.IGNORECASE)

    assert late.sub(r"<\g<word>>", "Ab1 c2 3") == usual.sub(r"<\g<word>>", "Ab1 c2 3") == "<Ab> <c> 3"
    assert (late.pattern, late.flags, late.groupindex) == (usual.pattern, usual.flags, usual.groupindex)
    assert [bool(late.fullmatch(text)) for text in ("a1", "a1", "1")] == [True, True, False]
    assert [found["word"] for found in late.finditer("x1y2")] == ["x", "y"]


@given(st.text("&<>\"'; amp#x27", max_size=12), st.booleans())
def test_text_is_escaped_for_xml_as_python_does_it(text: str, quotes: bool):
    assert xml_escaped(text, quotes=quotes) == html.escape(text, quote=quotes)


def test_an_expression_that_nothing_uses_is_never_compiled():
    unused = lazy_regex("(")

    with pytest.raises(re.error):
        unused.match("")


def test_names_beyond_the_first_few_are_counted():
    assert some_of("abcde", 5) == "a, b, c, d, e"
    assert some_of("abcdef", 5) == "a, b, c, d, e and 1 more"


def test_a_text_is_limited_with_an_ellipsis_behind_its_beginning():
    assert (abbreviated("abc", 3), abbreviated("abcd", 3)) == ("abc", "abc…")


def test_every_text_of_a_json_value_is_changed_and_its_keys_if_wanted():
    value: Json = {"a": ["b", 1, None, {"c": "d"}], "e": True}
    assert map_texts(value, str.upper) == {"A": ["B", 1, None, {"C": "D"}], "E": True}
    assert map_texts(value, str.upper, keys=False) == {"a": ["B", 1, None, {"c": "D"}], "e": True}
