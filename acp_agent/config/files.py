"""One TOML file as a table, or the reason why not; and how to tell that it has changed."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import platformdirs

from acp_agent.core.clock import now_ns
from acp_agent.core.errors import ConfigError
from acp_agent.core.untrusted import toml_table

LIMIT = 1024 * 1024  # bytes; a configuration file is never that long

Stamp: TypeAlias = tuple[int, ...] | None
"""What tells one state of a file from the next; None for no file."""

_TICK = 50_000_000
"""Nanoseconds in which two writes may leave the same time behind: file systems count in ticks of some milliseconds."""


def stamp(path: str) -> Stamp:
    """The state a file is in. One that was written this very moment equals no later stamp, so it is read again.

    Follows links, as reading does. Opens nothing.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    now = now_ns()
    written = max(status.st_mtime_ns, status.st_ctime_ns)
    moment = now if abs(now - written) < _TICK else 0
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev, moment)


def read_toml(path: str) -> dict[str, object] | None:
    """The table in a file; None when there is no such file.

    Raises ConfigError when it is no regular file, cannot be read, is longer than 1 MiB, or is not TOML in UTF-8
    within the bounds of `core.untrusted`.
    """
    try:
        data = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(path, "", "", f"expected a file that can be read: {error.strerror}") from error
    try:
        return toml_table(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        why = f"expected TOML in UTF-8, but byte {error.start} is not (at line {line})"
        raise ConfigError(path, "", "", why) from error
    except ValueError as error:
        last = "at line {}, the end".format(data.count(b"\n") + 1)
        raise ConfigError(path, "", "", f"expected TOML: {error}".replace("at end of document", last)) from error


def _read(path: str) -> bytes:
    """The whole file. Opened so that a FIFO or device put in its place cannot make us wait."""
    if path == os.devnull:  # how people say "none"
        return b""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConfigError(path, "", "", "expected a regular file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(LIMIT + 1)
    finally:
        os.close(fd)
    if len(data) > LIMIT:
        raise ConfigError(path, "", "", "expected a file of at most 1 MiB")
    return data


def read_project(cwd: str, name: str) -> dict[str, object] | None:
    """Like `read_toml` for a file that comes with a project: a link out of the project is not followed."""
    path = os.path.join(cwd, name)
    root = os.path.realpath(cwd)
    if os.path.lexists(path) and os.path.commonpath((os.path.realpath(path), root)) != root:
        raise ConfigError(path, "", "", "expected a file inside the project, not a link out of it")
    return read_toml(path)


APP = "acp-agent"
CONFIG_VARIABLE = "ACP_AGENT_CONFIG"
DATA_VARIABLE = "ACP_AGENT_DATA_DIR"
FORK_VARIABLE = "ACP_AGENT_ACP_FORK"
"""See capabilities.fork_offered."""
PERMISSION_FILE = "acp-permissions.toml"
"""Keeps "always" answers, in the data folder unless `[acp] permission_file` names another (A2)."""
PROJECT_FILE = os.path.join(".acp-agent", "config.toml")


def config_file(flag: str | None, environ: Mapping[str, str]) -> str:
    """The user's configuration file: `--config`, else $ACP_AGENT_CONFIG, else the platform's place. Absolute."""
    chosen = flag or environ.get(CONFIG_VARIABLE)
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    return os.path.join(platformdirs.user_config_dir(APP, appauthor=False), "config.toml")


def data_dir(environ: Mapping[str, str]) -> str:
    """The folder for everything we keep: $ACP_AGENT_DATA_DIR, else the platform's place; absolute, mode 0700.

    Created when missing, and closed to others when it is ours and open. Raises ConfigError when it is no folder,
    belongs to somebody else or cannot be made.
    """
    path, where = data_path(environ), f"environment variable {DATA_VARIABLE}"
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.stat(path)
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
            os.chmod(path, 0o700)
    except OSError as error:
        raise ConfigError(where, "", "", f"expected a folder for data: {path}: {error.strerror}") from error
    if status.st_uid != os.geteuid():
        raise ConfigError(where, "", "", f"expected a folder of your own: {path} belongs to somebody else")
    return path


def data_path(environ: Mapping[str, str]) -> str:
    """Where `data_dir` is, without touching anything. Raises ConfigError for a relative $ACP_AGENT_DATA_DIR."""
    chosen = environ.get(DATA_VARIABLE)
    if not chosen:
        return platformdirs.user_data_dir(APP, appauthor=False)
    path = os.path.expanduser(chosen)
    if not os.path.isabs(path):  # editors start us in folders nobody thinks of
        raise ConfigError("environment", DATA_VARIABLE, chosen, "an absolute path")
    return os.path.normpath(path)


def database_file(environ: Mapping[str, str]) -> str:
    """The one database, in the data folder, which is not made here. Raises ConfigError as `data_path` does."""
    return os.path.join(data_path(environ), "acp-agent.db")


def session_locks_file(environ: Mapping[str, str]) -> str:
    """Beside the database: which process has which session open. Raises ConfigError as `data_path` does."""
    return os.path.join(data_path(environ), "sessions.lock")


@dataclass(frozen=True, slots=True)
class Credential:
    """One stored key.

    base_url   the address it is for, without a slash at its end; empty for the vendor's own
    key        the key itself; empty where the keyring has it
    mark       what tells it from the provider's former ones in the keyring; empty where the file has it
    """

    provider: str
    base_url: str
    key: str = field(default="", repr=False)
    mark: str = ""

    def fits(self, provider: str, base_url: str) -> bool:
        """Whether it is for this provider at this address."""
        return (self.provider, self.base_url) == (provider, plain_address(base_url))


def plain_address(base_url: str | None) -> str:
    """An address as credentials name it."""
    return (base_url or "").strip().rstrip("/")


def credentials_file(environ: Mapping[str, str]) -> str:
    """Where they are, in the data folder. Raises ConfigError as `data_path` does."""
    return os.path.join(data_path(environ), "credentials.toml")


def read_credentials(path: str) -> tuple[Credential, ...]:
    """What the file says; nothing when there is none. Raises ConfigError for one that cannot be read."""
    return understood(read_toml(path) or {})


def understood(table: Mapping[str, object]) -> tuple[Credential, ...]:
    """The credentials of a parsed file."""
    found: list[Credential] = []
    for provider, entry in table.items():
        match entry:
            case {"base_url": str(base_url), "key": str(key)} if key:
                found.append(Credential(provider, base_url, key=key))
            case {"base_url": str(base_url), "keyring": str(mark)} if mark:
                found.append(Credential(provider, base_url, mark=mark))
            case _:
                pass
    return tuple(found)
