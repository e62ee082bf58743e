"""The exact answers of the parts of the sandbox, without any command in it."""

import errno
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent.core.backends import CommandRequest
from acp_agent.core.editor import ContainedCommand
from acp_agent.workspace.sandbox import landlock, quarantine, sandbox
from acp_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox, SessionNetwork
from acp_agent.workspace.sandbox.git_folders import (
    _LONGEST,
    hook_folders,
    hooks_of_worktrees,
    named_folder,
    settings_in,
)
from acp_agent.workspace.sandbox.landlock import LandlockSandbox, _called, _new_ruleset, known_rights, landlock_limits
from acp_agent.workspace.sandbox.quarantine import Quarantine, _is_harmless, _is_usual, _runs, _stays
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, advice_without, sandbox_tier, tier_limits
from acp_agent.workspace.sandbox.walls import NetworkReach, Walls
from tests.unit.workspace.trees import is_open, open_fds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="most of it runs on Linux only")


def test_a_wanted_tier_that_this_system_cannot_have_is_none():
    assert sandbox_tier(SandboxTier.SEATBELT) is SandboxTier.NONE


def test_a_file_of_git_names_a_folder_only_in_the_form_that_git_writes(tmp_path: Path):
    file = tmp_path.resolve() / ".git"
    for text, named in (
        ("gitdir: /a/b\n", "/a/b"),
        ("gitdir: c\n", f"{file.parent}/c"),
        ("dir: /a\n", ""),
        ("/a\n", ""),
        ("gitdir: \n", ""),
        ("gitdir: /a\0b\n", ""),
        ("gitdir: /a\n/b\n", ""),
        ("gitdir: /" + "a" * _LONGEST, ""),
    ):
        file.write_text(text)
        assert named_folder(str(file), "gitdir:") == named, text[:20]
    file.write_text("/a\n")
    assert named_folder(str(file)) == "/a"
    (file.parent / "link").symlink_to(".git")
    os.mkfifo(file.parent / "fifo")
    assert [named_folder(str(file.parent / name)) for name in ("link", "fifo", "none")] == ["", "", ""]


def test_a_look_at_a_folder_in_place_of_a_file_of_git_leaves_nothing_open(tmp_path: Path):
    before = open_fds()
    assert named_folder(str(tmp_path), "gitdir:") == ""
    with pytest.raises(IsADirectoryError):
        settings_in(str(tmp_path))
    assert open_fds() == before


def test_a_ruleset_refuses_all_that_its_version_knows(monkeypatch: pytest.MonkeyPatch):
    made = list[Any]()

    def called(number: int, attributes: bytes, size: Any, flags: Any) -> int:
        made.append((number, struct.unpack(f"={len(attributes) // 8}Q", attributes), size.value, flags.value))
        fd = os.open(os.devnull, os.O_RDONLY)
        os.set_inheritable(fd, True)
        return fd

    monkeypatch.setattr(landlock, "_called", called)
    for abi, tcp, more in (
        (3, False, ()),
        (4, False, (landlock._TCP,)),
        (4, True, (0,)),
        (6, True, (0, landlock._SCOPES)),
    ):
        ruleset = _new_ruleset(abi, tcp=tcp)
        assert not os.get_inheritable(ruleset)
        os.close(ruleset)
        fields = (int(known_rights(abi)), *more)
        assert made.pop() == (landlock._CREATE_RULESET, fields, 8 * len(fields), 0), abi
    assert [len(landlock_limits(abi)) for abi in (5, 6)] == [4, 3]


def test_a_ruleset_is_kept_for_equal_walls_and_closed_with_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    allowed, failure = list[str](), list[BaseException]()

    def allow(ruleset: int, path: str, rights: Any) -> None:
        del ruleset, rights
        allowed.append(path)
        for each in failure:
            raise each

    monkeypatch.setattr(landlock, "_new_ruleset", lambda abi, *, tcp: os.open(os.devnull, os.O_RDONLY))
    monkeypatch.setattr(landlock, "_allow", allow)
    made, names = LandlockSandbox(str(tmp_path / "private"), 6), os.path.realpath("/etc/resolv.conf")
    walls = Walls((str(tmp_path),), (), home="/nowhere")
    before = open_fds()
    first = made._ruleset(walls)
    assert made._ruleset(walls) == first
    assert names not in allowed
    made._ruleset(replace(walls, network=NetworkReach.ALL))
    assert names in allowed
    assert len(open_fds() - before) == 1, "the first is closed"
    made.close()
    made.close()
    assert open_fds() == before
    failure.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        made._ruleset(walls)
    assert open_fds() == before


