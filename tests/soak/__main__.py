"""`python -m tests.soak`: everything that may happen to an agent, often and at random, counted in a table.

Each kind is cut into shares, which some processes work off side by side. Everything stays on this machine (127.0.0.1),
and the soak ends by itself after `--minutes`. A case has a seed, which is printed when it fails:

    python -m tests.soak kills --seed 1234 --count 1
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from tests.fakes.forked_agent import CAN_FORK, start_fork_server
from tests.soak import bombs, cancels, clients, clocks, disks, endings, lines, turns
from tests.soak.case import FAULTS, Case, adopt_orphans, run_case


class Kind(NamedTuple):
    """A kind of case. A share has `share` cases. One that is `alone` runs after all others, as it slows the machine."""

    run: Callable[[Case], Awaitable[None]]
    count: int
    share: int
    alone: bool = False


KINDS = {
    "kills": Kind(endings.kill, 1000, 25),
    "disconnects": Kind(endings.disconnect, 200, 20),
    "cancels": Kind(cancels.cancel, 50, 5),
    "lines": Kind(lines.lines, 20, 1),
    "turns": Kind(turns.turns, 10, 1),
    "clients": Kind(clients.lie, 96, 12),
    "disks": Kind(disks.trouble, 40, 5),
    "clocks": Kind(clocks.jump, 20, 5),
    "bombs": Kind(bombs.burst, 9, 9, alone=True),
}


@dataclass
class Share:
    """Cases of one kind that a process works off, with successive seeds."""

    kind: str
    seed: int
    count: int
    cases: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    failure: str = ""

    def work_off(self, deadline: float) -> "Share":
        """Run it in a process of its own, at most until the deadline."""
        begun = time.monotonic()
        command = [sys.executable, "-m", "tests.soak", self.kind, "--seed", str(self.seed), "--count", str(self.count)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen([*command, "--here"], **pipes, start_new_session=True) as process:
            try:
                out, _ = process.communicate(timeout=max(0.1, deadline - begun))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, _ = process.communicate()
                self.failure = "not done in time"
        self.cases = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        self.seconds = time.monotonic() - begun
        if len(self.cases) < self.count:
            self.failure = self.failure or f"ended after {len(self.cases)} cases with code {process.returncode}"
        for each in self.cases:
            for note in each["notes"]:
                where = f"{self.kind}, seed {each['seed']} ({', '.join(each['during'])})"
                print(f"\n{where}: {note}", file=sys.stderr, flush=True)
        print(f"{self.kind} {self.seed}: {len(self.cases)} cases, {self.seconds:.0f} s {self.failure}", file=sys.stderr)
        return self


def work_here(kind: str, seed: int, count: int) -> None:
    """Run cases in this process; a line for each on stdout."""
    adopt_orphans()
    if CAN_FORK:
        start_fork_server()  # before the first case counts the processes
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="acp-soak-", dir=memory, ignore_cleanup_errors=True) as base:
        for number in range(seed, seed + count):
            (folder := Path(base) / str(number)).mkdir()
            case = Case(number, folder)
            anyio.run(run_case, case, KINDS[kind].run)
            print(case.line(), flush=True)
            shutil.rmtree(folder, ignore_errors=True)


def shares(kinds: list[str], seed: int, count: int | None) -> list[Share]:
    """All there is to do, the kinds mixed so that all of them are under way at any time."""
    cut: list[tuple[float, Share]] = []
    for kind in kinds:
        whole = KINDS[kind].count if count is None else count
        size = KINDS[kind].share
        starts = range(0, whole, size)
        cut += [((start + 1) / whole, Share(kind, seed + start, min(size, whole - start))) for start in starts]
    return [share for _, share in sorted(cut, key=lambda each: each[0])]


def table(done: list[Share]) -> str:
    """A line for each kind."""
    head = ["kind", "done", "skipped", *FAULTS, "gone s", "minutes"]
    rows = [head]
    for kind in dict.fromkeys(share.kind for share in done):
        cases = [case for share in done if share.kind == kind for case in share.cases]
        faults: Counter[str] = Counter()
        for case in cases:
            faults.update(case["faults"])
        times = sum(case["times"] for case in cases if not case["skipped"])
        skipped = sum(bool(case["skipped"]) for case in cases)
        minutes = sum(share.seconds for share in done if share.kind == kind) / 60
        worst = max((case["gone"] for case in cases), default=0.0)
        numbers = [f"{faults[name]}" for name in FAULTS]
        rows.append([kind, f"{times:,}", f"{skipped}", *numbers, f"{worst:.2f}", f"{minutes:.1f}"])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def moments(done: list[Share]) -> str:
    """What the agents were doing."""
    lines: list[str] = []
    for kind in dict.fromkeys(share.kind for share in done):
        cases = [case for share in done if share.kind == kind for case in share.cases]
        during = Counter(moment for case in cases for moment in case["during"])
        reasons = Counter(case["skipped"] for case in cases if case["skipped"])
        if during:
            lines.append(f"{kind}: " + ", ".join(f"{what} {number}" for what, number in during.most_common()))
        lines += [f"{kind}: skipped {number}: {reason}" for reason, number in reasons.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=list(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=None, help="the first case's; by default the time")
    parser.add_argument("--count", type=int, default=None, help="cases of each kind")
    parser.add_argument("--minutes", type=float, default=29, help="after which the soak ends in any case")
    parser.add_argument("--jobs", type=int, default=3 * (os.cpu_count() or 1), help="processes side by side")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT):  # under nohup, agents would ignore it until they listen
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    seed = int(time.time()) % 1_000_000 * 1000 if options.seed is None else options.seed
    if options.here:
        work_here(options.kinds[0], seed, options.count)
        return 0
    begun = time.monotonic()
    print(f"soak of {', '.join(options.kinds)}, seed {seed}, {options.jobs} jobs", file=sys.stderr)
    planned = shares(options.kinds, seed, options.count)
    deadline = begun + options.minutes * 60
    done: list[Share] = []
    for alone, jobs in ((False, options.jobs), (True, 1)):
        with ThreadPoolExecutor(jobs) as pool:
            some = [share for share in planned if KINDS[share.kind].alone is alone]
            done += pool.map(lambda share: share.work_off(deadline), some)
    print(f"\n{table(done)}\n\n{moments(done)}\n\n{(time.monotonic() - begun) / 60:.1f} minutes, seed {seed}")
    failed = [share for share in done if share.failure]
    for share in failed:
        print(f"{share.kind}, seed {share.seed}: {share.failure}")
    return 1 if failed or any(case["faults"] for share in done for case in share.cases) else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
