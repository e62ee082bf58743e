"""/memory: the notes of all sessions, for the user to see and to delete (E2)."""

from typing import Protocol

from acp_agent.compose.redacted_memories import RedactedMemories
from acp_agent.core.clock import utc
from acp_agent.core.memory import Memories, Remembered
from acp_agent.core.redaction import Redact

_LISTED = 20  # notes
_LONGEST = 300  # characters of a note in a list
_OFF = "No notes are kept: memory is switched off (`memory.enabled`)."
_USAGE = "Usage: `/memory`, `/memory search WORDS` or `/memory delete ID`"


class Notes(Memories, Protocol):
    """Notes that can be deleted, too."""

    async def delete(self, note: str) -> Remembered | None:
        """Remove the note with this id; it as it was, None where there is none. Raises StoreUnavailable."""
        ...


async def memory(text: str, notes: Notes | None, redact: Redact) -> str:
    """What the user is told. Raises StoreUnavailable."""
    if notes is None:
        return _OFF
    verb, *rest = text.split(maxsplit=1) or [""]
    words = "".join(rest).strip()
    match verb:
        case "delete":
            return await _delete(words.lstrip("#"), notes) if words else _USAGE
        case "search":
            return await _search(words, notes, redact) if words else _USAGE
        case _:
            return await _search(text, notes, redact)


async def _search(words: str, notes: Notes, redact: Redact) -> str:
    """The notes that fit; the newest, for no words."""
    found = await RedactedMemories(notes, redact).search(words, _LISTED)
    if not found:
        return f"No note fits (searched by {notes.method})." if words else "There are no notes yet."
    head = "Notes that fit, best first:" if words else f"Notes, newest first (at most {_LISTED}):"
    return "\n".join((head, "", *map(_line, found), "", "`/memory delete ID` removes one for good."))


async def _delete(note: str, notes: Notes) -> str:
    gone = await notes.delete(note)
    return f"There is no note `{note[:20]}`." if gone is None else f"Deleted:\n\n{_line(gone)}"


def _line(note: Remembered) -> str:
    day = utc(note.created_at).date().isoformat()
    text = " ".join(note.content.split())
    return f"- `{note.id}` ({day}) {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…'}"
