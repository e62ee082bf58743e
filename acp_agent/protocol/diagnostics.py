"""An editor's diagnostics in a prompt: as a block (A24.5), or asked for by a word of the user's (A24.12)."""

import json
import re
from html import escape
from typing import cast

from acp_agent.core.types import Json, JsonObject

DIAGNOSTICS_TYPE = "application/vnd.zed.diagnostics+json"
_MENTION = re.compile(r"[ \t]?(?<![\w@./:-])@diagnostics(?![\w/-]|\.\w)")
_SEVERITIES = {"1": "ERROR", "2": "WARNING", "3": "INFO", "4": "HINT"}  # as the Language Server Protocol counts them


def mentioned(text: str) -> bool:
    """Whether the user wants the language servers' diagnostics beside this text."""
    return _MENTION.search(text) is not None


def unmentioned(text: str) -> str:
    """The text without its wish for diagnostics, of which there are none."""
    return _MENTION.sub("", text)


def diagnostics(text: str) -> str:
    """`<diagnostics>` with `path:row: [SEVERITY] message` lines, whatever shape the JSON has; empty if it has none."""
    try:
        found = cast("Json", json.loads(text))
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        found = found.get("diagnostics")
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return "\n".join(("<diagnostics>", *map(_line, entries), "</diagnostics>"))


def _line(entry: JsonObject) -> str:
    path, row = _first(entry, "path", "file", "uri"), _first(entry, "row", "line")
    severity, message = _first(entry, "severity"), _first(entry, "message")
    said = _SEVERITIES.get(severity, severity.upper())
    return escape(f"{path}:{row}: [{said}] {' '.join(message.split())}", quote=False)


def _first(entry: JsonObject, *keys: str) -> str:
    value = next((entry[key] for key in keys if entry.get(key) is not None), "")
    return str(value) if isinstance(value, str | int) else ""
