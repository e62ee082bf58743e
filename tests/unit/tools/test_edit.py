"""edit: exact or refused."""

import argparse
import difflib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access, Diff, Location, PathSubject
from acp_agent.tools.edit_match import adapted, no_match, replace_exactly
from acp_agent.tools.registry import ToolLimits, default_tools
from tests.fakes.memory_files import MemoryFileSystem
from tests.sizes import sized
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


async def test_a_crlf_from_the_model_matches_an_lf_file_that_keeps_lf():
    bench = Workbench({"a": "one\ntwo\n"})

    result = await bench.run("edit", path="a", old_string="one\r\ntwo", new_string="1\r\n2")

    assert result.text == "Edited a at line 1 (applied with the file's line ends)"
    assert bench.files.text("a") == "1\n2\n"


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

    result = await bench.run("edit", path="a.py", old_string="def g():\n    return  1", new_string="x")

    message = "old_string was not found; the text at line 5 differs only in blanks"
    advice = "In line 2 of it the file has nothing, you sent U+0020. Copy it exactly, blanks included."
    nearest = "   5\tdef g():\n   6\t    return 1"
    assert result.text == (f"[error] {message}\n[advice] {advice}\n{nearest}")
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


# Few letters, so that matches, repeats and overlaps are common.
LF_TEXT = st.text(alphabet="ab \n", max_size=30)
ANY_TEXT = st.lists(st.sampled_from(["a", "b", " ", "\n", "\r\n", "\r", "é"]), max_size=30).map("".join)
LF_PIECE = st.text(alphabet="ab \n", min_size=1, max_size=4)


def occurrences(text: str, wanted: str) -> int:
    """How often a text holds another, overlaps counted."""
    return len(re.findall(f"(?={re.escape(wanted)})", text))


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def lf(text: str) -> str:
    return text.replace("\r\n", "\n")


@given(LF_TEXT, LF_PIECE, LF_TEXT)
@example("aaa", "aa", "b")
def test_an_edit_replaces_its_only_match_or_is_refused(text: str, old: str, new: str):
    assume(old != new)
    if occurrences(text, old) == 1:
        assert replace_exactly(text, old, new) == (text.replace(old, new), 1)
    else:
        with pytest.raises(ToolError):
            replace_exactly(text, old, new)


@given(LF_TEXT, LF_PIECE, LF_TEXT)
def test_replace_all_is_what_a_plain_replacement_does(text: str, old: str, new: str):
    assume(old != new and old in text)

    assert replace_exactly(text, old, new, every=True) == (text.replace(old, new), text.count(old))


@given(LF_TEXT, LF_PIECE, LF_TEXT, st.booleans())
def test_editing_a_crlf_file_is_editing_the_lf_file_and_keeping_crlf(text: str, old: str, new: str, every: bool):
    assume(old != new and "\n" in text)
    try:
        wanted, count = replace_exactly(text, old, new, every=every)
    except ToolError:
        with pytest.raises(ToolError):
            replace_exactly(crlf(text), old, new, every=every)
    else:
        assert replace_exactly(crlf(text), old, new, every=every) == (crlf(wanted), count)


@given(ANY_TEXT, ANY_TEXT, LF_PIECE, LF_TEXT)
def test_whatever_the_line_ends_everything_around_the_match_stays(before: str, after: str, old: str, new: str):
    """The match is put between two arbitrary texts; their bytes must come back as they were."""
    text = before + old + after
    assume(old != new and not before.endswith("\r"))
    try:
        changed, count = replace_exactly(text, old, new)
    except ToolError:
        assert occurrences(lf(text), old) != 1
        return

    assert count == 1
    assert changed.startswith(before)
    assert changed.endswith(after)
    assert lf(changed[len(before) : len(changed) - len(after)]) == lf(new)


@given(ANY_TEXT, ANY_TEXT.filter(lambda piece: "\r" in piece), ANY_TEXT)
def test_a_string_with_a_carriage_return_is_taken_literally(text: str, old: str, new: str):
    assume(old != new)
    if occurrences(text, old) == 1:
        assert replace_exactly(text, old, new) == (text.replace(old, new), 1)
    else:
        with pytest.raises(ToolError):
            replace_exactly(text, old, new)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x\r\nmid\ny\n", "x\r\n1\n2\ny\n"),  # the line end of the matched line itself counts
        ("x\nmid\r\ny\n", "x\n1\r\n2\r\ny\n"),
        ("x\r\nmid", "x\r\n1\r\n2"),  # none follows: the last one counts
        ("mid", "1\n2"),
    ],
)
def test_in_a_mixed_file_new_lines_take_the_line_end_found_there(text: str, wanted: str):
    assert replace_exactly(text, "mid", "1\n2")[0] == wanted


