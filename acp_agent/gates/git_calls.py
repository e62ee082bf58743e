"""Find the calls of git in a command line, and judge them by the repositories in which they run."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from acp_agent.gates.gate import CommandFacts
from acp_agent.gates.paths.command_paths import MAX_FOLDERS, Expand
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.options import has_option, operands
from acp_agent.gates.shell.programs import find_subcommand
from acp_agent.workspace.git.changes import BisectStep, GitChanges, IncomingFiles, IncomingSources
from acp_agent.workspace.git.repositories import GitRepositories
from acp_agent.workspace.git.settings import GitDanger, dangers

_NEIGHBOURS = frozenset(
    ("gh", "glab", "tea", "hub", "tig", "lazygit", "gitui", "gitk", "jj", "sl", "git-gui", "git-cola", "gitg", "magit")
)
_MAY_CALL_GIT = re.compile(r"g(?:it|h|lab)|tea|hub|tig|jj|sl|[\\'\"$`*?\[{]")
_UNKNOWN = re.compile(r"[$`]|\{\}")
_REMOTE_LOOKS = frozenset(("", "get-url", "add", "rename", "remove", "rm", "set-url", "set-branches"))
_SUBMODULE_LOOKS = frozenset(
    ("", "status", "init", "deinit", "summary", "set-branch", "set-url", "sync", "absorbgitdirs")
)
_OTHERS = frozenset(("fetch", "pull", "push", "clone", "ls-remote", "fetch-pack", "send-pack"))


class GitCall(NamedTuple):
    """One call of git, or of a program that calls it.

    subcommand   with its second word if that reaches another repository (`remote update`); empty if unknown
    args         the words behind the subcommand
    folder       the folder of `-C`, relative to that of the command; None if it is unclear
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
        subcommand, folder = name[4:], ""
    elif name == "git":
        at, subcommand = find_subcommand("git", args)
        folder, args = _folder(args[:at]), args[at + 1 :]
    else:
        return None
    others = tuple(operands(args)) if subcommand in _OTHERS else ()
    return GitCall(_whole(subcommand, args), args, folder, others)


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
    """Return whether a command that starts others starts them in unknown folders (`find -execdir`)."""
    return not {"-execdir", "-okdir"}.isdisjoint(command.argv)


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


_CONTROL = ("--continue", "--abort", "--skip", "--quit")


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


_BISECT_LOOKS = frozenset(("log", "terms", "view", "visualize", "help"))
_BAD_TERMS = ("--term-bad", "--term-new")
_GOOD_TERMS = ("--term-good", "--term-old")


def _bisect(args: Sequence[str]) -> IncomingSources | None:
    subcommand = next(iter(args), "-")
    if subcommand.startswith("-") or subcommand in _BISECT_LOOKS:
        return None
    words, bad, good = list[str](), "", ""
    rest = iter(args[1 : args.index("--")] if "--" in args else args[1:])
    for word in rest:
        option, equals, value = word.partition("=")
        if option in (*_BAD_TERMS, *_GOOD_TERMS):
            term = value if equals else next(rest, "")
            bad, good = (term, good) if option in _BAD_TERMS else (bad, term)
        elif not word.startswith("-"):
            words.append(word)
    if subcommand == "reset":
        return IncomingSources(tuple(words), state=True)
    return IncomingSources(state=subcommand == "start", bisected=(BisectStep(subcommand, tuple(words), bad, good),))


# The subcommands that put files into the worktree, each with a function that returns where the files come from.
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
    "revert": lambda args: _pick(args)._replace(undone=True),
    "stash": _stash,
    "read-tree": _read_tree,
    "checkout-index": _checkout_index,
    "worktree": _worktree,
    "sparse-checkout": _sparse,
    "bisect": _bisect,
}


_NOWHERE = GitDanger("git would run in a folder that is not known yet", firm=False)
_TOO_MANY = GitDanger("git would run in more folders than can be looked at", firm=False)


