import os
import re
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.core.backends import GrepQuery
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Root, Roots
from acp_agent.workspace.tree_walk import IgnoreRules, TimeLimit

# Python's own engine, which pathspec shows each pattern to first, warns of sets that git and RE2 understand.
pytestmark = pytest.mark.filterwarnings("ignore:Possible (nested set|set):FutureWarning")

NAMES = ["a", "b", "c.log", "build"]
# Lines that nobody writes, and that git reads in its own way: `**` as a part of a name, an escaped slash, `!/`.
ODD = re.compile(r"[^/]\*\*|\*\*[^/]|\\/|!/+$")
lines = st.one_of(
    st.sampled_from(
        ["*.log", "build/", "/a", "!c.log", "a/b", "**/b", "a/**", "# note", "", "!build/", "b*", "*/c.log"]
    ),
    st.lists(st.sampled_from([*"ab*?/!\\. ", "[ab]", "**"]), max_size=5).map("".join),
).filter(lambda line: not ODD.search(line))


def slices_in(rules: IgnoreRules) -> int:
    """The largest possible number of compiled slices in memory."""
    chains, cached = rules._chains, rules._specs  # pyright: ignore[reportPrivateUsage] - what is to be bounded
    used = {id(specs): len(specs) for chain in chains.values() for _, specs in chain}
    return sum(used.values()) + sum(map(len, cached.values()))


def kept(root: Root, base: str = ".") -> set[str]:
    """The files below the base that a search would look at."""
    rules = IgnoreRules(root, base, TimeLimit(60))
    found: set[str] = set()

    def enter(directory: str) -> None:
        fd = root.open_directory(directory)
        entries = [(entry.name, entry.is_dir()) for entry in os.scandir(fd)]
        os.close(fd)
        for name, is_directory in entries:
            path = name if directory == "." else f"{directory}/{name}"
            if name != ".git" and not rules.ignores(path, is_directory=is_directory):
                if is_directory:
                    enter(path)
                else:
                    found.add(path)

    enter(base)
    return found


def put(project: Path, path: str, text: str = "") -> None:
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    (project / path).write_text(text)


@pytest.fixture
def root(project: Path):
    opened = Root(str(project))
    yield opened
    opened.close()


def test_the_nearest_file_that_says_anything_decides(root: Root, project: Path):
    for path in ("x.log", "sub/x.log", "sub/y.tmp", "sub/deep/x.log", "y.tmp"):
        put(project, path)
    put(project, ".gitignore", "*.log\n*.tmp\n")
    put(project, "sub/.gitignore", "!x.log\n")
    put(project, "sub/deep/.gitignore", "/x.log\n")
    assert kept(root) == {".gitignore", "sub/.gitignore", "sub/deep/.gitignore", "sub/x.log"}


def test_one_bad_line_costs_only_itself(root: Root, project: Path):
    put(project, "x.log")
    put(project, ".gitignore", "!\n[z-a]\n///\n*.log\n\\\n")
    assert kept(root) == {".gitignore"}


@pytest.mark.parametrize("line", ["[[:foo:]]", "?" * 4000, "?" * 20_000, "[[.a.]]", "[[:alpha:]-z]"])
def test_a_line_that_is_too_much_for_the_engine_costs_only_itself(root: Root, project: Path, line: str):
    put(project, "x.log")
    put(project, "y.txt")
    put(project, ".gitignore", f"*.log\n{line}\n!x.log\nx.*\n")
    assert kept(root) == {".gitignore", "y.txt"}


def test_very_many_lines_count_all_and_the_last_that_matches_decides(root: Root, project: Path):
    for path in ("a7b", "a1700b", "keep.log", "x.log"):
        put(project, path)
    many = [f"a{number}*b" for number in range(3000)]
    put(project, ".gitignore", "\n".join(["*.log", *many, "!keep.log", "!a7b"]))
    assert kept(root) == {".gitignore", "keep.log", "a7b"}


def test_rules_count_however_deep_the_folders_are(root: Root, project: Path):
    deep = "/".join("d" * 1100)
    put(project, ".gitignore", "*.log\n")
    assert IgnoreRules(root, ".", TimeLimit(60)).ignores(f"{deep}/x.log", is_directory=False)
    assert not IgnoreRules(root, ".", TimeLimit(60)).ignores(f"{deep}/x.txt", is_directory=False)


def test_when_the_time_is_over_no_more_rules_are_compiled(root: Root, project: Path):
    put(project, ".gitignore", "*.log\n")
    assert not IgnoreRules(root, ".", TimeLimit(0)).ignores("x.log", is_directory=False)


pieces = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        [b"[[:foo:]]", b"[[:alpha:]]", b"[z-a]", b"[", b"]", b"[!", b"!", b"\\", b"\n", b"\r\n", b"**", b"/"]
    ),
    st.sampled_from([b"\xff", b"\0", b"\xef\xbb\xbf", b"?" * 5000, b"*a" * 800, b"[^\\", b"\\Q", b"(?", b"{9999}"]),
)


@given(st.lists(pieces, max_size=8).map(b"".join))
@example(b"[[:foo:]]")
@example(b"?" * 20_000)
def test_no_bytes_in_a_rule_file_make_a_search_fail(tmp_path_factory: pytest.TempPathFactory, rules: bytes):
    project = tmp_path_factory.mktemp("rules").resolve()
    put(project, "sub/a.txt", "needle\n")
    (project / ".gitignore").write_bytes(rules)

    async def search() -> None:
        with Roots(str(project)) as roots:
            files = LocalFileSystem(roots)
            assert (await files.find(".", "**", 10)).stopped is None
            assert (await files.grep(GrepQuery("needle", "."))).stopped is None

    anyio.run(search)


