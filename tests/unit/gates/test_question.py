"""The question shows everything, and shows it plainly."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.core.ports import Invocation, Question
from acp_agent.core.types import Access, CommandSubject, Diff, Location, McpSubject, PathSubject, ToolCall, UrlSubject
from acp_agent.gates.gate import CallFacts
from acp_agent.gates.question import MAX_TITLE, _lines, build, clipped, visible
from tests.rows import each_row
from tests.unit.gates.chain import call, command


def built(invocation: Invocation, reasons: tuple[str, ...], always: str) -> Question:
    return build(CallFacts(invocation), reasons, always)


def test_every_character_is_seen():
    assert visible("a\u202eb\u200bc\x1b[2Jd\te\nf\x7f\u00a0") == "a<U+202E>b<U+200B>c<U+001B>[2Jd⇥e⏎f<U+007F><U+00A0>"
    assert visible("ordinary: é 漢 🙂 `x`") == "ordinary: é 漢 🙂 `x`"


@each_row("code", [0x3164, 0x2800, 0x115F, 0x1160, 0xFFA0, 0xFE0F, 0xFE00, 0x34F, 0xE0101, 0x17B4, 0x180B])
def test_what_is_a_letter_or_a_mark_and_shows_nothing_is_seen(code: int):
    assert visible(f"a{chr(code)}b") == f"a<U+{code:04X}>b"


def test_of_a_very_long_command_head_and_tail_are_shown_with_its_length():
    text = "echo start; " + "x" * 50_000 + "; evil"
    shown = clipped(text)
    assert len(shown) < MAX_TITLE + 100
    assert shown.startswith("echo start; ")
    assert shown.endswith("; evil")
    assert f"{len(text):,}" in shown


def test_the_title_of_a_command_is_the_command_itself():
    question = built(command("git push\n--force"), (), "git push …")
    assert question.title == "git push⏎--force"
    assert question.raw_input == {"command": "git push\n--force"}
    assert question.always == "git push …"


def test_quoting_tricks_are_resolved_into_the_arguments_that_would_run():
    question = built(command("g\"i\"t pu'sh' && ls 'a b'"), (), "x")
    assert "runs: git push" in question.reasons
    assert "runs: ls 'a b'" in question.reasons


def test_an_interpreter_comes_with_a_warning_and_always_covers_this_text_alone():
    question = built(command("python -c 'print(1)'"), ("asked",), "")
    assert question.reasons[0] == "asked"
    assert any(line.startswith("WARNING: python") for line in question.reasons)
    assert question.always == "exactly this text in this folder"
    assert any(line.startswith("WARNING: sh") for line in built(command("x | sh"), (), "").reasons)


def test_an_edit_shows_its_diff_and_place():
    diff = Diff("/w/x", "a", "b")
    invocation = replace(call("edit", PathSubject("x", Access.WRITE)), diffs=(diff,), locations=(Location("/w/x", 3),))
    question = built(invocation, (), "every use of edit")
    assert question.diffs == (diff,)
    assert question.locations == ("/w/x",)
    assert built(call("edit", PathSubject("x", Access.WRITE)), (), "").locations == ("x",)


def test_the_title_of_a_deed_is_the_deed_and_of_a_command_still_the_command():
    taking = replace(
        call("delete_path", PathSubject("src", Access.DELETE)), summary="deletes src\u202e and everything in it"
    )
    assert built(taking, (), "x").title == "deletes src<U+202E> and everything in it"
    assert built(call("delete_path", PathSubject("src", Access.DELETE)), (), "x").title == "delete_path something"
    assert built(replace(command("ls"), summary="lists"), (), "x").title == "ls"


@given(st.lists(st.text(), min_size=1).map("\n".join))
@example("echo " + "building " * 100 + "; touch EVILMARK; echo " + "done " * 120)
@example("echo <!-- ; rm -rf x ; echo -->")
@example("rm *.o _a_ [x](y) &amp; `z`")
def test_every_line_of_a_command_is_shown_whole(text: str):
    question = built(command(text), (), "x")
    assert question.command.split("\n") == [visible(line) for line in text.split("\n")]
    assert question.text == ""


def test_every_command_of_a_call_is_shown():
    both = replace(command("ls"), subjects=(CommandSubject("ls"), CommandSubject("rm x")))
    assert built(both, (), "x").command == "ls\nrm x"


TEXT = st.text(st.characters(exclude_characters='\\"'))  # which JSON writes as two
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=8,
)


def texts_of(value) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for each in value for text in texts_of(each)]
        case dict():
            return [text for name, each in value.items() for text in (name, *texts_of(each))]
        case _:
            return []


def shown_by(question) -> str:
    """All a question shows."""
    diffs = [part for diff in question.diffs for part in (diff.path, diff.old_text or "", diff.new_text)]
    return (
        " ".join((question.title, *question.reasons, question.text, *diffs)).replace("\\\\", "\\").replace('\\"', '"')
    )


def spelled(text: str) -> str:
    return visible(text.replace("\\\\", "\\").replace('\\"', '"'))


@given(st.dictionaries(TEXT, JSON, max_size=4))
@example({"query": "x" * 1000 + "; DROP TABLE users; " + "y" * 1000})
def test_every_text_a_server_is_sent_is_shown_whole(arguments):
    sent = replace(call("write", McpSubject("db", "query")), call=ToolCall("1", "db_query", arguments))
    sent = replace(sent, spec=replace(sent.spec, server="db", description="d" * 5000))
    question = built(sent, (), "x")
    assert "d" * 5000 in question.reasons[0]
    for text in texts_of(arguments):
        assert visible(text) in shown_by(question)


@pytest.mark.parametrize(
    ("tool", "arguments", "subjects"),
    [
        (
            "fetch",
            {"url": "https://a.example/" + "x" * 3000 + "?evil=1&" + "y" * 3000},
            UrlSubject("https://a.example/"),
        ),
        ("copy_path", {"source": "a" * 900 + "/evil/" + "b" * 900, "destination": "c"}, PathSubject("c", Access.WRITE)),
        ("memory_save", {"content": "one\ntwo " * 400}, PathSubject("c", Access.WRITE)),
    ],
)
def test_no_argument_of_a_tool_of_ours_is_cut_in_the_middle(tool, arguments, subjects):
    asked = call("write", subjects)
    question = built(replace(asked, call=ToolCall("1", tool, arguments)), (), "x")
    for text in texts_of(arguments):
        assert all(line in shown_by(question) for line in text.split("\n"))


def test_a_reason_is_never_cut():
    assert built(command("ls"), ("why " * 1000,), "x").reasons[0] == "why " * 1000


def test_an_edit_shows_its_diff_and_not_once_more_what_it_was_made_from():
    diff = Diff("/w/x", "a\r\n", "b\r\n")
    arguments = {"path": "/w/x", "old_string": "a\n", "new_string": "b\n"}
    asked = replace(call("edit", PathSubject("/w/x", Access.WRITE)), diffs=(diff,))
    assert built(replace(asked, call=ToolCall("1", "edit", arguments)), (), "").text == ""


def test_a_question_about_a_change_warns_of_characters_nobody_sees():
    diff = Diff("/w/x", "ok\n", "ok\nif admin\u202e:\n")
    question = built(replace(call("write", PathSubject("x", Access.WRITE)), diffs=(diff,)), (), "")
    warning = "WARNING: the new text holds characters that cannot be seen: U+202E (right-to-left override) at line 2"
    assert question.reasons == (warning,)


def test_as_many_commands_and_lines_as_there_is_room_for_are_shown_without_a_count_of_more():
    for count, more in ((8, 0), (9, 1)):
        echoes = [f"echo {number}" for number in range(count)]
        for text, verb, rest in (
            ("; ".join(echoes), "runs", "runs"),
            (f"if true; then {'; '.join(echoes[1:])}; fi", "may run", "may run"),
        ):
            said = built(command(text), (), "").reasons
            assert len([line for line in said if line.startswith(f"{verb}: ")]) == 8, text
            assert [line for line in said if line.endswith("more commands")] == [f"{rest} 1 more commands"] * more, text
        numbers = range(1, count - 2)
        listed = "1, 2, 3, 4, 5" + " and 1 more" * more
        assert _lines([*numbers]) == f"lines {listed}"
    assert _lines([7]) == "line 7"


def test_what_a_tool_says_of_a_command_is_shown_beside_it():
    invocation = replace(command("git push"), summary="sends it")
    assert built(invocation, ("asked",), "").reasons == ("asked", "sends it")
    assert built(command("git push"), ("asked",), "").reasons == ("asked",)
