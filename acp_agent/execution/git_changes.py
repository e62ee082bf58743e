"""Ask git which files a call of it would bring into the worktree.

The commands that ask only read: they run no program that a repository names, take no lock and fetch nothing.
"""

import os
import subprocess
from collections.abc import Sequence

import anyio

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.execution.git_repositories import Resolve
from acp_agent.gates.git_bringing import Bringing

SECONDS = 1.5
"""How long all questions about one call may take."""

MAX_BYTES = 16 * 1024 * 1024
"""The longest answer that is read."""

_MOST_COMMITS = "1000"
_MOST_WORDS = 32
_QUIET = (
    *("--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false", "-c", "protocol.allow=never"),
)
_ALONE = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
_NAMES = ("-r", "-z", "--name-only", "--no-renames", "--ignore-submodules=all")
_STATE = ("rebase-merge/onto", "rebase-merge/orig-head", "rebase-apply/onto", "rebase-apply/orig-head", "BISECT_START")
_TODO = ("rebase-merge/git-rebase-todo", "sequencer/todo")


class NoAnswer(Exception):
    """Git did not answer in time, or answered more than is read."""


class GitChanges:
    """Answers which files a call of git would bring.

    resolve   where a path of a command leads (Roots.resolve)
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    async def __call__(self, folder: str, brought: Bringing) -> tuple[str, ...] | None:
        """Return the absolute paths of files that would come or change; None when that cannot be told."""
        try:
            with anyio.fail_after(SECONDS):
                return await _Questions(self._place(folder), brought).answers()
        except (Refused, ToolError, NoAnswer, TimeoutError, OSError):
            return None

    def _place(self, folder: str) -> str:
        return os.path.join(self._resolve(".", Access.LIST), os.path.expanduser(folder))


class _Questions:
    """The questions about one call."""

    def __init__(self, folder: str, brought: Bringing) -> None:
        self._folder = folder
        self._brought = brought
        self._head = ""

    async def answers(self) -> tuple[str, ...]:
        """Return the absolute paths. Raises NoAnswer, TimeoutError and OSError."""
        brought = self._brought
        top = (await self._ask("rev-parse", "--show-toplevel")).decode("utf-8", "surrogateescape").rstrip("\n")
        if not top:
            return ()  # no worktree: git does nothing either
        self._head = await self._commit("HEAD")
        commits, trees = await self._state() if brought.state else ([], [])
        names, paths = set[str](), list(brought.paths)
        for word in (*brought.trees, *trees)[:_MOST_WORDS]:
            tips = await self._tips(word)
            paths += [word] if brought.loose and not tips else []
            for tip in tips:
                names.update(await self._tree(tip))
        for word in brought.merged:
            for tip in await self._tips(word):
                names.update(await self._since_parting(tip))
        if brought.commits or commits:
            names.update(await self._own_changes([*brought.commits, *commits]))
        for word in brought.stashes:
            names.update(await self._stash(f"stash@{{{word}}}" if word.isdecimal() else word))
        if brought.restores or (brought.loose and paths):
            names.update(await self._restored(paths))
        if brought.hidden:
            names.update(await self._hidden())
        return tuple(os.path.join(top, name) for name in sorted(names))

    async def _tree(self, tip: str) -> list[str]:
        if not self._head:
            return await self._names("ls-tree", "-r", "-z", "--name-only", "--full-tree", tip)
        return await self._names("diff-tree", *_NAMES, "--diff-filter=d", self._head, tip)

    async def _since_parting(self, tip: str) -> list[str]:
        base = (await self._ask("merge-base", self._head or tip, tip)).decode().strip()
        return await self._names("diff-tree", *_NAMES, "--diff-filter=d", base, tip) if base else await self._tree(tip)

    async def _own_changes(self, words: Sequence[str]) -> list[str]:
        """Return what commits changed themselves, or what undoing them changes."""
        given = [word for word in words if word[:1] != "-" or word == "--not" or word.startswith("--glob=refs/bisect/")]
        ranged = any(".." in word or word.startswith(("^", "--")) for word in given)
        known = [word for word in given if ".." in word or word[:1] in "^-" or await self._commit(word)]
        if all(word[:1] == "-" for word in known) and not any(word.startswith("--glob") for word in known):
            return []
        listed = await self._ask(
            "rev-list", f"--max-count={_MOST_COMMITS}", *(() if ranged else ("--no-walk",)), *known
        )
        reverse = ("-R",) if self._brought.undone else ()
        return await self._names(
            "diff-tree", "--stdin", "-m", "--root", "--no-commit-id", *_NAMES, *reverse, "--diff-filter=d", given=listed
        )

    async def _stash(self, stash: str) -> list[str]:
        commit = await self._commit(stash)
        if not commit:
            return []
        names = await self._names("diff-tree", *_NAMES, "--diff-filter=d", f"{commit}^1", commit)
        new = await self._commit(f"{commit}^3")
        return names + (await self._names("ls-tree", "-r", "-z", "--name-only", "--full-tree", new) if new else [])

    async def _restored(self, paths: Sequence[str]) -> list[str]:
        """Return what differs between the worktree, the index and HEAD."""
        only = ("--", *paths) if paths else ()
        names = await self._names("diff-files", *_NAMES, *only)
        if self._head:
            names += await self._names("diff-index", "--cached", *_NAMES, self._head, *only)
        return names

    async def _hidden(self) -> list[str]:
        listed = await self._names("ls-files", "-t", "-z", "--full-name", ":/")
        return [line[2:] for line in listed if line.startswith(("S ", "s "))]

    async def _state(self) -> tuple[list[str], list[str]]:
        """Return the commits that an interrupted command would still make, and the revisions it may go back to."""
        found = (await self._ask("rev-parse", "--git-dir")).decode().strip()
        base = os.path.join(self._folder, found)
        trees = [word for name in _STATE if (word := _small(os.path.join(base, name)).strip())]
        lines = [line.split() for name in _TODO for line in _small(os.path.join(base, name)).splitlines()]
        commits = [
            word for line in lines for word in line[1:4] if len(word) >= 4 and set(word) <= set("0123456789abcdef")
        ]
        return commits, trees

    async def _tips(self, word: str) -> list[str]:
        """Return the commits a word may mean: a revision, or a branch of a remote that git would follow."""
        commit = await self._commit(word)
        if commit or word.startswith(("-", "/")) or any(char in word for char in " *?[~^:\\"):
            return [commit] if commit else []
        found = await self._ask("for-each-ref", "--format=%(objectname)", f"refs/remotes/*/{word}")
        return found.decode().split()

    async def _commit(self, word: str) -> str:
        if not word or word.startswith("-"):
            return ""
        return (
            (await self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{word}^{{commit}}"))
            .decode()
            .strip()
        )

    async def _names(self, *args: str, given: bytes = b"") -> list[str]:
        answer = await self._ask(*args, given=given, strict=True)
        return [name.decode("utf-8", "surrogateescape") for name in answer.split(b"\0") if name]

    async def _ask(self, *args: str, given: bytes = b"", strict: bool = False) -> bytes:
        """Return what git answers; empty when it refuses. `strict`: raise NoAnswer then."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        process = await anyio.open_process(
            ["git", *_QUIET, *args],
            cwd=self._folder,
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


def _small(path: str) -> str:
    """Return the beginning of a file that git wrote; empty when there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 256 * 1024).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
