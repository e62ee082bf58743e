"""What commands can do within the walls, on the real kernel."""

import os
import platform
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import psutil
import pytest

from acp_agent.core.backends import CommandOutcome, CommandRequest
from acp_agent.core.types import Access
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.processes.table import MOST_TASKS, CommandLimits
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.processes.tree import harden_process
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox, _all_in_order, bubblewrap, trusted_bash
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, tier_works, why_missing
from acp_agent.workspace.sandbox.walls import WallRules
from tests.fakes.passing_time import pass_time
from tests.unit.workspace.trees import open_fds

pytestmark = pytest.mark.anyio
TIERS = (SandboxTier.BUBBLEWRAP, SandboxTier.LANDLOCK)
HELD = "bwrap, walls held by earlier commands"
REFUSED = ("Read-only file system", "Permission denied", "Operation not permitted", "busy")
PROTECTED = ProtectedPaths()


def protects(path: str) -> bool:
    found = PROTECTED.find(path)
    return found is not None and not found.everyday


def refusals(said: str) -> int:
    return sum(map(said.count, REFUSED))


@dataclass
class Contained:
    """A terminal within the walls around a git repository."""

    root: Path
    terminal: LocalTerminal
    sandbox: SessionSandbox
    earlier: int = 0

    async def run(self, command: str, overdue_with: str = "", **request) -> CommandOutcome:
        """Run a command. Its time is over when it has printed `overdue_with`.

        First, `earlier` commands that do nothing run in the same walls.
        """
        earlier, self.earlier = self.earlier, 0
        for _ in range(earlier):
            assert (await self.run("true", read_only=request.get("read_only", False))).exit_code == 0
        if earlier:
            built = self.sandbox._built()
            assert isinstance(built, BubblewrapSandbox)
            assert any(built._known.values()), "no walls are held"
        running = await self.terminal.start(CommandRequest(command, str(self.root), **request))

        async def hear(output: str) -> None:
            if overdue_with and overdue_with in output:
                pass_time(request["timeout"])

        return await running.wait(hear)

    async def output(self, command: str) -> str:
        return (await self.run(command)).output


@pytest.fixture(params=(*TIERS, HELD))
def walls(request) -> str:
    tier = SandboxTier.BUBBLEWRAP if request.param == HELD else request.param
    if not tier_works(tier):
        pytest.skip(why_missing(tier))
    return request.param


@pytest.fixture
def tier(walls) -> SandboxTier:
    return SandboxTier.BUBBLEWRAP if walls == HELD else walls


@pytest.fixture
def tmp_path(tmp_path, request) -> Iterator[Path]:
    """A folder on a disk where walls are held: each copy of theirs has a /dev/shm of its own."""
    if "walls" not in request.fixturenames or request.getfixturevalue("walls") != HELD:
        yield tmp_path
    else:
        with TemporaryDirectory(dir="/var/tmp") as folder:
            yield Path(folder)


@pytest.fixture
async def contained(tmp_path, tier, walls) -> AsyncIterator[Contained]:
    harden_process()
    root = tmp_path / "root"
    await anyio.run_process(["git", "init", "-q", str(root)])
    (root / ".env").write_text("TOKEN=visible-if-it-escapes\n")
    (root / ".vscode").mkdir()
    (root / "src").mkdir()
    (root / ".vscode/tasks.json").write_text("{}")
    (tmp_path / "outside.txt").write_text("outside\n")
    environment = child_environment(os.environ)
    rules = WallRules((str(root),), protects, lambda path, _: "secret" if path.endswith(".env") else None)
    sandbox = SessionSandbox(rules, environment, tier)
    yield Contained(root, LocalTerminal(sandbox=sandbox), sandbox, 2 if walls == HELD else 0)
    sandbox.close()


async def test_a_contained_command_works_in_its_folder(contained):
    outcome = await contained.run("cd src && echo x > made && mv made found && cat found && mkdir a && rm -r a && pwd")
    assert outcome.output == f"x\n{contained.root}/src\n"
    assert outcome.exit_code == 0
    assert (contained.root / "src/found").read_text() == "x\n"


