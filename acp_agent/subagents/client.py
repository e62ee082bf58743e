"""The client side of a session of another agent.

What the agent asks for becomes a call of the session's own tools, so it is judged, recorded, redacted and undone like
any other call: reading a file is `read`, writing one is `write`, a terminal is `bash`, and a question for permission is
`agent_action`.
The SDK calls the methods that are named as those of `acp.Client`.
"""

import os
import re
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import StringIO
from typing import Final, NamedTuple, cast
from uuid import uuid4

import anyio
from acp import RequestError
from acp.schema import EnvVariable, PermissionOption, ToolCallUpdate
from anyio import to_thread
from anyio.abc import TaskGroup

from acp_agent.core.backends import FileSystem
from acp_agent.core.data import frozen
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory
from acp_agent.core.events import ToolProgress
from acp_agent.core.ports import Toolset
from acp_agent.core.secrets import Redact
from acp_agent.core.types import Access, CallingAgent, Json, JsonObject, ToolCall, ToolResult
from acp_agent.subagents.worker import Progress
from acp_agent.text import visible

_INVALID: Final = -32602
_FAILED: Final = -32603
_NOT_FOUND: Final = -32002
_AT_ONCE: Final = 16
"""Requests of one agent that are served at once. More are refused."""
_MOST_TERMINALS: Final = 32
_LONGEST_COMMAND: Final = 600
"""Seconds that a command of a terminal may run."""
_REFUSED: Final = 126
"""The exit code of a command that did not run."""
_MOST_SHOWN: Final = 200_000
"""Characters of an agent's text that its card shows while it works."""
_MOST_TEXT: Final = 4_000_000
"""Characters of an agent's messages in one run."""
_MOST_CALLS: Final = 1000
"""The most unfinished calls of an agent that are followed."""
_CALL: Final = "· "
_TITLE: Final = 200
_DETAILS: Final = 4000
_MOST_NAMED: Final = 500
"""The most paths and URLs of one question."""
_COMMANDS: Final = ("command", "cmd", "commandLine", "script")
_PATHS: Final = re.compile(r"(?:.*_)?(?:path|paths|file|files|dir|directory|folder|cwd)")
_URLS: Final = re.compile(r"(?:.*_)?(?:url|urls|uri)")
_INNER_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


class _AgentCall(NamedTuple):
    """A call that an agent makes by itself: its title, and its output so far."""

    title: str
    printed: str = ""


class AgentMessages:
    """The words of an agent in one run, and the part of them that the card of the run shows.

    session   the id of its session; empty before it has one
    """

    def __init__(self, card: str, progress: Progress) -> None:
        self._card = card
        self._progress = progress
        self._texts: list[list[str]] = [[]]
        self._calls: dict[str, _AgentCall] = {}  # those that go on, by their ids
        self._size = self._shown = 0
        self.session = ""

    def of_session(self, session: str) -> None:
        """Take the updates of this session from now on."""
        self.session = session

    @property
    def report(self) -> str:
        """The last message that is not empty."""
        return next((text for text in reversed(self._joined()) if text and not text.startswith(_CALL)), "")

    @property
    def all(self) -> str:
        """All messages, and the titles of the calls between them."""
        return "\n\n".join(filter(None, self._joined()))

    def _joined(self) -> list[str]:
        return ["".join(pieces).strip() for pieces in self._texts]

    async def update(self, params: Json) -> None:
        """Take a `session/update`. Ignore any other message. Raises ToolError if the updates have too much text."""
        match params:
            case {"sessionId": str(session), "update": {"sessionUpdate": str(kind)} as update}:
                if session == self.session:
                    await self._take(kind, update)
            case _:
                pass

    async def _take(self, kind: str, update: Mapping[str, Json]) -> None:
        match kind, update:
            case "agent_message_chunk", {"content": {"type": "text", "text": str(text)}}:
                self._count(text)
                self._texts[-1].append(text)
                await self._show(text)
            case "tool_call", {"toolCallId": str(call), "title": str(title)}:
                await self._name(call[:_TITLE], title)
            case "tool_call_update", {"toolCallId": str(call)}:
                await self._take_call(call[:_TITLE], update)
            case _:
                pass

    async def _take_call(self, call: str, update: Mapping[str, Json]) -> None:
        """Show what an update of a call brings: a new title, more output, or that the call failed."""
        if call not in self._calls:
            return
        match update:
            case {"status": "failed"}:
                await self._show(f"\n{_CALL}failed: {self._calls.pop(call).title}\n")
            case {"status": "completed"}:
                del self._calls[call]
            case {"title": str(title)}:
                await self._name(call, title)
            case {"content": [{"type": "content", "content": {"type": "text", "text": str(text)}}, *_]}:
                if self._shown < _MOST_SHOWN:
                    before = self._calls[call]
                    self._calls[call] = _AgentCall(before.title, text[:_MOST_SHOWN])
                    await self._show(text[:_MOST_SHOWN].removeprefix(before.printed))
            case _:
                pass

    async def _name(self, call: str, title: str) -> None:
        """Show the title of a call, unless it was shown."""
        line, known = " ".join(visible(title[:_TITLE]).split()), self._calls.get(call)
        if known is not None and known.title == line:
            return
        if known is not None or len(self._calls) < _MOST_CALLS:
            self._calls[call] = _AgentCall(line)
        self._count(line)
        self._texts += [[f"{_CALL}{line}"], []]
        await self._show(f"\n{_CALL}{line}\n")

    def _count(self, text: str) -> None:
        self._size += len(text)
        if self._size > _MOST_TEXT:
            raise ToolError.permanent(f"sent more than {_MOST_TEXT // 1_000_000} million characters of messages")

    async def _show(self, text: str) -> None:
        room = _MOST_SHOWN - self._shown
        if room > 0:
            self._shown += len(text)
            more = "" if len(text) <= room else "\n[it says more than is shown here]"
            await self._progress(ToolProgress(self._card, output=text[:room] + more))


