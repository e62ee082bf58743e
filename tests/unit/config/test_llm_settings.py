"""What can be said of models and their providers, and what of it is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.llm_settings import OpenAIApi, ProviderEndpoint, ProviderSettings
from acp_agent.core.errors import ConfigError
from tests.rows import each_row
from tests.unit.config.conftest import told

PROVIDER = "[[llm.providers]]\nname = 'x'\ntype = 'openai'\nbase_url = 'http://127.0.0.1:1/v1'\n"
SECRET = "obviously-fake-0123456789"


def provider(loaded) -> ProviderSettings:
    assert not loaded.problems
    return loaded.settings.llm.providers[0]


def test_a_provider_says_how_all_its_models_are_asked(loading):
    found = provider(
        loading(
            PROVIDER
            + """
            api = "responses"
            temperature = 1
            effort = "high"
            thinking = true
            tools = false
            extra_body = { top_p = 0.9, provider = { order = ["a", "b"] } }
            headers = { X-Title = "acp-agent", HTTP-Referer = "https://example.org" }
            """
        )
    )
    assert (found.api, found.temperature, found.effort) == (OpenAIApi.RESPONSES, 1.0, "high")
    assert (found.thinking, found.tools) == (True, False)
    assert found.extra_body == {"top_p": 0.9, "provider": {"order": ["a", "b"]}}
    assert found.request_headers({}) == {"X-Title": "acp-agent", "HTTP-Referer": "https://example.org"}


@each_row(
    "line, message",
    [
        ("extra_body = { model = 'y' }", "expected no model: the agent sets it itself"),
        ("extra_body = { messages = [] }", "expected no messages"),
        ("extra_body = { input = [] }", "expected no input"),
        ("extra_body = { stream = false }", "expected no stream"),
        ("extra_body = { tools = [] }", "expected no tools"),
        ("extra_body = { num_ctx = 4096 }", "expected no num_ctx: set context_window"),
        ("extra_body = { options = { num_ctx = 4096 } }", "expected no num_ctx: set context_window"),
        ("extra_body = { temperature = 1 }", "expected no temperature: set temperature beside extra_body"),
        ("extra_body = { a = nan }", "expected texts, finite numbers"),
        ("extra_body = { a = [2026-01-01] }", "expected texts, finite numbers"),
        ("extra_body = 5", "extra_body = 5: expected a table"),
        (f"extra_body = {'{ a = ' * 25}1{' }' * 25}", "at most 20 levels deep"),
        ("headers = { Host = 'x' }", "expected no Host: the agent sets it itself"),
        ("headers = { content-LENGTH = '1' }", "expected no content-LENGTH"),
        ("headers = { Transfer-Encoding = 'chunked' }", "expected no Transfer-Encoding"),
        ("headers = { Authorization = 'x' }", "keys go through api_key_env"),
        ("headers = { 'a b' = 'x' }", "expected names such as X-Title, not 'a b'"),
        ('headers = { X-A = "a\\r\\nX-B: c" }', "printable ASCII characters for X-A"),
        ("headers = { X-A = 'ü' }", "printable ASCII characters for X-A"),
        ("headers = { X-A = '' }", "printable ASCII characters for X-A"),
        ("headers = { X-A = '1', x-a = '2' }", "each header once"),
        ("headers = { X-A = 1 }", "headers.X-A = 1: expected text"),
        ("api = 'grpc'", 'api = "grpc": expected one of "auto", "responses", "chat"'),
        ("effort = 'wild'", 'effort = "wild": expected one of "none"'),
        ("temperature = 2.5", "temperature = 2.5: expected a number from 0 to 2"),
        ("keep_alive = '5m'", "expected no keep_alive: only a provider of type ollama"),
    ],
)
def test_what_would_break_a_request_is_refused_by_name(loading, line, message):
    (problem,) = told(loading(PROVIDER + line))
    assert "llm.providers[0]" in problem
    assert message in problem


@pytest.mark.parametrize("type_", ["anthropic", "ollama", "scripted"])
def test_only_openai_has_two_apis(loading, type_):
    (problem,) = told(loading(f"[[llm.providers]]\nname = 'x'\ntype = '{type_}'\napi = 'chat'"))
    assert "expected no api: only a provider of type openai has two" in problem


@pytest.mark.parametrize(("text", "good"), [("30m", True), ("-1", True), ("0", True), ("5", False), ("1d", False)])
def test_how_long_ollama_keeps_a_model(loading, text, good):
    loaded = loading(f"[[llm.providers]]\nname = 'x'\ntype = 'ollama'\nkeep_alive = '{text}'")
    assert bool(loaded.problems) is not good


def test_a_header_may_name_a_variable_and_must_find_it(loading):
    found = provider(loading(PROVIDER + "headers = { CF-Access-Client-Secret = '${MY_SECRET}', X-B = 'v1 ${B}' }"))
    environ = {"MY_SECRET": f"{SECRET}\n", "B": "two"}
    assert found.request_headers(environ) == {"CF-Access-Client-Secret": SECRET, "X-B": "v1 two"}
    with pytest.raises(
        ConfigError, match=r"provider 'x': headers.CF-Access-Client-Secret = \$\{MY_SECRET\}: .* to be set"
    ):
        found.request_headers({"B": "two"})
    with pytest.raises(ConfigError, match="variables of printable ASCII") as caught:
        found.request_headers({"MY_SECRET": f"{SECRET}\r\nX-C: 1", "B": "two"})
    assert SECRET not in str(caught.value)


def test_headers_that_look_like_secrets_are_never_shown(loading):
    line = f"headers = {{ X-Gateway-Token = '{SECRET}', X-Title = 'acp-agent', X-Auth = '${{A}}' }}"
    found = provider(loading(PROVIDER + line))
    assert SECRET not in repr(found) + str(found.model_dump())
    assert found.model_dump()["headers"] == {"X-Gateway-Token": "(hidden)", "X-Title": "acp-agent", "X-Auth": "${A}"}
    assert set(found.secrets({"A": "another-fake-one"})) == {SECRET, "another-fake-one"}


names = st.text(st.sampled_from("aHoOsStcookieTENT-: \r\n\0é"), max_size=14) | st.sampled_from(
    ["Host", "te", "Content-Length", "X-A", "Proxy-Authorization", "cookie", "X-Api-Key"]
)
values = st.text(st.sampled_from("ab {}$\r\n\t\0é"), max_size=6)


@given(headers=st.dictionaries(names, values, max_size=4))
def test_whatever_headers_are_taken_break_no_request(headers):
    try:
        taken = ProviderEndpoint.model_validate({"name": "x", "type": "openai", "headers": headers}).headers
    except ValueError:
        return
    for name, value in (taken or {}).items():
        assert f"{name}: {value}".isprintable()
        assert value == value.strip()
        assert name.lower() not in {"host", "te", "content-length", "cookie", "x-api-key", "proxy-authorization"}


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.dates() | st.binary()
trees = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner), max_leaves=9)
fields = st.dictionaries(st.sampled_from(["model", "input", "tools", "stream", "top_p", "provider"]), trees, max_size=3)


@given(body=fields)
def test_whatever_body_is_taken_is_json_and_leaves_our_fields_alone(body):
    try:
        taken = ProviderEndpoint.model_validate({"name": "x", "type": "openai", "extra_body": body}).extra_body
    except ValueError:
        return
    assert json.loads(json.dumps(taken, allow_nan=False)) == taken
    assert not {"model", "input", "tools", "stream"} & set(taken or {})


def test_a_provider_with_tables_can_be_a_key(loading):
    first, second = (provider(loading(PROVIDER + "extra_body = { a = [1] }")) for _ in range(2))
    assert len({first, second}) == 1


def test_a_model_is_described_by_the_beginning_of_its_name(loading):
    loaded = loading(
        """
        [[llm.models]]
        id = "x:some/model"
        context_window = 64_000
        max_tokens = 4000
        images = false
        price = { input = 1, output = 2.5, cache_read = 0.1 }
        """
    )
    assert not loaded.problems
    (model,) = loaded.settings.llm.models
    assert (model.id, model.context_window, model.max_tokens, model.images) == ("x:some/model", 64_000, 4000, False)
    assert model.price is not None
    assert (model.price.input, model.price.output, model.price.cache_read, model.price.cache_write) == (
        1,
        2.5,
        0.1,
        None,
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("id = 'claude'\nimages = true", 'llm.models[0].id = "claude": expected text that matches'),
        ("id = 'a:b c'\nimages = true", "llm.models[0].id"),
        ("images = true", "llm.models[0].id: expected it to be set"),
        ("id = 'a:b'", "a key besides id"),
        ("id = 'a:b'\nprice = { input = 1 }", "llm.models[0].price.output: expected it to be set"),
        ("id = 'a:b'\nprice = { input = -1, output = 1 }", "expected a number from 0"),
        ("id = 'a:b'\ncontext_window = 10", "context_window = 10: expected a whole number from 1000"),
    ],
)
def test_a_description_that_says_nothing_or_nonsense_is_told(loading, entry, message):
    (problem,) = told(loading(f"[[llm.models]]\n{entry}"))
    assert message in problem


def test_fallbacks_and_the_embedding_model_are_named_like_the_model(loading):
    loaded = loading("[llm]\nmodel = 'scripted:a'\nfallback = ['scripted:b']\nembedding_model = 'scripted:words'")
    assert not loaded.problems
    assert loaded.settings.llm.fallback == ("scripted:b",)
    assert loaded.settings.llm.embedding_model == "scripted:words"
    (problem,) = told(loading("[llm]\nfallback = ['claude']"))
    assert 'llm.fallback[0] = "claude": expected "PROVIDER:MODEL"' in problem
