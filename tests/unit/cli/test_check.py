"""`acp-agent check`: what the sandbox would say, in words, in exit codes and a line at a time."""

import io
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.__main__ import main
from acp_agent.cli.check import SessionJudge, path_gates, path_verdict, url_verdict
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.config.tool_settings import ScrapeSettings
from acp_agent.core.errors import ConfigError, Refused
from acp_agent.core.types import Access, JsonObject
from acp_agent.session.toolset.settings import FolderRules
from acp_agent.workspace.roots import Roots
from tests.fakes.home import move_in
from tests.unit.cli.conftest import COMMAND

SECRETS = "[tools.file]\ndeny_read = ['**/.env', 'secrets', '~/.ssh']\n"


@dataclass
class Done:
    """What one run of the command line came to."""

    code: int | str | None
    out: str
    err: str


Check = Callable[..., Done]


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a configuration of its own and nothing of this machine's."""
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    move_in(monkeypatch, tmp_path, home)
    (tmp_path / "config.toml").write_text("")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def check(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Check:
    """`check("path", "x", config=TOML, stdin=b"...")`."""

    def run(*arguments: str, config: str = "", stdin: bytes = b"") -> Done:
        (tmp_path / "config.toml").write_text(config)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            code: int | str | None = main(["check", *arguments])
        except SystemExit as leaving:
            code = leaving.code
        return Done(code, *capsys.readouterr())

    return run


def grow(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x\n")


# ------------------------------------------------------------------------------------ one path


def test_a_file_that_may_be_read(check: Check, project: Path):
    grow(project, "a.txt")
    (project / "link").symlink_to("a.txt")
    assert check("path", "link") == Done(
        0, f"allowed    read link\nresolved   {project}/a.txt\nreason     a regular file\n", ""
    )


def test_a_denied_file_is_told_with_where_it_is_why_and_which_category(check: Check, project: Path):
    grow(project, "secrets/key")
    (project / "link").symlink_to("secrets/key")
    for extra in ([], ["--write"]):
        done = check("path", "link", *extra, config=SECRETS)
        assert done.code == 1
        assert done.out.splitlines() == [
            f"denied     {'write' if extra else 'read'} link",
            f"resolved   {project}/secrets/key",
            "reason     link: may not be read (tools.file.deny_read)",
            "category   policy_blocked",
        ]


def test_the_project_may_deny_more_and_its_problems_are_told(check: Check, project: Path):
    grow(project, "a.txt", "b.txt")
    (project / ".acp-agent").mkdir()
    (project / ".acp-agent" / "config.toml").write_text("[tools.file]\ndeny_read = ['a.txt']\nallow_read = ['b.txt']\n")
    assert check("path", "a.txt").code == 1
    done = check("path", "b.txt")
    assert done.code == 0
    assert "tools.file.allow_read" in done.err
    assert "a project may only tighten" in done.err


def test_both_readings_of_the_configuration_are_those_of_a_session(check: Check, project: Path):
    grow(project, "secrets/open", "secrets/shut", "other")
    rules = "[tools.file]\ndeny_read = ['secrets']\nallow_read = ['secrets/open']\nread_policy = '{}'\n"
    told = {
        policy: [
            check("path", path, config=rules.format(policy)).code for path in ("secrets/open", "secrets/shut", "other")
        ]
        for policy in ("strict", "carve_out")
    }
    assert told == {"strict": [1, 1, 1], "carve_out": [0, 1, 0]}


def test_other_folders_count_when_they_are_configured(check: Check, tmp_path: Path):
    grow(tmp_path, "shared/a")
    path = str(tmp_path / "shared" / "a")
    assert "outside the directories of this session" in check("path", path).out
    assert check("path", path, config=f"[tools.file]\nallowed_paths = ['{tmp_path}/shared']\n").code == 0


def test_checking_changes_nothing(check: Check, project: Path, tmp_path: Path):
    grow(project, "a.txt")
    os.utime(project / "a.txt", (1, 1))
    before = sorted(tmp_path.rglob("*"))
    for path in ("a.txt", "new", "deep/er/new"):
        assert check("path", path, "--write").code == 0
    assert sorted(tmp_path.rglob("*")) == before, "no data folder either"
    status = (project / "a.txt").stat()
    assert (status.st_mtime, status.st_atime) == (1, 1)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_options_stand_anywhere(check: Check, project: Path, place: int):
    def at(*option: str, words: Sequence[str]) -> list[str]:
        return [*words[:place], *option, *words[place:]]

    written = check(*at("--write", words=("path", "new/a/b")))
    assert (written.code, written.err) == (0, "")
    assert written.out.startswith("allowed    write new/a/b\n")
    found = check(*at("--resolve", "example.com=127.0.0.1", words=("url", "https://example.com/")))
    assert (found.code, found.err) == (1, "")
    assert "127.0.0.1" in found.out
    (project / "rules.json").write_text('[{"pattern": "true", "action": "deny"}]')
    assert check(*at("--rules", "rules.json", words=("command", "true"))).code == 1


@pytest.mark.parametrize("arguments", [["--stdin"], ["command", "--stdin"], ["--stdin", "command"]])
def test_lines_need_no_target(check: Check, arguments: list[str]):
    done = check(*arguments, stdin=b'{"command": "true"}\n')
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["path or url"]),
        (["path"], ["expected path"]),
        (["url"], ["expected url"]),
        (["file", "x"], ["KIND", "'file'"]),
        (["url", "https://x", "--write"], ["--write"]),
        (["path", "x", "--resolve", "a=1.1.1.1"], ["--resolve"]),
        (["url", "https://x", "--resolve", "a"], ["--resolve", "HOST=IP"]),
        (["url", "https://x", "--resolve", "a=b"], ["--resolve", "'b'"]),
        (["url", "https://x", "--resolve", "=1.1.1.1"], ["--resolve", "host"]),
        (["path", "x", "--stdin"], ["--stdin"]),
        (["path", "--stdin", "--write"], ["--stdin"]),
        (["path", "x", "y"], ["y"]),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(check: Check, arguments: list[str], words: list[str]):
    done = check(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("acp-agent: ")
    assert done.err.count("\n") == 1
    assert [word for word in words if word not in done.err] == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("deny_read = ['a/../b']", ["tools.file.deny_read = 'a/../b'", "without .."]),
        ("allow_read = ['[z-a]']", ["tools.file.allow_read = '[z-a]'", "a glob"]),
        ("deny_read = ['a', 5]", ["tools.file.deny_read[1] = 5"]),
        ("deny_read = '**/.env'", ['tools.file.deny_read = "**/.env"', "a list of texts"]),
        ("deny_reed = ['a']", ["tools.file.deny_reed", "deny_read"]),
        ("read_policy = 'loose'", ['tools.file.read_policy = "loose"', '"strict"']),
    ],
)
def test_what_may_not_be_read_must_be_clear_or_nothing_is(check: Check, tmp_path: Path, config: str, words: list[str]):
    done = check("path", "x", config=f"[tools.file]\n{config}\n")
    assert (done.code, done.out) == (1, "")
    assert [word for word in (str(tmp_path / "config.toml"), *words) if word not in done.err] == []


