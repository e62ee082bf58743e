"""What becomes of hostile and of everyday commands, in figures. `pytest -n0` on this file shows them."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from acp_agent.core.session_options import SessionOptions
from acp_agent.gates.rules.permission_rules import Rule
from acp_agent.gates.shell.command import analyse
from tests.unit.gates import everyday, hostile
from tests.unit.gates.chain import Chain, command, full_auto, rules

pytestmark = pytest.mark.anyio

FATES = ("blocked", "refused", "asked", "silent")
EVERYTHING_MAY = rules("*")
Cases = Iterable[tuple[str, Sequence[Rule]]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder as the tables have it: with a link that leads out."""
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "work" / "a").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "work" / "link-out").symlink_to(tmp_path / "other")
    return tmp_path / "work"


async def fates(workspace: Path, cases: Cases, conduct: SessionOptions | None = None) -> Counter[str]:
    """How often each thing becomes of commands under their rules, when the user says no to every question."""
    chain = Chain(str(workspace), str(workspace.parent / "grants.toml"), conduct=conduct or SessionOptions())
    counted: Counter[str] = Counter()
    for text, given in cases:
        chain.permission.rules = {chain.tool: tuple(given)}
        counted[await chain.fate(command(text))] += 1
    return counted


def ruled(table: Iterable[tuple[str, tuple[str, ...]]]) -> Cases:
    return [(text, rules(*patterns)) for text, patterns in table]


def row(name: str, counted: Counter[str]) -> str:
    return f"{name:<32}{counted.total():>6}" + "".join(f"{counted[fate]:>9}" for fate in FATES)


def milliseconds(texts: Iterable[str]) -> list[float]:
    """How long `analyse` takes for each text under 4 KiB, sorted."""
    taken: list[float] = []
    for text in (text for text in texts if len(text) < 4096):
        begun = time.perf_counter()
        analyse(text)
        taken.append((time.perf_counter() - begun) * 1000)
    return sorted(taken)


async def test_the_figures_of_the_issue_hold_and_are_printed(workspace: Path, capsys: pytest.CaptureFixture[str]):
    mine = rules(*everyday.RULES)
    counted = {
        "U  refuse always (full-auto)": await fates(
            workspace, [(text, EVERYTHING_MAY) for text in hostile.U], full_auto()
        ),
        "A  hidden second command": await fates(workspace, ruled(hostile.A)),
        "B  an allowed program's options": await fates(workspace, ruled(hostile.B)),
        "C  outside the workspace": await fates(workspace, ruled(hostile.C)),
        "everyday, under its rules": await fates(workspace, [(text, mine) for text in everyday.COMMANDS]),
        "everyday shell programs": await fates(workspace, [(text, mine) for text in everyday.CONSTRUCTS]),
    }
    every = [
        *hostile.U,
        *(text for table in (hostile.A, hostile.B, hostile.C) for text, _ in table),
        *everyday.COMMANDS,
    ]
    analyse("ls")  # the parser is loaded with the first one
    taken = milliseconds(every)
    with capsys.disabled():
        print(f"\n{'':<32}{'all':>6}" + "".join(f"{fate:>9}" for fate in FATES))
        print("\n".join(row(name, found) for name, found in counted.items()))
        print(
            f"analyse, {len(taken)} commands under 4 KiB: median {taken[len(taken) // 2]:.2f} ms, "
            f"p99 {taken[int(len(taken) * 0.99)]:.2f} ms, longest {taken[-1]:.2f} ms"
        )

    u, a, b, c, plain, programs = counted.values()
    assert u["blocked"] == u.total() == len(hostile.U)
    assert a["silent"] == b["silent"] == c["silent"] == 0
    assert plain["blocked"] + plain["refused"] + programs["blocked"] + programs["refused"] == 0
    assert plain["silent"] == plain.total()
    assert u.total() + a.total() + b.total() + c.total() >= 200
    assert plain.total() + programs.total() >= 150


@pytest.mark.parametrize(
    "text",
    [
        "mkdir -p build && cd build && cmake ..",
        "mkdir -p src && cd src && cmake ..",
        "ln -s ../a src/shared",
        "cd src && ln -s ../shared shared",
        "mv a.py b.py && pytest b.py",
        "git pull && make build",
        "git stash pop && npm test",
        "git checkout main && git pull",
        "git checkout -b x && git add . && git commit -m y",
    ],
)
async def test_everyday_lines_of_several_commands_are_silent(workspace: Path, text: str):
    (workspace / "a.py").write_text("")
    counted = await fates(workspace, [(text, rules(*everyday.RULES, "ln -s *", "mv *"))])
    assert counted == {"silent": 1}


def test_no_command_is_counted_twice():
    for table in (hostile.U, hostile.A, hostile.B, hostile.C, everyday.COMMANDS, everyday.CONSTRUCTS):
        assert len(set(table)) == len(table)
