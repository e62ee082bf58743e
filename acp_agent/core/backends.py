"""The two ports tools reach the world through: files and terminals. Docstrings name the errors raised."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from acp_agent.core.types import Access

# ---------------------------------------------------------------------------------------- files


class EntryKind(StrEnum):
    """What a directory entry is, by lstat."""

    DIRECTORY = "dir"
    FILE = "file"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory. `size` is in bytes."""

    name: str
    kind: EntryKind
    size: int


@dataclass(frozen=True, slots=True)
class FoundPaths:
    """Paths that matched, absolute and sorted; `more` when the limit cut the list."""

    paths: tuple[str, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """A search for a regular expression in files below a path."""

    pattern: str
    path: str
    case_sensitive: bool = True
    limit: int = 100


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """One matching line: absolute path, 1-based line, the text without its newline."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class GrepMatches:
    """What a search found, in path and line order; `more` when the limit cut it."""

    matches: tuple[GrepMatch, ...]
    more: bool


class FileSystem(Protocol):
    """Files of the session's roots, as the user sees them: unsaved editor buffers included where offered.

    Every method takes a path as the model wrote it (relative = the session's cwd) and resolves it itself,
    so that no caller can forget to. Raises, all methods:
        Refused             the path is outside the roots or protected
        ToolError           not found, not a file, not text, not permitted, disk full, ...
        BackendUnavailable  this backend cannot do it (another may)
    """

    def resolve(self, path: str, access: Access) -> str:
        """The absolute path, links resolved, that `path` means. Does not need to exist."""
        ...

    async def read_text(self, path: str) -> str:
        """The whole text of a regular file: UTF-8 without its BOM, line endings as they are."""
        ...

    async def write_text(self, path: str, text: str) -> None:
        """Replace or create a file, parents too, all or nothing. Mode and BOM of an old file are kept."""
        ...

    async def list_directory(self, path: str) -> tuple[Entry, ...]:
        """Entries by lstat, sorted by name."""
        ...

    async def find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        """Paths below `path` that match a glob (`**` any depth), ignored files left out."""
        ...

    async def grep(self, query: GrepQuery) -> GrepMatches:
        """Lines that match, in linear time whatever the pattern."""
        ...


# ------------------------------------------------------------------------------------- terminals


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A shell command line to run. `timeout` in seconds; None takes the backend's own default."""

    command: str
    cwd: str
    timeout: float | None = None
    output_limit: int = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command ended.

    output      both streams as they came, for the model; head and tail when over the request's limit
    exit_code   None when unknown; 128 + n when killed by signal n; 124 on timeout
    signal      name such as "SIGKILL", or None
    """

    output: str
    stdout: str
    stderr: str
    exit_code: int | None
    signal: str | None = None
    truncated: bool = False
    timed_out: bool = False
    timeout: float | None = None


OnOutput = Callable[[str], Awaitable[None]]


class RunningCommand(Protocol):
    """A command under way. `release` must be called once, after the last update that shows it."""

    @property
    def terminal_id(self) -> str | None:
        """The editor's terminal to embed, or None when the command runs locally."""
        ...

    async def wait(self, on_output: OnOutput) -> CommandOutcome:
        """Wait for the end, handing over new output as it comes (at most ten times a second).

        On timeout the process tree is killed and the outcome says so. On cancellation the tree is killed
        before the cancellation goes on. Raises BackendUnavailable when the editor's terminal breaks.
        """
        ...

    async def release(self) -> None:
        """Give the terminal back; kills what still runs. Never raises."""
        ...


class Terminal(Protocol):
    """Where commands run."""

    async def start(self, request: CommandRequest) -> RunningCommand:
        """Start a command. Raises Refused, ToolError (cwd gone, no shell) or BackendUnavailable."""
        ...
