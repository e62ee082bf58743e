"""`make bench-scale ARGS='[PART ...]'`: what must not grow with what is kept. It takes some minutes.

    long      the turns of a session after 900 of them, beside those of a new session
    kept      a home with 10,000 kept sessions, beside an empty one
    files     a repository of 200,000 files beside one of 200, with git and without

Two agents do the same in turn, one large and one small, so that both see the same machine. What is compared is the
processor time of the agents: a loaded machine stretches it far less than the time on the clock.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from acp_agent.core.session_options import SessionOptions
from acp_agent.store.db import Database
from acp_agent.store.sessions import SessionStore
from tests.bench.agent import OURS, Agent, running
from tests.bench.file_tools import NEEDLE, Sample, grow
from tests.bench.model import Model, serving

KEY = {"BENCH_KEY": "obviously-fake"}
BUDGET = 3_000
"""Tokens of a conversation, of which the system prompt and the tools take half: old outputs are cleared every few
turns, so that the requests of any hundred turns are of the same sizes."""
_AIM = 1.1
_WARM = 20  # turns of another session, which load what all need
_CALLS: tuple[Callable[[int], tuple[str, dict[str, Any]]], ...] = (
    lambda number: ("read", {"path": f"{number % 300}.txt"}),
    lambda number: ("write", {"path": f"{number % 300}.txt", "content": f"{number}\n{_TEXT}"}),
    lambda number: ("bash", {"command": f"echo {number} >> log.txt"}),
    lambda number: ("edit", {"path": "counter", "old_string": f"{number - 4}", "new_string": f"{number}"}),
)
"""What the model calls, turn by turn: the files that the session has seen grow, and what `/undo` and the audit note."""
_TURNS = 50
_PAGE = 60  # sessions: more than the first page of the list shows
_TEXT = "line of a file, nothing special about it\n" * 20


@dataclass
class Pair:
    """Samples of the large side and of the small one."""

    what: str
    unit: str
    large: list[float]
    small: list[float]
    aim: float | None = _AIM

    def rows(self) -> list[Sample]:
        """Return a row with both sides, and one with their ratio: of the sums, since some turns do more than others."""
        ratio = sum(self.large) / sum(self.small)
        return [
            (self.what, self.unit, None, self.large, self.small),
            ("  the ratio", "x", self.aim, [ratio], []),
        ]


def long(turns: int = 1_000, ends: int = 100) -> Iterator[Sample]:
    """The last turns of a long session, in turn with the first ones of a new session of another agent."""
    with ExitStack() as stack:
        sides = [_Talk(stack) for _ in range(2)]
        old, new = sides
        for _ in range(turns - ends):
            old.turn()
        old.agent.settle()
        before = old.agent.memory()
        spent = [list[float](), list[float]()]
        bytes_ = [list[float](), list[float]()]
        for number in range(ends):
            for at, side in sorted(enumerate(sides), reverse=number % 2 == 1):
                spent[at].append(side.turn() * 1000)
                bytes_[at].append(sum(side.model.received) / 1e3)
        what = f"turns {turns - ends + 1} to {turns}, beside 1 to {ends}"
        yield from Pair(f"{what}: processor time", "ms", *spent).rows()
        yield from Pair("  bytes of their requests", "KB", *bytes_).rows()
        grown = before - old.first_memory
        yield f"memory that {turns - ends} turns leave", "MB", None, [grown], []
        yield "  of the new session", "MB", None, [new.agent.memory() - new.first_memory], []


class _Talk:
    """A session of an agent of its own, which reads a file in every turn. Another session has warmed it up."""

    def __init__(self, stack: ExitStack, model: Model | None = None) -> None:
        self.model = model or stack.enter_context(serving("read", [{"path": "0.txt"}]))
        config = self.model.config.replace("[agent]\n", f"[agent]\ncontext_budget_tokens = {BUDGET}\n")
        self.agent = stack.enter_context(running(config=config, environment=KEY))
        (self.agent.workspace / "counter").write_text("-1\n")
        (self.agent.workspace / "log.txt").write_text("")
        for number in range(300):
            (self.agent.workspace / f"{number}.txt").write_text(_TEXT)
        self.agent.initialize()
        self._number = 0
        self._open()
        for _ in range(_WARM):
            self.turn()
        self._open()
        self.agent.settle()
        self.first_memory = self.agent.memory()

    def _open(self) -> None:
        self.session, _ = self.agent.new_session()
        self.agent.full_auto(self.session)

    def turn(self) -> float:
        """Return the seconds of processor time that a turn takes, until its answer."""
        self._number += 1
        number = self._number
        self.model.tool, arguments = _CALLS[number % len(_CALLS)](number)
        self.model.arguments = [arguments]
        self.model.received.clear()
        begun = self.agent.cpu()
        stop = self.agent.prompt(self.session, f"Look at it, for the time number {self._number:06}.")
        if stop != "end_turn":
            raise RuntimeError(f"turn {self._number} ended {stop}")
        return self.agent.cpu() - begun


# --------------------------------------------------------------------------------------- kept sessions


def kept(sessions: int = 10_000, rounds: int = 10) -> Iterator[Sample]:
    """A home with kept sessions beside one with a page of them. Each agent is a process of its own."""
    with ExitStack() as stack:
        model = stack.enter_context(serving("read", [{"path": "0.txt"}]))
        homes = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acp-bench-"))) for _ in range(2)]
        ids = [_lived(home, model) for home in homes]
        for home, session, count in zip(homes, ids, (sessions, _PAGE), strict=True):
            anyio.run(_filled, home, session, count)
            for _ in _life(home, model, session):  # what is old is removed once
                pass
        yield "database of the large home", "MB", None, [_database(homes[0]).stat().st_size / 1e6], []
        samples = dict[str, tuple[list[float], list[float]]]()
        for number in range(rounds):
            for at in (0, 1) if number % 2 else (1, 0):
                for what, value in _life(homes[at], model, ids[at]):
                    samples.setdefault(what, ([], []))[at].append(value)
        for what, sides in samples.items():
            yield from Pair(f"{sessions} kept sessions: {what}", what.split()[-1].strip("()"), *sides).rows()


def _lived(home: Path, model: Model) -> str:
    """Have a session in a home, and return its id."""
    agent = Agent(OURS, home, model.config, KEY)
    try:
        (agent.workspace / "0.txt").write_text(_TEXT)
        agent.initialize()
        session, _ = agent.new_session()
        agent.prompt(session, "Look at it.")
        agent.settle()
    finally:
        agent.end()
    return session


def _database(home: Path) -> Path:
    return home / "data" / "acp-agent.db"


async def _filled(home: Path, session: str, count: int) -> None:
    """Copy a session many times. One copy in ten was never prompted, and one in ten is of the same folder."""
    database = Database(str(_database(home)), _complain)
    store = SessionStore(database)
    record = await store.find(session)
    assert record is not None, "it was used just now"
    try:
        for number in range(count):
            used = record.updated_at - number * 3_600_000
            folder = record.cwd if number % 10 == 0 else f"{record.cwd}-{number % 100}"
            each = replace(record, id=str(uuid4()), cwd=folder, updated_at=used, created_at=used - 50_000)
            if number % 10 == 5:
                await store.create(replace(each, prompts=0), SessionOptions())
            else:
                await store.fork(session, each, SessionOptions())
    finally:
        await database.aclose()


def _life(home: Path, model: Model, session: str) -> Iterator[tuple[str, float]]:
    """Yield what each part of an agent's life takes: milliseconds of processor time, if nothing else is said."""
    agent = Agent(OURS, home, model.config, KEY)

    def spent(action: Callable[[], object]) -> float:
        begun = agent.cpu()
        action()
        agent.settle()
        return (agent.cpu() - begun) * 1000

    def turns() -> None:
        for number in range(_TURNS):
            agent.prompt(opened[0], f"Look at it, for the time number {number}.")

    try:
        agent.initialize()
        opened = agent.new_session()
        yield "spawn to session ready, by the clock (ms)", opened[1] * 1000
        model.arrived.clear()
        agent.prompt(opened[0], "Look at it.")
        yield "spawn to the first model request, by the clock (ms)", (model.arrived[0] - agent.born) * 1000
        agent.settle()
        yield "start, first turn, and what is done behind them (ms)", agent.cpu() * 1000
        yield f"{_TURNS} turns (ms)", spent(turns)
        yield "ten more sessions (ms)", spent(lambda: [agent.new_session() for _ in range(10)])
        yield "first page of the list (ms)", spent(lambda: agent.request("session/list", {}))
        load = {"sessionId": session, "cwd": str(agent.workspace), "mcpServers": []}
        yield "session/load (ms)", spent(lambda: agent.request("session/load", load))
        yield "memory (MB)", agent.memory()
    finally:
        agent.end()