@pytest.mark.parametrize("arguments", [("path", "x"), ("command", "ls")])
def test_a_broken_configuration_is_told_once(check: Check, arguments: tuple[str, str]):
    done = check(*arguments, config="[tools.file\n")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("expected TOML") == 1


# ------------------------------------------------------------------- the directories of a session


@pytest.fixture
def configured(project: Path, tmp_path: Path) -> Callable[[str], Loaded]:
    def read(text: str) -> Loaded:
        (tmp_path / "config.toml").write_text(text)
        return load(Flags(), os.environ, str(project))

    return read


def test_a_problem_elsewhere_and_a_project_that_asks_for_more_stop_no_session(configured, project: Path):
    (project / ".acp-agent").mkdir()
    (project / ".acp-agent" / "config.toml").write_text("[tools.file]\nread_policy = 'carve_out'\n")
    loaded = configured("[agent]\nmax_tool_iterations = 'x'\n[tools.file]\nallowed_paths = 7\n")
    assert len(loaded.problems) == 3
    with FolderRules(loaded, str(project)).roots() as roots:
        assert roots.cwd == str(project)


def test_a_command_meets_what_is_denied_and_no_whitelist(configured, project: Path):
    loaded = configured("[tools.file]\ndeny_read = ['.env']\nallow_read = ['src/**']\n")
    with FolderRules(loaded, str(project)).roots(for_shell=True) as roots:
        assert roots.resolve("status", Access.READ)
        with pytest.raises(Refused, match="deny_read"):
            roots.resolve(".env", Access.READ)
    with FolderRules(loaded, str(project)).roots() as roots, pytest.raises(Refused, match="allow_read"):
        roots.resolve("status", Access.READ)


