"""Large outputs end to end: from a command's first byte to the next request to the model."""

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.bench.agent import Agent, running
from tests.bench.file_tools import Sample
from tests.bench.model import serving

KEY = {"BENCH_KEY": "obviously-fake"}
_EDITOR_AIM, _MODEL_AIM = 40 * 1024, 6 * 1024


@dataclass
class Figures:
    """What one output cost: ms of the agent's time, bytes that reached model and editor, MB its memory grew."""

    spent: list[float] = field(default_factory=list)
    model: list[float] = field(default_factory=list)
    editor: list[float] = field(default_factory=list)
    grown: list[float] = field(default_factory=list)


def measured(scale: float = 1.0, rounds: int = 3) -> list[Sample]:
    """Rows for 10 MB, 100,000 lines and 1 GB of output; `scale` makes them smaller."""
    ten = _figures("cat log", scale, rounds)
    lines = _figures(
        f"seq -f 'line %g of some tool that talks too much, as they do' {int(100_000 * scale)}", scale, rounds
    )
    giga = _figures(f"yes 'a line of a command that never stops talking' | head -c {int(1e9 * scale)}", scale, 1)
    return [
        ("10 MB output: agent's time", "ms", 400, ten.spent, []),
        ("10 MB output: to the model", "B", _MODEL_AIM, ten.model, []),
        ("10 MB output: to the editor", "B", _EDITOR_AIM, ten.editor, []),
        ("10 MB output: memory grown", "MB", None, ten.grown, []),
        ("100,000 lines: agent's time", "ms", 3000, lines.spent, []),
        ("100,000 lines: memory grown", "MB", 64, lines.grown, []),
        ("1 GB output: agent's time", "ms", None, giga.spent, []),
        ("1 GB output: memory grown", "MB", 64, giga.grown, []),
    ]


def _figures(command: str, scale: float, rounds: int) -> Figures:
    """The command run `rounds` times, each in an agent of its own; memory is the peak over what was before."""
    figures = Figures()
    for _ in range(rounds):
        # A first, small command loads what any command needs.
        calls = [{"command": "seq 30"}, {"command": command, "timeout": 600}]
        with serving("bash", calls) as model, running(config=model.config, environment=KEY) as agent:
            _write_log(agent.workspace / "log", int(100_000 * scale))
            agent.initialize()
            session, _ = agent.new_session()
            agent.full_auto(session)
            watch = _Watch(agent)
            if (stop := agent.prompt(session, "go", watch.see)) != "end_turn" or watch.finals != ["completed"] * 2:
                raise RuntimeError(f"{command}: the turn ended {stop} with {watch.finals}")
            figures.spent.append(model.overheads[1] * 1000)
            figures.model.append(float(model.received[2] - model.received[1]))
            figures.editor.append(float(watch.bytes))
            figures.grown.append(watch.grown)
    return figures


class _Watch:
    """Counts what the editor is sent for the second call, and the agent's memory while it runs."""

    def __init__(self, agent: Agent) -> None:
        self._process = psutil.Process(agent.pid)
        self._before = 0
        self._peak = 0
        self._over = threading.Event()
        self.finals: list[str] = []
        self.bytes = 0

    @property
    def grown(self) -> float:
        return max(0, self._peak - self._before) / 1e6

    def see(self, message: dict) -> None:
        update = message.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "tool_call" and len(self.finals) == 1:
            self._before = self._peak = self._process.memory_info().rss
            threading.Thread(target=self._sample, daemon=True).start()
        if len(self.finals) == 1 and update.get("sessionUpdate", "").startswith("tool_call"):
            self.bytes += len(json.dumps(message).encode())
        if update.get("status") in {"completed", "failed"}:
            self.finals.append(update["status"])
            if len(self.finals) == 2:
                self._over.set()

    def _sample(self) -> None:
        while not self._over.wait(0.005):
            self._peak = max(self._peak, self._process.memory_info().rss)


def _write_log(log: Path, lines: int) -> None:
    """A build's log of a hundred bytes a line: different lines, a few of them telling."""
    with log.open("w") as file:
        for number in range(lines):
            word = "warning: unused" if number % 997 == 0 else "compiled"
            file.write(
                f"[{number:>7}] {word} src/module{number % 313}/part{number}.c in {number % 89} ms".ljust(99) + "\n"
            )