async def test_a_file_beside_a_protected_folder_can_be_edited_in_its_place(contained):
    (contained.root / "later.txt").write_text("1\n")
    assert (
        await contained.output("echo 2 >> later.txt; cat later.txt; echo 3 > later.txt; cat later.txt") == "1\n2\n3\n"
    )


async def test_only_bubblewrap_lets_git_change_its_folder(contained):
    outcome = await contained.run("echo x > made && git add made")
    assert (outcome.exit_code == 0) == (contained.sandbox.tier is SandboxTier.BUBBLEWRAP)


async def test_nothing_outside_the_folder_can_be_changed_or_read(contained, tmp_path):
    said = await contained.output(f"cat {tmp_path}/outside.txt; echo y >> {tmp_path}/outside.txt; touch /etc/made")
    assert said.count("No such file or directory") + refusals(said) >= 2
    assert not os.path.exists("/etc/made")
    assert (tmp_path / "outside.txt").read_text() == "outside\n"


async def test_hooks_in_a_folder_that_the_repository_names_stay_as_they_are(contained):
    (contained.root / "tools").mkdir()
    (contained.root / "tools/pre-commit").write_text("mine\n")
    await anyio.run_process(["git", "-C", str(contained.root), "config", "core.hooksPath", "tools"])
    said = await contained.output("echo x >> tools/pre-commit; mv tools t; touch tools/pre-push")
    assert refusals(said) == 3
    assert (contained.root / "tools/pre-commit").read_text() == "mine\n"


async def test_no_protected_link_leads_a_later_command_out(contained, tmp_path):
    (contained.root / ".envrc").symlink_to("../outside.txt")
    assert "outside\n" not in await contained.output("touch ../outside.txt; cat .envrc ../outside.txt")


async def test_a_protected_link_that_leads_nowhere_stops_no_command(contained):
    (contained.root / ".envrc").symlink_to("missing/deep/file")
    assert await contained.output("echo done") == "done\n"


async def test_a_link_that_takes_the_place_of_a_pinned_folder_leads_no_later_command_out(contained, tmp_path, tier):
    goal, folder = tmp_path / "goal", contained.root / "a"
    for made in (goal, folder):
        made.mkdir()
    (folder / ".envrc").touch()
    environment = {**child_environment(os.environ), "HOME": str(tmp_path)}
    sandbox = SessionSandbox(WallRules((str(contained.root),), protects, lambda *_: None), environment, tier)
    within = Contained(contained.root, LocalTerminal(sandbox=sandbox), sandbox, contained.earlier)
    try:
        await within.run("mkdir ../goal")  # the walls that are found for it hold for a while
        (folder / ".envrc").unlink()
        folder.rmdir()
        folder.symlink_to("../goal")  # a command can do that which has run since before the folder was made
        await within.run("touch a/made")
    finally:
        sandbox.close()
    assert list(goal.iterdir()) == []


@pytest.mark.parametrize("shell", [("sh", "-c"), ("bash", "-c", "--")])
async def test_a_command_is_not_run_if_a_link_took_a_place_while_its_walls_were_built(tmp_path, tier, shell):
    if tier is not SandboxTier.BUBBLEWRAP:
        pytest.skip("nothing is mounted")
    root, goal = tmp_path / "a \\ b\tc", tmp_path / "goal"
    (root / "a").mkdir(parents=True)
    (root / "a/.envrc").touch()
    goal.mkdir()
    environment = child_environment(os.environ)
    sandbox = SessionSandbox(WallRules((str(root),), protects, lambda *_: None), environment, tier)

    def run(between: Callable[[], object]) -> tuple[int, str]:
        with sandbox.launch([*shell, "echo ran; touch ../goal/made"], str(root)) as launch:
            between()
            made = subprocess.run(
                launch.arguments,
                check=False,
                env=environment,
                pass_fds=launch.descriptors,
                capture_output=True,
                text=True,
            )
        return made.returncode, made.stdout

    def exchange() -> None:
        (root / "a").rename(root / "b")
        (root / "a").symlink_to("..")

    try:
        assert run(lambda: None) == (1, "ran\n")
        code, said = run(exchange)
    finally:
        sandbox.close()
    assert (code, said) == (126, "")
    assert list(goal.iterdir()) == []


