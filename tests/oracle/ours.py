"""A conversation as this agent has it: its history, its adapters."""

import json
from contextlib import aclosing
from typing import Any

from acp_agent.agent.history import History
from acp_agent.agent.tool_calls import with_fit_calls
from acp_agent.core.messages import Message, ModelDone, Part, Role, TextPart, ToolResultPart
from acp_agent.core.ports import ModelRequest, Provider
from tests.fakes.scripted_http import ScriptedHttp
from tests.oracle.conversations import Answer, Conversation, Results, Say


async def our_bodies(conversation: Conversation, provider: Provider, server: ScriptedHttp) -> list[dict[str, Any]]:
    """The bodies of our requests, one for each answer."""
    history = History()
    for step in conversation.steps:
        match step:
            case Say(texts, images):
                history.append(Message(Role.USER, (*map(TextPart, texts), *images)))
            case Results(results, texts):
                parts: list[Part] = [
                    ToolResultPart(use.id, result.text, result.is_error, result.images)
                    for use, result in zip(history.open_calls, results, strict=True)
                ]
                history.append(Message(Role.USER, (*parts, *map(TextPart, texts))))
            case Answer():
                request = ModelRequest(
                    conversation.system, history.messages(), conversation.tools, conversation.max_tokens
                )
                message = with_fit_calls((await _answer(provider, request)).message, history.call_ids).message
                history.append(message)
    return [json.loads(request.body) for request in server.requests]


async def _answer(provider: Provider, request: ModelRequest) -> ModelDone:
    async with aclosing(provider.stream(request)) as events:
        async for event in events:
            if isinstance(event, ModelDone):
                return event
    raise AssertionError("the answer had no end")
