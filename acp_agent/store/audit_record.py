"""What is recorded. `schemas/audit.schema.json` is made from these classes and from what stands below their fields.

On disk None is left out, and so is what is false, with two exceptions: `exit_code` is there for every tool (null where
there is no such thing), and `truncated` for every command that ran (requirements L9, section 4 rows 29 and 30).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import ClassVar, Literal, TypeAlias, cast

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.phase import Phase
from acp_agent.core.types import ApprovedBy, CallOrigin, Json, JsonObject
from acp_agent.core.web import BlockReason

_DESCRIBED: Mapping[str, object] = {"use_attribute_docstrings": True}
KEPT = frozenset({"exit_code"})
"""Fields that are written also when they are None."""


class ClaimSource(StrEnum):
    """What kind of thing a result comes from (L9)."""

    SHELL = "shell"
    FILE_SYSTEM = "file_system"
    CODE_SEARCH = "code_search"
    WEB_SCRAPE = "web_scrape"
    DIAGNOSTICS = "diagnostics"
    MEMORY = "memory"
    MCP = "mcp"


class ExecutionEnv(StrEnum):
    """Where a call ran."""

    EDITOR = "editor"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Success:
    """The call ran. A command may have ended with any exit code: that is its own answer."""

    type: Literal["success"] = "success"


@dataclass(frozen=True, slots=True)
class Blocked:
    """The call did not run: a gate, the sandbox or the user said no."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    reason: str
    """What the model was told."""
    type: Literal["blocked"] = "blocked"


@dataclass(frozen=True, slots=True)
class Failed:
    """The call failed, crashed or was cancelled; `error_category` says which."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    message: str
    """What went wrong, in one sentence."""
    type: Literal["error"] = "error"


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The call took too long and was ended."""

    type: Literal["timeout"] = "timeout"


Outcome: TypeAlias = Success | Blocked | Failed | TimedOut


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRecord:
    """One tool call, written when it was over and before anybody saw its result (L9)."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    kind: Literal["tool"] = "tool"
    tool: str
    """The tool's id, such as `bash`, whatever alias the model used."""
    call: Mapping[str, object]
    """The arguments, redacted and cut."""
    result: Outcome
    """How it ended; never what it said."""
    correlation_id: str
    """The call's UUID, the same as in the editor."""
    duration_ms: float
    """Milliseconds, waiting for the user included."""
    exit_code: int | None = None
    """Of a command, 128 + n when signal n killed it; null for other tools and for what did not run."""
    signal: str | None = None
    """The signal that killed the command."""
    truncated: bool | None = None
    """Of a command that ran: whether its output was cut."""
    cached: bool | None = None
    """Whether the answer was kept from an earlier, equal call."""
    trust: str | None = None
    """The tool's trust level."""
    approved_by: ApprovedBy | None = None
    """Who let it run."""
    gate: str | None = None
    """The gate that ended it."""
    policy_match: str | None = None
    """The rule that decided."""
    error_category: ToolErrorCategory | None = None
    """Why it failed."""
    claim_source: ClaimSource | None = None
    """What kind of thing the result comes from."""
    mcp_server_id: str | None = None
    """The MCP server the tool belongs to."""
    caller_id: str | None = None
    """The ACP session's id."""
    origin: CallOrigin | None = None
    """`user` when the user typed the call."""
    phase: Phase | None = None
    """When in the turn the agent made it by itself; left out for what the model asks for."""
    attempts: int | None = None
    """How often it was tried, where that was more than once."""
    arguments_mended: bool | None = None
    """Whether the arguments are not the model's own, which did not fit, but mended ones."""
    hallucination_suspected: bool | None = None
    """Whether it names something that is not there and that nobody had mentioned."""
    batch: str | None = None
    """Shared by the calls of one message of the model."""
    execution_env: ExecutionEnv | None = None
    """Where it ran, where that is known."""
    resolved_cwd: str | None = None
    """The session's folder, which relative paths are seen from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRecord:
    """One request a web tool made or was kept from making (T5.11)."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    kind: Literal["egress"] = "egress"
    tool: str
    """The tool's id."""
    correlation_id: str
    """The UUID of the call."""
    url: str
    """The URL of this hop, redacted."""
    host: str
    """Its host; empty when the URL has none."""
    method: Literal["GET"] = "GET"
    hop: int
    """0 for the URL asked for, then one more for each redirect."""
    address: str | None = None
    """The IP address connected to."""
    status: int | None = None
    """The HTTP status of the answer."""
    duration_ms: float
    """Milliseconds, the look-up included."""
    response_bytes: int
    """Bytes of the body as far as it was read, unpacked."""
    blocked: Literal[True] | None = None
    """The request was not made."""
    block_reason: BlockReason | None = None
    """Why not."""
    caller_id: str | None = None
    """The ACP session's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuesRecord:
    """The first record of a file that was started because the last one had grown large."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    kind: Literal["continues"] = "continues"
    file: str
    """The name the last file was given, in the same folder; `prev` is its last record's hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TornRecord:
    """In front of this record stands a line that somebody could not finish: killed, or the disk was full."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    kind: Literal["torn"] = "torn"
    bytes: int
    """How long the unfinished line is."""
    sha256: str
    """What it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecord:
    """Records that the process behind this one could not write."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    kind: Literal["lost"] = "lost"
    count: int
    """How many."""
    error: str
    """Why the first of them could not be written."""


Record: TypeAlias = ToolRecord | EgressRecord | ContinuesRecord | TornRecord | LostRecord


def members(record: Record | Outcome) -> JsonObject:
    """A record as JSON."""
    named = ((field.name, getattr(record, field.name)) for field in fields(record))
    return {name: _plain(value) for name, value in named if value is not None or name in KEPT}


def _plain(value: object) -> Json:
    if is_dataclass(value):
        return members(cast("Outcome", value))
    return cast("Json", value)  # the classes above hold nothing else
