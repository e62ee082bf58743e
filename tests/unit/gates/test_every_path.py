"""One chain for every way in: the same hostile calls are refused with the same words, whoever brings them."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.types import CallOrigin, JsonObject, ToolResult
from acp_agent.gates.rules.policy_rules import TrustLevel
from acp_agent.gates.shell import reading
from acp_agent.gates.shell.syntax import Parses
from tests.fakes.home import move_in
from tests.unit.gates.hostile_calls import ASKED, CALLS, CONFIG, Call
from tests.unit.gates.ways import (
    EDITORS_OWN,
    NOTHING_OFFERED,
    STOOD_IN,
    OpenSession,
    StandInShell,
    files_below,
    opened,
)
from tests.unit.session.conftest import without_walls  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio

THIRTY = 30


@pytest.fixture(scope="module", autouse=True)
def _each_text_is_read_once() -> Iterator[None]:
    """Remember what commands a text has: each comes by eight ways, and to read it takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("analyse", "survey"):
            patch.setattr(reading, name, _remembering(getattr(reading, name)))
        yield


def _remembering(read: Callable[..., Any]) -> Callable[..., Any]:
    known = dict[str, Any]()

    def read_once(text: str, parses: Parses, *depth: int) -> Any:
        if depth:  # of a text inside another one
            return read(text, parses, *depth)
        if text not in known:
            known[text] = read(text, parses)
        return known[text]

    return read_once


@pytest.fixture
def config() -> str:
    return CONFIG


