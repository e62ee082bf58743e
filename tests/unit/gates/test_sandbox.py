"""Paths of calls and commands against the roots of a session."""

import os
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.core.errors import Refused, ToolErrorCategory
from acp_agent.core.types import Access, Allow, ApprovedBy, Ask, CommandSubject, Deny, PathSubject, Ruling, ToolResult
from acp_agent.gates.gate import CallFacts, Gates
from acp_agent.gates.paths.command_paths import MAX_WORDS
from acp_agent.gates.paths.links import without_made
from acp_agent.gates.sandbox import SandboxGate
from acp_agent.workspace.command_files import shell_names
from acp_agent.workspace.sandbox.sandbox import wall_named
from tests.rows import each_row
from tests.unit.gates.chain import Judged, call, command, inside
from tests.unit.gates.paths.test_link_doubts import gate_of

pytestmark = pytest.mark.anyio


def gate_in(root: str) -> Judged:
    resolve = inside(root)
    return Judged(SandboxGate(resolve, resolve), expand=partial(shell_names, resolve=resolve))


@pytest.fixture
def gate(tmp_path):
    root = tmp_path / "work"
    (root / "a" / "b").mkdir(parents=True)
    (root / "src").mkdir()
    (tmp_path / "other").mkdir()
    (root / "link-out").symlink_to(tmp_path / "other")
    (root / "link-in").symlink_to(root / "src")
    resolve = inside(str(root))
    return Judged(SandboxGate(resolve, resolve), expand=partial(shell_names, resolve=resolve))


async def test_a_tools_own_path_must_resolve_inside(gate: Judged):
    for path in ("src/x.py", "src/../a/new", "link-in/x"):
        assert gate.judge(call("write", PathSubject(path, Access.WRITE))) == Allow()
    for path in ("/etc/passwd", "../x", "a/../../x", "link-out/x", "link-out"):
        result = await gate.execute(call("read", PathSubject(path, Access.READ)))
        assert result.failure is not None
        assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
        assert path in result.failure.message


def test_a_path_is_resolved_for_the_access_that_the_tool_wants():
    def resolve(path: str, access: Access) -> str:
        if access.changes:
            raise Refused(f"{path}: may only be read")
        return path

    gate = Judged(SandboxGate(resolve, resolve))
    assert gate.judge(call("read", PathSubject("x", Access.READ))) == Allow()
    assert gate.judge(call("write", PathSubject("x", Access.WRITE))) == Deny("x: may only be read")


@each_row(
    "text",
    [
        "cat src/x.py",
        "cat ./src/x.py a/b/../c",
        "cat link-in/x",
        "ls > /dev/null 2>&1 < /dev/null",
        "cat /dev/urandom | head -c 5",
        "cd a && cat ../src/x.py",
        "cd a && cd b && cat ../../src/x.py",
        "(cd a && cat ../src/x)",
        "bash -c 'cd a && cat ../src/x'",
        "grep -rn '../x' src",
        "grep -rn -- /etc/passwd-like src",
        "sed -n '/start/,/../p' src/x",
        "awk '/..\\/x/' src/x",
        "rg '/usr/include' src",
        "echo ../x /etc/passwd",
        "git log HEAD~2..HEAD -- src",
        "git diff main...dev",
        "curl https://example.com/../x",
        "/usr/bin/git status",
        "git commit -m 'see a/../../b, not /etc'",
        "find . -path './a/*'",
        "gcc -Isrc/include -Lbuild/lib -obuild/app x.c",
        "x86_64-linux-gnu-gcc -Isrc/usr x.c",
        "cmake -Bbuild/debug -S.",
        "make -Csrc/etc",
        "git log -n5 -Gsrc/x",
        "sed -es/a/b/ src/x",
        "ls -la src/*",
        "ls a/*/*",
        "cat src/*.py a/**/c",
        "grep -rn 'l*' src",
        "find . -name 'l*'",
        "rm -rf .??* .[!.]*",
    ],
)
def test_ordinary_commands_are_not_asked_about(gate: Judged, text: str):
    assert gate.judge(command(text)) == Allow()


