"""`python -m tests.bench.sessions`: what it costs to store, list and load conversations.

The list of ten thousand sessions, a long conversation told again, many sessions in one process, many busy ones, and
what a turn pays for being written down. Sessions are made as users make them, but for those the list is filled with.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import SessionRecord
from acp_agent.store.db import Database
from acp_agent.store.sessions import SessionStore
from tests.bench.agent import OURS, Agent, running
from tests.bench.model import Model, serving

Sample: TypeAlias = tuple[str, str, float | None, list[float], list[float]]
"""What, unit, aim, samples, the floor's samples (none)."""

KEPT, TURNS, OPEN, RESTING, BUSY = 10_000, 200, 50, 500, 64
_KEY = {"BENCH_KEY": "obviously-fake"}
_PAGE = 50
_LIST_AIM, _SESSION_AIM = 50.0, 5.0  # ms, MB
_LATENCY, _BUSY_TURNS = 0.2, (10, 20)


def measured(
    kept: int = KEPT,
    turns: int = TURNS,
    opened: int = OPEN,
    resting: int = RESTING,
    rounds: int = 15,
    busy: int = BUSY,
) -> Iterator[Sample]:
    """Rows for `python -m tests.bench`."""
    yield from _listed(kept, rounds)
    yield from _long(turns, rounds)
    yield from _many(opened)
    yield from _rested(resting)
    yield from _busy(busy)
    yield from _turns(rounds * 4)


# ------------------------------------------------------------------------------------------------- the list


def _listed(kept: int, rounds: int) -> Iterator[Sample]:
    """Milliseconds for one page, and for all of them, asked for by an editor that has just connected."""
    with _home() as home:
        anyio.run(_filled, str(home / "data" / "acp-agent.db"), str(home / "work"), kept)
        agent = Agent(OURS, home, "", {})
        try:
            agent.initialize()
            pages, seconds = _timed(lambda: _pages(agent, {}))
            first, here = [seconds[0] * 1000], list[float]()
            for _ in range(rounds):
                first.append(_clocked(agent, "session/list", {})[1])
                here.append(_clocked(agent, "session/list", {"cwd": str(agent.workspace)})[1])
        finally:
            agent.end()
    if pages != kept:
        raise RuntimeError(f"{pages} sessions were listed: expected {kept}")
    name = f"session/list of {kept}"
    yield f"{name}: first page", "ms", _LIST_AIM, first[1:], []
    yield f"{name}: first page after the start", "ms", None, first[:1], []
    yield f"{name}: first page of a folder", "ms", _LIST_AIM, here, []
    yield f"{name}: a page on the way to the end", "ms", _LIST_AIM, [each * 1000 for each in seconds[1:]], []
    yield f"{name}: all pages", "ms", None, [sum(seconds) * 1000], []


async def _filled(file: str, cwd: str, count: int) -> None:
    """Sessions as they are kept. One in ten is of this folder."""
    database = Database(file, _complain)
    store = SessionStore(database)
    try:
        for number in range(count):
            folder = cwd if number % 10 == 0 else f"{cwd}-{number % 100}"
            begun = 1_700_000_000_000 + number * 60_000
            record = SessionRecord(
                f"00000000-0000-4000-8000-{number:012}",
                folder,
                title=f"Conversation {number} about the parser and its tests",
                created_at=begun,
                updated_at=begun + 50_000,
                prompts=1 + number % 7,
                model="bench:any",
            )
            await store.create(record, SessionOptions())
    finally:
        await database.aclose()


def _pages(agent: Agent, params: dict[str, Any]) -> Iterator[int]:
    """Sessions of each page."""
    while True:
        answer = agent.request("session/list", params)
        yield len(answer["sessions"])
        if "nextCursor" not in answer:
            return
        params = {**params, "cursor": answer["nextCursor"]}


def _timed(pages: Callable[[], Iterator[int]]) -> tuple[int, list[float]]:
    """How many there were, and the seconds each page took."""
    total, seconds, begun = 0, list[float](), time.monotonic()
    for count in pages():
        now = time.monotonic()
        seconds.append(now - begun)
        total, begun = total + count, now
    return total, seconds


# ------------------------------------------------------------------------------------- a long conversation


