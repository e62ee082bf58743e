"""The sessions of a process over a real store, with engines that remember what was said to them."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel

from acp_agent.core.editor import ReadPrompt
from acp_agent.core.errors import AgentError, RequestError
from acp_agent.core.events import Notice, OfferedCommand, Severity, TextDelta, UserMessage
from acp_agent.core.messages import Message, Role, StopReason, TextPart
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.session_options import Levels, ModelChoice, SessionOptions, settle
from acp_agent.core.sessions import Change, HistoryState, SessionSnapshot, UsageTotals
from acp_agent.protocol.client import Client
from acp_agent.protocol.editor import Connection
from acp_agent.protocol.jsonrpc import REQUEST_CANCELLED, RpcError
from acp_agent.protocol.peer import Incoming
from acp_agent.protocol.session_methods import SessionMethods
from acp_agent.session.manager import SessionManager
from acp_agent.session.pool import SessionLimits
from acp_agent.session.session import Opening, Session, SessionDependencies
from acp_agent.session.slash.commands import ALWAYS, offered
from acp_agent.session.turn_slot import Answer
from acp_agent.store.session_locks import SessionLocks
from acp_agent.store.sessions import SessionStore
from tests.unit.store.databases import opened

PATIENCE = 10.0  # seconds a test waits for something that should take milliseconds
_HOLDER = """
import sys
from acp_agent.store.session_locks import SessionLocks
locks = SessionLocks(sys.argv[1])
for session in sys.argv[2:]:
    locks.take(session)
print("held", flush=True)
sys.stdin.readline()
"""


class Choices:
    """A core.choices.Choices of the models it is given, the first of which is the initial one."""

    def __init__(self, *names: str) -> None:
        self._names = names

    @property
    def initial(self) -> str:
        return self._names[0]

    def models(self, current: str) -> list[ModelChoice]:
        del current
        return [ModelChoice(name, name) for name in self._names]

    def has(self, model: str) -> bool:
        return model in self._names

    def thinking(self, model: str) -> Levels | None:
        del model
        return Levels(("off", "high"), "off")

    def temperature(self, model: str) -> Levels | None:
        del model
        return None


class Editor:
    """Takes what it is sent. `slow` holds each update up until it is set."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.slow: anyio.Event | None = None
        self.waiting = anyio.Event()

    async def notify(self, method: str, params: Any, *, at_once: bool = True) -> None:
        del at_once
        self.post_notification(method, params)
        if self.slow is not None:
            self.waiting.set()
            await self.slow.wait()

    def post_notification(self, method: str, params: Any) -> None:
        assert method == "session/update"
        self.sent.append((params["sessionId"], params["update"]))


class Engine:
    """Says how many messages it knew, and whose. A prompt that begins with "wait" waits for `go_on`."""

    def __init__(self, process: "Process", session: Session, saved: SessionSnapshot | None) -> None:
        self.process = process
        self.session = session
        self.saved = saved
        self.messages = saved.history.messages if saved else ()
        self.calls = saved.usage.calls if saved else 0
        self.closed = False
        self.serving = False
        self.followed_up: list[Answer] = []
        self.available = frozenset(ALWAYS)

    @property
    def redact(self) -> Redact:
        return verbatim

    async def answer(self, read: ReadPrompt) -> Answer:
        text, process = (await read(verbatim)).texts[0], self.process
        await self.session.emit(UserMessage((TextPart(text),), f"u{next(process.numbers)}"))
        self._add(Role.USER, text)
        if text.startswith("wait"):
            process.waiting.set()
            try:
                await process.go_on.wait()
            finally:
                if process.stubborn is not None:
                    with anyio.CancelScope(shield=True):
                        await process.stubborn.wait()
        reply = f"{text}!"
        await self.session.emit(TextDelta(reply, f"a{next(process.numbers)}"))
        self._add(Role.ASSISTANT, reply)
        self.calls += 1
        return Answer(StopReason.END_TURN)

    def _add(self, role: Role, text: str) -> None:
        self.messages = (*self.messages, Message(role, (TextPart(text),)))

    def state(self) -> Change:
        tally = UsageTotals(len(self.messages), 1000, cost=self.calls / 100, calls=self.calls)
        return Change(history=HistoryState(self.messages), usage=tally, model=self.session.options.model or "p:one")

    async def kept(self) -> Change:
        return self.state()

    def commands(self) -> tuple[OfferedCommand, ...]:
        return offered(self.available)

    async def answered(self, answer: Answer) -> bool:
        self.followed_up.append(answer)
        return True

    @property
    def runs_processes(self) -> bool:
        return self.serving

    async def close(self) -> None:
        self.closed = True

    @property
    def said(self) -> list[str]:
        """What the model knows of the conversation."""
        return [part.text for message in self.messages for part in message.parts if isinstance(part, TextPart)]


