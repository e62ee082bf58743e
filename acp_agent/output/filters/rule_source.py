"""The rules in force: the user's file if there is one, taken up again when it changes (requirements O1.1, O1.2)."""

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from acp_agent.config.files import Stamp, stamp
from acp_agent.core.errors import ConfigError
from acp_agent.log import Log

if TYPE_CHECKING:
    from acp_agent.output.filters.rule_file import RuleSet

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
        self._users: RuleSet | None = None

    def current(self) -> "RuleSet":
        """The rules now, with what is wrong with them. Costs a look at the file; what is new is logged once.

        A file that cannot be used leaves the rules as they were before: the built-in ones at first.
        """
        return self._users_now() or _built_in()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the user's rules now. Where there are none, no rule is read for it."""
        users = self._users_now()
        return () if users is None else users.warnings

    def _users_now(self) -> "RuleSet | None":
        """The user's rules, or what is wrong with them; None where the built-in ones are in force, as they should."""
        seen = self._state()
        if seen == self._seen:
            return self._users
        with self._lock:
            if seen != self._seen:
                before, self._users = self._users, self._read(*seen)
                self._seen = seen
                for warning in self._users.warnings if self._users else ():
                    if before is None or warning not in before.warnings:
                        _LOG.warning("filter rules", problem=warning)
            return self._users

    def _state(self) -> tuple[str, Stamp]:
        """The file the rules are in, and its state."""
        if not self._path:
            return "", None
        inside = os.path.join(self._path, FILE_NAME)
        found = stamp(inside)
        return (self._path, stamp(self._path)) if found is None else (inside, found)

    def _read(self, path: str, state: Stamp) -> "RuleSet | None":
        if not path or (state is None and not self._required):
            return None
        from acp_agent.output.filters.rule_file import read_rules  # noqa: PLC0415 - see `_built_in`

        try:
            rules = read_rules(path)
        except (ConfigError, ValueError) as error:  # ValueError: no name a file can have
            kept = self._users or _built_in()
            return replace(kept, warnings=(f"{error}; {kept.source} stay in force",))
        if rules is not None:
            return rules
        missing = f"{path}: expected a file of filter rules; {_built_in().source} are in force"
        return replace(_built_in(), warnings=(missing,) if self._required else ())


def _built_in() -> "RuleSet":
    from acp_agent.output.filters.rule_file import built_in  # noqa: PLC0415 - rules wait for the first command

    return built_in()
