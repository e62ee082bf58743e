"""Which sessions this process may write."""

import os
from contextlib import closing

import pytest

from acp_agent.core.errors import RequestError
from acp_agent.session.pool import SessionLock
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
