"""Marks a tool's words as data for the model (requirements L12, T5.13; security.md 2.7).

The text stands between two lines that carry the same id. The id comes from the call's own, a UUID made when the
text was not yet written or at least not by anybody who could have known it, so that nothing in the text can close
the fence. Text of this machine stays as it is: a model that edits a file needs its exact words. In text from outside
what looks like a mark of ours is escaped as well, for readers who do not compare ids. What a fence means is said in
the system prompt (`agent/prompt.py`).
"""

import hashlib
from html import escape

from acp_agent.core.tags import defanged
from acp_agent.output.sanitize import sanitize

_LOCAL = "tool-output"
_EXTERNAL = "external-data"
_LONGEST_SOURCE = 2048


def fence(text: str, call_id: str, *, external: str | None = None) -> str:
    """`text` between its fence. `external` is where it comes from, a URL or an MCP server; None = this machine."""
    tag, source = _LOCAL, ""
    if external is not None:
        tag, text = _EXTERNAL, defanged(text)
        source = f' source="{escape(" ".join(sanitize(external[:_LONGEST_SOURCE]).split()))}"'
    token = _token(call_id, text)
    newline = "" if text.endswith("\n") else "\n"
    return f'<{tag} id="{token}"{source}>\n{text}{newline}</{tag} id="{token}">'


def _token(call_id: str, text: str) -> str:
    """Eight characters that are not in the text."""
    seed = call_id
    while True:
        seed = hashlib.sha256(seed.encode("utf-8", "backslashreplace")).hexdigest()
        if seed[:8] not in text:
            return seed[:8]
