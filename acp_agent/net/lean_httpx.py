"""httpx without its command line.

If click, rich and pygments are installed, httpx loads all three for a command that is never run here. `mcp` installs
click. That would cost the first prompt up to 60 ms and 4 MB.
"""

from acp_agent.core.lean_import import without

with without("httpx._main"):
    import httpx

__all__ = ["httpx"]
