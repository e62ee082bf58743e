"""`python -m tests.bench [--rounds N] [--json FILE]`: the speed of starts, answers and tool calls, beside a floor."""

import argparse
import json
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench import (
    contained,
    file_tools,
    first_request,
    long_session,
    models,
    output,
    pace,
    redaction,
    sessions,
    undo,
)
from tests.bench.agent import FLOOR, OURS, running
from tests.bench.life import CALLS, KEY, cancelled
from tests.bench.model import serving
from tests.bench.modules import HEAVY, heavy_at_initialize


@dataclass
class Row:
    """One thing measured: samples, the floor's samples, and the median we aim for, if any."""

    what: str
    unit: str
    aim: float | None
    samples: list[float]
    floor: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> str:
        if len(self.samples) < 4:
            return ""
        low, _, high = statistics.quantiles(self.samples, n=4)
        return f"{low:.1f}-{high:.1f}"

    @property
    def cells(self) -> tuple[str, ...]:
        floor = statistics.median(self.floor) if self.floor else None
        return (
            self.what,
            f"{self.median:.1f} {self.unit}",
            self.spread,
            "" if floor is None else f"{floor:.1f}",
            "" if floor is None else f"x{self.median / floor:.1f}",
            "" if self.aim is None else f"< {self.aim:g}",
            "" if self.aim is None else "ok" if self.median < self.aim else "over",
            str(len(self.samples)),
        )


def starts(rounds: int) -> list[Row]:
    """Start-up and memory, ours and the floor's in turn so that both see the same machine."""
    samples = {name: ([], [], [], []) for name in ("ours", "floor")}
    for _ in range(rounds):
        for name, command in (("floor", FLOOR), ("ours", OURS)):
            initialized, opened, idle, used = samples[name]
            with running(command) as agent:
                initialized.append(agent.initialize() * 1000)
                _session, seconds = agent.new_session()
                opened.append(seconds * 1000)
                agent.settle()
                used.append(agent.memory())
            with running(command) as agent:
                agent.initialize()
                agent.settle()
                idle.append(agent.memory())
    aims = (("spawn to initialize", "ms", 30), ("spawn to session/new", "ms", 450))
    memory = (("memory after start", "MB", 55), ("memory after a session", "MB", None))
    rows = zip((*aims, *memory), samples["ours"], samples["floor"], strict=True)
    return [Row(what, unit, aim, ours, floor) for (what, unit, aim), ours, floor in rows]


def tool_calls(what: str, aim: float, tool: str, arguments: list[dict], rounds: int) -> Row:
    """Milliseconds a tool call costs over the model's own time. The first of each turn warms up."""
    samples: list[float] = []
    for _ in range(rounds):
        with serving(tool, arguments) as model, running(config=model.config, environment=KEY) as agent:
            for number in range(CALLS):
                (agent.workspace / f"{number}.txt").write_text("one\ntwo\nthree\n")
            agent.initialize()
            session, _ = agent.new_session()
            agent.full_auto(session)
            finals: list[str] = []

            def watch(message: dict, finals: list[str] = finals) -> None:
                status = message.get("params", {}).get("update", {}).get("status")
                if status in {"completed", "failed"}:
                    finals.append(status)

            stop = agent.prompt(session, "go", watch)
            if stop != "end_turn" or finals != ["completed"] * len(arguments):
                raise RuntimeError(f"{what}: the turn ended {stop} with {finals}")
            samples += [seconds * 1000 for seconds in model.overheads[1:]]
    return Row(what, "ms", aim, samples)


def cancel_of_model(rounds: int) -> Row:
    """Milliseconds from session/cancel to the prompt's answer while the model is silent."""
    samples: list[float] = []
    with serving("none", None) as model, running(config=model.config, environment=KEY) as agent:
        agent.initialize()
        session, _ = agent.new_session()
        for _ in range(rounds):
            model.stalling.clear()
            samples.append(cancelled(agent, session, model.stalling))
    return Row("cancel a silent model", "ms", 20, samples)


def cancel_of_command(rounds: int) -> Row:
    """The same while `sleep 30` runs in a local shell."""
    samples: list[float] = []
    with serving("bash", [{"command": "sleep 30"}]) as model, running(config=model.config, environment=KEY) as agent:
        agent.initialize()
        session, _ = agent.new_session()
        agent.full_auto(session)
        for _ in range(rounds):
            samples.append(cancelled(agent, session, None))
    return Row("cancel a local command", "ms", 20, samples)


def endings(rounds: int) -> Row:
    """Milliseconds from SIGTERM to the end, while it still loads what the first prompt needs."""
    samples: list[float] = []
    for _ in range(rounds):
        with running() as agent:
            agent.initialize()
            agent.new_session()
            samples.append(agent.terminate() * 1000)
    return Row("SIGTERM to gone", "ms", 2000, samples)


def table(rows: list[Row]) -> str:
    """The rows as aligned text."""
    lines = [("", "median", "quartiles", "floor", "ratio", "aim", "", "n"), *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def main() -> int:
    """Measure everything and print it; the exit code tells only whether it could be measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="starts to time (default 15)")
    parser.add_argument("--json", type=Path, help="write all samples there too")
    args = parser.parse_args()
    heavy = heavy_at_initialize()
    reads = [{"path": f"{number}.txt"} for number in range(CALLS)]
    # Different commands, or the loop would take them for one that goes in circles.
    trues = [{"command": f"true {number}"} for number in range(CALLS)]
    rows = [
        *starts(args.rounds),
        tool_calls("tool call: local read", 6, "read", reads, 3),
        tool_calls("tool call: local `true`", 12, "bash", trues, 3),
        cancel_of_model(args.rounds),
        cancel_of_command(args.rounds),
        endings(max(args.rounds // 3, 1)),
        *(Row(*sample) for sample in file_tools.measured()),
        *(Row(*sample) for sample in file_tools.crowded()),
        *(Row(*sample) for sample in undo.measured()),
        *(Row(*sample) for sample in contained.measured()),
        *(Row(*sample) for sample in models.measured(args.rounds)),
        *(Row(*sample) for sample in first_request.measured()),
        *(Row(*sample) for sample in long_session.measured()),
        *(Row(*sample) for sample in output.measured()),
        *(Row(*sample) for sample in redaction.rows()),
        *(Row(*sample) for sample in pace.measured()),
        *(Row(*sample) for sample in sessions.measured(rounds=args.rounds)),
    ]
    print(table(rows))
    print(f"\nloaded at the initialize answer, of {', '.join(HEAVY)}: {', '.join(heavy) or 'none'}")
    result = {"rows": [asdict(row) | {"median": row.median} for row in rows], "heavy_at_initialize": heavy}
    text = json.dumps(result)
    if args.json:
        args.json.write_text(text)
    else:
        print(f"\n{text}")
    return 1 if heavy else 0


if __name__ == "__main__":
    sys.exit(main())
