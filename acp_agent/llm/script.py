"""A script of turns, read from TOML or JSON and checked: what `ScriptedProvider` plays.

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
stop = "max_tokens"              # else tool_use where there are tools, else end
usage = { input = 10, output = 5 }
"""

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from acp_agent.core.errors import ConfigError, ProviderErrorKind
from acp_agent.core.messages import ModelStop

PACKAGED: Final = ("demo", "hello")
_VALUE_LIMIT: Final = 80


def _chunks(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        message = "a string or a list of strings"
        raise ValueError(message)  # noqa: TRY004 - pydantic turns this into its own error
    return cast("object", value)


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        message = f"a regular expression ({error})"
        raise ValueError(message) from error
    return value


Chunks = Annotated[tuple[str, ...], BeforeValidator(_chunks)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedCall(_Strict):
    """A tool call. `raw_arguments` plays a model that writes broken JSON."""

    name: str = Field(min_length=1)
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    raw_arguments: str | None = None


class ScriptedError(_Strict):
    """A ProviderError raised after the step's chunks. `retry_after` in seconds."""

    kind: ProviderErrorKind
    message: str
    retry_after: float | None = Field(default=None, ge=0)


class ScriptedUsage(_Strict):
    """Tokens to report; without it they are estimated, four characters each."""

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

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.thought or self.text or self.tools or self.hang or self.error or self.stop):
            message = "a step with at least one of thought, text, tools, hang, error, stop"
            raise ValueError(message)
        return self


class Turn(_Strict):
    """What the model does for a prompt that `when` matches (searched, any case)."""

    when: Annotated[str, AfterValidator(_pattern)] = ""
    loop: bool = Field(default=False, strict=True)
    steps: tuple[Step, ...] = Field(min_length=1)


class Script(_Strict):
    """Turns in order of preference: the first that matches is played."""

    turns: tuple[Turn, ...] = Field(min_length=1)


def load_script(reference: str) -> Script:
    """A packaged script by name, or one from a path. Reads a file. Raises ConfigError."""
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
        resource = files("acp_agent.llm") / "scripts" / f"{reference}.toml"
        return f"{reference}.toml (packaged)", resource.read_text("utf-8")
    try:
        return reference, Path(reference).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        expected = f"a readable script file or one of the packaged scripts {', '.join(PACKAGED)} ({error})"
        raise ConfigError("provider of type scripted", "script", reference, expected) from error


def _config_error(where: str, error: ValidationError) -> ConfigError:
    """The first thing wrong, as file, key, value and what was expected."""
    first = error.errors(include_url=False, include_context=False)[0]
    key = ".".join(str(step) for step in first["loc"]) or "the file"
    match first["type"]:
        case "missing":
            return ConfigError(where, key, "", "a value: the key is required")
        case "extra_forbidden":
            return ConfigError(where, key, repr(first["input"])[:_VALUE_LIMIT], "no such key")
        case _:
            expected = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            return ConfigError(where, key, repr(first["input"])[:_VALUE_LIMIT], expected)
