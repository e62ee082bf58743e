"""The tools of a session, by profile, lists and groups.

A session has the tools of its profile. If `allow` has entries, only the tools that it names stay. `also_allow` adds
tools, and `deny` removes tools, which is final. If the session sent a list (`_meta` of session/new), only tools in it
stay.

An entry names a tool (also by another agent's name for it), `group:NAME`, `mcp`, or `mcp:SERVER`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from types import MappingProxyType
from typing import cast

from acp_agent.config.tool_settings import ModelTools
from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import ALIASES, Allow, CallOrigin, Deny, Json, JsonObject, ToolSpec, Verdict
from acp_agent.gates.gate import CallFacts, Gate

GROUPS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "fs": frozenset(
            (
                "read", "write", "edit", "list_directory", "find_path", "grep", "outline", "create_directory",
                "delete_path", "move_path", "copy_path",
            )
        ),
        "runtime": frozenset(("bash", "process")),
        "web": frozenset(("web_scrape", "fetch")),
        "memory": frozenset(("memory_save", "memory_search")),
        "skills": frozenset(("load_skill", "invoke_skill", "skill_search")),
        "lsp": frozenset(
            (
                "lsp_hover", "lsp_definition", "lsp_references", "lsp_diagnostics", "lsp_document_symbols",
                "lsp_workspace_symbol", "lsp_code_actions",
            )
        ),
    }
)  # fmt: skip
"""The tools of each `group:NAME`. A session may lack some of them."""

PROFILES: Mapping[str, tuple[str, ...] | None] = MappingProxyType(
    {
        "full": None,
        "coding": (
            *("group:fs", "group:runtime", "group:web", "group:memory", "group:lsp", "group:skills"),
            *(
                "diagnostics",
                "read_overflow",
                "update_plan",
                "ask_user",
                "agent",
                "agent_action",
                "evaluate",
                "handoff",
                "tasks",
                "messages",
                "scheduler",
            ),
        ),
        "minimal": ("read", "list_directory", "find_path", "grep", "read_overflow"),
    }
)
"""The tools of each profile; None for all tools."""

SESSION_KEY = "_meta.acp_agent.tools"
MAX_ENTRIES = 500
"""The most entries that a session may send."""

_MCP = "mcp"
_SHELL = "bash"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_-]")


@frozen
class ToolChoice:
    """A choice of tools. An empty `allow` allows all of the profile. `session` is None if no list was sent."""

    profile: str = "full"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    also_allow: tuple[str, ...] = ()
    session: tuple[str, ...] | None = None

    def entries(self) -> Iterator[tuple[str, str]]:
        """Return every entry of the configuration and the session, with the name of its list."""
        lists = (("tools.allow", self.allow), ("tools.deny", self.deny), ("tools.also_allow", self.also_allow))
        return ((name, entry) for name, given in (*lists, (SESSION_KEY, self.session or ())) for entry in given)


def for_model(general: ToolChoice, models: Mapping[str, ModelTools], model: str) -> ToolChoice:
    """Return the choice for a `provider:model`. The first match replaces profile and allow, and extends the others.

    models   by globs on `provider:model` or on `model` alone
    """
    # A pattern without a provider means the model of every provider. Otherwise its `deny` might not take effect.
    names = (model.casefold(), model.casefold().partition(":")[2])
    matching = (each for glob, each in models.items() if any(fnmatchcase(name, glob.casefold()) for name in names))
    found = next(matching, None)
    if found is None:
        return general
    return replace(
        general,
        profile=general.profile if found.profile is None else found.profile.value,
        allow=general.allow if found.allow is None else found.allow,
        deny=(*general.deny, *found.deny),
        also_allow=(*general.also_allow, *found.also_allow),
    )


class Selection:
    """A choice, ready to be applied. It is immutable.

    is_everything   whether it excludes no tool
    servers   the session's MCP servers, since a name such as `mcp_a_b_c` does not say where the server's name ends
    """

    def __init__(self, choice: ToolChoice, servers: Sequence[str] = ()) -> None:
        self._choice = choice
        self.is_everything = choice == ToolChoice(also_allow=choice.also_allow)
        named = (entry.partition(":")[2] for _, entry in choice.entries() if entry.lower().startswith("mcp:"))
        self._servers = sorted({_plain(server) for server in (*servers, *named)}, key=len, reverse=True)

    def objection(self, tool: str, server: str = "", *, commands: bool = False) -> str:
        """Return the entry that excludes a tool, for the audit ("tools.deny: group:fs"); empty if none does.

        server     the MCP server of the tool, if known
        commands   whether its calls are command lines. The tool is then excluded if `bash` is denied, and belongs to
                   each profile that has `bash`
        """
        choice = self._choice
        for entry in choice.deny:
            if self._names(entry, tool, server) or (commands and self._names(entry, _SHELL, "")):
                return f"tools.deny: {entry}"
        profile = PROFILES[choice.profile]
        if (profile is not None or choice.allow) and not self._any(choice.also_allow, tool, server):
            shell = commands and profile is not None and self._any(profile, _SHELL, "")
            if profile is not None and not (shell or self._any(profile, tool, server)):
                return f"tools.profile: {choice.profile}"
            if choice.allow and not self._any(choice.allow, tool, server):
                return "tools.allow"
        return "" if choice.session is None or self._any(choice.session, tool, server) else SESSION_KEY

    def _any(self, entries: Iterable[str], tool: str, server: str) -> bool:
        return any(self._names(entry, tool, server) for entry in entries)

    def _names(self, entry: str, tool: str, server: str) -> bool:
        text, tool = entry.lower().strip(), tool.lower()
        if text in (_MCP, "group:mcp"):
            return bool(server) or tool.startswith("mcp_")
        kind, _, name = text.partition(":")
        match kind:
            case "group":
                return tool in GROUPS.get(name, frozenset())
            case "mcp":
                return (_plain(server) or self._server(tool)) == _plain(name)
            case _:
                return tool in (text, ALIASES.get(text))

    def _server(self, tool: str) -> str:
        """Return the server of a tool: the longest known name with which its name begins."""
        return next((server for server in self._servers if tool.startswith(f"mcp_{server}_")), "")


def _plain(server: str) -> str:
    return _NOT_IN_NAMES.sub("_", server.strip().lower())


def unknown_entries(choice: ToolChoice, tools: Iterable[str]) -> list[ConfigError]:
    """Return a problem for each unknown entry of a choice, with similar names. `tools` are the built-in tools."""
    ids = {*tools, *(tool for group in GROUPS.values() for tool in group), "read_overflow", "diagnostics"}
    groups = [_MCP, "group:mcp", *(f"group:{name}" for name in GROUPS)]
    known = [*sorted(ids), *groups]
    problems: list[ConfigError] = []
    for where, entry in choice.entries():
        name = entry.lower().strip()
        if name in known or name in ALIASES or name.startswith(("mcp:", "mcp_")):
            continue
        near = get_close_matches(name[:100], [*known, *ALIASES], n=1)
        hint = f"; did you mean {ALIASES.get(near[0], near[0])}?" if near else f" ({', '.join(known)} or mcp:SERVER)"
        problems.append(ConfigError("configuration", where, repr(entry[:100]), f"a tool or a group of tools{hint}"))
    return problems


def session_tools(meta: JsonObject | None) -> tuple[str, ...] | None:
    """Return the list of tools in `_meta` of session/new: `{"acp_agent": {"tools": ["read", "group:web"]}}`.

    None if there is none; an empty list means no tools. Raises ConfigError for any other shape.
    """
    ours = (meta or {}).get("acp_agent")
    if ours is None:
        return None
    if not isinstance(ours, dict):
        raise _bad("_meta.acp_agent", ours, "an object")
    tools = ours.get("tools")
    if tools is None:
        return None
    if not isinstance(tools, list) or len(tools) > MAX_ENTRIES:
        raise _bad(SESSION_KEY, tools, f"a list of at most {MAX_ENTRIES} names of tools or groups")
    for at, entry in enumerate(tools):
        if not isinstance(entry, str) or not entry.strip() or len(entry) > 200:
            raise _bad(f"{SESSION_KEY}[{at}]", entry, "the name of a tool or group")
    return tuple(cast("list[str]", tools))


def _bad(key: str, value: Json, expected: str) -> ConfigError:
    return ConfigError("session/new", key, repr(value)[:100], expected)


class SelectionGate(Gate):
    """A gate that refuses tools which the session does not have.

    selection   returns the selection in force; it is called for each call, since models may have different ones
    narrowed    returns the tools to which the slash command of the running turn limits it; None for all
    agent       returns the tools that the definition of the session's agent allows; None if it has no definition
    """

    name = "selection"

    def __init__(
        self,
        selection: Callable[[], Selection],
        narrowed: Callable[[], tuple[str, ...] | None] = lambda: None,
        agent: Callable[[], Selection | None] = lambda: None,
    ) -> None:
        self._selection = selection
        self._narrowed = narrowed
        self._agent = agent

    @property
    def chooses(self) -> bool:
        return not self._selection().is_everything or self._narrowed() is not None or self._agent() is not None

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool is offered to the model."""
        objection = _objection(self._selection(), spec.name, spec) or self._is_left_out(spec.name, spec)
        return not (objection or spec.users_only)

    def judge(self, facts: CallFacts) -> Verdict:
        name = facts.custom or facts.spec.name
        if rule := _objection(self._selection(), name, facts.spec):
            return Deny(f"'{name}' is not among the tools of this session", rule=rule)
        if facts.call.origin is CallOrigin.USER:
            return Allow()
        if facts.spec.users_only:
            return Deny(f"'{name}' is not among the tools of this session", rule="agents")
        if self._is_left_out(name, facts.spec):
            return Deny(
                f"'{name}' is not among the tools of this {'agent' if self._agent() else 'command'}",
                rule="allowed-tools",
            )
        return Allow()

    def _is_left_out(self, name: str, spec: ToolSpec) -> bool:
        only, agent = self._narrowed(), self._agent()
        if agent is not None and _objection(agent, name, spec):
            return True
        return bool(_objection(_of_turn(only), name, spec))


def _objection(selection: Selection, name: str, spec: ToolSpec) -> str:
    """Return the entry that excludes a tool or one of the tools that it acts as; empty if there is none."""
    found = selection.objection(name, spec.server, commands=spec.commands)
    for other in spec.acts_as:
        found = found or selection.objection(other)
    return found


@cache
def _of_turn(only: tuple[str, ...] | None) -> Selection:
    return Selection(ToolChoice(session=only))
