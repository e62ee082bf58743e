"""Who asks a session's user for more than a yes or no, if anybody can (requirements A28)."""

from collections.abc import Callable

from acp_agent.config.question_settings import QuestionSettings
from acp_agent.core.elicitation import Elicitor
from acp_agent.core.redaction import Redact
from acp_agent.protocol.client import Client
from acp_agent.protocol.peer import Peer


def session_elicitor(
    peer: Peer,
    session_id: str,
    client: Client,
    redact: Redact,
    settings: QuestionSettings,
    wanted: Callable[[], bool],
) -> Elicitor | None:
    """One for a session, since only one question is shown at a time; None where it is off or the editor has no way."""
    if not settings.elicitation or not (client.elicit_forms or client.elicit_urls):
        return None
    from acp_agent.protocol.elicitation import EditorElicitor  # noqa: PLC0415 - only sessions that can ask pay for it

    return EditorElicitor(peer, session_id, client, redact, settings.elicitation_timeout_secs, wanted)
