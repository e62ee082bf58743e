"""A session that goes on under a configuration it did not begin with: it has rested, it moves, or a file was mended."""

from acp_agent.config import Loaded
from acp_agent.config.conduct import conduct_taken_up
from acp_agent.protocol.session import Session


def take_up(session: Session, loaded: Loaded) -> None:
    """Have it conduct itself as `loaded` lets it, by what the user has chosen; he hears of what is tighter now."""
    conduct, tightened = conduct_taken_up(loaded, session.conduct)
    if tightened:
        session.notices.warn(tightened)
    if conduct != session.conduct:
        session.begin_anew(conduct)
