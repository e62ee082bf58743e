"""The files of the configuration: where they are, how TOML is read, and the keys that `acp-agent login` stored.

The file of stored keys, `credentials.toml`, has a table for each provider:

    [anthropic]
    base_url = ""                       # the vendor's own address
    key = "…"

    [openai]
    base_url = "https://llm.corp.example/v1"
    keyring = "5e884898da28…"           # the key is in the system's keyring; each login writes another mark

A key is never sent to another address than the one it was stored for. The file has mode 0600. The keyring is asked only
for providers that have a mark and no key here. If there are both, the keyring could not be used at the last login and
still has an older key, which `acp-agent logout` removes. Entries of another form are skipped.
"""

import os
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from functools import cache
from typing import ClassVar, TypeAlias

import platformdirs

from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError
from acp_agent.core.untrusted import now_ns, toml_table

LIMIT = 1024 * 1024
"""The longest configuration file that is read, in bytes."""

Stamp: TypeAlias = tuple[int, ...] | None
"""A value that changes when the file changes. None if there is no file."""

_DEVICE = 4
"""The place of the device's number in a stamp."""
_TICK = 20_000_000
"""The time in nanoseconds within which a file system may give two writes the same timestamp."""


def stamp(path: str, now: int | None = None) -> Stamp:
    """Return the current stamp of a file, or None if it does not exist. The file is not opened, and links are followed.

    A file that was written less than 20 ms ago gets a stamp that no later stamp equals, so it is read again. Otherwise
    a second write with the same timestamps could be missed.

    now   the time in nanoseconds since 1970, if the caller knows it
    """
    try:
        return _stamp(os.stat(path), now_ns() if now is None else now)
    except (OSError, ValueError):
        return None


def _stamp(status: os.stat_result, now: int) -> tuple[int, ...]:
    written = max(status.st_mtime_ns, status.st_ctime_ns)
    moment = now if abs(now - written) < _TICK else 0
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev, moment)


class PathStamps:
    """The stamps of the paths that something was read from. While they hold, it need not be read again.

    Ask for the stamp of a path before reading there, so that a change in between is noticed later.

    now   returns nanoseconds since 1970
    """

    _MOST: ClassVar[int] = 100
    """The most paths that `hold` looks at. With more it returns False, since a thread should look at so many."""

    def __init__(self, now: Callable[[], int] = now_ns) -> None:
        self._now = now
        self._seen = dict[str, tuple[Stamp, Stamp]]()
        self._devices = set[int]()
        self._is_doubtful = False

    def exists(self, path: str) -> bool:
        """Return whether there is an entry at a path, even a link that leads nowhere. The disk is asked once."""
        return self._asked(path)[0] is not None

    def of(self, path: str) -> Stamp:
        """Return the stamp of a file, as `stamp` does. The disk is asked once."""
        return self._asked(path)[1]

    def doubt(self) -> None:
        """Note that reading failed. `hold` returns False from now on, since another attempt may succeed."""
        self._is_doubtful = True

    def hold(self, devices: Collection[int]) -> bool:
        """Return whether nothing has changed at these paths. It takes a `stat` for each, on these devices only.

        Without devices, or if a path was on another one, it returns False at once: the disk may hang.
        """
        if not devices or self._is_doubtful or len(self._seen) > self._MOST or not self._devices.issubset(devices):
            return False
        now = self._now()
        return all(_stamps(path, now) == seen for path, seen in self._seen.items())

    def _asked(self, path: str) -> tuple[Stamp, Stamp]:
        if path not in self._seen:
            self._seen[path] = both = _stamps(path, self._now())
            self._devices |= {each[_DEVICE] for each in both if each is not None}
        return self._seen[path]


