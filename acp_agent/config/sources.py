"""The files a configuration is read from, and what holds for one that can no longer be read."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from acp_agent.config.files import Stamp, read_project, read_toml, stamp
from acp_agent.config.layers import Reader
from acp_agent.config.places import PROJECT_FILE
from acp_agent.config.settings import Settings
from acp_agent.core.errors import ConfigError

Table: TypeAlias = Mapping[str, object]
"""What a file says."""


class Files:
    """The files of one load: what they say, and the states they were in before they were read.

    known    what files said before, by path: that holds for one that cannot be read now, or is gone or empty. A program
             that saves a file may well empty it first, and nobody lifts a ban by losing a file
    fault    why nobody knows what the user's own file says
    """

    def __init__(self, reader: Reader, known: Mapping[str, Table]) -> None:
        self._reader = reader
        self._known = known
        self.fault: ConfigError | None = None
        self.tables = dict[str, Table]()
        self.stamps = dict[str, Stamp]()

    def users(self, file: str, *, named: bool) -> Table | None:
        """The user's own table; None when it cannot be read. A file somebody named has to be there."""
        table, problem = self._read(file, partial(read_toml, file))
        if table is None and problem is None and named:
            why = "expected this file to exist, since --config or $ACP_AGENT_CONFIG names it"
            problem = ConfigError(file, "", "", why)
            self._reader.problems.append(problem)
        if table is None:
            self.fault = problem
        return table if problem else (table or {})

    def projects(self, cwd: str) -> Table:
        """The project's table."""
        return self._read(f"{cwd}/{PROJECT_FILE}", partial(read_project, cwd, PROJECT_FILE))[0] or {}

    def look_for_policy(self, settings: Settings, cwd: str | None) -> None:
        """Note the policy file's state. It is read with the gates; one that was there must not be gone."""
        policy = settings.tools.policy
        if cwd is None or policy.policy_file is None or not policy.enabled:
            return
        path = os.path.join(cwd, os.path.expanduser(policy.policy_file))
        self.stamps[path] = stamp(path)
        if path in self._known and self.stamps[path] is None:
            self._reader.report(path, "tools.policy.policy_file", policy.policy_file, "it to be there, as it was")
        if path in self._known or self.stamps[path] is not None:
            self.tables[path] = {}

    def _read(self, path: str, read: Callable[[], Table | None]) -> tuple[Table | None, ConfigError | None]:
        """What a file says, or said; and what is wrong with it now."""
        self.stamps[path] = stamp(path)
        before = self._known.get(path)
        problem = None
        try:
            table = read()
            if before and not table:
                problem = ConfigError(path, "", "", f"expected it not to be {'gone' if table is None else 'empty'}")
        except ConfigError as error:
            table, problem = None, error
        if problem is not None:
            if before is not None:
                why = f"{problem.expected}; what it said before holds on"
                table, problem = before, ConfigError(path, "", "", why)
            self._reader.problems.append(problem)
        if table is not None:
            self.tables[path] = table
        return table, problem
