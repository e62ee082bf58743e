"""The words of a command that name files it opens, which an earlier command of the line may have replaced by links.

A line is judged before it runs. Behind `git checkout evil`, `cat readme.txt` may read through a link that the first
command made. Programs that run the workspace's own code are left out, since they can open anything without a link.
"""

from collections.abc import Iterator
from itertools import chain

from acp_agent.gates.paths.command_paths import candidates, odd_words, path_words
from acp_agent.gates.paths.followed_links import FINDERS, starting_points
from acp_agent.gates.paths.made_links import without_end
from acp_agent.gates.paths.piped_names import NAMES_ONLY
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.options import getopt, has_option
from acp_agent.gates.shell.programs import Programs, find_subcommand, program_table
from acp_agent.gates.shell.tables import tables

_GIT_FILE_OPTIONS = (
    *("--file", "--template", "--git-dir", "--work-tree", "--contents", "--ignore-revs-file", "--pathspec-from-file"),
    *("--signature-file", "--add-file", "--exclude-from", "--output", "--output-directory", "--reference"),
)
_GIT_OPENS = frozenset(
    (
        "apply", "am", "hash-object", "bundle", "interpret-trailers", "send-email", "mailinfo", "mailsplit", "clone",
        "init",
    )
)  # fmt: skip
_RUNS_CODE = frozenset(
    (
        "pytest", "py.test", "py-test", "tox", "nox", "make", "gmake", "just", "task", "cmake", "ctest", "ninja",
        "meson", "npm", "npx", "pnpm", "yarn", "bun", "bunx", "deno", "node", "ts-node", "tsx", "jest", "vitest",
        "mocha", "vite", "webpack", "eslint", "cargo", "go", "mvn", "gradle", "bazel", "dotnet", "pip", "pip3", "uv",
        "uvx", "poetry", "hatch", "pdm", "bundle", "rake", "rails", "rspec", "composer", "phpunit", "docker", "podman",
        "pre-commit", "direnv", "mix", "stack", "cabal", "swift", "zig", "sbt", "lein", "ant", "invoke", "inv",
    )
)  # fmt: skip
_QUIET = frozenset(
    (
        "cd", "pushd", "popd", "pwd", "sleep", "wait", "exit", "which", "type", "date", "whoami", "id", "uname", "ps",
        "kill",
    )
)  # fmt: skip
_BY_ENTRY = frozenset(("rm", "rmdir", "unlink", "mkdir", "readlink", "stat", "test", "[", "[["))
"""Programs that open a link only if it is a folder on the way to the named file."""
_VALUES = {
    # The letters of options with a value, then those whose value is a file.
    **dict.fromkeys(("head", "tail", "ghead", "gtail"), ("ncs", "")),
    **dict.fromkeys(("cat", "tac", "rev", "wc", "tee", "md5sum", "sha256sum", "realpath", "cmp", "comm"), ("", "")),
    **dict.fromkeys(("grep", "egrep", "fgrep"), ("ABCDdefm", "f")),
    "rg": ("ABCEMTefgjmrtd", "f"),
    "sort": ("kotST", "oT"),
    "cut": ("bcdf", ""),
    "uniq": ("fsw", ""),
    "nl": ("bdfhilnsvw", ""),
    "ls": ("ITw", ""),
    "diff": ("CFILUWxXS", "X"),
    "du": ("BdtX", "X"),
    "tree": ("LIPHT", ""),
    **dict.fromkeys(("fd", "fdfind"), ("cdeEjSt", "")),
}
_PATTERN_FIRST = frozenset(("grep", "egrep", "fgrep", "rg", "fd", "fdfind"))
_NO_FILES = frozenset(("tr", "seq", "xargs", "yes", "expr"))
_LOOKS_AROUND = frozenset(
    (
        *("ls", "gls", "find", "gfind", "bfs", "fd", "fdfind", "rg", "ag", "ack", "tree", "du", "git", "grep", "egrep"),
        *("fgrep", "rgrep", "ugrep", "tar", "gtar", "bsdtar", "zip", "rsync"),
    )
)
"""Programs that read the folder in which they run without being told so."""


def opened(command: Command) -> Iterator[str]:
    """Yield the words of one command that name files it opens and that links may replace."""
    yield from (each.target for each in command.redirections if not each.harmless)
    name = command.name
    if name in _NO_FILES or name in NAMES_ONLY or name in tables().wrappers or name in _QUIET or _runs_code(command):
        return
    if name == "git":
        yield from _opened_by_git(command.argv[1:])
        return
    if name in FINDERS:
        yield from (word for word in starting_points(command.argv[1:]) if "/" in word.removeprefix("./"))
        return
    by_entry, deeds = name in _BY_ENTRY, Programs(program_table()).deeds(command)
    for word in _words(command) if name in _VALUES else chain(path_words(command), odd_words(command)):
        nothing = word in (".", "./", "-", "", "{}") or word in deeds
        if not nothing and not (by_entry and "/" not in word.removeprefix("./")):
            yield word


def reads_folder(command: Command) -> bool:
    """Return whether a command reads files below the folder in which it runs, named or not."""
    if command.name in NAMES_ONLY | _QUIET or command.name in tables().wrappers or _runs_code(command):
        return False
    return command.name in _LOOKS_AROUND or any(True for _ in path_words(command))


def _runs_code(command: Command) -> bool:
    """Return whether a program runs code of the workspace, which may read any file."""
    name = command.name
    return not command.standard or name in _RUNS_CODE or name in tables().shells or bool(_language(name))


def _language(name: str) -> str:
    known = tables().interpreter(name)
    return "" if known.endswith("awk") else known


def _words(command: Command) -> Iterator[str]:
    """Yield the operands of a well-known program, and the values of its options that are files."""
    letters, files = _VALUES[command.name]
    options, operands = getopt(command.own, letters)
    if command.name in _PATTERN_FIRST and not any(
        word.startswith(("-e", "-f", "--reg", "--fi")) for word in command.own
    ):
        operands = operands[1:]
    yield from operands
    yield from (value for option, value in options if option in files)
    longs = (word for word in command.own if word.startswith("--") and "=" in word)
    yield from (each for word in longs for each in candidates(word) if not each.isalnum())


def _opened_by_git(args: tuple[str, ...]) -> Iterator[str]:
    """Yield the files that git opens by name. It does not follow links among the files of a repository."""
    at, subcommand = find_subcommand("git", args)
    before, rest = args[:at], args[at + 1 :]
    yield from (before[each + 1] for each, word in enumerate(before[:-1]) if word == "-C")
    letters = {"commit": "Ft", "tag": "F", "notes": "F", "merge": "F", "config": "f", "grep": "f", "blame": "S"}
    options, operands = getopt(rest, letters.get(subcommand, "\0"), *_GIT_FILE_OPTIONS)
    yield from (value for _, value in options)
    if subcommand in _GIT_OPENS or (subcommand in ("diff", "grep") and has_option(without_end(rest), "", "--no-index")):
        yield from (word for word in operands if "://" not in word)
