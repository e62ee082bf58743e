"""`make profile`: where each millisecond and megabyte goes, by package, on one page: build/profile.md.

Three lives of an agent: one under a sampler of processor time, one with `-X importtime`, one whose memory is counted.
CONTRIBUTING.md says how to read the page. Linux only, for the clocks of threads.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.agent import TREE, Agent
from tests.bench.life import PARTS, TOOLS, Life, lived

PAGE = TREE / "build" / "profile.md"
_MB, _MS = 1e6, 1e6  # bytes, nanoseconds
_ROWS = 12


class Probe:
    """Asks an agent under `tests.bench.sampler` for a line of its report after each part. `lines` has them by part."""

    def __init__(self, kind: str, report: Path) -> None:
        self.command = (sys.executable, "-m", "tests.bench.sampler", kind, str(report))
        self.lines: dict[str, dict[str, Counter[str]]] = {}
        self.mapped: Counter[str] = Counter()
        self._report = report
        report.touch()

    @contextmanager
    def watch(self, life: Life, name: str) -> Generator[None]:
        """Take the line of a part. What came before it belongs to no part."""
        if self.lines:
            self._asked(life.agent)
        else:
            self.lines[""] = {}  # the first part begins with the process, which cannot be asked yet
        yield
        self.lines[name] = self._asked(life.agent)
        self.mapped = mapped(life.agent.pid)

    def _asked(self, agent: Agent) -> dict[str, Counter[str]]:
        before = self._report.read_text().count("\n")
        os.kill(agent.pid, signal.SIGUSR1)
        while (text := self._report.read_text()).count("\n") == before:
            time.sleep(0.001)
        return {kind: Counter(counts) for kind, counts in json.loads(text.splitlines()[-1]).items()}


def mapped(pid: int) -> Counter[str]:
    """Return the resident bytes of a process: by library, the heap, and memory of no file."""
    found, name = Counter[str](), ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first, *rest = line.split(None, 5)
        if not first.endswith(":"):
            file = rest[-1] if len(rest) == 5 else ""
            name = Path(file).name.split(".cpython")[0] if file.startswith("/") else "heap and memory of no file"
        elif first == "Rss:":
            found[name] += int(rest[0]) * 1024
    return found


def imports(folder: Path) -> dict[str, list[tuple[str, int]]]:
    """Return the modules that are imported in each part of the start, with the microseconds of each itself."""
    report = folder / "importtime"
    command = ("sh", "-c", f'exec "$0" -X importtime -m acp_agent 2>"{report}"', sys.executable)
    ends: dict[str, int] = {}

    @contextmanager
    def watch(_life: Life, name: str) -> Generator[None]:
        yield
        ends[name] = report.stat().st_size

    lived(command, wanted=["start"], watch=watch)
    text, begun = report.read_bytes(), 0
    parts: dict[str, list[tuple[str, int]]] = {}
    for name, end in ends.items():
        parts[name] = [*_imported(text[begun:end].decode(errors="replace").splitlines())]
        begun = end
    return parts


def _imported(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        fields = line.removeprefix("import time:").split("|")
        if len(fields) == 3 and fields[0].strip().isdigit():
            yield fields[2].strip(), int(fields[0])


def _imported_package(module: str) -> str:
    first, _, rest = module.partition(".")
    if first == "acp_agent":
        return f"acp_agent.{rest.partition('.')[0]}"
    return f"Python: {first}" if first in sys.stdlib_module_names else first


# ----------------------------------------------------------------------------------------- the page


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table, numbers to the right."""
    yield f"| {' | '.join(head)} |"
    yield "|---" + "|---:" * (len(head) - 1) + "|"
    for row in rows:
        yield f"| {' | '.join(f'{cell:.1f}' if isinstance(cell, float) else str(cell) for cell in row)} |"
    yield ""


