"""`acp-agent schema NAME`: a JSON schema on stdout, the same text that `schemas/` keeps."""

import argparse
import json

from acp_agent.config.schema import config_schema
from acp_agent.core.types import JsonObject
from acp_agent.tools.catalogue import catalogue


def schema(args: argparse.Namespace) -> int:
    """Print the schema of the configuration file, or the tools with the schemas of their arguments."""
    print(schema_text(config_schema() if args.name == "config" else catalogue()), end="")
    return 0


def schema_text(document: JsonObject) -> str:
    """A schema as its file holds it."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
