"""`acp-agent check command`: the verdict of a session's own gates, in words, in exit codes and a line at a time."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.__main__ import main
from acp_agent.cli.check_command import CommandJudge
from acp_agent.config.load import Flags, Loaded, load, options_at_start
from acp_agent.gates.blocklist import BlocklistPolicy
from acp_agent.gates.blocklist import judge as blocked
from acp_agent.gates.rules.permission_rules import Action, Rule
from acp_agent.gates.rules.permission_rules import judge as settled
from acp_agent.gates.shell.command import ShellText
from acp_agent.session.toolset.settings import FolderRules, permission_rules
from acp_agent.workspace.sandbox.sandbox import SandboxTier, sandbox_tier, tier_works
from tests.fakes.home import move_in
from tests.sizes import sized
from tests.unit.cli.conftest import COMMAND
from tests.unit.gates import everyday, hostile
from tests.unit.gates.chain import Chain, command, rules
from tests.unit.gates.hostile_calls import ASKED, CALLS, CONFIG

GIT = """\
[[tools.permissions.bash]]
pattern = 'git push*'
action = 'deny'
[[tools.permissions.bash]]
pattern = 'git *'
action = 'allow'
"""


@dataclass
class Done:
    """What one run of the command line came to."""

    code: int | str | None
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Check = Callable[..., Done]


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a configuration of its own and nothing of this machine's."""
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    move_in(monkeypatch, tmp_path, home)
    monkeypatch.setenv("ACP_AGENT_TOOLS__SANDBOX__MODE", "off")
    (tmp_path / "config.toml").write_text("")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def check(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Check:
    """`check("ls", config=TOML)` of one command, or `check("--stdin", stdin=[objects or bytes])`."""

    def run(*arguments: str, config: str = "", stdin: tuple[object, ...] = ()) -> Done:
        (tmp_path / "config.toml").write_text(config)
        lines = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in stdin]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"".join(line + b"\n" for line in lines))))
        try:
            code: int | str | None = main(["check", "command", *arguments])
        except SystemExit as leaving:
            code = leaving.code
        told = capsys.readouterr()
        return Done(code, told.out, told.err)

    return run


# ---------------------------------------------------------------------------------- one command


