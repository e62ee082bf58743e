"""The ports between sessions and the protocol: what an editor offers to a session, and which events it gets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from acp_agent.core.data import frozen
from acp_agent.core.secrets import Redact

if TYPE_CHECKING:  # so that a session opens before the modules of its backends are loaded
    from acp_agent.core.backends import CommandRequest, EntryKind, FileHead, FileSystem, Terminal, TextFiles
    from acp_agent.core.events import SessionEvent
    from acp_agent.core.messages import Message, PromptPart
    from acp_agent.core.ports import Approver, Elicitor
    from acp_agent.core.services import Web
    from acp_agent.core.sessions import StoredEvent
    from acp_agent.core.types import Access, Json, JsonObject


class DiskFiles(Protocol):
    """The files on this machine, as far as an editor's files need them: paths are resolved and checked here."""

    def resolve(self, path: str, access: Access) -> str:
        """Return the absolute path without links. Raises Refused for one that may not be touched."""
        ...

    async def read_text(self, path: str) -> str:
        """Return the whole text of a file. Raises ToolError."""
        ...

    async def kind(self, path: str) -> EntryKind | None:
        """Return the kind of the entry at a path, links followed; None if there is none."""
        ...

    async def head(self, path: str, length: int) -> FileHead | None:
        """Return the first `length` bytes of a regular file; None if nothing is at the path."""
        ...


class CommandWatch(Protocol):
    """A watchdog, which ends the commands of this process if the process is killed. Each command has a mark."""

    def watch(self, mark: str, group: int | None = None) -> None:
        """Watch a command that is about to start with this mark, or that leads the process group `group`."""
        ...

    def dismiss(self, mark: str) -> None:
        """Stop watching a command after all its processes have ended."""
        ...


class ContainedCommand(NamedTuple):
    """A command within the session's sandbox, as the editor's terminal gets it.

    line         a line of shell that runs it
    afterwards   call it in a thread when all processes of the command have ended. It returns text to add to the
                 result. None for a command that can change nothing
    """

    line: str
    afterwards: Callable[[], str] | None = None


@frozen
class TerminalSettings:
    """The settings for commands in the editor's terminal.

    form              how the editor gets a command: `script`, `exec`, `line` or `bare`
    script_folder     returns a private folder for scripts. Raises OSError if it cannot be made
    shell             the program that runs a script
    hidden            names of the variables that commands must not see
    timeout           limit in seconds of a command that has no limit of its own; 0 for none
    request_timeout   seconds the editor may take to answer a request
    watchdog          ends what runs in the editor's terminals if this process is killed
    redact            removes secrets from the title of a terminal
    path              the PATH of commands, or None for that of the editor
    contain           returns a command within the session's sandbox, with further variables; None without a sandbox.
                      It blocks. Raises OSError if the sandbox cannot be built
    contain_now       does the same without blocking, or returns None if it would block. None without a sandbox
    background        starts a task that cleans up behind a command; None to let the call wait for that
    """

    form: str
    script_folder: Callable[[], str]
    shell: str
    hidden: Sequence[str]
    timeout: float
    request_timeout: float
    watchdog: CommandWatch
    redact: Redact
    path: str | None = None
    contain: Callable[[CommandRequest, Mapping[str, str]], ContainedCommand] | None = None
    contain_now: Callable[[CommandRequest, Mapping[str, str]], ContainedCommand | None] | None = None
    background: Callable[[Callable[[], Coroutine[Any, Any, None]]], object] | None = None


@frozen
class LanguageSettings:
    """The settings for the editor's language servers: timeouts, and limits of remembered diagnostics.

    timeout         seconds the editor may take to answer
    fetch_on_save   whether the diagnostics of a saved file are fetched
    """

    max_files: int
    max_per_file: int
    timeout: float
    fetch_on_save: bool


class LanguageServers(Protocol):
    """The language servers of an editor that shares them."""

    def offers(self, method: str) -> bool:
        """Return whether the client serves a method, such as `lsp/hover`."""
        ...

    async def ask(self, method: str, params: JsonObject) -> Json:
        """Return the client's answer as it came. It is not to be trusted.

        Raises:
            ToolError: There was no answer in time, or the editor reported an error.

        """
        ...


