"""The gates of a session over a recorder, and calls to send through them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from tempfile import TemporaryDirectory

from acp_agent.config.load import Flags, Loaded, load
from acp_agent.core.errors import Refused
from acp_agent.core.events import Event
from acp_agent.core.ports import Decision, Invocation, Question, ToolContext
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import (
    Access,
    CallOrigin,
    CommandSubject,
    JsonObject,
    Subject,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
    Verdict,
)
from acp_agent.execution.runner import GatedExecutor, ToolExecutor
from acp_agent.gates.gate import CallFacts, Gate, Gates
from acp_agent.gates.grants import GrantStore
from acp_agent.gates.paths.command_paths import Expand, unexpanded
from acp_agent.gates.rules.permission_rules import Action, Rule
from acp_agent.gates.rules.policy_rules import TrustLevel
from acp_agent.gates.trust import SessionTrust
from acp_agent.session.toolset.gate_factory import (
    GateContext,
    GateMemory,
    SessionGateState,
    build_gates,
    permission_gate,
    reads_everything,
)
from acp_agent.session.toolset.settings import FolderRules, permission_rules
from acp_agent.session.verdicts import judged


class Recorder:
    """The executor behind the gates: runs nothing, remembers what reached it."""

    def __init__(self) -> None:
        self.ran: list[Invocation] = []

    async def execute(self, facts: CallFacts) -> ToolResult:
        self.ran.append(facts.invocation)
        return ToolResult("ran")


class Judged:
    """Gates with an executor behind them.

    behind   runs what they let through; a recorder if nothing is said
    expand   which files there are for a pattern of a command
    """

    def __init__(self, *gates: Gate, behind: ToolExecutor | None = None, expand: Expand = unexpanded) -> None:
        self.gates = Gates(gates, expand)
        self.recorder = Recorder()
        self._executor = GatedExecutor(self.gates, behind or self.recorder)

    def judge(self, invocation: Invocation) -> Verdict:
        """The verdict of the first gate, which counts nothing and asks nobody."""
        return self.gates.in_order[0].judge(self.gates.facts(invocation))

    async def execute(self, invocation: Invocation) -> ToolResult:
        """The result of a call that every gate judges. A question that no gate settles refuses it."""
        return await self._executor.execute(self.gates.facts(invocation))


class ScriptedApprover:
    """Answers questions from a list, then with `REJECT_ONCE`."""

    def __init__(self, *answers: Decision) -> None:
        self.answers = list(answers)
        self.questions: list[Question] = []

    async def ask(self, question: Question) -> Decision:
        self.questions.append(question)
        return self.answers.pop(0) if self.answers else Decision.REJECT_ONCE


@dataclass
class Warnings:
    """What a grant store complained about."""

    lines: list[str] = field(default_factory=list)

    def __call__(self, line: str) -> None:
        self.lines.append(line)


def inside(root: str, above: str = ""):
    """A `resolve` for one root, links followed, as FileSystem.resolve does it. `above` may be a root as well."""
    cwd, root = os.path.realpath(root), os.path.realpath(above or root)

    def resolve(path: str, access: Access) -> str:
        real = os.path.realpath(os.path.join(cwd, path))
        if real != root and not real.startswith(f"{root}/"):
            raise Refused(f"{path}: outside the workspace")
        return real

    return resolve


def rules(*patterns: str, action: Action = Action.ALLOW) -> tuple[Rule, ...]:
    return tuple(Rule.parse(pattern, action) for pattern in patterns)


SPECS = {
    "bash": ToolSpec("bash", "", {}, ToolKind.EXECUTE, mutates=True),
    "read": ToolSpec("read", "", {}, ToolKind.READ, mutates=False),
    "write": ToolSpec("write", "", {}, ToolKind.EDIT, mutates=True),
    "edit": ToolSpec("edit", "", {}, ToolKind.EDIT, mutates=True),
    "grep": ToolSpec("grep", "", {}, ToolKind.SEARCH, mutates=False),
    "fetch": ToolSpec("fetch", "", {}, ToolKind.FETCH, mutates=False),
    "list_directory": ToolSpec("list_directory", "", {}, ToolKind.OTHER, mutates=False),
    "delete_path": ToolSpec("delete_path", "", {}, ToolKind.DELETE, mutates=True),
    "move_path": ToolSpec("move_path", "", {}, ToolKind.OTHER, mutates=True),
    "mcp_x_y": ToolSpec("mcp_x_y", "", {}, ToolKind.OTHER, mutates=True),
}


async def _unused(context: ToolContext) -> ToolResult:
    raise AssertionError("a gate ran the tool")


def call(
    tool: str,
    *subjects: Subject,
    arguments: JsonObject | None = None,
    origin: CallOrigin = CallOrigin.MODEL,
    number: int = 1,
) -> Invocation:
    made = ToolCall(f"call-{number}", tool, arguments if arguments is not None else {}, origin=origin)
    return Invocation(made, SPECS[tool], f"{tool} something", _unused, tuple(subjects))


def command(text: str, *, origin: CallOrigin = CallOrigin.MODEL, number: int = 1) -> Invocation:
    return call("bash", CommandSubject(text), arguments={"command": text}, origin=origin, number=number)


@cache
def defaults() -> Loaded:
    """The configuration of a user who has none, in a folder that has none."""
    with TemporaryDirectory() as folder:
        file = os.path.join(folder, "config.toml")
        open(file, "x").close()
        loaded = load(Flags(), {"ACP_AGENT_CONFIG": file})
    assert loaded.problems == ()
    return loaded


@dataclass
class Chain:
    """The gates of a session, put together as sessions put them together, and a recorder behind the last of them.

    allow    rules for `tool`, in place of the configured ones
    loaded   the configuration the gates go by
    foreign  tools of servers, which the user trusts
    contained  whether walls of the kernel are said to stand around commands

    No address is refused for its form: a session's web backend does that, which is in test_every_path.py.
    """

    root: str
    grants_file: str
    allow: Sequence[Rule] = ()
    conduct: SessionOptions = field(default_factory=SessionOptions)
    approver: ScriptedApprover | None = field(default_factory=ScriptedApprover)
    tool: str = "bash"
    loaded: Loaded = field(default_factory=defaults)
    foreign: tuple[str, ...] = ("mcp_x_y",)
    contained: bool = False

    def __post_init__(self) -> None:
        self.warnings = Warnings()
        self.recorder = Recorder()
        self.grants = GrantStore(self.grants_file, self.warnings)
        self.gates = self._gates()
        self._executor = GatedExecutor(self.gates, self.recorder)

    def _gates(self) -> Gates:
        loaded, tools = self.loaded, self.loaded.settings.tools
        self.trust = SessionTrust(tools=dict.fromkeys(self.foreign, TrustLevel.TRUSTED))
        memory = replace(GateMemory.new(tools), trust=self.trust)
        folders = FolderRules(loaded, self.root)
        files, shell = (folders.roots(for_shell=commands) for commands in (False, True))
        context = GateContext(
            self.conduct, files, shell, urls=memory.urls, trust=memory.trust, contained=self.contained
        )
        state = SessionGateState(self.approver or ScriptedApprover(), self.grants, memory, None, _unheard)
        rules = permission_rules(loaded, self.warnings, tuple(SPECS))
        rules = {self.tool: tuple(self.allow)} if self.allow else rules
        everything = reads_everything(loaded)
        self.permission = permission_gate(rules, context, self.grants, self.approver, all_readable=everything)
        return build_gates(loaded, context, self.permission, self.warnings, tools=tuple(SPECS), state=state)

    async def run(self, invocation: Invocation) -> ToolResult:
        return await self._executor.execute(self.gates.facts(invocation))

    def asks(self, invocation: Invocation) -> bool:
        """Whether the user would be asked now."""
        finding = judged(self.gates.facts(invocation), self.gates.in_order)
        return finding.word == "ask" and invocation.predicted_failure is None

    async def fate(self, invocation: Invocation) -> str:
        """ "blocked" | "refused" | "asked" | "silent": what becomes of a call when the user says no."""
        asked = len(self.approver.questions) if self.approver else 0
        result = await self.run(invocation)
        if self.approver and len(self.approver.questions) > asked:
            return "asked"
        if result.failure is None:
            return "silent"
        return "blocked" if result.failure.message.startswith("the command is blocked") else "refused"


async def _unheard(event: Event) -> None:
    del event


def full_auto() -> SessionOptions:
    return SessionOptions(auto_approve=AutoApprove.FULL_AUTO)