def test_folders_the_editor_adds_take_relative_patterns_too(configured, project: Path, tmp_path: Path):
    grow(tmp_path, "added/secrets/key", "added/open")
    with FolderRules(configured(SECRETS), str(project), (str(tmp_path / "added"),)).roots() as roots:
        assert roots.resolve(str(tmp_path / "added" / "open"), Access.READ)
        with pytest.raises(Refused, match="deny_read"):
            roots.resolve(str(tmp_path / "added" / "secrets" / "key"), Access.READ)


def test_what_is_the_agents_own_stays_its_own(configured, project: Path, tmp_path: Path):
    loaded = configured(f"[acp]\npermission_file = '{project}/grants.toml'\n")
    with FolderRules(loaded, str(tmp_path)).roots() as roots:
        for path in (
            "config.toml",
            "data/acp-permissions.toml",
            "project/grants.toml",
            "project/.acp-agent/config.toml",
        ):
            with pytest.raises(Refused, match="belongs to the agent"):
                roots.resolve(path, Access.WRITE)


def test_a_broken_pattern_names_the_file_it_comes_from(configured, project: Path):
    loaded = configured("[tools.file]\ndeny_read = ['$HOME/x']\n")
    with pytest.raises(ConfigError, match=r"config\.toml: tools.file.deny_read = '\$HOME/x': expected an absolute"):
        FolderRules(loaded, str(project)).roots()


def test_a_broken_pattern_of_the_project_is_told_and_the_rest_is_judged(check: Check, project: Path):
    (project / ".acp-agent").mkdir()
    (project / ".acp-agent" / "config.toml").write_text("[tools.file]\ndeny_read = ['$HOME/x', 'secret.txt']\n")
    done = check("path", "secret.txt")
    assert done.code == 1
    assert "/.acp-agent/config.toml over " in done.err
    assert "deny_read = '$HOME/x': expected an absolute" in done.err


# --------------------------------------------------------------------------------- hostile paths


def judged(folder: Path, path: object, *, write: bool = False) -> JsonObject:
    with Roots(str(folder)) as roots:
        return path_verdict(path, roots, write=write)


