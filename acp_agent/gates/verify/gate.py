"""The gate that runs the verifiers (requirements S2, security.md 2.2)."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from acp_agent.core.ports import Invocation, ToolExecutor
from acp_agent.core.types import Allow, Ask, CommandSubject, Deny, McpSubject, PathSubject, Subject, UrlSubject, Verdict
from acp_agent.core.wrapper import Gate
from acp_agent.gates.command import survey
from acp_agent.gates.command_paths import Expand, Folders, unexpanded
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
        for subject in invocation.subjects if self._verifiers else ():
            for verdict in self._verdicts(subject):
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


def _listed(reasons: list[str]) -> str:
    more = [f"and {len(reasons) - _MOST} more"] if len(reasons) > _MOST else []
    return "; ".join([*reasons[:_MOST], *more])
