"""`acp-agent config show|path|init`."""

import argparse
import os
import sys
import tempfile

from acp_agent.cli.template import template
from acp_agent.cli.toml import toml_value
from acp_agent.config.files import config_file
from acp_agent.config.keys import PROVIDERS, RULES, keys
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.config.masking import one_line
from acp_agent.config.mcp_settings import SERVERS
from acp_agent.config.provider_settings import ProviderSettings
from acp_agent.config.settings import Settings
from acp_agent.core.errors import ConfigError

_LONGEST_ORIGIN = 2000  # characters; two paths and a word


def config(args: argparse.Namespace) -> int:
    """Do what `args.action` says. Raises ConfigError when a file cannot be written."""
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
                print(f"acp-agent: {problem}", file=sys.stderr)
            return 1 if loaded.problems else 0


def shown_lines(loaded: Loaded) -> list[str]:
    """The settings in force as TOML, each with where it comes from. Keys of models are named, never shown."""
    there = "" if os.path.exists(loaded.file) else " (does not exist)"
    lines = [f"# file: {one_line(loaded.file, longest=_LONGEST_ORIGIN)}{there}"]
    for name in keys():
        if name == PROVIDERS:
            lines += ["llm.providers = ["]
            lines += [
                f"  {_provider(entry)}, # {_origin(loaded, f'{name}.{entry.name}')}"
                for entry in loaded.settings.llm.providers
            ]
            lines += ["]"]
        elif name == SERVERS:
            tables = [server.shown() for server in loaded.settings.mcp.servers]
            lines.append(f"{name} = {toml_value(tables)} # {_origin(loaded, name)}")
        elif name == RULES:
            for tool, rules in loaded.settings.tools.permissions.items():
                tables = [rule.model_dump(mode="json") for rule in rules]
                lines.append(f"{name}.{tool} = {toml_value(tables)} # {_origin(loaded, f'{name}.{tool}')}")
        else:
            value = _value(loaded.settings, name)
            lines.append(
                f"# {name} is not set" if value is None else f"{name} = {toml_value(value)} # {_origin(loaded, name)}"
            )
    return lines


def _origin(loaded: Loaded, name: str) -> str:
    return one_line(loaded.origins.get(name, "default"), longest=_LONGEST_ORIGIN)


def _value(settings: Settings, name: str) -> object:
    """The value of a dotted name."""
    value: object = settings
    for step in name.split("."):
        value = getattr(value, step)
    return value


def _provider(provider: ProviderSettings) -> str:
    return toml_value(provider.model_dump(mode="json", exclude_none=True))


def write_new(path: str, text: str) -> None:
    """Create a file, mode 0600, whole or not at all. Raises ConfigError when there is one already."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=".config-") as draft:
            draft.write(text)
            draft.flush()
            os.fsync(draft.fileno())
            _publish(draft.name, path)
    except OSError as error:
        raise ConfigError(path, "", "", f"expected a place to write to: {error.strerror}") from error


def _publish(draft: str, path: str) -> None:
    try:
        os.link(draft, path)  # unlike a rename, this never replaces anything
    except FileExistsError as error:
        raise ConfigError(path, "", "", "exists already; edit it, or name another file with --config") from error
