"""Several backends as one: each operation goes to the first that can do it (design.md, A33).

A backend that raises BackendUnavailable is passed over for that call, and for the rest of the session when it
says so. The last backend has nobody behind it: its errors are the caller's.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

from acp_agent.core.backends import (
    CommandRequest,
    Entry,
    FileSystem,
    FoundPaths,
    GrepMatches,
    GrepQuery,
    RunningCommand,
    Terminal,
)
from acp_agent.core.errors import BackendUnavailable
from acp_agent.core.types import Access

B = TypeVar("B")
T = TypeVar("T")

OnFallback: TypeAlias = Callable[[BackendUnavailable], Awaitable[None]]
"""Told once for each kind of operation that a backend could not do it, unless the error is quiet."""


class _Operation(StrEnum):
    READ_TEXT = "read_text"
    WRITE_TEXT = "write_text"
    LIST_DIRECTORY = "list_directory"
    FIND = "find"
    GREP = "grep"
    RUN = "run"


class _Fallback(Generic[B]):
    """Tries backends in order, and remembers which to leave out."""

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
    """A FileSystem of several. What a path means is always the last one's word: the local sandbox."""

    def __init__(self, backends: Sequence[FileSystem], on_fallback: OnFallback) -> None:
        self._backends = _Fallback(backends, on_fallback)

    def resolve(self, path: str, access: Access) -> str:
        return self._backends.last.resolve(path, access)

    async def read_text(self, path: str) -> str:
        return await self._backends.call(_Operation.READ_TEXT, lambda files: files.read_text(path))

    async def write_text(self, path: str, text: str) -> None:
        await self._backends.call(_Operation.WRITE_TEXT, lambda files: files.write_text(path, text))

    async def list_directory(self, path: str) -> tuple[Entry, ...]:
        return await self._backends.call(_Operation.LIST_DIRECTORY, lambda files: files.list_directory(path))

    async def find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        return await self._backends.call(_Operation.FIND, lambda files: files.find(path, pattern, limit))

    async def grep(self, query: GrepQuery) -> GrepMatches:
        return await self._backends.call(_Operation.GREP, lambda files: files.grep(query))


class CompositeTerminal:
    """A Terminal of several. A command that has started stays where it is, whatever happens to it there."""

    def __init__(self, backends: Sequence[Terminal], on_fallback: OnFallback) -> None:
        self._backends = _Fallback(backends, on_fallback)

    async def start(self, request: CommandRequest) -> RunningCommand:
        return await self._backends.call(_Operation.RUN, lambda terminal: terminal.start(request))
