"""Work that is judged: by another agent in rounds until it is approved, and by the quality gates of the user.

    round 1   general does the task and reports; review looks at the files and reports "REJECTED: a.py:7 leaks"
    round 2   general is given the task, its last report and that reason; review reports "APPROVED"

The judge's report begins with APPROVED, or with REJECTED and what is wrong. A report that begins otherwise rejects.
Each round is two runs of sub-agents, which have all the limits of other runs. The next round gets the reports of the
last one as data, in a fence. The rounds fire no quality gates.

Quality gates check what a turn changed and what sub-agents report. The user configures them.

A gate is a command, whose exit code decides, or an evaluator, whose report begins with APPROVED or REJECTED. Both are
calls of the session's own tools: they pass its gates, its sandbox and its audit, and each has a card. If a blocking
gate fails, the work goes back to its agent, at most `max_retries` times; then the user is told. If a gate cannot be
run, for example because its call was refused, the work has not failed, and the user is told.

Nothing that runs inside of a gate fires a gate: `calls` has the ids of the gates' own calls, and the session's agent
answers only when all of them have ended.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple
from uuid import uuid4

from acp_agent.agent.hooks import AnswerCheck
from acp_agent.agent.prompt import fenced
from acp_agent.config.agents_settings import QualityEvent, QualityGateSettings
from acp_agent.core.delegation import AgentRun, Evaluation, EvaluationTask, RunState
from acp_agent.core.ports import Toolset
from acp_agent.core.session_options import Mode
from acp_agent.core.types import CallingAgent, JsonObject, Phase, ToolCall, ToolResult
from acp_agent.subagents.definitions import Definition
from acp_agent.subagents.worker import Progress, Worker, WorkOutcome
from acp_agent.text import counted, defanged

_BEGINNING = re.compile(r"[\s*_#>`\"']*(approved|rejected)\b[\s*_`\"':.!,-]*", re.IGNORECASE)

_VERDICT = "Begin your report with the word APPROVED if all criteria are met. Otherwise begin it with REJECTED: and \
say what must change, each point with path:line."

Give = Callable[[str, str], Awaitable[AgentRun]]
"""Gives an agent a task by its name, and returns the run when it has ended. Raises ToolError."""

Tell = Callable[[str], Awaitable[None]]
"""Shows the user a line about the progress of the work."""


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
    """Return the task of a judge.

    task     what was to be done; empty if that is not known
    report   the report of the agent that did the task
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
    """Return the task with the result of the last round."""
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


_LONGEST = 4_000
"""Characters of a command's output that the model reads: the last ones."""


class GateCheck(NamedTuple):
    """The outcome of a gate.

    feedback   what is wrong
    trouble    why it could not be run
    """

    passed: bool
    feedback: str = ""
    trouble: str = ""


class QualityGates:
    """The quality gates of one session.

    gates     returns those that are configured
    toolset   returns the session's tools
    changes   returns a number that grows with each call that changed files; None if that is not noticed
    calls     the ids of the calls that gates make now
    """

    def __init__(
        self,
        gates: Callable[[], Sequence[QualityGateSettings]],
        toolset: Callable[[], Toolset],
        changes: Callable[[], int | None],
    ) -> None:
        self._gates = gates
        self._toolset = toolset
        self._changes = changes
        self.calls: set[str] = set()
        self._seen: int | None = 0
        self._failures: dict[str, int] = {}  # by the gate's name, in this turn

    # ------------------------------------------------------------------------------------- of turns

    def begin(self) -> None:
        self._failures.clear()
        self._seen = self._changes()

    async def answered(self, *, is_last: bool) -> AnswerCheck:
        """Run the gates if the turn changed files, or if a gate failed before in it. Raises only cancellation."""
        changes = self._changes()
        if changes is not None and changes == self._seen and not self._failures:
            return AnswerCheck()
        told: list[str] = []
        try:
            for gate in self._of(QualityEvent.TURN):
                check = await self.check(gate)
                if check.passed:
                    self._failures.pop(gate.name, None)
                elif self._goes_back(gate, check, is_last=is_last):
                    return AnswerCheck(feedback=_feedback(gate, check, self._failures[gate.name]))
                else:
                    told.append(_told(gate, check, self._failures.pop(gate.name, 1)))
        finally:
            self._seen = self._changes()  # a gate may change files too, such as by formatting them
        return AnswerCheck(note="\n\n".join(told))

    def _goes_back(self, gate: QualityGateSettings, check: GateCheck, *, is_last: bool) -> bool:
        if check.trouble or not gate.block_on_failure:
            return False
        failures = self._failures[gate.name] = self._failures.get(gate.name, 0) + 1
        return failures <= gate.max_retries and not is_last

    # -------------------------------------------------------------------------------- of delegations

    def checked(self, worker: Worker, definition: Definition) -> Worker:
        """Return the worker of an agent whose reports pass the gates first."""
        gates = [gate for gate in self._of(QualityEvent.DELEGATION) if _is_for(gate, definition)]
        return _CheckedWorker(worker, gates, self.check) if gates else worker

    def _of(self, event: QualityEvent) -> Sequence[QualityGateSettings]:
        return [gate for gate in self._gates() if gate.event is event]

    # --------------------------------------------------------------------------------------- running

    async def check(
        self, gate: QualityGateSettings, task: str = "", report: str = "", agent: CallingAgent | None = None
    ) -> GateCheck:
        """Run a gate. Raises only cancellation.

        task, report   what an agent was given to do, and what it says
        agent          the sub-agent whose card shows the gate; None for the session's own agent
        """
        call_id = str(uuid4())
        if gate.command:
            arguments: JsonObject = {"command": gate.command, "timeout": gate.timeout_secs}
            call = ToolCall(call_id, "bash", arguments, batch=call_id, phase=Phase.VERIFIER, agent=agent)
        else:
            arguments = {"op": "run", "agent": gate.evaluator, "task": judging(gate.criteria, task, report)}
            call = ToolCall(call_id, "agent", arguments, batch=call_id, phase=Phase.VERIFIER)
        self.calls.add(call_id)
        try:
            result = await self._toolset().run(call)
        finally:
            self.calls.discard(call_id)
        return _of_command(result) if gate.command else _of_evaluator(result)


