"""The base class of gates, the gates of a session in their order, and the facts of one call.

Every fact of a call is computed when it is first needed, and at most once.
"""

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.ports import Invocation
from acp_agent.core.types import (
    Access,
    Allow,
    Ask,
    CallOrigin,
    CommandSubject,
    Containment,
    Deny,
    Json,
    PathSubject,
    Ruling,
    ToolKind,
    ToolResult,
    ToolSpec,
    UrlSubject,
    Verdict,
)
from acp_agent.gates.paths.command_paths import (
    CommandStep,
    Expand,
    IsFolder,
    nothing_known,
    steps_of,
    unexpanded,
)
from acp_agent.gates.shell.command import Plain, ShellText
from acp_agent.gates.shell.programs import only_reads

if TYPE_CHECKING:
    from collections.abc import Awaitable


Resolve: TypeAlias = Callable[[str, Access], str]
"""Returns the resolved path, as `FileSystem.resolve` does. Raises Refused or ToolError if it may not be touched."""


def unasked(reason: str) -> Deny:
    """Return the refusal of a call with a firm question at an approval level that does not ask."""
    told = f"{reason}; full-auto does not ask, so it is refused; at another approval level the user would be asked"
    return Deny(told, ToolErrorCategory.CONFIRMATION_REQUIRED, rule=reason)


def texts_in(value: Json) -> list[str]:
    """Return every text in a JSON value, at any depth."""
    texts: list[str] = []
    rest: list[Json] = [value]
    while rest:
        match rest.pop():
            case str() as text:
                texts.append(text)
            case list() as row:
                rest += row
            case dict() as table:
                rest += table.values()
            case _:
                pass
    return texts


class CommandFacts(ShellText):
    """A command line, the commands that it runs, and their folders.

    expand     returns the files that a pattern of a command stands for
    is_folder  returns whether a path is a folder now
    typed      whether it is input for a shell that is already running, whose folder and definitions are unknown
    stays      whether it goes on after the call, while other calls may move files
    """

    def __init__(
        self,
        text: str,
        expand: Expand = unexpanded,
        is_folder: IsFolder = nothing_known,
        *,
        typed: bool = False,
        stays: bool = False,
    ) -> None:
        super().__init__(text)
        self.expand = expand
        self._is_folder = is_folder
        self.typed = typed
        self.stays = stays

    @cached_property
    def only_reads(self) -> bool:
        """Whether the text is proven to run only commands that change nothing and reach no host."""
        proven = isinstance(self.analysis, Plain) and not (self.typed or self.stays)
        return proven and all(map(only_reads, self.commands))

    @property
    def changing(self) -> str:
        """The first program of several that is not proven to only read, "" if there is only one or it has no name."""
        several = self.commands if len(self.commands) > 1 else ()
        return next((command.name for command in several if not only_reads(command)), "")

    @cached_property
    def steps(self) -> tuple[CommandStep, ...]:
        """The steps of `commands`, which are proven if the text is proven."""
        if self.commands == self.survey.commands:
            return self.surveyed_steps
        return tuple(steps_of(self.commands, self.expand, self._known_folder))

    @cached_property
    def surveyed_steps(self) -> tuple[CommandStep, ...]:
        """The steps of every command that occurs in the text."""
        return tuple(steps_of(self.survey.commands, self.expand, self._known_folder))

    def _known_folder(self, path: str) -> bool:
        """Return whether a path is a folder. Always False if the text is not proven: it may then change folders."""
        return isinstance(self.analysis, Plain) and not (self.typed or self.stays) and self._is_folder(path)


ACTS_LATER = "this runs later, and you may not be there then"
"""The question about a call that goes on after the turn."""


def _first_asks(spec: ToolSpec, repair: str) -> list[Ask]:
    """Return the questions about a call that are known without any gate."""
    # Arguments that the model did not write need the user's yes before they change anything, except in full-auto.
    asks = [Ask(repair)] if repair and spec.mutates else []
    return [*asks, Ask(ACTS_LATER, firm=True, each_time=True)] if spec.acts_later else asks


