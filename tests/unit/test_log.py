"""The log: on stderr or in a private file, never on stdout, without secrets, and never in the way."""

import importlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from acp_agent.log import without

SECRET = 'fake-"secret"-value'
SCRIPT = """
import json, sys
from acp_agent import log
mine = log.Log("test")
mine.error("before")
assert "structlog" not in sys.modules
secret = sys.argv[3]
def redact(text):
    return text.replace(secret, "[REDACTED]").replace(json.dumps(secret)[1:-1], "[REDACTED]")
log.configure(sys.argv[1], sys.argv[2] or None, redact)
mine.debug("detail", n=1)
mine.info("said", text="x\\x1b[2Jy", key=sys.argv[3], path=b"z")
try:
    raise ValueError("inner " + sys.argv[3])
except ValueError as error:
    mine.error("broke", exc_info=error, log="twice", level="odd")
"""


def run(level: str, file: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", SCRIPT, level, file, SECRET]
    root = Path(__file__).parents[3]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, check=True, **options)


def test_lines_go_to_stderr_from_the_level_on_and_nothing_to_stdout():
    done = run("info", "")
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert ' info    said text="x\\u001b[2Jy" key="[REDACTED]" path="b\'z\'" log="test"' in first
    assert " error   broke " in second
    assert "ValueError: inner [REDACTED]" in second
    assert "detail" not in done.stderr
    assert "before" not in done.stderr


def test_structlog_is_loaded_with_the_first_event_that_is_logged_and_a_failure_is_no_error_of_the_caller():
    script = """
import sys
from acp_agent import log
log.configure("warning")
mine = log.Log("test")
mine.info("less")
assert "structlog" not in sys.modules
sys.modules["structlog"] = None
mine.warning("cannot be loaded", secret="obviously-fake")
del sys.modules["structlog"]
mine.warning("more")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, second = done.stderr.splitlines()
    assert first.startswith("cannot be loaded: ModuleNotFoundError at log.py:")
    assert " warning more" in second


def test_a_file_gets_json_lines_and_is_private(tmp_path):
    file = tmp_path / "logs" / "agent.log"
    done = run("debug", str(file))
    assert (done.stdout, done.stderr) == ("", "")
    detail, said, broke = map(json.loads, file.read_text().splitlines())
    assert detail["event"] == "detail"
    assert detail["n"] == 1
    assert said["key"] == "[REDACTED]"
    assert "ValueError" in broke["exception"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_open_log_file_is_closed_to_others_and_continued(tmp_path):
    file = tmp_path / "agent.log"
    file.write_text("old\n")
    file.chmod(0o644)
    run("error", str(file))
    assert file.read_text().startswith("old\n{")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_opened_is_replaced_by_stderr(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for file in (str(fifo), str(tmp_path), "/proc/nowhere/agent.log"):
        done = run("info", file)
        assert "cannot be opened, so the log is on stderr" in done.stderr.splitlines()[0]
        assert " info    said " in done.stderr


EARLY = """
from acp_agent import log
log.Log("early").warning("never mind")
try:
    {}["obviously-fake-secret"]
except KeyError:
    log.Log("early").error("request failed", exc_info=True, value="obviously-fake-secret")
"""


def test_an_error_before_logging_is_configured_leaves_a_line_without_values():
    process = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=True)
    assert (process.stdout, process.stderr) == ("", "request failed: KeyError at <string>:5\n")


def test_a_closed_stderr_stops_nothing():
    read, write = os.pipe()
    os.close(read)
    try:
        process = subprocess.run(
            [sys.executable, "-c", SCRIPT, "info", "", SECRET], stderr=write, cwd=Path(__file__).parents[3], check=False
        )
    finally:
        os.close(write)
    assert process.returncode == 0


def test_inside_the_module_is_not_there_and_afterwards_it_is_again():
    sys.modules.pop("colorsys", None)
    with without("colorsys"), pytest.raises(ImportError):
        importlib.import_module("colorsys")
    assert importlib.import_module("colorsys").rgb_to_hsv


def test_what_is_loaded_already_stays():
    importlib.import_module("json")
    with without("json"):
        assert importlib.import_module("json").dumps([]) == "[]"
    assert "json" in sys.modules
