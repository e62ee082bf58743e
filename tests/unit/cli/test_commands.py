"""What may stand on the command line, and how everything else is refused: one line, exit code 2."""

import json
import signal
import socket
import subprocess
import sys

import pytest

from acp_agent import __version__
from acp_agent.__main__ import main
from tests.fakes.forked_agent import CAN_FORK
from tests.fakes.forked_command import run_forked
from tests.unit.cli.conftest import COMMAND

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bogus"], ["--bogus"]),
        (["bogus"], ["'bogus'", "demo", "doctor"]),
        (["acp", "extra"], ["extra"]),
        (["--vers"], ["--vers"]),
        (["sessions", "export"], ["ID"]),
        (["sessions", "export", "--html"], ["ID"]),
        (["login", "openai", "--provider", "openai"], ["--provider", "PROVIDER"]),
        (["run"], ["PROMPT", "stdin"]),
        (["run", ""], ["PROMPT", "not nothing"]),
        (["run", " \n"], ["PROMPT", "not nothing"]),
        (["run", "hi", "--model", "gpt"], ["--model", "PROVIDER:MODEL", "'gpt'"]),
        (["run", "hi", "--mode", "yolo"], ["--mode", "'yolo'", "architect"]),
        (["run", "hi", "--yess"], ["--yess"]),
        (["config"], ["action"]),
        (["config", "edit"], ["'edit'", "show", "path", "init"]),
        (["schema", "nothing"], ["'nothing'", "config", "tools"]),
        (["--config"], ["--config"]),
        (["--config", "missing.toml"], ["--config", "'missing.toml'"]),
        (["doctor", "--config", "/"], ["--config", "'/'"]),
        (["acp", "x\x1b[2J\ny"], ["'x\\x1b[2J\\ny'", "'login'"]),
        (["acp", "login", "x\x1b[2J\ny"], ["x [2J y"]),
    ],
)
def test_wrong_usage_is_one_line_that_names_it(in_process, arguments, words):
    done = in_process(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("acp-agent: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr.rstrip("\n").isprintable()
    for word in words:
        assert word in done.stderr


def test_wrong_usage_ends_the_process_with_2(acp_agent):
    done = acp_agent("bogus")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


GONE = [
    *(["config", "show"], ["doctor"], ["redact"], ["filter", "--command", "ls"], ["sandbox", "--", "ls"]),
    *(["sessions", "list", "--cwd", "x"], ["--config", "x.toml", "config", "path"], ["check", "path", "x"]),
    ["run", "hi"],
]


@pytest.mark.parametrize("arguments", GONE, ids=" ".join)
def test_a_folder_that_is_gone_is_one_line(home, monkeypatch, capsys, arguments):
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(gone)
    gone.rmdir()
    code = main(arguments)
    said = "acp-agent: the current folder cannot be used, go to one that exists: No such file or directory\n"
    assert (code, *capsys.readouterr()) == (1, "", said)


def test_a_folder_that_no_session_can_have_is_one_line(home, monkeypatch, capsys):
    folder = home / "gr\udcfcn"
    folder.mkdir()
    monkeypatch.chdir(folder)
    code = main(["run", "hi"])
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert err.startswith("acp-agent: no session can be in a folder whose path is not UTF-8: ")


def test_a_character_that_the_terminal_lacks_is_replaced(acp_agent):
    done = acp_agent("check", "path", "gr\xfcn/\u2713", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("denied     read gr?n/?\n")


def test_version_and_help(acp_agent, in_process):
    assert acp_agent("--version").stdout == f"acp-agent {__version__}\n"
    for command in ("acp", "demo", "run", "doctor", "config", "schema"):
        assert command in in_process("--help").stdout
    assert "--yes" in in_process("run", "--help").stdout


def _run(environment, home, arguments, *, given="", closed=(), cold=False) -> "subprocess.CompletedProcess[str]":
    """Run a command with some of its streams closed. Where it can be forked, only `cold` ones are started anew."""
    if CAN_FORK and not cold:
        return run_forked(arguments, environment, str(home), 50, given.encode(), closed)
    closing = " ".join(f"{number}>&-" for number in closed)
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closing}', "sh", *COMMAND, *arguments],
        env=environment,
        cwd=home,
        input=given,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize("arguments", [[], ["acp"], ["--config", "c.toml"], ["acp", "--config", "c.toml"]])
def test_without_another_command_it_serves_an_editor(environment, home, arguments):
    (home / "c.toml").touch()
    done = _run(environment, home, arguments, given=json.dumps(INITIALIZE) + "\n", cold=not arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["agentInfo"]["name"] == "acp-agent"


def test_the_server_takes_the_mode_from_the_flag(environment, home):
    new = {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": str(home), "mcpServers": []}}
    process = subprocess.Popen(
        [*COMMAND, "acp", "--mode", "ask", "--model", "scripted:hello"],
        env=environment | {"ACP_AGENT_ACP__MODE": "architect"},
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(INITIALIZE), json.dumps(new), sep="\n", file=process.stdin, flush=True)
    answers = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.communicate(timeout=50)
    assert answers[1]["id"] == 2
    assert answers[1]["result"]["modes"]["currentModeId"] == "ask"


@pytest.mark.parametrize("position", ["before", "after"])
def test_the_file_may_be_named_on_either_side_of_the_command(in_process, home, position):
    (home / "c.toml").write_text("[logging]\nlevel = 'debug'")
    flag, command = ["--config", "c.toml"], ["config", "show"]
    done = in_process(*(flag + command if position == "before" else command + flag))
    assert f'logging.level = "debug" # {home}/c.toml\n' in done.stdout
    assert in_process("config", "path", "--config", "~/c.toml").stdout == f"{home}/c.toml\n"


@pytest.mark.parametrize("name", ["config", "tools"])
def test_a_schema_is_json(in_process, name):
    done = in_process("schema", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)


def test_a_reader_that_goes_away_is_no_error(environment, home):
    process = subprocess.Popen(
        [*COMMAND, "schema", "config"], env=environment, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=50)
    assert errors == b""
    assert process.returncode == 141


def test_no_stdout_at_all_is_no_error(environment, home):
    done = _run(environment, home, ["config", "path"], closed=[1])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", [["run", "hello"], ["demo"]])
def test_what_only_draws_a_conversation_needs_stdout(environment, home, command):
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *command],
        env=environment,
        cwd=home,
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == b"acp-agent: stdout is closed, so the conversation cannot be shown; redirect it to a file\n"


@pytest.mark.parametrize(
    ("command", "closed"),
    [
        (["filter", "--command", "ls"], (0, 1, 2)),
        (["check", "--stdin"], (0, 1, 2)),
        *((["redact"], closed) for closed in ((0,), (1,), (0, 1), (0, 1, 2))),
    ],
)
def test_closed_streams_are_empty_and_their_numbers_are_not_given_to_files(environment, home, command, closed):
    done = _run(environment, home, command, closed=closed, cold=command == ["check", "--stdin"])
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_with_130_and_without_a_traceback(environment, home):
    """The doctor waits for a model server that never answers; the interrupt comes when it has asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        process = subprocess.Popen(
            [*COMMAND, "doctor"],
            env=environment | {"OPENAI_BASE_URL": address, "ACP_AGENT_MODEL": "openai:slow"},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        server.settimeout(50)
        connection, _ = server.accept()
        with connection:
            connection.recv(1)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=50)
    assert process.returncode == 130
    assert errors == b""


@pytest.mark.parametrize(
    ("commands", "unused"),
    [
        ((["--version"], ["--help"]), ("pydantic", "anyio", "acp", "httpx", "asyncio")),
        ((["config", "path"], ["sessions", "list"], ["check", "path", "."], ["audit", "verify"]), ("acp", "httpx")),
        ((["schema", "tools"], ["doctor"]), ("acp",)),
    ],
    ids=["about itself", "what is kept", "what is offered"],
)
def test_a_subcommand_does_not_load_what_it_does_not_use(environment, home, commands, unused):
    code = (
        f"import sys; from acp_agent.__main__ import main\n"
        f"for arguments in {commands}:\n"
        f"    try: main(arguments)\n"
        f"    except SystemExit: pass\n"
        f"    print('loaded by', arguments, [m for m in {unused} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=home, capture_output=True, text=True, check=True
    )
    loaded = [line for line in done.stdout.splitlines() if line.startswith("loaded by")]
    assert loaded == [f"loaded by {arguments} []" for arguments in commands]
