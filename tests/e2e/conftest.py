"""A folder in which `acp-agent run` works, and a command there that runs until it is ended."""

from collections.abc import Iterator

import pytest

from tests.e2e.running import Folder
from tests.fakes.held import Fifo


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def held(folder) -> Iterator[Fifo]:
    """The command `sh hold.sh`: it says its pid, and its child's, and sleeps."""
    fifo = Fifo(folder.work / "alive")
    (folder.work / "hold.sh").write_text('sleep 60 &\necho "$$ $!" > alive\nwait\n')
    yield fifo
    fifo.close()
