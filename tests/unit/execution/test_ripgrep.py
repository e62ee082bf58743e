"""What we ask of ripgrep and what we believe of its answer. A script stands in for it: it notes what it was
asked and plays an answer in ripgrep's own JSON; the contract suite runs the real one where there is one.
"""

import base64
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.core.backends import GrepMatches, GrepQuery
from acp_agent.execution.local_files import LocalFileSystem
from acp_agent.execution.ripgrep import find_ripgrep
from acp_agent.execution.roots import Roots

pytestmark = pytest.mark.anyio

SCRIPT = """#!{python}
import json, os, sys, time
with open({asked!r}, "a") as file:
    file.write(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]) + "\\n")
with open({answer!r}, "rb") as file:
    sys.stdout.buffer.write(file.read())
sys.stdout.flush()
if {hang}:
    print(os.getpid(), file=open({asked!r} + ".pid", "w"), flush=True)
    time.sleep(60)
sys.exit({status})
"""


@dataclass
class Stand:
    """The stand-in for ripgrep, and the project it is asked about."""

    project: Path
    folder: Path

    def answers(self, *events: dict[str, Any] | bytes, status: int = 0, hang: bool = False) -> str:
        """The program, which plays these events."""
        lines = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
        (self.folder / "answer").write_bytes(b"".join(line + b"\n" for line in lines))
        script = SCRIPT.format(
            python=sys.executable,
            asked=str(self.folder / "asked"),
            answer=str(self.folder / "answer"),
            hang=hang,
            status=status,
        )
        (self.folder / "rg").write_text(script)
        (self.folder / "rg").chmod(0o755)
        return str(self.folder / "rg")

    def asked(self) -> list[tuple[list[str], str, dict[str, str]]]:
        return [tuple(json.loads(line)) for line in (self.folder / "asked").read_text().splitlines()]

    async def grep(self, program: str, pattern: str = "needle", path: str = ".", limit: int = 100) -> GrepMatches:
        with Roots(str(self.project)) as roots:
            return await LocalFileSystem(roots, ripgrep=program).grep(GrepQuery(pattern, path, limit=limit))

    async def seen(self, program: str, path: str = ".") -> list[tuple[str, int, str]]:
        found = (await self.grep(program, path=path)).matches
        return [(match.path.removeprefix(f"{self.project}/"), match.line, match.text) for match in found]


def hit(path: str, line: int, offset: int, text: str | bytes = "needle\n") -> dict[str, Any]:
    content = {"text": text} if isinstance(text, str) else {"bytes": base64.b64encode(text).decode()}
    data = {"path": {"text": path}, "lines": content, "line_number": line, "absolute_offset": offset, "submatches": []}
    return {"type": "match", "data": data}


BEGIN = {"type": "begin", "data": {"path": {"text": "./a"}}}
SUMMARY = {"type": "summary", "data": {"stats": {"matches": 1}}}


@pytest.fixture
def stand(project: Path, tmp_path: Path) -> Stand:
    (tmp_path / "bin").mkdir()
    (project / "a").write_text("needle\n")
    return Stand(project, tmp_path / "bin")


async def test_it_is_asked_with_fixed_safe_flags_and_an_empty_environment(stand: Stand):
    os.environ["RIPGREP_CONFIG_PATH"] = "/nowhere"
    try:
        assert await stand.seen(stand.answers(BEGIN, hit("./a", 1, 0), SUMMARY)) == [("a", 1, "needle")]
    finally:
        del os.environ["RIPGREP_CONFIG_PATH"]
    [(arguments, cwd, environment)] = stand.asked()
    assert cwd == str(stand.project)
    assert "RIPGREP_CONFIG_PATH" not in environment
    assert "PATH" not in environment
    assert arguments[0] == "--no-config"
    for flag in ("--json", "--no-pre", "--no-search-zip", "--no-follow", "--no-ignore-parent", "--no-ignore-global"):
        assert flag in arguments
    assert not any(argument.startswith(("--pre=", "--hostname-bin", "-L", "--follow")) for argument in arguments)
    assert arguments[-3:] == ["--regexp=needle", "--", "./"]


async def test_a_pattern_and_a_path_that_look_like_flags_are_none(stand: Stand):
    (stand.project / "--pre").mkdir()
    await stand.grep(stand.answers(status=1), pattern="--pre=evil", path="--pre")
    [(arguments, _, _)] = stand.asked()
    assert arguments[-3:] == ["--regexp=--pre=evil", "--", "./--pre"]


async def test_a_pattern_no_argument_can_hold_is_searched_for_by_ourselves(stand: Stand):
    (stand.project / "a").write_text("needle\n")
    assert (await stand.grep(stand.answers(hit("./a", 1, 0)), pattern="\0|needle")).matches != ()
    assert not (stand.folder / "asked").exists()


async def test_the_roots_own_ignore_file_counts_below_it_unless_what_is_named_is_ignored(stand: Stand):
    (stand.project / ".gitignore").write_text("out/\n")
    for path in ("sub", "out"):
        (stand.project / path).mkdir()
        await stand.grep(stand.answers(status=1), path=path)
    await stand.grep(stand.answers(status=1))
    assert ["--ignore-file=.gitignore" in arguments for arguments, _, _ in stand.asked()] == [True, False, False]


