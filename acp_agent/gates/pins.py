"""Tools of MCP servers are what they were when the user let them run (security.md 2.8; CVE-2025-54136).

A tool nobody has let run yet is no business of this gate: other gates ask about it, and the first call that runs pins
what it is. What a server makes of it later - announced, after a reconnect or in another session - is a question, which
no rule, no stored answer and no approval level settles; the answer yes pins what it is now.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import assert_never

import anyio.to_thread

from acp_agent.core.conduct import AutoApprove, Conduct
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.mcp import HttpServer, McpServer, StdioServer
from acp_agent.core.types import Allow, Ask, CallOrigin, Deny, JsonObject, McpSubject, ToolResult, ToolSpec, Verdict
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.gate import Gate
from acp_agent.store.mcp_pins import McpPins, Pin

_UNASKED = "nobody is asked at this approval level, so it is refused; at another one the user would be asked"
_EXCERPT = 300
_BEFORE = 40  # characters in front of what differs


def server_identity(server: McpServer) -> str:
    """SHA-256 in hex of what a server is: its command line and folder or its address, and the names of what it gets.

    Not of the values of variables and headers: a new token makes no new server.
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
    """SHA-256 in hex of all that a model learns of a tool; `tool` is the server's own name for it."""
    return _digest([tool, spec.description, spec.parameters])


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class PinBook:
    """What the user has let run, as far as it concerns the servers of one session.

    identities   of the session's servers, by name; servers may be added to it
    """

    def __init__(self, pins: McpPins, identities: Mapping[str, str]) -> None:
        self._pins = pins
        self._identities = identities

    def pinned(self, tool: str, spec: ToolSpec) -> bool:
        """Whether exactly this definition was let run."""
        pin = self._find(tool, spec)
        return pin is not None and pin.definition == definition_digest(tool, spec)

    def change(self, tool: str, spec: ToolSpec) -> str:
        """What is not as it was when the user let the tool run, in one line; empty when nothing is, or it is new."""
        pin = self._find(tool, spec)
        if pin is None:
            return (
                f"whether you have let this tool run before is not known: {trouble}"
                if (trouble := self._pins.trouble)
                else ""
            )
        if pin.definition == definition_digest(tool, spec):
            return ""
        return f"the server {spec.server} has changed what this tool is since you let it run; {_difference(pin, spec)}"

    def consent(self, tool: str, spec: ToolSpec) -> str:
        """What a lasting yes to a tool is bound to: this server and this definition."""
        return _digest([self._identities.get(spec.server, ""), definition_digest(tool, spec)])

    def keep(self, tool: str, spec: ToolSpec) -> None:
        """Pin a definition. Blocks."""
        pin = Pin(definition_digest(tool, spec), spec.description)
        self._pins.keep(self._identities.get(spec.server, ""), spec.server, tool, pin)

    def _find(self, tool: str, spec: ToolSpec) -> Pin | None:
        return self._pins.find(self._identities.get(spec.server, ""), tool)


class PinsGate(Gate):
    """Asks about changed definitions, and pins what was let run.

    conduct   the approval level in force, read anew for each call
    """

    name = "pins"

    def __init__(self, book: PinBook, conduct: Conduct) -> None:
        self._book = book
        self._conduct = conduct

    def judge(self, facts: CallFacts) -> Verdict:
        changes = (self._book.change(tool, facts.spec) for tool in _tools(facts))
        change = next(filter(None, changes), "")
        if not change:
            return Allow()
        settled = self._conduct.auto_approve is AutoApprove.FULL_AUTO or facts.call.origin is CallOrigin.USER
        if settled:  # further in they would say yes without a look; the model reads this, so no new word stands in it
            told = f"a tool of the server {facts.spec.server} is not known to be what you let run; {_UNASKED}"
            return Deny(told, ToolErrorCategory.CONFIRMATION_REQUIRED, rule="changed definition")
        return Ask(change)

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Pin the definition of a tool that ran."""
        ran = result.ruling is not None and result.ruling.approved_by is not None and not result.ruling.gate
        for tool in _tools(facts) if ran else ():
            if not self._book.pinned(tool, facts.spec):
                await anyio.to_thread.run_sync(self._book.keep, tool, facts.spec)
        return result


def _tools(facts: CallFacts) -> Iterator[str]:
    return (each.tool for each in facts.subjects if isinstance(each, McpSubject))


def _difference(pin: Pin, spec: ToolSpec) -> str:
    """What to show of a change. Whatever is in the words, the question makes it visible (gates/question.py)."""
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