@pytest.mark.skipif(tier_works(SandboxTier.SEATBELT), reason="it works on this machine")
def test_a_strict_sandbox_that_cannot_be_built_denies(check: Check, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ACP_AGENT_TOOLS__SANDBOX__MODE", "seatbelt")
    strict = check("ls", config="tools.sandbox.strict = true")
    assert (strict.code, "commands are refused" in strict.out, "level" in strict.out) == (1, True, False)
    assert "sandbox    none; " in check("ls").out


def test_a_blocked_command_names_the_pattern(check: Check):
    assert check("echo hi && sudo ls", config="[tools.shell]\nallowed_commands = ['sudo']\n") == Done(
        1,
        "blocked    echo hi && sudo ls\n"
        "rule       sudo\n"
        "reason     the command is blocked, because it matches 'sudo'\n"
        "runs       echo hi\n"
        "runs       && sudo ls\n"
        "           starts ls\n",
        "",
    )


def test_the_configured_rules_decide_and_the_deciding_one_is_named(check: Check):
    denied = check("git push --force", config=GIT).out.splitlines()
    assert denied[:2] == ["denied     git push --force", "rule       git push*"]
    assert denied[2].startswith("reason     a permission rule denies this call: 'git push*' (/")
    assert denied[2].endswith("/config.toml [[tools.permissions.bash]] rule 1)")
    allowed = check("git status; git log -1", config=GIT)
    assert (allowed.code, allowed.out.splitlines()[:3]) == (
        0,
        ["allowed    git status; git log -1", "rule       git *", "reason     rules allow all of it"],
    )
    asked = check("git log > out | make", config=GIT)
    assert asked.code == 3
    assert asked.out.splitlines()[:3] == [
        "asked      git log > out | make",
        "reason     writes to out",
        "reason     no rule allows 'make'",
    ]
    assert "runs       git log >out\nruns       | make\n" in asked.out


def test_a_rule_that_asks_is_named(check: Check):
    config = "[[tools.permissions.bash]]\npattern = 'make *'\naction = 'ask'\n"
    assert "rule       make *\n" in check("make deploy", config=config).out


def test_what_cannot_be_told_is_opaque_and_asks(check: Check):
    done = check("for x in 1; do ls; done")
    assert done.code == 3
    assert "opaque     uses a loop\n" in done.out


def test_the_levels_with_another_verdict_are_named(check: Check):
    assert check("make").out.endswith("level      this is for suggest; full-auto: allowed\n")
    assert check("cat ../../x").out.count("level") == check("ls").out.count("level") == 0
    free = check("make", config="acp.auto_approve = 'full-auto'").out
    assert "this is for full-auto; suggest: asked" in free
    assert "full-auto (acp.auto_approve, tools.autonomy_level): nothing asks" in free


@pytest.mark.skipif(sandbox_tier() is SandboxTier.NONE, reason="no sandbox can be built on this machine")
def test_the_sandbox_of_this_machine_counts_as_it_is_configured(check: Check, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ACP_AGENT_TOOLS__SANDBOX__MODE")
    asked = check("rm x")
    assert (asked.code, asked.out.splitlines()[-2:]) == (
        3,
        [
            f"sandbox    {sandbox_tier()}, profile workspace",
            "level      this is for suggest; auto-edit: allowed; full-auto: allowed",
        ],
    )
    level = "acp.auto_approve = 'auto-edit'\n"
    free = check("rm x", config=level)
    assert (free.code, "nothing asks about it within the sandbox" in free.out) == (0, True)
    assert check("git stash drop", config=level).code == 3
    assert check("cat /etc/hostname", config=level).code == 0
    assert check("rm x", config=f"{level}tools.sandbox.mode = 'off'\n").code == 3


def test_mode_approval_level_stored_answers_and_the_sandbox_count_as_in_a_session(check: Check, tmp_path: Path):
    assert check("ls", config="acp.mode = 'ask'").code == 0
    assert "Read only mode ('ask') runs only commands that read" in check("make", config="acp.mode = 'ask'").out
    free = check("make", config="acp.auto_approve = 'full-auto'")
    assert (free.code, "full-auto" in free.out) == (0, True)
    assert check("cat ../../x", config="acp.auto_approve = 'full-auto'").code == 1
    assert "outside the workspace: /etc/hostname" in check("cat /etc/hostname").out
    (tmp_path / "grants.toml").write_text('[tools.bash.patterns]\n"make test" = "allow"\n"make drop" = "deny"\n')
    config = f"acp.permission_file = '{tmp_path}/grants.toml'"
    assert '"always"' in check("make test -j2", config=config).out
    assert check("make drop", config=config).code == 1


def test_the_policy_and_the_verifiers_count_too(check: Check):
    policy = "[tools.policy]\nenabled = true\n[[tools.policy.rules]]\neffect = 'deny'\ntool = 'bash'\n"
    denied = check("ls", config=policy)
    assert (denied.code, denied.out.splitlines()[0]) == (1, "denied     ls")
    allow = "[[tools.permissions.bash]]\npattern = '*'\naction = 'allow'\n"
    for text, code in (("git clean -fdx", 3), ("cat ~/.ssh/id_rsa", 1), ("cat README", 0)):
        assert check(text, config=allow).code == code, text


def test_what_git_would_bring_into_a_protected_place_asks(check: Check, project: Path):
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], check=True, cwd=project)

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "one")
    git("checkout", "-q", "-b", "other")
    (project / ".husky").mkdir()
    (project / ".husky" / "pre-commit").write_text("true\n")
    git("add", ".")
    git("commit", "-q", "-m", "two")
    git("checkout", "-q", "main")
    allowed = "[[tools.permissions.bash]]\npattern = 'git *'\naction = 'allow'\n"
    asked = check("git checkout other", config=allowed)
    assert (asked.code, "git would bring or change .husky/pre-commit" in asked.out) == (3, True)
    assert check("git checkout other", config=f"{allowed}[acp]\nauto_approve = 'full-auto'\n").code == 1
    assert check("git checkout main", config=allowed).code == 0


