"""The environment variables and the private folders of commands.

One folder holds the scripts that an editor's terminal runs. Others stand for /tmp and the home of contained commands.
They lie among the temporary files, where other users may write. A folder there is ours only if it belongs to this user
and no other user has access. Links are not followed, and a folder of scripts that contains a folder is not removed. The
process holds its folders with `flock`, which ends with the process. Folders of dead processes are removed.
"""

import fcntl
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import IO

from acp_agent.core.errors import ConfigError
from acp_agent.core.new_file import is_at
from acp_agent.workspace.beneath import holding

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT", "PYENV_VERSION", "UV_CACHE_DIR"),
        *("NVM_DIR", "VOLTA_HOME", "PNPM_HOME", "BUN_INSTALL", "DENO_DIR"),
        *("CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOROOT", "GOBIN", "GOMODCACHE", "JAVA_HOME", "GRADLE_USER_HOME"),
        *("GEM_HOME", "RBENV_ROOT", "ASDF_DIR", "MISE_DATA_DIR", "SDKROOT", "DEVELOPER_DIR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    }
)
_PREFIXES = ("LC_",)
_NEVER_PREFIXES = (
    *("ACP_AGENT_", "ANTHROPIC_", "OPENAI_", "AWS_", "AZURE_", "GCP_", "GOOGLE_", "GEMINI_", "HF_", "HUGGING"),
    *("OPENROUTER_", "MISTRAL_", "GROQ_", "DEEPSEEK_", "XAI_"),
)
_NEVER_SUFFIXES = ("_API_KEY",)
_KEYS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY",
    "AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_CLIENT_SECRET", "GEMINI_API_KEY", "GOOGLE_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACEHUB_API_TOKEN",
    "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "CODESTRAL_API_KEY", "GROQ_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY",
    "COHERE_API_KEY", "CO_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY", "PERPLEXITY_API_KEY", "CEREBRAS_API_KEY",
    "NVIDIA_API_KEY", "REPLICATE_API_TOKEN", "VOYAGE_API_KEY", "JINA_API_KEY", "DASHSCOPE_API_KEY", "MOONSHOT_API_KEY",
    "ZHIPUAI_API_KEY", "ZAI_API_KEY", "MINIMAX_API_KEY", "AI21_API_KEY", "SAMBANOVA_API_KEY", "DEEPINFRA_API_KEY",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Nobody can type into a command, so it must not wait for a key, a password or an editor. Git takes the message it has.
_FIXED = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}
# A folder of a checkout may be a bare repository, whose settings name programs that git would run.
GIT_SETTING = ("safe.bareRepository", "explicit")


