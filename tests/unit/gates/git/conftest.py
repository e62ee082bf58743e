"""A repository that most tests begin with."""

import shutil
from pathlib import Path

import pytest

from tests.unit.gates.git_markers import with_one_commit


@pytest.fixture(scope="session")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_one_commit(tmp_path_factory.mktemp("template"))


@pytest.fixture
def one_commit(committed: Path, tmp_path: Path) -> Path:
    """A repository with one commit: a copy, which takes less than to have git make it."""
    return Path(shutil.copytree(committed, tmp_path / "work"))
