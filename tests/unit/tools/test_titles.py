"""Titles: one line a person can trust."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.text import title, visible
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("bash", {"command": "git status"}, "git status"),
        ("read", {"path": "src/a.py"}, "src/a.py"),
        ("write", {"path": "a", "content": "x"}, "a"),
        ("grep", {"pattern": "x", "path": "src"}, "src"),
        ("grep", {"pattern": "x"}, "grep"),
        ("find_path", {"pattern": "x"}, "find_path"),
    ],
)
async def test_the_title_is_command_or_path_else_the_name(name: str, arguments: dict[str, str], wanted: str):
    assert (await Workbench().understand(name, **arguments)).title == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
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
