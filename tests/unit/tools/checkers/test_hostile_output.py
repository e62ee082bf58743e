"""Whatever a checker writes: no parser raises, and what comes out is fit to be shown."""

import json
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.text import visible
from acp_agent.tools.checkers import CARGO_CHECK, GO_VET, MYPY, PYRIGHT, RUFF, TSC, Checker
from tests.rows import each_row
from tests.sizes import sized
from tests.unit.tools.checkers.outcomes import said

CHECKERS = (CARGO_CHECK, RUFF, PYRIGHT, MYPY, TSC, GO_VET)
KEYS = (
    *("reason", "message", "level", "spans", "code", "target", "src_path", "is_primary", "file_name", "line_start"),
    *("column_start", "label", "expansion", "span", "filename", "location", "row", "column", "generalDiagnostics"),
    *("severity", "file", "range", "start", "line", "character", "rule"),
)
WORDS = ("compiler-message", "error", "warning", "/ws/src/main.rs", "src/main.rs", "\x1b[2J\u202e\ud800\n", "")
scalars = st.sampled_from(WORDS) | st.none() | st.booleans() | st.integers() | st.floats()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=8)
)


def mutated(known: object, other: object, cut: int) -> str:
    """JSON in which one value of a well-formed finding was replaced by another."""
    return json.dumps(known).replace('"@"', json.dumps(other), 1)[: -cut or None]


SPAN = {"is_primary": True, "file_name": "@", "line_start": "@", "column_start": "@", "label": "@", "expansion": "@"}
FINDINGS = (
    {"reason": "compiler-message", "target": "@", "message": {"level": "error", "message": "@", "spans": "@"}},
    {"reason": "compiler-message", "target": {"src_path": "/w/src/a.rs"}, "message": {"level": "error", "code": "@",
     "message": "m", "spans": [SPAN]}},
    {"code": "@", "filename": "a.py", "message": "@", "location": {"row": "@", "column": "@"}},
    {"generalDiagnostics": [{"severity": "error", "message": "@", "file": "@", "range": {"start": "@"}}]},
)  # fmt: skip


@given(st.sampled_from(FINDINGS), values, st.integers(0, 3))
def test_json_of_any_shape_raises_nothing_and_gives_only_lines_and_numbers(known: object, other: object, cut: int):
    text = mutated(known, other, cut)
    for checker in (CARGO_CHECK, RUFF, PYRIGHT):
        for each in checker.parse(said(text)) or ():
            assert each.message == visible(each.message)
            assert all(number is None or 0 < number < 2**31 for number in (each.line, each.col))


@given(
    st.lists(st.sampled_from(("a.py", ":", "1", "(", ",", ")", " ", "\t", "\n", "\r", "error", "TS1", "vet: ", "# [")))
)
def test_text_of_any_shape_raises_nothing(parts: list[str]):
    text = "".join(parts)
    for checker in CHECKERS:
        for each in checker.parse(said(text, text)) or ():
            assert "\n" not in each.message


@each_row(
    "checker, unit",
    product(
        CHECKERS,
        [
            *("{", "[", '{"a":', ":1", "(1,1): ", "a:1:1: ", "\n\t", "\r", " ", "\n", "((", "error ", "x"),
            '{"reason":"compiler-message","message":{"level":"error","message":"m","spans":[]}}\n',
        ],
    ),
)
def test_a_lot_of_anything_is_read_in_one_go(checker: Checker, unit: str):
    """Nothing here takes more than linear time; what does would not come back within the suite's timeout."""
    text = unit * (sized(2**16, 2**18) // len(unit))
    for before in ("", "a.py:1:1: error: ", "src/a.ts(1,1): error TS1: x\n"):
        checker.parse(said(before + text, before + text))


def test_a_finding_of_many_characters_is_cut():
    line = json.dumps(
        {"code": "X" * 10**6, "filename": "a", "message": "m" * 10**6, "location": {"row": 1, "column": 1}}
    )
    (found,) = RUFF.parse(said(line)) or ()
    assert len(found.message) < 1100