def test_all_mounts_are_found_at_once_only_if_all_are_there_in_their_order():
    lines = "1 0 8:1 /a /b rw\n2 0 8:1 /c* /d rw\n3 0 8:1 / /e rw\n"
    step = f"_mounts={shlex.quote(lines)}; {_all_in_order(2)}; echo $#"
    for places, left in (
        (("/a /b", "/c* /d"), 0),
        (("/a /b", "/ /e"), 0),
        (("/c* /d", "/a /b"), 2),
        (("/a /b", "/* /d"), 2),
        (("/a /b", "/a /b"), 2),
        (("/a /b", "/f"), 2),
    ):
        done = subprocess.run(["bash", "-c", step, "bash", *places], check=True, capture_output=True, text=True)
        assert done.stdout == f"{left}\n", places


async def test_the_shell_of_a_command_looks_at_the_mounts_itself_and_leaves_no_sign_of_it(contained, tier):
    if tier is not SandboxTier.BUBBLEWRAP or not trusted_bash(child_environment(os.environ)):
        pytest.skip("nothing is mounted, or another shell looks")
    line = "echo $# $0 $? ${_mounts-unset}; false"
    with contained.sandbox.launch(["bash", "-c", "--", line], str(contained.root)) as launch:
        assert "/bin/sh" not in launch.arguments
    outcome = await contained.run(line)
    assert (outcome.output, outcome.exit_code) == ("0 bash 0 unset\n", 1)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (  # in one pipe: of two, either may be read first
            "exec 2>&1; missing-1\nmissing-2 $LINENO; echo $LINENO",
            0,
            "bash: line 1: missing-1\nbash: line 2: missing-2\n2\n",
        ),
        ("true\n)\ntouch made", 2, "bash: -c: line 2: syntax error near unexpected token `)'\nbash: -c: line 2: `)'\n"),
        (
            ")\ntouch made",
            2,
            "bash: -c: line 1: syntax error near unexpected token `)'\nbash: -c: line 1: `eval \"$1\"; )'\n",
        ),
        (
            "& touch made",
            2,
            "bash: -c: line 1: syntax error near unexpected token `&'\nbash: -c: line 1: `eval \"$1\"; & touch made'\n",
        ),
        ("cat <<E\n$#\nE\n# end", 0, "0\n"),
    ],
)
async def test_an_error_names_its_line_of_the_command(contained, tier, line, code, said):
    if tier is not SandboxTier.BUBBLEWRAP or not trusted_bash(child_environment(os.environ)):
        pytest.skip("nothing is mounted, or another shell looks")
    outcome = await contained.run(line)
    assert (outcome.output.replace(": command not found", ""), outcome.exit_code) == (said, code)
    assert not (contained.root / "made").exists()


def test_only_the_bash_of_the_system_that_runs_nothing_first_looks_at_the_mounts(tmp_path):
    (tmp_path / "bash").write_text("")
    (tmp_path / "bash").chmod(0o755)
    system = {"PATH": "/usr/bin:/bin"}
    assert trusted_bash(system) == (shutil.which("bash", path="/usr/bin:/bin") or "")
    assert trusted_bash({"PATH": f"{tmp_path}:/usr/bin"}) == ""
    for name in ("BASH_ENV", "BASH_FUNC_shift%%", "BASHOPTS", "SHELLOPTS"):
        assert trusted_bash({**system, name: "x"}) == ""


