"""What somebody else runs later must not be planted: by any spelling, and also when it is not there yet."""

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.settings import NOTE_FILES
from acp_agent.core.errors import ConfigError, Refused
from acp_agent.core.types import Access
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.protected_paths import MAX_PATTERN, ProtectedPaths
from acp_agent.workspace.roots import Roots
from tests.rows import each_row

pytestmark = pytest.mark.anyio

HARD = (
    ".git",
    ".git/hooks",
    ".git/hooks/pre-commit",
    ".GIT/Hooks/pre-commit",
    "vendor/lib/.git/hooks/post-checkout",
    ".git/config",
    ".git/config.worktree",
    ".git/info/attributes",
    ".git/commondir",
    ".git/modules/lib/hooks/x",
    ".git/modules/a/modules/b/config",
    ".git/worktrees/w/gitdir",
    "mirror.git/hooks/update",
    ".gitconfig",
    ".config/git/config",
    ".bashrc",
    "sub/.zshrc",
    ".Profile",
    ".config/fish/config.fish",
    "dotfiles/config.fish",
    ".inputrc",
    ".ssh/authorized_keys",
    ".ssh",
    ".config/autostart/x.desktop",
    ".config/systemd/user/x.service",
    "Library/LaunchAgents/x.plist",
    ".acp-agent/config.toml",
    "deep/.acp-agent/new/file",
)
SOFT = (
    ".git/HEAD",
    ".git/refs/heads/main",
    ".git/rebase-merge/git-rebase-todo",
    ".gitmodules",
    "x/HEAD",
    ".husky/pre-commit",
    ".githooks/pre-push",
    ".vscode/tasks.json",
    ".VSCode/Settings.json",
    "app.code-workspace",
    ".idea/runConfigurations/x.xml",
    ".zed/tasks.json",
    ".devcontainer/devcontainer.json",
    ".envrc",
    ".mise.toml",
    "mise.toml",
    "sub/.mise.local.toml",
    ".config/mise/config.toml",
    ".mcp.json",
    ".cursor/mcp.json",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/commands/x.md",
    ".claude/skills/x/SKILL.md",
    ".opencode/plugin/x.ts",
    ".cursor/rules/x.mdc",
    ".gemini/commands/x.toml",
    ".hg/hgrc",
    "sitecustomize.py",
    "lib/python3.12/site-packages/x.pth",
    ".gdbinit",
    ".ghci",
    ".ocamlinit",
    ".iex.exs",
    ".octaverc",
    ".perldb",
    ".dir-locals-2.el",
    ".gitpod.yml",
    ".idx/dev.nix",
    ".sl/config",
    "_darcs/prefs/defaults",
)
EVERYDAY = (
    "AGENTS.md",
    "sub/Agents.MD",
    "CLAUDE.md",
    "GEMINI.md",
    ".cursorrules",
    ".windsurfrules",
    ".github/copilot-instructions.md",
    ".github/workflows/ci.yml",
    ".github/actions/x/action.yml",
    ".gitlab-ci.yml",
    "conftest.py",
    "tests/unit/conftest.py",
    "build.rs",
    ".latexmkrc",
    ".cargo/config.toml",
    ".cargo/config",
    "rust-toolchain.toml",
    "lefthook.yml",
    "lefthook-local.yml",
    ".lefthook/pre-commit/x.sh",
    ".pre-commit-config.yaml",
    ".venv/bin/python",
    "venv/bin/activate",
    ".venv/Scripts/python.exe",
    "node_modules/.bin/tsc",
    "web/node_modules/.bin/eslint",
    ".npmrc",
    ".yarnrc.yml",
    ".yarn/releases/yarn-4.cjs",
    ".pnp.cjs",
    ".tool-versions",
    ".mvn/jvm.config",
    "gradle/wrapper/gradle-wrapper.properties",
)
FREE = (
    "README.md",
    ".gitignore",
    ".gitattributes",
    ".github/ISSUE_TEMPLATE/bug.md",
    ".git/index.lock",
    ".git/info/exclude",
    "hooks/pre-commit",
    "src/config",
    "config.toml",
    ".vscode/snippets.code-snippets",
    ".vscode/settings.json.bak",
    "package.json",
    "Makefile",
    "pyproject.toml",
    "setup.py",
    "Cargo.toml",
    "CMakeLists.txt",
    "docs/agents.rst",
    "my_conftest.py",
    ".venv",
    ".venv/lib/python3.12/site-packages/x.py",
    "node_modules/x/index.js",
    "bin/x",
    "cargo/config.toml",
    ".claude",
    ".env",
    "bashrc",
    "my.bashrc",
    "app/[slug]/page.tsx",
    "library/x",
    ".config/x.toml",
    "ssh/id",
    "header.h",
)


@pytest.fixture
def roots(tmp_path: Path):
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".vscode").mkdir()
    with Roots(str(tmp_path), policy=ProtectedPaths()) as made:
        yield made


