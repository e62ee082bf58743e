"""Several backends as one: each operation goes to the first that can do it.

A backend that raises BackendUnavailable is skipped for that call, and for the rest of the session if the error is
permanent. The errors of the last backend go to the caller.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

from acp_agent.core.backends import (
    CommandRequest,
    Copied,
    Deleted,
    Entry,
    EntryKind,
    FileSystem,
    FoundPaths,
    GrepMatches,
    GrepQuery,
    Lines,
    RunningCommand,
    Terminal,
    TextFiles,
)
from acp_agent.core.errors import BackendUnavailable
from acp_agent.core.types import Access

B = TypeVar("B")
T = TypeVar("T")

OnFallback: TypeAlias = Callable[[BackendUnavailable], Awaitable[None]]
"""Called once for each kind of operation that a backend could not do, unless the error is quiet."""


class _Operation(StrEnum):
    READ = "read"
    WRITE = "write"
    RUN = "run"


class _Fallback(Generic[B]):
    """Tries backends in order, and remembers those to skip."""

    def __init__(self, backends: Sequence[B], on_fallback: OnFallback) -> None:
        if not backends:
            msg = "a composite needs at least one backend"
            raise ValueError(msg)
        self._backends = tuple(backends)
        self._on_fallback = on_fallback
        self._dropped: set[tuple[_Operation, int]] = set()
        self._told: set[_Operation] = set()

    @property
    def last(self) -> B:
        return self._backends[-1]

    async def call(self, operation: _Operation, do: Callable[[B], Awaitable[T]]) -> T:
        for number, backend in enumerate(self._backends[:-1]):
            if (operation, number) not in self._dropped:
                try:
                    return await do(backend)
                except BackendUnavailable as error:
                    await self._pass_over(operation, number, error)
        return await do(self.last)

    async def _pass_over(self, operation: _Operation, number: int, error: BackendUnavailable) -> None:
        if error.permanent:
            self._dropped.add((operation, number))
        if not error.quiet and operation not in self._told:
            self._told.add(operation)
            await self._on_fallback(error)


class CompositeFileSystem:
    """A FileSystem of several: texts go to the first of `editors` that takes them, everything else is local.

    The local sandbox always resolves the paths.
    """

    def __init__(self, editors: Sequence[TextFiles], local: FileSystem, on_fallback: OnFallback) -> None:
        self._texts = _Fallback[TextFiles]([*editors, local], on_fallback)
        self._local = local

    def resolve(self, path: str, access: Access) -> str:
        return self._local.resolve(path, access)

    async def read_text(self, path: str) -> str:
        return await self._texts.call(_Operation.READ, lambda files: files.read_text(path))

    async def read_lines(self, path: str, offset: int, limit: int) -> Lines:
        return await self._texts.call(_Operation.READ, lambda files: files.read_lines(path, offset, limit))

    async def write_text(self, path: str, text: str, *, expected: str | None) -> None:
        await self._texts.call(_Operation.WRITE, lambda files: files.write_text(path, text, expected=expected))

    async def kind(self, path: str) -> EntryKind | None:
        return await self._local.kind(path)

    async def read_bytes(self, path: str, limit: int) -> bytes:
        return await self._local.read_bytes(path, limit)

    async def make_directory(self, path: str) -> bool:
        return await self._local.make_directory(path)

    async def delete(self, path: str, *, recursive: bool) -> Deleted:
        return await self._local.delete(path, recursive=recursive)

    async def move(self, source: str, destination: str) -> None:
        await self._local.move(source, destination)

    async def copy(self, source: str, destination: str) -> Copied:
        return await self._local.copy(source, destination)

    async def list_directory(self, path: str) -> tuple[Entry, ...]:
        return await self._local.list_directory(path)

    async def find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        return await self._local.find(path, pattern, limit)

    async def grep(self, query: GrepQuery) -> GrepMatches:
        return await self._local.grep(query)


class CompositeTerminal:
    """A Terminal of several. A command that has started stays in its backend."""

    def __init__(self, backends: Sequence[Terminal], on_fallback: OnFallback) -> None:
        self._backends = _Fallback(backends, on_fallback)

    async def start(self, request: CommandRequest) -> RunningCommand:
        return await self._backends.call(_Operation.RUN, lambda terminal: terminal.start(request))
