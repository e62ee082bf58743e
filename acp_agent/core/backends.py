"""The two ports tools reach the world through: files and terminals. Docstrings name the errors raised."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from acp_agent.core.secret_files import Secrecy
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
    """Paths that matched, absolute and sorted; `more` when the limit cut the list.

    stopped   absolute; where the time was over: nothing from there on, in path order, was searched
    """

    paths: tuple[str, ...]
    more: bool
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """A stretch of a file's lines, without their ends; `first` is its 0-based number, `total` counts the file's."""

    lines: tuple[str, ...]
    first: int
    total: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """What `delete` took away: the kind of the entry, and how many entries there were below it."""

    kind: EntryKind
    below: int


@dataclass(frozen=True, slots=True)
class Copied:
    """What `copy` made: the kind of the source, the files written, and how many links, devices and the like it left."""

    kind: EntryKind
    files: int
    left_out: int


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """A search for a regular expression in files below a path.

    context      lines to show before and after each matching line
    glob         names of the files to search; as in `find`, but a pattern without a slash means any depth
    file_type    a language or format such as "py" or "rust": only its files
    files_only   only which files match: one match a file, its first
    limit        most matching lines, or files
    secrets      the most secret files that are searched below a folder; a file that is the path itself always is
    """

    pattern: str
    path: str
    case_sensitive: bool = True
    limit: int = 100
    context: int = 0
    glob: str | None = None
    file_type: str | None = None
    files_only: bool = False
    secrets: Secrecy = Secrecy.SEALED


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """One line: absolute path, 1-based number, the text without its newline. `matched` is false for context."""

    path: str
    line: int
    text: str
    matched: bool = True


@dataclass(frozen=True, slots=True)
class GrepMatches:
    """What a search found, in path and line order, no line twice; `more` when the limit cut it.

    too_large    files that were passed over because they have more than `size_limit` bytes, absolute and in order
    size_limit   0 when there is none
    secrets      files that were passed over because they are more secret than was asked for, absolute and in order
    stopped      absolute; where the time was over: nothing from there on, in path order, was searched to its end
    """

    matches: tuple[GrepMatch, ...]
    more: bool
    too_large: tuple[str, ...] = ()
    size_limit: int = 0
    stopped: str | None = None
    secrets: tuple[str, ...] = ()


class TextFiles(Protocol):
    """Text files as the user sees them: what an editor can offer, unsaved buffers included.

    Every method, here and in FileSystem, takes a path as the model wrote it (relative = the session's cwd) and
    resolves it itself, so that no caller can forget to. Raises, all methods:
        Refused             the path is outside the roots, protected, or not to be read
        ToolError           not found, not a file, not text, not permitted, disk full, ...
        BackendUnavailable  this backend cannot do it (another may)
    """

    def resolve(self, path: str, access: Access) -> str:
        """The absolute path, links resolved, that `path` means. Does not need to exist."""
        ...

    async def read_text(self, path: str) -> str:
        """The whole text of a regular file: UTF-8 without its BOM, line endings as they are."""
        ...

    async def read_lines(self, path: str, offset: int, limit: int) -> Lines:
        """At most `limit` lines from the 0-based `offset`, which counts from the end when negative.

        Of a file of any size: only the lines asked for are kept.
        """
        ...

    async def write_text(self, path: str, text: str, *, expected: str | None) -> None:
        """Replace or create a file, parents too, all or nothing. Mode and BOM of an old file are kept.

        Only where the file still holds the text `expected`, or there is no file when that is None (A23.5): ToolError
        (permanent_failure) otherwise, so that nobody's change is lost.
        """
        ...


class FileSystem(TextFiles, Protocol):
    """All that can be done to the files of the session's roots. Raises as TextFiles does."""

    async def kind(self, path: str) -> EntryKind | None:
        """What is at the path, links followed; None for nothing."""
        ...

    async def read_bytes(self, path: str, limit: int) -> bytes:
        """The whole of a regular file of any format. ToolError when it has more than `limit` bytes."""
        ...

    async def make_directory(self, path: str) -> bool:
        """Make a directory, parents too. False when it is there already; ToolError when something else is."""
        ...

    async def delete(self, path: str, *, recursive: bool) -> Deleted:
        """Take a file, a link (not its target) or a directory away; with `recursive` also one that is not empty.

        Refused for a root, for what a root lies below, and when anything below the path is protected.
        """
        ...

    async def move(self, source: str, destination: str) -> None:
        """Give an entry (a link: itself) another path, parents made. Never replaces anything: ToolError.

        Refused like `delete`, and when anything of it may not be read.
        """
        ...

    async def copy(self, source: str, destination: str) -> Copied:
        """Copy a file, or a directory with its files; links and special files below it are left out.

        Never replaces anything: ToolError. All or nothing.
        """
        ...

    async def list_directory(self, path: str) -> tuple[Entry, ...]:
        """Entries by lstat, sorted by name; those that may not be read are left out (T4.21)."""
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
