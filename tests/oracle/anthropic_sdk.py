"""A conversation as somebody has it who writes against Anthropic's own SDK and follows its guides.

Cache marks stand where "Prompt caching" puts them: on the system prompt, the last tool, the last block.
"""

import copy
from typing import Any

from tests.oracle.conversations import Answer, Conversation, Results, Say

_MARK = {"cache_control": {"type": "ephemeral"}}


async def converse(conversation: Conversation, url: str, model: str, max_tokens: int) -> None:
    """Have it, with the server at `url`."""
    import anthropic  # noqa: PLC0415 - takes three seconds, which only who runs these tests need spend

    messages: list[dict[str, Any]] = []
    settings: dict[str, Any] = {"model": model, "max_tokens": conversation.max_tokens or max_tokens}
    if conversation.system:
        settings["system"] = [{"type": "text", "text": conversation.system, **_MARK}]
    if conversation.tools:
        tools = [
            {"name": t.name, "description": t.description, "input_schema": t.parameters} for t in conversation.tools
        ]
        settings["tools"] = [*tools[:-1], {**tools[-1], **_MARK}]
    if conversation.thinking:
        settings["thinking"] = {"type": "adaptive", "display": "summarized"}
    http = anthropic.DefaultAsyncHttpxClient(verify=False)  # or each would read all authorities there are
    async with anthropic.AsyncAnthropic(
        base_url=url, api_key="sk-fake-000000000000", max_retries=0, http_client=http
    ) as client:
        for step in conversation.steps:
            match step:
                case Say(texts, images):
                    blocks = [{"type": "text", "text": text} for text in texts]
                    messages.append({"role": "user", "content": [*blocks, *map(_image, images)]})
                case Results(texts=texts):
                    said = [{"type": "text", "text": text} for text in texts]
                    messages.append({"role": "user", "content": [*_results(messages[-1], step), *said]})
                case Answer():
                    async with client.messages.stream(**settings, messages=_marked(messages)) as stream:
                        answer = await stream.get_final_message()
                    messages.append({"role": "assistant", "content": answer.content})


def _results(asked: dict[str, Any], step: Results) -> list[dict[str, Any]]:
    calls = [block for block in asked["content"] if block.type == "tool_use"]
    blocks: list[dict[str, Any]] = []
    for call, result in zip(calls, step.results, strict=True):
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "content": result.text}
        if result.images:
            block["content"] = [{"type": "text", "text": result.text}, *map(_image, result.images)]
        blocks.append({**block, "is_error": True} if result.is_error else block)
    return blocks


def _image(image: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": image.mime_type, "data": image.data}}


def _marked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    *before, last = copy.copy(messages)
    *blocks, block = last["content"]
    return [*before, {**last, "content": [*blocks, {**block, **_MARK}]}]
