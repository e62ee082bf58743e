"""How a checker may have ended, for its parser."""

from acp_agent.core.backends import CommandOutcome


def said(stdout: str = "", stderr: str = "", exit_code: int | None = 0) -> CommandOutcome:
    return CommandOutcome(stdout + stderr, stdout, stderr, exit_code)
