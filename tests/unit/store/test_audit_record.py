"""What of a call is kept in its record: no secret, no more than fits, and as the schema says."""

import json
import math
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.services import BlockReason
from acp_agent.core.types import ApprovedBy
from acp_agent.store.audit import _SHORT, BEGINNING, MAX_LINE, _shortened, seal
from acp_agent.store.audit_record import (
    LONGEST,
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
    recordable,
    redacted,
    without,
)
from tests.rows import each_row
from tests.unit.store.audit_files import call, validator

SECRET = "fake-secret-0123456789"
MASK = without([SECRET])

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.integers(2**200, 2**400) | st.just(SECRET)
)
NAMES = st.text(max_size=5) | st.just(SECRET)
TREES = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
    ),
    max_size=4,
)


@given(arguments=TREES)
def test_whatever_a_model_sends_gives_a_line_without_its_secrets(arguments):
    kept = recordable(arguments, MASK)
    text = json.dumps(kept, allow_nan=False)
    assert SECRET not in text
    assert len(seal({"call": kept}, BEGINNING, "t")[0]) <= MAX_LINE


def test_ordinary_arguments_stay_as_they_are():
    arguments = {"command": "git status", "timeout": 3, "flags": ["a", {"b": None, "c": 1.5}], "all": True}
    assert recordable(arguments, MASK) == arguments


@given(before=st.integers(0, 3 * LONGEST), times=st.integers(1, 3000))
def test_no_cut_leaves_half_a_secret(before, times):
    text = redacted("x" * before + SECRET * times, MASK)
    assert SECRET[:8] not in text.removesuffix("]").partition(" [cut: ")[0]
    assert len(text) < LONGEST + 60


def test_a_long_text_says_how_long_it_was():
    text = redacted("x" * 1_000_000, MASK)
    assert text == f"{'x' * LONGEST} [cut: 1000000 characters in all]"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**6000, -(10**6000)], ids="abcde")
def test_numbers_that_json_has_no_word_for_become_texts(value):
    kept = recordable({"n": value}, MASK)["n"]
    assert isinstance(kept, str)
    assert len(kept) < 50


def test_a_number_is_kept_up_to_256_bits():
    assert recordable({"a": 2**256 - 1, "b": 2**256}, MASK) == {"a": 2**256 - 1, "b": "[a number of 257 bits]"}


def test_a_text_that_just_fits_is_not_shortened():
    assert _shortened({"a": ["x" * _SHORT, "x" * (_SHORT + 1)]}) == {"a": ["x" * _SHORT, f"{'x' * _SHORT} [cut]"]}


def test_what_is_too_much_is_counted():
    wide = recordable({"list": list(range(1000)), "more": 1}, MASK)
    assert wide["list"][-1] == "[left out: 745 more]"
    assert wide["[left out]"] == "1 more"
    deep: object = "bottom"
    for _ in range(100):
        deep = [deep]
    assert "[left out: too deep]" in json.dumps(recordable({"deep": deep}, MASK))


def test_names_that_become_alike_are_kept_apart():
    kept = recordable({"a" * 200: 1, "a" * 200 + "b": 2, SECRET: 3}, MASK)
    assert list(kept.values()) == [1, 2, 3]


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


@each_row("name", ["ts", "tool", "call", "result", "exit_code", "correlation_id", "duration_ms", "hash"])
def test_nothing_may_be_missing(name):
    record = on_disk(call())
    del record[name]
    assert not validator().is_valid(record)
