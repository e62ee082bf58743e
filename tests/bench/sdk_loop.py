"""`python -m tests.bench.sdk_loop URL FOLDER`: an agent's loop as one writes it on the official SDK, with one tool.

What `read` costs here is the floor for a tool call of ours: no gates, no audit, no editor to tell. Prints its memory in
MB after the first answer.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import openai
import psutil

_READ = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


async def converse(url: str, folder: Path) -> float:
    """One turn: calls until the model is done."""
    client = openai.AsyncOpenAI(base_url=url, api_key="obviously-fake", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "go"}]
    memory = 0.0
    while True:
        async with client.chat.completions.stream(model="any", messages=messages, tools=[_READ]) as stream:
            answer = (await stream.get_final_completion()).choices[0].message
        memory = memory or psutil.Process().memory_info().rss / 1e6
        messages.append(answer)
        if not answer.tool_calls:
            return memory
        for call in answer.tool_calls:
            text = await asyncio.to_thread((folder / json.loads(call.function.arguments)["path"]).read_text)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


if __name__ == "__main__":
    print(asyncio.run(converse(sys.argv[1], Path(sys.argv[2]))))
