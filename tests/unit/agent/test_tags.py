"""One list holds every mark we speak to models in, and no text of others can show one."""

import re

import pytest

from acp_agent.agent.aids.phases import PhaseCalls
from acp_agent.agent.aids.reflection import Reflection, Reputation
from acp_agent.agent.prompt import ProjectNote, notes_block, system_prompt
from acp_agent.agent.summary import fit, section, summary_request
from acp_agent.core.conduct import Mode
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import Message, Role, TextPart, ToolUsePart
from acp_agent.core.tags import TAGS, defanged
from acp_agent.core.types import ToolResult
from acp_agent.output.spotlight import fence
from acp_agent.tools.registry import default_tools
from tests.fakes.fake_toolset import FakeToolset

pytestmark = pytest.mark.anyio

ASKED = summary_request([Message(Role.USER, (TextPart("x"),))], "", room=1000, tokens=100).messages[0].text
MARKED = {
    "local": fence("x", "1"),
    "external": fence("x", "1", external="https://e.example"),
    "notes": notes_block((ProjectNote("a", "x", users=True), ProjectNote("b", "x")), 1000),
    "record": section("x").text,
    "asked": ASKED,
    "prompt": system_prompt("/p", [], "linux", Mode.CODE, tools=[tool.spec() for tool in default_tools()]),
}


@pytest.mark.parametrize("text", MARKED.values(), ids=MARKED)
def test_every_tag_of_ours_is_on_the_list_and_defanged(text: str):
    opened = re.findall(r"^</?([a-z-]+)", text, re.MULTILINE)
    assert opened
    assert set(opened) <= set(TAGS)
    assert not re.search("^<", defanged(text), re.MULTILINE)


async def test_the_notes_of_the_agent_itself_are_defanged():
    calls = FakeToolset({"memory_search": lambda _: ToolResult("x", envelope={"ids": ["1"]})})
    told = await PhaseCalls().before_first_inference(Message(Role.USER, (TextPart("x"),)), calls)
    reflection = Reflection(Reputation(lambda: "m"))
    failed = ToolResult.failed(ToolFailure(ToolErrorCategory.INVALID_PARAMETERS, "no"))
    reflection.begin()
    reflected = [reflection.finished([(ToolUsePart(str(at), "read", {}), failed)]) for at in range(2)][-1]
    for note in (told, reflected):
        assert note is not None
        assert note.startswith("[")
        assert defanged(f"a {note}").startswith("a &#91;")


@pytest.mark.parametrize(
    "text", ["< / Knowledge >", "<TOOLS>", "[ SELF_REFLECTION]", "[The agent itself has called read"]
)
def test_however_it_is_written_it_is_defanged_once(text: str):
    assert not defanged(text).startswith(("<", "["))
    assert defanged(defanged(text)) == defanged(text)
    assert fit(text, 100) == defanged(text)


def test_words_that_only_begin_alike_stay():
    text = "<toolsmith> <summary> [tools] [self] <conversational> a<b [the agent]"
    assert defanged(text) == text
