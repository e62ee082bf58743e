"""The configuration file that `acp-agent config init` starts: every setting explained, none of them set."""

import textwrap
from typing import cast

from acp_agent.cli.toml import toml_value
from acp_agent.config.keys import PROVIDERS, RULES, Key, keys
from acp_agent.config.mcp_settings import SERVERS

_HEAD = """\
# Configuration of acp-agent.
#
# Every setting is here with its default or an example; take the # off to set it. Each can also be set by an
# environment variable ACP_AGENT_<SECTION>__<KEY>, such as ACP_AGENT_TOOLS__SHELL__TIMEOUT. A project's own
# .acp-agent/config.toml can make what is said here stricter, never looser. `acp-agent config show` prints what
# is in force.
"""
_WIDTH = 110


def template() -> str:
    """The file's text. Lines that start with `#` and no blank are settings, the other comments explain."""
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


def _example(key: Key) -> object:
    """The default, where there is one to show, else an example."""
    return key.default or next(iter(key.info.examples or []), key.default)


def _explained(key: Key) -> list[str]:
    may = key.project_may
    text = f"{key.info.description} A project may set {may.words}." if may else f"{key.info.description}"
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _tables(name: str, entries: list[dict[str, object]]) -> list[str]:
    lines: list[str] = []
    for entry in entries:
        lines += [f"#[[{name}]]", *(f"#{field} = {toml_value(value)}" for field, value in entry.items())]
    return lines
