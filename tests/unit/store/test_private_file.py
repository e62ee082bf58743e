"""Small files of our own: what is put in their place, and what is left alone."""

import os
import stat

import pytest

from acp_agent.store.private_file import read_private, replace_private


def test_a_file_is_replaced_by_a_whole_one_that_nobody_else_reads(tmp_path):
    path = tmp_path / "answers.toml"
    path.write_text("a = 1\n")
    replace_private(str(path), "b = 2\n")
    assert read_private(str(path)) == {"b": 2}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["answers.toml"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("elsewhere", path), os.mkdir])
def test_what_is_no_file_stays_what_it_is(tmp_path, make):
    path = str(tmp_path / "answers.toml")
    make(path)
    before = os.lstat(path)
    with pytest.raises(OSError, match="not a regular file"):
        replace_private(path, "b = 2\n")
    assert os.lstat(path) == before
    assert os.listdir(tmp_path) == ["answers.toml"]
