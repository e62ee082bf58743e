"""write: new files, replaced files, and what is refused."""

from dataclasses import replace

import pytest

from acp_agent.core.backends import EntryKind
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access, Diff, Location, PathSubject
from acp_agent.tools.registry import ToolLimits, default_tools
from tests.fakes.memory_files import MemoryFileSystem
from tests.rows import each_row
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio


async def test_a_new_file_is_made_with_its_folders():
    bench = Workbench()

    result = await bench.run("write", path="a/b/c.txt", content="hé\n")

    assert bench.files.raw("a/b/c.txt") == "hé\n".encode()
    assert result.text == "Wrote 4 bytes to a/b/c.txt"
    assert result.diffs == (Diff("/project/a/b/c.txt", None, "hé\n"),)
    assert result.locations == (Location("/project/a/b/c.txt", 1),)


async def test_a_replaced_file_shows_its_old_text_and_the_first_changed_line():
    bench = Workbench({"a": "1\n2\n3\n"})

    invocation = await bench.understand("write", path="a", content="1\n2\nthree\n")

    assert invocation.diffs == (Diff("/project/a", "1\n2\n3\n", "1\n2\nthree\n"),)
    assert invocation.locations == (Location("/project/a", 3),)
    assert bench.files.text("a") == "1\n2\n3\n"

    result = await bench.execute(invocation)

    assert result.diffs == invocation.diffs
    assert bench.files.text("a") == "1\n2\nthree\n"


async def test_a_crlf_file_keeps_its_line_ends():
    bench = Workbench({"a": "1\r\n2\r\n"})

    result = await bench.run("write", path="a", content="one\ntwo\n")

    assert bench.files.raw("a") == b"one\r\ntwo\r\n"
    assert result.text == "Wrote 10 bytes to a"


@pytest.mark.parametrize(
    ("old", "content"),
    [
        ("1\r\n2\n", "one\n"),  # mixed before
        ("1\r\n", "one\r\ntwo\n"),  # the model chose its own line ends
        ("1\n", "one\r\n"),
        ("no line end", "one\n"),
    ],
)
async def test_line_ends_are_left_alone_otherwise(old: str, content: str):
    bench = Workbench({"a": old})

    await bench.run("write", path="a", content=content)

    assert bench.files.text("a") == content


async def test_a_byte_order_mark_stays():
    bench = Workbench({"a": b"\xef\xbb\xbfold\n"})

    await bench.run("write", path="a", content="new\n")

    assert bench.files.raw("a") == b"\xef\xbb\xbfnew\n"


@each_row("path", ["binary", "folder", ".", "folder/loop", "file/below", "latin1"])
async def test_what_is_there_but_no_readable_text_is_never_replaced(path: str):
    bench = Workbench({"binary": b"\x7fELF\0", "folder/x": "", "file": "text", "latin1": b"caf\xe9"})
    bench.files.link("folder/loop", "loop")
    invocation = await bench.understand("write", path=path, content="new\n")

    with pytest.raises((ToolError, Refused)):
        await bench.execute(invocation)

    assert invocation.diffs == ()
    assert bench.files.writes == []


async def test_a_folder_that_cannot_be_listed_does_not_pass_for_a_missing_file():
    bench = Workbench({"closed/a": "text"})
    denied = ToolError(ToolErrorCategory.PERMANENT_FAILURE, "closed: permission denied")
    bench.files.fail("closed", denied)
    bench.files.fail("closed/a", denied)

    with pytest.raises(ToolError, match="permission denied"):
        await bench.run("write", path="closed/a", content="new")

    assert bench.files.text("closed/a") == "text"


async def test_a_refused_path_is_refused():
    bench = Workbench()

    with pytest.raises(Refused):
        await bench.run("write", path="/etc/passwd", content="x")


async def test_a_file_changed_after_the_preview_is_not_overwritten():
    bench = Workbench({"a": "old\n"})
    invocation = await bench.understand("write", path="a", content="new\n")
    bench.files.put("a", "somebody else's\n")

    with pytest.raises(ToolError, match="file changed between diff preview and write; aborting") as error:
        await bench.execute(invocation)

    assert error.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    assert bench.files.text("a") == "somebody else's\n"


