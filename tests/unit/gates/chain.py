"""A chain of the gates over a recorder, and calls to send through it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from acp_agent.core.conduct import AutoApprove, Conduct
from acp_agent.core.errors import Refused
from acp_agent.core.ports import Decision, Invocation, Question, ToolContext
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
)
from acp_agent.gates.blocklist import BlocklistGate, BlocklistPolicy
from acp_agent.gates.grants import GrantStore
from acp_agent.gates.mode import ModeGate
from acp_agent.gates.permission import PermissionGate
from acp_agent.gates.rules import Action, Rule
from acp_agent.gates.sandbox import SandboxGate


class Recorder:
    """The innermost executor: runs nothing, remembers what reached it and by which path."""

    def __init__(self) -> None:
        self.ran: list[Invocation] = []
        self.confirmed: list[Invocation] = []

    async def execute(self, invocation: Invocation) -> ToolResult:
        self.ran.append(invocation)
        return ToolResult("ran")

    async def execute_confirmed(self, invocation: Invocation) -> ToolResult:
        self.confirmed.append(invocation)
        return ToolResult("ran")

    def requires_confirmation(self, invocation: Invocation) -> bool:
        return False

    def is_retryable(self, invocation: Invocation) -> bool:
        return False


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


def inside(root: str):
    """A `resolve` for one root, links followed, as FileSystem.resolve does it."""
    root = os.path.realpath(root)

    def resolve(path: str, access: Access) -> str:
        real = os.path.realpath(os.path.join(root, path))
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


@dataclass
class Chain:
    """blocklist > mode > sandbox > permission > recorder, as the live chain has them."""

    root: str
    grants_file: str
    allow: Sequence[Rule] = ()
    conduct: Conduct = field(default_factory=Conduct)
    policy: BlocklistPolicy = field(default_factory=BlocklistPolicy)
    approver: ScriptedApprover | None = field(default_factory=ScriptedApprover)
    tool: str = "bash"

    def __post_init__(self) -> None:
        self.warnings = Warnings()
        self.recorder = Recorder()
        resolve = inside(self.root)
        self.grants = GrantStore(self.grants_file, self.warnings)
        self.permission = PermissionGate(
            self.recorder,
            rules={self.tool: tuple(self.allow)} if self.allow else {},
            conduct=self.conduct,
            grants=self.grants,
            approver=self.approver,
            resolve=resolve,
        )
        self.sandbox = SandboxGate(self.permission, resolve, resolve)
        self.mode = ModeGate(self.sandbox, self.conduct)
        self.blocklist = BlocklistGate(self.mode, self.policy)

    async def run(self, invocation: Invocation) -> ToolResult:
        return await self.blocklist.execute(invocation)

    async def fate(self, invocation: Invocation) -> str:
        """ "blocked" | "refused" | "asked" | "silent": what becomes of a call when the user says no."""
        asked = len(self.approver.questions) if self.approver else 0
        result = await self.run(invocation)
        if self.approver and len(self.approver.questions) > asked:
            return "asked"
        if result.failure is None:
            return "silent"
        return "blocked" if result.failure.message.startswith("blocklist") else "refused"


def full_auto() -> Conduct:
    return Conduct(auto_approve=AutoApprove.FULL_AUTO)
