"""Where the configuration and the data are, and the file of stored keys."""

import os
import stat
from pathlib import Path

import pytest

from acp_agent.config.files import Credential, PathStamps, data_dir, data_path, read_credentials, stamp
from acp_agent.core.errors import ConfigError
from acp_agent.core.untrusted import now_ns
from tests.unit.config.conftest import Load, told


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


def test_the_variable_is_not_blamed_if_it_is_not_set(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"^data folder: expected a folder for data: .*file"):
        data_dir({})


def test_a_relative_folder_is_refused_since_editors_start_us_anywhere():
    with pytest.raises(ConfigError, match="ACP_AGENT_DATA_DIR = data: expected an absolute path"):
        data_path({"ACP_AGENT_DATA_DIR": "data"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that belongs to somebody else")
def test_a_folder_of_somebody_else_is_refused(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    os.chown(folder, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        data_dir({"ACP_AGENT_DATA_DIR": str(folder)})
    assert mode(str(folder)) == 0o755


KEY = "sk-obviously-fake-1"
STORED = f'[anthropic]\nbase_url = ""\nkey = "{KEY}"\n[other]\nbase_url = "http://h"\nkeyring = "mark"\n'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def test_what_the_file_says_and_nothing_it_does_not(data):
    file = data / "credentials.toml"
    file.write_text(STORED + '[x]\nbase_url = ""\n[y]\nkey = "k"\n')
    assert read_credentials(os.fspath(file)) == (
        Credential("anthropic", "", key=KEY),
        Credential("other", "http://h", mark="mark"),
    )
    assert KEY not in repr(read_credentials(os.fspath(file)))
    assert read_credentials(os.fspath(data / "none")) == ()


def test_a_stored_key_of_a_vendor_makes_it_a_provider_and_a_model_of_it_can_be_chosen(loading: Load, data):
    (data / "credentials.toml").write_text(STORED)
    environ = {"ACP_AGENT_DATA_DIR": os.fspath(data), "ACP_AGENT_MODEL": "anthropic:m"}
    loaded = loading(environ=environ)
    assert not loaded.problems
    assert loaded.settings.llm.model == "anthropic:m"
    assert [provider.name for provider in loaded.settings.llm.providers] == ["anthropic", "scripted"]
    assert loaded.origins["llm.providers.anthropic"] == "acp-agent login"
    assert KEY not in repr(loaded)


def test_a_login_while_a_session_runs_is_a_change_it_takes_up(loading: Load, data):
    loaded = loading(environ={"ACP_AGENT_DATA_DIR": os.fspath(data)})
    file = os.fspath(data / "credentials.toml")
    assert loaded.stamps[file] == stamp(file) is None
    Path(file).write_text(STORED)
    assert loaded.stamps[file] != stamp(file)


def test_a_file_that_cannot_be_read_is_told_without_what_it_says(loading: Load, data):
    (data / "credentials.toml").write_text(f"[anthropic]\nkey = {KEY}\n")
    (problem,) = told(loading(environ={"ACP_AGENT_DATA_DIR": os.fspath(data)}))
    assert problem.startswith("~/data/credentials.toml: expected TOML")
    assert KEY not in problem


def test_a_data_folder_that_is_none_is_told_by_whoever_needs_it(loading: Load):
    assert told(loading(environ={"ACP_AGENT_DATA_DIR": "relative"})) == []


@pytest.mark.parametrize("name", ["project/.acp-agent/config.toml", "data/credentials.toml"])
def test_a_configuration_is_current_until_one_of_its_files_changes_or_appears(loading: Load, tmp_path, name):
    loaded = loading(environ={"ACP_AGENT_CONFIG": os.devnull})
    assert loaded.is_current()
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    assert not loaded.is_current()
    file.unlink()
    assert loaded.is_current()


# ------------------------------------------------------------------------------------- stamps of paths


def soon() -> int:
    """A time at which what was just written is no longer new."""
    return now_ns() + 1_000_000_000


def test_stamps_hold_until_something_changes_at_one_of_the_paths(tmp_path: Path):
    file, folder, link, nowhere = (tmp_path / name for name in ("file", "folder", "link", "nowhere"))
    file.write_text("one")
    folder.mkdir()
    link.symlink_to(file)
    near = (tmp_path.stat().st_dev,)
    changes = {
        "a longer text": lambda: file.write_text("three"),
        "another file in its place": lambda: file.rename(tmp_path / "old") and file.write_text("three"),
        "a file in a folder": (folder / "new").touch,
        "a link to another file": lambda: (link.unlink(), link.symlink_to(tmp_path / "old")),
        "a file where there was none": (tmp_path / "missing").touch,
        "a link that leads nowhere": lambda: nowhere.symlink_to("gone"),
        "what that link leads to": (tmp_path / "gone").touch,
        "no folder any more": lambda: folder.rename(tmp_path / "away"),
    }
    for name, change in changes.items():
        stamps = PathStamps(soon)
        seen = {each: stamps.exists(str(each)) for each in (file, folder, link, nowhere, tmp_path / "missing")}
        assert seen == {each: os.path.lexists(each) for each in seen}, name
        assert stamps.hold(near), name
        change()
        assert not stamps.hold(near), name


def test_what_was_written_a_moment_ago_is_read_again_since_a_second_write_may_have_the_same_times(tmp_path: Path):
    (tmp_path / "file").write_text("one")
    stamps = PathStamps()
    assert stamps.exists(str(tmp_path / "file"))
    assert not stamps.hold((tmp_path.stat().st_dev,))


def test_the_disk_is_asked_once_for_each_path(tmp_path: Path):
    file, stamps = tmp_path / "file", PathStamps(soon)
    assert not stamps.exists(str(file))
    file.touch()
    assert not stamps.exists(str(file))
    assert stamps.of(str(file)) is None


def test_more_paths_than_can_be_looked_at_quickly_never_hold(tmp_path: Path):
    stamps = PathStamps(soon)
    for number in range(100):
        stamps.exists(str(tmp_path / str(number)))
    assert stamps.hold((1,))
    stamps.exists(str(tmp_path / "100"))
    assert not stamps.hold((1,))


def test_stamps_of_paths_on_other_devices_and_after_a_failed_reading_never_hold(tmp_path: Path):
    near = tmp_path.stat().st_dev
    (tmp_path / "file").touch()
    stamps = PathStamps(soon)
    assert stamps.exists(str(tmp_path / "file"))
    assert stamps.hold((near,))
    assert not stamps.hold((near + 1,)), "the device may hang"
    stamps.doubt()
    assert not stamps.hold((near,))
