"""An Ollama server as it really answers: its description of a model, its stream, its refusals."""

import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.llm_settings import Effort
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import ImagePart, Message, ModelDone, ModelEvent, ModelText, Role, TextPart, ToolUsePart
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType
from acp_agent.llm.endpoint import ModelEndpoint
from acp_agent.llm.ollama import ModelCard, read_card, split_lines
from tests.fakes.scripted_http import Hang, Reply, Reset, ScriptedHttp, Send
from tests.rows import each_row
from tests.unit.llm import streams
from tests.unit.llm.streams import CALL, OTHER_CALL, ndjson, ollama_line

pytestmark = pytest.mark.anyio

ENDPOINT = ModelEndpoint("acme", "m", "http://127.0.0.1:1", 1000)
HI = Message(Role.USER, (TextPart("hi"),))
ASK = ModelRequest("", (HI,))
LOOK = ModelRequest("", (Message(Role.USER, (TextPart("look"), ImagePart("QUJD", "image/png"))),))
NDJSON = (("content-type", "application/x-ndjson"),)
SETTLED: dict[str, Any] = {"context_window": 32_768, "images": False}
OK = Reply([Send(streams.ollama(text=["ok"]))], headers=NDJSON)


def card(**fields: Any) -> dict[str, Any]:
    """An answer of /api/show, as a current server gives it."""
    info = {"general.architecture": "qwen3", "qwen3.context_length": 40_960, "qwen3.block_count": 36}
    shown = {"license": "…", "parameters": 'stop   "<|im_end|>"', "model_info": info}
    return {**shown, "capabilities": ["completion", "tools", "thinking"], **fields}


def showing(**fields: Any) -> Reply:
    return Reply.plain(200, json.dumps(card(**fields)).encode())


@asynccontextmanager
async def serving(*replies: Reply, **config: Any) -> AsyncIterator[tuple[Provider, ScriptedHttp]]:
    async with ScriptedHttp(replies) as server:
        catalog = Catalog([ProviderConfig("acme", ProviderType.OLLAMA, **{"base_url": server.url, **config})])
        try:
            yield catalog.build(ModelRef("acme", "m:8b")), server
        finally:
            await catalog.aclose()


async def answer(provider: Provider, request: ModelRequest = ASK) -> ModelDone:
    with anyio.fail_after(10):
        events = [event async for event in provider.stream(request)]
    assert isinstance(events[-1], ModelDone)
    return events[-1]


async def failure(provider: Provider, request: ModelRequest = ASK) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await answer(provider, request)
    return caught.value


def sent(server: ScriptedHttp, number: int) -> Any:
    return json.loads(server.requests[number].body)


# ------------------------------------------------------------------------- what the model can do


async def test_the_server_is_asked_once_what_the_model_can_do() -> None:
    async with serving(showing(), OK) as (provider, server):
        assert provider.context_window == 32_768
        await answer(provider)
        await answer(provider)
    assert [request.path for request in server.requests] == ["/api/show", "/api/chat", "/api/chat"]
    assert sent(server, 0) == {"model": "m:8b"}
    assert sent(server, 1)["options"] == {"num_ctx": 32_768}
    assert sent(server, 1)["think"] is True
    assert sent(server, 1) == sent(server, 2)


@each_row(
    "config, shown, window, num_ctx",
    [
        ({}, {}, 32_768, 32_768),
        ({}, {"model_info": {"general.architecture": "llama", "llama.context_length": 8192}}, 8192, 8192),
        ({}, {"model_info": {}}, 32_768, 32_768),
        ({}, {"parameters": "num_ctx      16384\nstop  x"}, 16_384, None),
        ({}, {"parameters": "num_ctx 99999"}, 40_960, None),
        ({}, {"remote_host": "https://ollama.com:443", "remote_model": "m"}, 40_960, None),
        ({"context_window": 20_000}, {"parameters": "num_ctx 16384"}, 20_000, 20_000),
    ],
)
async def test_the_window_told_is_the_window_the_model_is_loaded_with(
    config: dict[str, Any], shown: dict[str, Any], window: int, num_ctx: int | None
) -> None:
    async with serving(showing(**shown), OK, **config) as (provider, server):
        await answer(provider)
    assert provider.context_window == window
    assert sent(server, 1).get("options", {}).get("num_ctx") == num_ctx


