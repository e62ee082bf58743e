"""A folder, as far as it is a project with settings (requirements T6)."""

import posixpath
from typing import cast

from anyio import to_thread

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Json, JsonObject
from acp_agent.core.untrusted import toml_table
from acp_agent.tools.visible import visible

_LIMIT = 1024 * 1024  # bytes of a settings file
_FILES = (EntryKind.FILE, EntryKind.SYMLINK)


class Project:
    """A project in a folder of the session.

    names      of the files in the folder
    warnings   about settings that could not be read
    """

    def __init__(self, files: FileSystem, path: str, names: frozenset[str]) -> None:
        self._files = files
        self._path = path
        self.names = names
        self.warnings: list[str] = []

    @classmethod
    async def at(cls, files: FileSystem, path: str) -> "Project":
        """The project in the folder `path`. Raises what `FileSystem.list_directory` raises."""
        entries = await files.list_directory(path)
        return cls(files, path, frozenset(entry.name for entry in entries if entry.kind in _FILES))

    def has_any(self, *names: str) -> bool:
        """Whether one of these files is in the folder."""
        return not self.names.isdisjoint(names)

    async def holds(self, name: str) -> bool:
        """Whether there is a file at this relative path that the session may see."""
        try:
            return await self._files.kind(posixpath.join(self._path, name)) is EntryKind.FILE
        except (ToolError, Refused):
            return False

    async def leads_out(self, name: str) -> bool:
        """Whether this is a link in the folder that the session may not follow: it leads outside, or nowhere."""
        try:
            if name in self.names:
                await self._files.kind(posixpath.join(self._path, name))
        except Refused:
            return True
        return False

    async def text(self, name: str) -> str:
        """A settings file as it is on disk, where checkers read it too; empty for none.

        Empty as well, with a warning, when it cannot be read.
        """
        if name not in self.names:
            return ""
        try:
            return (await self._files.read_bytes(posixpath.join(self._path, name), _LIMIT)).decode()
        except (ToolError, Refused, UnicodeDecodeError) as error:
            self.warnings.append(f"{name} was not read: {visible(str(error))}")
            return ""

    async def tool_tables(self) -> JsonObject:
        """The [tool] tables of pyproject.toml; none, with a warning, when it is not valid."""
        try:
            document = await to_thread.run_sync(toml_table, await self.text("pyproject.toml"))
        except ValueError as error:
            self.warnings.append(f"pyproject.toml is not valid TOML: {visible(str(error))}")
            return {}
        tools = cast("Json", document.get("tool"))
        return tools if isinstance(tools, dict) else {}

    async def ini_keys(self, name: str, section: str) -> frozenset[str] | None:
        """The keys in a section of an INI file; None when it has no such section."""
        keys: set[str] | None = None
        inside = False
        for line in (await self.text(name)).split("\n"):
            if line.startswith("["):
                inside = line.rstrip() == f"[{section}]"
                keys = set() if inside and keys is None else keys
            elif inside and keys is not None:
                keys.add(line.replace(":", "=").partition("=")[0].strip())
        return None if keys is None else frozenset(keys)
