"""Note calls with names that the model may have made up. It is off unless configured, and never blocks.

A model invents names that it wants: a file that should exist, a page, a commit. The user, the model and the audit are
told of such a call if its name does not exist *and* was never mentioned, neither in a prompt nor in another result.

    path         it does not exist, and its name was not mentioned; for a file to be written the same of its folder
    address      it could not be reached, and its host was not mentioned
    identifier   a UUID or a digest in a command, or in the arguments of a call that changes nothing, was not mentioned
"""

import os
import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeAlias
from urllib.parse import urlsplit

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import AgentError
from acp_agent.core.events import EventSink, Notice, Severity
from acp_agent.core.types import Access, Allow, CallOrigin, Json, Phase, ToolResult, Verdict
from acp_agent.gates.gate import CallFacts, Gate

_WORD = re.compile(r"[\w.@+-]{2,256}")
_IDENTIFIER = re.compile(
    r"\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,64})\b",
    re.IGNORECASE,
)
_LEAST_DIGITS = 7
_DIGEST = re.compile(rf"[0-9a-f]{{{_LEAST_DIGITS},64}}")
_LOOKED_AT = 100_000  # the most characters of one text that are read
_MOST_WORDS = 100_000
_MOST_TOLD = 5  # names in one note
_MOST_LOOKED_UP = 50  # identifiers of one call that are looked up

Exists: TypeAlias = Callable[[str], Awaitable[bool | None]]
"""Returns whether anything is at a path of a call; None if that is unknown. It raises only on cancellation."""


def exists_in(files: FileSystem) -> Exists:
    """Return a function that looks only where the session's tools may look. Paths outside are unknown to it."""

    async def exists(path: str) -> bool | None:
        try:
            return await files.kind(path) is not None
        except AgentError:
            return None

    return exists


async def unknown(path: str) -> bool | None:
    """Return None, without a look."""
    del path