def test_in_a_mixed_file_each_of_many_replacements_takes_its_own_line_end():
    assert replace_exactly("x\r\nx x\nx\r\nx", "x", "1\n2", every=True) == (
        "1\r\n2\r\n1\n2 1\n2\n1\r\n2\r\n1\r\n2",
        5,
    )


FILE = "".join(f"def f{n}(a, b):\n    value = compute_{n}(a, b)\n    return value\n\n" for n in range(50))


def test_the_block_that_shares_most_words_is_shown():
    miss = no_match(FILE, "def f7(a, b):\n    value = compute_7(a, b, c)\n    return value")

    assert str(miss) == "old_string was not found; the text at line 29 is the nearest"
    assert miss.block == "  29\tdef f7(a, b):\n  30\t    value = compute_7(a, b)\n  31\t    return value"


def test_long_lines_of_one_sign_are_given_up_at_once():
    """Each once took minutes: a comparison tried every place of every sign."""
    assert str(no_match(("-" * 4000 + "x\n") * 40, "-" * 4000 + "y")).startswith("old_string was not found")
    assert str(no_match(("|---" * 1000 + "|\n") * 40, "|-- " * 1000 + "x")) == "old_string was not found"


def test_half_of_a_file_is_looked_for_with_another_indentation_in_one_pass():
    half = sized(50_000, 200_000)
    assert adapted("a\n" * 2 * half, "b\n" + " a\n" * half, "x") is None
    assert adapted("b\n" + "a\n" * 2 * half, " b\n" + " a\n" * half, " c\n") is not None


def test_the_same_words_in_another_order_are_not_called_the_same():
    assert str(no_match("alpha beta gamma\n", "gamma beta alpha")).endswith("is the nearest")


def test_a_difference_in_blanks_is_named():
    miss = no_match("if x:\n\tgo(1)\n", "if x:\n    go(1)")

    assert str(miss).endswith("the text at line 1 differs only in blanks")
    assert "blanks" in miss.failure.suggestion


def test_a_redaction_placeholder_the_text_lacks_is_the_reason_given():
    miss = no_match("TOKEN=sk-not-a-real-key\n", "TOKEN=[REDACTED:token]")

    assert str(miss) == "old_string was not found"
    assert "[REDACTED:token] stands for a value you were not shown" in miss.failure.suggestion
    assert miss.block == ""


def test_a_long_block_is_shown_in_part():
    text = "".join(f"line number {n}\n" for n in range(50))

    miss = no_match(text, "\n".join(f"line number  {n}" for n in range(20)))

    assert len(miss.block.split("\n")) == 12


@pytest.mark.parametrize("wanted", ["nothing like it whatsoever", "\n\n", "   "])
@pytest.mark.parametrize("text", [FILE, "", "\n"])
def test_where_nothing_is_like_it_no_place_is_named(text: str, wanted: str):
    miss = no_match(text, wanted)

    assert (str(miss), miss.block) == ("old_string was not found", "")


def test_a_huge_file_is_not_searched():
    assert no_match("wanted!\n" + "x\n" * 600_000, "wanted?").block == ""


@given(st.text(), st.text())
def test_any_two_texts_give_one_line_and_advice(text: str, wanted: str):
    miss = no_match(text, wanted)

    assert "\n" not in str(miss)
    assert miss.failure.suggestion


# ---------------------------------------------------------------- what differs a little is applied, and said


