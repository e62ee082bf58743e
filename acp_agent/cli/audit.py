"""`acp-agent audit tail|show|verify`: print the audit file for the user, and check that it is unchanged."""

import argparse
import json
import os
import time
from collections.abc import Iterator
from functools import partial

from acp_agent.cli.agent_process import text_at
from acp_agent.cli.config import loaded_for, warn
from acp_agent.config.settings import audit_file
from acp_agent.core.errors import AgentError
from acp_agent.core.types import Json, JsonObject
from acp_agent.store.audit import BrokenLine, unseal
from acp_agent.store.audit_read import AuditFinding, AuditReport, records, tail, verify
from acp_agent.text import title, visible

_POLL = 0.25  # seconds between two reads of a file that is followed
_SHORTEST_ID = 8  # the fewest characters of a call's id that the user may give


def audit(args: argparse.Namespace) -> int:
    """Do what `args.action` says. Return 1 if a record is not found or the file is broken. Raises AgentError."""
    if args.file is None:
        path = audit_file(loaded_for(args).settings.audit.file, os.environ)
    else:
        path = os.path.abspath(os.path.expanduser(args.file))
    try:
        match args.action:
            case "tail":
                wait = partial(time.sleep, _POLL)  # the standard library cannot wait for a file to grow
                for line in tail(path, args.lines, wait if args.follow else None):
                    print(summary(line), flush=args.follow)
                return 0
            case "show":
                return _show(path, args.record)
            case _:
                reports = list[bool]()
                for report in verify(path):
                    print("\n".join(_report_lines(report)))
                    reports.append(report.fault is None)
                return 0 if all(reports) else 1
    except BrokenPipeError:  # the reader of stdout is gone
        raise
    except FileNotFoundError:
        raise AgentError(f"{visible(path)}: there is no audit file; the first tool call begins it") from None
    except OSError as error:
        raise AgentError(f"{visible(path)}: {error.strerror or error}") from error


# ------------------------------------------------------------------------------------------- tail


def summary(line: bytes) -> str:
    """Return a record as one line: its number, time, verdict, tool, milliseconds, and what the call was about."""
    try:
        record = unseal(line).record
    except BrokenLine as broken:
        return f"{'?':>6}  {broken}: {len(line)} bytes"
    took = record.get("duration_ms")
    when = text_at(record, "ts")[:19].replace("T", " ")
    return " ".join(
        (
            f"{record.get('seq'):>6}  {title(when):19} ",
            f"{_verdict(record):10}",
            f"{title(text_at(record, 'tool')):16}",
            f"{took:>9} ms " if isinstance(took, int | float) else " " * 13,
            _about(record),
        )
    ).rstrip()


def _verdict(record: JsonObject) -> str:
    kind, code, status = text_at(record, "kind"), record.get("exit_code"), record.get("status")
    if kind != "tool":
        blocked = "blocked" if record.get("blocked") is True else ""
        return blocked or (f"GET {status}" if isinstance(status, int) else text_at(record, "method") or title(kind))
    match text_at(record, "result", "type"):
        case "success":
            return f"exit {code}" if isinstance(code, int) and code else "ran"
        case "error":
            return "cancelled" if record.get("error_category") == "cancelled" else "failed"
        case "timeout":
            return "timed out"
        case "rollback":
            return "taken back"
        case other:
            return title(other)


def _about(record: JsonObject) -> str:
    """Return what a record is about, and the reason if a call failed or did not run."""
    match record.get("kind"):
        case "tool":
            call = record.get("call")
            wanted = next(filter(None, (text_at(call, name) for name in ("command", "path", "url", "pattern"))), "")
            result = record.get("result")
            reason = text_at(result, "reason") or text_at(result, "message")
            return "  ".join(filter(None, (title(wanted), reason and f"({title(reason)})")))
        case "egress":
            reason = text_at(record, "block_reason")
            return title(text_at(record, "url")) + (f"  ({title(reason)})" if reason else "")
        case "continues":
            return title(f"the file before this one is {text_at(record, 'file')}")
        case "torn":
            return f"the line above, {record.get('bytes')} bytes, was not finished"
        case "lost":
            return title(f"{record.get('count')} records could not be written: {text_at(record, 'error')}")
        case _:
            return ""


# ------------------------------------------------------------------------------------------- show


def _show(path: str, wanted: str) -> int:
    """Print the record of this number, or all records of the call whose id is or starts with `wanted`."""
    found = False
    for sealed in records(path):
        name = text_at(sealed.record, "correlation_id")
        if str(sealed.link.seq) == wanted or (name.startswith(wanted) and len(wanted) >= min(_SHORTEST_ID, len(name))):
            print(pretty(sealed.record))
            found = True
    if not found:
        warn(f"{visible(path)}: there is no record {visible(wanted)!r}")
    return 0 if found else 1


def pretty(value: Json) -> str:
    """Return JSON on several lines, with escapes for characters that a terminal interprets or hides."""
    return "\n".join(visible(line) for line in json.dumps(value, indent=2, ensure_ascii=False).split("\n"))


# ----------------------------------------------------------------------------------------- verify


def _report_lines(report: AuditReport) -> Iterator[str]:
    file = visible(report.file)
    for note in report.notes:
        yield f"{_place(file, note)}: note: {visible(note.text)}"
    if report.fault is not None:
        yield f"{_place(file, report.fault)}: BROKEN: {visible(report.fault.text)}"
        if report.records:
            yield f"{file}: complete and unchanged before that: {_counted(report)}"
    elif report.records or not report.notes:
        yield f"{file}: complete and unchanged: {_counted(report)}"


def _place(file: str, finding: AuditFinding) -> str:
    return f"{file}:{finding.line}" if finding.line else file


def _counted(report: AuditReport) -> str:
    numbers = f" ({report.first.seq + 1} to {report.last.seq})" if report.records else ""
    return f"{report.records} record{'' if report.records == 1 else 's'}{numbers}"
