"""`acp-agent schema NAME`: print a JSON schema, with the same text as the file in `schemas/`."""

import argparse
import json

from acp_agent.config.settings import config_schema
from acp_agent.core.types import JsonObject
from acp_agent.output.filters.rule_model import filter_rules_schema
from acp_agent.store.audit_record import audit_schema
from acp_agent.tools.registry import catalogue


def schema(args: argparse.Namespace) -> int:
    """Print the schema of the configuration, the filter rules or an audit line, or the tools with their schemas."""
    print(schema_text(_document(args.name)), end="")
    return 0


def _document(name: str) -> JsonObject:
    match name:
        case "audit":
            return audit_schema()
        case "config":
            return config_schema()
        case "filter-rules":
            return filter_rules_schema()
        case _:
            return catalogue()


def schema_text(document: JsonObject) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
