"""Which sessions this process may write, and when there is room for one more."""

import os
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_agent.core.errors import RequestError
from acp_agent.session.pool import KeyedLock, SessionLimits, SessionLock, SessionPool
from acp_agent.session.turn_slot import TurnSlot
from acp_agent.store.session_locks import SessionLocks
from tests.unit.store.test_session_locks import other_process

pytestmark = pytest.mark.anyio


async def test_a_session_another_process_took_with_a_new_file_is_not_ours_any_more(tmp_path):
    path = str(tmp_path / "locks")
    with closing(SessionLocks(path)) as locks, other_process(path) as other:
        hold = SessionLock(locks)
        await hold.take("a")
        await hold.take("b")
        hold.check("a")
        os.unlink(path)
        assert other("take a") == "True"
        with pytest.raises(RequestError, match="open in another process"):
            hold.check("a")
        hold.check("b")
    SessionLock(None).check("where nothing is kept, all are ours")
    hold.check("nor does a file that cannot be used end a conversation")


async def test_a_session_that_was_ours_before_stays_ours_when_what_is_done_to_it_fails(tmp_path):
    with closing(SessionLocks(str(tmp_path / "locks"))) as locks:
        lock = SessionLock(locks)
        for held in (False, True):
            if held:
                await lock.take("a")
            with pytest.raises(KeyError):
                async with lock.taken("a"):
                    raise KeyError
            assert locks.holds("a") is held


@dataclass
class FakeSession:
    id: str = "a"
    resident: bool = True
    runs_processes: bool = False
    turns: TurnSlot = field(default_factory=TurnSlot)

    async def evict(self, _patience: float) -> None:
        self.resident = False


@pytest.mark.parametrize("change", ["a turn", "an operation"])
async def test_what_ends_right_after_the_look_for_room_is_not_missed(change: str):
    acts, session = KeyedLock(), FakeSession()
    pool: Any = SessionPool(lambda: SessionLimits(1), None, SessionLock(None), acts)
    pool.known["a"] = session
    opened = anyio.Event()

    async def settle(_cancelled: bool) -> None:
        pass

    async def opens() -> None:
        async with pool.room("b", patient=True):
            opened.set()

    async with anyio.create_task_group() as tasks:
        async with AsyncExitStack() as running:
            await running.enter_async_context(session.turns.turn(settle) if change == "a turn" else acts.hold("a"))
            tasks.start_soon(opens)
            await anyio.lowlevel.checkpoint()  # it has looked, and no more
            assert not opened.is_set()
        with anyio.fail_after(20):
            await opened.wait()
