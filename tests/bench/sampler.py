"""What runs inside the agent that `profile` looks at: a thread that samples the others, or a count of their memory.

`python -m tests.bench.sampler time|memory REPORT` is the agent under one of the two. SIGUSR1 asks it for a line of the
report: what it has seen since the line before.
"""

import importlib.machinery
import json
import os
import signal
import sys
import threading
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

ROOT = str(Path(__file__).parents[2]) + os.sep
_EVERY = 0.001  # seconds
_IMPORTS = "<frozen importlib"


def package(file: str, *, deep: bool = False) -> str:
    """Return the package of a source file: ours with its part, or its module too; a library; or Python's own module."""
    if file.startswith(_IMPORTS):
        return "Python: import of modules"
    if file.startswith("<frozen "):
        return f"Python: {file[8:-1]}"
    if file.startswith(f"{ROOT}acp_agent{os.sep}"):
        parts = file.removeprefix(ROOT).removesuffix(".py").split(os.sep)
        return ".".join(parts if deep else parts[:2])
    if file.startswith(f"{ROOT}tests{os.sep}"):
        return "(the profiler)"
    if "site-packages" in file:
        return file.partition(f"site-packages{os.sep}")[2].split(os.sep)[0].removesuffix(".py")
    if file.startswith(os.path.dirname(os.__file__)):
        return "Python: " + os.path.relpath(file, os.path.dirname(os.__file__)).split(os.sep)[0].removesuffix(".py")
    return "Python"


class Sampler(threading.Thread):
    """A thread that gives the processor time of each other thread, every millisecond, to what that thread is at.

    The sums are exact: a thread's own clock is read. What a time is given to is what stood on the stack at its end.
    """

    def __init__(self, report: Path) -> None:
        super().__init__(daemon=True)
        self._report = report
        self._asked = threading.Event()
        self._used: dict[int, int] = {}
        self._own, self._caused, self._functions = Counter[str](), Counter[str](), Counter[str]()

    def run(self) -> None:
        sys.setswitchinterval(0.0002)  # or a busy thread would be sampled every 5 ms
        begun = time.clock_gettime_ns(_clock(threading.main_thread().native_id or 0))
        self._used[threading.main_thread().native_id or 0] = begun
        self._own["(start of the interpreter)"] += begun
        while True:
            asked = self._asked.wait(_EVERY)
            self._sample()
            if asked:
                self._asked.clear()
                self._write()

    def tell(self, *_: object) -> None:
        """Have the line written."""
        self._asked.set()

    def _sample(self) -> None:
        frames = sys._current_frames()
        for thread in threading.enumerate():
            number, frame = thread.native_id, frames.get(thread.ident or 0)
            if thread is self or number is None or frame is None:
                continue
            try:
                now = time.clock_gettime_ns(_clock(number))
            except OSError:
                continue  # it has ended
            spent = now - self._used.get(number, 0)
            self._used[number] = now
            if spent > 10_000:  # less is what waiting takes
                self._give(spent, frame)

    def _give(self, spent: int, frame: FrameType) -> None:
        own = package(frame.f_code.co_filename)
        self._own[own] += spent
        self._functions[f"{package(frame.f_code.co_filename, deep=True)}: {frame.f_code.co_qualname}"] += spent
        cause: FrameType | None = frame
        while cause is not None and not cause.f_code.co_filename.startswith(f"{ROOT}acp_agent{os.sep}"):
            cause = cause.f_back
        self._caused[own if cause is None else package(cause.f_code.co_filename)] += spent

    def _write(self) -> None:
        line = {"own": self._own, "caused": self._caused, "functions": self._functions}
        with self._report.open("a") as report:
            report.write(json.dumps(line) + "\n")
        self._own, self._caused, self._functions = Counter(), Counter(), Counter()


def _clock(thread: int) -> int:
    """Return the id of a thread's processor clock, as the Linux kernel numbers them."""
    return ~thread << 3 | 6


class MemoryCount:
    """Counts the bytes that Python has allocated, by package: the code of modules, and all else."""

    def __init__(self, report: Path) -> None:
        self._report = report
        self._code = Counter[str]()

    def start(self) -> None:
        """Count from now on."""
        get_code = importlib.machinery.SourceFileLoader.get_code

        def counted(loader: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
            before = tracemalloc.get_traced_memory()[0]
            code = get_code(loader, name)
            self._code[package(loader.path)] += tracemalloc.get_traced_memory()[0] - before
            return code

        tracemalloc.start()
        importlib.machinery.SourceFileLoader.get_code = counted

    def tell(self, *_: object) -> None:
        """Write the line: all that is allocated now."""
        data = Counter[str]()
        for each in tracemalloc.take_snapshot().statistics("filename"):
            if not (file := each.traceback[0].filename).startswith((_IMPORTS, tracemalloc.__file__)):
                data[package(file)] += each.size
        with self._report.open("a") as report:
            report.write(json.dumps({"code": self._code, "data": data}) + "\n")


def main(kind: str, report: str) -> None:
    """Be the agent under a sampler."""
    watcher = Sampler(Path(report)) if kind == "time" else MemoryCount(Path(report))
    signal.signal(signal.SIGUSR1, watcher.tell)
    watcher.start()
    sys.argv = ["acp-agent"]
    from acp_agent.__main__ import main as serve  # noqa: PLC0415 - what it imports is sampled

    sys.exit(serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
