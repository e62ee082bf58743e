"""Redaction of secrets: by their form, by their known value, and by patterns of the user."""

from acp_agent.output.redaction.known import KnownSecrets
from acp_agent.output.redaction.redactor import Redacted, Redactor, compile_extra
from acp_agent.output.redaction.stream import RedactionStream

__all__ = ["KnownSecrets", "Redacted", "RedactionStream", "Redactor", "compile_extra"]
