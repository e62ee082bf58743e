"""The calls the agent makes by itself: which, when, with which phase, and what becomes of them."""

from itertools import product
from pathlib import Path

import anyio
import pytest

from acp_agent.agent.aids.phases import SECONDS, PhaseCalls, RememberedSummaries
from acp_agent.agent.hooks import Received
from acp_agent.agent.tool_calls import ToolCalls
from acp_agent.core.errors import StoreUnavailable, ToolErrorCategory, ToolFailure
from acp_agent.core.messages import Message, Role, TextPart, ToolUsePart
from acp_agent.core.services import Compaction, Summary
from acp_agent.core.types import CallOrigin, Diff, Phase, ToolCall, ToolResult
from acp_agent.store.memories import SECONDS as EMBEDDING_SECONDS
from acp_agent.store.memories import MemoryStore
from tests.fakes.fake_toolset import FakeToolset
from tests.rows import each_row
from tests.unit.store.databases import opened

pytestmark = pytest.mark.anyio

NOTES = ToolResult("[note 1, 2026-11-01] uses tabs", envelope={"ids": ["1"], "method": "words"})
PROBLEMS = ToolResult("1 error\na.py:1:1: error: no", envelope={"diagnostics": [{"file": "a.py"}], "total": 1})
EDITED = (ToolUsePart("u1", "edit", {}), ToolResult("done", diffs=(Diff("/p/a.py", "a", "b"),)))


def said(text: str) -> Message:
    return Message(Role.USER, (TextPart(text),))


class Kept:
    """Keeps summaries, or fails to."""

    def __init__(self, *, works: bool = True) -> None:
        self.works = works
        self.summaries: list[Summary] = []

    async def add(self, summary: Summary) -> None:
        if not self.works:
            raise StoreUnavailable("the disk is full")
        self.summaries.append(summary)


def failed(category: ToolErrorCategory) -> ToolResult:
    return ToolResult.failed(ToolFailure(category, "no"))


def toolset(**answers: ToolResult) -> FakeToolset:
    return FakeToolset({name: lambda call, result=result: result for name, result in answers.items()})


async def test_the_memory_is_searched_for_the_prompt_before_the_first_inference():
    tools, phases = toolset(memory_search=NOTES), PhaseCalls()
    told = await phases.before_first_inference(said(" Fix\n the  tests "), tools)
    assert told == "[the agent itself has called memory_search; it says:]\n[note 1, 2026-11-01] uses tabs"
    [call] = tools.calls
    assert (call.name, call.arguments, call.phase) == ("memory_search", {"query": "Fix the tests"}, Phase.PLANNER)
    assert call.id
    assert call.batch
    assert call.origin is CallOrigin.MODEL  # nobody typed it: it counts and is judged like the model's


async def test_where_nothing_is_remembered_nothing_is_told():
    tools = toolset(memory_search=ToolResult("No notes"))
    assert await PhaseCalls().before_first_inference(said("x"), tools) is None
    assert await PhaseCalls().before_first_inference(said("  \n"), tools) is None
    assert len(tools.calls) == 1


async def test_a_tool_the_session_does_not_offer_is_not_called():
    tools, phases = toolset(read=ToolResult("x")), PhaseCalls()
    assert await phases.before_first_inference(said("x"), tools) is None
    assert await phases.after_round([EDITED], tools) is None
    await phases.compacted("summary", tools)
    assert not tools.calls


async def test_a_round_that_changed_files_is_checked_and_complaints_are_told():
    tools = toolset(diagnostics=PROBLEMS)
    told = await PhaseCalls().after_round([EDITED], tools)
    assert told is not None
    assert told.endswith("a.py:1:1: error: no")
    assert [(call.name, call.phase) for call in tools.calls] == [("diagnostics", Phase.VERIFIER)]


@pytest.mark.parametrize(
    ("outcome", "checked"),
    [
        (EDITED, True),
        ((ToolUsePart("u", "mv", {}), ToolResult("moved")), True),
        ((ToolUsePart("u", "read", {}), ToolResult("text")), False),
        ((ToolUsePart("u", "bash", {}), ToolResult("text")), False),
        ((ToolUsePart("u", "edit", {}), failed(ToolErrorCategory.PERMANENT_FAILURE)), False),
    ],
)
async def test_only_changed_files_are_a_reason_to_check(outcome, checked):
    tools = toolset(diagnostics=ToolResult("No problems found.", envelope={"diagnostics": []}))
    assert await PhaseCalls().after_round([outcome], tools) is None
    assert bool(tools.calls) == checked


@each_row("category", ToolErrorCategory)
async def test_a_check_that_was_refused_is_not_tried_again_until_the_conversation_begins_anew(category):
    tools, phases = toolset(diagnostics=failed(category)), PhaseCalls()
    for _ in range(3):
        assert await phases.after_round([EDITED], tools) is None
    refused = category in (ToolErrorCategory.POLICY_BLOCKED, ToolErrorCategory.CONFIRMATION_REQUIRED)
    assert len(tools.calls) == (1 if refused else 3)
    phases.clear()
    await phases.after_round([EDITED], tools)
    assert len(tools.calls) == (2 if refused else 4)


