"""Trusted folders and pins of MCP tools: private files, shared by processes, and worth nothing once damaged."""

import os
import stat
import subprocess
import sys
import tempfile
import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.store.decisions import McpPins, Pin, TrustedFolders
from acp_agent.store.private_file import MAX_BYTES

ONE, OTHER = "1" * 64, "2" * 64


class Shelf:
    """The store and what it complained about."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "data" / "trusted-folders.toml"
        self.warnings: list[str] = []
        self.store = TrustedFolders(os.fspath(self.file), self.warnings.append)

    def write(self, text: str | bytes) -> None:
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_without_a_file_nobody_said_anything(shelf):
    assert shelf.store.find("/p", ONE) is None
    assert not shelf.warnings
    assert not shelf.file.parent.exists()


def test_answers_are_kept_by_folder_and_content_for_every_process(shelf):
    shelf.store.remember("/p", ONE, trusted=True)
    shelf.store.remember("/p", OTHER, trusted=False)
    shelf.store.remember("/q", ONE, trusted=False)
    another = TrustedFolders(os.fspath(shelf.file), shelf.warnings.append)
    assert [another.find("/p", ONE), another.find("/p", OTHER), another.find("/q", ONE)] == [True, False, False]
    assert another.find("/p/child", ONE) is another.find("/", ONE) is another.find("/q", OTHER) is None
    assert not shelf.warnings


def test_a_later_answer_takes_the_place_of_an_earlier_one(shelf):
    shelf.store.remember("/p", ONE, trusted=True)
    shelf.store.remember("/p", ONE, trusted=False)
    assert shelf.store.find("/p", ONE) is False


def test_file_and_folder_are_private_whatever_the_umask(shelf):
    before = os.umask(0)
    try:
        shelf.store.remember("/p", ONE, trusted=True)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (shelf.file, shelf.file.parent)}
    assert modes == {"trusted-folders.toml": 0o600, "data": 0o700}


def test_a_reader_never_meets_half_a_file(shelf):
    shelf.store.remember("/p", ONE, trusted=True)
    with open(shelf.file, "rb") as opened:
        shelf.store.remember("/q", ONE, trusted=True)
        assert "/q" not in opened.read().decode()  # the old file, whole: the new one took its name
    assert sorted(path.name for path in shelf.file.parent.iterdir()) == [
        "trusted-folders.toml",
        "trusted-folders.toml.lock",
    ]


def test_writers_at_the_same_time_lose_nothing(shelf):
    def write(number: int) -> None:
        TrustedFolders(os.fspath(shelf.file), shelf.warnings.append).remember(f"/p{number}", ONE, trusted=True)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not shelf.warnings
    assert all(shelf.store.find(f"/p{number}", ONE) for number in range(8))


@pytest.mark.parametrize(
    "damage", ["[[", "= 1", b"\xff", "a = " + "[" * 5000, "x" * (MAX_BYTES + 1), '["/p"]\n["/p"]'], ids=range(6)
)
def test_a_damaged_file_trusts_nothing_and_is_set_aside_by_the_next_answer(shelf, damage):
    shelf.write(damage)
    assert shelf.store.find("/p", ONE) is None
    assert "no folder is trusted" in shelf.warnings.pop()
    shelf.store.remember("/q", ONE, trusted=True)
    assert shelf.store.find("/q", ONE) is True
    assert "set aside" in shelf.warnings.pop()
    kept = shelf.file.with_name("trusted-folders.toml.damaged-1")
    assert kept.read_bytes() == (damage if isinstance(damage, bytes) else damage.encode())


@pytest.mark.parametrize(
    "text",
    [
        'trusted = "trusted"',
        f'"/p" = "{ONE}"',
        f'["/p"]\n"{ONE}" = true',
        f'["/p"]\n"{ONE}" = "Trusted"',
        f'["/p"]\n"{ONE}" = "allow"',
        f'["/p"."{ONE}"]\ntrusted = "trusted"',
        f'[["/p"]]\n"{ONE}" = "trusted"',
        f'["/"]\n"{ONE}" = "trusted"',
    ],
)
def test_only_exactly_what_we_write_is_believed(shelf, text):
    shelf.write(text)
    assert shelf.store.find("/p", ONE) is None
    assert not shelf.warnings


def test_a_link_in_the_place_of_the_file_is_not_followed(shelf, tmp_path):
    shelf.write("")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(f'["/p"]\n"{ONE}" = "trusted"')
    shelf.file.unlink()
    shelf.file.symlink_to(elsewhere)
    assert shelf.store.find("/p", ONE) is None
    shelf.store.remember("/p", ONE, trusted=True)
    assert shelf.store.find("/p", ONE) is None
    assert len(shelf.warnings) == 3
    assert "could not be stored" in shelf.warnings[1]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_something_else_in_the_place_of_the_file_trusts_nothing_and_nobody_waits(shelf, make):
    shelf.file.parent.mkdir()
    make(shelf.file)
    assert shelf.store.find("/p", ONE) is None
    assert "not a regular file" in shelf.warnings[0]


def test_a_file_that_has_grown_too_large_gets_nothing_added_and_is_still_good(shelf):
    line = "\n".join(f'"{number:064}" = "trusted"' for number in range(MAX_BYTES // 80))
    shelf.write(f'["/p"]\n{line}\n')
    before = shelf.file.read_bytes()
    shelf.store.remember("/" + "x" * 300_000, ONE, trusted=True)
    assert "would be larger" in shelf.warnings[0]
    assert shelf.file.read_bytes() == before
    assert shelf.store.find("/p", f"{0:064}") is True


def test_a_folder_whose_name_is_no_text_is_never_kept(shelf):
    shelf.store.remember("/p\udcff", ONE, trusted=True)
    assert "not text" in shelf.warnings[0]
    assert not shelf.file.exists()
    assert shelf.store.find("/p\udcff", ONE) is shelf.store.find("/p?", ONE) is None


folders = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)


@given(answers=st.dictionaries(folders, st.booleans(), min_size=1, max_size=4))
def test_every_name_comes_back_as_it_was(tmp_path_factory, answers):
    shelf = Shelf(tmp_path_factory.mktemp("shelf"))
    for folder, trusted in answers.items():
        shelf.store.remember(folder, ONE, trusted=trusted)
    assert not shelf.warnings
    assert {folder: shelf.store.find(folder, ONE) for folder in answers} == answers
    assert set(tomllib.loads(shelf.file.read_text())) == set(answers)


SERVER, OTHER_SERVER = "a" * 64, "b" * 64
PIN, NEWER = Pin("1" * 64, "Says it."), Pin("2" * 64, "Sends it.")


class PinShelf:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "data" / "mcp-pins.toml"
        self.warnings: list[str] = []
        self.pins = self.open()

    def open(self) -> McpPins:
        return McpPins(os.fspath(self.file), self.warnings.append)


def test_a_pin_is_found_by_server_and_tool_also_later_and_a_newer_one_takes_its_place(tmp_path: Path) -> None:
    shelf = PinShelf(tmp_path)
    assert shelf.pins.find(SERVER, "t") is None
    shelf.pins.keep(SERVER, "srv", "t", PIN)
    shelf.pins.keep(SERVER, "srv", "u", NEWER)
    for pins in (shelf.pins, shelf.open()):
        assert (pins.find(SERVER, "t"), pins.find(SERVER, "u")) == (PIN, NEWER)
        assert pins.find(OTHER_SERVER, "t") is None
    shelf.pins.keep(SERVER, "srv", "t", NEWER)
    assert shelf.open().find(SERVER, "t") == NEWER
    assert shelf.warnings == []


def test_what_one_process_keeps_another_that_runs_sees(tmp_path: Path) -> None:
    shelf, another = PinShelf(tmp_path), PinShelf(tmp_path)
    assert another.pins.find(SERVER, "t") is None
    shelf.pins.keep(SERVER, "srv", "t", PIN)
    assert another.pins.find(SERVER, "t") == PIN
    another.pins.keep(SERVER, "srv", "t", NEWER)
    assert shelf.pins.find(SERVER, "t") == NEWER


def test_processes_that_write_lose_nothing(tmp_path: Path) -> None:
    shelf = PinShelf(tmp_path)
    code = (
        "import sys\nfrom acp_agent.store.decisions import McpPins, Pin\n"
        "pins = McpPins(sys.argv[1], lambda line: sys.exit(line))\n"
        "for n in range(10): pins.keep(f'server-{sys.argv[2]}', 's', f'tool-{n}', Pin('0' * 64, 'x'))\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, os.fspath(shelf.file), str(n)]) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert all(shelf.pins.find(f"server-{n}", f"tool-{m}") for n in range(3) for m in range(10))


def test_file_and_folder_are_private(tmp_path: Path) -> None:
    shelf = PinShelf(tmp_path)
    shelf.pins.keep(SERVER, "srv", "t", PIN)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (shelf.file, shelf.file.parent)]
    assert modes == [0o600, 0o700]


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=3000))
def test_whatever_the_words_they_come_back_as_they_were(name: str, tool: str, description: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shelf = PinShelf(Path(folder))
        shelf.pins.keep(SERVER, name, tool, Pin("1" * 64, description))
        kept = shelf.open().find(SERVER, tool)
        assert kept is not None
        assert kept.definition == "1" * 64
        assert kept.description == description[:2048]
        assert shelf.warnings == []


def test_a_file_nobody_can_read_is_told_once_makes_nothing_new_and_is_set_aside_by_the_next_yes(tmp_path: Path) -> None:
    shelf = PinShelf(tmp_path)
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
    shelf = PinShelf(tmp_path)
    shelf.pins.keep(SERVER, "srv", "t", PIN)
    assert "end with the agent" in shelf.warnings[-1]
    assert shelf.pins.find(SERVER, "t") == PIN
