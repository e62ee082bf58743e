"""Which key a model is asked with."""

import pytest

from acp_agent.config.llm_settings import ProviderSettings, ProviderType
from acp_agent.core.errors import ConfigError
from acp_agent.llm.models import ModelLimits
from acp_agent.llm.provider_config import ProviderConfig, endpoint_of

LIMITS = ModelLimits(context_window=1000, max_output=100)
OF_VARIABLE, STORED = "sk-obviously-fake-1", "sk-obviously-fake-2"


class Drawer:
    """What people have stored, by provider and address; counts who looks."""

    def __init__(self, keys: dict[tuple[str, str], str]) -> None:
        self.keys = keys
        self.looked = 0

    def has(self, provider: str, base_url: str) -> bool:
        return (provider, base_url) in self.keys

    def key(self, provider: str, base_url: str) -> str:
        self.looked += 1
        return self.keys.get((provider, base_url), "")


def config(drawer: Drawer, environ: dict[str, str] | None = None, **fields: str) -> ProviderConfig:
    settings = ProviderSettings(name="a", type=ProviderType.ANTHROPIC, api_key_env="A_KEY", **fields)
    return ProviderConfig.of(settings, environ or {}, drawer)


def test_a_variable_goes_first_and_nobody_looks_further():
    drawer = Drawer({("a", ""): STORED})
    endpoint = endpoint_of(config(drawer, {"A_KEY": OF_VARIABLE}), "m", LIMITS)
    assert (endpoint.api_key, endpoint.key_source) == (OF_VARIABLE, "A_KEY")
    assert drawer.looked == 0


def test_a_stored_key_stands_in_and_messages_say_where_it_comes_from():
    endpoint = endpoint_of(config(Drawer({("a", ""): STORED})), "m", LIMITS)
    assert (endpoint.api_key, endpoint.key_source) == (STORED, "the key `acp-agent login` stored")


def test_a_key_stored_after_the_provider_was_configured_is_found():
    drawer = Drawer({})
    configured = config(drawer)
    with pytest.raises(ConfigError, match=r"A_KEY: expected an API key .*, or run `acp-agent login --provider a` "):
        endpoint_of(configured, "m", LIMITS)
    drawer.keys["a", ""] = STORED
    assert endpoint_of(configured, "m", LIMITS).api_key == STORED


def test_a_key_for_another_address_is_not_sent():
    drawer = Drawer({("a", ""): STORED})
    assert endpoint_of(config(drawer, base_url="http://127.0.0.1:9"), "m", LIMITS).api_key == ""


def test_a_configuration_shows_neither_key_nor_drawer():
    assert STORED not in repr(config(Drawer({("a", ""): STORED})).with_stored_key())
