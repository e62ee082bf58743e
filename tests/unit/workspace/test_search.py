import os
import re
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.backends import GrepQuery
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.secrets import Secrecy
from acp_agent.core.types import Access
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.ripgrep import FoundLine, MatchReader, Ripgrep
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.search import EVERY, SOME, MissingNames, grep
from acp_agent.workspace.tree_walk import TimeLimit
from tests.rows import each_row

pytestmark = pytest.mark.anyio


async def lines(files: LocalFileSystem, pattern: str, path: str = ".") -> list[tuple[int, str]]:
    return [(match.line, match.text) for match in (await files.grep(GrepQuery(pattern, path))).matches]


@each_row(
    "text, pattern, expected",
    [
        ("a\nb\n", "^", [(1, "a"), (2, "b")]),
        ("a\nb", "$", [(1, "a"), (2, "b")]),
        ("a\n\nb\n", "^$", [(2, "")]),
        ("a\nb\n", "x*", [(1, "a"), (2, "b")]),
        ("", "x*", []),
        ("\n", "", [(1, "")]),
        ("a\nb\n", r"a\s*b", []),
        ("a\nb\n", r"[^a]", [(2, "b")]),
        ("a\nb\n", r"a\nb", []),
        ("a\r\nb\r\n", "a$", [(1, "a")]),
        ("aXbX\n", "X", [(1, "aXbX")]),
        ("(x\n", r"\(", [(1, "(x")]),
        ("ab\nba\n", "a|b$", [(1, "ab"), (2, "ba")]),
        ("é1\nÉ2\n", "(?i)É", [(1, "é1"), (2, "É2")]),
        ("\ufeffa\n", "^a", [(1, "a")]),
        ("a\u2028b\nc\n", "c", [(2, "c")]),
    ],
)
async def test_lines_are_those_of_the_file_and_a_match_stays_within_one(
    files: LocalFileSystem, project: Path, text: str, pattern: str, expected: list[tuple[int, str]]
):
    (project / "f").write_bytes(text.encode())
    assert await lines(files, pattern, "f") == expected
    assert await lines(files, pattern) == expected


@given(st.lists(st.text("ab \r", max_size=4), max_size=8), st.sampled_from(["a", "^b", "a$", "", "[^a]", "b+ ?"]))
def test_it_finds_what_a_loop_over_the_lines_finds(
    tmp_path_factory: pytest.TempPathFactory, body: list[str], pattern: str
):
    folder = tmp_path_factory.mktemp("grep").resolve()
    (folder / "f").write_bytes("\n".join(body).encode())
    whole = [line.removesuffix("\r") if number < len(body) else line for number, line in enumerate(body, 1)]
    if whole and whole[-1] == "":
        whole.pop()  # the text ends with a line end

    async def both() -> None:
        with Roots(str(folder)) as roots:
            files = LocalFileSystem(roots)
            found = {number for number, _ in await lines(files, pattern)}
            single = set[int]()
            for number, line in enumerate(whole, 1):
                (folder / "line").write_bytes(line.encode() + b"\n")
                if await lines(files, pattern, "line"):
                    single.add(number)
                (folder / "line").unlink()
            assert found == single

    anyio.run(both)


async def test_a_hostile_pattern_on_a_hostile_file_ends(files: LocalFileSystem, project: Path):
    (project / "f").write_text("a" * 2_000_000 + "c\n")
    with anyio.fail_after(20):
        assert await lines(files, "(a+)+$") == []
        assert await lines(files, "(a|aa)+b") == []
    with pytest.raises(ToolError):
        await files.grep(GrepQuery("((a{1,900}){1,900}){1,900}", "."))


