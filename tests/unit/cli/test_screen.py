"""What the terminal may be sent: nothing a model or a file chose can move its cursor or hide a text."""

import io
import re
import sys
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.cli.agent_process import Direction, RecordedFrame
from acp_agent.cli.paragraph import Paragraph, columns_of
from acp_agent.cli.screen import Screen
from tests.fakes.drawn_terminal import DrawnTerminal
from tests.rows import each_row
from tests.sizes import sized

HOSTILE = "a\x1b[2Jb\x1b]0;owned\x07c\u202ed\u200be\x9bf\rg\x08h\u2028i"


def seen(*updates, question=None, terminal="", root="/home/me/project") -> str:
    out = io.StringIO()
    screen = Screen(out, root)
    for update in updates:
        message = {"method": "session/update", "params": {"update": update}}
        screen.frame(RecordedFrame(Direction.FROM_AGENT, message, 0.0))
    if terminal:
        screen.terminal_output("t", terminal)
    if question is not None:
        screen.question(question, "once")
    screen.end()
    return out.getvalue()


def plain(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def content(text: str):
    return [
        {"type": "content", "content": {"type": "text", "text": text}},
        {"type": "diff", "path": text, "oldText": "old", "newText": text},
    ]


def everything(text: str) -> str:
    """All the screen can draw, with `text` wherever an agent chooses one."""
    call = {"toolCallId": text, "title": text, "name": text, "kind": text, "content": content(text)}
    return seen(
        {"sessionUpdate": "agent_message_chunk", "content": {"text": text}},
        {"sessionUpdate": "agent_thought_chunk", "content": {"text": text}},
        {"sessionUpdate": "agent_message_chunk", "content": {"text": text}, "_meta": {"acp_agent": {"notice": "info"}}},
        {"sessionUpdate": "tool_call", **call},
        {
            "sessionUpdate": "tool_call_update",
            **call,
            "status": "completed",
            "_meta": {"acp_agent": {"rawLines": 9, "shownLines": 1}, "claudeCode": {"toolName": text}},
        },
        question={"toolCall": {**call, "toolCallId": "another"}, "options": [{"optionId": "once", "name": text}]},
        terminal=text + "\nunfinished " + text,
    )


def test_no_control_or_bidi_character_of_a_frame_reaches_the_terminal():
    shown = everything(HOSTILE)
    assert plain(shown)
    assert shown.count("a[2Jb]0;ownedcdefghi") >= 8


@given(st.text())
@example("\t")
@example("|\t")
def test_whatever_an_agent_says_the_terminal_gets_plain_text(text):
    assert plain(everything(text))


@pytest.mark.parametrize("member", ["title", "name"])
def test_a_name_of_several_lines_cannot_draw_a_line_of_its_own(member):
    forged = "ls\n  ? Allow?  nothing to see"
    shown = seen({"sessionUpdate": "tool_call", "toolCallId": "1", member: forged})
    assert not any(line.startswith("  ? Allow?") for line in shown.splitlines())


def test_an_options_name_and_the_questions_title_stay_on_their_lines():
    options = [{"optionId": "once", "name": "Allow\nonce"}]
    shown = seen(question={"toolCall": {"toolCallId": "1", "title": "a\nb"}, "options": options})
    assert shown == "\n  ? Allow?  a b\n    [Allow once]\n"


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("/home/me/project/a.py", "a.py"),
        ("ls /home/me/project", "ls ."),
        ("ls /home/me/project2/a", "ls /home/me/project2/a"),
        ("ls /backup/home/me/project/a", "ls /backup/home/me/project/a"),
    ],
)
def test_the_sessions_folder_is_left_out_of_its_own_paths_only(title, shown):
    assert seen(question={"toolCall": {"title": title}}).splitlines()[1] == f"  ? Allow?  {shown}"


def test_at_the_root_of_the_disk_paths_stay_as_they_are():
    assert seen(question={"toolCall": {"title": "rm /etc/x"}}, root="/").splitlines()[1] == "  ? Allow?  rm /etc/x"


def test_a_question_is_drawn_whole_however_long_its_text_and_its_lines_are():
    text = "\n\n".join(f"step {number} " + "x" * 300 + f" end{number}" for number in range(50))
    content = [{"type": "content", "content": {"type": "text", "text": f"why\n\n````\n```\n{text}\n````"}}]
    shown = seen(question={"toolCall": {"title": "t", "content": content}})
    joined = shown.replace("\n    ↪ ", "")
    assert [line for line in joined.splitlines() if line.startswith("    │ ")] == [
        f"    │ {line}" for line in ["why", "```", *text.split("\n")]
    ]


