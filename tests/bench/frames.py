"""`python -m tests.bench.frames [--show]`: how much of our code stands between a prompt and the command it starts.

An agent under `sys.setprofile` plays four turns of one `bash` call each. The second one makes the session hold its
walls, so the third is the first warm one. It prints the functions of acp_agent that wait for each other when the first
turn starts the shell, from the handling of `session/prompt` on; the files they are in; how often shell syntax was
parsed by then; and how many functions of acp_agent each turn and its tool call entered.
"""

import argparse
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.bench.agent import Agent

PACKAGE = str(Path(__file__).parents[2] / "acp_agent") + os.sep
CALLS, MODEL = f"{PACKAGE}agent{os.sep}tool_calls.py", f"{PACKAGE}llm{os.sep}scripted.py"
REPORT = "ACP_AGENT_BENCH_REPORT"
"""The environment variable that names the file to which a profiled agent writes its report."""
MARK = "marked-command"
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")
"""They are no functions: from Python 3.12 on they have no frame of their own."""
COMMANDS = {
    "cold": f"echo first-{MARK}",
    "holding": f"echo second-{MARK}",
    "warm": f"echo third-{MARK}",
    "piped": f"echo 'fourth-{MARK}' | cat",
}
"""The command of each prompt. Only the last one needs the parser: plain words are read without it."""
_DONE = {"text": ["done"]}


class Probe:
    """What a profiled process has seen since it was last asked."""

    def __init__(self, report: Path) -> None:
        self._report = report
        self._entered: set[CodeType] = set()
        self._in_call: set[CodeType] = set()
        self._calling = False
        self._parses = 0
        self._chain: list[str] = []
        self._parses_before_the_start = 0

    def install(self) -> None:
        """Watch this process from now on. SIGUSR1 asks for a line of the report."""
        started = subprocess.Popen.__init__

        def start(process: Any, args: Any, *more: Any, **named: Any) -> None:
            if MARK in str(args) and not self._chain:
                self._parses_before_the_start = self._parses
                self._chain = [_name(frame.f_code) for frame in chain() if frame.f_code.co_filename.startswith(PACKAGE)]
            started(process, args, *more, **named)

        subprocess.Popen.__init__ = start
        signal.signal(signal.SIGUSR1, self._tell)
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, what: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename == CALLS and code.co_qualname.startswith("ToolCalls."):
                self._calling = True
            elif code.co_filename == MODEL:  # a tool call lasts until the model is asked again
                self._calling = False
            if code.co_name in _COMPREHENSIONS:
                return
            self._entered.add(code)
            if self._calling:
                self._in_call.add(code)
        elif (
            event == "c_call" and what.__name__ == "parse" and type(what.__self__).__module__.startswith("tree_sitter")
        ):
            self._parses += 1

    def _tell(self, *_: object) -> None:
        """Add a line to the report and begin anew."""
        line = {
            "chain": self._chain,
            "parses": self._parses_before_the_start,
            "turn": _names(self._entered),
            "call": _names(self._in_call),
        }
        with self._report.open("a") as report:
            report.write(json.dumps(line) + "\n")
        self._entered, self._in_call, self._calling = set(), set(), False
        self._parses, self._chain = 0, []


def chain() -> Iterator[FrameType]:
    """Yield the frames that wait for the caller, outermost first, across tasks, from the request's handling on.

    A task belongs to the one whose task group it runs in. The peer handles a request in a task of its own: the
    innermost one of which our outermost frame is the peer's.
    """
    found: list[FrameType] = []
    for stack in _stacks():
        found = [*stack, *found]
        ours = [frame for frame in stack if frame.f_code.co_filename.startswith(PACKAGE)]
        if ours and ours[0].f_code.co_filename.endswith(f"{os.sep}peer.py"):
            break
    yield from found


def _stacks() -> Iterator[list[FrameType]]:
    """Yield the frames of the current task, then those of the task that waits for it, and so on; outermost first."""
    import asyncio  # noqa: PLC0415 - the agent must be able to start without it

    from anyio._backends._asyncio import _task_states  # noqa: PLC0415 - as above

    task = asyncio.current_task()
    outermost = None if task is None else next(_awaited(task.get_coro()), None)
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        frames.insert(0, frame)
        frame = None if frame is outermost else frame.f_back  # below it are the event loop and who started that
    yield frames
    by_id = {id(each): each for each in asyncio.all_tasks()}
    while task is not None and (state := _task_states.get(task)) is not None:
        task = by_id.get(state.parent_id) if state.parent_id is not None else None
        if task is not None:
            yield list(_awaited(task.get_coro()))


