"""The filter engine: applies the rules that match a command to its output, one after another."""

import os
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from acp_agent.config.files import Stamp, stamp
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import Confidence
from acp_agent.log import Log
from acp_agent.output.filters.strategy import CommandRun, Filtered, Restored
from acp_agent.text import lazy_regex, lines_of

if TYPE_CHECKING:  # loaded for the first command
    from acp_agent.output.filters.rule_file import FilterRuleSet

_LOG_EVERY = 50
_LOG = Log(__name__)


class FilterMetrics:
    """Counts of filtered commands, logged every 50 commands at debug level. It is safe to use from several threads.

    commands     commands whose output went through the engine
    filtered     commands whose output became shorter
    skipped      commands that no rule matched
    raw_chars    characters of all outputs before filtering
    shown_chars  characters of all outputs after filtering
    full, partial, fallback   how often each confidence was the worst of the matching rules
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter(
            dict.fromkeys(("commands", "filtered", "skipped", "raw_chars", "shown_chars", *Confidence), 0)
        )

    def record(self, raw: str, filtered: Filtered | None) -> None:
        """Count a command's output and the filtered text. `filtered` is None if no rule matched."""
        shown = len(raw if filtered is None else filtered.text)
        with self._lock:
            counts = self._counts
            counts.update(commands=1, raw_chars=len(raw), shown_chars=shown, filtered=shown < len(raw))
            counts["skipped" if filtered is None else filtered.confidence] += 1
            if counts["commands"] % _LOG_EVERY == 0:
                saved = 1 - counts["shown_chars"] / counts["raw_chars"] if counts["raw_chars"] else 0
                told = {name: count for name, count in counts.items() if not name.endswith("_chars")}
                _LOG.debug("output filters", saved=f"{saved:.1%}", **told)

    @property
    def counts(self) -> Mapping[str, int]:
        """The counts since the start."""
        with self._lock:
            return dict(self._counts)


_NOT_LITERAL = lazy_regex(r"[$\\*?\[\n]|^-|`")


def split_echoes(text: str, run: CommandRun) -> tuple[str, str, str, CommandRun]:
    """Separate the lines that leading and trailing `echo` commands printed from the rest.

    Models often write `echo "== tests =="; pytest; echo "exit: $?"`. The output of such an `echo` is known from its
    arguments, so its lines can stay, and the rest is filtered as the output of the other command. If the line of an
    `echo` is missing, it did not run (`make && echo done`) and is ignored.

    Return the lines before the rest, the rest, the lines after it, and the run without these `echo` commands.
    """
    printing = list(run.printing)
    before = after = ""
    while len(printing) > 1 and (line := _line(printing[0])):
        del printing[0]
        first, newline, rest = text.partition("\n")
        if line.fullmatch(first.rstrip()):
            before, text = before + first + newline, rest
    while len(printing) > 1 and (line := _line(printing[-1])):
        del printing[-1]
        start = text.rfind("\n", 0, len(text.removesuffix("\n"))) + 1
        if line.fullmatch(text[start:].rstrip()):
            text, after = text[:start], text[start:] + after
    return before, text, after, replace(run, printing=tuple(printing))


def _line(command: str) -> re.Pattern[str] | None:
    """Return a pattern for the line that an `echo` prints (`$?` is any number), or None if the line is unknown."""
    name, _, words = command.partition(" ")
    literals = words.split("$?")
    if name != "echo" or any(_NOT_LITERAL.search(literal) for literal in literals):
        return None
    return re.compile(r"\d{1,3}".join(re.escape(literal) for literal in (*literals[:-1], literals[-1].rstrip())))


FILE_NAME = "filters.toml"