async def test_a_file_that_appeared_after_the_preview_is_not_overwritten():
    bench = Workbench()
    invocation = await bench.understand("write", path="a", content="new\n")
    bench.files.put("a", "somebody else's\n")

    with pytest.raises(ToolError, match="file changed"):
        await bench.execute(invocation)

    assert bench.files.text("a") == "somebody else's\n"


@pytest.mark.parametrize("old", ["old\n", None])
async def test_a_file_is_not_overwritten_that_changes_after_the_tools_own_look(old: str | None):
    bench = Workbench({} if old is None else {"a": old})
    invocation = await bench.understand("write", path="a", content="new\n")
    context = replace(bench.context(invocation), previewed=())
    looked = bench.files.kind

    class Busy(MemoryFileSystem):
        """Somebody writes right after the tool has looked at what is there."""

        async def kind(self, path: str) -> EntryKind | None:
            return await looked(path)

        async def read_text(self, path: str) -> str:
            return "old\n"

    busy = Busy({"a": "somebody else's\n"})
    with pytest.raises(ToolError, match="a: file changed between diff preview and write; aborting"):
        await invocation.run(replace(context, backends=replace(context.backends, files=busy)))

    assert busy.text("a") == "somebody else's\n"


async def test_a_link_turned_elsewhere_after_the_preview_is_not_followed():
    bench = Workbench({"one": "same\n", "two": "same\n"})
    bench.files.link("a", "one")
    invocation = await bench.understand("write", path="a", content="new\n")
    bench.files.link("a", "two")

    with pytest.raises(ToolError, match="file changed"):
        await bench.execute(invocation)

    assert (bench.files.text("one"), bench.files.text("two")) == ("same\n", "same\n")


async def test_a_nul_is_refused():
    with pytest.raises(ToolError, match="content contains a NUL character at offset 1") as error:
        await Workbench().understand("write", path="a", content="x\0")
    assert error.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS


async def test_too_many_bytes_are_refused_and_counted_as_bytes():
    bench = Workbench(tools=default_tools(ToolLimits(write_bytes=5)))

    await bench.run("write", path="a", content="éé")
    with pytest.raises(ToolError, match="a would be 6 bytes: at most 5 can be written"):
        await bench.run("write", path="a", content="ééé")

    assert bench.files.text("a") == "éé"


@pytest.mark.parametrize(
    ("old", "holds"),
    [
        (None, r"\[REDACTED:api-key\], \[REDACTED\]"),
        ("KEY=sk-not-a-real-key\n", r"\[REDACTED:api-key\], \[REDACTED\]"),
        ("a [REDACTED]\nKEY=sk-not-a-real-key\n", r"\[REDACTED:api-key\]"),
        ("a [REDACTED:api-key]\nb [REDACTED:api-key]", r"\[REDACTED\]"),
    ],
)
async def test_a_placeholder_the_old_text_lacks_is_refused_before_anybody_is_asked(old: str | None, holds: str):
    bench = Workbench({} if old is None else {"a": old})

    invocation = await bench.understand("write", path="a", content="a [REDACTED]\nKEY=[REDACTED:api-key]\n")

    assert invocation.diffs == ()
    assert invocation.predicted_failure is not None
    with pytest.raises(
        ToolError, match=f"the new text of a contains {holds}, which the old text does not contain"
    ) as error:
        await bench.execute(invocation)
    assert error.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert "edit only the text around it" in error.value.failure.suggestion
    assert bench.files.writes == []


async def test_a_placeholder_that_was_there_may_stay():
    bench = Workbench({"a": "KEY=[REDACTED]\n"})

    await bench.run("write", path="a", content="# note\nKEY=[REDACTED]\n")

    assert bench.files.text("a") == "# note\nKEY=[REDACTED]\n"


async def test_the_subject_is_the_path_as_the_model_wrote_it():
    invocation = await Workbench().understand("write", path="./a/../b", content="")

    assert invocation.subjects == (PathSubject("./a/../b", Access.WRITE),)
