"""The definitions of sub-agents: Markdown files with front matter. The body is the system prompt.

    ---
    name: tester                     # the file's name by default
    description: Writes and runs tests for the code that it is given
    model: ollama:qwen3:8b           # PROVIDER:MODEL; by default the session's
    tools: {allow: [group:fs, bash], deny: [delete_path]}     # or a list, or Claude Code's "Read, Grep, Bash"
    permission_mode: plan            # plan, architect, ask or read-only: it may only read
    max_turns: 20                    # model calls, at most 200
    background: false                # whether it runs beside the conversation
    max_running: 2                   # its tasks at once in the process
    hooks: {pre_tool_use: [{matcher: bash, command: ./check.sh}]}      # or in Claude Code's form
    ---
    You test what you are told to test ...

A definition only narrows: each call still passes all gates of the session. Files of Claude Code are read as they are.
Keys that only Claude Code knows are ignored.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, cast

from acp_agent.core.data import frozen
from acp_agent.core.delegation import BUILT_IN, RESERVED, OfferedAgent
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.session_options import Mode
from acp_agent.core.types import ALIASES, JsonObject
from acp_agent.extend.front_matter import OTHERS_KEYS, DefinitionProblem, Fields, MarkdownFile, Value, parse
from acp_agent.extend.sources import SourceFile, distinct
from acp_agent.gates.selection import GROUPS, Selection, ToolChoice
from acp_agent.text import packaged_text

if TYPE_CHECKING:
    from acp_agent.extend.hooks import Hook

DEFAULT_TURNS = 20
_MOST_TURNS = 200
_MOST_RUNNING = 64
_NAME = re.compile(r"(?=.*[A-Za-z0-9])[A-Za-z0-9_-]{1,64}")
_DESCRIPTION = 1000
_LINE = 160  # characters of a description that the model reads in the schema
_REST = "read_overflow"
"""The tool that reads the rest of a long result. A definition has it unless it is denied."""
_FORBIDDEN = frozenset(
    ("agent", "evaluate", "handoff", "update_plan", "compress_context", "memory_save", "memory_search", "scheduler")
)
"""Tools that no sub-agent has: they belong to the conversation, or would begin further agents."""
_MODES = {
    **dict.fromkeys(("", "default", "code", "inherit"), Mode.CODE),
    **dict.fromkeys(("plan", "architect"), Mode.ARCHITECT),
    **dict.fromkeys(("ask", "read-only", "readonly", "read_only"), Mode.ASK),
}
_LOOSER = ("acceptEdits", "accept_edits", "bypassPermissions", "bypass_permissions", "dontAsk", "dont_ask", "auto")
_THEIRS = frozenset(
    (
        "todowrite", "todoread", "taskcreate", "taskget", "tasklist", "taskupdate", "websearch", "notebookread",
        "notebookedit", "enterplanmode", "exitplanmode", "slashcommand", "skill", "askuserquestion", "toolsearch",
        "listmcpresourcestool", "readmcpresourcetool", "lsp", "sendmessage",
    )
)  # fmt: skip
"""Tools of Claude Code, in lower case, for which sub-agents have no tool here."""
_FAMILIES = ("sonnet", "opus", "haiku", "inherit", "default")
"""Names of models that other agents know. They stand for the session's model here."""


