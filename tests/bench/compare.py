"""`make bench-compare BASE=rev [ROWS="session turn"]`: what a change gains, and whether it is the change.

The agent of another revision and that of this working tree live one after the other, A B B A, in one run of this
bench. A round gives each row a pair of figures. The interval is a bootstrap over the rounds of the ratio of the
medians. It is wide enough to hold for all rows together: 19 of 20 comparisons of equal revisions name no row.
"""

import argparse
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.agent import TREE
from tests.bench.life import PARTS, TOOLS, lived

_CONFIDENCE, _RESAMPLES, _FEWEST = 0.95, 10_000, 8
_SPAWNS = 4
_BUILD = TREE / "build" / "compare"


@dataclass(frozen=True)
class Comparison:
    """One row: the figures of both revisions, round by round, and the interval of their ratio, ours to the base's."""

    name: str
    base: Sequence[float]
    ours: Sequence[float]
    low: float
    high: float

    @classmethod
    def of(cls, name: str, base: Sequence[float], ours: Sequence[float], confidence: float) -> "Comparison":
        """Compare figures of the same rounds."""
        return cls(name, base, ours, *interval(base, ours, confidence))

    @property
    def ratio(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.base)

    @property
    def verdict(self) -> str:
        if self.low <= 1 <= self.high:
            return "no difference"
        return "less" if self.high < 1 else "MORE"


def interval(base: Sequence[float], ours: Sequence[float], confidence: float) -> tuple[float, float]:
    """Return the interval of the ratio of the medians: rounds are drawn again and again, with both their figures."""
    draw = random.Random(20)
    rounds = range(len(base))
    ratios = list[float]()
    for _ in range(_RESAMPLES):
        drawn = draw.choices(rounds, k=len(base))
        ratios.append(statistics.median([ours[at] for at in drawn]) / statistics.median([base[at] for at in drawn]))
    ratios.sort()
    cut = int((1 - confidence) / 2 * _RESAMPLES)
    return ratios[cut], ratios[-1 - cut]


def compared(base: Sequence[dict[str, float]], ours: Sequence[dict[str, float]]) -> list[Comparison]:
    """Compare the lives of two revisions, in the order of the rounds. Rows that one of them lacks are left out."""
    names = [name for name in ours[0] if name in base[0]]
    each = 1 - (1 - _CONFIDENCE) / len(names)
    return [Comparison.of(name, [life[name] for life in base], [life[name] for life in ours], each) for name in names]


def interleaved(
    base: Path, wanted: Sequence[str], rounds: int
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return the figures of both trees, a dict a round. The first round of each warms the machine up."""
    python = {tree: _python(tree) for tree in (base, TREE)}
    lives: dict[Path, list[dict[str, float]]] = {base: [], TREE: []}
    for number in range(rounds + 1):
        for tree in (base, TREE) if number % 2 else (TREE, base):
            lives[tree].append(lived((python[tree], "-m", "acp_agent"), tree, wanted, spawns=_SPAWNS))
        print(f"\rround {number} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return lives[base][1:], lives[TREE][1:]


def _python(tree: Path) -> str:
    """Return the interpreter for a tree: ours if it wants the same libraries, else one that is set up for it."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", "acp_agent"], cwd=tree, check=True)
    if (tree / "requirements.lock").read_bytes() == (TREE / "requirements.lock").read_bytes():
        return sys.executable
    subprocess.run(["make", ".venv/.ready"], cwd=tree, check=True)
    return str(tree / ".venv" / "bin" / "python")


@contextmanager
def checked_out(revision: str) -> Generator[Path]:
    """Give a worktree of a revision, as long as the body runs. Raises CalledProcessError for an unknown one."""
    name = f"{revision}^{{commit}}"
    commit = subprocess.run(
        ["git", "rev-parse", "--verify", name], cwd=TREE, check=True, capture_output=True, text=True
    ).stdout.strip()
    tree = _BUILD / commit[:12]
    shutil.rmtree(tree, ignore_errors=True)  # of a run that was killed
    subprocess.run(["git", "worktree", "prune"], cwd=TREE, check=True)
    subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tree), commit], cwd=TREE, check=True)
    try:
        yield tree
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=TREE, check=True)


def table(rows: Sequence[Comparison]) -> str:
    """The rows as aligned text."""
    width = max(len(row.name) for row in rows)
    head = f"{'':{width}}  {'base':>9}  {'this':>9}  ratio  95 % interval"
    lines = [
        f"{row.name:{width}}  {statistics.median(row.base):9.2f}  {statistics.median(row.ours):9.2f}  {row.ratio:5.2f}"
        f"  {row.low:.2f} to {row.high:.2f}  {row.verdict}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def main() -> None:
    """Compare and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.compare", description=__doc__)
    parser.add_argument("base", help="the revision that this working tree is compared with")
    parser.add_argument("rows", nargs="*", help=f"parts to measure: {', '.join((*PARTS, *TOOLS))} (default: all)")
    parser.add_argument("--rounds", type=int, default=20, help="lives of each revision (default 20)")
    args = parser.parse_args()
    if unknown := [name for name in args.rows if name not in (*PARTS, *TOOLS)]:
        parser.error(f"no such rows: {', '.join(unknown)}")
    if args.rounds < _FEWEST:
        parser.error(f"fewer than {_FEWEST} rounds say nothing about chance")
    with checked_out(args.base) as base:
        print(table(compared(*interleaved(base, args.rows, args.rounds))))
    print("milliseconds and megabytes, medians; the intervals hold for all rows together")


if __name__ == "__main__":
    main()
