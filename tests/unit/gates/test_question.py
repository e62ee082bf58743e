"""The question shows everything, and shows it plainly."""

from dataclasses import replace

import pytest

from acp_agent.core.types import Access, Diff, Location, PathSubject
from acp_agent.gates.question import MAX_TITLE, build, clipped, visible
from tests.unit.gates.chain import call, command


def test_every_character_is_seen():
    assert visible("a\u202eb\u200bc\x1b[2Jd\te\nf\x7f\u00a0") == "a<U+202E>b<U+200B>c<U+001B>[2Jd⇥e⏎f<U+007F><U+00A0>"
    assert visible("ordinary: é 漢 🙂 `x`") == "ordinary: é 漢 🙂 `x`"


@pytest.mark.parametrize(
    "code", [0x3164, 0x2800, 0x115F, 0x1160, 0xFFA0, 0xFE0F, 0xFE00, 0x34F, 0xE0101, 0x17B4, 0x180B]
)
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
    question = build(command("git push\n--force"), (), "git push …", "")
    assert question.title == "git push⏎--force"
    assert question.raw_input == {"command": "git push\n--force"}
    assert question.always == "git push …"


def test_quoting_tricks_are_resolved_into_the_arguments_that_would_run():
    question = build(command("g\"i\"t pu'sh' && ls 'a b'"), (), "x", "")
    assert "runs: git push" in question.reasons
    assert "runs: ls 'a b'" in question.reasons


def test_an_interpreter_comes_with_a_warning_and_the_hash_always_is_bound_to():
    question = build(command("python -c 'print(1)'"), ("asked",), "", "ab" * 32)
    assert question.reasons[0] == "asked"
    assert any(line.startswith("WARNING: python") for line in question.reasons)
    assert question.always == f"exactly this text in this folder, sha256 {'ab' * 8}"
    assert any(line.startswith("WARNING: sh") for line in build(command("x | sh"), (), "", "").reasons)


def test_an_edit_shows_its_diff_and_place():
    diff = Diff("/w/x", "a", "b")
    invocation = replace(call("edit", PathSubject("x", Access.WRITE)), diffs=(diff,), locations=(Location("/w/x", 3),))
    question = build(invocation, (), "every use of edit", "")
    assert question.diffs == (diff,)
    assert question.locations == ("/w/x",)
    assert build(call("edit", PathSubject("x", Access.WRITE)), (), "", "").locations == ("x",)


def test_the_title_of_a_deed_is_the_deed_and_of_a_command_still_the_command():
    taking = replace(
        call("delete_path", PathSubject("src", Access.DELETE)), deed="deletes src\u202e and everything in it"
    )
    assert build(taking, (), "x", "").title == "deletes src<U+202E> and everything in it"
    assert build(call("delete_path", PathSubject("src", Access.DELETE)), (), "x", "").title == "delete_path something"
    assert build(replace(command("ls"), deed="lists"), (), "x", "").title == "ls"