@pytest.mark.parametrize(
    ("path", "category", "words"),
    [
        ("fifo", "permanent_failure", "is a FIFO"),
        ("socket", "permanent_failure", "is a socket"),
        ("folder", "permanent_failure", "is a directory"),
        (".", "permanent_failure", "director"),
        ("loop/x", "policy_blocked", "cannot be resolved"),
        ("file/below", "permanent_failure", "a part of the path is a file"),
        ("dangling", "policy_blocked", "does not exist"),
        ("out/x", "policy_blocked", "outside"),
        ("../outside", "policy_blocked", "outside"),
        ("/proc/self/mem", "policy_blocked", "outside"),
        ("/dev/tty", "policy_blocked", ""),
        ("n" * 300, "invalid_parameters", "longer than 255"),
        ("n/" * 3000, "invalid_parameters", "too long"),
        ("a\0b", "invalid_parameters", "NUL"),
        ("\ud800", "invalid_parameters", "surrogate"),
        ("", "invalid_parameters", "empty"),
        ("~/x", "policy_blocked", "home"),
        ("$HOME/x", "policy_blocked", "variables"),
        ("file:///etc/passwd", "policy_blocked", "URL"),
        (None, "type_mismatch", "NoneType"),
        (7, "type_mismatch", "int"),
        (["x"], "type_mismatch", "list"),
    ],
)
@pytest.mark.parametrize("write", [False, True])
def test_nothing_a_path_says_hangs_or_crashes(project: Path, path: object, category: str, words: str, write: bool):
    os.mkfifo(project / "fifo")
    (project / "folder").mkdir()
    (project / "file").touch()
    (project / "loop").symlink_to("loop")
    (project / "dangling").symlink_to("nowhere")
    (project / "out").symlink_to("..")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        found = judged(project, path, write=write)
    assert (found["verdict"], found["category"]) == ("deny", category)
    assert words in str(found["reason"])
    assert found["path"] == (None if isinstance(path, list) else path)
    assert found["access"] == ("write" if write else "read")
    json.dumps(found).encode("ascii")


def test_what_writing_would_do_is_told(project: Path):
    grow(project, "old")
    assert judged(project, "old", write=True)["reason"] == "replaces a regular file"
    assert judged(project, "new", write=True)["reason"] == "a new file"
    assert judged(project, "a/new", write=True)["reason"] == "a new file, below 1 new directory"
    assert judged(project, "a/b/new", write=True)["reason"] == "a new file, below 2 new directories"
    assert "names a directory" in str(judged(project, "new/", write=True)["reason"])


def test_a_missing_file_cannot_be_read(project: Path):
    found = judged(project, "a/missing")
    assert (found["verdict"], found["category"]) == ("deny", "permanent_failure")
    assert found["resolved"] == f"{project}/a/missing"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_permissions_of_the_file_system_count(project: Path):
    grow(project, "shut/a", "closed", "fixed")
    (project / "closed").chmod(0)
    (project / "fixed").chmod(stat.S_IRUSR)
    (project / "shut").chmod(0o500)
    told = [
        judged(project, path, write=write) for path, write in [("closed", False), ("fixed", True), ("shut/b", True)]
    ]
    (project / "shut").chmod(0o700)
    assert [found["category"] for found in told] == ["policy_blocked"] * 3
    assert all("permission denied" in str(found["reason"]) for found in told)


@given(st.one_of(st.text(max_size=20), st.lists(st.sampled_from(["..", ".", "a", "link", "~", "é"])).map("/".join)))
def test_any_text_gets_a_verdict(tmp_path_factory: pytest.TempPathFactory, path: str):
    folder = tmp_path_factory.getbasetemp()
    for write in (False, True):
        found = judged(folder, path, write=write)
        assert (found["category"] is None) == (found["verdict"] == "allow")
        json.dumps(found).encode("ascii")


# ------------------------------------------------------------------------------- what the gates say


@pytest.fixture
def gated(configured: Callable[[str], Loaded], project: Path) -> Callable[..., JsonObject]:
    """`gated("x", config=TOML)`: the verdict on writing there, or reading."""

    def judge(path: str, config: str = "", *, write: bool = True) -> JsonObject:
        loaded = configured(config)
        cwd = str(project)
        with FolderRules(loaded, cwd).roots() as roots, FolderRules(loaded, cwd).roots(for_shell=True) as shell:
            return path_verdict(path, roots, write=write, gates=path_gates(loaded, roots, shell, pytest.fail))

    return judge


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".envrc", "direnv"),
        ("sub/.envrc", "direnv"),
        (".mise.toml", "mise"),
        ("foo/.vscode/tasks.json", "editor"),
        (".husky/pre-commit", "git"),
        ("evil/HEAD", "git repository"),
    ],
)
def test_where_a_session_would_ask_about_a_protected_path_so_is_told(gated, project: Path, path: str, why: str):
    found = gated(path)
    assert (found["verdict"], found["category"], found["access"]) == ("ask", None, "write")
    assert found["resolved"] == f"{project}/{path}"
    assert f"{path} is protected: " in str(found["reason"])
    assert why in str(found["reason"])
    lifted = gated(path, f"[tools.protection]\nunprotected_paths = ['{path}']\n")
    assert "protected" not in str(lifted["reason"])
    assert lifted["verdict"] == ("ask" if "envrc" in path else "allow"), "it may hold secrets, too"


