"""The users' definitions for one session (skills, commands, agents, tools, hooks). See docs/skills.md.

They are looked for before each prompt, and the user is asked about new ones. The modules of tools, hooks and agents are
loaded only if some are defined.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import anyio
from anyio import to_thread

from acp_agent.agent.prompt import skills_block
from acp_agent.config.settings import Settings
from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolError
from acp_agent.core.events import OfferedCommand
from acp_agent.core.ports import Approver
from acp_agent.core.secrets import Redact
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.extend.front_matter import DefinitionProblem, MarkdownFile, parse, text_of
from acp_agent.extend.skills import MANY, SkillLibrary, UserCommands, substituted
from acp_agent.extend.sources import ExtensionSources, SourceFile, SourceKind
from acp_agent.gates.selection import GROUPS
from acp_agent.session.slash.commands import CommandName
from acp_agent.session.subagents import AgentLibrary
from acp_agent.store.schema import local_devices
from acp_agent.text import counted
from acp_agent.tools import registry
from acp_agent.tools.tool import Tool
from acp_agent.workspace.roots import Roots

if TYPE_CHECKING:
    from acp_agent.extend.custom_tools import CustomTools
    from acp_agent.extend.hooks import HookLibrary
    from acp_agent.tools.custom import CustomTool

_SLOW = "looking for skills and commands takes too long (a slow disk?): those that were found before are used"
_WITH_SEARCH = 3  # tools
_MOST_TOLD, _MOST_LISTED = 20, 200  # the most problems that are shown in one turn, and in /status
_SHOWN, _SHOWN_ACTION = 300, 2000  # characters of a description, and of what a file runs, in the question
_IN_PART = "not all of it is shown: read the file before you answer"


@frozen
class Expansion:
    """The text that a user's command sends to the model. `tools` are the only tools of its turn; None allows all."""

    text: str
    tools: tuple[str, ...] | None = None


def kinds_wanted(settings: Settings) -> Sequence[SourceKind]:
    """Return the kinds of definitions that are looked for."""
    wanted = {
        SourceKind.SKILLS: settings.skills.enabled,
        SourceKind.COMMANDS: True,
        SourceKind.TOOLS: True,
        SourceKind.HOOKS: True,
        SourceKind.AGENTS: settings.agents.enabled,
    }
    return tuple(kind for kind, is_wanted in wanted.items() if is_wanted)


def reserved_tools() -> Collection[str]:
    """Return the names that users' tools must not have."""
    return {*registry.reserved_names(), *(name for group in GROUPS.values() for name in group)}


def _bounded(lines: Sequence[str], most: int, advice: str) -> Sequence[str]:
    """Return at most `most` lines. If there are more, the last line says how many are left out."""
    return lines if len(lines) <= most else (*lines[:most], f"{counted(len(lines) - most, 'more problem')}: {advice}")


EarlyLooks: TypeAlias = Callable[[Collection[int]], Sequence[Callable[[], object]]]
"""Returns the reads of the disk that a prompt needs. It gets the devices that answer at once: only there may it check
with `stat` whether an earlier read still holds."""


def no_looks(devices: Collection[int]) -> Sequence[Callable[[], object]]:
    """Return no reads of the disk."""
    del devices
    return ()


