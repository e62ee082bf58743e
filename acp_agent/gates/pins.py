"""Ask about a tool of an MCP server whose definition changed after the user let it run (CVE-2025-54136).

Other gates ask about a tool that has not run yet, and its first call pins its definition. If the server changes the
definition later - announced, after a reconnect or in another session - this gate asks. No rule, stored answer or
approval level answers that question. The answer yes pins the new definition.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import assert_never

import anyio.to_thread

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.mcp import HttpServer, McpServer, StdioServer
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Allow, Ask, CallOrigin, Deny, JsonObject, McpSubject, ToolResult, ToolSpec, Verdict
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.store.decisions import McpPins, Pin

_UNASKED = "nobody is asked at this approval level, so it is refused; at another one the user would be asked"
_EXCERPT = 300
_BEFORE = 40  # characters shown in front of a difference


def server_identity(server: McpServer) -> str:
    """Return the SHA-256 in hex of a server: its command line and folder or its address, and the names of its secrets.

    The values of variables and headers are left out, because a new token does not make a new server.
    """
    reach = server.reach
    match reach:
        case StdioServer():
            what = ["stdio", reach.command, [*reach.args], sorted(name for name, _ in reach.env), reach.cwd]
        case HttpServer():
            what = ["http", reach.url, sorted(name.lower() for name, _ in reach.headers)]
        case _:
            assert_never(reach)
    return _digest(what)


def definition_digest(tool: str, spec: ToolSpec) -> str:
    """Return the SHA-256 in hex of a tool's definition as the model sees it. `tool` is the server's name for it."""
    return _digest([tool, spec.description, spec.parameters])


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class PinBook:
    """The pinned definitions of the servers of one session.

    identities   the identities of the servers, by name; servers may be added
    """

    def __init__(self, pins: McpPins, identities: Mapping[str, str]) -> None:
        self._pins = pins
        self._identities = identities

    def pinned(self, tool: str, spec: ToolSpec) -> bool:
        """Return whether the user let exactly this definition run."""
        pin = self._find(tool, spec)
        return pin is not None and pin.definition == definition_digest(tool, spec)

    def change(self, tool: str, spec: ToolSpec) -> str:
        """Return what changed in a tool's definition since the user let it run, as one line.

        Empty for unchanged and for new tools.
        """
        pin = self._find(tool, spec)
        if pin is None:
            trouble = self._pins.trouble
            return f"whether you have let this tool run before is not known: {trouble}" if trouble else ""
        if pin.definition == definition_digest(tool, spec):
            return ""
        return f"the server {spec.server} has changed what this tool is since you let it run; {_difference(pin, spec)}"

    def consent(self, tool: str, spec: ToolSpec) -> str:
        """Return the key of an "always" answer about a tool: a digest of this server and this definition."""
        return _digest([self._identities.get(spec.server, ""), definition_digest(tool, spec)])

    def keep(self, tool: str, spec: ToolSpec) -> None:
        """Pin a definition. Blocks."""
        pin = Pin(definition_digest(tool, spec), spec.description)
        self._pins.keep(self._identities.get(spec.server, ""), spec.server, tool, pin)

    def _find(self, tool: str, spec: ToolSpec) -> Pin | None:
        return self._pins.find(self._identities.get(spec.server, ""), tool)


class PinsGate(Gate):
    """A gate that asks about changed definitions, and pins those of tools that run.

    options   the approval level in force, which is read for each call
    """

    name = "pins"

    def __init__(self, book: PinBook, options: SessionOptions) -> None:
        self._book = book
        self._options = options

    def judge(self, facts: CallFacts) -> Verdict:
        change = ""
        for each in facts.subjects:
            if isinstance(each, McpSubject):
                change = change or self._book.change(each.tool, facts.spec)
        if not change:
            return Allow()
        settled = self._options.auto_approve is AutoApprove.FULL_AUTO or facts.call.origin is CallOrigin.USER
        if settled:  # later gates would not ask. The model reads the reason, so it must not quote the new definition.
            told = f"a tool of the server {facts.spec.server} may have changed since the user let it run; {_UNASKED}"
            return Deny(told, ToolErrorCategory.CONFIRMATION_REQUIRED, rule="changed definition")
        return Ask(change, of_tool=True)

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Pin the definition of a tool that ran."""
        ran = result.ruling is not None and result.ruling.approved_by is not None
        for each in facts.subjects if ran else ():
            if isinstance(each, McpSubject) and not self._book.pinned(each.tool, facts.spec):
                await anyio.to_thread.run_sync(self._book.keep, each.tool, facts.spec)
        return result


def _difference(pin: Pin, spec: ToolSpec) -> str:
    """Return the change as the question shows it. `gates/question.py` makes hidden characters visible."""
    before, now = pin.description, spec.description[: len(pin.description) + _EXCERPT]
    if before == spec.description:
        return f"its words are the same, its parameters are not; now: {', '.join(_parameters(spec.parameters)) or '-'}"
    same = next(
        (at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), min(len(before), len(now))
    )
    start = max(0, same - _BEFORE)
    return f"before: {_excerpt(before, start)} || now: {_excerpt(now, start)}"


def _excerpt(text: str, start: int) -> str:
    shown = text[start : start + _EXCERPT]
    return f"“{'…' if start else ''}{shown}{'…' if start + _EXCERPT < len(text) else ''}”"


def _parameters(schema: JsonObject) -> list[str]:
    properties = schema.get("properties")
    return [*properties][:20] if isinstance(properties, dict) else []
