"""The strategies that decide about single lines keep what they promise, and count what they drop."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_rules import (
    MAX_PATTERNS,
    Dedup,
    GroupByRule,
    KeepMatching,
    StripAnnotated,
    StripNoise,
    Truncate,
    normalised,
)
from acp_agent.output.filters.strategy import Applied, CommandRun
from tests.rows import each_row
from tests.unit.output.filters.samples import applied, sample, unchanged

PUSHED = CommandRun("git push", ("git push",), 0)
PUSH = KeepMatching(["->", "^To "])


@given(st.lists(st.sampled_from(["a -> b", "To x", "Counting objects: 3", "", "Writing"]), max_size=20))
def test_what_stays_is_the_lines_that_match_in_their_order(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    applied = PUSH.apply(text, PUSHED)
    kept = [line for line in lines if "->" in line or line.startswith("To ")]
    assert applied.text == ("".join(f"{line}\n" for line in kept) if kept else text)
    assert applied.confidence is (Confidence.FULL if kept else Confidence.FALLBACK)


def test_the_output_of_a_failed_command_stays_whole() -> None:
    text = "To x\nsome hook: the reason\n"
    applied = PUSH.apply(text, CommandRun("git push", ("git push",), 1))
    assert applied.text == text
    assert applied.confidence is Confidence.FALLBACK


RUN = CommandRun("x", ("x",))
LINES = st.lists(st.sampled_from(["noise 1", "noise", "kept", "", " ", "x noise", "日本"]), max_size=30)


@given(LINES, st.booleans())
def test_what_stays_is_the_lines_without_noise_in_their_order(lines: list[str], ends: bool) -> None:
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    applied = StripNoise(["^noise", r"^\s*$"]).apply(text, RUN)
    kept = [line for line in lines if line.strip() and not line.startswith("noise")]
    if applied.confidence is Confidence.FALLBACK:
        assert applied.text == text
    elif kept:
        assert applied.text.split("\n")[: len(kept)] == kept
        assert applied.text.count("\n") <= len(kept)
    else:
        assert applied.text.endswith("left out]\n")


def test_full_when_something_went_and_fallback_when_nothing_did() -> None:
    strip = StripNoise(["^npm warn"])
    assert strip.apply("npm warn a\nadded 1\n", RUN).confidence is Confidence.FULL
    assert strip.apply("added 1\n", RUN).confidence is Confidence.FALLBACK
    assert strip.apply("", RUN).confidence is Confidence.FALLBACK


def test_when_all_is_noise_a_line_says_so() -> None:
    assert StripNoise(["."]).apply("a\nb\n", RUN).text == "[2 lines left out]\n"
    assert StripNoise(["."]).apply("a", RUN).text == "[1 line left out]\n"


def test_noise_that_is_to_be_kept_stays_where_it_stood() -> None:
    strip = StripNoise(["^npm warn", "^added"], keep=["^npm warn E"])
    text = "npm warn a\nnpm warn EBADENGINE x\nadded 1\nrest\n"
    assert strip.apply(text, RUN) == Applied("npm warn EBADENGINE x\nrest\n", Confidence.FULL)
    assert strip.apply("npm warn EBADENGINE x\n", RUN).confidence is Confidence.FALLBACK


@given(LINES)
def test_of_the_noise_exactly_the_kept_lines_stay_in_their_order(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    kept = [line for line in lines if "noise" not in line or "1" in line]
    applied = StripNoise(["noise"], keep=["1", "kept"]).apply(text, RUN)
    assert applied.text == ("".join(f"{line}\n" for line in kept) or applied.text)
    assert (applied.confidence is Confidence.FALLBACK) == (kept == lines)


@given(
    st.lists(st.sampled_from(["a", "", "bb", "日本"]), min_size=1, max_size=60),
    st.booleans(),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 20),
)
def test_head_and_tail_are_the_texts_own_and_the_line_between_counts_the_rest(
    lines: list[str], ends: bool, head: int, tail: int, more: int
) -> None:
    head += not head + tail
    text = "\n".join(lines) + ("\n" if ends else "")
    count = len(lines) - (lines[-1] == "" and not ends)
    applied = Truncate(head + tail + more, head, tail).apply(text, RUN)
    if count <= head + tail + more:
        assert applied.text == text
        assert applied.confidence is Confidence.FALLBACK
        return
    assert applied.confidence is Confidence.PARTIAL
    shown = applied.text.removesuffix("\n").split("\n") if ends or tail == 0 else applied.text.split("\n")
    shown = shown[: head + 1 + tail]
    assert shown[:head] == lines[:head]
    assert shown[head + 1 :] == lines[count - tail : count]
    marker = re.fullmatch(r"\[(\d+) lines? left out\]", shown[head])
    assert marker is not None
    assert int(marker[1]) == count - head - tail


def test_a_text_of_just_the_limit_stays_whole() -> None:
    text = "line\n" * 80
    assert Truncate(80, 15, 15).apply(text, RUN).text == text
    shown = Truncate(80, 15, 15).apply(text + "line\n", RUN).text
    assert shown == "line\n" * 15 + "[51 lines left out]\n" + "line\n" * 15


def test_without_a_tail_the_omission_comes_last() -> None:
    text = "".join(f"{number}\n" for number in range(30))
    assert Truncate(20, 20, 0).apply(text, RUN).text.endswith("19\n[10 lines left out]\n")


def test_lines_between_the_ends_that_match_stay_as_far_as_there_is_room() -> None:
    text = "".join(f"warning: {number}\n" if number % 10 == 5 else f"{number}\n" for number in range(60))
    shown = Truncate(8, 2, 2, keep=["^warning: "]).apply(text, RUN)
    assert shown.confidence is Confidence.PARTIAL
    kept = "warning: 5\nwarning: 15\nwarning: 25\nwarning: 35\n"
    assert shown.text == f"0\n1\n[52 lines left out around the next 4 lines]\n{kept}58\n59\n"


def test_a_text_of_which_every_line_would_stay_but_for_the_limit_is_cut_to_it() -> None:
    text = "".join(f"a{letter}\n" for letter in "bcdefghijklmnopqrstuvwxyz")
    shown = Truncate(9, 2, 2, keep=["a"]).apply(text, RUN)
    assert shown.text == "ab\nac\n[16 lines left out around the next 5 lines]\nad\nae\naf\nag\nah\nay\naz\n"


def test_lines_to_keep_that_name_different_members_of_a_list_all_stay() -> None:
    lines = [f"  # disk.data[{number}] will be destroyed" for number in range(5)]
    text = "\n".join(["begin", *lines, "middle", "more", "and more", "end", ""])
    assert Truncate(8, 1, 1, keep=["destroyed"]).apply(text, RUN).text.splitlines()[2:-1] == lines


def test_of_lines_to_keep_that_differ_only_in_when_one_stays() -> None:
    text = "".join(f"10:00:{second:02} warning: slow\n" for second in range(30))
    assert Truncate(9, 2, 2, keep=["warning"]).apply(text, RUN).text.splitlines()[2:4] == [
        "[25 lines left out around the next 1 line]",
        "10:00:02 warning: slow",
    ]


def test_a_text_below_the_number_of_characters_stays_and_a_longer_one_loses_the_middle_of_its_long_lines() -> None:
    text = "\n".join(["x" * 700, *"abcdefgh", "y"])
    assert Truncate(4, 2, 2, over_chars=len(text)).apply(text, RUN).text == text
    shown = Truncate(4, 2, 2, over_chars=len(text) - 1).apply(text, RUN).text
    assert shown == f"{'x' * 400} [200 characters left out here] {'x' * 100}\na\n[6 lines left out]\nh\ny"


BUILT = CommandRun("cargo build", ("cargo build",))
CARGO = StripAnnotated(["^ +(Compiling|Finished) "], summary_pattern="^ +Finished ")
OMITTED = re.compile(r"\[(\d+) lines? left out\]")
NOISE = re.compile(r"\[(\d+) other lines? left out\]")


def subsequence(some: list[str], of: list[str]) -> bool:
    rest = iter(of)
    return all(line in rest for line in some)


@given(st.lists(st.sampled_from([" Compiling a", "warning: b", "", " Finished dev", "c"]), max_size=60))
def test_every_line_shown_is_the_texts_own_or_counts_others_and_all_are_accounted_for(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    applied = CARGO.apply(text, BUILT)
    shown = applied.text.removesuffix("\n").split("\n") if applied.text else []
    noise = [int(found[1]) for line in shown if (found := NOISE.fullmatch(line))]
    omitted = [int(found[1]) for line in shown if (found := OMITTED.fullmatch(line))]
    own = [line for line in shown if not NOISE.fullmatch(line) and not OMITTED.fullmatch(line)]
    assert sum(noise) == (0 if applied.confidence is Confidence.FALLBACK else text.count("Compiling"))
    assert len(own) + sum(noise) + sum(omitted) == len(lines)
    assert own.count(" Finished dev") == lines.count(" Finished dev")
    if omitted:
        assert applied.confidence is Confidence.PARTIAL
        assert subsequence([line for line in own if line != " Finished dev"], lines)
    else:
        assert subsequence(own, lines)


def test_progress_goes_and_a_line_says_how_much() -> None:
    text = "   Compiling a v1\n   Compiling b v1\nwarning: unused\n    Finished dev\n"
    applied = CARGO.apply(text, BUILT)
    assert applied.text == "warning: unused\n    Finished dev\n[2 other lines left out]\n"
    assert applied.confidence is Confidence.FULL


def test_a_long_rest_becomes_its_ends_and_the_summary() -> None:
    text = " Finished dev\n" + "".join(f"{number}\n" for number in range(31))
    applied = CARGO.apply(text, BUILT)
    head = "".join(f"{number}\n" for number in range(10))
    assert applied.text == f"{head}[16 lines left out]\n26\n27\n28\n29\n30\n Finished dev\n"
    assert applied.confidence is Confidence.PARTIAL


def test_a_rest_of_just_the_threshold_stays_and_no_threshold_keeps_everything() -> None:
    rest = "line\n" * 30
    assert CARGO.apply(rest, BUILT).text == rest
    endless = StripAnnotated(["^noise"], long_output_threshold=0)
    assert endless.apply("noise\n" + rest * 10, BUILT).text == rest * 10 + "[1 other line left out]\n"


def test_a_last_line_without_a_line_feed_stays_one() -> None:
    assert CARGO.apply(" Compiling a\nb", BUILT).text == "b\n[1 other line left out]\n"


@pytest.mark.parametrize(
    "command",
    ["ls node_modules", "ls -la ./node_modules/", "find node_modules -name x", "ls -d src 'node_modules/react'"],
)
def test_a_folder_that_was_asked_for_by_name_is_no_noise(command: str) -> None:
    listing = StripAnnotated([r"^(\S+/)?node_modules(/.*)?$"], keep_named=True)
    text = "node_modules/react\nnode_modules\n"
    applied = listing.apply(text, CommandRun(command, (command.replace("'", ""),)))
    assert applied.text == text
    assert applied.confidence is Confidence.FALLBACK
    assert listing.apply(text, CommandRun("ls -a src", ("ls -a src",))).confidence is Confidence.FULL
    assert listing.apply(text, CommandRun(command)).text == text


def test_a_long_listing_of_a_folder_that_was_asked_for_is_shortened_all_the_same() -> None:
    listing = StripAnnotated(["node_modules"], keep_named=True)
    applied = listing.apply("node_modules/x\n" * 40, CommandRun("find node_modules", ("find node_modules",)))
    assert "[25 lines left out]" in applied.text
    assert "other" not in applied.text


LOGGED = CommandRun("journalctl", ("journalctl",))


def shown(text: str) -> str:
    return Dedup().apply(text, LOGGED).text


@each_row(
    "one, other",
    [
        ("2026-11-21T16:59:28.123Z a", "2025-01-02T03:04:05Z a"),
        ("2026-11-21 16:59:28,123 a", "2026-11-21 17:00:00,001 a"),
        ("2026-11-21T16:59:28+01:00 a", "2026-11-22T16:59:28-0500 a"),
        ("2026/11/21 16:59:28 a", "2026/11/21 16:59:29 a"),
        ("Nov 21 16:59:28 a", "Nov 22 16:59:28 a"),
        ("Nov  1 16:59:28 a", "Nov  2 17:59:28 a"),
        ("[21/Nov/2026:16:59:28 +0000] a", "[22/Nov/2026:00:00:00 +0200] a"),
        ("at 1700000000 a", "at 1700000001.5 a"),
        ("id 123e4567-e89b-12d3-a456-426614174000 a", "id FFFFFFFF-0000-0000-0000-00000000000f a"),
        ("from 10.0.0.1 a", "from 192.168.100.254 a"),
        ("from 10.0.0.1:80 a", "from 10.0.0.1:65535 a"),
        ("port 1 a", "port 65535 a"),
        ("Port=80 a", "Port=8080 a"),
        ("pid 7 a", "pid 77777 a"),
        ("PID: 7", "PID: 8"),
        ("port: 80", "port: 8080"),
        ("sshd[1]: a", "sshd[31337]: a"),
    ],
)
def test_lines_that_differ_in_when_and_where_are_one(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
    assert normalised(f"x\n{one}\n{other}\n").count("\n") == 3


@each_row(
    "one, other",
    [
        ("status 200", "status 500"),
        ("took 12 ms", "took 12000 ms"),
        ("worker 1 died", "worker 2 died"),
        ("version 1.2.3", "version 1.2.4"),
        ("errno[2]x", "errno[3]y"),
        ("id 123e4567-e89b", "id 123e4567-e89c"),
        ("item a[x]", "item a[y]"),
    ],
)
def test_lines_that_differ_in_what_they_say_are_two(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


def test_a_repeated_line_is_shown_at_its_first_place_with_its_number() -> None:
    text = "10:00:00 up\n10:00:01 down\n10:00:02 up\n10:00:03 up\nend\n"
    assert shown(text) == "10:00:00 up [x3]\n10:00:01 down\nend\n[5 lines, 3 of them different]\n"


def test_full_when_only_equal_lines_went_and_partial_when_they_differed() -> None:
    assert Dedup().apply("a\na\nb\n", LOGGED).confidence is Confidence.FULL
    assert Dedup().apply("10:00:00 a\n10:00:01 a\nb\n", LOGGED).confidence is Confidence.PARTIAL


@pytest.mark.parametrize("text", ["", "a\na\n", "a\nb\nc\n"])
def test_fallback_below_three_lines_or_without_repeats(text: str) -> None:
    applied = Dedup().apply(text, LOGGED)
    assert applied.text == text
    assert applied.confidence is Confidence.FALLBACK


def test_only_so_many_lines_are_remembered_and_what_is_new_behind_them_stays() -> None:
    text = "".join(f"line {number}\n" for number in range(MAX_PATTERNS)) + "late\nlate\nline 0\n"
    lines = shown(text).splitlines()
    assert lines[0] == "line 0 [x2]"
    assert lines[-3:] == ["late", "late", f"[{MAX_PATTERNS + 3:,} lines, {MAX_PATTERNS + 2:,} of them different]"]


@given(st.lists(st.sampled_from(["a", "b", "", "10:00:00 c", "10:00:01 c", "e-0000-0000-0000-000000000000"])))
def test_the_counts_add_up_to_the_lines_and_every_line_is_the_texts_own(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    applied = Dedup().apply(text, LOGGED)
    if applied.confidence is Confidence.FALLBACK:
        assert applied.text == text
        return
    *first, total = applied.text.removesuffix("\n").split("\n")
    counts = [re.search(r" \[x(\d+)\]$", line) for line in first]
    assert sum(int(count[1]) if count else 1 for count in counts) == len(lines)
    assert {re.sub(r" \[x\d+\]$", "", line) for line in first} <= set(lines)
    assert total == f"[{len(lines)} lines, {len(first)} of them different]"


CLIPPY = GroupByRule(r"^\s*--> (\S+:\d+:\d+)", r"#\[warn\(([\w:]+)\)\]")


def test_lints_are_grouped_under_their_rule_with_every_place():
    result = applied(CLIPPY, "clippy_warnings", "cargo clippy", 0)
    assert result.confidence is Confidence.FULL
    assert (
        "clippy::len_zero (2 warnings): length comparison to zero\n    src/lib.rs:26:40\n    src/lib.rs:27:41\n"
        in result.text
    )
    assert result.text.startswith("[15 warnings, grouped by 12 rules]\n")


def test_no_place_of_a_lint_is_lost():
    raw = sample("clippy_warnings")
    text = applied(CLIPPY, "clippy_warnings", "cargo clippy", 0).text
    places = [line.partition("--> ")[2] for line in raw.splitlines() if "--> " in line]
    assert len(places) == 15
    assert all(f"    {place}" in text for place in places)
    assert "Finished" not in text
    assert "= note" not in text


@pytest.mark.parametrize("name", ["clippy_compile_error", "clippy_denied"])
def test_errors_are_given_back_unchanged(name: str):
    assert unchanged(applied(CLIPPY, name, "cargo clippy", 101), name, Confidence.FALLBACK)


@pytest.mark.parametrize("name", ["clippy_clean", "clippy_short"])
def test_output_without_lints_of_this_form_is_given_back_unchanged(name: str):
    assert unchanged(applied(CLIPPY, name, "cargo clippy", 0), name, Confidence.FALLBACK)


def warning(message: str, place: str, note: str = "") -> str:
    return f"warning: {message}\n --> {place}\n  |\n1 | some code here that takes room\n{note}\n"


def test_a_rule_named_only_once_covers_later_findings_with_other_names():
    text = warning("unused variable: `x`", "a.rs:1:1", "  = note: `#[warn(unused_variables)]` on by default\n")
    text += warning("unused variable: `y`", "b.rs:2:2")
    result = CLIPPY.apply(text, CommandRun("cargo clippy"))
    assert "unused_variables (2 warnings): unused variable: `x`" in result.text
    assert "    b.rs:2:2 unused variable: `y`" in result.text


def test_findings_without_a_rule_are_grouped_under_their_message():
    text = warning("something odd", "a.rs:1:1") + warning("something odd", "b.rs:2:2")
    result = CLIPPY.apply(text, CommandRun("cargo clippy")).text
    assert "something odd (2 warnings):\n    a.rs:1:1\n    b.rs:2:2\n" in result


def test_a_warning_without_a_place_stays():
    text = warning("something odd", "a.rs:1:1") * 3 + "warning: the manifest is old\n\nall done\n"
    result = CLIPPY.apply(text, CommandRun("cargo clippy")).text
    assert "warning: the manifest is old" in result
    assert "all done" in result


def test_other_linters_work_with_patterns_of_their_own():
    flake = GroupByRule(r"^(\S+:\d+:\d+):", r": ([A-Z]\d+) ")
    text = "".join(f"src/module_{i}.py:{i}:1: W291 trailing whitespace\n" for i in range(1, 30))
    result = flake.apply(text, CommandRun("flake8"))
    assert result.text.startswith("[29 warnings, grouped by 1 rule]\nW291 (29 warnings):")
    assert all(f"src/module_{i}.py:{i}:1" in result.text for i in range(1, 30))


@pytest.mark.parametrize("pattern", ["(", "(?<=x)y", r"(a)\1"])
def test_a_pattern_that_re2_does_not_take_is_refused(pattern: str):
    with pytest.raises(ValueError, match=r".+"):
        GroupByRule(pattern, "x")