def _long(turns: int, rounds: int) -> Iterator[Sample]:
    """Milliseconds until a conversation has been told again, in its process and in a new one."""
    with _home() as home, serving("read", [{"path": "0.txt"}]) as model:
        agent = Agent(OURS, home, model.config, _KEY)
        try:
            agent.initialize()
            session, _ = _prompted(agent, turns)
            agent.request("session/close", {"sessionId": session})
            again = [_loaded(agent, session) for _ in range(rounds)]
        finally:
            agent.end()
        starts = [_started(home, model, session) for _ in range(rounds)]
    frames = {each.frames for each in (*again, *starts)}
    if len(frames) != 1 or frames.pop() < turns * 4:  # what was typed, the call, its end, the answer
        raise RuntimeError(f"a conversation of {turns} turns was told in {frames} frames")
    yield f"session/load of {turns} turns", "ms", None, [each.spent for each in again], []
    yield "  frames of it", "", None, [float(again[0].frames)], []
    yield "  from the start of a new process", "ms", None, [each.since_birth for each in starts], []
    yield "  of that, the load", "ms", None, [each.spent for each in starts], []


@dataclass
class Told:
    """A conversation that was told again. Times are in milliseconds."""

    frames: int
    spent: float
    since_birth: float = 0.0


def _loaded(agent: Agent, session: str) -> Told:
    params = {"sessionId": session, "cwd": str(agent.workspace), "mcpServers": []}
    seen: list[str] = []

    def count(message: dict[str, Any]) -> None:
        seen.append(message["params"]["update"]["sessionUpdate"])

    spent = _clocked(agent, "session/load", params, count)[1]
    late = ("available_commands_update", "config_option_update", "usage_update", "session_info_update")
    return Told(sum(kind not in late for kind in seen), spent, (time.monotonic() - agent.born) * 1000)


def _started(home: Path, model: Model, session: str) -> Told:
    agent = Agent(OURS, home, model.config, _KEY)
    try:
        agent.initialize()
        return _loaded(agent, session)
    finally:
        agent.end()


# --------------------------------------------------------------------------------------- many at once


def _many(count: int) -> Iterator[Sample]:
    """Megabytes a session takes that is ready for its next prompt; the first one brings what all share."""
    opening = list[float]()
    with serving("read", [{"path": "0.txt"}]) as model, _agent(model, count + 1) as agent:
        agent.initialize()
        _prompted(agent)
        agent.settle()
        before = agent.memory()
        for _ in range(count):
            opening.append(_prompted(agent)[1])
        agent.settle()
        grown = (agent.memory() - before) / count
    yield "session/new of a running process", "ms", None, opening, []
    yield f"memory of each of {count} sessions that are awake", "MB", _SESSION_AIM, [grown], []


def _rested(count: int) -> Iterator[Sample]:
    """Megabytes a session leaves behind that was used and is at rest."""
    with serving("read", [{"path": "0.txt"}]) as model, _agent(model, 4) as agent:
        agent.initialize()
        for _ in range(20):  # until memory that is given back is used again
            _prompted(agent)
        agent.settle()
        before = agent.memory()
        for _ in range(count):
            _prompted(agent)
        agent.settle()
        grown = agent.memory() - before
    yield f"memory of {count} sessions at rest", "MB", None, [grown], []


def _busy(count: int) -> Iterator[Sample]:
    """Turns of many sessions at once, each with one call of a slow model: the part of the time that the model takes.

    Were all parallel, the model would take all of it. In both rows the sessions begin at the same moment and first wait
    for the processor; among the twice as many turns of the second row, that weighs half. The parallel efficiency is the
    time that one session takes alone for as many turns, as a part of the time that all take. The last row is what each
    turn takes of the processor.
    """
    with serving("none", []) as model, _agent(model, count) as agent:
        agent.initialize()
        sessions = [_prompted(agent)[0] for _ in range(count)]
        agent.settle()
        model.latency = _LATENCY
        alone = _turns_at_once(agent, sessions[:1], _BUSY_TURNS[0]) / _BUSY_TURNS[0]
        cpu = agent.cpu()
        spent = [_turns_at_once(agent, sessions, turns) for turns in _BUSY_TURNS]
        used = agent.cpu() - cpu
    name = f"{count} busy sessions, {_LATENCY * 1000:.0f} ms model"
    for turns, seconds in zip(_BUSY_TURNS, spent, strict=True):
        yield f"{name}: the model's part, {turns} turns", "%", None, [100 * _LATENCY * turns / seconds], []
        yield f"  parallel efficiency, {turns} turns", "%", None, [100 * alone * turns / seconds], []
    yield "  processor time of a turn", "ms", None, [used * 1000 / (count * sum(_BUSY_TURNS))], []


