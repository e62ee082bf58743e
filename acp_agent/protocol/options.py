"""The modes and config options of a session. The mode is one of the options, and `modes` repeats it for older clients.

See https://agentclientprotocol.com/protocol/session-modes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import TypeAlias, TypeVar

from acp_agent.core.session_options import (
    DEFAULT,
    OFF,
    ON,
    TEMPERATURES,
    AutoApprove,
    Autonomy,
    Choices,
    Levels,
    Mode,
    SessionOptions,
    model_in_force,
)
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol.jsonrpc import RpcError, invalid_request

_MODES = {
    Mode.CODE: ("Code", "Reads, edits and runs commands"),
    Mode.ARCHITECT: ("Architect", "Reads and plans; changes nothing"),
    Mode.ASK: ("Ask", "Answers questions from what it can read"),
}
_LEVELS = {
    AutoApprove.SUGGEST: ("Suggest", "Asks before every edit and every command"),
    AutoApprove.AUTO_EDIT: ("Auto-edit", "Edits files without asking; asks before commands"),
    AutoApprove.FULL_AUTO: ("Full auto", "Asks nothing; blocked commands stay blocked"),
}
_AUTONOMY = {
    Autonomy.READONLY: ("Read only", "Reads, searches and fetches; nothing else is offered or runs"),
    Autonomy.SUPERVISED: ("Supervised", "Rules and questions decide"),
    Autonomy.FULL: ("Full", "Asks nothing, as full auto; blocked commands stay blocked"),
}
_MOST_NAMED = 20
"""Values that an error message lists."""

_Word = TypeVar("_Word", bound=StrEnum)
_Value: TypeAlias = tuple[str, str, str]
"""A value, its name and its description, which may be empty."""


@dataclass(frozen=True, slots=True)
class _Option:
    """One config option. `groups` has the title and the values of each group."""

    id: str
    name: str
    description: str
    category: str
    current: str
    groups: Sequence[tuple[str, Sequence[_Value]]]

    @property
    def values(self) -> list[str]:
        return [value for _, entries in self.groups for value, _, _ in entries]

    @property
    def is_switch(self) -> bool:
        return self.values == [OFF, ON]

    def to_wire(self, *, boolean: bool) -> JsonObject:
        """Return ACP `SessionConfigOption`. A switch is a toggle if `boolean`, else a selection."""
        about = {"id": self.id, "name": self.name, "description": self.description, "category": self.category}
        option: JsonObject = {**about}
        if boolean and self.is_switch:
            return {**option, "type": "boolean", "currentValue": self.current == ON}
        groups: list[Json] = [
            {"group": title, "name": title, "options": [*map(_select_value, entries)]} for title, entries in self.groups
        ]
        if len(groups) <= 1:
            groups = [_select_value(entry) for _, entries in self.groups for entry in entries]
        return {**option, "type": "select", "currentValue": self.current, "options": groups}


def _select_value(entry: _Value) -> JsonObject:
    value, name, description = entry
    wire: JsonObject = {"value": value, "name": name}
    return {**wire, "description": description} if description else wire


def modes(conduct: SessionOptions) -> JsonObject:
    """Return ACP `SessionModeState`."""
    available: list[Json] = [
        {"id": mode.value, "name": name, "description": description} for mode, (name, description) in _MODES.items()
    ]
    return {"currentModeId": conduct.mode.value, "availableModes": available}


def config_options(conduct: SessionOptions, choices: Choices, *, boolean: bool) -> list[Json]:
    """Return all options that the present model has, the most important first.

    boolean   whether the editor draws options that are on or off as toggles
    """
    return [option.to_wire(boolean=boolean) for option in _options(conduct, choices)]


def set_mode(conduct: SessionOptions, mode_id: Json) -> None:
    """Set the mode. Raises RpcError for an unknown one."""
    if not isinstance(mode_id, str) or mode_id not in set(Mode):
        raise invalid_request(f"unknown mode: {_shown(mode_id)}; expected one of {', '.join(Mode)}")
    conduct.choose(mode=Mode(mode_id))


def set_option(conduct: SessionOptions, config_id: Json, value: Json, choices: Choices) -> None:
    """Set one option. Raises RpcError for an unknown option or value.

    A switch accepts true, false and their words, whether it was drawn as a toggle or not. A model may be one that is
    not listed.
    """
    options = {option.id: option for option in _options(conduct, choices)}
    option = options.get(config_id) if isinstance(config_id, str) else None
    if option is None:
        raise invalid_request(f"unknown config_id: {_shown(config_id)}; expected one of {', '.join(options)}")
    word = _switched(value) if option.is_switch else value
    if word == option.current:
        return
    if not isinstance(word, str) or not (word in option.values or (option.id == "model" and choices.has(word))):
        raise _wrong_value(option, value)
    match option.id:
        case "mode":
            conduct.choose(mode=Mode(word))
        case "model":
            conduct.choose(model=word)
        case "temperature":
            conduct.choose(temperature=word)
        case "auto_approve":
            conduct.choose(auto_approve=AutoApprove(word))
        case "autonomy_level":
            conduct.choose_autonomy(Autonomy(word))
        case _:  # thinking or thought_level
            conduct.choose(thought_level=word)


def _options(conduct: SessionOptions, choices: Choices) -> Iterator[_Option]:
    yield _Option("mode", "Mode", "What the agent may do", "mode", conduct.mode.value, _table(_MODES))
    if model := model_in_force(conduct, choices):
        yield from _model_options(conduct, choices, model)
    names = ("auto_approve", "Auto-approve", "What runs without asking", "_behavior")
    yield _Option(*names, conduct.auto_approve.value, _table(_LEVELS))
    description = "How much the agent may do by itself; full and full auto are one thing"
    names = ("autonomy_level", "Autonomy", description, "_behavior")
    yield _Option(*names, conduct.autonomy.value, _table(_AUTONOMY))


def _model_options(conduct: SessionOptions, choices: Choices, model: str) -> Iterator[_Option]:
    by_provider = groupby(choices.models(model), key=lambda choice: choice.provider)
    models = [(name, [(each.value, each.title, each.description) for each in found]) for name, found in by_provider]
    yield _Option("model", "Model", "Which model answers", "model", model, models)
    if levels := choices.thinking(model):
        names = ("thinking", "Thinking", "Whether the model thinks before it answers")
        if not levels.is_switch:
            names = ("thought_level", "Thinking", "How hard the model thinks before it answers")
        yield _Option(*names, "thought_level", levels.in_force(conduct.thought_level), _levels(levels))
    if presets := choices.temperature(model):
        names = ("temperature", "Temperature", "How freely the model chooses its words")
        yield _Option(*names, "model_config", presets.in_force(conduct.temperature), _levels(presets))


def _levels(levels: Levels) -> list[tuple[str, list[_Value]]]:
    def meaning(value: str) -> str:
        if value == DEFAULT:
            return "As configured, or as the server does it by itself"
        return f"{TEMPERATURES[value]:g}" if value in TEMPERATURES else ""

    return [("", [(value, value.capitalize(), meaning(value)) for value in levels.values])]


def _table(words: Mapping[_Word, tuple[str, str]]) -> list[tuple[str, list[_Value]]]:
    return [("", [(word.value, name, description) for word, (name, description) in words.items()])]


def _switched(value: Json) -> Json:
    """Return the word of a switch for true, false and their spellings, and any other value as it is."""
    if isinstance(value, bool):
        return ON if value else OFF
    return {"true": ON, "false": OFF}.get(value, value) if isinstance(value, str) else value


def _wrong_value(option: _Option, value: Json) -> RpcError:
    values = ["true", "false", *option.values] if option.is_switch else option.values
    more = f" and {len(values) - _MOST_NAMED} more" if len(values) > _MOST_NAMED else ""
    what = "model not in allowed list" if option.id == "model" else f"unknown value for {option.id}"
    return invalid_request(f"{what}: {_shown(value)}; expected one of {', '.join(values[:_MOST_NAMED])}{more}")


def _shown(value: Json) -> str:
    return repr(value)[:80]