async def test_a_very_long_line_is_cut(files: LocalFileSystem, project: Path):
    (project / "f").write_text("x" * 1_000_000 + "\nneedle\n")
    found = await lines(files, "x|needle")
    assert [(number, len(text)) for number, text in found] == [(1, 65536), (2, 6)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
async def test_a_very_long_line_is_cut_at_a_whole_character(files: LocalFileSystem, project: Path, encoding: str):
    (project / "f").write_bytes(f"needlex{'é' * 70_000}\n".encode(encoding))
    ((_, text),) = await lines(files, "needle", "f")
    assert text == f"needlex{'é' * ((65536 - 7) // 2)}"


async def test_large_files_are_passed_over_but_searched_when_they_are_named(roots: Roots, project: Path):
    files = LocalFileSystem(roots, read_limit=100)
    (project / "large").write_text("x\n" * 100 + "needle\n")
    (project / "small").write_text("needle\n")
    (project / "large.log").write_text("x\n" * 100)
    assert await lines(files, "needle") == [(1, "needle")]
    found = await files.grep(GrepQuery("needle", "."))
    assert (found.too_large, found.size_limit) == ((str(project / "large"), str(project / "large.log")), 100)
    assert (await files.grep(GrepQuery("needle", ".", glob="*.log"))).too_large == (str(project / "large.log"),)
    assert await lines(files, "needle", "large") == [(101, "needle")]
    assert (await files.grep(GrepQuery("needle", "large"))).too_large == ()


async def test_large_files_behind_the_last_shown_match_are_told_too_since_all_are_counted(roots: Roots, project: Path):
    for name in ("a", "d"):
        (project / name).write_text("needle\n" * 100)
    for name in ("b", "c"):
        (project / name).write_text("needle\n")
    found = await LocalFileSystem(roots, read_limit=100).grep(GrepQuery("needle", ".", limit=1))
    assert (found.more, found.too_large) == (True, (str(project / "a"), str(project / "d")))


async def test_a_hidden_or_skipped_name_is_searched_when_the_glob_names_it(roots: Roots, project: Path):
    for path in (".github/ci.yml", ".git/x", ".env", "sub/.env.local", "target/a", ".venv/b", "plain", ".github/.x/y"):
        (project / path).parent.mkdir(exist_ok=True, parents=True)
        (project / path).write_text("needle\n")
    for glob, expected in (
        (None, ["plain"]),
        (".github/**", [".github/ci.yml"]),
        ("{.github,nothing}/*", [".github/ci.yml"]),
        (".env*", [".env", "sub/.env.local"]),
        ("**/.*/*", [".github/.x/y", ".github/ci.yml", ".venv/b"]),
        (".git/*", [".git/x"]),
        ("target/*", ["target/a"]),
        ("*", ["plain"]),
        ("**", ["plain"]),
    ):
        found = await LocalFileSystem(roots).grep(GrepQuery("needle", ".", glob=glob))
        assert [match.path.removeprefix(f"{project}/") for match in found.matches] == expected, glob


async def test_a_glob_that_begins_with_folders_keeps_the_rules_above_them_and_follows_no_link(
    files: LocalFileSystem, project: Path, outside: Path
):
    for path in ("a/b/c.py", "a/b/c.log", "a/b/out/d.py", "a/x.py", "gone/y.py"):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text("needle\n")
    (project / ".gitignore").write_text("*.log\ngone/\n")
    (project / "a" / ".gitignore").write_text("out/\n")
    (outside / "key.pem").write_text("needle\n")
    (project / "link").symlink_to(outside)
    for glob, expected in (
        ("a/b/**", ["a/b/c.py"]),
        ("gone/**", []),
        ("nowhere/*", []),
        ("link/**", []),
        ("a/x.py/*", []),
    ):
        found = await files.grep(GrepQuery("needle", ".", glob=glob, secrets=Secrecy.OPEN))
        assert [match.path.removeprefix(f"{project}/") for match in found.matches] == expected, glob
        assert found.secrets == ()


async def test_a_search_without_time_says_where_it_stopped(roots: Roots, project: Path):
    (project / "a").mkdir()
    (project / "a" / "b").write_text("needle\n")
    found = await grep(roots, GrepQuery("needle", "."), "rg", 1000, 0.0)
    assert (found.matches, found.more, found.stopped) == ((), False, str(project))
    found = await grep(roots, GrepQuery("needle", "a/b"), "rg", 1000, 0.0)
    assert (found.matches, found.stopped) == ((), str(project / "a" / "b"))


def test_a_time_limit_remembers_where_it_was_first_met():
    now = 10.0
    time = TimeLimit(5, lambda: now)
    assert not time.stops_at("/a")
    now = 15.0
    assert time.is_over
    assert time.stops_at("/b")
    assert time.stops_at("/c")
    assert time.stopped == "/b"


async def test_a_large_file_is_searched_in_blocks_as_if_it_were_one(roots: Roots, project: Path):
    body = "".join(f"{number} {'x' * 90}\r\n" for number in range(1, 40_000)) + "the end"
    (project / "log").write_text(f"\ufeff{body}")
    assert len(body) > 3 * 1024 * 1024
    files = LocalFileSystem(roots, read_limit=100)
    for pattern in ("^[0-9]*[05]00 x", "the end$", "^1 ", "^39", "x$", ""):
        found = await files.grep(GrepQuery(pattern, "log", limit=100_000))
        by_line = re.compile(pattern)
        assert [(match.line, match.text) for match in found.matches] == [
            (number, line) for number, line in enumerate(body.split("\r\n"), 1) if by_line.search(line)
        ], pattern


async def test_context_crosses_the_blocks_a_file_is_read_in(files: LocalFileSystem, project: Path):
    (project / "log").write_text("".join(f"{number:09}\n" for number in range(1, 300_001)))
    edge = 1024 * 1024 // 10  # the first block ends in the line after this one
    for hit in range(edge - 3, edge + 5):
        found = await files.grep(GrepQuery(f"^{hit:09}", "log", context=5))
        assert [match.line for match in found.matches] == list(range(hit - 5, hit + 6))
        assert [int(match.text) for match in found.matches] == [match.line for match in found.matches]


async def test_a_line_longer_than_is_kept_in_memory_keeps_its_number(roots: Roots, project: Path):
    files = LocalFileSystem(roots, read_limit=1024 * 1024)
    (project / "log").write_text("x" * 5_000_000 + "\nneedle\n")
    found = await files.grep(GrepQuery("x|needle", "log", context=1))
    assert [(match.line, match.text[:6], match.matched) for match in found.matches] == [
        (1, "xxxxxx", True),
        (2, "needle", True),
    ]


async def test_a_nul_behind_what_matched_makes_the_file_binary_all_the_same(files: LocalFileSystem, project: Path):
    (project / "blob").write_bytes(b"needle\n" + b"x\n" * 1_000_000 + b"\0")
    assert await lines(files, "needle") == []
    with pytest.raises(ToolError, match="blob is a binary file"):
        await lines(files, "needle", "blob")


@pytest.mark.parametrize("glob", ["!*.py", "../*", "/etc/*", "", "a\0", "x" * 2000])
async def test_a_glob_that_is_none_is_an_error_of_the_caller(files: LocalFileSystem, glob: str):
    with pytest.raises((Refused, ToolError), match="pattern"):
        await files.grep(GrepQuery("x", ".", glob=glob))


async def test_pipes_links_in_circles_and_very_long_names_are_passed_over(files: LocalFileSystem, project: Path):
    os.mkfifo(project / "pipe")
    (project / "self").symlink_to("self")
    (project / "round").symlink_to(".")
    (project / "a").write_text("needle\n")
    assert await lines(files, "needle") == [(1, "needle")]
    for path, why in (("pipe", "not a regular file"), ("self", "cannot be resolved"), ("n" * 300, "long")):
        with pytest.raises((Refused, ToolError), match=why):
            await lines(files, "needle", path)


async def test_a_named_binary_file_is_an_error_and_latin_1_is_searched(files: LocalFileSystem, project: Path):
    (project / "blob").write_bytes(b"needle\0")
    (project / "latin").write_bytes(b"caf\xe9 needle\n")
    with pytest.raises(ToolError, match="blob is a binary file"):
        await lines(files, "needle", "blob")
    assert await lines(files, "needle") == [(1, "café needle")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
async def test_a_named_file_is_searched_in_its_encoding(files: LocalFileSystem, project: Path, encoding: str):
    (project / "words").write_bytes("one\r\nfür 5 €\r\n".encode(encoding))
    assert await lines(files, "^für 5 €$", "words") == [(2, "für 5 €")]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be"])
async def test_a_folder_is_searched_in_the_encoding_that_the_mark_of_a_file_says(
    files: LocalFileSystem, project: Path, encoding: str
):
    mark = "" if encoding == "utf-8-sig" else "\ufeff"
    (project / "words").write_bytes(f"{mark}für\r\nzwei\r\nfür 5 €\r\n".encode(encoding))
    assert await lines(files, "^für") == [(1, "für"), (3, "für 5 €")]
    assert await lines(files, "zwei$") == [(2, "zwei")]


async def test_a_file_in_utf_16_that_cannot_be_read_is_left_out_of_a_folder(files: LocalFileSystem, project: Path):
    (project / "half").write_bytes("\ufeffneedle".encode("utf-16-le") + "\ud800".encode("utf-16-le", "surrogatepass"))
    (project / "nul").write_bytes("\ufeffneedle\0".encode("utf-16-le"))
    assert await lines(files, "needle") == []


async def test_a_named_directory_is_searched_even_when_ignored_or_skipped(files: LocalFileSystem, project: Path):
    (project / ".gitignore").write_text("out/\n")
    for folder in ("out", "node_modules", ".hidden"):
        (project / folder).mkdir()
        (project / folder / "f").write_text("needle\n")
        assert await lines(files, "needle", folder) == [(1, "needle")]
    assert await lines(files, "needle") == []


async def test_a_policy_hides_what_may_not_be_read(project: Path):
    (project / "a.key").write_text("needle\n")
    (project / "a.txt").write_text("needle 2\n")

    def policy(path: str, access: Access) -> str | None:
        return "secret" if path.endswith(".key") and access is Access.READ else None

    with Roots(str(project), policy=policy) as roots:
        files = LocalFileSystem(roots)
        assert await lines(files, "needle") == [(1, "needle 2")]
        with pytest.raises(Refused):
            await lines(files, "needle", "a.key")


async def test_files_are_judged_by_reading_also_below_a_folder_that_may_not_be_listed(project: Path):
    for path in ("hidden/a", "open/a"):
        (project / path).parent.mkdir()
        (project / path).write_text("needle\n")

    def policy(path: str, access: Access) -> str | None:
        hidden = path.endswith("/hidden") and access is Access.LIST
        return "secret" if hidden or (path.endswith("open") and access is Access.READ) else None

    with Roots(str(project), policy=policy) as roots:
        files = LocalFileSystem(roots)
        found = await files.grep(GrepQuery("needle", "."))
        assert [match.path for match in found.matches] == [str(project / name / "a") for name in ("hidden", "open")]
        assert await lines(files, "needle", "open") == [(1, "needle")]
        assert await lines(files, "needle", "hidden/a") == [(1, "needle")]
        with pytest.raises(Refused, match="secret"):
            await lines(files, "needle", "hidden")


async def test_an_offset_may_be_any_number(files: LocalFileSystem, project: Path):
    (project / "f").write_text("needle\n")
    found = await files.grep(GrepQuery("needle", ".", offset=10**30))
    assert (found.total, found.matches) == (1, ())


async def test_an_error_in_a_pattern_says_what_is_wrong_and_what_to_do(files: LocalFileSystem):
    with pytest.raises(ToolError, match=r"pattern 'a\(b' is not a regular expression: missing \): a\(b") as raised:
        await lines(files, "a(b")
    assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert "RE2" in raised.value.failure.suggestion
    for pattern in ("a)|(b", "[", "x**{2", "\\", "\ud800", "x" * 4097):
        with pytest.raises(ToolError) as raised:
            await lines(files, pattern)
        assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS


async def test_a_search_stops_when_its_task_is_cancelled(files: LocalFileSystem, project: Path):
    for number in range(400):
        (project / f"f{number}").write_text("a" * 50_000 + "\n")
    started = time.monotonic()
    await files.grep(GrepQuery("(a|b)*c", "."))
    whole = time.monotonic() - started
    with anyio.move_on_after(whole / 20) as scope:
        await files.grep(GrepQuery("(a|b)*c", "."))
    assert scope.cancelled_caught


async def test_a_bounded_repeat_over_one_long_line_ends_with_its_task_and_with_its_time(roots: Roots, project: Path):
    (project / "oneline.js").write_text("x=1;" * 10_000_000)
    query = GrepQuery("(x=1;){1,1000}[yz]", "oneline.js")
    for path in ("oneline.js", "."):
        started = time.monotonic()
        with anyio.move_on_after(0.05) as scope:
            await grep(roots, replace(query, path=path), "rg", 64 * 1024 * 1024)
        assert scope.cancelled_caught
        assert time.monotonic() - started < 5
    started = time.monotonic()
    found = await grep(roots, query, "rg", 64 * 1024 * 1024, seconds=0.05)
    assert (found.matches, found.stopped) == ((), str(project / "oneline.js"))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        *(
            ("struct {", "struct {"),
            ("a{,2}", "a{,2}"),
            ("}", "}"),
            (r"\<b\>", "<b>"),
            (r"\Qa.b(\E", "a.b("),
            ("[]a]", "]"),
        ),
        *(("[[]", "["), ("[a&&b]", "&"), ("[^[]", "x"), ("[a~~b]", "~"), (r"[\[\]]", "]"), ("[[:alpha:]]x", "ax")),
        *(
            (r"\$\{[^}]+\}", "${x}"),
            (r"\p{Greek}", "λ"),
            (r"\x{e9}", "é"),
            (r"foo\.bar\[\d+\]", "foo.bar[1]"),
            ("(?i)É", "é"),
        ),
        *((r"https?://[^\s]+", "http://x"), ("$x = {", "")),
    ],
)
async def test_a_pattern_means_what_it_means_to_re2(files: LocalFileSystem, project: Path, pattern: str, text: str):
    (project / "f").write_text(f"{text}\nnothing else 5\n")
    assert (1, text) in await lines(files, pattern) or not text


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+b", "a" * 4096, ".{1000}" * 3, r"\w{100}\W{100}" * 4, "[^b]*b" * 500]
)
async def test_a_hostile_pattern_ends(files: LocalFileSystem, project: Path, pattern: str):
    (project / "f").write_text("a" * 300_000 + "c\n")
    with anyio.fail_after(30), suppress(ToolError):
        await lines(files, pattern)


