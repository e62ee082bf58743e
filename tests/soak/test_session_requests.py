"""Requests about sessions that are cancelled, or met by another request, at each of their awaits."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.core.errors import RequestError
from acp_agent.protocol.jsonrpc import RpcError
from acp_agent.protocol.peer import Incoming
from tests.fakes.sessions import PATIENCE, Process, process

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

STATES = ("awake", "at rest", "closed", "no room", "no room, at rest")
METHODS = ("new", "load", "resume", "fork", "close", "delete", "set_mode", "prompt", "move", "evict")
PARAMS = {"set_mode": {"modeId": "ask"}, "prompt": {"prompt": [{"type": "text", "text": "three"}]}}
_MOST_AWAITS = 200


class Counted:
    """A coroutine that calls `act` when it waits for the n-th time."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], number: int, act: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._number = number
        self._act = act
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        step: Callable[..., Any] = steps.send
        given: Any = None
        while True:
            try:
                waits_for = step(given)
            except StopIteration as stop:
                return stop.value
            self.waits += 1
            if self.waits == self._number:
                self._act()
            try:
                step, given = steps.send, (yield waits_for)
            except BaseException as error:  # noqa: BLE001 - the coroutine gets it
                step, given = steps.throw, error


def request(here: Process, method: str, session: str, incoming: Incoming) -> Coroutine[Any, Any, Any]:
    if method == "move":
        return here.sessions.move(session, str(here.root))
    if method == "evict":
        return here.sessions.evict_all()
    params: dict[str, Any] = {} if method == "new" else {"sessionId": session}
    if method in ("new", "load", "resume", "fork"):
        params |= {"cwd": str(here.root), "mcpServers": []}
    served: Any = here.methods.requests[incoming.method]
    return served({**params, **PARAMS.get(method, {})}, incoming)


def assert_whole(here: Process) -> None:
    """No lock, place or engine is left that belongs to no session."""
    known = {each.id: each for each in here.sessions.all()}
    assert here.locks is not None
    for session in here.locks._held:
        assert session in known, "the lock of a closed session is kept"
        assert known[session].resident or not known[session].transcript.stored, "a session at rest is locked"
    assert here.sessions._acts._locks == {}
    assert (here.sessions._pool._opening, here.sessions._pool._waiting) == (0, set())
    assert (here.sessions._being_opened, dict(here.sessions.loads._loading)) == (0, {})
    for session in known.values():
        assert not session.turns.busy
        assert session.resident or session._engine is None, "a session at rest has an engine"
    for engine in here.engines:
        mine = known.get(engine.session.id)
        assert engine.closed or (mine is not None and mine._engine is engine), "an engine is not closed"


async def two_sessions(here: Process, state: str) -> tuple[str, str]:
    """Sessions to whose models "one" and "uno" were said. The first is in the state, and without room the second."""
    one, two = await here.new(), await here.new()
    for session, text in ((one, "one"), (two, "uno")):
        await here.say(session, text)
    if state == "awake":
        await here.say(one, "two")
    if state == "closed":
        await here.ask("close", one)
    if state.endswith("at rest"):
        await here.sessions.evict_all()
    return one, two


async def assert_going_on(here: Process, one: str, two: str, *, deleted: bool) -> None:
    """Both sessions can be loaded and prompted, and their models know each word once."""
    listed = await here.listed()
    for session, text in ((one, "one"), (two, "uno")):
        if session not in listed:
            assert deleted
            assert session == one
            continue
        await here.ask("load", session)
        said = await here.told(session, "last")
        assert text in said
        assert said.count("last") == said.count(text) == 1


async def is_cancelled_at(here: Process, method: str, state: str, number: int) -> bool:
    """Cancel a request at its n-th await. Return False if it has fewer."""
    one, two = await two_sessions(here, state)
    before = {each.id for each in here.sessions.all()}
    incoming = Incoming(0, f"session/{method}")
    counted = Counted(request(here, method, one, incoming), number, incoming.cancel)
    answered = False
    with anyio.fail_after(PATIENCE), incoming.scope:
        with suppress(RequestError, RpcError):
            await counted
        answered = True
    assert_whole(here)
    if not answered and method in ("new", "fork"):
        assert {each.id for each in here.sessions.all()} <= before
        assert {*await here.listed()} <= {one, two}
    await assert_going_on(here, one, two, deleted=method == "delete")
    return counted.waits >= number


async def is_met_at(here: Process, method: str, other: str, state: str, number: int) -> bool:
    """Send another request at the n-th await of a request. Return False if it has fewer."""
    one, two = await two_sessions(here, state)
    answered = anyio.Event()

    async def meet() -> None:
        with suppress(RequestError, RpcError):
            await request(here, other, one, Incoming(1, f"session/{other}"))
        answered.set()

    asked = request(here, method, one, Incoming(0, f"session/{method}"))
    counted = Counted(asked, number, lambda: here.tasks.start_soon(meet))
    with anyio.fail_after(PATIENCE):
        with suppress(RequestError, RpcError):
            await counted
        if counted.waits >= number:
            await answered.wait()
    assert_whole(here)
    await assert_going_on(here, one, two, deleted="delete" in (method, other))
    return counted.waits >= number


async def at_each_await(root: Path, state: str, happens_at: Callable[[Process, int], Awaitable[bool]]) -> None:
    for number in range(1, _MOST_AWAITS):
        (folder := root / str(number)).mkdir()
        async with process(folder, most=1 if state.startswith("no room") else 16, lock_seconds=0.2) as here:
            if not await happens_at(here, number):
                return
    raise AssertionError(f"more than {_MOST_AWAITS} awaits")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("method", METHODS)
async def test_a_request_that_is_cancelled_at_any_await_leaves_nothing_half_done(
    tmp_path: Path, method: str, state: str
) -> None:
    await at_each_await(tmp_path, state, lambda here, number: is_cancelled_at(here, method, state, number))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("other", METHODS[1:])
@pytest.mark.parametrize("method", METHODS)
async def test_requests_that_meet_at_any_await_are_answered_and_leave_nothing_half_done(
    tmp_path: Path, method: str, other: str, state: str
) -> None:
    await at_each_await(tmp_path, state, lambda here, number: is_met_at(here, method, other, state, number))
