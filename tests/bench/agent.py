"""An agent under the stopwatch: plain blocking pipes, so that the measuring side costs next to nothing."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

import acp_agent

TREE = Path(acp_agent.__file__).parents[1]
OURS = (sys.executable, "-m", "acp_agent")
FLOOR = (sys.executable, str(Path(__file__).with_name("floor.py")))


class Agent:
    """A running agent. Times are seconds on the monotonic clock; `born` is taken just before the spawn.

    tree   the folder in which it is started, where `-m` finds the package: another revision has another one
    """

    def __init__(
        self, command: Sequence[str], home: Path, config: str, environment: dict[str, str], tree: Path = TREE
    ) -> None:
        self.workspace = home / "work"
        self.workspace.mkdir(parents=True, exist_ok=True)
        file = home / "config.toml"
        if not file.exists() or file.read_text() != config:  # or an agent would find a changed file
            file.write_text(config)
        names = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(home)}
        ours = {
            "ACP_AGENT_CONFIG": str(file),
            "ACP_AGENT_DATA_DIR": str(home / "data"),
            "ACP_AGENT_LLM__LIST_MODELS": "false",  # no requests beside the measured ones
            "ACP_AGENT_MEMORY__SESSIONS__TITLES": "prompt",
        }
        self.environment = names | ours | environment
        self.born = time.monotonic()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment,
            cwd=tree,
        )
        self.pid = self._process.pid
        self._requests = 0

    def request(
        self, method: str, params: dict[str, Any], on_message: Callable[[dict[str, Any]], None] | None = None
    ) -> Any:
        """Ask and read until the answer; what comes before it goes to `on_message`. Raises RuntimeError on an error."""
        self._requests += 1
        number = self._requests
        self.send({"id": number, "method": method, "params": params})
        while True:
            message = self.read()
            if message.get("id") == number and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if on_message is not None:
                on_message(message)

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def read(self) -> dict[str, Any]:
        """The next message."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the agent ended with {self._process.wait()}")
        return json.loads(line)

    def initialize(self) -> float:
        """Seconds from the spawn to the answer. The client offers nothing, so all tools are local."""
        self.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        return time.monotonic() - self.born

    def new_session(self) -> tuple[str, float]:
        """A session that asks no questions, and the seconds from the spawn to it."""
        session = self.request("session/new", {"cwd": str(self.workspace), "mcpServers": []})["sessionId"]
        return session, time.monotonic() - self.born

    def full_auto(self, session: str) -> None:
        """No questions: they would measure the user."""
        params = {"sessionId": session, "configId": "auto_approve", "value": "full-auto"}
        self.request("session/set_config_option", params)

    def prompt(self, session: str, text: str, on_message: Callable[[dict[str, Any]], None] | None = None) -> str:
        """One turn; its stop reason."""
        block = {"type": "text", "text": text}
        return self.request("session/prompt", {"sessionId": session, "prompt": [block]}, on_message)["stopReason"]

    def settle(self, rest: float = 0.3) -> None:
        """Wait until it has loaded whatever it loads behind an answer: busy for less than a sixth of `rest` (seconds).

        The sampler of `profile` never rests, and takes a tenth of a slow processor.
        """
        used = -1.0
        while (now := self.cpu()) - used > rest / 6:
            used = now
            time.sleep(rest)

    def cpu(self) -> float:
        """Seconds of processor time that the process has used so far, its children's not counted."""
        if sys.platform == "linux":  # the number of the process's clock, as clock_getcpuclockid(3) makes it
            return time.clock_gettime(~self.pid << 3 | 2)
        return sum(psutil.Process(self.pid).cpu_times()[:2])

    def memory(self) -> float:
        """Resident memory in MB (10^6 bytes)."""
        return psutil.Process(self._process.pid).memory_info().rss / 1e6

    def terminate(self) -> float:
        """Seconds from SIGTERM to the end."""
        sent = time.monotonic()
        self._process.terminate()
        self._process.wait(30)
        return time.monotonic() - sent

    def end(self) -> None:
        """Close its stdin and wait."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()


@contextmanager
def running(
    command: Sequence[str] = OURS,
    config: str = "",
    environment: dict[str, str] | None = None,
    tree: Path = TREE,
    *,
    used: bool = False,
) -> Iterator[Agent]:
    """An agent in a home of its own; in a `used` one, an agent has opened a session before."""
    with tempfile.TemporaryDirectory(prefix="acp-bench-") as folder:
        if used:
            before = Agent(command, Path(folder), config, environment or {}, tree)
            before.initialize()
            before.new_session()
            before.settle()
            before.end()
        agent = Agent(command, Path(folder), config, environment or {}, tree)
        try:
            yield agent
        finally:
            agent.end()
