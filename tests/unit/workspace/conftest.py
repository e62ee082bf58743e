"""A project folder with a neighbour that must stay untouched, and the openers there are."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_agent.workspace.beneath import Opener, kernel_open, walk_open
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots


def kernel_works(folder: Path) -> bool:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(kernel_open(fd, ".", os.O_RDONLY | os.O_DIRECTORY))
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The session's folder, `project`, beside `outside` with a secret in it."""
    folder = (tmp_path / "project").resolve()
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("SECRET\n")
    return folder


@pytest.fixture
def outside(project: Path) -> Path:
    return project.parent / "outside"


@pytest.fixture(params=[kernel_open, walk_open])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    opener: Opener = request.param
    if opener is kernel_open and not kernel_works(tmp_path):
        pytest.skip("this kernel has no openat2")
    return opener


@pytest.fixture
def roots(project: Path, opener: Opener) -> Iterator[Roots]:
    with Roots(str(project), opener=opener) as made:
        yield made


@pytest.fixture
def files(roots: Roots) -> LocalFileSystem:
    return LocalFileSystem(roots)