Check = Callable[[QualityGateSettings, str, str, CallingAgent | None], Awaitable[GateCheck]]


class _CheckedWorker:
    """A worker that goes on until the gates pass, or until they have sent it back often enough."""

    def __init__(self, worker: Worker, gates: Sequence[QualityGateSettings], check: Check) -> None:
        self._worker = worker
        self._gates = gates
        self._check = check

    @property
    def calls(self) -> int:
        return self._worker.calls

    def conversation(self) -> str:
        return self._worker.conversation()

    async def work(self, words: str, caller: CallingAgent, progress: Progress) -> WorkOutcome:
        """Do the task, and correct the work until the gates pass or give up. Raises AgentError."""
        outcome = await self._worker.work(words, caller, progress)
        failures = dict.fromkeys((gate.name for gate in self._gates), 0)
        told: list[str] = []
        waiting = list(self._gates)
        while waiting and not outcome.trouble:
            gate = waiting.pop(0)
            asks = replace(caller, name=gate.name, mode=Mode.CODE)
            check = await self._check(gate, words, outcome.report, asks)
            if check.passed:
                continue
            failures[gate.name] += 1
            if check.trouble or not gate.block_on_failure or failures[gate.name] > gate.max_retries:
                told.append(_told(gate, check, failures[gate.name], feedback=True))
            else:
                outcome = await self._worker.work(_feedback(gate, check, failures[gate.name]), caller, progress)
                waiting = list(self._gates)
        return replace(outcome, trouble="; ".join(filter(None, (outcome.trouble, *told))))


def _is_for(gate: QualityGateSettings, definition: Definition) -> bool:
    return definition.name in gate.agents if gate.agents else definition.mode is Mode.CODE


def _of_command(result: ToolResult) -> GateCheck:
    envelope = result.envelope or {}
    code = envelope.get("exit_code")
    if "exit_code" not in envelope:
        return GateCheck(passed=False, trouble=_trouble(result))
    said = str(envelope.get("stderr") or "").strip() or str(envelope.get("stdout") or "").strip()
    ended = "timed out" if code == 124 else f"exit code {code}"
    return GateCheck(code == 0, f"{said[-_LONGEST:]}\n[{ended}]".strip())


def _of_evaluator(result: ToolResult) -> GateCheck:
    if result.failure is not None:
        return GateCheck(passed=False, trouble=_trouble(result))
    verdict = judged(result.shown)
    return GateCheck(verdict.approved, verdict.feedback)


def _trouble(result: ToolResult) -> str:
    return result.failure.message if result.failure is not None else "it said nothing"


def _feedback(gate: QualityGateSettings, check: GateCheck, failures: int) -> str:
    """Return what the model reads of a failure."""
    judge = f"the command {gate.command}" if gate.command else f"{gate.evaluator}, by these criteria: {gate.criteria}"
    head = f"[The quality gate {gate.name} failed, try {failures} of {gate.max_retries + 1} ({judge}). It says:]"
    ending = "[Correct the work, then end your answer. The gate judges again.]"
    return f"{head}\n{_quoted(check.feedback)}\n{ending}"


def _told(gate: QualityGateSettings, check: GateCheck, failures: int, *, feedback: bool = False) -> str:
    """Return the note on a gate that did not pass and does not send the work back."""
    if check.trouble:
        return f"The quality gate {gate.name} could not be run: {check.trouble}"
    times = counted(failures, "time") if gate.block_on_failure else "once, and does not block"
    ending = f"It says: {check.feedback}" if feedback else "Its card says why."
    return f"The quality gate {gate.name} failed ({times}). {ending}"
