"""Runs of other agents that speak ACP: each run is a process of the agent, and we are its client.

The process runs in a sandbox where there is one, and ends with the run. What it asks of us goes through the session's
own tools (`AgentClient`). All that it sends is data: its size is limited, and malformed data only ends its own run.
"""

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, text_block
from acp.schema import ClientCapabilities, FileSystemCapabilities, Implementation
from anyio import to_thread

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolError
from acp_agent.core.mcp import StdioServer
from acp_agent.core.types import CallingAgent, Json, JsonObject
from acp_agent.core.untrusted import json_value
from acp_agent.subagents.client import AgentClient, AgentMessages, ExternalDependencies, Patience
from acp_agent.subagents.worker import Progress, WorkOutcome
from acp_agent.text import visible
from acp_agent.workspace.processes.program import PipedProgram, ProgramStart, server_environment

if TYPE_CHECKING:
    from acp import Client
    from acp.client.connection import ClientSideConnection

_LONGEST_LINE: Final = 16 * 1024 * 1024
_MOST_BYTES: Final = 256 * 1024 * 1024
"""Bytes that an agent may send in one run."""
_MOST_JUNK: Final = 100
"""The most lines that are no messages. Programs print many things when they start."""
_AUTH_REQUIRED: Final = -32000
_POLITE: Final = 1.0
"""Seconds that telling an agent of its cancellation may take."""
_LAST_OUTPUT: Final = 0.5
"""Seconds to wait for the exit of an agent that closed its output, to report how it ended."""
_REMEMBERED: Final = 20_000
"""Characters of the conversation that an agent gets again with a further task."""


@frozen
class ExternalAgent:
    """An agent as it is configured.

    identity          what an "always" answer to it covers
    program           its command line
    start             how it is started
    startup_timeout   seconds until it must have opened a session
    idle_timeout      seconds without a message until it has failed. The time in which it waits for us does not count
    """

    name: str
    identity: str
    program: StdioServer
    start: ProgramStart
    startup_timeout: float
    idle_timeout: float


class _BrokenAgentError(Exception):
    """The agent broke a rule that ends its run. The message says which, after "it"."""


class AgentPipes:
    """The transport of the SDK over the pipes of a program. Updates do not reach the SDK: its models refuse newer ones.

    trouble   why nothing more is read; empty while it is
    """

    def __init__(self, program: PipedProgram, messages: AgentMessages, patience: Patience) -> None:
        self._program = program
        self._messages = messages
        self._patience = patience
        self._sending = anyio.Lock()
        self._buffer = bytearray()
        self._bytes = self._junk = 0
        self.trouble = ""

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message. Raises ConnectionError if the agent does not read."""
        line = json.dumps(message, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"
        async with self._sending:
            try:
                await self._program.write(line)
            except OSError as error:
                raise ConnectionError("it does not read any more") from error

    async def receive(self) -> dict[str, Any] | None:
        """Return the next request or response of the agent, or None at the end."""
        try:
            while (line := await self._line()) is not None:
                self._patience.heard()
                message = self._parsed(line)
                if message is None:
                    continue
                if "id" in message:
                    return cast("dict[str, Any]", message)
                if message.get("method") == "session/update":
                    await self._messages.update(message.get("params"))
        except (_BrokenAgentError, ToolError) as error:
            self.trouble = f"it {error}"
        return None

    async def close(self) -> None:
        """Do nothing: the program is ended by its owner."""

    async def _line(self) -> bytes | None:
        """Return the next line, or None at the end. Raises _BrokenAgentError."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _LONGEST_LINE:
                raise _BrokenAgentError(f"sent a line of more than {_LONGEST_LINE >> 20} MB")
            data = await self._program.read()
            if not data:
                return None
            self._buffer += data
            self._bytes += len(data)
            if self._bytes > _MOST_BYTES:
                raise _BrokenAgentError(f"sent more than {_MOST_BYTES >> 20} MB")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _parsed(self, line: bytes) -> JsonObject | None:
        """Return the message on a line; None for another line. Raises _BrokenAgentError after many of these."""
        if not line.strip():
            return None
        message: Json = None
        with suppress(ValueError):
            message = json_value(line)
        if isinstance(message, dict) and ("method" not in message or isinstance(message["method"], str)):
            return message
        self._junk += 1
        if self._junk > _MOST_JUNK:
            raise _BrokenAgentError(f"sent {self._junk} lines that are no messages")
        return None


