"""Pins of MCP tools: kept privately, shared by processes, and never silently lost."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.store.decisions import McpPins, Pin

SERVER, OTHER = "a" * 64, "b" * 64
PIN, NEWER = Pin("1" * 64, "Says it."), Pin("2" * 64, "Sends it.")


class Shelf:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "data" / "mcp-pins.toml"
        self.warnings: list[str] = []
        self.pins = self.open()

    def open(self) -> McpPins:
        return McpPins(os.fspath(self.file), self.warnings.append)


def test_a_pin_is_found_by_server_and_tool_also_later_and_a_newer_one_takes_its_place(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    assert shelf.pins.find(SERVER, "t") is None
    shelf.pins.keep(SERVER, "srv", "t", PIN)
    shelf.pins.keep(SERVER, "srv", "u", NEWER)
    for pins in (shelf.pins, shelf.open()):
        assert (pins.find(SERVER, "t"), pins.find(SERVER, "u")) == (PIN, NEWER)
        assert pins.find(OTHER, "t") is None
    shelf.pins.keep(SERVER, "srv", "t", NEWER)
    assert shelf.open().find(SERVER, "t") == NEWER
    assert shelf.warnings == []


def test_what_one_process_keeps_another_that_runs_sees(tmp_path: Path) -> None:
    shelf, another = Shelf(tmp_path), Shelf(tmp_path)
    assert another.pins.find(SERVER, "t") is None
    shelf.pins.keep(SERVER, "srv", "t", PIN)
    assert another.pins.find(SERVER, "t") == PIN
    another.pins.keep(SERVER, "srv", "t", NEWER)
    assert shelf.pins.find(SERVER, "t") == NEWER


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    code = (
        "import sys\nfrom acp_agent.store.decisions import McpPins, Pin\n"
        "pins = McpPins(sys.argv[1], lambda line: sys.exit(line))\n"
        "for n in range(10): pins.keep(f'server-{sys.argv[2]}', 's', f'tool-{n}', Pin('0' * 64, 'x'))\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, os.fspath(shelf.file), str(n)]) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert all(shelf.pins.find(f"server-{n}", f"tool-{m}") for n in range(3) for m in range(10))


def test_file_and_folder_are_private(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.pins.keep(SERVER, "srv", "t", PIN)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (shelf.file, shelf.file.parent)]
    assert modes == [0o600, 0o700]


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=3000))
def test_whatever_the_words_they_come_back_as_they_were(name: str, tool: str, description: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shelf = Shelf(Path(folder))
        shelf.pins.keep(SERVER, name, tool, Pin("1" * 64, description))
        kept = shelf.open().find(SERVER, tool)
        assert kept is not None
        assert kept.definition == "1" * 64
        assert kept.description == description[:2048]
        assert shelf.warnings == []


def test_a_file_nobody_can_read_is_told_once_makes_nothing_new_and_is_set_aside_by_the_next_yes(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.pins.keep(SERVER, "srv", "t", PIN)
    for text in ("x = [", "x = 1\n", f'["{SERVER}".tools.t]\ndescription = "no definition"\n'):
        shelf.file.write_text(text)
        fresh = shelf.open()
        assert fresh.find(SERVER, "t") is None
        assert fresh.find(SERVER, "t") is None
        assert "is not known" in fresh.trouble
    assert len(shelf.warnings) == 3
    assert shelf.pins.find(SERVER, "t") == PIN  # who knew it goes by that
    shelf.pins.keep(SERVER, "srv", "u", NEWER)
    assert shelf.pins.find(SERVER, "u") == NEWER
    assert shelf.pins.trouble == ""
    assert shelf.open().find(SERVER, "t") == PIN
    assert "set aside" in shelf.warnings[-1]


def test_what_cannot_be_written_holds_until_the_process_ends_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    shelf = Shelf(tmp_path)
    shelf.pins.keep(SERVER, "srv", "t", PIN)
    assert "end with the agent" in shelf.warnings[-1]
    assert shelf.pins.find(SERVER, "t") == PIN
