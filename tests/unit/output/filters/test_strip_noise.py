"""`strip_noise` drops lines, and nothing but lines."""

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_rules import StripNoise
from acp_agent.output.filters.strategy import Applied, CommandRun

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
        assert applied.text.endswith("removed)\n")


def test_full_when_something_went_and_fallback_when_nothing_did() -> None:
    strip = StripNoise(["^npm warn"])
    assert strip.apply("npm warn a\nadded 1\n", RUN).confidence is Confidence.FULL
    assert strip.apply("added 1\n", RUN).confidence is Confidence.FALLBACK
    assert strip.apply("", RUN).confidence is Confidence.FALLBACK


def test_when_all_is_noise_a_line_says_so() -> None:
    assert StripNoise(["."]).apply("a\nb\n", RUN).text == "(2 noise lines removed)\n"
    assert StripNoise(["."]).apply("a", RUN).text == "(1 noise line removed)\n"


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
