"""Work in rounds: one agent does a task, another judges it by criteria, until it is approved.

    round 1   general does the task and reports; review looks at the files and reports "REJECTED: a.py:7 leaks"
    round 2   general is given the task, its last report and that reason; review reports "APPROVED"

The judge's report begins with APPROVED, or with REJECTED and what is wrong. A report that begins otherwise rejects.
Each round is two runs of sub-agents, which have all the limits of other runs. What came of the last round is data for
the next one: it stands in a fence. The rounds fire no quality gates.
"""

import re
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple

from acp_agent.agent.prompt import fenced
from acp_agent.core.delegation import AgentRun, Evaluation, EvaluationTask, RunState
from acp_agent.text import defanged

_BEGINNING = re.compile(r"[\s*_#>`\"']*(approved|rejected)\b[\s*_`\"':.!,-]*", re.IGNORECASE)

_VERDICT = "Begin your report with the word APPROVED if all criteria are met. Otherwise begin it with REJECTED: and \
say what must change, each point with path:line."

Give = Callable[[str, str], Awaitable[AgentRun]]
"""Gives an agent a task by its name, and returns the run when it has ended. Raises ToolError."""

Tell = Callable[[str], Awaitable[None]]
"""Shows the user a line about how the work goes."""


class JudgedWork(NamedTuple):
    """A judge's verdict, and what must change if it is no approval."""

    approved: bool
    feedback: str = ""


def judged(report: str) -> JudgedWork:
    """Return the verdict in a judge's report."""
    found = _BEGINNING.match(report)
    if found is None:
        return JudgedWork(approved=False, feedback=report.strip() or "the judge said nothing")
    if found[1].lower() == "approved":
        return JudgedWork(approved=True)
    return JudgedWork(approved=False, feedback=report[found.end() :].strip() or "the judge gave no reason")


def judging(criteria: str, task: str, report: str) -> str:
    """Return the words that give a judge its task.

    task     what was to be done; empty if that is not known
    report   what the agent said that did it
    """
    parts = (
        "Judge the work of another agent. Look at the files yourself: its report may be wrong.",
        f"Criteria, which must all be met:\n{criteria}",
        f"Its task was:\n{task}" if task else "",
        f"Its report:\n{_quoted(report)}" if report else "",
        _VERDICT,
    )
    return "\n\n".join(filter(None, parts))


async def evaluated(wanted: EvaluationTask, give: Give, tell: Tell) -> Evaluation:
    """Have a task done and judged, at most `rounds` times. Return the last work with the verdict. Raises ToolError."""
    first = words = f"{wanted.task}\n\nYour work will be judged by these criteria:\n{wanted.criteria}"
    for number in count(1):
        round_ = f"Round {number} of at most {wanted.rounds}"
        await tell(f"{round_}: {wanted.generator} works")
        run = await give(wanted.generator, words)
        if run.state is not RunState.DONE:
            return Evaluation(run, approved=False, feedback="", rounds=number)
        await tell(f"{round_}: {wanted.evaluator} judges")
        judge = await give(wanted.evaluator, judging(wanted.criteria, wanted.task, run.report))
        if judge.state is not RunState.DONE:
            why = f"the work was not judged: {judge.id} {judge.state}: {judge.report}".rstrip(": ")
            return Evaluation(run, approved=False, feedback=why, rounds=number)
        verdict = judged(judge.report)
        if verdict.approved or number >= wanted.rounds:
            return Evaluation(run, verdict.approved, verdict.feedback, number)
        words = _again(first, run, verdict)
    raise AssertionError("unreachable")


def _again(words: str, before: AgentRun, verdict: JudgedWork) -> str:
    """Return the task with what came of the last round."""
    return "\n\n".join(
        (
            words,
            "An agent has done this already, and its changes are in place. Its report:",
            _quoted(before.report),
            "The work was rejected. Correct what the judge says:",
            _quoted(verdict.feedback),
        )
    )


def _quoted(text: str) -> str:
    return fenced("tool-output", defanged(text))
