"""What every test shares."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

from tests.huge_pages import use_huge_pages

# The suite tries the same examples everywhere: a red run means a change and not luck. `make properties` gambles.
_NOISY = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    max_examples=12,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=_NOISY,
)
settings.register_profile("soak", deadline=None, max_examples=5000, suppress_health_check=_NOISY)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

if settings.default and settings.default.derandomize:
    # Otherwise the examples depend on the constants of all modules imported so far, and reading those takes seconds.
    providers.is_local_module_file = lambda _path: False

# Not every machine can build a sandbox. The tests of it switch it on.
os.environ.setdefault("ACP_AGENT_TOOLS__SANDBOX__MODE", "off")

_MEMORY = "/dev/shm"
_ENOUGH = 2 * 1024**3  # bytes


def _is_roomy(folder: str) -> bool:
    """Tell whether tests can write and run their files in a folder."""
    if not os.access(folder, os.W_OK):
        return False
    system = os.statvfs(folder)
    return system.f_bavail * system.f_frsize >= _ENOUGH and not system.f_flag & os.ST_NOEXEC


# Tests write and delete tens of thousands of small files: on a disk that takes twice the time of the tests themselves.
if sys.platform == "linux" and _is_roomy(_MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


def _is_script(program: str | None) -> bool:
    """Tell whether a program is a text that another program runs."""
    if program is None:
        return False
    with open(program, "rb") as file:
        return file.read(2) == b"#!"


# The `python3` of pyenv is a script that starts a dozen programs to find an interpreter. That takes thrice the time of
# most that tests have Python do, and they start it hundreds of times.
if _is_script(shutil.which("python3")):
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).resolve().parent), os.environ["PATH"]))

_NOT_SHOWN = {"logstart", "logfinish"}
"""Messages of a worker that change nothing of what is shown."""


def pytest_configure(config: pytest.Config) -> None:
    """Let a worker of xdist tell no more than the terminal shows.

    The other messages, four for each test, are packed and read in Python. That takes longer than many tests do.
    """
    worker = next((each for each in config.pluginmanager.get_plugins() if hasattr(each, "sendevent")), None)
    if worker is None or config.get_verbosity() > 0 or config.option.durations is not None:
        return
    send = worker.sendevent

    def send_what_is_shown(name: str, **event: Any) -> None:
        passed = name == "testreport" and event["data"]["outcome"] == "passed"
        if name not in _NOT_SHOWN and not (passed and event["data"]["when"] != "call"):
            send(name, **event)

    worker.sendevent = send_what_is_shown


gc.disable()  # until the tests are collected: looking for garbage takes a quarter of the time for that


def pytest_collection_finish() -> None:
    """What thousands of tests consist of stays to the end: no collection of garbage need look at it again."""
    gc.freeze()
    use_huge_pages()
    gc.set_threshold(200_000, 20, 50)
    gc.enable()


@pytest.fixture
def anyio_backend() -> str:
    """The agent runs on asyncio only."""
    return "asyncio"


@pytest.fixture
def collect_new() -> Iterator[Callable[[], int]]:
    """Collect the garbage that the test has made. What earlier tests left is not looked at, which would take a second.

    What the test made and still holds is in generations 0 and 1.
    """
    gc.disable()
    yield partial(gc.collect, 0)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _signals_are_as_in_the_foreground() -> Iterator[None]:
    """Handle SIGHUP and SIGINT here and in the processes that tests start, also under nohup or as a background job.

    A signal that this process ignores stays ignored in a child. One for which it has a handler has the default there.
    SIGINT needs the handler that Python sets in the foreground: an event loop takes no other for its own.
    """
    wanted: dict[signal.Signals, Callable[..., None]] = {
        signal.SIGHUP: lambda *_: None,
        signal.SIGINT: signal.default_int_handler,
    }
    ignored = [each for each in wanted if signal.getsignal(each) is signal.SIG_IGN]
    for each in ignored:
        signal.signal(each, wanted[each])
    yield
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)
