"""Where the configuration is read from and where data is kept."""

import os
import stat
from collections.abc import Mapping

import platformdirs

from acp_agent.core.errors import ConfigError

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
