"""Keep paths inside the session's roots.

A tool's own paths must resolve inside, or the call is refused. Nothing confines a shell command that runs without
walls, so the paths in its text are judged:

- A relative path that climbs out by `..` is refused. If that depends on the success of an earlier `cd`, the user is
  asked.
- For any other path outside (absolute, `~`, a link that leads out) the question names the path. Reading a log is
  ordinary work, but no rule should allow it silently. Full-auto refuses it instead of asking.
- Devices such as /dev/null are allowed.
- If walls of the kernel contain the command, nothing is asked about its paths. A command that asks to run outside of
  them asks each time. The question says whether the same command ran within them before, and which wall stopped it.

If a tool, or a command that only reads, reads a dependency of the project outside the roots (site-packages, sources of
the toolchain), the question is about its folder. Full-auto does not ask.
"""

import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access, Allow, ApprovedBy, Ask, Deny, ToolResult, Verdict
from acp_agent.gates.gate import CallFacts, CommandFacts, Gate, Resolve
from acp_agent.gates.paths.command_paths import MAX_WORDS, Folders, odd_words, path_words, patterns_of
from acp_agent.gates.paths.links import (
    LinkDoubt,
    UnseenWorkspace,
    Workspace,
    link_doubts,
    link_targets,
    made_folders,
    without_made,
)
from acp_agent.gates.shell.command import Command
from acp_agent.text import some_of
from acp_agent.workspace.roots import ReadableFolder

_SHOWN = 5
_WALLS = (("be reached", "the network"), ("can run", "processes"))
"""Pairs of the end of a `ToolResult.wall`, and a name for the wall. Any other wall is around files."""
_MOST_STOPPED = 20
"""The most commands that are remembered because a wall stopped them."""
_DEVICES = re.compile(r"/dev/(?:null|zero|full|u?random|tty|stdin|stdout|stderr|fd/\d+)")
_CLIMBS = re.compile(r"(?![/~])(?:.*/)?\.\.(?:/|$)", re.DOTALL)


def _no_opinion(url: str) -> None:
    del url


def _no_folder(path: str) -> None:
    del path


FindDependency: TypeAlias = Callable[[str], ReadableFolder | None]