def test_a_byte_order_mark_and_carriage_returns_are_no_part_of_a_rule(root: Root, project: Path):
    for path in ("x.log", "y.tmp", "build/z"):
        put(project, path)
    (project / ".gitignore").write_bytes(b"\xef\xbb\xbf*.log\r\n*.tmp\r\nbuild/\r\n")
    assert kept(root) == {".gitignore"}


def test_names_that_are_no_utf_8_are_matched_by_their_bytes(root: Root, project: Path):
    for path in (b"caf\xe9.log", b"caf\xe9/a.txt", b"caf\xe8/b.txt", b"\xff.txt"):
        put(project, os.fsdecode(path))
    (project / ".gitignore").write_bytes(b"*.log\ncaf\xe9/\n")
    assert kept(root) == {".gitignore", os.fsdecode(b"caf\xe8/b.txt"), os.fsdecode(b"\xff.txt")}


def test_a_rule_file_that_is_a_link_or_no_text_is_no_reason_to_fail(root: Root, project: Path, outside: Path):
    put(project, "x.log")
    put(outside, "rules", "*.log\n")
    (project / ".gitignore").symlink_to(outside / "rules")
    put(project, "sub/y.log")
    (project / "sub" / ".gitignore").write_bytes(b"\xff\xfe\n*.log\n")
    assert kept(root) == {".gitignore", "sub/.gitignore", "x.log"}


def test_a_hostile_pattern_on_a_hostile_name_costs_no_time(root: Root, project: Path):
    put(project, "a" * 250)
    put(project, ".gitignore", "*a" * 100 + "b\n")
    assert kept(root) == {".gitignore", "a" * 250}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the judge")
@given(outer=st.lists(lines, max_size=5), inner=st.lists(lines, max_size=3))
@example(["build/", "!a"], [])
@example(["a/**", "!c.log"], [])
@example(["*.log"], ["![ab]"])
@example(["a/**/"], ["b/**/"])
def test_it_agrees_with_git(tmp_path_factory: pytest.TempPathFactory, outer: list[str], inner: list[str]):
    project = tmp_path_factory.mktemp("repository").resolve()
    for path in ("a/b", "a/c.log", "a/build/a", "b", "c.log", "build/b", "d/a", "d/b/c.log", "d/build"):
        put(project, path)
    put(project, ".gitignore", "\n".join(outer) + "\n")
    put(project, "d/.gitignore", "\n".join(inner) + "\n")
    git = ["git", "-c", "core.excludesFile=/dev/null", "-C", str(project)]
    subprocess.run([*git, "init", "-q"], check=True, env={"PATH": os.environ["PATH"], "HOME": str(project)})
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": str(project)},
    )
    root = Root(str(project))
    try:
        assert kept(root) == {name for name in listed.stdout.decode().split("\0") if name}, (outer, inner)
    finally:
        root.close()


def test_a_second_name_of_another_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "closed").write_text("*.log\n")
    (tmp_path / "c.log").touch()
    (tmp_path / ".gitignore").hardlink_to(tmp_path / "closed")
    root = Root(str(tmp_path))
    assert "c.log" in kept(root)
    root.close()


def test_the_rules_of_many_folders_are_not_kept_all_at_once(root: Root, project: Path):
    for number in range(13):
        lines = [f"*.x{number}-{each}" for each in range(512)]
        put(project, f"d{number:02}/.gitignore", "\n".join([*lines, "out"]))  # two slices
        put(project, f"d{number:02}/out")
        put(project, f"d{number:02}/in/file")
    rules = IgnoreRules(root, ".", TimeLimit(60))
    for number in range(13):
        assert rules.ignores(f"d{number:02}/out", is_directory=False)
        assert not rules.ignores(f"d{number:02}/in/file", is_directory=False)
        assert slices_in(rules) <= 2 * 12


def test_a_file_of_a_hundred_thousand_patterns_counts_with_its_first_ones(root: Root, project: Path):
    put(project, ".gitignore", "".join(f"*.x{number}\n" for number in range(100_000)))
    put(project, "below/.gitignore", "*.y\n")
    rules = IgnoreRules(root, ".", TimeLimit(60))
    assert rules.ignores("a.x0", is_directory=False)
    assert rules.ignores("a.x6000", is_directory=False)
    assert not rules.ignores("a.x99999", is_directory=False)
    assert not rules.ignores("below/a.y", is_directory=False), "there is no room for more"
    assert slices_in(rules) <= 2 * 12


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["pipe", "folder", "a gigabyte"])
async def test_a_gitignore_that_is_none_holds_up_no_search(project: Path, kind: str):
    put(project, "a.txt", "needle\n")
    if kind == "pipe":
        os.mkfifo(project / ".gitignore")
    elif kind == "folder":
        (project / ".gitignore").mkdir()
    else:
        with (project / ".gitignore").open("wb") as file:
            file.truncate(1 << 30)
    with Roots(str(project)) as roots, anyio.fail_after(20):
        found = await LocalFileSystem(roots, ripgrep="rg").grep(GrepQuery("needle", "."))
    assert [match.path for match in found.matches] == [str(project / "a.txt")]
