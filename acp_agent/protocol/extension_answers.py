"""What the extension methods answer with: sessions, tools and servers as JSON (requirements A26)."""

from acp_agent.core.clock import now_ms
from acp_agent.core.conduct import Conduct
from acp_agent.core.mcp import HttpServer
from acp_agent.core.sessions import SessionRecord, UsageTotals
from acp_agent.core.types import JsonObject, ToolSpec
from acp_agent.output.markdown_images import defused
from acp_agent.protocol.extension_host import ListedServer
from acp_agent.protocol.updates_stateless import iso_time


def record_object(record: SessionRecord) -> JsonObject:
    """As ACP's SessionInfo, with what we know besides."""
    return {
        "sessionId": record.id,
        "cwd": record.cwd,
        "additionalDirectories": list(record.additional),
        "title": defused(record.title) or None,
        "createdAt": iso_time(record.created_at),
        "updatedAt": iso_time(record.updated_at),
        "prompts": record.prompts,
        "model": record.model or None,
    }


def conduct_object(conduct: Conduct) -> JsonObject:
    """What the user chose; null where the configuration decides."""
    return {
        "mode": conduct.mode.value,
        "autoApprove": conduct.auto_approve.value,
        "readonly": conduct.readonly,
        "model": conduct.model or None,
        "thoughtLevel": conduct.thought_level or None,
        "temperature": conduct.temperature or None,
    }


def tally_object(tally: UsageTotals) -> JsonObject:
    """What it took so far, the tokens as ACP names them."""
    usage = tally.usage
    return {
        "used": tally.used,
        "size": tally.size,
        "usage": {
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "cachedReadTokens": usage.cache_read,
            "cachedWriteTokens": usage.cache_write,
        },
        "cost": None if tally.cost is None else {"amount": tally.cost, "currency": "USD", "complete": tally.complete},
        "calls": tally.calls,
        "batches": tally.batches,
    }


def tool_object(spec: ToolSpec) -> JsonObject:
    """As the tool catalogue has it, with the server it comes from."""
    tool: JsonObject = {
        "name": spec.name,
        "description": spec.description,
        "kind": spec.kind.value,
        "mutates": spec.mutates,
        "parameters": spec.parameters,
    }
    return {**tool, "server": spec.server} if spec.server else tool


def server_object(listed: ListedServer) -> JsonObject:
    """Neither address nor command: they may hold what is nobody's business."""
    server = listed.server
    return {
        "name": server.name,
        "type": "http" if isinstance(server.reach, HttpServer) else "stdio",
        "origin": server.origin.value,
        "state": listed.state.value,
        "tools": list(listed.tools),
        "problem": listed.problem or None,
    }


def now() -> str:
    """The time, as editors are sent it."""
    return iso_time(now_ms())
