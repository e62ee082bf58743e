"""An agent that may open few files (`python -m ...`, forked)."""

import os
import resource
import sys

from acp_agent import __main__

VARIABLE = "ACP_AGENT_TEST_DESCRIPTORS"
"""The environment variable with the soft and the hard limit."""


def prepare() -> None:
    """Limit the descriptors of this process."""
    soft, hard = map(int, os.environ[VARIABLE].split())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


if __name__ == "__main__":
    prepare()
    sys.exit(__main__.main([]))
