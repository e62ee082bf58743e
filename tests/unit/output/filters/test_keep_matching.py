"""`keep_matching` keeps lines that matter, and everything when none does or the command failed."""

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_rules import KeepMatching
from acp_agent.output.filters.strategy import CommandRun

RUN = CommandRun("git push", ("git push",), 0)
PUSH = KeepMatching(["->", "^To "])


@given(st.lists(st.sampled_from(["a -> b", "To x", "Counting objects: 3", "", "Writing"]), max_size=20))
def test_what_stays_is_the_lines_that_match_in_their_order(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    applied = PUSH.apply(text, RUN)
    kept = [line for line in lines if "->" in line or line.startswith("To ")]
    assert applied.text == ("".join(f"{line}\n" for line in kept) if kept else text)
    assert applied.confidence is (Confidence.FULL if kept else Confidence.FALLBACK)


def test_the_output_of_a_failed_command_stays_whole() -> None:
    text = "To x\nsome hook: the reason\n"
    applied = PUSH.apply(text, CommandRun("git push", ("git push",), 1))
    assert applied.text == text
    assert applied.confidence is Confidence.FALLBACK