def _summary(figures: dict[str, float]) -> Iterator[str]:
    yield from (
        "## Figures",
        "",
        "Milliseconds and megabytes (10^6 bytes). The sampler makes them a little larger.",
        "",
    )
    names = [name for name in figures if not name.endswith(", CPU")]
    rows = [(name, figures[name], figures.get(f"{name}, CPU", "")) for name in names]
    yield from table(("", "time or memory", "CPU time"), rows)


def _imports(parts: dict[str, list[tuple[str, int]]]) -> Iterator[str]:
    yield from ("## Imports", "", "Milliseconds that modules take themselves, without those that they import.", "")
    for part, modules in parts.items():
        by_package, counted = Counter[str](), Counter[str]()
        for module, spent in modules:
            by_package[_imported_package(module)] += spent
            counted[_imported_package(module)] += 1
        yield from (f"### {part}: {len(modules)} modules, {sum(by_package.values()) / 1000:.1f} ms", "")
        rows = [(name, spent / 1000, counted[name]) for name, spent in by_package.most_common(_ROWS * 2)]
        yield from table(("package", "ms", "modules"), rows)
        slowest = sorted(modules, key=lambda each: -each[1])[:_ROWS]
        yield from table(("module", "ms"), [(name, spent / 1000) for name, spent in slowest])


def _times(lines: dict[str, dict[str, Counter[str]]]) -> Iterator[str]:
    yield from ("## Processor time of each part", "")
    for part, line in lines.items():
        if not part:
            continue
        own, caused = line["own"], line["caused"]
        yield from (f"### {part}: {sum(own.values()) / _MS:.1f} ms", "")
        names = [name for name, _ in (own | caused).most_common(_ROWS)]
        yield from table(
            ("package", "itself", "with the libraries that it calls"),
            [(name, own[name] / _MS, caused[name] / _MS) for name in names],
        )
        functions = line["functions"].most_common(_ROWS)
        yield from table(("function", "itself"), [(name.replace("|", "\\|"), spent / _MS) for name, spent in functions])


def _memory(lines: dict[str, dict[str, Counter[str]]], libraries: Counter[str], resident: str) -> Iterator[str]:
    yield from ("## Memory", "", f"{resident} The sums by package are what Python allocates.", "")
    for part, line in lines.items():
        if not part:
            continue
        whole = line["code"] + line["data"]
        yield from (f"### {part}: {sum(whole.values()) / _MB:.1f} MB", "")
        rows = [
            (name, size / _MB, line["code"][name] / _MB, line["data"][name] / _MB)
            for name, size in whole.most_common(_ROWS * 2)
        ]
        yield from table(("package", "MB", "code", "data"), rows)
    yield from ("### Resident memory by mapped file, at the end", "")
    yield from table(("file", "MB"), [(name, size / _MB) for name, size in libraries.most_common(_ROWS * 2)])


def page(wanted: Sequence[str]) -> str:
    """Live three times, and return the page."""
    with tempfile.TemporaryDirectory(prefix="acp-bench-") as name:
        folder = Path(name)
        times, memory = Probe("time", folder / "time"), Probe("memory", folder / "memory")
        figures = lived(times.command, wanted=wanted, watch=times.watch)
        lived(memory.command, wanted=["start"], watch=memory.watch)
        imported = imports(folder)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=TREE, check=True, capture_output=True, text=True
    )
    made = f"{commit.stdout.strip()}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    resident = f"The process has {figures['memory after the first turn']:.1f} MB after the first turn."
    lines = (
        *("# Where the time and the memory of acp-agent go", "", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {made}", ""),
        *_summary(figures),
        *_imports(imported),
        *_times(times.lines),
        *_memory(memory.lines, times.mapped, resident),
    )
    return "\n".join(lines)


def main() -> None:
    """Write the page and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"{', '.join((*PARTS, *TOOLS))} (default: all)")
    args = parser.parse_args()
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(args.parts))
    print(PAGE.read_text().partition("## Imports")[0], PAGE.relative_to(TREE))


if __name__ == "__main__":
    main()
