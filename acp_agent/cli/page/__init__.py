"""A session as one HTML page that stands by itself: no script, nothing loaded from elsewhere, everything escaped."""

from acp_agent.cli.page.page import write_page

__all__ = ["write_page"]