def _turns_at_once(agent: Agent, sessions: list[str], turns: int) -> float:
    """The seconds in which each session has its turns, one after the other, while the others have theirs."""
    begun, number = time.monotonic(), 1_000_000
    left = dict.fromkeys(sessions, turns)
    running, free = dict[int, str](), list(sessions)
    while left:
        for session in free:
            number += 1
            running[number] = session
            block = {"type": "text", "text": "And again."}
            params = {"sessionId": session, "prompt": [block]}
            agent.send({"id": number, "method": "session/prompt", "params": params})
        message = agent.read()
        free = []
        if message.get("id") in running and "method" not in message:
            session = running.pop(message["id"])
            if message.get("result", {}).get("stopReason") != "end_turn":
                raise RuntimeError(f"a turn ended with {message}")
            left[session] -= 1
            if left[session]:
                free = [session]
            else:
                del left[session]
    return time.monotonic() - begun


# ------------------------------------------------------------------------------------------- a turn


@dataclass
class Turn:
    """The moments of one turn, on the monotonic clock."""

    sent: float = 0.0
    chunks: list[float] = field(default_factory=list)

    def watch(self, message: dict[str, Any]) -> None:
        if message.get("params", {}).get("update", {}).get("sessionUpdate") == "agent_message_chunk":
            self.chunks.append(time.monotonic())


def _turns(count: int) -> Iterator[Sample]:
    """Milliseconds from a prompt to the model's request, from its answer to the first words, and to the end."""
    asked, shown, ended = list[float](), list[float](), list[float]()
    with serving("none", []) as model, running(config=model.config, environment=_KEY) as agent:
        agent.initialize()
        session, _ = agent.new_session()
        for number in range(count + 1):
            model.arrived.clear()
            model.answered.clear()
            turn = Turn(time.monotonic())
            agent.prompt(session, f"prompt {number}", turn.watch)
            answered = time.monotonic()
            while not model.answered:  # its thread notes the time after the answer
                time.sleep(0.001)
            if number:  # the first one loads what all need
                asked.append((model.arrived[0] - turn.sent) * 1000)
                shown.append((turn.chunks[0] - model.answered[0]) * 1000)
                ended.append((answered - turn.chunks[0]) * 1000)
    yield "prompt to the model's request", "ms", None, asked, []
    yield "the model's answer to its words in the editor", "ms", None, shown, []
    yield "the words to the end of the turn", "ms", None, ended, []


# --------------------------------------------------------------------------------------------------


def _prompted(agent: Agent, prompts: int = 1) -> tuple[str, float]:
    """A session that was used, and the milliseconds `session/new` took. Raises RuntimeError."""
    (agent.workspace / "0.txt").write_text("one\ntwo\nthree\n")
    params = {"cwd": str(agent.workspace), "mcpServers": []}
    opened, spent = _clocked(agent, "session/new", params)
    for number in range(prompts):
        if (stop := agent.prompt(opened["sessionId"], f"Look at it, for the time number {number}.")) != "end_turn":
            raise RuntimeError(f"turn {number} ended {stop}")
    return opened["sessionId"], spent


def _clocked(
    agent: Agent, method: str, params: dict[str, Any], on_message: Callable[[dict[str, Any]], None] | None = None
) -> tuple[Any, float]:
    """The answer to a request, and the milliseconds it took."""
    begun = time.monotonic()
    answer = agent.request(method, params, on_message)
    return answer, (time.monotonic() - begun) * 1000


def _agent(model: Model, awake: int) -> AbstractContextManager[Agent]:
    """An agent that keeps so many sessions ready."""
    return running(config=f"[acp]\nmax_sessions = {awake}\n{model.config}", environment=_KEY)


@contextmanager
def _home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="acp-bench-") as folder:
        yield Path(folder)


def _complain(problem: str) -> None:
    raise RuntimeError(problem)


def main() -> None:
    for what, unit, _aim, samples, _floor in measured():
        print(f"{what:48}{statistics.median(samples):9.2f} {unit:3} max {max(samples):9.2f}  n {len(samples)}")


if __name__ == "__main__":
    main()
