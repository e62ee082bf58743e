"""A session whose folder a test makes a repository of."""

import os
from pathlib import Path

import pytest

from tests.unit.session.live_session import LiveSession


@pytest.fixture
async def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveSession:
    for name in [name for name in os.environ if name.startswith("ACP_AGENT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path.resolve()))
    monkeypatch.setenv("ACP_AGENT_CONFIG", str(tmp_path.resolve() / "config.toml"))
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", str(tmp_path.resolve() / "data"))
    return LiveSession(tmp_path).open()
