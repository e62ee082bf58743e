"""An agent without the collector of cyclic garbage (`python -m ...`): what it gives back, it gives back itself."""

import gc
import sys

from acp_agent import __main__


def _ignored() -> None:
    """Do nothing: the agent switches the collector on again after it has loaded modules."""


def prepare() -> None:
    """Switch the collector off for good."""
    gc.enable = _ignored
    gc.disable()


if __name__ == "__main__":
    prepare()
    sys.exit(__main__.main([]))
