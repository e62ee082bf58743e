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
        *("PATH", "BASH_ENV", "ENV", MARK, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "GCONV_PATH"),
        *(
            "PYTHONPATH",
            "PYTHONHOME",
            "PYTHONSTARTUP",
            "PYTHONUSERBASE",
            "PYTHONBREAKPOINT",
            "NODE_PATH",
            "NODE_OPTIONS",
        ),
        *("RUBYLIB", "RUBYOPT", "GEM_PATH", "GEM_HOME", "PERLLIB", "PERL5LIB", "PERL5OPT", "PERL5DB"),
        *("CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS"),
        *("LUA_INIT", "LUA_PATH", "LUA_CPATH", "PHPRC", "PHP_INI_SCAN_DIR"),
        *("GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_PROXY_COMMAND", "GIT_EXTERNAL_DIFF"),
        *("GIT_ASKPASS", "SSH_ASKPASS", "GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"),
    )
)
_FORBIDDEN_PREFIXES: Final = ("LD_", "DYLD_", "GIT_CONFIG")


def server_environment(
    source: Mapping[str, str], added: Iterable[tuple[str, str]]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables for a server, and the names its entry asked for in vain.

    Dropped, in whatever case they are written, is what is no name or value of a variable at all, and the names that
    change where traffic goes (the proxies) or which code is loaded:

    programs     PATH, BASH_ENV, ENV, LD_*, DYLD_*, GCONV_PATH
    Python       PYTHONPATH, PYTHONHOME, PYTHONSTARTUP, PYTHONUSERBASE, PYTHONBREAKPOINT
    Node         NODE_PATH, NODE_OPTIONS (`--require`)
    Ruby, Perl   RUBYLIB, RUBYOPT, GEM_PATH, GEM_HOME; PERLLIB, PERL5LIB, PERL5OPT, PERL5DB
    Java, .NET   CLASSPATH, JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS, _JAVA_OPTIONS; DOTNET_STARTUP_HOOKS
    Lua, PHP     LUA_INIT, LUA_PATH, LUA_CPATH; PHPRC, PHP_INI_SCAN_DIR
    git          GIT_CONFIG*, GIT_EXEC_PATH, GIT_TEMPLATE_DIR and the programs it calls (GIT_SSH*, GIT_PAGER, ...)

    Others pass, such as GIT_AUTHOR_NAME: an entry names the program itself, so this is no fence against its author.
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
