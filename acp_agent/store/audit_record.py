"""The records of the audit, and how the arguments of a call are redacted and cut for them.

`schemas/audit.schema.json` is generated from these classes and from the texts below their fields.

A member that is None is not written, and flags are None instead of false. There are two exceptions: `exit_code` is
written for every tool (null for tools that have none), and `truncated` for every command that ran.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from enum import StrEnum
from functools import cache
from typing import ClassVar, Literal, TypeAlias, cast

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.services import BlockReason
from acp_agent.core.types import ApprovedBy, CallOrigin, Json, JsonObject, Phase

_DESCRIBED: Mapping[str, object] = {"use_attribute_docstrings": True}
KEPT = frozenset({"exit_code"})
"""Fields that are written even if they are None."""


class ClaimSource(StrEnum):
    """The kind of source that a result comes from."""

    SHELL = "shell"
    FILE_SYSTEM = "file_system"
    CODE_SEARCH = "code_search"
    WEB_SCRAPE = "web_scrape"
    DIAGNOSTICS = "diagnostics"
    MEMORY = "memory"
    MCP = "mcp"
    AGENT = "agent"


class ExecutionEnv(StrEnum):
    """The place where a call ran: in the editor's terminal, on the agent's machine, or on an MCP server."""

    EDITOR = "editor"
    LOCAL = "local"
    SERVER = "server"


class SandboxAround(StrEnum):
    """The sandbox around a command. UNSANDBOXED is that of a command that left the session's sandbox."""

    BWRAP = "bwrap"
    LANDLOCK = "landlock"
    SEATBELT = "seatbelt"
    UNSANDBOXED = "unsandboxed"


@frozen
class Success:
    """The call ran. A command may have ended with any exit code: that is its own answer."""

    type: Literal["success"] = "success"


@frozen
class Blocked:
    """The call did not run: a gate, the sandbox or the user said no."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    reason: str
    """What the model was told."""
    type: Literal["blocked"] = "blocked"


@frozen
class Failed:
    """The call failed, crashed or was cancelled; `error_category` says which."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    message: str
    """What went wrong, in one sentence."""
    type: Literal["error"] = "error"


@frozen
class TimedOut:
    """The call took too long and was ended."""

    type: Literal["timeout"] = "timeout"


@frozen
class RolledBack:
    """The command failed, and what it had changed in files was taken back."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    restored: int
    """Files and folders that it had changed or deleted, and that were restored."""
    deleted: int
    """Files and folders that it had made, and that were deleted."""
    type: Literal["rollback"] = "rollback"


Outcome: TypeAlias = Success | Blocked | Failed | TimedOut | RolledBack


@frozen
class ToolRecord:
    """One tool call, written when it was over and before its result was shown."""

    _: KW_ONLY
    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    kind: Literal["tool"] = "tool"
    tool: str
    """The tool's id, such as `bash`, whatever alias the model used."""
    call: Mapping[str, object]
    """The arguments, redacted and cut."""
    result: Outcome
    """How the call ended, without its output."""
    correlation_id: str
    """The call's UUID, the same as in the editor."""
    duration_ms: float
    """Milliseconds, waiting for the user included."""
    exit_code: int | None = None
    """The exit code of a command, 128 + n for signal n; null for other tools and for calls that did not run."""
    signal: str | None = None
    """The signal that killed the command."""
    truncated: bool | None = None
    """Whether the output of a command that ran was cut."""
    cached: bool | None = None
    """Whether the answer is the one of an earlier, equal call."""
    trust: str | None = None
    """The trust in the call when it began: the lowest trust of the prompt, what was read, the folder and the tool."""
    approved_by: ApprovedBy | None = None
    """Who let it run."""
    gate: str | None = None
    """The gate that ended it."""
    policy_match: str | None = None
    """The rule that decided."""
    error_category: ToolErrorCategory | None = None
    """Why it failed."""
    claim_source: ClaimSource | None = None
    """The kind of source that the result comes from."""
    mcp_server_id: str | None = None
    """The MCP server the tool belongs to."""
    caller_id: str | None = None
    """The ACP session's id, then `schedule` in a scheduled turn, then a sub-agent's run: SESSION/schedule/RUN."""
    origin: CallOrigin | None = None
    """`user` when the user typed the call."""
    phase: Phase | None = None
    """The phase of the turn in which the agent made the call by itself; left out if the model asked for it."""
    attempts: int | None = None
    """The number of attempts, if there was more than one."""
    arguments_mended: bool | None = None
    """Whether the arguments were repaired, because the model's own did not fit."""
    hallucination_suspected: bool | None = None
    """Whether the call names something that does not exist and that nobody had mentioned."""
    adversarial_policy_decision: str | None = None
    """What the second model said of it: `allow`, `deny: REASON` or `error: REASON`; left out if it was not asked."""
    batch: str | None = None
    """Shared by the calls of one message of the model."""
    execution_env: ExecutionEnv | None = None
    """Where its command, or the MCP server's tool, ran; left out for other calls."""
    sandbox: SandboxAround | None = None
    """What contained its command; left out where the session has no sandbox."""
    resolved_cwd: str | None = None
    """The session's folder, where relative paths start."""


