"""Commands beside the turns: what is kept of their output, what is waited for, how many there may be."""

from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolError
from acp_agent.workspace.processes import background, terminal
from acp_agent.workspace.processes.background import MOST_ALIVE, OutputLog, ProcessPool
from acp_agent.workspace.processes.terminal import LocalTerminal
from tests.fakes.fake_terminal import FakeTerminal, Script
from tests.fakes.held import PATIENCE, Fifo

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the end of what has said something only a moment: nearly nothing here ends by then."""
    monkeypatch.setattr(background, "_FIRST_END", 0.01)


@given(st.lists(st.text("ab \n", max_size=30), max_size=20), st.integers(0, 400))
def test_what_fits_is_kept_whole_from_any_position(pieces: list[str], position: int):
    log = OutputLog(100_000)
    for piece in pieces:
        log.add(piece)
    assert log.since(position) == "".join(pieces)[position:]


@given(st.lists(st.text("abc \n", max_size=60), min_size=5, max_size=40), st.integers(0, 50))
def test_of_what_is_too_long_head_and_tail_are_kept_and_what_is_missing_is_counted(pieces: list[str], position: int):
    log, whole = OutputLog(200), "".join(pieces)
    for piece in pieces:
        log.add(piece)
    shown = log.since(position)
    assert log.end == len(whole)
    head, note, tail = shown.partition("\n[... ")
    if note:
        assert whole[position:].startswith(head)
        assert whole.endswith(tail.partition("...]\n")[2])
    else:
        assert shown == whole[position:]
    assert len(shown) < 400


def test_a_text_is_found_behind_a_position_in_head_and_tail():
    log = OutputLog(100)
    log.add("ready one\n" + "x " * 500 + "ready two\n")
    first = log.find("ready", 0)
    assert log.since(first).startswith(" one")
    assert log.since(log.find("ready", first)) == " two\n"
    assert log.find("ready", log.end) == -1


@asynccontextmanager
async def pool(terminal: FakeTerminal | LocalTerminal, highest_id: int = 0):
    async with anyio.create_task_group() as tasks:

        def background(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
            tasks.start_soon(job)

        made = ProcessPool(terminal, background, lambda: highest_id)
        with anyio.fail_after(PATIENCE):
            yield made
            await made.close()


HANGS = Script(stdout="up\n", hangs=True)


async def test_the_ninth_is_refused_and_may_run_when_one_has_ended():
    async with pool(FakeTerminal({"serve": HANGS})) as processes:
        for _ in range(MOST_ALIVE):
            await processes.start("serve", "/")
        with pytest.raises(ToolError, match="p1: serve; p2: serve"):
            await processes.start("serve", "/")
        await processes.listed()[2].stop()
        assert (await processes.start("serve", "/")).id == "p9"


async def test_ids_go_on_behind_those_that_the_conversation_knows():
    async with pool(FakeTerminal({"serve": HANGS}), highest_id=4) as processes:
        assert [(await processes.start("serve", "/")).id for _ in range(2)] == ["p5", "p6"]


async def test_only_the_last_that_ended_are_kept():
    terminal = FakeTerminal({"build": Script(stdout="built\n")})
    async with pool(terminal) as processes:
        for _ in range(12):
            await processes.start("build", "/")
        assert [each.id for each in processes.listed()] == [f"p{n}" for n in range(5, 13)]


async def test_a_terminal_is_released_after_its_card_was_closed_and_not_before():
    terminal = FakeTerminal({"build": Script(stdout="built\n", terminal_id="t")})
    async with pool(terminal) as processes:
        process = await processes.start("build", "/")
        await process.ended.wait()
        assert terminal.started[0].releases == 0
        processes.card_closed(process.id)
    assert terminal.started[0].releases == 1


async def test_the_same_text_is_waited_for_anew_after_it_was_found(tmp_path: Path):
    go = Fifo(tmp_path / "go")
    async with pool(LocalTerminal()) as processes:
        process = await processes.start("echo compiled; while read -r x < go; do echo compiled $x; done", str(tmp_path))
        heard: list[str] = []

        async def hear(text: str) -> None:
            heard.append(text)

        assert await process.until("compiled", PATIENCE, hear)
        assert not await process.until("compiled", 0.05, hear)
        go.write_line("again")
        assert await process.until("compiled", PATIENCE, hear)
        assert "".join(heard).endswith("compiled again\n")
    go.close()


async def test_whoever_waits_for_a_text_is_woken_by_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(background, "_LOOK", 2 * PATIENCE)
    go = Fifo(tmp_path / "go")
    async with pool(LocalTerminal()) as processes:
        process = await processes.start("echo up; read -r x < go; echo $x; read -r x < go", str(tmp_path))

        async def hear(text: str) -> None:
            if "up" in text:
                go.write_line("again")

        assert await process.until("again", PATIENCE, hear)
    go.close()


async def test_a_text_that_never_comes_is_not_waited_for_after_the_end(tmp_path: Path):
    async with pool(LocalTerminal()) as processes:
        process = await processes.start("echo begun; head -n 1", str(tmp_path))

        async def hear(text: str) -> None:
            del text

        await process.write("go\n")
        assert not await process.until("never", PATIENCE, hear)
        assert process.outcome is not None
        with pytest.raises(ToolError, match="p1 has ended") as error:
            await process.write("more")
        assert "start it with bash" in error.value.failure.suggestion


async def test_what_does_not_read_is_not_written_to_for_ever(tmp_path: Path):
    async with pool(LocalTerminal()) as processes:
        process = await processes.start("exec <&-; echo closed; sleep 60", str(tmp_path))
        with pytest.raises(ToolError, match="the input of the process is closed"):
            await process.write("words\n")


async def test_how_much_was_written_is_told_if_the_process_stops_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(terminal, "_UNREAD", 0.01)
    async with pool(LocalTerminal()) as processes:
        process = await processes.start("echo up; sleep 60", str(tmp_path))
        told = r"the process does not read its input; it has got \d{5,} of 300000 bytes"
        with pytest.raises(ToolError, match=told) as raised:
            await process.write("x" * 300_000)
        assert raised.value.failure.suggestion.startswith("Do not write these again.")


async def test_a_stubborn_process_is_killed(tmp_path: Path):
    async with pool(LocalTerminal()) as processes:
        process = await processes.start("trap '' TERM; echo up; while :; do sleep 60; done", str(tmp_path))
        await process.end(0.1)
        assert process.outcome is not None
        assert process.outcome.signal == "SIGKILL"


async def test_a_cancelled_start_ends_the_command(tmp_path: Path):
    async with pool(LocalTerminal()) as processes:
        phone = Fifo(tmp_path / "phone")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(processes.start, "echo $$ > phone; sleep 60", str(tmp_path))
            await phone.line()
            tasks.cancel_scope.cancel()
        assert [each.outcome is None for each in processes.listed()] == [False]
        phone.close()