def test_a_broken_rule_is_told_with_its_file_and_number_and_the_tool_asks(check: Check, tmp_path: Path):
    done = check("git status", config=GIT + "[[tools.permissions.bash]]\npattern = '['\naction = 'deny'\n")
    assert done.code == 3
    assert f"{tmp_path}/config.toml [[tools.permissions.bash]] rule 3: pattern = [: expected a glob" in done.err


def test_checking_runs_and_changes_nothing(check: Check, tmp_path: Path):
    before = sorted(tmp_path.rglob("*"))
    for text in ("touch x", "touch x > y"):
        check(text, config="acp.auto_approve = 'full-auto'")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "text", ["", " ", "x" * 70_000, "ls; " * 20_000, "(" * 500, "\udcff", "a\x1b[31mb", "\u202els", "'", "$(", "ls\r\n"]
)
def test_no_text_crashes_it_and_nothing_a_terminal_acts_on_is_printed(check: Check, text: str):
    done = check(text)
    assert done.code in (1, 3)
    assert done.out.replace("\n", "").isprintable()
    assert done.err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected command and what to check"),
        (["ls", "--write"], "--write"),
        (["ls", "--resolve", "a=1.1.1.1"], "--resolve"),
        (["ls", "--stdin"], "--stdin"),
        (["ls", "x"], "x"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(check: Check, arguments: list[str], words: str):
    done = check(*arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_rules_are_for_commands(project: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as leaving:
        main(["check", "path", "x", "--rules", "y"])
    assert leaving.value.code == 2
    assert "--rules" in capsys.readouterr().err


# --------------------------------------------------------------------------------- rules of a file


def test_rules_of_a_file_take_the_place_of_the_configured_ones_and_of_stored_answers(check: Check, tmp_path: Path):
    (tmp_path / "rules.json").write_text('[{"pattern": "ls*", "action": "allow"}]')
    (tmp_path / "rules.toml").write_text("[[tools.permissions.bash]]\npattern = 'ls*'\naction = 'allow'\n")
    (tmp_path / "grants.toml").write_text('[tools.bash.patterns]\n"make test" = "allow"\n')
    config = f"acp.permission_file = '{tmp_path}/grants.toml'\n{GIT}"
    for name in ("rules.json", "rules.toml"):
        file = str(tmp_path / name)
        assert check("ls -l", "--rules", file, config=config).code == 0
        assert check("git add x", "--rules", file, config=config).code == 3
        assert check("make test", "--rules", file, config=config).code == 3
        assert check("sudo ls", "--rules", file, config=config).code == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"pattern": "[", "action": "deny"}]', "rule 1: pattern = [: expected a glob"),
        ('[{"pattern": "ls", "action": "alow"}]', 'expected one of "allow", "ask", "deny"'),
        ('[{"pattern": "ls"}]', "action"),
        ('[{"pattern": "", "action": "ask"}]', "pattern"),
        ('[{"pattern"', "expected JSON"),
        ("[[tools.permissions.bash]", "expected TOML"),
        ("[tools]\nx = 1", "expected [[tools.permissions.bash]] in it"),
        ("5", "a list of tables"),
        ("\udcff", "expected UTF-8"),
        ("[" * 50_000, "expected"),
        (" " * (1 << 20) + "[]", "at most"),
    ],
)
def test_a_file_that_holds_no_rules_says_so(check: Check, tmp_path: Path, text: str, words: str):
    (tmp_path / "rules").write_bytes(text.encode(errors="surrogateescape"))
    done = check("ls", "--rules", str(tmp_path / "rules"))
    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert done.err.startswith(f"acp-agent: {tmp_path}/rules")
    assert done.err.count("\n") == 1


def test_a_file_that_is_not_there_says_so(check: Check, tmp_path: Path):
    done = check("ls", "--rules", str(tmp_path / "none"))
    assert (done.code, "No such file" in done.err) == (1, True)


# ------------------------------------------------------------------------------- line by line


