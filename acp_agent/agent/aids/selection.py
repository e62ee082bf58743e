"""The tools that the model sees: a filter, dependencies, and a field for thinking, each if it is switched on."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from hashlib import sha256
from operator import mul
from typing import TYPE_CHECKING, Protocol

import anyio

from acp_agent.agent.aids.arguments import Tafc, strip
from acp_agent.agent.aids.dependencies import Dependencies, SelectionChanges
from acp_agent.agent.hooks import Received, ToolSelection
from acp_agent.core.data import frozen
from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import Message, ToolUsePart
from acp_agent.core.ports import Embedder
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.types import ToolResult, ToolSpec, tool_id

if TYPE_CHECKING:
    from acp_agent.log import Log

_RUN = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

_NAME_WEIGHT = 3
"""The weight of a word in a tool's name. A word in its description has the weight 1."""

_SATURATION, _LENGTH = 1.2, 0.75  # the usual k1 and b of Okapi BM25

_STOP = frozenset(
    _RUN.findall(
        "a about all also an and any are as at be but by can could do does for from get give go has have how i if "
        "in into is it its just let like make me my need no not now of on one or our out please should so some "
        "such than that the their them then there these they this to tool up us use used uses using want was we "
        "what when where which will with would you your"
    )
)


def words(text: str) -> list[str]:
    """Return the distinctive words of a text in lower case, without a plural's s, and the parts of camelCase words."""
    found = [run.lower() for run in _RUN.findall(text)]
    for run in _RUN.findall(text):
        parts = _CAMEL.findall(run)
        found += [part.lower() for part in parts] if len(parts) > 1 else []
    return [_stem(word) for word in found if word not in _STOP]


def by_words(query: str, specs: Sequence[ToolSpec]) -> Mapping[str, float]:
    """Return the Okapi BM25 score of each tool, where the best has 1. Empty if no tool shares a word with the query."""
    wanted = frozenset(words(query))
    counts = {spec.name: Counter(_words_of(spec)) for spec in specs}
    lengths = {name: count.total() for name, count in counts.items()}
    usual = sum(lengths.values()) / len(lengths) if lengths else 0.0
    holders = Counter(word for count in counts.values() for word in wanted & count.keys())
    scores = {
        name: sum(
            math.log(1 + (len(counts) - holders[word] + 0.5) / (holders[word] + 0.5))
            * _weight(count[word], lengths[name] / usual)
            for word in sorted(wanted & count.keys())  # always in the same order, because sums of floats depend on it
        )
        for name, count in counts.items()
    }
    best = max(scores.values(), default=0.0)
    return {name: score / best for name, score in scores.items()} if best else {}


def _weight(occurrences: int, relative_length: float) -> float:
    damping = _SATURATION * (1 - _LENGTH + _LENGTH * relative_length)
    return occurrences * (_SATURATION + 1) / (occurrences + damping)


def _words_of(spec: ToolSpec) -> Iterable[str]:
    properties = spec.parameters.get("properties")
    parameters = " ".join(properties) if isinstance(properties, dict) else ""
    return [*words(spec.name) * _NAME_WEIGHT, *words(spec.description), *words(parameters)]


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


_QUERY_CHARS = 4_000  # the request is at the head of a long prompt, or at its end, after pasted text
_DESCRIPTION_CHARS = 2_000
_BATCH = 32  # texts in one request; the batches that arrive in time are used
_MOST_VECTORS = 2_000
_SECONDS = 5.0

_Vector = tuple[float, ...]


class ToolRanking(Protocol):
    """A comparison of tools with a prompt."""

    async def scores(self, query: str, specs: Sequence[ToolSpec]) -> Mapping[str, float]:
        """Return how well tools fit, by name, at most 1. Tools may be missing. Empty if nothing is known.

        Raises only cancellation.
        """
        ...

    def status(self) -> str:
        """Return how tools are compared, in a few words for /status: "by words"."""
        ...


class WordRanking:
    """A ranking by shared words. It is deterministic and asks no model. It knows no synonyms and no other languages."""

    async def scores(self, query: str, specs: Sequence[ToolSpec]) -> Mapping[str, float]:
        return by_words(_head_and_tail(query), specs)

    def status(self) -> str:
        return "by words, since no embedding model is set"


