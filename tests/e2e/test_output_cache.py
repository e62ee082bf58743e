"""The same question twice: answered from memory until something changes, and seen by all the same."""

import json
import os
from pathlib import Path

import pytest

from tests.e2e.model_servers import Thought
from tests.e2e.thoughts import Mind, go, inside, thinking
from tests.fakes.editor import FILES_ONLY, ScriptedEditor
from tests.fakes.forked_agent import CAN_FORK

pytestmark = pytest.mark.anyio

HERE = Path(__file__)
OLD = ("read", {"path": HERE.name, "limit": 3})
"""Of a file that was not changed just now: such a one may change again within the same tick of the disk's clock."""
NEW = ("read", {"path": "a.txt"})


async def go_here(editor: ScriptedEditor) -> None:
    """One turn in the folder of this very file."""
    await editor.initialize()
    assert await editor.say(await editor.new_session(str(HERE.parent)), "go") == "end_turn"


def cached(editor: ScriptedEditor) -> list[bool]:
    """What the audit says of each call, in order."""
    lines = (editor.home.data / "audit.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [record.get("cached", False) for record in records if record["kind"] == "tool"]


async def test_the_second_of_two_equal_reads_is_kept_and_shows_like_the_first_until_a_command_ran(tmp_path):
    mind, command = Mind(), ("bash", {"command": "true"})
    async with thinking(tmp_path, mind.call(OLD, OLD, (OLD[0], OLD[1] | {"offset": 2}), command, OLD)) as (editor, _):
        await go_here(editor)
    assert cached(editor) == [False, True, False, False, False]
    first, second = editor.calls[:2]
    assert first.id != second.id
    assert (second.status, second.text, second.first["title"]) == ("completed", first.text, first.first["title"])
    assert inside(mind.said[0]) == inside(mind.said[1])


async def test_what_somebody_else_changes_between_two_reads_is_seen_even_with_the_times_set_back(tmp_path):
    mind = Mind()

    def change() -> Thought:
        path = editor.workspace / "a.txt"
        yield from mind.run(f"sleep {0.25 if CAN_FORK else 2.1}")  # the file is old enough then
        yield from mind.call(NEW, NEW)
        times = os.stat(path)
        path.write_text("two\n")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        yield from mind.call(NEW)

    async with thinking(tmp_path, change(), short_waits=True) as (editor, _):
        (editor.workspace / "a.txt").write_text("one\n")
        await go(editor)
    assert [inside(said).split()[-1] for said in mind.said[1:]] == ["one", "one", "two"]
    assert cached(editor) == [False, False, True, False]


async def test_where_the_editor_owns_the_buffers_nothing_is_kept(tmp_path):
    mind = Mind()
    async with thinking(tmp_path, mind.call(OLD, OLD), capabilities=FILES_ONLY) as (editor, _):
        await go_here(editor)
    assert cached(editor) == [False, False]
    assert len(editor.requests("fs/read_text_file")) == 2


async def test_kept_answers_count_for_the_doom_loop(tmp_path):
    mind = Mind()
    async with thinking(tmp_path, mind.call(*[OLD] * 8)) as (editor, _):
        await go_here(editor)
    assert "the same tool calls gave the same output" in editor.text
    assert cached(editor) == [False, *[True] * 5]
