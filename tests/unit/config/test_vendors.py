"""Providers out of the usual variables, and where a key may go."""

import pytest

from acp_agent.config.layers import Layer, Reader
from acp_agent.config.llm_settings import ProviderSettings
from acp_agent.config.vendors import add_vendors, check_models, model_advice
from tests.unit.config.conftest import told

ANTHROPIC, OPENAI = {"ANTHROPIC_API_KEY": "fake-a"}, {"OPENAI_API_KEY": "fake-o"}


def provider(loaded, name: str) -> ProviderSettings:
    return next(provider for provider in loaded.settings.llm.providers if provider.name == name)


def names(loaded) -> list[str]:
    return [provider.name for provider in loaded.settings.llm.providers]


def test_without_any_variable_there_is_only_the_scripted_one(loading):
    assert names(loading()) == ["scripted"]


@pytest.mark.parametrize(
    ("environ", "name", "address", "key", "origin"),
    [
        (ANTHROPIC, "anthropic", None, "ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY"),
        ({"ANTHROPIC_BASE_URL": "http://h/"}, "anthropic", "http://h", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        (OPENAI, "openai", None, "OPENAI_API_KEY", "OPENAI_API_KEY"),
        ({"OPENAI_BASE_URL": "http://h/v1"}, "openai", "http://h/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        (
            OPENAI | {"OPENAI_BASE_URL": "http://h/v1"},
            "openai",
            "http://h/v1",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL, OPENAI_API_KEY",
        ),
        ({"OLLAMA_HOST": "http://h:1"}, "ollama", "http://h:1", None, "OLLAMA_HOST"),
        ({"OLLAMA_HOST": "h:1"}, "ollama", "http://h:1", None, "OLLAMA_HOST"),
        ({"OLLAMA_HOST": ":1"}, "ollama", "http://127.0.0.1:1", None, "OLLAMA_HOST"),
        ({"OLLAMA_HOST": "0.0.0.0"}, "ollama", "http://0.0.0.0", None, "OLLAMA_HOST"),
    ],
)
def test_the_usual_variables_make_a_provider(loading, environ, name, address, key, origin):
    loaded = loading(environ=environ)
    assert names(loaded) == [name, "scripted"]
    found = provider(loaded, name)
    assert (found.base_url, found.api_key_env) == (address, key)
    assert loaded.origins[f"llm.providers.{name}"] == origin


def test_the_rig_needs_no_key(loading):
    loaded = loading(environ={"ACP_AGENT_MODEL": "openai:fake-model", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    assert not loaded.problems
    assert loaded.settings.llm.model == "openai:fake-model"
    assert provider(loaded, "openai").api_key({}) == ""


def test_a_variable_with_an_unusable_address_is_told_and_makes_no_provider(loading):
    loaded = loading(environ=OPENAI | {"OPENAI_BASE_URL": "http://user:geheim@h/v1"})
    assert names(loaded) == ["scripted"]
    (problem,) = told(loaded)
    assert problem.startswith('environment: OPENAI_BASE_URL = "http://***@h/v1": expected an http')


def test_a_configured_provider_keeps_its_name_and_takes_its_vendors_variables(loading):
    loaded = loading(
        "[[llm.providers]]\nname = 'openai'\ntype = 'openai'\ntimeout = 5",
        environ=OPENAI | {"OPENAI_BASE_URL": "http://h/v1"},
    )
    assert names(loaded) == ["openai", "scripted"]
    found = provider(loaded, "openai")
    assert (found.base_url, found.api_key_env, found.timeout) == ("http://h/v1", "OPENAI_API_KEY", 5)
    assert found.api_key(OPENAI) == "fake-o"


def test_a_key_goes_only_where_its_owner_named_an_address_for_it(loading):
    loaded = loading(
        """
        [[llm.providers]]
        name = "local"
        type = "openai"
        base_url = "http://127.0.0.1:1/v1"
        [[llm.providers]]
        name = "corp"
        type = "openai"
        api_key_env = "CORP_KEY"
        """,
        environ=OPENAI | {"OPENAI_BASE_URL": "http://elsewhere/v1", "CORP_KEY": "fake-c"},
    )
    assert provider(loaded, "local").api_key(OPENAI) == "", "an own address gets no key that was not named with it"
    assert provider(loaded, "corp").base_url is None, "and a key named for a vendor goes to the vendor"


def test_a_user_may_configure_another_scripted_provider(loading):
    loaded = loading("[[llm.providers]]\nname = 'scripted'\ntype = 'scripted'\nscript = '/s.toml'")
    assert [p.script for p in loaded.settings.llm.providers] == ["/s.toml"]


EXPECTED = (
    "expected a provider before the colon: anthropic, ollama, openai, scripted, or one of your own under "
    "[[llm.providers]]"
)


def test_models_of_unknown_providers_are_told_and_left_out():
    layer, reader = Layer(), Reader()
    for name, value in {
        "llm.model": "x:a",
        "llm.embedding_model": "scripted:e",
        "llm.fallback": ("scripted:b", "y:c", "scripted:d"),
    }.items():
        layer.put(name, value, "~/config.toml")
    add_vendors(reader, layer, {})
    check_models(reader, layer)
    assert [str(problem) for problem in reader.problems] == [
        f'~/config.toml: llm.model = "x:a": {EXPECTED}',
        f'~/config.toml: llm.fallback = "y:c": {EXPECTED}',
    ]
    assert "llm.model" not in layer.values
    assert layer.values["llm.embedding_model"] == "scripted:e"
    assert layer.values["llm.fallback"] == ("scripted:b", "scripted:d")


def test_an_unknown_first_model_of_those_available_is_told_once_and_not_chosen():
    layer, reader = Layer(), Reader()
    layer.put("acp.available_models", ("x:a", "scripted:b", "y:c"), "~/config.toml")
    add_vendors(reader, layer, {})
    check_models(reader, layer)
    assert [str(problem) for problem in reader.problems] == [
        f'~/config.toml: acp.available_models = "x:a": {EXPECTED}',
        f'~/config.toml: acp.available_models = "y:c": {EXPECTED}',
    ]
    assert "llm.model" not in layer.values


def test_the_first_available_model_is_chosen_only_where_none_is_named():
    for named, chosen in ((None, "scripted:b"), ("scripted:a", "scripted:a"), ("x:a", None)):
        layer, reader = Layer(), Reader()
        layer.put("acp.available_models", ("scripted:b", "y:c"), "~/config.toml")
        if named is not None:
            layer.put("llm.model", named, "~/config.toml")
        add_vendors(reader, layer, {})
        check_models(reader, layer)
        assert layer.values.get("llm.model") == chosen


@pytest.mark.parametrize("vendor", ["anthropic", "openai", "ollama"])
@pytest.mark.parametrize("key", ["llm.model", "llm.embedding_model", "llm.fallback", "acp.available_models"])
def test_a_vendor_that_a_model_names_is_there_without_a_key(vendor, key):
    """Who asks it hears that its key is missing, and editors offer their login (acp.md 1.4)."""
    layer, reader = Layer(), Reader()
    model = f"{vendor}:a"
    layer.put(key, model if key.endswith("model") else (model,), "~/config.toml")
    add_vendors(reader, layer, {})
    check_models(reader, layer)
    assert not reader.problems
    assert [provider.name for provider in layer.providers()] == [vendor, "scripted"]
    assert layer.origins[f"llm.providers.{vendor}"] == "~/config.toml"


def test_a_vendor_whose_address_is_unusable_is_not_asked_at_its_own(loading):
    loaded = loading(environ={"OPENAI_BASE_URL": "http://user:geheim@h/v1", "ACP_AGENT_MODEL": "openai:m"})
    assert names(loaded) == ["scripted"]
    assert loaded.settings.llm.model is None
    unusable, unknown = told(loaded)
    assert "OPENAI_BASE_URL" in unusable
    assert unknown.startswith(
        'ACP_AGENT_MODEL: llm.model = "openai:m": expected a provider before the colon: anthropic'
    )
    assert "openai," not in unknown


def test_no_model_is_guessed_even_when_only_one_provider_is_there(loading):
    loaded = loading(environ=ANTHROPIC)
    assert loaded.settings.llm.model is None
    advice = model_advice(loaded.settings.llm.providers, loaded.file)
    assert "ACP_AGENT_MODEL=anthropic:MODEL" in advice
    assert loaded.file in advice


def test_without_a_provider_the_advice_names_the_variables():
    advice = model_advice((), "/c.toml")
    for word in ("acp-agent login", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST", "/c.toml", "config init"):
        assert word in advice
    assert [line[:2] for line in advice.splitlines()] == ["No", "", "1.", "2."], "no dense paragraph"
