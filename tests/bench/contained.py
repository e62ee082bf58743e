"""What the walls of the kernel cost a command: a contained `true` beside a bare one."""

import os
import tempfile
import time

import anyio

from acp_agent.core.backends import CommandRequest
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, sandbox_tier
from acp_agent.workspace.sandbox.walls import WallRules
from tests.bench.file_tools import Sample

AIM = 12
"""Milliseconds that the walls may add."""


async def _spent(terminal: LocalTerminal, folder: str) -> float:
    async def ignored(output: str) -> None:
        del output

    began = time.perf_counter()
    command = await terminal.start(CommandRequest("true", folder))
    await command.wait(ignored)
    return (time.perf_counter() - began) * 1000


async def _pairs(folder: str, rounds: int) -> list[float]:
    """Return the milliseconds that the walls add, in pairs of runs side by side."""
    paths = ProtectedPaths()
    rules = WallRules((folder,), lambda path: paths.find(path) is not None, lambda path, access: None)
    sandbox = SessionSandbox(rules, child_environment(os.environ), sandbox_tier())
    bare, contained = LocalTerminal(), LocalTerminal(sandbox=sandbox)
    try:
        await _spent(contained, folder)  # makes the session's network
        return [await _spent(contained, folder) - await _spent(bare, folder) for _ in range(rounds)]
    finally:
        sandbox.close()


def measured(rounds: int = 40) -> list[Sample]:
    """Rows for the bench; none where nothing can build a sandbox."""
    tier = sandbox_tier()
    if tier is SandboxTier.NONE:
        return []
    with tempfile.TemporaryDirectory(prefix="acp-bench-") as folder:
        samples = anyio.run(_pairs, folder, rounds)
    return [(f"sandbox ({tier}): a contained `true` costs more", "ms", AIM, samples, [])]
