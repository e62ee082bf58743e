"""edit: exact or refused."""

from dataclasses import replace

import pytest

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access, Diff, Location, PathSubject
from acp_agent.tools.registry import ToolLimits, default_tools
from tests.fakes.memory_files import MemoryFileSystem
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

SOURCE = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"


async def test_the_one_match_is_replaced_and_shown():
    bench = Workbench({"a.py": SOURCE})

    result = await bench.run(
        "edit", path="a.py", old_string="def g():\n    return 1", new_string="def g():\n    return 2"
    )

    wanted = "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
    assert bench.files.text("a.py") == wanted
    assert result.text == "Edited a.py at line 6"
    assert result.diffs == (Diff("/project/a.py", SOURCE, wanted),)
    assert result.locations == (Location("/project/a.py", 6),)


async def test_an_edit_that_matches_twice_is_refused_and_says_how_many_and_where():
    bench = Workbench({"a.py": SOURCE})

    with pytest.raises(ToolError, match=r"old_string occurs 2 times \(lines 2, 6\)") as error:
        await bench.run("edit", path="a.py", old_string="return 1", new_string="return 2")

    assert error.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    assert "replace_all" in error.value.failure.suggestion
    assert bench.files.text("a.py") == SOURCE


async def test_overlapping_matches_are_two_matches():
    bench = Workbench({"a": "aaa\n"})

    with pytest.raises(ToolError, match=r"occurs 2 times \(line 1\)"):
        await bench.run("edit", path="a", old_string="aa", new_string="b")


async def test_very_many_matches_are_not_all_listed():
    bench = Workbench({"a": "x\n" * 5000})

    with pytest.raises(ToolError, match=r"occurs at least 100 times \(lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …\)"):
        await bench.run("edit", path="a", old_string="x", new_string="y")


async def test_replace_all_replaces_each_match_and_says_how_many():
    bench = Workbench({"a.py": SOURCE})

    result = await bench.run("edit", path="a.py", old_string="return 1", new_string="return 2", replace_all=True)

    assert bench.files.text("a.py") == SOURCE.replace("return 1", "return 2")
    assert result.text == "Edited a.py at line 2: 2 replacements"


async def test_lf_from_the_model_matches_a_crlf_file_and_the_file_keeps_crlf():
    bench = Workbench({"a": b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n"})

    await bench.run("edit", path="a", old_string="one\ntwo\n", new_string="1\n2\n2b\n")

    assert bench.files.raw("a") == b"\xef\xbb\xbf1\r\n2\r\n2b\r\nthree\r\n"


async def test_line_ends_themselves_are_edited_when_the_model_names_them():
    bench = Workbench({"a": "one\r\ntwo\r\n"})

    await bench.run("edit", path="a", old_string="\r\n", new_string="\n", replace_all=True)

    assert bench.files.text("a") == "one\ntwo\n"


async def test_a_change_of_line_ends_only_is_refused_where_the_file_keeps_its_own():
    bench = Workbench({"a": "one\r\ntwo\r\n"})

    with pytest.raises(ToolError, match="only in line ends"):
        await bench.run("edit", path="a", old_string="one\n", new_string="one\r\n")


async def test_a_crlf_from_the_model_does_not_match_lf():
    bench = Workbench({"a": "one\ntwo\n"})

    result = await bench.run("edit", path="a", old_string="one\r\ntwo", new_string="x")

    assert result.failure is not None
    assert result.failure.message.startswith("old_string was not found")
    assert bench.files.text("a") == "one\ntwo\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "x", r"old_string = \"\" \(expected a non-empty string\)"),
        ("same", "same", "old_string and new_string are the same"),
        ("a\0", "b", "old_string contains a NUL"),
        ("a", "b\0", "new_string contains a NUL"),
    ],
)
async def test_arguments_that_cannot_be_meant_are_refused(old: str, new: str, message: str):
    bench = Workbench({"a": "same a\n"})

    with pytest.raises(ToolError, match=message) as error:
        await bench.run("edit", path="a", old_string=old, new_string=new)

    assert error.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert bench.files.text("a") == "same a\n"


