"""An agent without the collector of cyclic garbage (`python -m ...`): what it gives back, it gives back itself."""

import gc
import sys

from acp_agent import __main__


def _ignored() -> None:
    """Do nothing: the agent switches the collector on again after it has loaded modules."""


if __name__ == "__main__":
    gc.enable = _ignored
    gc.disable()
    sys.exit(__main__.main([]))
