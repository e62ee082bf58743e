"""`acp-agent sessions list|show|export|undo|delete`, on a real database."""

import argparse
import contextlib
import itertools
import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from acp_agent.cli.commands import command_line
from acp_agent.cli.sessions import sessions, short_ids
from acp_agent.core.errors import AgentError
from acp_agent.core.events import TextDelta, TranscriptEvent, UserMessage
from acp_agent.core.messages import TextPart
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import Change, SessionRecord, SessionSnapshot, UsageTotals
from acp_agent.core.types import ToolKind, ToolResult
from acp_agent.store.db import Database
from acp_agent.store.session_json import read_session_file
from acp_agent.store.sessions import SessionStore
from tests.unit.cli.conftest import ROOT
from tests.unit.cli.stored_sessions import BEGUN, ID, call, events, picture, saved

DEFAULTS = {"cwd": None, "all": False, "number": 20, "json": False, "to": None, "html": None, "force": False}
OTHER = "7c9e0000-7425-40de-944b-e07fc1f90ae7"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder; the current one is another, and empty."""
    folder, here = tmp_path / "data", tmp_path / "here"
    here.mkdir()
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(here)
    return folder


@pytest.fixture
def one(data: Path) -> None:
    keep(data, saved(), events())


def keep(data: Path, session: SessionSnapshot, told: list[TranscriptEvent]) -> None:
    """Put a session into the database as the server does."""
    ticks = itertools.count(session.record.created_at / 1000)

    async def write() -> None:
        data.mkdir(mode=0o700, exist_ok=True)
        database = Database(str(data / "acp-agent.db"), print)
        try:
            store = SessionStore(database, lambda: next(ticks))
            await store.create(session.record, session.options, session.usage)
            await store.of(session.record.id).write(Change(events=told, history=session.history))
        finally:
            await database.aclose()

    anyio.run(write)


def small(session_id: str, **record: object) -> SessionSnapshot:
    values = {"cwd": "/projects/site", "created_at": BEGUN, "updated_at": BEGUN, "prompts": 1} | record
    return SessionSnapshot(SessionRecord(session_id, **values), SessionOptions(), UsageTotals(), saved().history)


def command(action: str, **given: object) -> int:
    options = DEFAULTS | ({"json": None} if action == "export" else {}) | given
    return sessions(argparse.Namespace(action=action, config=None, **options))


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert err == ""
    return out


# ------------------------------------------------------------------------------------------- list


def test_a_session_is_a_line_with_all_that_helps_to_find_it(data, capsys):
    keep(data, saved("Mend the total"), events())
    keep(data, small("8aaa0000", model="ollama:qwen3"), [UserMessage((TextPart("Hello\nthere \x1b[2J"),), "u")])
    assert command("list") == 0
    assert printed(capsys).splitlines() == [
        "7c9e6679  2025-11-21 07:44  Mend the total           /projects/shop  3 prompts  claude-sonnet-4-5  $0.101",
        "8aaa0000  2025-11-21 07:10  Hello ⏎ there \\u001b[2J  /projects/site  1 prompt   qwen3",
    ]


def test_a_command_says_nothing_of_what_a_session_is_about(data, capsys):
    command_first, words = UserMessage((TextPart("/status"),), "u"), UserMessage((TextPart("/tmp is full"),), "v")
    keep(data, small("7aaa0000"), [command_first])
    keep(data, small("8aaa0000"), [command_first, words])
    command("list")
    assert [line.partition("2025")[2][14:26].strip() for line in printed(capsys).splitlines()] == [
        "/tmp is full",
        "no title",
    ]


def test_a_list_may_be_of_one_folder_or_short_or_json(one, data, capsys):
    keep(data, small("8aaa0000"), [])
    assert sessions(command_line().parse_args(["sessions", "list", "--cwd", "/projects/site/"])) == 0
    assert printed(capsys).split()[0] == "8aaa0000"
    command("list", number=1)
    assert printed(capsys).split()[0] == "7c9e6679"
    command("list", json=True)
    first, second = map(json.loads, printed(capsys).splitlines())
    assert (first["id"], first["cost"], first["prompts"], first["additional"]) == (ID, 0.101, 3, [])
    assert (second["cwd"], second["cost"]) == ("/projects/site", None)


def test_a_list_reads_no_conversation(one, data, capsys):
    with contextlib.closing(sqlite3.connect(data / "acp-agent.db")) as database:
        database.executescript("DROP TABLE messages; DROP TABLE seen_files")
    assert command("list") == 0
    assert "$0.101" in printed(capsys)


def test_ids_are_as_long_as_it_takes_to_tell_them_apart():
    assert short_ids(["aaaaaaaaaa1", "aaaaaaaaaa2", "bbbbbbbbbbb", "c", "aaaaaaaa"]) == {
        "aaaaaaaaaa1": "aaaaaaaaaa1",
        "aaaaaaaaaa2": "aaaaaaaaaa2",
        "bbbbbbbbbbb": "bbbbbbbb",
        "c": "c",
        "aaaaaaaa": "aaaaaaaa",
    }


def test_where_there_is_no_database_there_are_no_sessions_and_none_is_made(data, capsys, monkeypatch):
    monkeypatch.delenv("ACP_AGENT_DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    assert command("list") == 0
    assert capsys.readouterr() == ("", "No session is stored\n")
    with pytest.raises(AgentError, match=r"^there is no session 7c9e; `acp-agent sessions list` names all$"):
        command("show", id="7c9e")
    assert not data.exists()


@pytest.mark.parametrize(("folder", "why"), [("missing", "No such file"), ("file", "Not a directory")])
@pytest.mark.parametrize(("action", "given"), [("list", {}), ("show", {"id": "7c9e"}), ("delete", {"ids": ["7c9e"]})])
def test_a_data_folder_that_was_named_and_is_none_is_told(data, monkeypatch, action, given, folder, why):
    """Nothing to list would mean that nothing was ever kept."""
    path = data.parent / folder
    (data.parent / "file").touch()
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", str(path))
    with pytest.raises(AgentError, match=f"ACP_AGENT_DATA_DIR: expected a folder for data: {path}: {why}"):
        command(action, **given)
    assert not data.exists()


def test_the_variable_is_not_blamed_for_an_unusable_default_folder(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.delenv("ACP_AGENT_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(AgentError, match=r"^data folder: expected a folder for data: .*Not a directory"):
        command("list")


# ------------------------------------------------------------------------------------------- show


def test_a_session_is_shown_by_the_beginning_of_its_id(one, capsys):
    assert command("show", id="7c9e") == 0
    assert "agent   I'll look at how the total is computed" in printed(capsys)
    command("show", id=ID, json=True)
    lines = [json.loads(line) for line in printed(capsys).splitlines()]
    assert lines[0]["kind"] == "user"
    assert lines[0]["seq"] == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_json_it_cannot_act_on(data, capsys, monkeypatch, terminal):
    evil = "a \x9b31m \u202e \x7f"
    keep(data, small("7aaa0000", title=evil), [UserMessage((TextPart(evil),), "u")])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    command("list", json=True)
    command("show", id="7aaa0000", json=True)
    listed, shown = printed(capsys).splitlines()
    assert json.loads(listed)["title"] == json.loads(shown)["body"]["parts"][0]["text"] == evil
    assert (listed + shown).isascii() is terminal
    assert (listed + shown).isprintable() is terminal


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ("7c9", "'7c9': expected a session's id, or at least its first 4 characters"),
        ("7c9f", "there is no session 7c9f; `acp-agent sessions list` names all"),
        ("7c9e", f"2 sessions begin with 7c9e: {ID}, {OTHER}"),
        ("x\x1b[2J\u202e", r"there is no session x\u001b[2J\u202e; `acp-agent sessions list` names all"),
    ],
)
def test_an_id_that_means_no_session_or_several_is_an_error(one, data, wanted, error):
    keep(data, small(OTHER), [])
    with pytest.raises(AgentError) as raised:
        command("export", id=wanted)
    assert str(raised.value) == error


def test_the_whole_id_of_one_session_may_be_the_beginning_of_another(one, data, capsys):
    keep(data, small("7c9e6679"), [TextDelta("short", "m")])
    command("show", id="7c9e6679")
    assert "agent   short" in printed(capsys)


# ----------------------------------------------------------------------------------------- export


def test_an_export_is_a_page_in_this_folder_that_only_its_owner_reads(one, capsys):
    assert command("export", id="7c9e") == 0
    assert printed(capsys) == "acp-agent-7c9e6679.html\n"
    (page,) = Path().iterdir()
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert page.read_text("utf-8").endswith("</html>\n")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["--html", "7c9e"], "acp-agent-7c9e6679.html"),
        (["7c9e", "--html"], "acp-agent-7c9e6679.html"),
        (["--force", "--html", "7c9e"], "acp-agent-7c9e6679.html"),
        (["--html", "mine.html", "7c9e"], "mine.html"),
        (["7c9e", "--html", "mine.html"], "mine.html"),
        (["--html", "7c9e", "-"], ""),
    ],
)
def test_html_may_be_said_without_a_files_name_on_either_side_of_the_id(one, capfd, arguments, file):
    assert sessions(command_line().parse_args(["sessions", "export", *arguments])) == 0
    assert [path.name for path in Path().iterdir()] == ([file] if file else [])
    assert capfd.readouterr().out.startswith(f"{file}\n" if file else "<!doctype")


def test_a_page_has_no_secrets_and_json_has_all(data, capfd):
    secret = "ghp_" + "aB3" * 12
    message = UserMessage((TextPart(f"push with {secret}"), picture()), "u")
    pieces = [TextDelta(f"with {secret[:9]}", "m"), TextDelta(f"{secret[9:]}, then", "m")]
    shell = call("bash", "push", ToolKind.EXECUTE, {"env": [{"TOKEN": secret}]}, ToolResult(secret), 1.0)
    keep(data, small(ID, title=f"Push with {secret}"), [message, *pieces, *shell])
    command("export", id=ID, to="-")
    page = capfd.readouterr().out
    assert secret not in page
    assert page.count("[REDACTED:") >= 6
    assert picture().data in page
    command("export", id=ID, json="-")
    assert capfd.readouterr().out.count(secret) == 5


def test_nothing_is_written_over_unless_forced(one, capsys):
    Path("mine.html").write_text("mine")
    with pytest.raises(AgentError, match=r"^mine\.html: the file exists already; --force overwrites it$"):
        command("export", id=ID, html="mine.html")
    assert Path("mine.html").read_text() == "mine"
    command("export", id=ID, html="mine.html", force=True)
    assert Path("mine.html").read_text("utf-8").startswith("<!doctype html>")
    Path("pipe").symlink_to(os.devnull)
    with pytest.raises(AgentError, match=r"^pipe: it is not a regular file$"):
        command("export", id=ID, html="pipe", force=True)
    assert sorted(path.name for path in Path().iterdir()) == ["mine.html", "pipe"], "and nothing half-written is left"
    with pytest.raises(AgentError, match=r"^nowhere/a\.html: No such file or directory$"):
        command("export", id=ID, html="nowhere/a.html")


def test_an_export_as_json_can_be_read_again(one, data):
    command("export", id=ID, json="session.json")
    session, told = read_session_file(json.loads(Path("session.json").read_text("utf-8")))
    assert session == saved(updated_at=session.record.updated_at)
    assert len(told) == len(events()) - 2


@pytest.mark.parametrize(
    ("given", "beginning"), [({"to": "-"}, "<!doctype"), ({"html": "-"}, "<!doctype"), ({"json": "-"}, "{")]
)
def test_an_export_may_go_to_standard_output(one, capfd, given, beginning):
    command("export", id=ID, **given)
    assert capfd.readouterr().out.startswith(beginning)
    assert list(Path().iterdir()) == []


def test_the_name_of_a_page_never_leads_elsewhere(data, capsys):
    keep(data, small("../../../../etc/x"), [])
    command("export", id="../../../../etc/x")
    assert printed(capsys) == "acp-agent-session.html\n"


# ----------------------------------------------------------------------------------------- delete


def test_deleted_is_deleted_and_what_is_unknown_deletes_nothing(one, data, capsys):
    keep(data, small(OTHER), [])
    with pytest.raises(AgentError, match=r"^there is no session ffff; `acp-agent sessions list` names all$"):
        command("delete", ids=["7c9e6", "ffff"], yes=True)
    assert command("delete", ids=["7c9e6", ID], yes=True) == 0
    assert printed(capsys) == f"deleted {ID}\n"
    command("list")
    assert printed(capsys).startswith("7c9e0000")


def test_nothing_is_deleted_unless_somebody_says_so(one, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 - closed below
    with (
        sys.stdin,
        pytest.raises(
            AgentError, match=r"^stdin is not a terminal, so nobody can be asked; use --yes to delete without asking$"
        ),
    ):
        command("delete", ids=[ID], yes=False)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\x04", 1)])
def test_at_a_terminal_the_user_is_asked(one, capsys, monkeypatch, answer, code):
    master, terminal = os.openpty()
    os.write(master, answer.encode())
    with os.fdopen(master, "wb"), open(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert command("delete", ids=[ID], yes=False) == code
    out = printed(capsys)
    assert f"{ID}  Mend the rounding of the total  /projects/shop\nDelete this session permanently? [y/N] " in out
    assert ("deleted" in out) == (code == 0)


@pytest.fixture
def holder(data: Path) -> Iterator[None]:
    """Another process that has the session open."""
    data.mkdir(exist_ok=True)
    code = (
        "import sys; from acp_agent.store.session_locks import SessionLocks; "
        "locks = SessionLocks(sys.argv[1]); assert locks.take(sys.argv[2]); print(flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", code, str(data / "sessions.lock"), ID]
    with subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield


def test_a_session_that_is_open_elsewhere_is_not_deleted(one, data, holder, capsys):
    keep(data, small(OTHER), [])
    assert command("delete", ids=[ID, OTHER], yes=True) == 1
    out, err = capsys.readouterr()
    assert out == f"deleted {OTHER}\n"
    assert err == f"acp-agent: session {ID} is open in another process; close it there first\n"