@dataclass
class Process:
    """One process: its sessions, and an editor that asks."""

    root: Path
    tasks: anyio.abc.TaskGroup
    store: SessionStore | None
    locks: SessionLocks | None
    limits: SessionLimits = field(default_factory=SessionLimits)
    trouble: str = ""
    lock_seconds: float = 3.0

    def __post_init__(self) -> None:
        self.editor = Editor()
        self.client = Client()
        self.choices = Choices("p:one", "p:two")
        self.now = 1_000
        self.numbers = count(1)
        self.engines: list[Engine] = []
        self.waiting, self.go_on = anyio.Event(), anyio.Event()
        self.stubborn: anyio.Event | None = None
        self.making: anyio.Event | None = None
        self.unmade: AgentError | None = None
        self.being_made = anyio.Event()
        self.sessions = SessionManager(
            self.store, self.locks, self._open, lambda: self.limits, lambda: self.now, self.trouble, self.lock_seconds
        )
        self.methods = SessionMethods(self.sessions, self._connection, lambda _: None, lambda *_: None, fork=True)
        self._requests = count(1)
        self.asked: list[Incoming] = []

    def _connection(self) -> Connection:
        editor: Any = self.editor
        return Connection(editor, self.client)

    def _open(self, opening: Opening) -> Session:
        needs = SessionDependencies(self._engine, self.sessions.resume, verbatim, self.tasks.start_soon, self._clock)
        saved = opening.saved
        conduct = SessionOptions() if saved is None else saved.options
        gone = settle(conduct, self.choices)
        notices = [Notice(Severity.WARNING, gone)] if gone else []
        return Session(needs, opening, conduct, self.choices, notices)

    def _clock(self) -> int:
        self.now += 1
        return self.now

    async def _engine(self, session: Session, saved: SessionSnapshot | None) -> Engine:
        self.being_made.set()
        if self.making is not None:
            await self.making.wait()
        if self.unmade is not None:
            raise self.unmade
        self.engines.append(Engine(self, session, saved))
        return self.engines[-1]

    # --------------------------------------------------------------------------------- as an editor

    async def ask(self, method: str, session: str | None = None, **params: Any) -> Any:
        """The answer to a request, which a peer would serve. Raises RpcError."""
        if session is not None:
            params["sessionId"] = session
        if method in ("new", "load", "resume", "fork"):
            params = {"cwd": str(self.root), "mcpServers": [], **params}
        incoming = Incoming(next(self._requests), f"session/{method}")
        self.asked.append(incoming)
        with incoming.scope:
            try:
                answer = await self.methods.requests[incoming.method](params, incoming)
            except RequestError as error:
                raise RpcError.of(error) from None
            for callback in incoming.after:
                callback()
            return answer
        raise RpcError(REQUEST_CANCELLED, "Request cancelled")

    async def new(self) -> str:
        return (await self.ask("new"))["sessionId"]

    async def say(self, session: str, text: str = "hello") -> str:
        """The stop reason of a turn."""
        prompt = [{"type": "text", "text": text}]
        return (await self.ask("prompt", session, prompt=prompt))["stopReason"]

    async def told(self, session: str, text: str = "hello") -> list[str]:
        """What the model of a session knows after it was told something."""
        assert await self.say(session, text) == "end_turn"
        return self.engine(session).said

    async def error(self, method: str, session: str | None = None, **params: Any) -> RpcError:
        """The error a request is answered with."""
        try:
            answer = await self.ask(method, session, **params)
        except RpcError as error:
            return error
        raise AssertionError(f"{method} was answered {answer}")

    @asynccontextmanager
    async def prompting(self, session: str, text: str = "wait") -> AsyncIterator["Outcome"]:
        """A turn that hangs while the body runs, unless that ends it; it is over when the body is left."""
        self.waiting, self.go_on = anyio.Event(), anyio.Event()
        go_on = self.go_on
        async with self.doing("prompt", session, prompt=[{"type": "text", "text": text}]) as outcome:
            with anyio.fail_after(PATIENCE):
                await self.waiting.wait()
            try:
                yield outcome
            finally:
                go_on.set()

    @asynccontextmanager
    async def doing(self, method: str, session: str | None = None, **params: Any) -> AsyncIterator["Outcome"]:
        """A request under way while the body runs, and answered once it is left."""
        outcome = Outcome()

        async def ask() -> None:
            try:
                outcome.result = await self.ask(method, session, **params)
            except RpcError as error:
                outcome.error = error
            outcome.number = next(self._requests)
            outcome.done.set()

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.lowlevel.checkpoint()  # it has begun, and no more
                yield outcome

    # -------------------------------------------------------------------------------------- looking

    def engine(self, session: str) -> Engine:
        """The newest engine of a session."""
        return [each for each in self.engines if each.session.id == session][-1]

    def session(self, session: str) -> Session:
        return self.sessions.get(session)

    def updates(self, session: str, start: int = 0) -> list[Any]:
        """What the editor was told of a session."""
        return [update for sid, update in self.editor.sent[start:] if sid == session]

    def shown(self, session: str, start: int = 0) -> list[str]:
        """The texts of messages the editor was told."""
        return [
            update["content"]["text"]
            for update in self.updates(session, start)
            if update["sessionUpdate"].endswith("message_chunk")
        ]

    async def listed(self, **params: Any) -> list[str]:
        return [each["sessionId"] for each in (await self.ask("list", **params))["sessions"]]

    def age(self, *sessions: str) -> None:
        """The first of these was used longest ago."""
        now = anyio.current_time()
        for seconds, session in enumerate(reversed(sessions), 1):
            self.session(session).turns.used_at = now - seconds

    @property
    def resident(self) -> set[str]:
        return {each.id for each in self.sessions.all() if each.resident}


