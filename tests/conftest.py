"""What every test shares."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The agent runs on asyncio only."""
    return "asyncio"
