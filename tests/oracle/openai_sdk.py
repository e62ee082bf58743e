"""Conversations as somebody has them who writes against OpenAI's own SDK: Chat Completions and Responses."""

import json
from typing import TYPE_CHECKING, Any

from acp_agent.core.types import ImagePart
from tests.oracle.conversations import Answer, Conversation, Results, Say

if TYPE_CHECKING:
    import openai


def _client(url: str) -> "openai.AsyncOpenAI":
    import openai  # noqa: PLC0415 - takes a second, which only who runs these tests need spend

    http = openai.DefaultAsyncHttpxClient(verify=False)  # or each would read all authorities there are
    return openai.AsyncOpenAI(base_url=url, api_key="sk-fake-000000000000", max_retries=0, http_client=http)


def _data_url(image: ImagePart) -> str:
    return f"data:{image.mime_type};base64,{image.data}"


# ---------------------------------------------------------------------------- Chat Completions


async def converse_by_chat(conversation: Conversation, url: str, model: str) -> None:
    """Have it, with the server at `url`."""
    messages: list[Any] = [{"role": "system", "content": conversation.system}] if conversation.system else []
    settings: dict[str, Any] = {"model": model, "stream_options": {"include_usage": True}}
    if conversation.max_tokens:
        settings["max_tokens"] = conversation.max_tokens
    if conversation.tools:
        settings["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
            }
            for t in conversation.tools
        ]
    async with _client(url) as client:
        for step in conversation.steps:
            match step:
                case Say(texts, images):
                    messages.append({"role": "user", "content": _chat_content(texts, images)})
                case Results():
                    messages += _chat_results(messages[-1], step)
                case Answer():
                    async with client.chat.completions.stream(**settings, messages=messages) as stream:
                        completion = await stream.get_final_completion()
                    messages.append(completion.choices[0].message)


def _chat_content(texts: tuple[str, ...], images: tuple[ImagePart, ...]) -> Any:
    if not images:
        return "\n\n".join(texts)
    words = [{"type": "text", "text": text} for text in texts]
    return [*words, *({"type": "image_url", "image_url": {"url": _data_url(image)}} for image in images)]


def _chat_results(asked: Any, step: Results) -> list[dict[str, Any]]:
    """A tool message takes text only: its pictures follow in the user's name."""
    messages: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for call, result in zip(asked.tool_calls, step.results, strict=True):
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
        if result.images:
            shown.append({"type": "text", "text": f"From tool call {call.id}:"})
            shown += ({"type": "image_url", "image_url": {"url": _data_url(image)}} for image in result.images)
    if shown:
        messages.append({"role": "user", "content": shown})
    elif step.texts:
        messages.append({"role": "user", "content": "\n\n".join(step.texts)})
    return messages


# ----------------------------------------------------------------------------------- Responses


async def converse_by_responses(conversation: Conversation, url: str, model: str) -> None:
    """Have it, with the server at `url`, keeping nothing there."""
    items: list[Any] = []
    settings: dict[str, Any] = {"model": model, "store": False}
    if conversation.system:
        settings["instructions"] = conversation.system
    if conversation.max_tokens:
        settings["max_output_tokens"] = conversation.max_tokens
    if conversation.thinking:
        settings |= {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}
    if conversation.tools:
        settings["tools"] = [
            {
                "type": "function",
                "name": t.name,
                "description": t.description,
                "parameters": t.parameters,
                "strict": False,
            }
            for t in conversation.tools
        ]
    async with _client(url) as client:
        for step in conversation.steps:
            match step:
                case Say(texts, images):
                    items.append({"role": "user", "content": [*_input_texts(texts), *map(_input_image, images)]})
                case Results(results, texts):
                    calls = [item for item in items if getattr(item, "type", "") == "function_call"][-len(results) :]
                    for call, result in zip(calls, results, strict=True):
                        output: Any = result.text
                        if result.images:
                            output = [*_input_texts((result.text,)), *map(_input_image, result.images)]
                        items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
                    if texts:
                        items.append({"role": "user", "content": _input_texts(texts)})
                case Answer():
                    async with client.responses.stream(**settings, input=items) as stream:
                        items += (await stream.get_final_response()).output


def _input_texts(texts: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"type": "input_text", "text": text} for text in texts]


def _input_image(image: ImagePart) -> dict[str, Any]:
    return {"type": "input_image", "image_url": _data_url(image)}


def parsed_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """A call with its arguments taken apart: JSON text of one meaning has many forms."""
    return {**call, "arguments": json.loads(call["arguments"])} if isinstance(call.get("arguments"), str) else call
