"""Tell whether links make a command line doubtful: links of the workspace, and those that the line itself may make.

A command may follow links that lead out of the workspace. An earlier command of the line may also put a link in the
place of a file that a later one opens: behind `git checkout evil`, `cat readme.txt` may read elsewhere. Commands that
run side by side (`a | b`, `a & b`) have no order. Programs that run the code of the workspace are left out, since they
can open anything without a link.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from acp_agent.gates.paths.command_paths import CommandStep, odd_words, path_words
from acp_agent.gates.paths.unnamed_paths import FINDERS, NAMES_ONLY, Followed, followed, spliced, starting_points
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import grammar_of
from acp_agent.gates.shell.options import getopt, has_option, tables
from acp_agent.gates.shell.programs import find_subcommand, subcommand_words

_LINKERS = frozenset(
    ("ln", "gln", "link", "lndir", "stow", "rsync", "patch", "gpatch", "rename", "prename", "mmv", "exch")
)
_LOOKS = {
    # The first words with which an unpacker only lists or packs.
    **dict.fromkeys(("tar", "gtar", "bsdtar"), re.compile(r"-[vzjJaphSP]*[ctru][vzjJaphSP]*f?")),
    "cpio": re.compile(r"-[iv]*[ot][oitv]*"),
    "unzip": re.compile(r"-[qvh]*[lptzZ][qvh]*"),
    "unsquashfs": re.compile(r"-ll?|-s"),
    **dict.fromkeys(("7z", "7za", "7zr", "7zz"), re.compile(r"[lath]|lb|lt")),
    **dict.fromkeys(("pax", "unrar", "unar"), re.compile(r"\0")),
}
_GIT_MAKES_NONE = frozenset(
    (
        "status", "log", "diff", "show", "add", "commit", "branch", "tag", "fetch", "push", "remote", "rev-parse", "rm",
        "ls-files", "ls-tree", "ls-remote", "cat-file", "show-ref", "show-branch", "for-each-ref", "merge-base", "init",
        "name-rev", "reflog", "config", "clean", "format-patch", "archive", "bundle", "notes", "gc", "fsck", "prune",
        "count-objects", "diff-tree", "diff-index", "diff-files", "range-diff", "whatchanged", "version", "help", "",
        "check-ignore", "check-attr", "var", "hash-object", "symbolic-ref", "cherry", "repack", "pack-refs", "grep",
        "verify-commit", "verify-tag", "write-tree", "commit-tree", "update-ref", "rerere", "interpret-trailers",
        "mktree", "stripspace", "column", "maintenance", "blame", "annotate", "shortlog", "describe", "rev-list",
    )
)  # fmt: skip
_GIT_LOOKS = {
    "stash": ("list", "show", "drop", "clear", "create", "store"),
    "worktree": ("list", "prune", "lock", "unlock", "remove"),
    "submodule": ("status", "summary", "deinit", "sync"),
    "bisect": ("log", "view", "visualize", "terms"),
}
_OTHER_VCS = frozenset(("svn", "hg", "jj", "bzr", "fossil"))
_VCS_MAKES = frozenset(
    (
        "update", "up", "checkout", "co", "switch", "sw", "merge", "revert", "pull", "clone", "import", "graft",
        "rebase", "unshelve", "export", "edit", "new", "restore", "backout", "transplant", "patch", "open", "undo",
    )
)  # fmt: skip


def may_make_links(command: Command, is_file: Callable[[str], bool]) -> bool:
    """Return whether a command may make links in the workspace, itself or by renaming.

    is_file   returns whether a word names a regular file; anything else that `mv` renames may be or contain a link
    """
    name, args = command.name, command.argv[1:]
    if name == "git":
        return _git_makes(args)
    if name in ("mv", "gmv"):
        moved = getopt(args, "St", "--target-directory", "--suffix")[1]
        targets = [value for option, value in getopt(args, "t", "--target-directory")[0] if option]
        sources = moved if targets else moved[:-1]
        return not (sources and all(map(is_file, sources)))
    if name in ("cp", "gcp"):
        kept = ("--recursive", "--archive", "--no-dereference", "--link", "--symbolic-link", "--preserve")
        return has_option(without_end(args), "rRadPls", *kept)
    if name in _LOOKS:
        return _unpacks(name, args)
    if name in _OTHER_VCS or name == "gh":
        return not _VCS_MAKES.isdisjoint(args)
    if tables().interpreter(name) == "python":
        return not {"tarfile", "zipfile", "venv"}.isdisjoint(args)
    return name in _LINKERS


def without_end(args: tuple[str, ...]) -> list[str]:
    """Return the arguments without `--`, since it may be the value of an option."""
    return [word for word in args if word != "--"]


def _unpacks(name: str, args: tuple[str, ...]) -> bool:
    first, rest = next(iter(args), ""), args[1:]
    if not name.endswith("tar"):
        return not _LOOKS[name].fullmatch(first)
    given = (first if first.startswith("-") else f"-{first}", *rest)
    short = [word for word in given if word.startswith("-") and not word.startswith("--")]
    if any("x" in word for word in short) or has_option(without_end(given), "", "--extract", "--get"):
        return True
    looks = any(_LOOKS[name].fullmatch(word) for word in short)
    return not looks and not has_option(without_end(given), "", "--list", "--create", "--append", "--update")


def _git_makes(args: tuple[str, ...]) -> bool:
    at, subcommand = find_subcommand("git", args)
    rest = without_end(args[at + 1 :])
    if subcommand in _GIT_LOOKS:
        return not any(word in _GIT_LOOKS[subcommand] for word in rest[:1])
    match subcommand:
        case "reset":
            return has_option(rest, "", "--hard", "--merge", "--keep")
        case "restore":
            return not has_option(rest, "S", "--staged") or has_option(rest, "W", "--worktree")
        case "apply" | "am":
            looks = has_option(rest, "", "--check", "--stat", "--numstat", "--summary", "--cached")
            return not looks or has_option(rest, "", "--apply")
        case "update-index":
            return False
        case _:
            return subcommand not in _GIT_MAKES_NONE


_SYMBOLIC = frozenset(("-s", "--symbolic"))
_OTHER_MEANING = frozenset(("-r", "--relative", "-h", "-Z"))


def link_targets(command: Command, is_folder: Callable[[str], bool]) -> Mapping[str, tuple[str, ...]]:
    """Return the paths that each target of `ln -s` may mean. A target is relative to the folder of the link.

    The paths start at the folder in which the command runs. There are several if it is unclear in which folder the link
    will be. The result is empty for other commands and for unknown options: their words mean what they say.
    """
    grammar = grammar_of("ln") if command.name in ("ln", "gln") else None
    if grammar is None:
        return {}
    parsed = grammar.parse(command.argv[1:])
    given = frozenset(parsed.options)
    if parsed.unknown or given.isdisjoint(_SYMBOLIC) or not given.isdisjoint(_OTHER_MEANING):
        return {}
    operands, folders = parsed.operands, parsed.values("-t", "--target-directory")
    targets = operands
    if not folders:
        targets = operands[:-1] or operands
        last = operands[-1] if len(operands) > 1 else "."
        single = len(operands) == 2 and (not given.isdisjoint(("-T", "--no-target-directory")) or not is_folder(last))
        folders = [posixpath.dirname(last.rstrip("/")) if single else last]
        if len(operands) == 2 and not given.isdisjoint(("-n", "--no-dereference")):
            folders = [posixpath.dirname(last.rstrip("/")), last]
    links = operands[-1:] if targets != operands else []
    return {
        target: tuple(posixpath.join(folder, target) for folder in folders) + ((target,) if target in links else ())
        for target in targets
        if not target.startswith(("/", "~"))
    }


def made_folders(command: Command) -> Iterator[str]:
    """Yield the folders that `mkdir` makes, with those above them."""
    if command.name not in ("mkdir", "gmkdir") or command.patterns:
        return
    for word in getopt(command.argv[1:], "mZ", "--mode")[1]:
        path = posixpath.normpath(word)
        while path not in ("", "/", "."):
            yield path
            path = posixpath.dirname(path)


def without_made(path: str, made: Collection[str], exists: Callable[[str], bool]) -> str:
    """Return a path without every `folder/..` whose folder the line makes and that does not exist yet."""
    kept = list[str]()
    deepest = max((each.count("/") + 1 for each in made), default=0)
    for at, part in enumerate(path.split("/")):
        above = "/".join(kept) if part == ".." and len(kept) <= deepest else ""
        if above and above in made and not exists(above):
            kept.pop()
        elif part not in ("", ".") or (part == "" and at == 0):
            kept.append(part)
    return "/".join(kept) or ("/" if path.startswith("/") else ".")


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
    by_entry, no_paths = name in _BY_ENTRY, subcommand_words(command)
    for word in chain(path_words(command), odd_words(command)):
        nothing = word in (".", "./", "-", "", "{}") or word in no_paths
        if not nothing and not (by_entry and "/" not in word.removeprefix("./")):
            yield word


def reads_folder(command: Command) -> bool:
    """Return whether a command reads files below the folder in which it runs, named or not."""
    if command.name in NAMES_ONLY | _QUIET or command.name in tables().wrappers or _runs_code(command):
        return False
    return command.name in _LOOKS_AROUND or any(True for _ in path_words(command))


def _runs_code(command: Command) -> bool:
    """Return whether a program runs code of the workspace, which may read any file."""
    name, language = command.name, tables().interpreter(command.name)
    runs = name in _RUNS_CODE or name in tables().shells or (language and not language.endswith("awk"))
    return bool(runs) or not command.standard


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


class Workspace(Protocol):
    """The files of a workspace. Paths are as a command names them: relative to its folder, absolute or `~`.

    The methods neither read files nor raise. Their default is the answer about files that cannot be looked at.
    """

    def links_out(self, folder: str) -> Mapping[str, bool] | None:
        """Return the links below `folder` that lead out of the workspace, and whether to a folder.

        Links into the workspace are followed. None for too many files, or a slow disk.
        """
        del folder

    def is_file(self, path: str) -> bool:
        """Return whether there is a regular file at `path`, and not a link to one."""
        del path
        return False

    def is_folder(self, path: str) -> bool:
        """Return whether `path` is a folder or leads to one."""
        del path
        return False

    def exists(self, path: str) -> bool:
        """Return whether there is anything at `path`, if only a broken link."""
        del path
        return True


class UnseenWorkspace(Workspace):
    """A workspace that cannot be looked at: it may hold any link."""


MAX_LOOKS = 16
"""The most folders that are searched for one command line."""


class LinkDoubt(NamedTuple):
    """A reason why links make a command line doubtful. `certain` if it is known that one leads out."""

    reason: str
    certain: bool = False


def link_doubts(steps: Iterable[CommandStep], workspace: Workspace) -> Iterator[LinkDoubt]:
    """Yield the doubts about the links that a command line follows or makes."""
    followable = list[CommandStep]()
    for step in steps:
        if step.folders.lost:
            break
        followable.append(step)
    first, maker = _first_after_links(followable, workspace)
    looked: dict[str, Mapping[str, bool] | None] = {}
    elsewhere = False
    for at, step in enumerate(followable):
        command = step.command
        word = spliced(command)
        if word:
            yield LinkDoubt(f"{command.name} makes other paths of the names it finds: {word}")
        for each in followed(command):
            yield from (
                _follows(each, step, workspace, looked) if at < first else [_made(f"what {each.how} meets", maker)]
            )
        if at < first:
            continue
        for word in dict.fromkeys(opened(command)):
            yield _made(word, maker)
        if elsewhere and reads_folder(command):
            yield _made(f"the folder that {command.name} runs in", maker)
        elsewhere = elsewhere or (command.name in ("cd", "pushd") and command.argv[1:] not in ((".",), ("./",)))


def _made(what: str, maker: str) -> LinkDoubt:
    return LinkDoubt(f"{what} may be a link that '{maker}' makes")


def _first_after_links(steps: Sequence[CommandStep], workspace: Workspace) -> tuple[int, str]:
    """Return the index of the first step that may meet links that the line has made, and the command that made them."""
    for at, step in enumerate(steps):
        outer = _outer(step)

        def is_file(word: str, step: CommandStep = step, outer: Command = outer) -> bool:
            if word in step.command.patterns or any(each.appended for each in outer.walk()):
                return False
            return all(workspace.is_file(posixpath.join(folder, word)) for folder in step.folders.possible)

        if not may_make_links(step.command, is_file):
            continue
        maker = " ".join(step.command.argv[:2])
        # A command that runs at the same time as the maker may open files after it.
        beside = any("&" in (_outer(each).joined, each.command.joined) for each in steps)
        if beside or "|" in (outer.joined, step.command.joined):
            return 0, maker
        if any(each.appended for each in outer.walk()):
            return next(index for index, each in enumerate(steps) if _outer(each) is outer), maker
        return at + 1, maker
    return len(steps), ""


def _outer(step: CommandStep) -> Command:
    """Return the command of the text that a step belongs to."""
    return step.parents[0] if step.parents else step.command


def _follows(
    each: Followed, step: CommandStep, workspace: Workspace, looked: dict[str, Mapping[str, bool] | None]
) -> Iterator[LinkDoubt]:
    """Yield the doubt about links that a command meets. Few folders are searched: each may have thousands of files."""
    for folder in each.folders:
        for place in dict.fromkeys(posixpath.join(start, folder) for start in step.folders.possible):
            if place not in looked:
                looked[place] = workspace.links_out(place) if len(looked) < MAX_LOOKS else None
            links = looked[place]
            if links is None:
                yield LinkDoubt(f"{each.how} follows links, and {folder} holds more files than are looked at")
                return
            out = next((link for link, leads in links.items() if each.reads_through(link, folder=leads)), "")
            if out:
                yield LinkDoubt(f"{each.how} follows the link {out}, which leads outside the workspace", certain=True)
                return