@frozen
class Definition:
    """A sub-agent as it was defined.

    body        its system prompt
    source      the file, for people; "built in" for ours
    model       `PROVIDER:MODEL`; empty for the session's
    tools       the tools of the session that it has
    mode        its mode; the session's counts if it is stricter
    max_turns   the most model calls of one run
    background  whether it runs beside the conversation
    skills      the names of skills whose texts it reads first
    hooks       the hooks about its calls
    max_running      the most runs of it at once in the process; 0 for the limit on all runs
    max_per_session  the most runs of it at once in one session; 0 for the limit on all runs
    identity    the program of another agent, as it is configured; empty for ours
    """

    name: str
    description: str
    body: str
    source: str
    model: str = ""
    tools: ToolChoice = field(default_factory=ToolChoice)
    mode: Mode = Mode.CODE
    max_turns: int = DEFAULT_TURNS
    background: bool = False
    skills: tuple[str, ...] = ()
    hooks: "tuple[Hook, ...]" = field(default=(), compare=False)
    max_running: int = 0
    max_per_session: int = 0
    identity: str = ""

    @property
    def offered(self) -> OfferedAgent:
        """The agent as the model and the user see it."""
        line = " ".join(self.description.split())
        short = line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"
        return OfferedAgent(self.name, short, self.mode is not Mode.CODE, self.background, self.source)

    def selection(self, servers: Sequence[str] = (), *, as_main: bool = False) -> Selection:
        """Return its choice among the session's tools, ready to be applied.

        as_main   whether the session is handed over to it. It then also has the tools that belong to the conversation
        """
        denied = self.tools.deny if as_main else (*self.tools.deny, *sorted(_FORBIDDEN))
        rest = (_REST,) if self.tools.allow else ()
        return Selection(replace(self.tools, deny=denied, also_allow=rest), servers)


@frozen
class Definitions:
    """All definitions of a session by name in lower case, the built-in ones first, and the problems of files."""

    by_name: dict[str, Definition]
    problems: tuple[DefinitionProblem, ...] = ()


@cache
def built_in() -> tuple[Definition, ...]:
    """Return the built-in definitions."""
    return tuple(_built_in(each.name) for each in BUILT_IN)


def _built_in(name: str) -> Definition:
    text = parse(packaged_text("acp_agent.subagents", f"builtin/{name}.md").encode(), f"{name}.md")
    assert isinstance(text, MarkdownFile), text
    definition, problems = read(text, name)
    assert not problems, problems
    return replace(definition, source="built in")


def definitions(
    sources: Sequence[SourceFile], clean: Redact = verbatim, reserved: Mapping[str, str] = RESERVED
) -> Definitions:
    """Return the built-in definitions and those of users. The first of a name counts.

    clean      removes secrets and invisible characters from the texts of users
    reserved   the names that no file may define, with the reasons
    """
    found: list[tuple[str, SourceFile, Definition]] = []
    problems: list[DefinitionProblem] = []
    for source in sources:
        text = parse(source.data, source.shown)
        if isinstance(text, DefinitionProblem):
            problems.append(text)
            continue
        definition, its_problems = read(text, source.name)
        problems += its_problems
        if definition.name:
            described, body = clean(definition.description), clean(definition.body)
            cleaned = replace(definition, source=source.shown, description=described, body=body)
            found.append((definition.name, source, cleaned))
    theirs, doubles = distinct(found, reserved)
    by_name = {each.name.lower(): each for each in (*built_in(), *theirs.values())}
    return Definitions(by_name, (*problems, *doubles))


def read(text: MarkdownFile, file_name: str) -> tuple[Definition, list[DefinitionProblem]]:
    """Return the definition of a file, and what is wrong with it. Without a usable name it has an empty one."""
    fields = Fields(text.file, text.values, text.lines)
    name = fields.name(_NAME, "letters, digits, - and _, at most 64", file_name)
    description = fields.description(most=_DESCRIPTION)
    if not description or not text.body.strip():
        key = "description" if not description else ""
        what = "what the agent is for" if key else "a text behind the front matter: its system prompt"
        fields.problems.append(DefinitionProblem(text.file, key, f"expected {what}"))
        name = ""
    definition = Definition(
        name,
        description,
        text.body.strip(),
        text.file,
        _model(fields),
        _tools(fields, text),
        _mode(fields, text),
        _turns(fields, text),
        fields.flag("background"),
        fields.texts("skills"),
        _hooks(fields, text),
        max_running=fields.number("max_running", 0, 1, _MOST_RUNNING),
    )
    fields.note_unknown(OTHERS_KEYS)
    return definition, fields.problems


def _model(fields: Fields) -> str:
    model = fields.text("model", most=200)
    if model in _FAMILIES or ":" in model or not model:
        return "" if model in _FAMILIES else model
    fields.refuse("model", '"PROVIDER:MODEL"; the session\'s model is used')
    return ""


