"""What the tests of sessions share."""

from pathlib import Path

import pytest

from tests.fakes.home import move_in
from tests.unit.session.live_session import LiveSession


@pytest.fixture(autouse=True)
def without_walls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions that are built here run their commands without a sandbox, which not every machine can build."""
    monkeypatch.setattr("acp_agent.session.factory.session_sandbox", lambda *_: None)


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveSession:
    """A session that a test opens, in a folder with a configuration of its own."""
    move_in(monkeypatch, tmp_path)
    return LiveSession(tmp_path)
