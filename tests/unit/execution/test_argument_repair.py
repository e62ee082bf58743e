"""Arguments that do not fit are mended once, judged like any others, and told to the model, the user and the audit."""

from dataclasses import replace
from typing import Any

import pytest

from acp_agent.agent.aids.arguments import Reformatter
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import Event, Notice, ToolFinished, ToolStarted
from acp_agent.core.ports import Backends
from acp_agent.core.types import (
    ApprovedBy,
    CallOrigin,
    Deny,
    JsonObject,
    Phase,
    ToolCall,
    ToolResult,
    ToolSpec,
    Verdict,
)
from acp_agent.execution.runner import ArgumentRepairer, DynExecutor, GatedExecutor, RepairedArguments, ToolRunner
from acp_agent.gates.gate import CallFacts, Gate, Gates
from acp_agent.gates.permission import Approved
from acp_agent.tools.registry import Registry, default_tools
from tests.fakes.fake_terminal import FakeTerminal
from tests.fakes.fake_web import FakeWeb
from tests.fakes.memory_files import MemoryFileSystem
from tests.fakes.scripted_provider import ScriptedProvider, say

pytestmark = pytest.mark.anyio


class Judge(Gate):
    """Remembers the arguments it judged; refuses paths below /project/closed."""

    def __init__(self) -> None:
        self.judged: list[JsonObject | None] = []
        self.seen: list[CallFacts] = []
        self.hidden: set[str] = set()

    def allows(self, spec: ToolSpec) -> bool:
        return spec.name not in self.hidden

    def judge(self, facts: CallFacts) -> Verdict:
        self.judged.append(facts.call.arguments)
        self.seen.append(facts)
        closed = any("closed" in str(subject) for subject in facts.subjects)
        return Deny("closed") if closed else Approved(ApprovedBy.AUTO)


class Session:
    """The real tools over files in memory, and a mender that gives what a test says."""

    def __init__(self, *answers: JsonObject | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[ToolCall, ToolSpec, ToolFailure]] = []
        self.unseen: list[ToolResult] = []
        self.events: list[Event] = []
        self.files = MemoryFileSystem({"a.txt": "hello\n", "closed/b.txt": "no\n"})
        self.gate = Judge()
        self.executor = self.tools(ArgumentRepairer(self._mend, "acme:small"))

    def tools(self, repairer: ArgumentRepairer) -> DynExecutor:
        gates = Gates((self.gate,))
        backends = Backends(self.files, FakeTerminal({}), FakeTerminal({}), FakeWeb())
        return DynExecutor(
            Registry(default_tools()),
            GatedExecutor(gates, ToolRunner(backends, "/project", self._emit)),
            gates,
            files=self.files,
            emit=self._emit,
            misunderstood=lambda call, result, seconds: self.unseen.append(result),
            repairer=repairer,
        )

    async def _emit(self, event: Event) -> None:
        self.events.append(event)

    async def _mend(self, call: ToolCall, spec: ToolSpec, failure: ToolFailure) -> JsonObject | None:
        self.asked.append((call, spec, failure))
        return self.answers.pop(0)

    async def run(self, name: str, arguments: JsonObject | None, **more: Any) -> ToolResult:
        return await self.executor.run(ToolCall("id-1", name, arguments, **more))


async def test_a_mended_call_runs_and_everybody_sees_the_arguments_that_ran():
    session = Session({"path": "a.txt"})
    result = await session.run("read", {"file": "a.txt", "path": 3})
    assert result.failure is None
    assert "hello" in result.text
    assert "[arguments repaired: yours did not fit (" in result.text
    assert result.text.endswith('so the call was made with {"path": "a.txt"}]')
    assert "repaired" not in result.shown
    notice, started, finished = session.events
    assert isinstance(notice, Notice)
    assert notice.text == "read: the arguments did not fit and were repaired by acme:small"
    assert isinstance(started, ToolStarted)
    assert started.raw_input == {"path": "a.txt"}
    assert isinstance(finished, ToolFinished)
    assert session.gate.judged == [{"path": "a.txt"}]
    assert [facts.repaired for facts in session.gate.seen] == [True]
    assert not session.unseen


