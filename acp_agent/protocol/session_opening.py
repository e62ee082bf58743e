"""What a session is made of, and how many there may be."""

from dataclasses import dataclass

from acp_agent.core.sessions import SessionRecord, SessionSnapshot
from acp_agent.protocol.client import Client
from acp_agent.protocol.place import Place


@dataclass(frozen=True, slots=True)
class Opening:
    """What a session is made of; `saved` is None for one that begins."""

    record: SessionRecord
    place: Place
    client: Client
    saved: SessionSnapshot | None = None


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """`[acp]` max_sessions and session_idle_timeout_secs; 0 seconds keep idle sessions awake."""

    awake: int = 16
    idle_seconds: float = 1800.0
