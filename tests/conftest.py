"""What every test shares."""

import gc
import os

import pytest
from hypothesis import HealthCheck, Phase, settings

# The suite tries the same examples everywhere, so that a red run means a change and not luck; `make soak` gambles.
_NOISY = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    max_examples=50,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=_NOISY,
)
settings.register_profile("soak", deadline=None, max_examples=5000, suppress_health_check=_NOISY)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_collection_finish() -> None:
    """What thousands of tests consist of stays to the end: no collection of garbage need look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture
def anyio_backend() -> str:
    """The agent runs on asyncio only."""
    return "asyncio"
