"""What `initialize` answers (A3; ACP "Initialization"). Standard library only: boot imports this first.

One source for boot and server, and nothing is advertised that is not served.
"""

from __future__ import annotations

from acp_agent import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:  # the real thing costs more than everything here
    from acp_agent.core.types import JsonObject

PROTOCOL_VERSION = 1
AGENT_NAME = "acp-agent"

# CodeCompanion authenticates with the first method at once and the registry refuses an empty list, so there
# is always one, and it succeeds without asking anything (acp.md 4.4, 5).
AUTH_METHOD = "acp-agent"


def initialize_result() -> JsonObject:
    """The result object. Every requested version gets 1, the only one served (acp.md 2.2)."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentInfo": {"name": AGENT_NAME, "title": "acp-agent AI Agent", "version": __version__},
        "agentCapabilities": {
            "loadSession": False,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": {"additionalDirectories": {}},
        },
        "authMethods": [
            {
                "id": AUTH_METHOD,
                "name": "acp-agent",
                "description": "Uses the API keys of the environment and the configuration file",
            }
        ],
    }
