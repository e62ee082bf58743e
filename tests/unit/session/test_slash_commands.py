"""Slash commands: what is one, what is nearly one, and what the editor is told of them."""

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import ToolResult
from acp_agent.session.slash.commands import (
    COMMANDS,
    CommandName,
    _stdout,
    first_word,
    help_text,
    mentioned,
    misspelt,
    offered,
    parse,
    unwanted_argument,
)
from tests.rows import each_row

NOTE = "System note: you are in a chat with other personas."


@each_row(
    "texts, command",
    [
        (["/help"], (CommandName.HELP, "")),
        (["  /run  ls -l\n"], (CommandName.RUN, "ls -l")),
        (["/review src/a b", "and this text was pasted"], (CommandName.REVIEW, "src/a b")),
        (["a pasted file:", "/run rm -rf ~"], None),
        (["see this\n\n/clear"], None),
        (["/unknown"], None),
        (["/help/me"], None),
        (["/"], None),
        ([""], None),
        ([], None),
        ([f"{NOTE}\n\n/help"], (CommandName.HELP, "")),
        ([f"{NOTE}\n\n/mode ask"], (CommandName.MODE, "ask")),
        ([NOTE, "/tools"], (CommandName.TOOLS, "")),
        ([f"{NOTE}\n\n/run rm -rf ~"], None),
        ([f"{NOTE}\n\n/clear\nand a second line"], None),
        ([NOTE], None),
    ],
)
def test_only_the_very_beginning_of_a_prompt_is_a_command_but_for_the_note_of_jupyter(
    texts: list[str], command: tuple[CommandName, str] | None
):
    assert parse(texts) == command


@each_row("lead", [[], [NOTE], [f"{NOTE}\n\n"]])
def test_words_of_the_user_are_found_behind_the_note_of_jupyter_too(lead: list[str]):
    def begun(text: str) -> list[str]:
        return [f"{lead[0]}{text}"] if lead and lead[0].endswith("\n") else [*lead, text]

    assert first_word(begun("/explain this")) == ("explain", "this")
    assert mentioned(begun("@explore find it"), ["explore"]) == ("explore", "find it")
    assert misspelt(begun("/hlep")) == ("hlep", CommandName.HELP)
    assert first_word(begun("in /explain")) == ("", "")


@each_row(
    "text, name",
    [
        ("/hlep", CommandName.HELP),
        ("/modle x", CommandName.MODEL),
        ("/tool", CommandName.TOOLS),
        ("/costs", CommandName.COST),
        ("/Help", CommandName.HELP),
        ("/revieu src", CommandName.REVIEW),
        ("/MODE ask", CommandName.MODE),
        ("/Cost", CommandName.COST),
    ],
)
def test_a_slip_of_the_keyboard_is_seen(text: str, name: CommandName):
    assert parse([text]) is None
    assert misspelt([text]) == (text.split(maxsplit=1)[0][1:], name)


@each_row("text", ["/help", "/tmp/x is full", "/usr", "/fun", "/r", "/", "help", "/home me", "/etc/tools"])
def test_a_path_or_another_word_is_no_slip(text: str):
    assert misspelt([text]) is None


@given(st.text(max_size=20), st.lists(st.text(max_size=30), max_size=2))
def test_any_text_has_an_answer(text: str, others: list[str]):
    for begin in ("/", "", NOTE):
        assert not (parse([begin + text, *others]) and misspelt([begin + text, *others]))


@given(st.frozensets(st.sampled_from(CommandName)))
def test_help_and_the_editor_are_told_the_same(available: frozenset[CommandName]):
    listed = [each.name for each in offered(available)]
    assert set(listed) == available
    assert [line.split("`")[1] for line in help_text(available).splitlines()[2:]] == [f"/{n}" for n in listed]


@each_row("name", sorted(CommandName))
def test_words_behind_a_command_that_takes_none_are_told(name: CommandName):
    """`/clear the build folder and rebuild` is a sentence, and what is forgotten stays forgotten."""
    told = unwanted_argument(name, "the build folder and rebuild")
    hint = next(command.hint for command in COMMANDS if command.name is name)
    assert bool(told) is not bool(hint)
    assert not told or told.startswith(f"Nothing was done: `/{name}` takes no argument")
    assert unwanted_argument(name, "") == ""


def test_every_command_is_described_once_and_hints_are_those_of_the_requirement():
    assert sorted(command.name for command in COMMANDS) == sorted(CommandName)
    hints = {command.name: command.hint for command in COMMANDS}
    assert hints[CommandName.MODEL] == "model id"
    assert hints[CommandName.MODE] == "code | architect | ask"
    assert hints[CommandName.REVIEW] == "path (optional)"


def test_a_result_without_fields_has_no_output():
    assert _stdout(ToolResult("x")) == ""
    assert _stdout(ToolResult("x", envelope={"stdout": "y"})) == "y"