def test_a_command_gets_a_ruleset_of_its_own_and_its_calls_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log, filters = list[Any](), list[Any]()
    monkeypatch.setattr(landlock, "_confine", lambda ruleset, program: log.append((is_open(ruleset), program)) or 99)
    monkeypatch.setattr(landlock, "serve", lambda *given: log.append(given))
    monkeypatch.setattr(landlock, "filter_program", lambda **given: filters.append(given) or b"program")
    walls = Walls(("/w",), (), frozen=("/f",), hidden=("/h",), home="/nowhere")
    for abi, truncation in ((2, True), (3, False)):
        made = LandlockSandbox(str(tmp_path / "private"), abi)
        kept = os.open(os.devnull, os.O_RDONLY)
        before = open_fds()
        monkeypatch.setattr(made, "_ruleset", lambda _, kept=kept: kept)
        with made.launch(["ls"], "/", walls) as launch:
            assert (launch.arguments, launch.variables) == (("ls",), made._home.variables(walls))
            assert launch.confine is not None
            launch.confine()
        assert log == [(True, b"program"), (99, ("/w", *made._home.folders), ("/f", "/h"))]
        assert filters.pop() == {"internet": False, "namespaces": False, "truncation": truncation}
        assert open_fds() == before
        os.close(kept)
        log.clear()


def test_walls_stand_as_long_as_nothing_moved_or_became_a_link(tmp_path: Path):
    root = tmp_path.resolve()
    for name in ("pinned", "hidden", "frozen"):
        (root / name).mkdir()
    walls = Walls((), (), (str(root / "pinned"),), (str(root / "frozen"),), (str(root / "hidden"),))
    assert walls.stand()
    (root / "frozen").rmdir()
    assert walls.stand(), "what is frozen need not exist"
    (root / "frozen").symlink_to("pinned")
    assert not walls.stand()
    (root / "frozen").unlink()
    (root / "hidden").rmdir()
    assert not walls.stand()


def test_a_command_that_only_reads_may_change_and_send_nothing():
    walls = Walls(("/w",), ("/r",), ("/p",), ("/f",), ("/h",), "/home", NetworkReach.ALL, linked=("/l",))
    reading = Walls((), ("/r", "/w"), (), (), ("/h",), "/home", NetworkReach.ALL)
    assert walls.for_reading() == reading
    assert replace(walls, proxied=True).for_reading() == replace(reading, network=NetworkReach.NONE)


def test_the_user_reads_what_a_tier_cannot_do_and_what_to_do_without_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox, "landlock_abi", lambda: 6)
    assert {tier: len(tier_limits(tier)) for tier in SandboxTier} == {
        SandboxTier.BUBBLEWRAP: 0,
        SandboxTier.LANDLOCK: 4,
        SandboxTier.SEATBELT: 2,
        SandboxTier.NONE: 1,
    }
    assert advice_without(SandboxTier.LANDLOCK) == "set `[tools.sandbox] mode` to auto or off"
    costs = "read in docs/sandbox.md what `[tools.sandbox] mode` {} costs"
    assert advice_without(None) == f"install bubblewrap, or {costs.format('landlock')}"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert advice_without(None) == costs.format("seatbelt")


class Rules:
    """Rules that make walls, and note how often."""

    def __init__(self, network: NetworkReach = NetworkReach.SESSION) -> None:
        self.network, self.hosts, self.made, self.standing = network, ("a host",), 0, True
        self.protects = "protects"

    def walls(self, environment: Any) -> Any:
        del environment
        self.made += 1
        return Walls((f"/w{self.made}",), (), linked=("/l",))


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Rules:
    rules = Rules()
    monkeypatch.setattr(sandbox, "_remembering", lambda given: given)
    monkeypatch.setattr(Walls, "stand", lambda _: rules.standing)
    return rules


def made(rules: Any, tier: SandboxTier = SandboxTier.BUBBLEWRAP) -> Any:
    return SessionSandbox(rules, {"A": "1"}, tier)


