"""Enforce the mode of the session, and the autonomy level `readonly`: which kinds of tools and commands may run at all.

The permission gate enforces the other levels: `supervised` asks as usual, `full` is full-auto.
"""

from collections.abc import Callable
from typing import ClassVar, assert_never

from acp_agent.core.session_options import FREEDOMS, Freedom, Mode, SessionOptions, tighter
from acp_agent.core.types import (
    AgentSubject,
    Allow,
    CommandSubject,
    Deny,
    McpSubject,
    PathSubject,
    Subject,
    ToolKind,
    ToolSpec,
    Verdict,
)
from acp_agent.gates.gate import CallFacts, Gate

_READING_KINDS = frozenset((ToolKind.READ, ToolKind.SEARCH, ToolKind.FETCH, ToolKind.THINK, ToolKind.OTHER))
"""The kinds of tools that may only read. Without `acp.rich_kinds`, find_path and list_directory have the kind OTHER."""
_LONGEST_NAME = 40  # characters of a command that the refusal quotes
_LEAVING = "the user leaves the mode with the editor's mode selector, or by typing /mode code"


def offered_in(mode: Mode, spec: ToolSpec) -> bool:
    """Return whether a tool is offered to the model in a mode."""
    match mode:
        case Mode.CODE:
            return True
        case Mode.ARCHITECT | Mode.ASK:
            return spec.commands or (not spec.mutates and spec.kind in _READING_KINDS)
        case _:
            assert_never(mode)


class ModeGate(Gate):
    """A gate that refuses tools which the mode does not allow. The mode is read for each call.

    A sub-agent may have a stricter mode than the session.

    ask, architect   allow reading, searching and fetching, and commands that only read
    code             allows everything
    """

    name = "mode"

    def __init__(self, options: SessionOptions) -> None:
        self._options = options

    @property
    def chooses(self) -> bool:
        return self._options.mode is not Mode.CODE

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool is offered to the model in the current mode."""
        return offered_in(self._options.mode, spec)

    def judge(self, facts: CallFacts) -> Verdict:
        agent, mode = facts.call.agent, self._options.mode
        if agent is not None:
            mode = tighter(mode, agent.mode)
        if mode is Mode.CODE:
            return Allow()
        if offered_in(mode, facts.spec) and facts.only_reads and facts.spec.commands == bool(facts.commands):
            return Allow()
        here, tool = f"{FREEDOMS[Freedom(mode.value)][0]} mode ('{mode}')", facts.spec.name
        culprit = next((line.changing for line in facts.commands if not line.only_reads), "")
        command = f"'{culprit[:_LONGEST_NAME]}' in this command" if culprit else "this command"
        if agent is not None and mode is not self._options.mode:
            what = f"{command} may change something" if facts.spec.commands else f"'{tool}' may change something"
            return Deny(f"{what}, and {agent.name} may only read", advice="Go on with what you can read, and report.")
        if facts.spec.commands:
            reason = f"{command} may change something, and {here} runs only commands that read"
        else:
            reason = f"'{tool}' is not available in {here}"
        return Deny(f"{reason}; {_LEAVING}", advice="Go on with what you can read, or tell the user to switch.")


READONLY_TOOLS = frozenset(
    (
        "agent",  # this gate also judges the calls that sub-agents make
        "evaluate",
        "handoff",
        "tasks",
        "messages",
        "read",
        "find_path",
        "grep",
        "outline",
        "list_directory",
        "web_scrape",
        "fetch",
        "read_overflow",
        "memory_search",
        "load_skill",
        "invoke_skill",
        "skill_search",
        "update_plan",
        "ask_user",
        "lsp_hover",
        "lsp_definition",
        "lsp_references",
        "lsp_diagnostics",
        "lsp_document_symbols",
        "lsp_workspace_symbol",
        "lsp_code_actions",
    )
)
"""The ids of the tools that `readonly` allows: they read, ask the user, show a plan, or use agents."""


class AutonomyGate(Gate):
    """A gate that refuses all tools except those in READONLY_TOOLS while `readonly` returns True.

    A call of one of these tools is refused as well if it changes anything, runs a command, or calls an MCP server or
    another agent's program.
    """

    name: ClassVar[str] = "autonomy"

    def __init__(self, readonly: Callable[[], bool]) -> None:
        self._readonly = readonly

    @property
    def chooses(self) -> bool:
        return self._readonly()

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool is offered to the model now."""
        return not self._readonly() or (spec.name in READONLY_TOOLS and not spec.mutates)

    def judge(self, facts: CallFacts) -> Verdict:
        if not self._readonly() or (self.allows(facts.spec) and not any(map(_acts, facts.subjects))):
            return Allow()
        name = facts.spec.name
        return Deny(f"'{name}' is not available: this session may only read", rule="autonomy_level = readonly")


def _acts(subject: Subject) -> bool:
    match subject:
        case PathSubject(access=access):
            return access.changes
        case CommandSubject() | McpSubject() | AgentSubject():
            return True
        case _:
            return False
