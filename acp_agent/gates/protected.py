"""Ask about calls that write to protected paths: git hooks, editor tasks, start-up files.

`workspace/protected_paths.toml` has two classes of paths:

- A file tool may not write to a hard one, which the file system refuses too. It asks about a soft one.
- A command asks for both, since its text only suggests what it does. No rule and no "always" for a prefix allows it
  silently, only one for exactly its text. `git config` and `crontab` write such files without naming them.
- A command of git also asks if its repository names programs (`workspace/git/settings.py`).

Full-auto refuses instead of asking, except for everyday files of a project (`conftest.py`, its own hooks). A command
that the user typed runs all the same, since the permission gate allows it.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Access, Allow, Ask, CallOrigin, Deny, Verdict
from acp_agent.gates.gate import CallFacts, CommandFacts, Gate, Resolve, unasked
from acp_agent.gates.git_calls import GitGuard, may_call_git
from acp_agent.gates.paths.command_paths import MAX_WORDS
from acp_agent.gates.paths.written_paths import Written, named, reads_only, written
from acp_agent.gates.shell.arguments import config_write
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.options import operands
from acp_agent.workspace.protected_paths import ProtectedPaths, Protection

_SHOWN = 3


_CRONTAB = Protection(hard=True, reason="the system runs it by itself")
_GIT = Protection(hard=True, reason="git runs or obeys it later")
_DIRENV = Protection(hard=False, reason="direnv runs it on entering the folder")
_OBEYED_LATER = (".gitmodules",)
"""Names that are protected from edits, although nothing runs when git brings such a file."""
_TOO_MANY = Protection(hard=False, reason="it names more paths or folders than can be looked at")


class ProtectedGate(Gate):
    """A gate that judges the paths which calls and commands change.

    paths             the protected paths
    options           the approval level in force, which is read for each call
    resolve           resolves paths that a tool itself touches (FileSystem.resolve)
    resolve_command   resolves paths that a command names
    git               judges calls of git by the repositories in which they run
    """

    name = "protected"

    def __init__(
        self,
        *,
        paths: ProtectedPaths,
        options: SessionOptions,
        resolve: Resolve,
        resolve_command: Resolve,
        git: GitGuard,
    ) -> None:
        self._git = git
        self._find = paths.find
        self._options = options
        self._resolve = resolve
        self._resolve_command = resolve_command

    def judge(self, facts: CallFacts) -> Verdict:
        reasons: list[str] = []
        firm, by_rule = False, True
        for subject in facts.paths:
            path, access = subject.path, subject.access
            # A moved or copied source comes with everything below it.
            holding = access.of_the_entry or len(facts.paths) > 1
            found = self._path(path, access, holding=holding) if access.changes else None
            if found is not None:
                by_rule = False
                reasons.append(f"{path} is protected: {found.reason}")
                if found.hard:
                    return Deny(reasons[-1], rule=found.reason)
                firm = firm or not found.everyday
        for line in facts.commands:
            changed = tuple(self._command(line, within=facts.contained))
            if changed:
                by_rule = False
                reasons += _told(changed)
                firm = firm or not all(protection.everyday for _, protection in changed)
            # What a repository lets git run is contained like every other program.
            for danger in self._git.dangers(line) if may_call_git(line.text) and not facts.contained else ():
                reasons.append(danger.reason)
                firm, by_rule = firm or danger.firm, by_rule and danger.by_rule
        return self._ask(facts, "; ".join(reasons[:_SHOWN]), firm=firm, by_rule=by_rule) if reasons else Allow()

    def _ask(self, facts: CallFacts, reason: str, *, firm: bool, by_rule: bool = False) -> Verdict:
        """Return the question, or the refusal of a firm one at a level that does not ask."""
        full_auto = self._options.auto_approve is AutoApprove.FULL_AUTO
        if firm and full_auto and facts.call.origin is CallOrigin.MODEL:
            return unasked(reason)
        return Ask(reason, firm, by_rule=by_rule)

    async def examine(self, facts: CallFacts) -> Verdict:
        """Judge the text of a call, then ask git which files its commands would take and put into the worktree."""
        verdict = self.judge(facts)
        allowed = isinstance(verdict, Allow) or (isinstance(verdict, Ask) and verdict.by_rule)
        for line in facts.commands if allowed else ():
            reason = await self._brought(line) if may_call_git(line.text) else ""
            if reason:
                return self._ask(facts, reason, firm=True)
        return verdict

    async def _brought(self, line: CommandFacts) -> str:
        """Return why the user is asked about files that calls of git would bring; empty if they are not."""
        brought = await self._git.bringing(line)
        if brought is None:
            return "it cannot be told whether git would bring files here that other programs run"
        for name in brought.files:
            # A link counts by its possible target: `.vscode` may be a link to a folder with tasks.json in it.
            found = None if os.path.basename(name) in _OBEYED_LATER else self._find(name, holding=True)
            if found and not found.everyday:
                return f"git would bring or change {self._shown(name)}, which is protected: {found.reason}"
        for danger in self._git.entering(brought.repositories):
            return f"git would enter {self._shown(brought.repositories[0])}: {danger.reason}"
        return ""

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, _place(self._resolve, ".", Access.LIST))

    def _path(self, path: str, access: Access, *, holding: bool) -> Protection | None:
        """Judge a path by its name and by its target.

        holding   whether the soft paths below it count too. The file system refuses to change a folder with hard ones
        """
        found = _strictest(map(self._find, (path, _place(self._resolve, path, access))))
        if found is None and holding:
            held = self._find(path, holding=True)
            return held if held is not None and not held.hard else None
        return found

    def _command(self, line: CommandFacts, *, within: bool) -> Iterator[tuple[str, Protection]]:
        """Yield the protected paths that a command line may change, as it names them.

        within   whether only those in the session's folders count, because a sandbox protects the others
        """
        judged, fed = 0, list[tuple[Written, ...]]()
        for at, (command, _, folders, _) in enumerate(line.surveyed_steps):
            yield from _planted(command)
            if command.appended and not fed:
                fed = list(_fed(line.survey.commands))
            for each in (*written(command), *(fed[at] if command.appended else ())):
                matches = folders.matches(each.word, command)
                judged += len(folders.possible) + len(matches or ())
                if judged > MAX_WORDS or folders.lost or matches is None:
                    yield line.text[:80], _TOO_MANY
                    return
                found = self._word(each, (*folders.places(each.word), *matches), within=within)
                if found is not None:
                    yield each.word, found

    def _word(self, each: Written, meant: tuple[str, ...], *, within: bool) -> Protection | None:
        places = [os.path.expanduser(place) for place in meant]
        places = [place for place in places if self._is_inside(place)] if within else places
        spelled = (*places, *(_place(self._resolve_command, place, Access.LIST) for place in places))
        return _strictest(self._find(place, holding=each.whole) for place in spelled)

    def _is_inside(self, path: str) -> bool:
        try:
            self._resolve_command(path, Access.LIST)
        except (Refused, ToolError):
            return False
        return True


def _strictest(found: Iterable[Protection | None]) -> Protection | None:
    """Return the strictest protection: a harmless name may lead to a protected path."""
    return max(filter(None, found), key=lambda each: (each.hard, not each.everyday), default=None)


def _fed(commands: tuple[Command, ...]) -> Iterator[tuple[Written, ...]]:
    """Yield for every command, outermost first, the files that its pipeline names for it (`… | xargs rm`)."""
    feeding: tuple[Written, ...] = ()
    for command, later in zip_longest(commands, commands[1:]):
        yield feeding if command.appended and not reads_only(command) else ()
        yield from _fed(command.runs)
        if later is None or later.joined != "|":
            feeding = ()
        else:
            feeding = (*feeding, *(word for each in command.walk() for word in named(each)))[: MAX_WORDS + 1]


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
