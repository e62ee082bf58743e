"""cargo's JSON lines, as cargo and rustc 1.95 write them (texts of spans and explanations left out)."""

import json
from typing import Any

import pytest

from acp_agent.tools.checkers import CARGO_CHECK, CARGO_CLIPPY, Problem, ProblemSeverity
from tests.unit.tools.checkers.outcomes import said

TARGET = {"kind": ["bin"], "crate_types": ["bin"], "name": "app", "src_path": "/ws/app/src/main.rs", "edition": "2021"}


def span(file: str = "app/src/main.rs", line: int = 4, col: int = 18, **more: Any) -> dict[str, Any]:
    end = {"line_end": line, "column_end": col + 6, "byte_start": 60, "byte_end": 66}
    place = {"file_name": file, "line_start": line, "column_start": col, "is_primary": True, "label": None}
    return {**place, **end, "expansion": None, "suggested_replacement": None, **more}


def message(level: str, text: str, *spans: dict[str, Any], code: str | None = None, **about: Any) -> str:
    told = {
        "$message_type": "diagnostic",
        "children": [],
        "level": level,
        "message": text,
        "spans": list(spans),
        "code": code and {"code": code, "explanation": None},
    }
    package = {"package_id": "path+file:///ws/app#0.1.0", "manifest_path": "/ws/app/Cargo.toml", "target": TARGET}
    return json.dumps({"reason": "compiler-message", **package, "message": told, **about}) + "\n"


def parse(*lines: str) -> tuple[Problem, ...] | None:
    return CARGO_CHECK.parse(said("".join(lines)))


def test_an_error_has_its_label_and_code_and_its_path_from_the_workspaces_folder():
    found = parse(message("error", "mismatched types", span(label="expected `i32`, found `&str`"), code="E0308"))

    told = "mismatched types: expected `i32`, found `&str` [E0308]"
    assert found == (Problem(ProblemSeverity.ERROR, told, "/ws/app/src/main.rs", 4, 18),)


def test_only_the_primary_span_says_where():
    other = span(line=1, col=2, is_primary=False, label="expected due to this")
    found = parse(message("warning", "unused variable: `x`", other, span("app/src/inner/mod.rs", 2, 9), code="unused"))

    told = "unused variable: `x` [unused]"
    assert found == (Problem(ProblemSeverity.WARNING, told, "/ws/app/src/inner/mod.rs", 2, 9),)


@pytest.mark.parametrize("macro_file", ["mac/src/lib.rs", "/home/user/.cargo/registry/src/index/mac-1.0.0/src/lib.rs"])
def test_a_problem_in_another_crates_macro_is_where_this_crate_uses_it(macro_file: str):
    use = span(line=3, col=5, is_primary=False)
    between = span(macro_file, 9, 9, is_primary=False, expansion={"macro_decl_name": "boom!", "span": use})
    inside = span(macro_file, 4, 23, label="expected `i32`", expansion={"macro_decl_name": "bang!", "span": between})

    found = parse(message("error", "mismatched types", inside))

    told = "mismatched types: expected `i32`"
    assert found == (Problem(ProblemSeverity.ERROR, told, "/ws/app/src/main.rs", 3, 5),)


def test_a_path_the_crate_does_not_hold_stays_as_it_is():
    found = parse(
        message("error", "no", span("/out/generated.rs", 1, 1)), message("error", "no", span("build.rs", 2, 1))
    )

    assert found is not None
    assert [each.file for each in found] == ["/out/generated.rs", "build.rs"]


def test_summaries_footnotes_and_other_reasons_are_no_problems():
    assert not parse(
        message("error", "aborting due to 2 previous errors; 1 warning emitted"),
        message("warning", "1 warning emitted"),
        message("failure-note", "For more information about this error, try `rustc --explain E0308`."),
        message("note", "a note", span()),
        json.dumps({"reason": "compiler-artifact", "target": TARGET, "fresh": True}) + "\n",
        json.dumps({"reason": "build-finished", "success": False}) + "\n",
    )


def test_an_error_about_no_file_is_one_all_the_same():
    found = parse(
        message("error", "linking with `cc` failed: exit status: 1"), message("error: internal compiler error", "x")
    )

    assert found == (
        Problem(ProblemSeverity.ERROR, "linking with `cc` failed: exit status: 1"),
        Problem(ProblemSeverity.ERROR, "x"),
    )


def test_a_line_that_was_cut_costs_only_itself():
    whole = message("error", "one", span())
    assert len(parse(whole[:200] + "\n[... 12 bytes left out ...]\n" + whole) or ()) == 1


@pytest.mark.parametrize("length", [10, 2_000_000])
def test_an_endless_path_is_not_walked(length: int):
    deep = "/a" * length
    found = parse(message("error", "x", span(deep + "/b.rs"), target={"src_path": deep + "/main.rs"}))
    assert found is not None
    assert len(found) == 1


def test_clippy_is_another_subcommand():
    assert (CARGO_CHECK.arguments, CARGO_CLIPPY.arguments) == (
        "check --message-format=json",
        "clippy --message-format=json",
    )