def test_the_shell_of_a_server_does_not_look_because_its_entry_adds_variables(tmp_path):
    if not tier_works(SandboxTier.BUBBLEWRAP):
        pytest.skip("nothing is mounted")
    rules = WallRules((str(tmp_path),), protects, lambda *_: None)
    sandbox = SessionSandbox(rules, {"PATH": "/usr/bin:/bin"}, SandboxTier.BUBBLEWRAP, str(tmp_path))
    try:
        with sandbox.launch(["bash", "-c", "--", "true"], str(tmp_path)) as launch:
            assert "/bin/sh" in launch.arguments
    finally:
        sandbox.close()


async def test_no_setting_of_the_kernel_can_be_written(contained):
    settings = "/proc/sys/kernel/core_pattern /proc/irq/default_smp_affinity /proc/sysrq-trigger"
    tried = f"for each in {settings}; do if [ -e $each ]; then (: >> $each) 2>/dev/null && echo $each; fi; done"
    assert await contained.output(tried) == ""


async def test_walls_that_stand_are_found_once_for_commands_that_follow_each_other(tmp_path, tier):
    asked: list[str] = []

    def refuses(path: str, access: Access) -> None:
        asked.append(path)

    (tmp_path / "a").touch()
    sandbox = SessionSandbox(WallRules((str(tmp_path),), protects, refuses), child_environment(os.environ), tier)
    try:
        for _ in range(2):
            with sandbox.launch(["true"], str(tmp_path)):
                pass
    finally:
        sandbox.close()
    assert asked.count(str(tmp_path / "a")) == 1


async def test_a_command_leaves_no_descriptor_open_here(tmp_path, tier):
    sandbox = SessionSandbox(
        WallRules((str(tmp_path),), protects, lambda *_: None), child_environment(os.environ), tier
    )
    try:
        for _ in range(2):
            with sandbox.launch(["true"], str(tmp_path)):
                before = open_fds()
        with sandbox.launch(["true"], str(tmp_path)):
            assert open_fds() <= before  # others may be closed meanwhile
    finally:
        sandbox.close()


async def test_a_hidden_file_stays_hidden_when_its_folder_gets_another_name(contained):
    (contained.root / "src/.env").write_text("TOKEN=visible-if-it-escapes\n")
    said = await contained.output("mv src moved")
    said += await contained.output("cat */.env")
    assert "visible-if-it-escapes" not in said


async def test_a_link_that_a_command_leaves_in_its_private_home_leads_no_later_one_out(contained, tmp_path, tier):
    if tier is not SandboxTier.BUBBLEWRAP:
        pytest.skip("nothing is mounted")
    home, goal = tmp_path / "home", tmp_path / "goal"
    for folder in (home / ".local/bin", home / ".config/git", goal):
        folder.mkdir(parents=True)
    environment = {**child_environment(os.environ), "HOME": str(home)}
    sandbox = SessionSandbox(WallRules((str(contained.root),), protects, lambda *_: None), environment, tier)

    def run(command: str) -> str:
        with sandbox.launch(["sh", "-c", command], str(contained.root)) as launch:
            made = subprocess.run(
                launch.arguments,
                check=False,
                env=environment,
                pass_fds=launch.descriptors,
                capture_output=True,
                text=True,
            )
        return made.stdout + made.stderr

    try:
        assert run(f"cd ~; for n in .local .config; do mv $n $n-; ln -s /oldroot{goal} $n; done").count("busy") == 2
        os.rmdir(home / ".config/git")
        sandbox.adopt(WallRules((str(contained.root),), protects, lambda *_: None))
        run(f"cd ~; rm -r .config; ln -s /oldroot{goal} .config; ls -ld .config")
        (home / ".config/git").mkdir()
        sandbox.adopt(WallRules((str(contained.root),), protects, lambda *_: None))
        assert run("ls -A ~/.config") == "git\n"
    finally:
        sandbox.close()
    assert list(goal.iterdir()) == []