async def test_only_what_is_really_there_is_believed(stand: Stand):
    project = stand.project
    (project.parent / "outside" / "f").write_text("needle\n")
    (project / "out").symlink_to("../outside")
    (project / "link").symlink_to("../outside/f")
    (project / "sub").mkdir()
    (project / "sub" / "b").write_text("x\nneedle 2")
    events = [
        hit("./sub/b", 2, 2, "needle 2"),
        hit("./sub/b", 1, 0, "needle 2"),  # other bytes there
        hit("./a", 1, 0),
        hit("./a", 1, 700),  # behind the end
        hit("./out/f", 1, 0),
        hit("./link", 1, 0),
        hit("../outside/f", 1, 0),
        hit(str(project.parent / "outside" / "f"), 1, 0),
        hit("./gone", 1, 0),
        hit("./sub", 1, 0),
    ]
    assert await stand.seen(stand.answers(*events)) == [("a", 1, "needle"), ("sub/b", 2, "needle 2")]


async def test_what_our_own_rules_leave_out_is_left_out(stand: Stand):
    for path in ("sub/deep/x.log", "sub/deep/y", "sub/skip/z"):
        (stand.project / path).parent.mkdir(parents=True, exist_ok=True)
        (stand.project / path).write_text("needle\n")
    (stand.project / "sub" / ".gitignore").write_text("/skip\n*.log\n")
    events = [hit("./sub/deep/x.log", 1, 0), hit("./sub/deep/y", 1, 0), hit("./sub/skip/z", 1, 0)]
    assert await stand.seen(stand.answers(*events)) == [("sub/deep/y", 1, "needle")]
    assert await stand.seen(stand.answers(hit("./sub/skip/z", 1, 0)), path="sub/skip") == [("sub/skip/z", 1, "needle")]


async def test_lines_behind_a_bom_and_lines_that_are_no_utf_8_are_found_again(stand: Stand):
    (stand.project / "bom").write_bytes(b"\xef\xbb\xbfx\r\nneedle\r\n")
    (stand.project / "latin").write_bytes(b"caf\xe9 needle\n")
    events = [hit("./latin", 1, 0, b"caf\xe9 needle\n"), hit("./bom", 2, 3, "needle\r\n")]
    assert await stand.seen(stand.answers(*events)) == [("bom", 2, "needle"), ("latin", 1, "caf\ufffd needle")]


async def test_matches_come_in_order_and_are_cut_at_the_limit(stand: Stand):
    (stand.project / "b").write_text("needle\n" * 3)
    events = [hit("./b", 3, 14), hit("./b", 1, 0), hit("./b", 2, 7), hit("./a", 1, 0)]
    found = await stand.grep(stand.answers(*events), limit=3)
    assert [(match.path[-1], match.line) for match in found.matches] == [("a", 1), ("b", 1), ("b", 2)]
    assert found.more


async def test_very_many_matches_are_asked_for_again_in_order(stand: Stand):
    (stand.project / "b").write_text("needle\n" * 2000)
    events = [hit("./b", line, 7 * (line - 1)) for line in range(1, 2001)]
    found = await stand.grep(stand.answers(*events), limit=5)
    assert [match.line for match in found.matches] == [1, 2, 3, 4, 5]
    assert found.more
    assert ["--sort=path" in arguments for arguments, _, _ in stand.asked()] == [False, True]


@pytest.mark.parametrize("status", [0, 1])
async def test_no_matches_are_no_matches(stand: Stand, status: int):
    assert await stand.seen(stand.answers(SUMMARY, status=status)) == []


async def test_where_it_fails_we_search_ourselves(stand: Stand):
    assert await stand.seen(stand.answers(status=2)) == [("a", 1, "needle")]
    (stand.folder / "rg").write_text("#!/nowhere/at/all\n")
    assert await stand.seen(str(stand.folder / "rg")) == [("a", 1, "needle")]


async def test_what_it_found_counts_although_some_file_could_not_be_read(stand: Stand):
    (stand.project / "b").write_text("needle\n")
    assert await stand.seen(stand.answers(hit("./a", 1, 0), status=2)) == [("a", 1, "needle")]


async def test_lines_that_make_no_sense_are_passed_over(stand: Stand):
    bad: list[dict[str, Any] | bytes] = [
        b"not json",
        b"[]",
        b'{"type": "match"}',
        b"x" * 5_000_000,
        {"type": "match", "data": {"path": {"bytes": "AA=="}, "lines": {}, "line_number": 1, "absolute_offset": 0}},
        {
            "type": "match",
            "data": {"path": {"text": "./a"}, "lines": {"bytes": "!"}, "line_number": 1, "absolute_offset": 0},
        },
    ]
    assert await stand.seen(stand.answers(*bad, hit("./a", 1, 0))) == [("a", 1, "needle")]


async def test_it_ends_with_the_task_that_asked(stand: Stand):
    program = stand.answers(hang=True)
    note = stand.folder / "asked.pid"
    os.mkfifo(note)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stand.grep, program)
        pid = int(await anyio.to_thread.run_sync(note.read_text))
        os.kill(pid, 0)
        tasks.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_only_a_program_in_an_absolute_folder_of_path_is_used(tmp_path: Path):
    (tmp_path / "rg").write_text("#!/bin/sh\n")
    (tmp_path / "rg").chmod(0o755)
    before, cwd = os.environ["PATH"], os.getcwd()
    os.chdir(tmp_path)
    try:
        for path, found in ((".", None), ("", None), (str(tmp_path), str(tmp_path / "rg"))):
            os.environ["PATH"] = path
            assert find_ripgrep("rg") == found
    finally:
        os.chdir(cwd)
        os.environ["PATH"] = before
    assert find_ripgrep(None) is None
