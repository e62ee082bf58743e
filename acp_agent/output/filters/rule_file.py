"""Files of filter rules: their models, their JSON schema, and each rule compiled to its matcher and its strategy.

A mistake in one rule disables only that rule.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, assert_never, cast, get_args

from acp_agent.config.files import read_toml
from acp_agent.core.data import frozen
from acp_agent.core.types import JsonObject
from acp_agent.output.filters.git import GitDiff, GitStatus
from acp_agent.output.filters.line_rules import Dedup, GroupByRule, KeepMatching, StripAnnotated, StripNoise, Truncate
from acp_agent.output.filters.strategy import (
    LONGEST_PATTERN,
    CommandRun,
    Restored,
    Strategy,
    check,
    command_pattern,
    encoded,
)
from acp_agent.output.filters.test_summary import SummaryOfTests
from acp_agent.shape import AfterValidator, Field, Problem, Shape, ShapeConfig, Tagged, ValidationError, fields
from acp_agent.text import abbreviated, packaged_table

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


class CommandMatcher:
    """The compiled `match` of a rule.

    summary   True if the rule replaces the text by a summary. Then the matching command must be the only one that
              prints, since text of other commands would be lost. Otherwise it must only be the last one that prints
    unless    an expression for commands that the rule does not apply to, or None
    beside    an expression for commands that may print beside the matching one: the summary keeps their lines

    `other` matches every command that no earlier rule matched, unless one of its printing commands matches `unless`.
    `exact`, `prefix` and `regex` are compared with the last printing command, or with the whole line if the printing
    commands are unknown. So a rule for pytest ignores `pytest > log; tail log`. `exact` is also compared with the whole
    line.

    Raises ValueError for an invalid expression.
    """

    def __init__(self, match: Match, *, summary: bool, unless: str | None = None, beside: str | None = None) -> None:
        self._exact = match.exact.strip() if match.exact is not None else None
        self._prefix = match.prefix.strip() if match.prefix is not None else None
        self._regex = command_pattern(match.regex) if match.regex is not None else None
        self._unless = command_pattern(unless) if unless is not None else None
        self._summary = summary
        self._beside = command_pattern(beside) if beside is not None else None
        self.other = match.other is not None

    def matches(self, run: CommandRun, *, first: bool = True) -> bool:
        """Return whether the rule applies to the output of this command.

        first   whether no earlier rule matched
        """
        command = run.command.strip()
        if self.other:
            return first and not any(map(self._is_exempt, run.printing or (command,)))
        if command != self._exact:
            printing = self._main(run.printing)
            if self._summary and len(printing) != 1:
                return False
            command = printing[-1] if printing else command
        if self._is_exempt(command):
            return False
        if self._exact is not None:
            return command == self._exact
        if self._prefix is not None:
            rest = command.removeprefix(self._prefix)
            return command.startswith(self._prefix) and (not rest or rest[0].isspace())
        return self._regex is not None and self._regex.search(encoded(command)) is not None

    def _main(self, printing: tuple[str, ...]) -> tuple[str, ...]:
        """Return the commands without those that may print beside the matching one."""
        if (beside := self._beside) is None or len(printing) == 1:
            return printing
        return tuple(each for each in printing if not beside.search(encoded(each)))

    def _is_exempt(self, command: str) -> bool:
        return self._unless is not None and self._unless.search(encoded(command)) is not None


_CHECKERS = (
    r"^(\S*/)?(python\S* -m )?(eslint|ruff|flake8|pylint|black|isort|mypy|(based)?pyright|tsc|prettier|biome|gofmt"
    r"|rubocop|shellcheck|golangci-lint|cargo (fmt|check|build|clippy)|go (vet|build|fmt)|git status"
    r"|((npm|pnpm|yarn|bun)( run)?|g?make) (lint|build|format|check|types|type-?check|tsc)\S*)(\s|$)"
)
_SUMMARIES = (KeepMatchingSpec, TestSummarySpec, GroupByRuleSpec, GitStatusSpec, GitDiffSpec)


class CompiledRule:
    """An enabled rule. `restored` says which lines come back if the strategy leaves them out.

    Raises ValueError if the expressions of its matcher are invalid. Its strategy is made when it is first used, because
    a session uses few of the built-in rules. It raises ValueError if the expressions of the strategy are invalid.
    """

    def __init__(self, rule: FilterRule) -> None:
        self.name = rule.name
        # If the end of a text is missing, it may have held the output of the rule's command.
        endless = isinstance(rule.strategy, TruncateSpec) and not rule.strategy.tail
        summary = endless or isinstance(rule.strategy, _SUMMARIES)
        beside = _CHECKERS if isinstance(rule.strategy, TestSummarySpec) else None
        self.matcher = CommandMatcher(rule.match, summary=summary, unless=rule.unless, beside=beside)
        self.restored = _restored(rule.strategy)
        self._spec = rule.strategy

    @cached_property
    def strategy(self) -> Strategy:
        """The compiled strategy of the rule. Raises ValueError for an invalid expression."""
        return _strategy(self._spec)


def compiled(rule: FilterRule) -> CompiledRule:
    """Compile a rule and its strategy. Raises ValueError if its expressions are invalid, or together too large."""
    made = CompiledRule(rule)
    _ = made.strategy
    return made


def _restored(spec: StrategySpec) -> Restored:
    match spec:
        case GitDiffSpec() | GitStatusSpec() | TruncateSpec(tail=0):
            return Restored.NOTHING
        case TruncateSpec():
            return Restored.SUSPECTS
        case _:
            return Restored.ERRORS


def _strategy(spec: StrategySpec) -> Strategy:  # noqa: PLR0911 - one return for each strategy
    match spec:
        case StripNoiseSpec():
            return StripNoise(spec.patterns, spec.keep)
        case KeepMatchingSpec():
            return KeepMatching(spec.patterns)
        case StripAnnotatedSpec():
            return StripAnnotated(
                spec.patterns,
                summary_pattern=spec.summary_pattern,
                long_output_threshold=spec.long_output_threshold,
                keep_head=spec.keep_head,
                keep_tail=spec.keep_tail,
                keep_named=spec.keep_named,
            )
        case TruncateSpec():
            return Truncate(spec.max_lines, spec.head, spec.tail, spec.keep, spec.over_chars)
        case TestSummarySpec():
            ends = spec.fallback
            fallback = Truncate(ends.max_lines, ends.head, ends.tail, ends.keep) if ends is not None else None
            return SummaryOfTests(spec.max_failures, spec.truncate_stack_trace, fallback)
        case GroupByRuleSpec():
            return GroupByRule(spec.location_pattern, spec.rule_pattern)
        case GitStatusSpec():
            return GitStatus()
        case GitDiffSpec():
            return GitDiff(spec.max_diff_lines)
        case DedupSpec():
            return Dedup()
        case _:
            assert_never(spec)


BUILT_IN = "the built-in rules"

_MAX_SECONDS = 2.0  # seconds of processor time to compile all rules of a file; the built-in ones take 0.01
_LONGEST_SHOWN = 60  # characters of a wrong value in a warning
_Table: TypeAlias = Mapping[str, object]


@frozen
class FilterRuleSet:
    """The rules of a file in their order.

    source     the path of the file, or BUILT_IN
    warnings   what is wrong with the file, one sentence each
    """

    rules: tuple[CompiledRule, ...]
    source: str
    warnings: tuple[str, ...] = ()


@cache
def built_in() -> FilterRuleSet:
    """Return the built-in rules. They are read when first needed, so that they do not slow the start.

    They are not checked here, since a test checks them, and each is compiled when it is first used.
    """
    rules = map(_known, packaged_table("acp_agent.output.filters", "builtin")["rules"])
    return FilterRuleSet(tuple(CompiledRule(each) for each in rules if each.enabled), BUILT_IN)


def _known(table: Mapping[str, Any]) -> FilterRule:
    """Return the rule in a table that is known to be valid."""
    values = dict[str, Any](table["strategy"])
    if "fallback" in values:
        values["fallback"] = Ends.model_construct(**values["fallback"])
    strategy = SPECS[values["type"]].model_construct(**values)
    made: dict[str, Any] = {**table, "match": Match.model_construct(**table["match"]), "strategy": strategy}
    return FilterRule.model_construct(**made)


def read_rules(path: str) -> FilterRuleSet | None:
    """Return the rules of a file, None if there is no such file.

    Raises ConfigError if the file cannot be read, is larger than 1 MiB, or is not TOML in UTF-8.
    """
    table = read_toml(path)
    return None if table is None else _rule_set(table, path)


def _rule_set(table: _Table, source: str) -> FilterRuleSet:
    rules: list[CompiledRule] = []
    warnings = [f"{source}: {key}: expected only [[rules]]" for key in table if key != "rules"]
    listed = table.get("rules", [])
    if not isinstance(listed, list):
        warnings.append(f"{source}: rules = {_shown(listed)}: expected a list of tables, [[rules]]")
        listed = []
    until = time.thread_time() + _MAX_SECONDS
    for number, value in enumerate(cast("list[object]", listed), start=1):
        if time.thread_time() > until:
            warnings.append(
                f"{source}: the rules from {number} on are skipped: expected expressions that compile faster"
            )
            break
        try:
            rule = FilterRule.model_validate(value)
            if rule.enabled:
                rules.append(compiled(rule))
        except ValidationError as error:
            wrong = _complaints(error)
        except ValueError as error:
            wrong = iter((f"its patterns: expected fewer or simpler ones ({error})",))
        else:
            continue
        warnings += [f"{source}: {_named(number, value)} is skipped: {each}" for each in wrong]
    return FilterRuleSet(tuple(rules), source, tuple(warnings))


def _named(number: int, value: object) -> str:
    name = cast("_Table", value).get("name") if isinstance(value, dict) else None
    return f"rule {number} ({_cut(name)})" if isinstance(name, str) and name else f"rule {number}"


def _complaints(error: ValidationError) -> Iterator[str]:
    """Yield what is wrong with one rule, as `key = value: expected ...`."""
    details = error.problems
    inside = {detail["loc"][:end] for detail in details for end in range(len(detail["loc"]))}
    for detail in details:
        place, value = detail["loc"], detail["input"]
        if place and place in inside:
            continue  # the list counts as too short only because its values are invalid
        spec: type[Shape] | None = None
        if detail["type"] == "union_tag_invalid":
            place, value = (*place, "type"), detail.get("ctx", {})["tag"]
        elif place[:1] == ("strategy",) and len(place) > 1:  # the next part of the location is the type, not a key
            spec = SPECS[str(place[1])]
            place = (place[0], *place[2:])
        key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")
        given = "" if detail["type"] == "missing" or not place else f" = {_shown(value)}"
        yield f"{key or 'it'}{given}: expected {_expected(detail, _siblings(place, spec))}"


def _siblings(place: tuple[int | str, ...], spec: type[Shape] | None) -> Iterable[str]:
    """Return the keys that are allowed in the table of an unknown key."""
    match place[:-1]:
        case ("match",):
            return fields(Match)
        case ("strategy",) if spec is not None:
            return fields(spec)
        case ("strategy", _):
            return fields(Ends)
        case _:
            return fields(FilterRule)


def _expected(detail: Problem, siblings: Iterable[str]) -> str:
    """Return in words what was expected."""
    given = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            return detail["msg"].removeprefix("Value error, ")
        case "extra_forbidden":
            return f"no such key, only {', '.join(siblings)}"
        case "string_too_long":
            return f"at most {given['max_length']} characters"
        case "too_long":
            return f"at most {given['max_length']} values"
        case "greater_than_equal" | "less_than_equal":
            return f"at least {given['ge']}" if "ge" in given else f"at most {given['le']}"
        case other:
            return _WORDS.get(other, "a table")


_WORDS = {
    "missing": "it to be set",
    "union_tag_invalid": f"one of {', '.join(SPECS)}",
    "union_tag_not_found": f"a table with a type, one of {', '.join(SPECS)}",
    "string_too_short": "text that is not empty",
    "string_type": "text",
    "too_short": "a list with at least one value",
    "tuple_type": "a list",
    "int_type": "a whole number",
    "bool_type": "true or false",
}


def _shown(value: object) -> str:
    """Return a value of a file on one short line."""
    if isinstance(value, bool):
        return str(value).lower()
    return _cut(f'"{value}"' if isinstance(value, str) else str(value))


def _cut(text: str) -> str:
    return abbreviated("".join(char if char.isprintable() else "?" for char in text), _LONGEST_SHOWN)
