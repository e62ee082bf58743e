"""A tool of an MCP server as one of the session's tools.

It is not a `Tool`, because its parameters are a schema from the server and not a class. Its name is
`mcp_<server>_<tool>`. No built-in tool or alias begins so. The server's part contains no `_`, so the name can be read
in only one way, and a rule for `mcp_<server>_*` covers the tools of that server only.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count

from acp_agent.core.errors import ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.mcp import McpConnection, McpDefinition, McpReply
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import Frame, Json, JsonObject, McpSubject, ToolCall, ToolKind, ToolResult, ToolSpec
from acp_agent.text import title, visible
from acp_agent.tools.tool import TYPES, no_object, quote
from acp_agent.workspace.sandbox.sandbox import wall_named

MAX_DESCRIPTION = 2048
"""The longest description in bytes, with our own words in front of it."""

_LONGEST_NAME = 64  # the longest tool name that every model API accepts
_LONGEST_SERVER = 24  # the longest server part of it
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_LINE = re.compile(r"[^\n\t]+")
_WITHHELD = "The server has changed this tool since the user let it run; the user is asked before it runs again."
_MOST_PROBLEMS = 5
_WALLED = (
    "The server runs in a sandbox whose walls may have stopped it. Tell the user so: `allow_write` of the server, or "
    "its name in `[mcp] unsandboxed` of their configuration, gives it more access."
)

_ADVICE = "Do not repeat the same call. Correct its arguments, or do without it."


def server_slug(server: str) -> str:
    """Return a server's name as it stands in its tools' names: without `_`, at most 24 characters.

    A longer name gets a hash. Two servers of a session whose slugs differ at most in case cannot both start.
    """
    fit = _fit(server).replace("_", "-")
    return fit if len(fit) <= _LONGEST_SERVER else f"{fit[: _LONGEST_SERVER - 7]}-{_short_hash(server)}"


def has_tool(server: str, name: str) -> bool:
    """Return whether a name is that of a tool of a server. Case does not matter."""
    return name.lower().startswith(f"mcp_{server_slug(server)}_".lower())


def tool_names(server: str, tools: Collection[str]) -> Mapping[str, str]:
    """Return the names that the model uses for a server's tools, by the server's names. Other servers do not matter.

    If two names would differ at most in case, or one must be cut, it gets a hash of the tool's own name. The order of
    the list does not matter.
    """
    prefix = f"mcp_{server_slug(server)}_"
    plain = Counter(_fit(tool).lower() for tool in tools)
    clear = {tool: plain[_fit(tool).lower()] == 1 or tool == _fit(tool).lower() for tool in tools}
    names: dict[str, str] = {}
    taken: set[str] = set()
    for tool in sorted(tools, key=lambda each: (not clear[each], each)):
        name = next(each for each in _candidates(prefix, tool, clear=clear[tool]) if each.lower() not in taken)
        taken.add(name.lower())
        names[tool] = name
    return {tool: names[tool] for tool in tools}


def _candidates(prefix: str, tool: str, *, clear: bool) -> Iterator[str]:
    """Yield possible names for a tool, best first, without end."""
    plain = prefix + _fit(tool)
    if clear and len(plain) <= _LONGEST_NAME:
        yield plain
    for salt in count():
        yield f"{plain[: _LONGEST_NAME - 7]}_{_short_hash(tool + str(salt or ''))}"


def _fit(tool: str) -> str:
    return _UNFIT.sub("_", tool)


def _short_hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]


class McpTool:
    """One definition of a server's tool. A changed definition is another object with the same name."""

    def __init__(self, name: str, definition: McpDefinition, connection: McpConnection) -> None:
        self.name = name
        self.definition = definition
        self.connection = connection
        server = connection.server
        self._spec = ToolSpec(
            name,
            _described(server.name, definition.description),
            _object_schema(definition.parameters),
            ToolKind.OTHER,
            mutates=definition.name not in server.read_only,
            external=True,
            server=server.name,
        )

    def spec(self) -> ToolSpec:
        """Return the definition for the model: the server's words, marked as such."""
        return self._spec

    def withheld(self) -> ToolSpec:
        """Return the definition without the server's words, for one that the user did not agree to."""
        return replace(self._spec, description=_described(self._spec.server, _WITHHELD), parameters=_object_schema({}))

    async def understand(self, call: ToolCall, *, agreed: bool = True) -> Invocation:
        """Return the invocation. Raises ToolError (invalid_parameters or type_mismatch).

        agreed   whether the model may know the parameters. Otherwise only the server checks them
        """
        arguments = call.arguments
        if arguments is None:
            raise no_object(self.name, call.raw_arguments)
        if agreed:
            _check(self.name, arguments, self._spec.parameters)
        server, tool = self._spec.server, self.definition.name
        return Invocation(
            call=replace(call, name=self.name),
            spec=self._spec,
            title=title(f"{server}: {tool}"),
            run=partial(self._run, arguments),
            subjects=(McpSubject(server, tool),),
            summary=f"call {visible(tool)} of the MCP server {visible(server)}",
        )

    async def _run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Call the server. Raises what `McpConnection.call` raises, such as policy_blocked after a change."""
        del context
        return _result(await self.connection.call(self.definition, arguments), contained=self.connection.contained)


def _result(reply: McpReply, *, contained: bool) -> ToolResult:
    text = reply.text or (json.dumps(reply.structured, ensure_ascii=False) if reply.structured is not None else "")
    failure = None
    if reply.is_error:  # the message is ours: the server's words stay in the output
        walled = contained and wall_named(text, 1)
        failure = reply.failure or ToolFailure(
            ToolErrorCategory.PERMANENT_FAILURE, "the tool reported an error", _WALLED if walled else _ADVICE
        )
    return ToolResult(
        text=text or ("(an image)" if reply.images else "(no output)"),
        envelope=None if reply.structured is None else {"structuredContent": reply.structured},
        frame=None if failure is None else Frame(head=failure.block(), headline=failure.headline),
        images=reply.images,
        failure=failure,
    )


def _described(server: str, description: str) -> str:
    """Return the server's words after its name. Hidden characters are made visible; line ends stay."""
    words = _LINE.sub(lambda line: visible(line[0]), f"[server: {server}] {description}".strip())
    data = words.encode("utf-8", "replace")
    return words if len(data) <= MAX_DESCRIPTION else data[: MAX_DESCRIPTION - 4].decode("utf-8", "ignore") + "…"


