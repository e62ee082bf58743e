"""How well tools fit a prompt by the words they share (L4): Okapi BM25 over names, descriptions and parameters."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from acp_agent.core.types import ToolSpec

_RUN = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

_NAME_WEIGHT = 3
"""A word of a tool's name counts as so many of its description."""

_SATURATION, _LENGTH = 1.2, 0.75  # the usual k1 and b

_STOP = frozenset(
    _RUN.findall(
        "a about all also an and any are as at be but by can could do does for from get give go has have how i if "
        "in into is it its just let like make me my need no not now of on one or our out please should so some "
        "such than that the their them then there these they this to tool up us use used uses using want was we "
        "what when where which will with would you your"
    )
)


def words(text: str) -> list[str]:
    """The words that tell texts apart, in lower case and without a plural's s. camelCase is one word and its parts."""
    found = [run.lower() for run in _RUN.findall(text)]
    for run in _RUN.findall(text):
        parts = _CAMEL.findall(run)
        found += [part.lower() for part in parts] if len(parts) > 1 else []
    return [_stem(word) for word in found if word not in _STOP]


def by_words(query: str, specs: Sequence[ToolSpec]) -> Mapping[str, float]:
    """How well each tool fits, by name, 1 being the best of them. Empty when none shares a word with the query."""
    wanted = frozenset(words(query))
    counts = {spec.name: Counter(_words_of(spec)) for spec in specs}
    lengths = {name: count.total() for name, count in counts.items()}
    usual = sum(lengths.values()) / len(lengths) if lengths else 0.0
    holders = Counter(word for count in counts.values() for word in wanted & count.keys())
    scores = {
        name: sum(
            _rarity(holders[word], len(counts)) * _weight(count[word], lengths[name] / usual)
            for word in sorted(wanted & count.keys())  # in one order: sums of floats depend on it
        )
        for name, count in counts.items()
    }
    best = max(scores.values(), default=0.0)
    return {name: score / best for name, score in scores.items()} if best else {}


def _rarity(holders: int, tools: int) -> float:
    return math.log(1 + (tools - holders + 0.5) / (holders + 0.5))


def _weight(occurrences: int, relative_length: float) -> float:
    damping = _SATURATION * (1 - _LENGTH + _LENGTH * relative_length)
    return occurrences * (_SATURATION + 1) / (occurrences + damping)


def _words_of(spec: ToolSpec) -> Iterable[str]:
    properties = spec.parameters.get("properties")
    parameters = " ".join(properties) if isinstance(properties, dict) else ""
    return [*words(spec.name) * _NAME_WEIGHT, *words(spec.description), *words(parameters)]


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
