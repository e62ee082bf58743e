"""Where data is kept: ours alone, or not at all."""

import os
import stat

import pytest

from acp_agent.config.files import data_dir, data_path
from acp_agent.core.errors import ConfigError


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_the_data_folder_is_made_with_its_parents_and_closed_to_others(tmp_path):
    wanted = tmp_path / "a" / "b"
    assert data_dir({"ACP_AGENT_DATA_DIR": str(wanted)}) == str(wanted)
    assert mode(str(wanted)) == 0o700


@pytest.mark.parametrize("loose", [0o755, 0o777, 0o740, 0o701])
def test_an_open_folder_of_ours_is_closed(tmp_path, loose):
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(loose)
    data_dir({"ACP_AGENT_DATA_DIR": str(folder)})
    assert mode(str(folder)) & 0o077 == 0


def test_a_file_in_its_place_is_told(tmp_path):
    (tmp_path / "data").touch()
    with pytest.raises(ConfigError, match=r"ACP_AGENT_DATA_DIR: expected a folder for data: .*File exists"):
        data_dir({"ACP_AGENT_DATA_DIR": str(tmp_path / "data")})


def test_a_relative_folder_is_refused_since_editors_start_us_anywhere():
    with pytest.raises(ConfigError, match="ACP_AGENT_DATA_DIR = data: expected an absolute path"):
        data_path({"ACP_AGENT_DATA_DIR": "data"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that belongs to somebody else")
def test_a_folder_of_somebody_else_is_refused(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    os.chown(folder, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to somebody else"):
        data_dir({"ACP_AGENT_DATA_DIR": str(folder)})
    assert mode(str(folder)) == 0o755