def _object_schema(parameters: JsonObject) -> JsonObject:
    """Return the schema. If it is not for an object, as every model API demands, return the schema of any object."""
    return parameters if parameters.get("type") == "object" else {"type": "object", "properties": {}}


# -------------------------------------------------------------------------------------- arguments


_TYPES: Mapping[str, tuple[type, ...]] = {**TYPES, "string": (str,), "null": (type(None),)}


def _check(tool: str, arguments: JsonObject, schema: JsonObject) -> None:
    """Report plain mistakes in our own words without asking the server, which checks everything else."""
    required, properties = schema.get("required"), schema.get("properties")
    names = properties if isinstance(properties, dict) else {}
    wrong = [
        f"{visible(name)} is missing (expected {' or '.join(_kinds(names.get(name))) or 'a value'})"
        for name in (required if isinstance(required, list) else ())
        if isinstance(name, str) and name not in arguments
    ]
    if schema.get("additionalProperties") is False:
        known = ", ".join(map(visible, names)) or "none"
        wrong += [f"unknown key {quote(name)} (known keys: {known})" for name in arguments if name not in names]
    mistyped = list(_mistyped(arguments, names))
    if wrong or mistyped:
        category = ToolErrorCategory.INVALID_PARAMETERS if wrong else ToolErrorCategory.TYPE_MISMATCH
        raise ToolError(category, f"{tool}: {'; '.join([*wrong, *mistyped][:_MOST_PROBLEMS])}")


def _mistyped(arguments: JsonObject, properties: Mapping[str, Json]) -> Iterator[str]:
    for name, value in arguments.items():
        kinds = _kinds(properties.get(name))
        if kinds and not any(_is(value, kind) for kind in kinds):
            yield f"{visible(name)} = {quote(value)} (expected {' or '.join(kinds)})"


def _kinds(schema: Json) -> list[str]:
    """Return the types that a schema names. Empty if it also has conditions that are not read here."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = kind if isinstance(kind, list) else [kind]
    named = [each for each in kinds if isinstance(each, str) and each in _TYPES]
    return named if len(named) == len(kinds) else []


def _is(value: Json, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])
