"""What the user said "always" to survives restarts, damage and other processes."""

import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import anyio
import pytest

from acp_agent.gates.grants import Grant, GrantKind, GrantsInForce, GrantStore, SessionAnswers
from acp_agent.store.private_file import MAX_BYTES
from tests.unit.gates.chain import Warnings

pytestmark = pytest.mark.anyio
PUSH = Grant("bash", GrantKind.PREFIX, "git push", allowed=True)


HANDWRITTEN = """
[tools]
read = "allow"
fetch = "reject"
odd = "perhaps"
worse = 3
[tools.bash]
default = "deny"
[tools.bash.patterns]
"git status" = "allow"
ls = "maybe"
[projects."".tools]
bash = "allow"
[other]
x = 1
"""


def put(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def get(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


@pytest.fixture
def path(tmp_path) -> str:
    return os.fspath(tmp_path / "data" / "grants.toml")


async def test_grants_of_every_kind_survive_a_restart(path: str):
    odd = 'a "b" \\ \t\x7f é\u2028 # = [x]'
    grants = (
        PUSH,
        Grant("mcp_a", GrantKind.PREFIX, odd, allowed=False),
        Grant("bash", GrantKind.PAYLOAD, "ab" * 32, allowed=True),
        Grant("write", GrantKind.TOOL, "", allowed=True),
        Grant("mcp_a.b c", GrantKind.TOOL, "", allowed=False),
    )
    warnings = Warnings()
    await GrantStore(path, warnings).remember(*grants)
    again = GrantStore(path, warnings)
    for grant in grants:
        assert again.find(grant.tool, grant.kind, grant.key) is grant.allowed
    assert again.find("bash", GrantKind.PREFIX, "git") is None
    assert warnings.lines == []


async def test_the_file_is_private_and_has_the_documented_shape(path: str):
    await GrantStore(path, Warnings()).remember(PUSH, Grant("edit", GrantKind.TOOL, "", allowed=False))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    tools = tomllib.loads(get(path).decode())["tools"]
    assert tools == {"bash": {"patterns": {"git push": "allow"}}, "edit": {"default": "deny"}}
    assert sorted(os.listdir(os.path.dirname(path))) == ["grants.toml", "grants.toml.lock"]


async def test_a_handwritten_file_is_understood(path: str):
    put(path, HANDWRITTEN.encode())
    warnings = Warnings()
    store = GrantStore(path, warnings)
    assert store.find("read", GrantKind.TOOL) is True
    assert store.find("fetch", GrantKind.TOOL) is False
    assert store.find("odd", GrantKind.TOOL) is None
    assert store.find("bash", GrantKind.TOOL) is False
    assert store.find("bash", GrantKind.PREFIX, "git status") is True
    assert store.find("bash", GrantKind.PREFIX, "ls") is None
    assert warnings.lines == []


@pytest.mark.parametrize(
    "content", [b"not toml [", b"\xff\xfe\x00", b"tools = 3\n", b"# " + b"x" * MAX_BYTES, b"[" * 100_000]
)
async def test_a_damaged_file_is_set_aside_with_a_warning_and_nothing_is_granted(path: str, content: bytes):
    put(path, content)
    warnings = Warnings()
    store = GrantStore(path, warnings)
    assert store.find("bash", GrantKind.PREFIX, "git push") is None
    assert len(warnings.lines) == 1
    assert get(f"{path}.damaged-1") == content
    await store.remember(PUSH)
    assert GrantStore(path, warnings).find("bash", GrantKind.PREFIX, "git push") is True
    assert len(warnings.lines) == 1


async def test_a_missing_file_is_nothing_to_warn_about(path: str):
    warnings = Warnings()
    assert GrantStore(path, warnings).find("bash", GrantKind.TOOL) is None
    assert warnings.lines == []


async def test_a_decision_that_cannot_be_kept_holds_until_the_end_and_is_told(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    warnings = Warnings()
    store = GrantStore(os.fspath(tmp_path / "file" / "grants.toml"), warnings)
    warnings.lines.clear()
    await store.remember(PUSH)
    assert store.find("bash", GrantKind.PREFIX, "git push") is True
    assert "could not be kept" in warnings.lines[0]


async def test_the_later_answer_replaces_the_earlier(path: str):
    store = GrantStore(path, Warnings())
    await store.remember(PUSH)
    await store.remember(Grant(PUSH.tool, PUSH.kind, PUSH.key, allowed=False))
    assert store.find("bash", GrantKind.PREFIX, "git push") is False
    assert GrantStore(path, Warnings()).find("bash", GrantKind.PREFIX, "git push") is False


async def test_keys_with_nul_are_never_kept(path: str):
    store = GrantStore(path, Warnings())
    await store.remember(Grant("bash", GrantKind.PREFIX, "a\0b", allowed=True))
    assert store.find("bash", GrantKind.PREFIX, "a\0b") is None


async def test_an_answer_in_a_folder_whose_name_is_no_utf8_holds_in_no_other_folder_and_is_told(path: str):
    """In the file the name became one with a question mark: the answer was lost for its folder, and held there."""
    warnings, folder = Warnings(), "/tmp/caf\udce9"
    store = GrantStore(path, warnings)
    await store.remember(PUSH)
    await store.remember(Grant("bash", GrantKind.PREFIX, "git pull", allowed=False, project=folder))
    assert "no UTF-8" in warnings.lines[0]
    await store.remember(Grant("bash", GrantKind.PREFIX, "git fetch", allowed=True))
    assert len(warnings.lines) == 1, "it is told once"
    assert store.find("bash", GrantKind.PREFIX, "git pull", folder) is False
    again = GrantStore(path, warnings)
    assert again.find("bash", GrantKind.PREFIX, "git pull", "/tmp/caf?") is None
    assert again.find("bash", GrantKind.PREFIX, "git push") is True
    (denied,) = [each for each in store.listed() if not each.allowed]
    assert await store.revoke(denied)
    assert store.find("bash", GrantKind.PREFIX, "git pull", folder) is None


async def test_sessions_of_one_process_write_and_lose_nothing(path: str):
    store = GrantStore(path, Warnings())
    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(store.remember, Grant("bash", GrantKind.PREFIX, f"tool{number}", allowed=True))
    again = GrantStore(path, Warnings())
    assert all(again.find("bash", GrantKind.PREFIX, f"tool{number}") for number in range(40))


def test_processes_write_and_lose_nothing(path: str):
    os.makedirs(os.path.dirname(path))
    code = (
        "import sys, anyio\n"
        "from acp_agent.gates.grants import Grant, GrantKind, GrantStore\n"
        "async def main():\n"
        "    store = GrantStore(sys.argv[1], lambda line: sys.exit(line))\n"
        "    for number in range(15):\n"
        "        await store.remember(Grant('mcp_a', GrantKind.PREFIX, f'p{sys.argv[2]}-{number}', allowed=True))\n"
        "anyio.run(main)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, path, str(process)]) for process in range(3)]
    assert [process.wait(timeout=50) for process in running] == [0, 0, 0]
    again = GrantStore(path, Warnings())
    assert all(again.find("mcp_a", GrantKind.PREFIX, f"p{p}-{number}") for p in range(3) for number in range(15))


async def test_what_another_process_wrote_is_seen_after_the_next_change(path: str):
    first, second = GrantStore(path, Warnings()), GrantStore(path, Warnings())
    await first.remember(PUSH)
    await second.remember(Grant("bash", GrantKind.PREFIX, "ls", allowed=True))
    assert second.find("bash", GrantKind.PREFIX, "git push") is True
    assert GrantStore(path, Warnings()).find("bash", GrantKind.PREFIX, "git push") is True


async def test_a_line_that_is_taken_out_of_the_file_is_asked_about_again_at_once(path: str):
    store = GrantStore(path, Warnings())
    await store.remember(PUSH, Grant("read", GrantKind.TOOL, "", allowed=True))
    put(path, b"[tools]\nread = 'deny'\n")
    store.refresh()
    assert store.find(PUSH.tool, PUSH.kind, PUSH.key) is None
    assert store.find("read", GrantKind.TOOL) is False


async def test_a_file_broken_by_hand_allows_nothing_more_denies_what_it_denied_and_is_told_once(path: str):
    warnings = Warnings()
    store = GrantStore(path, warnings)
    await store.remember(PUSH, Grant("fetch", GrantKind.TOOL, "", allowed=False))
    put(path, b"[tools\n")
    for _ in range(3):
        store.refresh()
    assert store.find(PUSH.tool, PUSH.kind, PUSH.key) is None
    assert store.find("fetch", GrantKind.TOOL) is False
    assert len(warnings.lines) == 1
    assert "at line 1" in warnings.lines[0]
    assert get(path) == b"[tools\n", "somebody may be at work on it"
    put(path, b"[tools.bash.patterns]\n'git push' = 'allow'\n")
    store.refresh()
    assert store.find(PUSH.tool, PUSH.kind, PUSH.key) is True


async def test_an_answer_that_meets_a_broken_file_sets_it_aside_and_keeps_what_was_denied(path: str):
    store = GrantStore(path, Warnings())
    await store.remember(PUSH, Grant("fetch", GrantKind.TOOL, "", allowed=False))
    put(path, b"[tools\n")
    await store.remember(Grant("read", GrantKind.TOOL, "", allowed=True))
    again = GrantStore(path, Warnings())
    assert again.find("fetch", GrantKind.TOOL) is False
    assert again.find("read", GrantKind.TOOL) is True
    assert again.find(PUSH.tool, PUSH.kind, PUSH.key) is None
    assert get(f"{path}.damaged-1") == b"[tools\n"


async def test_a_decision_that_could_not_be_kept_survives_a_change_of_the_file(tmp_path):
    blocker = tmp_path / "data"
    blocker.write_text("not a folder yet")
    store = GrantStore(os.fspath(blocker / "grants.toml"), Warnings())
    await store.remember(PUSH)
    blocker.unlink()
    put(os.fspath(blocker / "grants.toml"), b"[tools]\nread = 'allow'\n")
    store.refresh()
    assert store.find("read", GrantKind.TOOL) is True
    assert store.find(PUSH.tool, PUSH.kind, PUSH.key) is True


async def test_nowhere_is_a_place_to_keep_answers_in_and_stays_what_it_is():
    warnings = Warnings()
    store = GrantStore(os.devnull, warnings)
    await store.remember(PUSH)
    assert store.find(PUSH.tool, PUSH.kind, PUSH.key) is True
    assert warnings.lines == []
    assert not stat.S_ISREG(os.stat(os.devnull).st_mode)
    assert not os.path.lexists(f"{os.devnull}.lock")


async def test_a_link_in_the_place_of_the_file_grants_nothing(path: str, tmp_path):
    (tmp_path / "elsewhere").write_text("[tools]\nread = 'allow'\n")
    os.makedirs(os.path.dirname(path))
    os.symlink(tmp_path / "elsewhere", path)
    warnings = Warnings()
    assert GrantStore(path, warnings).find("read", GrantKind.TOOL) is None
    assert len(warnings.lines) == 1


async def test_a_tool_is_known_under_its_other_names_and_no_under_any_of_them_is_no(path: str):
    put(
        path, b"[tools]\nTerminal = 'deny'\n[tools.bash]\ndefault = 'allow'\n[tools.sh.patterns]\n'git push' = 'deny'\n"
    )
    store = GrantStore(path, Warnings())
    assert store.find("bash", GrantKind.TOOL) is False
    assert store.find("bash", GrantKind.PREFIX, "git push") is False
    await store.remember(Grant("read", GrantKind.TOOL, "", allowed=True))
    again = GrantStore(path, Warnings())
    assert again.find("bash", GrantKind.TOOL) is False
    assert again.find("bash", GrantKind.PREFIX, "git push") is False


async def test_a_key_that_no_call_can_have_is_told_once_and_again_only_when_it_is_another(path: str):
    warnings = Warnings()
    put(path, b"[tools.shell.patterns]\ngit = 'allow'\nrm = 'deny'\n'git push -f' = 'deny'\n")
    store = GrantStore(path, warnings)
    expected = "covers nothing; expected"
    assert warnings.lines == [
        f"{path}: bash.patterns: 'git' {expected} what 'always' keeps, such as 'git status'",
        f"{path}: bash.patterns: 'git push -f' {expected} a program, or what 'always' keeps, such as 'git status'",
    ]
    put(path, b"[tools.bash.patterns]\ngit = 'allow'\n[tools.fetch.patterns]\n'good.com' = 'deny'\n")
    store.refresh()
    store.refresh()
    assert warnings.lines[2:] == [
        f"{path}: fetch.patterns: 'good.com' {expected} a site, such as 'https://example.com/'"
    ]


async def test_an_answer_for_a_project_holds_there_and_a_denial_anywhere_wins(tmp_path: Path):
    path, warn = str(tmp_path / "grants.toml"), Warnings()
    Path(path).write_text('[tools.bash.patterns]\n"git push" = "deny"\n"make all" = "allow"\n')
    store = GrantStore(path, warn)
    here, push = str(tmp_path / 'with "quotes" and . dots'), GrantKind.PREFIX
    await store.remember(
        Grant("bash", push, "git add", allowed=True, project=here),
        Grant("bash", push, "git push", allowed=True, project=here),
    )
    for each in (store, GrantStore(path, warn)):
        assert each.find("bash", push, "git add", here) is True
        assert each.find("bash", push, "git add", "/elsewhere") is None
        assert each.find("bash", push, "git add") is None
        assert each.find("bash", push, "git push", here) is False
        assert each.find("bash", push, "make all", here) is True, "answers of earlier versions hold everywhere"
        assert [(grant.key, grant.project) for grant in each.listed(here)] == [
            ("git push", ""),
            ("make all", ""),
            ("git add", here),
            ("git push", here),
        ]
        assert len(each.listed("/elsewhere")) == 2
    assert warn.lines == []


async def test_a_revoked_answer_is_gone_from_the_file_and_the_others_stay(tmp_path: Path):
    path, warn = str(tmp_path / "grants.toml"), Warnings()
    store = GrantStore(path, warn)
    await store.remember(
        Grant("write", GrantKind.TOOL, "", allowed=True, project="/p"), Grant("edit", GrantKind.TOOL, "", allowed=False)
    )
    other = GrantStore(path, warn)
    await other.remember(Grant("grep", GrantKind.TOOL, "", allowed=True))
    assert await store.revoke(store.listed()[-1])
    assert [grant.told for grant in GrantStore(path, warn).listed()] == [
        "always reject every use of edit, everywhere",
        "always allow every use of grep, everywhere",
    ]
    assert store.find("write", GrantKind.TOOL, "", "/p") is None


def test_a_file_whose_projects_are_damaged_keeps_no_approval(tmp_path: Path):
    path, warn = tmp_path / "grants.toml", Warnings()
    for text in ('[projects]\n"/p" = 5\n', '[projects."/p"]\ntools = 3\n'):
        path.write_text(text)
        assert GrantStore(str(path), warn).listed() == ()
        assert warn.lines


async def test_an_answer_for_the_session_is_revoked_once(tmp_path: Path):
    answer = Grant("write", GrantKind.TOOL, "", allowed=True, session=True)
    grants = GrantsInForce(GrantStore(str(tmp_path / "grants.toml"), Warnings()), SessionAnswers())
    await grants.remember(answer)
    assert await grants.revoke(answer)
    assert not await grants.revoke(answer)
    assert grants.listed("/p") == ()


async def test_the_file_of_answers_can_be_read_by_users(tmp_path: Path):
    path = tmp_path / "grants.toml"
    await GrantStore(str(path), Warnings()).remember(
        Grant("bash", GrantKind.PREFIX, "git push", allowed=True),
        Grant("bash", GrantKind.PREFIX, "git pull", allowed=False),
        Grant("write", GrantKind.TOOL, "", allowed=True, project="/p"),
    )
    assert path.read_text() == (
        '# What you answered with "always". Remove a line to be asked again.\n'
        '\n[tools."bash".patterns]\n"git pull" = "deny"\n"git push" = "allow"\n'
        '\n[projects."/p".tools."write"]\ndefault = "allow"\n'
    )
