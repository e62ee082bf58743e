"""Outputs of a gigabyte, end to end: the memory of the agent does not grow with them."""

import pytest

from tests.e2e.model_servers import Thought
from tests.e2e.thoughts import Mind, inside, peak, thinking
from tests.fakes.editor import NOTHING, TERMINAL_ONLY

pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(300)]

GIGABYTE = {
    "short lines": "yes 'a line that never stops' | head -c 1000000000; echo the end",
    "one line": "head -c 1000000000 /dev/zero | tr '\\0' x; echo the end",
    "characters of three bytes": "yes '漢漢漢漢漢漢漢漢' | tr -d '\\n' | head -c 1000000000; echo the end",
    "invalid": "yes $'\\xff\\xfe' | head -c 1000000000; echo the end",
}


@pytest.mark.parametrize("kind", GIGABYTE)
async def test_a_gigabyte_costs_less_than_64_mebibytes_of_memory_and_shows_its_end(tmp_path, kind):
    mind, peaks = Mind(), list[int]()

    def talk() -> Thought:
        yield from mind.run("seq 300")
        yield "now the giant"
        yield from mind.call(("bash", {"command": GIGABYTE[kind], "timeout": 200}))

    async with thinking(tmp_path, talk(), capabilities=NOTHING) as (editor, _):
        session = await editor.open()
        for _ in range(2):
            await editor.prompt(session, "go")  # takes its time
            peaks.append(peak(editor.agent.pid))
    said = mind.said[1]
    assert inside(said).endswith("the end")
    assert len(said.encode()) < 18 * 1024
    assert "[output truncated]" in said
    assert peaks[1] - peaks[0] < 64 * 1024 * 1024


async def test_a_hundred_megabytes_in_an_editors_terminal_are_read_to_their_end(tmp_path):
    mind = Mind()
    command = "yes 'a line that never stops' | head -c 100000000; echo the end"
    async with thinking(tmp_path, mind.run(command), capabilities=TERMINAL_ONLY) as (editor, _):
        assert await editor.prompt(await editor.open(), "go") == "end_turn"
    assert inside(mind.said[0]).endswith("the end")
    assert editor.call.final["rawOutput"]["truncated"] is True