def test_each_line_gets_its_verdict_by_its_own_rules_or_the_configured_ones(check: Check):
    push = {"pattern": "git push*", "action": "deny"}
    done = check(
        "--stdin",
        config=GIT,
        stdin=(
            {"command": "git status && git log -1"},
            {"command": "git status", "rules": []},
            {"command": "git add x", "rules": []},
            {"command": "git push", "rules": [push]},
            {"command": "rm -rf /", "rules": [{"pattern": "*", "action": "allow"}]},
            {"command": "cd $x", "rules": None},
        ),
    )
    assert (done.code, done.err) == (0, "")
    assert done.lines == [
        {
            "command": "git status && git log -1",
            "verdict": "allow",
            "rule": "git *",
            "reasons": ["rules allow all of it"],
            "commands": [["git", "status"], ["git", "log", "-1"]],
            "opaque": None,
        },
        {
            "command": "git status",
            "verdict": "allow",
            "rule": None,
            "reasons": ["it only reads"],
            "commands": [["git", "status"]],
            "opaque": None,
        },
        {
            "command": "git add x",
            "verdict": "ask",
            "rule": None,
            "reasons": ["no rule allows 'git add x'"],
            "commands": [["git", "add", "x"]],
            "opaque": None,
        },
        {
            "command": "git push",
            "verdict": "deny",
            "rule": "git push*",
            "reasons": ["a permission rule denies this call: 'git push*' (\"rules\" rule 1)"],
            "commands": [["git", "push"]],
            "opaque": None,
        },
        {
            "command": "rm -rf /",
            "verdict": "blocked",
            "rule": "rm -rf /",
            "reasons": ["the command is blocked, because it matches 'rm -rf /'"],
            "commands": [["rm", "-rf", "/"]],
            "opaque": None,
        },
        {
            "command": "cd $x",
            "verdict": "ask",
            "rule": None,
            "reasons": ["cannot be checked: it uses a variable"],
            "commands": None,
            "opaque": "uses a variable",
        },
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"nope", "JSON"),
        (b"[]", "got a list"),
        (b"{}", "expected either"),
        (b'{"command": "ls", "path": "x"}', "expected either"),
        (b'{"command": 5}', "got a number"),
        (b'{"command": null}', "got null"),
        (b'{"command": "ls", "rules": {}}', "list of tables"),
        (b'{"command": "ls", "rules": [5]}', "rules"),
        (b'{"command": "ls", "rules": [{"pattern": "[", "action": "deny"}]}', "glob"),
        (b'{"command": "ls", "rules": [{"pattern": "x", "action": "no"}]}', "one of"),
        (b'{"command": "ls", "rules": [{"pattern": "x", "action": "deny", "more": 1}]}', "more"),
        (b'{"command": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "JSON"),
    ],
)
def test_a_bad_line_is_an_error_and_the_next_one_is_judged(check: Check, line: bytes, words: str):
    bad, good = check("--stdin", stdin=(line, {"command": "make"})).lines
    assert bad["verdict"] == "error"
    assert bad["reason"].startswith("line 1: ")
    assert words in bad["reason"]
    assert good["verdict"] == "ask"


