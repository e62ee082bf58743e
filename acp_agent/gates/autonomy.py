"""The autonomy level `readonly` (requirements S3.5): reading tools, and no others.

The levels above it are no gate's business: `supervised` is what the permission gate does, `full` is its full-auto.
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
"""The tools of `readonly`, by id: those of S3.5, and others that only read, ask the user, or show him a plan."""


class AutonomyGate(Gate):
    """Refuses what is not for reading while `readonly` is true; it is asked anew for each call.

    A tool needs more than a name from the list: one that changes anything, runs a command or calls a server is
    refused whatever it is called.
    """

    name: ClassVar[str] = "autonomy"

    def __init__(self, readonly: Callable[[], bool]) -> None:
        self._readonly = readonly

    def allows(self, spec: ToolSpec) -> bool:
        """Whether a tool belongs in the catalogue now."""
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