class Digests:
    """Digests that can be found by their beginning without reading all of them."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._order: list[str] = []
        self._in_order = True

    def add(self, digest: str) -> None:
        """Add a digest, which may be there already."""
        if digest not in self._known:
            self._known.add(digest)
            self._in_order = False

    def discard(self, digest: str) -> None:
        """Remove a digest, which may be gone already."""
        if digest in self._known:
            self._known.discard(digest)
            self._in_order = False

    def clear(self) -> None:
        """Remove all."""
        self._known.clear()
        self._order.clear()
        self._in_order = True

    @property
    def in_order(self) -> list[str]:
        """All digests, sorted when they are first needed."""
        if not self._in_order:
            order = [digest for digest in self._order if digest in self._known]
            order += self._known.difference(order)
            order.sort()  # most of it is sorted already, so this takes little more than one pass
            self._order, self._in_order = order, True
        return self._order

    def matches(self, word: str) -> bool:
        """Return whether a digest and the word have the same beginning, in the length of the shorter one."""
        if any(word[:end] in self._known for end in range(_LEAST_DIGITS, len(word) + 1)):
            return True
        order = self.in_order
        at = bisect_left(order, word)
        return at < len(order) and order[at].startswith(word)


class Mentioned:
    """The words of a session: those that the user typed, and those of results. The oldest are forgotten first."""

    def __init__(self, most_words: int = _MOST_WORDS) -> None:
        self._most_words = most_words
        self._words = OrderedDict[str, None]()
        self._digests = Digests()
        self.suspicions = 0

    def learn(self, text: str, *, without: frozenset[str] = frozenset()) -> None:
        """Remember the words of a text except for some."""
        for word in _words(text):
            if word not in without:
                self._words[word] = None
                self._words.move_to_end(word)
                if _DIGEST.fullmatch(word):
                    self._digests.add(word)
        while len(self._words) > self._most_words:
            self._digests.discard(self._words.popitem(last=False)[0])

    def has(self, name: str) -> bool:
        """Return whether all words of a name were mentioned. A name without words counts as mentioned."""
        return all(word in self._words for word in _words(name))

    def has_identifier(self, name: str) -> bool:
        """Return whether an identifier was mentioned. A digest may be longer or shorter there than in the call."""
        word = name.lower()
        return word in self._words or self._digests.matches(word)

    def suspected(self) -> None:
        """Count a call with a name that may be made up."""
        self.suspicions += 1

    def status(self) -> tuple[str, ...]:
        """Return a line for /status if the gate is on."""
        return (f"Hallucination detection: {self.suspicions} calls suspected",)

    def clear(self) -> None:
        """Forget all words, for /clear."""
        self.suspicions = 0
        self._words.clear()
        self._digests.clear()


class GroundingGate(Gate):
    """Tells the user, the model and the audit of names in a call that may be made up. It refuses nothing.

    exists   returns whether a path exists, before the call runs
    """

    name = "grounding"

    def __init__(self, mentioned: Mentioned, exists: Exists, emit: EventSink) -> None:
        self._mentioned = mentioned
        self._exists = exists
        self._emit = emit

    def judge(self, facts: CallFacts) -> Verdict:
        del facts
        return Allow()

    async def examine(self, facts: CallFacts) -> Verdict:
        """Note names that may be made up. The verdict is always Allow."""
        if _is_watched(facts):
            facts.suspect([*await self._paths(facts), *islice(self._identifiers(facts), _MOST_TOLD)])
        return Allow()

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Remember the words of the result, and add a line about names that may be made up."""
        if not _is_watched(facts):
            self._mentioned.learn(result.text)
            return result
        if result.failure is not None:
            facts.suspect(self._addresses(facts))
        # A result that repeats the call's own words proves nothing: "no such file: made-up.py".
        own = frozenset(word for text in _texts(facts.call.arguments) for word in _words(text))
        self._mentioned.learn(result.text, without=own)
        return await self._told(facts, result) if facts.suspects else result

    async def _told(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        self._mentioned.suspected()
        named = "; ".join(facts.suspects[:_MOST_TOLD])
        await self._emit(Notice(Severity.WARNING, f"{facts.spec.name}: perhaps made up by the model: {named}"))
        if result.ruling is not None and result.ruling.gate:
            return result  # it did not run, so the model may not learn what exists
        line = f"[hallucination_suspect] {named}. Check where you have this from before you build on it."
        return replace(result, text=f"{result.text}\n\n{line}", display=result.shown)

    async def _paths(self, facts: CallFacts) -> list[str]:
        found: list[str] = []
        for path, made in _subject_paths(facts):
            looked_for = os.path.dirname(path.rstrip("/")) if made else path
            name = os.path.basename(looked_for.rstrip("/"))
            if name.strip(".") and not self._mentioned.has(name) and await self._exists(looked_for) is False:
                found.append(f"{_short(looked_for)} is not there, and nobody has mentioned it")
        return found

    def _addresses(self, facts: CallFacts) -> Iterator[str]:
        for host in map(_host, facts.urls):
            if host and not self._mentioned.has(host):
                yield f"{_short(host)} gave nothing, and nobody has mentioned it"

    def _identifiers(self, facts: CallFacts) -> Iterator[str]:
        texts = [line.text for line in facts.commands]
        if not facts.spec.mutates:
            texts += _texts(facts.call.arguments)
        named = (match[0] for text in texts for match in _IDENTIFIER.finditer(text[:_LOOKED_AT]))
        for identifier in dict.fromkeys(islice(named, _MOST_LOOKED_UP)):
            if not self._mentioned.has_identifier(identifier):
                yield f"nobody has mentioned {identifier}"


def _is_watched(facts: CallFacts) -> bool:
    return facts.call.origin is CallOrigin.MODEL and facts.call.phase is Phase.EXECUTOR


def _subject_paths(facts: CallFacts) -> Iterator[tuple[str, bool]]:
    """Yield each path once, and whether the call may make it. A path that is also read must exist (edit)."""
    read = {each.path for each in facts.paths if each.access is not Access.WRITE}
    yield from ((path, False) for path in sorted(read))
    yield from ((each.path, True) for each in facts.paths if each.path not in read)


def _words(text: str) -> Iterator[str]:
    """Return a word in lower case without the full stop of a sentence."""
    for match in _WORD.finditer(text[:_LOOKED_AT]):
        if word := match[0].rstrip(".").lower():
            yield word


def _texts(value: Json) -> list[str]:
    """Return every text in a JSON value, however deep."""
    texts: list[str] = []
    rest: list[Json] = [value]
    while rest:
        match rest.pop():
            case str() as text:
                texts.append(text)
            case list() as row:
                rest += row
            case dict() as table:
                rest += table.values()
            case _:
                pass
    return texts


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _short(name: str) -> str:
    return name if len(name) <= 200 else f"{name[:200]}…"