def test_without_a_kind_lines_of_all_kinds_are_judged(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    lines = b'{"path": "new", "write": true}\n{"command": "sudo x"}\n{"command": 1}\n{"path": 1}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(["check", "--stdin"]) == 0
    told = [json.loads(line)["verdict"] for line in capsys.readouterr().out.splitlines()]
    assert told == ["allow", "blocked", "error", "deny"]


# --------------------------------------------------------------------- the engine of live sessions


@contextmanager
def judging(project: Path, config: str = "") -> Generator[tuple[CommandJudge, Loaded]]:
    """The judge a session's folder has by this configuration."""
    (project.parent / "config.toml").write_text(config)
    loaded = load(Flags(), os.environ, str(project))
    assert loaded.problems == ()
    with (
        FolderRules(loaded, str(project)).roots() as files,
        FolderRules(loaded, str(project)).roots(for_shell=True) as shell,
    ):
        yield CommandJudge(loaded, files, shell, pytest.fail), loaded


@pytest.fixture
def judge(project: Path):
    with judging(project) as (made, _):
        yield made


def test_a_tool_nobody_is_offered_is_denied_as_in_a_session(project: Path):
    with judging(project, "[tools]\nprofile = 'minimal'\n") as (judge, _):
        assert judge.verdict("ls", rules("*")).word == "deny"


FATES = {"blocked": "blocked", "refused": "deny", "asked": "ask", "silent": "allow"}


def test_the_command_of_a_custom_tool_has_the_verdict_that_it_has_by_itself(project: Path):
    lines = (*hostile.U[::9], *(line for line, _ in (*hostile.A[::4], *hostile.B[::6], *hostile.C[::6])), "ls", "make")
    with judging(project, GIT) as (judge, _):
        for line in lines:
            assert judge.verdict(line, custom="custom") == judge.verdict(line), line


DEPLOY = """
description = "Deploy"
command = ["./deploy.sh", "{{env}}", "{{times}}", "{{files}}", "{{dry}}", "{{name}}"]
env = ["TOKEN"]
[parameters.properties]
env = { type = "string", enum = ["staging", "live"] }
times = { type = "integer", minimum = 2 }
files = { type = "array", minItems = 2 }
dry = { type = "boolean" }
name = { type = "string", maxLength = 3 }
"""


def test_a_custom_tool_is_checked_with_an_example_and_what_the_gates_say(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = project / "deploy.toml"
    file.write_text(DEPLOY)
    assert main(["tools", "check", "deploy.toml"]) == 3
    schema, _, rest = capsys.readouterr().out.partition("\n}\n")
    assert json.loads(schema + "}")["parameters"]["properties"]["env"]["enum"] == ["staging", "live"]
    asked = "asked      ./deploy.sh 'staging' '2' 'files' 'files' 'true' 'nam'"
    example = '{"env": "staging", "times": 2, "files": ["files", "files"], "dry": true, "name": "nam"}'
    assert rest.splitlines()[:2] == [f"example    {example}", asked]
    assert "variable   TOKEN is not passed on to commands" in rest
    (tmp_path / "config.toml").write_text("[[tools.permissions.deploy]]\npattern = '*live*'\naction = 'deny'\n")
    assert main(["tools", "check", "deploy.toml", '{"env": "live"}']) == 1
    assert "denied     ./deploy.sh 'live'\n" in capsys.readouterr().out
    assert main(["tools", "check", "deploy.toml", '{"env": "prod"}']) == 1
    assert 'deploy: env = "prod" (expected one of staging, live)' in capsys.readouterr().err
    file.write_text(DEPLOY.replace("minItems", "least").replace("TOKEN", "A=b"))
    assert main(["tools", "check", "deploy.toml"]) == 1
    told = capsys.readouterr().err
    assert "deploy.toml: env: expected names of variables, without values" in told
    assert "parameters.properties.files.least: expected only" in told


@pytest.fixture
def attacked(project: Path, tmp_path: Path) -> Path:
    """The folder as the tables of commands have it."""
    for name in ("src", "a", "vault"):
        (project / name).mkdir()
    (project / "link-out").symlink_to(tmp_path)
    return project


@pytest.mark.anyio
async def test_the_verdict_is_what_becomes_of_the_call_in_a_session(attacked: Path, tmp_path: Path):
    few = sized(2, 1)
    table = [*hostile.A[:: 4 * few], *hostile.B[:: 4 * few], *hostile.C[:: 3 * few]]
    table += [(text, ("*",)) for text in hostile.U[:: 5 * few]]
    table += [(text, everyday.RULES) for text in everyday.COMMANDS[:: 5 * few]]
    table += [(str(arguments["command"]), ("*", "git *", "cp *")) for _, arguments in ASKED]
    with judging(attacked) as (judge, loaded):
        chain = Chain(str(attacked), str(tmp_path / "grants"), loaded=loaded)
        for text, patterns in table:
            given = rules(*patterns)
            chain.permission.rules = {chain.tool: given}
            verdict = await anyio.to_thread.run_sync(judge.verdict, text, given)
            assert verdict.word == FATES[await chain.fate(command(text))], text


@pytest.mark.anyio
async def test_it_is_so_also_by_a_configuration_that_denies_in_every_way(attacked: Path, tmp_path: Path):
    calls = [*ASKED, *(call for _, each in CALLS.values() for call in each)]
    texts = [str(arguments["command"]) for tool, arguments in calls if tool == "bash"]
    with judging(attacked, CONFIG) as (judge, loaded):
        chain = Chain(str(attacked), str(tmp_path / "grants"), conduct=options_at_start(loaded), loaded=loaded)
        for text in (*texts, "ls", "git status; cat a/x"):
            verdict = await anyio.to_thread.run_sync(judge.verdict, text)
            assert verdict.word == FATES[await chain.fate(command(text))], text
            assert (verdict.word == "allow") == (text not in texts), text


@given(
    st.text(st.characters(codec=None), max_size=40),
    st.sampled_from(["*", "git *", "*x*"]),
    st.sampled_from(list(Action)),
)
def test_any_text_gets_a_verdict_and_what_is_blocked_stays_so_under_any_rule(
    judge: CommandJudge, text: str, pattern: str, action: Action
):
    verdict = judge.verdict(text, (Rule.parse(pattern, action),))
    json.dumps(verdict.to_json()).encode("ascii")
    list(verdict.lines())
    bare = judge.verdict(text, ())
    assert (bare.word == "blocked") == (verdict.word == "blocked")
    assert bare.word != "allow" or bare.reasons == ("it only reads",)
    if verdict.word == "allow" and verdict.reasons != ("it only reads",):
        assert action is Action.ALLOW
        assert verdict.rule == pattern
    assert (verdict.word == "blocked") >= (type(blocked(ShellText(text), BlocklistPolicy())).__name__ == "Deny")


def test_rules_of_the_configuration_compile_as_a_session_has_them(check: Check, project: Path, tmp_path: Path):
    check(
        "ls",
        config=GIT.replace("permissions.bash", "permissions.shell")
        + "[[tools.permissions.nosuch]]\npattern='x'\naction='ask'\n",
    )
    warnings: list[str] = []
    compiled = permission_rules(load(Flags(), os.environ, str(project)), warnings.append, ("bash", "read"))
    assert [rule.pattern for rule in compiled["bash"]] == ["git push*", "git *"]
    assert warnings == ["[tools.permissions.nosuch]: there is no tool of that name (bash, read)"]


def test_a_real_process_answers_before_the_next_line_is_asked(environment: dict[str, str], home: Path):
    process = subprocess.Popen(
        [*COMMAND, "check", "command", "--stdin"],
        env=environment,
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text, word in (("make", "ask"), ("sudo ls", "blocked")):
            process.stdin.write(json.dumps({"command": text}).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["verdict"] == word
        process.stdin.close()
        assert process.wait(timeout=20) == 0


# ------------------------------------------------------------------------------------ the documentation

RULES_PAGE = Path(__file__).parents[3] / "docs" / "rules.md"


def test_every_row_of_the_worked_examples_is_true(check: Check):
    page = RULES_PAGE.read_text()
    config = next(block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "permissions.bash" in block)
    shown = re.findall(r"^\| `([^`]+)` \| (allowed|asked|denied|blocked) \| ", page, re.MULTILINE)
    assert len(shown) >= 20
    told = check("--stdin", config=config, stdin=tuple({"command": text} for text, _ in shown)).lines
    words = {"allow": "allowed", "ask": "asked", "deny": "denied", "blocked": "blocked"}
    assert [(line["command"], words[line["verdict"]]) for line in told] == shown


def test_what_the_page_says_of_always_is_true():
    page = RULES_PAGE.read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (`.*`) \|$", page, re.MULTILINE)
    assert len(rows) >= 7
    for granted, destroying in rows:
        prefix = settled(ShellText(granted), (), lambda _: None).needed
        assert prefix, granted
        for form in re.findall(r"`([^`]+)`", destroying):
            whole = form if form.startswith(prefix[0]) else f"{prefix[0]} {form}"
            found = settled(ShellText(whole), (), dict.fromkeys(prefix, True).get)
            assert (found.action, found.needed) == (None, ()), whole


def test_a_check_of_a_command_loads_no_session():
    code = "import sys, acp_agent.cli.check_command; print({each for each in sys.modules if 'session.' in each})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = re.findall(r"acp_agent\.session\.([\w.]+)", done.stdout)
    assert set(loaded) == {"toolset", "toolset.gate_factory", "toolset.sandboxing", "toolset.settings", "verdicts"}
