"""An editor's diagnostics in a prompt (A24.5): `<diagnostics>` with a line each, whatever shape the JSON has."""

import json
from html import escape
from typing import cast

from acp_agent.core.types import Json, JsonObject

DIAGNOSTICS_TYPE = "application/vnd.zed.diagnostics+json"


def diagnostics(text: str) -> str:
    """`path:row: [SEVERITY] message` lines; an empty block when the text cannot be read."""
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
    return escape(f"{path}:{row}: [{severity.upper()}] {' '.join(message.split())}", quote=False)


def _first(entry: JsonObject, *keys: str) -> str:
    value = next((entry[key] for key in keys if entry.get(key) is not None), "")
    return str(value) if isinstance(value, str | int) else ""
