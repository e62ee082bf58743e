"""The outermost wrapper: a record of every call before anybody sees what it gave."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Decision, Invocation
from acp_agent.core.services import BlockReason, Egress, WebCaller
from acp_agent.core.types import (
    Access,
    AgentSubject,
    ApprovedBy,
    CallOrigin,
    CommandSubject,
    McpSubject,
    PathSubject,
    Ruling,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
    UrlSubject,
)
from acp_agent.execution.audit import AuditExecutor, Auditor, Caller
from acp_agent.execution.runner import GatedExecutor
from acp_agent.gates.gate import CallFacts
from acp_agent.store.audit import AuditLog
from acp_agent.store.audit_record import without
from tests.unit.gates.chain import Chain, ScriptedApprover, call, command
from tests.unit.store.audit_files import Warnings, read, whole

pytestmark = pytest.mark.anyio

SECRET = "fake-secret-0123456789"
Run = Callable[[CallFacts], Awaitable[ToolResult]]


class Innermost:
    """Does what a test says."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def execute(self, facts: CallFacts) -> ToolResult:
        return await self._run(facts)


class Audited:
    """A chain of nothing but the audit and a tool, with the file they write."""

    def __init__(self, path: Path, caller: Caller | None = None) -> None:
        self.path = path
        self.warnings = Warnings()
        log = AuditLog(str(path), self.warnings)
        self.auditor = Auditor(
            log, caller or Caller("session-1", "/project", lambda _: "trusted", lambda _: ""), without([SECRET])
        )

    async def run(self, invocation: Invocation, result: ToolResult | Run) -> ToolResult:
        """The call through the chain; its tool gives `result` or does that."""

        async def given(_: CallFacts) -> ToolResult:
            assert isinstance(result, ToolResult)
            return result

        inner = Innermost(given if isinstance(result, ToolResult) else result)
        ticks = iter((10.0, 10.0123))
        return await AuditExecutor(inner, self.auditor, clock=lambda: next(ticks)).execute(CallFacts(invocation))

    @property
    def records(self) -> list[Any]:
        return read(self.path)

    @property
    def record(self) -> Any:
        [record] = self.records
        return record


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    return Audited(tmp_path / "audit.jsonl")


def failed(category: ToolErrorCategory, message: str = "no") -> ToolResult:
    return ToolResult.failed(ToolFailure(category, message))


def bash_result(code: int, **more: Any) -> ToolResult:
    return ToolResult("said", envelope={"output": "said", "exit_code": code, "signal": None, "truncated": False} | more)


# --------------------------------------------------------------------------------------- what it says


async def test_a_command_that_ran_is_told_whole_but_for_what_it_said(audited):
    await audited.run(command("git status"), bash_result(1))
    record = audited.record
    for name in ("seq", "ts", "prev", "hash"):
        del record[name]
    assert record == {
        "kind": "tool",
        "tool": "bash",
        "call": {"command": "git status"},
        "result": {"type": "success"},
        "correlation_id": "call-1",
        "duration_ms": 12.3,
        "exit_code": 1,
        "truncated": False,
        "trust": "trusted",
        "claim_source": "shell",
        "caller_id": "session-1",
        "resolved_cwd": "/project",
    }


async def test_a_signal_and_a_cut_are_told(audited):
    await audited.run(command("x"), bash_result(137, signal="SIGKILL", truncated=True))
    assert (audited.record["exit_code"], audited.record["signal"], audited.record["truncated"]) == (
        137,
        "SIGKILL",
        True,
    )