@pytest.mark.parametrize("access", [Access.WRITE, Access.MOVE, Access.DELETE])
@each_row("path", HARD)
def test_hard_paths_are_refused_whether_they_are_there_or_not(roots: Roots, path: str, access: Access):
    with pytest.raises(Refused, match="is protected"):
        roots.resolve(path, access)


@each_row("path", [*SOFT, *EVERYDAY, *FREE])
def test_what_people_have_edited_is_not_refused_by_the_file_system(roots: Roots, path: str):
    assert roots.resolve(path, Access.WRITE)


@each_row("path", HARD)
def test_reading_is_nobodys_business_here(path: str):
    assert ProtectedPaths()(f"/w/{path}", Access.READ) is None
    assert ProtectedPaths()(f"/w/{path}", Access.LIST) is None


@pytest.mark.parametrize(
    ("paths", "due"),
    [(HARD, (True, False)), (SOFT, (False, False)), (EVERYDAY, (False, True)), (FREE, None)],
    ids=["hard", "soft", "everyday", "free"],
)
def test_every_path_is_in_its_class_relative_and_absolute(paths: tuple[str, ...], due: tuple[bool, bool] | None):
    protected = ProtectedPaths()
    for path in paths:
        for spelled in (path, f"./{path}", f"/srv/{path}", f"a/../{path}", f"{path}/"):
            found = protected.find(spelled)
            assert ((found.hard, found.everyday) if found else None) == due, spelled


def test_the_files_an_agent_obeys_are_protected_whatever_they_are_called():
    for path in (*NOTE_FILES, "docs/How to work.md"):
        found = ProtectedPaths(obeyed=(*NOTE_FILES, "docs/how to work.md")).find(f"sub/{path}")
        assert found is not None
        assert not found.hard
    assert ProtectedPaths(obeyed=("docs/[a].md",)).find("docs/a.md") is None


def test_a_folder_that_is_made_anew_every_day_goes_whole_without_a_question():
    protected = ProtectedPaths()
    for path in (".venv", "venv", "node_modules", "web/node_modules", ".direnv", "vendor", ".tox"):
        assert protected.find(path, holding=True) is None
    for path in (".claude", ".cargo", ".hg", ".github"):
        assert protected.find(path, holding=True) is not None


@pytest.mark.parametrize("path", ["/etc/cron.d/x", "/etc/profile", "/etc/sudoers", "/var/spool/cron/me"])
def test_places_of_the_system_are_only_meant_there(path: str):
    found = ProtectedPaths().find(path)
    assert found is not None
    assert found.hard
    assert ProtectedPaths().find(f"fixtures{path}") is None


@given(st.sampled_from([*HARD, *SOFT, *EVERYDAY]), st.integers(0, 2**64))
def test_no_twin_of_a_name_slips_by(path: str, mask: int):
    twin = "".join(char.swapcase() if mask >> at & 1 else char for at, char in enumerate(path))
    twin = unicodedata.normalize("NFD" if mask & 1 else "NFC", twin)
    protected = ProtectedPaths()
    assert protected.find(twin) == protected.find(path)


@given(
    st.lists(st.sampled_from([".git", "hooks", "config", ".vscode", "x", ".ssh", "HEAD", "é"]), min_size=1, max_size=6)
)
def test_whatever_lies_below_something_hard_is_hard(names: list[str]):
    path = "/".join(names)
    protected = ProtectedPaths()
    found = protected.find(f"{path}/.ssh/k")
    assert found is not None
    assert found.hard
    above = protected.find(path)
    if above is not None and above.hard and names[-1] != ".git":
        below = protected.find(f"{path}/more")
        assert below is not None


def test_a_link_into_a_protected_folder_is_that_folder(roots: Roots, tmp_path: Path):
    (tmp_path / "h").symlink_to(".git/hooks")
    with pytest.raises(Refused, match="git runs"):
        roots.resolve("h/pre-commit", Access.WRITE)


async def test_every_writer_of_the_file_system_meets_it(roots: Roots, tmp_path: Path):
    files = LocalFileSystem(roots)
    (tmp_path / ".git" / "config").write_text("mine")
    (tmp_path / "evil" / "sub" / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "evil" / "sub" / ".git" / "hooks" / "x").write_text("#!/bin/sh")
    (tmp_path / "file").write_text("x")
    for attempt in (
        lambda: files.write_text(".git/hooks/pre-commit", "x", expected=None),
        lambda: files.make_directory("new/.git/hooks"),
        lambda: files.move("file", ".git/hooks/pre-commit"),
        lambda: files.copy("file", ".git/hooks/pre-commit"),
        lambda: files.move(".git", "x"),
        lambda: files.delete(".git", recursive=True),
        lambda: files.delete(".git/config", recursive=False),
        lambda: files.copy("evil", "copied"),
        lambda: files.move("evil/sub", "moved"),
        lambda: files.delete("evil", recursive=True),
    ):
        with pytest.raises(Refused):
            await attempt()
    assert sorted(os.listdir(tmp_path)) == [".git", ".vscode", "evil", "file"]
    assert os.listdir(tmp_path / ".git") == ["hooks", "config"] or sorted(os.listdir(tmp_path / ".git")) == [
        "config",
        "hooks",
    ]
    assert os.listdir(tmp_path / ".git" / "hooks") == []


