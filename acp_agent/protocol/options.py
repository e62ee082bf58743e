"""The modes and config options of a session. The mode is one of the options, and `modes` repeats it for older clients.

The mode says how freely the agent may act: it sets the session's mode, approval level and autonomy together.

See https://agentclientprotocol.com/protocol/session-modes.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import TypeAlias, TypeVar

from acp_agent.core.data import frozen
from acp_agent.core.session_options import (
    DEFAULT,
    FREEDOMS,
    OFF,
    ON,
    TEMPERATURES,
    AutoApprove,
    Autonomy,
    Choices,
    Freedom,
    Levels,
    Mode,
    SessionOptions,
    model_in_force,
)
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol.jsonrpc import RpcError, invalid_request
from acp_agent.text import some_of

_NO_MODEL = "none"
"""The value of the model option while no model is chosen."""
_MOST_NAMED = 20
"""The most values that an error message lists."""

_Word = TypeVar("_Word", bound=StrEnum)
_Value: TypeAlias = tuple[str, str, str]
"""A value, its name and its description, which may be empty."""


@frozen
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
        """Return the ACP `SessionConfigOption`. An on/off option is a toggle if `boolean`, else a selection."""
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


def modes(options: SessionOptions) -> JsonObject:
    """Return the ACP `SessionModeState`."""
    available: list[Json] = [
        {"id": each.value, "name": name, "description": description} for each, (name, description) in FREEDOMS.items()
    ]
    return {"currentModeId": options.freedom.value, "availableModes": available}


def config_options(options: SessionOptions, choices: Choices, *, boolean: bool) -> list[Json]:
    """Return all options of the current model, the most important first.

    boolean   whether the editor shows on/off options as toggles
    """
    return [option.to_wire(boolean=boolean) for option in _options(options, choices)]


def set_mode(options: SessionOptions, mode_id: Json) -> None:
    """Set the mode. Raises RpcError for an unknown one."""
    if not isinstance(mode_id, str) or not options.choose_freedom(mode_id):
        raise invalid_request(f"unknown mode: {_shown(mode_id)}; expected one of {', '.join(Freedom)}")


def set_model(options: SessionOptions, model_id: Json, choices: Choices) -> None:
    """Set the model. Raises RpcError for one that cannot be chosen."""
    if not isinstance(model_id, str) or not choices.has(model_id):
        values = [choice.value for choice in choices.models(model_in_force(options, choices))]
        raise invalid_request(f"model not in allowed list: {_shown(model_id)}; expected one of {_named(values)}")
    if model_id != model_in_force(options, choices):
        options.choose(model=model_id)


def set_option(options: SessionOptions, config_id: Json, value: Json, choices: Choices) -> None:
    """Set one option. Raises RpcError for an unknown option or value.

    An on/off option accepts true, false and the words for them, whether it is shown as a toggle or not. The model may
    be one that is not listed. Approval level and autonomy are not shown, but clients that know them may set them.
    """
    offered = {option.id: option for option in _options(options, choices)}
    match config_id:
        case "model" if config_id in offered and value != offered[config_id].current:
            set_model(options, value, choices)
        case "auto_approve":
            options.choose(auto_approve=_word(config_id, value, AutoApprove))
        case "autonomy_level":
            options.choose_autonomy(_word(config_id, value, Autonomy))
        case str() if config_id in offered:
            _set_shown(options, offered[config_id], value)
        case _:
            raise invalid_request(f"unknown config_id: {_shown(config_id)}; expected one of {', '.join(offered)}")


def _set_shown(options: SessionOptions, option: _Option, value: Json) -> None:
    values = ["true", "false", *option.values] if option.is_switch else option.values
    word = _switched(value) if option.is_switch else value
    if word == option.current:
        return
    if not isinstance(word, str) or not (word in option.values or (option.id == "mode" and word in set(Mode))):
        raise _wrong_value(option.id, value, values)
    match option.id:
        case "mode":
            options.choose_freedom(word)
        case "temperature":
            options.choose(temperature=word)
        case _:  # `thinking` or `thought_level`
            options.choose(thought_level=word)


def _options(options: SessionOptions, choices: Choices) -> Iterator[_Option]:
    yield _Option("mode", "Mode", "How freely the agent acts", "mode", options.freedom.value, _table(FREEDOMS))
    model = model_in_force(options, choices)
    by_provider = groupby(choices.models(model), key=lambda choice: choice.provider)
    models = [(name, [(each.value, each.title, each.description) for each in found]) for name, found in by_provider]
    if models and not model:
        models.insert(0, ("none", [(_NO_MODEL, "No model yet", "Choose the model that answers")]))
    if models:
        yield _Option("model", "Model", "Which model answers", "model", model or _NO_MODEL, models)
    if model:
        yield from _model_options(options, choices, model)


def _model_options(options: SessionOptions, choices: Choices, model: str) -> Iterator[_Option]:
    if levels := choices.thinking(model):
        names = ("thinking", "Thinking", "Whether the model thinks before it answers")
        if not levels.is_switch:
            names = ("thought_level", "Thinking", "How hard the model thinks before it answers")
        yield _Option(*names, "thought_level", levels.in_force(options.thought_level), _levels(levels))
    if presets := choices.temperature(model):
        names = ("temperature", "Temperature", "How freely the model chooses its words")
        yield _Option(*names, "model_config", presets.in_force(options.temperature), _levels(presets))


def _levels(levels: Levels) -> list[tuple[str, list[_Value]]]:
    def meaning(value: str) -> str:
        if value == DEFAULT:
            return "As configured, or as the server does it by itself"
        return f"{TEMPERATURES[value]:g}" if value in TEMPERATURES else ""

    return [("", [(value, value.capitalize(), meaning(value)) for value in levels.values])]


def _table(words: Mapping[_Word, tuple[str, str]]) -> list[tuple[str, list[_Value]]]:
    return [("", [(word.value, name, description) for word, (name, description) in words.items()])]


def _switched(value: Json) -> Json:
    """Return "on" or "off" for true, false and their spellings, and any other value unchanged."""
    if isinstance(value, bool):
        return ON if value else OFF
    return {"true": ON, "false": OFF}.get(value, value) if isinstance(value, str) else value


def _word(config_id: str, value: Json, words: type[_Word]) -> _Word:
    if not isinstance(value, str) or value not in set(words):
        raise _wrong_value(config_id, value, [*words])
    return words(value)


def _wrong_value(config_id: str, value: Json, values: Sequence[str]) -> RpcError:
    return invalid_request(f"unknown value for {config_id}: {_shown(value)}; expected one of {_named(values)}")


def _named(values: Sequence[str]) -> str:
    return some_of(values, _MOST_NAMED)


def _shown(value: Json) -> str:
    return repr(value)[:80]
