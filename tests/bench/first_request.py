"""How large the first request of a session is, in every wire format, as it reaches the server."""

from contextlib import suppress

import anyio

from acp_agent.agent.prompt import system_prompt
from acp_agent.config.llm_settings import ProviderSettings
from acp_agent.core.delegation import BUILT_IN
from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.ports import ModelRequest
from acp_agent.core.session_options import Mode
from acp_agent.core.types import ToolSpec
from acp_agent.llm.catalog import Catalog, ProviderConfig, parse_model
from acp_agent.text import fenced
from acp_agent.tools.agent import AgentTool
from acp_agent.tools.memory import MemorySave, MemorySearch
from acp_agent.tools.registry import default_tools
from tests.bench.file_tools import Sample
from tests.fakes.scripted_http import Reply, ScriptedHttp

AIM = 13_000
"""Bytes; agents people use send 30 to 80 KB."""

FORMATS = {
    "anthropic": ("anthropic", "claude-sonnet-4-5", {}),
    "openai chat": ("openai", "gpt-4.1", {"api": "chat"}),
    "openai responses": ("openai", "gpt-5", {"api": "responses"}),
    "ollama": ("ollama", "qwen3:8b", {}),
}
PROMPT = "The test in tests/test_checkout.py fails since yesterday. Find out why and mend it."


FACTS = fenced(
    "workspace",
    "Date: 2026-11-22, a Sunday\nGit branch: main\nUncommitted files: 2: src/checkout.py, tests/test_checkout.py\n"
    "Likely test command: `make test` or `pytest`",
)


def whole_catalogue() -> tuple[ToolSpec, ...]:
    """Every tool a session has when nobody has configured anything."""
    agent = AgentTool(lambda: BUILT_IN)
    tools = {tool.name: tool for tool in (*default_tools(reached=()), MemorySave(), MemorySearch(), agent)}
    return tuple(tool.spec() for tool in tools.values())


def first_request() -> ModelRequest:
    """What a session's first turn asks, no notes of a project being there."""
    specs = whole_catalogue()
    system = system_prompt("/projects/shop", ["/projects/shop"], "linux", Mode.CODE, tools=specs)
    return ModelRequest(system, (Message(Role.USER, (TextPart(PROMPT), TextPart(FACTS))),), specs)


async def sent(name: str) -> bytes:
    """The body a server of one format is sent, byte for byte."""
    kind, model, more = FORMATS[name]
    key = "BENCH_KEY" if kind != "ollama" else None
    async with ScriptedHttp([Reply.plain(400, b'{"error": "not now"}')]) as server:
        settings = ProviderSettings.model_validate(
            {"name": kind, "type": kind, "base_url": server.url, "api_key_env": key, **more}
        )
        catalog = Catalog([ProviderConfig.of(settings, {"BENCH_KEY": "obviously-fake"})])
        try:
            provider = await anyio.to_thread.run_sync(catalog.build, parse_model(f"{kind}:{model}"))
            with suppress(ProviderError):
                async for _ in provider.stream(first_request()):
                    pass
        finally:
            await catalog.aclose()
    return next(request.body for request in server.requests if b'"tools"' in request.body)


def measured() -> list[Sample]:
    """Rows for the bench."""
    return [(f"first request: {name}", "B", AIM, [float(len(anyio.run(sent, name)))], []) for name in FORMATS]
