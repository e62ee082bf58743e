"""`[audit]`: the record of every tool call (L9). The user's alone: a project's file can change nothing here."""

import os
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from acp_agent.config.places import data_path
from acp_agent.config.section import PathText, Section


class AuditSettings(Section):
    """`[audit]`: what was called, on whose word, and how it ended."""

    enabled: Annotated[bool, Field(description="Whether tool calls are recorded.")] = True
    file: Annotated[
        PathText | None,
        Field(
            description="The record, mode 0600; its head is kept beside it. Unset: audit.jsonl in the data folder.",
            examples=["~/acp-agent-audit/audit.jsonl"],
        ),
    ] = None
    max_bytes: Annotated[
        int,
        Field(
            ge=64 * 1024,
            le=1 << 40,
            description="A file larger than this gets another name when an agent starts; it is never deleted.",
        ),
    ] = 64 * 1024 * 1024


def audit_file(chosen: str | None, environ: Mapping[str, str]) -> str:
    """Where the audit is: `[audit] file`, else in the data folder. Touches nothing. Raises ConfigError."""
    return chosen or os.path.join(data_path(environ), "audit.jsonl")