@frozen
class EgressRecord:
    """One request of a web tool, or one connection of a contained command, made or refused."""

    _: KW_ONLY
    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    kind: Literal["egress"] = "egress"
    tool: str
    """The tool's id."""
    correlation_id: str
    """The UUID of the call; empty for CONNECT, because the commands of a session share its network."""
    url: str
    """The URL of this hop, redacted; for CONNECT a host and a port."""
    host: str
    """Its host; empty when the URL has none."""
    method: Literal["GET", "CONNECT"] = "GET"
    """CONNECT for a contained command that reached a host of `network_allow`, or was refused one."""
    hop: int
    """0 for the URL asked for, then one more for each redirect."""
    address: str | None = None
    """The IP address connected to."""
    status: int | None = None
    """The HTTP status of the answer."""
    duration_ms: float
    """Milliseconds, the look-up included; for CONNECT until bytes could pass."""
    response_bytes: int
    """Bytes of the body that were read, after decompression; 0 for CONNECT."""
    blocked: Literal[True] | None = None
    """The request was not made."""
    block_reason: BlockReason | None = None
    """Why not."""
    caller_id: str | None = None
    """The ACP session's id; in a scheduled turn, SESSION/schedule."""


@frozen
class ContinuesRecord:
    """The first record of a file that was started because the last one had grown large."""

    _: KW_ONLY
    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    kind: Literal["continues"] = "continues"
    file: str
    """The name the last file was given, in the same folder; `prev` is its last record's hash."""


@frozen
class TornRecord:
    """A note that the line before this record is unfinished: its writer was killed, or the disk was full."""

    _: KW_ONLY
    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    kind: Literal["torn"] = "torn"
    bytes: int
    """The length of the unfinished line."""
    sha256: str
    """The SHA-256 of the unfinished line."""


@frozen
class LostRecord:
    """A note that the process which wrote it could not write some records before."""

    _: KW_ONLY
    __pydantic_config__: ClassVar[Mapping[str, object]] = _DESCRIBED
    kind: Literal["lost"] = "lost"
    count: int
    """The number of missing records."""
    error: str
    """Why the first of them could not be written."""


Record: TypeAlias = ToolRecord | EgressRecord | ContinuesRecord | TornRecord | LostRecord


def members(record: Record | Outcome) -> JsonObject:
    """Return a record as JSON."""
    data: JsonObject = {}
    for name in _names(type(record)):
        value: object = getattr(record, name)
        if value is not None or name in KEPT:
            inner = hasattr(value, "__dataclass_fields__")
            data[name] = members(cast("Outcome", value)) if inner else cast("Json", value)
    return data