class SessionExtensions:
    """The skills, commands, sub-agents, tools and hooks that users define, for one session.

    sources    finds the files
    roots      returns the roots of the session; None if nothing in the folder may be used
    approver   asks the user about files of the project
    options    the options in force: at full-auto nobody is asked
    clean      removes secrets and invisible characters from a text
    warn       called once with each problem
    agents     the definitions of sub-agents
    variables  returns the names of the variables that commands see
    """

    seconds: ClassVar[float] = 1.0
    """How long a prompt waits for the files."""

    def __init__(
        self,
        sources: ExtensionSources,
        roots: Callable[[], Roots | None],
        approver: Approver,
        options: SessionOptions,
        clean: Redact,
        warn: Callable[[str], None],
        agents: AgentLibrary,
        variables: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self.sources = sources
        self.agents = agents
        self.skills = SkillLibrary(clean, variables)
        self.commands = UserCommands([*CommandName], clean)
        self.custom: CustomTools | None = None
        self.hooks: HookLibrary | None = None
        self._roots = roots
        self._approver = approver
        self._options = options
        self._clean = clean
        self._warn = warn
        self._told = set[str]()
        self._looking = False
        self._looks = 0  # how many have ended
        self._has_refreshed = False  # since problems were shown
        self._devices = frozenset[int]()  # disks that answer at once
        self._tools: tuple[Tool[Any], ...] = ()

    async def ready(
        self,
        *,
        ask: bool,
        early: EarlyLooks = no_looks,
        threads: anyio.CapacityLimiter | None = None,
    ) -> None:
        """Look for definitions, and ask the user about new ones of the project. See `refresh`.

        The prompt waits at most `seconds` for a slow disk. After that, the definitions that were found before are used.
        If all that was looked at is on local disks, and a few calls of `stat` tell that nothing has changed, no thread
        is needed.

        early     returns the prompt's other reads of the disk, which the same thread does afterwards
        threads   limits how many threads read at the same time
        """
        if self._looking:
            return
        before, looks = self._looks, early(self._devices)
        is_quick = bool(self._devices) and not looks and self.agents.is_current
        if is_quick and self.sources.is_current(self._roots(), self._devices):
            self._tell_problems()  # the look that found them may have been too late for its prompt
            return
        with anyio.move_on_after(self.seconds):
            await to_thread.run_sync(self._look, looks, abandon_on_cancel=True, limiter=threads)
        if self._looks == before:
            self._tell((_SLOW,))
            return
        if ask and self.sources.waiting:
            await self._ask()
        self._tell_problems()

    def _look(self, early: Sequence[Callable[[], object]]) -> None:
        self._looking = True
        try:
            self.refresh()
            roots = self._roots()
            more = () if roots is None else [root.path for root in roots.all]
            self._devices = local_devices((*self.sources.folders, *more))
            self._looks += 1
        finally:
            self._looking = False
        for look in early:
            look()

    def refresh(self) -> None:
        """Look for definitions, and use them. It blocks, for a few calls of `stat` if nothing has changed."""
        self.sources.refresh(self._roots())
        self.skills.read(self.sources.files(SourceKind.SKILLS))
        self.commands.read(self.sources.files(SourceKind.COMMANDS))
        self.agents.read(self.sources.files(SourceKind.AGENTS))
        self._read_tools(self.sources.files(SourceKind.TOOLS))
        self._read_hooks(self.sources.files(SourceKind.HOOKS))
        count = len(self.skills.listed())
        if (bool(self._tools), len(self._tools) == _WITH_SEARCH) != (count > 0, count > MANY):
            self._tools = self._make_tools(searchable=count > MANY) if count else ()
        self._has_refreshed = True

    def _make_tools(self, *, searchable: bool) -> tuple[Tool[Any], ...]:
        from acp_agent.tools.skills import skill_tools  # noqa: PLC0415 - few sessions have skills

        return skill_tools(self.skills, searchable=searchable)

    def _read_tools(self, files: tuple[SourceFile, ...]) -> None:
        if self.custom is None and files:
            from acp_agent.extend.custom_tools import CustomTools  # noqa: PLC0415 - few users have custom tools

            self.custom = CustomTools(reserved_tools(), self._clean)
        if self.custom is not None:
            self.custom.read(files)

    def _read_hooks(self, files: tuple[SourceFile, ...]) -> None:
        of_agents = self.agents.hooks
        if self.hooks is None and (files or of_agents):
            from acp_agent.extend.hooks import HookLibrary  # noqa: PLC0415 - likewise

            self.hooks = HookLibrary()
        if self.hooks is not None:
            self.hooks.read(files, of_agents)

    async def accept(self) -> str:
        """Use the files that wait for the user's approval. Return the message for the user."""
        files = self.sources.waiting
        if not files:
            return "No file of this folder waits for your approval."
        await to_thread.run_sync(lambda: self.sources.answer(files, trusted=True, lasting=True))
        await to_thread.run_sync(self.refresh)
        self._tell(self.troubles(minor=False))
        return "\n".join((f"Used from now on ({counted(len(files), 'file')}):", "", *map(self._line, files)))

    async def _ask(self) -> None:
        if self._options.auto_approve is AutoApprove.FULL_AUTO:
            return
        try:
            await self.sources.ask(self._approver, self._described)
        except ToolError:  # no answer in time; `_tell` reports that the files wait
            return
        await to_thread.run_sync(self.refresh)

    def _tell_problems(self) -> None:
        """Show the user the problems that were found since the last call."""
        if self._has_refreshed:
            self._has_refreshed = False
            self._tell(self.troubles(minor=False))

    def _tell(self, troubles: Sequence[str]) -> None:
        """Show the user the problems that were not shown yet."""
        new = [each for each in troubles if each not in self._told]
        self._told.update(new)
        for problem in _bounded(new, _MOST_TOLD, "`/status` names them"):
            self._warn(problem)

    def problems(self) -> Sequence[DefinitionProblem]:
        more = [each.problems for each in (self.custom, self.hooks) if each is not None]
        own = (self.sources.problems, self.skills.problems, self.commands.problems, self.agents.problems)
        return tuple(chain(*own, *more, self._hidden_skills(), self._missing_skills()))

    def _hidden_skills(self) -> Iterator[DefinitionProblem]:
        """Yield a problem for each skill that cannot be typed as a command, because a command has its name."""
        for skill in self.skills.all:
            if skill.name in set(CommandName):
                reason = f"/{skill.name} is a command of the agent itself: only the model can use this skill"
                yield DefinitionProblem(skill.file.shown, "name", reason)
            elif command := self.commands.find(skill.name):
                reason = f"/{skill.name} is the command in {command.file.shown}, and not this skill"
                yield DefinitionProblem(skill.file.shown, "name", reason, minor=True)

    def _missing_skills(self) -> Iterator[DefinitionProblem]:
        """Yield a problem for each missing skill that an agent's definition names."""
        for agent in self.agents.users():
            for name in agent.skills:
                if self.skills.find(name) is None:
                    yield DefinitionProblem(agent.source, "skills", f"there is no skill {text_of(name)}")

    def troubles(self, *, minor: bool) -> Sequence[str]:
        """Return problems, and the files that wait for the user's approval. Minor problems are included if `minor`."""
        names = ", ".join(file.shown for file in self.sources.waiting)
        waiting = f"not used until you approve them (`/trust accept`), since they are new or have changed: {names}"
        problems = (each for each in self.problems() if minor or not each.minor)
        return (*map(str, problems), *((waiting,) if names else ()))

    def status(self) -> Sequence[str]:
        more = [each.status() for each in (self.custom, self.hooks) if each is not None]
        own = (self.skills.status(), self.commands.status(), self.agents.status())
        problems = _bounded(self.troubles(minor=True), _MOST_LISTED, "correct these first")
        return (*chain(*own, *more), *(f"Problem: {each}" for each in problems))

    def waiting(self) -> Sequence[str]:
        """Return lines for /trust."""
        files = self.sources.waiting
        return (*map(self._line, files), "`/trust accept` uses them.") if files else ()

    def _line(self, file: SourceFile) -> str:
        return f"- {self._described(file)}"

    def _described(self, file: SourceFile) -> str:
        """Return one line that says what a file would add."""
        told, most = "", _SHOWN_ACTION
        if file.kind is SourceKind.TOOLS:
            from acp_agent.extend.custom_tools import effect  # noqa: PLC0415 - likewise

            told = effect(file)
        elif file.kind is SourceKind.HOOKS:
            from acp_agent.extend import hooks  # noqa: PLC0415 - likewise

            told = hooks.effect(file)
        elif isinstance(parsed := parse(file.data, file.shown), MarkdownFile):
            told, most = str(parsed.values.get("description") or ""), _SHOWN
            if file.kind is SourceKind.AGENTS and "hooks" in parsed.values:
                from acp_agent.subagents import definitions  # noqa: PLC0415 - likewise

                told, most = f"{definitions.hooks_effect(parsed)}; {told}", _SHOWN_ACTION
        line, clean = (" ".join(text.split()) for text in (told, self._clean(told)))
        text = clean if len(clean) <= most and clean == line else f"{clean[:most]}… [{_IN_PART}]"
        return f"{file.kind.value.removesuffix('s')} {file.name} ({file.shown}){f': {text}' if text else ''}"

    # ------------------------------------------------------------------------------------ for the session

    def tools(self) -> tuple[Tool[Any], ...]:
        """Return the tools for the definitions. The same object until they change."""
        return self._tools

    def custom_tools(self) -> "tuple[CustomTool, ...]":
        """Return the custom tools. The same object until they change."""
        return () if self.custom is None else self.custom.all

    def prompt(self, settings: Settings) -> str:
        """Return the part of the system prompt about skills; empty without skills."""
        return skills_block(self.skills.listed(), settings.skills.max_chars)

    def skill_texts(self, names: Sequence[str]) -> str:
        """Return the texts of skills for the model, one after another. Unknown names are left out."""
        found = filter(None, map(self.skills.find, names))
        return "\n\n".join(self.skills.text(skill).text for skill in found)

    def expand(self, name: str, argument: str) -> Expansion | None:
        """Return the text that a command, or a skill typed as a command, sends to the model. None for other names."""
        if command := self.commands.find(name):
            return Expansion(substituted(self._clean(command.body), argument), command.tools)
        if skill := self.skills.find(name):
            return Expansion(f"Carry out this skill now.\n\n{self.skills.text(skill, argument).text}")
        return None

    def offered(self) -> tuple[OfferedCommand, ...]:
        """Return the user's slash commands for editors."""
        own, skills = self.commands.offered(), self.skills.offered()
        taken = {each.name for each in own} | set(CommandName) if skills else ()
        return (*own, *(each for each in skills if each.name not in taken))