class EmbeddingRanking:
    """A ranking by the cosine of embeddings. The vectors of tools are cached by the hash of their text.

    seconds   how long a turn may wait for missing vectors. Those that arrive in time are used
    redact    removes secrets from prompts, because the embedding model may belong to another vendor
    """

    def __init__(self, embedder: Embedder, seconds: float = _SECONDS, redact: Redact = verbatim) -> None:
        self._embedder = embedder
        self._seconds = seconds
        self._redact = redact
        self._model = ""
        self._vectors: dict[bytes, _Vector] = {}
        self._trouble = ""

    async def scores(self, query: str, specs: Sequence[ToolSpec]) -> Mapping[str, float]:
        asked = _head_and_tail(self._redact(query))
        texts = {spec.name: _text(spec) for spec in specs}
        self._trouble = f"no answer in {self._seconds:g} s"
        with anyio.move_on_after(self._seconds):
            try:
                await self._embed([asked, *texts.values()])
                self._trouble = ""
            except ProviderError as error:
                self._trouble = str(error)
        wanted = self._vectors.pop(_key(asked), ())  # the vector of a prompt is not needed again
        known = {name: self._vectors.get(_key(text), ()) for name, text in texts.items()}
        scores = {
            name: sum(map(mul, wanted, vector))
            for name, vector in known.items()
            if wanted and len(wanted) == len(vector)
        }
        return {name: score for name, score in scores.items() if math.isfinite(score)}

    def status(self) -> str:
        trouble = f"; {self._trouble}" if self._trouble else ""
        return f"by meaning ({self._embedder.model}, {len(self._vectors)} texts{trouble})"

    async def _embed(self, texts: Sequence[str]) -> None:
        """Fetch the vectors of texts that are not known yet, in order. Raises ProviderError."""
        if self._embedder.model != self._model or len(self._vectors) > _MOST_VECTORS:
            self._model = self._embedder.model
            self._vectors.clear()
        missing = [text for text in dict.fromkeys(texts) if _key(text) not in self._vectors]
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            vectors = await self._embedder.embed(batch)
            self._vectors |= {_key(text): vector for text, vector in zip(batch, vectors, strict=True)}


