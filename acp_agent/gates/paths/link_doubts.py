"""Tell whether links of a workspace make a command line doubtful.

A command may follow links that lead out of the workspace, or an earlier command of the line may replace a file that a
later one opens by a link. Commands that run side by side (`a | b`, `a & b`) have no order.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple, Protocol

from acp_agent.gates.paths.command_paths import CommandStep
from acp_agent.gates.paths.followed_links import Followed, followed, spliced
from acp_agent.gates.paths.made_links import may_make_links
from acp_agent.gates.paths.opened_paths import opened, reads_folder
from acp_agent.gates.shell.command import Command


class Workspace(Protocol):
    """Looks at the files of a workspace. Paths are as a command names them: relative to its folder, absolute or `~`.

    The methods neither read files nor raise.
    """

    def links_out(self, folder: str) -> Mapping[str, bool] | None:
        """Return the links at or below `folder` that lead out of the workspace, and whether to a folder.

        Links into the workspace are followed. None if there are too many files.
        """
        ...

    def is_file(self, path: str) -> bool:
        """Return whether there is a regular file at `path`, and not a link to one."""
        ...

    def is_folder(self, path: str) -> bool:
        """Return whether `path` is a folder or leads to one."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is anything at `path`, if only a broken link."""
        ...


class UnseenWorkspace:
    """A workspace that cannot be looked at: it may hold any link."""

    def links_out(self, folder: str) -> Mapping[str, bool] | None:
        """Return None: any file may be a link."""
        del folder

    def is_file(self, path: str) -> bool:
        """Return False."""
        del path
        return False

    def is_folder(self, path: str) -> bool:
        """Return False."""
        del path
        return False

    def exists(self, path: str) -> bool:
        """Return True: nothing is surely missing."""
        del path
        return True


MAX_LOOKS = 16
"""The most folders that are searched for one command line."""


class LinkDoubt(NamedTuple):
    """Why links make a command line doubtful. `certain` if it is known that one leads out."""

    reason: str
    certain: bool = False


class _Look:
    """Searches each folder once, and only a few of them: each may have thousands of files."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._seen = dict[str, Mapping[str, bool] | None]()

    def links_out(self, folder: str) -> Mapping[str, bool] | None:
        """Return the result of `Workspace.links_out`, or None if too many folders were searched."""
        if folder not in self._seen:
            self._seen[folder] = self._workspace.links_out(folder) if len(self._seen) < MAX_LOOKS else None
        return self._seen[folder]


def link_doubts(steps: Iterable[CommandStep], workspace: Workspace) -> Iterator[LinkDoubt]:
    """Yield the doubts about the links that a command line follows or makes."""
    steps, look = [*takewhile(lambda step: not step.folders.lost, steps)], _Look(workspace)
    first, maker = _first_after_links(steps, workspace)
    elsewhere = False
    for at, step in enumerate(steps):
        command = step.command
        word = spliced(command)
        if word:
            yield LinkDoubt(f"{command.name} makes other paths of the names it finds: {word}")
        for each in followed(command):
            yield from _follows(each, step, look) if at < first else _unknown(f"what {each.how} meets", maker)
        if at < first:
            continue
        for word in dict.fromkeys(opened(command)):
            yield from _unknown(word, maker)
        if elsewhere and reads_folder(command):
            yield from _unknown(f"the folder that {command.name} runs in", maker)
        elsewhere = elsewhere or (command.name in ("cd", "pushd") and command.argv[1:] not in ((".",), ("./",)))


def _first_after_links(steps: Sequence[CommandStep], workspace: Workspace) -> tuple[int, str]:
    """Return the step from which on files may be links that the line makes, and the command that makes them."""
    for at, step in enumerate(steps):

        def is_file(word: str, step: CommandStep = step) -> bool:
            known = word not in step.command.patterns and not any(each.appended for each in _outer(step).walk())
            return known and all(workspace.is_file(posixpath.join(folder, word)) for folder in step.folders.possible)

        if not may_make_links(step.command, is_file):
            continue
        maker = " ".join(step.command.argv[:2])
        if "&" in (joined for each in steps for joined in (_outer(each).joined, each.command.joined)):
            return 0, maker
        if "|" in (_outer(step).joined, step.command.joined):
            return 0, maker
        if any(each.appended for each in _outer(step).walk()):
            return next(index for index, each in enumerate(steps) if _outer(each) is _outer(step)), maker
        return at + 1, maker
    return len(steps), ""


def _outer(step: CommandStep) -> Command:
    """Return the command of the text that a step belongs to."""
    return step.parents[0] if step.parents else step.command


def _unknown(what: str, maker: str) -> Iterator[LinkDoubt]:
    yield LinkDoubt(f"{what} may be a link that '{maker}' makes" if maker else what)


def _follows(each: Followed, step: CommandStep, look: "_Look") -> Iterator[LinkDoubt]:
    for folder in each.folders:
        for place in dict.fromkeys(posixpath.join(start, folder) for start in step.folders.possible):
            links = look.links_out(place)
            if links is None:
                yield LinkDoubt(f"{each.how} follows links, and {folder} holds more files than are looked at")
                return
            out = next((link for link, leads in links.items() if each.reads_through(link, folder=leads)), "")
            if out:
                yield LinkDoubt(f"{each.how} follows the link {out}, which leads outside the workspace", certain=True)
                return