async def test_tools_without_an_exit_code_have_a_null_and_no_truncated(audited):
    await audited.run(call("read", PathSubject("a", Access.READ)), ToolResult("text"))
    assert audited.record["exit_code"] is None
    assert "truncated" not in audited.record


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ToolResult("fine"), {"type": "success"}),
        (failed(ToolErrorCategory.POLICY_BLOCKED), {"type": "blocked", "reason": "no"}),
        (failed(ToolErrorCategory.CONFIRMATION_REQUIRED), {"type": "blocked", "reason": "no"}),
        (
            ToolResult.refused("out", ToolErrorCategory.RATE_LIMITED, Ruling("quota")),
            {"type": "blocked", "reason": "out"},
        ),
        (failed(ToolErrorCategory.TIMEOUT), {"type": "timeout"}),
        (failed(ToolErrorCategory.PERMANENT_FAILURE), {"type": "error", "message": "no"}),
        (failed(ToolErrorCategory.CANCELLED), {"type": "error", "message": "no"}),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
async def test_every_way_to_end_has_its_word(audited, result, told):
    assert await audited.run(call("read"), result) is result
    assert audited.record["result"] == told
    category = result.failure and result.failure.category
    assert audited.record.get("error_category") == category


async def test_a_command_that_could_not_be_executed_ran_into_an_error_and_was_not_blocked(audited):
    envelope = bash_result(126).envelope
    result = ToolResult("", envelope=envelope, failure=ToolFailure(ToolErrorCategory.POLICY_BLOCKED, "exit 126"))
    await audited.run(command("./x"), result)
    assert audited.record["result"] == {"type": "error", "message": "exit 126"}


async def test_a_ruling_is_told_to_the_audit(audited):
    ran = ToolResult("ran", ruling=Ruling(rule="git *", approved_by=ApprovedBy.POLICY))
    await audited.run(command("git log"), ran)
    assert (audited.record["approved_by"], audited.record["policy_match"]) == ("policy", "git *")
    assert "gate" not in audited.record


async def test_what_a_real_gate_refuses_names_the_gate_and_its_rule(audited, tmp_path):
    chain = Chain(str(tmp_path), str(tmp_path / "grants.toml"), approver=ScriptedApprover(Decision.ALLOW_ONCE))
    gated = GatedExecutor(chain.gates, chain.recorder)
    result = await AuditExecutor(gated, audited.auditor).execute(chain.gates.facts(command("rm -rf /")))
    assert result.failure is not None
    record = audited.record
    assert record["result"] == {"type": "blocked", "reason": result.failure.message}
    assert (record["gate"], record["error_category"]) == ("blocklist", "policy_blocked")
    assert record["policy_match"]
    assert "approved_by" not in record


@pytest.mark.parametrize(
    ("tool", "subjects", "source"),
    [
        ("read", [PathSubject("a", Access.READ)], "file_system"),
        ("grep", [PathSubject("a", Access.READ)], "code_search"),
        ("fetch", [UrlSubject("https://example.com")], "web_scrape"),
        ("mcp_x_y", [McpSubject("x", "y")], "mcp"),
        ("mcp_x_y", [AgentSubject("x", "y")], "agent"),
        ("list_directory", [], None),
    ],
)
async def test_the_kind_of_source_follows_from_the_subjects(audited, tool, subjects, source):
    await audited.run(call(tool, *subjects), ToolResult("x"))
    assert audited.record.get("claim_source") == source
    assert audited.record.get("mcp_server_id") == ("x" if source == "mcp" else None)


@pytest.mark.parametrize(
    ("tool", "source"),
    [("lsp_definition", "code_search"), ("lsp_diagnostics", "diagnostics"), ("lsp_hover", "file_system")],
)
async def test_a_language_server_that_searches_or_complains_is_a_source_of_its_kind(audited, tool, source):
    asked = call("read", PathSubject("a", Access.READ))
    await audited.run(replace(asked, call=replace(asked.call, name=tool)), ToolResult("x"))
    assert audited.record.get("claim_source") == source


