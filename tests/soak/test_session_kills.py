"""Sessions whose writers are killed, more often than the suite has time for."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


def test_three_hundred_killed_writers_leave_every_change_they_acknowledged_whole_and_once(tmp_path):
    command = [sys.executable, "-m", "tests.unit.store.session_writer", "kills", tmp_path / "agent.db", "300"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1000