def test_a_question_does_not_repeat_the_command_that_is_its_title():
    content = [{"type": "content", "content": {"type": "text", "text": "```\nls -l\n```\nruns: ls -l"}}]
    assert seen(question={"toolCall": {"title": "ls -l", "content": content}}).splitlines()[1:] == [
        "  ? Allow?  ls -l",
        "    │ runs: ls -l",
    ]


def test_a_remark_is_wrapped_between_words():
    out = io.StringIO()
    Screen(out, "").note(f"{'word ' * 20}\nend")
    assert [len(line) for line in out.getvalue().splitlines()] == [84, 14, 3]


def test_a_question_draws_its_change_whole_and_what_hides_in_it():
    diff = {"type": "diff", "path": "a", "oldText": None, "newText": "x" * 500 + "evil\nif a\u202e\u3164:\r\n"}
    shown = seen(question={"toolCall": {"title": "t", "content": [diff]}})
    joined = shown.replace("\n    ↪ ", "")
    assert f"+{'x' * 500}evil\n" in joined
    assert "+if a<U+202E><U+3164>:<U+000D>\n" in joined


def test_a_change_of_line_ends_alone_is_drawn():
    diff = {"type": "diff", "path": "a", "oldText": "a", "newText": "a\n"}
    assert "+" in seen(question={"toolCall": {"title": "t", "content": [diff]}})


CALL = {"toolCallId": "1", "title": "t", "name": "edit"}
DIFFS = [{"type": "diff", "path": "a", "oldText": "old", "newText": "new"}]
STARTED = {"sessionUpdate": "tool_call", **CALL, "content": DIFFS}
ENDED = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed", "content": DIFFS}


def test_a_change_is_drawn_once_by_the_question_or_by_the_end_of_the_call():
    assert seen(STARTED).count("+new") == 0
    assert seen(STARTED, ENDED).count("+new") == 1
    assert seen(STARTED, question={"toolCall": {**CALL, "content": DIFFS}}).count("+new") == 1


def test_a_change_has_its_path_above_it_unless_the_title_names_it():
    other = [*DIFFS, {"type": "diff", "path": "b.txt", "oldText": "x", "newText": "y"}]
    lines = seen({**STARTED, "title": "edit a"}, {**ENDED, "content": other}).splitlines()
    assert "    b.txt" in lines
    assert "    a" not in lines


def test_a_call_is_one_line_with_its_status_and_duration():
    failed = {"sessionUpdate": "tool_call_update", "toolCallId": "2", "status": "failed", "rawOutput": {"exit_code": 3}}
    started = {"sessionUpdate": "tool_call", "toolCallId": "2", "title": "false", "name": "bash"}
    named = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "edit a.txt", "name": "edit"}
    lines = [line for line in seen(named, ENDED | {"content": []}, started, failed).splitlines() if line]
    assert lines == ["  ✔ edit a.txt  0 ms", "  ✘ bash  false  exit 3, 0 ms"]


