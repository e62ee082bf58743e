"""`python -m tests.bench.long_session`: what a turn costs after 200 turns, beside the first ones.

A model asks for a tool in every turn; old outputs are cleared and the conversation is summed up as it grows. Twice: the
agent as an editor runs it, over its pipes and with a model on loopback whose own time does not count; and the loop by
itself with the requests it makes, whose bytes grow with the conversation up to its budget, as every agent's do.
"""

import json
import statistics
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import anyio

from acp_agent.agent.compaction import Compactor, SummarySettings, Thresholds
from acp_agent.agent.history import History
from acp_agent.agent.hooks import Hooks
from acp_agent.agent.turn import Agent, Limits
from acp_agent.core.events import Event, Notice
from acp_agent.core.messages import (
    Message,
    ModelDone,
    ModelEvent,
    ModelStop,
    ModelText,
    Role,
    StopReason,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.llm import anthropic
from acp_agent.llm.endpoint import ModelEndpoint
from tests.bench.agent import running
from tests.bench.model import serving
from tests.fakes.fake_toolset import FakeToolset

TURNS = 200
ENDS = 20  # turns at either end that are compared
BUDGET = 24_000
KEY = {"BENCH_KEY": "obviously-fake"}
_AIM = 1.5
_ENDPOINT = ModelEndpoint("bench", "model", "http://127.0.0.1", BUDGET)
_ANSWER = "It is as expected there; on to the next place. " * 18  # about 200 tokens
_OUTPUT = "line of a file, nothing special about it\n" * 50  # about 500


class Talker:
    """A Provider that calls a tool, then says something; to a request without tools it answers with a summary.

    calls   tool calls so far
    """

    name, model = "bench", "model"

    def __init__(self, context_window: int = BUDGET) -> None:
        self.context_window = context_window
        self.calls = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        anthropic.request_body(_ENDPOINT, request)
        if not request.tools:
            yield ModelDone(Message(Role.ASSISTANT, (TextPart("They looked at files. " * 40),)), ModelStop.END)
            return
        last = request.messages[-1].parts[-1]
        if isinstance(last, ToolResultPart):
            yield ModelText(_ANSWER)
            yield ModelDone(Message(Role.ASSISTANT, (TextPart(_ANSWER),)), ModelStop.END)
            return
        self.calls += 1
        thought = {"type": "thinking", "thinking": f"thought {self.calls}", "signature": "fake" * 20}
        call = ToolUsePart(f"toolu_{self.calls}", "read", {"path": f"{self.calls}.py"})
        parts = (ThoughtPart(f"thought {self.calls}", "bench", dict(thought)), call)
        yield ModelDone(Message(Role.ASSISTANT, parts), ModelStop.TOOL_USE)


class LongSession:
    """One conversation with its compaction. `notices` are what the user was told of that."""

    def __init__(self, talker: Talker, provider: Provider | None = None) -> None:
        self.notices: list[str] = []
        self.talker = talker
        self.history = History()
        self.compactor = Compactor(
            self.history, self._emit, SummarySettings(self._writer), lambda: talker.context_window, Thresholds()
        )
        tools = FakeToolset({"read": lambda made: f"{made.arguments}\n{_OUTPUT}"})
        self.agent = Agent(
            provider or talker, tools, self.history, self._emit, Limits(), "system", hooks=Hooks(limiter=self.compactor)
        )

    @property
    def cleared(self) -> int:
        return sum("Cleared" in notice for notice in self.notices)

    @property
    def summed_up(self) -> int:
        return sum("Summed up" in notice for notice in self.notices)

    async def turn(self, number: int) -> None:
        """One turn. Raises RuntimeError for one that does not end as it should."""
        stop = await self.agent.run(Message(Role.USER, (TextPart(f"Look at file {number}, please."),)))
        if stop is not StopReason.END_TURN:
            raise RuntimeError(f"turn {number} ended {stop}")

    async def _writer(self) -> Provider:
        return self.talker

    async def _emit(self, event: Event) -> None:
        if isinstance(event, Notice):
            self.notices.append(event.text)


async def _loop_turns() -> list[float]:
    """Milliseconds of the thread's own time, turn by turn."""
    session, spent = LongSession(Talker()), list[float]()
    for number in range(TURNS):
        begun = time.thread_time()
        await session.turn(number)
        spent.append((time.thread_time() - begun) * 1000)
    _expect_summaries(session.summed_up)
    return spent


def _agent_turns() -> list[float]:
    """Milliseconds a prompt takes, less those of the model. Another session has warmed the agent up."""
    spent, notices = list[float](), list[str]()

    def watch(message: dict[str, Any]) -> None:
        text = json.dumps(message)
        notices.extend(["Summed up"] if "Summed up" in text else [])

    with serving("read", [{"path": "0.txt"}]) as model:
        config = model.config.replace("[agent]\n", f"[agent]\ncontext_budget_tokens = {BUDGET}\n")
        with running(config=config, environment=KEY) as agent:
            (agent.workspace / "0.txt").write_text(_OUTPUT)
            agent.initialize()
            for turns in (ENDS, TURNS):
                session, _ = agent.new_session()
                spent.clear()
                notices.clear()
                for number in range(turns):
                    model.arrived.clear()
                    model.answered.clear()
                    begun = time.monotonic()
                    stop = agent.prompt(session, f"{number}: {_ANSWER}", watch)
                    ended = time.monotonic()
                    while len(model.answered) < len(model.arrived):  # its thread notes the time after the answer
                        time.sleep(0.0005)
                    if stop != "end_turn":
                        raise RuntimeError(f"turn {number} ended {stop}")
                    calls = zip(model.arrived, model.answered, strict=True)
                    spent.append((ended - begun - sum(min(out, ended) - came for came, out in calls)) * 1000)
    _expect_summaries(len(notices))
    return spent


def _expect_summaries(count: int) -> None:
    if count < 2:
        raise RuntimeError(f"summed up {count} times: expected at least 2")


@dataclass(frozen=True)
class Ends:
    """Milliseconds of the first and of the last turns of several sessions."""

    sessions: list[list[float]]

    @property
    def first(self) -> list[float]:
        return [spent for session in self.sessions for spent in session[:ENDS]]

    @property
    def last(self) -> list[float]:
        return [spent for session in self.sessions for spent in session[-ENDS:]]

    @property
    def ratios(self) -> list[float]:
        """The last turns' sum beside the first ones', one for each session."""
        return [sum(session[-ENDS:]) / sum(session[:ENDS]) for session in self.sessions]


def agent_ends(rounds: int = 1) -> Ends:
    """Of the agent as a whole."""
    return Ends([_agent_turns() for _ in range(rounds)])


def loop_ends(rounds: int = 3) -> Ends:
    """Of the loop alone. The first session warms up."""
    return Ends([anyio.run(_loop_turns) for _ in range(rounds + 1)][1:])


def measured(rounds: int = 1) -> list[tuple[str, str, float | None, list[float], list[float]]]:
    """Rows for `python -m tests.bench`: the last turns with the first ones for a floor, and the ratio that counts."""
    ends = agent_ends(rounds)
    return [
        (f"turn {TURNS - ENDS} to {TURNS}, beside 1 to {ENDS}", "ms", None, ends.last, ends.first),
        (f"last {ENDS} of {TURNS} turns to the first", "x", _AIM, ends.ratios, []),
    ]


def main() -> None:
    for what, ends in (("the agent", agent_ends()), ("the loop", loop_ends())):
        first, last = statistics.median(ends.first), statistics.median(ends.last)
        ratios = " ".join(f"{ratio:.2f}" for ratio in ends.ratios)
        print(
            f"{what}: first {ENDS} turns {first:.2f} ms, last {ENDS} {last:.2f} ms (medians); ratios of sums {ratios}"
        )


if __name__ == "__main__":
    main()
