"""Who can be asked: nobody if questions are switched off, or if the editor has neither forms nor pages."""

from pathlib import Path

import pytest

from acp_agent.protocol.client import Client
from tests.unit.session.live_session import LiveSession

pytestmark = pytest.mark.anyio


async def test_only_an_editor_that_can_and_a_user_who_wants_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ACP_AGENT_CONFIG", str(tmp_path.resolve() / "config.toml"))
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", str(tmp_path.resolve() / "data"))

    def elicitor(client: Client, *, on: bool = True):
        live = LiveSession(tmp_path, client=client).open(f"[acp]\nelicitation = {str(on).lower()}\n")
        return live.factory.elicitor

    assert elicitor(Client()) is None
    assert elicitor(Client(elicit_forms=True), on=False) is None
    forms, pages = elicitor(Client(elicit_forms=True)), elicitor(Client(elicit_urls=True))
    assert forms is not None
    assert pages is not None
    assert (forms.forms, forms.visits, pages.forms, pages.visits) == (True, False, False, True)
