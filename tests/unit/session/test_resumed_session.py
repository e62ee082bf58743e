"""A session that goes on from the store: what the user sees, what he may reach, what he is told."""

from pathlib import Path
from typing import Any

import pytest

from acp_agent.agent import prompt as notes
from acp_agent.core.events import TextDelta, ThoughtDelta
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import HistoryState, SessionRecord, SessionSnapshot, UsageTotals
from acp_agent.protocol.client import Client
from tests.unit.session.live_session import LiveSession

pytestmark = pytest.mark.anyio

MESSAGES = (Message(Role.USER, (TextPart("go"),)), Message(Role.ASSISTANT, (TextPart("Done."),)))
TOKEN = "ghp_" + "a1B2" * 9


def saved(history: HistoryState | None = None, **more: Any) -> SessionSnapshot:
    tally = more.pop("tally", UsageTotals())
    return SessionSnapshot(
        SessionRecord("live", "/"), SessionOptions(), tally, history or HistoryState(MESSAGES), **more
    )


class Turns:
    """Prompts of a live session, without its model."""

    def __init__(self, root: Path, before: SessionSnapshot | None, config: str = "") -> None:
        self.live = LiveSession(root).open(config, before)
        self.session, self.engine = self.live.session, self.live.factory.engine()
        self.history = self.live.factory._conversation.history.messages()


async def test_a_url_that_was_typed_before_may_be_reached(tmp_path: Path):
    turns = Turns(tmp_path, saved(user_words=("read https://e.example/page",)))
    memory = turns.live.factory._gate_state.memory
    assert memory.urls.knows("https://e.example/page")


async def test_a_conversation_that_is_damaged_is_told(tmp_path: Path):
    for state, told in (
        (HistoryState(MESSAGES), 0),
        (HistoryState(MESSAGES, lost=1), 1),
        (HistoryState(MESSAGES[1:]), 1),
    ):
        turns = Turns(tmp_path, saved(state))
        damaged = [each for each in turns.session.notices._waiting if "could not be read" in each.text]
        assert len(damaged) == told


async def test_what_the_editor_told_of_its_languages_outlasts_an_engine(tmp_path: Path):
    live = LiveSession(tmp_path, client=Client(lsp_methods=frozenset({"lsp/hover"}))).open("")
    languages = live.session.languages
    assert languages is not None
    assert live.session.share_languages(live.tools.loaded) is languages


async def test_the_model_goes_on_from_what_the_user_saw_of_a_turn_that_broke_off(tmp_path: Path):
    asked = HistoryState(MESSAGES[:1])
    cut = (ThoughtDelta("hm", "t"), TextDelta(f"\n\nThe key is {TOKEN}, and", "a"))
    history = Turns(tmp_path, saved(asked, unfinished_messages=cut, tally=UsageTotals(under_way=True))).history
    assert [message.text for message in history] == ["go", "The key is [REDACTED:token], and", notes.INTERRUPTED]
    assert Turns(tmp_path, saved(asked)).history == MESSAGES[:1], "nothing broke off"