def _mode(fields: Fields, text: MarkdownFile) -> Mode:
    """Return the mode. One that is looser than the session's is a problem, and means the session's."""
    for key in ("permission_mode", "permissionMode", "mode"):
        word = fields.text(key, most=100)
        if not word and text.values.get(key) is not None:
            return Mode.ASK  # it is not a text, which was reported already
        if word in _MODES and word:
            return _MODES[word]
        if word in _LOOSER:
            fields.refuse(key, "plan or read-only: a sub-agent is never freer than its session, whose mode it has")
        elif word:
            fields.refuse(key, "default, plan, architect, ask or read-only; it may only read until this is corrected")
            return Mode.ASK
    return Mode.CODE


def _turns(fields: Fields, text: MarkdownFile) -> int:
    key = "maxTurns" if "maxTurns" in text.values else "max_turns"
    return fields.number(key, DEFAULT_TURNS, 1, _MOST_TURNS)


def _tools(fields: Fields, text: MarkdownFile) -> ToolChoice:
    """Return the tools; none if the value cannot be read."""
    given: Value = text.values.get("tools")
    before = len(fields.problems)
    denied = (*fields.texts("disallowedTools"), *fields.texts("disallowed_tools"))
    if len(fields.problems) > before:
        return ToolChoice(session=())
    if isinstance(given, dict):
        table = Fields("", fields.table("tools"))
        allow, deny = table.texts("allow"), (*table.texts("deny"), *table.texts("except"))
        table.note_unknown()
        if table.problems or ("allow" in given and not allow):
            fields.refuse("tools", "a list, or a table of the lists allow, deny and except; it has no tools until then")
            return ToolChoice(session=())
        choice = ToolChoice(allow=allow, deny=(*deny, *denied))
    else:
        allow = fields.texts("tools")
        if given is not None and not allow:
            if not isinstance(given, str | list) or given:
                fields.refuse("tools", "a list of tools; it has no tools until this is corrected")
            return ToolChoice(session=())
        choice = ToolChoice(allow=() if allow == ("*",) else allow, deny=denied)
    entries = (*choice.allow, *choice.deny)
    if slips := [slip for entry in entries if (slip := _slip(entry))]:
        line = text.lines.get("tools", 0)
        fields.problems.append(DefinitionProblem(text.file, "tools", "; ".join(slips[:10]), line))
    if theirs := [entry for entry in entries if entry.lower() in _THEIRS]:
        fields.remark("tools", f"not here, and left out: {', '.join(theirs)}")
    # A part of a tool's calls cannot be denied, so all of them are: `Bash(rm *)` denies bash.
    return replace(choice, deny=tuple(entry.partition("(")[0].strip() for entry in choice.deny))


def _hooks(fields: Fields, text: MarkdownFile) -> "tuple[Hook, ...]":
    """Return the hooks. One that cannot be read is left out and named."""
    events = fields.table("hooks")
    if not events:
        return ()
    from acp_agent.extend.hooks import hooks_of_agent  # noqa: PLC0415 - few agents have hooks

    found = hooks_of_agent(cast("JsonObject", dict(events)), text.file)
    fields.problems += found.problems
    return found.hooks


def _slip(entry: str) -> str:
    """Return what is wrong with an entry; empty if it may be a tool's name. Users and servers may bring any tools."""
    word = entry.lower().strip()
    if "(" in word:
        return f"{entry!r} names a part of a tool's calls; here a tool is allowed or denied as a whole"
    known = {*ALIASES, *ALIASES.values(), *(tool for group in GROUPS.values() for tool in group)}
    known |= {"outline", "diagnostics", "read_overflow", "ask_user", "tasks", "messages"}
    is_known = word in known or word in _THEIRS or ":" in word
    near = [] if is_known else get_close_matches(word[:100], known, n=1, cutoff=0.75)
    return f"no tool here is called {entry!r}; did you mean {near[0]}?" if near else ""


def hooks_effect(text: MarkdownFile) -> str:
    """Return what the hooks of a definition run, for the question about a project's files."""
    from acp_agent.extend.hooks import runs  # noqa: PLC0415 - few agents have hooks

    return runs(_hooks(Fields(text.file, text.values), text))