class PlacedCall(NamedTuple):
    """A call of git and its possible folders, relative to the session's or absolute. None if they are unknown."""

    call: GitCall
    folders: tuple[str, ...] | None


class GitGuard:
    """A judge of the calls of git in a command line, by the repositories in which they run."""

    def __init__(self, repositories: GitRepositories, changes: GitChanges) -> None:
        self._repositories = repositories
        self._changes = changes

    def dangers(self, line: CommandFacts) -> tuple[GitDanger, ...]:
        """Return the reasons to ask about a command line, each once."""
        return tuple(dict.fromkeys(danger for placed in git_calls(line) for danger in self._of(placed)))

    async def bringing(self, line: CommandFacts) -> IncomingFiles | None:
        """Return the files that a command line brings through git; None if they are unclear.

        This runs git. Call it only if none of the line's `dangers` names a program.
        """
        files, nested = dict[str, None](), dict[str, None]()
        bisected = dict[str, tuple[BisectStep, ...]]()
        calls = tuple(git_calls(line))
        for at, (call, folders) in enumerate(calls):
            reads = _READERS.get(call.subcommand)
            plan = reads(call.args) if reads is not None else None
            for folder in (folders or ()) if plan is not None else ():
                if plan is None or not self._repositories(folder):
                    continue
                bisected[folder] = bisected.get(folder, ()) + plan.bisected
                here = plan._replace(bisected=bisected[folder] if plan.bisected else ())
                found = await self._changes(folder, here, followed=at + 1 < len(calls))
                if found is None:
                    return None
                files.update(dict.fromkeys(found.files))
                nested.update(dict.fromkeys(found.repositories))
        return IncomingFiles(tuple(files), tuple(nested))

    def entering(self, folders: Sequence[str]) -> tuple[GitDanger, ...]:
        """Return the reasons to ask about a command that makes git enter other repositories."""
        if len(folders) > MAX_FOLDERS:
            return (_TOO_MANY,)
        found = [each for folder in folders for each in self._repositories(folder)]
        return tuple(dict.fromkeys(danger for repository in found for danger in dangers(repository, "")))

    def _of(self, placed: PlacedCall) -> Iterator[GitDanger]:
        if placed.folders is None or len(placed.folders) > MAX_FOLDERS:
            yield _NOWHERE if placed.folders is None else _TOO_MANY
            return
        for folder in placed.folders:
            for repository in self._repositories(folder, placed.call.others):
                yield from dangers(repository, placed.call.subcommand)


def git_calls(line: CommandFacts) -> Iterator[PlacedCall]:
    """Yield every call of git in a command line with all its possible folders."""
    seen, lost = {"": None}, False
    for command, parents, _, after in line.surveyed_steps:
        call = git_call(command)
        if call is not None:
            unknown = lost or call.folder is None or any(map(starts_anywhere, parents))
            yield PlacedCall(call, None if unknown else tuple(_below(seen, call, command, line.expand)))
        seen.update(dict.fromkeys(after.possible))
        for moved in moved_by(command):
            if len(seen) > MAX_FOLDERS:  # each option may double them
                break
            seen.update(dict.fromkeys([_joined(folder, moved) for folder in seen]))
        lost = lost or after.lost or len(seen) > MAX_FOLDERS


def _below(seen: dict[str, None], call: GitCall, command: Command, expand: Expand) -> Iterator[str]:
    """Yield the folders to which `-C` leads from every possible folder."""
    for folder in seen:
        place = call.folder or ""
        names = expand(place, folder) if place in command.patterns else None
        yield from (_joined(folder, name) for name in (place, *(names or ())))


def may_call_git(text: str) -> bool:
    """Return whether a command line may call git at all. The check is quick, and errs on the side of True."""
    return _MAY_CALL_GIT.search(text.casefold()) is not None


def _joined(folder: str, name: str) -> str:
    if name.startswith(("/", "~")) or not folder:
        return name
    return f"{folder}/{name}" if name else folder
