"""A writer that dies anywhere between two bytes: what it acknowledged is there, and the file is whole."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.store.audit import head_file
from acp_agent.store.audit_read import verify
from tests.unit.store.audit_files import call, log_at, verified, whole


class Dead(BaseException):
    """The process ends here: nothing after it is written."""


@contextmanager
def dying(function: str, calls: int, share: float) -> Iterator[None]:
    """`os.<function>` works so many times; then a share of the data is written, and that was it.

    A lock and an open file end with a process, and so they do with this exception.
    """
    real, left = getattr(os, function), calls

    def fatal(*arguments, **named):
        nonlocal left
        left -= 1
        if left >= 0:
            return real(*arguments, **named)
        if function == "write":
            fd, data = arguments
            real(fd, data[: int(len(data) * share)])
        raise Dead

    setattr(os, function, fatal)
    try:
        yield
    finally:
        setattr(os, function, real)


def die(path: Path, function: str, calls: int = 0, share: float = 0.5) -> None:
    with suppress(Dead), dying(function, calls, share):
        log_at(path, max_bytes=500).append(call(command="fatal"))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_half_a_line_is_finished_by_the_next_writer(tmp_path, share):
    path = tmp_path / "audit.jsonl"
    log_at(path).append(call())
    before = path.read_bytes()
    with suppress(Dead), dying("write", 0, share):
        log_at(path).append(call(command="fatal"))
    torn = path.read_bytes()[len(before) :]
    assert whole(path) == ([f"{len(torn)} bytes of a record that was not finished"] if torn else [])
    log_at(path).append(call())
    after = path.read_bytes()
    assert after.startswith(before + torn)
    assert whole(path) == []
    assert [json.loads(line)["seq"] for line in after.splitlines()] == ([1, 2, 3] if torn else [1, 2])


@pytest.mark.parametrize("draft", [b"", b"x\n", b'{"seq":2}\n'])
def test_half_a_line_that_nobody_can_finish_is_kept_and_the_chain_goes_on_behind_it(tmp_path, draft):
    path = tmp_path / "audit.jsonl"
    log_at(path).append(call())
    before = path.read_bytes()
    die(path, "write")
    torn = path.read_bytes()[len(before) :]
    head = Path(head_file(str(path)))
    head.write_bytes(head.read_bytes()[:107] + draft)
    log_at(path).append(call())
    assert path.read_bytes().startswith(before + torn + b"\n")
    assert whole(path) == [f"{len(torn)} bytes of a record that was not finished"]
    assert verified(path).records == 3


def test_a_line_that_lacks_only_its_end_counts(tmp_path):
    path = tmp_path / "audit.jsonl"
    log_at(path).append(call())
    with suppress(Dead), dying("pwrite", 1, 0):  # the head is written once beforehand
        log_at(path).append(call())
    path.write_bytes(path.read_bytes()[:-1])
    log_at(path).append(call())
    assert whole(path) == []
    assert verified(path).records == 3


def test_a_first_line_that_was_not_finished_is_finished(tmp_path):
    path = tmp_path / "audit.jsonl"
    die(path, "write")
    log_at(path).append(call())
    assert verified(path).records == 2
    assert whole(path) == []


DEATHS = st.tuples(st.sampled_from(["write", "pwrite", "link", "replace", "none"]), st.integers(0, 2), st.floats(0, 1))


@given(deaths=st.lists(DEATHS, min_size=1, max_size=8))
def test_any_row_of_deaths_leaves_a_file_that_verifies(tmp_path_factory, deaths):
    path = tmp_path_factory.mktemp("deaths") / "audit.jsonl"
    acknowledged = 0
    for function, calls, share in deaths:
        if function != "none":
            die(path, function, calls, share)
        acknowledged += log_at(path, max_bytes=500).append(call())
        reports = list(verify(str(path)))
        assert [report.fault for report in reports if report.fault] == []
        assert sum(report.records for report in reports) >= acknowledged