def test_what_ripgrep_prints_is_read_the_same_in_pieces_of_any_size():
    printed = (
        b"./a\0001:0:one\r\n./a\0002-5-two\n./bin\0001:0:x\n"
        b'./bin: WARNING: stopped searching binary file after match (found "\\0" byte around offset 3)\n'
        b"./b\nc\0007:90:caf\xe9\n./last\0001:0:x\n"
        b'./last: WARNING: stopped searching binary file after match (found "\\0" byte around offset 9)\n'
    )
    expected = [
        (b"./a", [FoundLine(1, 0, b"one", matched=True), FoundLine(2, 5, b"two", matched=False)]),
        (b"./b\nc", [FoundLine(7, 90, b"caf\xe9", matched=True)]),
    ]
    for size in range(1, len(printed) + 1):
        reader = MatchReader()
        found = [each for at in range(0, len(printed), size) for each in reader.feed(printed[at : at + size])]
        assert [*found, *reader.finish()] == expected, size


@pytest.mark.parametrize(
    "query",
    [
        GrepQuery("needle", "."),
        GrepQuery("needle", ".", limit=3, offset=4, context=1),
        GrepQuery("needle", ".", files_only=True),
        GrepQuery("needle", ".", secrets=Secrecy.OPEN),
        GrepQuery("needle|x", ".", limit=2),
        GrepQuery("nothing", ".", secrets=Secrecy.OPEN),
        GrepQuery("needle", "b", glob="*.py"),
    ],
)
async def test_several_threads_find_what_one_finds_in_order(
    roots: Roots, project: Path, monkeypatch: pytest.MonkeyPatch, query: GrepQuery
):
    for folder in ("a", "a-b", "b", "b/c", "Z"):
        (project / folder).mkdir()
        for name in ("é.py", "z.py", "k.pem", "x\ny.py"):
            (project / folder / name).write_text("x\nneedle\nx\n" * 3)
        (project / folder / "blob").write_bytes(b"needle\n" + b"\0")
        (project / folder / "large.py").write_text("needle\n" * 100)
    files = LocalFileSystem(roots, read_limit=100)
    threads = await files.grep(query)
    monkeypatch.setattr("acp_agent.workspace.search._MOST_UNORDERED", -1)
    assert threads == await files.grep(query)
    assert threads.too_large


