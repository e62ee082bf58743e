"""The rights that amount to the walls, for each version of Landlock, and the start within them."""

import errno
import os
import platform
import struct
import subprocess
import threading
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from acp_agent.workspace.sandbox.landlock import (
    LandlockSandbox,
    Right,
    _allow,
    _new_ruleset,
    _times,
    grants,
    known_rights,
    landlock_abi,
    landlock_works,
)
from acp_agent.workspace.sandbox.metadata import _CALLS
from acp_agent.workspace.sandbox.seccomp import filter_program
from acp_agent.workspace.sandbox.walls import Launch, PrivateHome, Walls
from tests.unit.workspace.trees import open_fds

needs_landlock = pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")


@pytest.fixture
def root(tmp_path) -> Path:
    root = tmp_path / "root"
    for folder in (".git/hooks", ".git/objects", "src/deep"):
        (root / folder).mkdir(parents=True)
    for file in (".git/config", ".git/hooks/pre-commit", ".env", "Makefile", "src/a.py"):
        (root / file).touch()
    return root


def walls(root: Path, **fields) -> Walls:
    given = {"writable": (str(root),), "readable": (), "home": "/nowhere"} | fields
    return Walls(**given)


def test_a_folder_without_anything_closed_gets_all_rights_at_once(root):
    found = grants(walls(root))
    assert set(found) == {str(root)}
    assert Right.MAKE_REG in found[str(root)]
    assert not found[str(root)] & (Right.MAKE_CHAR | Right.MAKE_BLOCK | Right.IOCTL_DEV)


def test_a_call_for_metadata_means_the_same_on_every_machine():
    """The other machines have the newer calls only. https://docs.kernel.org/process/adding-syscalls.html"""
    same = {53: 268, 54: 260, 52: 91, 55: 93, 88: 280, 452: 452}
    assert _CALLS["aarch64"] == {other: _CALLS["x86_64"][number] for other, number in same.items()}


@needs_landlock
def test_what_is_gone_or_became_a_link_meanwhile_gets_no_rule(root):
    (root / "link").symlink_to("src")
    ruleset = _new_ruleset(landlock_abi(), tcp=True)
    try:
        for name in ("gone", "link", "src", "Makefile"):
            _allow(ruleset, str(root / name), Right.READ_DIR)
    finally:
        os.close(ruleset)


def test_above_something_frozen_or_hidden_each_entry_has_its_own_rights(root):
    frozen = tuple(str(root / name) for name in (".git/hooks", ".git/config"))
    found = {
        os.path.relpath(path, root): rights
        for path, rights in grants(walls(root, frozen=frozen, hidden=(str(root / ".env"),))).items()
    }
    assert found["."] == found[".git"] == Right.READ_DIR
    assert found[".git/hooks"] == found[".git/config"] == Right.READ_FILE | Right.READ_DIR | Right.EXECUTE
    assert all(Right.WRITE_FILE in found[name] for name in ("src", ".git/objects", "Makefile"))
    assert ".env" not in found
    assert "src/deep" not in found


def test_a_link_gets_no_rights(root):
    (root / "link").symlink_to("/etc")
    assert str(root / "link") not in grants(walls(root, hidden=(str(root / ".env"),)))


def test_each_version_can_refuse_what_the_kernel_documents():
    added = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16}
    assert {abi: int(known_rights(abi)).bit_length() for abi in added} == added


