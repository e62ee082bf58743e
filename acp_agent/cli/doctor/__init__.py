"""`acp-agent doctor`: is everything there that the agent needs, and if not, what to do about it."""

from acp_agent.cli.doctor.visit import doctor

__all__ = ["doctor"]
