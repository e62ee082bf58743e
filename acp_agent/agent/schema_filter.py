"""Fewer tools in a request: those a turn will hardly need are left out (L4).

In this order, a tool is in because it is

    always on            the configuration says so, or no conversation can do without it
    name-mentioned       the prompt has its name as a word
    already referenced   the model has called it in this turn, shown or not
    short description    it is an MCP server's, with too few words to compare it by
    no embedding         nothing is known of how well it fits: none of the tools could be compared, or it came later
    similarity rank      it is among the `top_k` that fit the prompt best

and else out. What is out exists all the same: a model that remembers it may call it.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from acp_agent.agent.tool_ranking import ToolRanking
from acp_agent.core.aliases import tool_id
from acp_agent.core.types import ToolSpec

INDISPENSABLE = frozenset({"compress_context"})
"""Tools no filter takes away (L11)."""

_WORDS = re.compile(
    r"[\w-]+", re.ASCII
)  # what a tool's name is made of: in other scripts no blank need stand before it


class Inclusion(StrEnum):
    """Why the model is shown a tool."""

    ALWAYS_ON = "always on"
    NAME_MENTIONED = "name mentioned"
    REFERENCED = "referenced in this turn"
    SHORT_DESCRIPTION = "short description"
    NO_EMBEDDING = "no embedding"
    SIMILARITY_RANK = "similarity rank"
    PREREQUISITE = "prerequisite of another"
    UNFILTERED = "no filter"


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a tool came in by similarity: `place` from 1, `score` with the boosts of what it prefers."""

    place: int
    score: float

    def __str__(self) -> str:
        return f"rank {self.place}, score {self.score:.3f}"


@dataclass(frozen=True, slots=True)
class Selection:
    """What the filter says of each tool, by name, in the order of the catalogue."""

    included: Mapping[str, Inclusion]
    excluded: Mapping[str, Rank]


class SchemaFilter:
    """Chooses for one conversation, anew in each turn; within a turn tools are only added.

    ranking                 compares tools with the prompt
    top_k                   tools that are in by their rank
    min_description_words   words below which an MCP tool's description says too little
    always_on               tools by name or alias; what nobody offers does no harm
    """

    def __init__(
        self, ranking: ToolRanking, *, top_k: int, min_description_words: int, always_on: Collection[str]
    ) -> None:
        self._ranking = ranking
        self._top_k = top_k
        self._min_words = min_description_words
        self.always_on = INDISPENSABLE | {tool_id(name) for name in always_on}
        self._mentioned: frozenset[str] = frozenset()
        self._referenced: set[str] = set()
        self._ranks: Mapping[str, Rank] = {}

    async def begin(self, prompt: str, specs: Sequence[ToolSpec], boosts: Mapping[str, float]) -> None:
        """A turn begins. `boosts` are added to scores, by name. Raises nothing but cancellation."""
        self._mentioned, self._ranks = mentioned(prompt, specs), {}
        self._referenced.clear()
        compared = [spec for spec in specs if self._certain(spec) is None]
        if len(compared) <= self._top_k or not prompt.strip():
            return
        scores = await self._ranking.scores(prompt, compared)
        boosted = [
            (-scores[spec.name] - boosts.get(spec.name, 0.0), spec.name) for spec in compared if spec.name in scores
        ]
        by_score = sorted(boosted, key=lambda each: each[0])  # equals stay in the order of the catalogue
        self._ranks = {name: Rank(place, -score) for place, (score, name) in enumerate(by_score, 1)}

    def refer(self, name: str) -> None:
        """The model has called a tool: it is shown for the rest of the turn."""
        self._referenced.add(name)

    def select(self, specs: Sequence[ToolSpec]) -> Selection:
        """Judge the tools there are now. One that came since the turn began is in."""
        included: dict[str, Inclusion] = {}
        excluded: dict[str, Rank] = {}
        for spec in specs:
            rank = self._ranks.get(spec.name)
            if reason := self._certain(spec):
                included[spec.name] = reason
            elif rank is None:
                included[spec.name] = Inclusion.NO_EMBEDDING
            elif rank.place <= self._top_k:
                included[spec.name] = Inclusion.SIMILARITY_RANK
            else:
                excluded[spec.name] = rank
        return Selection(included, excluded)

    def clear(self) -> None:
        """The conversation begins anew."""
        self._mentioned, self._ranks = frozenset(), {}
        self._referenced.clear()

    def status(self, specs: Sequence[ToolSpec]) -> str:
        """One line for /status (L4)."""
        shown = f"shown={len(self.select(specs).included)} of {len(specs)}"
        always_on = sum(spec.name in self.always_on for spec in specs)
        return f"Filter: top_k={self._top_k}, always_on={always_on}, embeddings={self._ranking.status()}, {shown}"

    def _certain(self, spec: ToolSpec) -> Inclusion | None:
        """Why a tool is in without any comparison."""
        if spec.name in self.always_on:
            return Inclusion.ALWAYS_ON
        if spec.name in self._mentioned:
            return Inclusion.NAME_MENTIONED
        if spec.name in self._referenced:
            return Inclusion.REFERENCED
        if spec.server and len(spec.description.split()) < self._min_words:
            return Inclusion.SHORT_DESCRIPTION
        return None


def mentioned(prompt: str, specs: Sequence[ToolSpec]) -> frozenset[str]:
    """The tools whose names stand in the prompt as words, upper and lower case alike.

    `read` is not mentioned by "read_overflow", "read-only" or "spread". A tool of an MCP server also goes by the
    server's own name for it, where that is no everyday word: `create_issue` is `mcp_github_create_issue`.
    """
    said = {word.strip("-_").lower() for word in _WORDS.findall(prompt)}
    return frozenset(spec.name for spec in specs if not said.isdisjoint(_names(spec)))


def _names(spec: ToolSpec) -> list[str]:
    name = spec.name.lower()
    own = name.removeprefix(f"mcp_{spec.server.lower()}_") if spec.server else name
    return [name, own] if "_" in own or "-" in own else [name]
