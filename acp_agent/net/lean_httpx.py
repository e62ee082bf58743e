"""httpx without its command line.

Where click, rich and pygments happen to be installed - and `mcp` brings click - httpx loads all three for a command
nobody calls here: up to 60 ms and 4 MB of a first prompt. Told that its module for that is not there, it does without.
"""

import sys

sys.modules.setdefault("httpx._main", None)  # pyright: ignore[reportArgumentType] - how Python marks a missing module

import httpx  # noqa: E402 - after the line that it is about

__all__ = ["httpx"]
