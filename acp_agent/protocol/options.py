"""Modes and config options of a session (A14, A15). Options are the truth, modes mirror one of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import TypeVar

from acp_agent.core.conduct import (
    DEFAULT,
    OFF,
    ON,
    TEMPERATURES,
    AutoApprove,
    Autonomy,
    Choices,
    Conduct,
    Levels,
    Mode,
    ModelChoice,
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
"""Values an error names."""

_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class _Option:
    """One config option.

    groups    its values, each with a name and, where there is more to say, a description; by the title of their group
    take      puts a new value into the conduct
    accepts   whether a value that is not shown can be chosen all the same
    """

    id: str
    name: str
    description: str
    category: str
    current: str
    groups: Sequence[tuple[str, Sequence[tuple[str, str, str]]]]
    take: Callable[[str], None]
    accepts: Callable[[str], bool] = lambda _: False

    @property
    def values(self) -> list[str]:
        return [value for _, entries in self.groups for value, _, _ in entries]

    @property
    def is_switch(self) -> bool:
        return self.values == [OFF, ON]

    def to_wire(self, *, boolean: bool) -> JsonObject:
        """ACP `SessionConfigOption`, a toggle where the client knows them."""
        told: JsonObject = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "category": self.category,
        }
        if boolean and self.is_switch:
            return {**told, "type": "boolean", "currentValue": self.current == ON}
        groups: list[Json] = [
            {"group": title, "name": title, "options": [*map(_value, entries)]} for title, entries in self.groups
        ]
        flat: list[Json] = [_value(entry) for _, entries in self.groups for entry in entries]
        options = groups if len(groups) > 1 else flat
        return {**told, "type": "select", "currentValue": self.current, "options": options}


def modes(conduct: Conduct) -> JsonObject:
    """ACP `SessionModeState`."""
    available: list[Json] = [
        {"id": mode.value, "name": name, "description": description} for mode, (name, description) in _MODES.items()
    ]
    return {"currentModeId": conduct.mode.value, "availableModes": available}


def config_options(conduct: Conduct, choices: Choices, *, boolean: bool) -> list[Json]:
    """Return every option there is for the model in force, the most important first. Always all of them.

    boolean   whether the editor draws options that are on or off as toggles
    """
    return [option.to_wire(boolean=boolean) for option in _options(conduct, choices)]


def set_mode(conduct: Conduct, mode_id: Json) -> None:
    """Raise RpcError on an unknown mode (A14.2)."""
    if not isinstance(mode_id, str) or mode_id not in set(Mode):
        raise invalid_request(f"unknown mode: {_shown(mode_id)}; expected one of {', '.join(Mode)}")
    conduct.choose(mode=Mode(mode_id))


def set_option(conduct: Conduct, config_id: Json, value: Json, choices: Choices) -> None:
    """Change one option; what it is already changes nothing. Raise RpcError on an unknown option or value (A15.3).

    A switch takes true and false whatever it was drawn as, and the words for it (A3.13).
    """
    options = {option.id: option for option in _options(conduct, choices)}
    option = options.get(config_id) if isinstance(config_id, str) else None
    if option is None:
        raise invalid_request(f"unknown config_id: {_shown(config_id)}; expected one of {', '.join(options)}")
    word = _switched(value) if option.is_switch else value
    if word == option.current:
        return
    if not isinstance(word, str) or (word not in option.values and not option.accepts(word)):
        raise _wrong_value(option, value)
    option.take(word)


def _options(conduct: Conduct, choices: Choices) -> list[_Option]:
    own = [*_model_options(conduct, choices, model)] if (model := model_in_force(conduct, choices)) else []
    return [_mode(conduct), *own, _auto_approve(conduct), _autonomy(conduct)]


# ------------------------------------------------------------------------------------------- the model


def _model_options(conduct: Conduct, choices: Choices, model: str) -> Iterable[_Option]:
    def choose(value: str) -> None:
        conduct.choose(model=value)

    def think(value: str) -> None:
        conduct.choose(thought_level=value)

    def heat(value: str) -> None:
        conduct.choose(temperature=value)

    shown = groupby(choices.models(model), key=lambda choice: choice.provider)
    groups = [(provider, [*map(_entry, entries)]) for provider, entries in shown]
    yield _Option("model", "Model", "Which model answers", "model", model, groups, choose, choices.has)
    if levels := choices.thinking(model):
        said = ("thinking", "Thinking", "Whether the model thinks before it answers")
        if not levels.is_switch:
            said = ("thought_level", "Thinking", "How hard the model thinks before it answers")
        current = levels.in_force(conduct.thought_level)
        yield _Option(*said, "thought_level", current, [("", _words(levels))], think)
    if presets := choices.temperature(model):
        current = presets.in_force(conduct.temperature)
        said = ("temperature", "Temperature", "How freely the model chooses its words")
        yield _Option(*said, "model_config", current, [("", _words(presets))], heat)


def _entry(choice: ModelChoice) -> tuple[str, str, str]:
    return choice.value, choice.title, choice.description


def _words(levels: Levels) -> list[tuple[str, str, str]]:
    return [(value, value.capitalize(), _meaning(value)) for value in levels.values]


def _meaning(value: str) -> str:
    if value == DEFAULT:
        return "As configured, or as the server does it by itself"
    return f"{TEMPERATURES[value]:g}" if value in TEMPERATURES else ""


# ---------------------------------------------------------------------------------------- the behaviour


def _mode(conduct: Conduct) -> _Option:
    def take(value: str) -> None:
        conduct.choose(mode=Mode(value))

    return _Option("mode", "Mode", "What the agent may do", "mode", conduct.mode.value, _table(_MODES), take)


def _auto_approve(conduct: Conduct) -> _Option:
    def take(value: str) -> None:
        conduct.choose(auto_approve=AutoApprove(value))

    said = ("auto_approve", "Auto-approve", "What runs without asking", "_behavior")
    return _Option(*said, conduct.auto_approve.value, _table(_LEVELS), take)


def _autonomy(conduct: Conduct) -> _Option:
    def take(value: str) -> None:
        conduct.choose_autonomy(Autonomy(value))

    description = "How much the agent may do by itself; full and full auto are one thing"
    said = ("autonomy_level", "Autonomy", description, "_behavior")
    return _Option(*said, conduct.autonomy.value, _table(_AUTONOMY), take)


def _table(words: dict[_Word, tuple[str, str]]) -> list[tuple[str, Sequence[tuple[str, str, str]]]]:
    return [("", [(word.value, name, description) for word, (name, description) in words.items()])]


# ------------------------------------------------------------------------------------------ on the wire


def _value(entry: tuple[str, str, str]) -> JsonObject:
    value, name, description = entry
    told: JsonObject = {"value": value, "name": name}
    return {**told, "description": description} if description else told


def _switched(value: Json) -> Json:
    """A switch's word for what stands for it."""
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