def _stamps(path: str, now: int) -> tuple[Stamp, Stamp]:
    """Return the stamps of an entry and of the file that it leads to if it is a link."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None, None
    entry = _stamp(status, now)
    return entry, stamp(path, now) if stat.S_ISLNK(status.st_mode) else entry


def read_toml(path: str) -> dict[str, object] | None:
    """Return the table in a file, or None if there is no such file.

    Raises:
        ConfigError: It is no regular file, it cannot be read, it is longer than 1 MiB, or it is not TOML in UTF-8
            within the bounds of `core.untrusted`.

    """
    try:
        data = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(path, "", "", f"expected a file that can be read: {error.strerror}") from error
    try:
        return toml_table(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        why = f"expected TOML in UTF-8, but byte {error.start} is not (at line {line})"
        raise ConfigError(path, "", "", why) from error
    except ValueError as error:
        last = "at line {}, the end".format(data.count(b"\n") + 1)
        raise ConfigError(path, "", "", f"expected TOML: {error}".replace("at end of document", last)) from error


def _read(path: str) -> bytes:
    """Read the whole file. It is opened without blocking, so a FIFO or a device in its place does not make us wait."""
    if path == os.devnull:  # users write it to mean no file
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
    """Read a file of a project as `read_toml` does, but follow no link out of the project. Raises ConfigError."""
    path = os.path.join(cwd, name)
    root = os.path.realpath(cwd)
    if os.path.lexists(path) and os.path.commonpath((os.path.realpath(path), root)) != root:
        raise ConfigError(path, "", "", "expected a file inside the project, not a link out of it")
    return read_toml(path)


APP = "acp-agent"
CONFIG_VARIABLE = "ACP_AGENT_CONFIG"
DATA_VARIABLE = "ACP_AGENT_DATA_DIR"
FORK_VARIABLE = "ACP_AGENT_ACP_FORK"
"""The variable that switches on `session/fork`. `capabilities.fork_offered` reads it."""
FRAMES_VARIABLE = "ACP_AGENT_LOG_FRAMES"
"""The variable that names the frame log, a file that receives all ACP messages without secrets."""
STRICT_VARIABLE = "ACP_AGENT_STRICT"
"""The variable that, if it is 1, makes the agent check every ACP message: see `protocol.strict`."""
PERMISSION_FILE = "acp-permissions.toml"
"""The file in the data folder that keeps "always" answers, unless `[acp] permission_file` names another."""
PROJECT_FILE = os.path.join(".acp-agent", "config.toml")
RULES_FOLDER = os.path.join(".claude", "rules")
"""The folder of rules below a folder. Each of its Markdown files is a file of notes."""


def config_file(flag: str | None, environ: Mapping[str, str]) -> str:
    """Return the absolute path of the user's file: `--config`, else $ACP_AGENT_CONFIG, else the platform's default."""
    chosen = flag or environ.get(CONFIG_VARIABLE)
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    return os.path.join(platformdirs.user_config_dir(APP, appauthor=False), "config.toml")


def data_dir(environ: Mapping[str, str]) -> str:
    """Return the absolute path of the data folder: $ACP_AGENT_DATA_DIR, else the platform's default.

    A missing folder is created with mode 0700. A folder of the user gets this mode as well if others
    have access to it.

    Raises:
        ConfigError: It is no folder, it belongs to another user, or it cannot be created.

    """
    path, where = data_path(environ), data_source(environ)
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.stat(path)
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
            os.chmod(path, 0o700)
    except OSError as error:
        raise ConfigError(where, "", "", f"expected a folder for data: {path}: {error.strerror}") from error
    if status.st_uid != os.geteuid():
        raise ConfigError(where, "", "", f"expected a folder of your own: {path} belongs to another user")
    return path


def data_source(environ: Mapping[str, str]) -> str:
    """Return what an error blames for an unusable data folder: its variable if that is set, else the folder itself."""
    return f"environment variable {DATA_VARIABLE}" if environ.get(DATA_VARIABLE) else "data folder"


def data_path(environ: Mapping[str, str]) -> str:
    """Return the path of the data folder and create nothing. Raises ConfigError if $ACP_AGENT_DATA_DIR is relative."""
    chosen = environ.get(DATA_VARIABLE)
    if not chosen:
        return _users_data(os.environ.get("HOME"), os.environ.get("XDG_DATA_HOME"))
    path = os.path.expanduser(chosen)
    if not os.path.isabs(path):  # it would depend on the folder in which the editor starts the agent
        raise ConfigError("environment", DATA_VARIABLE, chosen, "an absolute path")
    return os.path.normpath(path)


@cache
def _users_data(*_follows_from: str | None) -> str:
    """Return the platform's folder for data. It is cached, because each session asks for it many times."""
    return platformdirs.user_data_dir(APP, appauthor=False)


def database_file(environ: Mapping[str, str]) -> str:
    """Return the path of the database in the data folder. Create nothing. Raises ConfigError as `data_path` does."""
    return os.path.join(data_path(environ), "acp-agent.db")


def session_locks_file(environ: Mapping[str, str]) -> str:
    """Return the path of the file that records which process has which session open. Raises ConfigError."""
    return os.path.join(data_path(environ), "sessions.lock")


def snapshots_folder(environ: Mapping[str, str]) -> str:
    """Return the path of the folder with the old contents of files, for `/undo`. Raises ConfigError."""
    return os.path.join(data_path(environ), "undo")


@frozen
class Credential:
    """A stored key.

    base_url   the address the key is for, without a trailing slash; empty for the vendor's own
    key        the key itself; empty if it is in the keyring
    mark       a mark of the login that stored a key in the keyring; empty if there is none. With `key`, it stands for a
               former key, which is not used, but is still in the keyring until `acp-agent logout`
    """

    provider: str
    base_url: str
    key: str = field(default="", repr=False)
    mark: str = ""

    def fits(self, provider: str, base_url: str) -> bool:
        """Return True if the key is for this provider at this address."""
        return (self.provider, self.base_url) == (provider, plain_address(base_url))


def plain_address(base_url: str | None) -> str:
    """Return an address in the form that stored keys use."""
    return (base_url or "").strip().rstrip("/")


def credentials_file(environ: Mapping[str, str]) -> str:
    """Return the path of the file of stored keys. Raises ConfigError as `data_path` does."""
    return os.path.join(data_path(environ), "credentials.toml")


def read_credentials(path: str) -> tuple[Credential, ...]:
    """Return the stored keys of a file, none if it does not exist. Raises ConfigError if it cannot be read."""
    return understood(read_toml(path) or {})


def understood(table: Mapping[str, object]) -> tuple[Credential, ...]:
    """Return the stored keys of a parsed file."""
    found: list[Credential] = []
    for provider, entry in table.items():
        match entry:
            case {"base_url": str(base_url), "key": str(key), "keyring": str(mark)} if key:
                found.append(Credential(provider, base_url, key, mark))
            case {"base_url": str(base_url), "key": str(key)} if key:
                found.append(Credential(provider, base_url, key=key))
            case {"base_url": str(base_url), "keyring": str(mark)} if mark:
                found.append(Credential(provider, base_url, mark=mark))
            case _:
                pass
    return tuple(found)