def child_environment(source: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of `source` that a command may see: the usual ones, those named in `extra`, and ours.

    Raises ConfigError if `extra` names one of our own variables or a key of a model API, which no setting may pass on.
    """
    wanted = frozenset(extra)
    for name in sorted(wanted):
        if _is_ours(name):
            raise ConfigError("tools.shell", "env_allow", name, "a variable without a key of the agent in it")
    passed = {
        name: value
        for name, value in source.items()
        if (name in _NAMES or name in wanted or name.startswith(_PREFIXES)) and not _is_ours(name)
    }
    return {**passed, **_FIXED, **_git_settings(passed)}


def hidden_variables(source: Mapping[str, str], extra: Iterable[str], keys: Iterable[str]) -> tuple[str, ...]:
    """Return the variables to hide from a command whose environment comes from another process, the editor.

    Such a process may have keys that are not in `source`, so those of the usual providers are always included.

    extra   the names that the user lets commands see. Names that no setting may pass on stay hidden
    keys    the names from which the configuration takes keys
    """
    allowed = frozenset(name for name in extra if not _is_ours(name))
    found = {*_KEYS, *keys, *filter(_is_ours, source)} - allowed
    return tuple(sorted(name for name in found if _NAME.fullmatch(name)))


def _git_settings(passed: Mapping[str, str]) -> dict[str, str]:
    """Return our setting for git behind the user's ones, as git numbers them in its environment."""
    count = 0
    given = passed.get("GIT_CONFIG_COUNT", "")
    most = int(given) if given.isascii() and given.isdigit() and len(given) < 5 else 0
    while count < most and f"GIT_CONFIG_KEY_{count}" in passed and f"GIT_CONFIG_VALUE_{count}" in passed:
        count += 1
    key, value = GIT_SETTING
    return {
        "GIT_CONFIG_COUNT": str(count + 1),
        f"GIT_CONFIG_KEY_{count}": key,
        f"GIT_CONFIG_VALUE_{count}": value,
    }


def _is_ours(name: str) -> bool:
    upper = name.upper()
    return upper.startswith(_NEVER_PREFIXES) or upper.endswith(_NEVER_SUFFIXES)


_SCRIPTS = "acp-agent-sh-"
_SANDBOX = "acp-agent-sandbox-"
_ATTEMPTS = 10


def input_file(data: bytes) -> IO[bytes]:
    """Return a file without a name from which a command reads its input. The writer need not wait for the reader."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(data)
    file.seek(0)
    return file


class PrivateFolder:
    """One folder, made when it is first needed. Only one thread may use it.

    whole   True for contained commands: `close` also removes the folders in it. False for scripts
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._prefix = _SANDBOX if whole else _SCRIPTS
        self._held: tuple[str, int] | None = None

    def path(self) -> str:
        """Return the folder, or a new one if a cleaner of old files removed it. Raises OSError."""
        if self._held is not None and not is_at(*self._held):
            self.close()
        if self._held is None:
            self._held = _made(self._prefix)
        return self._held[0]

    def close(self) -> None:
        """Remove the folder with what is in it. It blocks."""
        if self._held is not None:
            (path, fd), self._held = self._held, None
            with holding(fd):
                _remove(path, fd)


def remove_abandoned() -> int:
    """Remove the folders of this user whose process is gone. Return their number. It blocks."""
    removed = 0
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for path in [entry.path for entry in entries if entry.name.startswith((_SCRIPTS, _SANDBOX))]:
            with suppress(OSError), holding(_open(path)) as fd:
                removed += _is_private(fd) and _locked(fd) and is_at(path, fd) and _remove(path, fd)
    return removed


def _made(prefix: str) -> tuple[str, int]:
    """Return a new folder and the fd that holds it. If another process removes it before that, make another one."""
    for _ in range(_ATTEMPTS):
        path = tempfile.mkdtemp(prefix=prefix)
        with suppress(FileNotFoundError):
            fd = _open(path)
            try:
                ours = _locked(fd)
            except OSError:  # no locks on this file system, so no process removes anything there either
                ours = True
            if ours and is_at(path, fd):
                return path, fd
            os.close(fd)
    raise OSError("every new private folder is removed at once")


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_private(fd: int) -> bool:
    """Return whether a folder belongs to this user, and only to them."""
    found = os.fstat(fd)
    return found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU


def _locked(fd: int) -> bool:
    """Lock a folder until it is closed. Return False if another process has locked it. Raises OSError."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: str, fd: int) -> bool:
    """Remove a folder with its files, and one for contained commands with its folders. Return whether it is gone."""
    with suppress(OSError):
        if os.path.basename(path).startswith(_SANDBOX):
            try:
                shutil.rmtree(path)
            except PermissionError:  # a command has closed a folder, as Go does in its cache of modules
                _open_folders(fd)
                shutil.rmtree(path)
            return True
        for name in os.listdir(fd):
            os.unlink(name, dir_fd=fd)
        os.rmdir(path)
        return True
    return False


_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _open_folders(fd: int) -> None:
    """Let this user list and change all folders below an open one. No link is followed. Raises OSError."""
    for name in os.listdir(fd):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
            continue
        if sys.platform == "linux":
            with holding(os.open(name, os.O_PATH | _FOLDER, dir_fd=fd)) as place:
                os.chmod(f"/proc/self/fd/{place}", stat.S_IRWXU)
        else:
            os.chmod(name, stat.S_IRWXU, dir_fd=fd, follow_symlinks=False)
        with holding(os.open(name, os.O_RDONLY | _FOLDER, dir_fd=fd)) as inner:
            _open_folders(inner)
