"""What we ask of ripgrep and what we believe of its answer. A script stands in for it where that matters: it notes
what it was asked and plays an answer; where the real one is there, both ways to search must find the same.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.core.backends import GrepMatches, GrepQuery
from acp_agent.core.errors import ToolError
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.ripgrep import find_ripgrep, scout_pattern
from acp_agent.workspace.roots import Roots

pytestmark = pytest.mark.anyio

REAL = Path(sys.executable).parent / "rg"
SCRIPT = """#!{python}
import json, os, sys, time
with open({asked!r}, "a") as file:
    file.write(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]) + "\\n")
with open({answer!r}, "rb") as file:
    sys.stdout.buffer.write(file.read() * {times})
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

    def answers(self, *paths: str | bytes, status: int = 0, hang: bool = False, times: int = 1) -> str:
        """The program, which names these files so many times."""
        told = [os.fsencode(path) for path in paths]
        (self.folder / "answer").write_bytes(b"".join(path + b"\0" for path in told))
        script = SCRIPT.format(
            python=sys.executable,
            asked=str(self.folder / "asked"),
            answer=str(self.folder / "answer"),
            hang=hang,
            status=status,
            times=times,
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
    assert arguments[-3:] == [r"--regexp=\x{2d}\x{2d}pre\x{3d}evil", "--", "./--pre"]


async def test_a_pattern_it_may_understand_otherwise_is_searched_for_by_ourselves(stand: Stand):
    for pattern in (r"\Qneed\Ele", r"\x6eeedle", r"\pLeedle", r"\Aneedle", "need(?-i:le)", "[[:alpha:]]eedle"):
        assert (await stand.grep(stand.answers(), pattern=pattern)).matches != ()
    assert not (stand.folder / "asked").exists()


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
    (project / "sub" / "b").write_text("x\nneedle 2")
    (project / "sub" / "other").write_text("nothing")
    (project / "blob").write_bytes(b"needle\0")
    os.mkfifo(project / "pipe")
    paths = [
        *("./sub/b", "./sub/other", "./a", "./out/f", "./link", "../outside/f", "./../outside/f", "./sub/../a"),
        *(str(project.parent / "outside" / "f"), "./gone", "./sub", "./blob", "./pipe", "", "./", ".", "/", b"./\xff"),
    ]
    assert await stand.seen(stand.answers(*paths)) == [("a", 1, "needle"), ("sub/b", 2, "needle 2")]
    assert await stand.seen(stand.answers(*paths), path="sub") == [("sub/b", 2, "needle 2")]


async def test_what_our_own_rules_leave_out_is_left_out(stand: Stand):
    paths = ("sub/deep/x.log", "sub/deep/y", "sub/skip/z", "sub/.git/w", "sub/target/v", ".env")
    for path in paths:
        (stand.project / path).parent.mkdir(parents=True, exist_ok=True)
        (stand.project / path).write_text("needle\n")
    (stand.project / "sub" / ".gitignore").write_text("/skip\n*.log\n")
    program = stand.answers(*(f"./{path}" for path in paths))
    assert await stand.seen(program) == [("sub/deep/y", 1, "needle")]
    assert await stand.seen(program, path="sub/skip") == [("sub/skip/z", 1, "needle")]


async def test_files_come_in_the_order_of_a_walk_and_matches_are_cut_at_the_limit(stand: Stand):
    for path in ("b", "c-d", "c/x", "c.txt"):
        (stand.project / path).parent.mkdir(exist_ok=True)
        (stand.project / path).write_text("needle\nneedle\n")
    program = stand.answers("./c.txt", "./c-d", "./c/x", "./b", "./a")
    assert [path for path, _, _ in await stand.seen(program)][::2] == ["a", "b", "c/x", "c-d", "c.txt"]
    found = await stand.grep(program, limit=2)
    assert [(match.path[-1], match.line) for match in found.matches] == [("a", 1), ("b", 1)]
    assert found.more


@pytest.mark.parametrize("status", [0, 1])
async def test_no_files_are_no_matches(stand: Stand, status: int):
    assert await stand.seen(stand.answers(status=status)) == []


async def test_where_it_fails_we_search_ourselves(stand: Stand):
    assert await stand.seen(stand.answers(status=2)) == [("a", 1, "needle")]
    assert await stand.seen(stand.answers("./gone", status=101)) == [("a", 1, "needle")]
    (stand.folder / "rg").write_text("#!/nowhere/at/all\n")
    assert await stand.seen(str(stand.folder / "rg")) == [("a", 1, "needle")]


async def test_what_it_found_counts_although_some_file_could_not_be_read(stand: Stand):
    (stand.project / "b").write_text("needle\n")
    assert await stand.seen(stand.answers("./a", status=2)) == [("a", 1, "needle")]


async def test_more_paths_than_are_kept_are_not_waited_for(stand: Stand):
    (stand.project / "b").write_text("needle\n")
    note = stand.folder / "asked.pid"
    program = stand.answers("./" + "x" * 998, hang=True, times=40_000)
    assert await stand.seen(program) == [("a", 1, "needle"), ("b", 1, "needle")]
    assert not note.exists()  # killed before it had told everything


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


# ------------------------------------------------------------------------------- which one is used


def test_only_a_program_in_an_absolute_folder_of_path_or_beside_python_is_used(tmp_path: Path):
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
    assert find_ripgrep(None) is None


# ----------------------------------------------------------------------------------- the real one

needs_ripgrep = pytest.mark.skipif(not REAL.exists(), reason="no ripgrep beside this Python")

PIECES = [
    *("a", "b", "é", "k", "K", "s", "ſ", "\u212a", "_", "-", " ", "&", "<", "~", "#", "1", "\r", "\ufeff"),
    *("[", "]", "{", "}", "(", ")", "(?:", "(?i)", "(?i:", "(?s)", "(?P<n>", "|", "*", "+", "?", "{2}", "{,2}"),
    *("^", "$", ".", r"\w", r"\d", r"\s", r"\W", r"\D", r"\S", r"\b", r"\B", r"\t", r"\r", r"\n", r"\.", r"\-", r"\<"),
    *(r"\A", r"\z", r"\C", r"\pL", r"\Qa.\E", r"\x61", "[ab]", "[^a]", "[a-z]", "[a&&b]", r"[\w-]", r"[^\s]", "[]a]"),
    *("[^]a]", "[a-]", "[é]", "[[:alpha:]]", r"[\W]", r"[a\-]"),
]
BYTES = [
    *(b"a", b"b", b"k", b"K", b"S", b"_", b"-", b" ", b"&", b"<", b"\r", b"\n", b"\r\n", b"\t", b"\x0b", b"1"),
    *(b"\xc3\xa9", b"\xc3\x89", b"\xe9", b"\xff", b"\xed\xa0\x80", b"\xe2\x84\xaa", b"\xc5\xbf", b"\xf0\x9f\x98\x80"),
    *(b"\xc2\xa0", b"\xe2\x80\xa8", b"[", b"{,2}", b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\xe0\x80\x80"),
]
patterns = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)
bodies = st.lists(
    st.builds(
        lambda mark, pieces: mark + b"".join(pieces),
        st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xff\xfe"]),
        st.lists(st.sampled_from(BYTES), max_size=6),
    ),
    min_size=1,
    max_size=6,
)


async def both_ways(folder: Path, query: GrepQuery, largest: int = 1000) -> tuple[GrepMatches | str, GrepMatches | str]:
    """What a search finds with the real ripgrep and without; an error as its words."""
    results: list[GrepMatches | str] = []
    with Roots(str(folder)) as roots:
        for program in (str(REAL), None):
            try:
                results.append(await LocalFileSystem(roots, read_limit=largest, ripgrep=program).grep(query))
            except ToolError as error:
                results.append(str(error))
    return results[0], results[1]


@needs_ripgrep
@given(pattern=patterns, files=bodies, case_sensitive=st.booleans(), context=st.integers(0, 2))
@example(pattern=r"\ba", files=[b"\xc3\xa9a"], case_sensitive=True, context=0)
@example(pattern="^a$", files=[b"\xef\xbb\xbfa\r\n"], case_sensitive=True, context=0)
@example(pattern=".b", files=[b"\xed\xa0\x80b", b"\rb"], case_sensitive=True, context=0)
@example(pattern="^.$", files=[b"\xf4\xbf\xbf\xbf"], case_sensitive=True, context=0)
@example(pattern="1(?s)?a", files=[b"a"], case_sensitive=True, context=0)
@example(pattern="[a&&b]", files=[b"&"], case_sensitive=True, context=0)
@example(pattern="a{,2}", files=[b"a{,2}"], case_sensitive=True, context=0)
@example(pattern="a", files=[b"\xff\xfea"], case_sensitive=True, context=0)
@example(pattern=r"[^\W]\Wb", files=["aéb".encode()], case_sensitive=False, context=0)
@example(pattern=r"\<", files=[b"<"], case_sensitive=True, context=0)
def test_ripgrep_never_hides_a_line_that_we_would_find(
    tmp_path_factory: pytest.TempPathFactory, pattern: str, files: list[bytes], case_sensitive: bool, context: int
):
    folder = tmp_path_factory.mktemp("both").resolve()
    for number, body in enumerate(files):
        (folder / f"f{number}").write_bytes(body)
    query = GrepQuery(pattern, ".", case_sensitive=case_sensitive, context=context, limit=3)
    with_it, without = anyio.run(both_ways, folder, query)
    assert with_it == without, scout_pattern(pattern, case_sensitive=case_sensitive)


names = st.sampled_from(["a", "b.py", "c.log", ".d", "build", "target", "é", "x y", "-e", "[f]"])
trees = st.dictionaries(
    st.lists(names, min_size=1, max_size=3).map("/".join), st.sampled_from(["x\n", "y\n", "y\nx\nx"]), max_size=10
)
rules = st.lists(
    st.sampled_from(["*.log", "build/", "/a", "!c.log", "a/b.py", "**/b.py", "a/**", "b*", "!.d", "!target", "[ab]"]),
    max_size=3,
)


@needs_ripgrep
@given(
    tree=trees,
    outer=rules,
    inner=rules,
    path=st.sampled_from([".", ".", "a", "build"]),
    glob=st.sampled_from([None, "*.py", "a/**", "**/[ab]*", ".d/**", "target/*", "**/.*"]),
    file_type=st.sampled_from([None, None, "py"]),
    files_only=st.booleans(),
)
def test_with_ripgrep_and_without_the_same_files_are_searched(
    tmp_path_factory: pytest.TempPathFactory,
    tree: dict[str, str],
    outer: list[str],
    inner: list[str],
    path: str,
    glob: str | None,
    file_type: str | None,
    files_only: bool,
):
    folder = tmp_path_factory.mktemp("tree").resolve()
    (folder / "a").mkdir()
    (folder / ".gitignore").write_text("\n".join(outer))
    (folder / "a" / ".gitignore").write_text("\n".join(inner))
    for name, text in tree.items():
        file = folder / name
        if not file.exists() and all(each.is_dir() for each in file.parents if each.exists()):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    query = GrepQuery("x", path, glob=glob, file_type=file_type, files_only=files_only, limit=4)
    with_it, without = anyio.run(both_ways, folder, query, 3)
    assert with_it == without


@needs_ripgrep
@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+b", "a" * 4096, ".{1000}" * 3, r"\w{100}\W{100}" * 4, "[^b]*b" * 500]
)
async def test_a_hostile_pattern_ends_with_ripgrep_too(stand: Stand, pattern: str):
    (stand.project / "f").write_text("a" * 300_000 + "c\n")
    with anyio.fail_after(30):
        await stand.grep(str(REAL), pattern=pattern)


def test_most_patterns_people_write_are_given_to_ripgrep():
    for pattern in (
        *(r"def \w+\(", r"^import\s+(os|sys)$", r"\bTODO\b", "TODO|FIXME", r"foo\.bar\[\d+\]", "(?i)error.*timeout"),
        *(r"[A-Za-z_][A-Za-z0-9_]*\s*=", r'"[^"]*"', "a{2,3}", r"https?://[^\s]+", "$x = {", "naïve", r"class\s+(\w+)"),
        *(r"[\w.-]+@[\w.-]+", "struct {", "#include <", "a && b", r"\$\{[^}]+\}"),
    ):
        assert scout_pattern(pattern, case_sensitive=True) is not None, pattern
