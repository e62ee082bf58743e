"""The gate that runs the verifiers."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from anyio import to_thread

from acp_agent.core.types import Access, Allow, Ask, Deny, Verdict
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.gate import Gate
from acp_agent.gates.verify.verifier import Verifier

_MOST = 5
"""The most reasons in one question."""


class VerifierGate(Gate):
    """Lets every verifier judge every subject of a call. One Deny ends it; the Asks become one question."""

    name = "verifiers"

    def __init__(self, verifiers: Sequence[Verifier]) -> None:
        self._verifiers = tuple(verifiers)

    def judge(self, facts: CallFacts) -> Verdict:
        reasons: dict[str, None] = {}
        firm, by_name = False, True
        for verdict in self._all_verdicts(facts):
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

    async def examine(self, facts: CallFacts) -> Verdict:
        """Judge a call in a worker thread if it may read folders, since large ones take a while."""
        if self._verifiers and _may_read_folders(facts):
            return await to_thread.run_sync(self.judge, facts, abandon_on_cancel=True)
        return self.judge(facts)

    def _all_verdicts(self, facts: CallFacts) -> Iterator[Verdict]:
        for path in facts.paths:
            yield from (verifier.path(path) for verifier in self._verifiers)
        for step in (step for line in facts.commands for step in line.surveyed_steps):
            yield from (verifier.command(step.command, step.folders) for verifier in self._verifiers)
        for url in facts.urls:
            yield from (verifier.url(url) for verifier in self._verifiers)
        if len(facts.paths) > 1:
            yield from (verifier.paths(facts.paths) for verifier in self._verifiers)


def _may_read_folders(facts: CallFacts) -> bool:
    accesses = {subject.access for subject in facts.paths}
    copies = Access.WRITE in accesses and not accesses.isdisjoint((Access.LIST, Access.MOVE))
    return copies or bool(facts.commands)


def _listed(reasons: list[str]) -> str:
    more = [f"and {len(reasons) - _MOST} more"] if len(reasons) > _MOST else []
    return "; ".join([*reasons[:_MOST], *more])
