"""Tell whether a command may make links, through which later commands of the line may read, or new folders."""

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping

from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.options import getopt, has_option
from acp_agent.gates.shell.programs import find_subcommand
from acp_agent.gates.shell.tables import tables

_LINKERS = frozenset(
    ("ln", "gln", "link", "lndir", "stow", "rsync", "patch", "gpatch", "rename", "prename", "mmv", "exch")
)
_LOOKS = {
    # The first words with which an unpacker only lists or packs.
    **dict.fromkeys(("tar", "gtar", "bsdtar"), re.compile(r"-[vzjJaphSP]*[ctru][vzjJaphSP]*f?")),
    "cpio": re.compile(r"-[oitv]*[ot][oitv]*"),
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


_FLAGS = frozenset("sfvinTbLP")
_LONG = ("--symbolic", "--force", "--verbose", "--no-target-directory", "--no-dereference")


def link_targets(command: Command, is_folder: Callable[[str], bool]) -> Mapping[str, tuple[str, ...]]:
    """Return the targets of `ln -s`, seen from the folder in which the command runs. They are relative to the link.

    A word has several meanings if it is unclear in which folder the link will be. The result is empty for other
    commands and for unknown options: their words mean what they say.
    """
    args = command.argv[1:]
    if command.name not in ("ln", "gln") or not has_option(args, "s", "--symbolic") or not _all_known(args):
        return {}
    options, operands = getopt(args, "tS", "--target-directory", "--suffix")
    folders = [value for name, value in options if name in ("t", "--target-directory")]
    targets = operands
    if not folders:
        targets = operands[:-1] or operands
        last = operands[-1] if len(operands) > 1 else "."
        single = len(operands) == 2 and (has_option(args, "T", "--no-target-directory") or not is_folder(last))
        folders = [posixpath.dirname(last.rstrip("/")) if single else last]
        if len(operands) == 2 and has_option(args, "n", "--no-dereference"):
            folders = [posixpath.dirname(last.rstrip("/")), last]
    links = operands[-1:] if len(operands) > 1 and targets != operands else []
    return {
        target: tuple(posixpath.join(folder, target) for folder in folders) + ((target,) if target in links else ())
        for target in targets
        if not target.startswith(("/", "~"))
    }


def _all_known(args: tuple[str, ...]) -> bool:
    for word in args:
        if (
            word.startswith("--")
            and word not in (*_LONG, "--")
            and not word.startswith(("--target-directory", "--suffix"))
        ):
            return False
        if word.startswith("-") and not word.startswith("--"):
            letters = word[1:].partition("t")[0].partition("S")[0]
            if not set(letters) <= _FLAGS:
                return False
    return True


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
    for part in path.split("/"):
        above = "/".join(kept) if part == ".." and len(kept) <= deepest else ""
        if above and above in made and not exists(above):
            kept.pop()
        elif part not in ("", ".") or (part == "" and not kept):
            kept.append(part)
    return "/".join(kept) or ("/" if path.startswith("/") else ".")
