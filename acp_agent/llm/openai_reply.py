"""A Chat Completions stream, chunk by chunk, into deltas and one finished message, as servers really send it."""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from acp_agent.core.messages import (
    Message,
    ModelDone,
    ModelStop,
    ModelText,
    ModelThought,
    Part,
    Role,
    TextPart,
    ThoughtPart,
    ToolUsePart,
    Usage,
)
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.json_wire import as_count, as_list, as_object, as_text, read_arguments

_STOPS: Final = {
    "stop": ModelStop.END,
    "end_turn": ModelStop.END,
    "eos": ModelStop.END,
    "stop_sequence": ModelStop.END,
    "tool_calls": ModelStop.TOOL_USE,
    "tool_use": ModelStop.TOOL_USE,
    "function_call": ModelStop.TOOL_USE,
    "length": ModelStop.MAX_TOKENS,
    "max_tokens": ModelStop.MAX_TOKENS,
    "content_filter": ModelStop.REFUSAL,
    "refusal": ModelStop.REFUSAL,
}
REASONING_KEYS: Final = ("reasoning_content", "reasoning")
"""What servers call the reasoning in a delta: DeepSeek, Kimi, Qwen and llama.cpp; vLLM, OpenRouter and Ollama."""


@dataclass(slots=True)
class _Call:
    """A tool call under way. `arguments` is JSON text in pieces."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


class Reply:
    """One assistant message in the making.

    maker           whose thoughts they are
    finish_reason   empty until the server says why it stopped
    """

    def __init__(self, maker: str) -> None:
        self._maker = maker
        self._text: list[str] = []
        self._thought: list[str] = []
        self._reasoning_key = ""
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self.finish_reason = ""
        self._refused = False
        self._usage = Usage()

    def feed(self, chunk: JsonObject) -> list[ModelText | ModelThought]:
        """Take one chunk; what the user should see of it at once."""
        usage = as_object(chunk.get("usage"))
        if usage:
            self._usage = _usage(usage)
        shown: list[ModelText | ModelThought] = []
        for item in as_list(chunk.get("choices")):
            choice = as_object(item)
            if as_count(choice.get("index")) == 0:
                shown += self._delta(as_object(choice.get("delta")))
                self.finish_reason = as_text(choice.get("finish_reason")) or self.finish_reason
        return shown

    def done(self) -> ModelDone:
        """The whole message."""
        parts: list[Part] = []
        if self._thought:
            thought = "".join(self._thought)
            parts.append(ThoughtPart(thought, self._maker, {self._reasoning_key: thought}))
        if self._text:
            parts.append(TextPart("".join(self._text)))
        parts.extend(_tool_uses(self._calls))
        return ModelDone(Message(Role.ASSISTANT, tuple(parts)), self._stop(), self._usage)

    def _delta(self, delta: JsonObject) -> list[ModelText | ModelThought]:
        shown: list[ModelText | ModelThought] = []
        for key in REASONING_KEYS:
            thought = as_text(delta.get(key))
            if thought:
                self._reasoning_key = self._reasoning_key or key
                shown.append(ModelThought(thought))
                break  # servers that send both say the same twice
        refusal = as_text(delta.get("refusal"))
        self._refused = self._refused or bool(refusal)
        shown += [ModelText(text) for text in (_text(delta.get("content")), refusal) if text]
        for event in shown:
            (self._text if isinstance(event, ModelText) else self._thought).append(event.text)
        for item in as_list(delta.get("tool_calls")):
            self._grow(as_object(item))
        return shown

    def _grow(self, item: JsonObject) -> None:
        function = as_object(item.get("function"))
        name = as_text(function.get("name"))
        call = self._call(item.get("index"), as_text(item.get("id")), name)
        if name and name != call.name and not call.arguments:
            call.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            call.arguments = [json.dumps(arguments)]
        elif isinstance(arguments, str) and arguments:
            call.arguments.append(arguments)

    def _call(self, index: Json, call_id: str, name: str) -> _Call:
        """The call a piece belongs to: by index; without one, by id; without either, the last one."""
        known: _Call | None
        if isinstance(index, int):
            known = self._by_index.get(index)
        elif call_id:
            known = next((call for call in self._calls if call.id == call_id), None)
        else:
            known = self._calls[-1] if self._calls and not name else None
        if known is not None and not _starts_another(known, call_id, name):
            known.id = known.id or call_id
            return known
        call = _Call(id=call_id)
        self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call

    def _stop(self) -> ModelStop:
        stop = ModelStop.REFUSAL if self._refused else _STOPS.get(self.finish_reason, ModelStop.END)
        if stop in (ModelStop.END, ModelStop.TOOL_USE):
            return ModelStop.TOOL_USE if self._calls else ModelStop.END
        return stop


def _starts_another(known: _Call, call_id: str, name: str) -> bool:
    """Whether a piece for a known call is really the next call: some servers number every call 0."""
    if not (name and known.name):
        return False
    other_id = bool(call_id and known.id and call_id != known.id)
    return other_id or bool(known.arguments and read_arguments("".join(known.arguments)) is not None)


def _text(content: Json) -> str:
    """Content is a string, or a list of parts on servers that think in parts."""
    if isinstance(content, list):
        return "".join(as_text(as_object(part).get("text")) for part in content)
    return as_text(content)


def _usage(usage: JsonObject) -> Usage:
    """`prompt_tokens` counts cached tokens in; `Usage.input` does not."""
    prompt = as_count(usage.get("prompt_tokens"))
    cached = as_count(as_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    cached = min(prompt, cached or as_count(usage.get("prompt_cache_hit_tokens")))
    return Usage(input=prompt - cached, output=as_count(usage.get("completion_tokens")), cache_read=cached)


def _tool_uses(calls: Iterable[_Call]) -> Iterable[ToolUsePart]:
    seen: dict[str, list[ToolUsePart]] = {}
    uses = (tool_use(call.id, call.name, "".join(call.arguments), seen) for call in calls)
    return [use for use in uses if use is not None]


def tool_use(call_id: str, name: str, raw: str, seen: dict[str, list[ToolUsePart]]) -> ToolUsePart | None:
    """A call; a missing or repeated id is replaced, for a result must find its call. What OpenAI's two APIs share.

    None for one equal to an earlier one, the id included: it is one call, sent twice.

    seen   the calls of the answer so far as they were sent, by their ids
    """
    arguments = read_arguments(raw)
    use = ToolUsePart(call_id, name, arguments, "" if arguments is not None else raw)
    sent = seen.setdefault(call_id, [])
    if call_id and use in sent:
        return None
    sent.append(use)
    return use if call_id and len(sent) == 1 else replace(use, id=f"call_{uuid.uuid4().hex[:24]}")
