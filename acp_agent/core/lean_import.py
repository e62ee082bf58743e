"""Libraries without what they would load for show where it happens to be installed."""

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without(module: str) -> Generator[None]:
    """Imports in the body find that a module is not installed, unless it has been loaded before."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # pyright: ignore[reportArgumentType] - how Python marks a module that is not there
    try:
        yield
    finally:
        del sys.modules[module]