@dataclass(slots=True)
class Patience:
    """The time that an agent has until its next message. It does not run out while the agent waits for us."""

    seconds: float
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    serving: int = 0

    def heard(self) -> None:
        """Restart the time, since a message came."""
        if not self.serving:
            self.scope.deadline = anyio.current_time() + self.seconds

    def begin(self) -> None:
        """Note that the agent waits for an answer of ours."""
        self.serving += 1
        self.scope.deadline = float("inf")

    def end(self) -> None:
        """Note that it has an answer."""
        self.serving -= 1
        self.heard()


@frozen
class ExternalDependencies:
    """The parts of a session that its other agents use.

    cwd      its folder
    toolset  returns its tools
    files    returns its files
    seen     returns whether the session has last seen exactly this text of a file
    redact   removes secrets from a text
    """

    cwd: str
    toolset: Callable[[], Toolset]
    files: Callable[[], Awaitable[FileSystem]]
    seen: Callable[[str, str], bool]
    redact: Redact


@dataclass(slots=True)
class _Terminal:
    """A command that an agent runs through us. Its output is empty until it has ended."""

    limit: int | None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)
    output: str = ""
    truncated: bool = False
    exit: JsonObject | None = None

    def end(self, result: ToolResult | None) -> None:
        """Note its result; None if it was killed."""
        envelope = (result.envelope if result is not None else None) or {}
        code, signal = envelope.get("exit_code"), envelope.get("signal")
        if result is None:
            self.exit = {"exitCode": None, "signal": "SIGKILL"}
        elif "exit_code" in envelope:
            self.output = "".join(str(envelope.get(name) or "") for name in ("stdout", "stderr"))
            self.truncated = bool(envelope.get("truncated"))
            self.exit = {"exitCode": code, "signal": signal}
        else:
            self.output, self.exit = f"{result.text}\n", {"exitCode": _REFUSED, "signal": None}
        data = self.output.encode("utf-8", "replace")
        if self.limit is not None and len(data) > self.limit:
            self.output, self.truncated = data[len(data) - self.limit :].decode("utf-8", "ignore"), True
        self.over.set()


