"""The folders whose own settings, servers and commands may be used, as the user decided.

    ["/home/me/project"]
    "5e884898da28..." = "trusted"         # exactly these contents, by their SHA-256
    "9f86d081884c..." = "untrusted"

An answer holds for one folder, not for folders below it. Other entries of the file are ignored, and if the file is
unreadable no folder is trusted. The file is read at each call, which is rare, since other processes write it too.
"""

import os
from collections.abc import Callable, Mapping
from typing import cast

from acp_agent.store.private_file import (
    DamagedFile,
    lock,
    private_file,
    quoted,
    read_private,
    replace_private,
    set_aside,
)

_WORDS = {"trusted": True, "untrusted": False}

_Answers = dict[str, dict[str, bool]]


class TrustedFolders:
    """The user's answers by folder and contents. Blocks; may be used from any thread.

    `warn` is called with one line that says what is wrong with the file. Nothing here raises for that.
    """

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn

    def find(self, folder: str, digest: str) -> bool | None:
        """Return whether these contents of a folder are trusted, or None without an answer.

        The path is absolute and resolved.
        """
        try:
            return _read(self._path).get(folder, {}).get(digest)
        except (OSError, DamagedFile) as error:
            self._warn(f"{self._path}: {error}; no folder is trusted")
            return None

    def remember(self, folder: str, digest: str, *, trusted: bool) -> None:
        """Store an answer. A damaged file is set aside; `warn` is called if the file cannot be written."""
        if not _writable(folder):
            self._warn(f"{folder!r}: this folder's name is not text, so the answer holds until the session ends")
            return
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with private_file(f"{self._path}.lock") as fd:
                lock(fd)
                answers = self._usable()
                answers.setdefault(folder, {})[digest] = trusted
                replace_private(self._path, _toml(answers))
        except OSError as error:
            self._warn(f"{self._path}: the answer could not be stored and holds until the session ends: {error}")

    def _usable(self) -> _Answers:
        try:
            return _read(self._path)
        except DamagedFile as damage:
            aside = set_aside(self._path)
            self._warn(f"{self._path}: {damage}; it was set aside as {aside}, and you will be asked again")
            return {}


def _read(path: str) -> _Answers:
    """Return the answers in a file; none if there is no file. Raises DamagedFile, OSError."""
    parsed = read_private(path)
    tables = {name: cast("dict[str, object]", table) for name, table in parsed.items() if isinstance(table, dict)}
    return {folder: _known(table) for folder, table in tables.items()}


def _known(table: Mapping[str, object]) -> dict[str, bool]:
    return {digest: _WORDS[word] for digest, word in table.items() if isinstance(word, str) and word in _WORDS}


def _toml(answers: _Answers) -> str:
    lines = ["# Folders whose own settings may be used, or may not. Remove a line to be asked again.", ""]
    for folder, contents in sorted(answers.items()):
        words = ((digest, "trusted" if trusted else "untrusted") for digest, trusted in sorted(contents.items()))
        lines += [f"[{quoted(folder)}]", *(f'{quoted(digest)} = "{word}"' for digest, word in words), ""]
    return "\n".join(lines)


def _writable(folder: str) -> bool:
    """Return whether a name can be stored. Two folders whose names are not text must not become one."""
    try:
        folder.encode()
    except UnicodeEncodeError:
        return False
    return True
