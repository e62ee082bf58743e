"""What is too much for the event loop is fitted in a thread, however it is nested."""

import threading
from dataclasses import replace

import pytest

from acp_agent.core.types import Json, ToolResult
from acp_agent.execution.wrappers import OutputExecutor
from acp_agent.gates.gate import CallFacts
from acp_agent.output.pipeline import Fitted, Pipeline, ResultSource, Sizes
from acp_agent.output.redaction.redactor import Redactor
from tests.unit.gates.chain import call

pytestmark = pytest.mark.anyio


class Noting(Pipeline):
    """A pipeline that notes where it worked."""

    def __init__(self) -> None:
        super().__init__(Sizes(), Redactor())
        self.threads: list[int] = []

    def apply(self, result: ToolResult, speaker: ResultSource) -> Fitted:
        self.threads.append(threading.get_ident())
        return super().apply(replace(result, envelope=None), speaker)


class Saying:
    def __init__(self, structured: Json) -> None:
        self.structured = structured

    async def execute(self, facts: CallFacts) -> ToolResult:
        return ToolResult("short", envelope={"structuredContent": self.structured})


DEEP: Json = "x" * 20_000
for _ in range(500):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("structured", "inline"),
    [
        ({"a": ["short", 1, None]}, True),
        ({"a": [{"b": "x" * 20_000}]}, False),
        ([{"key": "x" * 20} for _ in range(2000)], False),
        (list(range(20_000)), False),
        ({"k" * 20_000: 1}, False),
        ({str(number): number for number in range(20_000)}, False),
        (DEEP, False),
    ],
)
async def test_much_nested_in_an_envelope_is_no_work_for_the_loop(structured: Json, inline: bool):
    pipeline = Noting()
    await OutputExecutor(Saying(structured), pipeline).execute(CallFacts(call("read")))
    assert [ident == threading.get_ident() for ident in pipeline.threads] == [inline]
