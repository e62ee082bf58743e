"""From configuration to a provider: names, addresses, keys, limits, and what is imported when."""

import subprocess
import sys
from typing import Any

import pytest

from acp_agent.core.errors import ConfigError
from acp_agent.core.types import JsonObject
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType, parse_model
from acp_agent.llm.endpoint import ModelEndpoint
from acp_agent.llm.models import load_table
from tests.rows import each_row

KEY = "fake-key-1234567890"


def endpoint(type_: ProviderType, model: str = "some-model", **fields: Any) -> ModelEndpoint:
    config = ProviderConfig("acme", type_, **{"api_key": KEY, **fields})
    provider = Catalog([config]).build(ModelRef("acme", model))
    found = provider._endpoint  # type: ignore[attr-defined]
    assert isinstance(found, ModelEndpoint)
    return found


@pytest.mark.parametrize(
    ("text", "provider", "model"),
    [
        ("anthropic:claude-x", "anthropic", "claude-x"),
        ("ollama:qwen3:8b", "ollama", "qwen3:8b"),
        ("router:anthropic/claude-x:beta", "router", "anthropic/claude-x:beta"),
        (" a : b ", "a", "b"),
    ],
)
def test_a_model_is_named_by_provider_and_id(text: str, provider: str, model: str) -> None:
    assert parse_model(text) == ModelRef(provider, model)
    assert str(ModelRef(provider, model)) == f"{provider}:{model}"


