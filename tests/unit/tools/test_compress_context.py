"""compress_context: what the model asks of the conversation it is in."""

from dataclasses import replace

import pytest

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.types import ToolKind
from acp_agent.tools.conversation import CompressContext
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio


class Compressed:
    """A Compressor that writes down what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def compress(self, focus: str) -> str:
        self.asked.append(focus)
        return "Summed up 4 older messages."


async def compress(compressor: Compressed | None, **arguments: object) -> str:
    bench = Workbench(tools=[CompressContext()])
    invocation = await bench.understand("compress_context", **arguments)
    context = bench.context(invocation)
    backends = replace(context.backends, compressor=compressor)
    result = await invocation.run(replace(context, backends=backends))
    return result.text


async def test_the_conversation_is_asked_with_the_models_focus() -> None:
    compressor = Compressed()
    assert await compress(compressor, focus="the parser") == "Summed up 4 older messages."
    assert await compress(compressor) == "Summed up 4 older messages."
    assert compressor.asked == ["the parser", ""]


async def test_where_it_is_off_the_call_fails_and_says_so() -> None:
    with pytest.raises(ToolError, match="off") as caught:
        await compress(None)
    assert caught.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE


async def test_a_focus_without_an_end_is_refused() -> None:
    with pytest.raises(ToolError, match="focus") as caught:
        await compress(Compressed(), focus="x" * 501)
    assert caught.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS


def test_it_changes_nothing_of_the_users_and_is_never_answered_from_the_cache() -> None:
    spec = CompressContext().spec()
    assert (spec.kind, spec.mutates, spec.cacheable) == (ToolKind.OTHER, False, False)
