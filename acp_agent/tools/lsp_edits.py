"""The changes a language server would make (A27.2; LSP 3.17, "Code Action", "WorkspaceEdit")."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from acp_agent.core.types import Json, JsonObject
from acp_agent.tools.lsp_answer import MOST, Span, clipped, entries, read_span, word

_LONGEST_NEW_TEXT = 2_000


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to a file: another text for a span, or what becomes of the whole file."""

    uri: str
    span: Span | None
    new_text: str = ""
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """Something a language server would do."""

    title: str
    kind: str
    preferred: bool
    edits: tuple[Edit, ...]


def actions(answer: Json) -> list[Action]:
    """Those of (Command | CodeAction)[] that carry an edit (A27.2)."""
    found: list[Action] = []
    for entry in entries(answer):
        match entry:
            case {"title": str(title), "edit": dict(edit)}:
                preferred = entry.get("isPreferred", entry.get("is_preferred")) is True
                edits = tuple(islice(_edits(edit), MOST))
                if edits:
                    found.append(Action(word(title), word(entry.get("kind")), preferred, edits))
            case _:
                pass
    return found


def _edits(edit: JsonObject) -> Iterator[Edit]:
    changes = edit.get("changes")
    if isinstance(changes, dict):
        for uri, texts in changes.items():
            yield from _text_edits(uri, texts)
    for change in _listed(edit.get("documentChanges")):
        match change:
            case {"textDocument": {"uri": str(uri)}, "edits": texts}:
                yield from _text_edits(uri, texts)
            case {"kind": "create" | "delete" as operation, "uri": str(uri)}:
                yield Edit(uri, None, operation=operation)
            case {"kind": "rename", "oldUri": str(uri), "newUri": str(other)}:
                yield Edit(uri, None, operation="rename away")
                yield Edit(other, None, operation="rename here")
            case _:
                pass


def _text_edits(uri: str, texts: Json) -> Iterator[Edit]:
    for text in _listed(texts):
        if not isinstance(text, dict):
            continue
        span, new_text = read_span(text.get("range")), text.get("newText", text.get("new_text"))
        if span is not None and isinstance(new_text, str):
            yield Edit(uri, span, clipped(new_text, _LONGEST_NEW_TEXT))


def _listed(value: Json) -> list[Json]:
    return value[:MOST] if isinstance(value, list) else []