async def test_the_files_are_listed_once_if_none_is_too_large(
    files: LocalFileSystem, project: Path, monkeypatch: pytest.MonkeyPatch
):
    listings = list[Sequence[str]]()
    listing = Ripgrep.listing

    async def noted(self: Ripgrep, arguments: Sequence[str], take: Callable[[bytes], Awaitable[None]]) -> bool:
        listings.append(arguments)
        return await listing(self, arguments, take)

    monkeypatch.setattr(Ripgrep, "listing", noted)
    for name in ("a", "b", "blob", "empty"):
        (project / name).write_bytes({"blob": b"needle\n\0", "empty": b""}.get(name, b"needle\n"))
    assert await lines(files, "needle") == [(1, "needle"), (1, "needle")]
    assert len(listings) == 1


def in_pieces(names: Sequence[str], size: int) -> list[bytes]:
    return ["".join(f"{name}\0" for name in names[at : at + size]).encode() for at in range(0, len(names), size)]


async def missing(every: Sequence[bytes], some: Sequence[bytes], *, whole: bool = True) -> MissingNames:
    """What is missing in some of these pieces, which two tasks hand over."""
    comparison = MissingNames()

    async def hand_over(which: int, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            await comparison.take(which, piece)
        comparison.end(which, whole=whole)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hand_over, EVERY, every)
            tasks.start_soon(hand_over, SOME, some)
    return comparison