class AgentClient:
    """The client of one session of another agent.

    caller    the run, on whose behalf calls are made
    identity  what an "always" answer to the agent covers
    tasks     the calls run in it
    calls     how many calls were made for it so far
    """

    def __init__(
        self,
        needs: ExternalDependencies,
        messages: AgentMessages,
        caller: CallingAgent,
        identity: str,
        tasks: TaskGroup,
        patience: Patience,
    ) -> None:
        self._needs = needs
        self._messages = messages
        self._caller = caller
        self._identity = identity
        self._tasks = tasks
        self._patience = patience
        self._terminals: dict[str, _Terminal] = {}
        self._serving = 0
        self.calls = 0

    async def settled(self) -> None:
        """Kill the commands that still run, since the agent's turn has ended."""
        for terminal in [*self._terminals.values()]:
            terminal.scope.cancel()
            await terminal.over.wait()

    # ----------------------------------------------------------------------------------------- files

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_others: object
    ) -> JsonObject:
        """Serve `fs/read_text_file`: the text as it is, without secrets, if `read` may show it.

        `read` notes what it has read. A file that holds anything else afterwards is not served: a link in its path may
        have been changed after the call was judged.
        """
        async with self._served(session_id):
            files = await self._needs.files()
            path = _where_it_leads(path, files)
            arguments: JsonObject = {"path": self._named(path)}
            arguments |= {"offset": line} if line else {}
            arguments |= {"limit": limit} if limit else {}
            result = await self._run("read", arguments)
            try:
                if result.failure is not None and await files.kind(path) is None:
                    raise RequestError(_NOT_FOUND, f"no such file: {path}")
                _check(result)
                text = await files.read_text(path)
                if not await to_thread.run_sync(self._needs.seen, path, text):
                    raise RequestError(_FAILED, f"{path} changed while it was read: ask again")
            except (ToolError, Refused, BackendUnavailable) as error:
                raise RequestError(_FAILED, str(error)) from error
            text = await to_thread.run_sync(self._needs.redact, text)
            lines = [*StringIO(text)][max((line or 1) - 1, 0) :]  # `splitlines` would also split at a form feed
            return {"content": "".join(lines if limit is None else lines[: max(limit, 0)])}

    async def write_text_file(self, session_id: str, path: str, content: str, **_others: object) -> JsonObject:
        async with self._served(session_id):
            _check(await self._run("write", {"path": self._named(path), "content": content}))
            return {}

    # ------------------------------------------------------------------------------------- terminals

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_others: object,
    ) -> JsonObject:
        """Serve `terminal/create`: start a call of `bash`. A command that is refused exits with 126 and the reason."""
        self._check_session(session_id)
        if len(self._terminals) >= _MOST_TERMINALS:
            raise RequestError(_FAILED, f"{_MOST_TERMINALS} terminals are open: release some")
        line = command_line(command, args or (), {each.name: each.value for each in env or ()}, cwd, self._needs.cwd)
        name, terminal = str(uuid4()), _Terminal(output_byte_limit)
        self._terminals[name] = terminal

        async def run() -> None:
            result: ToolResult | None = None
            self._patience.begin()
            try:
                with terminal.scope:
                    result = await self._call("bash", {"command": line, "timeout": _LONGEST_COMMAND})
            finally:
                terminal.end(result)
                self._patience.end()

        self._tasks.start_soon(run)
        return {"terminalId": name}

    async def terminal_output(self, session_id: str, terminal_id: str, **_others: object) -> JsonObject:
        """Serve `terminal/output`. It is empty while the command runs, because the output is redacted as a whole."""
        terminal = self._terminal(session_id, terminal_id)
        shown: JsonObject = {"output": terminal.output, "truncated": terminal.truncated}
        return shown if terminal.exit is None else {**shown, "exitStatus": terminal.exit}

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_others: object) -> JsonObject:
        terminal = self._terminal(session_id, terminal_id)
        await terminal.over.wait()
        return terminal.exit or {}

    async def kill_terminal(self, session_id: str, terminal_id: str, **_others: object) -> JsonObject:
        self._terminal(session_id, terminal_id).scope.cancel()
        return {}

    async def release_terminal(self, session_id: str, terminal_id: str, **_others: object) -> JsonObject:
        self._terminal(session_id, terminal_id).scope.cancel()
        del self._terminals[terminal_id]
        return {}

    def _terminal(self, session_id: str, terminal_id: str) -> _Terminal:
        self._check_session(session_id)
        if terminal_id not in self._terminals:
            raise RequestError(_INVALID, f"no terminal {visible(terminal_id[:_TITLE])!r}")
        return self._terminals[terminal_id]

    # ------------------------------------------------------------------------------------ permission

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_meta: object
    ) -> JsonObject:
        """Serve `session/request_permission`. A yes is for this one action: `allow_always` is never chosen."""
        async with self._served(session_id):
            asked = action_of(self._caller.name, self._identity, tool_call)
            result = await self._run("agent_action", asked)
        if result.failure is not None and result.failure.category is ToolErrorCategory.CANCELLED:
            return {"outcome": {"outcome": "cancelled"}}
        wanted = "reject_once" if result.failure is not None else "allow_once"
        chosen = next((each.option_id for each in options if each.kind == wanted), None)
        if chosen is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen}}

    # ----------------------------------------------------------------------------------------- calls

    def _named(self, path: str) -> str:
        """Return a path relative to the session's folder if it is below, unless it would begin with `~`."""
        below = path.removeprefix(self._needs.cwd.rstrip("/") + "/")
        return path if below.startswith("~") else below or path

    def _check_session(self, session_id: str) -> None:
        if session_id != self._messages.session:
            raise RequestError(_INVALID, "there is no such session")

    @asynccontextmanager
    async def _served(self, session_id: str) -> AsyncGenerator[None]:
        """Serve a request. Raises RequestError if it is for another session, or if there are too many."""
        self._check_session(session_id)
        if self._serving >= _AT_ONCE:
            raise RequestError(_FAILED, f"{_AT_ONCE} requests wait already")
        self._serving += 1
        self._patience.begin()
        try:
            yield
        finally:
            self._serving -= 1
            self._patience.end()

    async def _run(self, tool: str, arguments: JsonObject) -> ToolResult:
        """Run a call in the run's own tasks, so that it ends with the run. Return its result."""
        results: list[ToolResult] = []
        over = anyio.Event()

        async def run() -> None:
            try:
                results.append(await self._call(tool, arguments))
            finally:
                over.set()

        self._tasks.start_soon(run)
        await over.wait()
        if not results:
            raise RequestError(_FAILED, "cancelled")
        return results[0]

    async def _call(self, tool: str, arguments: JsonObject) -> ToolResult:
        self.calls += 1
        return await self._needs.toolset().run(ToolCall(str(uuid4()), tool, arguments, agent=self._caller))