def test_a_folder_that_holds_something_protected_counts_where_it_goes_whole():
    protected = ProtectedPaths(own=("/home/u/.local/share/agent",))
    for path, hard in ((".vscode", False), (".config", True), ("/home/u/.local", True), (".claude", False)):
        assert protected.find(path) is None
        found = protected.find(path, holding=True)
        assert found is not None
        assert found.hard is hard
    for path in ("src", "Library", "vendor", "/home/u/.localized"):
        assert protected.find(path, holding=True) is None


@each_row("pattern", [".g?t", ".gi[t]", ".g*/hooks", ".git/*", ".git/ho*/x", ".vs*/tasks.json", ".env*", ".*"])
def test_a_pattern_of_a_command_that_may_meet_one_counts(pattern: str):
    assert ProtectedPaths().find(pattern) is not None


@each_row("pattern", ["*", "*.py", "build/*", "src/**", ".*.swp", "*/config", "h*", "c*"])
def test_a_pattern_that_does_not_aim_at_one_does_not(pattern: str):
    assert ProtectedPaths().find(pattern) is None


# --------------------------------------------------------------------------------- what a user says


def test_a_user_adds_paths_that_are_asked_about(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/u")
    protected = ProtectedPaths(added=("deploy/*.sh", "**/secrets/**", "Makefile", "/srv/x", "~/notes"))
    for path in ("a/deploy/go.sh", "secrets/x", "b/SECRETS", "makefile", "sub/Makefile", "/srv/x/y", "/home/u/notes/n"):
        found = protected.find(path)
        assert found is not None, path
        assert not found.hard
    for path in ("deploy/x/go.sh", "/opt/srv/x", "Makefiles", "/home/v/notes"):
        assert protected.find(path) is None, path


def test_soft_ones_can_be_taken_off_hard_ones_cannot():
    protected = ProtectedPaths(lifted=(".vscode/settings.json", ".husky", ".git", ".bashrc", "**/.ssh"))
    for path in ("sub/.vscode/settings.json", ".husky/pre-commit", ".git/HEAD"):
        assert protected.find(path) is None
    for path in (
        ".vscode/tasks.json",
        ".git/hooks/x",
        ".git",
        ".bashrc",
        ".ssh/x",
        ".VSCODE/settings.json",
        ".vscode/*",
    ):
        assert protected.find(path) is not None, path


@given(st.lists(st.sampled_from([*HARD, *SOFT, "*", "**/x", "?*"]), max_size=4), st.sampled_from(HARD))
def test_nothing_a_user_writes_takes_off_a_hard_one(patterns: list[str], path: str):
    found = ProtectedPaths(added=patterns, lifted=patterns).find(path)
    assert found is not None
    assert found.hard


@pytest.mark.parametrize(
    "pattern", ["", "/", "**", "../x", "a/../b", "~nobody-such/x", "a\0b", "x" * (MAX_PATTERN + 1)]
)
@pytest.mark.parametrize("setting", ["added", "lifted"])
def test_what_is_no_pattern_is_said_with_its_setting(pattern: str, setting: str):
    with pytest.raises(ConfigError, match=r"tools\.protection\.(un)?protected_paths") as caught:
        ProtectedPaths(**{setting: (pattern,)})
    assert "anywhere" in caught.value.expected


def test_the_agents_own_files_are_hard_by_both_their_names(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "data").symlink_to("real")
    protected = ProtectedPaths(own=(str(tmp_path / "data"),))
    for name in ("data", "real/x"):
        found = protected.find(str(tmp_path / name))
        assert found is not None
        assert found.hard


def test_what_was_found_is_found_again_whatever_was_asked_in_between():
    paths = ProtectedPaths(added=["deploy/*.sh"], lifted=[".vscode/settings.json"])
    asked = [
        "/project/.git/config",
        "/project/deploy/run.sh",
        "/project/.vscode/settings.json",
        "/project/src/main.py",
        "x" * 5000,
        "/home/me/.config",
    ]
    asked += [f"/project/{number}/.git/hooks/pre-commit" for number in range(300)]
    first = [(paths.find(path), paths.find(path, holding=True)) for path in asked]
    again = [(paths.find(path), paths.find(path, holding=True)) for path in asked * 2]
    assert again == first * 2
    assert first[5][0] is None
    assert first[5][1] is not None
    assert [None if plain is None else plain.hard for plain, _ in first[:5]] == [True, False, None, None, None]


def test_a_long_path_against_a_hostile_pattern_costs_no_time():
    protected = ProtectedPaths(added=tuple(f"a/**/a/**/b{number}" for number in range(50)))
    assert protected.find("a/" * 2000) is None
    assert protected.find("*a" * 120) is None
