"""How a command goes to the editor's terminal: its form and its environment (ACP "Terminals"; acp.md 4.6 item 1)."""

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Sequence

from acp_agent.core.types import Json, JsonObject
from acp_agent.workspace.processes.environment import GIT_SETTING

_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")
_UNSET = "ACP_AGENT_UNSET"
# What a terminal of an editor must not do in a command nobody types into.
_ENVIRONMENT = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    # As in child_environment.py; what the editor itself may set for git in this way is not known here, and is gone.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": GIT_SETTING[0],
    "GIT_CONFIG_VALUE_0": GIT_SETTING[1],
}


class TerminalCommands:
    """The commands of one session as the editor gets them.

    A terminal begins with the editor's environment, and ACP can set variables there but not take any away. So those
    that a command must not see are set to nothing, and the shell, which finds their names in a variable, unsets them
    before the command runs. The names are not spelled out in the command, which users read.

    form      "script" hands over a private script file, the one form every client runs right; "exec" passes the line
              as an argument of the shell; "line" passes it as the command
    folder    where scripts go, mode 0700
    hidden    names of the variables that commands must not see
    """

    def __init__(self, *, form: str, folder: Callable[[], str], shell: str, hidden: Sequence[str] = ()) -> None:
        self._form = form
        self._folder = folder
        self._shell = shell
        self._opening = f"unset -v ${_UNSET} {_UNSET}; " if hidden else ""
        variables = _ENVIRONMENT | dict.fromkeys(hidden, "") | ({_UNSET: " ".join(hidden)} if hidden else {})
        self._environment: list[Json] = [{"name": name, "value": value} for name, value in variables.items()]

    def prepare(self, command: str) -> tuple[JsonObject, str | None]:
        """Return the members of `terminal/create` for a command, and the path of its script if it has one."""
        command = self._opening + command
        script = self._write_script(command) if self._form == "script" else None
        return {**self._invocation(command, script), "env": self._environment}, script

    def _invocation(self, command: str, script: str | None) -> JsonObject:
        if script is not None:
            return {"command": self._shell, "args": [script]}
        if self._form == "line":
            return {"command": f"{self._shell} -c {shlex.quote(command)}"}
        return {"command": self._shell, "args": ["-c", command]}

    def _write_script(self, command: str) -> str | None:
        """Return the path of a new private script, or None where none is to be had without special characters."""
        for _ in range(2):  # a cleaner of old files may have taken the folder: the second time it is a new one
            with contextlib.suppress(OSError):
                path = os.path.join(self._folder(), f"{os.urandom(8).hex()}.sh")
                return _written(path, command) if _PLAIN_PATH.fullmatch(path) else None
        return None


def remove(script: str | None) -> None:
    """Delete a script, if there is one."""
    if script is not None:
        with contextlib.suppress(OSError):  # gone already, or the folder is; nothing depends on it
            os.unlink(script)


def _written(path: str, command: str) -> str:
    """`path`, now a private script. Raises OSError, and leaves nothing then."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(command + "\n")
    except BaseException:
        remove(path)
        raise
    return path
