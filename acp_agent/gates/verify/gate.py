"""The gate that runs the verifiers (requirements S2, security.md 2.2)."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from anyio import to_thread

from acp_agent.core.ports import Invocation, ToolExecutor
from acp_agent.core.types import (
    Access,
    Allow,
    Ask,
    CommandSubject,
    Deny,
    McpSubject,
    PathSubject,
    Subject,
    ToolResult,
    UrlSubject,
    Verdict,
)
from acp_agent.core.wrapper import Gate
from acp_agent.gates.paths.command_paths import Expand, Folders, unexpanded
from acp_agent.gates.shell.command import survey
from acp_agent.gates.verify.verifier import Verifier

_MOST = 5
"""Reasons of one question; nobody reads more."""


class VerifierGate(Gate):
    """Asks every verifier about every subject of a call: one Deny ends it, the Asks become one question.

    expand   which files there are for a pattern of a command
    """

    name = "verifiers"

    def __init__(self, wrapped: ToolExecutor, verifiers: Sequence[Verifier], expand: Expand = unexpanded) -> None:
        super().__init__(wrapped)
        self._expand = expand
        self._verifiers = tuple(verifiers)

    def check(self, invocation: Invocation) -> Verdict:
        reasons: dict[str, None] = {}
        firm, by_name = False, True
        for verdict in self._all_verdicts(invocation.subjects):
            match verdict:
                case Deny():
                    return verdict
                case Ask(reason):
                    reasons[reason] = None
                    firm, by_name = firm or verdict.firm, by_name and verdict.by_name
                case Allow():
                    continue
                case _:
                    assert_never(verdict)
        return Ask(_listed([*reasons]), firm, by_name) if reasons else Allow()

    async def execute(self, invocation: Invocation) -> ToolResult:
        verdict = await self._judged(invocation)
        if isinstance(verdict, Deny):
            return self.refusal(verdict)
        return await self.wrapped.execute(invocation.asking(verdict) if isinstance(verdict, Ask) else invocation)

    async def execute_confirmed(self, invocation: Invocation) -> ToolResult:
        verdict = await self._judged(invocation)
        if isinstance(verdict, Deny):
            return self.refusal(verdict)
        return await self.wrapped.execute_confirmed(invocation)

    async def _judged(self, invocation: Invocation) -> Verdict:
        """Judge a call in a worker thread if it may read folders: a look at large ones takes a while."""
        if self._verifiers and _may_read_folders(invocation.subjects):
            return await to_thread.run_sync(self.check, invocation, abandon_on_cancel=True)
        return self.check(invocation)

    def _all_verdicts(self, subjects: Sequence[Subject]) -> Iterator[Verdict]:
        for subject in subjects if self._verifiers else ():
            yield from self._verdicts(subject)
        paths = [subject for subject in subjects if isinstance(subject, PathSubject)]
        if len(paths) > 1:
            yield from (verifier.paths(paths) for verifier in self._verifiers)

    def _verdicts(self, subject: Subject) -> Iterator[Verdict]:
        match subject:
            case PathSubject():
                yield from (verifier.path(subject) for verifier in self._verifiers)
            case CommandSubject(text):
                folders = Folders(self._expand)
                for command in survey(text).walk():
                    folders.enter(command)
                    yield from (verifier.command(command, folders) for verifier in self._verifiers)
                    folders.leave(command)
            case UrlSubject(url):
                yield from (verifier.url(url) for verifier in self._verifiers)
            case McpSubject():
                return
            case _:
                assert_never(subject)


def _may_read_folders(subjects: Sequence[Subject]) -> bool:
    accesses = {subject.access for subject in subjects if isinstance(subject, PathSubject)}
    copies = Access.WRITE in accesses and not accesses.isdisjoint((Access.LIST, Access.MOVE))
    return copies or any(isinstance(subject, CommandSubject) for subject in subjects)


def _listed(reasons: list[str]) -> str:
    more = [f"and {len(reasons) - _MOST} more"] if len(reasons) > _MOST else []
    return "; ".join([*reasons[:_MOST], *more])