@pytest.fixture
def work(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with something to attack, in a home of its own."""
    base = tmp_path.resolve()
    for name in ("work/src", "work/vault", "work/secrets", "work/.git/hooks", "other", "home/.ssh"):
        (base / name).mkdir(parents=True)
    for name in ("work/src/a", "work/a", "work/a.key", "work/vault/key", "work/secrets/a", "work/.git/hooks/sample"):
        (base / name).write_text("kept\n")
    for name in ("other/x", "home/.ssh/id_rsa"):
        (base / name).write_text("kept\n")
    (base / "work/link-out").symlink_to(base / "other")
    (base / "work/hooks").symlink_to(".git/hooks")
    (base / "config.toml").write_text(config)
    move_in(monkeypatch, base, base / "home")
    return base / "work"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInShell:
    stand_in = StandInShell(tmp_path.resolve())
    monkeypatch.setenv("PATH", stand_in.path)
    return stand_in


Both = tuple[OpenSession, OpenSession]


@pytest.fixture
async def both(work: Path, shell: StandInShell, tmp_path: Path) -> AsyncIterator[Both]:
    """The same folder in an editor that offers all it has, and in one that offers nothing."""
    scripts = tmp_path.resolve() / "scripts"
    scripts.mkdir()
    async with opened(EDITORS_OWN, work, scripts) as edited, opened(NOTHING_OFFERED, work, scripts) as local:
        yield edited, local


async def every_way(both: Both, tool: str, arguments: JsonObject) -> dict[str, ToolResult]:
    """What each way in gives, by its name."""
    edited, local = both
    served = f"mcp_server_{tool}"
    results = {
        "the editor's terminal and files": await edited.called(tool, arguments),
        "the local shell and files": await local.called(tool, arguments),
        "as the user's call": await edited.called(tool, arguments, CallOrigin.USER),
        "a server's tool": _as_ours(await edited.called(served, arguments)),
        "a server's tool, locally": _as_ours(await local.called(served, arguments)),
        "a server's tool, as the user's call": _as_ours(await local.called(served, arguments, CallOrigin.USER)),
    }
    command = arguments.get("command")
    if isinstance(command, str):
        results |= {"/run": await edited.typed(command), "/run, locally": await local.typed(command)}
    return results


def _as_ours(result: ToolResult) -> ToolResult:
    """The result of a built-in tool: a refusal names the tool whose rule it is, and all else has to be the same."""
    ruling, failure = result.ruling, result.failure
    return replace(
        result,
        text=_of_no_server(result.text),
        display=result.display and _of_no_server(result.display),
        failure=failure and replace(failure, message=_of_no_server(failure.message)),
        ruling=ruling and replace(ruling, rule=_of_no_server(ruling.rule)),
    )


def _of_no_server(text: str) -> str:
    return text.replace("mcp_server_", "")


def test_there_are_thirty_and_more_of_them():
    assert sum(tool == "bash" for _, calls in CALLS.values() for tool, _ in calls) >= THIRTY
    assert sum(tool != "bash" for _, calls in CALLS.values() for tool, _ in calls) >= THIRTY


@pytest.mark.parametrize("kind", CALLS)
async def test_a_hostile_call_is_refused_alike_on_every_path(both: Both, work: Path, shell: StandInShell, kind: str):
    before = list(files_below(work.parent))
    gate, calls = CALLS[kind]
    for tool, arguments in calls:
        results = await every_way(both, tool, arguments)
        first = next(iter(results.values()))
        assert first.failure is not None, arguments
        assert first.failure.category is ToolErrorCategory.POLICY_BLOCKED, arguments
        assert first.ruling is not None, arguments
        assert first.ruling.gate == gate, arguments
        for way, result in results.items():
            assert result == first, (arguments, way)
    assert shell.ran == []
    assert [session.editor.done for session in both] == [[], []]
    assert list(files_below(work.parent)) == before


@pytest.mark.parametrize("kind", CALLS)
async def test_no_tool_of_a_server_nobody_trusts_does_it_either(both: Both, shell: StandInShell, kind: str):
    for session in both:
        session.parts.trust(TrustLevel.UNTRUSTED)
        for tool, arguments in CALLS[kind][1]:
            for origin in CallOrigin:
                assert (await session.called(f"mcp_server_{tool}", arguments, origin)).failure is not None, arguments
        assert session.editor.done == []
    assert shell.ran == []


async def test_what_only_the_user_may_do_unasked_is_refused_alike_on_every_path_of_the_model(
    both: Both, shell: StandInShell
):
    for tool, arguments in ASKED:
        results = [await each.called(name, arguments) for each in both for name in (tool, f"mcp_server_{tool}")]
        first = results[0]
        assert first.failure is not None, arguments
        assert first.failure.category is ToolErrorCategory.CONFIRMATION_REQUIRED, arguments
        assert results == [first] * 4, arguments
    assert shell.ran == both[0].editor.done == []


def commands_of_calls() -> list[str]:
    """The hostile command lines, as far as a definition may be so long."""
    calls = (*ASKED, *(call for _, calls in CALLS.values() for call in calls))
    lines = [str(arguments["command"]) for tool, arguments in calls if tool == "bash"]
    return [line for line in lines if len(line) <= 4096 and line.isprintable() and "'''" not in line]


@pytest.fixture
def defined(work: Path) -> list[str]:
    """The user has a custom tool for each hostile command."""
    lines = commands_of_calls()
    (work.parent / "tools").mkdir()
    for number, line in enumerate(lines):
        text = f"description = 'd'\ncommand = '''\n{line}'''\n"
        (work.parent / "tools" / f"hostile_{number}.toml").write_text(text)
    return lines


async def test_a_hostile_command_is_refused_alike_as_that_of_a_custom_tool(
    defined: list[str], both: Both, shell: StandInShell, work: Path
):
    assert len(defined) >= THIRTY
    before = list(files_below(work.parent))
    for session in both:
        for number, line in enumerate(defined):
            direct = await session.called("bash", {"command": line})
            custom = await session.called(f"hostile_{number}", {})
            assert direct.failure is not None, line
            assert custom == direct, line
        assert session.editor.done == []
    assert shell.ran == []
    assert list(files_below(work.parent)) == before


HARMLESS: Call = ("bash", {"command": "git status"})


@pytest.mark.parametrize(
    ("gate", "config"),
    [
        ("mode", CONFIG.replace("[acp]", "[acp]\nmode = 'ask'")),
        ("selection", f"{CONFIG}\n[tools]\nprofile = 'minimal'\n"),
        ("autonomy", f"{CONFIG}\n[tools]\nautonomy_level = 'readonly'\n"),
    ],
)
async def test_a_tool_nobody_is_offered_runs_on_no_path(both: Both, shell: StandInShell, gate: str):
    for way, result in (await every_way(both, "bash", {"command": "make"})).items():
        assert result.failure is not None, way
        assert result.ruling is not None, way
        assert result.ruling.gate == gate, way
    assert shell.ran == both[0].editor.done == []


async def test_a_server_nobody_trusts_runs_not_even_what_is_harmless(both: Both, shell: StandInShell):
    for session in both:
        session.parts.trust(TrustLevel.UNTRUSTED)
        for result in (
            await session.called("mcp_server_bash", HARMLESS[1]),
            await session.called("mcp_server_bash", HARMLESS[1], CallOrigin.USER),
        ):
            assert result.ruling is not None
            assert result.ruling.gate == "trust"
    assert shell.ran == both[0].editor.done == []


async def test_a_harmless_call_runs_on_every_one_of_these_paths(both: Both, shell: StandInShell):
    """So that the refusals above are the gates' doing."""
    for way, result in (await every_way(both, *HARMLESS)).items():
        # An orphan that another test has left is ended, and told of, with the next command.
        assert ((result.shown or "").partition("\n")[0], result.failure) == (STOOD_IN, None), way
    assert shell.ran == ["git status"] * 4
    assert both[0].editor.done.count("terminal/create") == 4


async def test_what_the_user_types_runs_also_where_the_model_would_be_asked(both: Both, shell: StandInShell):
    for _, arguments in ASKED:
        for session in both:
            assert (await session.typed(str(arguments["command"]))).failure is None, arguments
    assert shell.ran == [arguments["command"] for _, arguments in ASKED]
    assert both[0].editor.done.count("terminal/create") == len(ASKED)
