"""An /api/chat stream, line by line, into deltas and one finished message. Unknown fields are skipped."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
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

_NOTHING_SAID: Final = frozenset({"load", "unload"})


@dataclass(frozen=True, slots=True)
class _Call:
    """A tool call; the server sends each in one piece. `arguments` is an object, or on some servers JSON text."""

    id: str
    name: str
    arguments: Json


class Reply:
    """One assistant message in the making.

    maker   whose thoughts they are
    seed    the request's bytes; the id of a call that came without one follows from them and the call's place alone:
            the same answer gives the same ids however it was cut, and no other answer gives them
    taken   ids of calls already in the conversation
    """

    def __init__(self, maker: str, seed: bytes, taken: Iterable[str] = ()) -> None:
        self._maker = maker
        self._seed = seed
        self._taken = set(taken)
        self._text: list[str] = []
        self._thought: list[str] = []
        self._calls: list[_Call] = []
        self._stop_reason = ""
        self._usage = Usage()
        self.complete = False

    @property
    def only_loaded(self) -> bool:
        """The server took the request for one to load or unload the model: it generated nothing."""
        silent = not (self._text or self._thought or self._calls)
        return self.complete and silent and self._stop_reason in _NOTHING_SAID

    def feed(self, line: JsonObject) -> list[ModelText | ModelThought]:
        """Take one line; what the user should see of it at once."""
        message = as_object(line.get("message"))
        shown: list[ModelText | ModelThought] = []
        thought, text = as_text(message.get("thinking")), as_text(message.get("content"))
        if thought:
            self._thought.append(thought)
            shown.append(ModelThought(thought))
        if text:
            self._text.append(text)
            shown.append(ModelText(text))
        for item in as_list(message.get("tool_calls")):
            function = as_object(as_object(item).get("function"))
            call_id, name = as_text(as_object(item).get("id")), as_text(function.get("name"))
            if function:
                self._calls.append(_Call(call_id, name, function.get("arguments")))
        if line.get("done") is True:
            self.complete = True
            self._stop_reason = as_text(line.get("done_reason"))
            self._usage = Usage(as_count(line.get("prompt_eval_count")), as_count(line.get("eval_count")))
        return shown

    def done(self) -> ModelDone:
        """The whole message. Call it once, after `complete`."""
        parts: list[Part] = []
        if self._thought:
            parts.append(ThoughtPart("".join(self._thought), self._maker))
        if self._text:
            parts.append(TextPart("".join(self._text)))
        digest = hashlib.sha256(self._seed).hexdigest()[:24] if self._calls else ""
        sent: list[_Call] = []
        for place, call in enumerate(self._calls):
            if not call.id or call not in sent:  # else equal, the id included: one call, sent twice
                sent.append(call)
                parts.append(self._tool_use(call, f"call_{digest}_{place}"))
        return ModelDone(Message(Role.ASSISTANT, tuple(parts)), self._stop(), self._usage)

    def _stop(self) -> ModelStop:
        if self._stop_reason == "length":
            return ModelStop.MAX_TOKENS
        return ModelStop.TOOL_USE if self._calls else ModelStop.END

    def _tool_use(self, call: _Call, spare_id: str) -> ToolUsePart:
        """The call; a missing or repeated id is replaced, for a result must find its call."""
        call_id = call.id if call.id and call.id not in self._taken else spare_id
        self._taken.add(call_id)
        raw = call.arguments
        if isinstance(raw, dict):
            return ToolUsePart(call_id, call.name, raw)
        text = raw if isinstance(raw, str) else "" if raw is None else json.dumps(raw, ensure_ascii=False)
        arguments = read_arguments(text)
        return ToolUsePart(call_id, call.name, arguments, "" if arguments is not None else text)
