"""How a turn of `run` ended, and what programs read of it: the lines of `run --json`.

`acp-agent schema run` prints the schema of the lines.
"""

from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Literal,
    NamedTuple,
    TypedDict,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from acp_agent.capabilities import at
from acp_agent.cli.agent_process import AgentRefused
from acp_agent.cli.session_text import dollars
from acp_agent.core.data import frozen
from acp_agent.core.types import JsonObject

if TYPE_CHECKING:
    from acp_agent.cli.editor import Editor


class TurnOutcome(StrEnum):
    """How a turn ended."""

    DONE = "done"
    ERROR = "error"
    REFUSED = "refused"
    LIMIT = "limit"
    CANCELLED = "cancelled"


ExitCode = Literal[0, 1, 3, 130]
EXIT_CODES: dict[TurnOutcome, ExitCode] = {
    TurnOutcome.DONE: 0,
    TurnOutcome.ERROR: 1,
    TurnOutcome.REFUSED: 3,
    TurnOutcome.LIMIT: 3,
    TurnOutcome.CANCELLED: 130,
}
STOPS = {
    "end_turn": TurnOutcome.DONE,
    "max_tokens": TurnOutcome.LIMIT,
    "max_turn_requests": TurnOutcome.LIMIT,
    "refusal": TurnOutcome.REFUSED,
    "cancelled": TurnOutcome.CANCELLED,
}


class SessionLine(TypedDict):
    """The session, before its first update."""

    type: Literal["session"]
    sessionId: Annotated[str, "The session's id, for --resume."]
    cwd: Annotated[str, "The folder of the session."]
    resumed: Annotated[bool, "Whether the session is continued."]


class UpdateLine(TypedDict):
    """A session/update of the agent, as it came."""

    type: Literal["update"]
    sessionId: Annotated[str, "The session's id."]
    update: Annotated[dict[str, object], "The member `update` of ACP's session/update."]


class QuestionLine(TypedDict):
    """A permission question, which was refused because nobody can be asked."""

    type: Literal["question"]
    toolCall: Annotated[dict[str, object], "The member `toolCall` of ACP's session/request_permission."]
    refused: Literal[True]


class TurnUsage(TypedDict):
    """The tokens of the turn, with ACP's names. `inputTokens` excludes those read from or written to a cache."""

    inputTokens: int
    outputTokens: int
    cachedReadTokens: int
    cachedWriteTokens: int


class ResultLine(TypedDict):
    """How the turn ended. It is always the last line, also where the agent could not be started."""

    type: Literal["result"]
    outcome: Annotated[
        Literal["done", "error", "refused", "limit", "cancelled"],
        "done; error: `error` says which; refused: by the model, or a question was refused because nobody could be "
        "asked; limit: of tokens or of model requests; cancelled: by Ctrl-C.",
    ]
    exitCode: Annotated[ExitCode, "The exit code of the process."]
    stopReason: Annotated[str, "ACP's stop reason; empty if the turn did not end."]
    error: Annotated[str | None, "What went wrong."]
    text: Annotated[str, "What the agent said after its last tool call."]
    sessionId: Annotated[str, "The session's id; empty if none was opened."]
    durationMs: Annotated[int, "The duration of the turn, in milliseconds."]
    usage: Annotated[TurnUsage | None, "The tokens of the turn; null if they are not known."]
    cost: Annotated[float | None, "US dollars of the turn; null where no price is known."]


_TYPES: dict[object, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def run_schema() -> JsonObject:
    """Return the JSON Schema (2020-12) of a line of `run --json`, which `acp-agent schema run` prints."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of `acp-agent run --json`",
        "oneOf": [_schema_of(line) for line in (SessionLine, UpdateLine, QuestionLine, ResultLine)],
    }


def _schema_of(kind: object) -> JsonObject:
    """Return the schema of a type that a line is made of."""
    if kind in _TYPES:
        return {"type": _TYPES[kind]}
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {
            "type": "object",
            "description": " ".join((kind.__doc__ or "").split()),
            "properties": {name: _schema_of(hint) for name, hint in hints.items()},
            "required": list(hints),
            "additionalProperties": False,
        }
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if get_origin(kind) is Annotated:
        inner, said = get_args(kind)
        return {**_schema_of(inner), "description": said}
    if get_origin(kind) is dict:
        return {"type": "object"}
    return {"anyOf": [_schema_of(each) for each in get_args(kind)]}


class SessionUsage(NamedTuple):
    """The usage of a session so far. `usage` is None if it is not known, `cost` if a price is not known."""

    usage: TurnUsage | None = TurnUsage(inputTokens=0, outputTokens=0, cachedReadTokens=0, cachedWriteTokens=0)
    cost: float | None = 0.0

    def since(self, before: "SessionUsage") -> "SessionUsage":
        """Return what was used since `before`."""
        if self.usage is None or before.usage is None:
            return SessionUsage(None, None)
        used = TurnUsage(
            inputTokens=self.usage["inputTokens"] - before.usage["inputTokens"],
            outputTokens=self.usage["outputTokens"] - before.usage["outputTokens"],
            cachedReadTokens=self.usage["cachedReadTokens"] - before.usage["cachedReadTokens"],
            cachedWriteTokens=self.usage["cachedWriteTokens"] - before.usage["cachedWriteTokens"],
        )
        return SessionUsage(used, None if self.cost is None else self.cost - (before.cost or 0.0))


async def session_usage(editor: "Editor", session: str) -> SessionUsage:
    """Ask the agent what the session has used so far."""
    try:
        status = await editor.extension("acp_agent/status", {"sessionId": session})
    except AgentRefused:
        return SessionUsage(None, None)
    counts = [at(status, "tally", "usage", name) for name in TurnUsage.__annotations__]
    if not all(isinstance(count, int) for count in counts):
        return SessionUsage(None, None)
    usage = cast("TurnUsage", dict(zip(TurnUsage.__annotations__, counts, strict=True)))
    cost = at(status, "tally", "cost", "amount")
    known = isinstance(cost, int | float) and at(status, "tally", "cost", "complete") is True
    return SessionUsage(usage, float(cast("float", cost)) if known else None)


@frozen
class TurnEnd:
    """The end of a turn: what `--json` and the last line of a terminal say. `cost` is None if no price is known."""

    outcome: TurnOutcome
    stop_reason: str = ""
    error: str = ""
    seconds: float = 0.0
    usage: TurnUsage | None = None
    cost: float | None = None

    def line(self, session: str, text: str) -> ResultLine:
        """Return the last line of `--json`."""
        return {
            "type": "result",
            "outcome": self.outcome.value,
            "exitCode": EXIT_CODES[self.outcome],
            "stopReason": self.stop_reason,
            "error": self.error or None,
            "text": text,
            "sessionId": session,
            "durationMs": round(self.seconds * 1000),
            "usage": self.usage,
            "cost": self.cost,
        }

    def summary(self, session: str) -> str:
        """Return the last line of a turn for the user: tokens, cost, time and session."""
        said = ["cancelled"] if self.outcome is TurnOutcome.CANCELLED else []
        if self.usage is not None and any(self.usage.values()):
            cached = self.usage["cachedReadTokens"]
            total = self.usage["inputTokens"] + self.usage["cachedWriteTokens"] + cached
            said.append(f"{total:,} tokens in{f' ({cached:,} cached)' if cached else ''}")
            said.append(f"{self.usage['outputTokens']:,} out")
        if self.cost is not None:
            said.append(dollars(self.cost))
        return ", ".join([*said, f"{self.seconds:.1f} s, session {session[:8]}"])
