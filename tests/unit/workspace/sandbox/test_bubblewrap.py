"""How bubblewrap is called, and that nothing of a network is left, without starting it."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent.workspace.sandbox import bubblewrap as module
from acp_agent.workspace.sandbox.bubblewrap import (
    BubblewrapSandbox,
    SessionNetwork,
    _Mount,
    _place,
    bubblewrap,
    trusted_bash,
)
from acp_agent.workspace.sandbox.walls import NetworkReach, Walls, make_place
from tests.unit.workspace.trees import open_fds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap runs on Linux only")


def no_proxy(listener: socket.socket) -> Any:
    raise AssertionError(f"no proxy is wanted: {listener}")


def test_bubblewrap_is_used_only_where_it_works_and_nsenter_is_there(monkeypatch: pytest.MonkeyPatch):
    there: dict[str, str] = {}
    ended: list[Any] = []

    def which(name: str, *, path: str) -> str | None:
        assert path == module._SYSTEM_PATH
        return there.get(name)

    def run(words: list[str], **options: Any) -> Any:
        assert words[0] == "/usr/bin/bwrap"
        assert "--unshare-net" in words
        assert options["env"] == {"PATH": module._SYSTEM_PATH}
        (result,) = ended
        if isinstance(result, Exception):
            raise result
        return SimpleNamespace(returncode=result)

    monkeypatch.setattr(shutil, "which", which)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(module, "_nsenter", module._nsenter.__wrapped__)
    bwrap, nsenter = {"bwrap": "/usr/bin/bwrap"}, {"nsenter": "/usr/bin/nsenter"}
    for found, result, answer in (
        ({}, 0, ""),
        (nsenter, 0, ""),
        (bwrap, 0, ""),
        (bwrap | nsenter, 1, ""),
        (bwrap | nsenter, OSError("no"), ""),
        (bwrap | nsenter, subprocess.TimeoutExpired("bwrap", 5), ""),
        (bwrap | nsenter, 0, "/usr/bin/bwrap"),
    ):
        there.clear()
        there.update(found)
        ended[:] = [result]
        assert bubblewrap.__wrapped__() == answer, (found, result)
    assert [module._nsenter(), there.clear(), module._nsenter()] == ["/usr/bin/nsenter", None, ""]


def test_there_is_no_bash_that_looks_at_the_mounts_where_there_is_no_bash():
    assert trusted_bash({}) == trusted_bash({"PATH": "/nowhere"}) == ""


class FakeBuilder:
    """The process that makes a network. It tells `answer`, and that it is ready unless `ready` is empty."""

    pid = 5

    def __init__(self, log: list[Any], answer: bytes, ready: bytes) -> None:
        self._log, self._answer = log, answer
        (self._asked, asked), (answers, self._answers) = os.pipe(), os.pipe()
        self.stdin, self.stdout = open(asked, "wb", 0), open(answers, "rb", 0)  # noqa: SIM115
        os.write(self._answers, ready)
        if not ready:
            self.end()

    def __call__(self, words: Any, reading: int, writing: int) -> "FakeBuilder":
        del words, reading
        os.write(writing, self._answer)
        return self

    def end(self) -> None:
        """End the process that holds the network."""
        os.close(self._answers)

    def told(self) -> bytes:
        """Return what it was told, once."""
        with open(self._asked, "rb", 0) as asked:
            return asked.read()

    def kill(self) -> None:
        self._log.append("kill")

    def wait(self, within: float) -> None:
        self._log.append(("wait", within))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    log: list[Any] = []

    def noting(name: str, result: Exception | None = None) -> Callable[..., None]:
        def call(*given: Any) -> None:
            log.append((name, *given))
            if result is not None:
                raise result

        return call

    for name in ("claim", "release", "restore_limits"):
        monkeypatch.setattr(module, name, noting(name))
    monkeypatch.setattr(os, "waitpid", noting("waitpid", ChildProcessError()))
    monkeypatch.setattr(module, "bubblewrap", lambda: "bwrap")  # to find it, a process would be waited for
    return log


READY = [("claim", 5), ("claim", 7), ("restore_limits", 7), "kill", ("wait", 5.0), ("release", 5)]


def test_the_processes_of_a_network_are_known_and_reaped(log: list[Any], monkeypatch: pytest.MonkeyPatch):
    builder = FakeBuilder(log, b'{"child-pid": 7}', b".")
    monkeypatch.setattr(module, "_holder_builder", builder)
    network = SessionNetwork()
    assert log == READY
    spaces = ("--user=/proc/7/ns/user", "--net=/proc/7/ns/net", "--preserve-credentials")
    assert network.enter == (module._nsenter(), *spaces)
    log.clear()
    builder.end()
    network.close()
    assert builder.told() == b"."
    assert log == [("waitpid", 7, 0), ("release", 7)]
    assert builder.stdout.closed


def test_a_network_that_does_not_end_is_not_waited_for_for_ever(log: list[Any], monkeypatch: pytest.MonkeyPatch):
    builder = FakeBuilder(log, b'{"child-pid": 7}', b".")
    monkeypatch.setattr(module, "_holder_builder", builder)
    network = SessionNetwork()
    log.clear()
    monkeypatch.setattr(module, "_NEEDED", 0)
    network.close()
    assert (log, builder.told(), builder.stdout.closed) == ([], b".", True)
    builder.end()


def test_a_network_that_was_not_made_leaves_nothing(log: list[Any], monkeypatch: pytest.MonkeyPatch):
    ended = [("wait", 5.0), ("release", 5)]
    for answer, noted in (
        (b'{"child-pid": 7}', [("claim", 5), ("claim", 7), ("waitpid", 7, 0), ("release", 7), *ended]),
        (b"{}", [("claim", 5), *ended]),
        (b"bwrap: no", [("claim", 5), *ended]),
    ):
        log.clear()
        builder = FakeBuilder(log, answer, b"")
        monkeypatch.setattr(module, "_holder_builder", builder)
        with pytest.raises(OSError, match="could not build namespaces that last"):
            SessionNetwork()
        assert (log, builder.told()[1:], builder.stdout.closed) == (noted, b"", True), answer


def test_a_network_in_which_nothing_listens_has_no_proxy(log: list[Any], monkeypatch: pytest.MonkeyPatch):
    builder = FakeBuilder(log, b'{"child-pid": 7}', b".")
    monkeypatch.setattr(module, "_holder_builder", builder)
    network = SessionNetwork()
    for failure in (None, subprocess.CalledProcessError(1, "python"), subprocess.TimeoutExpired("python", 5)):

        def run(words: Any, failure: Exception | None = failure, **options: Any) -> None:
            assert words[: len(network.enter) + 1] == [*network.enter, "--"]
            assert options["check"]
            if failure is not None:
                raise failure

        monkeypatch.setattr(subprocess, "run", run)
        with pytest.raises(OSError, match="no proxy for `network_allow` could be made"):
            network.listener()
    builder.end()
    network.close()
    assert builder.told() == b"."


def test_a_command_in_the_network_of_the_machine_is_confined_unless_bubblewrap_has_to_become_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / "bwrap"
    program.touch()
    monkeypatch.setattr(module, "bubblewrap", lambda: str(program))
    monkeypatch.setattr(module, "_may_be_confined", module._may_be_confined.__wrapped__)
    sandbox = BubblewrapSandbox(str(tmp_path / "private"), no_proxy)
    for user, mode, network, confined in (
        (1000, 0o755, NetworkReach.ALL, True),
        (1000, 0o4755, NetworkReach.ALL, False),
        (0, 0o4755, NetworkReach.ALL, True),
        (1000, 0o755, NetworkReach.NONE, False),
    ):
        program.chmod(mode)
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with sandbox.launch(["true"], "/", Walls((), (), home="/nowhere", network=network)) as launch:
            assert (launch.confine is module.close_nameless_sockets) is confined, (user, mode, network)
            assert (launch.confine is None) is not confined


def test_the_words_build_each_wall_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "filter_program", lambda **_: None)
    monkeypatch.setattr(module, "_LINKS", ())
    monkeypatch.setattr(module, "bubblewrap", lambda: "bwrap")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    root = tmp_path / "root"
    (root / "closed").mkdir(parents=True)
    (root / "key").touch()
    sandbox = BubblewrapSandbox(str(tmp_path / "private"), no_proxy)
    temporary, home = sandbox._home.folders
    assert Path(sandbox._filter).read_bytes() == b""
    hidden = (str(root / "closed"), str(root / "key"))
    names = os.path.realpath("/etc/resolv.conf")
    for reach, more, unshared in (
        (NetworkReach.NONE, {}, ["--unshare-net"]),
        (NetworkReach.ALL, {names: ("--ro-bind", names)}, []),
    ):
        walls = Walls((str(root),), ("/nowhere",), (str(root),), (str(root / "ro"),), hidden, "/home/me", reach)
        mounts = sandbox._mounts(walls)
        expected: dict[str, Any] = {
            "/dev": ("--dev",),
            "/home/me": ("--bind", home),
            "/proc": ("--proc",),
            "/proc/sys": ("--ro-bind", "/proc/sys"),
            "/tmp": ("--bind", temporary),
            "/var/tmp": ("--bind", temporary),
            str(root): ("--bind", str(root)),
            str(root / "ro"): ("--ro-bind-try", str(root / "ro")),
            hidden[0]: ("--tmpfs",),
            hidden[1]: ("--ro-bind", "/dev/null"),
        } | more
        own = {path: how for path, how in mounts.items() if path in expected}
        assert own == expected, reach
        assert all(path.startswith(("/tmp/", "/var/tmp/")) for path in mounts.keys() - own.keys()), "places in /tmp"
        built = [word for path, (how, *source) in mounts.items() for word in (how, *source, path)]
        user = ["--cap-drop", "ALL", "--uid", "1000", "--gid", "1000"]
        closed = ["--remount-ro", hidden[0], "--remount-ro", "/"]
        words = ("bwrap", *module._NAMESPACES, *user, *unshared, *built, *closed)
        assert sandbox._built(walls) == (words, module._places(mounts))
        assert not any("PROXY" in name.upper() for name in sandbox._variables(walls))
    sandbox.close()


def test_each_mount_that_must_be_there_is_looked_for_by_its_place_and_root(tmp_path: Path):
    (tmp_path / "there").touch()
    there, gone = str(tmp_path / "there"), str(tmp_path / "gone")
    table = {"/": _Mount("/disk", "ext4"), "/data": _Mount("/", "nfs4"), "/a b": _Mount("/", "ext4")}
    for how, listed in (
        (("--tmpfs",), "/ /place"),
        (("--bind", "/a/b"), "/disk/a/b /place"),
        (("--bind", gone), f"/disk{gone} /place"),
        (("--ro-bind-try", there), f"/disk{there} /place"),
        (("--ro-bind-try", gone), ""),
        (("--bind", "/data/x"), "/ /place"),
        (("--bind", "/a b/c"), "/disk/a\\040b/c /place"),
    ):
        assert _place("/place", how, table) == listed, how


def test_a_command_begins_in_its_folder_with_its_filter_of_system_calls():
    assert module._beginning("/cwd") == ["--chdir", "/cwd"]
    assert module._beginning("/cwd", 9) == ["--chdir", "/cwd", "--seccomp", "9"]


def test_only_a_line_for_bash_is_run_by_the_bash_that_looks_at_the_mounts():
    places = module._places({"/proc": ("--proc",), "/x": ("--tmpfs",)})
    bash, line = "/usr/bin/bash", ("-c", "--", "ls")
    by_sh = ("--", "/bin/sh", "-c", module._CHECKED, "sh", "/ /x", "--")
    by_bash = (
        "--",
        bash,
        "-c",
        'eval "$1"; ls',
        "bash",
        module._CHECKED_BY_BASH % module._all_in_order(1),
        "/ /x",
        "--",
    )
    for command, trusted, inside in (
        (("bash", *line), bash, by_bash),
        ((bash, *line), bash, by_bash),
        (("bash", *line), "", (*by_sh, "bash", *line)),
        (("sh", *line), bash, (*by_sh, "sh", *line)),
        (("ls", "-l"), bash, (*by_sh, "ls", "-l")),
    ):
        assert module._inside(places, command, trusted) == inside, command


def test_folders_above_what_is_mounted_in_a_private_folder_keep_their_place(tmp_path: Path):
    (tmp_path / "file").touch()
    private = tmp_path / "private"
    (private / "link").mkdir(parents=True)
    (private / "a").symlink_to("link")
    mounts: dict[str, tuple[str, ...]] = {
        "/p": ("--bind", str(private)),
        "/p/a/b/folder": ("--tmpfs",),
        "/q/r": ("--tmpfs",),
    }
    mounts["/p/a/b/folder/inner/most"] = ("--tmpfs",)
    before = open_fds()
    kept = module._kept_places(mounts, "/p", str(private))
    assert kept == {f"/p/{name}": ("--bind", str(private / name)) for name in ("a", "a/b")}
    found = {str(path.relative_to(private)): path.is_dir() and not path.is_symlink() for path in private.rglob("*")}
    assert found == {"link": True, "a": True, "a/b": True, "a/b/folder": False}
    make_place(str(private), ["c", "d"], folder=True)
    assert (private / "c" / "d").is_dir()
    assert open_fds() <= before