@each_row("text", ["", "claude-x", ":claude", "anthropic:", "http://127.0.0.1/x", " : "])
def test_anything_else_is_refused_with_the_form_expected(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_model(text)
    assert str(caught.value).startswith("[llm]: model")
    assert "expected PROVIDER:MODEL" in str(caught.value)


def test_an_unknown_provider_names_the_known_ones() -> None:
    catalog = Catalog([ProviderConfig("a", ProviderType.SCRIPTED), ProviderConfig("b", ProviderType.SCRIPTED)])
    with pytest.raises(ConfigError, match=r"model = c:x: expected a configured provider \(a, b\)"):
        catalog.build(ModelRef("c", "x"))
    with pytest.raises(ConfigError, match="none is configured"):
        Catalog([]).build(ModelRef("c", "x"))


@each_row(
    "type_, given, used",
    [
        (ProviderType.ANTHROPIC, "", "https://api.anthropic.com"),
        (ProviderType.ANTHROPIC, "https://proxy.test/v1/", "https://proxy.test"),
        (ProviderType.ANTHROPIC, "https://proxy.test/anthropic", "https://proxy.test/anthropic"),
        (ProviderType.OPENAI, "", "https://api.openai.com/v1"),
        (ProviderType.OPENAI, "http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1"),
        (ProviderType.OLLAMA, "", "http://127.0.0.1:11434"),
        (ProviderType.OLLAMA, "0.0.0.0", "http://127.0.0.1:11434"),
        (ProviderType.OLLAMA, ":9999", "http://127.0.0.1:9999"),
        (ProviderType.OLLAMA, "gpu.test", "http://gpu.test:11434"),
        (ProviderType.OLLAMA, "https://gpu.test", "https://gpu.test:443"),
        (ProviderType.OLLAMA, "[::1]", "http://[::1]:11434"),
        (ProviderType.OLLAMA, "http://gpu.test:1/v1/", "http://gpu.test:1"),
        (ProviderType.OLLAMA, "http://gpu.test:1/ollama", "http://gpu.test:1/ollama"),
        (ProviderType.OLLAMA, "127.0.0.1:11434/v1", "http://127.0.0.1:11434"),
        (ProviderType.OLLAMA, "https://gpu.test/ollama/api/", "https://gpu.test:443/ollama"),
    ],
)
def test_addresses_are_taken_as_users_write_them(type_: ProviderType, given: str, used: str) -> None:
    assert endpoint(type_, base_url=given).base_url == used


@each_row(
    "url",
    [
        "nonsense",
        "ftp://x",
        "https://",
        "https://x:99999",
        "https://x:0",
        "https://u:pass@x/v1",
        "https://x?k=1",
        "https://a b",
        "https://[::1",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        endpoint(ProviderType.OPENAI, base_url=url)
    assert "provider 'acme': base_url = " in str(caught.value)
    assert "pass@" not in str(caught.value)


def test_a_vendor_without_a_key_names_the_variable_and_another_server_needs_none() -> None:
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY: expected an API key"):
        endpoint(ProviderType.ANTHROPIC, api_key="")
    with pytest.raises(ConfigError, match="MY_KEY: expected an API key"):
        endpoint(ProviderType.OPENAI, api_key=" ", api_key_env="MY_KEY")
    assert endpoint(ProviderType.OPENAI, api_key="", base_url="http://127.0.0.1:1").api_key == ""
    assert endpoint(ProviderType.OLLAMA, api_key="").api_key == ""


def test_a_key_is_trimmed_and_one_that_cannot_be_a_header_is_refused_unseen() -> None:
    assert endpoint(ProviderType.OPENAI, api_key=f"{KEY}\n").api_key == KEY
    for key in (f"{KEY}\nx", f"{KEY} x", f"{KEY}é"):
        with pytest.raises(ConfigError) as caught:
            endpoint(ProviderType.OPENAI, api_key=key)
        assert KEY not in str(caught.value)


def test_no_repr_shows_a_key() -> None:
    assert KEY not in repr(ProviderConfig("a", ProviderType.OPENAI, api_key=KEY))
    assert KEY not in repr(endpoint(ProviderType.OPENAI))


def test_limits_come_from_the_configuration_then_the_table_then_the_type() -> None:
    assert endpoint(ProviderType.ANTHROPIC, "claude-opus-5-5").context_window == 1_000_000
    assert endpoint(ProviderType.ANTHROPIC, "claude-opus-5-5").max_tokens == 32_000
    assert endpoint(ProviderType.ANTHROPIC, "claude-opus-5-5").thinking
    assert endpoint(ProviderType.ANTHROPIC, "claude-3-5-haiku-latest").max_tokens == 8_192
    assert not endpoint(ProviderType.ANTHROPIC, "claude-haiku-4-5").thinking
    assert endpoint(ProviderType.ANTHROPIC, "unheard-of").context_window == 200_000
    assert endpoint(ProviderType.OPENAI, "gpt-5.5").context_window == 1_050_000
    assert endpoint(ProviderType.OPENAI, "gpt-5.1-chat-latest").context_window == 128_000
    assert endpoint(ProviderType.OPENAI, "anthropic/claude-sonnet-5").context_window == 1_000_000
    assert endpoint(ProviderType.OPENAI, "gpt-5.5").max_tokens is None
    assert endpoint(ProviderType.OLLAMA, "qwen3:8b").context_window == 32_768
    chosen: JsonObject = {"temperature": 0}
    own = endpoint(ProviderType.OPENAI, "gpt-5.5", context_window=5, max_tokens=6, timeout=7.0, extra_body=chosen)
    assert (own.context_window, own.max_tokens, own.timeout, own.extra_body) == (5, 6, 7.0, chosen)


def test_the_table_is_sane() -> None:
    table = load_table()
    assert set(table.defaults) == {type_.value for type_ in ProviderType}
    for prefix, limits in (*table.models.items(), *table.defaults.items()):
        assert prefix == prefix.lower()
        assert limits.max_output <= limits.context_window
    for name, price in table.prices.items():
        assert table.known(name), "a price is of a model whose size is known"
        assert price.input < price.output
        assert (price.cache_read or 0) < price.input
        assert (price.over_input is None) == (price.over_output is None)


def test_a_script_is_named_by_the_model_or_by_the_configuration() -> None:
    assert Catalog([ProviderConfig("s", ProviderType.SCRIPTED)]).build(ModelRef("s", "demo")).model == "demo"
    named = ProviderConfig("s", ProviderType.SCRIPTED, script="hello", context_window=77)
    provider = Catalog([named]).build(ModelRef("s", "anything"))
    assert (provider.name, provider.model, provider.context_window) == ("s", "anything", 77)
    with pytest.raises(ConfigError, match="packaged scripts"):
        Catalog([ProviderConfig("s", ProviderType.SCRIPTED)]).build(ModelRef("s", "nope"))


class OneKey:
    """A store with the key of one provider."""

    def has(self, provider: str, base_url: str) -> bool:
        return provider == "stored"

    def key(self, provider: str, base_url: str) -> str:
        return KEY if self.has(provider, base_url) else ""


def test_only_the_first_model_of_a_type_and_one_with_a_stored_key_wait_for_the_disk() -> None:
    def config(name: str, type_: ProviderType, **fields: Any) -> ProviderConfig:
        return ProviderConfig(name, type_, base_url="http://localhost:1/v1", stored=OneKey(), **fields)

    openai = ProviderType.OPENAI
    keyed, local = config("keyed", openai, api_key=KEY), config("local", openai)
    others = config("stored", openai), config("script", ProviderType.SCRIPTED, script="hello")
    catalog = Catalog([keyed, local, *others])
    names = "keyed", "local", "stored", "script"
    for at_once in ((False, False, False, False), (True, True, False, False)):
        assert tuple(catalog.builds_at_once(ModelRef(name, "m")) for name in names) == at_once
        for name in names:
            catalog.build(ModelRef(name, "m"))
    with pytest.raises(ConfigError):
        catalog.builds_at_once(ModelRef("nobody", "m"))


LAZY = """
import sys
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType
catalog = Catalog([ProviderConfig("s", ProviderType.SCRIPTED), ProviderConfig("o", ProviderType.OLLAMA)])
catalog.build(ModelRef("s", "hello"))
assert "acp_agent.net.client" not in sys.modules, "a script needs no HTTP"
catalog.build(ModelRef("o", "x"))
assert "acp_agent.net.client" in sys.modules
assert "httpx" not in sys.modules, "it is for proxies"
assert "acp_agent.llm.anthropic" not in sys.modules, "only the adapter that is used"
"""


def test_http_and_an_adapter_are_imported_with_the_first_model_that_needs_them() -> None:
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
