"""`acp-agent run` as people run it: a real process, with a terminal and without."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.running import COMMAND, LIMIT, server_of, shown
from tests.fakes.held import processes_ended
from tests.fakes.model_script import says, uses, write_script

pytestmark = pytest.mark.anyio

EDIT = [uses(("edit", {"path": "a.txt", "old_string": "one", "new_string": "two"})), says("done")]
HOLD = [uses(("bash", {"command": "sh hold.sh"})), says("never said")]


def test_yes_does_the_edit_and_exits_0(folder):
    folder.model(EDIT)
    done = folder.run("--yes", "mend it")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder.work / "a.txt").read_text() == "two\n"
    assert "+two" in done.stdout
    assert "done" in done.stdout


@pytest.mark.parametrize("flags", [["--yes"], ["--yes", "--mode=architect"]])
def test_a_level_of_the_command_line_is_not_kept_with_the_session(folder, flags):
    folder.model(EDIT)
    folder.run(*flags, "/mode code")
    assert folder.run(*flags, "mend it").returncode == 0
    for listed in folder.sessions():
        kept = json.loads(folder.call("sessions", "export", listed["id"], "--json", "-"))["options"]
        assert {"auto_approve", "readonly"}.isdisjoint(kept)
        assert "auto_approve" not in kept.get("chosen", [])


def test_without_a_terminal_it_rejects_and_says_how_to_allow(folder):
    folder.model([uses(("bash", {"command": "touch touched"})), says("so be it")])
    done = folder.run("do it")
    assert not (folder.work / "touched").exists()
    assert "Allow?" in done.stdout
    assert "--yes asks nothing" in done.stdout
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1


def test_without_a_model_it_exits_1_with_the_advice(folder):
    done = folder.run("hello")
    assert done.returncode == 1
    assert "ACP_AGENT_MODEL" in done.stdout
    assert "ANTHROPIC_API_KEY" in done.stdout


def test_the_model_and_the_mode_of_the_command_line_win_over_the_environment(folder):
    chosen = write_script(folder.home.root, EDIT)
    (folder.home.root / "config.toml").touch()
    folder.home.extra |= {"ACP_AGENT_LLM__MODEL": "openai:another", "ACP_AGENT_ACP__MODE": "code"}
    assert folder.run("--yes", "--model", chosen, "mend it").returncode == 0
    assert (folder.work / "a.txt").read_text() == "two\n"
    (folder.work / "a.txt").write_text("one\n")
    folder.run("--yes", "--model", chosen, "--mode", "ask", "mend it")
    assert (folder.work / "a.txt").read_text() == "one\n"


async def test_sigint_cancels_the_command_and_exits_130(folder, held):
    folder.model(HOLD)
    with folder.started("--yes", "wait") as process:
        pids = [int(word) for word in (await held.line()).split()]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 130
    await processes_ended(pids)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_a_command_cannot_read_the_keys_in_the_environment_of_run(folder, held):
    folder.home.extra["OPENAI_API_KEY"] = "obviously-fake"
    folder.model(HOLD)
    with folder.started("--yes", "wait", cold=True) as process:
        await held.line()
        for pid in (process.pid, server_of(process)):
            with pytest.raises(PermissionError):
                Path(f"/proc/{pid}/environ").read_bytes()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("words", [["run", "--yes", "wait"], ["demo"]], ids=["run", "demo"])
def test_run_and_demo_cannot_be_dumped_before_they_start_an_agent(folder, words):
    seen = folder.work / "seen"
    # The event loop is reached only after the hardening: there the process looks at itself.
    look = (
        "import asyncio, ctypes, pathlib, sys\nimport anyio.from_thread\n"
        "def look(*_):\n"
        f"    pathlib.Path({str(seen)!r}).write_text(str(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)))\n"
        "    sys.exit(0)\n"
        "asyncio.run = anyio.from_thread.start_blocking_portal = look\n"
        f"from acp_agent.__main__ import main\nsys.exit(main({words!r}))\n"
    )
    subprocess.run(
        [sys.executable, "-c", look], cwd=folder.work, env=folder.home.environment(), timeout=LIMIT, check=True
    )
    assert seen.read_text() == "0"


async def test_ctrl_c_at_the_question_ends_at_once_with_130(folder):
    folder.model([uses(("bash", {"command": "touch touched"})), says("no")])
    ours, theirs = os.openpty()
    try:
        with folder.started("do it", stdin=theirs, stdout=theirs) as process:
            await shown(ours, b"[y] ")
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT) == 130
    finally:
        os.close(ours)
        os.close(theirs)
    assert not (folder.work / "touched").exists()


@pytest.mark.parametrize(("typed", "touched"), [(b"what?\ny\n", True), (b"n\n", False), (b"\x04", False)])
async def test_the_answer_typed_on_the_terminal_counts(folder, typed, touched):
    folder.model([uses(("bash", {"command": "touch touched"})), says("the end")])
    ours, theirs = os.openpty()
    try:
        with folder.started("do it", stdin=theirs, stdout=theirs) as process:
            await shown(ours, b"[y] ")
            os.write(ours, typed)
            process.wait(LIMIT)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (folder.work / "touched").exists() is touched


async def test_keys_typed_before_the_question_is_drawn_answer_nothing(folder):
    asks = uses(("bash", {"command": "touch touched"}), ("write", {"path": "b.txt", "content": "b"}))
    folder.model([asks, says("the end")])
    ours, theirs = os.openpty()
    os.write(ours, b"y\ny\nya\na")
    try:
        with folder.started("do it", stdin=theirs, stdout=theirs, short_waits=False) as process:
            for _ in range(2):
                await shown(ours, b"[y] ")
                os.write(ours, b"n\ny\ny\n")  # what follows the answer is early for the next question
            assert process.wait(LIMIT) == 0
    finally:
        os.close(ours)
        os.close(theirs)
    assert not (folder.work / "touched").exists()
    assert not (folder.work / "b.txt").exists()


async def test_a_question_nobody_can_see_is_not_answered_from_the_keyboard(folder):
    folder.model([uses(("bash", {"command": "touch touched"})), says("the end")])
    ours, theirs = os.openpty()
    os.write(ours, b"y\n")
    try:
        with folder.started("do it", stdin=theirs) as process:
            stdout, _ = process.communicate(timeout=LIMIT)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"nobody can be asked" in stdout
    assert not (folder.work / "touched").exists()


def test_an_answer_in_a_pipe_is_no_consent(folder):
    folder.model([uses(("bash", {"command": "touch touched"})), says("the end")])
    with folder.started("do it", stdin=subprocess.PIPE) as process:
        stdout, _ = process.communicate(b"y\ny\n", timeout=LIMIT)
    assert b"nobody can be asked" in stdout
    assert not (folder.work / "touched").exists()


async def test_the_whole_of_a_long_command_is_on_the_terminal_before_the_prompt(folder):
    command = "; ".join(f"echo step{number}" for number in range(300)) + "; make"
    folder.model([uses(("bash", {"command": command})), says("the end")])
    ours, theirs = os.openpty()
    try:
        with folder.started("do it", stdin=theirs, stdout=theirs) as process:
            drawn = await shown(ours, b"[y] ")
            os.write(ours, b"n\n")
            process.wait(LIMIT)
    finally:
        os.close(ours)
        os.close(theirs)
    words = re.sub(r"\x1b\[\d*m", "", drawn.decode()).replace("\r\n    ↪ ", "")
    assert all(f"echo step{number};" in words for number in range(299))


async def test_an_agent_killed_in_mid_turn_is_one_clear_line(folder, held):
    folder.model(HOLD)
    with folder.started("--yes", "wait") as process:
        pids = [int(word) for word in (await held.line()).split()]
        os.kill(server_of(process), signal.SIGKILL)
        _, stderr = process.communicate(timeout=LIMIT)
        await processes_ended(pids)
    assert process.returncode == 1
    assert stderr == b"acp-agent: no answer to session/prompt\n"


def test_a_folder_that_was_deleted_is_one_clear_line(folder):
    gone = folder.work / "gone"
    gone.mkdir()
    start = ["sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh", sys.executable, "-P", "-m", "acp_agent"]
    done = folder.run("hello", start=start)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("acp-agent: the current folder cannot be used")


@pytest.mark.skipif(sys.platform == "darwin", reason="Python names files in UTF-8 there in every locale")
def test_a_locale_without_utf_8_takes_no_character_from_files_and_commands(folder):
    folder.home.extra |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    folder.model(
        [
            uses(("bash", {"command": "echo ok \u2713; cat gr\xfcn.txt"})),
            uses(("write", {"path": "\u2713.txt", "content": "x"})),
            says("done \u2713"),
        ]
    )
    (folder.work / "gr\xfcn.txt").write_text("green\n")
    done = folder.run("--yes", "do it", start=COMMAND)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok ?" in done.stdout  # the terminal keeps its encoding
    assert "green" in done.stdout
    assert "done ?" in done.stdout
    assert (folder.work / "\u2713.txt").read_text() == "x"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_below_stdout_is_one_clear_line(folder):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "schema", "config"],
            check=False, cwd=folder.work, env=folder.home.environment(), stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    said = "acp-agent: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_module_in_the_users_folder_is_not_run(folder):
    folder.model([says("fine")])
    (folder.work / "json.py").write_text("open('ran', 'w').close()\n")
    assert folder.run("hello", start=[sys.executable, "-P", "-m", "acp_agent"]).returncode == 0
    assert not (folder.work / "ran").exists()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", ["", " acp --mode ask"])
def test_a_server_without_a_stream_has_nothing_to_serve(folder, closed, arguments):
    command = f'"{sys.executable}" -m acp_agent{arguments} {closed}'
    options = {"capture_output": True, "text": True, "timeout": LIMIT, "input": ""}
    done = subprocess.run(["sh", "-c", command], check=False, cwd=folder.work, env=folder.home.environment(), **options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_server_without_stderr_still_answers_on_stdout(folder):
    ask = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
    options = {"capture_output": True, "text": True, "timeout": LIMIT, "input": ask}
    command = f'"{sys.executable}" -m acp_agent 2>&-'
    done = subprocess.run(["sh", "-c", command], check=False, cwd=folder.work, env=folder.home.environment(), **options)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert '"protocolVersion":1' in done.stdout
