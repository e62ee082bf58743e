"""Records to write, and files read back as the schema and the verifier see them."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from acp_agent.core.types import Json
from acp_agent.store.audit import AuditLog
from acp_agent.store.audit_read import AuditReport, verify
from acp_agent.store.audit_record import Success, ToolRecord, audit_schema


@cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(audit_schema())


def call(name: str = "bash", /, **arguments: Json) -> ToolRecord:
    """The record of a call that went well."""
    return ToolRecord(tool=name, call=arguments, result=Success(), correlation_id="c-1", duration_ms=1.5)


class Warnings(list[str]):
    """What a log complained about."""

    def __call__(self, line: str) -> None:
        self.append(line)


def log_at(path: Path, **options: Any) -> AuditLog:
    """A log as a new process has one. What it warns of ends the test."""

    def unexpected(line: str) -> None:
        raise AssertionError(line)

    return AuditLog(str(path), unexpected, **options)


def read(path: Path) -> list[Mapping[str, Any]]:
    """Every record of a file without torn lines; all of them are as the schema says."""
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    for record in records:
        validator().validate(record)
    return records


def verified(path: Path) -> AuditReport:
    """The judgement of one file."""
    return next(verify(str(path)))


def whole(path: Path) -> list[str]:
    """The notes on a file with nothing wrong, and on those it continues."""
    reports = list(verify(str(path)))
    assert [report.fault for report in reports if report.fault] == []
    return [note.text for report in reports for note in report.notes]
