"""A conversation that keeps itself within its context, and a provider that looks at each request as the APIs would."""

import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from acp_agent.agent.compaction import Compactor, SummarySettings, Thresholds
from acp_agent.agent.hooks import Hooks
from acp_agent.agent.turn import Limits
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.messages import Message, ModelDone, ModelEvent, Part, ThoughtPart, Usage
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.core.services import Compaction, Summary
from acp_agent.llm import anthropic, ollama, openai, responses_request
from acp_agent.llm.endpoint import ModelEndpoint
from tests.contract.wire_rules import (
    assert_anthropic_request,
    assert_ollama_request,
    assert_openai_request,
    assert_responses_request,
)
from tests.fakes.fake_toolset import Tool
from tests.fakes.scripted_provider import Script, ScriptedProvider, Step
from tests.unit.agent.conversation import Conversation, no_pace
from tests.unit.agent.conversation_rules import assert_acceptable

UNMEASURED = Usage()
_ANTHROPIC = ModelEndpoint("scripted", "model", "http://127.0.0.1", 100_000)
_OTHER = ModelEndpoint("other", "model", "http://127.0.0.1", 100_000)


class KeptSummaries:
    """A Summaries that keeps them in a list, or fails."""

    def __init__(self) -> None:
        self.kept: list[Summary] = []
        self.trouble = ""

    async def add(self, summary: Summary) -> None:
        if self.trouble:
            raise StoreUnavailable(self.trouble)
        self.kept.append(summary)


class Compacting(Conversation):
    """Its budget is 10,000 tokens unless told otherwise; what models report is nothing, so that sizes count.

    writer   the model that writes summaries
    """

    def __init__(
        self,
        script: Iterable[Script],
        tools: Mapping[str, Tool] | None = None,
        *,
        summaries: Iterable[Script] = (),
        budget: int = 10_000,
        thresholds: Thresholds | None = None,
        rounds: int = 10,
        seconds: float = 60.0,
        redact: Callable[[str], str] = str,
        pace: Callable[[], Awaitable[None]] = no_pace,
        mutating: tuple[str, ...] = (),
    ) -> None:
        super().__init__(
            script,
            tools,
            limits=Limits(max_tool_iterations=rounds, context_budget=budget),
            pace=pace,
            mutating=mutating,
        )
        self.writer = ScriptedProvider(summaries, model="writer", pace=pace)
        self.store = KeptSummaries()
        self.compactor = Compactor(
            self.history,
            self.emit,
            SummarySettings(self._writer, self.store, redact, seconds),
            lambda: self.agent.budget,
            thresholds or Thresholds(),
        )
        self.agent.hooks = Hooks(limiter=self.compactor)

    async def _writer(self) -> Provider:
        return self.writer

    async def compact(self, focus: str = "") -> str:
        """As /compact does."""
        return await self.compactor.compact(Compaction.MANUAL, focus)


def says(text: str = "ok") -> Step:
    """An answer of a model that counts nothing."""
    return Step(text=text, usage=UNMEASURED)


class WireChecked:
    """A Provider that builds each request for every API, checks it against that API's rules, and counts its bytes.

    `wrapped` may be replaced. As newer models do, it takes a signed thought back only behind what preceded it when the
    model had it.
    """

    def __init__(self, wrapped: Provider) -> None:
        self.wrapped = wrapped
        self.name, self.model, self.context_window = wrapped.name, wrapped.model, wrapped.context_window
        self.sizes: list[int] = []
        self._preceded: dict[str, bytes] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        assert_acceptable(request.messages)
        here = self._after_thoughts(request.messages)
        self.sizes.append(len(_checked(request)))
        async with aclosing(cast("AsyncGenerator[ModelEvent]", self.wrapped.stream(request))) as events:
            async for event in events:
                if isinstance(event, ModelDone):
                    self._preceded |= {part.text: here for part in event.message.parts if isinstance(part, ThoughtPart)}
                yield event

    def _after_thoughts(self, messages: Iterable[Message]) -> bytes:
        """What tells these messages from others; refuses thoughts behind others than they were thought behind."""
        prefix = hashlib.sha256()
        for message in messages:
            for part in message.parts:
                if isinstance(part, ThoughtPart) and part.text in self._preceded:
                    assert self._preceded[part.text] == prefix.digest(), (
                        "a signed thought behind a changed conversation"
                    )
            prefix.update(repr(message).encode())
        return prefix.digest()


def _checked(request: ModelRequest) -> bytes:
    thoughtful = replace(request, messages=tuple(map(_as_anthropic, request.messages)))
    body = anthropic.request_body(_ANTHROPIC, thoughtful)
    assert_anthropic_request(body)
    assert_openai_request(openai.request_body(_OTHER, request, frozenset()))
    assert_responses_request(responses_request.request_body(_OTHER, request, frozenset()))
    assert_ollama_request(_json(ollama.request_body(_OTHER, request, num_ctx=None, think=False)))
    return body


def _as_anthropic(message: Message) -> Message:
    """With thoughts in that API's own shape."""

    def shaped(part: Part) -> Part:
        if not isinstance(part, ThoughtPart):
            return part
        return ThoughtPart(part.text, "scripted", {"type": "thinking", "thinking": part.text, "signature": "fake"})

    return replace(message, parts=tuple(map(shaped, message.parts)))


def _json(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()
