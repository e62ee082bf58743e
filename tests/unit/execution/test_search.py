import time
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.backends import GrepQuery
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.execution.local_files import LocalFileSystem
from acp_agent.execution.roots import Roots

pytestmark = pytest.mark.anyio


async def lines(files: LocalFileSystem, pattern: str, path: str = ".") -> list[tuple[int, str]]:
    return [(match.line, match.text) for match in (await files.grep(GrepQuery(pattern, path))).matches]


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
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


@settings(max_examples=50, deadline=None)
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
            files = LocalFileSystem(roots, ripgrep=None)
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


async def test_large_files_are_passed_over_and_named_ones_are_an_error(roots: Roots, project: Path):
    files = LocalFileSystem(roots, read_limit=100, ripgrep=None)
    (project / "large").write_text("needle\n" * 100)
    (project / "small").write_text("needle\n")
    assert await lines(files, "needle") == [(1, "needle")]
    with pytest.raises(ToolError, match="large: 700 bytes"):
        await lines(files, "needle", "large")


async def test_a_named_binary_file_is_an_error_and_latin_1_is_searched(files: LocalFileSystem, project: Path):
    (project / "blob").write_bytes(b"needle\0")
    (project / "latin").write_bytes(b"caf\xe9 needle\n")
    with pytest.raises(ToolError, match="blob is a binary file"):
        await lines(files, "needle", "blob")
    assert await lines(files, "needle") == [(1, "caf\ufffd needle")]


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
        files = LocalFileSystem(roots, ripgrep=None)
        assert await lines(files, "needle") == [(1, "needle 2")]
        with pytest.raises(Refused):
            await lines(files, "needle", "a.key")


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
