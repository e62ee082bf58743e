"""Where keys are stored, and what becomes of them when the keyring or the file does not play along."""

import os
import resource
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backends import fail, null

from acp_agent.config.files import stamp
from acp_agent.core.errors import ConfigError
from acp_agent.store.credentials import CredentialStore
from tests.fakes.keyrings import HangingKeyring, LockedKeyring, MemoryKeyring

KEY, OTHER = "sk-obviously-fake-1", "sk-obviously-fake-2"


@pytest.fixture(autouse=True)
def none_of_the_machines_own() -> Iterator[None]:
    keyring.set_keyring(fail.Keyring())
    yield
    keyring.set_keyring(fail.Keyring())


@pytest.fixture
def ring() -> MemoryKeyring:
    ring = MemoryKeyring()
    keyring.set_keyring(ring)
    return ring


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, told: list[str]) -> CredentialStore:
    return CredentialStore({"ACP_AGENT_DATA_DIR": os.fspath(tmp_path / "data")}, told.extend, patience=30)


def file_of(tmp_path: Path) -> Path:
    return tmp_path / "data" / "credentials.toml"


def test_who_never_logged_in_has_no_key_no_folder_and_asks_no_keyring(store, ring, tmp_path):
    assert store.key("anthropic", "") == ""
    assert not store.has("anthropic", "")
    assert ring.asked == 0
    assert not (tmp_path / "data").exists()
    assert store.forget().providers == ()


def test_a_key_goes_into_the_keyring_and_only_a_mark_into_the_file(store, ring, tmp_path, told):
    kept = store.keep("anthropic", None, KEY)
    assert kept.where == ring.name
    assert kept.remark == ""
    assert ring.entries == {"acp-agent/anthropic": KEY}
    assert KEY not in file_of(tmp_path).read_text()
    assert store.key("anthropic", "") == KEY
    assert KEY in told


def test_without_a_keyring_it_goes_into_a_private_file(store, tmp_path):
    kept = store.keep("anthropic", "https://h/v1/", KEY)
    assert kept.where == os.fspath(file_of(tmp_path))
    assert kept.remark == "this system has no keyring"
    assert stat.S_IMODE(file_of(tmp_path).stat().st_mode) == 0o600
    assert store.key("anthropic", "https://h/v1") == KEY
    assert [path.name for path in (tmp_path / "data").iterdir() if "lock" not in path.name] == ["credentials.toml"]


def test_a_keyring_that_keeps_nothing_is_none(store, tmp_path):
    keyring.set_keyring(null.Keyring())
    assert "did not store the key" in store.keep("anthropic", None, KEY).remark
    assert store.key("anthropic", "") == KEY


def test_a_keyring_that_fails_is_told_in_one_line(store):
    keyring.set_keyring(LockedKeyring())
    assert store.keep("a", None, KEY).remark == "the keyring failed: org.freedesktop.DBus: it is locked"
    assert store.key("a", "") == KEY


def test_a_keyring_that_hangs_is_not_waited_for(tmp_path):
    ring = HangingKeyring()
    keyring.set_keyring(ring)
    store = CredentialStore({"ACP_AGENT_DATA_DIR": os.fspath(tmp_path / "data")}, patience=0.05)
    try:
        assert store.keep("a", None, KEY).remark == "the keyring did not answer in 0.05 s"
        assert store.key("a", "") == KEY
    finally:
        ring.release.set()
        for thread in threading.enumerate():
            if thread.name == "keyring":
                thread.join()


def test_a_key_is_for_one_provider_at_one_address(store):
    store.keep("corp", "https://llm.corp.example/v1", KEY)
    assert store.has("corp", "https://llm.corp.example/v1/")
    assert store.key("corp", "https://evil.example/v1") == ""
    assert store.key("corp", "") == ""
    assert store.key("other", "https://llm.corp.example/v1") == ""


def test_a_second_login_takes_the_place_of_the_first_at_once(store, ring):
    store.keep("a", None, KEY)
    assert store.key("a", "") == KEY
    CredentialStore(store._environ, patience=30).keep("a", None, OTHER)  # another process
    assert store.key("a", "") == OTHER


def test_the_keyring_is_asked_once_for_each_login(store, ring):
    store.keep("a", None, KEY)
    before = ring.asked
    assert [store.key("a", "") for _ in range(3)] == [KEY] * 3
    assert ring.asked == before + 1


def test_a_keyring_that_lost_the_key_is_told_with_what_to_do(store, ring):
    store.keep("a", None, KEY)
    ring.entries.clear()
    with pytest.raises(ConfigError, match="provider 'a': key: expected the keyring to hold the stored key; run `acp"):
        store.key("a", "")
    keyring.set_keyring(LockedKeyring())
    with pytest.raises(ConfigError, match=r"expected the keyring to give the stored key: .* it is locked"):
        store.key("a", "")


