"""`strip_annotated` drops progress, keeps the summary and shortens a long rest."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_rules import StripAnnotated
from acp_agent.output.filters.strategy import CommandRun

RUN = CommandRun("cargo build", ("cargo build",))
CARGO = StripAnnotated(["^ +(Compiling|Finished) "], summary_pattern="^ +Finished ")
OMITTED = re.compile(r"\.\.\. \((\d+) lines? omitted\) \.\.\.")
NOISE = re.compile(r"\((\d+) noise lines? removed\)")


def subsequence(some: list[str], of: list[str]) -> bool:
    rest = iter(of)
    return all(line in rest for line in some)


@given(st.lists(st.sampled_from([" Compiling a", "warning: b", "", " Finished dev", "c"]), max_size=60))
def test_every_line_shown_is_the_texts_own_or_counts_others_and_all_are_accounted_for(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    applied = CARGO.apply(text, RUN)
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
    applied = CARGO.apply(text, RUN)
    assert applied.text == "warning: unused\n    Finished dev\n(2 noise lines removed)\n"
    assert applied.confidence is Confidence.FULL


def test_a_long_rest_becomes_its_ends_and_the_summary() -> None:
    text = " Finished dev\n" + "".join(f"{number}\n" for number in range(31))
    applied = CARGO.apply(text, RUN)
    head = "".join(f"{number}\n" for number in range(10))
    assert applied.text == f"{head}... (16 lines omitted) ...\n26\n27\n28\n29\n30\n Finished dev\n"
    assert applied.confidence is Confidence.PARTIAL


def test_a_rest_of_just_the_threshold_stays_and_no_threshold_keeps_everything() -> None:
    rest = "line\n" * 30
    assert CARGO.apply(rest, RUN).text == rest
    endless = StripAnnotated(["^noise"], long_output_threshold=0)
    assert endless.apply("noise\n" + rest * 10, RUN).text == rest * 10 + "(1 noise line removed)\n"


def test_a_last_line_without_a_line_feed_stays_one() -> None:
    assert CARGO.apply(" Compiling a\nb", RUN).text == "b\n(1 noise line removed)\n"


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
    assert "... (25 lines omitted) ..." in applied.text
    assert "noise" not in applied.text


def test_ends_longer_than_the_threshold_are_an_error() -> None:
    with pytest.raises(
        ValueError, match="keep_head = 10 and keep_tail = 5: expected at most long_output_threshold = 9"
    ):
        StripAnnotated(["x"], long_output_threshold=9)
