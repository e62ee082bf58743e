"""What can be chosen of a model, and what a choice does to its requests."""

from typing import Any

import pytest

from acp_agent.config.llm_settings import Effort, ModelOptions, ProviderType
from acp_agent.core.session_options import DEFAULT, TEMPERATURES, Levels
from acp_agent.llm import provider_config
from acp_agent.llm.models import load_table
from acp_agent.llm.provider_config import ModelInfo, ProviderConfig, endpoint_of
from tests.rows import each_row

TABLE = load_table()
ANTHROPIC, OPENAI, OLLAMA = ProviderType.ANTHROPIC, ProviderType.OPENAI, ProviderType.OLLAMA
SWITCH = ("off", "on")
LOCAL = ("low", "medium", "high")


def thinking(type_: ProviderType, model: str, said: dict[str, Any] | None = None, **fields: Any) -> Levels | None:
    info = None if said is None else ModelInfo("acme", model, model, **said)
    return provider_config.thinking_levels(ProviderConfig("acme", type_, **fields), model, TABLE, info)


@each_row(
    "type_, model, fields, values, usual",
    [
        (ANTHROPIC, "claude-opus-4-6", {}, ("off", "low", "medium", "high", "max"), "high"),
        (ANTHROPIC, "claude-opus-5-5", {}, ("low", "medium", "high", "xhigh", "max"), "medium"),
        (ANTHROPIC, "claude-opus-4-6", {"effort": Effort.LOW}, ("off", "low", "medium", "high", "max"), "low"),
        (ANTHROPIC, "claude-opus-4-6", {"thinking": False}, ("off", "low", "medium", "high", "max"), "off"),
        (OPENAI, "gpt-5.2", {}, ("off", "low", "medium", "high", "xhigh"), "off"),
        (OPENAI, "openai/gpt-5", {}, ("minimal", "low", "medium", "high"), "medium"),
        (OPENAI, "gpt-5.6-terra", {}, (DEFAULT, "off", "low", "medium", "high", "xhigh", "max"), DEFAULT),
        (OPENAI, "gpt-5-pro", {"effort": Effort.LOW}, ("low", "high"), "low"),
        (OPENAI, "house-model", {"thinking": True, "effort": Effort.HIGH}, LOCAL, "high"),
        (OLLAMA, "gpt-oss:20b", {}, LOCAL, "medium"),
        (OLLAMA, "qwen3:8b", {"thinking": True}, SWITCH, "on"),
    ],
)
def test_a_model_has_the_levels_it_takes_and_the_one_in_force(
    type_: ProviderType, model: str, fields: dict[str, Any], values: tuple[str, ...], usual: str
) -> None:
    assert thinking(type_, model, **fields) == Levels(values, usual)


@pytest.mark.parametrize(
    ("type_", "model"),
    [(ANTHROPIC, "claude-haiku-4-5"), (OPENAI, "gpt-4o"), (OLLAMA, "qwen3:8b"), (ProviderType.SCRIPTED, "hello")],
)
def test_a_model_that_cannot_think_or_of_which_nobody_knows_has_none(type_: ProviderType, model: str) -> None:
    assert thinking(type_, model) is None


def test_what_a_server_says_counts_where_nothing_else_is_known() -> None:
    assert thinking(OLLAMA, "qwen3:8b", {"thinking": True}) == Levels(SWITCH, "on")
    assert thinking(OLLAMA, "llama3", {"thinking": False}) is None
    newer = {"thinking": True, "efforts": (Effort.LOW, Effort.HIGH)}
    assert thinking(ANTHROPIC, "claude-next-9", newer) == Levels((DEFAULT, "low", "high"), DEFAULT)


def test_a_temperature_is_for_models_that_do_not_think_and_for_ollamas() -> None:
    def presets(type_: ProviderType, model: str, **fields: Any) -> Levels | None:
        return provider_config.temperature_levels(ProviderConfig("acme", type_, **fields), model, TABLE)

    names = ("precise", "balanced", "creative")
    assert tuple(TEMPERATURES) == names
    assert presets(OPENAI, "gpt-4o") == Levels((DEFAULT, *names), DEFAULT)
    assert presets(OPENAI, "gpt-4o", temperature=0.7) == Levels(names, "balanced")
    assert presets(OLLAMA, "qwen3:8b", temperature=0.3) == Levels((DEFAULT, *names), DEFAULT)
    assert presets(OPENAI, "gpt-5.2") is None
    assert presets(ANTHROPIC, "claude-opus-4-6", thinking=False) is None, "it can be switched on"
    assert presets(ProviderType.SCRIPTED, "hello") is None


@each_row(
    "type_, model, level, sent",
    [
        (ANTHROPIC, "claude-opus-5", "low", {"output_config": {"effort": "low"}}),
        (ANTHROPIC, "claude-opus-5", "off", {"thinking": {"type": "disabled"}}),
        (ANTHROPIC, "claude-opus-4-6", "off", {}),
        (OPENAI, "gpt-5.2", "off", {"reasoning": {"effort": "none"}}),
        (OPENAI, "gpt-5.2", "xhigh", {"reasoning": {"effort": "xhigh"}}),
        (OPENAI, "gpt-5.6-sol", DEFAULT, {}),
    ],
)
def test_every_level_has_its_words_in_the_request(
    type_: ProviderType, model: str, level: str, sent: dict[str, Any]
) -> None:
    config = ProviderConfig("acme", type_, api_key="fake-key")
    config = config.with_options(provider_config.options_for(config, level, ""))
    endpoint = endpoint_of(config, model, TABLE.limits(type_, model), TABLE.efforts_of(model))
    assert endpoint.extra_body == sent
    assert endpoint.thinking is (type_ is OPENAI or level == "low")


def test_ollamas_models_are_told_in_their_own_words() -> None:
    config = ProviderConfig("acme", OLLAMA)
    assert provider_config.options_for(config, "off", "creative") == ModelOptions(thinking=False, temperature=1.0)
    assert provider_config.options_for(config, "on", "") == ModelOptions(thinking=True)
    assert provider_config.options_for(config, "high", "") == ModelOptions(thinking=True, effort=Effort.HIGH)
    assert provider_config.least_thinking(config, "qwen3:8b", TABLE) == ModelOptions(thinking=False)
    assert provider_config.least_thinking(config, "gpt-oss:20b", TABLE).effort is Effort.LOW


def test_the_table_names_only_models_that_think_and_their_own_words() -> None:
    for model, efforts in TABLE.efforts.items():
        limits = TABLE.known(model)
        assert limits is not None, model
        assert limits.thinking, model
        assert efforts.default is None or efforts.default in efforts.levels, model
        assert list(efforts.levels) == [effort for effort in Effort if effort in efforts.levels], "least first"
        assert (efforts.no_thinking is None) or model.startswith("claude-")
