"""The tool catalogue as one JSON document: what `acp-agent schema tools` prints and `schemas/` keeps."""

from acp_agent.core.types import JsonObject
from acp_agent.tools.registry import default_tools


def catalogue() -> JsonObject:
    """Every built-in tool with its defaults: `{"tools": [{name, description, kind, mutates, parameters}, ...]}`."""
    return {
        "tools": [
            {
                "name": spec.name,
                "description": spec.description,
                "kind": spec.kind.value,
                "mutates": spec.mutates,
                "parameters": spec.parameters,
            }
            for spec in (tool.spec() for tool in default_tools(compression=True, questions=True))
        ]
    }