async def test_a_summary_goes_to_the_memory_in_the_autonomous_phase():
    tools, phases = toolset(memory_save=ToolResult("Saved")), PhaseCalls()
    await phases.compacted("  what was done \n", tools)
    await phases.compacted("   ", tools)
    assert [call.phase for call in tools.calls] == [Phase.AUTONOMOUS]
    assert tools.calls[0].arguments == {"content": "[summary of a conversation] what was done"}
    assert phases.status() == ("Phases: planner 0, verifier 0, autonomous 1 calls",)


@each_row(
    "summary, note_bytes",
    product(
        ["x" * 50_000, "日本語👍" * 5_000, "\udc80" * 9_000, "é", "kurz"], [100, 101, 102, 103, 8 * 1024, 64 * 1024]
    ),
)
async def test_a_summary_in_any_script_is_one_the_memory_takes(tmp_path: Path, summary: str, note_bytes: int):
    async with opened(tmp_path / "agent.db") as database:
        store = MemoryStore(database, max_notes=5, max_bytes=note_bytes)

        async def save(call: ToolCall) -> str:
            assert call.arguments is not None
            return (await store.save(str(call.arguments["content"])))[0].id

        await PhaseCalls(note_bytes=note_bytes).compacted(summary, FakeToolset({"memory_save": save}))
        [note] = await store.search("", 5)
    words = note.content.removeprefix("[summary of a conversation] ")
    assert words
    assert summary.encode("utf-8", "replace").decode().startswith(words)
    whole = len(summary.encode("utf-8", "replace")) + 28 <= note_bytes
    assert whole or len(note.content.encode()) > note_bytes - 4


async def test_what_is_searched_for_is_redacted_before_it_is_cut():
    secret = "obviously-fake-passphrase"
    tools = toolset(memory_search=NOTES)
    phases = PhaseCalls(redact=lambda text: text.replace(f"{secret}\n{secret}", "[REDACTED:known]"))
    await phases.before_first_inference(said("x" * 990 + f" {secret}\n{secret}"), tools)
    assert tools.calls[0].arguments == {"query": "x" * 990 + " [REDACTED"}


def test_the_search_by_meaning_gives_up_well_before_the_planner_does():
    assert 0.7 * SECONDS[Phase.PLANNER] >= 2 * EMBEDDING_SECONDS


async def test_a_summary_is_kept_and_remembered_whichever_of_the_two_works():
    summary = Summary("what was done", Compaction.TRIGGERED, 8, 900)
    tools, kept = toolset(memory_save=ToolResult("Saved")), Kept()
    await RememberedSummaries(kept, PhaseCalls(), lambda: tools).add(summary)
    await RememberedSummaries(None, PhaseCalls(), lambda: tools).add(summary)
    with pytest.raises(StoreUnavailable):
        await RememberedSummaries(Kept(works=False), PhaseCalls(), lambda: tools).add(summary)
    assert kept.summaries == [summary]
    assert len(tools.calls) == 3
    await RememberedSummaries(kept, PhaseCalls(), lambda: toolset(memory_save=failed(ToolErrorCategory.TIMEOUT))).add(
        summary
    )
    assert len(kept.summaries) == 2


async def test_a_call_that_takes_too_long_is_given_up():
    async def stuck(call: ToolCall) -> str:
        await anyio.sleep_forever()
        return ""

    tools = FakeToolset({"memory_search": stuck})
    seconds = dict.fromkeys(Phase, 0.01)
    assert await PhaseCalls(seconds).before_first_inference(said("x"), tools) is None
    assert tools.log == [("start", "memory_search")]


async def test_nothing_a_model_sends_names_a_phase():
    tools = FakeToolset({"read": lambda call: "text"})
    use = ToolUsePart("u1", "read", {"phase": "autonomous", "origin": "user"}, '{"phase": "autonomous"}')
    await ToolCalls(Received(Message(Role.ASSISTANT, (use,)))).run(tools, 8)
    [call] = tools.calls
    assert (call.phase, call.origin) == (Phase.EXECUTOR, CallOrigin.MODEL)


def test_one_file_alone_makes_autonomous_calls_and_one_alone_lets_them_through():
    root = Path(__file__).parents[3] / "acp_agent"
    named = {str(file.relative_to(root)) for file in root.rglob("*.py") if "Phase.AUTONOMOUS" in file.read_text()}
    assert named == {"agent/aids/phases.py", "gates/permission.py"}
    made = {str(file.relative_to(root)) for file in root.rglob("*.py") if "phase=phase" in file.read_text()}
    assert made == {"agent/aids/phases.py"}
