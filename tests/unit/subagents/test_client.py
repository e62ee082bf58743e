"""The client of another agent: what it serves is what was judged."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from acp import RequestError

from acp_agent.core.backends import FileSystem
from acp_agent.core.events import ToolProgress
from acp_agent.core.types import Access, CallingAgent, ToolCall
from acp_agent.subagents.client import AgentClient, AgentMessages, ExternalDependencies, Patience
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.seen_files import SeenFiles
from tests.fakes.fake_toolset import FakeToolset

pytestmark = pytest.mark.anyio


async def nothing(_: object) -> None:
    """Show nothing."""


@asynccontextmanager
async def client(folder: Path, read: Callable[[SeenFiles, FileSystem, ToolCall], None]) -> AsyncGenerator[AgentClient]:
    """The client of an agent in a folder, where `read` is the tool of that name."""
    files, seen = LocalFileSystem(Roots(str(folder))), SeenFiles()

    def run(call: ToolCall) -> str:
        read(seen, files, call)
        return "read"

    async def its_files() -> FileSystem:
        return files

    messages = AgentMessages("card", nothing)
    messages.of_session("s")
    async with anyio.create_task_group() as tasks:
        caller, tools = CallingAgent("x-1", "x", "card"), FakeToolset({"read": run})
        needs = ExternalDependencies(str(folder), lambda: tools, its_files, seen.has, str)
        yield AgentClient(needs, messages, caller, "program", tasks, Patience(60))


def noted(seen: SeenFiles, files: FileSystem, call: ToolCall) -> None:
    """Read as the tool does: what is read is noted under the path that was opened."""
    path = files.resolve(str((call.arguments or {})["path"]), Access.READ)
    seen.note(path, Path(path).read_text())


async def test_a_link_that_is_swapped_after_the_judged_read_serves_nothing(tmp_path: Path):
    (tmp_path / "a.txt").write_text("harmless")
    (tmp_path / ".env").write_text("TOKEN=fake")

    def swap(seen: SeenFiles, files: FileSystem, call: ToolCall) -> None:
        noted(seen, files, call)
        (tmp_path / "a.txt").unlink()
        (tmp_path / "a.txt").symlink_to(".env")

    def swap_before(seen: SeenFiles, files: FileSystem, call: ToolCall) -> None:
        noted(seen, files, ToolCall("", "read", {"path": ".env"}))  # the session has seen it: the user said yes to that
        swap(seen, files, call)

    for race in (swap, swap_before):
        (tmp_path / "a.txt").unlink()
        (tmp_path / "a.txt").write_text("harmless")
        async with client(tmp_path, race) as served:
            with pytest.raises(RequestError, match="changed while it was read"):
                await served.read_text_file("s", str(tmp_path / "a.txt"))


async def test_a_link_is_read_where_it_leads_and_calls_name_files_from_the_folder(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "link").symlink_to("a.txt")
    named: list[object] = []

    def look(seen: SeenFiles, files: FileSystem, call: ToolCall) -> None:
        named.append((call.arguments or {})["path"])
        noted(seen, files, call)

    async with client(tmp_path, look) as served:
        assert await served.read_text_file("s", str(tmp_path / "link"), line=2) == {"content": "two\n"}
    assert named == ["a.txt"]


async def test_lines_are_counted_by_line_feeds_alone_as_the_tools_count_them(tmp_path: Path):
    (tmp_path / "a.c").write_text("one\f\ntwo\u2028 and\x85 more\nthree")
    async with client(tmp_path, noted) as served:
        file = str(tmp_path / "a.c")
        assert await served.read_text_file("s", file, line=2, limit=1) == {"content": "two\u2028 and\x85 more\n"}
        assert await served.read_text_file("s", file, line=3) == {"content": "three"}
        assert await served.read_text_file("s", file, line=4) == {"content": ""}


async def test_the_card_shows_titles_and_what_calls_print_while_they_go_on():
    shown: list[str] = []

    async def show(progress: ToolProgress) -> None:
        shown.append(progress.output)

    async def update(kind: str, **more: Any) -> None:
        await messages.update({"sessionId": "s", "update": {"sessionUpdate": kind, "toolCallId": "c", **more}})

    def text(printed: str) -> list[Any]:
        return [{"type": "content", "content": {"type": "text", "text": printed}}]

    messages = AgentMessages("card", show)
    messages.of_session("s")
    await update("tool_call_update", title="of no call")
    await update("tool_call", title="Terminal")
    await update("tool_call_update", title="Terminal", status="in_progress")
    await update("tool_call_update", title="make test")
    await update("tool_call_update", content=text("one\n"))
    await update("tool_call_update", content=text("one\ntwo\n"))
    await update("tool_call_update", status="completed", content=text("one\ntwo\nthree\n"))
    await update("tool_call_update", content=text("four"))
    assert shown == ["\n· Terminal\n", "\n· make test\n", "one\n", "two\n"]
    assert messages.report == ""