def _awaited(waiting: Any) -> Iterator[FrameType]:
    """Yield the frames of a suspended coroutine and of all that it awaits, outermost first."""
    while waiting is not None:
        for prefix in ("cr", "ag", "gi"):
            if hasattr(waiting, f"{prefix}_frame"):
                if (frame := getattr(waiting, f"{prefix}_frame")) is not None:
                    yield frame
                waiting = getattr(waiting, f"{prefix}_await", None) or getattr(waiting, f"{prefix}_yieldfrom", None)
                break
        else:  # a step of an asynchronous generator, which does not say of which
            inner = [
                each for each in gc.get_referents(waiting) if hasattr(each, "ag_frame") or hasattr(each, "cr_frame")
            ]
            waiting = inner[0] if inner else None


def _names(codes: set[CodeType]) -> list[str]:
    return sorted({_name(code) for code in list(codes) if code.co_filename.startswith(PACKAGE)})


def _name(code: CodeType) -> str:
    return f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_qualname}"


def profile(rest: float = 0.3) -> list[dict[str, Any]]:
    """Play COMMANDS, a turn each, and return for each its `chain`, `parses`, and functions of the `turn` and `call`.

    rest   how long the agent must be idle before each turn, in seconds
    """
    with tempfile.TemporaryDirectory(prefix="acp-bench-") as folder:
        home, report = Path(folder), Path(folder) / "report"
        report.touch()
        script = home / "script.json"
        turns = [
            {"when": prompt, "steps": [{"tools": [{"name": "bash", "arguments": {"command": command}}]}, _DONE]}
            for prompt, command in COMMANDS.items()
        ]
        script.write_text(json.dumps({"turns": turns}))
        config = f'[llm]\nmodel = "scripted:{script}"\n'
        agent = Agent((sys.executable, "-m", "tests.bench.frames", "--agent"), home, config, {REPORT: str(report)})
        try:
            agent.initialize()
            session, _ = agent.new_session()
            agent.full_auto(session)
            agent.settle(rest)
            seen = [_asked(agent, report)]
            for prompt in COMMANDS:
                agent.prompt(session, prompt)
                agent.settle(rest)  # or what follows a turn would count for the next one
                seen.append(_asked(agent, report))
        finally:
            agent.end()
    return seen[1:]


def _asked(agent: Agent, report: Path) -> dict[str, Any]:
    """Return the report of what the agent did since it was last asked."""
    before = report.read_text().count("\n")
    os.kill(agent.pid, signal.SIGUSR1)
    while (text := report.read_text()).count("\n") == before:
        time.sleep(0.01)
    return json.loads(text.splitlines()[-1])


def rows(cold: dict[str, Any], warm: dict[str, Any], piped: dict[str, Any]) -> list[tuple[str, int, int | None]]:
    """Return what was measured: its name, the number, and the most that it shall be, if that is set.

    piped   the turn of a command that needs the parser
    """
    files = {name.partition(":")[0] for name in cold["chain"]}
    return [
        ("our frames from the prompt to the process", len(cold["chain"]), 22),
        ("  files they are in", len(files), 14),
        ("parses of a pipeline until it starts", piped["parses"], 1),
        ("functions that the first turn enters", len(cold["turn"]), None),
        ("  its tool call", len(cold["call"]), None),
        ("functions that the third turn enters", len(warm["turn"]), None),
        ("  its tool call", len(warm["call"]), 400),
    ]


def main() -> None:
    """Print the table, or be the profiled agent."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.frames", description=__doc__)
    parser.add_argument("--show", action="store_true", help="name the frames, and the functions of the third call")
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.agent:
        Probe(Path(os.environ.pop(REPORT))).install()
        sys.argv = ["acp-agent"]
        from acp_agent.__main__ import main as serve  # noqa: PLC0415 - behind the probe

        sys.exit(serve())
    cold, _, warm, piped = profile()
    for what, number, most in rows(cold, warm, piped):
        aim = "" if most is None else f"at most {most:<4} {'ok' if number <= most else 'over'}"
        print(f"{what:<42} {number:>5}   {aim}".rstrip())
    if args.show:
        print("\nframes:", *cold["chain"], "\nfunctions of the third call:", *warm["call"], sep="\n  ")


if __name__ == "__main__":
    main()
