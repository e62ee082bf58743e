"""Who asks a session's user for more than a yes or no, if anybody can (requirements A28)."""

from acp_agent.config.settings import QuestionSettings
from acp_agent.core.elicitation import Elicitor
from acp_agent.core.redaction import Redact
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.session import Session


def session_elicitor(peer: Peer, session: Session, redact: Redact, settings: QuestionSettings) -> Elicitor | None:
    """One for a session, since only one question is shown at a time; None where it is off or the editor has no way."""
    client = session.client
    if not settings.elicitation or not (client.elicit_forms or client.elicit_urls):
        return None
    from acp_agent.protocol.elicitation import EditorElicitor  # noqa: PLC0415 - only sessions that can ask pay for it

    patience = settings.elicitation_timeout_secs
    return EditorElicitor(peer, session.id, client, redact, patience, wanted=lambda: session.turns.going_on)
