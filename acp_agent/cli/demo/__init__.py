"""`acp-agent demo`: an editor and the real server over real pipes, with a model that follows a script."""

from acp_agent.cli.demo.story import demo

__all__ = ["demo"]