async def test_no_match_shows_the_nearest_text_with_its_line_under_the_error_block():
    bench = Workbench({"a.py": SOURCE})

    result = await bench.run("edit", path="a.py", old_string="def g():\n  return 1", new_string="x")

    message = "old_string was not found; the text at line 5 differs only in blanks"
    nearest = "   5\tdef g():\n   6\t    return 1"
    assert result.text == (
        f"[tool_error]\ncategory: permanent_failure\nerror: {message}\n"
        f"suggestion: Copy it exactly, blanks included.\nretryable: false\n{nearest}"
    )
    assert result.shown == f"{message}\n{nearest}"
    assert result.failure is not None
    assert bench.files.writes == []


async def test_copied_line_numbers_are_recognised():
    bench = Workbench({"a.py": SOURCE})

    result = await bench.run("edit", path="a.py", old_string="   1\tdef f():\n   2\t    return 1", new_string="x")

    assert result.failure is not None
    assert "line numbers" in result.failure.suggestion


async def test_an_edit_that_cannot_be_previewed_is_reported_by_the_run():
    bench = Workbench({"a.py": SOURCE})

    invocation = await bench.understand("edit", path="a.py", old_string="nowhere", new_string="x")

    assert (invocation.diffs, invocation.locations) == ((), ())
    result = await bench.execute(invocation)
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    assert result.text == result.failure.block()


async def test_the_preview_changes_nothing_and_says_where():
    bench = Workbench({"a.py": SOURCE})

    invocation = await bench.understand("edit", path="a.py", old_string="def g", new_string="def h")

    assert invocation.diffs == (Diff("/project/a.py", SOURCE, SOURCE.replace("def g", "def h")),)
    assert invocation.locations == (Location("/project/a.py", 5),)
    assert bench.files.writes == []


async def test_a_file_changed_after_the_preview_is_not_edited():
    bench = Workbench({"a.py": SOURCE})
    invocation = await bench.understand("edit", path="a.py", old_string="def g", new_string="def h")
    bench.files.put("a.py", f"# new line\n{SOURCE}")

    with pytest.raises(ToolError, match="file changed between diff preview and write; aborting"):
        await bench.execute(invocation)

    assert bench.files.text("a.py") == f"# new line\n{SOURCE}"


async def test_a_file_that_changes_when_it_was_read_already_is_not_edited():
    class Busy(MemoryFileSystem):
        """Somebody adds a line right after every look."""

        async def read_text(self, path: str) -> str:
            text = await super().read_text(path)
            self.put(path, f"{text}more\n")
            return text

    bench = Workbench(tools=default_tools())
    bench.files = Busy({"a": "x\n"})

    for context in (bench.context(await bench.understand("edit", path="a", old_string="x", new_string="y")), None):
        invocation = await bench.understand("edit", path="a", old_string="x", new_string="y")
        with pytest.raises(ToolError, match="a: file changed between diff preview and write; aborting"):
            await invocation.run(context or replace(bench.context(invocation), previewed=()))

    assert bench.files.writes == []


async def test_what_was_shown_is_not_read_a_second_time_by_the_tool():
    bench = Workbench({"a": "x\n"})

    await bench.run("edit", path="a", old_string="x", new_string="y")

    assert bench.files.reads == ["/project/a"]


async def test_two_edits_in_a_row_on_one_file_work():
    bench = Workbench({"a.py": SOURCE})

    await bench.run("edit", path="a.py", old_string="def f", new_string="def first")
    await bench.run("edit", path="a.py", old_string="def g", new_string="def second")

    assert bench.files.text("a.py") == SOURCE.replace("def f", "def first").replace("def g", "def second")


SECRET = "KEY=sk-not-a-real-key\nMODE=fast\n"


