"""The product's promise: no filter loses an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.output.filters.strategy import CommandRun
from acp_agent.output.filters.test_summary import SummaryOfTests
from acp_agent.output.pipeline import redaction_note
from acp_agent.output.security_notes import TELLING, preserved
from tests.rows import each_row
from tests.unit.output.filters.samples import lines_of, sample

ERRORS = lines_of("error_lines")
NO_ERRORS = lines_of("no_error_lines")
KINDS = (
    "warning: unused `Result` in src/a.rs",
    "warning: this value must be used",
    "thread 'main' panicked at src/main.rs:3:5",
    "warning: usage of an unsafe block",
    "warning: dereference of raw pointer is unsafe",
    "sshd: authentication failed for dev",
    "remote: Unauthorized",
    "open /srv/x: permission denied",
    "server answered with status code 403",
    "weak cipher suite offered by the server",
    "deprecated algorithm in use: rc4",
    "insecure hash function: md5",
    "possible SQL injection in query.py:12",
    "unsafe query built from user input",
    "RUSTSEC-2024-0001 affects x 1.0",
    "security advisory for x",
    "3 high severity vulnerabilities",
)


def test_the_tables_are_as_large_as_they_should_be():
    assert len(set(ERRORS)) >= 60
    assert len(set(NO_ERRORS)) >= 60


@each_row("line", ERRORS)
def test_a_line_that_reports_an_error_is_preserved(line: str):
    assert f"2: {line}" in preserved(f"before\n{line}\nafter\n", "before\nafter\n").splitlines()


@each_row("line", [*ERRORS, *KINDS])
def test_every_line_that_matters_is_found_by_the_search_that_comes_first(line: str):
    assert TELLING.found_in(line)


@each_row("line", NO_ERRORS)
def test_a_line_that_only_looks_like_an_error_is_not(line: str):
    assert preserved(f"before\n{line}\nafter\n", "before\nafter\n") == ""


@each_row("line", KINDS)
def test_each_of_the_seventeen_kinds_of_warning_is_preserved(line: str):
    assert (
        preserved(f"a\n{line}\nb\n", "a\nb\n") == f"[weaknesses among the lines left out, by line number:]\n2: {line}"
    )


@pytest.mark.parametrize(
    "line", ["found 0 vulnerabilities", "permissions set", "port 4010", "result of 401 tests", "md5sum ok"]
)
def test_a_line_that_only_looks_like_a_warning_is_not_preserved(line: str):
    assert preserved(f"{line}\n", "") == ""


def test_what_the_filter_kept_is_not_repeated():
    raw = "error: one\n\terror:   two  \n" + "noise\n" * 5
    assert preserved(raw, "error: one\nsaid: error: two\n") == ""
    assert preserved(raw, raw) == ""


def test_errors_that_differ_in_time_and_address_only_are_one():
    raw = "".join(f"2026-11-21 10:00:{i:02} ERROR db: lost 0x{i:08x}\n" for i in range(30))
    assert preserved(raw, "").count("ERROR db: lost") == 1


def test_errors_at_different_places_stay_different():
    raw = "a.c:1:2: error: no\na.c:7:2: error: no\n"
    assert preserved(raw, "").splitlines()[1:] == [f"{at}: {line}" for at, line in enumerate(raw.splitlines(), 1)]


def test_more_than_the_limits_are_counted():
    raw = "".join(f"error: number {i}\n" for i in range(100)) + "".join(f"RUSTSEC-2024-{i:04}\n" for i in range(25))
    lines = preserved(raw, "").splitlines()
    assert lines[0] == "[weaknesses among the lines left out, by line number:]"
    assert lines[1] == "101: RUSTSEC-2024-0000"
    assert lines[21] == "[5 more weaknesses left out]"
    assert lines[22] == "[errors among the lines left out, by line number:]"
    assert lines[-1] == "[60 more errors left out]"
    assert len(lines) == 1 + 20 + 1 + 1 + 40 + 1


def test_of_too_many_errors_the_last_are_listed_and_those_of_logs_give_way():
    raw = "".join(f"12:00:{i % 60:02} pool-{i} ERROR x\n" for i in range(100)) + "a.c:3:t:FAIL: Expected 1\n"
    raw += "".join(f"12:00:{i % 60:02} pool-{i} ERROR x\n" for i in range(100, 200))
    assert preserved(raw, "").splitlines()[1:] == [
        "101: a.c:3:t:FAIL: Expected 1",
        *(f"{i + 2}: 12:00:{i % 60:02} pool-{i} ERROR x" for i in range(161, 200)),
        "[161 more errors left out]",
    ]


def test_parts_of_a_comparison_are_no_errors_of_their_own():
    raw = "E       assert 1 == 2\nE        +  where 1 = f()\nE         - b\nE         ?  ^\nE         + a\n"
    assert preserved(raw, "").splitlines()[1:] == ["1: E       assert 1 == 2"]


def test_one_error_of_its_own_kind_is_listed_among_hundreds_of_the_same_message():
    raw = "".join(f"src/w_{i}.c:{i}:9: error: too few arguments to function 'push'\n" for i in range(300))
    raw += "".join(f"make: *** [Makefile:12: build/w_{i}.o] Error 1\n" for i in range(30))
    lines = raw.splitlines(keepends=True)
    lines.insert(150, "src/w_17.c:12:5: error: expected ';' before 'for'\n")
    listed = preserved("".join(lines), "").splitlines()
    assert "151: src/w_17.c:12:5: error: expected ';' before 'for'" in listed
    assert listed[-2:] == ["331: make: *** [Makefile:12: build/w_29.o] Error 1", "[299 more errors left out]"]


def test_each_missing_symbol_is_listed_before_another_use_of_one():
    uses = [f"a.c:(.text+0x{at * 16:x}): undefined reference to `old{at % 2}'\n" for at in range(1, 100)]
    uses.insert(3, "a.c:(.text+0x33): undefined reference to `old7'\n")
    uses.insert(50, "a.c:(.text+0x331): undefined reference to `other'\n")
    listed = preserved("".join(uses), "")
    assert all(f"undefined reference to `{name}'" in listed for name in ("old0", "old1", "old7", "other"))
    assert listed.endswith("[86 more errors left out]"), "fifteen lines are enough to show four messages"


def test_an_error_of_a_log_is_listed_beside_hundreds_of_one_message_of_a_compiler():
    same = "".join(f"src/w_{i}.c:{i}:9: error: too few arguments to function 'push'\n" for i in range(300))
    logged = "curl: (22) The requested URL returned error: 404\n"
    listed = preserved(logged + same + "".join(logged.replace("404", str(at)) for at in range(500, 503)), "")
    assert [line.partition(": ")[2] for line in listed.splitlines() if "curl" in line] == [
        f"curl: (22) The requested URL returned error: {code}" for code in (404, 500, 501, 502)
    ]
    assert listed.count("too few arguments") == 15


@each_row(
    "line, reported",
    [
        ("15 Tests 0 Failures 0 Ignored", False),
        ("Tests run: 5, Failures: 0, Errors: 0, Skipped: 0", False),
        ("    0 Error(s)", False),
        ("ran 12 checks: errors=0, failures=0", False),
        ("test result: ok. 12 passed; 0 failed; 0 ignored", False),
        ("# fail 0", False),
        ("no syntax errors, 0 failed", False),
        ("3 failed, 0 errors in 2s", True),
        ("15 Tests 2 Failures 0 Ignored", True),
        ("Tests run: 5, Failures: 0, Errors: 1, Skipped: 0", True),
        ("v1.0 failed to load", True),
        ("shard 0 failed", True),
        ("failed: 0 of 3 replicas are ready", True),
        ("10 failures", True),
        ("step 0 error: no such table", True),
    ],
)
def test_totals_of_nothing_report_nothing(line: str, reported: bool):
    assert (line in preserved(f"a\n{line}\nb\n", "a\nb\n", suspects=True)) is reported


def test_a_very_long_error_line_is_clipped():
    assert len(preserved("error: " + "x" * 100_000 + "\n", "")) < 600


@pytest.mark.parametrize(
    "name", ["cargo_test_failures", "cargo_test_compile_error", "pytest_fail", "pytest_collect", "unittest_fail_v"]
)
def test_filters_of_tests_leave_nothing_behind_but_details_of_failures_after_the_tenth(name: str):
    raw = sample(name)
    dropped = preserved(raw, SummaryOfTests().apply(raw, CommandRun("")).text)
    assert dropped == ""


@pytest.mark.parametrize(
    ("found", "note"),
    [
        ({}, ""),
        ({"token": 0}, ""),
        ({"password": 1}, "[security] 1 secret redacted: password 1"),
        ({"password": 1, "api-key": 2}, "[security] 3 secrets redacted: api-key 2, password 1"),
        ({"AKIA0000 fake": 1}, "[security] 1 secret redacted: other 1"),
    ],
)
def test_a_redaction_note_names_categories_and_counts_only(found: dict[str, int], note: str):
    assert redaction_note(found) == note


@given(st.lists(st.sampled_from([*ERRORS, *NO_ERRORS, "", "plain"])), st.sets(st.integers(0, 30)))
def test_every_error_is_in_the_filtered_text_or_in_the_block(lines: list[str], dropped: set[int]):
    kept = [line for i, line in enumerate(lines) if i not in dropped]
    text = "\n".join([*kept, preserved("\n".join(lines), "\n".join(kept))])
    told = [line for line in dict.fromkeys(lines) if line in ERRORS]
    if len(told) <= 20:
        assert all(line.strip() in text for line in told)


@given(st.text(), st.text())
def test_any_text_is_looked_through_without_an_error(raw: str, filtered: str):
    preserved(raw, filtered)


def test_an_error_line_is_not_clipped_where_the_note_would_cost_as_much_as_it_saves():
    line = "error: " + "x" * 530
    assert preserved(f"{line}\n", "").endswith(f"1: {line}")
