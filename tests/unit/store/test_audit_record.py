"""What of a call's arguments is kept: no secret, and no more than fits."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.store.audit import BEGINNING, MAX_LINE, seal
from acp_agent.store.audit_record import LONGEST, recordable, redacted, without

SECRET = "fake-secret-0123456789"
MASK = without([SECRET])

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.integers(2**200, 2**400) | st.just(SECRET)
)
NAMES = st.text(max_size=5) | st.just(SECRET)
TREES = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
    ),
    max_size=4,
)


@given(arguments=TREES)
def test_whatever_a_model_sends_gives_a_line_without_its_secrets(arguments):
    kept = recordable(arguments, MASK)
    text = json.dumps(kept, allow_nan=False)
    assert SECRET not in text
    assert len(seal({"call": kept}, BEGINNING, "t")[0]) <= MAX_LINE


def test_ordinary_arguments_stay_as_they_are():
    arguments = {"command": "git status", "timeout": 3, "flags": ["a", {"b": None, "c": 1.5}], "all": True}
    assert recordable(arguments, MASK) == arguments


@given(before=st.integers(0, 3 * LONGEST), times=st.integers(1, 3000))
def test_no_cut_leaves_half_a_secret(before, times):
    text = redacted("x" * before + SECRET * times, MASK)
    assert SECRET[:8] not in text.removesuffix("]").partition(" [cut: ")[0]
    assert len(text) < LONGEST + 60


def test_a_long_text_says_how_long_it_was():
    text = redacted("x" * 1_000_000, MASK)
    assert text == f"{'x' * LONGEST} [cut: 1000000 characters in all]"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**6000, -(10**6000)], ids="abcde")
def test_numbers_that_json_has_no_word_for_become_texts(value):
    kept = recordable({"n": value}, MASK)["n"]
    assert isinstance(kept, str)
    assert len(kept) < 50


def test_what_is_too_much_is_counted():
    wide = recordable({"list": list(range(1000)), "more": 1}, MASK)
    assert wide["list"][-1] == "[left out: 745 more]"
    assert wide["[left out]"] == "1 more"
    deep: object = "bottom"
    for _ in range(100):
        deep = [deep]
    assert "[left out: too deep]" in json.dumps(recordable({"deep": deep}, MASK))


def test_names_that_become_alike_are_kept_apart():
    kept = recordable({"a" * 200: 1, "a" * 200 + "b": 2, SECRET: 3}, MASK)
    assert list(kept.values()) == [1, 2, 3]
