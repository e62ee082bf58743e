"""A model that plays a script, for the demo, for tests, and for trying an editor without a key.

The provider remembers nothing between calls. The last user text of the conversation selects the turn, and the number of
answers since then selects the step. So any number of sessions may share one provider, and a repeated request gives the
same answer.

A script is a TOML or JSON file:

[[turns]]
when = "failing test"            # a regular expression on the user's text; absent = any text
loop = true                      # after the last step comes the first one again
[[turns.steps]]                  # one answer of the model each
thought = "..."                  # a string, or a list of chunks
text = ["...", "..."]
tools = [{ name = "bash", arguments = { command = "ls" } }]
delay_ms = 0                     # before each chunk
hang = true                      # never ends after its chunks
error = { kind = "overloaded", message = "..." }
stop = "max_tokens"              # by default tool_use if there are tools, else end
usage = { input = 10, output = 5 }
"""

import json
import re
import tomllib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, cast

import anyio

from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import (
    TURN_CUT_OFF,
    Message,
    ModelDone,
    ModelEvent,
    ModelStop,
    ModelText,
    ModelThought,
    Part,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
    Usage,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.llm.endpoint import read_arguments, write
from acp_agent.shape import AfterValidator, BeforeValidator, Field, Shape, ShapeConfig, ValidationError
from acp_agent.text import packaged_text

PACKAGED: Final = ("demo", "hello")
_VALUE_LIMIT: Final = 80


def _chunks(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise ValueError("a string or a list of strings")  # noqa: TRY004 - reported as an invalid value
    return cast("object", value)


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error
    return value


Chunks = Annotated[tuple[str, ...], BeforeValidator(_chunks)]


def _json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"values that JSON has ({error})") from error
    return value


class _Strict(Shape):
    shape_config = ShapeConfig(strict=False)


class ScriptedCall(_Strict):
    """A tool call. `raw_arguments` imitates a model that writes broken JSON."""

    name: str = Field(min_length=1)
    arguments: Annotated[dict[str, Any], AfterValidator(_json)] = Field(default_factory=dict[str, Any])
    raw_arguments: str | None = None


class ScriptedError(_Strict):
    """A ProviderError that is raised after the chunks of the step. `retry_after` is in seconds."""

    kind: ProviderErrorKind
    message: str
    retry_after: float | None = Field(default=None, ge=0)


class ScriptedUsage(_Strict):
    """The tokens to report. Without it they are estimated at four characters a token."""

    input: int = Field(default=0, ge=0, strict=True)
    output: int = Field(default=0, ge=0, strict=True)


class Step(_Strict):
    """One answer of the model."""

    thought: Chunks = ()
    text: Chunks = ()
    tools: tuple[ScriptedCall, ...] = ()
    delay_ms: int = Field(default=0, ge=0, le=60_000, strict=True)
    hang: bool = Field(default=False, strict=True)
    error: ScriptedError | None = None
    stop: ModelStop | None = None
    usage: ScriptedUsage | None = None

    def check(self) -> None:
        """Raise ValueError if the step says and does nothing."""
        if not (self.thought or self.text or self.tools or self.hang or self.error or self.stop):
            raise ValueError("a step with at least one of thought, text, tools, hang, error, stop")


class Turn(_Strict):
    """The steps of the model for a prompt that `when` matches anywhere, in any case."""

    when: Annotated[str, AfterValidator(_pattern)] = ""
    loop: bool = Field(default=False, strict=True)
    steps: tuple[Step, ...] = Field(min_length=1)


class Script(_Strict):
    """Turns in order of preference. The first that matches is played."""

    turns: tuple[Turn, ...] = Field(min_length=1)


def load_script(reference: str) -> Script:
    """Return a packaged script by name, or a script from a path. Reads a file. Raises ConfigError."""
    where, text = _read(reference)
    try:
        document = json.loads(text) if where.endswith(".json") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        expected = f"valid {'JSON' if where.endswith('.json') else 'TOML'} ({error})"
        raise ConfigError(where, "the file", "", expected) from error
    try:
        return Script.model_validate(document)
    except ValidationError as error:
        raise _config_error(where, error) from error


def _read(reference: str) -> tuple[str, str]:
    if reference in PACKAGED:
        return f"{reference}.toml (packaged)", packaged_text("acp_agent.llm", f"scripts/{reference}.toml")
    try:
        return reference, Path(reference).expanduser().read_text("utf-8")
    except (OSError, ValueError, RuntimeError) as error:  # no text in UTF-8, or no path
        expected = f"a readable script file or one of the packaged scripts {', '.join(PACKAGED)} ({error})"
        raise ConfigError("provider of type scripted", "script", reference, expected) from error


def _config_error(where: str, error: ValidationError) -> ConfigError:
    """Return the first problem as file, key, value and what was expected."""
    first = error.problems[0]
    key = ".".join(str(step) for step in first["loc"]) or "the file"
    match first["type"]:
        case "missing":
            return ConfigError(where, key, "", "a value: the key is required")
        case "extra_forbidden":
            return ConfigError(where, key, repr(first["input"])[:_VALUE_LIMIT], "no such key")
        case _:
            expected = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            return ConfigError(where, key, repr(first["input"])[:_VALUE_LIMIT], expected)


class ScriptedProvider:
    """A Provider without a model. `model` is the name of the script."""

    def __init__(self, name: str, model: str, script: Script, context_window: int) -> None:
        self._name = name
        self._model = model
        self._script = script
        self._context_window = context_window

    @property
    def name(self) -> str:
        return self._name

    @property
    def model(self) -> str:
        return self._model

    @property
    def context_window(self) -> int:
        return self._context_window

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the chunks of the step, then hang, raise its error as a ProviderError, or yield ModelDone."""
        step = self._step(request.messages)
        for chunk in step.thought:
            await anyio.sleep(step.delay_ms / 1000)
            yield ModelThought(chunk)
        for chunk in step.text:
            await anyio.sleep(step.delay_ms / 1000)
            yield ModelText(chunk)
        if step.hang:
            await anyio.sleep_forever()
        if step.error is not None:
            raise ProviderError(step.error.message, kind=step.error.kind, retry_after=step.error.retry_after)
        message = self._message(step, serial=len(request.messages))
        stop = step.stop or (ModelStop.TOOL_USE if step.tools else ModelStop.END)
        yield ModelDone(message, stop, _usage(step, request, message))

    def _step(self, history: Sequence[Message]) -> Step:
        """Return the next step. Raises ProviderError if the script has none."""
        prompt, answers = _position(history)
        for turn in self._script.turns:
            if re.search(turn.when, prompt, re.IGNORECASE):
                if answers < len(turn.steps) or turn.loop:
                    return turn.steps[answers % len(turn.steps)]
                raise ProviderError(
                    f"the script {self._model!r} has only {len(turn.steps)} steps for this prompt",
                    kind=ProviderErrorKind.INVALID_REQUEST,
                )
        raise ProviderError(
            f"the script {self._model!r} has no turn for the prompt {prompt[:80]!r}",
            kind=ProviderErrorKind.INVALID_REQUEST,
        )

    def _message(self, step: Step, serial: int) -> Message:
        parts: list[Part] = []
        if step.thought:
            parts.append(ThoughtPart("".join(step.thought), self._name))
        if step.text:
            parts.append(TextPart("".join(step.text)))
        parts.extend(_tool_use(call, f"call_{serial}_{number}") for number, call in enumerate(step.tools))
        return Message(Role.ASSISTANT, tuple(parts))


def _position(history: Sequence[Message]) -> tuple[str, int]:
    """Return the last prompt of the user and the number of answers it has had. Tool results are not prompts."""
    answers = 0
    for message in reversed(history):
        if message.role is Role.ASSISTANT:
            answers += 1
        elif prompt := _prompt(message):
            return prompt, answers
    return "", answers


def _prompt(message: Message) -> str:
    """Return the user's prompt in a message, or an empty string if it has only tool results and our notes about them.

    After a turn was interrupted, one message holds its tool results, its prompt and the next prompt.
    """
    said: list[str] = []
    for part in reversed(message.parts):
        if isinstance(part, TextPart):
            if part.text.endswith(TURN_CUT_OFF):
                break
            said.insert(0, part.text)
        elif isinstance(part, ToolResultPart):
            return ""
    return "".join(said)


def _tool_use(call: ScriptedCall, call_id: str) -> ToolUsePart:
    if call.raw_arguments is None:
        return ToolUsePart(call_id, call.name, {**call.arguments})
    arguments = read_arguments(call.raw_arguments)
    return ToolUsePart(call_id, call.name, arguments, "" if arguments is not None else call.raw_arguments)


def _usage(step: Step, request: ModelRequest, message: Message) -> Usage:
    if step.usage is not None:
        return Usage(input=step.usage.input, output=step.usage.output)
    said = sum(_size(part) for earlier in request.messages for part in earlier.parts)
    return Usage(input=(len(request.system) + said) // 4, output=sum(map(_size, message.parts)) // 4)


def _size(part: Part) -> int:
    match part:
        case TextPart(text) | ToolResultPart(text=text) | ThoughtPart(text=text):
            return len(text)
        case ToolUsePart():
            return len(part.name) + len(write(part.arguments or {}))
        case _:
            return 0
