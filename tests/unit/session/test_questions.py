"""Who can be asked: nobody where it is off, or where the editor has neither forms nor pages."""

from types import SimpleNamespace
from typing import cast

import pytest

from acp_agent.config.settings import QuestionSettings
from acp_agent.core.redaction import verbatim
from acp_agent.protocol.client import Client
from acp_agent.session.session import Session
from acp_agent.session.toolset.backends import session_elicitor
from acp_agent.session.turn_slot import TurnSlot
from tests.unit.protocol.wires import connected

pytestmark = pytest.mark.anyio


async def test_only_an_editor_that_can_and_a_user_who_wants_are_asked():
    async with connected() as (peer, _other):

        def elicitor(client: Client, *, on: bool = True):
            session = cast("Session", SimpleNamespace(id="s", client=client, turns=TurnSlot()))
            return session_elicitor(peer, session, verbatim, QuestionSettings(elicitation=on))

        assert elicitor(Client()) is None
        assert elicitor(Client(elicit_forms=True), on=False) is None
        forms, pages = elicitor(Client(elicit_forms=True)), elicitor(Client(elicit_urls=True))
        assert forms is not None
        assert pages is not None
        assert (forms.forms, forms.visits, pages.forms, pages.visits) == (True, False, False, True)