@pytest.mark.parametrize(
    ("capabilities", "images", "seen"),
    [
        (["completion", "vision"], None, True),
        (["completion"], None, False),
        (["completion", "vision"], False, False),
        (["completion"], True, True),
        (None, None, False),
    ],
)
async def test_who_is_shown_pictures(capabilities: list[str] | None, images: bool | None, seen: bool) -> None:
    async with serving(showing(capabilities=capabilities), OK, images=images) as (provider, server):
        await answer(provider, LOOK)
    assert ("images" in sent(server, 1)["messages"][0]) is seen


@each_row(
    "config, capabilities, think",
    [
        ({}, ["completion", "thinking"], True),
        ({"effort": Effort.HIGH}, ["completion", "thinking"], "high"),
        ({"effort": Effort.HIGH}, ["completion"], None),
        ({"thinking": False}, ["completion", "thinking"], False),
        ({"thinking": False}, ["completion"], None),
        ({"thinking": True}, None, True),
        ({"thinking": False, "effort": Effort.HIGH}, ["completion", "thinking"], False),
    ],
)
async def test_the_user_says_whether_and_how_hard_a_model_thinks(
    config: dict[str, Any], capabilities: list[str] | None, think: bool | str | None
) -> None:
    async with serving(showing(capabilities=capabilities), OK, **config) as (provider, server):
        await answer(provider)
    assert sent(server, 1).get("think") == think


async def test_temperature_and_the_time_to_stay_go_where_ollama_reads_them() -> None:
    async with serving(OK, **SETTLED, temperature=0.25, keep_alive="-1") as (provider, server):
        await answer(provider)
    assert sent(server, 0)["keep_alive"] == -1
    assert sent(server, 0)["options"] == {"num_ctx": 32_768, "temperature": 0.25}


async def test_a_model_that_does_not_think_is_not_asked_to() -> None:
    async with serving(showing(capabilities=["completion", "tools"]), OK) as (provider, server):
        await answer(provider)
    assert "think" not in sent(server, 1)


async def test_a_model_whose_window_and_pictures_are_configured_is_still_told_not_to_think() -> None:
    async with serving(OK, **SETTLED, thinking=False) as (provider, server):
        await answer(provider)
    assert sent(server, 0)["think"] is False


async def test_an_effort_is_sent_to_a_thinking_model_whose_window_and_pictures_are_configured() -> None:
    async with serving(showing(), OK, **SETTLED, effort=Effort.HIGH) as (provider, server):
        await answer(provider)
    assert sent(server, 1)["think"] == "high"


async def test_a_server_that_is_told_everything_is_asked_nothing() -> None:
    async with serving(OK, **SETTLED) as (provider, server):
        await answer(provider)
    assert [request.path for request in server.requests] == ["/api/chat"]


@each_row(
    "silent",
    [
        Reply.plain(404, b"404 page not found", "text/plain"),
        Reply.plain(200, b"<html>", "text/html"),
        Reply.plain(200, b"[]"),
        Reply.plain(500, b'{"error": "busy"}'),
        Reply([Hang()]),
        Reply([Reset()]),
    ],
)
async def test_a_server_that_does_not_say_answers_all_the_same_and_is_asked_again(silent: Reply) -> None:
    async with serving(silent, OK, showing(), OK, timeout=0.2) as (provider, server):
        assert (await answer(provider)).message.text == "ok"
        await answer(provider)
    assert [request.path for request in server.requests] == ["/api/show", "/api/chat"] * 2
    assert "think" not in sent(server, 1)
    assert sent(server, 1)["options"] == {"num_ctx": 32_768}
    assert sent(server, 3)["think"] is True


async def test_a_conversation_without_a_message_only_asks_whether_the_model_is_there() -> None:
    async with serving(showing(), **SETTLED) as (provider, server):
        done = await answer(provider, ModelRequest("", (), max_tokens=1))
    assert done.message.parts == ()
    assert [request.path for request in server.requests] == ["/api/show"]
    async with serving(Reply.plain(404, b'{"error":"model \'m:8b\' not found"}')) as (provider, _):
        assert (await failure(provider, ModelRequest("", ()))).kind is ProviderErrorKind.NOT_FOUND


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"model_info": None, "parameters": None, "capabilities": None},
        {"model_info": [1], "parameters": {}, "capabilities": "vision"},
        {"model_info": {"general.architecture": 3, "x.context_length": "big", "y.context_length": -1}},
        {"parameters": "num_ctx many\nnum_ctx 0\nnum_ctx_max 7"},
    ],
)
def test_a_card_out_of_shape_says_nothing(document: dict[str, Any]) -> None:
    assert read_card(document) == ModelCard()


