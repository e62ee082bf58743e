"""A stored key makes a provider, at once and for those that run."""

import os
from pathlib import Path

import pytest

from acp_agent.config.files import Credential, read_credentials, stamp
from tests.unit.config.conftest import Load, told

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
