"""One contract for every tool: the same calls, the same answers, whatever the editor offers.

A real agent is driven over pipes by an editor that offers everything, files only, reading only, terminals only or
nothing. What ACP has no method for (delete, move, list, search ...) is done by the local twin, under the same
sandbox and the same questions.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from acp_agent.tools.registry import default_tools
from tests.fakes.editor import EVERYTHING, FILES_ONLY, NOTHING, READ_ONLY, TERMINAL_ONLY, editing
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

CAPABILITIES = {
    "everything": EVERYTHING,
    "files": FILES_ONLY,
    "reading": READ_ONLY,
    "terminals": TERMINAL_ONLY,
    "nothing": NOTHING,
}
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d4944415478da63f8cfc0f01f00050001ff56c72f0d0000000049454e44"
    "ae426082"
)
PLAIN = "def greet():\n    return 'hello'\n"


@dataclass(frozen=True)
class Call:
    """A call in the middle of the others: what it must show, and whether it asks first."""

    tool: str
    arguments: dict[str, Any]
    shows: str
    asks: bool = False
    failed: bool = False


CALLS = (
    Call("create_directory", {"path": "pkg/deep"}, "Created directory: pkg/deep", asks=True),
    Call("create_directory", {"path": "pkg"}, "Directory already exists: pkg"),
    Call("write", {"path": "pkg/a.py", "content": PLAIN}, f"Wrote {len(PLAIN)} bytes to pkg/a.py", asks=True),
    Call("read", {"path": "pkg/a.py"}, "   1\tdef greet():"),
    Call("read", {"path": "pkg/a.py", "offset": -1}, "   2\t    return 'hello'"),
    Call("read", {"path": "pixel.png"}, "image/png"),
    Call(
        "edit", {"path": "pkg/a.py", "old_string": "hello", "new_string": "goodbye"}, "Edited pkg/a.py at line 2", True
    ),
    Call("copy_path", {"source": "pkg", "destination": "twin"}, "Copied pkg to twin", asks=True),
    Call("move_path", {"source": "twin/a.py", "destination": "b.py"}, "Moved twin/a.py to b.py", asks=True),
    Call("list_directory", {"path": "."}, "[dir] pkg\n[dir] twin\n[file] b.py"),
    Call("find_path", {"path": ".", "pattern": "**/*.py"}, "b.py (34 B)\npkg/a.py (34 B)\n[2 results]"),
    Call("outline", {"path": "pkg/a.py"}, "    1  def greet()"),
    Call(
        "grep",
        {"pattern": "good(bye)"},
        "b.py\n2:    return 'goodbye'\npkg/a.py\n2:    return 'goodbye'\n[2 matches in 2 files]",
    ),
    Call("grep", {"pattern": "goodbye", "files_only": True, "glob": "a.*"}, "pkg/a.py"),
    Call("bash", {"command": "cat b.py"}, "goodbye"),
    Call("bash", {"command": "echo up; sleep 60", "background": True}, "", asks=True),
    Call("process", {"action": "list"}, "p1 running for "),
    Call("process", {"action": "stop", "id": "p1"}, "p1 ended by SIGTERM after "),
    Call("delete_path", {"path": "twin", "recursive": True}, "Deleted directory: twin (1 entry)", asks=True),
    Call("delete_path", {"path": "b.py"}, "Deleted file: b.py", asks=True),
    Call("diagnostics", {"path": "pkg"}, "Cargo.toml", failed=True),
    Call(
        "read_overflow",
        {"id": "overflow:00000000-0000-4000-8000-000000000000"},
        "overflow entry not found or expired",
        failed=True,
    ),
    Call("update_plan", {"entries": [{"content": "Use them all", "status": "in_progress"}]}, "0 of 1 done"),
    Call("memory_search", {"query": "tabs"}, 'No notes about "tabs"'),
    Call("memory_save", {"content": "This project uses tabs."}, "", asks=True),
    Call("memory_search", {"query": "which tabs"}, "This project uses tabs."),
    Call("fetch", {"url": "https://127.0.0.1/"}, "127.0.0.1 is no public address", failed=True),
    Call("web_scrape", {"url": "https://localhost/", "select": "a"}, "localhost", failed=True),
    # Outside, by every tool that takes a path.
    Call("read", {"path": "../outside"}, "outside the directories", failed=True),
    Call("write", {"path": "out/new", "content": "x"}, "outside the directories", failed=True),
    Call("edit", {"path": "../outside", "old_string": "s", "new_string": "t"}, "outside the directories", failed=True),
    Call("create_directory", {"path": "/made-by-a-test"}, "outside the directories", failed=True),
    Call("delete_path", {"path": "../outside"}, "outside the directories", failed=True),
    Call("delete_path", {"path": "."}, "", failed=True),
    Call("move_path", {"source": "../outside", "destination": "mine"}, "outside the directories", failed=True),
    Call("copy_path", {"source": "out", "destination": "mine"}, "outside the directories", failed=True),
    Call("list_directory", {"path": "out"}, "outside the directories", failed=True),
    Call("find_path", {"path": "..", "pattern": "*"}, "outside the directories", failed=True),
    Call("outline", {"path": ".."}, "outside the directories", failed=True),
    Call("grep", {"pattern": "secret", "path": "out"}, "outside the directories", failed=True),
)


@dataclass
class Project:
    """The folder the calls work on, beside a file and a folder they must not touch."""

    folder: Path
    outside: dict[str, str] = field(default_factory=lambda: {"outside": "secret\n", "elsewhere/file": "secret\n"})

    def make(self) -> None:
        work = self.folder / "work"
        work.mkdir()
        (work / "pixel.png").write_bytes(PIXEL)
        for name, text in self.outside.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text)
        (work / "out").symlink_to("../elsewhere")

    def check(self) -> None:
        assert sorted(
            path.relative_to(self.folder / "work").as_posix() for path in (self.folder / "work").rglob("*")
        ) == [
            "out",
            "pixel.png",
            "pkg",
            "pkg/a.py",
            "pkg/deep",
        ]
        assert (self.folder / "work" / "pkg" / "a.py").read_text() == PLAIN.replace("hello", "goodbye")
        for name, text in self.outside.items():
            assert (self.folder / name).read_text() == text
        assert sorted(path.name for path in (self.folder / "elsewhere").iterdir()) == ["file"]


def test_every_built_in_tool_is_called():
    assert {call.tool for call in CALLS} == {tool.name for tool in default_tools()}


@pytest.mark.parametrize("offered", CAPABILITIES)
async def test_every_tool_does_the_same_whatever_the_editor_offers(tmp_path, offered):
    project = Project(tmp_path)
    project.make()
    steps = [uses(*((call.tool, call.arguments) for call in CALLS)), says("done")]
    async with editing(tmp_path, steps, capabilities=CAPABILITIES[offered], short_waits=True) as editor:
        assert await editor.say(await editor.open(), "use them all") == "end_turn"
    project.check()
    asked = {question["toolCall"]["toolCallId"] for question in editor.requests("session/request_permission")}
    assert len(editor.calls) == len(CALLS)
    for expected in CALLS:
        # Reading calls run together and begin in any order.
        seen = next(
            call
            for call in editor.calls
            if call.first["rawInput"] == expected.arguments and call.first["name"] == expected.tool
        )
        shown = seen.text if expected.tool != "bash" or not seen.terminals else str(seen.final["rawOutput"])
        where = f"{expected.tool} {expected.arguments}: {shown}"
        assert (seen.status == "failed") is expected.failed, where
        assert expected.shows in shown, where
        assert (seen.id in asked) is expected.asks, where
