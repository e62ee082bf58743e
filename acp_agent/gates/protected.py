"""Ask about calls that write to protected paths: git hooks, editor tasks, start-up files.

`workspace/protected_paths.toml` has two classes of paths:

- A file tool is refused for a hard one, also by the file system, and asks for a soft one.
- A command asks for both, since its text only suggests what it does. No rule and no "always" for a prefix allows it
  silently, only one for exactly its text. `git config` and `crontab` write such files without naming them.
- A command of git also asks if its repository names programs (`workspace/git/settings.py`).

Full-auto refuses instead of asking, except for everyday files of a project (`conftest.py`, its own hooks). Calls that
the user types are not judged.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Protocol

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Access, Allow, Ask, CallOrigin, Deny, Verdict
from acp_agent.gates.gate import CallFacts, CommandFacts, Gate
from acp_agent.gates.git_calls import GitGuard
from acp_agent.gates.paths.command_paths import MAX_WORDS
from acp_agent.gates.paths.written_paths import Written, named, reads_only, written
from acp_agent.gates.shell.arguments import config_write
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.options import operands
from acp_agent.workspace.protected_paths import Protection

_UNASKED = "full-auto does not ask, so it is refused; at another approval level the user would be asked"
_SHOWN = 3


class Find(Protocol):
    """Returns why a path is protected, or None; see `ProtectedPaths.find`."""

    def __call__(self, path: str, *, holding: bool = False) -> Protection | None:
        """Return why the path is protected, or None. If `holding`, a folder above a protected path counts as well."""
        ...


Resolve = Callable[[str, Access], str]

_CRONTAB = Protection(hard=True, reason="the system runs it by itself")
_GIT = Protection(hard=True, reason="git runs or obeys it later")
_DIRENV = Protection(hard=False, reason="direnv runs it on entering the folder")
_OBEYED_LATER = (".gitmodules",)
"""A folder that is protected from edits, but in which nothing runs when git brings it."""
_TOO_MANY = Protection(hard=False, reason="it names more paths or folders than can be looked at")


class ProtectedGate(Gate):
    """Judges the paths that calls and commands change.

    find              returns why a path is protected
    conduct           the approval level in force, which is read for each call
    resolve           resolves paths that a tool itself touches (FileSystem.resolve)
    resolve_command   resolves paths that a command names
    git               judges calls of git by the repositories in which they run
    """

    name = "protected"

    def __init__(
        self,
        *,
        find: Find,
        conduct: SessionOptions,
        resolve: Resolve,
        resolve_command: Resolve,
        git: GitGuard | None = None,
    ) -> None:
        self._git = git or GitGuard()
        self._find = find
        self._conduct = conduct
        self._resolve = resolve
        self._resolve_command = resolve_command

    def judge(self, facts: CallFacts) -> Verdict:
        verdict = self._judge(facts)
        if isinstance(verdict, Ask) and verdict.firm and self._unasked(facts):
            return Deny(f"{verdict.reason}; {_UNASKED}", ToolErrorCategory.CONFIRMATION_REQUIRED, rule=verdict.reason)
        return verdict

    async def examine(self, facts: CallFacts) -> Verdict:
        """Judge the text of a call, then ask git what its commands would bring."""
        verdict = self.judge(facts)
        return await self._brought(facts) if isinstance(verdict, Allow) else verdict

    async def _brought(self, facts: CallFacts) -> Verdict:
        """Judge the files that commands of git take from their repository and put into the worktree."""
        for line in facts.commands:
            brought = await self._git.bringing(line)
            files = () if brought is None else brought.files
            kept = [name for name in files if os.path.basename(name) not in _OBEYED_LATER]
            # A link counts by its possible target: `.vscode` may be a link to a folder with tasks.json in it.
            found = [(name, found) for name in kept if (found := self._find(name, holding=True)) and not found.everyday]
            dangers = self._git.entering(brought.repositories) if brought is not None else ()
            if brought is None:
                reason = "it cannot be told whether git would bring files here that other programs run"
            elif found:
                name, protection = found[0]
                reason = f"git would bring or change {self._shown(name)}, which is protected: {protection.reason}"
            elif dangers:
                reason = f"git would enter {self._shown(brought.repositories[0])}: {dangers[0].reason}"
            else:
                continue
            if self._unasked(facts):
                return Deny(f"{reason}; {_UNASKED}", ToolErrorCategory.CONFIRMATION_REQUIRED, rule=reason)
            return Ask(reason, firm=True)
        return Allow()

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, _place(self._resolve, ".", Access.LIST))

    def _unasked(self, facts: CallFacts) -> bool:
        return self._conduct.auto_approve is AutoApprove.FULL_AUTO and facts.call.origin is CallOrigin.MODEL

    def _judge(self, facts: CallFacts) -> Verdict:
        reasons: list[str] = []
        firm = False
        for path, access in ((each.path, each.access) for each in facts.paths if each.access.changes):
            # A moved or copied source comes with everything below it.
            found = self._path(path, access, holding=access.of_the_entry or len(facts.paths) > 1)
            reason = f"{path} is protected: {found.reason}" if found else ""
            if found and found.hard:
                return Deny(reason, rule=found.reason)
            reasons += [reason] if reason else []
            firm = firm or (found is not None and not found.everyday)
        for line in facts.commands:
            changed = tuple(self._command(line))
            dangers = self._git.dangers(line)
            reasons += [*_told(changed), *(danger.reason for danger in dangers)]
            firm = firm or not all(protection.everyday for _, protection in changed)
            firm = firm or any(danger.firm for danger in dangers)
        return Ask("; ".join(reasons[:_SHOWN]), firm) if reasons else Allow()

    def _path(self, path: str, access: Access, *, holding: bool) -> Protection | None:
        """Judge a path by name and by where it leads. The file system refuses folders with hard paths in them."""
        found = _strictest(map(self._find, (path, _place(self._resolve, path, access))))
        if found is None and holding:
            held = self._find(path, holding=True)
            return held if held is not None and not held.hard else None
        return found

    def _command(self, line: CommandFacts) -> Iterator[tuple[str, Protection]]:
        """Yield the protected paths that a command line may change, as it names them."""
        judged = 0
        for (command, _, folders, _), fed in zip(line.surveyed_steps, _fed(line.survey.commands), strict=True):
            yield from _planted(command)
            for each in (*written(command), *fed):
                matches = folders.matches(each.word, command)
                judged += len(folders.possible) + len(matches or ())
                if judged > MAX_WORDS or folders.lost or matches is None:
                    yield line.text[:80], _TOO_MANY
                    return
                found = self._word(each, (*folders.places(each.word), *matches))
                if found is not None:
                    yield each.word, found

    def _word(self, each: Written, meant: tuple[str, ...]) -> Protection | None:
        places = [os.path.expanduser(place) for place in meant]
        spelled = (*places, *(_place(self._resolve_command, place, Access.LIST) for place in places))
        return _strictest(self._find(place, holding=each.whole) for place in spelled)


def _strictest(found: Iterable[Protection | None]) -> Protection | None:
    """Return the strictest protection: a harmless name may lead to a protected path."""
    return max(filter(None, found), key=lambda each: (each.hard, not each.everyday), default=None)


def _fed(commands: tuple[Command, ...]) -> Iterator[tuple[Written, ...]]:
    """Yield every command, outermost first, with the files that its pipeline names for it (`… | xargs rm`)."""
    feeding: tuple[Written, ...] = ()
    for command, later in zip_longest(commands, commands[1:]):
        yield feeding if command.appended and not reads_only(command) else ()
        yield from _fed(command.runs)
        if later is None or later.joined != "|":
            feeding = ()
        else:
            feeding = (*feeding, *(word for each in command.walk() for word in named(each)))[:MAX_WORDS]


def _told(found: Iterable[tuple[str, Protection]]) -> list[str]:
    """Return one sentence for each reason, the hard ones first."""
    words: dict[Protection, str] = {}
    for word, protection in found:
        words.setdefault(protection, word)
    ranked = sorted(words.items(), key=lambda item: not item[0].hard)
    return [f"may change {word}, which is protected: {protection.reason}" for protection, word in ranked]


def _place(resolve: Resolve, path: str, access: Access) -> str:
    """Return where a path leads, or the path itself if its target may not be touched."""
    try:
        return resolve(path, access)
    except (Refused, ToolError):
        return path


def _planted(command: Command) -> Iterator[tuple[str, Protection]]:
    """Yield the protections of files that a command changes without naming them."""
    key = config_write(command)
    if key:
        yield key, _GIT
    args = command.argv[1:]
    if command.name == "crontab" and "-l" not in args:
        yield "the crontab", _CRONTAB
    if command.name == "direnv" and operands(args)[:1] in (["allow"], ["permit"], ["grant"], ["edit"]):
        yield ".envrc", _DIRENV
