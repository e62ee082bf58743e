"""ruff, pyright and mypy."""

import json
from pathlib import Path

import pytest

from acp_agent.tools.checkers import BASEDPYRIGHT, MYPY, PYRIGHT, RUFF, Problem, ProblemSeverity
from tests.rows import each_row
from tests.unit.tools.checkers.outcomes import said

OUTPUTS = Path(__file__).with_name("outputs")
# ruff 0.17.5; the last line, without a code and the newer keys, is how 0.5 told a syntax error.
RUFF_LINES = (OUTPUTS / "ruff.jsonl").read_text()
# basedpyright 1.40.2 (pyright 1.1.414), and an entry without a range
PYRIGHT_DOCUMENT = (OUTPUTS / "pyright.json").read_text()
# mypy 1.x with --show-column-numbers; the third line as with `show_error_end = true`
MYPY_LINES = """\
a.py:2:12: error: Incompatible return value type (got "int", expected "str")  [return-value]
pkg/b.py:7: error: Cannot find implementation or library stub for module named "nope"  [import-not-found]
a.py:3:3:3:11: error: Name "undefined" is not defined  [name-defined]
a.py:3:3: note: Did you forget to import it? error: no
setup.py: error: Source file found twice under different module names: "setup" and "x.setup"
a.py:9:1: warning: unused 'type: ignore' comment
Found 4 errors in 3 files (checked 5 source files)
"""


def test_ruff_calls_everything_an_error_and_only_what_stops_a_program_is_one():
    assert RUFF.parse(said(RUFF_LINES)) == (
        Problem(ProblemSeverity.ERROR, "Undefined name `undefined` [F821]", "/p/a.py", 4, 3),
        Problem(ProblemSeverity.WARNING, "`os` imported but unused [F401]", "/p/a.py", 1, 8),
        Problem(
            ProblemSeverity.ERROR,
            "Expected a parameter or the end of the parameter list [invalid-syntax]",
            "/p/b.py",
            1,
            7,
        ),
        Problem(ProblemSeverity.ERROR, "SyntaxError: Expected ')', found newline", "/p/b.py", 1, 8),
    )


def test_ruff_never_fixes_whatever_the_project_has_set():
    assert "--no-fix --no-fix-only" in RUFF.arguments


@pytest.mark.parametrize("checker", [PYRIGHT, BASEDPYRIGHT])
@pytest.mark.parametrize("before", ["", "WARNING: there is a new pyright version available\n"])
def test_pyright_counts_from_zero_and_we_from_one(checker, before: str):
    assert checker.parse(said(before + PYRIGHT_DOCUMENT)) == (
        Problem(
            ProblemSeverity.ERROR,
            'Type "int" is not assignable to return type "str" "int" is not assignable to "str" [reportReturnType]',
            "/p/a.py",
            2,
            12,
        ),
        Problem(ProblemSeverity.WARNING, "Argument type is unknown [reportUnknownArgumentType]", "/p/a.py", 3, 1),
        Problem(ProblemSeverity.ERROR, 'File or directory "/p/b.py" does not exist.', "/p/b.py"),
    )


@each_row(
    "text", ["", "No configuration file found.", "{", "[]", '{"summary": {}}', PYRIGHT_DOCUMENT[:700], "{" * 100_000]
)
def test_a_document_of_pyright_that_makes_no_sense_is_not_taken_for_a_clean_project(text: str):
    assert PYRIGHT.parse(said(text)) is None


@pytest.mark.parametrize("broken", [json.loads("[]"), None, 3, {"severity": "error"}, {"message": "x", "severity": 3}])
def test_an_entry_of_pyright_that_makes_no_sense_costs_only_itself(broken: object):
    entry = {"severity": "error", "message": "x", "file": 3, "rule": [], "range": {"start": {"line": True}}}
    document = json.dumps({"generalDiagnostics": [broken, entry]})
    assert PYRIGHT.parse(said(document)) == (Problem(ProblemSeverity.ERROR, "x"),)


def test_mypy_tells_errors_with_and_without_places_and_its_notes_are_left_out():
    assert MYPY.parse(said(MYPY_LINES)) == (
        Problem(
            ProblemSeverity.ERROR,
            'Incompatible return value type (got "int", expected "str") [return-value]',
            "a.py",
            2,
            12,
        ),
        Problem(
            ProblemSeverity.ERROR,
            'Cannot find implementation or library stub for module named "nope" [import-not-found]',
            "pkg/b.py",
            7,
        ),
        Problem(ProblemSeverity.ERROR, 'Name "undefined" is not defined [name-defined]', "a.py", 3, 3),
        Problem(
            ProblemSeverity.ERROR,
            'Source file found twice under different module names: "setup" and "x.setup"',
            "setup.py",
        ),
        Problem(ProblemSeverity.WARNING, "unused 'type: ignore' comment", "a.py", 9, 1),
    )
