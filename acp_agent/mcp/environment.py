"""The environment a server's program is started with: a few plain variables, and what its entry adds (A25.3)."""

from collections.abc import Iterable, Mapping
from typing import Final

MARK: Final = "ACP_COMMAND_ID"
"""Says whose a process is, however far it has wandered off. The same as that of commands, so that what cleans up
after a command leaves a server alone, and what ends everything at the end finds it."""

_PASSED: Final = frozenset(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "TZ", "LANG", "LANGUAGE"))
_PASSED_PREFIX: Final = "LC_"
_FORBIDDEN: Final = frozenset(
    (
        *("PATH", "BASH_ENV", "ENV", "PYTHONPATH", "NODE_PATH", "RUBYLIB", MARK),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    )
)
_FORBIDDEN_PREFIXES: Final = ("LD_", "DYLD_")


def server_environment(
    source: Mapping[str, str], added: Iterable[tuple[str, str]]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables for a server, and the names its entry asked for in vain.

    Dropped, in whatever case they are written, are the names that change what programs are loaded or where their
    traffic goes, and what is no name or value of a variable at all.
    """
    environment = {name: value for name, value in source.items() if name in _PASSED or name.startswith(_PASSED_PREFIX)}
    dropped: list[str] = []
    for name, value in added:
        if _is_forbidden(name) or not name or "=" in name or "\0" in name + value:
            dropped.append(name)
        else:
            environment[name] = value
    return environment, tuple(dropped)


def _is_forbidden(name: str) -> bool:
    upper = name.upper()
    return upper in _FORBIDDEN or upper.startswith(_FORBIDDEN_PREFIXES)
