"""What of the protocol is not served, and `docs/protocol.md`, which says so."""

from collections import defaultdict
from collections.abc import Iterable

from acp_agent.cli.agent_process import Direction
from tests.wire import quirks
from tests.wire.vocabulary import METHOD, Word

_NO_AUDIO = "models are not sent sound; a prompt is answered without it, and says so"
_NO_SSE = "deprecated in the protocol; a server of this type is spoken to over streamable HTTP"
_OF_SESSIONS = "every question of ours belongs to a session"
_NO_NOTES = "we write no annotations; those of a prompt change nothing"

NOT_SERVED: dict[Word, str] = {
    Word(Direction.TO_AGENT, "ContentBlock", "audio"): _NO_AUDIO,
    Word(Direction.FROM_AGENT, "ContentBlock", "audio"): _NO_AUDIO,
    Word(Direction.FROM_AGENT, "PromptCapabilities", "audio"): _NO_AUDIO,
    Word(Direction.TO_AGENT, "McpServer", "sse"): _NO_SSE,
    Word(Direction.FROM_AGENT, "McpCapabilities", "sse"): _NO_SSE,
    Word(Direction.FROM_AGENT, "ElicitationFormMode", "Request"): _OF_SESSIONS,
    Word(Direction.FROM_AGENT, "ElicitationUrlMode", "Request"): _OF_SESSIONS,
    Word(Direction.FROM_AGENT, "EmbeddedResourceResource", "BlobResourceContents"): (
        "binary resources of a prompt are left out, with a notice, and so never told again"
    ),
    Word(Direction.FROM_AGENT, "RequestId", "Str"): "our requests are numbered",
    Word(Direction.FROM_AGENT, "RequestId", "Null"): "our requests are numbered",
    Word(Direction.FROM_AGENT, "Role", "user"): _NO_NOTES,
    Word(Direction.FROM_AGENT, "Role", "assistant"): _NO_NOTES,
    Word(Direction.FROM_AGENT, "SessionUpdate", "compaction_summary_chunk"): (
        "a summary comes whole, in the last `compaction_update`"
    ),
    Word(Direction.FROM_AGENT, "ToolCallStatus", "pending"): (
        "a call is in progress from its first message on, also while the user is asked about it"
    ),
    Word(Direction.FROM_AGENT, "ToolKind", "think"): "clients draw such a call as a thought of the model",
    Word(Direction.FROM_AGENT, "ToolKind", "switch_mode"): "the mode is the user's; no tool of ours changes it",
}
"""Why not. The tests hold every other word of the stable schema to be used."""

