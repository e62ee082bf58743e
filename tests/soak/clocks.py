"""Clocks that jump during a story: hours, days and years, forwards and back.

The agent and its commands have jumping_clock.c preloaded.
"""

import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import anyio

from tests.e2e.killed_story import story_model
from tests.e2e.killing import look, prepare, shown
from tests.fakes.editor import editing
from tests.soak.case import Case
from tests.soak.endings import ended, open_session, options_of, tell
from tests.soak.moments import MOMENTS, Moment, doing

JUMPS = (3600.0, -3600.0, 864_000.0, -864_000.0, 378_432_000.0, -378_432_000.0, -0.5, 0.5)
"""Seconds. The largest are twelve years."""


async def jump(case: Case) -> None:
    """A story during which the clock jumps some times, and then the end of the agent."""
    clock = case.folder / "clock"
    clock.write_bytes(struct.pack("d", 0.0))
    faked = {"LD_PRELOAD": str(_library(case)), "JUMP_FILE": str(clock)}
    moment = replace(
        Moment.chosen(case.random, [k for k in MOMENTS if k not in ("load", "close", "system call")]), sandboxed=False
    )
    async with story_model() as model:
        options = options_of(model, moment)
        options |= {"environment": {**options["environment"], **faked}, "cold": True}
        async with editing(case.folder, None, **options) as editor:
            prepare(editor.workspace)
            session = await open_session(editor, moment)
            start = len(editor.recording.frames)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tell, editor, session)
                tasks.start_soon(_jumping, case, clock)
                await moment.reached(editor, start, lambda: None)
                case.during.append(doing(editor.recording.frames[start:]))
                await ended(case, editor, case.random.choice(("SIGKILL", "SIGTERM", "EOF")))
                tasks.cancel_scope.cancel()
            case.check_log(editor)
            case.check_answers(editor.recording.frames, alive=False)
        await case.nothing_left()
        options = options_of(model, replace(moment, kind="anywhere"))
        await look(case.folder, model, options, shown(session, editor.recording.frames[start:]), case.judged)


async def _jumping(case: Case, clock: Path) -> None:
    while True:
        await anyio.sleep(case.random.uniform(0.02, 0.3))
        with clock.open("r+b") as file:
            file.write(struct.pack("d", case.random.choice(JUMPS)))


def _library(case: Case) -> Path:
    """Compile the clock, which takes a tenth of a second."""
    compiler = shutil.which("cc") or case.skip("no C compiler is installed, which the jumping clock needs")
    source, library = Path(__file__).with_name("jumping_clock.c"), case.folder / "jumping_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-lm"], check=True)
    return library