@pytest.mark.parametrize(
    ("text", "old", "new", "wanted"),
    [
        (
            "if x:\n\tgo(1)\n\tgo(2)\n",
            "if x:\n    go(1)\n",
            "if y:\n    go(1)\n        deeper\n",
            "if y:\n\tgo(1)\n\t\tdeeper\n\tgo(2)\n",
        ),
        (
            "class A:\n    def f(self):\n        pass\n",
            "def f(self):\n    pass",
            "def g(self):\n    x\n\n    y",
            "class A:\n    def g(self):\n        x\n\n        y\n",
        ),
        (
            "a {\n  b {\n    c\n  }\n}\n",
            "    b {\n        c\n    }\n",
            "    b {\n        d\n    }\n",
            "a {\n  b {\n    d\n  }\n}\n",
        ),
        ("x\r\n\tgo(1)\r\n\tgo(2)\r\n", "    go(1)\n    go(2)", "    go(3)", "x\r\n\tgo(3)\r\n"),
    ],
)
async def test_a_match_that_differs_only_in_indentation_is_applied_with_the_files_own(
    text: str, old: str, new: str, wanted: str
):
    bench = Workbench({"a": text})
    result = await bench.run("edit", path="a", old_string=old, new_string=new)
    assert bench.files.text("a") == wanted
    assert result.text.endswith("(applied with the file's indentation)")


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("\tgo(1)\n\n\tgo(1)\n", " go(1)\n", " go(2)\n"),  # two places
        ("\ta\n  b\n", "    a\n    b\n", "    c\n"),  # one indentation for two
        ("\ta\n", "   a\n", "     b\n"),  # unknown depth
    ],
)
async def test_what_is_not_certain_is_not_applied(text: str, old: str, new: str):
    bench = Workbench({"a": text})
    result = await bench.run("edit", path="a", old_string=old, new_string=new)
    assert result.failure is not None
    assert bench.files.text("a") == text


async def test_the_escapes_that_read_shows_are_accepted_and_said():
    bench = Workbench({"a": "key\u200b = 1\nother\n"})
    result = await bench.run("edit", path="a", old_string="key\\u200b = 1", new_string="key\\u200b = 2")
    assert bench.files.text("a") == "key\u200b = 2\nother\n"
    assert "stand for the characters they name" in result.text


async def test_an_escape_that_stands_in_the_file_is_not_the_character():
    bench = Workbench({"a": 's = "\\u200b"\n'})
    await bench.run("edit", path="a", old_string='"\\u200b"', new_string='"\\u200c"')
    assert bench.files.text("a") == 's = "\\u200c"\n'


@pytest.mark.parametrize(
    ("text", "sent", "told"),
    [
        ("x = 'cafe\u0301'\n", "x = 'caf\u00e9'", "the file has U+0065 U+0301, you sent U+00E9"),
        ("a\u00a0= 1 # long enough\n", "a = 1 # long enough", "the file has U+00A0, you sent U+0020"),
        ("say(\u201chello\u201d)\n", 'say("hello")', "the file has U+201C, you sent U+0022"),
        ("a = 1  # note\n", "a = 1 # note", "the file has U+0020, you sent nothing"),
        ("print('one',\t'two')\n", "print('one', 'two')", "the file has U+0009, you sent U+0020"),
    ],
)
def test_a_difference_that_cannot_be_seen_is_told_in_code_points(text: str, sent: str, told: str):
    assert told in no_match(text, sent).failure.suggestion


def test_a_difference_that_can_be_seen_is_not_spelled_out_so_that_no_secret_is_asked_for():
    assert "U+" not in no_match("key = 'abcdef'\n", "key = 'abcxyz'").failure.suggestion


async def test_an_edit_that_was_made_already_is_told():
    bench = Workbench({"a": "one\nthe new words of it\n"})
    result = await bench.run("edit", path="a", old_string="the old words", new_string="the new words of it")
    assert "new_string is at line 2 already" in result.text


async def test_the_same_string_twice_has_its_own_message():
    with pytest.raises(ToolError, match="old_string and new_string are the same: nothing to replace") as error:
        await Workbench({"a": "x"}).run("edit", path="a", old_string="y", new_string="y")
    assert "put what the file should say into new_string" in error.value.failure.suggestion


def test_in_real_code_with_many_similar_lines_the_nearest_is_the_one_that_was_meant():
    """Every line of a real module is damaged in a small way; the nearest line must be the one it was made of."""
    source = Path(argparse.__file__).read_text(encoding="utf-8")
    lines = source.split("\n")
    wrong = list[str]()
    for at, line in enumerate(lines):
        if len(line.strip()) < 20 or at % sized(600, 200):
            continue
        middle = len(line) // 2 + len(line) // 5
        damaged = f"{line[:middle]}~{line[middle + 1 :]}"
        others = [
            other
            for other in lines
            if other != line and difflib.SequenceMatcher(None, other.strip(), damaged.strip()).quick_ratio() > 0.93
        ]
        block = no_match(source, damaged).block
        if not others and block.partition("\t")[2].strip() != line.strip():
            wrong.append(damaged)
    assert wrong == []