class SharedLanguages(LanguageServers, Protocol):
    """Language servers that also publish without being asked."""

    def published(self, uri: str, found: Json) -> None:
        """Replace the diagnostics of a file. Raises ToolError if `found` is no list."""
        ...

    async def saved(self, uri: str) -> None:
        """Note that the user saved a file."""
        ...


class SentPrompt(Protocol):
    """One prompt as the editor sent it. `read` turns it into the message for the model."""

    @property
    def texts(self) -> Sequence[str]:
        """The texts that the user typed, one per block."""
        ...

    @property
    def parts(self) -> tuple[PromptPart, ...]:
        """Everything that the user sent, secrets included."""
        ...

    @property
    def skipped(self) -> Sequence[str]:
        """The parts that were left out, with the reason, one line each."""
        ...

    async def stored_parts(self) -> tuple[PromptPart, ...]:
        """Return the parts without secrets, as they may be stored."""
        ...

    async def read(self, files: FileSystem, web: Web, diagnostics: Callable[[], Awaitable[str]] | None) -> Message:
        """Read the links, and return the message for the model. Diagnostics come first in it.

        diagnostics   returns the reports of the editor's language servers as text for the model; None for no reports
        """
        ...

    def message_with(self, text: str, instead_of: int) -> Message:
        """Return the message that `read` has made, with `text` in place of the first texts that the user typed.

        instead_of   how many of these texts are replaced; all if the prompt has fewer
        """
        ...


ReadPrompt: TypeAlias = Callable[[Redact], Awaitable[SentPrompt]]
"""A function that reads the prompt of a request, and redacts its attachments. Raises RequestError."""


class SessionEditor(Protocol):
    """The editor as one session sees it: the capabilities it offers, and the receiver of the session's events."""

    @property
    def shows_notices(self) -> bool:
        """Whether the editor draws notices apart from messages."""
        ...

    @property
    def offers_login(self) -> bool:
        """Whether the editor can run `acp-agent login` in a terminal for the user."""
        ...

    @property
    def owns_buffers(self) -> bool:
        """Whether texts are read from the editor's buffers, which may differ from the files on disk."""
        ...

    @property
    def shows_turns(self) -> bool:
        """Whether the editor shows what happens outside of a prompt of the user."""
        ...

    @property
    def drops_early_updates(self) -> bool:
        """Whether the editor loses updates that arrive together with the response that opens their session."""
        ...

    async def show(self, event: SessionEvent) -> None:
        """Show an event. Waits while the editor is far behind in reading."""
        ...

    def post(self, event: SessionEvent) -> None:
        """Show an event without waiting, for use in callbacks."""
        ...

    async def replay(self, past: AsyncGenerator[StoredEvent]) -> None:
        """Show a stored conversation again. Raises what `past` raises, and closes it."""
        ...

    def move(self, folder: str) -> None:
        """From now on, show paths relative to another folder. Call this only while no tool call is running."""
        ...

    def files(self, disk: DiskFiles, timeout: float) -> TextFiles | None:
        """Return the editor's buffers as files; None if it offers none. `timeout` is in seconds per request."""
        ...

    def terminal(self, settings: TerminalSettings) -> Terminal | None:
        """Return the editor's terminal; None if it offers none."""
        ...

    def approver(self, timeout: float) -> Approver:
        """Return the approver, which asks the user. `timeout` is in seconds; 0 means until the turn ends."""
        ...

    def elicitor(self, redact: Redact, timeout: float, wanted: Callable[[], bool]) -> Elicitor | None:
        """Return the elicitor, which asks the user for more than a yes or no. None if the editor cannot show this.

        timeout   seconds until a shown question is withdrawn; 0 means until the asking task ends
        wanted    whether the user may be asked now, and the answer still matters
        """
        ...

    def languages(self, folders: Sequence[str], settings: LanguageSettings) -> SharedLanguages | None:
        """Return the editor's language servers for the files in `folders`; None if it shares none."""
        ...


class EditorConnection(Protocol):
    """An editor with the capabilities that it declared last."""

    def session(self, session_id: str, folder: str) -> SessionEditor:
        """Return what the editor offers to a session that works in `folder`."""
        ...
