"""agent: which agents the model reads of, and the list of agents and of what was given to them."""

from collections.abc import Sequence
from typing import Any

import pytest

from acp_agent.core.delegation import AgentRun, OfferedAgent, RunState
from acp_agent.tools.agent import AgentTool, listing

AGENTS = [OfferedAgent(f"agent-{number}", f"does task {number}") for number in range(20)]
RUNS = [
    AgentRun("agent-1-1", "agent-1", "find the port", RunState.DONE, "8080", 3.2, 2, "overflow:1"),
    AgentRun("agent-2-1", "agent-2", "write\ntests", RunState.FAILED, "its program ended with 3\nand more", 61.0, 0),
    AgentRun("agent-2-2", "agent-2", "write docs", RunState.RUNNING),
]


class Known:
    """Sub-agents that are only listed."""

    def offered(self) -> Sequence[OfferedAgent]:
        return AGENTS

    def runs(self) -> Sequence[AgentRun]:
        return RUNS


def listed(search: str = "") -> list[str]:
    known: Any = Known()
    return listing(known, search).splitlines()


def test_the_model_reads_of_fifteen_agents_and_how_to_find_the_others():
    told = AgentTool(lambda: AGENTS).spec().description
    assert "agent-14: does task 14; 5 more (list, agent: words)" in told
    assert "agent-15" not in told
    assert "more" not in AgentTool(lambda: AGENTS[:15]).spec().description.partition("Agents:")[2]


def test_the_list_has_what_came_of_each_task_and_how_long_it_took():
    assert listed()[-4:] == [
        "Runs:",
        "- agent-1-1: done, 2 tool calls in 3 s; its conversation: overflow:1; task: find the port",
        "- agent-2-1: failed, 0 tool calls in 61 s; why: its program ended with 3 and more; task: write tests",
        "- agent-2-2: running, 0 tool calls in 0 s; task: write docs",
    ]


@pytest.mark.parametrize(
    ("search", "lines"),
    [
        ("agent-19", ["- agent-19: does task 19 (built in)"]),
        ("PORT", ["none with these words", "- agent-1-1: done, 2 tool calls in 3 s"]),
        ("nothing", ["none with these words"]),
    ],
)
def test_words_choose_among_the_agents_and_the_tasks(search: str, lines: list[str]):
    found = [line.partition(";")[0] for line in listed(search) if line not in ("Agents:", "Runs:", "")]
    assert found == lines
