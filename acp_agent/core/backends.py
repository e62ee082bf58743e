"""The two ports through which tools reach the machine: files and terminals."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from enum import StrEnum
from typing import NamedTuple, Protocol

from acp_agent.core.data import frozen
from acp_agent.core.secrets import Secrecy
from acp_agent.core.types import Access

# ---------------------------------------------------------------------------------------- files


class EntryKind(StrEnum):
    """The kind of a directory entry, by lstat."""

    DIRECTORY = "dir"
    FILE = "file"
    SYMLINK = "symlink"
    OTHER = "other"


@frozen
class Entry:
    """One name in a directory."""

    name: str
    kind: EntryKind


@frozen
class FileHead:
    """The first bytes of a file on disk, and its size in bytes."""

    data: bytes
    size: int


@frozen
class FoundPaths:
    """Paths that matched, absolute and sorted.

    more      whether the limit cut the list
    sizes     the size in bytes of each path; None for an entry that is not a file
    total     the number of all matching paths; if `capped`, there are more
    stopped   the absolute path at which time ran out, or None. In path order, nothing from it on was searched
    """

    paths: tuple[str, ...]
    more: bool
    stopped: str | None = None
    sizes: tuple[int | None, ...] = ()
    total: int = 0
    capped: bool = False


@frozen
class Lines:
    """Some lines of a file, without their ends.

    first    the 0-based number of the first line. If `total` is None, it counts from the end: -1 is the last line
    total    the number of all lines of the file; None for a large file that was read from its end
    digest   the digest of the whole text; empty for a file that is too large to be edited
    whole    the whole text if it is short
    encoding the encoding of the file if it is not UTF-8
    """

    lines: tuple[str, ...]
    first: int
    total: int | None
    digest: str = field(default="", compare=False)
    whole: str | None = field(default=None, compare=False, repr=False)
    encoding: str = field(default="", compare=False)


@frozen
class Deleted:
    """The result of `delete`: the kind of the entry, and the number of entries below it."""

    kind: EntryKind
    below: int


@frozen
class Copied:
    """The result of `copy`: the kind of the source, the number of files, and that of links and devices left out."""

    kind: EntryKind
    files: int
    left_out: int


@frozen
class GrepQuery:
    """A search for a regular expression in files below a path.

    context      the number of lines to show before and after each matching line; `before` and `after` for one side
    glob         the files to search, as in `find`, but a pattern without a slash matches at any depth
    file_type    a language or format such as "py" or "rust", to search only its files
    files_only   whether only the first match of each file is wanted
    limit        the most matching lines, or files; 0 to count only
    offset       the matching lines, or files, to skip
    secrets      the highest secrecy of the files that are searched below a folder; `path` itself is always searched
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
    offset: int = 0
    before: int = 0
    after: int = 0

    def around(self) -> tuple[int, int]:
        """Return the number of lines to show before and after a match."""
        return (0, 0) if self.files_only else (max(self.before, self.context), max(self.after, self.context))


@frozen
class GrepMatch:
    """One line: absolute path, 1-based number, text without its newline. `matched` is False for a line of context.

    The text of a line over 64 KiB is its beginning. `column` counts the characters of a long line before its first
    match. It is None if the match is not in the text, or near the end of such a beginning.
    """

    path: str
    line: int
    text: str
    matched: bool = True
    column: int | None = 0


@frozen
class GrepMatches:
    """The lines that a search found, in path and line order, no line twice. All paths are absolute.

    more         whether there are matches after the last one
    files        the number of files that match
    total        the number of matching lines
    counts       if the query's limit is 0: the path of each file that matches, and the number of its matching lines
    capped       whether there are more matches than were counted
    too_large    files that were skipped because they have more than `size_limit` bytes, in order
    size_limit   0 if there is none
    secrets      files that were skipped because they are more secret than the query allows, in order
    stopped      the path at which time ran out, or None; in path order, nothing from there on was searched to its end
    """

    matches: tuple[GrepMatch, ...]
    more: bool
    too_large: tuple[str, ...] = ()
    size_limit: int = 0
    stopped: str | None = None
    secrets: tuple[str, ...] = ()
    files: int = 0
    total: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    capped: bool = False