@each_row(
    "text, path",
    [
        ("cat /etc/passwd", "/etc/passwd"),
        ("ls /usr/include", "/usr/include"),
        ("cat ~/.ssh/id_rsa", "~/.ssh/id_rsa"),
        ("cat ~nobody/x", "~nobody/x"),
        ("cat link-out/x", "link-out/x"),
        ("cat link-out", "link-out"),
        ("cat < /etc/passwd", "/etc/passwd"),
        ("echo x > /etc/motd", "/etc/motd"),
        ("gcc -I/usr/include x.c", "/usr/include"),
        ("git --git-dir=/other/.git log", "/other/.git"),
        ("dd of=/tmp/x", "/tmp/x"),
        ("gcc @/etc/x", "/etc/x"),
        ("/tmp/evil/git log", "/tmp/evil/git"),
        ("cd /etc && ls", "/etc"),
        ("timeout 5 cat /etc/passwd", "/etc/passwd"),
        ("bash -c 'cat /etc/passwd'", "/etc/passwd"),
        ("find /etc -exec cat {} +", "/etc"),
        ("find . -exec cp {} /tmp/x \\;", "/tmp/x"),
        ("xargs -a /etc/passwd echo", "/etc/passwd"),
        ("cat $HOME/.netrc", "~/.netrc"),
        ("if true; then cat /etc/passwd; fi", "/etc/passwd"),
        ("grep -f /etc/passwd src", "/etc/passwd"),
        ("cd a; cat ../x", "../x"),
        ("cd a || cat ../x", "../x"),
    ],
)
def test_a_path_outside_is_asked_about_by_name(gate: Judged, text: str, path: str):
    verdict = gate.judge(command(text))
    assert isinstance(verdict, Ask)
    assert path in verdict.reason


@pytest.mark.parametrize(
    "text",
    [
        "cat ../x",
        "cat src/../../x",
        "ls ..",
        "cd .. && ls",
        "cat x > ../out",
        "cd a && cat ../../x",
        "../tool x",
        "tar -C.. -cf x .",
        "cp --target-directory=../x a",
        "bash -c 'cat ../x'",
        "for f in a; do cat ../x; done",
        "(cd a && ls) && cat ../x",
    ],
)
async def test_climbing_out_is_refused(gate: Judged, text: str):
    result = await gate.execute(command(text))
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert "leads out of the workspace" in result.failure.message


@each_row("name", ["read me", "a$b", "a`b", "@x", "-x", "--x=y", "a\nb", "http:", "me: x", "x=y"])
def test_a_link_may_be_called_like_a_text_or_an_option(tmp_path, name: str):
    gate = gate_of(tmp_path / "work")
    for made in ("other", "work/in"):
        (tmp_path / made).mkdir(parents=True)
    (tmp_path / "other" / "f").write_text("canary")
    texts = (
        f"cat -- '{name}'",
        f"cat -- '{name}/f'",
        f"head -n 3 -- '{name}'",
        f"sed -n p -- '{name}'",
        f"cp -- '{name}' y",
    )
    texts += (f"cat < '{name}'", f"cd in && cat -- '../{name}'", f"grep x -- '{name}'", f"git hash-object -- '{name}'")
    texts += (f"for i in 1 2; do cat -- '{name}'; done", f"if true; then cat < '{name}'; fi")
    if not name.startswith("-"):  # else what follows the letter may be its value
        assert [text for text in texts if gate.judge(command(text)) != Allow()] == [], "there is no such link"
    (tmp_path / "work" / name).symlink_to(tmp_path / "other")
    assert [text for text in texts if isinstance(gate.judge(command(text)), Allow)] == []


@pytest.mark.parametrize(
    "text",
    [
        "grep -nex link-out/f",
        "grep -rnieroot link-out",
        "grep --reg=root link-out/f",
        "grep --regexp root link-out/f",
        "sed -ne p link-out/f",
        "sed --exp=p link-out/f",
        "ack --match=root link-out/f",
        "gawk --source=1 link-out/f",
        "rg -ieroot link-out",
    ],
)
def test_a_file_behind_a_pattern_in_a_bundle_is_no_pattern(gate: Judged, text: str):
    assert isinstance(gate.judge(command(text)), Ask)