class ExternalWorker:
    """A worker that hands its tasks to another agent. Each task is a process and a session of that agent.

    calls   the number of calls that it made through us so far
    """

    def __init__(self, agent: ExternalAgent, needs: ExternalDependencies) -> None:
        self._agent = agent
        self._needs = needs
        self.calls = 0
        self._said: list[str] = []

    def conversation(self) -> str:
        """Return the tasks and what the agent said, one heading a message."""
        return "\n\n".join(self._said)

    async def work(self, words: str, caller: CallingAgent, progress: Progress) -> WorkOutcome:
        """Start the agent, give it a task, and return its last message.

        Raises ToolError if it cannot be started, or does not do the task.
        """
        agent = self._agent
        before, told = self.conversation()[-_REMEMBERED:], words
        if before:
            told = f"Earlier you were told and said:\n\n{before}\n\nGo on with that. Now you are told:\n\n{words}"
        self._said.append(f"## user\n\n{words}")
        environment, _ = server_environment(agent.start.environment, agent.program.env)
        start = ProgramStart(environment, agent.start.contain)
        try:
            program = await PipedProgram.start(agent.program, start)
        except (OSError, ValueError) as error:
            why = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
            raise ToolError.permanent(f"{agent.name} cannot be started ({why})") from error
        messages = AgentMessages(caller.card, progress)
        try:
            note, trouble = await self._converse(program, messages, caller, told)
        finally:
            await program.end()
            self._said.append(f"## {agent.name}\n\n{messages.all}")
        if trouble:  # then its last message is no report; the conversation contains it
            raise ToolError.permanent(trouble)
        report = await to_thread.run_sync(self._needs.redact, messages.report)  # a judge may read it as it is
        return WorkOutcome(report, note or ("" if report else "it ended without a report"))

    async def _converse(
        self, program: PipedProgram, messages: AgentMessages, caller: CallingAgent, words: str
    ) -> tuple[str, str]:
        """Have the agent do a task, and end everything that it began.

        Return two texts: a note on an unusual end of its turn, and why it did not do the task. Either may be empty.
        """
        agent = self._agent
        patience = Patience(agent.idle_timeout)
        note, trouble = "", f"it sent nothing for {agent.idle_timeout:g} s"
        pipes = AgentPipes(program, messages, patience)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program.drain)
            client = AgentClient(self._needs, messages, caller, agent.identity, tasks, patience)
            connection = connect_to_agent(cast("Client", client), pipes)
            try:
                with patience.scope:
                    patience.heard()
                    note = await self._prompt(connection, client, messages, words)
                    trouble = ""
            except _BrokenAgentError as error:
                trouble = f"it {error}"
            except RequestError as error:
                trouble = f"it answered with an error: {_error(error)}"
            except ConnectionError:
                trouble = pipes.trouble or await _ending(program)
            except ValueError:  # the SDK's models refuse its answer; their message would repeat it
                trouble = "its answer is not ACP"
            finally:
                self.calls += client.calls
                with anyio.CancelScope(shield=True):
                    tasks.cancel_scope.cancel()
                    await _closed(connection, messages.session)
        return note, trouble

    async def _prompt(
        self, connection: "ClientSideConnection", client: AgentClient, messages: AgentMessages, words: str
    ) -> str:
        """Open a session and send the prompt. Return why the turn ended early; empty if it ended normally."""
        agent, opened = self._agent, False
        with anyio.move_on_after(agent.startup_timeout):
            capabilities = ClientCapabilities(
                fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True
            )
            info = Implementation(name="acp-agent", version="1")
            first = await connection.initialize(PROTOCOL_VERSION, capabilities, info)
            if first.protocol_version != PROTOCOL_VERSION:
                raise _BrokenAgentError(f"speaks version {first.protocol_version} of ACP, not {PROTOCOL_VERSION}")
            try:
                messages.of_session((await connection.new_session(self._needs.cwd)).session_id)
            except RequestError as error:
                if error.code != _AUTH_REQUIRED:
                    raise
                ways = ", ".join(each.name for each in first.auth_methods or ())[:200]
                told = f"wants a login ({visible(ways) or 'it does not say which'}): log in with its own program"
                raise _BrokenAgentError(told) from error
            opened = True
        if not opened:
            raise _BrokenAgentError(f"did not open a session within {agent.startup_timeout:g} s")
        answer = await connection.prompt(messages.session, [text_block(words)])
        await client.settled()
        return "" if answer.stop_reason == "end_turn" else f"it stopped: {answer.stop_reason}"


async def _closed(connection: "ClientSideConnection", session: str) -> None:
    """Tell the agent that its turn is cancelled, in case it still goes on, and read nothing more of it."""
    with anyio.move_on_after(_POLITE):
        try:
            if session:
                await connection.cancel(session)
        except (ConnectionError, RequestError):
            pass
    await connection.close()


async def _ending(program: PipedProgram) -> str:
    """Return how a program ended, after it has closed its output."""
    with anyio.move_on_after(_LAST_OUTPUT):
        await program.exited()
    said = program.last_error_line()
    return f"its program {program.describe_exit()}{f', saying {json.dumps(said)}' if said else ''}"


def _error(error: RequestError) -> str:
    """Return what an agent said of its error, quoted, on one bounded line."""
    data = "" if error.data is None else f" {json.dumps(error.data)}"
    return json.dumps(visible(f"{error}{data}"[:500]), ensure_ascii=False)