_SECTIONS = {
    "Updates": ("SessionUpdate", "NoticeSeverity", "CompactionStatus", "PlanEntryPriority", "PlanEntryStatus"),
    "Content": ("ContentBlock", "EmbeddedResourceResource", "Role"),
    "Tool calls": ("ToolKind", "ToolCallStatus", "ToolCallContent", "PermissionOptionKind", "RequestPermissionOutcome"),
    "Turns and errors": ("StopReason", "ErrorCode", "RequestId"),
    "Options and commands": (
        *("SessionConfigOption", "SessionConfigOptionCategory", "SessionConfigSelectOptions"),
        *("SetSessionConfigOptionRequest", "AvailableCommandInput"),
    ),
    "Questions": (
        *("CreateElicitationRequest", "ElicitationFormMode", "ElicitationUrlMode", "ElicitationSchemaType"),
        *("ElicitationPropertySchema", "StringFormat", "MultiSelectItems"),
        *("CreateElicitationResponse", "ElicitationContentValue"),
    ),
    "Authentication and servers": ("AuthMethod", "McpServer"),
}
_TITLES = {
    "SessionUpdate": "`session/update`",
    "ContentBlock": "content block",
    "EmbeddedResourceResource": "embedded resource",
    "Role": "annotated audience",
    "PermissionOptionKind": "permission option",
    "RequestPermissionOutcome": "permission outcome",
    "SessionConfigOption": "config option",
    "SessionConfigOptionCategory": "its category",
    "SessionConfigSelectOptions": "its values",
    "SetSessionConfigOptionRequest": "how it is set",
    "CreateElicitationRequest": "elicitation mode",
    "ElicitationFormMode": "form belongs to",
    "ElicitationUrlMode": "page belongs to",
    "ElicitationSchemaType": "form",
    "ElicitationPropertySchema": "field",
    "StringFormat": "format of a text",
    "MultiSelectItems": "several choices",
    "CreateElicitationResponse": "answer",
    "ElicitationContentValue": "value",
    "AuthMethod": "auth method",
    "McpServer": "MCP server",
}
_SPEAKERS = {Direction.TO_AGENT: "client", Direction.FROM_AGENT: "agent"}
_HEAD = """\
# The protocol, word by word

All of the stable part of ACP v1 (schema 1.25), as its JSON schema has it: methods, alternatives of every type, members
of capabilities. Versions other than 1 are answered 1. What is *served* is used and validated in
`tests/wire/test_coverage.py`, which fails for a word that is neither used nor named here with a reason; it also writes
this page (`ACP_AGENT_PROTOCOL=write`).

Of the unstable part only `session/fork` is served, with `ACP_AGENT_ACP_FORK=1`. Of what the protocol once had,
`session/set_model` is served for older clients. Requests of our own are in [sessions.md](sessions.md). A client that
does not ask for notices gets them as messages, with the severity under `_meta.acp_agent.notice`.

## What is served

| of ACP v1 (schema 1.25) | served | not served, and why |
|---|---|---|
| methods, both ways | all 25; of the unstable ones `session/fork`, with `ACP_AGENT_ACP_FORK=1` | |
| updates | all but | `compaction_summary_chunk`: a summary comes whole |
| content | text, images, links, embedded texts | audio: models are not sent sound; binary resources: left out |
| tool calls, plans, permissions, stop reasons | all but | kinds `switch_mode`, `think`: see below |
| config options | select and, where the client can, boolean | |
| questions (elicitation) | form and url | those that belong to a request: ours belong to a session |
| MCP servers | stdio, http | sse: spoken to over streamable HTTP |
| authentication | agent, terminal, `logout` | |
"""


def page(words: Iterable[Word]) -> str:
    """The whole page. AssertionError for a type that belongs to no section."""
    kinds: dict[str, dict[str, set[Direction]]] = defaultdict(lambda: defaultdict(set))
    for word in words:
        kinds[word.kind][word.name].add(word.by)
    capabilities = sorted(kind for kind in kinds if kind.endswith("Capabilities"))
    sections = {"Methods": (METHOD,), **_SECTIONS, "Capabilities": tuple(capabilities)}
    shown = {kind for section in sections.values() for kind in section}
    assert shown == set(kinds), f"in no section, or nowhere: {shown ^ set(kinds)}"
    parts = [_HEAD, quirks.section()]
    for title, members in sections.items():
        rows = [row for kind in members for row in _rows(kind, kinds[kind])]
        parts.append(
            "\n".join([f"## {title}", "", "| what | who says it | state | why |", "|---|---|---|---|", *rows, ""])
        )
    return "\n".join(parts)


def _rows(kind: str, names: dict[str, set[Direction]]) -> Iterable[str]:
    """A row for each word and state; both sides in one where they do not differ."""
    for name in sorted(names):
        reasons: dict[str, list[str]] = defaultdict(list)
        for by in sorted(names[name], reverse=True):
            reasons[NOT_SERVED.get(Word(by, kind, name), "")].append(_SPEAKERS[by])
        for why, speakers in reasons.items():
            what = f"`{name}`" if kind == METHOD else f"{_title(kind)} `{name}`"
            yield f"| {what} | {', '.join(speakers)} | {'not served' if why else 'served'} | {why} |"


def _title(kind: str) -> str:
    """A type's name in words."""
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind).strip()
    return _TITLES.get(kind, spaced.removesuffix(" capabilities"))
