"""What the walls around a session's commands are made of."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Access
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.sandbox import sandbox
from acp_agent.workspace.sandbox.sandbox import wall_named
from acp_agent.workspace.sandbox.walls import _HOMES, WallRules, Walls, upper_entries

PROTECTED = ProtectedPaths()


def protects(path: str) -> bool:
    found = PROTECTED.find(path)
    return found is not None and not found.everyday


def refuses_env(path: str, access: Access) -> str | None:
    return "secret" if access is Access.READ and os.path.basename(path) == ".env" else None


@pytest.fixture
def home(tmp_path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def root(home) -> Path:
    root = home / "project"
    root.mkdir()
    return root


def walls(root: Path, home: Path, **rules) -> Walls:
    path = rules.pop("path", "/usr/bin:/bin")
    return WallRules((str(root),), protects, refuses_env, **rules).walls({"HOME": str(home), "PATH": path})


def test_only_the_folders_of_the_session_may_be_changed(root, home):
    found = walls(root, home)
    assert found.writable == (str(root),)
    assert str(home) not in found.readable
    assert found.home == str(home)


def test_hooks_and_settings_of_git_are_frozen_and_their_folder_keeps_its_place(root, home):
    for name in ("hooks", "objects"):
        (root / ".git" / name).mkdir(parents=True)
    (root / ".git/config").touch()
    found = walls(root, home)
    assert set(found.frozen) == {str(root / ".git/hooks"), str(root / ".git/config")}
    assert found.pinned == (str(root / ".git"),)


def test_a_folder_of_the_session_stays_writable_whatever_a_repository_calls_its_hooks(root, home):
    (root / ".git").mkdir()
    for place, frozen in ((".", []), ("..", []), ("tools", [str(root / "tools")])):
        (root / "tools").mkdir(exist_ok=True)
        (root / ".git/config").write_text(f"[core]\nhooksPath = {place}\n")
        assert walls(root, home).frozen == (str(root / ".git/config"), *frozen), place


def test_a_repository_deep_in_a_submodule_folder_is_frozen_too(root, home):
    hooks = root / ".git/modules/a/b/hooks"
    hooks.mkdir(parents=True)
    found = walls(root, home)
    assert str(hooks) in found.frozen
    assert str(root / ".git/modules/a") in found.pinned


def test_protected_files_in_lower_folders_are_frozen(root, home):
    (root / "a/b/.vscode").mkdir(parents=True)
    (root / "a/b/.vscode/tasks.json").touch()
    found = walls(root, home)
    assert found.frozen == (str(root / "a/b/.vscode/tasks.json"),)
    assert found.pinned == (str(root / "a"), str(root / "a/b"), str(root / "a/b/.vscode"))


def test_protected_files_are_found_behind_many_others(root, home):
    def fill(folder: str) -> None:
        (root / folder).mkdir()
        for number in range(600):
            (root / folder / str(number)).touch()

    fill("first")
    for name in (".vscode/tasks.json", ".envrc", "opencode.json"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    for folder in ("aaa", "bbb", ".0"):  # whatever the order in which a file system lists them
        fill(folder)
    expected = {str(root / name) for name in (".vscode/tasks.json", ".envrc", "opencode.json")}
    assert expected <= set(walls(root, home).frozen)


def test_everything_in_the_folder_itself_is_looked_at_however_much_there_is(root):
    for number in range(1_100):
        (root / str(number)).touch()
    assert len(list(upper_entries(str(root)))) == 1_100


def test_nothing_is_looked_for_in_folders_that_programs_fill(root):
    for folder in ("src", "node_modules", ".venv"):
        (root / folder).mkdir()
        (root / folder / "file").touch()
    found = {path for path, _, _ in upper_entries(str(root))}
    assert found == {str(root / name) for name in ("src", "src/file", "node_modules", ".venv")}


def test_no_more_entries_of_a_folder_are_looked_at_than_there_is_time_for(root, monkeypatch):
    monkeypatch.setattr("acp_agent.workspace.sandbox.walls._MOST_DOTTED", 5)
    for number in range(9):
        (root / str(number)).touch()
    assert len(list(upper_entries(str(root)))) == 5


def test_commands_get_the_variables_that_open_a_toolchains_folder(root, home):
    folder = home / "toolchain"
    folder.mkdir()
    for name in _HOMES:
        assert name in child_environment({name: str(folder)}), name


def test_files_that_tools_may_not_read_are_hidden(root, home):
    (root / ".env").touch()
    assert str(root / ".env") in walls(root, home).hidden


def test_toolchains_of_the_user_are_readable_and_their_logins_hidden(root, home):
    (home / ".cargo/bin").mkdir(parents=True)
    (home / ".cargo/credentials.toml").touch()
    (home / ".ssh").mkdir()
    found = walls(root, home)
    assert str(home / ".cargo") in found.readable
    assert str(home / ".cargo/credentials.toml") in found.hidden
    assert str(home / ".ssh") not in {*found.readable, *found.hidden}  # it is not there at all


LOGINS_OF_TOOLS = (
    *(".bundle/config", ".ivy2/.credentials", ".sbt/.credentials", ".pub-cache/credentials.json", ".hex/hex.config"),
    *(
        ".local/share/uv/credentials/credentials.toml",
        ".julia/servers/a/auth.toml",
        ".dotnet/corefx/cryptography/x509stores/my/a.pfx",
    ),
)


@pytest.mark.parametrize("login", LOGINS_OF_TOOLS)
def test_the_login_of_a_tool_is_hidden_in_its_readable_folder(root, home, login):
    (home / login).parent.mkdir(parents=True)
    (home / login).touch()
    found = walls(root, home)
    assert any((home / login).is_relative_to(each) for each in found.readable)
    assert any((home / login).is_relative_to(each) for each in found.hidden)


@pytest.mark.parametrize(
    ("variable", "login"),
    [("CARGO_HOME", "credentials.toml"), ("GRADLE_USER_HOME", "gradle.properties")],
)
def test_the_login_of_a_toolchain_that_lies_elsewhere_is_hidden_too(root, home, tmp_path, variable, login):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / login).touch()
    rules = WallRules((str(root),), protects, refuses_env)
    found = rules.walls({"HOME": str(home), "PATH": "/usr/bin", variable: str(elsewhere)})
    assert str(elsewhere) in found.readable
    assert str(elsewhere / login) in found.hidden


@pytest.mark.parametrize("where", ["home", ".", "/"])
def test_no_variable_of_a_toolchain_makes_the_home_readable(root, home, tmp_path, where):
    (home / "pkg/mod").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    rules = WallRules((str(root),), protects, refuses_env)
    named = {"GOPATH": str(tmp_path / where), "JAVA_HOME": str(tmp_path / where), "PATH": f"{tmp_path}/bin:{tmp_path}"}
    found = rules.walls({"HOME": str(home), **named})
    assert not any(home.is_relative_to(each) for each in found.readable)
    assert str(tmp_path / "bin") in found.readable
    assert (str(home / "pkg") in found.readable) is (where == "home")


def test_a_relative_path_in_a_variable_of_a_toolchain_opens_no_folder(root, home, tmp_path, monkeypatch):
    (tmp_path / "go").mkdir()
    monkeypatch.chdir(tmp_path)
    found = WallRules((str(root),), protects, refuses_env).walls({"HOME": str(home), "PATH": "/bin", "GOPATH": "go"})
    assert str(tmp_path / "go") not in found.readable


def test_the_folder_above_a_bin_on_the_path_is_readable_but_never_the_home_itself(root, home):
    tools = home / "tools/x/bin"
    tools.mkdir(parents=True)
    (home / "bin").mkdir()
    found = walls(root, home, path=f"{tools}:{home}/bin:{home}:relative")
    assert {str(home / "tools/x"), str(home / "bin")} <= set(found.readable)
    assert str(home) not in found.readable


def test_with_the_read_only_profile_nothing_may_be_changed(root, home):
    (root / ".git/hooks").mkdir(parents=True)
    found = walls(root, home, read_only=True)
    assert (found.writable, found.frozen, found.pinned) == ((), (), ())
    assert str(root) in found.readable


def test_what_the_user_allows_and_denies_is_added(root, home, tmp_path):
    for name in ("written", "read", "read/secret"):
        (tmp_path / name).mkdir()
    found = walls(
        root, home,
        allow_write=(str(tmp_path / "written"),),
        allow_read=(str(tmp_path / "read"),),
        hidden=(str(tmp_path / "read/secret"), str(tmp_path / "absent")),
    )  # fmt: skip
    assert str(tmp_path / "written") in found.writable
    assert str(tmp_path / "read") in found.readable
    assert str(tmp_path / "read/secret") in found.hidden
    assert str(tmp_path / "absent") not in found.hidden


def test_a_link_is_followed_before_a_wall_is_built(root, home, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (home / ".cargo").symlink_to(target)
    assert str(target) in walls(root, home).readable


def test_a_protected_link_freezes_only_what_lies_within_the_folder(root, home):
    (root / "shared").touch()
    (root / "a").mkdir()
    (home / "key").touch()
    for link, goal in (("a/.envrc", "../shared"), (".envrc", "../key"), (".vscode", "."), (".idea", "..")):
        (root / link).symlink_to(goal)
    found = walls(root, home)
    assert found.frozen == (str(root / "shared"),)
    assert found.pinned == ()


def test_a_folder_around_something_unreadable_keeps_its_place(root, home):
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/.env").touch()
    assert walls(root, home).pinned == (str(root / "a"), str(root / "a/b"))


def test_what_is_unreadable_as_a_whole_pins_nothing_above_it(root, home, tmp_path):
    (tmp_path / "written").mkdir()
    written = (str(tmp_path / "written"),)
    assert walls(root, home, allow_write=written, hidden=written).pinned == ()


def test_the_wall_that_stopped_a_command_is_named_by_what_it_printed():
    named = {
        "touch: cannot touch '/etc/x': Read-only file system": "/etc/x cannot be changed",
        "bash: line 1: .git/hooks/pre-commit: Read-only file system": ".git/hooks/pre-commit cannot be changed",
        "Error: EROFS: read-only file system, open '/etc/y'": "/etc/y cannot be changed",
        "error: could not write config file .git/config: Device or resource busy\n": ".git/config cannot be changed",
        "rm: cannot remove 'AGENTS.md': Device or resource busy": "AGENTS.md cannot be changed",
        "OSError: [Errno 16] Device or resource busy: '/opt/a.tmp' -> '/opt/a'": "/opt/a cannot be changed",
        "Error: EBUSY: resource busy or locked, rename 'a' -> '/w/.npmrc'": "/w/.npmrc cannot be changed",
        "OSError: [Errno 30] Read-only file system: '/opt/z'": "/opt/z cannot be changed",
        "sed: couldn't open temporary file ./sedxll40S: Permission denied": "./sedxll40S may not be used",
        "touch: cannot touch 'new': Permission denied": "new may not be used",
        "Error: EACCES: permission denied, open '/etc/y'": "/etc/y may not be used",
        "PermissionError: [Errno 13] Permission denied: '/srv/a'": "/srv/a may not be used",
        "fatal: Unable to create '/p/.git/index.lock': Permission denied": "/p/.git/index.lock may not be used",
        "curl: (6) Could not resolve host: example.com": "the host example.com cannot be reached",
        "npm error getaddrinfo ENOTFOUND registry.example": "the host registry.example cannot be reached",
        "dial tcp: lookup proxy.example on [::1]:53": "the host proxy.example cannot be reached",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution": "no host but this one can be reached",
    }
    assert {text: wall_named(text, 1) for text in named} == named


def test_a_wall_is_named_in_a_line_of_any_length_as_soon_as_in_a_short_one():
    word = "x" * 16_000
    assert wall_named(word, 1) == ""
    said = f"{word} cannot touch '/etc/x': Read-only file system {word}"
    assert wall_named(said[:-9_000], 1) == "/etc/x cannot be changed"
    assert wall_named(f"{word}: Permission denied", 1).endswith("x may not be used")


def test_only_the_end_of_an_output_says_why_a_command_stopped():
    said, more = "touch: cannot touch '/etc/x': Read-only file system\n", "checked one more file\n" * 1_000
    assert wall_named(said + more, 1) == ""
    assert wall_named(more + said, 1) == "/etc/x cannot be changed"


@given(st.data())
def test_every_sign_of_a_wall_is_found_in_a_line(data: st.DataObject):
    for sign, _ in sandbox._SIGNS:
        said = data.draw(st.from_regex(re.compile(sign.pattern, sign.flags), fullmatch=True))
        assert wall_named(said, 1) != "", said


def test_a_pipe_does_not_hide_that_a_host_was_not_reached():
    said = "WARNING: Temporary failure in name resolution\nERROR: No matching distribution found for x\n"
    assert wall_named(said, 0) == "no host but this one can be reached"


@pytest.mark.parametrize(
    ("output", "code"),
    [("bash: ./a.sh: Permission denied", 126), ("Read-only file system", 0), ("AssertionError: 1 != 2", 1), ("", 1)],
)
def test_a_command_that_met_no_wall_names_none(output, code):
    assert wall_named(output, code) == ""
