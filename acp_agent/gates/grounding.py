"""Calls about things that may be made up (requirements S8). Off unless switched on; never blocks.

A model invents a name when it wants one: a file that would have to be there, a page, a commit. Such a call is told
when what it names is not there *and* nobody has mentioned it: no prompt, and no result that was not about it.

    path         it does not exist, nor was its name mentioned; for a file to be written the same of its folder
    address      it could not be had, nor was its host mentioned
    identifier   a UUID or a digest, in a command or in the arguments of a call that changes nothing, never mentioned
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
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.gate import Gate

_WORD = re.compile(r"[\w.@+-]{2,256}")
_IDENTIFIER = re.compile(
    r"\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,64})\b",
    re.IGNORECASE,
)
_LEAST_DIGITS = 7
_DIGEST = re.compile(rf"[0-9a-f]{{{_LEAST_DIGITS},64}}")
_LOOKED_AT = 100_000  # characters of one text
_MOST_WORDS = 100_000
_MOST_TOLD = 5  # things one call is told of
_MOST_LOOKED_UP = 50  # identifiers of one call

Exists: TypeAlias = Callable[[str], Awaitable[bool | None]]
"""Whether anything is at a path as a call names it; None where nobody can tell. Never raises but for cancellation."""


def exists_in(files: FileSystem) -> Exists:
    """Looks where the session's tools look, and no further: what lies outside its folders nobody can tell."""

    async def exists(path: str) -> bool | None:
        try:
            return await files.kind(path) is not None
        except AgentError:
            return None

    return exists


async def unknown(path: str) -> bool | None:
    """Looks nowhere."""
    del path


class Digests:
    """Digests, found by how they begin without a look at each."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._order: list[str] = []
        self._in_order = True

    def add(self, digest: str) -> None:
        """Take one in; it may be there already."""
        if digest not in self._known:
            self._known.add(digest)
            self._in_order = False

    def discard(self, digest: str) -> None:
        """Forget one; it may be gone already."""
        if digest in self._known:
            self._known.discard(digest)
            self._in_order = False

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()
        self._order.clear()
        self._in_order = True

    @property
    def in_order(self) -> list[str]:
        """All of them, sorted; put in order only when somebody asks."""
        if not self._in_order:
            order = [digest for digest in self._order if digest in self._known]
            order += self._known.difference(order)
            order.sort()  # most of it stands in order: little more than one look at each
            self._order, self._in_order = order, True
        return self._order

    def matches(self, word: str) -> bool:
        """Whether one of them begins as the word does, as far as the shorter of the two goes."""
        if any(word[:end] in self._known for end in range(_LEAST_DIGITS, len(word) + 1)):
            return True
        order = self.in_order
        at = bisect_left(order, word)
        return at < len(order) and order[at].startswith(word)


class Mentioned:
    """The words of a session: what the user typed and tools said. The oldest go when there are too many."""

    def __init__(self, most_words: int = _MOST_WORDS) -> None:
        self._most_words = most_words
        self._words = OrderedDict[str, None]()
        self._digests = Digests()
        self.suspicions = 0

    def learn(self, text: str, *, without: frozenset[str] = frozenset()) -> None:
        """Take in the words of a text, but for some."""
        for word in _words(text):
            if word not in without:
                self._words[word] = None
                self._words.move_to_end(word)
                if _DIGEST.fullmatch(word):
                    self._digests.add(word)
        while len(self._words) > self._most_words:
            self._digests.discard(self._words.popitem(last=False)[0])

    def has(self, name: str) -> bool:
        """Whether all words of a name were mentioned; a name without any is nothing to be made up."""
        return all(word in self._words for word in _words(name))

    def has_identifier(self, name: str) -> bool:
        """Whether an identifier was; a digest may be mentioned longer or shorter than it is written now."""
        word = name.lower()
        return word in self._words or self._digests.matches(word)

    def suspected(self) -> None:
        """Count a call that names something that may be made up."""
        self.suspicions += 1

    def status(self) -> tuple[str, ...]:
        """A line for /status, for when made-up names are looked for."""
        return (f"Hallucination detection: {self.suspicions} calls suspected",)

    def clear(self) -> None:
        """Forget all (/clear)."""
        self.suspicions = 0
        self._words.clear()
        self._digests.clear()


class GroundingGate(Gate):
    """Tells the user, the model and the audit what a call of the model may have made up. It refuses nothing.

    exists   looks paths up, before the call runs
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
        """Look for what may be made up."""
        if _is_watched(facts):
            facts.suspect([*await self._paths(facts), *islice(self._identifiers(facts), _MOST_TOLD)])
        return Allow()

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Learn the words of the result, and add a line on what may be made up."""
        if not _is_watched(facts):
            self._mentioned.learn(result.text)
            return result
        if result.failure is not None:
            facts.suspect(self._addresses(facts))
        # What a result says of the call's own words proves nothing: "no such file: made-up.py".
        own = frozenset(word for text in _texts(facts.call.arguments) for word in _words(text))
        self._mentioned.learn(result.text, without=own)
        return await self._told(facts, result) if facts.suspects else result

    async def _told(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        self._mentioned.suspected()
        named = "; ".join(facts.suspects[:_MOST_TOLD])
        await self._emit(Notice(Severity.WARNING, f"{facts.spec.name}: perhaps made up by the model: {named}"))
        if result.ruling is not None and result.ruling.gate:
            return result  # it did not run: nobody said it may know what is there
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
    """Yield each path once, and whether the call may make it. One that is read as well has to be there (edit)."""
    read = {each.path for each in facts.paths if each.access is not Access.WRITE}
    yield from ((path, False) for path in sorted(read))
    yield from ((each.path, True) for each in facts.paths if each.path not in read)


def _words(text: str) -> Iterator[str]:
    """Lower case, without the full stop of a sentence."""
    for match in _WORD.finditer(text[:_LOOKED_AT]):
        if word := match[0].rstrip(".").lower():
            yield word


def _texts(value: Json) -> list[str]:
    """Every text in a JSON value, however deep."""
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