async def test_what_is_known_of_the_caller_is_told(tmp_path):
    caller = Caller("s", "/p", lambda call: f"{call.spec.name} trusted", lambda editor: "" if editor else "bwrap")
    audited = Audited(tmp_path / "audit.jsonl", caller)
    typed = ToolCall("id-1", "bash", {"command": "x"}, origin=CallOrigin.USER, batch="b-1")
    spec = ToolSpec("bash", "", {}, ToolKind.EXECUTE, mutates=True)
    await audited.run(Invocation(typed, spec, "x", None, (CommandSubject("x"),)), ToolResult("x", place="editor"))
    record = audited.record
    assert "sandbox" not in record
    assert (record["trust"], record["execution_env"], record["origin"], record["batch"]) == (
        *("bash trusted", "editor", "user", "b-1"),
    )


@pytest.mark.parametrize(
    ("origin", "unsandboxed", "around"),
    [
        (CallOrigin.MODEL, False, "bwrap"),
        (CallOrigin.MODEL, True, "unsandboxed"),
        (CallOrigin.USER, False, "unsandboxed"),
    ],
)
async def test_what_stood_around_a_command_is_told(tmp_path, origin, unsandboxed, around):
    audited = Audited(tmp_path / "audit.jsonl", Caller("s", "/p", lambda _: "trusted", lambda _: "bwrap"))
    asked = call("bash", CommandSubject("x", unsandboxed=unsandboxed))
    await audited.run(replace(asked, call=replace(asked.call, origin=origin)), ToolResult("x", place="local"))
    assert audited.record["sandbox"] == around


async def test_a_call_nobody_understood_can_be_recorded_too(audited):
    sent = ToolCall("id-1", "no\u202e_such" * 100, None, raw_arguments="[1, 2")
    audited.auditor.record(sent, failed(ToolErrorCategory.TOOL_NOT_FOUND), 0.0)
    record = audited.record
    assert record["call"] == {"arguments": "[1, 2"}
    assert record["error_category"] == "tool_not_found"
    assert len(record["tool"]) < 300


async def test_requests_of_web_tools_are_in_the_same_chain(audited):
    caller = WebCaller("fetch", "call-1")
    audited.auditor.egress(
        Egress(caller, f"https://example.com/?k={SECRET}", "example.com", 0, "192.0.2.1", 200, 0.25, 99, None)
    )
    audited.auditor.egress(Egress(caller, "https://x.local/", "x.local", 1, None, None, 0, 0, BlockReason.SSRF))
    made, refused = audited.records
    assert (made["kind"], made["url"]) == ("egress", "https://example.com/?k=[REDACTED]")
    assert (made["address"], made["status"], made["duration_ms"]) == ("192.0.2.1", 200, 250)
    assert (made["response_bytes"], made["method"]) == (99, "GET")
    assert "blocked" not in made
    assert made["caller_id"] == "session-1"
    assert (refused["blocked"], refused["block_reason"], refused["hop"]) == (True, "ssrf", 1)
    assert whole(audited.path) == []


async def test_a_request_in_a_scheduled_turn_is_recorded_as_the_schedules(tmp_path):
    caller = Caller("s" * 300, "/project", lambda _: "trusted", lambda _: "", lambda: "schedule")
    short = replace(caller, session_id="session-1")
    made = list[str]()
    for number, each in enumerate((caller, short)):
        audited = Audited(tmp_path / str(number) / "audit.jsonl", each)
        audited.auditor.egress(Egress(WebCaller("fetch", "c"), "https://x/", "x", 0, None, 200, 0, 0, None))
        made.append(audited.record["caller_id"])
    assert made[1] == "session-1/schedule"
    assert len(made[0]) < 300


async def test_no_secret_and_nothing_a_terminal_acts_on_gets_into_the_file(audited):
    arguments = {"command": f"curl -H {SECRET}", SECRET: [{"deep": SECRET}], "hostile": "\x1b[2K\n\u2028\ud800\x00"}
    result = ToolResult.refused(f"no {SECRET}", ruling=Ruling("policy", f"rule {SECRET}"))
    await audited.run(call("bash", CommandSubject("x"), arguments=arguments), result)
    await audited.run(command("x"), failed(ToolErrorCategory.PERMANENT_FAILURE, SECRET))
    text = audited.path.read_bytes()
    assert SECRET.encode() not in text
    assert all(line.isascii() and line.decode().isprintable() for line in text.splitlines())
    assert len(audited.records) == 2


