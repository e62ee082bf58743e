"""Redaction: secrets told by their form, by their value, by the user's patterns (S9, O4.3, security.md 2.6)."""

from acp_agent.output.redaction.known import KnownSecrets
from acp_agent.output.redaction.redactor import Redacted, Redactor, compile_extra
from acp_agent.output.redaction.stream import RedactionStream

__all__ = ["KnownSecrets", "Redacted", "RedactionStream", "Redactor", "compile_extra"]
