"""The shell scripts of this machine, judged: `make properties`. Hardly any was written with gates in mind."""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import FrameType

import pytest

from acp_agent.core.types import Verdict
from acp_agent.gates.blocklist import BlocklistPolicy, judge
from acp_agent.gates.shell.command import Analysis, ShellText
from acp_agent.gates.shell.syntax import Parses

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

FOLDERS = (
    *("/etc", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/var/lib/dpkg/info", "/usr/lib", "/usr/share", "/opt"),
    *("/usr/libexec", "/System/Library", "/Library"),
)
MOST = 500
_ENDINGS = (".sh", ".bash", ".preinst", ".postinst", ".prerm", ".postrm")
_SHELL = re.compile(rb"#!.*\b(?:ba|da|k|z)?sh\b")
LONGEST = 120_000  # bytes

STEPS, STEPS_A_BYTE = 10_000_000, 500
"""The most calls of functions to judge a script: so many, and so many more for each of its bytes."""


def scripts() -> Iterator[Path]:
    """Yield scripts of shells by their first lines, folder by folder."""
    for top in FOLDERS:
        for folder, folders, names in os.walk(top):
            folders.sort()
            for path in (Path(folder) / name for name in sorted(names)):
                if _is_script(path):
                    yield path


def _is_script(path: Path) -> bool:
    try:
        found = path.lstat()
        run = found.st_mode & 0o111 or path.suffix in _ENDINGS
        if not run or not stat.S_ISREG(found.st_mode) or found.st_size > LONGEST:
            return False
        with path.open("rb") as file:
            return _SHELL.match(file.readline(80)) is not None
    except OSError:
        return False


def judged(text: str) -> tuple[Verdict, Analysis]:
    """Return what the blocklist and the proof say. The time to parse is not limited: it is none of the script's."""
    shell = ShellText(text)
    vars(shell)["parses"] = Parses(3600)
    return judge(shell, BlocklistPolicy()), shell.analysis


def steps(run: Callable[[], object]) -> int:
    """Return how many functions a run calls."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def test_each_script_is_judged_to_the_end_in_a_bounded_number_of_steps_and_always_alike():
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in islice(scripts(), MOST)}
    slow: dict[str, int] = {}
    unlike: list[str] = []
    most = 0
    for path, text in texts.items():
        first: list[tuple[Verdict, Analysis]] = []
        taken = steps(lambda text=text, first=first: first.append(judged(text)))
        most = max(most, taken)
        if taken > STEPS + STEPS_A_BYTE * len(text):
            slow[str(path)] = taken
        if first != [judged(text)]:
            unlike.append(str(path))
    print(f"\n{len(texts)} scripts, at most {most} calls for one")
    assert slow == {}
    assert unlike == []
