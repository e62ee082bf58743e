"""What a worker of pytest-xdist tells its controller, and when."""

import pickle
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.worker_messages import Batches, take_batches

PASSED = {"outcome": "passed", "when": "call"}
DONE = "runtest_protocol_complete"


class Worker:
    """A worker that keeps what it sends. The tests it has yet to run are `tests`."""

    def __init__(self, *tests: int) -> None:
        self.tests, self.batches = [*tests], list[list[tuple[str, dict[str, Any]]]]()
        self.channel = self.torun = self

    def send(self, data: bytes) -> None:
        self.batches.append(pickle.loads(data))

    @contextmanager
    def lock(self) -> Generator[list[int]]:
        yield self.tests

    def get(self) -> int:
        return self.tests.pop(0) if self.tests else -1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which goes on only if a test says so."""
    now = [0.0]
    monkeypatch.setattr("tests.worker_messages.time.monotonic", lambda: now[0])
    return now


def test_what_thousands_of_tests_tell_goes_together_and_in_order(clock: list[float]):
    worker = Worker()
    batches = Batches(worker)
    for number in range(3):
        batches.send("testreport", data=PASSED)
        batches.send(DONE, item_index=number)
    assert worker.batches == []
    clock[0] += 1
    batches.send("testreport", data=PASSED)
    (batch,) = worker.batches
    assert [event.get("item_index") for _, event in batch] == [None, 0, None, 1, None, 2, None]


def test_a_failure_and_all_that_is_rare_is_told_at_once(clock: list[float]):
    for name, event in (
        ("testreport", {"data": {"outcome": "failed", "when": "call"}}),
        ("testreport", {"data": {"outcome": "failed", "when": "teardown"}}),
        ("testreport", {"data": {"outcome": "skipped", "when": "setup"}}),
        ("unscheduled", {"indices": [1]}),
    ):
        worker = Worker()
        batches = Batches(worker)
        batches.send(DONE, item_index=0)
        batches.send(name, **event)
        assert worker.batches == [[(DONE, {"item_index": 0}), (name, event)]]


def test_what_is_not_shown_is_not_told(clock: list[float]):
    worker = Worker()
    batches = Batches(worker)
    batches.send("logstart", nodeid="a")
    batches.send("testreport", data={**PASSED, "when": "setup"})
    batches.send("unscheduled", indices=[])
    assert worker.batches == [[("unscheduled", {"indices": []})]]


def test_nothing_waits_while_the_worker_waits_for_a_test(clock: list[float]):
    worker = Worker(7)
    batches = Batches(worker)
    batches.send(DONE, item_index=0)
    assert batches.next_test() == 7
    assert worker.batches == []
    batches.next_test()
    assert worker.batches == [[(DONE, {"item_index": 0})]]


def test_the_controller_takes_each_message_of_a_batch_and_those_that_come_alone():
    class Node:
        def __init__(self) -> None:
            self.taken: list[Any] = []

        def process_from_remote(self, message: Any) -> None:
            self.taken.append(message)

    node = Node()
    take_batches(node)
    node.process_from_remote(pickle.dumps([("a", {}), ("b", {})]))
    node.process_from_remote(("c", {}))
    assert node.taken == [("a", {}), ("b", {}), ("c", {})]
