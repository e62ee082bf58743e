"""Fork bombs and a memory hog in a contained command: the agent answers meanwhile, and nothing of them is left.

All stop by themselves at a number that a machine without limits bears. Below the table stands what ended them, and how
far they came. The fork bombs are ended by the limit of processes, if nothing else ends them first.
"""

import contextlib
import re
import time

import anyio

from acp_agent.cli.agent_process import AgentGone
from acp_agent.workspace.sandbox.sandbox import SandboxTier, sandbox_tier
from tests.e2e.model_servers import listening_model
from tests.fakes.editor import NOTHING, ScriptedEditor, editing
from tests.soak.case import WITHIN, Case, until
from tests.soak.endings import DISCONNECTS, ended

PROCESSES, GIGABYTES = 2000, 3
_FORKS = f"""
import os, time
forked = 0
try:
    while forked < {PROCESSES}:
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
            os._exit(0)
        forked += 1
except OSError as error:
    print(error, flush=True)
print("reached", forked, "of {PROCESSES} processes", flush=True)
time.sleep(60)
"""
_HOG = f"""
import time
taken = []
try:
    while len(taken) < {GIGABYTES * 10}:
        taken.append(bytearray(b"x") * 100_000_000)
        print("reached", len(taken), "of {GIGABYTES * 10} blocks", flush=True)
except MemoryError as error:
    print(error, flush=True)
time.sleep(60)
"""
_PIPES = 'bomb() { [ "$1" -gt 0 ] && { bomb $(($1 - 1)) | bomb $(($1 - 1)) & }; sleep 60; }; bomb 9; sleep 60'
_FILES = {"forks.py": _FORKS, "hog.py": _HOG, "pipes.sh": _PIPES}
"""Files, because the blocklist knows a fork bomb by its text."""
_BOMBS = {"forks": "python3 forks.py", "memory": "python3 hog.py", "pipes": "sh pipes.sh"}
_CONFIG = "[acp]\nauto_approve = 'full-auto'\n"
_ANSWERS_WITHIN = 15.0
"""Seconds for a turn beside a bomb."""


async def burst(case: Case) -> None:
    """A bomb; another session that goes on; the end of the bomb by its timeout, a cancel, or the end of the agent."""
    if sandbox_tier() is SandboxTier.NONE:
        case.skip("no sandbox can be built on this machine")
    what = list(_BOMBS)[case.seed % len(_BOMBS)]
    end = ("timeout", "cancel", "agent")[case.seed // len(_BOMBS) % 3]
    call = ("bash", {"command": _BOMBS[what], "timeout": 10})
    async with listening_model(call) as model:
        options = {**model.options, "config": model.options["config"] + _CONFIG, "capabilities": NOTHING}
        options["environment"] = {**options["environment"], "ACP_AGENT_TOOLS__SANDBOX__MODE": "auto"}
        async with editing(case.folder, None, **options, lawful=False) as editor:
            for name, text in _FILES.items():
                (editor.workspace / name).write_text(text)
            session = await editor.open()
            other = await editor.new_session(str(case.folder))
            stops: list[str] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_bomb, editor, session, stops)
                await anyio.sleep(case.random.uniform(1, 4))
                await _beside(case, editor, other)
                if end == "cancel":
                    await editor.cancel(session)
                    if not await until(lambda: bool(stops), WITHIN):
                        case.fault("other", f"{what}: a cancelled turn was not answered in {WITHIN} s")
                if end != "agent":
                    await until(lambda: bool(stops), 40)
                    await _beside(case, editor, other)
                case.during.append(_reached(editor, what, end))
                case.check_log(editor)
                await ended(case, editor, (*DISCONNECTS[:3], "SIGKILL")[case.seed % 4])
                tasks.cancel_scope.cancel()
            case.check_answers(editor.recording.frames, alive=False)


async def _bomb(editor: ScriptedEditor, session: str, stops: list[str]) -> None:
    with contextlib.suppress(AgentGone):
        stops.append(await editor.prompt(session, "burst"))


async def _beside(case: Case, editor: ScriptedEditor, session: str) -> None:
    begun = time.monotonic()
    stop = await editor.say(session, "hi")
    if stop != "end_turn" or time.monotonic() - begun > _ANSWERS_WITHIN:
        case.fault("other", f"a turn beside it: {stop} after {time.monotonic() - begun:.1f} s")


def _reached(editor: ScriptedEditor, what: str, end: str) -> str:
    shown = str([frame.update for frame in editor.recording.frames])
    found = re.findall(r"reached \d+ of \d+ \w+", shown)
    limit = re.findall(r"\[the sandbox ended the command: ([^;]+)", shown)
    return f"{what} ended by {f'the sandbox: {limit[0]}' if limit else end}" + (f" ({found[-1]})" if found else "")
