"""`acp-agent doctor`: every check on something real, and advice for whatever it finds wrong."""

import json
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from acp_agent.cli.doctor import CheckLevel, CheckResult, check_data_folder, check_model
from acp_agent.config.load import Flags, load
from acp_agent.workspace.sandbox.sandbox import SandboxTier, tier_works

KEY = "sk-obviously-fake-0123456789"
SCRIPTED = {"ACP_AGENT_MODEL": "scripted:hello"}


class Server:
    """A model server on 127.0.0.1 that gives every request the same answer and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.body, self.type = 400, b'{"error": {"message": "messages is too short"}}', "application/json"
        self.asked: list[tuple[str, dict[str, str], dict[str, object]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(server.status)
                self.send_header("content-type", server.type)
                self.send_header("content-length", str(len(server.body)))
                self.end_headers()
                self.wfile.write(server.body)

            def log_message(self, *_: object) -> None:
                """Stay quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def model_server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


@pytest.fixture
def asking(tmp_path: Path):
    """`await asking("openai:m", VARIABLE="value")`: the finding about that model."""
    file = tmp_path / "c.toml"
    file.touch()

    async def run(model: str, **variables: str) -> CheckResult:
        environ = {"ACP_AGENT_CONFIG": str(file), "ACP_AGENT_MODEL": model, **variables}
        loaded = load(Flags(), environ)
        assert not loaded.problems
        (finding,) = await check_model(loaded, environ)
        return finding

    return run


def lines(done, subject: str) -> list[str]:
    return [line for line in done.stdout.splitlines() if line[6:].startswith(f"{subject} ")]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for PATH with programs that work, and no others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "bash").symlink_to("/bin/bash")
    (folder / "git").write_text("#!/bin/bash\necho git 1.2.3\n")
    (folder / "git").chmod(0o755)
    return folder


def test_when_all_is_well_every_line_is_ok_and_the_exit_code_0(acp_agent, home, programs):
    walls = {"ACP_AGENT_TOOLS__SANDBOX__MODE": "auto" if tier_works(SandboxTier.BUBBLEWRAP) else "off"}
    done = acp_agent("doctor", PATH=str(programs), **walls, **SCRIPTED)
    assert done.stderr == ""
    assert [line[:6] for line in done.stdout.splitlines()] == ["ok    "] * 8
    assert [line[6:].split()[0] for line in done.stdout.splitlines()] == [
        *("config", "model", "data", "rg", "git", "bash", "terminal", "sandbox"),
    ]
    assert lines(done, "rg")[0].startswith(f"ok    rg        {Path(sys.executable).parent}/rg: ripgrep ")
    assert lines(done, "git") == [f"ok    git       {programs}/git: git 1.2.3"]
    assert (home / ".local" / "share" / "acp-agent").stat().st_mode & 0o777 == 0o700
    assert done.returncode == 0


def test_without_a_model_it_says_how_to_get_one(in_process, home):
    done = in_process("doctor")
    assert done.returncode == 1
    (line,) = lines(done, "model")
    assert line.startswith("FAIL  model     none is chosen -> ")
    for word in ("ACP_AGENT_MODEL", "OPENAI_API_KEY", f"{home}/.config/acp-agent/config.toml"):
        assert word in line


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "body", "level", "words"),
    [
        (400, {"error": {"message": "messages: too short"}}, "ok", ["answers"]),
        (422, {"detail": "messages must not be empty"}, "ok", ["answers"]),
        (401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, "FAIL", ["key", "OPENAI_API_KEY"]),
        (403, {}, "FAIL", ["key"]),
        (404, {"error": {"message": "no such model"}}, "FAIL", ["'m'", "base_url"]),
        (402, {"error": {"message": "no money"}}, "FAIL", ["credit"]),
        (429, {}, "warn", ["try again later"]),
        (500, {}, "FAIL", ["500"]),
    ],
)
async def test_the_model_server_is_really_asked(asking, model_server, status, body, level, words):
    model_server.status, model_server.body = status, json.dumps(body).encode()
    finding = await asking("openai:m", OPENAI_API_KEY=KEY, OPENAI_BASE_URL=f"{model_server.address}/v1")
    assert finding.level == level, finding
    for word in words:
        assert word in finding.line()
    assert KEY not in repr(finding)
    path, headers, sent = model_server.asked[0]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert sent["messages"] == [], "a conversation without a word costs nothing"
    assert sent["model"] == "m"


@pytest.mark.anyio
async def test_a_server_that_takes_the_empty_conversation_is_held_to_one_token(asking, model_server):
    chunk = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "length"}]}
    model_server.status, model_server.type = 200, "text/event-stream"
    model_server.body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    finding = await asking("openai:m", OPENAI_BASE_URL=f"{model_server.address}/v1")
    assert finding == CheckResult(CheckLevel.OK, "model", "openai:m: answers")
    _, headers, sent = model_server.asked[0]
    assert sent["max_tokens"] == 1
    assert "authorization" not in headers


@pytest.mark.anyio
async def test_the_other_wire_formats_are_asked_in_their_own_way(asking, model_server):
    await asking("anthropic:m", ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=model_server.address)
    path, headers, sent = model_server.asked[0]
    assert path == "/v1/messages"
    assert headers["x-api-key"] == KEY
    assert (sent["messages"], sent["max_tokens"]) == ([], 1)
    await asking("ollama:m:8b", OLLAMA_HOST=model_server.address.removeprefix("http://"))
    assert model_server.asked[1][2]["model"] == "m:8b"


