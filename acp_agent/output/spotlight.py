"""Marks the text of a tool as data for the model, so that it is not taken for instructions.

The text stands between two lines with the same id. The id comes from the call's UUID, which is made after the text or
is unknown to its author, so nothing in the text can close the fence. Text of this machine is not changed: a model that
edits a file needs its exact characters. In text from outside, everything that looks like one of our marks is escaped as
well, for readers that do not compare ids. The system prompt (`agent/prompt.py`) explains the fence to the model.
"""

import hashlib
from html import escape

from acp_agent.output.sanitize import sanitize
from acp_agent.text import defanged

_LOCAL = "tool-output"
_EXTERNAL = "external-data"
_LONGEST_SOURCE = 2048


def fence(text: str, call_id: str, *, external: str | None = None) -> str:
    """Return `text` in its fence. `external` is the URL or MCP server it comes from, None for this machine."""
    tag, source = _LOCAL, ""
    if external is not None:
        tag, text = _EXTERNAL, defanged(text)
        source = f' source="{escape(" ".join(sanitize(external[:_LONGEST_SOURCE]).split()))}"'
    token = _token(call_id, text)
    newline = "" if text.endswith("\n") else "\n"
    return f'<{tag} id="{token}"{source}>\n{text}{newline}</{tag} id="{token}">'


def _token(call_id: str, text: str) -> str:
    """Return eight characters that do not occur in the text."""
    seed = call_id
    while True:
        seed = hashlib.sha256(seed.encode("utf-8", "backslashreplace")).hexdigest()
        if seed[:8] not in text:
            return seed[:8]