def _complain(problem: str) -> None:
    raise RuntimeError(problem)


# ------------------------------------------------------------------------------------------- many files


def files(many: int = 200_000, few: int = 200, rounds: int = 3) -> Iterator[Sample]:
    """A large tree beside a small one, first without git and then as a repository with one commit."""
    with tempfile.TemporaryDirectory(prefix="acp-bench-") as folder:
        trees = [Path(folder) / "large", Path(folder) / "small"]
        for tree, count in zip(trees, (many, few), strict=True):
            grow(tree / "work", count)
        for kind in ("", ", git"):
            samples = dict[str, tuple[list[float], list[float]]]()
            for number in range(rounds):
                for at in (0, 1) if number % 2 else (1, 0):
                    for what, value in _worked(trees[at]):
                        samples.setdefault(what, ([], []))[at].append(value)
            for what, sides in samples.items():
                yield from Pair(f"{many:,} files{kind}: {what}", what.split()[-1].strip("()"), *sides, aim=None).rows()
            for tree in trees if not kind else ():
                _commit(tree / "work")


def _commit(work: Path) -> None:
    for words in (("init", "-q"), ("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=work, check=True)


def _worked(home: Path) -> Iterator[tuple[str, float]]:
    """Yield what an agent takes in a tree. The processor time of processes that it starts is not counted."""
    calls = {
        "write": {"path": "package0/written.txt", "content": _TEXT},
        "bash": {"command": "echo one > package0/by-command.txt"},
        "grep": {"pattern": NEEDLE},
        "find_path": {"pattern": "**/file7.*"},
    }
    with serving("none", []) as model:
        agent = Agent(OURS, home, model.config, KEY)
        try:
            agent.initialize()
            session, ready = agent.new_session()
            yield "spawn to session ready, by the clock (ms)", ready * 1000
            agent.prompt(session, "Look at it.")
            yield "spawn to the first model request, by the clock (ms)", (model.arrived[0] - agent.born) * 1000
            agent.settle()
            yield "start and first turn, processor time (ms)", agent.cpu() * 1000
            yield "memory after it (MB)", agent.memory()
            agent.full_auto(session)
            for tool, arguments in calls.items():
                model.tool, model.arguments = tool, [arguments]
                for which in ("first", "second"):
                    begun, used = time.monotonic(), agent.cpu()
                    agent.prompt(session, f"Do it, the {which} time.")
                    took = time.monotonic() - begun
                    agent.settle()
                    yield f"{which} turn with {tool}, by the clock (ms)", took * 1000
                    yield f"{which} turn with {tool}, processor time (ms)", (agent.cpu() - used) * 1000
                yield f"memory after {tool} (MB)", agent.memory()
        finally:
            agent.end()


def main() -> None:
    parts: dict[str, Callable[[], Iterator[Sample]]] = {"long": long, "kept": kept, "files": files}
    for name in sys.argv[1:] or parts:
        for what, unit, aim, samples, floor in parts[name]():
            small = f"{statistics.median(floor):9.2f}" if floor else ""
            print(f"{what:60}{statistics.median(samples):9.2f} {unit:3}{small}", aim or "", flush=True)


if __name__ == "__main__":
    main()
