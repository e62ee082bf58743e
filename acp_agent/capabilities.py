"""What `initialize` answers (A3; ACP "Initialization"). Standard library only: boot imports this first.

One source for boot and server, and nothing is advertised that is not served.
"""

from __future__ import annotations

import os
import sys

from acp_agent import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:  # the real thing costs more than everything here
    from collections.abc import Mapping

    from acp_agent.core.types import Json, JsonObject

PROTOCOL_VERSION = 1
AGENT_NAME = "acp-agent"

# CodeCompanion authenticates with the first method at once and the registry refuses an empty list, so there
# is always one, and it succeeds without asking anything (acp.md 4.4, 5).
AUTH_METHOD = "acp-agent"
LOGIN_METHOD = "acp-agent-login"
"""The method that the client runs in a terminal, never through `authenticate`."""

FORK_VARIABLE = "ACP_AGENT_ACP_FORK"
"""Offers `session/fork`, which is in the unstable schema only. A variable: nothing is read before the first answer."""

EXT_METHODS = (
    "_acp_agent/session/get",
    "_acp_agent/session/export",
    "_acp_agent/session/import",
    "_acp_agent/session/delete",
    "_acp_agent/working_dir/update",
    "_acp_agent/status",
    "_acp_agent/tools",
    "_acp_agent/policy/check",
    "_acp_agent/audit/tail",
    "_acp_agent/mcp/list",
    "_acp_agent/mcp/add",
    "_acp_agent/mcp/remove",
)
"""The requests of our own that are served (A3.7, A26). Sessions are listed by ACP's own session/list."""

LSP_METHODS = (
    *("lsp/hover", "lsp/definition", "lsp/references", "lsp/diagnostics"),
    *("lsp/documentSymbols", "lsp/workspaceSymbol", "lsp/codeActions"),
)
LSP_NOTIFICATIONS = ("lsp/publishDiagnostics", "lsp/didSave")
"""What a client may serve and tell of its language servers (A27); it says which under `_meta.lsp`."""

# Where keys are stored, and for which address: the older form of terminal login runs without the agent's environment.
_LOGIN_VARIABLES = (
    "ACP_AGENT_CONFIG",
    "ACP_AGENT_DATA_DIR",
    "ANTHROPIC_BASE_URL",
    "OPENAI_BASE_URL",
    "OLLAMA_HOST",
)


def fork_offered(environ: Mapping[str, str]) -> bool:
    """Whether `session/fork` is on. Whoever serves it asks here, too."""
    return environ.get(FORK_VARIABLE, "").lower() in ("1", "true", "yes", "on")


def initialize_result(params: JsonObject | None = None, *, fork: bool = False) -> JsonObject:
    """The result object for what the client sent. Every requested version gets 1, the only one served (acp.md 2.2).

    params   the client's; what is malformed in it counts as absent, whatever it is
    fork     whether `session/fork` is served
    """
    session: JsonObject = {"list": {}, "resume": {}, "close": {}, "delete": {}, "additionalDirectories": {}}
    if fork:
        session["fork"] = {}
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentInfo": {"name": AGENT_NAME, "title": "acp-agent AI Agent", "version": __version__},
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": session,
            "auth": {"logout": {}},
            "_meta": {
                "acp_agent": {
                    "config_options": True,
                    "ext_methods": list(EXT_METHODS),
                    "lsp": {"methods": list(LSP_METHODS), "notifications": list(LSP_NOTIFICATIONS)},
                }
            },
        },
        "authMethods": _auth_methods((params or {}).get("clientCapabilities")),
    }


def _auth_methods(client: Json) -> list[Json]:
    """How to authenticate, by what the client can do (acp.md 1.4).

    A terminal login has two forms: one of the protocol, whose arguments the client appends to the command it has
    configured, and an older one under `_meta`, a command of its own. Clients that know both want one entry: Zed
    reads the one or the other, by its version.
    """
    methods: list[Json] = [
        {
            "id": AUTH_METHOD,
            "name": "acp-agent",
            "description": "Uses the API keys of the environment, the configuration file and `acp-agent login`",
        }
    ]
    stable = _at(client, "auth", "terminal") is True
    older = _at(client, "_meta", "terminal-auth") is True
    if not stable and not older:
        return methods
    login: JsonObject = {
        "id": LOGIN_METHOD,
        "name": "Log in with an API key",
        "description": "Asks for a provider and its API key in a terminal, and stores the key",
    }
    if stable:
        login.update({"type": "terminal", "args": ["login"], "env": {}})
    if older:
        login["_meta"] = {"terminal-auth": _login_command(os.environ)}
    return [*methods, login]


def _login_command(environ: Mapping[str, str]) -> JsonObject:
    """The command that logs in: this process's own with `login` behind it.

    `-P`, since the terminal may start in a project that brings a folder `acp_agent` along.
    """
    program = sys.argv[0]
    installed = os.path.isabs(program) and not program.endswith(".py")  # else `python -m acp_agent`
    command = [program] if installed else [sys.executable, "-P", "-m", "acp_agent"]
    return {
        "label": "acp-agent login",
        "command": command[0],
        "args": [*command[1:], *sys.argv[1:], "login"],
        "env": {name: environ[name] for name in _LOGIN_VARIABLES if environ.get(name)},
    }


def _at(value: Json, *path: str) -> Json:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
