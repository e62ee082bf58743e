"""One life of an agent, from its spawn to its end, part by part: `profile` explains it and `compare` compares two.

The agent is the real one over its pipes, in a home of its own that was used before, as a user's is, with a model on
loopback. Tools are local.
"""

import statistics
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.bench.agent import OURS, TREE, Agent, running
from tests.bench.model import Model, serving

KEY = {"BENCH_KEY": "obviously-fake"}
TURNS, CALLS, PIECES, SESSIONS, CANCELS = 10, 10, 2_000, 20, 3
"""Warm turns, calls of each tool, deltas of a long answer, sessions at once, and cancels of each kind."""
_SOURCE = "def main():\n    one = two\n    # line {}\n    return one\n"

TOOLS: dict[str, Callable[[int], dict[str, Any]]] = {
    "read": lambda number: {"path": f"{number}.py"},
    "list_directory": lambda number: {"path": f"folder{number}"},
    "find_path": lambda number: {"pattern": f"*{number}.py"},
    "grep": lambda number: {"pattern": f"line {number}"},
    "outline": lambda number: {"path": f"{number}.py"},
    "bash": lambda number: {"command": f"echo {number}"},
    "write": lambda number: {"path": f"new{number}.py", "content": _SOURCE.format(number)},
    "edit": lambda number: {"path": f"{number}.py", "old_string": "one = two", "new_string": f"one = {number}"},
    "create_directory": lambda number: {"path": f"made{number}"},
    "copy_path": lambda number: {"source": f"{number}.py", "destination": f"copy{number}.py"},
    "move_path": lambda number: {"source": f"copy{number}.py", "destination": f"moved{number}.py"},
    "delete_path": lambda number: {"path": f"moved{number}.py"},
    "update_plan": lambda number: {"entries": [{"content": f"step {number}", "status": "in_progress"}]},
    "memory_save": lambda number: {"content": f"The project's number is {number}."},
    "memory_search": lambda number: {"query": f"number {number}"},
}
"""The arguments of each tool's calls. All differ: equal ones are answered from a cache, or end the turn."""

Watch = Callable[["Life", str], AbstractContextManager[Any]]
"""Called with the name of each part; entered before it and left after it."""


class Life:
    """A running agent whose parts are measured. `figures` are milliseconds or megabytes by the name of a row.

    Parts that nobody wants are left out, except the start.
    """

    def __init__(
        self, agent: Agent, model: Model, wanted: Sequence[str] = (), watch: Watch = lambda *_: nullcontext()
    ) -> None:
        self.figures: dict[str, float] = {}
        self.agent = agent
        self._model = model
        self._wanted = wanted
        self._watch = watch
        self._session = ""

    def live(self) -> None:
        """Measure the start, and every part that is wanted."""
        self._start()
        for name, part in PARTS.items():
            if not self._wanted or name in self._wanted:
                part(self)
            elif name == "tools":
                for tool in filter(TOOLS.__contains__, self._wanted):
                    self._tool(tool)

    # ---------------------------------------------------------------------------------------- parts

    def _start(self) -> None:
        agent = self.agent
        for number in range(CALLS):
            (agent.workspace / f"{number}.py").write_text(_SOURCE.format(number))
            (agent.workspace / f"folder{number}").mkdir()
        with self._watch(self, "spawn to initialize"):
            agent.initialize()
            self._since_spawn("spawn to initialize")
        with self._watch(self, "initialize to session ready"):
            self._session, _ = agent.new_session()
            self._since_spawn("spawn to session ready")
        with self._watch(self, "session ready to the end of the first turn"):
            self._asked(0)
            self._since_spawn("spawn to the end of the first turn")
        self.figures["spawn to the first model request"] = (self._model.arrived[0] - agent.born) * 1000
        agent.full_auto(self._session)
        agent.settle()
        self.figures["memory after the first turn"] = agent.memory()

    def _turn(self) -> None:
        """Measure turns without a call, as the second and later ones of a session are."""
        asked = list[float]()
        with self._part("warm turn", TURNS):
            for number in range(TURNS):
                sent = time.monotonic()
                self._asked(number + 1)
                asked.append((self._model.arrived[0] - sent) * 1000)
        self.figures["warm prompt to the model's request"] = statistics.median(asked)

    def _stream(self) -> None:
        self._model.pieces = PIECES
        with self._part(f"answer of {PIECES} pieces"):
            self._asked(0)
        self.figures[f"answer of {PIECES} pieces, model's end to the response"] = (
            time.monotonic() - self._model.answered[0]
        ) * 1000
        self._model.pieces = 1

    def _cancel(self) -> None:
        """Measure cancels of a silent model, then of a command that runs."""
        for name, arguments in {"a silent model": None, "a command": [{"command": "sleep 30"}]}.items():
            self._model.tool, self._model.arguments = "bash", arguments
            took = list[float]()
            with self._part(f"cancel {name}", CANCELS):
                for _ in range(CANCELS):
                    self._model.stalling.clear()
                    took.append(
                        cancelled(self.agent, self._session, self._model.stalling if arguments is None else None)
                    )
            self.figures[f"cancel {name}"] = statistics.median(took)
        self._model.arguments = []

    def _tools(self) -> None:
        for name in TOOLS:
            self._tool(name)

    def _tool(self, name: str) -> None:
        """Measure calls of a tool in one turn: the time between the model's answer and its next request."""
        self._model.tool, self._model.arguments = name, [TOOLS[name](number) for number in range(CALLS)]
        failed = list[str]()

        def watch(message: dict[str, Any]) -> None:
            update = message.get("params", {}).get("update", {})
            if update.get("status") == "failed":
                failed.append(str(update))

        with self._part(f"tool {name}", CALLS):
            self._asked(0, watch)
        if failed or len(self._model.overheads) != CALLS:
            raise RuntimeError(f"{len(self._model.overheads)} calls of {name}, which failed: {failed}")
        self.figures[f"tool {name}"] = statistics.median(self._model.overheads) * 1000
        self._model.arguments = []

    def _sessions(self) -> None:
        """Measure sessions that are opened at once, in a process that has one."""
        params = {"cwd": str(self.agent.workspace), "mcpServers": []}
        with self._part(f"{SESSIONS} session/new at once"):
            for number in range(SESSIONS):
                self.agent.send({"id": f"new{number}", "method": "session/new", "params": params})
            opened = 0
            while opened < SESSIONS:
                opened += str(self.agent.read().get("id", "")).startswith("new")
        self.agent.settle()

    def _load(self) -> None:
        self.agent.request("session/close", {"sessionId": self._session})
        params = {"sessionId": self._session, "cwd": str(self.agent.workspace), "mcpServers": []}
        with self._part("session/load of this life"):
            self.agent.request("session/load", params)

    def _memory(self) -> None:
        self.agent.settle()
        self.figures["memory at the end"] = self.agent.memory()

    # ---------------------------------------------------------------------------------------- measuring

    def _since_spawn(self, name: str) -> None:
        self.figures[name] = (time.monotonic() - self.agent.born) * 1000
        self.figures[f"{name}, CPU"] = self.agent.cpu() * 1000

    @contextmanager
    def _part(self, name: str, times: int = 1) -> Generator[None]:
        """Measure the body, and divide by `times`."""
        with self._watch(self, name):
            begun, used = time.monotonic(), self.agent.cpu()
            yield
            self.figures[name] = (time.monotonic() - begun) * 1000 / times
            self.figures[f"{name}, CPU"] = (self.agent.cpu() - used) * 1000 / times

    def _asked(self, number: int, watch: Callable[[dict[str, Any]], None] | None = None) -> None:
        """Play a turn. Raises RuntimeError for one that does not end as it should."""
        self._model.arrived.clear()
        self._model.answered.clear()
        stop = self.agent.prompt(self._session, f"prompt {number}", watch)
        while len(self._model.answered) < len(self._model.arrived):
            time.sleep(0.0002)  # the model's thread notes the time after its answer
        if stop != "end_turn":
            raise RuntimeError(f"a turn ended {stop}")


