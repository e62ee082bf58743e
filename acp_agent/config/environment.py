"""Settings from the environment: ACP_AGENT_<SECTION>__<KEY>, and two aliases.

Other programs use the prefix, too (a client's ACP_AGENT_COMMAND, say). A variable of another form is none of ours,
unless its name is nearly one of ours: then somebody relies on it.
"""

import json
from collections.abc import Mapping
from difflib import get_close_matches

from pydantic import ValidationError

from acp_agent.config.keys import RULES, Key, key_of, keys
from acp_agent.config.layers import Layer, Reader
from acp_agent.config.places import CONFIG_VARIABLE, DATA_VARIABLE, FORK_VARIABLE

PREFIX = "ACP_AGENT_"
ALIASES = {"ACP_AGENT_MODEL": "llm.model", "ACP_AGENT_MAX_TOOL_ITERATIONS": "agent.max_tool_iterations"}
_NOT_SETTINGS = (CONFIG_VARIABLE, DATA_VARIABLE, FORK_VARIABLE)
_ALIKE = 0.8
"""How like a name of ours another one must be to be taken for a slip, from 0 to 1."""
_YES_NO = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def read_environment(reader: Reader, environ: Mapping[str, str]) -> Layer:
    """The layer of the environment. An empty variable is an unset one; an alias gives way to the full name."""
    layer = Layer()
    ours = {name: text for name, text in environ.items() if name.startswith(PREFIX) and text}
    for variable in sorted(ours, key=lambda name: (name not in ALIASES, name)):
        key = _key(variable)
        if key is not None:
            # Half a list of rules must not stand in for the whole one of a file.
            reader.take(layer, key, _reading(key, ours[variable]), variable, parts=not key.item)
        elif variable not in _NOT_SETTINGS and (expected := _meant(variable)):
            reader.report("environment", variable, ours[variable], expected)
    return layer


def _meant(variable: str) -> str:
    """Return what a variable should be called that nothing reads; empty for one that is not meant for us."""
    names = (f"{PREFIX}{name.replace('.', '__').upper()}" for name in keys() if name != RULES)
    spelled = {name.replace("__", "_")[len(PREFIX) :]: name for name in (*names, *_NOT_SETTINGS, *ALIASES)}
    name = variable[len(PREFIX) :]
    close = get_close_matches(name.replace("__", "_"), spelled, n=1, cutoff=_ALIKE)
    if close:
        return spelled[close[0]]
    return "a name such as ACP_AGENT_TOOLS__SHELL__TIMEOUT" if "__" in name else ""


def _key(variable: str) -> Key | None:
    if variable in ALIASES:
        return key_of(ALIASES[variable])
    section, separator, field = variable.removeprefix(PREFIX).lower().partition("__")
    name = f"{section}.{field.replace('__', '.')}" if separator else ""
    return key_of(name) if name != RULES else None  # rules are set tool by tool


def _reading(key: Key, text: str) -> object:
    """The text as the value its setting wants: a list as JSON or with commas; else text, yes or no, or JSON."""
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        parsed = text
    if isinstance(key.default, tuple):
        return parsed if text[0] in "[{" else [word.strip() for word in text.split(",") if word.strip()]
    readings = (text, _YES_NO.get(text.lower()), parsed)
    return next((reading for reading in readings if _fits(key, reading)), parsed)


def _fits(key: Key, reading: object) -> bool:
    try:
        key.read(reading)
    except ValidationError:
        return False
    return reading is not None