def test_an_asked_path_is_told_so_with_an_exit_code_of_its_own(check: Check, project: Path):
    done = check("path", "evil/HEAD", "--write")
    assert done.code == 3
    assert done.out.splitlines()[:2] == ["asked      write evil/HEAD", f"resolved   {project}/evil/HEAD"]
    lines = b'{"path": "evil/HEAD", "write": true}\n{"path": "x", "write": true}\n'
    assert [json.loads(line)["verdict"] for line in check("--stdin", stdin=lines).out.splitlines()] == ["ask", "allow"]
    assert not os.path.exists(project / "evil")


def test_a_hard_one_is_denied_and_an_ordinary_one_as_free_as_before(gated):
    assert gated(".git/hooks/pre-commit")["verdict"] == "deny"
    assert gated("src/app.py")["verdict"] == "allow"
    assert gated("mine/x", "[tools.protection]\nprotected_paths = ['mine']\n")["verdict"] == "ask"


def test_where_nothing_is_asked_a_protected_path_is_denied(gated):
    found = gated(".envrc", "[acp]\nauto_approve = 'full-auto'\n")
    assert (found["verdict"], found["category"]) == ("deny", "confirmation_required")


def test_the_policy_and_the_verifiers_are_asked_too(gated, project: Path):
    grow(project, "shut/a", ".env", "free")
    policy = """\
[tools.policy]
enabled = true
default_effect = 'allow'
rules = [{ effect = 'deny', tool = '*', paths = ['shut/*'] }]
"""
    for write in (False, True):
        assert gated("shut/a", policy, write=write)["verdict"] == "deny"
        assert gated(".env", write=write)["verdict"] == "ask"
        assert gated("free", policy, write=write)["verdict"] == "allow"


# ---------------------------------------------------------------------------------- line by line


