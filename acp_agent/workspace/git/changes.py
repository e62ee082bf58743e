"""Ask git which files a call of it would bring into the worktree, and which are not committed.

The commands that ask only read: they run no program that a repository names, take no lock and fetch nothing.
"""

import hashlib
import os
import stat
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio
from anyio import to_thread

from acp_agent.config.files import PathStamps
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.workspace.beneath import holding
from acp_agent.workspace.git.repositories import Resolve
from acp_agent.workspace.git.settings import local_paths
from acp_agent.workspace.processes.table import open_process

MAX_BYTES = 16 * 1024 * 1024
"""The most bytes of an answer that are read."""

_QUIET = (
    *("--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false", "-c", "protocol.allow=never"),
)
_ALONE = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}


class BisectStep(NamedTuple):
    """One call of `git bisect`.

    subcommand   the word behind `bisect`, which may be a term of the user's own
    revisions    the words that may be revisions
    bad, good    the terms that `start` sets for bad and good commits; empty for those of git
    """

    subcommand: str
    revisions: tuple[str, ...] = ()
    bad: str = ""
    good: str = ""


class IncomingSources(NamedTuple):
    """The source of the files that a call puts into the worktree.

    trees      revisions that are checked out: their differences from HEAD
    merged     revisions that are merged: their changes since the merge base
    commits    commits, and ranges of commits, whose own changes are applied again
    undone     whether these changes are undone instead
    stashes    stashes that are applied
    restores   whether files are restored from the index or HEAD
    loose      whether a word that is no revision is a path to restore
    paths      the only paths that are restored, if there are any
    hidden     whether files come that a sparse checkout had left out
    state      whether an interrupted rebase or cherry-pick continues or is aborted
    replayed   whether the current branch is replayed on `trees`, so that renames are followed as in a merge
    pulled     what a pull names: a repository and its references; None if it is no pull
    added      whether untracked folders may come into the index as repositories of their own
    ignored    whether these may be ignored ones, in `paths`
    bisected   the steps of a bisection on a command line up to this call, if this call is one
    indexed    whether all of this only comes into the index, which the next command of git uses
    """

    trees: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    undone: bool = False
    stashes: tuple[str, ...] = ()
    restores: bool = False
    loose: bool = False
    paths: tuple[str, ...] = ()
    hidden: bool = False
    state: bool = False
    replayed: bool = False
    pulled: tuple[str, ...] | None = None
    added: bool = False
    ignored: bool = False
    bisected: tuple[BisectStep, ...] = ()
    indexed: bool = False


class IncomingFiles(NamedTuple):
    """The files that git creates or replaces, as absolute paths.

    files          the files that would come or change in the worktree
    repositories   folders of the worktree that git would treat as repositories of their own, and enter
    """

    files: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()


class NoAnswer(Exception):
    """The error if git did not answer in time, or answered more than is read."""


SECONDS = 1.5
"""Seconds that all questions to git about one call may take."""

_MOST_COMMITS = 1000
_MOST_WORDS = 32
_MOST_BYTES = 256 * 1024  # of a file of git's state, and of one that is compared with the index
_MOST_COMPARED = 2000  # files that are compared with the index by their bytes
_MOST_MOVED = 20_000
_MOST_APART = 8  # more commits are not compared with HEAD one by one
_OF_TREES = ("-r", "-z", "--name-only", "--no-renames", "--ignore-submodules=none")
_RAW = ("-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--ignore-submodules=all")
_BY_ITSELF = ("diff-tree", "--stdin", "-m", "--root", "--no-commit-id", *_OF_TREES)
_STATE = ("rebase-merge/onto", "rebase-merge/orig-head", "rebase-apply/onto", "rebase-apply/orig-head", "BISECT_START")
_TODO = ("rebase-merge/git-rebase-todo", "sequencer/todo")