class TextFiles(Protocol):
    """Text files as the user sees them, unsaved buffers of the editor included.

    Every method, here and in FileSystem, takes a path as the model wrote it, relative to the session's folder. The
    method resolves and checks the path, so that no caller can forget it.

    Raises, in all methods:
        Refused: The path is outside the roots, protected, or may not be read.
        ToolError: Not found, not a file, not text, not permitted, disk full, ...
        BackendUnavailable: This backend cannot do it; another one may.

    """

    def resolve(self, path: str, access: Access) -> str:
        """Return the absolute path that `path` means, with links resolved. It need not exist."""
        ...

    async def read_text(self, path: str) -> str:
        """Return the whole text of a regular file: UTF-8 without its BOM, line endings as they are."""
        ...

    async def read_lines(self, path: str, offset: int, limit: int) -> Lines:
        """Return at most `limit` lines from the 0-based `offset`, which counts from the end if it is negative.

        The file may have any size. Only the lines that are asked for are kept in memory. The last lines of a large file
        may be read from its end, and are numbered from there.
        """
        ...

    async def write_text(self, path: str, text: str, *, expected: str | None) -> str:
        """Replace or create a file and its parents, all or nothing. Mode and BOM of an old file are kept.

        Return the text that the file has now: an editor may format what it saves.

        The file must still hold the text `expected`, or not exist if that is None. Otherwise a ToolError
        (permanent_failure) is raised, so that no change by others is lost.
        """
        ...


class FileSystem(TextFiles, Protocol):
    """All operations on the files of the session's roots. They raise as those of TextFiles do."""

    async def kind(self, path: str) -> EntryKind | None:
        """Return the kind of the entry at the path, links followed; None if there is none."""
        ...

    async def read_bytes(self, path: str, limit: int) -> bytes:
        """Return the content of a regular file of any format. Raises ToolError if it has more than `limit` bytes."""
        ...

    async def make_directory(self, path: str) -> bool:
        """Make a directory and its parents. Return False if it exists. Raises ToolError if something else does."""
        ...

    async def delete(self, path: str, *, recursive: bool) -> Deleted:
        """Delete a file, a link (not its target) or a directory. `recursive` allows one that is not empty.

        Raises Refused for a root, for a folder above a root, and if anything below the path is protected.
        """
        ...

    async def move(self, source: str, destination: str) -> None:
        """Move an entry (a link itself, not its target) to another path, whose parents are made.

        Raises ToolError if something exists there. Raises Refused as `delete` does, and if any of it may not be read.
        """
        ...

    async def copy(self, source: str, destination: str) -> Copied:
        """Copy a file, or a directory with its files, all or nothing. Links and special files below it are left out.

        Raises ToolError if something exists at the destination.
        """
        ...

    async def list_directory(self, path: str) -> tuple[Entry, ...]:
        """Return the entries by lstat, sorted by name, without those that may not be read."""
        ...

    async def find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        """Return the paths below `path` that match a glob (`**` means any depth), without ignored files."""
        ...

    async def grep(self, query: GrepQuery) -> GrepMatches:
        """Return the matching lines, in time linear in the size of the files whatever the pattern is."""
        ...


# ------------------------------------------------------------------------------------- terminals


@frozen
class CommandRequest:
    """A shell command line to run. `timeout` is in seconds; None means the backend's default.

    output_limit the most bytes of both streams together
    stream_limit the most bytes of each stream by itself, for programs that read it
    background   whether the command goes on after the call. It then has no timeout, `wait` hands over all its output,
                 and it ends with its last process. Its input can be written if the backend supports that
    unsandboxed  whether the command runs outside the session's sandbox
    read_only    whether the command may change nothing. A sandbox enforces this
    stdin        the bytes on its standard input; None for no input. Only local commands have one
    """

    command: str
    cwd: str
    timeout: float | None = None
    output_limit: int = 10 * 1024 * 1024
    stream_limit: int = 64 * 1024
    background: bool = False
    unsandboxed: bool = False
    read_only: bool = False
    stdin: bytes | None = None


