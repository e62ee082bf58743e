"""The models of a filter rule file, and the JSON schema made from them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias, cast, get_args

from acp_agent.core.types import JsonObject
from acp_agent.output.filters.strategy import LONGEST_PATTERN, check
from acp_agent.shape import AfterValidator, Field, Shape, ShapeConfig, Tagged, fields

_MOST_LINES = 1_000_000
_MOST_PATTERNS = 100


def _compiles(pattern: str) -> str:
    try:
        check(pattern)
    except ValueError as error:
        raise ValueError(f"a regular expression as RE2 takes it ({error})") from None
    return pattern


PatternText = Annotated[str, Field(min_length=1, max_length=LONGEST_PATTERN), AfterValidator(_compiles)]
"""A regular expression in RE2's syntax."""

PatternTexts = Annotated[tuple[PatternText, ...], Field(min_length=1, max_length=_MOST_PATTERNS, strict=False)]
KeptTexts = Annotated[tuple[PatternText, ...], Field(max_length=_MOST_PATTERNS, strict=False)]
Lines = Annotated[int, Field(ge=0, le=_MOST_LINES)]
SomeLines = Annotated[int, Field(ge=1, le=_MOST_LINES)]


class Match(Shape):
    """The commands that a rule applies to. Exactly one of the four is set."""

    shape_config = ShapeConfig(schema_extra={"minProperties": 1, "maxProperties": 1})

    exact: Annotated[str, Field(min_length=1)] | None = None
    """The command, or the whole command line, equals this text."""
    prefix: Annotated[str, Field(min_length=1)] | None = None
    """The command equals this text, or begins with it and a blank."""
    regex: PatternText | None = None
    """The command contains a match of this regular expression."""
    other: Literal[True] | None = None
    """No earlier rule matched the command."""

    def check(self) -> None:
        """Raise ValueError, with what is expected, if the values do not fit each other."""
        if len(self.model_fields_set) != 1 or None in (getattr(self, name) for name in self.model_fields_set):
            raise ValueError("exactly one of exact, prefix, regex, other")


class StripNoiseSpec(Shape):
    """Drop the lines that match."""

    type: Literal["strip_noise"]
    patterns: PatternTexts
    keep: KeptTexts = ()
    """Lines that match one of these stay, whatever else they match."""


class Ends(Shape):
    """Keep the first `head` and the last `tail` lines of a text that has more than `max_lines`."""

    max_lines: SomeLines
    head: Lines = 20
    tail: Lines = 20
    keep: KeptTexts = ()
    """Lines between the ends that match one of these stay, up to `max_lines` lines in all."""

    def check(self) -> None:
        """Raise ValueError, with what is expected, if the values do not fit each other."""
        if not 0 < self.head + self.tail <= self.max_lines:
            raise ValueError(
                f"head + tail from 1 to max_lines, which is {self.max_lines} (head is {self.head}, tail is {self.tail})"
            )


class TruncateSpec(Ends):
    """Keep the ends of a long text."""

    type: Literal["truncate"]
    over_chars: Lines = 0
    """A text of at most this many characters is not changed."""


class KeepMatchingSpec(Shape):
    """Keep only the lines that match."""

    type: Literal["keep_matching"]
    patterns: PatternTexts


class StripAnnotatedSpec(Shape):
    """Drop the lines that match and keep summary lines. Of a long rest, keep only the ends (threshold 0: keep all)."""

    type: Literal["strip_annotated"]
    patterns: PatternTexts
    summary_pattern: PatternText | None = None
    long_output_threshold: Lines = 30
    keep_head: Lines = 10
    keep_tail: Lines = 5
    keep_named: bool = False
    """Keep lines that match if a word of the command matches too: `ls node_modules` asks for them."""

    def check(self) -> None:
        """Raise ValueError, with what is expected, if the values do not fit each other."""
        kept = self.keep_head + self.keep_tail
        if self.long_output_threshold and not 0 < kept <= self.long_output_threshold:
            raise ValueError(
                f"keep_head + keep_tail from 1 to long_output_threshold, which is {self.long_output_threshold} "
                f"(keep_head is {self.keep_head}, keep_tail is {self.keep_tail})"
            )


class TestSummarySpec(Shape):
    """Keep a test run's failures and totals. If none are found, do what `fallback` says."""

    __test__ = False  # pytest must not collect this class as a test

    type: Literal["test_summary"]
    max_failures: SomeLines = 10
    truncate_stack_trace: SomeLines = 50
    fallback: Ends | None = None


class GroupByRuleSpec(Shape):
    """Gather diagnostics by the lint rule they name."""

    type: Literal["group_by_rule"]
    location_pattern: PatternText
    rule_pattern: PatternText


class GitStatusSpec(Shape):
    """Keep the branch, and the staged, unstaged and untracked files."""

    type: Literal["git_status"]


class GitDiffSpec(Shape):
    """Limit a diff to `max_diff_lines` lines; file headers stay."""

    type: Literal["git_diff"]
    max_diff_lines: SomeLines = 500


class DedupSpec(Shape):
    """Show repeated lines of a log once."""

    type: Literal["dedup"]


StrategySpec: TypeAlias = (
    StripNoiseSpec
    | TruncateSpec
    | KeepMatchingSpec
    | StripAnnotatedSpec
    | TestSummarySpec
    | GroupByRuleSpec
    | GitStatusSpec
    | GitDiffSpec
    | DedupSpec
)


SPECS: Mapping[str, type[Shape]] = MappingProxyType(
    {get_args(fields(spec)["type"].type)[0]: spec for spec in get_args(StrategySpec)}
)
"""The nine strategies by their `type`."""


class FilterRule(Shape):
    """A rule: the commands whose output it applies to, and what to do with the output."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    enabled: bool = True
    match: Match
    unless: PatternText | None = None
    """The rule does not apply to commands that contain a match of this regular expression."""
    strategy: Annotated[StrategySpec, Tagged("type")]


class RuleFile(Shape):
    """A file of rules, `filters.toml`. Rules are applied in the order of the file."""

    rules: Annotated[tuple[FilterRule, ...], Field(strict=False)] = ()


def filter_rules_schema() -> JsonObject:
    """Return the JSON schema (2020-12) of a rule file, as `acp-agent schema filter-rules` prints it."""
    schema = cast("JsonObject", RuleFile.model_json_schema())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "acp-agent filter rules",
        **{name: value for name, value in schema.items() if name != "title"},
    }
