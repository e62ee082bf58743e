"""Calls of git: the subcommand, the folders in which they run, and where the files come from that they check out."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.options import has_option, operands
from acp_agent.gates.shell.programs import find_subcommand
from acp_agent.workspace.git.changes import IncomingSources

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

    subcommand   empty if unknown; for a `remote` or `submodule` that reaches another repository with its second word
    args         the words behind the subcommand
    folder       the folder of `-C`, seen from that of the command; None if it is unclear
    others       words that may name other repositories, with values of options
    """

    subcommand: str
    args: tuple[str, ...] = ()
    folder: str | None = ""
    others: tuple[str, ...] = ()


def git_call(command: Command) -> GitCall | None:
    """Return the call of git that a command makes itself; None if it does not call git."""
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
    """Return whether a command starts others in unknown folders (`find -execdir`)."""
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
    """Return the subcommand, with its second word if that makes it reach another repository."""
    looks = {"remote": _REMOTE_LOOKS, "submodule": _SUBMODULE_LOOKS}.get(subcommand)
    second = next(iter(operands(args)), "") if looks is not None else ""
    fetches = "-f" in args or "--fetch" in args
    return subcommand if looks is None or (second in looks and not fetches) else f"{subcommand} {second}"


def _others(subcommand: str, args: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(operands(args)) if subcommand in _OTHERS else ()


_CONTROL = ("--continue", "--abort", "--skip", "--quit")


def incoming_sources(call: GitCall) -> IncomingSources | None:
    """Return where a call takes the files from that it puts into the worktree; None if it puts none there."""
    reads = _READERS.get(call.subcommand)
    return reads(call.args) if reads is not None else None


def _words(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words in front of `--`, with values of options, and those behind it."""
    at = args.index("--") if "--" in args else len(args)
    words = [word.partition("=")[2] if word.startswith("--") else word for word in args[:at]]
    before = ["@{-1}" if word == "-" else word for word in words if word == "-" or (word and word[0] != "-")]
    return before, list(args[at + 1 :])


def _checkout(args: Sequence[str]) -> IncomingSources:
    before, after = _words(args)
    forced = has_option(args, "fpm", "--force", "--patch", "--ours", "--theirs", "--merge", "--pathspec-from-file")
    return IncomingSources(tuple(before), restores=forced or bool(after), loose=True, paths=tuple(after))


def _switch(args: Sequence[str]) -> IncomingSources:
    forced = has_option(args, "fm", "--force", "--discard-changes", "--merge")
    return IncomingSources(tuple(_words(args)[0]), restores=forced)


def _restore(args: Sequence[str]) -> IncomingSources:
    indexed = has_option(args, "S", "--staged") and not has_option(args, "W", "--worktree")
    before, after = _words(args)
    trees = [word[2:] for word in args if word.startswith("-s") and word[2:]]
    trees += [args[at + 1] for at, word in enumerate(args[:-1]) if word in ("-s", "--source")]
    trees += [word.partition("=")[2] for word in args if word.startswith("--s") and "=" in word]
    paths = () if has_option(args, "", "--pathspec-from-file") else (*before, *after)
    return IncomingSources(tuple(trees), restores=not indexed, paths=paths, indexed=indexed)


def _reset(args: Sequence[str]) -> IncomingSources:
    indexed = not has_option(args, "", "--hard", "--merge", "--keep")
    return IncomingSources(tuple(_words(args)[0]), restores=not indexed, indexed=indexed)


def _merge(args: Sequence[str]) -> IncomingSources:
    if has_option(args, "", *_CONTROL):
        return IncomingSources(restores=True)
    before, after = _words(args)
    return IncomingSources(merged=tuple(before + after) or ("@{upstream}",))


def _rebase(args: Sequence[str]) -> IncomingSources:
    if has_option(args, "", *_CONTROL):
        return IncomingSources(restores=True, state=True)
    return IncomingSources(tuple(_words(args)[0]) or ("@{upstream}",), replayed=True)


def _pull(args: Sequence[str]) -> IncomingSources:
    before, after = _words(args)
    return IncomingSources(pulled=(*before, *after), added=True, indexed=True)


def _add(args: Sequence[str]) -> IncomingSources:
    before, after = _words(args)
    forced = has_option(args, "f", "--force")
    return IncomingSources(added=True, ignored=forced, paths=(*before, *after) if forced else (), indexed=True)


def _pick(args: Sequence[str]) -> IncomingSources:
    control = has_option(args, "", *_CONTROL)
    return IncomingSources(commits=tuple(_words(args)[0]), restores=control, state=control)


def _revert(args: Sequence[str]) -> IncomingSources:
    return _pick(args)._replace(undone=True)


def _stash(args: Sequence[str]) -> IncomingSources | None:
    before, after = _words(args)
    match before[:1]:
        case ["pop" | "apply"]:
            return IncomingSources(stashes=tuple(before[1:]) or ("0",))
        case ["branch"]:
            stashes = tuple(before[2:]) or ("0",)
            return IncomingSources(tuple(f"{_stash_name(each)}^1" for each in stashes), stashes=stashes)
        case ["push" | "save"] | []:
            return IncomingSources(restores=True, paths=(*before[1:], *after))
        case _:
            return None


def _stash_name(word: str) -> str:
    return f"stash@{{{word}}}" if word.isdecimal() else word


def _read_tree(args: Sequence[str]) -> IncomingSources:
    indexed = not has_option(args, "u", "--reset")
    return IncomingSources(tuple(_words(args)[0]), restores=not indexed, indexed=indexed)


def _checkout_index(args: Sequence[str]) -> IncomingSources:
    before, after = _words(args)
    return IncomingSources(restores=True, paths=() if has_option(args, "a", "--all") else (*before, *after))


def _worktree(args: Sequence[str]) -> IncomingSources | None:
    before, after = _words(args)
    words = [*before, *after]
    if words[:1] != ["add"]:
        return None
    return IncomingSources((*words[1:], *(word.rstrip("/").rpartition("/")[2] for word in words[1:])))


def _sparse(args: Sequence[str]) -> IncomingSources | None:
    return IncomingSources(hidden=True) if args[:1] and args[0] not in ("list", "check-rules") else None


def _bisect(args: Sequence[str]) -> IncomingSources | None:
    before, _ = _words(args)
    match before[:1]:
        case ["start"] if before[2:]:
            return IncomingSources(tuple(before[1:]), commits=(before[1], "--not", *before[2:]))
        case ["good" | "bad" | "old" | "new" | "skip" | "next" | "reset"]:
            known = ("--glob=refs/bisect/bad", "--glob=refs/bisect/new", "--not", "--glob=refs/bisect/good*")
            return IncomingSources(
                tuple(before[1:]), commits=(*before[1:], *known, "--glob=refs/bisect/old*"), state=True
            )
        case _:
            return None


_READERS: dict[str, Callable[[Sequence[str]], IncomingSources | None]] = {
    "add": _add,
    "stage": _add,
    "submodule add": _add,
    "update-index": _add,
    "apply": _add,
    "am": _add,
    "pull": _pull,
    "checkout": _checkout,
    "switch": _switch,
    "restore": _restore,
    "reset": _reset,
    "merge": _merge,
    "rebase": _rebase,
    "cherry-pick": _pick,
    "revert": _revert,
    "stash": _stash,
    "read-tree": _read_tree,
    "checkout-index": _checkout_index,
    "worktree": _worktree,
    "sparse-checkout": _sparse,
    "bisect": _bisect,
}