async def test_hooks_and_editor_tasks_stay_as_they_are(contained):
    tried = (
        "echo x > .git/hooks/pre-commit; git config a.b c; echo x > .vscode/tasks.json; rm -rf .vscode; mv .git g; true"
    )
    said = await contained.output(tried)
    assert refusals(said) >= 4
    assert not (contained.root / ".git/hooks/pre-commit").exists()
    assert (contained.root / ".vscode/tasks.json").read_text() == "{}"


async def test_secrets_cannot_be_read(contained):
    said = await contained.output(
        "cat .env; cat /etc/shadow; ls -A ~/.ssh; head -c 200 /proc/*/environ | tr '\\0' '\\n'"
    )
    assert "visible-if-it-escapes" not in said
    assert "root:" not in said


async def test_no_host_is_reached_but_a_server_of_the_session_is(contained):
    said = await contained.output(
        "python3 - <<'P'\nimport socket\ns = socket.socket()\ns.settimeout(2)\n"
        "try:\n    s.connect(('192.0.2.1', 80))\nexcept OSError as error:\n    print(error)\nP"
    )
    assert "unreachable" in said or "not supported" in said
    if contained.sandbox.tier is SandboxTier.LANDLOCK:  # it has no network of its own
        return
    server = (
        "import socket\ns = socket.create_server(('127.0.0.1', 8123))\n"
        "print('ready', flush=True)\ns.accept()[0].send(b'hi')"
    )
    async with anyio.create_task_group() as tasks:
        running = await contained.terminal.start(CommandRequest(f'python3 -c "{server}"', str(contained.root)))
        ready = anyio.Event()

        async def listen(output: str) -> None:
            if "ready" in output:
                ready.set()

        tasks.start_soon(running.wait, listen)
        await ready.wait()
        client = "import socket\nprint(socket.create_connection(('127.0.0.1', 8123)).recv(9))"
        assert await contained.output(f'python3 -c "{client}"') == "b'hi'\n"


async def test_it_has_no_capability_and_neither_sees_nor_ends_another_process(contained):
    said = await contained.output(
        "python3 -c 'import ctypes; print(ctypes.CDLL(None).prctl(23, 21))'; cat /proc/1/cmdline /proc/1/stat | wc -l; "
        f"kill -0 {os.getpid()}"
    )
    assert said.startswith("0\n")  # PR_CAPBSET_READ of CAP_SYS_ADMIN
    assert "No such process" in said or "Operation not permitted" in said
    assert "pytest" not in said


async def test_a_command_within_bubblewrap_has_namespaces_of_its_own(contained, tier):
    kinds = ("user", "pid", "mnt", "ipc", "uts", "net")
    said = await contained.output("cd /proc/self/ns; readlink " + " ".join(kinds))
    shared = {kind for kind in kinds if os.readlink(f"/proc/self/ns/{kind}") in said.split()}
    assert shared == (set() if tier is SandboxTier.BUBBLEWRAP else set(kinds))


async def test_no_command_within_bubblewrap_is_root(contained, tier):
    assert (await contained.output("id -u") == "0\n") == (tier is SandboxTier.LANDLOCK and os.geteuid() == 0)


async def test_no_further_namespace_or_mount_can_be_made(contained):
    said = await contained.output("unshare -U true; mount -t tmpfs x /mnt; umount /usr; ls /usr | head -1")
    assert (
        said.count("Operation not permitted") + said.count("must be superuser") + said.count("permission denied") >= 2
    )
    assert "bin" in said.splitlines()


async def test_tmp_and_home_are_private_and_last_for_the_session(contained, tmp_path):
    temporary = "/tmp" if contained.sandbox.tier is SandboxTier.BUBBLEWRAP else "$TMPDIR"
    names = f"{temporary}/acp-agent-test-private ~/acp-agent-test-private"
    await contained.run(f"echo a > {temporary}/acp-agent-test-private; echo b > ~/acp-agent-test-private")
    assert await contained.output(f"cat {names}") == "a\nb\n"
    assert not Path("/tmp/acp-agent-test-private").exists()
    assert not Path("~/acp-agent-test-private").expanduser().exists()


