"""The innermost executor and the operating system's errors."""

import errno
from dataclasses import replace
from typing import cast

import anyio
import pytest

from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory
from acp_agent.core.events import Event
from acp_agent.core.ports import Backends, ToolContext
from acp_agent.core.types import ToolResult
from acp_agent.execution.runner import ToolRunner
from acp_agent.gates.gate import CallFacts
from acp_agent.workspace.beneath import path_error
from tests.unit.gates.chain import call

pytestmark = pytest.mark.anyio

OS_ERRORS = [
    (OSError(errno.ETIMEDOUT, "x", "/secret"), "timeout"),
    (TimeoutError(), "timeout"),
    (OSError(errno.ECONNREFUSED, "x"), "network_error"),
    (OSError(errno.ECONNRESET, "x"), "network_error"),
    (OSError(errno.ECONNABORTED, "x"), "network_error"),
    (OSError(errno.EPIPE, "x"), "network_error"),
    (OSError(errno.EAGAIN, "x"), "server_error"),
    (OSError(errno.EINTR, "x"), "server_error"),
    (OSError(errno.EACCES, "x", "/secret"), "policy_blocked"),
    (OSError(errno.EPERM, "x", "/secret"), "policy_blocked"),
    (OSError(errno.ENOENT, "x", "/secret"), "permanent_failure"),  # not tool_not_found
    (OSError(errno.ENOSPC, "x"), "permanent_failure"),
    (OSError(errno.EIO, "x"), "permanent_failure"),
    (OSError("of our own"), "permanent_failure"),
]


async def unheard(event: Event) -> None:
    raise AssertionError("no tool here tells anything")


async def ran(error: Exception) -> ToolResult:
    async def tool(context: ToolContext) -> ToolResult:
        raise error

    runner = ToolRunner(cast("Backends", None), "/project", unheard)
    return await runner.execute(CallFacts(replace(call("read"), run=tool)))


@pytest.mark.parametrize(("error", "category"), OS_ERRORS, ids=str)
async def test_an_error_of_the_system_has_its_category_wherever_it_is_met_and_names_no_path(error, category):
    result = await ran(error)
    assert result.failure is not None
    assert result.failure.category.value == category
    assert result.text.startswith("[error] read: ")
    assert "/secret" not in result.text
    told = path_error(error, "mine.txt")
    assert isinstance(told, ToolError)
    assert told.failure.category.value == category
    assert str(told).startswith("mine.txt: ")


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (ToolError(ToolErrorCategory.RATE_LIMITED, "later"), ToolErrorCategory.RATE_LIMITED),
        (Refused("no"), ToolErrorCategory.POLICY_BLOCKED),
        (BackendUnavailable("editor", "gone"), ToolErrorCategory.PERMANENT_FAILURE),
    ],
)
async def test_errors_of_ours_keep_theirs(error, category):
    result = await ran(error)
    assert result.failure is not None
    assert result.failure.category is category


async def test_a_call_of_a_cancelled_turn_does_not_begin():
    begun: list[str] = []

    async def tool(context: ToolContext) -> ToolResult:
        begun.append(context.call_id)
        return ToolResult("ran")

    with anyio.CancelScope() as turn:
        turn.cancel()
        runner = ToolRunner(cast("Backends", None), "/project", unheard)
        await runner.execute(CallFacts(replace(call("read"), run=tool)))
    assert turn.cancelled_caught
    assert begun == []


async def test_a_bug_is_left_to_the_front_door():
    with pytest.raises(KeyError):
        await ran(KeyError("bug"))
