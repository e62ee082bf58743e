"""`make recording`: films `acp-agent run` in a terminal with a scripted model, into docs/run.svg and an asciicast."""

import json
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from tempfile import TemporaryDirectory

from acp_agent.cli.demo import make_project
from tests.recording.drawing import Event, drawing, read_cast

COLUMNS, ROWS = 80, 26
SVG = Path(__file__).parents[2] / "docs" / "run.svg"
CAST = Path(__file__).parents[2] / "build" / "run.cast"
PROMPT = "a test fails: find out why and mend it"
TITLE = (
    "acp-agent run in a terminal: it reads, runs the failing test, asks before the edit with its diff, and tests again"
)
_CONFIG = """
[llm]
model = "scripted:{script}"

[[tools.permissions.bash]]
pattern = "python3 -m unittest*"
action = "allow"
"""
_KEYS = 0.045  # seconds between two keys
_READS = 2.6  # seconds for which the user reads the question
_LIMIT = 60.0


def film(folder: Path) -> Iterator[Event]:
    """Yield what a terminal shows while a person runs the agent and answers its question with yes."""
    clock = 0.5
    yield Event(0.0, "\x1b[32m$\x1b[0m ")
    for key in f'acp-agent run "{PROMPT}"':
        yield Event(clock, key)
        clock += _KEYS
    yield Event(clock + 0.3, "\r\n")
    pid, terminal = pty.fork()
    if pid == 0:
        ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.chdir(folder / "project")
        os.execve(sys.executable, [sys.executable, "-P", "-m", "acp_agent", "run", PROMPT], _environment(folder))
    began = answer_at = 0.0  # the start of the interpreter is left out
    while True:
        if not select.select([terminal], [], [], answer_at - time.monotonic() if answer_at else _LIMIT)[0]:
            os.write(terminal, b"y\n")
            answer_at = 0.0
            continue
        try:
            text = os.read(terminal, 65536).decode("utf-8", "replace")
        except OSError:  # the end
            break
        began = began or time.monotonic()
        yield Event(clock + 0.6 + time.monotonic() - began, text)
        if "which: " in text:
            answer_at = time.monotonic() + _READS
    os.close(terminal)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise SystemExit("acp-agent run failed; see the recording")


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "ACP_AGENT_CONFIG": str(folder / "config.toml"),
        "ACP_AGENT_DATA_DIR": str(folder / "data"),
    }


def main() -> None:
    """Film, and draw the film."""
    with TemporaryDirectory(prefix="acp-agent-recording-") as base:
        folder = Path(os.path.realpath(base))
        (folder / "project").mkdir()
        make_project(folder / "project")
        script = Path(__file__).with_name("script.toml")
        (folder / "config.toml").write_text(_CONFIG.format(script=script), encoding="utf-8")
        CAST.parent.mkdir(exist_ok=True)
        with CAST.open("w", encoding="utf-8") as cast:
            cast.write(json.dumps({"version": 2, "width": COLUMNS, "height": ROWS, "title": TITLE}) + "\n")
            for event in film(folder):
                cast.write(json.dumps([round(event.time, 3), "o", event.text]) + "\n")
    columns, rows, events = read_cast(CAST)
    SVG.write_text(drawing(events, columns, rows, TITLE), encoding="utf-8")
    print(f"{SVG}: {SVG.stat().st_size / 1000:.0f} kB; {CAST}")


if __name__ == "__main__":
    main()
