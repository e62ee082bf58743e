"""What was said in a session without the secrets in it, for a page that others may read."""

from collections.abc import AsyncIterator

from acp_agent.compose.session_texts import redacted
from acp_agent.core.redaction import Redact
from acp_agent.core.sessions import ToldAt
from acp_agent.store.session_file import joined


async def without_secrets(told: AsyncIterator[ToldAt], redact: Redact) -> AsyncIterator[ToldAt]:
    """The events with every text in them redacted. Messages are joined first: a secret may come in two pieces."""
    async for one in joined(told):
        yield redacted(one, redact)
