"""`acp-agent login` and `logout`, as scripts, editors' terminals and people run them."""

import argparse
import io
import json
import os
import pty
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
import keyring
import pytest
from keyring.backends import fail

from acp_agent.cli.commands import command_line
from acp_agent.cli.login import login, logout
from acp_agent.core.errors import ConfigError
from tests.fakes.keyrings import LockedKeyring, MemoryKeyring
from tests.fakes.scripted_http import Reply, ScriptedHttp

KEY = "sk-obviously-fake-0123456789"
ASKED = {"config": None, "provider": None, "stdin": False, "no_check": False, "list": False}


@dataclass
class Ended:
    code: int
    out: list[str]
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def ring() -> Iterator[MemoryKeyring]:
    ring = MemoryKeyring()
    keyring.set_keyring(ring)
    yield ring
    keyring.set_keyring(fail.Keyring())  # never the machine's own, whoever comes next


@pytest.fixture
def run(monkeypatch, capsys, tmp_path: Path, ring) -> Run:
    for name in list(os.environ):
        if name.startswith(("ACP_AGENT_", "ANTHROPIC_", "OPENAI_", "OLLAMA_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", os.fspath(tmp_path / "data"))
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("ACP_AGENT_CONFIG", os.fspath(tmp_path / "config.toml"))

    def run(command: Callable[[argparse.Namespace], int], typed: str = "", **asked: object) -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        code = command(argparse.Namespace(**(ASKED | asked)))
        said = capsys.readouterr()
        return Ended(code, said.out.splitlines(), said.err)

    return run


def test_a_key_is_stored_in_the_keyring_listed_and_removed(run, ring, monkeypatch):
    done = run(login, f"{KEY}\n", provider="anthropic", stdin=True, no_check=True)
    assert (done.code, done.err) == (0, "")
    assert done.out[0] == f"Stored the key of anthropic in {ring.name}"
    assert "ACP_AGENT_MODEL=anthropic:MODEL" in done.out[3]
    assert ring.entries == {"acp-agent/anthropic": KEY}
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert run(login, list=True).out == ["anthropic    keyring", "openai       env OPENAI_API_KEY"]
    assert run(logout) == Ended(0, ["Removed the key of anthropic"], "")
    assert ring.entries == {}
    assert run(logout).out == ["No key is stored"]


def test_without_a_keyring_one_line_says_so_and_the_file_is_private(run, tmp_path, monkeypatch):
    keyring.set_keyring(fail.Keyring())
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    done = run(login, KEY, provider="openai", stdin=True, no_check=True)
    file = tmp_path / "data" / "credentials.toml"
    assert done.err == "acp-agent: this system has no keyring\n"
    assert done.out[:2] == [
        f"Stored the key of openai in {file}",
        "The variable OPENAI_API_KEY is set and takes precedence over the stored key",
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "openai       env OPENAI_API_KEY, file" in run(login, list=True).out
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    listed = run(login, list=True).out
    assert "openai       none" in listed
    assert "openai       file, not used: it is for the vendor's own address" in listed


def test_a_model_that_waited_for_its_key_is_no_problem_any_more(run, monkeypatch):
    monkeypatch.setenv("ACP_AGENT_MODEL", "anthropic:m")
    done = run(login, KEY, provider="anthropic", stdin=True, no_check=True)
    assert (len(done.out), done.err) == (1, "")


def test_a_key_that_is_not_for_the_model_that_is_set_is_told(run, monkeypatch):
    monkeypatch.setenv("ACP_AGENT_MODEL", "openai:m")
    done = run(login, KEY, provider="anthropic", stdin=True, no_check=True)
    assert done.out[1:] == ["The configured model is openai:m, which does not use this key"]


def test_a_keyring_that_lets_nothing_go_makes_logout_fail(run):
    run(login, KEY, provider="openai", stdin=True, no_check=True)
    keyring.set_keyring(LockedKeyring())
    done = run(logout, provider="openai")
    assert (done.code, done.out) == (1, ["Removed the key of openai"])
    assert "still in the keyring" in done.err
    assert "openai       none" in run(login, list=True).out


@pytest.mark.parametrize("command", ["login", "logout"])
def test_whose_key_it_is_may_be_said_either_way(command):
    parse = command_line().parse_args
    assert parse([command, "openai"]) == parse([command, "--provider", "openai"])
    assert parse([command]).provider is None


@pytest.mark.parametrize(
    ("command", "asked", "typed", "said"),
    [
        (login, {}, "", r"--provider: expected a provider, as there is no terminal to ask on \(.*anthropic.*\)"),
        (login, {"provider": "x", "stdin": True}, KEY, r"--provider = x: expected one of anthropic, openai"),
        (login, {"provider": "openai"}, "", r"expected a terminal to ask for the key, or --stdin"),
        (login, {"provider": "openai", "stdin": True}, "", r"key: expected printable ASCII without spaces"),
        (login, {"provider": "openai", "stdin": True}, "two words", r"key = \(not shown\): expected printable ASCII"),
        (login, {"provider": "openai", "stdin": True}, "k" * 5000, r"key = \(not shown\): .* at most 4096"),
        (logout, {"provider": "openai"}, "", r"provider = openai: expected a stored key; there is none"),
    ],
)
def test_what_cannot_be_done_is_told_and_nothing_is_stored(run, ring, tmp_path, command, asked, typed, said):
    with pytest.raises(ConfigError, match=said):
        run(command, typed, **asked)
    assert not ring.entries
    assert not (tmp_path / "data").exists()


@pytest.mark.anyio
async def test_the_server_is_asked_whether_it_takes_the_key(run, ring, tmp_path):
    models = Reply.plain(200, b'{"data": [{"id": "m1"}]}')
    refusal = Reply.plain(401, json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode())
    async with ScriptedHttp([models, refusal, Reply.plain(404, b"{}")]) as server:
        (tmp_path / "config.toml").write_text(
            f'[[llm.providers]]\nname = "corp"\ntype = "openai"\nbase_url = "{server.url}/v1"\n'
        )

        async def asked() -> Ended:
            return await anyio.to_thread.run_sync(lambda: run(login, KEY, provider="corp", stdin=True))

        taken = await asked()
        assert taken.code == 0
        assert taken.out[0] == "The server accepts the key and offers 1 model"
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        ring.entries.clear()
        refused = await asked()
        assert refused.code == 1
        assert "check the key that you entered; nothing is stored" in refused.err
        assert KEY not in refused.err
        assert not ring.entries
        unsure = await asked()
        assert unsure.code == 0
        assert "the key could not be checked" in unsure.err


IN_A_TERMINAL = """
import argparse, fcntl, sys, termios
from acp_agent.cli.login import login
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.exit(login(argparse.Namespace(config=None, provider=None, stdin=False, no_check=True, list=False)))
"""


def test_in_a_terminal_it_asks_and_never_shows_the_key(environment, home, tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL],
        env=environment
        | {"PYTHON_KEYRING_BACKEND": "tests.fakes.keyrings.FileKeyring", "FAKE_KEYRING": os.fspath(tmp_path / "ring")},
        cwd=home,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        assert re.search(r"1 +anthropic", _until(ours, "Number or name: "))
        os.write(ours, b"1\n")
        _until(ours, "API key of anthropic (not shown): ")
        os.write(ours, KEY.encode() + b"\n")
        assert KEY not in _until(ours, "Stored the key of anthropic in")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert KEY in (tmp_path / "ring").read_text()


def _until(terminal: int, words: str) -> str:
    """What is on the screen up to these words."""
    seen = ""
    while words not in seen:
        seen += os.read(terminal, 1024).decode()
    return seen