async def test_processes_left_behind_end_with_the_command_and_are_counted(contained):
    outcome = await contained.run("env -i setsid sleep 61 & sleep 62 & echo started")
    assert outcome.output == "started\n\n[2 background processes ended with the command]\n"


async def test_a_command_that_takes_too_long_may_clean_up(contained):
    outcome = await contained.run("trap 'echo cleaned; exit 5' TERM; echo started; sleep 60", "started", timeout=10)
    assert outcome.timed_out
    assert "cleaned" in outcome.output


async def test_a_command_that_asks_for_it_runs_free(contained, tmp_path):
    outcome = await contained.run(f"cat {tmp_path}/outside.txt", unsandboxed=True)
    assert outcome.output == "outside\n"


async def test_a_protected_file_that_was_made_since_the_last_command_stays_as_it_is(contained):
    await contained.run("true")
    (contained.root / ".envrc").write_text("made by the user\n")
    assert refusals(await contained.output("echo x > .envrc")) == 1
    assert (contained.root / ".envrc").read_text() == "made by the user\n"


def hides_keys(path: str, _: Access) -> str | None:
    return "a key" if path.endswith(".key") else None


async def test_other_rules_hold_for_the_next_command_and_for_what_was_moved_since(contained):
    (contained.root / "keys").mkdir()
    (contained.root / "keys/a.key").write_text("kept\n")
    assert await contained.output("cat keys/a.key") == "kept\n"
    contained.sandbox.adopt(WallRules((str(contained.root),), protects, hides_keys))
    assert "kept" not in await contained.output("cat keys/a.key")
    (contained.root / "keys").rename(contained.root / "moved")
    assert "kept" not in await contained.output("cat moved/a.key")


async def test_the_event_loop_is_free_while_the_walls_are_found(contained):
    answered = threading.Event()
    waits = []

    def protects_late(path: str) -> bool:
        if not waits:
            waits.append(answered.wait(5))
        return protects(path)

    contained.sandbox.adopt(WallRules((str(contained.root),), protects_late, lambda *_: None))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(contained.run, "true")
        tasks.start_soon(anyio.to_thread.run_sync, answered.set)
    assert waits == [True]


async def test_commands_that_start_at_the_same_time_share_one_network_which_outlives_its_thread(contained, tier):
    if tier is not SandboxTier.BUBBLEWRAP:
        pytest.skip("it has no network")
    said = []

    async def look() -> None:
        said.append(await contained.output("readlink /proc/self/ns/net"))

    def first() -> None:
        with contained.sandbox.launch(["true"], str(contained.root)):
            pass

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(look)
    assert len(said) == 4
    assert len(set(said)) == 1
    assert said[0].startswith("net:")
    contained.sandbox.close()
    thread = threading.Thread(target=first)
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    assert (await contained.output("readlink /proc/self/ns/net")).startswith("net:")


async def test_no_folder_and_no_process_of_the_sandbox_is_left(contained):
    await contained.run("touch ~/x")
    folder = contained.sandbox.folder
    assert os.path.isdir(folder)
    contained.sandbox.close()
    assert not os.path.exists(folder)


async def test_modes_and_times_of_files_in_the_folder_can_be_changed(contained):
    said = await contained.output(
        "cd src && touch a && chmod 750 a && chmod -R u+x . && touch -d @86400 a && cp -p a b && mkdir d && "
        "tar cf - a b | tar xpf - -C d && stat -c '%a %Y' a b d/b && chown $(stat -c %u:%g a) a && ln -s a l && "
        "touch -h -d @5 l && stat -c %Y l a && chmod 700 nothing"
    )
    *done, missing = said.splitlines()
    assert done == ["750 86400"] * 3 + ["5", "86400"]
    assert "No such file or directory" in missing


