"""Fewer and smaller messages between the workers of pytest-xdist and their controller.

A worker sends eight messages for each test, which are packed and read in Python. That takes longer than many tests do.
Here it leaves out those that change nothing of what is shown, and sends the others many at a time, packed in C.
"""

import pickle
import threading
import time
from typing import Any

import pytest

_NOT_SHOWN = {"logstart", "logfinish"}
_PATIENCE = 0.1  # seconds
"""The time for which a message waits for others. A worker that crashes has not told of the tests of that time."""


class Batches:
    """The messages of a worker that wait to be sent.

    channel   takes them
    queue     the tests that the worker has yet to run
    """

    def __init__(self, worker: Any) -> None:
        self._channel, self._queue, self._take = worker.channel, worker.torun, worker.torun.get
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._since = 0.0
        self._lock = threading.Lock()  # the thread that hears the controller sends too

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_to_serializable(self, report: Any) -> dict[str, Any] | None:
        """Leave out what a fixture has to tell, which is not shown if it works."""
        if report.passed and report.when in {"setup", "teardown"}:
            return {"outcome": "passed", "when": report.when}
        return None

    def send(self, name: str, **event: Any) -> None:
        """Send a message, with those before. One that is like thousands of others may wait for a moment."""
        report: dict[str, Any] = event["data"] if name == "testreport" else {}
        passed = report.get("outcome") == "passed"
        if name in _NOT_SHOWN or (passed and report["when"] != "call"):
            return
        may_wait = passed or name == "runtest_protocol_complete"
        with self._lock:
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append((name, event))
            if not may_wait or time.monotonic() - self._since > _PATIENCE:
                self._flush()

    def next_test(self) -> Any:
        """Return the next test. Nothing waits while the worker waits for one: the controller may wait for it."""
        with self._queue.lock() as tests:
            is_empty = not tests
        if is_empty:
            with self._lock:
                self._flush()
        return self._take()

    def _flush(self) -> None:
        if self._waiting:
            self._channel.send(pickle.dumps(self._waiting))
            self._waiting.clear()


def send_in_batches(config: pytest.Config) -> None:
    """Let this process send few messages, if it is a worker and the terminal shows no more than a dot for a test."""
    worker = next((each for each in config.pluginmanager.get_plugins() if hasattr(each, "sendevent")), None)
    if worker is None or config.get_verbosity() > 0 or config.option.durations is not None:
        return
    batches = Batches(worker)
    worker.sendevent, worker.torun.get = batches.send, batches.next_test
    config.pluginmanager.register(batches)


def take_batches(node: Any) -> None:
    """Let the controller take the batches of a worker."""
    take = node.process_from_remote

    def take_each(message: Any) -> None:
        for each in pickle.loads(message) if isinstance(message, bytes) else (message,):
            take(each)

    node.process_from_remote = take_each
