"""The audit's record says what was noticed under way: attempts, mended arguments, suspicion, the phase."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.events import Event
from acp_agent.core.ports import Backends, Invocation, ToolContext
from acp_agent.core.types import (
    Access,
    ApprovedBy,
    JsonObject,
    PathSubject,
    Phase,
    ToolCall,
    ToolResult,
    ToolSpec,
    Verdict,
)
from acp_agent.execution.audit import AuditExecutor, Auditor, Caller
from acp_agent.execution.runner import ArgumentRepairer, DynExecutor, GatedExecutor, ToolRunner
from acp_agent.execution.wrappers import CacheExecutor, ResultCache, RetryExecutor, ToolRetries
from acp_agent.gates.gate import CallFacts, Gate, Gates
from acp_agent.gates.grounding import GroundingGate, Mentioned, exists_in
from acp_agent.gates.limits import Quota, QuotaGate
from acp_agent.gates.permission import Approved
from acp_agent.store.audit import AuditLog
from acp_agent.tools.registry import Registry, default_tools
from tests.fakes.fake_terminal import FakeTerminal
from tests.fakes.fake_web import FakeWeb
from tests.fakes.memory_files import MemoryFileSystem
from tests.unit.gates.chain import call
from tests.unit.store.audit_files import Warnings, read, validator, whole

pytestmark = pytest.mark.anyio


async def _asleep(seconds: float) -> None:
    del seconds


async def _unstamped(path: str) -> str:
    return f"stamp of {path}"


async def _unheard(event: Event) -> None:
    del event


class Settling(Gate):
    """Says yes to whatever is asked."""

    def judge(self, facts: CallFacts) -> Verdict:
        return Approved(ApprovedBy.AUTO)


class Chain:
    """Audit, quota, grounding, cache and retry at their places, and a tool that fails as it is told."""

    def __init__(self, path: Path, *failures: ToolErrorCategory) -> None:
        self.path = path
        self.failures = list(failures)
        self.auditor = Auditor(
            AuditLog(str(path), Warnings()),
            Caller("session-1", "/project", lambda _: "trusted", lambda _: ""),
            lambda text: text,
        )
        self.quota = Quota(100)
        self.files = MemoryFileSystem({"a.txt": "hello\n"})
        self.gates = Gates(
            (QuotaGate(self.quota), GroundingGate(Mentioned(), exists_in(self.files), _unheard), Settling())
        )
        backends = Backends(self.files, FakeTerminal({}), FakeTerminal({}), FakeWeb())
        retry = RetryExecutor(ToolRunner(backends, "/project", _unheard), ToolRetries(), sleep=_asleep)
        gated = GatedExecutor(self.gates, CacheExecutor(retry, ResultCache(), _unstamped))
        self.executor = AuditExecutor(gated, self.auditor)

    async def tool(self, context: ToolContext) -> ToolResult:
        if self.failures:
            raise ToolError(self.failures.pop(0), "no luck")
        return ToolResult("fine")

    async def run(self, invocation: Invocation) -> ToolResult:
        return await self.executor.execute(self.gates.facts(replace(invocation, run=self.tool)))

    @property
    def records(self) -> list[Any]:
        return read(self.path)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path / "audit.jsonl")


def reading(path: str, *, cacheable: bool = False) -> Invocation:
    invocation = call("read", PathSubject(path, Access.READ), arguments={"path": path})
    return replace(invocation, spec=replace(invocation.spec, cacheable=cacheable))


async def test_a_repeated_call_is_one_record_with_its_attempts_and_one_call_of_the_quota(chain):
    chain.failures = [ToolErrorCategory.NETWORK_ERROR, ToolErrorCategory.TIMEOUT]
    await chain.run(reading("a.txt"))
    [record] = chain.records
    assert record["attempts"] == 3
    assert record["result"] == {"type": "success"}
    assert chain.quota.use.calls == 1


@pytest.mark.parametrize("category", ToolErrorCategory)
async def test_every_failure_is_recorded_with_its_category_however_often_it_was_tried(chain, category):
    chain.failures = [category] * 3
    await chain.run(reading("a.txt"))
    [record] = chain.records
    assert record["error_category"] == category.value
    assert record.get("attempts") == (3 if category.retryable else None)


async def test_an_answer_from_the_cache_took_no_attempts(chain):
    chain.failures = [ToolErrorCategory.NETWORK_ERROR]
    for _ in range(2):
        await chain.run(reading("a.txt", cacheable=True))
    first, second = chain.records
    assert first["attempts"] == 2
    assert second["cached"] is True
    assert "attempts" not in second


async def test_a_suspicion_is_recorded_and_nothing_of_it_is_left_for_the_next_call(chain):
    await chain.run(reading("invented.txt"))
    await chain.run(reading("a.txt"))
    first, second = chain.records
    assert first["hallucination_suspected"] is True
    assert "hallucination_suspected" not in second


@pytest.mark.parametrize("phase", Phase)
async def test_the_phase_is_recorded_where_it_is_not_the_models_own(chain, phase):
    invocation = reading("a.txt")
    await chain.run(replace(invocation, call=replace(invocation.call, phase=phase)))
    [record] = chain.records
    assert record.get("phase") == (None if phase is Phase.EXECUTOR else phase.value)


async def test_a_mended_call_is_recorded_with_the_arguments_that_ran(chain):
    async def mend(call: ToolCall, spec: ToolSpec, failure: object) -> JsonObject | None:
        return {"path": "a.txt"}

    executor = DynExecutor(
        Registry(default_tools()),
        chain.executor,
        chain.gates,
        files=chain.files,
        emit=_unheard,
        misunderstood=chain.auditor.record,
        repairer=ArgumentRepairer(mend),
    )
    assert (await executor.run(ToolCall("id-1", "read", {"path": 3}))).failure is None
    [record] = chain.records
    assert record["call"] == {"path": "a.txt"}
    assert record["arguments_mended"] is True


async def test_the_last_opinion_of_a_second_model_is_recorded(chain):
    for opinions in ([], ["error: late"], ["error: late", "allow"]):
        facts = chain.gates.facts(reading("a.txt"))
        facts.opinions += opinions
        chain.auditor.record(facts.call, ToolResult("fine"), 0.0, facts)
    assert [each.get("adversarial_policy_decision") for each in chain.records] == [None, "error: late", "allow"]


async def test_the_file_stays_whole_and_fits_its_schema(chain):
    chain.failures = [ToolErrorCategory.TIMEOUT] * 3
    await chain.run(reading("invented.txt"))
    assert whole(chain.path) == []
    [record] = chain.records
    validator().validate(record)
