"""What sessions of one process share, with whom, and what ends with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rows import each_row
from tests.unit.session.process_services import CHECKS

NAMES = [check.__name__ for check in CHECKS]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The error of each check, "" where it passes."""
    # In a process of its own: the services change the one they are in (log, signals, who inherits orphans).
    folders = [tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")]
    data = tmp_path_factory.mktemp("data")
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.session.process_services", *map(str, folders)],
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "ACP_AGENT_DATA_DIR": str(data), "ACP_AGENT_LOGGING__LEVEL": "error"},
    )
    assert done.stderr == b""
    return json.loads(done.stdout)


def test_sessions_share_rules_and_looks_only_under_equal_settings_in_the_same_folders(errors: dict[str, str]) -> None:
    assert errors["sessions_share_rules_and_looks_only_under_equal_settings_in_the_same_folders"] == ""


@each_row("name", NAMES)
def test_the_services_of_a_process_keep_their_promises(errors: dict[str, str], name: str) -> None:
    assert errors[name] == "", errors[name]
