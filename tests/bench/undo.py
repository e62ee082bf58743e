"""What noting changes for `/undo` costs a call, in a repository of 50,000 files."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from acp_agent.core.types import Access, PathSubject
from acp_agent.workspace.changed_files import FileWatch, SessionSnapshots
from acp_agent.workspace.git.objects import SnapshotLimits
from acp_agent.workspace.roots import Roots
from tests.bench.file_tools import Sample, grow


def measured(files: int = 50_000, rounds: int = 7) -> list[Sample]:
    """Milliseconds before and after a call together. The tree is warm in the cache."""
    with tempfile.TemporaryDirectory(prefix="acp-bench-") as folder:
        work, store = Path(folder) / "tree", str(Path(folder) / "data" / "undo" / "one")
        grow(work, files)
        time.sleep(0.05)  # a file that was written a moment ago is read again
        changed = next(work.rglob("*.py"))
        name = str(changed.relative_to(work))
        rows: dict[str, list[float]] = {}
        for _ in range(3):
            with Roots(str(work)) as roots:
                snapshots = SessionSnapshots(store, "session")
                watch = FileWatch(roots, snapshots, SnapshotLimits())
                first = "undo: first look of a session" if rows else "undo: the first copy of a folder"
                rows.setdefault(first, []).append(_spent(watch.prepare))
                for number in range(rounds):
                    snapshots.turn_began()
                    rows.setdefault("undo: first change of a turn", []).append(_spent(watch.prepare))
                    text = f"{number}\n"
                    rows.setdefault("undo: later command", []).append(_call(watch, changed, text))
                    paths = [PathSubject(name, Access.WRITE)]
                    rows.setdefault("undo: later edit", []).append(_call(watch, changed, text * 2, paths))
                snapshots.close()
    aims = {"undo: first change of a turn": 300, "undo: later command": 60, "undo: later edit": 60}
    return [(what, "ms", aims.get(what), samples, []) for what, samples in rows.items()]


def _call(watch: FileWatch, file: Path, text: str, paths: list[PathSubject] | None = None) -> float:
    start = time.perf_counter()
    before = watch.before(paths)
    spent = time.perf_counter() - start
    file.write_text(text)
    return spent * 1000 + _spent(lambda: watch.since(before))


def _spent(action: Callable[[], object]) -> float:
    """Return milliseconds."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000
