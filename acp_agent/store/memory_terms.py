"""From any text to what notes are searched for. Pure: nothing a model writes can become part of a query's syntax."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LONGEST_QUERY = 10_000  # characters that are looked at
_LONGEST_WORD = 64
_MOST = 32

_WORD = re.compile(r"[^\W_]+")
# Scripts that put no blank between words: Thai to Burmese, Khmer, kana, ideographs.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What is searched for: at most 32 of each, in lower case, none twice.

    words    letters and digits only
    pieces   pairs of neighbours of scripts without blanks, to be found inside a word
    """

    words: tuple[str, ...]
    pieces: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.words or self.pieces)

    @property
    def match(self) -> str:
        """The words as an FTS5 query: any of them."""
        return " OR ".join(f'"{word}"' for word in self.words)


def terms_of(query: str) -> Terms:
    """The terms of a query of any length; none in one without letters or digits."""
    words, pieces = list[str](), list[str]()
    for word in _WORD.findall(query[:_LONGEST_QUERY].lower()):
        runs = _UNSPACED.findall(word)
        pieces += (pair for run in runs for pair in _pairs(run))
        words += filter(None, _UNSPACED.split(word))
    return Terms(_first(word[:_LONGEST_WORD] for word in words), _first(pieces))


def _pairs(run: str) -> Iterator[str]:
    yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))


def _first(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found))[:_MOST]
