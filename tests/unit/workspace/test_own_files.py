"""What decides about asking must not be writable by what is asked about."""

import unicodedata
from pathlib import Path

import pytest

from acp_agent.core.errors import Refused
from acp_agent.core.types import Access
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.read_policy import OwnFiles
from acp_agent.workspace.roots import Roots
from tests.rows import each_row

pytestmark = pytest.mark.anyio


@each_row(
    "path",
    ["data/acp-permissions.toml", "data", "data/new/file", "config.toml", ".acp-agent/config.toml", "sub/.ACP-Agent/x"],
)
async def test_no_tool_writes_them_even_where_the_session_covers_them(tmp_path: Path, path: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "sub").mkdir()
    with Roots(str(tmp_path), policy=OwnFiles((str(tmp_path / "data"), str(tmp_path / "config.toml")))) as roots:
        with pytest.raises(Refused, match="belongs to the agent"):
            await LocalFileSystem(roots).write_text(path, "auto_approve = 'full-auto'", expected=None)
        await LocalFileSystem(roots).write_text("data.txt", "mine", expected=None)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data", "data.txt", "sub"]


async def test_reading_them_is_fine(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("x = 1")
    with Roots(str(tmp_path), policy=OwnFiles((str(tmp_path / "config.toml"),))) as roots:
        assert await LocalFileSystem(roots).read_text("config.toml") == "x = 1"


async def test_the_keys_among_them_are_not_read_either(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "keys.toml").write_text("key = 'obviously fake'")
    (tmp_path / "data" / "credentials.toml").symlink_to("../keys.toml")
    own = OwnFiles((str(tmp_path / "data"),), closed=(str(tmp_path / "data" / "credentials.toml"),))
    with Roots(str(tmp_path), policy=own) as roots:
        for path in ("data/credentials.toml", "keys.toml"):
            with pytest.raises(Refused, match="the agent's own keys"):
                await LocalFileSystem(roots).read_text(path)
    assert own(str(tmp_path / "data" / "Credentials.TOML"), Access.READ) is not None


CLOSED = ("a.db", "A.DB-wal", "a.db-shm", "a.db-journal", "a.db.lock", "keys.toml.damaged-3", ".keys.toml-x1")


@each_row("name", [*CLOSED, "twin", "link"])
async def test_a_file_whose_locks_or_keys_matter_is_opened_by_nobody_under_any_name(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for each in CLOSED:
        (data / each).write_text("needle")
    (data / "twin").hardlink_to(data / "a.db")
    (data / "link").symlink_to("a.db")
    (data / "plain.jsonl").write_text("needle")
    (data / "other").hardlink_to(data / "plain.jsonl")
    own = OwnFiles((str(data),), closed=(str(data / "a.db"), str(data / "keys.toml")))
    with Roots(str(tmp_path), policy=own) as roots:
        files = LocalFileSystem(roots)
        with pytest.raises(Refused, match="the agent's own keys or sessions"):
            await files.read_text(f"data/{name}")
        with pytest.raises(Refused, match="the agent's own keys or sessions"):
            await files.copy(f"data/{name}", "copy")
        assert not roots.allows(str(data / name).replace("link", "a.db"), Access.READ), "a search passes it over"
        assert await files.read_text("data/other") == "needle"


@pytest.mark.parametrize("access", [Access.WRITE, Access.MOVE, Access.DELETE])
def test_of_a_file_that_is_a_link_neither_it_nor_what_it_leads_to_is_touched(tmp_path: Path, access: Access) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles" / "agent.toml").write_text("")
    (tmp_path / "config.toml").symlink_to("dotfiles/agent.toml")
    with Roots(str(tmp_path), policy=OwnFiles((str(tmp_path / "config.toml"),))) as roots:
        for path in ("config.toml", "dotfiles/agent.toml"):
            with pytest.raises(Refused, match="belongs to the agent"):
                roots.resolve(path, access)
        assert roots.resolve("dotfiles/other.toml", access)


def test_twins_of_a_name_are_the_name() -> None:
    own = OwnFiles((f"/home/{unicodedata.normalize('NFC', 'zoé')}/config",))
    for twin in (unicodedata.normalize("NFD", "zoé"), "ZOÉ"):
        assert own(f"/home/{twin}/Config", Access.WRITE) is not None


def test_other_names_are_not_meant() -> None:
    own = OwnFiles(("/projects/u/data",))
    assert own("/projects/u/database", Access.WRITE) is None
    assert own("/projects/u/DATA/x", Access.WRITE) is not None