@needs_landlock
@pytest.mark.parametrize("abi", range(1, 8))
def test_each_version_refuses_files_outside_and_sockets_and_to_empty_files(root, tmp_path, abi):
    if abi > landlock_abi():
        pytest.skip(f"the kernel has version {landlock_abi()}")
    (tmp_path / "private").mkdir()
    (tmp_path / "outside").write_text("outside")
    sandbox = LandlockSandbox(str(tmp_path / "private"), abi)
    emptied = tmp_path / "emptied"
    emptied.write_text("full")
    emptying = f"os.truncate('{emptied}', 0)", f"os.open('{emptied}', os.O_RDONLY | os.O_TRUNC)"
    tried = "".join(f'PATH=/usr/bin:/bin python3 -c "import os; {each}" 2>/dev/null; ' for each in emptying)
    tried += f"cat {tmp_path}/outside; cat .git/config && echo x > src/b && cat src/b; exec 3<>/dev/tcp/127.0.0.1/9"
    usual = ("/usr", "/bin", "/lib", "/lib64", "/etc")
    around = walls(root, readable=(*usual, str(emptied)), frozen=(str(root / ".git/config"),))
    with sandbox.launch(["bash", "-c", tried], str(root), around) as launch:
        popen = partial(
            subprocess.Popen[str], launch.arguments, cwd=root, stdout=-1, stderr=subprocess.STDOUT, text=True
        )
        said = launch.start(popen).communicate()[0]
    sandbox.close()
    assert emptied.read_text() == "full"
    assert "outside: Permission denied" in said
    assert "\nx\n" in said
    assert "Address family not supported" in said


@needs_landlock
def test_only_the_thread_that_starts_the_command_is_restricted(root, tmp_path):
    sandbox = LandlockSandbox(str(tmp_path))
    with sandbox.launch(["true"], "/", walls(root, readable=("/usr",))) as launch:
        names: list[str] = []
        launch.start(lambda: names.append(threading.current_thread().name))
    sandbox.close()
    assert names != [threading.current_thread().name]
    assert "\nSeccomp:\t0\n" in Path("/proc/thread-self/status").read_text()


@needs_landlock
def test_a_file_made_meanwhile_beside_something_closed_gets_its_rights(root, tmp_path):
    sandbox = LandlockSandbox(str(tmp_path))
    around = walls(root, readable=("/usr", "/bin", "/lib", "/lib64"), hidden=(str(root / ".env"),))

    def ran(command: str) -> str:
        with sandbox.launch(["bash", "-c", command], "/", around) as launch:
            popen = partial(subprocess.Popen[str], launch.arguments, stdout=-1, stderr=-1, text=True)
            return launch.start(popen).communicate()[0]

    ran("true")
    (root / "new").write_text("new")
    assert ran(f"cat {root}/new {root}/.env") == "new"
    sandbox.close()


def test_the_rules_are_made_again_when_a_folder_above_something_closed_comes_or_changes(root):
    around = walls(root, hidden=(str(root / "src" / "none" / "key"),))
    before = _times(around)
    assert before == (root.stat().st_mtime_ns, (root / "src").stat().st_mtime_ns, 0)
    (root / "src" / "none").mkdir()
    assert [time > earlier for time, earlier in zip(_times(around), before, strict=True)][1:] == [True, True]


@needs_landlock
def test_within_such_walls_no_second_ones_are_promised(root, tmp_path):
    sandbox = LandlockSandbox(str(tmp_path))
    with sandbox.launch(["true"], "/", walls(root)) as launch:
        assert not launch.start(landlock_works.__wrapped__)
    sandbox.close()
    assert landlock_works()


@needs_landlock
def test_trying_the_walls_leaves_no_descriptor_open():
    before = open_fds()
    assert landlock_works.__wrapped__()
    assert open_fds() <= before  # others may be closed meanwhile


def test_what_cannot_start_raises_where_it_was_asked_for():
    def broken() -> None:
        raise OSError("no walls")

    with pytest.raises(OSError, match="no walls"):
        Launch(("true",), confine=broken).start(lambda: pytest.fail("it was started without walls"))


def test_the_private_home_links_to_toolchains_and_folders_of_the_session(root, tmp_path):
    home = tmp_path / "home"
    (home / ".local/bin").mkdir(parents=True)
    private = PrivateHome(str(tmp_path / "private"))
    variables = private.variables(walls(root, home=str(tmp_path), readable=(str(home / ".local/bin"),)))
    assert os.path.realpath(variables["HOME"] + "/home/.local/bin") == str(home / ".local/bin")
    assert os.path.realpath(variables["HOME"] + "/root") == str(root)
    assert variables["XDG_CACHE_HOME"] == variables["HOME"] + "/.cache"