@cache
def _names(kind: type[Record | Outcome]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


Redact: TypeAlias = Callable[[str], str]
"""A function that removes secrets from a text."""

LONGEST = 4096
"""The most characters of one string that are recorded."""

_MARGIN = 16 * 1024  # characters redacted beyond those, so that no secret is cut in two before it is seen
_MOST = 256  # values of one call, those inside others counted
_DEEPEST = 8
_WIDEST_NUMBER = 256  # bits; Python refuses to print very large numbers, and nobody reads them


def without(secrets: Iterable[str]) -> Redact:
    """Return a function that replaces known secrets."""
    known = sorted(filter(None, secrets), key=len, reverse=True)  # one may be a part of another

    def redact(text: str) -> str:
        for secret in known:
            text = text.replace(secret, "[REDACTED]")
        return text

    return redact


def redacted(text: str, redact: Redact, longest: int = LONGEST) -> str:
    """Return a text without secrets, cut with a mark. Only the beginning of a long text is read."""
    seen = text[: longest + _MARGIN]
    clean = redact(seen)
    if len(seen) < len(text):
        clean = clean[: max(0, len(clean) - _MARGIN)]  # half a secret may stand at its end
    if len(clean) <= longest and len(seen) == len(text):
        return clean
    return f"{clean[:longest]} [cut: {len(text)} characters in all]"


def recordable(arguments: JsonObject, redact: Redact) -> JsonObject:
    """Return arguments, names included, as they may be recorded: valid JSON, whatever a model has sent."""
    return _Copier(redact).table(arguments, 0)


@dataclass(slots=True)
class _Copier:
    """A copier of values with a limit on their number."""

    redact: Redact
    left: int = _MOST

    def table(self, table: JsonObject, depth: int) -> JsonObject:
        copy: JsonObject = {}
        for number, (name, value) in enumerate(table.items()):
            if self.left <= 0:
                copy["[left out]"] = f"{len(table) - number} more"
                break
            key = redacted(name, self.redact, 100)
            copy[f"{key}#{number}" if key in copy else key] = self._value(value, depth)
        return copy

    def _value(self, value: Json, depth: int) -> Json:
        self.left -= 1
        match value:
            case str():
                return redacted(value, self.redact)
            case dict() | list() if depth == _DEEPEST:
                return "[left out: too deep]"
            case dict():
                return self.table(value, depth + 1)
            case list():
                row: list[Json] = []
                for number, each in enumerate(value):
                    if self.left <= 0:
                        row.append(f"[left out: {len(value) - number} more]")
                        break
                    row.append(self._value(each, depth + 1))
                return row
            case float() if not math.isfinite(value):
                return str(value)
            case int() if value.bit_length() > _WIDEST_NUMBER:
                return f"[a number of {value.bit_length()} bits]"
            case _:
                return value


_HASH: JsonObject = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def audit_schema() -> JsonObject:
    """Return the JSON Schema (2020-12) of a line of the audit file, which `acp-agent schema audit` prints."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - only this command needs it, and it is slow to load

    made = cast("JsonObject", TypeAdapter[Record](Record).json_schema(mode="serialization"))
    for definition in cast("dict[str, JsonObject]", made["$defs"]).values():
        _as_on_disk(definition)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of acp-agent's audit file",
        "type": "object",
        "properties": {
            "seq": {"type": "integer", "minimum": 1, "description": "The record's number, through all files."},
            "ts": {"type": "string", "format": "date-time", "description": "When it was written, in UTC."},
            "prev": {**_HASH, "description": "The hash of the record before; zeros for the first."},
            "hash": {**_HASH, "description": "SHA-256 of the line's bytes in front of this member and its comma."},
        },
        "required": ["seq", "ts", "prev", "hash"],
        "unevaluatedProperties": False,
        **made,
    }


def _as_on_disk(definition: JsonObject) -> None:
    """Describe what is written: None is left out, and the member that names the kind of a record is always there."""
    required = cast("list[str]", definition.get("required", []))
    properties = cast("dict[str, JsonObject]", definition.get("properties", {}))
    for name, schema in properties.items():
        schema.pop("title", None)
        fixed = schema.pop("default", None) is not None
        if fixed or name in KEPT:
            required.append(name)
        elif name not in required:
            [only] = [each for each in cast("list[JsonObject]", schema.pop("anyOf")) if each != {"type": "null"}]
            schema.update(only)
    if properties and "kind" not in properties:  # a record has the members of every line, too
        definition["additionalProperties"] = False
    if required:
        definition["required"] = list(required)