class Terminal(io.StringIO):
    """A terminal in memory."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def says(text: str) -> dict:
    return {"sessionUpdate": "agent_message_chunk", "content": {"text": text}}


def draw(screen: Screen, *updates) -> None:
    for update in updates:
        message = {"method": "session/update", "params": {"update": update}}
        screen.frame(RecordedFrame(Direction.FROM_AGENT, message, 0.0))


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


def shown_on(terminal: Terminal, columns: int = 80) -> list[str]:
    """What a person sees."""
    drawn = DrawnTerminal(columns)
    drawn.feed(terminal.getvalue())
    return [line for line in drawn.lines if line]


def test_the_calls_of_a_sub_agent_stand_in_one_line_each_to_the_right():
    call = {"toolCallId": "1", "title": "read a.txt", "name": "read", "kind": "read"}
    meta = {"claudeCode": {"toolName": "read", "elapsedMs": 1, "parentToolUseId": "0"}}
    end = {"sessionUpdate": "tool_call_update", **call, "content": content("b"), "status": "completed", "_meta": meta}
    (line,) = seen({"sessionUpdate": "tool_call", **call}, {**end, "content": content("b")[:1]}).strip("\n").split("\n")
    assert line == "      ✔ read a.txt  1 line, 1 ms"


def test_where_several_sub_agents_work_the_line_of_a_call_says_whose_it_is():
    agents = [
        {"sessionUpdate": "tool_call", "toolCallId": each, "title": f"explore: find {each}", "name": "agent"}
        for each in ("the total and all its callers", "b")
    ]
    call = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "read a.txt", "name": "read", "kind": "read"}
    more = {"claudeCode": {"elapsedMs": 1, "parentToolUseId": agents[0]["toolCallId"]}}
    end = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed", "_meta": more}
    assert seen(*agents, call, end).strip("\n") == "      ✔ explore: find the total and all…: read a.txt  1 ms"


def test_what_runs_and_for_how_long_is_the_last_line_of_a_terminal_until_the_end(terminal, clock):
    screen = Screen(terminal, "/", clock)
    screen.begin()
    assert shown_on(terminal) == ["  ⠋ waiting for the model"]
    draw(screen, STARTED, {**STARTED, "toolCallId": "2", "title": "other"})
    clock.time = 65.2
    screen.tick()
    assert shown_on(terminal) == ["  ⠹ edit  other  1 min 5 s, and 1 more"]
    draw(screen, ENDED, {**ENDED, "toolCallId": "2"})
    assert "waiting" in shown_on(terminal)[-1]
    screen.end()
    screen.tick()
    assert all("✔" in line or "│" in line or line.startswith("    ") for line in shown_on(terminal))


def test_a_message_that_pauses_says_so_below_it_and_goes_on_in_its_line(terminal, clock):
    screen = Screen(terminal, "/", clock)
    screen.begin()
    draw(screen, says("I write the"))
    clock.time = 0.9
    screen.tick()
    assert shown_on(terminal) == ["agent   I write"]
    clock.time = 3.0
    screen.tick()
    assert shown_on(terminal) == ["agent   I write the", "  ⠋ waiting for the model  3 s"]
    draw(screen, says(" file now.\n"))
    assert shown_on(terminal) == ["agent   I write the file now."]
    clock.time = 6.0
    screen.tick()
    assert shown_on(terminal) == ["agent   I write the file now.", "  ⠋ waiting for the model  3 s"]
    draw(screen, says("Done"))
    screen.end()
    assert shown_on(terminal) == ["agent   I write the file now.", "        Done"]


def test_the_duration_of_a_call_begins_with_the_answer_to_its_question(terminal, clock):
    screen = Screen(terminal, "/", clock)
    screen.begin()
    draw(screen, STARTED)
    clock.time = 60.0
    screen.answered({"toolCall": {"toolCallId": "1"}})
    message = {
        "method": "session/update",
        "params": {"update": {**ENDED, "_meta": {"claudeCode": {"elapsedMs": 62000}}}},
    }
    screen.frame(RecordedFrame(Direction.FROM_AGENT, message, 62.0))
    assert "2.0 s" in shown_on(terminal)[0]


def test_no_line_about_a_call_is_wider_than_the_terminal_whenever_that_is_resized(terminal, clock, monkeypatch):
    long = {**STARTED, "title": "日本語" * 40}
    for columns in (60, 30):
        monkeypatch.setenv("COLUMNS", str(columns))
        screen = Screen(terminal, "/", clock)
        screen.begin()
        draw(screen, long)
        shown = shown_on(terminal, columns)
        assert len(shown) == 1
        assert columns - 4 <= columns_of(shown[0]) <= columns
        draw(screen, ENDED | {"content": []})
        screen.end()
        assert re.fullmatch(r"  ✔ edit  \S+…  0 ms", shown_on(terminal, columns)[0])
        terminal.truncate(0)
        terminal.seek(0)


def test_no_color_takes_the_colours_away_and_a_dumb_terminal_the_last_line_too(terminal, monkeypatch, clock):
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen(terminal, "/", clock)
    screen.begin()
    draw(screen, STARTED, ENDED)
    assert "\r\x1b[K" in terminal.getvalue()
    assert not re.search(r"\x1b\[[\d;]*m", terminal.getvalue())
    terminal.truncate(0)
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen(terminal, "/", clock)
    screen.begin()
    draw(screen, STARTED, ENDED)
    assert "\x1b" not in terminal.getvalue()


def test_code_headings_and_strong_words_are_painted_and_stay_as_they_were_written(terminal, clock):
    screen = Screen(terminal, "/", clock)
    written = "# A b\nuse `x **y**` and **z w** here\n```\nq = 1\n```\n"
    draw(screen, says(written))
    screen.end()
    drawn = DrawnTerminal(80)
    drawn.feed(terminal.getvalue())
    assert " ".join(drawn.lines).split() == ["agent", *written.split()]
    styles = {cell.character: cell.style for line in drawn.cells for cell in line}
    assert [styles[each] for each in "Axyzwhq"] == ["1", "36", "36", "1", "1", "", "36"]


def test_the_thoughts_of_a_model_are_dim(terminal, clock):
    screen = Screen(terminal, "/", clock)
    draw(screen, {"sessionUpdate": "agent_thought_chunk", "content": {"text": "well `now` "}})
    assert terminal.getvalue().count("\x1b[2m") == 5


def unpainted(text: str, _style: str) -> str:
    return text


def test_a_paragraph_breaks_between_words_wherever_the_pieces_end(capsys):
    paragraph = Paragraph(sys.stdout, 2, lambda: 12, unpainted)
    for piece in ("one tw", "o thr", "ee\nfour", " five"):
        paragraph.write(piece)
    paragraph.end()
    assert capsys.readouterr().out == "one two\n  three\n  four five\n"


def test_a_word_longer_than_the_line_is_kept_whole(capsys):
    paragraph = Paragraph(sys.stdout, 2, lambda: 8, unpainted)
    paragraph.write("a-very-long-word x")
    paragraph.end()
    assert re.sub(r"\s+", " ", capsys.readouterr().out) == "a-very-long-word x "


def wrapped(text: str, width: int = 12, pieces: int = 1) -> str:
    out = io.StringIO()
    paragraph = Paragraph(out, 2, lambda: width, unpainted)
    for at in range(0, len(text), pieces):
        paragraph.write(text[at : at + pieces])
    paragraph.end()
    return out.getvalue()


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_code_blocks_keep_their_indentation_and_rows_of_tables_are_shown_as_they_are(pieces):
    code = "```python\ndef f(x):\n    return {'a':  x, 'long': 'enough to wrap'}\n```\n| a long | row of a table |\n"
    expected = "\n".join("  " + line for line in code.splitlines()).removeprefix("  ")
    assert wrapped(code, pieces=pieces) == expected + "\n"


def test_after_the_fence_lines_are_wrapped_again():
    assert wrapped("~~~\na b c d e f g h\n~~~\na b c d e f g h") == (
        "~~~\n  a b c d e f g h\n  ~~~\n  a b c d e\n  f g h\n"
    )


def test_a_line_keeps_its_indentation_and_a_list_its_shape():
    assert wrapped("  one two three\n- four five six") == "  one two\n    three\n  - four\n    five six\n"


LETTERS = Counter({"a": 999, "b": 999, "`": 999})


@given(st.text(alphabet=" \n\tab`|-"))
def test_no_letter_of_a_message_is_lost(text):
    assert Counter(wrapped(text)) & LETTERS == Counter(text) & LETTERS


def test_a_table_is_drawn_in_columns_and_its_cells_are_wrapped():
    table = "| file | what it is |\n|:--|---|\n| a\\|b.py | it counts 日本 and more |\n| c |\n"
    assert wrapped(f"See:\n\n{table}\nEnd", width=24) == (
        "See:\n\n"
        "  file     what it is\n"
        "  ───────  ─────────────\n"
        "  a\\|b.py  it counts\n"
        "           日本 and more\n"
        "  c\n"
        "\n  End\n"
    )


ENDLESS = sized(100_000, 500_000)


@each_row("text", ["a" * ENDLESS, "|" + "a" * ENDLESS, "日" * (ENDLESS // 2), " " * ENDLESS + "a"])
def test_an_endless_line_costs_what_its_letters_cost(text: str):
    assert wrapped(text, pieces=4).count(text[-1]) == text.count(text[-1])  # a copy for each would be 5 GB


def test_letters_without_spaces_between_their_words_are_wrapped_too():
    assert wrapped("ab 日本語日本語") == "ab 日本語\n  日本語\n"


def test_a_file_that_was_read_is_one_line_and_so_is_each_of_several():
    read = {"sessionUpdate": "tool_call", "title": "read a", "kind": "read", "name": "read"}
    end = {"sessionUpdate": "tool_call_update", "status": "completed"}
    text = [{"type": "content", "content": {"type": "text", "text": "```\n1\ta\n2\tb\n```"}}]
    calls = [{**read, "toolCallId": "1"}, {**read, "toolCallId": "2"}]
    ends = [{**end, "toolCallId": "1", "content": text}, {**end, "toolCallId": "2", "content": []}]
    assert seen(*calls, *ends) == "\n  ✔ read a  2 lines, 0 ms\n  ✔ read a  0 ms\n"


def test_the_call_that_shows_a_plan_has_no_line_beside_the_plan():
    call = {"sessionUpdate": "tool_call", "toolCallId": "1", "name": "update_plan", "title": "Plan: 0 of 1 done"}
    assert seen(call, {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"}) == ""


LIVE = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "in_progress"}


def printed(text: str, call: str = "1") -> dict:
    return {**LIVE, "toolCallId": call, "_meta": {"terminal_output": {"terminal_id": call, "data": text}}}


def command(call: str, title: str) -> dict:
    content = [{"type": "terminal", "terminalId": call}]
    return {"sessionUpdate": "tool_call", "toolCallId": call, "title": title, "name": "bash", "content": content}


def ended(call: str, output: str, code: int = 0) -> dict:
    raw = {"output": output, "exit_code": code}
    content = [{"type": "terminal", "terminalId": call}]
    final = {"toolCallId": call, "status": "failed" if code else "completed", "content": content, "rawOutput": raw}
    return {"sessionUpdate": "tool_call_update", **final}


def test_the_output_of_a_command_is_drawn_as_it_comes_and_not_again_at_the_end():
    lines = seen(command("1", "make"), printed("one\ntw"), printed("o\n10%\r20%\n"), printed("end"), ended("1", "x"))
    bars = "    │ one\n    │ two\n    │ 20%\n    │ end\n"
    assert lines == f"\n  ● bash  make\n{bars}  ✔ bash  make  0 ms\n"


def test_a_line_that_is_drawn_over_and_over_costs_what_its_updates_cost():
    out = io.StringIO()
    screen = Screen(out, "/p")
    for at in range(100_000):  # keeping them all would copy 100 GB
        screen.terminal_output("t", f"\r{at} of 100000 files")
    screen.terminal_output("t", "\r\n")
    assert out.getvalue() == "    │ 99999 of 100000 files\n"


@each_row(
    "pieces, drawn",
    [
        (("a\r", "\n"), "a"), (("a\r", "b\n"), "b"), (("a\r\r", "\n"), "a"), (("a\rb", "c\r", "\r\n"), "bc"),
        (("\r", "\n"), ""),
    ],
)  # fmt: skip
def test_what_stands_after_the_last_carriage_return_of_a_line_is_drawn(pieces: tuple[str, ...], drawn: str):
    out = io.StringIO()
    screen = Screen(out, "/p")
    for piece in pieces:
        screen.terminal_output("t", piece)
    assert out.getvalue() == f"    │ {drawn}\n"


def test_where_a_command_ran_stands_behind_its_end_and_not_in_its_output():
    word = {"type": "content", "content": {"type": "text", "text": "in the sandbox"}}
    start, end = command("1", "make"), ended("1", "x")
    start["content"].append(word)
    assert "✔ bash  make  0 ms\n" in seen(start, ended("1", "x"))  # it did not run
    end["content"].append(word)
    lines = seen(start, printed("one\n"), end)
    assert lines == "\n  ● bash  make\n    │ one\n  ✔ bash  make  in the sandbox, 0 ms\n"


def test_output_of_two_commands_at_once_has_the_title_of_its_command_above_it():
    running = (command("1", "make"), command("2", "test"))
    lines = seen(*running, printed("a\nrest"), printed("b\n", "2"), ended("2", "b"), printed(" c\n"), ended("1", "x"))
    assert [line for line in lines.splitlines() if line] == [
        "  ● bash  make", "    │ a", "  ● bash  test", "    │ b", "  ✔ bash  test  0 ms",
        "  ● bash  make", "    │ rest c", "  ✔ bash  make  0 ms",
    ]  # fmt: skip


def test_a_command_that_printed_nothing_says_what_came_of_it():
    assert "    │ denied by the user\n" in seen(command("1", "make"), ended("1", "denied by the user", 1))
    timed_out = seen(command("1", "make"), printed("one\n"), ended("1", "[error] timed out after 120 s\none", 124))
    assert "✘ bash  make  timed out after 120 s, 0 ms" in timed_out
    assert timed_out.count("one") == 1


def test_what_is_said_of_a_background_process_stands_below_its_output():
    final = ended("1", "up\n[waited 2 s in vain]\n[p1 running for 2 s: serve]")
    final["rawOutput"]["process"] = "p1"
    shown = seen(command("1", "wait for the end of p1"), printed("up\n"), final)
    assert shown.endswith("    │ [waited 2 s in vain]\n    │ [p1 running for 2 s: serve]\n")
    assert shown.count("│ up\n") == 1


def test_a_plan_is_drawn_with_the_status_of_its_steps():
    steps = {"read": "completed", "edit\x1b[2J": "in_progress", "test": "pending"}
    entries = [{"content": step, "status": status} for step, status in steps.items()]
    assert seen({"sessionUpdate": "plan", "entries": entries}) == "\n  plan\n    ✔ read\n    ● edit[2J\n    ○ test\n"