@dataclass
class Outcome:
    """Of a request under way. `number` grows from one answer to the next."""

    result: Any = None
    error: RpcError | None = None
    number: int = 0
    done: anyio.Event = field(default_factory=anyio.Event)


@asynccontextmanager
async def process(
    root: Path,
    *,
    most: int = 16,
    known: int = 1000,
    locking: bool = True,
    patience: float = 5.0,
    lock_seconds: float = 3.0,
) -> AsyncIterator[Process]:
    """A process of its own, but for the locks: with `locking` only one of those that run here may use them."""
    async with opened(root / "agent.db", patience=patience) as database, anyio.create_task_group() as tasks:
        locks = SessionLocks(str(root / "sessions.lock")) if locking else None
        limits = SessionLimits(most, known=known)
        try:
            yield Process(root, tasks, SessionStore(database), locks, limits, lock_seconds=lock_seconds)
        finally:
            tasks.cancel_scope.cancel()
            if locks is not None:
                locks.close()


@asynccontextmanager
async def holding(root: Path, *sessions: str) -> AsyncIterator[anyio.abc.Process]:
    """Another process that has these sessions open, until it is killed or the body is left."""
    command = [sys.executable, "-c", _HOLDER, str(root / "sessions.lock"), *sessions]
    async with await anyio.open_process(command, stderr=None) as child:
        assert child.stdout is not None
        try:
            assert b"held" in await child.stdout.receive()
            yield child
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            with anyio.CancelScope(shield=True):
                await child.wait()
