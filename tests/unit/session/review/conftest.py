"""A session whose folder a test makes a repository of."""

from pathlib import Path

import pytest

from tests.unit.session.live_session import LiveSession


@pytest.fixture
async def live(live: LiveSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveSession:
    monkeypatch.setenv("HOME", str(tmp_path.resolve()))
    return live.open()
