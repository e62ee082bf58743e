"""Note calls with names that the model may have made up. It is off unless configured, and never blocks.

A model invents names that it wants: a file that should exist, a page, a commit. The user, the model and the audit are
told of such a call if its name does not exist *and* was never mentioned, neither in a prompt nor in another result.

    path         it does not exist, and its name was not mentioned; a file to be written counts by its folder
    address      it could not be reached, and its host was not mentioned
    identifier   a UUID or a digest in a command, or in the arguments of a call that changes nothing, was not mentioned
"""

import os
import re
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeAlias
from urllib.parse import urlsplit

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import AgentError
from acp_agent.core.events import EventSink, Notice, Severity
from acp_agent.core.types import Access, Allow, CallOrigin, Phase, ToolResult, Verdict
from acp_agent.gates.gate import CallFacts, Gate, texts_in
from acp_agent.text import abbreviated

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
_LONGEST_SHOWN = 200  # characters of a name in a note
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
    """Return None without looking for the path."""
    del path


class Mentioned:
    """The words of a session: those that the user typed, and those of results. The oldest are forgotten first."""

    def __init__(self, most_words: int = _MOST_WORDS) -> None:
        self._most_words = most_words
        self._words = OrderedDict[str, None]()
        self._digests = defaultdict[str, set[str]](set)  # by their first digits
        self.suspicions = 0

    def learn(self, text: str, *, without: frozenset[str] = frozenset()) -> None:
        """Remember the words of a text except for some."""
        for word in _words(text):
            if word not in without:
                self._words[word] = None
                self._words.move_to_end(word)
                if _DIGEST.fullmatch(word):
                    self._digests[word[:_LEAST_DIGITS]].add(word)
        while len(self._words) > self._most_words:
            word, _ = self._words.popitem(last=False)
            if _DIGEST.fullmatch(word):
                like = self._digests[word[:_LEAST_DIGITS]]
                like.discard(word)
                if not like:
                    del self._digests[word[:_LEAST_DIGITS]]

    def has(self, name: str) -> bool:
        """Return whether all words of a name were mentioned. A name without words counts as mentioned."""
        return all(word in self._words for word in _words(name))

    def has_identifier(self, name: str) -> bool:
        """Return whether an identifier was mentioned. A digest may be longer or shorter there than in the call."""
        word = name.lower()
        like = self._digests.get(word[:_LEAST_DIGITS], ())
        return word in self._words or any(word.startswith(each) or each.startswith(word) for each in like)

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
    """A gate that tells the user, the model and the audit of names that may be made up. It refuses nothing.

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
            facts.suspects.extend([*await self._paths(facts), *islice(self._identifiers(facts), _MOST_TOLD)])
        return Allow()

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Remember the words of the result, and add a line about names that may be made up."""
        if not _is_watched(facts):
            self._mentioned.learn(result.text)
            return result
        if result.failure is not None:
            facts.suspects.extend(self._addresses(facts))
        # A result that repeats the call's own words proves nothing: "no such file: made-up.py".
        own = frozenset(word for text in texts_in(facts.call.arguments) for word in _words(text))
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
                found.append(f"{abbreviated(looked_for, _LONGEST_SHOWN)} is not there, and nobody has mentioned it")
        return found

    def _addresses(self, facts: CallFacts) -> Iterator[str]:
        for host in map(_host, facts.urls):
            if host and not self._mentioned.has(host):
                yield f"{abbreviated(host, _LONGEST_SHOWN)} gave nothing, and nobody has mentioned it"

    def _identifiers(self, facts: CallFacts) -> Iterator[str]:
        texts = [line.text for line in facts.commands]
        if not facts.spec.mutates:
            texts += texts_in(facts.call.arguments)
        named = (match[0] for text in texts for match in _IDENTIFIER.finditer(text[:_LOOKED_AT]))
        for identifier in islice(dict.fromkeys(named), _MOST_LOOKED_UP):
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
    """Yield the words of a text in lower case, without the full stop of a sentence."""
    for match in _WORD.finditer(text[:_LOOKED_AT]):
        if word := match[0].rstrip(".").lower():
            yield word


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