_METADATA_CALLS = """
import ctypes, os, struct, sys
call, here = ctypes.CDLL(None, use_errno=True).syscall, -100
kept, times = (os.getuid(), os.getgid()), struct.pack("=4q", 86400, 5, 172800, 7)
micros, seconds = struct.pack("=4q", 86400, 5, 172800, 7), struct.pack("=2q", 86400, 172800)
os.chdir(sys.argv[1])
open("a", "w").close()
os.mkdir("d")
os.symlink("../a", "d/f")
os.symlink("a", "l")
folder, file = os.open("d", os.O_PATH | os.O_DIRECTORY), os.open("a", os.O_RDWR)
mode, time = (lambda: oct(os.stat("a").st_mode & 0o7777)), (lambda: os.stat("a").st_mtime_ns)
for name, number, arguments, look in (
    ("chmod", 90, (b"a", 0o601), mode),
    ("fchmod", 91, (file, 0o602), mode),
    ("fchmodat", 268, (folder, b"f", 0o603), mode),
    ("fchmodat2", 452, (folder, b"f", 0o604, 0), mode),
    ("fchmodat2 of a link", 452, (folder, b"f", 0o605, 0x100), mode),
    ("chown", 92, (b"a", *kept), mode),
    ("fchown", 93, (file, *kept), mode),
    ("lchown", 94, (b"l", *kept), mode),
    ("lchown of nothing", 94, (b"nothing", *kept), mode),
    ("fchownat", 260, (folder, b"f", *kept, 0), mode),
    ("another owner", 260, (folder, b"f", kept[0] + 1, kept[1], 0), mode),
    ("another group", 260, (folder, b"f", kept[0], kept[1] + 1, 0), mode),
    ("utime", 132, (b"a", seconds), time),
    ("utimes", 235, (b"a", micros), time),
    ("futimesat", 261, (folder, b"f", micros), time),
    ("utimensat", 280, (folder, b"f", times, 0), time),
    ("utimensat of a file", 280, (file, None, times, 0), time),
):
    os.utime("a", (0, 0))
    error = 0 if call(number, *arguments) == 0 else ctypes.get_errno()
    print(name, error, look())
"""
_THEIR_ANSWERS = """\
chmod 0 0o601
fchmod 0 0o602
fchmodat 0 0o603
fchmodat2 0 0o604
fchmodat2 of a link 95 0o604
chown 0 0o604
fchown 0 0o604
lchown 0 0o604
lchown of nothing 2 0o604
fchownat 0 0o604
another owner 1 0o604
another group 1 0o604
utime 0 172800000000000
utimes 0 172800000007000
futimesat 0 172800000007000
utimensat 0 172800000000007
utimensat of a file 0 172800000000007
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the calls are those of x86-64")
async def test_every_call_of_the_system_that_changes_metadata_works_in_the_folder(contained, tier):
    if tier is not SandboxTier.LANDLOCK:
        pytest.skip("the kernel itself answers")
    (contained.root / "src/calls.py").write_text(_METADATA_CALLS)
    said = await contained.output("mkdir src/made && /usr/bin/env python3 src/calls.py src/made")
    assert said == _THEIR_ANSWERS


async def test_a_link_itself_keeps_its_owner_wherever_it_leads(contained):
    said = await contained.output(
        'cd src && ln -s /etc/passwd l && python3 -c \'import os; os.lchown("l", -1, -1); print("done")\''
    )
    assert said == "done\n"


async def test_many_processes_change_modes_at_once(contained):
    outcome = await contained.run(
        "cd src && seq 200 | xargs touch && seq 200 | xargs -P 8 -n 5 chmod 600 && ls -l | grep -c rw---"
    )
    assert outcome.output == "200\n"


async def test_a_protected_file_that_a_command_makes_gets_another_name_and_the_model_is_told(contained):
    outcome = await contained.run("echo x > src/.envrc; echo done")
    assert outcome.output.startswith("done\n\n[the command made ")
    assert not (contained.root / "src/.envrc").exists()
    assert (contained.root / "src/.envrc.quarantined").read_text() == "x\n"
    again = await contained.run("{ echo x > src/.envrc; echo made; } & sleep 60", "made", timeout=10)
    assert again.timed_out
    assert not (contained.root / "src/.envrc").exists()


async def test_a_command_has_limits_and_is_the_first_that_ends_where_memory_runs_out(contained, tier):
    if tier is not SandboxTier.BUBBLEWRAP:
        pytest.skip("Landlock has no namespace in which processes are counted")
    said = await contained.output("bash -c 'ulimit -u; ulimit -c'; cat /proc/self/oom_score_adj")
    assert said.split() == [str(MOST_TASKS), "0", "1000"]


@pytest.fixture
def limited(contained, tier) -> Callable[[CommandLimits], Contained]:
    """Return the same folder with a terminal whose commands have other limits."""
    if tier is not SandboxTier.BUBBLEWRAP:
        pytest.skip("Landlock has no namespace in which processes are counted")
    return lambda limits: replace(contained, terminal=LocalTerminal(sandbox=contained.sandbox, limits=limits))


def sleeping(seconds: str) -> list[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return [each for each in found if each.is_running() and each.name() == "sleep" and seconds in each.cmdline()]


@pytest.mark.parametrize(("background", "end"), [(False, "; wait"), (True, "; wait"), (True, "")])
async def test_a_command_with_too_many_processes_is_ended_and_no_other(limited, background, end):
    few = limited(CommandLimits(processes=30))
    forks = "for n in $(seq 60); do setsid sleep 612 & done" + end
    outcomes: list[CommandOutcome] = []

    async def beside() -> None:
        outcomes.append(await few.run("read line < go; echo lived"))

    os.mkfifo(few.root / "go")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside)
        outcome = await few.run(forks, background=background, timeout=30)
        (few.root / "go").write_text("\n")
    assert outcome.output.endswith(
        "\n[the sandbox ended the command: it had more than 30 processes; run fewer at a time]\n"
    )
    assert not outcome.timed_out
    assert not sleeping("612")
    assert outcomes[0].output == "lived\n"


@pytest.mark.parametrize(
    "takes",
    [
        "(head -c 300M /dev/zero; sleep 60) | tail > /dev/null",  # it may still print when its writer is killed first
        "head -c 300M /dev/zero > /dev/shm/taken; sleep 60",
    ],
)
async def test_a_command_that_takes_much_of_the_memory_is_ended_when_little_is_free(limited, takes):
    large = 150 * 2**20 / psutil.virtual_memory().total
    outcome = await limited(CommandLimits(spare=2, large=large)).run(takes, timeout=30)
    assert re.fullmatch(
        r"\n\[the sandbox ended the command: it used \d+ MiB, and memory ran out; use less at a time\]\n",
        outcome.output,
    )
    beside = await limited(CommandLimits(spare=2, large=large)).run("sleep 0.2; echo lived")
    assert beside.output == "lived\n"  # memory is short, but something else uses it


async def test_a_command_is_not_ended_for_much_memory_while_enough_is_free(limited):
    outcome = await limited(CommandLimits(spare=0, large=0)).run("sleep 0.2; echo lived")
    assert outcome.output == "lived\n"


def test_threads_that_ask_at_once_try_bubblewrap_once(tmp_path, monkeypatch):
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho tried >> {tmp_path}/tries; exit 1\n")
    program.chmod(0o700)
    monkeypatch.setattr("acp_agent.workspace.sandbox.bubblewrap._SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr("acp_agent.workspace.sandbox.sandbox.bubblewrap", cache(bubblewrap.__wrapped__))
    ready, answers = threading.Barrier(4), list[bool]()

    def ask() -> None:
        ready.wait()
        answers.append(tier_works(SandboxTier.BUBBLEWRAP))

    threads = [threading.Thread(target=ask) for _ in range(ready.parties)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (tmp_path / "tries").read_text() == "tried\n"
    assert answers == [False] * 4
