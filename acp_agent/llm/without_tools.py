"""A model that knows no tools is offered none, and is told in words of the calls others made."""

import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace

from acp_agent.core.messages import Message, ModelEvent, Part, TextPart, ToolResultPart, ToolUsePart
from acp_agent.core.ports import ModelRequest
from acp_agent.llm.closing import closing
from acp_agent.llm.wrapper import WrapperProvider


class WithoutTools(WrapperProvider):
    """A Provider whose model is never shown a tool: most servers refuse such a request to it."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """As the port says."""
        messages = tuple(map(_in_words, request.messages))
        async with closing(self.wrapped.stream(replace(request, messages=messages, tools=()))) as events:
            async for event in events:
                yield event


def _in_words(message: Message) -> Message:
    if not any(isinstance(part, ToolUsePart | ToolResultPart) for part in message.parts):
        return message
    return replace(message, parts=tuple(said for part in message.parts for said in _said(part)))


def _said(part: Part) -> Iterator[Part]:
    match part:
        case ToolUsePart():
            arguments = part.raw_arguments or json.dumps(part.arguments or {}, ensure_ascii=False)
            yield TextPart(f"[called {part.name} with {arguments}]\n")
        case ToolResultPart():
            yield TextPart(f"[it gave]\n{part.text}\n")
            yield from part.images
        case _:
            yield part
