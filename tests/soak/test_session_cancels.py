"""Requests about sessions that are cancelled at each of their awaits: nothing is left half done."""

from collections.abc import Callable, Coroutine, Generator
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


async def is_cancelled_at(here: Process, method: str, state: str, number: int) -> bool:
    """Cancel a request at its n-th await. Return False if it has fewer."""
    one, two = await here.new(), await here.new()
    for session, text in ((one, "one"), (two, "uno")):
        await here.say(session, text)
    if state == "awake":
        await here.say(one, "two")
    if state == "closed":
        await here.ask("close", one)
    if state.endswith("at rest"):
        await here.sessions.evict_all()
    before = {each.id for each in here.sessions.all()}
    incoming = Incoming(0, f"session/{method}")
    counted = Counted(request(here, method, one, incoming), number, incoming.cancel)
    answered = False
    with anyio.fail_after(PATIENCE), incoming.scope:
        with suppress(RequestError, RpcError):
            await counted
        answered = True
    assert_whole(here)
    listed = {*await here.listed()}
    if not answered and method in ("new", "fork"):
        assert {each.id for each in here.sessions.all()} <= before
        assert listed <= {one, two}
    for session, text in ((one, "one"), (two, "uno")):
        if session in listed:
            await here.ask("load", session)
            said = await here.told(session, "last")
            assert text in said
            assert len(said) == len(set(said))
        else:
            assert (method, session) == ("delete", one)
    return counted.waits >= number


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("method", METHODS)
async def test_a_request_that_is_cancelled_at_any_await_leaves_nothing_half_done(
    tmp_path: Path, method: str, state: str
) -> None:
    for number in range(1, _MOST_AWAITS):
        (root := tmp_path / str(number)).mkdir()
        async with process(root, most=1 if state.startswith("no room") else 16, lock_seconds=0.2) as here:
            if not await is_cancelled_at(here, method, state, number):
                return
    raise AssertionError(f"{method} waits more than {_MOST_AWAITS} times")
