"""Find the calls of git in a command line, and judge them by the repositories in which they run."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from acp_agent.gates.facts import CommandFacts
from acp_agent.gates.git.calls import GitCall, git_call, incoming_sources, moved_by, starts_anywhere
from acp_agent.gates.paths.command_paths import MAX_FOLDERS, Expand
from acp_agent.gates.shell.command import Command
from acp_agent.workspace.git.changes import IncomingFiles, IncomingSources
from acp_agent.workspace.git.settings import GitDanger, Repository, dangers

_NOWHERE = GitDanger("git would run in a folder that nobody knows yet", firm=False)
_TOO_MANY = GitDanger("git would run in more folders than can be looked at", firm=False)


class Repositories(Protocol):
    """Finds the repositories that a command of git in a folder may obey; see `GitRepositories`."""

    def __call__(self, folder: str, others: tuple[str, ...] = ()) -> Sequence[Repository]:
        """Return the repositories of a folder, relative to the session's or absolute, and those that words name."""
        ...


class PlacedCall(NamedTuple):
    """A call of git and its possible folders, relative to the session's or absolute. None if they are unknown."""

    call: GitCall
    folders: tuple[str, ...] | None


class Changes(Protocol):
    """Finds the files that a call of git would bring into the worktree; see `GitChanges`."""

    async def __call__(self, folder: str, brought: IncomingSources, *, followed: bool) -> IncomingFiles | None:
        """Return the files, or None if they are unclear. `followed` if another call of git comes behind it."""
        ...


class GitGuard:
    """Judges the calls of git in a command line by the repositories in which they run.

    repositories   finds the repositories; None if there are none
    changes        finds the files that a call brings; None if there are none
    """

    def __init__(
        self,
        repositories: Repositories | None = None,
        changes: Changes | None = None,
    ) -> None:
        self._repositories = repositories
        self._changes = changes

    def dangers(self, line: CommandFacts) -> tuple[GitDanger, ...]:
        """Return why a command line asks, without repetition."""
        if self._repositories is None or not _may_call_git(line.text):
            return ()
        return tuple(dict.fromkeys(danger for placed in git_calls(line) for danger in self._of(placed)))

    async def bringing(self, line: CommandFacts) -> IncomingFiles | None:
        """Return the files that a command line brings through git; None if they are unclear.

        Call it only for a line without `dangers`, because git itself answers.
        """
        files, nested = dict[str, None](), dict[str, None]()
        if self._repositories is None or self._changes is None or not _may_call_git(line.text):
            return IncomingFiles()
        calls = tuple(git_calls(line))
        for at, (call, folders) in enumerate(calls):
            plan = incoming_sources(call)
            for folder in (folders or ()) if plan is not None else ():
                if plan is None or not self._repositories(folder):
                    continue
                found = await self._changes(folder, plan, followed=at + 1 < len(calls))
                if found is None:
                    return None
                files.update(dict.fromkeys(found.files))
                nested.update(dict.fromkeys(found.repositories))
        return IncomingFiles(tuple(files), tuple(nested))

    def entering(self, folders: Sequence[str]) -> tuple[GitDanger, ...]:
        """Return why a command that makes git enter other repositories asks."""
        if self._repositories is None or len(folders) > MAX_FOLDERS:
            return (_TOO_MANY,) if self._repositories is not None else ()
        found = [each for folder in folders for each in self._repositories(folder)]
        return tuple(dict.fromkeys(danger for repository in found for danger in dangers(repository, "")))

    def _of(self, placed: PlacedCall) -> Iterator[GitDanger]:
        assert self._repositories is not None
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
            seen.update(dict.fromkeys([_joined(folder, moved) for folder in seen]))
        lost = lost or after.lost or len(seen) > MAX_FOLDERS


def _below(seen: dict[str, None], call: GitCall, command: Command, expand: Expand) -> Iterator[str]:
    """Yield the folders to which `-C` leads from every possible folder."""
    for folder in seen:
        place = call.folder or ""
        names = expand(place, folder) if place in command.patterns else None
        yield from (_joined(folder, name) for name in (place, *(names or ())))


def _may_call_git(text: str) -> bool:
    """Return whether a text may call git at all. The check is quick, and errs on the side of True."""
    folded = text.casefold()
    names = ("git", "gh", "glab", "tea", "hub", "tig", "jj", "sl")
    return any(name in folded for name in names) or any(char in text for char in "\\'\"$`*?[{")


def _joined(folder: str, name: str) -> str:
    if name.startswith(("/", "~")) or not folder:
        return name
    return f"{folder}/{name}" if name else folder
