"""Paths that mean something else to the command than to whoever looks them up before it runs.

The target of `ln -s` is relative to the folder of the link. A folder that the line makes is not there yet.
"""

import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping

from acp_agent.gates.command import Command
from acp_agent.gates.shell.danger import has_option
from acp_agent.gates.shell.options import getopt

_FLAGS = frozenset("sfvinTbLP")
_LONG = ("--symbolic", "--force", "--verbose", "--no-target-directory", "--no-dereference")


def link_targets(command: Command, is_folder: Callable[[str], bool]) -> Mapping[str, tuple[str, ...]]:
    """Return what the words of `ln -s` that name targets mean, seen from the folder the command runs in.

    A word may mean several paths when it cannot be told in which folder the link will lie. Empty for other commands
    and for options that are not known: their words mean what they say.
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
    """Return a path without each `folder/..` whose folder the line makes and which is not there yet."""
    kept = list[str]()
    deepest = max((each.count("/") + 1 for each in made), default=0)
    for part in path.split("/"):
        above = "/".join(kept) if part == ".." and len(kept) <= deepest else ""
        if above and above in made and not exists(above):
            kept.pop()
        elif part not in ("", ".") or (part == "" and not kept):
            kept.append(part)
    return "/".join(kept) or ("/" if path.startswith("/") else ".")