@pytest.mark.parametrize("placeholder", ["[REDACTED]", "[REDACTED:api-key]"])
async def test_a_placeholder_the_old_text_lacks_is_refused_before_anybody_is_asked(placeholder: str):
    bench = Workbench({"a": SECRET})

    invocation = await bench.understand("edit", path="a", old_string="sk-not-a-real-key", new_string=placeholder)

    assert invocation.diffs == ()
    assert invocation.predicted_failure is not None
    assert invocation.predicted_failure.failure is not None
    assert invocation.predicted_failure.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert (
        invocation.predicted_failure.failure.message
        == f"the new text of a contains {placeholder}, which the old text does not contain"
    )
    assert "You saw redacted text" in invocation.predicted_failure.failure.suggestion
    with pytest.raises(ToolError, match="which the old text does not contain"):
        await bench.execute(invocation)
    assert bench.files.text("a") == SECRET


async def test_an_edit_around_a_secret_keeps_the_real_value():
    bench = Workbench({"a": SECRET})

    await bench.run("edit", path="a", old_string="MODE=fast", new_string="MODE=slow")

    assert bench.files.text("a") == "KEY=sk-not-a-real-key\nMODE=slow\n"


async def test_a_placeholder_may_be_moved_but_not_doubled_nor_turned_into_another_kind():
    bench = Workbench({"a": "one [REDACTED:token]\ntwo\n"})

    await bench.run("edit", path="a", old_string="one [REDACTED:token]\ntwo", new_string="one\ntwo [REDACTED:token]")
    assert bench.files.text("a") == "one\ntwo [REDACTED:token]\n"

    for new in ("one [REDACTED:token]", "one [REDACTED:password]", "one [REDACTED]"):
        with pytest.raises(ToolError, match="which the old text does not contain"):
            await bench.run("edit", path="a", old_string="one", new_string=new)
    assert bench.files.text("a") == "one\ntwo [REDACTED:token]\n"


async def test_an_old_string_copied_from_redacted_text_is_told_so_and_shows_nothing_of_the_file():
    bench = Workbench({"a": SECRET})

    invocation = await bench.understand("edit", path="a", old_string="KEY=[REDACTED:api-key]\nMODE", new_string="x")

    assert invocation.predicted_failure is not None
    assert invocation.predicted_failure.failure is not None
    suggestion = invocation.predicted_failure.failure.suggestion
    assert suggestion.startswith("You saw redacted text: [REDACTED:api-key] stands for a value")
    assert "edit around it" in suggestion
    assert "sk-not" not in invocation.predicted_failure.text + invocation.predicted_failure.shown


async def test_a_placeholder_that_really_stands_in_the_file_gets_the_ordinary_advice():
    bench = Workbench({"a": "docs say [REDACTED:token]  here\n"})

    result = await bench.run("edit", path="a", old_string="docs say [REDACTED:token] here", new_string="x")

    assert result.failure is not None
    assert "differs only in blanks" in result.failure.message


async def test_a_file_may_not_grow_over_the_limit():
    bench = Workbench({"a": "x\n"}, tools=default_tools(ToolLimits(write_bytes=10)))

    with pytest.raises(ToolError, match="at most 10"):
        await bench.run("edit", path="a", old_string="x", new_string="x" * 20)


@pytest.mark.parametrize("path", ["missing", "folder", "binary"])
async def test_what_cannot_be_read_cannot_be_edited(path: str):
    bench = Workbench({"folder/x": "", "binary": b"a\0b"})

    with pytest.raises(ToolError, match=path):
        await bench.run("edit", path=path, old_string="a", new_string="b")


async def test_reading_and_writing_are_both_guarded():
    invocation = await Workbench().understand("edit", path="../a", old_string="a", new_string="b")

    assert invocation.subjects == (PathSubject("../a", Access.READ), PathSubject("../a", Access.WRITE))


async def test_a_path_outside_the_roots_is_refused():
    with pytest.raises(Refused):
        await Workbench().run("edit", path="../a", old_string="a", new_string="b")
