"""A clock or a file's time from far away stops nobody: Python's clock ends in April 2262, its days in the year 9999."""

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.files import stamp
from acp_agent.core.untrusted import now_ms, now_ns, utc
from acp_agent.protocol.updates import iso_time
from acp_agent.workspace.local_files import file_stamp
from acp_agent.workspace.roots import Roots
from tests.rows import each_row

BEYOND = """if True:
    import sys, time

    def beyond():
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    time.time = time.time_ns = beyond
    from acp_agent.__main__ import main
    sys.exit(main([]))
"""
"""The agent as Python runs it after April 2262."""

FAR = [-(2**40), -(10**9), -1, 0, 2**33, 10**10, 2**34 - 1]
"""Seconds since 1970 that some file system keeps."""


def beyond() -> int:
    """Raise what `time.time_ns` raises after April 2262."""
    raise OverflowError("timestamp too large to convert to C _PyTime_t")


def test_the_time_stands_still_where_python_cannot_tell_it():
    assert abs(now_ns() - time.time_ns()) < 60_000_000_000
    assert now_ns(beyond) == 2**63 - 1
    assert iso_time(now_ms(beyond)) == "2262-04-11T23:47:16.854Z"


@given(st.one_of(st.integers(), st.floats(allow_nan=False)))
def test_any_number_of_seconds_is_a_moment_that_can_be_told(seconds: float):
    assert 1 <= utc(seconds).year <= 9999


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_time_that_a_database_can_hold_is_one_that_editors_understand(at_ms: int):
    assert datetime.fromisoformat(iso_time(at_ms)).tzinfo is not None


class Agent:
    """The agent on pipes, in a private home, with a clock beyond April 2262."""

    def __init__(self, folder: Path) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "ACP_AGENT_DATA_DIR": str(folder / "data"),
            "ACP_AGENT_ACP__AUTO_APPROVE": "full-auto",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", BEYOND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=folder
        )
        self._requests = 0

    def request(self, method: str, **params: object) -> Any:
        """Return the result of one request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests += 1
        request = {"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._requests:
                return answer["result"]
        raise AssertionError("the agent has gone")

    def end(self) -> int:
        """Close its input and return its exit code."""
        self._process.communicate(timeout=20)
        return self._process.returncode


def test_a_session_works_after_april_2262(tmp_path: Path):
    agent = Agent(tmp_path)
    agent.request("initialize", protocolVersion=1, clientCapabilities={})
    session = agent.request("session/new", cwd=str(tmp_path), mcpServers=[])["sessionId"]
    for text in ("/status", "/run echo after > all"):
        done = agent.request("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])
        assert done["stopReason"] == "end_turn"
    assert (tmp_path / "all").read_text() == "after\n"
    (listed,) = agent.request("session/list")["sessions"]
    assert listed["updatedAt"] == "2262-04-11T23:47:16.854Z"
    assert agent.end() == 0


@each_row("seconds", FAR)
def test_a_file_of_any_age_has_a_stamp(tmp_path: Path, seconds: int):
    file = tmp_path / "file"
    file.write_text("x")
    try:
        os.utime(file, (seconds, seconds))
    except (OSError, OverflowError):
        pytest.skip("no such time on this file system")
    assert stamp(str(file)) is not None
    with Roots(str(tmp_path)) as roots:
        for now in (now_ns(), now_ns(beyond)):
            anyio.run(lambda now=now: file_stamp(roots, str(file), lambda: now))