class RuleSource:
    """The filter rules in use. It is safe to use from several threads.

    path       the user's file, or a folder that contains `filters.toml`; "" for none. Its rules replace the built-in
               ones
    required   True if a missing file is worth a warning, because the user named it
    """

    def __init__(self, path: str = "", *, required: bool = False) -> None:
        self._path = path
        self._required = required
        self._lock = threading.Lock()
        self._seen: tuple[str, Stamp] | None = None
        self._users: FilterRuleSet | None = None

    def current(self) -> "FilterRuleSet":
        """Return the rules. The file is read again if it has changed, and new warnings are logged once.

        While the file cannot be used, the previous rules stay in use. At first those are the built-in ones.
        """
        from acp_agent.output.filters.rule_file import built_in  # noqa: PLC0415 - loaded for the first command

        return self.users() or built_in()

    def users(self) -> "FilterRuleSet | None":
        """Return the user's rules with their warnings. None if the built-in ones are in use and nothing is wrong."""
        if not self._path:
            return None
        path = os.path.join(self._path, FILE_NAME)
        state = stamp(path)
        if state is None:
            path, state = self._path, stamp(self._path)
        if (path, state) == self._seen:
            return self._users
        with self._lock:
            if (path, state) != self._seen:
                before, self._users = self._users, self._read(path, state)
                self._seen = path, state
                for warning in self._users.warnings if self._users else ():
                    if before is None or warning not in before.warnings:
                        _LOG.warning("filter rules", problem=warning)
            return self._users

    def _read(self, path: str, state: Stamp) -> "FilterRuleSet | None":
        if state is None and not self._required:
            return None
        from acp_agent.output.filters.rule_file import built_in, read_rules  # noqa: PLC0415 - as above

        try:
            rules = read_rules(path)
        except (ConfigError, ValueError) as error:  # ValueError: the path is not a valid file name
            kept = self._users or built_in()
            return replace(kept, warnings=(f"{error}; {kept.source} stay in use",))
        if rules is not None:
            return rules
        missing = f"{path}: expected a file of filter rules; {built_in().source} are in use"
        return replace(built_in(), warnings=(missing,) if self._required else ())


_FROM_BEST = tuple(Confidence)


class FilterEngine:
    """Applies the rules in use to the output of commands. It is safe to use from several threads.

    summarized   whether a model summarizes long outputs; if so, the rule for unknown commands is not applied
    """

    def __init__(self, source: RuleSource | None = None, *, summarized: bool = False) -> None:
        self._source = source or RuleSource()
        self._summarized = summarized
        self.metrics = FilterMetrics()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings about the user's rules, one sentence each. Reads no built-in rule."""
        users = self._source.users()
        return () if users is None else users.warnings

    def load(self) -> None:
        """Read the rules, if they were not read yet."""
        self._source.current()

    def apply(self, text: str, run: CommandRun) -> Filtered | None:
        """Apply every matching rule and return the text, or None if no rule matches. Never raises.

        `text` is sanitized and redacted. The result of a rule is dropped if it saves neither characters nor lines.
        """
        before, body, after, rest = split_echoes(text, run) if len(run.printing) > 1 else ("", text, "", run)
        names, worst, restored = list[str](), Confidence.FULL, Restored.NOTHING
        for rule in self._source.current().rules if body else ():
            if not rule.matcher.matches(rest, first=not names) or (rule.matcher.other and self._summarized):
                continue
            applied, confidence = rule.strategy.apply(body, rest)
            if rule.matcher.other and confidence is Confidence.FALLBACK:
                continue  # the rule for unknown commands does not suit this one
            names.append(rule.name)
            if len(applied) < len(body) or lines_of(applied) < lines_of(body):
                body, restored = applied, max(restored, rule.restored)
            elif confidence is Confidence.PARTIAL:
                confidence = Confidence.FULL  # nothing is left out
            worst = max(worst, confidence, key=_FROM_BEST.index)
        filtered: Filtered | None = None
        if names:
            newline = "\n" if after and not body.endswith("\n") else ""
            whole = f"{before}{body}{newline}{after}"
            filtered = Filtered(whole, tuple(names), worst, whole != text, restored)
        self.metrics.record(text, filtered)
        return filtered
