"""What the approval levels leave to the user: full-auto asks nothing, so it refuses what only they could allow."""

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.ports import Decision
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Access, CallOrigin, PathSubject
from acp_agent.gates.rules.permission_rules import Action
from tests.rows import each_row
from tests.unit.gates.chain import Chain, ScriptedApprover, call, command, full_auto, rules

pytestmark = pytest.mark.anyio

Make: TypeAlias = Callable[..., Chain]

OUTSIDE = (
    "ls /",
    "grep -r x //",
    "rm -rf /outside",
    "cat /etc/hostname",
    "cp a /srv/b",
    "echo x > /srv/y",
    "tar cf /srv/x.tar src",
    "ls ~",
)
SECRETS = ("cat .env", "cp server.key copy", "echo $GITHUB_TOKEN", "base64 < credentials.json")
PROTECTED = (
    "rm -rf .",
    "rm -r src/..",
    "rm -rf $PWD",
    "cp x .git/hooks/pre-commit",
    "echo x >> .bashrc",
    "git config core.pager evil",
)
ORDINARY = (
    "make",
    "python build.py",
    "git push --force",
    "rm -rf build",
    "chmod -R 777 src",
    "docker compose up",
    "cat src/x > out",
    "ls /dev/null",
)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "work" / ".env").touch()

    def chain(
        conduct: SessionOptions | None = None, *answers: Decision, allow: tuple[object, ...] = (), tool: str = "bash"
    ):
        approver = ScriptedApprover(*answers)
        work, grants = os.fspath(tmp_path / "work"), os.fspath(tmp_path / "grants.toml")
        return Chain(work, grants, allow, conduct or full_auto(), approver=approver, tool=tool)  # pyright: ignore[reportArgumentType]

    return chain


@pytest.mark.parametrize("text", [*OUTSIDE, *SECRETS, *PROTECTED])
async def test_full_auto_refuses_what_only_the_user_could_allow_and_says_so(make: Make, text: str):
    for chain in (make(), make(allow=rules("*"))):
        assert not chain.asks(command(text))
        result = await chain.run(command(text))
        assert chain.recorder.ran == []
        assert result.failure is not None
        assert result.failure.category is ToolErrorCategory.CONFIRMATION_REQUIRED
        assert "full-auto does not ask" in result.failure.message
        assert chain.approver is not None
        assert chain.approver.questions == []


@given(
    text=st.sampled_from(OUTSIDE),
    other=st.sampled_from(ORDINARY),
    joint=st.sampled_from(["&&", ";", "||", "|", "\n"]),
    first=st.booleans(),
)
async def test_what_stands_beside_it_in_the_line_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, text: str, other: str, joint: str, first: bool
):
    folder = tmp_path_factory.getbasetemp()
    line = f"{text} {joint} {other}" if first else f"{other} {joint} {text}"
    chain = Chain(os.fspath(folder), os.fspath(folder / "grants.toml"), rules("*"), full_auto())
    assert await chain.fate(command(line)) == "refused"


@pytest.mark.parametrize("text", ORDINARY)
async def test_full_auto_runs_what_asks_for_other_reasons(make: Make, text: str):
    assert await make().fate(command(text)) == "silent"


@pytest.mark.parametrize("text", [*OUTSIDE, *SECRETS, *PROTECTED])
async def test_other_levels_ask_about_it_and_what_the_user_types_runs(make: Make, text: str):
    assert await make(SessionOptions()).fate(command(text)) == "asked"
    assert await make(SessionOptions(auto_approve=AutoApprove.AUTO_EDIT)).fate(command(text)) == "asked"
    assert await make().fate(command(text, origin=CallOrigin.USER)) == "silent"


async def test_always_for_exactly_this_text_holds_in_full_auto(make: Make):
    await make(SessionOptions(), Decision.ALLOW_ALWAYS).run(command("cat /etc/hostname"))
    assert await make().fate(command("cat /etc/hostname")) == "silent"
    assert await make().fate(command("cat /etc/hosts")) == "refused"


async def test_a_file_with_secrets_is_not_read_in_full_auto(make: Make):
    reading = call("read", PathSubject(".env", Access.READ), arguments={"path": ".env"})
    assert await make().fate(reading) == "refused"
    assert await make(SessionOptions()).fate(reading) == "asked"


@pytest.mark.parametrize("tool", ["read", "grep", "list_directory"])
@pytest.mark.parametrize("action", Action)
async def test_a_reading_tool_with_rules_of_which_none_matches_asks(make: Make, tool: str, action: Action):
    given_rules = rules("docs/*", action=action)
    for path, due in (("src/x", "asked"), ("docs/x", {"allow": "silent", "deny": "refused", "ask": "asked"}[action])):
        for level in (AutoApprove.SUGGEST, AutoApprove.AUTO_EDIT):
            reading = call(tool, PathSubject(path, Access.READ), arguments={"path": path})
            chain = make(SessionOptions(auto_approve=level), allow=given_rules, tool=tool)
            assert await chain.fate(reading) == due, (path, level)
            assert chain.asks(reading) == (due == "asked")
            assert chain.approver is not None
            reasons = [question.reasons for question in chain.approver.questions]
            assert reasons == ([(f"no rule for {tool} allows this",)] if due == "asked" else [])


async def test_always_for_a_reading_tool_ends_the_questions_that_its_rules_make(make: Make):
    reading = call("read", PathSubject("src/x", Access.READ), arguments={"path": "src/x"})
    await make(SessionOptions(), Decision.ALLOW_ALWAYS, allow=rules("docs/*"), tool="read").run(reading)
    assert await make(SessionOptions(), allow=rules("docs/*"), tool="read").fate(reading) == "silent"
    assert await make(allow=rules("docs/*"), tool="read").fate(reading) == "silent"


RUN_OR_OBEYED = (
    *("AGENTS.md", "sub/CLAUDE.md", ".claude/commands/x.md", ".opencode/plugin/x.ts", ".cargo/config.toml", ".hg/hgrc"),
    *("conftest.py", "tests/Conftest.py", "lefthook.yml", ".venv/bin/python", "web/node_modules/.bin/tsc", ".npmrc"),
    *(".github/workflows/ci.yml", ".pre-commit-config.yaml", "sitecustomize.py", "GEMINI.md", ".cursorrules"),
)


@each_row("tool, path", product(["write", "edit"], RUN_OR_OBEYED))
async def test_auto_edit_asks_before_it_changes_what_programs_run_or_agents_obey(make: Make, tool: str, path: str):
    writing = call(tool, PathSubject(path, Access.WRITE), arguments={"path": path})
    assert await make(SessionOptions(auto_approve=AutoApprove.AUTO_EDIT)).fate(writing) == "asked"


@pytest.mark.parametrize(
    "path", ["package.json", "Makefile", "pyproject.toml", "src/x.py", "README.md", "tests/test_x.py"]
)
async def test_auto_edit_changes_everyday_files_silently(make: Make, path: str):
    writing = call("write", PathSubject(path, Access.WRITE), arguments={"path": path})
    assert await make(SessionOptions(auto_approve=AutoApprove.AUTO_EDIT)).fate(writing) == "silent"


async def test_walls_answer_no_rule_that_asks(tmp_path: Path):
    options = SessionOptions(auto_approve=AutoApprove.AUTO_EDIT)
    for patterns, fate in (("make *",), "asked"), ((), "silent"):
        chain = Chain(
            str(tmp_path), str(tmp_path / f"{fate}.toml"), rules(*patterns, action=Action.ASK), options, contained=True
        )
        assert await chain.fate(command("make all")) == fate
