"""What reaches the model, the user and the machines of a tool's words."""

import json

import pytest

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.types import Diff, ImagePart, Location, OutputStats, ToolKind, ToolResult, ToolSpec
from acp_agent.output.pipeline import Pipeline, Reader, Source, stats_line

BASH = ToolSpec("bash", "Run a command.", {}, ToolKind.EXECUTE, mutates=True)
READ = ToolSpec("read", "Read a file.", {}, ToolKind.READ, mutates=False)
PIPELINE = Pipeline(threshold=50_000, display_limit=16_384)


def shell_result(output: str, stderr: str = "") -> ToolResult:
    return ToolResult(
        text=f"{output}{stderr}",
        envelope={"output": output + stderr, "stdout": output, "stderr": stderr, "exit_code": 0, "truncated": False},
    )


def test_text_display_and_every_string_of_the_envelope_are_sanitized() -> None:
    result = ToolResult(
        "\x1b[31mred\x1b[0m",
        display="bell\x07",
        envelope={"a": ["\x1b[1mb", {"c\x07": "d\u202e"}], "n": 1, "none": None, "yes": True},
    )
    applied = PIPELINE.apply(result, BASH)
    assert applied.text == "red"
    assert applied.display == "bell"
    assert applied.envelope == {"a": ["b", {"c\x07": "d"}], "n": 1, "none": None, "yes": True}


def test_a_display_that_is_the_text_stays_so() -> None:
    assert PIPELINE.apply(ToolResult("\x1b[31mred"), BASH).display is None
    assert PIPELINE.apply(ToolResult("red", display="\x1b[31mred"), BASH).shown == "red"


def test_a_command_loses_overwritten_text_and_a_file_does_not() -> None:
    text = "10%\r100%\n\n\n\nend\n"
    assert PIPELINE.apply(ToolResult(text), BASH).text == "100%\n\nend\n"
    assert PIPELINE.apply(ToolResult(text), READ).text == "10%\n100%\n\n\n\nend\n"


def test_up_to_the_threshold_the_model_gets_everything_and_the_editor_a_cut() -> None:
    applied = PIPELINE.apply(shell_result("x" * 50_000), BASH)
    assert len(applied.text) == 50_000
    assert len(applied.shown) <= 16_384
    assert "[truncated" in applied.shown
    assert applied.envelope is not None
    assert applied.envelope["truncated"] is True


def test_above_the_threshold_the_model_gets_head_and_tail() -> None:
    applied = PIPELINE.apply(shell_result("first\n" + "x" * 50_000 + "\nlast"), BASH)
    assert len(applied.text) <= 50_000
    assert applied.text.startswith("first\n")
    assert applied.text.endswith("\nlast")
    assert "showing first and last ~25000 chars" in applied.text


def test_the_editor_gets_no_more_than_four_limits_of_10_megabytes() -> None:
    applied = PIPELINE.apply(shell_result("0123456789\n" * 900_000, "oops\n" * 100_000), BASH)
    assert len(applied.shown) + len(json.dumps(applied.envelope)) < 4.5 * 16_384


def test_a_result_that_fits_is_not_called_truncated() -> None:
    applied = PIPELINE.apply(shell_result("small"), BASH)
    assert applied.envelope is not None
    assert applied.envelope["truncated"] is False


def test_what_the_tool_itself_cut_stays_marked() -> None:
    applied = PIPELINE.apply(ToolResult("small", envelope={"truncated": True}), BASH)
    assert applied.envelope == {"truncated": True}


def test_no_envelope_is_made_where_there_was_none() -> None:
    assert PIPELINE.apply(ToolResult("x" * 60_000), READ).envelope is None


def test_the_given_result_is_not_changed() -> None:
    result = shell_result("\x1b[0m" + "x" * 60_000)
    PIPELINE.apply(result, BASH)
    assert result == shell_result("\x1b[0m" + "x" * 60_000)


def test_diffs_and_locations_stay_as_they_are() -> None:
    diff = Diff("/a", "\x1b[0m old\r\n", "new\r\n")
    result = ToolResult("ok", diffs=(diff,), locations=(Location("/a", 1),))
    applied = PIPELINE.apply(result, READ)
    assert applied.diffs == (diff,)
    assert applied.locations == result.locations


def test_pictures_stay_as_they_are_however_large() -> None:
    images = (ImagePart("A" * 100_000, "image/png"),)
    assert PIPELINE.apply(ToolResult("\x1b[0mImage: a.png", images=images), READ).images == images


def test_a_failure_is_cleaned_for_the_audit_too() -> None:
    failure = ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "\x1b[31mno such file", "look\x07")
    applied = PIPELINE.apply(ToolResult.failed(failure), BASH)
    assert applied.failure == ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "no such file", "look")
    assert applied.shown == "no such file"
    assert applied.text.startswith("[tool_error]\ncategory: permanent_failure\nerror: no such file\n")


def test_stats_compare_what_came_with_what_the_model_reads() -> None:
    applied = PIPELINE.apply(ToolResult("a\n\n\n\nb\x07\n"), BASH)
    assert applied.stats == OutputStats(raw_lines=5, shown_lines=3, raw_chars=8, shown_chars=5)


def test_stages_run_in_order_on_clean_text_before_the_cut_and_know_the_reader() -> None:
    seen: list[tuple[str, Reader]] = []

    def redact(text: str, source: Source) -> str:
        seen.append((text[:6], source.reader))
        return text.replace("SECRET", "[REDACTED]")

    def keep_redacted_lines(text: str, source: Source) -> str:
        if source.reader is not Reader.MODEL:
            return text
        return "".join(line for line in text.splitlines(keepends=True) if "[REDACTED]" in line)

    pipeline = Pipeline(1000, 1000, [redact, keep_redacted_lines])
    applied = pipeline.apply(ToolResult("SEC\x1b[0mRET one\n" + "noise\n" * 10, envelope={"output": "SECRET"}), BASH)
    assert applied.text == "[REDACTED] one\n"
    assert applied.shown == "[REDACTED] one\n" + "noise\n" * 10
    assert applied.envelope == {"output": "[REDACTED]"}
    assert ("SECRET", Reader.MODEL) in seen
    assert {reader for _, reader in seen} == set(Reader)


@pytest.mark.parametrize(("threshold", "display"), [(0, 1000), (1000, 10)])
def test_limits_too_small_to_show_anything_are_refused(threshold: int, display: int) -> None:
    with pytest.raises(ValueError, match="expected at least 256 characters"):
        Pipeline(threshold, display)


def test_the_stats_line_is_that_of_the_requirements() -> None:
    stats = OutputStats(raw_lines=342, shown_lines=28, raw_chars=1, shown_chars=1)
    assert stats_line(stats, "shell") == "[shell] 342 lines -> 28 lines, 91.8% filtered"


@pytest.mark.parametrize(("raw", "shown"), [(0, 0), (5, 5), (5, 6)])
def test_there_is_no_stats_line_when_no_line_was_removed(raw: int, shown: int) -> None:
    assert stats_line(OutputStats(raw, shown, 9, 9), "shell") == ""
