"""Import a library without an optional module that it would load only for coloured output."""

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without(module: str) -> Generator[None]:
    """Let imports in the body see a module as not installed, unless it was loaded before."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # pyright: ignore[reportArgumentType] - how Python marks a module that is not there
    try:
        yield
    finally:
        del sys.modules[module]