def test_forgetting_removes_one_key_or_all_from_wherever_they_are(store, ring, tmp_path):
    store.keep("a", None, KEY)
    store.keep("b", None, KEY)
    keyring.set_keyring(fail.Keyring())
    store.keep("c", None, OTHER)
    keyring.set_keyring(ring)
    assert store.forget("a").providers == ("a",)
    assert (store.key("a", ""), store.key("b", ""), store.key("c", "")) == ("", KEY, OTHER)
    assert set(store.forget().providers) == {"b", "c"}
    assert ring.entries == {}
    assert OTHER not in file_of(tmp_path).read_text()
    assert store.key("b", "") == ""


def test_a_key_that_a_later_login_left_in_the_keyring_is_removed_at_logout(store, ring, tmp_path):
    store.keep("a", None, KEY)
    keyring.set_keyring(LockedKeyring())
    store.keep("a", "https://h/v1", OTHER)
    store.keep("a", None, OTHER)
    assert store.key("a", "") == OTHER
    assert store.forget().remark.startswith("the key of a is still in the keyring")
    keyring.set_keyring(ring)
    store.keep("a", None, KEY)
    keyring.set_keyring(fail.Keyring())
    store.keep("a", None, OTHER)
    keyring.set_keyring(ring)
    assert store.key("a", "") == OTHER
    assert store.forget().remark == ""
    assert ring.entries == {}


def test_what_the_keyring_does_not_let_go_is_used_no_more_and_told(store, ring):
    store.keep("a", None, KEY)
    keyring.set_keyring(LockedKeyring())
    forgotten = store.forget()
    assert forgotten.providers == ("a",)
    assert "the key of a is still in the keyring" in forgotten.remark
    assert store.key("a", "") == ""


@pytest.mark.parametrize("text", ["[a", "a = 1\n[b]\nkey = 2\n[c]\nbase_url = 3\nkey = ''\n", "\xff"])
def test_a_file_that_says_nothing_useful_holds_no_key_and_is_replaced(store, tmp_path, text):
    file_of(tmp_path).parent.mkdir()
    file_of(tmp_path).write_bytes(text.encode("latin-1"))
    assert store.key("a", "") == ""
    store.introduce()
    kept = store.keep("a", None, KEY)
    assert store.key("a", "") == KEY
    assert ("set aside" in kept.remark) is (not text.startswith("a"))


def test_a_place_that_takes_nothing_is_told(store, tmp_path):
    file_of(tmp_path).mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"credentials\.toml: expected a file that can be written"):
        store.keep("a", None, KEY)


def test_the_keys_of_the_file_are_told_before_anybody_asks(store, told):
    store.keep("a", None, KEY)
    told.clear()
    store.introduce()
    assert told == [KEY]


def test_the_keys_of_a_file_that_is_damaged_or_was_set_aside_are_told_as_well(store, told, tmp_path):
    file_of(tmp_path).parent.mkdir()
    file_of(tmp_path).write_text(
        '[a]\nbase_url = ""\nkey = "fake-one-4711"\n[b]\n"key"=\'fake-two-4711\'\nkey = "cut-off-4711'
    )
    store.introduce()
    assert told == ["fake-one-4711", "fake-two-4711", "cut-off-4711"]
    told.clear()
    store.keep("c", None, KEY)
    assert {*told} == {KEY, "fake-one-4711", "fake-two-4711", "cut-off-4711"}
    assert [each.name for each in file_of(tmp_path).parent.glob("*damaged*")] == ["credentials.toml.damaged-1"]
    told.clear()
    store.introduce()
    assert {*told} == {KEY, "fake-one-4711", "fake-two-4711", "cut-off-4711"}


def test_a_file_that_could_not_be_read_once_is_read_the_next_time(store, told, tmp_path):
    store.keep("a", None, KEY)
    while stamp(str(file_of(tmp_path))) != stamp(str(file_of(tmp_path))):
        pass  # a file that was just written is read each time
    told.clear()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        store.introduce()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert told == []
    store.introduce()
    assert told == [KEY]
    store.introduce()
    assert told == [KEY]


def test_the_keyring_package_is_loaded_by_nothing_but_a_question_to_it(tmp_path):
    code = (
        "import sys; from acp_agent.store.credentials import CredentialStore as C;"
        f"s = C({{'ACP_AGENT_DATA_DIR': {os.fspath(tmp_path)!r}}}); s.introduce(); assert s.key('a', '') == '';"
        "assert 'keyring' not in sys.modules"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0