PARTS: dict[str, Callable[[Life], None]] = {
    "start": lambda life: None,  # always measured
    "turn": Life._turn,
    "stream": Life._stream,
    "cancel": Life._cancel,
    "tools": Life._tools,
    "sessions": Life._sessions,
    "load": Life._load,
    "memory": Life._memory,
}
"""The parts after the start, in the order of an editor's day."""


def cancelled(agent: Agent, session: str, stalling: threading.Event | None) -> float:
    """Cancel once the model stalls, or else once the tool call has run for a moment.

    Return the milliseconds it took.
    """
    sent: list[float] = []

    def cancel() -> None:
        sent.append(time.monotonic())
        agent.send({"method": "session/cancel", "params": {"sessionId": session}})

    def when_stalling() -> None:
        if stalling is not None and stalling.wait(30):
            cancel()

    def watch(message: dict[str, Any]) -> None:
        update = message.get("params", {}).get("update", {})
        if stalling is None and update.get("sessionUpdate") == "tool_call":
            threading.Timer(0.2, cancel).start()  # the shell is up by then

    waiter = threading.Thread(target=when_stalling)
    waiter.start()
    stop = agent.prompt(session, "go", watch)
    answered = time.monotonic()
    waiter.join()
    if stop != "cancelled":
        raise RuntimeError(f"a cancelled turn ended {stop}")
    return (answered - sent[0]) * 1000


def lived(
    command: Sequence[str] = OURS,
    tree: Path = TREE,
    wanted: Sequence[str] = (),
    watch: Watch = lambda *_: nullcontext(),
    environment: dict[str, str] | None = None,
    spawns: int = 0,
) -> dict[str, float]:
    """Run a life and return its figures. Of so many more spawns, the fastest counts: the first answer is soon there."""
    with serving("none", []) as model:
        config = f"[acp]\nmax_sessions = {SESSIONS * 2}\n{model.config}"
        with running(command, config, KEY | (environment or {}), tree, used=True) as agent:
            life = Life(agent, model, wanted, watch)
            life.live()
    spawned = [life.figures["spawn to initialize"]]
    for _ in range(spawns):
        with running(command, tree=tree) as agent:
            spawned.append(agent.initialize() * 1000)
    return life.figures | {"spawn to initialize": min(spawned)}
