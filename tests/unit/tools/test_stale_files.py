"""write and edit of a file that others changed since the session read or wrote it."""

from dataclasses import replace

import pytest

from acp_agent.core.types import CallingAgent
from tests.unit.tools.workbench import Workbench, call

pytestmark = pytest.mark.anyio

OLD = "alpha\nbeta\n"
EDIT = {"path": "a", "old_string": "beta", "new_string": "BETA"}


@pytest.fixture
async def bench() -> Workbench:
    """A session that has read `a`, which then changed."""
    bench = Workbench({"a": OLD})
    await bench.run("read", path="a")
    bench.files.put("a", "alpha\nbeta\ngamma\n")
    return bench


@pytest.mark.parametrize(("name", "arguments"), [("edit", EDIT), ("write", {"path": "a", "content": "mine\n"})])
async def test_a_changed_file_is_refused_once_with_what_changed(bench: Workbench, name: str, arguments: dict[str, str]):
    invocation = await bench.understand(name, **arguments)
    assert invocation.predicted_failure is not None, "the user is not asked"
    assert "a was changed since you last read or wrote it" in invocation.predicted_failure.text
    assert "\n+gamma" in invocation.predicted_failure.text
    refused = await bench.execute(invocation)
    assert refused == invocation.predicted_failure, "the model reads the changes, also where nobody is asked"
    assert refused.failure is not None
    assert bench.files.text("a") == "alpha\nbeta\ngamma\n"

    await bench.run(name, **arguments)
    assert bench.files.text("a") == ("alpha\nBETA\ngamma\n" if name == "edit" else "mine\n")


async def test_a_whole_file_is_not_written_by_the_message_that_holds_the_refused_call(bench: Workbench):
    whole = {"path": "a", "content": "mine\n"}
    for batch, wanted in (("one", "alpha\nbeta\ngamma\n"), ("two", "mine\n")):
        calls = [replace(call(name, args), batch=batch) for name, args in (("edit", EDIT), ("write", whole))]
        made = [await bench.registry.understand(each, bench.files) for each in (calls if batch == "one" else calls[1:])]
        results = [await bench.execute(each) for each in made]
        assert bench.files.text("a") == wanted, "the model has not read yet what changed" if batch == "one" else ""
    assert results[-1].failure is None


async def test_what_changed_between_windows_line_ends_is_shown_without_them(bench: Workbench):
    bench.files.put("w", "a\r\nb\r\nc\r\n")
    await bench.run("read", path="w")
    bench.files.put("w", "a\r\nB\r\nc\r\n")
    refused = await bench.run("edit", path="w", old_string="c", new_string="d")
    assert refused.text.endswith("\n a\n-b\n+B\n c\n ")


async def test_an_edit_whose_text_others_removed_shows_what_changed_not_a_near_miss(bench: Workbench):
    bench.files.put("a", "alpha\n")
    invocation = await bench.understand("edit", **EDIT)
    assert invocation.predicted_failure is not None
    assert "-beta" in invocation.predicted_failure.text


async def test_reading_it_again_is_enough(bench: Workbench):
    await bench.run("read", path="a", limit=1)
    await bench.run("edit", **EDIT)


async def test_the_sessions_own_changes_are_no_change():
    bench = Workbench()
    await bench.run("write", path="a", content=OLD)
    await bench.run("edit", **EDIT)
    await bench.run("edit", path="a", old_string="BETA", new_string="b")
    await bench.run("write", path="a", content="new\n")
    assert bench.files.text("a") == "new\n"


async def test_a_file_that_was_never_read_is_edited():
    bench = Workbench({"a": OLD})
    await bench.run("edit", **EDIT)


async def test_writing_what_is_there_already_is_no_conflict(bench: Workbench):
    await bench.run("write", path="a", content="alpha\nbeta\ngamma\n")


async def test_a_deleted_file_is_written_anew(bench: Workbench):
    bench.files.remove("a")
    await bench.run("write", path="a", content="new\n")


async def test_a_long_difference_is_cut(bench: Workbench):
    bench.files.put("a", "new\n" * 500)
    failure = (await bench.understand("edit", **EDIT)).predicted_failure
    assert failure is not None
    assert failure.text.count("\n+new") < 61
    assert "read the file for the rest" in failure.text


async def test_a_file_that_the_session_moved_is_still_known_under_its_new_name(bench: Workbench):
    await bench.run("move_path", source="a", destination="b")
    failure = (await bench.understand("edit", **EDIT | {"path": "b"})).predicted_failure
    assert failure is not None
    assert "\n+gamma" in failure.text


@pytest.mark.parametrize("how", ["delete_path", "copy_path"])
async def test_what_the_session_deleted_or_copied_to_a_path_is_not_compared_with_what_was_there(how: str):
    bench = Workbench({"a": OLD, "new": "alpha\nbeta\nnew\n"})
    await bench.run("read", path="a")
    if how == "delete_path":
        await bench.run("delete_path", path="a")
        bench.files.put("a", "alpha\nbeta\nnew\n")
    else:
        bench.files.remove("a")  # by a command
        await bench.run("copy_path", source="new", destination="a")
    await bench.run("edit", **EDIT)
    assert bench.files.text("a") == "alpha\nBETA\nnew\n"


SUB_AGENT = CallingAgent("general-1", "general", "card")


@pytest.mark.parametrize("reader", [None, SUB_AGENT])
async def test_a_whole_file_that_another_agent_has_changed_is_refused_once(reader: CallingAgent | None):
    bench = Workbench({"a": OLD})
    bench.agent = reader
    await bench.run("read", path="a")
    bench.agent = None if reader else SUB_AGENT
    await bench.run("edit", **EDIT)
    await bench.run("write", path="a", content="alpha\nBETA\nmore\n")
    bench.agent = reader
    invocation = await bench.understand("write", path="a", content="mine\n")
    assert invocation.predicted_failure is not None, "the user is not asked"
    assert "a was changed since you last read or wrote it" in invocation.predicted_failure.text
    assert invocation.diffs == ()
    assert (await bench.execute(invocation)).failure == invocation.predicted_failure.failure
    assert bench.files.text("a") == "alpha\nBETA\nmore\n"
    await bench.run("write", path="a", content="mine\n")
    assert bench.files.text("a") == "mine\n"


async def test_edits_of_several_agents_in_one_file_need_no_further_look():
    bench = Workbench({"a": OLD})
    await bench.run("read", path="a")
    bench.agent = SUB_AGENT
    await bench.run("edit", path="a", old_string="alpha", new_string="ALPHA")
    bench.agent = None
    await bench.run("edit", **EDIT)
    assert bench.files.text("a") == "ALPHA\nBETA\n"


async def test_a_file_that_others_changed_is_refused_once_and_not_once_more(bench: Workbench):
    assert (await bench.run("write", path="a", content="mine\n")).failure is not None
    await bench.run("write", path="a", content="mine\n")
    assert bench.files.text("a") == "mine\n"


async def test_an_agent_that_has_not_seen_a_file_may_replace_it():
    bench = Workbench({"a": OLD})
    await bench.run("read", path="a")
    bench.agent = SUB_AGENT
    await bench.run("write", path="a", content="mine\n")
    assert bench.files.text("a") == "mine\n"