def test_a_pattern_is_judged_by_the_files_it_stands_for(gate: Judged):
    verdict = gate.judge(command("cat l*/x"))
    assert isinstance(verdict, Ask)
    assert "link-out/x" in verdict.reason
    assert "link-in" not in verdict.reason


def test_a_pattern_that_stands_for_too_many_files_is_asked_about(tmp_path):
    gate = Judged(SandboxGate(inside(str(tmp_path)), inside(str(tmp_path))), expand=lambda pattern, folder: None)
    for text in ("cat *", "cd * && ls"):
        assert not isinstance(gate.judge(command(text)), Allow)
    assert gate.judge(command("cat x")) == Allow()


def test_no_more_places_are_resolved_than_are_allowed(tmp_path):
    """Five uncertain folders make 32 places of each word: a thousand words once took seconds."""
    asked: list[str] = []

    def resolve(path: str, access: Access) -> str:
        asked.append(path)
        return path

    gate = Judged(SandboxGate(resolve, resolve))
    verdict = gate.judge(command("cd a;cd b;cd c;cd d;cd e; ls " + " ".join(f"f{n}" for n in range(990))))
    assert isinstance(verdict, Ask)
    assert len(asked) <= MAX_WORDS


def test_a_flood_of_paths_is_asked_about(gate: Judged):
    verdict = gate.judge(command("ls " + " ".join(f"f{number}" for number in range(MAX_WORDS + 1))))
    assert isinstance(verdict, Ask)
    assert "more than" in verdict.reason
    assert gate.judge(command("ls " + " ".join(f"f{number}" for number in range(MAX_WORDS)))) == Allow()


def test_a_flood_of_words_that_may_be_paths_is_asked_about(gate: Judged):
    few, many = (" ".join(f"@{number}" for number in range(count)) for count in (MAX_WORDS, MAX_WORDS + 1))
    verdict = gate.judge(command(f"tool {many}"))
    assert isinstance(verdict, Ask)
    assert "more than" in verdict.reason
    assert gate.judge(command(f"tool {few}")) == Allow()


@pytest.mark.parametrize(
    ("output", "around"),
    [
        ("curl: (6) Could not resolve host: x.example", "the network"),
        ("bash: fork: retry: Resource temporarily unavailable", "processes"),
        ("touch: cannot touch '/reached': Read-only file system", "files"),
    ],
)
async def test_the_question_names_the_kind_of_the_wall_that_stopped_the_command(output: str, around: str):
    resolve = inside("/")
    gate = SandboxGate(resolve, resolve)
    stopped = Gates((gate,), contained=True).facts(command("make"))
    await gate.conclude(stopped, ToolResult("", wall=wall_named(output, 1)))
    free = call("bash", CommandSubject("make", unsandboxed=True))
    verdict = gate.judge(Gates((gate,), contained=True).facts(free))
    assert isinstance(verdict, Ask)
    assert f"a wall around {around} stopped it" in verdict.reason


@pytest.mark.parametrize("count", [7, 60])
def test_more_folders_than_can_be_followed_are_refused_at_once(gate: Judged, count: int):
    """Each uncertain `cd` may double the folders: sixty of them once took forever."""
    changes = "".join(f"cd d{number}; " for number in range(count))
    verdict = gate.judge(command(f"{changes}cat ../secret"))
    assert isinstance(verdict, Deny)
    assert "changes its folder too often" in verdict.reason


def test_a_few_uncertain_folders_are_followed(gate: Judged):
    assert isinstance(gate.judge(command("cd a; ls; cd b; ls; cd src; ls f")), Allow)


def test_many_outside_paths_make_one_short_question(gate: Judged):
    verdict = gate.judge(command("cat " + " ".join(f"/etc/{number}" for number in range(9))))
    assert isinstance(verdict, Ask)
    assert "and 4 more" in verdict.reason