def test_the_length_is_the_models_own_not_its_projectors() -> None:
    info = {"clip.context_length": 999_999, "general.architecture": "gemma3", "gemma3.context_length": 131_072}
    assert read_card({"model_info": info}).context_length == 131_072


# ------------------------------------------------------------------------------------ the stream


async def _chunks(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _split(*pieces: bytes) -> list[bytes]:
    return [line async for line in split_lines(ENDPOINT, _chunks(pieces))]


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=6), max_size=6),
    newline=st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    cuts=st.sets(st.integers(0, 300)),
)
def test_every_chunking_gives_the_same_lines(texts: list[str], newline: str, cuts: set[int]) -> None:
    written = [json.dumps({"a": text}, ensure_ascii=False) for text in texts]
    data = newline.join(written).encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert [line.decode() for line in anyio.run(_split, *pieces)] == written


@given(cuts=st.sets(st.integers(1, 3000), max_size=60))
def test_calls_without_ids_are_the_same_calls_under_every_chunking(cuts: set[int]) -> None:
    anonymous = [{**call, "id": ""} for call in (CALL, OTHER_CALL, CALL)]
    stream = streams.ollama(thought=["hm\u2028"], text=["naïve 😀"], calls=anonymous)
    whole, pieces = anyio.run(_both_ways, stream, [cut for cut in cuts if cut < len(stream)])
    assert pieces == whole
    done = whole[-1]
    assert isinstance(done, ModelDone)
    assert len({use.id for use in done.message.tool_uses}) == 3


async def _both_ways(stream: bytes, cuts: Sequence[int]) -> tuple[list[ModelEvent], list[ModelEvent]]:
    async with serving(Reply.stream(stream), Reply.stream(stream, cuts), **SETTLED) as (provider, _):
        return [event async for event in provider.stream(ASK)], [event async for event in provider.stream(ASK)]


async def test_a_call_whose_id_was_used_before_gets_another() -> None:
    earlier = Message(Role.ASSISTANT, (ToolUsePart("call_1", "bash", {}),))
    async with serving(Reply.stream(streams.ollama(calls=[CALL])), **SETTLED) as (provider, _):
        done = await answer(provider, ModelRequest("", (HI, earlier, HI)))
    (use,) = done.message.tool_uses
    assert use.id not in ("", "call_1")


async def test_a_byte_order_mark_and_blank_lines_are_skipped() -> None:
    assert await _split(b"\xef", b"\xbb\xbf{}\n\n  \n{}\r\n") == [b"{}", b"{}"]
    assert await _split(b"\xef\xbb\xbf{}") == [b"{}"]


async def test_a_stream_that_calls_itself_json_is_read_on_its_lines() -> None:
    stream = ndjson(ollama_line({"content": "ok"}), {"of": "the future"}, ollama_line(done="stop"))
    async with serving(Reply.plain(200, stream), **SETTLED) as (provider, _):
        assert (await answer(provider)).message.text == "ok"


async def test_an_answer_in_one_piece_and_without_line_end_is_an_answer() -> None:
    whole = json.dumps(ollama_line({"content": "all at once"}, done="stop")).encode()
    for content_type in ("application/json; charset=utf-8", "application/x-ndjson", "text/plain"):
        async with serving(Reply.plain(200, whole, content_type), **SETTLED) as (provider, _):
            assert (await answer(provider)).message.text == "all at once"


@pytest.mark.parametrize("end", [b"", b"\n", b'{"model":"m","mess', b'{"done":fal'])
async def test_a_stream_cut_before_its_last_line_is_no_answer(end: bytes) -> None:
    stream = ndjson(ollama_line({"content": "Hel"})) + end
    async with serving(Reply.stream(stream), **SETTLED) as (provider, _):
        error = await failure(provider)
    assert error.kind is ProviderErrorKind.PROTOCOL
    assert "before it was whole" in str(error)


@pytest.mark.parametrize("tail", [b"{garbage\n", b'{"error": "too late"}\n', ndjson(ollama_line({"content": "more"}))])
async def test_what_follows_the_last_line_changes_nothing(tail: bytes) -> None:
    stream = streams.ollama(text=["ok"]) + tail
    async with serving(Reply.stream(stream), **SETTLED) as (provider, _):
        assert (await answer(provider)).message.text == "ok"


