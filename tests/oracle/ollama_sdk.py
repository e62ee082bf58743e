"""A conversation as somebody has it who writes against Ollama's own Python client."""

from typing import Any

import ollama

from tests.oracle.conversations import Answer, Conversation, Results, Say


async def converse(conversation: Conversation, url: str, model: str) -> None:
    """Have it, with the server at `url`."""
    messages: list[Any] = [{"role": "system", "content": conversation.system}] if conversation.system else []
    settings: dict[str, Any] = {"model": model, "stream": True}
    if conversation.max_tokens:
        settings["options"] = {"num_predict": conversation.max_tokens}
    if conversation.tools:
        settings["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
            }
            for t in conversation.tools
        ]
    client = ollama.AsyncClient(host=url, verify=False)  # or each would read all authorities there are
    try:
        for step in conversation.steps:
            match step:
                case Say(texts, images):
                    message: dict[str, Any] = {"role": "user", "content": "\n\n".join(texts)}
                    messages.append({**message, "images": [i.data for i in images]} if images else message)
                case Results(results, texts):
                    calls = messages[-1].tool_calls
                    for call, result in zip(calls, results, strict=True):
                        messages.append({"role": "tool", "tool_name": call.function.name, "content": result.text})
                    if texts:
                        messages.append({"role": "user", "content": "\n\n".join(texts)})
                case Answer():
                    messages.append(await _answer(client, settings, messages))
    finally:
        await client.close()


async def _answer(client: ollama.AsyncClient, settings: dict[str, Any], messages: list[Any]) -> ollama.Message:
    """The pieces of an answer put together, as the guide on streaming does it."""
    text, thought, calls = "", "", list[Any]()
    async for chunk in await client.chat(**settings, messages=messages):
        text += chunk.message.content or ""
        thought += chunk.message.thinking or ""
        calls += chunk.message.tool_calls or []
    return ollama.Message(role="assistant", content=text, thinking=thought or None, tool_calls=calls or None)