def test_the_home_folder_is_inside_when_it_is_the_root(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    gate = Judged(SandboxGate(inside(str(tmp_path)), inside(str(tmp_path))))
    assert gate.judge(command("cat ~/x")) == Allow()
    assert isinstance(gate.judge(command("cat ~/../x")), (Ask, Deny))


def test_a_text_with_a_syntax_error_is_not_refused_for_its_words(gate: Judged):
    assert not isinstance(gate.judge(command("note 'see ../x; ; (")), Deny)


def test_tools_and_commands_have_sandboxes_of_their_own(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "shell").mkdir()
    gate = Judged(SandboxGate(inside(str(tmp_path / "files")), inside(str(tmp_path / "shell"))))
    path = str(tmp_path / "shell" / "x")
    assert isinstance(gate.judge(call("read", PathSubject(path, Access.READ))), Deny)
    assert gate.judge(command(f"cat {path}")) == Allow()


@given(st.lists(st.sampled_from(["", ".", "..", "a", "b"]), min_size=1, max_size=6).map("/".join))
@example(".//a")
def test_a_path_of_which_nothing_is_made_stays_where_it_is(path: str):
    def plain(text: str) -> str:
        return os.path.normpath(text).replace("//", "/")

    assert plain(without_made(path or ".", (), lambda _: False)) == plain(path or ".")


@each_row(
    "text",
    [
        "true || cd a/b/c/d && cat ../canary",
        "true | cd a/b/c/d && cat ../canary",
        "! cd a/b/c/d && cat ../canary",
        "false; cd a/b || true && cat ../canary",
        "true || cd a && make -C ../other",
        "cd link/.. && cat ../canary",
        "cd link && cd .. && cat ../canary",
        "cd link/../.. && cat canary",
        "cd link && cd ../.. && cat canary",
    ],
)
def test_a_folder_that_a_cd_may_not_have_reached_does_not_hide_a_path(tmp_path, text: str):
    root = tmp_path / "work"
    (root / "a/b/c/d").mkdir(parents=True)
    (root / "link").symlink_to("a/b/c/d")
    judged = gate_in(str(root)).judge(command(text))
    assert not isinstance(judged, Allow)


@pytest.mark.parametrize("text", ["cd a/b && cat ../x", "cd a && cd b && cat ../../x", "true && cd a/b && cat ../x"])
def test_a_folder_that_a_cd_surely_reached_counts(tmp_path, text: str):
    (tmp_path / "work/a/b").mkdir(parents=True)
    assert isinstance(gate_in(str(tmp_path / "work")).judge(command(text)), Allow)


def test_only_the_agents_own_commands_count_as_contained():
    ours = call("bash", CommandSubject("ls"))
    served = replace(ours, spec=replace(ours.spec, server="x"))
    assert CallFacts(ours, contained=True).contained
    assert not CallFacts(ours).contained
    assert not CallFacts(served, contained=True).contained
    for subject in (CommandSubject("ls", unsandboxed=True), CommandSubject("ls", typed=True)):
        assert not CallFacts(call("bash", subject), contained=True).contained


async def test_only_a_command_that_a_wall_stopped_is_said_to_have_been_stopped_and_who_let_it_run():
    resolve = inside("/")
    gate = SandboxGate(resolve, resolve)
    free = call("bash", CommandSubject("make", unsandboxed=True))
    user, unasked = (Ruling(approved_by=by) for by in (ApprovedBy.USER, ApprovedBy.AUTO))
    for result, told in (
        (ToolResult(""), "leaves the sandbox"),
        (ToolResult("", wall="x", ruling=unasked), "leaves the sandbox, in which it ran unasked;"),
        (ToolResult("", wall="x", ruling=user), "leaves the sandbox, in which you allowed it;"),
        (ToolResult("", wall="x"), "leaves the sandbox, in which it ran unasked;"),
    ):
        await gate.conclude(Gates((gate,), contained=True).facts(command("make")), result)
        verdict = gate.judge(Gates((gate,), contained=True).facts(free))
        assert isinstance(verdict, Ask)
        assert verdict.reason.startswith(told)
        assert (";" in verdict.reason) is (";" in told)
