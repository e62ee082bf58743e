"""A tool that keeps failing is taken away for the session, and only for what is its own failure."""

from dataclasses import replace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import Event, Notice, Severity
from acp_agent.core.types import CallOrigin, Deny, Ruling, ToolResult
from acp_agent.gates.gate import CallFacts
from acp_agent.gates.limits import MIN_SAMPLES, AnomalyDetector, AnomalyGate, Outcome, outcome_of
from tests.unit.gates.chain import SPECS, Judged, Recorder, call

pytestmark = pytest.mark.anyio

FINE = ToolResult("ok")


def failed(category: ToolErrorCategory) -> ToolResult:
    return ToolResult.failed(ToolFailure(category, "no"))


TIMEOUT = failed(ToolErrorCategory.TIMEOUT)
NOT_FOUND = failed(ToolErrorCategory.PERMANENT_FAILURE)
NEUTRAL = (
    failed(ToolErrorCategory.POLICY_BLOCKED),
    failed(ToolErrorCategory.CANCELLED),
    failed(ToolErrorCategory.CONFIRMATION_REQUIRED),
    failed(ToolErrorCategory.INVALID_PARAMETERS),
    failed(ToolErrorCategory.TYPE_MISMATCH),
    failed(ToolErrorCategory.TOOL_NOT_FOUND),
    ToolResult.refused("no", ToolErrorCategory.RATE_LIMITED, Ruling("rate_limit")),
    ToolResult.refused("no", ToolErrorCategory.PERMANENT_FAILURE, Ruling("sandbox")),
)


