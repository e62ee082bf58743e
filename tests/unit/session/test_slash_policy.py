"""/policy: what is allowed, and what the session's own gates would say to a call."""

import subprocess
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from acp_agent.config.load import Flags, load
from acp_agent.core.errors import Refused
from acp_agent.core.session_options import Mode, SessionOptions
from acp_agent.gates.grants import GrantStore
from acp_agent.session.session import SessionWorkspace
from acp_agent.session.toolset.gate_factory import GateContext, build_gates, permission_gate
from acp_agent.session.toolset.settings import FolderRules, permission_rules
from acp_agent.session.verdicts import PolicyCommand

CONFIG = """\
[[tools.permissions.bash]]
pattern = 'git push*'
action = 'deny'
[[tools.permissions.bash]]
pattern = 'git *'
action = 'allow'
[[tools.permissions.read]]
pattern = '*.pem'
action = 'deny'
[tools.shell]
blocked_commands = ['shutdown']
"""
POLICY = """\
[tools.policy]
enabled = true
default_effect = 'allow'
rules = [{ effect = 'deny', tool = 'fetch' }, { effect = 'deny', tool = 'write', paths = ['**/*.lock'] }]
"""

Ask = Callable[..., str]


def refused(url: str) -> Refused | None:
    return Refused("a private address") if "127.0.0.1" in url else None


@pytest.fixture
def ask(tmp_path: Path) -> Generator[Ask]:
    """What /policy says in a folder with a file `a.py`, by the gates of a session there."""
    work = tmp_path.resolve() / "work"
    work.mkdir()
    (work / "a.py").write_text("x\n")
    with ExitStack() as stack:

        def asked(text: str, config: str = CONFIG, mode: Mode = Mode.CODE) -> str:
            file = tmp_path / "config.toml"
            file.write_text(config)
            loaded, conduct = load(Flags(config=str(file)), {}, str(work)), SessionOptions(mode)
            roots = stack.enter_context(FolderRules(loaded, str(work)).roots())
            shell = stack.enter_context(FolderRules(loaded, str(work)).roots(for_shell=True))
            problems = list[str]()
            context = GateContext(conduct, roots, shell, refused)
            grants = GrantStore(str(tmp_path / "grants.toml"), problems.append)
            rules = permission_rules(loaded, problems.append)
            gates = build_gates(loaded, context, permission_gate(rules, context, grants), problems.append)
            assert problems == []
            return anyio.run(PolicyCommand(loaded, SessionWorkspace(str(work)), conduct, gates).answer, text)

        yield asked


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "git push --force",
            "- run: **denied** by permission, rule `git push*`: a permission rule denies this call: 'git push*' (",
        ),
        ("git log", "- run: **allowed**, rule `git *`: rules allow all of it"),
        ("cd src && git log", "- run: **allowed**, rule `git *`: rules allow all of it"),
        ("shutdown now", "- run: **blocked, and nothing lifts that** by blocklist"),
        ("make all", "- run: **asked about**"),
        ("python3.11", "`python3.11`, as a command:"),
        (".env", "`.env`, as a path:"),
        ("command a.py", "`a.py`, as a command:"),
        (
            "a.py",
            "`a.py`, as a path:\n\n- read: **asked about**: no rule for read allows this\n- write: **asked about**",
        ),
        ("keys/x.pem", "- read: **denied** by permission, rule `*.pem (rule 1 of read)`"),
        ("../../etc/passwd", "- read: **denied** by sandbox"),
        ("https://example.com/x", "as a URL:\n\n- fetch: **asked about**: reaches example.com"),
        ("url http://127.0.0.1/", "- fetch: **denied** by sandbox: a private address"),
        ("echo `date`", "`` echo `date` ``, as a command:"),
        ("echo a\u202eb", "`echo a\\u202eb`, as a command:"),
    ],
)
def test_a_call_is_judged_by_the_gates_of_the_session(ask: Ask, text: str, told: str):
    assert told in ask(f"check {text}")


def test_the_mode_in_force_counts(ask: Ask):
    assert "- run: **denied** by mode" in ask("check git push", mode=Mode.ASK)


def test_the_rules_of_a_policy_are_told_up_to_the_one_that_decides(ask: Ask):
    told = ask("check https://example.com/x", CONFIG + POLICY)
    assert "- fetch: **denied** by policy, rule" in told
    assert "matches" in told
    assert told.endswith("decision: deny")
    assert "decision: deny" in ask("check path poetry.lock", CONFIG + POLICY)


def test_a_rule_for_a_variable_counts_where_the_variable_is_set(ask: Ask, monkeypatch: pytest.MonkeyPatch):
    rule = "{ effect = 'deny', tool = 'write', env = ['ACP_AGENT_TEST_CI'] }"
    config = f"[tools.policy]\nenabled = true\ndefault_effect = 'allow'\nrules = [{rule}]\n"
    assert "denied" not in ask("check path a.py", config)
    monkeypatch.setenv("ACP_AGENT_TEST_CI", "1")
    assert "- write: **denied** by policy" in ask("check path a.py", config)


def test_the_status_names_what_holds(ask: Ask):
    told = ask("status", CONFIG + POLICY)
    assert "Policy rules in force: 2" in told
    assert "Permission rules: bash 2, read 1" in told
    assert "Mode: code; approval: suggest; autonomy: supervised" in told
    assert "Gates, in their order: blocklist, mode, selection, autonomy, policy, trust" in told
    assert told == ask("", CONFIG + POLICY)
    assert "No policy is in force" in ask("")


@pytest.mark.parametrize("text", ["check", "chekc ls", "status now"])
def test_what_is_no_question_gets_the_usage(ask: Ask, text: str):
    assert ask(text).startswith("Usage: `/policy status`")


def test_git_is_asked_which_files_a_checkout_would_bring(ask: Ask, tmp_path: Path):
    work = tmp_path / "work"

    def git(*words: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.templateDir=")
        subprocess.run(["git", "-C", str(work), *who, *words], check=True)

    git("init", "-q", "-b", "main")
    git("add", "a.py")
    git("commit", "-qm", "one")
    git("checkout", "-qb", "evil")
    (work / ".envrc").write_text("evil\n")
    git("add", ".envrc")
    git("commit", "-qm", "two")
    git("checkout", "-q", "main")
    assert "git would bring or change .envrc, which is protected" in ask("check git checkout evil")
    assert "**allowed**" in ask("check git checkout -b good")


def test_a_refusal_by_a_rule_names_the_file_the_table_and_the_number(ask: Ask, tmp_path: Path):
    assert f"({tmp_path}/config.toml [[tools.permissions.bash]] rule 1)" in ask("check git push")