def answers(folder: Path, lines: Sequence[bytes]) -> list[dict[str, Any]]:
    out = io.StringIO()
    with Roots(str(folder)) as roots:
        SessionJudge(load(Flags(), {}, str(folder)), roots, roots).print_lines(lines, out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_each_line_gets_its_verdict(project: Path):
    grow(project, "a")
    lines = [{"path": "a"}, {"path": "b", "write": True}, {"path": "b", "write": False, "more": 1}, {"path": None}]
    assert answers(project, [json.dumps(line).encode() + b"\n" for line in lines]) == [
        {
            "path": "a",
            "verdict": "allow",
            "resolved": f"{project}/a",
            "access": "read",
            "reason": "a regular file",
            "category": None,
        },
        {
            "path": "b",
            "verdict": "allow",
            "resolved": f"{project}/b",
            "access": "write",
            "reason": "a new file",
            "category": None,
        },
        {
            "path": "b",
            "verdict": "deny",
            "resolved": f"{project}/b",
            "access": "read",
            "reason": "b: no such file or directory",
            "category": "permanent_failure",
        },
        {
            "path": None,
            "verdict": "deny",
            "resolved": None,
            "access": "read",
            "reason": "path: expected a string, got NoneType",
            "category": "type_mismatch",
        },
    ]


@pytest.mark.parametrize(
    ("line", "category", "words"),
    [
        (b"nope", "invalid_parameters", "JSON"),
        (b"", "invalid_parameters", "JSON"),
        (b'{"path": "\xff"}', "invalid_parameters", "UTF-8"),
        (b"[" * 100_000, "invalid_parameters", "JSON"),
        (b'{"path": NaN}', "invalid_parameters", "NaN"),
        (b'{"path": 1' + b"0" * 5000 + b"}", "invalid_parameters", "JSON"),
        (b"[]", "type_mismatch", "got a list"),
        (b'"x"', "type_mismatch", "got a string"),
        (b"null", "type_mismatch", "got null"),
        (b"{}", "invalid_parameters", "either"),
        (b'{"path": "a", "url": "https://a"}', "invalid_parameters", "either"),
        (b'{"path": "a", "write": "yes"}', "type_mismatch", "write"),
        (b'{"path": "a", "write": null}', "type_mismatch", "write"),
        (b'{"url": "https://a", "dns": []}', "type_mismatch", "dns"),
        (b'{"url": "https://a", "dns": {"a": ["1.1.1.1"]}}', "type_mismatch", "dns"),
        (b'{"url": "https://a", "dns": {"a": [[1]]}}', "type_mismatch", "dns"),
        (b'{"url": 5}', "type_mismatch", ""),
        (b'{"path": 1e999}', "type_mismatch", "float"),
    ],
)
def test_a_line_that_asks_nothing_sensible_is_denied_and_the_next_one_judged(
    project: Path, line: bytes, category: str, words: str
):
    grow(project, "a")
    bad, good = answers(project, [line + b"\n", b'{"path": "a"}\n'])
    assert (bad["verdict"], bad["category"]) == ("deny", category)
    assert words in bad["reason"]
    assert good["verdict"] == "allow"


def test_urls_are_judged_with_the_answers_given(check: Check):
    lines = [
        {"url": "https://a.example/x", "dns": {"a.example": [["93.184.216.34"]]}},
        {"url": "https://a.example/x", "dns": {"a.example": [["93.184.216.34", "127.0.0.1"]]}},
        {"url": "http://a.example/x", "dns": None},
        {"path": "x", "write": True},
    ]
    done = check("--stdin", stdin="".join(json.dumps(line) + "\n" for line in lines).encode())
    assert (done.code, done.err) == (0, "")
    assert [json.loads(line)["verdict"] for line in done.out.splitlines()] == ["allow", "deny", "deny", "allow"]
    for kind in ("path", "url"):
        assert check(kind, "--stdin", stdin=b'{"path": "x", "write": true}').code == 0


def test_one_url_by_hand(check: Check):
    done = check("url", "https://a.example/x", "--resolve", "a.example=93.184.216.34,93.184.216.35")
    assert done.code == 0
    assert done.out.startswith("allowed    get https://a.example/x\naddresses  93.184.216.34, 93.184.216.35\n")
    done = check("url", "https://a.example/x", "--resolve", "a.example=10.0.0.1")
    assert done.code == 1
    assert "category   policy_blocked\n" in done.out


def test_a_real_process_needs_no_model_and_answers_before_the_next_line_is_asked(environment, home: Path):
    grow(home, "a.txt", ".ssh/id")
    (home / "c.toml").write_text(SECRETS)
    process = subprocess.Popen(
        [*COMMAND, "--config", "c.toml", "check", "--stdin"],
        env=environment,
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for path, said in (("a.txt", "allow"), (".ssh/id", "deny")):
        print(json.dumps({"path": path}), file=process.stdin, flush=True)
        assert json.loads(process.stdout.readline())["verdict"] == said
    assert process.communicate(timeout=50) == ("", None)
    assert process.returncode == 0


pytestmark = pytest.mark.anyio

PLAIN = ScrapeSettings()


async def test_a_public_host_is_allowed_with_the_addresses_of_the_first_look_up() -> None:
    dns = {"EXAMPLE.com.": [["93.184.216.34", "2606:4700:4700::1111"], ["127.0.0.1"]]}
    assert await url_verdict("https://Example.com/x?y#z", PLAIN, dns) == {
        "url": "https://Example.com/x?y#z",
        "verdict": "allow",
        "reason": "a public host",
        "category": None,
        "host": "example.com",
        "addresses": ["93.184.216.34", "2606:4700:4700::1111"],
    }


async def test_a_host_with_a_private_address_is_denied_and_the_reason_names_it() -> None:
    said = await url_verdict("https://example.com/", PLAIN, {"example.com": [["93.184.216.34", "10.0.0.7"]]})
    assert (said["verdict"], said["category"], said["host"]) == ("deny", "policy_blocked", "example.com")
    assert said["reason"] == "example.com is at 10.0.0.7, which is no public address (a private network)"
    assert said["addresses"] == []


@pytest.mark.parametrize("dns", [{}, {"example.com": []}, {"example.com": [[]]}, {"other.com": [["8.8.8.8"]]}])
async def test_a_host_without_an_answer_cannot_be_resolved(dns: dict[str, list[list[str]]]) -> None:
    said = await url_verdict("https://example.com/", PLAIN, dns)
    assert (said["verdict"], said["category"]) == ("deny", "policy_blocked")
    assert said["reason"] == "example.com cannot be resolved"


async def test_names_in_other_scripts_are_found_in_either_form() -> None:
    for key in ("bücher.de", "xn--bcher-kva.de", "BÜCHER.DE."):
        said = await url_verdict("https://Bücher.de/", PLAIN, {key: [["8.8.8.8"]]})
        assert (said["verdict"], said["host"]) == ("allow", "xn--bcher-kva.de")


@pytest.mark.parametrize(("url", "kind"), [(None, "NoneType"), (7, "int"), ({"a": 1}, "dict"), (b"https://x", "bytes")])
async def test_what_is_no_string_is_a_type_mismatch(url: object, kind: str) -> None:
    said = await url_verdict(url, PLAIN, {})
    assert (said["verdict"], said["category"], said["url"]) == ("deny", "type_mismatch", None)
    assert said["reason"] == f"a URL is a string, not {kind}"


@pytest.mark.parametrize("url", ["https://127.0.0.1/", "https://[::1]/", "https://8.8.8.8/"])
async def test_an_address_is_judged_without_a_look_up(url: str) -> None:
    said = await url_verdict(url, PLAIN, None)  # a real look-up would be made here, were there one
    assert said["verdict"] == ("allow" if "8.8" in url else "deny")
    assert said["addresses"] == (["8.8.8.8"] if "8.8" in url else [])


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "017700000001", "127.1"])
async def test_an_odd_spelling_of_an_address_is_told_as_one(host: str) -> None:
    said = await url_verdict(f"https://{host}/", PLAIN, {host: [["8.8.8.8"]]})
    assert said["verdict"] == "deny"
    assert "an unusual spelling of an IP address" in str(said["reason"])


async def test_without_scripted_answers_the_resolver_of_this_machine_is_asked() -> None:
    # .invalid is never delegated (RFC 6761), so every resolver knows the answer, even without a network
    said = await url_verdict("https://no-such-host.invalid/", PLAIN, None)
    assert said["reason"] == "no-such-host.invalid cannot be resolved"


async def test_the_settings_decide_domains_and_ports() -> None:
    settings = ScrapeSettings(
        allowed_domains=("*.example.com",), denied_domains=("bad.example.com",), ports=(443, 8443)
    )
    dns = {host: [["8.8.8.8"]] for host in ("a.example.com", "bad.example.com", "example.org")}
    verdicts = {
        url: (await url_verdict(url, settings, dns))["verdict"]
        for url in (
            "https://a.example.com:8443/",
            "https://bad.example.com/",
            "https://example.org/",
            "https://a.example.com:444/",
        )
    }
    assert list(verdicts.values()) == ["allow", "deny", "deny", "deny"]


async def test_a_domain_setting_nobody_can_read_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="allowed_domains"):
        await url_verdict("https://example.com/", ScrapeSettings(allowed_domains=("https://x",)), {})
