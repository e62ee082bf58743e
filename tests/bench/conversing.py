"""`python -m tests.bench.conversing SIDE API URL ROUNDS`: one side of the comparison with the official SDKs.

A process of its own, so that neither side carries the other's modules. Prints one JSON object:

    events   CPU microseconds for each event of a stream, one sample a stream
    first    milliseconds from the server's sending of the first piece to its reader, one sample a stream
    memory   resident MB after the first answer
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.bench.streaming_model import CALL_PIECES, PIECE, PIECES

_EVENTS = {"anthropic": PIECES + CALL_PIECES + 8, "openai": PIECES + 1}
_Stream = Callable[[], AsyncIterator[str]]


def _ours(api: str, url: str) -> _Stream:
    from acp_agent.config.llm_settings import ProviderType
    from acp_agent.core.messages import Message, ModelText, Role, TextPart
    from acp_agent.core.ports import ModelRequest
    from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig

    base = url if api == "anthropic" else f"{url}/v1"
    catalog = Catalog([ProviderConfig("bench", ProviderType(api), base_url=base, api_key="obviously-fake")])
    provider = catalog.build(ModelRef("bench", "any"))
    request = ModelRequest("Be brief.", (Message(Role.USER, (TextPart("go"),)),), max_tokens=4096)

    async def texts() -> AsyncIterator[str]:
        async for event in provider.stream(request):
            if isinstance(event, ModelText):
                yield event.text

    return texts


def _anthropic_sdk(url: str) -> _Stream:
    import anthropic

    client = anthropic.AsyncAnthropic(base_url=url, api_key="obviously-fake", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "go"}]

    async def texts() -> AsyncIterator[str]:
        async with client.messages.stream(
            model="any", max_tokens=4096, system="Be brief.", messages=messages
        ) as stream:
            async for text in stream.text_stream:
                yield text
            await stream.get_final_message()

    return texts


def _openai_sdk(url: str) -> _Stream:
    import openai

    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="obviously-fake", max_retries=0)
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]

    async def texts() -> AsyncIterator[str]:
        async with client.chat.completions.stream(model="any", messages=messages) as stream:
            async for event in stream:
                if event.type == "content.delta":
                    yield event.delta
            await stream.get_final_completion()

    return texts


async def _measured(stream: _Stream, api: str, rounds: int) -> dict[str, Any]:
    import psutil

    events: list[float] = []
    first: list[float] = []
    memory = 0.0
    for number in range(rounds + 1):
        begun, texts = time.process_time(), list[str]()
        async for text in stream():
            if not texts:
                first.append((time.monotonic() - float(text)) * 1000)
            texts.append(text)  # of ours, pieces that arrived together are one
        if (came := "".join(texts[1:])) != PIECE * (PIECES - 1):
            raise RuntimeError(
                f"{len(came)} characters came after the first piece, {PIECES - 1} times {PIECE!r} were sent"
            )
        events.append((time.process_time() - begun) * 1e6 / _EVENTS[api])
        if number == 0:
            memory = psutil.Process().memory_info().rss / 1e6
    return {"events": events[1:], "first": first[1:], "memory": memory}  # the first one warms up


def main(side: str, api: str, url: str, rounds: str) -> None:
    """Measure one side and print it."""
    sdk = _anthropic_sdk if api == "anthropic" else _openai_sdk
    print(json.dumps(asyncio.run(_measured(_ours(api, url) if side == "ours" else sdk(url), api, int(rounds)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
