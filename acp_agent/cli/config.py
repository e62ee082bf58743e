"""`acp-agent config show|path|init` and `acp-agent schema NAME`.

They print the settings in force as TOML, the path of the file, and the JSON schemas in `schemas/`, or write a new file
with comments.
"""

import argparse
import json
import math
import os
import re
import sys
import tempfile
import textwrap
from typing import cast

from acp_agent.config.agents_settings import EXTERNAL_AGENTS
from acp_agent.config.files import config_file
from acp_agent.config.layers import PROVIDERS, RULES, SettingKey, keys
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.config.mcp_settings import SERVERS
from acp_agent.config.section import Section, one_line
from acp_agent.config.settings import config_schema
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import JsonObject
from acp_agent.text import visible_lines

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_value(value: object) -> str:
    """Return a text, boolean, number, list or table as TOML on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int():
            return str(value)
        case float():
            return str(int(value)) if math.isfinite(value) and value.is_integer() else str(value)
        case Section():
            return toml_value(value.model_dump(exclude_none=True))
        case list() | tuple():
            return "[" + ", ".join(toml_value(item) for item in cast("list[object]", value)) + "]"
        case dict():
            table = cast("dict[str, object]", value)
            return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in table.items()) + " }"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")


def toml_key(name: str) -> str:
    """Return a TOML key, quoted if necessary."""
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    """Return a quoted TOML string. Unprintable characters are written as escapes, so that a terminal shows them."""
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(character if character.isprintable() else f"\\U{ord(character):08X}" for character in quoted)


_HEAD = """\
# Configuration of acp-agent.
#
# This file lists every setting with its default or an example. Remove the # in front of a setting to set it. An
# environment variable ACP_AGENT_<SECTION>__<KEY>, such as ACP_AGENT_TOOLS__SHELL__TIMEOUT, sets it as well. A
# project's own .acp-agent/config.toml can make these settings stricter, never looser. `acp-agent config show`
# prints the settings in force.
"""
_WIDTH = 110


def template() -> str:
    """Return the text of a new file. `#` without a blank starts a setting, `# ` an explanation."""
    lines, table = [_HEAD.rstrip()], ""
    for key in (key for key in keys().values() if key.name not in (PROVIDERS, SERVERS, RULES)):
        parent, _, field = key.name.rpartition(".")
        if parent != table:
            lines += ["", f"[{parent}]"]
        lines += [*_explained(key), f"#{field} = {toml_value(_example(key))}"]
        table = parent
    rules = cast("dict[str, list[dict[str, object]]]", _example(keys()[RULES]))
    for name in (PROVIDERS, SERVERS):
        entries = cast("list[dict[str, object]]", _example(keys()[name]))
        lines += ["", *_explained(keys()[name]), *_tables(name, entries)]
    lines += ["", *_explained(keys()[RULES])]
    for tool, entries in rules.items():
        lines += _tables(f"{RULES}.{tool}", entries)
    return "\n".join(lines) + "\n"


def _example(key: SettingKey) -> object:
    """Return the default, or an example if the default is empty."""
    return key.default or next(iter(key.info.examples or []), key.default)


def _explained(key: SettingKey) -> list[str]:
    may = key.project_may
    text = f"{key.info.description} A project may set {may.words}." if may else f"{key.info.description}"
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _tables(name: str, entries: list[dict[str, object]]) -> list[str]:
    lines: list[str] = []
    for entry in entries:
        lines += [f"#[[{name}]]", *(f"#{field} = {toml_value(value)}" for field, value in entry.items())]
    return lines


_LONGEST_ORIGIN = 2000  # characters; an origin may hold two paths


def warn(problem: object) -> None:
    """Print a problem on stderr."""
    print(f"acp-agent: {visible_lines(str(problem))}", file=sys.stderr)


def loaded_for(args: argparse.Namespace, cwd: str | None = None) -> Loaded:
    """Load the configuration that the arguments name, with that of the project in `cwd`. Print its problems."""
    loaded = load(Flags(config=args.config), os.environ, cwd)
    for problem in loaded.problems:
        warn(problem)
    return loaded


def config(args: argparse.Namespace) -> int:
    """Do what `args.action` says. Return 1 if the configuration has problems. Raises ConfigError."""
    match args.action:
        case "path":
            print(config_file(args.config, os.environ))
            return 0
        case "init":
            path = config_file(args.config, os.environ)
            write_new(path, template())
            print(f"Wrote {path}")
            return 0
        case _:
            loaded = load(Flags(config=args.config), os.environ, os.getcwd())
            print("\n".join(shown_lines(loaded)))
            for problem in loaded.problems:
                warn(problem)
            return 1 if loaded.problems else 0


def shown_lines(loaded: Loaded) -> list[str]:
    """Return the settings in force as TOML, each with its origin. API keys are not shown, only their variables."""
    there = "" if os.path.exists(loaded.file) else " (does not exist)"
    lines = [f"# file: {one_line(loaded.file, longest=_LONGEST_ORIGIN)}{there}"]
    for name in keys():
        if name == PROVIDERS:
            entries = loaded.settings.llm.providers
            shown = (f"  {toml_value(each)}, # {_origin(loaded, f'{name}.{each.name}')}" for each in entries)
            lines += [f"{PROVIDERS} = [", *shown, "]"]
        elif name == SERVERS:
            tables = [server.shown() for server in loaded.settings.mcp.servers]
            lines.append(f"{name} = {toml_value(tables)} # {_origin(loaded, name)}")
        elif name == EXTERNAL_AGENTS:
            tables = [agent.shown() for agent in loaded.settings.agents.external]
            lines.append(f"{name} = {toml_value(tables)} # {_origin(loaded, name)}")
        elif name == RULES:
            for tool, rules in loaded.settings.tools.permissions.items():
                tables = [rule.model_dump() for rule in rules]
                lines.append(f"{name}.{tool} = {toml_value(tables)} # {_origin(loaded, f'{name}.{tool}')}")
        else:
            value: object = loaded.settings
            for step in name.split("."):
                value = getattr(value, step)
            lines.append(
                f"# {name} is not set" if value is None else f"{name} = {toml_value(value)} # {_origin(loaded, name)}"
            )
    return lines


def _origin(loaded: Loaded, name: str) -> str:
    return one_line(loaded.origins.get(name, "default"), longest=_LONGEST_ORIGIN)


def write_new(path: str, text: str) -> None:
    """Create a file with mode 0600 atomically. Raises ConfigError if it exists or cannot be written."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=".config-") as draft:
            draft.write(text)
            draft.flush()
            os.fsync(draft.fileno())
            os.link(draft.name, path)  # unlike a rename, a link never replaces a file
    except OSError as error:
        problem = f"expected a folder in which the file can be written: {error.strerror}"
        if isinstance(error, FileExistsError) and os.path.isdir(folder):
            problem = "the file exists already; edit it, or name another file with --config"
        raise ConfigError(path, "", "", problem) from error


def schema(args: argparse.Namespace) -> int:
    """Print the schema of the configuration, the filter rules or an audit line, or the tools with their schemas."""
    print(schema_text(_document(args.name)), end="")
    return 0


def _document(name: str) -> JsonObject:
    # The modules of the schemas are slow to load, and other subcommands import this module.
    match name:
        case "audit":
            from acp_agent.store.audit_record import audit_schema  # noqa: PLC0415

            return audit_schema()
        case "config":
            return config_schema()
        case "filter-rules":
            from acp_agent.output.filters.rule_file import filter_rules_schema  # noqa: PLC0415

            return filter_rules_schema()
        case "run":
            from acp_agent.cli.turn_end import run_schema  # noqa: PLC0415

            return run_schema()
        case _:
            from acp_agent.tools.registry import catalogue  # noqa: PLC0415

            return catalogue()


def schema_text(document: JsonObject) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