async def test_a_mended_call_that_changes_something_is_asked_about_and_one_that_does_not_is_not():
    session = Session({"path": "new.txt", "content": "x"}, {"path": "a.txt"})
    assert (await session.run("write", {"file": "new.txt", "content": ["x"]})).failure is None
    assert (await session.run("read", {"path": 3})).failure is None
    write, read = session.gate.seen
    assert [ask.reason for ask in write.asks] == ["the arguments did not fit and were repaired by acme:small"]
    assert read.asks == []


async def test_a_call_that_could_not_be_mended_is_no_news():
    session = Session(None)
    await session.run("read", {"path": 3})
    assert not any(isinstance(event, Notice) for event in session.events)


async def test_text_that_is_no_json_is_mended_too_and_by_an_alias():
    session = Session({"path": "a.txt"})
    result = await session.run("Read_File", None, raw_arguments='{"path": "a.txt"')
    assert "hello" in result.text
    [(call, spec, failure)] = session.asked
    assert call.raw_arguments == '{"path": "a.txt"'
    assert [facts.call.raw_arguments for facts in session.gate.seen] == [""], "what ran is not what the model wrote"
    assert spec.name == "read"
    assert failure.category is ToolErrorCategory.INVALID_PARAMETERS


async def test_gates_judge_a_mended_call_like_any_other():
    session = Session({"path": "closed/b.txt"})
    result = await session.run("read", {"path": 3})
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert result.text.startswith("[error] ")
    assert "arguments repaired" in result.text


@pytest.mark.parametrize("answer", [None, {"path": 4}, {}])
async def test_there_is_one_attempt_and_the_model_hears_of_its_own_mistake(answer):
    session = Session(answer)
    result = await session.run("read", {"path": 3})
    assert len(session.asked) == 1
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.TYPE_MISMATCH
    assert "mended" not in result.text
    assert session.unseen == [result]
    assert not session.gate.seen
    started = session.events[0]
    assert isinstance(started, ToolStarted)
    assert started.raw_input == {"path": 3}


async def test_nobody_mends_what_the_user_typed_a_tool_that_is_not_there_or_one_the_model_may_not_use():
    session = Session()
    session.gate.hidden.add("write")
    for name, arguments, more in (
        ("read", {"path": 3}, {"origin": CallOrigin.USER}),
        ("no_such_tool", {"path": 3}, {}),
        ("write", {"path": 3}, {}),
    ):
        assert (await session.run(name, arguments, **more)).failure is not None
    assert not session.asked


async def test_a_call_that_fits_is_nobodys_business():
    session = Session()
    assert "hello" in (await session.run("read", {"path": "a.txt"})).text
    assert not session.asked


async def test_a_mended_call_keeps_its_phase_whatever_a_model_writes_into_it():
    session = Session({"path": "a.txt", "phase": "autonomous"}, {"path": "a.txt"})
    assert (await session.run("read", {"path": 3})).failure is not None  # `phase` is no argument of any tool
    assert (await session.run("read", {"path": 3})).failure is None
    assert [facts.call.phase for facts in session.gate.seen] == [Phase.EXECUTOR]


def test_long_reasons_and_arguments_are_cut_and_stay_on_one_line():
    told = RepairedArguments("no\nfit " * 500, {"content": "x\n" * 5000}).told_in(ToolResult("fine", display="shown"))
    note = told.text.removeprefix("fine\n\n")
    assert "\n" not in note
    assert len(note) < 1200
    assert told.display == "shown"


async def test_a_model_mends_what_another_got_wrong():
    provider = ScriptedProvider([say('```json\n{"path": "a.txt"}\n```')])

    async def model() -> ScriptedProvider:
        return provider

    session = Session()
    session.executor = session.tools(ArgumentRepairer(Reformatter("scripted:x", model, lambda text: text)))
    result = await session.run("read", {"path": ["a.txt"]})
    assert "hello" in result.text
    [request] = provider.requests
    assert '"arguments": "{\\"path\\": [\\"a.txt\\"]}"' in request.messages[0].text
    assert request.max_tokens is not None


def test_the_failure_is_not_changed_by_being_told():
    failed = ToolResult.failed(ToolFailure(ToolErrorCategory.TIMEOUT, "slow"))
    assert replace(RepairedArguments("x", {}).told_in(failed), text="", display=None) == replace(
        failed, text="", display=None
    )