class CallFacts:
    """A call on its way through the gates to its tool.

    commands   the command lines that the call runs
    command    all command lines as one text; None if the call runs none
    typed      whether one of them is input for a shell that is already running
    paths      the paths that the tool itself touches
    urls       the URLs that the call reaches
    asks       the questions that gates have asked so far, in their order
    repaired   whether a model made its arguments fit; `repair` is the sentence that tells the user so
    attempts   the number of times that the call was tried
    unsandboxed  whether one of its commands asks to run outside the session's sandbox
    contained  whether a sandbox contains its commands. Input for a server or for a running process is not contained
    suspects   the names in it that do not exist and that nobody has mentioned
    opinions   the answers of a second model about the call, for the audit
    clean_up   functions that release what the tool opened, after the call's last update was sent
    """

    def __init__(
        self,
        invocation: Invocation,
        expand: Expand = unexpanded,
        is_folder: IsFolder = nothing_known,
        *,
        repair: str = "",
        contained: bool = False,
    ) -> None:
        self.invocation = invocation
        self.call = invocation.call
        self.spec = invocation.spec
        self.subjects = invocation.subjects
        self.repaired = bool(repair)
        self.asks = _first_asks(invocation.spec, repair)
        self.attempts = 1
        self.suspects, self.opinions = list[str](), list[str]()
        self.clean_up: list[Callable[[], Awaitable[None]]] = []
        self._expand = expand
        self._expanded: dict[tuple[str, str], Sequence[str] | None] = {}
        self.commands: list[CommandFacts] = []
        self.paths, self.urls = list[PathSubject](), list[str]()
        self.typed = self.unsandboxed = False
        for subject in self.subjects:
            match subject:
                case CommandSubject(text, typed, stays, unsandboxed):
                    self.commands.append(CommandFacts(text, self._files, is_folder, typed=typed, stays=stays))
                    self.typed, self.unsandboxed = self.typed or typed, self.unsandboxed or unsandboxed
                case PathSubject():
                    self.paths.append(subject)
                case UrlSubject(url):
                    self.urls.append(url)
                case _:
                    pass
        self._walled = contained
        self.contained = contained and not (self.spec.server or self.typed or self.unsandboxed)
        self.command = self.commands[0] if self.commands else None
        if len(self.commands) > 1:
            self.command = CommandFacts("\n".join(each.text for each in self.commands), self._files, is_folder)

    @property
    def custom(self) -> str:
        """The name of the custom tool that was called; empty for none. Its command runs by the definition of `bash`."""
        return "" if self.call.name == self.spec.name else self.call.name

    @property
    def containment(self) -> Containment | None:
        """Whether its commands run in the sandbox; None if it runs none, or if nothing could contain them."""
        if not self.commands or not (self.contained or (self._walled and self.unsandboxed)):
            return None
        free = self.unsandboxed or self.call.origin is CallOrigin.USER
        return Containment.OUTSIDE if free else Containment.CONTAINED

    @property
    def only_reads(self) -> bool:
        """Whether the call changes nothing: neither its tool, nor the commands that it runs."""
        return all(line.only_reads for line in self.commands) if self.commands else not self.spec.mutates

    @property
    def only_edits(self) -> bool:
        """Whether the call only reads or changes files at given paths, deletes none and runs nothing."""
        only_paths = bool(self.paths) and len(self.paths) == len(self.subjects)
        deletes = any(each.access is Access.DELETE for each in self.paths)
        return only_paths and not deletes and self.spec.kind not in (ToolKind.DELETE, ToolKind.EXECUTE)

    def asking(self, asks: list[Ask]) -> "CallFacts":
        """Return the same facts with other questions."""
        return self if asks == self.asks else self.apart(asks)

    def apart(self, asks: list[Ask]) -> "CallFacts":
        """Return a copy of the facts with these questions, to which more may be added."""
        copied = copy(self)
        copied.asks = asks
        return copied

    def tried_again(self) -> None:
        """Count another attempt."""
        self.attempts += 1

    def _files(self, pattern: str, folder: str) -> Sequence[str] | None:
        """Return the files that a pattern stands for in a folder. The answer is cached for this call."""
        key = pattern, folder
        if key not in self._expanded:
            self._expanded[key] = self._expand(pattern, folder)
        return self._expanded[key]


class Gate:
    """A judge of calls. What a call does is judged by its subjects, never by the names of its arguments.

    name   the name of the gate in the audit
    """

    name: ClassVar[str] = "gate"

    @property
    def chooses(self) -> bool:
        """Whether `allows` may return False for some tool now. If not, `allows` need not be called."""
        return type(self).allows is not Gate.allows

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool belongs in the catalogue: False if every call of it would be refused."""
        del spec
        return True

    def judge(self, facts: CallFacts) -> Verdict:
        """Return Allow (no objection), Ask or Deny. It does not run, ask or count anything."""
        raise NotImplementedError

    async def examine(self, facts: CallFacts) -> Verdict:
        """Judge a call that is about to run. Gates that count, wait or ask override this."""
        return self.judge(facts)

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Note the result of a call that this gate let pass, and return it. It is not called for cancelled calls."""
        del facts
        return result

    def refusal(self, denial: Deny) -> ToolResult:
        """Return the result of a call that this gate ends."""
        return ToolResult.refused(denial.reason, denial.category, Ruling(self.name, denial.rule), denial.advice)


@frozen
class Gates:
    """The gates of a session. Calls pass them from the first to the last.

    expand     returns the files that a pattern of a command stands for
    is_folder  returns whether a path of a command is a folder now
    contained  whether a sandbox contains the commands, except those that ask to run outside
    """

    in_order: tuple[Gate, ...] = ()
    expand: Expand = unexpanded
    is_folder: IsFolder = nothing_known
    contained: bool = False

    def facts(self, invocation: Invocation, repair: str = "") -> CallFacts:
        """Return the facts of a call. `repair` tells the user how a model made its arguments fit."""
        return CallFacts(invocation, self.expand, self.is_folder, repair=repair, contained=self.contained)

    def asks(self, facts: CallFacts) -> bool:
        """Return whether the gates would ask the user about a call. Their questions are added to the facts."""
        verdict: Verdict = Allow()
        for gate in self.in_order:
            verdict = gate.judge(facts)
            if isinstance(verdict, Deny):
                return False
            if isinstance(verdict, Ask):
                facts.asks.append(verdict)
        return isinstance(verdict, Ask)

    def offered(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Return the tools that the model may see. A tool is left out if a gate refuses all its calls."""
        for gate in self.in_order:
            if gate.chooses:
                specs = [*filter(gate.allows, specs)]
        return [spec for spec in specs if not spec.users_only]