@frozen
class CommandOutcome:
    """The end of a command.

    output           both streams in the order of arrival, for the model; head and tail if they exceed the request's
                     limit
    stdout, stderr   one stream each; head and tail if it exceeds `stream_limit`. `truncated` is not about them
    exit_code        None if unknown; 128 + n if killed by signal n; 124 on timeout
    signal           a name such as "SIGKILL", or None
    truncated        whether a part of `output` is missing
    beginning_lost   whether the missing part is the beginning
    """

    output: str
    stdout: str
    stderr: str
    exit_code: int | None
    signal: str | None = None
    truncated: bool = False
    beginning_lost: bool = False
    timed_out: bool = False
    timeout: float | None = None


OnOutput = Callable[[str], Awaitable[None]]


class RunningCommand(Protocol):
    """A running command. `release` must be called once, after the last update that shows it."""

    @property
    def terminal_id(self) -> str | None:
        """The editor's terminal to embed, or None if the command runs locally."""
        ...

    async def wait(self, on_output: OnOutput) -> CommandOutcome:
        """Wait for the end. Call `on_output` with new output, at most ten times a second.

        On timeout the process tree is killed, and the outcome says so. On cancellation the tree is killed before the
        cancellation goes on. Raises BackendUnavailable if the editor's terminal breaks.
        """
        ...

    async def release(self) -> None:
        """Release the terminal and kill what still runs. It never raises."""
        ...

    async def refresh(self) -> None:
        """Call `on_output` with the new output of a background command at once. Another task must be in `wait`."""
        ...

    async def write(self, text: str) -> None:
        """Write to the standard input of a background command. Raises ToolError if it has none or does not read it."""
        ...

    async def stop(self, grace: float) -> None:
        """End the command and all its processes: SIGTERM, and SIGKILL after `grace` seconds. `wait` then returns."""
        ...


class Terminal(Protocol):
    """A place where commands run."""

    async def start(self, request: CommandRequest) -> RunningCommand:
        """Start a command. Raises Refused, ToolError (no such folder, no shell) or BackendUnavailable."""
        ...


class ProcessOutput(NamedTuple):
    """A part of the output of a background process.

    before   the text before it, at most 8 KiB. A secret may begin there and end in `text`
    """

    text: str
    before: str


class BackgroundProcess(Protocol):
    """A command that runs in the background of a session, during and between its turns."""

    @property
    def id(self) -> str:
        """Its name for the model: "p1", "p2", ..."""
        ...

    @property
    def command(self) -> str: ...

    @property
    def terminal_id(self) -> str | None:
        """The editor's terminal to embed, or None if it runs locally."""
        ...

    @property
    def outcome(self) -> CommandOutcome | None:
        """The end of the command; None while it runs."""
        ...

    @property
    def seconds(self) -> float:
        """The time that the command has run, in seconds."""
        ...

    @property
    def seen(self) -> str:
        """The end of the output that the last call returned, at most 8 KiB."""
        ...

    async def new_output(self) -> ProcessOutput:
        """Return the output since the last call, or its head and tail if it is long.

        While the process runs, a long word at the end is left for the next call: it may be half of a secret.
        """
        ...

    async def output_from(self, position: int) -> ProcessOutput:
        """Return the output from a position on, in characters. A negative position counts from the end."""
        ...

    async def until(self, text: str | None, seconds: float, on_output: OnOutput) -> bool:
        """Wait until the command prints `text`, or ends if `text` is None.

        Return False after `seconds`, or if the command ends without printing `text`.

        Only the output after the text that the last call found is searched. `on_output` gets new output as it comes.
        """
        ...

    async def write(self, text: str) -> None:
        """Write to the command's standard input. Raises ToolError."""
        ...

    async def stop(self) -> None:
        """End the command with all its processes, and wait for the end."""
        ...


class BackgroundProcesses(Protocol):
    """The background commands of one session. They end with the session."""

    def listed(self) -> Sequence[BackgroundProcess]:
        """Return the running commands and some that have ended, in the order of their start."""
        ...

    def find(self, id: str) -> BackgroundProcess | None:  # noqa: A002 - the tool's own word
        """Return the process with this id, or None."""
        ...

    async def start(self, command: str, cwd: str, *, unsandboxed: bool = False) -> BackgroundProcess:
        """Start a command, and wait a moment for its first output or its end.

        Raises ToolError if too many run, and the errors of Terminal.start. If the call is cancelled, the command ends.
        """
        ...

    def card_closed(self, id: str) -> None:  # noqa: A002 - as above
        """Note that the call that started the command is over. Its terminal may be released when the command ends."""
        ...