def test_a_server_that_is_not_there(in_process, model_server):
    address = f"{model_server.address}/v1"
    model_server.http.shutdown()  # a socket somebody polls still takes connections after its end
    model_server.http.server_close()
    done = in_process("doctor", OPENAI_BASE_URL=address, ACP_AGENT_MODEL="openai:m")
    (line,) = lines(done, "model")
    assert line.startswith(f"FAIL  model     cannot reach openai at {model_server.address} (Connection refused)")


def test_a_key_that_is_missing_is_named_by_its_variable(in_process, home):
    (home / "c.toml").write_text("[llm]\nmodel = 'a:m'\n[[llm.providers]]\nname = 'a'\ntype = 'anthropic'\n")
    done = in_process("doctor", "--config", "c.toml")
    (line,) = lines(done, "model")
    assert line.startswith("FAIL")
    assert "ANTHROPIC_API_KEY" in line
    assert done.returncode == 1


def test_programs_that_are_missing_or_broken(in_process, programs):
    (programs / "git").write_text("#!/bin/bash\nexit 1\n")
    done = in_process("doctor", PATH=str(programs), **SCRIPTED)
    assert lines(done, "git") == [
        f"warn  git       {programs}/git does not start -> install git; most projects need it"
    ]
    assert done.returncode == 0, "it can be done without"


def test_without_a_shell_there_are_no_commands(in_process, programs):
    (programs / "bash").unlink()
    done = in_process("doctor", PATH=str(programs), **SCRIPTED)
    assert lines(done, "bash")[0].startswith("FAIL  bash      not found -> install bash")
    assert lines(done, "terminal")[0].startswith("FAIL  terminal  neither bash nor sh is on PATH -> ")
    assert done.returncode == 1


def test_every_problem_of_the_configuration_is_a_line(in_process, home):
    (home / ".acp-agent").mkdir()
    (home / ".acp-agent" / "config.toml").write_text("[acp]\nauto_approve = 'full-auto'\n")
    done = in_process("doctor", **SCRIPTED)
    (line,) = lines(done, "config")
    assert line.startswith("warn")
    assert "acp.auto_approve" in line
    (home / "c.toml").write_text("[acp]\nmode = 'x'\n[agent]\nmax_tool_iterations = -1\n")
    done = in_process("doctor", "--config", "c.toml", **SCRIPTED)
    assert [line.split()[0] for line in lines(done, "config")] == ["FAIL", "FAIL", "warn"]
    assert done.returncode == 1


def test_a_configuration_that_others_may_write_is_told(in_process, home):
    (home / "c.toml").touch(0o666)
    (home / "c.toml").chmod(0o666)
    done = in_process("doctor", "--config", "c.toml", **SCRIPTED)
    assert lines(done, "config") == [f"warn  config    others may write {home}/c.toml -> chmod 600 {home}/c.toml"]


@pytest.mark.parametrize(
    ("folder", "words"), [("relative", ["absolute path"]), ("{home}/file", ["File exists"]), ("/proc/x", ["data"])]
)
def test_a_data_folder_that_cannot_be_used(in_process, home, folder, words):
    (home / "file").touch()
    done = in_process("doctor", ACP_AGENT_DATA_DIR=folder.format(home=home), **SCRIPTED)
    (line,) = lines(done, "data")
    assert line.startswith("FAIL")
    assert line.endswith("-> choose another folder with ACP_AGENT_DATA_DIR")
    for word in words:
        assert word in line
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("version", "content", "words"),
    [
        (99, None, ["format 99", "of a newer acp-agent"]),
        (0, b"this was a database once" * 1000, ["cannot be used: it is no database"]),
        (1, None, []),
    ],
)
def test_a_database_that_cannot_be_used_is_told_and_left_as_it_is(in_process, home, version, content, words):
    file = home / "data" / "acp-agent.db"
    file.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute(f"PRAGMA user_version = {version}")
    if content:
        file.write_bytes(content)
    before = file.read_bytes()
    done = in_process("doctor", ACP_AGENT_DATA_DIR=str(file.parent), **SCRIPTED)
    (line,) = lines(done, "data")
    assert line.startswith("FAIL" if words else "ok")
    for word in words:
        assert word in line
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_key_that_was_stored_by_login_is_used(in_process, home, model_server):
    (home / "data").mkdir(mode=0o700)
    stored = home / "data" / "credentials.toml"
    stored.write_text(f'[openai]\nbase_url = "{model_server.address}/v1"\nkey = "{KEY}"\n')
    stored.chmod(0o600)
    in_process(
        "doctor",
        ACP_AGENT_DATA_DIR=str(home / "data"),
        ACP_AGENT_MODEL="openai:m",
        OPENAI_BASE_URL=f"{model_server.address}/v1",
    )
    assert model_server.asked[0][1]["authorization"] == f"Bearer {KEY}"


def test_a_data_folder_on_the_network_is_told(tmp_path):
    mounts = tmp_path / "mounts"
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    device = folder.stat().st_dev
    mounts.write_text(f"31 22 {os.major(device)}:{os.minor(device)} / /home rw - nfs4 host:/x rw\n")
    (finding,) = check_data_folder({"ACP_AGENT_DATA_DIR": str(folder)}, str(mounts))
    assert finding.level is CheckLevel.WARN
    assert "network file system (nfs4)" in finding.text
    (finding,) = check_data_folder({"ACP_AGENT_DATA_DIR": str(folder)}, str(tmp_path / "absent"))
    assert finding.level is CheckLevel.OK


def test_a_line_is_one_line_whatever_is_in_it():
    line = CheckResult(CheckLevel.FAIL, "config", "bad\n\x1b[2J" + "x" * 9999, "do\rthis").line()
    assert line.isprintable()
    assert len(line) < 600
