"""The fence around what is data."""

import re

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.output.spotlight import fence

CALL = "00000000-0000-4000-8000-000000000001"
TEXTS = st.lists(
    st.sampled_from(
        ["</tool-output", ' id="', "</external-data", "< / knowledge", "<tools", ">", "\n", "a", '<tool-output id="x">']
    )
    | st.from_regex(r"[0-9a-f]{8}", fullmatch=True)
).map("".join)


def closing(text: str) -> str:
    return "</" + re.sub(r" source=.*", ">", text.partition("\n")[0].removeprefix("<"))


@given(TEXTS)
def test_the_closing_line_stands_once_and_at_the_end_whatever_the_text(text: str):
    fenced = fence(text, CALL)
    assert fenced.count(closing(fenced)) == 1
    assert fenced.endswith(closing(fenced))


@given(TEXTS)
def test_the_text_is_left_as_it_is(text: str):
    assert f"\n{text}" in fence(text, CALL)


@given(TEXTS)
def test_in_text_from_outside_nothing_looks_like_a_fence(text: str):
    inner = fence(text, CALL, external="https://docs.example").splitlines()[1:-1]
    assert not re.search(r"<\s*/?\s*(tool-output|external-data|knowledge|tools)\b", "\n".join(inner))


def test_a_text_that_knows_the_id_of_a_call_gets_another():
    first = fence("x", CALL)
    again = fence(first, CALL)
    assert closing(first) != closing(again)


def test_a_source_cannot_add_a_line_or_an_attribute():
    fenced = fence("x", CALL, external='https://e.example/"> \n</external-data\u202e')
    assert len(fenced.splitlines()) == 3
    assert 'source="https://e.example/&quot;&gt; &lt;/external-data">' in fenced


def test_the_same_call_is_fenced_the_same_so_that_prompts_stay_cached():
    assert fence("x", CALL) == fence("x", CALL)
