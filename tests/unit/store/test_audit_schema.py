"""The schema of a line: as committed, and exact."""

import json
from pathlib import Path

import jsonschema
import pytest

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.services import BlockReason
from acp_agent.core.types import ApprovedBy
from acp_agent.store.audit import BEGINNING, seal
from acp_agent.store.audit_record import (
    Blocked,
    ContinuesRecord,
    EgressRecord,
    Failed,
    LostRecord,
    TimedOut,
    ToolRecord,
    TornRecord,
    audit_schema,
    members,
)
from tests.unit.store.audit_files import call, validator

COMMITTED = Path(__file__).parents[3] / "schemas" / "audit.schema.json"
EGRESS = EgressRecord(
    tool="fetch",
    correlation_id="c",
    url="https://example.com/",
    host="example.com",
    hop=0,
    duration_ms=1,
    response_bytes=0,
    blocked=True,
    block_reason=BlockReason.SSRF,
)


def on_disk(record: object) -> dict[str, object]:
    line, _ = seal(members(record), BEGINNING, "2025-11-21T13:31:02.123Z")
    return json.loads(line)


def with_result(result: object, **more: object) -> ToolRecord:
    return ToolRecord(tool="bash", call={}, result=result, correlation_id="c", duration_ms=0.1, **more)


def test_the_committed_schema_is_what_the_records_say():
    text = json.dumps(audit_schema(), indent=2, ensure_ascii=False) + "\n"
    assert COMMITTED.read_text() == text, "run `acp-agent schema audit > schemas/audit.schema.json`"


def test_the_schema_is_a_schema_and_says_what_each_member_is():
    jsonschema.Draft202012Validator.check_schema(audit_schema())
    for definition in audit_schema()["$defs"].values():
        for name, member in definition.get("properties", {}).items():
            assert "const" in member or member["description"], name


@pytest.mark.parametrize(
    "record",
    [
        call(),
        with_result(
            Blocked("no"), gate="blocklist", policy_match="rm", error_category=ToolErrorCategory.POLICY_BLOCKED
        ),
        with_result(Failed("no"), exit_code=126, truncated=False, signal="SIGKILL", approved_by=ApprovedBy.USER),
        with_result(TimedOut(), exit_code=124, truncated=True),
        EGRESS,
        ContinuesRecord(file="audit-1.jsonl"),
        TornRecord(bytes=1, sha256="0" * 64),
        LostRecord(count=1, error="full"),
    ],
    ids=lambda record: f"{record.kind}",
)
def test_every_kind_of_record_fits(record):
    validator().validate(on_disk(record))


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"kind": "other"},
        {"exit_code": "0"},
        {"result": {"type": "success", "output": "x"}},
        {"result": {"type": "blocked"}},
        {"result": {"reason": "x"}},
        {"approved_by": None},
        {"seq": 0},
        {"prev": "x"},
    ],
    ids=str,
)
def test_nothing_else_does(change):
    assert validator().is_valid(on_disk(call()))
    assert not validator().is_valid(on_disk(call()) | change)


@pytest.mark.parametrize("name", ["ts", "tool", "call", "result", "exit_code", "correlation_id", "duration_ms", "hash"])
def test_nothing_may_be_missing(name):
    record = on_disk(call())
    del record[name]
    assert not validator().is_valid(record)
