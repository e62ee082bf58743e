"""Every fault of a model server, through the real stack: HTTP, adapter, retries, loop. After each the session works.

A recording toolset stands at the end: what it ran is what would have had effects. One wire format goes all the way. Of
the others the adapters are shown to say the same of each fault, and nothing behind an adapter knows of formats.
"""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_agent.agent.history import History
from acp_agent.agent.turn import Agent, Limits
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.events import Event, TextDelta
from acp_agent.core.messages import Message, ModelEvent, Role, StopReason, TextPart
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.llm import exchange
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig
from acp_agent.llm.retry import RetryingProvider
from tests.contract.model_faults import ENDLESS, FAKE_KEY, FAULTS, ODDITIES, Fault, Oddity
from tests.contract.wire_formats import FORMATS, Endless, FaultyHttp, Played, WireFormat, tool
from tests.fakes.fake_toolset import FakeToolset
from tests.fakes.scripted_http import Reply
from tests.rows import each_row

pytestmark = pytest.mark.anyio

FORMAT = pytest.mark.parametrize("wire", FORMATS.values(), ids=FORMATS)
ASK = ModelRequest("Be brief.", (Message(Role.USER, (TextPart("hi"),)),))
ADVICE = re.compile(r"check |[Tt]ry again|try other words|start a new session|set base_url")
INTERNAL = re.compile(r"Traceback|Error\b|Exception|httpx|<class|0x[0-9a-f]{6}|\.py\b|None")


THROUGH = "anthropic"
"""The wire format that goes through the whole stack with every fault."""


def each(names: Iterable[str]) -> pytest.MarkDecorator:
    """Every wire format, with every one of the names it has a way to show."""
    cases = [(key, name) for name in names for key, wire in FORMATS.items() if name not in wire.lacks]
    ids = [f"{name}-{key}" for key, name in cases]
    return pytest.mark.parametrize(("wire", "name"), [(FORMATS[key], name) for key, name in cases], ids=ids)


@dataclass
class Session:
    """One conversation with a model behind `server`. Sleeping only moves its clock."""

    wire: WireFormat
    server: FaultyHttp
    read: anyio.Event = field(default_factory=anyio.Event)
    events: list[Event] = field(default_factory=list)
    retries: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    history: History = field(default_factory=History)
    agent: Agent = field(init=False)
    toolset: FakeToolset = field(init=False)

    def __post_init__(self) -> None:
        tools = {"look": lambda _: "seen", "write": lambda _: "written"}
        self.toolset = FakeToolset(tools, mutating=("write",))

    async def prompt(self, *plays: Played, text: str = "go") -> StopReason:
        """One turn; the server answers with `plays`, the last of them again and again. What was said before is gone."""
        for record in (self.events, self.retries, self.waits, self.server.requests, self.toolset.calls):
            record.clear()
        self.server.replies = plays  # pyright: ignore[reportAttributeAccessIssue]
        with anyio.fail_after(20):
            return await self.agent.run(Message(Role.USER, (TextPart(text),)))

    async def emit(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, TextDelta):
            self.read.set()

    async def tell(self, text: str) -> None:
        self.retries.append(text)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await anyio.lowlevel.checkpoint()

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, TextDelta)]

    @property
    def ran(self) -> list[tuple[str, Any]]:
        return [(call.name, call.arguments) for call in self.toolset.calls]

    def assert_accepted(self) -> None:
        """Every request so far is one the API takes."""
        for request in self.server.requests:
            self.wire.check(request.body)

    async def assert_usable(self) -> None:
        """A next turn, with a tool, works as if nothing had been."""
        calls = self.wire.stream(calls=[tool("write", "call_next", note="next")])
        answers = [Reply.stream(calls), Reply.stream(self.wire.stream(text=["Fine."]))]
        assert await self.prompt(*answers, text="next") is StopReason.END_TURN
        assert (self.texts, self.retries) == (["Fine."], [])
        assert self.ran == [("write", {"note": "next"})]
        assert len(self.server.requests) == 2
        self.assert_accepted()


