"""What a model may have made up is told, and never blocked."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import Event, Notice
from acp_agent.core.ports import Invocation
from acp_agent.core.types import (
    Access,
    CallOrigin,
    CommandSubject,
    Deny,
    PathSubject,
    Phase,
    Ruling,
    ToolResult,
    UrlSubject,
    Verdict,
)
from acp_agent.execution.runner import GatedExecutor
from acp_agent.gates.gate import CallFacts, Gate, Gates
from acp_agent.gates.grounding import GroundingGate, Mentioned, exists_in
from tests.fakes.memory_files import MemoryFileSystem
from tests.rows import each_row
from tests.unit.gates.chain import call

pytestmark = pytest.mark.anyio

UUID = "0d5e8400-e29b-41d4-a716-446655440000"
NOT_FOUND = ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "no such file: invented.py"))


class Inner:
    """Answers with what a test says."""

    def __init__(self) -> None:
        self.result = ToolResult("fine")
        self.runs = 0

    async def execute(self, facts: CallFacts) -> ToolResult:
        self.runs += 1
        return self.result


class Refusing(Gate):
    name = "refusing"

    def judge(self, facts: CallFacts) -> Verdict:
        return Deny("no")


class Session:
    def __init__(self, *behind: Gate) -> None:
        self.inner = Inner()
        self.mentioned = Mentioned()
        self.events: list[Event] = []
        self.facts: CallFacts | None = None
        files = MemoryFileSystem({"src/a.py": "", "README.md": ""})
        self.gates = Gates((GroundingGate(self.mentioned, exists_in(files), self._emit), *behind))

    async def _emit(self, event: Event) -> None:
        self.events.append(event)

    async def run(self, invocation: Invocation, result: ToolResult | None = None) -> ToolResult:
        self.inner.result = result or self.inner.result
        self.facts = self.gates.facts(invocation)
        return await GatedExecutor(self.gates, self.inner).execute(self.facts)

    async def suspects(self, invocation: Invocation, result: ToolResult | None = None) -> bool:
        given = await self.run(invocation, result)
        assert self.facts is not None
        told = [bool(self.events), "[hallucination_suspect]" in given.text, bool(self.facts.suspects)]
        assert len(set(told)) == 1, "the user, the model and the audit are told, or nobody is"
        self.events.clear()
        return told[0]


def reading(path: str, access: Access = Access.READ, **more: Any) -> Invocation:
    return call("read", PathSubject(path, access), arguments={"path": path}, **more)


# ---------------------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize("access", [Access.READ, Access.LIST, Access.MOVE, Access.DELETE])
async def test_a_path_that_is_not_there_and_nobody_mentioned_is_suspect(access):
    session = Session()
    assert await session.suspects(reading("src/invented.py", access), NOT_FOUND)
    assert not await session.suspects(reading("src/a.py", access), ToolResult("fine"))


async def test_what_is_told_names_the_path_and_the_call_runs_all_the_same():
    session = Session()
    result = await session.run(reading("src/invented.py"), NOT_FOUND)
    assert session.inner.runs == 1
    assert result.failure == NOT_FOUND.failure
    assert result.text.startswith(NOT_FOUND.text)
    assert result.text.endswith(
        "[hallucination_suspect] src/invented.py is not there, and nobody has mentioned it. "
        "Check where you have this from before you build on it."
    )
    [notice] = session.events
    assert isinstance(notice, Notice)
    assert "src/invented.py" in notice.text
    assert "hallucination" not in result.shown
    assert session.mentioned.status() == ("Hallucination detection: 1 calls suspected",)


async def test_a_path_the_user_or_a_result_mentioned_is_not_made_up():
    session = Session()
    session.mentioned.learn("Please make a file named Planned.py, as in docs/.")
    assert not await session.suspects(reading("src/planned.py"), NOT_FOUND)
    await session.run(call("bash", CommandSubject("ls gone"), arguments={"command": "ls gone"}), ToolResult("old.txt"))
    assert not await session.suspects(reading("gone/old.txt"), NOT_FOUND)


async def test_what_an_error_says_of_the_calls_own_words_makes_nothing_known():
    session = Session()
    assert await session.suspects(reading("invented.py"), NOT_FOUND)
    assert await session.suspects(reading("invented.py"), NOT_FOUND)


async def test_a_new_file_is_judged_by_its_folder():
    session = Session()
    assert not await session.suspects(reading("src/new.py", Access.WRITE))
    assert not await session.suspects(reading("new.py", Access.WRITE))
    assert await session.suspects(reading("made/up/new.py", Access.WRITE))
    session.mentioned.learn("put it into made/up")
    assert not await session.suspects(reading("made/up/new.py", Access.WRITE))


async def test_an_edit_wants_the_file_itself():
    session = Session()
    both = (PathSubject("src/new.py", Access.READ), PathSubject("src/new.py", Access.WRITE))
    assert await session.suspects(call("edit", *both), NOT_FOUND)


async def test_what_lies_outside_nobody_can_tell():
    session = Session()
    assert not await session.suspects(reading("/elsewhere/invented.py"), NOT_FOUND)
    assert not await session.suspects(reading("../invented.py"), NOT_FOUND)
    assert not await session.suspects(reading("."))
    assert not await session.suspects(reading("/"))
    assert not await session.suspects(reading(""))


async def test_a_call_that_a_gate_ended_tells_the_model_nothing_of_what_is_there():
    session = Session(Refusing())
    result = await session.run(reading("src/invented.py"))
    assert result == ToolResult.refused("no", ruling=Ruling("refusing"))
    assert not session.inner.runs
    assert session.facts is not None
    assert session.facts.suspects


# ------------------------------------------------------------------------------------ addresses, identifiers


async def test_an_address_is_suspect_when_it_gives_nothing_and_its_host_was_never_mentioned():
    failed = ToolResult.failed(ToolFailure(ToolErrorCategory.NETWORK_ERROR, "no such host: docs.invented.example"))
    session = Session()
    invocation = call(
        "fetch", UrlSubject("https://docs.invented.example/x"), arguments={"url": "https://docs.invented.example/x"}
    )
    assert not await session.suspects(invocation, ToolResult("a page"))
    assert await session.suspects(invocation, failed)
    session.mentioned.learn("see https://docs.invented.example/y.")
    assert not await session.suspects(invocation, failed)
    broken = call("fetch", UrlSubject("http://[broken"))
    assert not await session.suspects(broken, failed)


@each_row(
    "command, suspect",
    [
        ("git show 3fa9c1e", True),
        (f"curl -d {UUID} x", True),
        ("git show HEAD~3", False),
        ("echo 1234567890", False),
        ("echo facade", False),
        ("sleep 10", False),
    ],
)
async def test_an_identifier_nobody_mentioned_is_suspect(command, suspect):
    session = Session()
    invocation = call("bash", CommandSubject(command), arguments={"command": command})
    assert await session.suspects(invocation) == suspect


async def test_a_digest_may_be_mentioned_longer_or_shorter():
    session = Session()
    session.mentioned.learn("commit 3fa9c1e77aa0b1c2d3e4f5061728394a5b6c7d8e")
    for digest in ("3fa9c1e", "3FA9C1E77A", "3fa9c1e77aa0b1c2d3e4f5061728394a5b6c7d8e"):
        assert not await session.suspects(call("bash", CommandSubject(f"git show {digest}")))
    assert await session.suspects(call("bash", CommandSubject("git show 4fa9c1e")))


async def test_an_id_among_the_arguments_counts_where_nothing_is_changed_and_may_be_new_where_something_is():
    session = Session()
    assert await session.suspects(call("grep", arguments={"id": [{"deep": UUID}]}))
    assert not await session.suspects(call("write", arguments={"content": UUID}))


async def test_many_made_up_things_are_told_briefly():
    session = Session()
    command = " ".join(f"{number:08x}-e29b-41d4-a716-446655440000" for number in range(10_000))
    result = await session.run(call("bash", CommandSubject(command)))
    assert len(result.text) < 600


# ------------------------------------------------------------------------------------------------ who, and how


async def test_what_the_user_typed_or_the_agent_itself_does_is_not_suspect_but_is_learned():
    session = Session()
    assert not await session.suspects(reading("src/x.py", origin=CallOrigin.USER), ToolResult("see later.py"))
    made = reading("src/x.py")
    verifier = replace(made, call=replace(made.call, phase=Phase.VERIFIER))
    assert not await session.suspects(verifier)
    assert not await session.suspects(reading("later.py"), NOT_FOUND)


async def test_a_deep_argument_is_no_trouble():
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert not await Session().suspects(call("grep", arguments={"a": deep}))


def test_memory_is_bounded_and_can_be_cleared():
    mentioned = Mentioned()
    for start in range(0, 120_000, 1000):
        mentioned.learn(" ".join(f"word{number}" for number in range(start, start + 1000)))
    assert len(mentioned._words) == 100_000
    assert not mentioned.has("word1")
    assert mentioned.has("word119999")
    mentioned.clear()
    assert not mentioned.has("word119999")


@given(st.text())
def test_any_text_can_be_learned_and_then_is_mentioned(text):
    mentioned = Mentioned()
    mentioned.learn(text)
    assert mentioned.has(text)


@given(st.lists(st.text("0af", min_size=7, max_size=12), max_size=12), st.data())
def test_an_identifier_is_found_by_its_beginning_whatever_was_learnt_and_forgotten(known, data):
    mentioned = Mentioned(most_words=5)
    kept: dict[str, None] = {}
    for word in known:
        mentioned.learn(word)
        kept.pop(word, None)
        kept[word] = None
        asked = data.draw(st.text("0af", min_size=7, max_size=12))
        left = [*kept][-5:]
        assert mentioned.has_identifier(asked) == any(each.startswith(asked) or asked.startswith(each) for each in left)


def test_looking_for_an_identifier_touches_few_of_the_digests():
    class Counted(str):
        __slots__ = ()

        def startswith(self, *_: Any) -> bool:
            looked.append(self)
            return super().startswith(*_)

    looked: list[str] = []
    mentioned = Mentioned()
    mentioned.learn(" ".join(f"{number:07x}{number:033x}" for number in range(2400)))
    assert mentioned.has_identifier("0000000")
    for beginning, digests in mentioned._digests.items():
        mentioned._digests[beginning] = set(map(Counted, digests))
    assert not mentioned.has_identifier("fffffff")
    assert len(looked) <= 1


def test_a_digest_that_was_forgotten_is_not_found_by_its_beginning():
    mentioned = Mentioned(most_words=2)
    mentioned.learn("0123456789abcdef")
    assert mentioned.has_identifier("0123456")
    mentioned.learn("one two")
    assert not mentioned.has_identifier("0123456")
    assert not mentioned._digests