def _key(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _text(spec: ToolSpec) -> str:
    return f"{spec.name.replace('_', ' ')}: {spec.description[:_DESCRIPTION_CHARS]}"


def _head_and_tail(text: str) -> str:
    half = _QUERY_CHARS // 2
    return text if len(text) <= _QUERY_CHARS else f"{text[:half]}\n{text[-half:]}"


INDISPENSABLE = frozenset({"compress_context"})
"""Tools that the filter never leaves out."""

_WORDS = re.compile(r"[\w-]+", re.ASCII)
"""Words of ASCII alone, because some scripts have no blank before the name of a tool."""


class Inclusion(StrEnum):
    """Why a tool is included."""

    ALWAYS_ON = "always on"
    NAME_MENTIONED = "name mentioned"
    REFERENCED = "referenced in this turn"
    SHORT_DESCRIPTION = "short description"
    NO_EMBEDDING = "no embedding"
    SIMILARITY_RANK = "similarity rank"
    PREREQUISITE = "prerequisite of another"
    UNFILTERED = "no filter"


@frozen
class Rank:
    """The rank of a tool by similarity: `place` counts from 1, `score` includes its boosts."""

    place: int
    score: float

    def __str__(self) -> str:
        return f"rank {self.place}, score {self.score:.3f}"


@frozen
class FilterResult:
    """The filter's decision on each tool, by name, in the order of the catalogue."""

    included: Mapping[str, Inclusion]
    excluded: Mapping[str, Rank]


class SchemaFilter:
    """A filter that chooses the tools anew in each turn of a conversation. Within a turn tools are only added.

    ranking                 compares tools with the prompt
    top_k                   number of tools included by rank
    min_description_words   an MCP tool whose description has fewer words is included without comparison
    always_on               tools by name or alias. Unknown names are ignored
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
        """Begin a turn. `boosts` are added to the scores, by name. Raises only cancellation."""
        self._mentioned, self._ranks = mentioned(prompt, specs), {}
        self._referenced.clear()
        compared = [spec for spec in specs if self._certain(spec) is None]
        if len(compared) <= self._top_k or not prompt.strip():
            return
        scores = await self._ranking.scores(prompt, compared)
        boosted = [
            (-scores[spec.name] - boosts.get(spec.name, 0.0), spec.name) for spec in compared if spec.name in scores
        ]
        by_score = sorted(boosted, key=lambda each: each[0])  # equal scores stay in the order of the catalogue
        self._ranks = {name: Rank(place, -score) for place, (score, name) in enumerate(by_score, 1)}

    def refer(self, name: str) -> None:
        """Include a tool for the rest of the turn, because the model has called it."""
        self._referenced.add(name)

    def select(self, specs: Sequence[ToolSpec]) -> FilterResult:
        """Choose among the tools that exist now. A tool that was added since the turn began is included."""
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
        return FilterResult(included, excluded)

    def clear(self) -> None:
        """Forget the last turn, because a new conversation begins."""
        self._mentioned, self._ranks = frozenset(), {}
        self._referenced.clear()

    def status(self, specs: Sequence[ToolSpec]) -> str:
        shown = f"the model is shown {len(self.select(specs).included)} of {len(specs)} tools"
        always_on = sum(spec.name in self.always_on for spec in specs)
        chosen = f"{always_on} always and {self._top_k} that fit best, compared {self._ranking.status()}"
        return f"Tool filter: {shown}: {chosen}"

    def _certain(self, spec: ToolSpec) -> Inclusion | None:
        """Return why a tool is included without any comparison, or None."""
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
    """Return the tools whose names occur in the prompt as whole words, in upper or lower case.

    "read_overflow", "read-only" and "spread" do not mention `read`. A tool of an MCP server may also be mentioned by
    the server's own name for it if that contains `_` or `-`: `create_issue` mentions `mcp_github_create_issue`. Other
    names could be everyday words.
    """
    said = {word.strip("-_").lower() for word in _WORDS.findall(prompt)}
    return frozenset(spec.name for spec in specs if not said.isdisjoint(_names(spec)))


def _names(spec: ToolSpec) -> list[str]:
    name = spec.name.lower()
    own = name.removeprefix(f"mcp_{spec.server.lower()}_") if spec.server else name
    return [name, own] if "_" in own or "-" in own else [name]


class AidedToolSelection(ToolSelection):
    """A selection of up to three parts. A part that is None is switched off and costs nothing."""

    def __init__(
        self,
        log: "Log",
        *,
        tafc: Tafc | None = None,
        schema_filter: SchemaFilter | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        self._log = log
        self._tafc = tafc
        self._filter = schema_filter
        self._dependencies = dependencies
        self._specs: Sequence[ToolSpec] = ()
        self._explained: tuple[FilterResult, SelectionChanges] | None = None

    async def begin(self, prompt: Message, specs: Sequence[ToolSpec]) -> None:
        self._specs = tuple(specs)
        boosts: Mapping[str, float] = {}
        if self._dependencies is not None:
            self._dependencies.begin(mentioned(prompt.text, specs))
            boosts = self._dependencies.boosts()
        if self._filter is not None:
            await self._filter.begin(prompt.text, specs, boosts)

    def offered(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        self._specs = tuple(specs)
        extended = specs if self._tafc is None else [self._tafc.with_field(spec) for spec in specs]
        if self._filter is None and self._dependencies is None:
            return tuple(extended)
        if self._filter is None:
            selection = FilterResult({spec.name: Inclusion.UNFILTERED for spec in specs}, {})
        else:
            selection = self._filter.select(specs)
        known = selection.included.keys() | selection.excluded.keys()
        changes = (
            SelectionChanges({})
            if self._dependencies is None
            else self._dependencies.changes(selection.included, known)
        )
        shown = tuple(
            spec
            for spec in extended
            if spec.name in changes.added or spec.name in selection.included.keys() - changes.hidden
        )
        self._explain(selection, changes, [spec.name for spec in shown])
        return shown

    def received(self, message: Message) -> Received:
        bare = Received(message) if self._tafc is None else strip(message)
        answered = {**bare.answered}
        known = {spec.name for spec in self._specs}
        for use in bare.message.tool_uses:
            name = _meant(use.name, known)
            if self._filter is not None:
                self._filter.refer(name)
            if self._dependencies is not None and (missing := self._dependencies.missing(name, known)):
                answered[use.id] = self._dependencies.refusal(name, missing)
        return replace(bare, answered=answered)

    def finished(self, outcomes: Iterable[tuple[ToolUsePart, ToolResult]]) -> None:
        if self._dependencies is None:
            return
        known = {spec.name for spec in self._specs}
        for use, result in outcomes:
            if result.failure is None:
                self._dependencies.completed(_meant(use.name, known))

    def clear(self) -> None:
        for part in (self._filter, self._dependencies):
            if part is not None:
                part.clear()
        self._explained = None

    def status(self) -> Sequence[str]:
        lines: list[str] = []
        if self._tafc is not None:
            lines.append(self._tafc.status(self._specs))
        if self._filter is not None:
            lines.append(self._filter.status(self._specs))
        if self._dependencies is not None:
            lines.append(self._dependencies.status([spec.name for spec in self._specs]))
        return lines

    def _explain(self, selection: FilterResult, changes: SelectionChanges, shown: Sequence[str]) -> None:
        """Log the reasons if any of them changed. A new tool that is left out changes only the reasons."""
        if (selection, changes) == self._explained:
            return
        self._explained = (selection, changes)
        self._log.debug(
            "tools offered",
            included={name: str(selection.included.get(name, Inclusion.PREREQUISITE)) for name in shown},
            excluded={name: str(rank) for name, rank in selection.excluded.items() if name not in changes.added},
            dependency_exclusions={name: f"waits for {', '.join(missing)}" for name, missing in changes.hidden.items()},
        )


def _meant(name: str, known: Iterable[str]) -> str:
    """Return the known tool that a call means: by its name in any case, or by an alias."""
    return next((each for each in (name, name.lower(), tool_id(name)) if each in known), name)