class SandboxGate(Gate):
    """A gate that judges every path of a call. Both resolve functions raise Refused for a path outside.

    resolve           resolves paths that a tool itself touches (FileSystem.resolve)
    resolve_command   resolves paths that a command names; the two sandboxes are configured separately
    folder, folder_of_command   return the dependency that contains a path, or None
    refuse_url        returns the refusal of a URL before its host is looked up, or None
    workspace         finds the links that a command may follow
    """

    name = "sandbox"

    def __init__(
        self,
        resolve: Resolve,
        resolve_command: Resolve,
        refuse_url: Callable[[str], Refused | None] = _no_opinion,
        workspace: Workspace | None = None,
        *,
        folder: FindDependency = _no_folder,
        folder_of_command: FindDependency = _no_folder,
    ) -> None:
        self._folder = folder
        self._folder_of_command = folder_of_command
        self._workspace = workspace or UnseenWorkspace()
        self._refuse_url = refuse_url
        self._resolve = resolve
        self._resolve_command = resolve_command
        self._stopped: dict[str, str] = {}

    def judge(self, facts: CallFacts) -> Verdict:
        outside, links, readable = list[str](), list[LinkDoubt](), dict[ReadableFolder, None]()
        for path in facts.paths:
            try:
                self._resolve(path.path, path.access)
            except (Refused, ToolError) as error:
                return Deny(str(error), error.failure.category, advice=error.failure.suggestion)
            if not path.access.changes and (folder := self._folder(path.path)) is not None:
                readable[folder] = None
        refused = next(filter(None, map(self._refuse_url, facts.urls)), None)
        if refused is not None:
            return Deny(str(refused), advice=refused.failure.suggestion)
        for line in facts.commands:
            verdict = self._command(line, readable)
            if isinstance(verdict, Deny):
                return verdict
            if facts.contained:
                readable.clear()
                continue
            outside.extend(verdict)
            links.extend(link_doubts(line.steps, self._workspace))
            links.extend(_options_by_pattern(line))
        if facts.typed:
            return Ask("typed into a program that runs commands, in a folder that is not known", firm=True)
        if not (outside or links or readable or facts.unsandboxed):
            return Allow()
        reasons = [self._leaves(facts)] if facts.unsandboxed else []
        reasons += [f"reads {each.name}, {each.whose} ({each.path})" for each in readable]
        if not (facts.unsandboxed or outside or links):
            return Ask("; ".join(reasons), folders=tuple(each.path for each in readable))
        reasons += [f"outside the workspace: {some_of(outside, _SHOWN)}"] if outside else []
        if facts.unsandboxed:
            return Ask("; ".join(reasons), firm=True, each_time=True)
        reasons += list(dict.fromkeys(each.reason for each in links))[:_SHOWN]
        return Ask("; ".join(reasons), firm=bool(outside) or any(each.certain for each in links))

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Remember a command that a wall stopped."""
        if result.wall and facts.command is not None:
            by_user = result.ruling is not None and result.ruling.approved_by is ApprovedBy.USER
            # The command itself writes its output, so the question must not quote it.
            wall = next((kind for end, kind in _WALLS if result.wall.endswith(end)), "files")
            before = "you allowed it" if by_user else "it ran unasked"
            self._stopped.pop(facts.command.text, None)
            self._stopped[facts.command.text] = (
                f", in which {before}; its output says that a wall around {wall} stopped it"
            )
            for oldest in [*self._stopped][:-_MOST_STOPPED]:
                del self._stopped[oldest]
        return result

    def _leaves(self, facts: CallFacts) -> str:
        text = "" if facts.command is None else facts.command.text
        return f"leaves the sandbox{self._stopped.get(text, '')}"

    def _command(self, line: CommandFacts, readable: dict[ReadableFolder, None]) -> list[str] | Deny:
        """Return the paths outside that a command names, or a refusal if one of them climbs out by `..`.

        If the command only reads, paths in dependencies are left out, and their folders are added to `readable`.
        """
        outside: dict[str, None] = {}
        made = set[str]()
        judged = 0
        names = [step.command.name for step in line.steps]
        reads = line.only_reads and "git" not in names  # the configuration of a repository may make git run programs
        for command, _, folders, after in line.steps:
            if folders.lost:
                return Deny("the command changes its folder too often to judge its paths; run it in steps")
            asked = readable if reads and not command.patterns else None  # a file of a pattern may be a link
            meant = link_targets(command, partial(self._is_folder, folders.possible, made))
            for word in dict.fromkeys(chain(path_words(command), patterns_of(command))):
                matches = folders.matches(word, command)
                judged += len(folders.possible) + len(matches or ())
                if judged > MAX_WORDS or matches is None:
                    return [*outside, f"(more than {MAX_WORDS} paths)"]
                where = [
                    self._is_outside(path, made, asked)
                    for each in meant.get(word, (word,))
                    for path in folders.places(each)
                ]
                if _CLIMBS.match(word) and all(where):
                    return Deny(f"'{word}' leads out of the workspace", advice="Name a path inside of it.")
                found = [word] if any(where) else [path for path in matches if self._is_outside(path)]
                outside.update(dict.fromkeys(found))
            if (odd := self._odd_outside(command, folders)) is None:
                return [*outside, f"(more than {MAX_WORDS} paths)"]
            outside.update(dict.fromkeys(odd))
            for folder in made_folders(command):
                made.update(map(posixpath.normpath, folders.places(folder)))
            if command.name in ("cd", "pushd"):  # when the next commands run, the folder exists
                made.update(each for each in map(posixpath.normpath, after.possible) if _CLIMBS.match(each) is None)
        return list(outside)

    def _odd_outside(self, command: Command, folders: Folders) -> list[str] | None:
        """Return the files outside that words of a command may name although they look like text; None for too many."""
        found = dict[str, None]()
        words = list(dict.fromkeys(odd_words(command)))
        if len(words) * len(folders.possible) > MAX_WORDS:
            return None
        for word in words:
            matches = folders.matches(word, command)
            if matches is None:
                return None
            first = word if word.startswith(("/", "~")) else word.partition("/")[0]
            # A file may be there if the first part of the word exists.
            places = [path for path in folders.places(word) if self._workspace.exists(path.removesuffix(word) + first)]
            found.update(dict.fromkeys(path for path in (*places, *matches) if self._is_outside(path)))
        return list(found)

    def _is_folder(self, folders: Sequence[str], made: Collection[str], word: str) -> bool:
        """Return whether a word names a folder, or one that the line makes, in every folder of the command."""
        places = [posixpath.join(folder, word) for folder in folders]
        return all(posixpath.normpath(place) in made or self._workspace.is_folder(place) for place in places)

    def _is_outside(
        self, path: str, made: Collection[str] = (), readable: dict[ReadableFolder, None] | None = None
    ) -> bool:
        if path.startswith("~"):
            path = os.path.expanduser(path)
            if path.startswith("~"):
                return True
        if _DEVICES.fullmatch(posixpath.normpath(path)):
            return False
        try:
            self._resolve_command(path, Access.READ)
        except (Refused, ToolError):
            folder = self._folder_of_command(path) if readable is not None else None
            if readable is not None and folder is not None:
                readable[folder] = None
                return False
            shorter = without_made(path, made, self._workspace.exists)
            return shorter == path or self._is_outside(shorter)
        return False


def _options_by_pattern(line: CommandFacts) -> Iterator[LinkDoubt]:
    """Yield a doubt for each pattern that stands for a file whose name the program would read as an option."""
    for command, _, folders, _ in line.steps:
        for word in command.patterns if "--" not in command.own else ():
            names = map(posixpath.basename, folders.matches(word, command) or ()) if "/" not in word else ()
            name = next((each for each in names if each.startswith("-")), "")
            if name:
                yield LinkDoubt(f"{word} stands for the file {name[:80]}, which {command.name} reads as an option")
