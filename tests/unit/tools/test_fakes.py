"""The fakes keep the promises of the ports they stand for."""

import anyio
import pytest

from acp_agent.core.backends import CommandRequest, Entry, EntryKind, FileSystem, GrepQuery, Terminal
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from tests.fakes.fake_terminal import FakeTerminal, Script
from tests.fakes.memory_files import MemoryFileSystem
from tests.rows import each_row

pytestmark = pytest.mark.anyio

FILES: FileSystem = MemoryFileSystem()  # the type checker's proof that the shapes agree
TERMINAL: Terminal = FakeTerminal()


async def test_links_are_followed_as_a_kernel_follows_them():
    files = MemoryFileSystem({"real/deep/a": "x", "a": "y"})
    files.link("link", "real/deep")
    files.link("absolute", "/project/real")

    assert files.resolve("link/../deep/a", Access.READ) == "/project/real/deep/a"
    assert await files.read_text("absolute/deep/a") == "x"


@each_row("path", ["..", "../x", "/etc/passwd", "out/x", "loop", "/projects/x"])
async def test_nothing_outside_the_root_resolves(path: str):
    files = MemoryFileSystem()
    files.link("out", "/etc")
    files.link("loop", "loop")

    with pytest.raises(Refused):
        files.resolve(path, Access.READ)


async def test_a_write_through_a_link_changes_its_target():
    files = MemoryFileSystem({"real": "old"})
    files.link("link", "real")

    await files.write_text("link", "new", expected="old")

    assert files.text("real") == "new"
    assert files.writes == [("/project/real", "new")]


async def test_a_file_is_no_folder_and_a_folder_no_file():
    files = MemoryFileSystem({"file": "", "folder/x": ""})

    for path in ("file/x", "folder"):
        with pytest.raises(ToolError):
            await files.write_text(path, "", expected=None)
    with pytest.raises(ToolError):
        await files.list_directory("file")


async def test_entries_are_sorted_and_described_by_lstat():
    files = MemoryFileSystem({"b": "xyz", "a/x": ""})
    files.link("c", "b")

    assert await files.list_directory(".") == (
        Entry("a", EntryKind.DIRECTORY),
        Entry("b", EntryKind.FILE),
        Entry("c", EntryKind.SYMLINK),
    )


async def test_a_search_below_a_folder_leaves_ignored_names_out():
    files = MemoryFileSystem({".gitignore": "*.log\n", "src/a.py": "x", "src/b.log": "x", ".hidden/a.py": "x"})

    assert (await files.find("src", "*", 10)).paths == ("/project/src/a.py",)
    assert [match.path for match in (await files.grep(GrepQuery("x", "."))).matches] == ["/project/src/a.py"]


async def test_removing_takes_a_file_away():
    files = MemoryFileSystem({"a": ""})

    files.remove("a")

    assert not files.exists("a")


async def test_an_unknown_command_is_not_found():
    command = await FakeTerminal().start(CommandRequest("nope", "/project"))
    output: list[str] = []

    async def collect(text: str) -> None:
        output.append(text)

    assert (await command.wait(collect)).exit_code == 127
    assert output == ["bash: line 1: nope: command not found\n"]


async def test_a_hanging_command_ends_only_by_cancellation():
    terminal = FakeTerminal({"sleep": Script(hangs=True)})
    command = await terminal.start(CommandRequest("sleep", "/project"))

    async def ignore(text: str) -> None:
        assert not text

    with anyio.move_on_after(0.01) as scope:
        await command.wait(ignore)

    assert scope.cancelled_caught
    assert command.killed