def test_walls_are_found_again_after_a_moment_a_change_or_other_rules(rules: Rules, monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr(sandbox.time, "monotonic", lambda: now[0])
    session = made(rules)
    assert session._session_walls(read_only=False).writable == ("/w1",)
    assert session._session_walls(read_only=True).writable == ()
    now[0] += sandbox._FRESH
    assert (session._session_walls(read_only=False).writable, rules.made) == (("/w1",), 1)
    now[0] += 0.001
    assert session._session_walls(read_only=False).writable == ("/w2",)
    rules.standing = False
    assert session._session_walls(read_only=False).writable == ("/w3",)
    rules.standing = True
    assert session._session_walls(read_only=False).writable == ("/w3",)
    other = Rules()
    session.adopt(other)
    session._session_walls(read_only=False)
    assert other.made == 1


def test_walls_cover_every_protected_path_that_exists_before_a_command(rules: Rules, monkeypatch: pytest.MonkeyPatch):
    there, asked = [frozenset[str]()], list[Any]()

    def found(*given: Any) -> Any:
        asked.append(given)
        return SimpleNamespace(before=there[0])

    monkeypatch.setattr(sandbox, "Quarantine", found)
    session = made(rules)
    for paths, walls in (({"a"}, "/w1"), ({"a"}, "/w1"), (set(), "/w1"), ({"a", "b"}, "/w2"), ({"b"}, "/w2")):
        there[0] = frozenset(paths)
        assert session._walls_for(None, read_only=False)[0].writable == (walls,), paths
    assert asked[0] == (("/w1",), "protects", ("/l",))
    assert session._walls_for(NetworkReach.NONE, read_only=False)[0].network is NetworkReach.NONE
    assert session._walls_for(None, read_only=False)[0].network is NetworkReach.SESSION


def test_hosts_are_reached_through_the_proxy_and_editors_with_bubblewrap_only(rules: Rules):
    for tier in SandboxTier:
        session = made(rules, tier)
        proxied = tier is SandboxTier.BUBBLEWRAP
        assert (session.hosts, session.reaches_other_terminals) == (("a host",) if proxied else (), proxied)
    assert made(Rules(NetworkReach.NONE)).hosts == ()


def test_a_sandbox_that_is_closed_ends_its_walls_and_deletes_its_folder(rules: Rules):
    session, closed = made(rules), list[str]()
    folder = session.folder
    assert os.path.isdir(folder)
    session._walled = SimpleNamespace(close=lambda: closed.append("walls"))
    session.close()
    session.close()
    assert (closed, os.path.exists(folder)) == (["walls"], False)


def test_the_editors_terminal_runs_a_command_within_the_walls_of_bubblewrap_only(
    rules: Rules, monkeypatch: pytest.MonkeyPatch
):
    asked = list[Any]()

    class Built(BubblewrapSandbox):
        def __init__(self) -> None:
            self.bash = ""

        def shell_text(self, *given: Any) -> str:
            asked.append(given)
            return "line"

        def close(self) -> None:
            pass

    monkeypatch.setattr(sandbox, "Quarantine", lambda *_: SimpleNamespace(before=frozenset(), look="look"))
    session = made(rules)
    session._walled = Built()
    for found, shell in (("/bin/bash", "bash"), (None, "sh")):
        monkeypatch.setattr(sandbox.shutil, "which", lambda _, found=found: found)
        for read_only, look in ((False, "look"), (True, None)):
            ran = session.shell_text(CommandRequest("ls", "/cwd", read_only=read_only), {"B": "2"})
            assert ran == ContainedCommand("line", look)
            words, cwd, walls, *variables = asked.pop()
            assert (words, cwd, variables) == ([shell, "-c", "--", "ls"], "/cwd", [{"A": "1"}, {"B": "2"}])
            assert walls.writable == (() if read_only else ("/w1",))
    session._walled = SimpleNamespace(close=lambda: None)
    with pytest.raises(OSError, match="cannot contain what the editor's terminal runs"):
        session.shell_text(CommandRequest("ls", "/cwd"), {})


def test_a_few_of_the_files_that_were_renamed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for count, more in ((quarantine._MOST_NAMED, ""), (quarantine._MOST_NAMED + 1, " ...")):
        look = Quarantine((), lambda _: False)
        paths = [f"/{number}" for number in range(count)]
        monkeypatch.setattr(look, "_found", lambda paths=paths: iter([*paths, "/0/below"]))
        monkeypatch.setattr(look, "_renamed", lambda _: True)
        named = ", ".join(paths[: quarantine._MOST_NAMED])
        assert look.look().startswith(f"\n[the command made {named}{more}, which something"), count
    monkeypatch.setattr(look, "_found", lambda: iter(()))
    assert look.look() == ""


def test_files_that_usual_tools_make_stay(tmp_path: Path):
    root = tmp_path.resolve()
    git = root / ".git"
    (git / "worktrees" / "w").mkdir(parents=True)
    (git / "info").mkdir()
    for name in ("description", "gitdir", "config.worktree", "info/attributes"):
        (git / name).touch()
    (git / "link").symlink_to("description")
    (git / "program").touch(mode=0o755)
    (git / "config").write_text("[core]\n\tbare = false\n")
    for folder, text in (("worktrees/w", "../..\n"), ("other", "..\n")):
        (git / folder).mkdir(exist_ok=True)
        (git / folder / "commondir").write_text(text)
    usual = {
        ".git/description": True,
        ".git/gitdir": False,
        ".git/config.worktree": False,
        ".git/info/attributes": True,
        ".git/link": False,
        ".git/program": False,
        ".git/config": True,
        ".git/none/config": False,
        ".git/worktrees/w/commondir": True,
        ".git/other/commondir": False,
        "venv/pyvenv.cfg": True,
        "a.pth": True,
        "Makefile": False,
    }

    def nothing(path: str) -> bool:
        del path
        return False

    assert {name: _is_usual(str(root / name), (), nothing) for name in usual} == usual
    (git / "worktrees" / "w" / "commondir").write_text("/elsewhere\n")
    assert not _is_usual(str(git / "worktrees" / "w" / "commondir"), (), nothing)
    assert not _is_harmless(str(git / "none"), nothing)
    assert _runs(str(git / "none")), "nobody can tell"
    assert not _stays("/a/b", "/a", ())
    assert not _stays("/a/b", "/a/b/w", ()), "it is no `.git` folder"
    assert _stays("/a/.git", "/a/w", ())
    assert not _stays("/a/.git", "/b", ())
    assert _stays("/a/.git/worktrees/w", "/a/w", ())
    assert not _stays("/a/.git/odd/w", "/a/w", ())
    assert _stays("/x/.git/worktrees/w", "/a/w", ("/x/.git",))


def test_hooks_below_a_folder_of_the_session_are_looked_for_and_no_folder_itself(tmp_path: Path):
    config = tmp_path / ".git" / "config"
    config.parent.mkdir()
    for place, found in (("tools", ["tools"]), ("/elsewhere", []), (".", []), ("..", []), ("a/../b", ["b"])):
        config.write_text(f"[core]\nhooksPath = {place}\n")
        assert hooks_of_worktrees([str(tmp_path)]) == [str(tmp_path / each) for each in found], place


def test_a_call_that_the_system_does_not_know_fails_with_its_error():
    with pytest.raises(OSError, match="Function not implemented") as caught:
        _called(-1)
    assert caught.value.errno == errno.ENOSYS


def test_only_the_setting_for_hooks_names_their_folder(tmp_path: Path):
    config, other = tmp_path / ".git" / "config", tmp_path / ".git" / "HEAD"
    config.parent.mkdir()
    config.write_text("[core]\nhooksPath\nhooksPath = tools\nworktree = ../x\n[user]\nname = Ann\n")
    other.write_text("[core]\nhooksPath = never\n")
    assert [*hook_folders(map(str, (config, other)))] == [os.path.normpath(tmp_path / ".git" / ".." / "x" / "tools")]


def test_a_name_of_a_broken_link_is_not_free(tmp_path: Path):
    (tmp_path / f"x{quarantine._SUFFIX}").symlink_to("nowhere")
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert quarantine._free_name("x", folder) == f"x{quarantine._SUFFIX}-1"
        assert quarantine._free_name("y", folder) == f"y{quarantine._SUFFIX}"
    finally:
        os.close(folder)


def test_landlock_is_asked_for_only_where_it_and_the_filter_are_known(monkeypatch: pytest.MonkeyPatch):
    for system, program, answer, version in (
        ("Linux", b"filter", 7, 7),
        ("Linux", b"filter", -1, 0),
        ("Linux", None, 7, 0),
        ("Darwin", b"filter", 7, 0),
    ):
        library = SimpleNamespace(syscall=lambda *_, answer=answer: answer)
        monkeypatch.setattr(landlock.ctypes, "CDLL", lambda *_, library=library: library)
        monkeypatch.setattr(landlock, "filter_program", lambda program=program, **_: program)
        monkeypatch.setattr(landlock.os, "uname", lambda system=system: SimpleNamespace(sysname=system))
        assert landlock.landlock_abi.__wrapped__() == version, (system, program, answer)


def test_what_makes_a_listener_has_no_variables_of_the_agent(monkeypatch: pytest.MonkeyPatch):
    given: dict[str, Any] = {}

    def run(command: Any, **more: Any) -> None:
        given.update(more, command=command)
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr("acp_agent.workspace.sandbox.bubblewrap.subprocess.run", run)
    network: Any = SessionNetwork.__new__(SessionNetwork)
    network.enter = ("nsenter",)
    with pytest.raises(OSError, match="no proxy"):
        network.listener()
    assert given["command"][:5] == ["nsenter", "--", sys.executable, "-I", "-S"]
    assert (list(given["env"]), given["cwd"], given["check"]) == (["PATH"], "/", True)