def _check(result: ToolResult) -> None:
    """Raise RequestError if a call failed."""
    if result.failure is not None:
        raise RequestError(_FAILED, result.failure.message)


def _where_it_leads(path: str, files: FileSystem) -> str:
    """Return a path with its links resolved, or unchanged if it may not be read: the tool that gets it refuses it."""
    try:
        return files.resolve(path, Access.READ)
    except (ToolError, Refused):
        return path


def command_line(command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | None, here: str) -> str:
    """Return a command of a terminal as a line for the shell. Without arguments the command is such a line itself."""
    line = shlex.join((command, *args)) if args else command
    if env:
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())
        line = f"env {given} {line}" if args else f"export {given}; {line}"
    if cwd and os.path.normpath(cwd) != here:
        line = f"cd {shlex.quote(cwd)} && {line}"
    return line


def action_of(agent: str, identity: str, call: ToolCallUpdate) -> JsonObject:
    """Return what an agent asks to do, as the arguments of `agent_action`.

    The command is in the arguments, or else in the title. Raises RequestError for too many paths and URLs.
    """
    given = cast("JsonObject", call.raw_input if isinstance(call.raw_input, dict) else {})
    found = next((given[name] for name in _COMMANDS if given.get(name)), None)
    command = shlex.join(map(str, found)) if isinstance(found, list) else found if isinstance(found, str) else ""
    if not command and call.kind == "execute":
        command = call.title or ""
    named = [each.path for each in call.locations or ()]
    named += [path for each in call.content or () if isinstance(path := getattr(each, "path", None), str)]
    paths = [*dict.fromkeys((*named, *_texts(given, _PATHS)))]
    urls = [*dict.fromkeys(_texts(given, _URLS))]
    if len(paths) + len(urls) > _MOST_NAMED:
        raise RequestError(_INVALID, f"more than {_MOST_NAMED} files and addresses")
    details = "" if not given else str({name: value for name, value in given.items() if value is not found})
    return {
        "agent": agent,
        "program": identity,
        "action": (call.title or call.kind or "something that it does not name")[:_DETAILS],
        "kind": call.kind or "",
        "command": command,
        "paths": [*paths],
        "urls": [*urls],
        "details": details[:_DETAILS],
    }


def _texts(given: JsonObject, names: "re.Pattern[str]") -> Iterator[str]:
    """Yield the texts under names such as `file_path` or `filePath`, wherever they are in the arguments."""
    waiting: list[tuple[str, Json]] = [*given.items()]
    while waiting:
        name, value = waiting.pop()
        match value:
            case str() if value and names.fullmatch(_INNER_CAPITAL.sub("_", name).lower()):
                yield value
            case list():
                waiting += ((name, each) for each in value)
            case dict():
                waiting += value.items()
            case _:
                pass