def test_a_home_that_the_session_works_in_stays_the_home(root, tmp_path):
    assert "HOME" not in PrivateHome(str(tmp_path / "private")).variables(walls(root, home=str(root)))


def fate(program: bytes, number: int, *arguments: int, architecture: int = 0xC000003E) -> object:
    """Return what a filter does with a call: None if it permits it, the error if it refuses it, or "asks".

    https://docs.kernel.org/userspace-api/seccomp_filter.html
    """
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    steps, at, loaded = [*struct.iter_unpack("<HBBI", program)], 0, 0
    compared = {0x15: int.__eq__, 0x35: int.__ge__, 0x45: lambda one, other: bool(one & other)}
    while True:
        code, holds, fails, operand = steps[at]
        at += 1
        if code == 0x06:
            kinds = {0x7FFF: None, 0x7FC0: "asks", 0x0005: errno.errorcode.get(operand & 0xFFFF)}
            return kinds[operand >> 16]
        if code == 0x20:
            (loaded,) = struct.unpack_from("<I", data, operand)
        elif code == 0x54:
            loaded &= operand
        else:
            at += holds if compared[code](loaded, operand) else fails


FATES = """
any        None          0
any        EPERM         165
any        EPERM         0x40000000
any        None          0x3fffffff
any        ENOSYS        435
any        None          56 0x11
any        EPERM         56 0x10000000
any        EPERM         16 0 0x5412
any        EPERM         16 0 0x541c
any        None          16 0x5412 0
any        EAFNOSUPPORT  41 17
internet   None          41 2
internet   None          41 10
local      EAFNOSUPPORT  41 2
contained  None          41 1
contained  None          41 16
alone      EAFNOSUPPORT  41 1
contained  None          29
alone      EPERM         29
alone      ENOTSUP       188
contained  None          188
alone      asks          90
contained  None          90
alone      None          302 0
alone      EPERM         302 7
alone      None          141 7 0
alone      EPERM         141 0 7
alone      None          53 1 1
alone      None          53 1 0x80001
alone      EPERM         53 1 2
contained  None          53 1 2
old        EPERM         76
new        None          76
old        ENOSYS        437
new        None          437
old        EPERM         2 0 0x200
old        None          2 0 0x201
old        None          2 0x200 0
old        EPERM         257 0 0 0x200
old        None          257 0 0x200 0
"""
"""The filters of which a row is true, what becomes of a call, its number and its arguments."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of another machine")
def test_each_call_has_its_fate():
    for internet, contained, old in product((True, False), repeat=3):
        kinds = {
            "any",
            "internet" if internet else "local",
            "contained" if contained else "alone",
            "old" if old else "new",
        }
        program = filter_program(internet=internet, namespaces=contained, truncation=old)
        assert program is not None
        for which, expected, *call in map(str.split, FATES.strip().splitlines()):
            if which in kinds:
                assert str(fate(program, *(int(each, 0) for each in call))) == expected, (kinds, call)
        assert fate(program, 0, architecture=0x40000003) == "EPERM"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of another machine")
@pytest.mark.parametrize("internet", [True, False])
def test_calls_that_change_the_system_are_refused(internet: bool):
    program = filter_program(internet=internet, namespaces=False)
    assert program is not None
    judged = {operand for code, _, _, operand in struct.iter_unpack("=HBBI", program) if code == 0x15}
    system = {"syslog": 103, "init_module": 175, "delete_module": 176, "quotactl": 179, "kexec_load": 246}
    keys = {"add_key": 248, "request_key": 249, "keyctl": 250}
    mounts = {"pivot_root": 155, "chroot": 161, "mount": 165, "umount2": 166, "unshare": 272, "setns": 308}
    others = {"swapon": 167, "reboot": 169, "perf_event_open": 298, "process_vm_readv": 310, "bpf": 321}
    for name, number in (system | keys | mounts | others).items():
        assert number in judged, name