class GitChanges:
    """A search for the files that a call of git would bring.

    resolve   returns where a path of a command leads (Roots.resolve)
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    async def __call__(self, folder: str, brought: IncomingSources, *, followed: bool = False) -> IncomingFiles | None:
        """Return the files that would come or change; None if that is unclear.

        followed   whether another command of git follows, which uses the index as this one leaves it
        """
        if brought.indexed and brought.pulled is None and not followed:
            return IncomingFiles()
        try:
            with anyio.fail_after(SECONDS):
                return await _IncomingSearch(self._place(folder), brought, followed=followed).answers()
        except (Refused, ToolError, NoAnswer, TimeoutError, OSError, ValueError):  # git may name what is no UTF-8
            return None

    def _place(self, folder: str) -> str:
        return os.path.join(self._resolve(".", Access.LIST), os.path.expanduser(folder))


class _IncomingSearch:
    """The questions to git about one call."""

    def __init__(self, folder: str, brought: IncomingSources, *, followed: bool) -> None:
        self._folder = folder
        self._top = ""
        self._brought = brought
        self._followed = followed
        self._head = ""

    async def answers(self) -> IncomingFiles:
        """Return what the call brings. Raises NoAnswer, TimeoutError and OSError."""
        brought = self._brought
        self._top = (await self._ask("rev-parse", "--show-toplevel")).decode("utf-8", "surrogateescape").rstrip("\n")
        if not self._top:
            return IncomingFiles()  # no worktree: git does nothing either
        self._head = await self._commit("HEAD")
        commits, trees = await self._state() if brought.state else ([], [])
        names, paths = set[str](), list(brought.paths)
        if len(brought.trees) + len(trees) > _MOST_WORDS:
            raise NoAnswer
        for word in (*brought.trees, *trees):
            tips = await self._tips(word)
            paths += [word] if brought.loose and not tips else []
            for tip in tips:
                names.update(await self._tree(tip))
                names.update(await self._merged(tip) if brought.replayed else ())
        for word in (*brought.merged, *(await self._pulled() if brought.pulled is not None else ())):
            for tip in await self._merged_tips(word):
                names.update(await self._since_parting(tip))
                names.update(await self._merged(tip))
        if brought.commits or commits:
            names.update(await self._own_changes([*brought.commits, *commits]))
        if brought.bisected:
            names.update(await self._bisected(brought.bisected))
        for word in brought.stashes:
            names.update(await self._stash(f"stash@{{{word}}}" if word.isdecimal() else word))
        if brought.restores or (brought.loose and paths):
            names.update(await self._restored(paths))
        if brought.hidden:
            listed = await self._names("ls-files", "-t", "-z", "--full-name", ":/")
            names.update(line[2:] for line in listed if line.startswith(("S ", "s ")))
        found = await self._unknown() if brought.added and self._followed else []
        nested = [name for name in (*names, *found) if self._has(os.path.join(name, ".git"))]
        # A pull is `indexed` because of files that are not here yet. Its other files come as those of a merge do.
        files = () if brought.indexed and brought.pulled is None else sorted(names)
        return IncomingFiles(
            tuple(os.path.join(self._top, name) for name in files),
            tuple(os.path.join(self._top, name) for name in dict.fromkeys(nested)),
        )

    def _has(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self._top, path))

    async def _unknown(self) -> list[str]:
        """Return the untracked repositories below the worktree that git may add."""
        usual = () if self._brought.ignored else ("--exclude-standard",)
        only = self._brought.paths if self._brought.ignored and self._brought.paths else (":/",)
        listed = await self._names("ls-files", "-o", "-z", "--full-name", *usual, "--", *only)
        return [name.rstrip("/") for name in listed if name.endswith("/")]

    async def _pulled(self) -> Sequence[str]:
        """Return the local revisions that a pull merges. Raises NoAnswer for another repository of this machine."""
        words = self._brought.pulled or ()
        if "." in words:
            named = [word.lstrip("+").partition(":")[0] for word in words[words.index(".") + 1 :]]
            return named or ("@{upstream}",)
        branch = await self._line("symbolic-ref", "--quiet", "--short", "HEAD")
        usual = await self._line("config", "--get", f"branch.{branch}.remote")
        if not words and usual == ".":
            return ("@{upstream}",)
        first = words[0] if words else usual
        plain = [word for word in words if word.startswith((".", "/", "~", "file:"))]
        here = any(self._has(path) for path in local_paths(first))
        if plain or (here and not await self._ask("config", "--get", f"remote.{first}.url")):
            raise NoAnswer
        return ()

    async def _merged_tips(self, word: str) -> list[str]:
        """Return the commits that a merge of a word merges."""
        if word == "@{upstream}":
            branch = await self._line("symbolic-ref", "--quiet", "--short", "HEAD")
            if len((await self._ask("config", "-z", "--get-all", f"branch.{branch}.merge")).split(b"\0")) > 2:
                raise NoAnswer  # git merges all of them at once (octopus)
        if word != "FETCH_HEAD":
            return await self._tips(word)
        found = await self._line("rev-parse", "--git-path", "FETCH_HEAD")
        return [line.split()[0] for line in _small(os.path.join(self._folder, found)).splitlines() if line.split()]

    async def _merged(self, tip: str) -> set[str]:
        """Return where a merge with HEAD may put files, because it follows renames of either side."""
        found = set[str]()
        for base in await self._bases(tip):
            found |= await self._renamed(base, self._head, tip)
        return found

    async def _renamed(self, base: str, one: str, two: str) -> set[str]:
        """Return where renames may put files of either side. Any removed file counts as renamed to any added one."""
        sides = [await self._side(base, commit) for commit in (one, two)]
        found = set[str]()
        for (gone, new), commit, other in ((sides[0], one, two), (sides[1], two, one)):
            changed = await self._changed(base, other) if gone and new else set[str]()
            if not changed:
                continue
            found |= new if gone & changed else set()
            left = set(await self._names("ls-tree", "-d", "-r", "-z", "--name-only", "--full-tree", commit))
            lost = {folder for name in gone for folder in _folders(name)} - left
            targets = {"", *(folder for name in new for folder in _folders(name))}
            moved = [name[len(folder) + 1 :] for name in changed for folder in _folders(name) if folder in lost]
            if len(moved) * len(targets) > _MOST_MOVED:
                raise NoAnswer
            found |= {os.path.join(target, name) for target in targets for name in moved}
        return found

    async def _side(self, base: str, commit: str) -> tuple[set[str], set[str]]:
        """Return the files that a side has removed, and those that it has added."""
        gone, new = [
            await self._names("diff-tree", *_OF_TREES, f"--diff-filter={letter}", base, commit) for letter in "DA"
        ]
        return set(gone), set(new)

    async def _changed(self, base: str, commit: str) -> set[str]:
        return set(await self._names("diff-tree", *_OF_TREES, "--diff-filter=d", base, commit))

    async def _tree(self, tip: str) -> list[str]:
        if not self._head:
            return await self._names("ls-tree", "-r", "-z", "--name-only", "--full-tree", tip)
        return await self._names("diff-tree", *_OF_TREES, "--diff-filter=d", self._head, tip)

    async def _since_parting(self, tip: str) -> list[str]:
        bases = await self._bases(tip)
        return [name for base in bases for name in await self._changed(base, tip)] if bases else await self._tree(tip)

    async def _own_changes(self, words: Sequence[str]) -> list[str]:
        """Return the files that commits themselves change, or that undoing them changes."""
        given = [word for word in words if word[:1] != "-"]
        ranged = any(".." in word or word[:1] == "^" for word in given)
        known = [word for word in given if ".." in word or word[:1] == "^" or await self._commit(word)]
        if not known:
            return []
        listed = await self._ask(
            "rev-list", f"--max-count={_MOST_COMMITS}", *(() if ranged else ("--no-walk",)), *known
        )
        made = listed.decode().split()
        if len(made) >= _MOST_COMMITS:
            raise NoAnswer
        moved = set[str]()
        for commit in made if len(made) <= _MOST_APART else ():
            parents = (await self._ask("rev-parse", f"{commit}^@")).decode().split()
            sides = [(commit, parent) if self._brought.undone else (parent, commit) for parent in parents]
            for base, two in sides if self._head else ():
                moved |= await self._renamed(base, self._head, two)
        for commit in (made[0], made[-1]) if len(made) > _MOST_APART else ():
            moved |= await self._merged(commit)
        reverse = ("-R",) if self._brought.undone else ()
        return [*moved, *await self._names(*_BY_ITSELF, *reverse, "--diff-filter=d", given=listed)]

    async def _bisected(self, steps: Sequence[BisectStep]) -> set[str]:
        """Return the files that may differ from HEAD in a commit that the last step may check out.

        Git checks out commits between a bad one and all good ones. A file that such a commit has is in the bad one as
        well, or a commit between them removes it.
        """
        git_dir = await self._line("rev-parse", "--git-dir")
        terms = _small(os.path.join(self._folder, git_dir, "BISECT_TERMS")).splitlines()
        bad, good = {"bad", "new", *terms[:1]}, {"good", "old", *terms[1:]}
        refs = (await self._ask("for-each-ref", "--format=%(refname)", "refs/bisect/")).decode().split()
        marks = [(ref.removeprefix("refs/bisect/"), ref) for ref in refs]
        tips = [ref for term, ref in marks if term in bad]
        known = [ref for term, ref in marks if term.rpartition("-")[0] in good]
        for step in steps:
            named = list[str]()
            for word in step.revisions:
                if not (commit := await self._commit(word)):
                    break  # from here on `start` takes the words for paths, and the other steps fail
                named.append(commit)
            if step.subcommand == "start":
                tips, known = named[:1], named[1:]
                bad, good = {"bad", "new", step.bad}, {"good", "old", step.good}
            elif step.subcommand in bad:
                tips = named or [self._head]
            elif step.subcommand in good:
                known += named or [self._head]
            elif step.subcommand not in ("skip", "next", "run"):
                raise NoAnswer  # `replay` reads the steps from a file, and git knows no other word
        if not tips or not known:
            return set()  # git checks out nothing before it knows both
        listed = await self._ask("rev-list", f"--max-count={_MOST_COMMITS}", *tips, "--not", *known, strict=True)
        if listed.count(b"\n") >= _MOST_COMMITS:
            raise NoAnswer
        return {*await self._names(*_BY_ITSELF, given=listed), *await self._tree(tips[0])}

    async def _stash(self, stash: str) -> list[str]:
        commit = await self._commit(stash)
        if not commit:
            return []
        names = [*await self._changed(f"{commit}^1", commit)]
        names += await self._renamed(f"{commit}^1", self._head, commit) if self._head else ()
        new = await self._commit(f"{commit}^3")
        return names + (await self._names("ls-tree", "-r", "-z", "--name-only", "--full-tree", new) if new else [])

    async def _restored(self, paths: Sequence[str]) -> list[str]:
        """Return the files that differ between the worktree, the index and HEAD."""
        only = ("--", *paths) if paths else ()
        listed = await self._names("diff-files", *_RAW, *only)
        names = await to_thread.run_sync(_differing, self._top, listed, abandon_on_cancel=True)
        if self._head:
            names += await self._names("diff-index", "--cached", *_OF_TREES, self._head, *only)
        return names

    async def _state(self) -> tuple[list[str], list[str]]:
        """Return the commits that an interrupted command would still make, and the revisions it may go back to."""
        base = os.path.join(self._folder, await self._line("rev-parse", "--git-dir"))
        trees = [word for name in _STATE if (word := _small(os.path.join(base, name)).strip())]
        lines = [line.split() for name in _TODO for line in _small(os.path.join(base, name)).splitlines()]
        commits = [
            word for line in lines for word in line[1:4] if len(word) >= 4 and set(word) <= set("0123456789abcdef")
        ]
        return commits, trees

    async def _tips(self, word: str) -> list[str]:
        """Return the commits that a word may mean: a revision, or a branch of a remote that git would follow."""
        commit = await self._commit(word)
        if commit or word.startswith(("-", "/")) or any(char in word for char in " *?[~^:\\"):
            return [commit] if commit else []
        if "..." in word and await self._ask("rev-parse", "--revs-only", word):
            raise NoAnswer  # the base of a merge
        found = await self._ask("for-each-ref", "--format=%(objectname)", f"refs/remotes/*/{word}")
        return found.decode().split()

    async def _commit(self, word: str) -> str:
        if not word or word.startswith("-"):
            return ""
        if word.startswith(":/"):  # the rest is the text that git searches for
            word = await self._line("rev-parse", "--verify", "--quiet", word)
        return await self._line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{word}^{{commit}}")

    async def _bases(self, tip: str) -> list[str]:
        return (await self._ask("merge-base", "--all", self._head or tip, tip)).decode().split()

    async def _line(self, *args: str) -> str:
        return (await self._ask(*args)).decode().strip()

    async def _names(self, *args: str, given: bytes = b"") -> list[str]:
        answer = await self._ask(*args, given=given, strict=True)
        return [name.decode("utf-8", "surrogateescape") for name in answer.split(b"\0") if name]

    async def _ask(self, *args: str, given: bytes = b"", strict: bool = False) -> bytes:
        """Return git's answer; empty if it fails. If `strict`, raise NoAnswer then."""
        return await _ask_git(self._folder, *args, given=given, strict=strict)


