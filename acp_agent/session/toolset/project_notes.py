"""Notes for agents, from their files to the block of the system prompt."""

import os
from collections.abc import Callable, Iterable

from acp_agent.agent.prompt import ProjectNote, notes_block
from acp_agent.config.memory_settings import InstructionSettings
from acp_agent.workspace.project_notes import FoundNotes, NoteReader, project_files, users_file
from acp_agent.workspace.roots import Roots

_SLOW = "reading the notes for agents takes too long (a slow disk?): what was read last stands in for them"

USERS_FILE = "AGENTS.md"
"""Its name in the folder of the user's configuration."""


class ProjectNotes:
    """The notes of one session.

    clean    removes secrets and invisible characters from a text
    warn     called once for each file that was left out, with the reason
    """

    def __init__(
        self,
        config_file: str,
        clean: Callable[[str], str],
        warn: Callable[[str], None],
        reader: NoteReader | None = None,
    ) -> None:
        self._users = os.path.join(os.path.dirname(config_file), USERS_FILE)
        self._clean = clean
        self._warn = warn
        self._reader = reader or NoteReader()
        self._told = set[str]()
        self._seen: tuple[FoundNotes, int] | None = None
        self._block = ""

    async def block(self, settings: InstructionSettings, roots: Roots | None, *, trusted: bool | None) -> str:
        """Return the block for the next turn; empty for none. It stays the same text while the files do.

        roots     what may be read now; None to read only the user's own notes
        trusted   whether the user trusts the folder. If they said no, its notes are left out
        """
        if not (settings.enabled and settings.max_chars):
            return ""
        readable = None if trusted is False else roots

        def look() -> FoundNotes:
            own = users_file(self._users)
            theirs = FoundNotes() if readable is None else project_files(readable, settings.files)
            return FoundNotes((*own.files, *theirs.files), (*own.troubles, *theirs.troubles))

        found = await self._reader.read(look)
        if found is None:
            self._tell((_SLOW,))
            return "" if trusted is False else self._block
        self._tell(found.troubles)
        if self._seen != (found, settings.max_chars):
            self._block = self._shown(found, settings.max_chars)
            self._seen = found, settings.max_chars
        return self._block

    def _shown(self, found: FoundNotes, max_chars: int) -> str:
        notes = [
            ProjectNote(self._clean(file.source), self._clean(file.text), file.users, file.more) for file in found.files
        ]
        return notes_block(notes, max_chars)

    def _tell(self, troubles: Iterable[str]) -> None:
        for trouble in troubles:
            if trouble not in self._told:
                self._told.add(trouble)
                self._warn(trouble)
