"""What a command asks of git: the subcommand, and the folders it runs in."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from acp_agent.gates.command import Command
from acp_agent.gates.programs import find_subcommand
from acp_agent.gates.shell.danger import operands

_NEIGHBOURS = frozenset(
    ("gh", "glab", "tea", "hub", "tig", "lazygit", "gitui", "gitk", "jj", "sl", "git-gui", "git-cola", "gitg", "magit")
)
_UNKNOWN = re.compile(r"[$`]|\{\}")
_REMOTE_LOOKS = frozenset(("", "get-url", "add", "rename", "remove", "rm", "set-url", "set-branches"))
_SUBMODULE_LOOKS = frozenset(
    ("", "status", "init", "deinit", "summary", "set-branch", "set-url", "sync", "absorbgitdirs")
)
_OTHERS = frozenset(("fetch", "pull", "push", "clone", "ls-remote", "fetch-pack", "send-pack"))


class GitCall(NamedTuple):
    """One call of git, or of a program that calls it.

    subcommand   empty when nobody knows what is asked of git. `remote` and `submodule` that reach another repository
                 have their second word here as well
    args         what stands behind the subcommand
    folder       where `-C` leads, seen from the folder of the command; None when that cannot be told
    others       words that may name other repositories, values of options among them
    """

    subcommand: str
    args: tuple[str, ...] = ()
    folder: str | None = ""
    others: tuple[str, ...] = ()


def git_call(command: Command) -> GitCall | None:
    """Return what a command itself asks of git; None when it does not call git."""
    name, args = command.name, command.argv[1:]
    if name in _NEIGHBOURS:
        return GitCall("")
    if name.startswith("git-") and len(name) > 4:
        return GitCall(_whole(name[4:], args), args, "", _others(name[4:], args))
    if name != "git":
        return None
    at, subcommand = find_subcommand("git", args)
    rest = args[at + 1 :]
    return GitCall(_whole(subcommand, rest), rest, _folder(args[:at]), _others(subcommand, rest))


def moved_by(command: Command) -> Iterator[str]:
    """Yield the folders in which a wrapper starts its command (`env -C DIR`)."""
    args = command.own if command.name in ("env", "genv") else ()
    for at, word in enumerate(args):
        if word in ("-C", "--chdir") and at + 1 < len(args):
            yield args[at + 1]
        elif word.startswith("--chdir="):
            yield word.partition("=")[2]
        elif word.startswith("-C"):
            yield word[2:]


def starts_anywhere(command: Command) -> bool:
    """Return whether a command starts others in folders that nobody knows (`find -execdir`)."""
    return bool(command.runs) and not {"-execdir", "-okdir"}.isdisjoint(command.argv)


def _folder(args: tuple[str, ...]) -> str | None:
    folder = ""
    for at, word in enumerate(args):
        if word == "-C":
            if at + 1 == len(args) or _UNKNOWN.search(args[at + 1]):
                return None
            folder = args[at + 1] if args[at + 1].startswith(("/", "~")) else f"{folder}/{args[at + 1]}".lstrip("/")
    return folder


def _whole(subcommand: str, args: tuple[str, ...]) -> str:
    """Return the subcommand, with its second word where it depends on this whether another repository is reached."""
    looks = {"remote": _REMOTE_LOOKS, "submodule": _SUBMODULE_LOOKS}.get(subcommand)
    second = next(iter(operands(args)), "") if looks is not None else ""
    fetches = "-f" in args or "--fetch" in args
    return subcommand if looks is None or (second in looks and not fetches) else f"{subcommand} {second}"


def _others(subcommand: str, args: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(operands(args)) if subcommand in _OTHERS else ()
