"""Texts as unit vectors: batches, order, and nothing that is no vector."""

import json
import math
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.ports import Embedder
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType
from acp_agent.llm.embeddings import BATCH, LONGEST_TEXT
from tests.fakes.keyrings import OneStoredKey
from tests.fakes.scripted_http import Hang, Reply, ScriptedHttp, Send
from tests.rows import each_row

pytestmark = pytest.mark.anyio

KEY = "fake-key-1234567890"
BOTH = pytest.mark.parametrize("type_", [ProviderType.OLLAMA, ProviderType.OPENAI])


def answer(type_: ProviderType, vectors: Sequence[Any]) -> Reply:
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    document = {"embeddings": vectors} if type_ is ProviderType.OLLAMA else {"object": "list", "data": data}
    return Reply.plain(200, json.dumps(document).encode())


@asynccontextmanager
async def serving(type_: ProviderType, *replies: Reply, **fields: Any) -> AsyncIterator[tuple[Embedder, ScriptedHttp]]:
    async with ScriptedHttp(replies) as server:
        catalog = Catalog([ProviderConfig("acme", type_, **{"base_url": server.url, "api_key": KEY, **fields})])
        with anyio.fail_after(10):
            yield catalog.embedder(ModelRef("acme", "embed-1")), server
        await catalog.aclose()


async def failure(type_: ProviderType, *replies: Reply, texts: Sequence[str] = ("a",), **fields: Any) -> ProviderError:
    async with serving(type_, *replies, **fields) as (embedder, _):
        with pytest.raises(ProviderError) as caught:
            await embedder.embed(texts)
    assert KEY not in str(caught.value)
    return caught.value


@BOTH
async def test_texts_become_unit_vectors_in_their_order(type_: ProviderType) -> None:
    async with serving(type_, answer(type_, [[3, 4], [0, -2.5]])) as (embedder, server):
        assert embedder.model == "acme:embed-1"
        assert await embedder.embed(["one", "two"]) == ((0.6, 0.8), (0.0, -1.0))
    (request,) = server.requests
    body = json.loads(request.body)
    assert (body.pop("model"), body.pop("input")) == ("embed-1", ["one", "two"])
    if type_ is ProviderType.OLLAMA:
        assert (request.path, body) == ("/api/embed", {"truncate": True})
    else:
        assert (request.path, body) == ("/embeddings", {"encoding_format": "float"})
    assert request.headers["authorization"] == f"Bearer {KEY}"


@BOTH
async def test_a_keyring_that_asks_for_a_password_does_not_stop_the_event_loop(type_: ProviderType) -> None:
    keys = OneStoredKey(KEY)
    async with serving(type_, answer(type_, [[1]]), api_key="", stored=keys) as (embedder, server):
        await embedder.embed(["one"])
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert threading.get_ident() not in keys.asked_by


@BOTH
async def test_a_stored_key_that_cannot_be_sent_is_reported_with_the_first_texts(type_: ProviderType) -> None:
    error = await failure(type_, api_key="", stored=OneStoredKey("no key at all"))
    assert error.kind is ProviderErrorKind.NOT_CONFIGURED


@BOTH
async def test_no_text_is_no_request(type_: ProviderType) -> None:
    async with serving(type_, Reply.plain(500, b"")) as (embedder, server):
        assert await embedder.embed([]) == ()
    assert server.requests == []


@BOTH
async def test_many_texts_go_in_batches(type_: ProviderType) -> None:
    replies = [answer(type_, [[1.0, 0.0]] * BATCH), answer(type_, [[0.0, 1.0]])]
    async with serving(type_, *replies) as (embedder, server):
        vectors = await embedder.embed([str(number) for number in range(BATCH + 1)])
    assert [*vectors] == [(1.0, 0.0)] * BATCH + [(0.0, 1.0)]
    assert [len(json.loads(request.body)["input"]) for request in server.requests] == [BATCH, 1]


async def test_a_text_is_cut_and_a_blank_one_is_a_dash() -> None:
    async with serving(ProviderType.OPENAI, answer(ProviderType.OPENAI, [[1], [1]])) as (embedder, server):
        await embedder.embed(["x" * (LONGEST_TEXT + 1), " \n"])
    assert json.loads(server.requests[0].body)["input"] == ["x" * LONGEST_TEXT, "-"]


async def test_vectors_are_put_in_order_by_their_index() -> None:
    data = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]
    for indexed in (True, False):
        entries = data if indexed else [{"embedding": entry["embedding"]} for entry in data]
        reply = Reply.plain(200, json.dumps({"data": entries}).encode())
        async with serving(ProviderType.OPENAI, reply) as (embedder, _):
            expected = ((1.0, 0.0), (0.0, 1.0)) if indexed else ((0.0, 1.0), (1.0, 0.0))
            assert await embedder.embed(["a", "b"]) == expected


async def test_ollama_keeps_the_model_as_long_as_the_user_said() -> None:
    async with serving(ProviderType.OLLAMA, answer(ProviderType.OLLAMA, [[1]]), keep_alive="30m") as (embedder, server):
        await embedder.embed(["a"])
    assert json.loads(server.requests[0].body)["keep_alive"] == "30m"