# ------------------------------------------------------------------------------------- when it says it


async def test_the_record_is_there_before_the_result(audited):
    seen: list[bool] = []

    async def tool(_: CallFacts) -> ToolResult:
        seen.append(audited.path.exists() and bool(audited.path.read_bytes()))
        return ToolResult("ran")

    await AuditExecutor(Innermost(tool), audited.auditor).execute(CallFacts(command("x")))
    seen.append(bool(audited.record))
    assert seen == [False, True]


async def test_a_call_that_is_cancelled_is_on_record(audited):
    async with anyio.create_task_group() as tasks:

        async def tool(_: CallFacts) -> ToolResult:
            tasks.cancel_scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

        tasks.start_soon(audited.run, command("sleep 9"), tool)
    assert audited.record["result"] == {"type": "error", "message": "cancelled"}
    assert audited.record["error_category"] == "cancelled"


async def test_a_tool_that_crashes_is_on_record_and_crashes_on(audited):
    async def tool(_: CallFacts) -> ToolResult:
        raise ValueError(f"bug with {SECRET}")

    with pytest.raises(ValueError, match="bug"):
        await audited.run(command("x"), tool)
    assert audited.record["result"]["message"] == "internal error: ValueError('bug with [REDACTED]')"


async def test_the_record_says_on_whose_word_a_call_ran(audited, tmp_path):
    chain = Chain(str(tmp_path), str(tmp_path / "grants.toml"), approver=ScriptedApprover(Decision.ALLOW_ONCE))
    executor = AuditExecutor(GatedExecutor(chain.gates, chain.recorder), audited.auditor)
    for asked in (command("make"), command("make", origin=CallOrigin.USER)):
        await executor.execute(chain.gates.facts(asked))
    await executor.execute(chain.gates.facts(call("read", PathSubject("a", Access.READ))))
    assert [record.get("approved_by") for record in audited.records] == ["user", "user", "auto"]


# ------------------------------------------------------------------------------- when it cannot be said


async def test_what_changes_something_does_not_run_while_nothing_can_be_recorded(audited):
    audited.path.symlink_to("/dev/null")

    async def tool(_: CallFacts) -> ToolResult:
        raise AssertionError("ran without a record")

    result = await audited.run(command("x"), tool)
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert f"the audit file {audited.path} cannot be written (a link stands in its place)" in result.failure.message
    assert result.ruling == Ruling("audit")
    assert len(audited.warnings) == 1
    audited.path.unlink()
    assert (await audited.run(command("x"), ToolResult("ran"))).text == "ran", "and does again when it can"
    assert [record["kind"] for record in audited.records] == ["lost", "tool"]


async def test_what_only_reads_runs_all_the_same_and_the_user_is_warned_once(audited):
    audited.path.mkdir()
    for reading in (call("read"), command("ls -l src"), call("read")):
        assert (await audited.run(reading, ToolResult("text"))).text == "text"
    assert len(audited.warnings) == 1
    assert str(audited.path) in audited.warnings[0]


async def test_a_record_that_fails_after_the_run_leaves_the_result_as_it_is(audited):
    async def tool(_: CallFacts) -> ToolResult:
        audited.path.unlink()
        audited.path.mkdir()
        return ToolResult("changed")

    assert (await audited.run(command("x"), tool)).text == "changed"
    assert len(audited.warnings) == 1
    result = await audited.run(command("x"), ToolResult("never"))
    assert result.failure is not None, "and the next one does not start"


async def test_the_file_holds_what_json_says_it_does(audited):
    await audited.run(call("bash", arguments={"n": float("nan"), "big": 10**5000}), ToolResult("x"))
    [line] = audited.path.read_bytes().splitlines()
    assert json.loads(line)["call"] == {"n": "nan", "big": "[a number of 16610 bits]"}
