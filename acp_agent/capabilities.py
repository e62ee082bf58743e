"""The result of `initialize`, for boot and for the server. Everything that it offers is served.

Boot imports this module before the first answer, so it uses the standard library only. See
https://agentclientprotocol.com/protocol/initialization.
"""

from __future__ import annotations

import os
import sys

from acp_agent import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:  # these imports would take longer than everything else here
    from collections.abc import Mapping

    from acp_agent.core.types import Json, JsonObject

PROTOCOL_VERSION = 1
AGENT_NAME = "acp-agent"

AUTH_METHOD = "acp-agent"
"""The first authentication method. It asks nothing.

CodeCompanion calls it at once, and the registry of ACP agents refuses an empty list of methods.
"""
LOGIN_METHOD = "acp-agent-login"
"""The authentication method that the client runs in a terminal. `authenticate` does not serve it."""

FORK_VARIABLE = "ACP_AGENT_ACP_FORK"
"""The variable that switches on `session/fork`, an unstable method.

It is no setting, because `initialize` is answered before the configuration is read.
"""

EXT_METHODS = (
    "_acp_agent/session/get", "_acp_agent/session/export", "_acp_agent/session/import", "_acp_agent/session/delete",
    "_acp_agent/working_dir/update", "_acp_agent/status", "_acp_agent/tools", "_acp_agent/policy/check",
    "_acp_agent/audit/tail", "_acp_agent/mcp/list", "_acp_agent/mcp/add", "_acp_agent/mcp/remove",
)  # fmt: skip
"""The extension requests that the agent serves."""

LSP_METHODS = (
    *("lsp/hover", "lsp/definition", "lsp/references", "lsp/diagnostics"),
    *("lsp/documentSymbols", "lsp/workspaceSymbol", "lsp/codeActions"),
)
LSP_NOTIFICATIONS = ("lsp/publishDiagnostics", "lsp/didSave")
"""The methods and notifications of our LSP extension. A client names those that it has under `_meta.lsp`."""

# The older form of terminal login runs without the agent's environment, so these variables are passed on to it.
_LOGIN_VARIABLES = (
    "ACP_AGENT_CONFIG", "ACP_AGENT_DATA_DIR", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "OLLAMA_HOST",
)  # fmt: skip


def fork_offered(environ: Mapping[str, str]) -> bool:
    """Return whether `session/fork` is switched on."""
    return environ.get(FORK_VARIABLE, "").lower() in ("1", "true", "yes", "on")


def initialize_result(params: JsonObject | None = None, *, fork: bool = False) -> JsonObject:
    """Return the result for a client's params. Every requested version is answered with 1, the only one served.

    A capability that is not served is left out, because some clients read `false` as support.

    params   malformed members count as absent
    fork     whether `session/fork` is served
    """
    session: JsonObject = {"list": {}, "resume": {}, "close": {}, "delete": {}, "additionalDirectories": {}}
    if fork:
        session["fork"] = {}
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentInfo": {"name": AGENT_NAME, "title": "acp-agent", "version": __version__},
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "embeddedContext": True},
            "mcpCapabilities": {"http": True},
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
    """Return the authentication methods that fit the client's capabilities.

    A terminal login has two forms: the protocol's, whose arguments the client appends to the configured command, and an
    older one under `_meta`, with a command of its own. Both stand in one entry, because Zed reads one or the other
    depending on its version.
    """
    methods: list[Json] = [
        {
            "id": AUTH_METHOD,
            "name": "acp-agent",
            "description": "Uses the API keys of the environment, the configuration file and `acp-agent login`",
        }
    ]
    stable = at(client, "auth", "terminal") is True
    older = at(client, "_meta", "terminal-auth") is True
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
    """Return the command that logs in: the one that started this process, with `login` added.

    Python gets `-P`, because the terminal may start in a project that has a folder `acp_agent`.
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


def at(value: Json, *path: str) -> Json:
    """Return the member at `path`, or None."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
