"""The file tools over a large tree and a large file, each beside the program a person would use."""

import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import which

import anyio

from acp_agent.core.backends import GrepQuery
from acp_agent.core.secrets import Secrecy
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.ripgrep import find_ripgrep
from acp_agent.workspace.roots import Roots
from tests.bench.agent import running
from tests.bench.life import KEY
from tests.bench.model import serving

NEEDLE = "rare_needle"
COMMON = "def main"
LAST = 20  # lines of the large file
_EVERY = 1000  # files, one of which has the needle
_A_FOLDER = 50  # files

Sample = tuple[str, str, float | None, list[float], list[float]]
"""What was measured, its unit, the median we aim for, our samples and the other program's."""


def measured(files: int = 50_000, megabytes: int = 100, rounds: int = 3) -> list[Sample]:
    """Milliseconds of each search and read. The tree and the file live in a temporary folder, warm in the cache.

    What needs ripgrep or tail has no floor where there is none.
    """
    with tempfile.TemporaryDirectory(prefix="acp-bench-") as folder:
        tree, log = Path(folder) / "tree", Path(folder) / "log"
        grow(tree, files)
        write_log(log, megabytes)
        return anyio.run(_measured, tree, log, files, rounds)


def crowded(files: int = 200_000) -> list[Sample]:
    """MB of an agent that has searched so many files, or run a command there, beside one in a folder of 50 files."""
    with tempfile.TemporaryDirectory(prefix="acp-bench-") as folder:
        many, few = Path(folder) / "many", Path(folder) / "few"
        grow(many, files)
        grow(few, _A_FOLDER)
        calls = {"grep": {"pattern": NEEDLE}, "bash": {"command": "ls"}}
        rows = {tool: [_memory(tool, call, tree) for tree in (many, few)] for tool, call in calls.items()}
        return [
            (f"memory after {tool}, {files:,} files", "MB", None, [large], [small])
            for tool, (large, small) in rows.items()
        ]


def _memory(tool: str, call: dict[str, str], tree: Path) -> float:
    with serving(tool, [call]) as model, running(config=model.config, environment=KEY) as agent:
        agent.initialize()
        session = agent.request("session/new", {"cwd": str(tree), "mcpServers": []})["sessionId"]
        agent.full_auto(session)
        agent.prompt(session, "go")
        agent.settle()
        return agent.memory()


def grow(tree: Path, files: int) -> None:
    """Source-like files of one to three kilobytes, 50 a folder; one in a thousand has the needle."""
    line = "    value = compute(first, second)  # line {} of many that say much the same\n"
    bodies = [f"{COMMON}():\n" + "".join(map(line.format, range(length))) for length in range(12, 40, 4)]
    suffixes = ("py", "ts", "md")
    for number in range(files):
        folder = tree / f"package{number // (_A_FOLDER * 20)}" / f"module{number // _A_FOLDER}"
        if number % _A_FOLDER == 0:
            folder.mkdir(parents=True)
        text = bodies[number % len(bodies)] + (f"{NEEDLE}\n" if number % _EVERY == 0 else "")
        (folder / f"file{number}.{suffixes[number % len(suffixes)]}").write_text(text)


def write_log(log: Path, megabytes: int) -> None:
    """So many times 10^6 bytes, in numbered lines of a hundred."""
    with log.open("w") as file:
        for start in range(0, megabytes * 10_000, 10_000):
            file.writelines(f"{number:<99}\n" for number in range(start, start + 10_000))


@dataclass(frozen=True)
class _Case:
    """Something our tools do, a command that does it too, if there is one, and how much longer ours may take."""

    what: str
    times: float | None
    ours: Callable[[], Awaitable[object]]
    floor: list[str]


async def _measured(tree: Path, log: Path, files: int, rounds: int) -> list[Sample]:
    size, megabytes = f"{files:,} files", log.stat().st_size // 10**6
    rg, tail = find_ripgrep("rg"), which("tail")
    bare = [rg, "--no-config", "--color=never"] if rg else []
    with Roots(str(tree), (str(log.parent),)) as roots:
        ours = LocalFileSystem(roots)
        rare, common = (GrepQuery(wanted, ".", secrets=Secrecy.OPEN) for wanted in (NEEDLE, COMMON))  # as the tool asks
        cases = [
            _Case(f"grep {size}, rare", 2 if rg else None, partial(ours.grep, rare), bare and [*bare, NEEDLE, "."]),
            _Case("  in every file", 2 if rg else None, partial(ours.grep, common), bare and [*bare, COMMON, "."]),
            _Case(
                f"find_path, {size}", None, partial(ours.find, ".", "**/file7.*", 200), bare and [*bare, "--files", "."]
            ),
            _Case(
                f"read {LAST} last lines of {megabytes} MB",
                None,
                partial(ours.read_lines, str(log), -LAST, LAST),
                [tail, f"-n{LAST}", str(log)] if tail else [],
            ),
        ]
        return [await _sample(case, tree, rounds) for case in cases]


async def _sample(case: _Case, tree: Path, rounds: int) -> Sample:
    """Both in turn, so that they see the same machine; the first round warms up."""
    ours, floor = list[float](), list[float]()
    for _ in range(rounds + 1):
        started = time.monotonic()
        await case.ours()
        ours.append((time.monotonic() - started) * 1000)
        if case.floor:
            floor.append(_run(case.floor, tree))
    aim = case.times and round(case.times * statistics.median(floor[1:]))
    return case.what, "ms", aim, ours[1:], floor[1:]


def _run(command: list[str], cwd: Path) -> float:
    """Milliseconds of a command whose output is read as it comes."""
    started = time.monotonic()
    subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return (time.monotonic() - started) * 1000
