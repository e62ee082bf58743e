"""What a case of the soak is judged by: a table of faults, and the processes that it left running."""

import contextlib
import ctypes
import json
import os
import random
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import anyio
import psutil

from acp_agent.cli.agent_process import RecordedFrame
from tests.fakes.editor import ScriptedEditor, from_agent

FAULTS = ("crashes", "lost rows", "half files", "torn lines", "left running", "missing", "doubled", "other")
"""The columns of the table. "missing" and "doubled" count answers; "other" is any other broken promise."""
WITHIN = 2.0
"""Seconds after the end in which every process must be gone, and in which a cancelled turn must be answered."""
_CRASHED = ("acp-agent has crashed", "Traceback (most recent call last)", "Fatal Python error")


@dataclass
class Case:
    """One case: what it ran into. The seed repeats it: the same moment of the same story, as near as a machine can.

    during   what the agent was doing at each moment
    gone     seconds until no process was left
    skipped  why the machine cannot run it
    times    how often the thing that is counted was done
    """

    seed: int
    folder: Path
    during: list[str] = field(default_factory=list[str])
    gone: float = 0.0
    skipped: str = ""
    times: int = 1
    faults: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._before = set(running_below())

    def fault(self, column: str, what: str, number: int = 1) -> None:
        """Count something that is wrong."""
        assert column in FAULTS, column
        self.faults[column] += number
        self.notes.append(f"{column}: {what[:3000]}")

    def skip(self, reason: str) -> NoReturn:
        """End the case: this machine cannot run it."""
        self.skipped = reason
        raise Skipped

    @contextlib.contextmanager
    def judged(self, column: str) -> Iterator[None]:
        """Count an assertion of the body that fails."""
        try:
            yield
        except (AssertionError, ValueError) as error:
            self.fault(column, str(error) or traceback.format_exc())

    async def nothing_left(self) -> None:
        """Count the processes that are still there after WITHIN seconds, and end them."""
        waited = Waited()
        while left := [pid for pid in running_below() if pid not in self._before]:
            self.gone = max(self.gone, waited.seconds)
            if waited.seconds > WITHIN:
                self.fault("left running", "; ".join(map(_described, left)), len(left))
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, 9)
                return
            await waited.a_little()  # nothing tells of the end of a process that is not a child

    def check_log(self, editor: ScriptedEditor) -> None:
        """Count a crash."""
        if any(words in editor.log for words in _CRASHED):
            self.fault("crashes", editor.log[-3000:])

    def check_answers(self, frames: Sequence[RecordedFrame], *, alive: bool) -> None:
        """Each request has one answer. One without was cut off, unless the connection is still `alive`."""
        asked = Counter(_id(frame) for frame in frames if not from_agent(frame) and frame.is_request)
        answered = Counter(_id(frame) for frame in frames if from_agent(frame) and not frame.method)
        del answered["null"]  # the answers to half a line
        if doubled := answered - asked:
            self.fault("doubled", f"answers beyond their requests: {doubled}", doubled.total())
        if alive and (missing := asked - answered):
            self.fault("missing", f"requests without an answer: {missing}", missing.total())

    def line(self) -> str:
        """The case as a line of JSON."""
        known = {
            name: getattr(self, name) for name in ("seed", "during", "gone", "skipped", "times", "faults", "notes")
        }
        return json.dumps(known)


class Skipped(Exception):
    """The machine cannot run a case."""


async def run_case(case: Case, run: Callable[[Case], Awaitable[None]]) -> None:
    """Run a case; whatever it raises is a fault."""
    try:
        with anyio.fail_after(300):
            await run(case)
    except Skipped:
        pass
    except BaseExceptionGroup as group:
        case.fault("other", "\n".join(_innermost(group)))
    except Exception as error:  # noqa: BLE001 - the table shows it
        case.fault("other", f"{error!r}\n{traceback.format_exc()}")
    await case.nothing_left()


async def until(true: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is true, at most so long. Return whether it is."""
    waited = Waited()
    while not true() and waited.seconds < seconds:
        await waited.a_little()
    return true()


class Waited:
    """Counts seconds, but not those in which this process itself got no processor: then the others got none, either."""

    _STEP, _MOST = 0.01, 0.1

    def __init__(self) -> None:
        self.seconds = 0.0

    async def a_little(self) -> None:
        """Sleep for a step."""
        begun = time.monotonic()
        await anyio.sleep(self._STEP)
        self.seconds += min(time.monotonic() - begun, self._MOST)


def adopt_orphans() -> None:
    """Make this process the parent of every process below it that loses its own, so that none escapes the count.

    Neither a daemon nor a process without an environment does.
    """
    set_child_subreaper = 36
    assert ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0) == 0


def running_below() -> list[int]:
    """All processes below this one that run. Zombies do not."""
    found: list[int] = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def _innermost(group: BaseExceptionGroup[BaseException]) -> Iterator[str]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _innermost(error)
        else:
            yield f"{error!r}\n{''.join(traceback.format_tb(error.__traceback__)[-12:])}"


def _described(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return f"{pid} (parent {process.ppid()}) {' '.join(process.cmdline())[:200]}"
    return f"{pid}"


def _id(frame: RecordedFrame) -> Any:
    return json.dumps(frame.message.get("id"))
