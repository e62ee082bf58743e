"""`acp-agent check --stdin`: one JSON object a line in, one verdict a line out."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn, TextIO, TypeAlias, cast

import anyio

from acp_agent.cli.check.path import verdict as path_verdict
from acp_agent.config.tool_settings import ScrapeSettings
from acp_agent.core.errors import ConfigError, ToolError, ToolErrorCategory
from acp_agent.core.types import Json, JsonObject
from acp_agent.core.wrapper import Gate
from acp_agent.execution.roots import Roots

if TYPE_CHECKING:
    from acp_agent.cli.check.command import CommandJudge


Commands: TypeAlias = Callable[[], "CommandJudge"]
"""Gives what judges commands; called at the first one, since the parser is slow to load."""

Gates: TypeAlias = Callable[[], Sequence[Gate]]
"""Gives what judges paths beside the directories; called at the first one."""


def _none() -> Sequence[Gate]:
    return ()


def judge_lines(
    lines: Iterable[bytes],
    out: TextIO,
    roots: Roots,
    scrape: ScrapeSettings,
    commands: Commands | None = None,
    gates: Gates = _none,
    *,
    only_commands: bool = False,
) -> None:
    """Print a verdict for each line as it comes, flushed. A line that asks nothing sensible gets a reason.

    {"path": ..., "write": true} is judged as `check.path.verdict` does, {"url": ..., "dns": {HOST: [[IP, ...], ...]}}
    as `check.url.verdict` does, {"command": ..., "rules": [{"pattern": ..., "action": ...}, ...]} as
    `check.command.CommandJudge` does, by the configured rules where it names none; other members are ignored.

    only_commands   a line that asks nothing sensible is an error, as it is when it names a command; else it is denied
    """
    for number, line in enumerate(lines, start=1):
        about_command = only_commands
        try:
            asked = _object(line)
            about_command = about_command or "command" in asked
            found = _judged(asked, roots, scrape, commands, gates)
        except ToolError as error:
            reason = f"line {number}: {error}"
            found = _mistaken(reason) if about_command else _denied(reason, error.failure.category)
        print(json.dumps(found), file=out, flush=True)


def _judged(
    asked: JsonObject, roots: Roots, scrape: ScrapeSettings, commands: Commands | None, gates: Gates
) -> JsonObject:
    if sum(kind in asked for kind in ("path", "url", "command")) != 1:
        raise _invalid('expected either "path" or "url", or "command"')
    if "command" in asked and commands is not None:
        return _command(asked, commands())
    if "path" in asked:
        write = asked.get("write", False)
        if not isinstance(write, bool):
            raise _mismatch(f'"write": expected true or false, got {_kind(write)}')
        return path_verdict(asked["path"], roots, write=write, gates=gates())
    from acp_agent.cli.check import url  # noqa: PLC0415 - its client is slow to load

    # A loop a line: between lines nothing runs, and Ctrl-C ends the wait for the next one.
    return anyio.run(url.verdict, asked["url"], scrape, _dns(asked.get("dns")))


def _command(asked: JsonObject, judge: "CommandJudge") -> JsonObject:
    text, given = asked["command"], asked.get("rules")
    if not isinstance(text, str):
        raise _mismatch(f'"command": expected a string, got {_kind(text)}')
    try:
        return judge.verdict(text, None if given is None else judge.rules_of(given)).to_json()
    except ConfigError as error:
        raise _invalid(str(error)) from None


def _object(line: bytes) -> JsonObject:
    try:
        value: Json = json.loads(line.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"expected JSON in UTF-8: {error}") from None
    if not isinstance(value, dict):
        raise _mismatch(f"expected a JSON object, got {_kind(value)}")
    return value


def _dns(value: Json) -> dict[str, list[list[str]]] | None:
    """Scripted look-ups, or None for real ones."""
    if value is None:
        return None
    lookups = list(value.values()) if isinstance(value, dict) else [None]
    answers = [answer for lookup in lookups for answer in (lookup if isinstance(lookup, list) else [None])]
    addresses = [address for answer in answers for address in (answer if isinstance(answer, list) else [None])]
    if not all(isinstance(address, str) for address in addresses):
        raise _mismatch('"dns": expected an object of host names, each with a list of lists of IP addresses')
    return cast("dict[str, list[list[str]]]", value)


def _denied(reason: str, category: ToolErrorCategory) -> JsonObject:
    return {"verdict": "deny", "reason": reason, "category": category.value}


def _mistaken(reason: str) -> JsonObject:
    return {"verdict": "error", "reason": reason}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case dict():
            return "an object"


def _invalid(message: str) -> ToolError:
    return ToolError(ToolErrorCategory.INVALID_PARAMETERS, message)


def _mismatch(message: str) -> ToolError:
    return ToolError(ToolErrorCategory.TYPE_MISMATCH, message)
