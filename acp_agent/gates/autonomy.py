"""Enforce the autonomy level `readonly`: only tools that read may run.

The permission gate enforces the other levels: `supervised` asks as usual, `full` is full-auto.
"""

from collections.abc import Callable
from typing import ClassVar

from acp_agent.core.types import Allow, CommandSubject, Deny, McpSubject, PathSubject, Subject, ToolSpec, Verdict
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.gate import Gate

READING = frozenset(
    (
        "read",
        "find_path",
        "grep",
        "list_directory",
        "web_scrape",
        "fetch",
        "read_overflow",
        "memory_search",
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
"""The ids of the tools of `readonly`: they only read, ask the user, or show them a plan."""


class AutonomyGate(Gate):
    """Refuses tools that do not only read while `readonly` returns True. It is called for each call.

    A name from the list is not enough: a tool that changes anything, runs a command or calls a server is refused.
    """

    name: ClassVar[str] = "autonomy"

    def __init__(self, readonly: Callable[[], bool]) -> None:
        self._readonly = readonly

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool is offered to the model now."""
        return not self._readonly() or (spec.name in READING and not spec.mutates)

    def judge(self, facts: CallFacts) -> Verdict:
        if self.allows(facts.spec) and not (self._readonly() and any(map(_acts, facts.subjects))):
            return Allow()
        name = facts.spec.name
        return Deny(f"'{name}' is not available: this session may only read", rule="autonomy_level = readonly")


def _acts(subject: Subject) -> bool:
    match subject:
        case PathSubject(access=access):
            return access.changes
        case CommandSubject() | McpSubject():
            return True
        case _:
            return False