class Answers(Recorder):
    """Gives the results it is told to, raises those that are errors, and waits for ever for None."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: ToolResult | ZeroDivisionError | None = FINE

    async def execute(self, facts: CallFacts) -> ToolResult:
        self.ran.append(facts.invocation)
        if self.answer is None:
            await anyio.sleep_forever()
        if isinstance(self.answer, ZeroDivisionError):
            raise self.answer
        assert self.answer is not None
        return self.answer


class Session:
    """A gate, what it guards, and what the user was told."""

    def __init__(self, window: int = 20, threshold: float = 0.7, *, auto_block: bool = True) -> None:
        self.told: list[Event] = []
        self.tool = Answers()
        self.detector = AnomalyDetector(window, threshold, auto_block=auto_block)
        self.gate = AnomalyGate(self.detector, self.emit)
        self.judged = Judged(self.gate, behind=self.tool)

    async def emit(self, event: Event) -> None:
        self.told.append(event)

    async def calls(self, answer: ToolResult, times: int = 1, tool: str = "fetch") -> list[ToolResult]:
        self.tool.answer = answer
        return [await self.judged.execute(call(tool, number=number)) for number in range(times)]


async def test_a_tool_that_breaks_again_and_again_is_blocked_and_leaves_the_catalogue():
    session = Session()
    results = await session.calls(TIMEOUT, 7)
    refused = Ruling("anomaly", "failure rate 1.00")
    assert [result.ruling == refused for result in results] == [False] * 5 + [True] * 2
    assert len(session.tool.ran) == 5
    assert not session.gate.allows(SPECS["fetch"])
    assert session.gate.allows(SPECS["read"])
    failure = results[-1].failure
    assert failure is not None
    assert failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert failure.message.startswith("'fetch' is blocked: 5 of its last 5 calls failed. Do without it; the user can")


async def test_the_user_is_told_once():
    session = Session()
    await session.calls(TIMEOUT, 9)
    text = "fetch: 5 of the last 5 calls failed; it is blocked until you type /tools reset fetch"
    assert session.told == [Notice(Severity.WARNING, text)]


async def test_tools_are_judged_apart():
    session = Session()
    await session.calls(TIMEOUT, 4)
    await session.calls(FINE, 4, tool="read")
    await session.calls(TIMEOUT, 4, tool="grep")
    assert session.detector.alarms == ()


async def test_a_rate_must_pass_the_threshold_not_only_reach_it():
    session = Session(window=10)
    await session.calls(FINE, 3)
    await session.calls(TIMEOUT, 7)
    assert session.detector.alarms == ()
    await session.calls(TIMEOUT, 1)  # the first FINE leaves the window: 8 of 10
    assert [alarm.rate for alarm in session.detector.alarms] == [0.8]


async def test_refusals_denials_cancellations_and_the_models_mistakes_are_no_samples():
    session = Session()
    for answer in NEUTRAL * 3:
        await session.calls(answer, 2)
    assert session.detector.alarms == ()
    await session.calls(TIMEOUT, MIN_SAMPLES - 1)
    for answer in NEUTRAL:
        await session.calls(answer)
    assert session.detector.alarms == ()
    await session.calls(TIMEOUT)
    assert len(session.detector.alarms) == 1, "what is no sample does not hide failures either"


async def test_a_command_that_ran_is_no_failure_of_its_tool_however_it_ended():
    session = Session(window=20)
    for answer in (TIMEOUT, NOT_FOUND):
        await session.calls(replace(answer, envelope={"exit_code": 124}), 40, tool="bash")
    assert session.detector.alarms == ()
    await session.calls(TIMEOUT, 20, tool="bash")
    assert [alarm.tool for alarm in session.detector.alarms] == ["bash"], "a terminal that never answers is"


async def test_looking_for_files_that_are_not_there_blocks_nothing_until_the_window_is_full():
    session = Session(window=20)
    await session.calls(NOT_FOUND, 19, tool="read")
    assert session.gate.allows(SPECS["read"])
    await session.calls(NOT_FOUND, 1, tool="read")
    assert not session.gate.allows(SPECS["read"])


@pytest.mark.parametrize("category", [c for c in ToolErrorCategory if c.retryable])
async def test_every_failure_of_the_infrastructure_counts(category: ToolErrorCategory):
    assert outcome_of(failed(category)) is Outcome.BROKEN


async def test_a_crash_counts_and_goes_on():
    session = Session()
    session.tool.answer = ZeroDivisionError()
    for number in range(5):
        with pytest.raises(ZeroDivisionError):
            await session.judged.execute(call("fetch", number=number))
    assert not session.gate.allows(SPECS["fetch"])


async def test_a_cancelled_call_counts_for_nothing():
    session = Session()
    session.tool.answer = None
    for _ in range(8):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.judged.execute(call("fetch"))
    assert len(session.tool.ran) == 8
    assert session.detector.alarms == ()
    await session.calls(TIMEOUT, MIN_SAMPLES - 1)
    assert session.detector.alarms == ()


async def test_without_auto_block_the_user_is_told_again_when_it_comes_back_and_nothing_is_refused():
    session = Session(window=5, auto_block=False)
    await session.calls(TIMEOUT, 8)
    assert session.told == [Notice(Severity.WARNING, "fetch: 5 of the last 5 calls failed")]
    await session.calls(FINE, 5)
    assert session.detector.alarms == ()
    await session.calls(TIMEOUT, 5)
    assert len(session.told) == 2
    assert session.gate.allows(SPECS["fetch"])
    assert len(session.tool.ran) == 18


async def test_reset_gives_the_tool_back():
    session = Session()
    await session.calls(TIMEOUT, 5)
    await session.calls(TIMEOUT, 5, tool="bash")
    session.detector.reset("fetch")
    assert session.gate.allows(SPECS["fetch"])
    assert not session.gate.allows(SPECS["bash"])
    assert [result.failure for result in await session.calls(FINE, 2)] == [None, None]
    await session.calls(TIMEOUT, 2)
    assert session.gate.allows(SPECS["fetch"]), "the failures before do not count any more"
    session.detector.reset()
    assert session.gate.allows(SPECS["bash"])


async def test_what_the_user_types_is_neither_watched_nor_refused():
    session = Session()
    session.tool.answer = TIMEOUT
    for number in range(9):
        await session.judged.execute(call("bash", origin=CallOrigin.USER, number=number))
    assert session.gate.allows(SPECS["bash"])
    await session.calls(TIMEOUT, 5, tool="bash")
    assert isinstance(session.judged.judge(call("bash")), Deny)
    session.tool.answer = FINE
    assert (await session.judged.execute(call("bash", origin=CallOrigin.USER))).failure is None


async def test_a_success_that_comes_late_unblocks_nothing():
    detector = AnomalyDetector(5)
    for _ in range(5):
        detector.record("grep", Outcome.BROKEN)
    for _ in range(20):
        assert detector.record("grep", Outcome.FINE) is None
    assert detector.blocked("grep") is not None


@given(st.lists(st.sampled_from(Outcome), max_size=60), st.integers(1, 25), st.floats(0.05, 0.95))
def test_a_block_is_always_earned(outcomes, window, threshold):
    detector = AnomalyDetector(window, threshold)
    for index, outcome in enumerate(outcomes, 1):
        alarm = detector.record("x", outcome)
        if alarm is None:
            continue
        recent = outcomes[max(0, index - window) : index]
        assert len(recent) == alarm.calls >= min(MIN_SAMPLES, window)
        assert sum(1 for each in recent if each is not Outcome.FINE) >= alarm.failures
        assert alarm.rate > threshold
        return
    full = len(outcomes) >= max(window, 1)
    broken = [each is not Outcome.FINE for each in outcomes[-window:]]
    assert not full or sum(broken) / len(broken) <= threshold
