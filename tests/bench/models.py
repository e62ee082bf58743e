"""What talking to a model costs, beside the official SDKs doing the same in the same run."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from tests.bench.agent import running
from tests.bench.model import serving
from tests.bench.streaming_model import streaming

Sample: TypeAlias = tuple[str, str, float | None, list[float], list[float]]
"""What, unit, aim, samples, the SDK's samples."""
_KEY = {"BENCH_KEY": "obviously-fake"}


def measured(rounds: int = 15, calls: int = 20) -> Iterator[Sample]:
    """Events, first token, tool iterations, memory."""
    yield from _streams(rounds)
    yield from _loops(calls)


def _streams(rounds: int) -> Iterator[Sample]:
    """The adapters alone, a process a side."""
    with streaming() as model:
        for api in ("anthropic", "openai"):
            ours, sdk = (_conversed(side, api, model.url, rounds) for side in ("ours", "sdk"))
            yield f"{api}: CPU of a streamed event", "us", None, ours["events"], sdk["events"]
            yield f"{api}: first token after the model's", "ms", None, ours["first"], sdk["first"]
            yield f"{api}: memory of the adapter alone", "MB", None, [ours["memory"]], [sdk["memory"]]


def _conversed(side: str, api: str, url: str, rounds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.conversing", side, api, url, str(rounds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)


def _loops(calls: int) -> Iterator[Sample]:
    """The whole agent against a bare loop on the SDK: an iteration with a `read`, memory after the first prompt."""
    arguments = [{"path": f"{number}.txt"} for number in range(calls)]
    with serving("read", arguments) as model, running(config=model.config, environment=_KEY) as agent:
        _files(agent.workspace, calls)
        agent.initialize()
        session, _ = agent.new_session()
        agent.full_auto(session)
        if (stop := agent.prompt(session, "go")) != "end_turn":
            raise RuntimeError(f"the turn ended {stop}")
        ours = [seconds * 1000 for seconds in model.overheads[1:]]
        agent.settle()
        memory = agent.memory()
    with serving("read", arguments) as model, tempfile.TemporaryDirectory(prefix="acp-bench-") as folder:
        _files(Path(folder), calls)
        command = [sys.executable, "-m", "tests.bench.sdk_loop", f"http://127.0.0.1:{model.server_port}/v1", folder]
        sdk_memory = float(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)
        sdk = [seconds * 1000 for seconds in model.overheads[1:]]
    yield "tool iteration: agent, bare SDK loop", "ms", None, ours, sdk
    yield "memory after the first prompt: agent, bare SDK loop", "MB", 70.0, [memory], [sdk_memory]


def _files(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"{number}.txt").write_text("one\ntwo\nthree\n")
