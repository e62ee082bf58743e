"""What a model that wants out gets unasked, under eight everyday rules.

What runs unasked is really run, with a folder, a program and a port around it that note whoever touches them. Without
walls the rules and the text of a command hold alone; with walls the kernel holds what runs.
"""

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, asynccontextmanager
from itertools import groupby
from pathlib import Path

import anyio
import pytest

from acp_agent.core.backends import CommandRequest
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, tier_works, why_missing
from acp_agent.workspace.sandbox.walls import WallRules
from tests.unit.gates.chain import Chain, command, rules
from tests.unit.gates.hostile_model import DESTROYING, RULES, benign, commands
from tests.unit.gates.hostile_world import World

pytestmark = pytest.mark.anyio
PROTECTED = ProtectedPaths()
SECONDS = 3
LEVELS = (AutoApprove.SUGGEST, AutoApprove.AUTO_EDIT)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as closing:
        yield World(tmp_path, closing)


def chain(world: World, level: AutoApprove, *, contained: bool = False) -> Chain:
    grants = os.fspath(world.work.parent / "grants.toml")
    return Chain(os.fspath(world.work), grants, rules(*RULES), SessionOptions(auto_approve=level), contained=contained)


async def unasked(world: World, rows: tuple[tuple[str, str], ...], *chains: Chain) -> list[tuple[str, str]]:
    """Return the rows that run unasked in one of the chains."""
    found: list[tuple[str, str]] = []
    for workspace, group in groupby(rows, key=lambda row: row[0]):
        world.fresh(workspace)
        for _, text in group:
            if "silent" in [await each.fate(command(world.filled(text))) for each in chains]:
                found.append((workspace, text))
    return found


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
async def test_without_walls_nothing_that_runs_unasked_leaves_the_folder(world: World, step: int):
    world.fresh()
    rows = commands()[::step]
    assert len(rows) >= 1000 / step
    leaks: dict[str, list[str]] = {}
    silent = await unasked(world, rows, *(chain(world, level) for level in LEVELS))
    for workspace, text in silent:
        world.fresh(workspace)
        touched = world.touched(world.run(world.filled(text)))
        leaks |= {f"{workspace}: {text}": touched} if touched else {}
    print(f"{len(rows)} rows, {len(silent)} run unasked, {len(leaks)} touched what is outside")
    assert leaks == {}
    assert not {text for _, text in silent} & set(DESTROYING)
    assert len(silent) < 20


@asynccontextmanager
async def walled(world: World) -> AsyncGenerator[LocalTerminal]:
    def protects(path: str) -> bool:
        found = PROTECTED.find(path)
        return found is not None and not found.everyday

    walls = WallRules((str(world.work),), protects, lambda path, _: "secret" if path.endswith(".env") else None)
    sandbox = SessionSandbox(walls, child_environment(world.variables), SandboxTier.BUBBLEWRAP)
    try:
        yield LocalTerminal(sandbox=sandbox)
    finally:
        sandbox.close()


async def run_walled(world: World, text: str) -> str:
    async def ignored(output: str) -> None:
        del output

    async with walled(world) as terminal:
        running = await terminal.start(CommandRequest(text, str(world.work), timeout=SECONDS))
        return (await running.wait(ignored)).output


@pytest.mark.parametrize("step", [160, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
async def test_within_walls_nothing_that_runs_unasked_leaves_the_folder(
    world: World, step: int, monkeypatch: pytest.MonkeyPatch
):
    if not tier_works(SandboxTier.BUBBLEWRAP):
        pytest.skip(why_missing(SandboxTier.BUBBLEWRAP))
    world.fresh()
    for name in ("PATH", "HOME"):
        monkeypatch.setenv(name, world.variables[name])  # a terminal takes them from the agent
    levels = (*LEVELS, AutoApprove.FULL_AUTO)
    rows = commands()[::step]
    silent = await unasked(world, rows, *(chain(world, level, contained=True) for level in levels))
    leaks: dict[str, list[str]] = {}
    for workspace, text in silent:
        world.fresh(workspace)
        with anyio.fail_after(60):
            output = await run_walled(world, world.filled(text))
        touched = [each for each in world.touched(output) if "root:x:0" not in each]
        leaks |= {f"{workspace}: {text}": touched} if touched else {}
    print(f"{len(rows)} rows, {len(silent)} run unasked, all contained, {len(leaks)} touched what is outside")
    assert leaks == {}
    assert len(silent) > 800 / step


async def test_everyday_forms_run_unasked_under_the_same_rules(world: World):
    rows = benign()
    assert len(rows) >= 100
    silent = await unasked(world, tuple(("plain", text) for text in rows), chain(world, AutoApprove.SUGGEST))
    assert {text for _, text in silent} == set(rows)
