"""`acp-agent audit tail|show|verify`."""

import argparse
import contextlib
import io
import json
from pathlib import Path

import pytest

from acp_agent.cli.audit import audit, pretty, summary
from acp_agent.core.errors import AgentError, ToolErrorCategory
from acp_agent.core.services import BlockReason
from acp_agent.store.audit import BEGINNING, seal
from acp_agent.store.audit_record import (
    Blocked,
    EgressRecord,
    Failed,
    LostRecord,
    RolledBack,
    Success,
    TimedOut,
    ToolRecord,
    members,
)
from tests.unit.store.audit_files import call, log_at

HOSTILE = "a\x1b[2K\u202eb\nc\x9b\u2028"
EGRESS = EgressRecord(
    tool="fetch",
    correlation_id="c",
    url="https://example.com/",
    host="example.com",
    hop=0,
    duration_ms=250,
    response_bytes=1,
    status=200,
)


def tool(result: object, **more: object) -> ToolRecord:
    options = {"tool": "bash", "call": {"command": "git log"}, "correlation_id": "c", "duration_ms": 12.34} | more
    return ToolRecord(result=result, **options)


def line(record: object) -> bytes:
    return seal(members(record), BEGINNING, "2025-11-21T13:31:02.123Z")[0][:-1]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (tool(Success(), exit_code=0), "ran        bash                 12.34 ms  git log"),
        (tool(Success(), exit_code=2), "exit 2     bash                 12.34 ms  git log"),
        (tool(Blocked("not now")), "blocked    bash                 12.34 ms  git log  (not now)"),
        (tool(TimedOut(), call={}), "timed out  bash                 12.34 ms"),
        (tool(RolledBack(1, 2), exit_code=2), "taken back bash                 12.34 ms  git log"),
        (tool(Failed("gone")), "failed     bash                 12.34 ms  git log  (gone)"),
        (tool(Failed("x"), error_category=ToolErrorCategory.CANCELLED), "cancelled  bash                 12.34 ms"),
        (EGRESS, "GET 200    fetch                  250 ms  https://example.com/"),
        (
            LostRecord(count=2, error="full"),
            "lost                                      2 records could not be written: full",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_record_is_one_line_that_says_what_became_of_a_call(record, words):
    assert summary(line(record)).startswith(f"     1  2025-11-21 13:31:02  {words}")


def test_a_request_that_was_not_made_says_why():
    refused = EgressRecord(
        tool="fetch",
        correlation_id="c",
        url="http://x",
        host="x",
        hop=1,
        duration_ms=0,
        response_bytes=0,
        blocked=True,
        block_reason=BlockReason.SCHEME,
    )
    assert "blocked    fetch" in summary(line(refused))
    assert summary(line(refused)).endswith("http://x  (scheme)")


def test_nothing_hostile_reaches_a_terminal():
    everywhere = tool(Blocked(HOSTILE), tool=HOSTILE, call={"command": HOSTILE, HOSTILE: [HOSTILE]})
    for text in (
        summary(line(everywhere)),
        summary(HOSTILE.encode()),
        summary(b"{}"),
        *pretty(members(everywhere)).split("\n"),
    ):
        assert text.isprintable()
    assert json.loads(pretty(members(everywhere))) == members(everywhere)
    forged, _ = seal({"kind": HOSTILE, "result": {"type": HOSTILE}, "status": HOSTILE}, BEGINNING, HOSTILE)
    assert summary(forged[:-1]).isprintable()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Four records, the first two in an older file."""
    path = tmp_path / "audit.jsonl"
    for number in range(2):
        log_at(path).append(call(command=f"echo {number}"))
    log_at(path, max_bytes=100).append(call("read", path="three"))
    return path


def run(action: str, file: Path | None, **more: object) -> int:
    given = {"lines": 20, "follow": False, "config": None, "file": None if file is None else str(file)}
    return audit(argparse.Namespace(action=action, **(given | more)))


def test_tail_prints_the_last_lines_and_marks_what_is_no_record(file, capsys):
    with file.open("ab") as out:
        out.write(b"what?\n")
    assert run("tail", file, lines=2) == 0
    read, broken = capsys.readouterr().out.splitlines()
    assert read.split()[3:] == ["ran", "read", "1.5", "ms", "three"]
    assert broken == "     ?  not a record: 5 bytes"


def test_show_finds_a_record_by_number_in_any_file_and_calls_by_id(file, capsys):
    assert run("show", file, record="1") == 0
    assert json.loads(capsys.readouterr().out)["call"] == {"command": "echo 0"}
    assert run("show", file, record="c-1") == 0
    assert capsys.readouterr().out.count('"correlation_id": "c-1"') == 3
    assert run("show", file, record="9\x1b") == 1
    assert capsys.readouterr().err.startswith(f"acp-agent: {file}: there is no record '9\\")


def test_verify_judges_every_file_and_says_where_it_is_broken(file, capsys):
    [older] = list(file.parent.glob("audit-*.jsonl"))
    assert run("verify", file) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: complete and unchanged: 2 records (3 to 4)",
        f"{older}: complete and unchanged: 2 records (1 to 2)",
    ]
    older.write_bytes(older.read_bytes().replace(b"echo 1", b"echo 9"))
    assert run("verify", file) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{older}:2: BROKEN: was changed: its hash does not fit",
        f"{older}: complete and unchanged before that: 1 record (1 to 1)",
    ]


def test_verify_notes_what_is_worth_knowing(file, capsys):
    (file.parent / "audit.jsonl.head").unlink()
    with file.open("ab") as out:
        out.write(b"half")
    assert run("verify", file) == 0
    notes = capsys.readouterr().out.splitlines()[:2]
    assert notes == [
        f"{file}:3: note: 4 bytes of a record that was not finished",
        f"{file}: note: without its head file, nobody can say whether lines are missing at the end",
    ]


@pytest.mark.parametrize("action", ["tail", "show", "verify"])
def test_a_file_that_is_not_there_or_no_file_is_told(tmp_path, action):
    with pytest.raises(AgentError, match="there is no audit file"):
        run(action, tmp_path / "none.jsonl", record="1")
    (tmp_path / "folder").mkdir()
    with pytest.raises(AgentError, match="directory"):
        run(action, tmp_path / "folder", record="1")


def test_a_reader_that_goes_away_is_no_trouble_with_the_file(file):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with contextlib.redirect_stdout(Gone()), pytest.raises(BrokenPipeError):
        run("tail", file)


# ----------------------------------------------------------------------------- as people run it


def test_the_file_is_the_configured_one(acp_agent, in_process, home):
    for name in ("a", "b"):
        log_at(home / f"{name}.jsonl").append(call(command=name))
    (home / "c.toml").write_text(f"[audit]\nfile = '{home}/a.jsonl'\n")
    assert acp_agent("audit", "tail", "--config", "c.toml").stdout.endswith("ms  a\n")
    assert in_process("audit", "tail", "--config", "c.toml", "--file", "b.jsonl").stdout.endswith("ms  b\n")
    done = in_process("audit", "verify", ACP_AGENT_DATA_DIR=str(home / "data"))
    assert (done.returncode, done.stderr) == (
        1,
        f"acp-agent: {home}/data/audit.jsonl: there is no audit file; the first tool call begins it\n",
    )


def test_a_project_has_no_say_in_the_audit(in_process, home):
    (home / ".acp-agent").mkdir()
    (home / ".acp-agent" / "config.toml").write_text("[audit]\nenabled = false\n")
    done = in_process("config", "show")
    assert "audit.enabled = true # default" in done.stdout
    assert "audit.enabled" in done.stderr


@pytest.mark.parametrize("words", [["tail", "-n", "0"], ["tail", "-n", "x"], ["show"], ["erase"], []])
def test_wrong_usage_is_one_line_and_exit_code_2(in_process, words):
    done = in_process("audit", *words)
    assert done.returncode == 2
    assert done.stderr.startswith("acp-agent: ")


def test_the_schema_is_printed_as_committed(in_process):
    committed = Path(__file__).parents[3] / "schemas" / "audit.schema.json"
    assert in_process("schema", "audit").stdout == committed.read_text()