@pytest.mark.parametrize(
    ("line", "kind", "telling"),
    [
        ({"error": "an error was encountered while running the model"}, ProviderErrorKind.SERVER, "an error was"),
        ({"error": "the input length exceeds the context length"}, ProviderErrorKind.CONTEXT_TOO_LONG, "compact it"),
        ({"error": "slow down", "status": 429}, ProviderErrorKind.RATE_LIMITED, "slow down"),
        ({"error": {"message": "odd", "type": "overloaded_error"}}, ProviderErrorKind.OVERLOADED, "odd"),
        ({"error": ["odd"]}, ProviderErrorKind.SERVER, "odd"),
        ({**ollama_line({"content": "x"}, done="stop"), "error": "late"}, ProviderErrorKind.SERVER, "late"),
    ],
)
@pytest.mark.parametrize("before", [[], ["Hel"]])
async def test_an_error_in_the_stream_is_an_error(
    line: dict[str, Any], kind: ProviderErrorKind, telling: str, before: list[str]
) -> None:
    stream = ndjson(*(ollama_line({"content": text}) for text in before), line)
    async with serving(Reply([Send(stream)], headers=NDJSON), **SETTLED) as (provider, _):
        told: list[ModelEvent] = []

        async def listen() -> None:
            async for event in provider.stream(ASK):
                told.append(event)

        with pytest.raises(ProviderError) as caught:
            await listen()
    assert told == [ModelText(text) for text in before]
    assert caught.value.kind is kind
    assert telling in str(caught.value)


async def test_an_error_that_is_empty_is_none() -> None:
    lines = ndjson({**ollama_line({"content": "ok"}), "error": ""}, {**ollama_line(done="stop"), "error": None})
    async with serving(Reply.stream(lines), **SETTLED) as (provider, _):
        assert (await answer(provider)).message.text == "ok"


async def test_a_model_that_was_only_loaded_has_not_answered() -> None:
    async with serving(Reply.stream(streams.ollama(stop="load")), **SETTLED) as (provider, _):
        error = await failure(provider)
    assert "it only loaded the model" in str(error)
    assert not error.retryable, "the same request would load it again"


# --------------------------------------------------------------------------------------- refusals


@each_row(
    "status, body, telling",
    [
        (404, b'{"error":"model \'m:8b\' not found"}', "`ollama pull m:8b`"),
        (404, b'{"error":"model \\"m:8b\\" not found, try pulling it first"}', "`ollama pull m:8b`"),
        (404, b"404 page not found", 'type "openai"'),
        (401, b'{"error":"unauthorized","signin_url":"https://ollama.com/connect?key=k"}', "`ollama signin`"),
        (400, b'{"error":"m:8b does not support tools"}', "does not support tools"),
        (400, b'{"error":"the prompt is longer than the context length currently available"}', "compact it"),
        (503, b'{"error":"server busy, please try again.  maximum pending requests exceeded"}', "overloaded"),
    ],
)
async def test_a_refusal_says_what_helps_on_ollama(status: int, body: bytes, telling: str) -> None:
    async with serving(Reply.plain(status, body), **SETTLED) as (provider, _):
        error = await failure(provider)
    assert error.status == status
    assert telling in str(error)
    assert "connect?key" not in str(error)


async def test_the_key_travels_as_a_bearer_and_only_when_there_is_one() -> None:
    async with serving(OK, **SETTLED, api_key="fake-key-000") as (provider, server):
        await answer(provider)
    assert server.requests[0].headers["authorization"] == "Bearer fake-key-000"
    async with serving(OK, **SETTLED) as (provider, server):
        await answer(provider)
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    "form", ["127.0.0.1:{port}", "http://127.0.0.1:{port}/v1/", ":{port}", "http://127.0.0.1:{port}/api"]
)
async def test_every_form_of_the_address_reaches_the_server(form: str) -> None:
    async with ScriptedHttp([OK]) as server:
        address = form.format(port=server.port)
        catalog = Catalog([ProviderConfig("acme", ProviderType.OLLAMA, base_url=address, **SETTLED)])
        assert (await answer(catalog.build(ModelRef("acme", "m")))).message.text == "ok"
        await catalog.aclose()
    assert server.requests[0].path == "/api/chat"