async def _ask_git(folder: str, *args: str, given: bytes = b"", strict: bool = False) -> bytes:
    """Return what git answers in a folder; empty if it fails. If `strict`, raise NoAnswer then. Raises OSError."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    process = await open_process(
        ["git", *_QUIET, *args],
        cwd=folder,
        env={**variables, **_ALONE},
        stdin=subprocess.PIPE if given else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if process.stdin is not None:
            await process.stdin.send(given)
            await process.stdin.aclose()
        answer = bytearray()
        assert process.stdout is not None
        async for part in process.stdout:
            answer += part
            if len(answer) > MAX_BYTES:
                raise NoAnswer
        code = await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
    if strict and code:
        raise NoAnswer
    return b"" if code else bytes(answer)


_STATUS = ("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all", "--untracked-files=normal")
_STATUS_SECONDS = 10.0
_FILTERS = ("config", "--null", "--name-only", "--get-regexp", r"^filter\..*\.(clean|process|smudge|required)$")
_NO_FILTER = ("clean=", "process=", "smudge=", "required=false")


async def uncommitted(folder: str) -> tuple[str, ...] | None:
    """Return the files below a folder that differ from HEAD, as absolute paths. None if git does not tell within 10 s.

    The programs that a repository names as filters do not run: git compares the files as they are.
    """
    found = await to_thread.run_sync(worktree_of, folder, PathStamps(), abandon_on_cancel=True)  # the disk may be slow
    if found is None:
        return None
    top, _ = found
    pin = f"--work-tree={top}"  # core.worktree of the repository must not redirect git
    try:
        with anyio.fail_after(_STATUS_SECONDS):
            keys = (await _ask_git(folder, pin, *_FILTERS)).decode("utf-8", "surrogateescape")
            drivers = sorted({key.rpartition(".")[0] for key in keys.split("\0") if key})
            if any("=" in driver for driver in drivers):  # -c cannot name it
                return None
            off = [word for driver in drivers for name in _NO_FILTER for word in ("-c", f"{driver}.{name}")]
            listed = await _ask_git(folder, pin, *off, *_STATUS, "--", ".", strict=True)
    except (NoAnswer, TimeoutError, OSError, ValueError):
        return None
    names = (entry[3:].decode("utf-8", "surrogateescape") for entry in listed.split(b"\0") if len(entry) > 3)
    return tuple(os.path.join(top, name) for name in names)


def worktree_of(folder: str, stamps: PathStamps) -> tuple[str, str] | None:
    """Return the worktree that a folder belongs to and its git folder, or None if it belongs to none. It blocks.

    `stamps` gets every path that was looked at.
    """
    while True:
        path = os.path.join(folder, ".git")
        stamps.exists(path)
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            mode = 0
        if stat.S_ISDIR(mode):
            return folder, path
        if stat.S_ISREG(mode):
            with suppress(NoAnswer):
                named = _small(path).removeprefix("gitdir:").strip()
                return folder, os.path.join(folder, named)
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def branch_of(folder: str, stamps: PathStamps) -> str:
    """Return the branch that is checked out in a folder, or where a detached HEAD is; empty without git. It blocks.

    `stamps` gets every path that was looked at.
    """
    with suppress(NoAnswer):
        found = worktree_of(folder, stamps)
        if found is None:
            return ""
        path = os.path.join(found[1], "HEAD")
        stamps.exists(path)
        head = _small(path).strip()
        if not head:
            stamps.doubt()
        if head.startswith(_BRANCH):
            return head.removeprefix(_BRANCH)
        if len(head) >= _COMMIT_DIGITS and set(head) <= set("0123456789abcdef"):
            return f"none (detached at {head[:9]})"
    return ""


_BRANCH = "ref: refs/heads/"
_COMMIT_DIGITS = 40


def _small(path: str) -> str:
    """Return the text of a small file of git; empty if there is none. Raises NoAnswer."""
    try:
        with holding(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as fd:
            data = os.read(fd, _MOST_BYTES + 1)
    except (OSError, ValueError):  # a .git file may name a path with a NUL
        return ""
    if len(data) > _MOST_BYTES:
        raise NoAnswer
    return data.decode("utf-8", "replace")


def _differing(top: str, listed: Sequence[str]) -> list[str]:
    """Return the files of an answer of `diff-files --raw`, without those whose bytes are those in the index. It blocks.

    Git lists a file whose times or owner changed as well: after a copy of the worktree, or after git has run in a
    sandbox that shows other owners. It would compare the bytes itself, but through the filters of the repository, which
    are programs.
    """
    entries = list(zip(listed[::2], listed[1::2], strict=True))
    few = len(entries) <= _MOST_COMPARED
    return [name for entry, name in entries if not (few and _is_equal(os.path.join(top, name), *entry[1:].split()))]


def _is_equal(path: str, mode: str, now: str, digest: str, _: str, status: str) -> bool:
    """Return whether a file is as the index says. Large files and links count as different."""
    if status != "M" or mode != now:
        return False
    try:
        with holding(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)) as fd:
            data = os.read(fd, _MOST_BYTES + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    except (OSError, ValueError):
        return False
    if data is None or len(data) > _MOST_BYTES:
        return False
    hashed = hashlib.new("sha1" if len(digest) == _COMMIT_DIGITS else "sha256", usedforsecurity=False)
    hashed.update(b"blob %d\0" % len(data) + data)
    return hashed.hexdigest() == digest


def _folders(name: str) -> list[str]:
    """Return the folders above a file, without the worktree itself."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
