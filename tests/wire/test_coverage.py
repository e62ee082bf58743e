"""Every word of the protocol is used, or stands in NOT_SERVED with the reason why not; `docs/protocol.md` shows it.

`ACP_AGENT_PROTOCOL=write pytest tests/wire/test_coverage.py` writes that page anew.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_agent.cli.agent_process import Direction, RecordedFrame
from acp_agent.core.events import Notice, Severity
from acp_agent.protocol.jsonrpc import internal_error
from acp_agent.protocol.updates import notice
from tests.fakes.editor import editing
from tests.wire import rules, schema, whole_story
from tests.wire.protocol_page import NOT_SERVED, page
from tests.wire.quirks import QUIRKS, known_tests
from tests.wire.test_golden import GOLDEN
from tests.wire.vocabulary import METHOD, Vocabulary, Word

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not schema.available(), reason="the protocol's schema is not beside this checkout"),
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
UNFORESEEN = "an answer to nothing that was asked, or the second one: id None"  # to the line that is no JSON


def on_file() -> Iterator[RecordedFrame]:
    """The golden conversations."""
    for file in sorted(GOLDEN.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            sender = Direction.FROM_AGENT if entry["from"] == "agent" else Direction.TO_AGENT
            yield RecordedFrame(sender, entry["message"], 0.0)


def of_broken_agents() -> Iterator[RecordedFrame]:
    """What an agent says only when something of ours is broken, from the places that say it."""
    update = notice(Notice(Severity.ERROR, "it broke"), known=True)
    params = {"sessionId": "s", "update": update}
    yield RecordedFrame(Direction.FROM_AGENT, {"jsonrpc": "2.0", "method": "session/update", "params": params}, 0.0)
    yield RecordedFrame(Direction.FROM_AGENT, {"jsonrpc": "2.0", "id": 1, "error": internal_error().to_wire()}, 0.0)


async def test_every_word_of_the_protocol_is_used_or_has_a_reason_not_to_be(tmp_path):
    told = editing(
        tmp_path,
        whole_story.SCRIPT,
        capabilities=whole_story.EVERYTHING,
        config=whole_story.config(tmp_path / "chores"),
        environment={**whole_story.KEYS, "ACP_AGENT_STRICT": "1"},
        lawful=False,
    )
    async with told as editor:
        await whole_story.whole_story(editor)
    frames = editor.recording.frames
    assert "messages checked" in editor.log
    assert "strict: sent" not in editor.log, editor.log
    assert schema.violations(editor.recording) == []
    assert [each.partition(": ")[2] for each in rules.broken(editor.recording)] == [UNFORESEEN]

    vocabulary = Vocabulary()
    used = vocabulary.used([*frames, *of_broken_agents(), *on_file()])
    assert sorted(vocabulary.all() - used - set(NOT_SERVED)) == [], "neither used nor explained"
    assert sorted(set(NOT_SERVED) & used) == [], "used, and explained why not"


def test_what_is_not_served_is_in_the_protocol() -> None:
    assert sorted(set(NOT_SERVED) - Vocabulary().all()) == []


def test_the_vocabulary_has_what_the_protocol_is_known_for() -> None:
    words = Vocabulary().all()
    assert len({word.name for word in words if word.kind == METHOD}) == 25
    assert len([word for word in words if word.kind == "SessionUpdate"]) == 14
    unstable = Vocabulary(schema.UNSTABLE_FILE).all()
    assert Word(Direction.TO_AGENT, METHOD, "session/fork") in unstable - words


def test_only_messages_as_the_schema_wants_them_count() -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "session/set_mode", "params": {"sessionId": "s", "modeId": "ask"}}
    question = RecordedFrame(Direction.TO_AGENT, asked, 0.0)
    answer = RecordedFrame(Direction.FROM_AGENT, {"jsonrpc": "2.0", "id": 1, "result": {}}, 0.0)
    wrong = RecordedFrame(Direction.TO_AGENT, {**asked, "params": {"sessionId": 7}}, 0.0)
    said = Word(Direction.TO_AGENT, METHOD, "session/set_mode")
    used = Vocabulary().used
    assert used([question, answer]) == {said}
    assert used([question]) == used([answer]) == used([wrong, answer]) == set()


def test_the_page_says_what_is_served_and_why_the_rest_is_not() -> None:
    written = page(Vocabulary().all())
    if os.environ.get("ACP_AGENT_PROTOCOL") == "write":
        PAGE.write_text(written, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == written


def test_every_peculiarity_of_a_client_has_a_test() -> None:
    assert [quirk.test for quirk in QUIRKS if quirk.test not in known_tests()] == []