def catalog_of(wire: WireFormat, server: FaultyHttp, timeout: float) -> Catalog:
    """A catalog with a provider, whose server this is."""
    fields = {"api_key": FAKE_KEY, "api_key_env": "FAKE_API_KEY", "timeout": timeout, **wire.settled}
    return Catalog([ProviderConfig("acme", wire.type, server.url + wire.base, **fields)])


@asynccontextmanager
async def session_with(wire: WireFormat, timeout: float = 5.0) -> AsyncIterator[Session]:
    async with FaultyHttp([]) as server:
        catalog = catalog_of(wire, server, timeout)
        session = Session(wire, server)
        provider = RetryingProvider(
            catalog.build(ModelRef("acme", "some-model")),
            on_retry=session.tell,
            sleep=session.sleep,
            clock=lambda: sum(session.waits),
            chance=lambda: 0.5,
        )
        session.agent = Agent(provider, session.toolset, session.history, session.emit, Limits(), "system")
        try:
            yield session
        finally:
            await catalog.aclose()


def assert_told(session: Session, fault: Fault) -> None:
    """The user read of the fault once, in words that say what happened and what to do, and nothing of the inside."""
    (note,) = [text for text in session.texts if fault.says[0] in text]
    assert note == session.texts[-1]
    assert all(words in note for words in fault.says), note
    assert ADVICE.search(note), note
    assert ("no longer part" in note) is not bool(session.history.messages())
    for told in (note, *session.retries):
        assert FAKE_KEY not in told
        assert not INTERNAL.search(told), told
        assert told.strip().isprintable()
        assert len(told) < 600
    assert len(session.retries) == fault.requests - 1


@each_row("name", FAULTS)
async def test_a_fault_ends_the_turn_with_one_message_and_the_session_goes_on(name: str) -> None:
    fault, wire = FAULTS[name], FORMATS[THROUGH]
    async with session_with(wire, fault.timeout) as session:
        stop = await session.prompt(fault.plays(wire, session.read))
        assert stop is fault.stop
        assert session.ran == []
        assert_told(session, fault)
        assert len(session.server.requests) == fault.requests
        assert session.waits == pytest.approx(list(fault.waits))
        session.assert_accepted()
        assert bool(session.history.messages()) is fault.kept
        await session.assert_usable()


@each_row("name", FAULTS)
async def test_a_fault_after_a_tool_call_repeats_no_call_and_loses_no_result(name: str) -> None:
    fault, wire = FAULTS[name], FORMATS[THROUGH]
    async with session_with(wire, fault.timeout) as session:
        calls = wire.stream(calls=[tool("write", "call_a", note="a"), tool("look", "call_b")])
        stop = await session.prompt(Reply.stream(calls), fault.plays(wire, session.read))
        assert stop is fault.stop
        assert session.ran == [("write", {"note": "a"}), ("look", {})]
        assert_told(session, fault)
        assert len(session.server.requests) == 1 + fault.requests
        session.assert_accepted()
        assert [use.name for message in session.history.messages() for use in message.tool_uses] == ["write", "look"]
        assert await session.prompt(Reply.stream(wire.stream(text=["Fine."]))) is StopReason.END_TURN
        assert session.ran == []
        session.assert_accepted()


@each_row("name", [name for name, fault in FAULTS.items() if fault.requests > 1])
async def test_a_fault_that_passes_costs_one_more_request_and_no_message(name: str) -> None:
    fault, wire = FAULTS[name], FORMATS[THROUGH]
    async with session_with(wire, fault.timeout) as session:
        calls = Reply.stream(wire.stream(calls=[tool("write", note="a")]))
        good = Reply.stream(wire.stream(text=["Fine."]))
        assert await session.prompt(calls, fault.plays(wire, session.read), good) is StopReason.END_TURN
        assert session.texts == ["Fine."]
        assert len(session.retries) == 1
        assert session.ran == [("write", {"note": "a"})]
        assert len(session.server.requests) == 3
        session.assert_accepted()


