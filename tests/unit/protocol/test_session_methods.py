"""`session/list`: the sessions, newest first, page by page."""

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import SessionRecord
from acp_agent.protocol.jsonrpc import RpcError
from acp_agent.protocol.session_methods import PAGE, listed
from acp_agent.protocol.updates import iso_time
from acp_agent.session.manager import SessionManager
from tests.fakes.sessions import Process, process
from tests.rows import each_row
from tests.unit.session.test_sessions import BAD_PARAMS, INTERNAL
from tests.unit.store.databases import others
from tests.unit.store.records import JSON

pytestmark = pytest.mark.anyio


async def filled(here: Process, count: int, *, cwd: str = "/work") -> list[str]:
    """So many sessions that are kept, the newest first."""
    assert here.store is not None
    for number in range(count):
        record = SessionRecord(f"s{number:04}", cwd, prompts=1, created_at=5, updated_at=10 + number // 3)
        await here.store.create(record, SessionOptions())
    return [f"s{number:04}" for number in reversed(range(count))]


async def pages(here: Process, **params: Any) -> list[list[str]]:
    """All pages from the first on."""
    found: list[list[str]] = []
    while True:
        answer = await here.ask("list", **params)
        found.append([each["sessionId"] for each in answer["sessions"]])
        if "nextCursor" not in answer:
            return found
        params["cursor"] = answer["nextCursor"]


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


async def test_where_there_is_nothing_the_list_is_empty(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        assert await here.ask("list") == {"sessions": []}
        assert await here.ask("list", cwd="/nowhere", cursor=None) == {"sessions": []}


@pytest.mark.parametrize("count", [PAGE - 1, PAGE, PAGE + 1, 120])
async def test_each_session_is_on_one_page_the_last_used_first(tmp_path: Path, count: int) -> None:
    async with process(tmp_path) as here:
        names = await filled(here, count)
        found = await pages(here)
        assert [name for page in found for name in page] == names
        assert all(len(page) == PAGE for page in found[:-1])


async def test_whoever_asks_page_by_page_gets_none_twice_and_misses_none_that_was_left_alone(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        names = await filled(here, 120)
        assert here.store is not None
        first = await here.ask("list")
        used, deleted = names[110], names[60]
        await here.ask("resume", used, cwd=str(tmp_path))
        await here.say(used)
        await here.ask("delete", deleted)
        await filled(here, 3, cwd="/other")
        second = await here.ask("list", cursor=first["nextCursor"])
        third = await here.ask("list", cursor=second["nextCursor"])
        assert "nextCursor" not in third
        seen = [each["sessionId"] for page in (first, second, third) for each in page["sessions"]]
        assert len(seen) == len(set(seen))
        assert set(names) - set(seen) == {used, deleted}
        assert (await here.listed())[0] == used


async def test_the_list_of_a_folder_has_only_its_own(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        one, two = str(tmp_path / "one"), str(tmp_path / "two")
        mine = [(await here.ask("new", cwd=one))["sessionId"] for _ in range(2)]
        other = (await here.ask("new", cwd=two))["sessionId"]
        await here.say(mine[0])
        assert set(await here.listed(cwd=one)) == set(mine)
        assert await here.listed(cwd=f"{two}/") == await here.listed(cwd=f"{one}/../two") == [other]
        assert set(await here.listed()) == {*mine, other}
        assert await here.listed(cwd=str(tmp_path)) == []


@each_row("cwd", ["", "work", "./work", "~", 1, True, [], {}, "/a\0b"])
async def test_a_folder_that_is_no_absolute_path_is_a_wrong_parameter(tmp_path: Path, cwd: object) -> None:
    async with process(tmp_path) as here:
        error = await here.error("list", cwd=cwd)
        assert (error.code, "absolute path" in error.message) == (BAD_PARAMS, True)


BAD_CURSORS = [
    "",
    "!",
    "garbage",
    "\ud800",
    "\0",
    "é",
    1,
    True,
    [],
    {},
    [10, "s"],
    encoded([]),
    encoded([1]),
    encoded(["s", 1]),
    encoded([1.5, "s"]),
    encoded([1, "s", 2]),
    encoded({"at": 1}),
    encoded([2**62, "s"]),
    encoded([-(2**70), "s"]),
    encoded(None),
    base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    base64.urlsafe_b64encode(b'[1e400, "s"]').decode(),
    base64.urlsafe_b64encode(b"[" + b"9" * 5000 + b', "s"]').decode(),
    base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    "A" * 1_000_001,
]


@each_row("cursor", BAD_CURSORS)
async def test_a_cursor_of_nobodys_is_a_wrong_parameter(cursor: Any) -> None:
    with pytest.raises(RpcError) as caught:
        await listed(_storeless(), {"cursor": cursor})
    assert caught.value.code == BAD_PARAMS
    assert "nextCursor of a former answer" in caught.value.message
    assert len(caught.value.message) < 200


@given(cursor=JSON | st.builds(encoded, JSON))
async def test_whatever_stands_for_a_cursor_is_answered(cursor: Any) -> None:
    with suppress(RpcError):  # anything else is our bug
        assert await listed(_storeless(), {"cursor": cursor}) == {"sessions": []}


async def test_a_cursor_with_strange_but_fit_values_gives_what_is_behind_it(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        names = await filled(here, 3)
        assert await here.listed(cursor=encoded([2**61, ""])) == names
        assert await here.listed(cursor=encoded([-(2**61), "\ud800"])) == []
        assert await here.listed(cursor=encoded([10, names[1]])) == names[2:]
        assert await here.listed(cursor=encoded([10, "' OR 1 --"])) == []


async def test_sessions_nobody_prompted_are_listed_while_they_are_open_here_only(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        used, unused = await here.new(), await here.new()
        await here.say(used)
        assert set(await here.listed()) == {used, unused}
        async with process(tmp_path, locking=False) as elsewhere:
            assert await elsewhere.listed() == [used]
        await here.sessions.evict_all()
        assert set(await here.listed()) == {used, unused}
        await here.ask("close", unused)
        assert await here.listed() == [used]
        await here.ask("load", unused)
        assert set(await here.listed()) == {used, unused}


async def test_open_sessions_that_were_never_prompted_come_behind_those_in_use(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        assert here.store is not None
        unused = await here.new()
        names = await filled(here, 3)  # long before
        database = others(tmp_path / "agent.db")
        database.execute("UPDATE conversations SET updated_at = 9000 WHERE id = ?", (names[2],))
        database.close()
        newest = await here.new()
        answer = await here.ask("list")
        assert [each["sessionId"] for each in answer["sessions"]] == [names[2], *names[:2], newest, unused]
        times = [each["updatedAt"] for each in answer["sessions"]]
        for part in (times[:3], times[3:]):
            assert part == sorted(part, reverse=True)


async def test_what_is_said_of_a_session(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        (tmp_path / "more").mkdir()
        more = str(tmp_path / "more")
        session = (await here.ask("new", additionalDirectories=[more]))["sessionId"]
        await here.say(session)
        await here.session(session).set_title("A title ![x](https://evil.example/p)")
        await here.session(session).transcript.flush()
        (info,) = (await here.ask("list"))["sessions"]
        own = info.pop("_meta")["acp_agent"]
        assert own.pop("createdAt")
        assert own == {"prompts": 1, "model": "p:one"}
        assert info.pop("updatedAt").endswith("Z")
        assert info == {
            "sessionId": session,
            "cwd": str(tmp_path),
            "additionalDirectories": [more],
            "title": "A title ![x]\\(https://evil.example/p)",
        }


async def test_while_the_store_cannot_be_read_what_is_open_here_is_listed(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        used, unused = await here.new(), await here.new()
        await here.say(used)
        (tmp_path / "agent.db").rename(tmp_path / "away")
        (tmp_path / "agent.db").symlink_to(tmp_path / "away")
        answer = await here.ask("list")
        assert {each["sessionId"] for each in answer["sessions"]} == {used, unused}
        assert "cannot be used" in answer["_meta"]["acp_agent"]["incomplete"]
        (tmp_path / "agent.db").unlink()
        (tmp_path / "away").rename(tmp_path / "agent.db")


async def test_where_nothing_is_open_a_store_that_cannot_be_read_is_no_empty_history(tmp_path: Path) -> None:
    async with process(tmp_path) as before:
        await filled(before, 3)
    (tmp_path / "agent.db").rename(tmp_path / "away")
    (tmp_path / "agent.db").symlink_to(tmp_path / "away")
    async with process(tmp_path, locking=False) as here:
        await here.new()  # editors open one first
        for params in ({}, {"cwd": "/work"}, {"cursor": encoded([2**61, ""])}):
            error = await here.error("list", **params)
            assert error.code == INTERNAL
            assert "cannot be read now: the database" in error.message
        (tmp_path / "agent.db").unlink()
        (tmp_path / "away").rename(tmp_path / "agent.db")
        assert len(await here.listed()) == 4


def test_times_are_those_of_rfc_3339() -> None:
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"
    assert iso_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


def _storeless() -> SessionManager:
    def unused(_: object) -> Any:
        raise AssertionError("no session is made")

    return SessionManager(None, None, unused, unused, unused)  # pyright: ignore[reportArgumentType]
