"""A user, a project and an environment, all private to one test."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_agent.config.load import Flags, Loaded, load

Load = Callable[..., Loaded]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def loading(tmp_path: Path, project: Path) -> Load:
    """`loading(user=TOML, project=TOML, environ={...}, flags=Flags(...))`; what is not given is not there."""

    def run(
        user: str | None = None,
        in_project: str | None = None,
        environ: dict[str, str] | None = None,
        flags: Flags | None = None,
    ) -> Loaded:
        file = tmp_path / "config.toml"
        file.write_text(user or "")
        if in_project is not None:
            (project / ".acp-agent").mkdir(exist_ok=True)
            (project / ".acp-agent" / "config.toml").write_text(in_project)
        private = {"ACP_AGENT_CONFIG": str(file), "ACP_AGENT_DATA_DIR": str(tmp_path / "data")}
        return load(flags or Flags(), private | (environ or {}), os.fspath(project))

    return run


def told(loaded: Loaded) -> list[str]:
    """The problems without the folders of this machine."""
    return [str(problem).replace(os.path.dirname(loaded.file), "~") for problem in loaded.problems]