@given(st.lists(st.sampled_from(["a", "b", "ab", "b/a", "c"]), unique=True), st.data())
def test_what_one_list_of_files_lacks_is_found_in_any_order(every: list[str], data: st.DataObject):
    some = data.draw(st.lists(st.sampled_from(every or ["z"]), unique=True))
    sizes = st.integers(1, 5)
    for few in (some, [name for name in every if name in some], [*some, "new"]):
        lists = [in_pieces(names, data.draw(sizes)) for names in (every, few)]
        expected = {name.encode() for name in every if name not in few}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("acp_agent.workspace.search._MOST_AHEAD", data.draw(sizes))
            assert anyio.run(missing, lists[0], lists[1]).names == expected


async def test_lists_of_any_length_are_compared_with_few_of_their_names_in_memory(monkeypatch: pytest.MonkeyPatch):
    names = [f"./folder{number // 50}/file{number}" for number in range(20_000)]
    held = list[int]()
    take = MissingNames.take

    async def noted(self: MissingNames, which: int, names: bytes) -> None:
        await take(self, which, names)
        held.append(sum(map(len, self.only)))

    monkeypatch.setattr(MissingNames, "take", noted)
    monkeypatch.setattr("acp_agent.workspace.search._MOST_AHEAD", 100)
    lacking = await missing(in_pieces(names, 7), in_pieces([*names[:600], *names[610:]], 300))
    assert lacking.names == {name.encode() for name in names[600:610]}
    assert max(held) < 500


async def test_lists_that_are_not_whole_lack_nothing():
    assert (await missing(in_pieces(["a", "b"], 1), in_pieces(["a"], 1), whole=False)).names == set()


async def test_the_names_of_a_large_tree_are_not_held(files: LocalFileSystem, project: Path):
    (project / "f").write_text("needle\n")
    for number in range(8000):
        (project / f"{number:0>200}").touch()
    await lines(files, "needle")  # what any search loads
    tracemalloc.start()
    try:
        assert await lines(files, "needle") == [(1, "needle")]
        assert tracemalloc.get_traced_memory()[1] < 600_000  # a third of the names
    finally:
        tracemalloc.stop()
