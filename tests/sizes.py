"""Sizes that are small in the suite and large under `make properties`."""

import os
from typing import TypeVar

T = TypeVar("T")

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
"""Whether tests may take minutes."""


def sized(usual: T, thorough: T) -> T:
    """Return a size for the suite, or the one for `make properties`."""
    return thorough if THOROUGH else usual