@BOTH
@each_row(
    "vectors, words",
    [
        ([], "0 vectors for 1 texts"),
        ([[1], [1]], "2 vectors for 1 texts"),
        ([[]], "not a vector"),
        ([None], "not a vector"),
        (["AACAPw=="], "not a vector"),
        ([[1, None]], "not a vector"),
        ([[1, "2"]], "not a vector"),
        ([[True, False]], "not a vector"),
        ([[10**400]], "not a vector"),
        ([[0.1] * 8193], "not a vector"),
        ([[0, 0.0]], "without direction"),
        ([[1.7e308, 1.7e308]], "without direction"),
    ],
)
async def test_what_is_no_vector_is_refused(type_: ProviderType, vectors: list[Any], words: str) -> None:
    error = await failure(type_, answer(type_, vectors))
    assert error.kind is ProviderErrorKind.PROTOCOL
    assert f"acme:embed-1 sent {words}" in str(error).replace("something that is ", "").replace("a vector w", "w")


@BOTH
async def test_nan_is_refused_before_it_is_a_number(type_: ProviderType) -> None:
    reply = answer(type_, [[math.nan]])
    assert "cannot be read" in str(await failure(type_, reply))


@BOTH
async def test_vectors_of_different_lengths_are_never_mixed(type_: ProviderType) -> None:
    assert "after others of 2" in str(await failure(type_, answer(type_, [[1, 2], [1]]), texts=["a", "b"]))
    async with serving(type_, answer(type_, [[1, 2, 3]]), answer(type_, [[1, 2]])) as (embedder, _):
        await embedder.embed(["a"])
        with pytest.raises(ProviderError, match="a vector of 2 numbers after others of 3"):
            await embedder.embed(["b"])


@BOTH
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply.plain(401, b"{}"), ProviderErrorKind.AUTH),
        (Reply.plain(404, b'{"error": "model not found, try pulling it first"}'), ProviderErrorKind.NOT_FOUND),
        (Reply.plain(429, b"{}", retry_after="7"), ProviderErrorKind.RATE_LIMITED),
        (Reply.plain(503, b"{}"), ProviderErrorKind.OVERLOADED),
        (Reply.plain(301, b"", location="http://x/"), ProviderErrorKind.PROTOCOL),
        (Reply.plain(200, b"[1]"), ProviderErrorKind.PROTOCOL),
        (Reply([Send(b"x" * 4_000_000)] * 9), ProviderErrorKind.PROTOCOL),
    ],
)
async def test_errors_have_the_kinds_they_have_elsewhere(
    type_: ProviderType, reply: Reply, kind: ProviderErrorKind
) -> None:
    error = await failure(type_, reply)
    assert error.kind is kind
    assert error.retry_after == (7 if kind is ProviderErrorKind.RATE_LIMITED else None)


async def test_a_server_that_never_ends_its_answer_is_left() -> None:
    error = await failure(ProviderType.OPENAI, Reply([Send(b"{"), Hang()]), timeout=0.05)
    assert error.kind is ProviderErrorKind.TIMEOUT


IDLE = """
import sys
from acp_agent.config.llm_settings import ProviderType
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig
config = ProviderConfig("acme", ProviderType.OLLAMA, base_url="http://127.0.0.1:1")
assert Catalog([config]).embedder(ModelRef("acme", "x")).model == "acme:x"
assert not {"httpx", "acp_agent.llm.embeddings"} & sys.modules.keys()
"""


def test_an_embedder_nobody_asks_costs_no_import() -> None:
    done = subprocess.run([sys.executable, "-c", IDLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_key_that_is_missing_is_told_before_the_first_text() -> None:
    catalog = Catalog([ProviderConfig("acme", ProviderType.OPENAI)])
    with pytest.raises(ConfigError, match="an API key in this environment variable"):
        catalog.embedder(ModelRef("acme", "x"))


@pytest.mark.parametrize("type_", [ProviderType.ANTHROPIC, ProviderType.SCRIPTED])
def test_who_has_no_such_models_says_so(type_: ProviderType) -> None:
    catalog = Catalog([ProviderConfig("acme", type_, api_key=KEY)])
    with pytest.raises(ConfigError, match="embedding_model = acme:x: expected a model of a provider of type openai or"):
        catalog.embedder(ModelRef("acme", "x"))


numbers = st.floats(-1e100, 1e100) | st.integers(-(10**6), 10**6)


@given(vector=st.lists(numbers, min_size=1, max_size=8).filter(lambda v: math.hypot(*v) > 1e-100))
async def test_every_vector_has_length_one(vector: list[float]) -> None:
    async with serving(ProviderType.OLLAMA, answer(ProviderType.OLLAMA, [vector])) as (embedder, _):
        (unit,) = await embedder.embed(["a"])
    assert math.hypot(*unit) == pytest.approx(1)
    assert all(math.copysign(1, x) == math.copysign(1, y) for x, y in zip(unit, vector, strict=True) if x)
