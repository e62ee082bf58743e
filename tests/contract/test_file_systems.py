"""One contract for every FileSystem. To hold a new backend to it, add one line to BACKENDS."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from acp_agent.core.backends import Copied, Deleted, EntryKind, FileSystem, GrepQuery, Lines
from acp_agent.core.errors import AgentError, BackendUnavailable, Refused, ToolError, ToolErrorCategory
from acp_agent.core.secrets import Secrecy
from acp_agent.core.types import Access
from acp_agent.session.toolset.backends import CompositeFileSystem
from acp_agent.workspace.beneath import Opener, best_opener, kernel_open, walk_open
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from tests.fakes.memory_files import MemoryFileSystem

pytestmark = pytest.mark.anyio

BOM = "\ufeff"


@dataclass
class Tree:
    """A file system under test, and how a test reaches what is behind it. Paths are relative to `root`."""

    files: FileSystem
    root: str
    put: Callable[[str, bytes], None]
    link: Callable[[str, str], None]
    raw: Callable[[str], bytes]

    def absolute(self, path: str) -> str:
        return os.path.join(self.root, path)

    def relative(self, path: str) -> str:
        assert path.startswith(f"{self.root}/")
        return path.removeprefix(f"{self.root}/")


MakeTree = Callable[[Path], AbstractAsyncContextManager[Tree]]


def on_disk(folder: Path, files: FileSystem) -> Tree:
    def put(path: str, data: bytes) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)

    def link(path: str, target: str) -> None:
        (folder / path).symlink_to(target)

    return Tree(files, str(folder), put, link, lambda path: (folder / path).read_bytes())


def local(opener: Opener) -> MakeTree:
    @asynccontextmanager
    async def make(folder: Path) -> AsyncIterator[Tree]:
        with Roots(str(folder), opener=opener) as roots:
            yield on_disk(folder, LocalFileSystem(roots))

    return make


class Nothing:
    """A backend that can do nothing at all, now or later."""

    def resolve(self, path: str, access: Access) -> str:
        raise AssertionError("only the last backend may say what a path means")

    async def read_text(self, path: str) -> str:
        raise BackendUnavailable("nothing", "read_text")

    async def read_lines(self, path: str, offset: int, limit: int) -> Lines:
        raise BackendUnavailable("nothing", "read_lines")

    async def write_text(self, path: str, text: str, *, expected: str | None) -> str:
        raise BackendUnavailable("nothing", "write_text", permanent=True)


@asynccontextmanager
async def composite(folder: Path) -> AsyncIterator[Tree]:
    async def ignore(error: BackendUnavailable) -> None:
        assert not error.quiet

    with Roots(str(folder)) as roots:
        yield on_disk(folder, CompositeFileSystem([Nothing()], LocalFileSystem(roots), ignore))


@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[Tree]:
    files = MemoryFileSystem(root=str(folder))
    yield Tree(files, str(folder), files.put, files.link, files.raw)


BACKENDS: dict[str, MakeTree] = {
    "local-kernel": local(kernel_open),
    "local-walk": local(walk_open),
    "composite": composite,
    "memory": memory,
}


@pytest.fixture(params=BACKENDS)
async def tree(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tree]:
    folder = tmp_path / "project"
    folder.mkdir()
    if request.param == "local-kernel" and opener_here(folder) is not kernel_open:
        pytest.skip("this kernel has no openat2")
    async with BACKENDS[request.param](folder.resolve()) as made:
        yield made


def opener_here(folder: Path) -> Opener:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return best_opener(fd)
    finally:
        os.close(fd)


def category(raised: pytest.ExceptionInfo[ToolError]) -> ToolErrorCategory:
    return raised.value.failure.category


# ------------------------------------------------------------------------------------------ paths


async def test_a_path_means_the_same_relative_and_absolute(tree: Tree):
    tree.put("src/a.py", b"x = 1\n")
    assert tree.files.resolve("src/a.py", Access.READ) == tree.absolute("src/a.py")
    assert tree.files.resolve(tree.absolute("src/a.py"), Access.READ) == tree.absolute("src/a.py")
    assert tree.files.resolve("./src/../src/a.py", Access.READ) == tree.absolute("src/a.py")
    assert tree.files.resolve(".", Access.READ) == tree.root


async def test_a_path_need_not_exist_to_be_resolved(tree: Tree):
    assert tree.files.resolve("new/deep/file.txt", Access.WRITE) == tree.absolute("new/deep/file.txt")


async def test_a_link_inside_is_resolved_and_can_be_read_and_written_through(tree: Tree):
    tree.put("real/a.txt", b"old\n")
    tree.link("alias", "real")
    assert tree.files.resolve("alias/a.txt", Access.READ) == tree.absolute("real/a.txt")
    assert await tree.files.read_text("alias/a.txt") == "old\n"
    await tree.files.write_text("alias/a.txt", "new\n", expected="old\n")
    assert tree.raw("real/a.txt") == b"new\n"


OUTSIDE = ["..", "../x", "/etc/passwd", "/", "src/../../x", "out/hosts", "out", "out/../x"]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_whatever_lies_outside_is_refused_by_every_operation(tree: Tree, path: str):
    tree.put("src/a.py", b"x\n")
    tree.link("out", "/etc")
    with pytest.raises(Refused) as resolved:
        tree.files.resolve(path, Access.READ)
    assert path in str(resolved.value)
    attempts = [
        lambda: tree.files.read_text(path),
        lambda: tree.files.write_text(path, "x", expected=None),
        lambda: tree.files.list_directory(path),
        lambda: tree.files.find(path, "**", 10),
        lambda: tree.files.grep(GrepQuery("x", path)),
    ]
    for attempt in attempts:
        with pytest.raises(Refused):
            await attempt()


@pytest.mark.parametrize("path", ["", "a\0b"])
async def test_what_cannot_be_a_path_is_an_error_of_the_caller(tree: Tree, path: str):
    with pytest.raises(ToolError) as raised:
        await tree.files.read_text(path)
    assert category(raised) is ToolErrorCategory.INVALID_PARAMETERS


# ---------------------------------------------------------------------------------------- reading


async def test_text_is_read_whole_with_its_line_ends_and_without_its_bom(tree: Tree):
    tree.put("a.txt", f"{BOM}één\r\ntwo\rthree\u2028four\n\n".encode())
    assert await tree.files.read_text("a.txt") == "één\r\ntwo\rthree\u2028four\n\n"


async def test_an_empty_file_is_an_empty_text(tree: Tree):
    tree.put("empty", b"")
    assert await tree.files.read_text("empty") == ""


@pytest.mark.parametrize("data", [b"ab\0cd", b"\xff\0\x01"])
async def test_a_file_that_is_no_text_is_an_error_naming_it(tree: Tree, data: bytes):
    tree.put("blob", data)
    with pytest.raises(ToolError, match="blob") as raised:
        await tree.files.read_text("blob")
    assert category(raised) is ToolErrorCategory.PERMANENT_FAILURE


@pytest.mark.parametrize("path", ["missing.txt", "src", "src/a.py/x"])
async def test_what_is_no_file_cannot_be_read_and_the_error_names_it_as_given(tree: Tree, path: str):
    tree.put("src/a.py", b"x\n")
    with pytest.raises(ToolError, match=path) as raised:
        await tree.files.read_text(path)
    assert category(raised) is ToolErrorCategory.PERMANENT_FAILURE


# ---------------------------------------------------------------------------------------- writing


async def test_a_new_file_is_written_with_its_parents(tree: Tree):
    await tree.files.write_text("new/deep/file.txt", "één\r\ntwo", expected=None)
    assert tree.raw("new/deep/file.txt") == "één\r\ntwo".encode()
    assert await tree.files.read_text("new/deep/file.txt") == "één\r\ntwo"


async def test_a_file_keeps_its_bom_when_it_is_replaced(tree: Tree):
    tree.put("a.txt", f"{BOM}old".encode())
    await tree.files.write_text("a.txt", "new", expected="old")
    assert tree.raw("a.txt") == f"{BOM}new".encode()


async def test_a_file_without_a_bom_gets_none(tree: Tree):
    tree.put("a.txt", b"old")
    await tree.files.write_text("a.txt", "new", expected="old")
    assert tree.raw("a.txt") == b"new"


@pytest.mark.parametrize(("there", "expected"), [(b"theirs", "old"), (b"old ", "old"), (b"", None), (None, "old")])
async def test_a_file_that_is_not_what_was_expected_is_not_written(
    tree: Tree, there: bytes | None, expected: str | None
):
    if there is not None:
        tree.put("a.txt", there)
    with pytest.raises(ToolError, match=r"a\.txt: file changed between diff preview and write; aborting") as raised:
        await tree.files.write_text("a.txt", "new", expected=expected)
    assert category(raised) is ToolErrorCategory.PERMANENT_FAILURE
    if there is None:
        assert await tree.files.kind("a.txt") is None
    else:
        assert tree.raw("a.txt") == there


@pytest.mark.parametrize("path", ["src", "src/a.py/x"])
async def test_what_cannot_become_a_file_is_an_error_and_nothing_changes(tree: Tree, path: str):
    tree.put("src/a.py", b"x\n")
    with pytest.raises(ToolError, match=path) as raised:
        await tree.files.write_text(path, "y", expected=None)
    assert category(raised) is ToolErrorCategory.PERMANENT_FAILURE
    assert tree.raw("src/a.py") == b"x\n"


# ---------------------------------------------------------------------------------------- listing


async def test_a_directory_is_listed_by_name_with_kinds(tree: Tree):
    tree.put("d/b.txt", b"four")
    tree.put("d/a/inner", b"")
    tree.put("d/.hidden", b"1")
    tree.link("d/link", "/etc/passwd")
    entries = await tree.files.list_directory("d")
    assert [(entry.name, entry.kind) for entry in entries] == [
        (".hidden", EntryKind.FILE),
        ("a", EntryKind.DIRECTORY),
        ("b.txt", EntryKind.FILE),
        ("link", EntryKind.SYMLINK),
    ]


@pytest.mark.parametrize("path", ["missing", "a.txt"])
async def test_what_is_no_directory_cannot_be_listed_or_searched_by_name(tree: Tree, path: str):
    tree.put("a.txt", b"")
    for attempt in (lambda: tree.files.list_directory(path), lambda: tree.files.find(path, "*", 10)):
        with pytest.raises(ToolError, match=path) as raised:
            await attempt()
        assert category(raised) is ToolErrorCategory.PERMANENT_FAILURE


# ---------------------------------------------------------------------------------------- finding


async def found(tree: Tree, pattern: str, path: str = ".", limit: int = 100) -> list[str]:
    result = await tree.files.find(path, pattern, limit)
    assert not result.more
    return [tree.relative(each) for each in result.paths]


async def test_globs_match_at_one_level_or_with_two_stars_at_any(tree: Tree):
    for path in ("a.py", "b.txt", "src/c.py", "src/deep/d.py", "tests/c.py"):
        tree.put(path, b"")
    assert await found(tree, "*.py") == ["a.py"]
    assert await found(tree, "**/*.py") == ["a.py", "src/c.py", "src/deep/d.py", "tests/c.py"]
    assert await found(tree, "src/**/*.py") == ["src/c.py", "src/deep/d.py"]
    assert await found(tree, "*.py", "src") == ["src/c.py"]
    assert await found(tree, "*/c.py") == ["src/c.py", "tests/c.py"]
    assert await found(tree, "nothing") == []


async def test_found_paths_are_absolute_and_cut_at_the_limit(tree: Tree):
    for name in "dacb":
        tree.put(f"{name}.py", b"")
    result = await tree.files.find(".", "*.py", 3)
    assert result == replace(result, paths=tuple(tree.absolute(f"{name}.py") for name in "abc"), more=True)
    assert (result.sizes, result.total) == ((0, 0, 0), 4)
    assert not (await tree.files.find(".", "*.py", 4)).more


async def test_ignored_files_are_not_found(tree: Tree):
    tree.put(".gitignore", b"*.log\nbuild/\n!keep.log\n")
    for path in ("a.log", "keep.log", "a.py", "build/b.py", "src/build/c.py", "src/d.log"):
        tree.put(path, b"")
    assert await found(tree, "**/*.py") == ["a.py"]
    assert await found(tree, "**/*.log") == ["keep.log"]


# --------------------------------------------------------------------------------------- grepping


async def hits(tree: Tree, pattern: str, path: str = ".", **more: Any) -> list[tuple[str, int, str]]:
    result = await tree.files.grep(GrepQuery(pattern, path, **more))
    assert not result.more
    return [(tree.relative(match.path), match.line, match.text) for match in result.matches]


async def test_matching_lines_come_in_path_and_line_order_without_their_ends(tree: Tree):
    tree.put("b.txt", b"one\r\ntwo foo\r\nfoo three")
    tree.put("a.txt", b"foo\n\nbar\n")
    assert await hits(tree, "foo") == [("a.txt", 1, "foo"), ("b.txt", 2, "two foo"), ("b.txt", 3, "foo three")]
    assert await hits(tree, "foo$") == [("a.txt", 1, "foo"), ("b.txt", 2, "two foo")]
    assert await hits(tree, "^t") == [("b.txt", 2, "two foo")]


async def test_case_counts_unless_told_otherwise(tree: Tree):
    tree.put("a.txt", b"Foo\n")
    assert await hits(tree, "foo") == []
    assert await hits(tree, "foo", case_sensitive=False) == [("a.txt", 1, "Foo")]


async def test_matches_are_cut_at_the_limit(tree: Tree):
    tree.put("a.txt", b"x\n" * 5)
    tree.put("b.txt", b"x\n" * 5)
    result = await tree.files.grep(GrepQuery("x", ".", limit=6))
    assert result.more
    assert [(os.path.basename(match.path), match.line) for match in result.matches] == [
        *(("a.txt", line) for line in range(1, 6)),
        ("b.txt", 1),
    ]
    assert not (await tree.files.grep(GrepQuery("x", ".", limit=10))).more


async def test_files_more_secret_than_asked_for_are_not_searched_and_told_whether_they_match_or_not(tree: Tree):
    for path in ("a.txt", "conf/secrets.json", "k.pem", "empty.key", ".ssh/id_rsa"):
        tree.put(path, b"" if path == "empty.key" else b"x\n")
    result = await tree.files.grep(GrepQuery("x", ".", secrets=Secrecy.OPEN))
    assert [tree.relative(match.path) for match in result.matches] == ["a.txt"]
    assert [tree.relative(path) for path in result.secrets] == ["conf/secrets.json", "empty.key", "k.pem"]
    result = await tree.files.grep(GrepQuery("x", ".", secrets=Secrecy.GUARDED))
    assert [tree.relative(match.path) for match in result.matches] == ["a.txt", "conf/secrets.json", "k.pem"]
    result = await tree.files.grep(GrepQuery("x", ".", glob="**/.ssh/*", secrets=Secrecy.GUARDED))
    assert (result.matches, [tree.relative(path) for path in result.secrets]) == ((), [".ssh/id_rsa"])
    assert await hits(tree, "x", "k.pem", secrets=Secrecy.OPEN) == [("k.pem", 1, "x")]


async def around(tree: Tree, context: int, limit: int = 100) -> tuple[list[tuple[str, int, bool]], bool]:
    result = await tree.files.grep(GrepQuery("x", ".", context=context, limit=limit))
    return [(tree.relative(line.path), line.line, line.matched) for line in result.matches], result.more


async def test_context_comes_with_the_matches_in_order_and_no_line_twice(tree: Tree):
    tree.put("a.txt", b"1\n2 x\n3\n4 x\n5\n6\n7\n8\n9 x")
    tree.put("b.txt", b"x\n2\n3\n")
    one = [("a.txt", 1, False), ("a.txt", 2, True), ("a.txt", 3, False), ("a.txt", 4, True), ("a.txt", 5, False)]
    two = [("a.txt", 8, False), ("a.txt", 9, True)]
    three = [("b.txt", 1, True), ("b.txt", 2, False)]
    assert await around(tree, 1) == ([*one, *two, *three], False)
    lines = [("a.txt", line, line in (2, 4, 9)) for line in range(1, 10)]
    assert await around(tree, 20) == ([*lines, *three, ("b.txt", 3, False)], False)


async def test_context_is_not_counted_and_that_of_a_match_too_many_not_given(tree: Tree):
    tree.put("a.txt", b"x\n2\n3\n4\n5\nx\nx\n8\n")
    first = [("a.txt", 1, True), ("a.txt", 2, False)]
    assert await around(tree, 1, limit=1) == (first, True)
    assert await around(tree, 1, limit=2) == ([*first, ("a.txt", 5, False), ("a.txt", 6, True)], True)
    tree.put("b.txt", b"1\nx\n")
    last = [("a.txt", 5, False), ("a.txt", 6, True), ("a.txt", 7, True), ("a.txt", 8, False)]
    assert await around(tree, 1, limit=3) == ([*first, *last], True)


async def test_a_glob_chooses_files_at_any_depth_or_with_a_slash_where_it_says(tree: Tree):
    for path in ("a.py", "b.ts", "src/c.py", "src/deep/d.tsx", "src/deep/test_e.py"):
        tree.put(path, b"x\n")

    async def chosen(glob: str, path: str = ".") -> list[str]:
        return [each for each, _, _ in await hits(tree, "x", path, glob=glob)]

    assert await chosen("*.py") == ["a.py", "src/c.py", "src/deep/test_e.py"]
    assert await chosen("*.{ts,tsx}") == ["b.ts", "src/deep/d.tsx"]
    assert await chosen("src/*.py") == ["src/c.py"]
    assert await chosen("src/**/*.py") == ["src/c.py", "src/deep/test_e.py"]
    assert await chosen("deep/*", "src") == ["src/deep/d.tsx", "src/deep/test_e.py"]
    assert await chosen("*.rs") == []
    assert await chosen("*.rs", "a.py") == ["a.py"]


async def test_a_glob_that_names_what_is_hidden_or_heavy_looks_into_it(tree: Tree):
    for path in (".github/ci.yml", ".git/config", "target/a", "b", ".env"):
        tree.put(path, b"x\n")
    for glob, path in ((".github/**", ".github/ci.yml"), ("target/*", "target/a"), (".env", ".env"), ("*", "b")):
        assert [each for each, _, _ in await hits(tree, "x", glob=glob)] == [path]


async def test_a_file_type_chooses_files_by_language(tree: Tree):
    for path in ("a.py", "b.PYI", "c.js", "Makefile", "d.go"):
        tree.put(path, b"x\n")
    for name, expected in (("py", ["a.py", "b.PYI"]), ("javascript", ["c.js"]), ("make", ["Makefile"]), ("rust", [])):
        assert [path for path, _, _ in await hits(tree, "x", file_type=name)] == expected
    with pytest.raises(ToolError, match=r"pyton.* did you mean python") as raised:
        await hits(tree, "x", file_type="pyton")
    assert category(raised) is ToolErrorCategory.INVALID_PARAMETERS


async def test_files_alone_are_named_once_with_their_first_match(tree: Tree):
    tree.put("a.txt", b"1\nx 2\nx 3\n")
    tree.put("b.txt", b"1\n")
    tree.put("c.txt", b"x\n")
    assert await hits(tree, "x", files_only=True, context=2) == [("a.txt", 2, "x 2"), ("c.txt", 1, "x")]
    result = await tree.files.grep(GrepQuery("x", ".", files_only=True, limit=1))
    assert (len(result.matches), result.more) == (1, True)


async def test_a_pattern_that_is_none_is_an_error_naming_it(tree: Tree):
    tree.put("a.txt", b"")
    for pattern in ("(", "(?=x)", r"\1"):
        with pytest.raises(ToolError) as raised:
            await tree.files.grep(GrepQuery(pattern, "."))
        assert category(raised) is ToolErrorCategory.INVALID_PARAMETERS
        assert repr(pattern) in str(raised.value)


async def test_binary_hidden_ignored_and_heavy_files_are_left_out(tree: Tree):
    tree.put(".gitignore", b"*.log\n")
    for path in ("a.txt", "b.log", ".env", ".git/config", "node_modules/m.js", "sub/target/t.rs", "sub/.x/y"):
        tree.put(path, b"needle\n")
    tree.put("blob", b"needle\0\n")
    assert await hits(tree, "needle") == [("a.txt", 1, "needle")]


async def test_a_file_that_is_named_is_searched_even_when_hidden_or_ignored(tree: Tree):
    tree.put(".gitignore", b"*.log\n")
    tree.put("a.log", b"needle\n")
    tree.put(".env", b"x\nneedle\n")
    assert await hits(tree, "needle", "a.log") == [("a.log", 1, "needle")]
    assert await hits(tree, "needle", ".env") == [(".env", 2, "needle")]


async def test_a_link_out_is_not_searched(tree: Tree):
    tree.put("a.txt", b"root\n")
    tree.link("etc", "/etc")
    tree.link("passwd", "/etc/passwd")
    assert await hits(tree, "root") == [("a.txt", 1, "root")]


async def test_a_path_that_does_not_exist_cannot_be_searched(tree: Tree):
    with pytest.raises(ToolError, match="missing") as raised:
        await tree.files.grep(GrepQuery("x", "missing"))
    assert category(raised) is ToolErrorCategory.PERMANENT_FAILURE


async def test_a_link_that_leads_nowhere_fails_cleanly_everywhere(tree: Tree):
    tree.link("loop", "loop")
    for path in ("loop", "loop/x"):
        for attempt in (
            lambda path=path: tree.files.read_text(path),
            lambda path=path: tree.files.write_text(path, "x", expected=None),
            lambda path=path: tree.files.list_directory(path),
            lambda path=path: tree.files.grep(GrepQuery("x", path)),
        ):
            with pytest.raises(AgentError):
                await attempt()


# ------------------------------------------------------------------------------------ tree changes


async def names(tree: Tree, path: str = ".") -> list[str]:
    return [entry.name for entry in await tree.files.list_directory(path)]


async def test_a_directory_is_made_with_its_parents_and_once(tree: Tree):
    assert await tree.files.make_directory("a/b/c")
    assert await names(tree, "a/b") == ["c"]
    assert not await tree.files.make_directory("a/b")
    assert not await tree.files.make_directory(".")
    tree.link("alias", "a")
    assert not await tree.files.make_directory("alias/b/c")
    assert await tree.files.make_directory("alias/d/")
    assert await names(tree, "a") == ["b", "d"]


@pytest.mark.parametrize("path", ["a.txt", "a.txt/x", "a.txt/x/y"])
async def test_a_directory_cannot_be_made_of_a_file_nor_below_one(tree: Tree, path: str):
    tree.put("a.txt", b"x")
    with pytest.raises(ToolError, match=path) as raised:
        await tree.files.make_directory(path)
    assert category(raised) is ToolErrorCategory.PERMANENT_FAILURE
    assert tree.raw("a.txt") == b"x"


async def test_a_file_a_link_and_an_empty_directory_are_deleted(tree: Tree):
    tree.put("real/a.txt", b"x")
    tree.put("b.txt", b"x")
    tree.link("alias", "real")
    tree.link("nowhere", "missing")
    await tree.files.make_directory("empty")
    assert await tree.files.delete("b.txt", recursive=False) == Deleted(EntryKind.FILE, 0)
    assert await tree.files.delete("alias", recursive=True) == Deleted(EntryKind.SYMLINK, 0)
    assert await tree.files.delete("nowhere", recursive=False) == Deleted(EntryKind.SYMLINK, 0)
    assert await tree.files.delete("empty", recursive=False) == Deleted(EntryKind.DIRECTORY, 0)
    assert await names(tree) == ["real"]
    assert tree.raw("real/a.txt") == b"x"


async def test_a_directory_that_is_not_empty_is_deleted_only_with_recursive(tree: Tree):
    for path in ("d/a", "d/sub/b", "d/sub/deep/c", "kept"):
        tree.put(path, b"x")
    tree.link("d/out", "../kept")
    with pytest.raises(ToolError, match=r"\bd\b.* not empty") as raised:
        await tree.files.delete("d", recursive=False)
    assert "recursive=true" in str(raised.value) + raised.value.failure.suggestion
    assert await names(tree, "d") == ["a", "out", "sub"]
    assert await tree.files.delete("d", recursive=True) == Deleted(EntryKind.DIRECTORY, 6)
    assert await names(tree) == ["kept"]


@pytest.mark.parametrize("path", [".", "./", "src/..", "ROOT"])
async def test_the_root_itself_is_neither_deleted_nor_moved(tree: Tree, path: str):
    tree.put("src/a", b"x")
    path = path.replace("ROOT", tree.root)
    for attempt in (lambda: tree.files.delete(path, recursive=True), lambda: tree.files.move(path, "new")):
        with pytest.raises(Refused):
            await attempt()
    assert tree.raw("src/a") == b"x"


async def test_a_file_and_a_directory_are_moved_and_parents_made(tree: Tree):
    tree.put("a.txt", b"a")
    tree.put("d/sub/b.txt", b"b")
    tree.link("d/link", "anywhere")
    await tree.files.move("a.txt", "new/place/c.txt")
    await tree.files.move("d", "new/d2")
    assert tree.raw("new/place/c.txt") == b"a"
    assert tree.raw("new/d2/sub/b.txt") == b"b"
    assert await names(tree) == ["new"]
    assert await names(tree, "new/d2") == ["link", "sub"]


async def test_a_link_is_moved_itself(tree: Tree):
    tree.put("real/a.txt", b"a")
    tree.link("alias", "real")
    await tree.files.move("alias", "other")
    assert tree.raw("real/a.txt") == b"a"
    assert await tree.files.read_text("other/a.txt") == "a"
    assert await names(tree) == ["other", "real"]


async def test_a_file_is_copied_and_so_is_a_directory_without_its_links(tree: Tree):
    tree.put("d/a.txt", b"a")
    tree.put("d/sub/blob", b"\0\xff")
    tree.link("d/link", "a.txt")
    tree.link("d/sub/out", "/etc")
    assert await tree.files.copy("d/a.txt", "new/b.txt") == Copied(EntryKind.FILE, 1, 0)
    assert await tree.files.copy("d", "new/d") == Copied(EntryKind.DIRECTORY, 2, 2)
    assert (tree.raw("new/b.txt"), tree.raw("new/d/a.txt"), tree.raw("new/d/sub/blob")) == (b"a", b"a", b"\0\xff")
    assert (await names(tree, "new/d"), await names(tree, "new/d/sub")) == (["a.txt", "sub"], ["blob"])
    assert await names(tree, "d") == ["a.txt", "link", "sub"]


async def test_a_named_link_is_copied_as_what_it_leads_to(tree: Tree):
    tree.put("real/a.txt", b"a")
    tree.link("alias", "real")
    tree.link("file", "real/a.txt")
    assert await tree.files.copy("alias", "copy") == Copied(EntryKind.DIRECTORY, 1, 0)
    assert await tree.files.copy("file", "copied.txt") == Copied(EntryKind.FILE, 1, 0)
    assert (tree.raw("copy/a.txt"), tree.raw("copied.txt")) == (b"a", b"a")


@pytest.mark.parametrize("operation", ["move", "copy"])
async def test_nothing_at_the_destination_is_replaced(tree: Tree, operation: str):
    tree.put("a.txt", b"a")
    tree.put("b.txt", b"b")
    tree.put("d/x", b"x")
    await tree.files.make_directory("empty")
    give = getattr(tree.files, operation)
    for source, destination in (("a.txt", "b.txt"), ("d", "b.txt"), ("a.txt", "a.txt"), ("a.txt", "b.txt/c")):
        with pytest.raises(ToolError, match=destination) as raised:
            await give(source, destination)
        assert category(raised) is ToolErrorCategory.PERMANENT_FAILURE
    for source, destination, whole in (("a.txt", "empty", "empty/a.txt"), ("d", "empty/", "empty/d")):
        with pytest.raises(ToolError, match="empty") as raised:
            await give(source, destination)
        assert whole in raised.value.failure.suggestion
    assert await names(tree) == ["a.txt", "b.txt", "d", "empty"]
    assert await names(tree, "empty") == []
    assert (tree.raw("a.txt"), tree.raw("b.txt")) == (b"a", b"b")


@pytest.mark.parametrize("operation", ["move", "copy"])
async def test_a_directory_does_not_go_into_itself(tree: Tree, operation: str):
    tree.put("d/x", b"x")
    tree.link("alias", "d")
    tree.put("dx/y", b"y")
    give = getattr(tree.files, operation)
    for destination in ("d/new", "d/a/b", "alias/new"):
        with pytest.raises(ToolError) as raised:
            await give("d", destination)
        assert category(raised) is ToolErrorCategory.INVALID_PARAMETERS
    await give("d", "dx/new")
    assert tree.raw("dx/new/x") == b"x"
    assert await names(tree, "dx") == ["new", "y"]


@pytest.mark.parametrize("path", ["missing", "missing/x", "a.txt/x"])
async def test_what_is_not_there_is_not_deleted_moved_or_copied(tree: Tree, path: str):
    tree.put("a.txt", b"x")
    for attempt in (
        lambda: tree.files.delete(path, recursive=True),
        lambda: tree.files.move(path, "deep/new"),
        lambda: tree.files.copy(path, "deep/new"),
    ):
        with pytest.raises(ToolError, match=path) as raised:
            await attempt()
        assert category(raised) is ToolErrorCategory.PERMANENT_FAILURE
    assert await names(tree) == ["a.txt"]


@pytest.mark.parametrize("path", [*OUTSIDE, "/etc/new", "out/new"])
async def test_no_tree_outside_is_changed_or_copied_from(tree: Tree, path: str):
    tree.put("src/a.py", b"x\n")
    tree.link("out", "/etc")
    entry_itself = path == "out"
    attempts = [
        lambda: tree.files.make_directory(path),
        lambda: tree.files.copy(path, "new"),
        lambda: tree.files.copy("src", path),
        lambda: tree.files.move("src", path),
    ]
    if not entry_itself:
        attempts += [lambda: tree.files.delete(path, recursive=True), lambda: tree.files.move(path, "new")]
    for attempt in attempts:
        with pytest.raises(Refused):
            await attempt()
    assert await names(tree) == ["out", "src"]


@pytest.mark.parametrize("path", ["", "a\0b"])
async def test_what_cannot_be_a_path_changes_no_tree(tree: Tree, path: str):
    tree.put("a", b"x")
    for attempt in (
        lambda: tree.files.make_directory(path),
        lambda: tree.files.delete(path, recursive=True),
        lambda: tree.files.move(path, "b"),
        lambda: tree.files.move("a", path),
        lambda: tree.files.copy(path, "b"),
        lambda: tree.files.copy("a", path),
    ):
        with pytest.raises(ToolError) as raised:
            await attempt()
        assert category(raised) is ToolErrorCategory.INVALID_PARAMETERS
    assert await names(tree) == ["a"]
