"""httpx without its command line.

Where click, rich and pygments happen to be installed - and `mcp` brings click - httpx loads all three for a command
nobody calls here: up to 60 ms and 4 MB of a first prompt.
"""

from acp_agent.core.lean_import import without

with without("httpx._main"):
    import httpx

__all__ = ["httpx"]
