"""Parts of `run` that need no agent: mentions, the keys of a question, the last line."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.cli.agent_process import Direction, RecordedFrame
from acp_agent.cli.run import RunView, answer_keys, mentions
from acp_agent.cli.turn_end import EXIT_CODES, SessionUsage, TurnEnd, TurnOutcome, TurnUsage


@pytest.fixture
def folder(tmp_path) -> str:
    (tmp_path / "src").mkdir()
    for name in ("a.py", "a", "my notes.txt", "src/b.py", "v1.2"):
        (tmp_path / name).touch()
    return str(tmp_path)


@pytest.mark.parametrize(
    ("prompt", "found", "missing"),
    [
        ("@a.py", ["a.py"], []),
        ("see @a.py, @src/b.py: both", ["a.py", "src/b.py"], []),
        ("twice @a.py and @./a.py", ["a.py"], []),
        ("@a.py:12-20 and (@v1.2).", ["a.py", "v1.2"], []),
        ('"@src/" and @"my notes.txt"', ["src", "my notes.txt"], []),
        ("@a.pyc is missing", [], ["a.pyc"]),
        ("me@a.py and @", [], []),
        ("@~\0", [], ["~\0"]),
        ("@diagnostics", [], []),
        ("@explore where is @b.py", [], ["b.py"]),
        ("@b.py", [], ["b.py"]),
        ("/review @a.py", [], []),
        ("@src/../../etc", [], ["src/../../etc"]),
    ],
)
def test_a_mention_is_a_word_that_names_a_file(folder, prompt, found, missing):
    assert mentions(prompt, folder) == ([os.path.join(folder, name) for name in found], missing)


@given(st.text(alphabet="@a.py /\"'`()~\0\n"))
def test_whatever_is_typed_the_mentions_are_files_that_exist(prompt):
    found, _ = mentions(prompt, os.path.dirname(__file__))
    assert all(map(os.path.exists, found))


def test_a_second_option_of_a_kind_is_chosen_by_a_digit():
    kinds = ["allow_once", "allow_always", "allow_always", "reject_once", "odd"]
    keys = answer_keys([{"kind": kind, "optionId": str(at)} for at, kind in enumerate(kinds)])
    assert {key: option["optionId"] for key, option in keys.items()} == {
        "y": "0",
        "a": "1",
        "1": "2",
        "n": "3",
        "2": "4",
    }


def update(**members: str) -> RecordedFrame:
    message = {"method": "session/update", "params": {"sessionId": "s", "update": dict(members)}}
    return RecordedFrame(Direction.FROM_AGENT, message, 0.0)


def test_updates_wait_between_turns_but_not_those_of_a_command_in_the_background(capsys):
    view = RunView("/", as_json=True)
    for _ in range(1000):
        view.frame(update(sessionUpdate="tool_call_update", status="in_progress"))
    view.frame(update(sessionUpdate="session_info_update"))
    assert capsys.readouterr().out == ""
    view.begin_turn()
    assert [json.loads(line)["update"] for line in capsys.readouterr().out.splitlines()] == [
        {"sessionUpdate": "session_info_update"}
    ]
    view.end_turn()
    view.frame(update(sessionUpdate="session_info_update"))
    view.end(TurnEnd(TurnOutcome.DONE), once=True)
    [last] = capsys.readouterr().out.splitlines()
    assert json.loads(last)["type"] == "result"


def used(tokens: int) -> TurnUsage:
    return {"inputTokens": tokens, "outputTokens": 1, "cachedReadTokens": tokens, "cachedWriteTokens": 0}


def test_the_last_line_says_what_the_turn_took():
    turn = SessionUsage(used(3000), 0.5).since(SessionUsage(used(1000), 0.25))
    end = TurnEnd(TurnOutcome.DONE, "end_turn", seconds=3.21, usage=turn.usage, cost=turn.cost)
    assert end.summary("0123456789") == "4,000 tokens in (2,000 cached), 0 out, $0.25, 3.2 s, session 01234567"


def test_what_is_not_known_is_left_out():
    turn = SessionUsage(used(1), None).since(SessionUsage(None, None))
    assert turn == (None, None)
    assert TurnEnd(TurnOutcome.DONE, seconds=1).summary("0123456789") == "1.0 s, session 01234567"


def test_a_turn_without_a_model_says_nothing_of_tokens():
    nothing = SessionUsage(used(1), 0.5).since(SessionUsage(used(1), 0.5))
    assert TurnEnd(TurnOutcome.DONE, seconds=1, usage=nothing.usage).summary("0123") == "1.0 s, session 0123"


def test_every_outcome_has_an_exit_code():
    assert set(EXIT_CODES) == set(TurnOutcome)
