"""The rules in force: the user's file if there is one, taken up again when it changes (requirements O1.1, O1.2)."""

import os
import threading

from acp_agent.config.files import Stamp, stamp
from acp_agent.core.errors import ConfigError
from acp_agent.log import Log
from acp_agent.output.filters.rule_file import RuleSet, built_in, read_rules

FILE_NAME = "filters.toml"

_LOG = Log(__name__)


class RuleSource:
    """Where the rules come from. Safe to use from several threads.

    path       the user's file, or a folder that holds `filters.toml`; "" for none. Its rules replace the built-in ones
    required   whether a file that is not there is worth a warning: the user named it
    """

    def __init__(self, path: str = "", *, required: bool = False) -> None:
        self._path = path
        self._required = required
        self._lock = threading.Lock()
        self._seen: tuple[str, Stamp] | None = None
        self._rules: RuleSet | None = None

    def current(self) -> RuleSet:
        """The rules now, with what is wrong with them. Costs a look at the file; what is new is logged once.

        A file that cannot be used leaves the rules as they were before: the built-in ones at first.
        """
        seen = self._state()
        rules = self._rules
        if rules is not None and seen == self._seen:
            return rules
        with self._lock:
            before = self._rules
            if before is None or seen != self._seen:
                self._seen = seen
                self._rules = self._read(seen[0])
                for warning in self._rules.warnings:
                    if before is None or warning not in before.warnings:
                        _LOG.warning("filter rules", problem=warning)
            return self._rules or built_in()

    def _state(self) -> tuple[str, Stamp]:
        """The file the rules are in, and its state."""
        if not self._path:
            return "", None
        inside = os.path.join(self._path, FILE_NAME)
        found = stamp(inside)
        return (self._path, stamp(self._path)) if found is None else (inside, found)

    def _read(self, path: str) -> RuleSet:
        if not path:
            return built_in()
        kept = self._rules or built_in()
        try:
            rules = read_rules(path)
        except (ConfigError, ValueError) as error:  # ValueError: no name a file can have
            return RuleSet(kept.rules, kept.source, (f"{error}; {kept.source} stay in force",))
        if rules is not None:
            return rules
        missing = f"{path}: expected a file of filter rules; {built_in().source} are in force"
        return RuleSet(built_in().rules, built_in().source, (missing,) if self._required else ())