@dataclass(frozen=True)
class Ending:
    """How an adapter told of a fault: the error but for its words, and whether anything was told before it."""

    kind: ProviderErrorKind
    status: int | None
    retry_after: float | None
    began: bool


async def ending(wire: WireFormat, name: str) -> Ending:
    """Ask a server with a fault for an answer, once, and return what the adapter made of it."""
    fault, read, events = FAULTS[name], anyio.Event(), list[ModelEvent]()

    async def listen(provider: Provider) -> None:
        with anyio.fail_after(20):
            async with aclosing(provider.stream(ASK)) as stream:
                async for event in stream:
                    events.append(event)
                    read.set()

    async with FaultyHttp([]) as server:
        server.replies = [fault.plays(wire, read)]  # pyright: ignore[reportAttributeAccessIssue]
        catalog = catalog_of(wire, server, fault.timeout)
        provider = catalog.build(ModelRef("acme", "some-model"))
        try:
            with pytest.raises(ProviderError) as raised:
                await listen(provider)
        finally:
            await catalog.aclose()
        (request,) = server.requests or [None]
    if request is not None:
        wire.check(request.body)
    error = raised.value
    said = str(error)
    assert fault.says[0] in said
    assert FAKE_KEY not in said
    assert not INTERNAL.search(said), said
    return Ending(error.kind, error.status, error.retry_after, bool(events))


@each_row("name", FAULTS)
async def test_every_adapter_says_the_same_of_a_fault(name: str) -> None:
    endings: dict[str, Ending] = {}

    async def note(form: str) -> None:
        endings[form] = await ending(FORMATS[form], name)

    async with anyio.create_task_group() as tasks:  # some faults are silence
        for form in FORMATS:
            tasks.start_soon(note, form)
    assert set(endings.values()) == {endings[THROUGH]}, endings


@each(ODDITIES)
async def test_an_odd_answer_is_taken_for_what_it_means(wire: WireFormat, name: str) -> None:
    oddity: Oddity = ODDITIES[name]
    async with session_with(wire) as session:
        plays: Sequence[Played] = oddity.plays(wire)
        stop = await session.prompt(*plays, Reply.stream(wire.stream(text=["Done."])))
        assert stop is oddity.stop
        assert sorted(session.ran, key=repr) == sorted(oddity.ran, key=repr)
        said = "".join(session.texts)
        assert all(words in said for words in oddity.says), said
        assert session.retries == []
        assert len(session.server.requests) == len(plays) + ("Done." in oddity.says)
        session.assert_accepted()
        await session.assert_usable()


@FORMAT
async def test_an_answer_without_end_is_ended_by_a_bound(wire: WireFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    if wire is not FORMATS[THROUGH]:  # whose test moves the 64 MB
        monkeypatch.setattr(exchange, "ANSWER_LIMIT", 8 * 1024 * 1024)
    async with session_with(wire) as session:
        assert await session.prompt(ENDLESS.plays(wire, session.read)) is StopReason.END_TURN
        assert_told(session, ENDLESS)
        with anyio.fail_after(10):
            await session.server.client_closed.wait()
        session.assert_accepted()
        await session.assert_usable()


@FORMAT
async def test_an_answer_without_end_can_be_cancelled(wire: WireFormat) -> None:
    before, after = wire.parted(wire.stream(text=["on and ", "on "]), b'"on and "')
    endless = Endless(before + wire.parted(after, b'"on "')[0])
    async with session_with(wire) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.prompt, endless)
            with anyio.fail_after(10):
                await session.read.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            await session.server.client_closed.wait()
        assert len(session.server.requests) == 1
        await session.assert_usable()
