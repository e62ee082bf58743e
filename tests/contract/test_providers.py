"""One contract for every model adapter, served by a real HTTP server on 127.0.0.1 with canned bytes."""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.llm_settings import OpenAIApi
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import (
    Message,
    ModelDone,
    ModelEvent,
    ModelStop,
    ModelText,
    ModelThought,
    Role,
    TextPart,
    ThoughtPart,
    ToolUsePart,
    Usage,
)
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.llm.catalog import Catalog, ModelRef, ProviderConfig, ProviderType
from tests.fakes.scripted_http import Cut, Hang, Reply, Request, Reset, ScriptedHttp, Send, Until
from tests.rows import each_row
from tests.unit.llm import responses_streams, streams
from tests.unit.llm.streams import CALL, OTHER_CALL

pytestmark = pytest.mark.anyio

FAKE_KEY = "sk-fake-000000000000"
ASK = ModelRequest("Be brief.", (Message(Role.USER, (TextPart("hi"),)),))


@dataclass(frozen=True)
class Dialect:
    """A wire format: its provider type, where it posts, how it streams an answer, and an error inside it.

    usage        what its answers cost
    configured   what chooses it, and has the server asked nothing but for the answer
    """

    type: ProviderType
    path: str
    stream: Callable[..., bytes]
    overloaded: bytes
    usage: Usage
    configured: Mapping[str, Any] = field(default_factory=dict)

    @asynccontextmanager
    async def serving(
        self, *replies: Reply, timeout: float = 5.0, model: str = "some-model", **config: Any
    ) -> AsyncIterator[tuple[Provider, ScriptedHttp]]:
        """A provider of this dialect talking to a server that gives these replies."""
        async with ScriptedHttp(replies) as server:
            base = {ProviderType.OPENAI: server.url + "/v1"}.get(self.type, server.url)
            fields = {"base_url": base, "api_key": FAKE_KEY, "api_key_env": "FAKE_API_KEY", "timeout": timeout}
            catalog = Catalog([ProviderConfig("acme", self.type, **{**fields, **self.configured, **config})])
            try:
                yield catalog.build(ModelRef("acme", model)), server
            finally:
                await catalog.aclose()


DIALECTS = {
    "anthropic": Dialect(
        ProviderType.ANTHROPIC,
        "/v1/messages",
        streams.anthropic,
        streams.OVERLOADED,
        Usage(input=25, output=42, cache_read=2000, cache_write=100),
    ),
    "openai": Dialect(
        ProviderType.OPENAI,
        "/v1/chat/completions",
        streams.openai,
        streams.OVERLOADED,
        Usage(input=125, output=42, cache_read=2000),
    ),
    "responses": Dialect(
        ProviderType.OPENAI,
        "/v1/responses",
        responses_streams.responses,
        streams.OVERLOADED,
        Usage(input=125, output=42, cache_read=2000),
        {"api": OpenAIApi.RESPONSES, "thinking": True},
    ),
    "ollama": Dialect(
        ProviderType.OLLAMA,
        "/api/chat",
        streams.ollama,
        b'{"error": "Overloaded", "status": 529}\n',
        Usage(input=2125, output=42),  # does not tell what it had in its cache
        {"context_window": 32_768, "images": False},
    ),
}


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]


async def collect(provider: Provider, request: ModelRequest = ASK) -> list[ModelEvent]:
    """Every event of one call, the contract of their order checked."""
    with anyio.fail_after(10):
        events = [event async for event in provider.stream(request)]
    assert isinstance(events[-1], ModelDone)
    assert not any(isinstance(event, ModelDone) for event in events[:-1])
    done = events[-1]
    assert "".join(event.text for event in events if isinstance(event, ModelText)) == done.message.text
    thoughts = "".join(part.text for part in done.message.parts if isinstance(part, ThoughtPart))
    assert "".join(event.text for event in events if isinstance(event, ModelThought)) == thoughts
    assert done.message.role is Role.ASSISTANT
    return events


async def answer(provider: Provider, request: ModelRequest = ASK) -> ModelDone:
    done = (await collect(provider, request))[-1]
    assert isinstance(done, ModelDone)
    return done


async def failure(provider: Provider, request: ModelRequest = ASK) -> ProviderError:
    """The error of a call that must fail, and never by showing the key."""
    with pytest.raises(ProviderError) as caught:
        await collect(provider, request)
    assert FAKE_KEY not in str(caught.value)
    return caught.value


def body_of(request: Request) -> dict[str, Any]:
    return json.loads(request.body)


# --------------------------------------------------------------------------------------- answers


async def test_text_comes_and_then_whole_with_its_usage(dialect: Dialect) -> None:
    stream = dialect.stream(text=["Hel", "lo ", "wörld 😀"])
    async with dialect.serving(Reply.stream(stream)) as (provider, server):
        events = await collect(provider)
    assert "".join(event.text for event in events if isinstance(event, ModelText)) == "Hello wörld 😀"
    done = events[-1]
    assert isinstance(done, ModelDone)
    assert done.message.parts == (TextPart("Hello wörld 😀"),)
    assert done.stop is ModelStop.END
    assert done.usage == dialect.usage
    request = server.requests[0]
    assert (request.method, request.path) == ("POST", dialect.path)
    assert body_of(request)["stream"] is True
    assert body_of(request)["model"] == "some-model"


async def test_parallel_tool_calls_keep_their_order_ids_and_arguments(dialect: Dialect) -> None:
    stream = dialect.stream(text=["Looking."], calls=[CALL, OTHER_CALL])
    async with dialect.serving(Reply.stream(stream)) as (provider, _):
        done = await answer(provider)
    assert done.stop is ModelStop.TOOL_USE
    assert done.message.tool_uses == (
        ToolUsePart("call_1", "bash", {"command": "ls -la", "note": "a\u2028b"}),
        ToolUsePart("call_2", "read", {"path": "naïve 😀.py"}),
    )


@each_row(
    "raw, arguments",
    [
        ("", {}),
        ("{}", {}),
        ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
        ('{"command": "ls', None),
        ('["ls"]', None),
        ('"ls"', None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ('{"a": ' + "9" * 6000 + "}", None),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", None),
        ('{"a": ' + "[" * 100_000, None),
    ],
)
async def test_arguments_are_an_object_or_none_with_what_the_model_wrote(
    dialect: Dialect, raw: str, arguments: dict[str, Any] | None
) -> None:
    stream = dialect.stream(calls=[{"id": "call_1", "name": "bash", "arguments": raw}])
    async with dialect.serving(Reply.stream(stream)) as (provider, _):
        done = await answer(provider)
    (use,) = done.message.tool_uses
    assert use.arguments == arguments
    assert use.raw_arguments == ("" if arguments is not None else raw)


async def test_a_call_with_a_repeated_id_gets_one_of_its_own(dialect: Dialect) -> None:
    twin = {**OTHER_CALL, "id": CALL["id"]}
    third = {**twin, "arguments": "{}"}
    calls = [CALL, twin, CALL, twin, third, third]  # what is sent again is no call of its own
    async with dialect.serving(Reply.stream(dialect.stream(calls=calls))) as (provider, _):
        done = await answer(provider)
    ids = [use.id for use in done.message.tool_uses]
    assert len(set(ids)) == 3
    assert ids[0] == CALL["id"]


async def test_a_hundred_calls_at_once_all_arrive(dialect: Dialect) -> None:
    calls = [{"id": f"call_{n}", "name": "read", "arguments": json.dumps({"path": f"{n}.py"})} for n in range(100)]
    async with dialect.serving(Reply.stream(dialect.stream(calls=calls))) as (provider, _):
        done = await answer(provider)
    assert [use.arguments for use in done.message.tool_uses] == [{"path": f"{n}.py"} for n in range(100)]


async def test_thought_comes_apart_from_text_and_goes_back_to_the_model_that_had_it_only(dialect: Dialect) -> None:
    stream = Reply.stream(dialect.stream(thought=["Let me ", "see."], text=["Done."]))
    secret = dialect.stream(thought=["SECRET THOUGHT"], text=["Earlier."])
    async with dialect.serving(Reply.stream(secret), model="another-model") as (other, _):
        strange = (await answer(other)).message
    async with dialect.serving(stream) as (provider, server):
        done = (await collect(provider))[-1]
        assert isinstance(done, ModelDone)
        thought = done.message.parts[0]
        assert isinstance(thought, ThoughtPart)
        assert thought.text == "Let me see."
        history = (*ASK.messages, done.message, *ASK.messages, strange, *ASK.messages)
        await answer(provider, ModelRequest("", history))
    assert b"Let me see." in server.requests[1].body
    assert b"SECRET" not in server.requests[1].body
    async with dialect.serving(stream, model="some-model-20261101") as (same, server):
        await answer(same, ModelRequest("", (*ASK.messages, done.message, *ASK.messages)))
    assert b"Let me see." in server.requests[0].body, "another snapshot of the same model"


async def test_an_answer_without_anything_in_it_is_an_empty_message(dialect: Dialect) -> None:
    async with dialect.serving(Reply.stream(dialect.stream())) as (provider, _):
        done = await answer(provider)
    assert done.message.parts == ()
    assert done.stop is ModelStop.END


STOPS = {
    "anthropic": {
        "max_tokens": ModelStop.MAX_TOKENS,
        "model_context_window_exceeded": ModelStop.MAX_TOKENS,
        "refusal": ModelStop.REFUSAL,
        "stop_sequence": ModelStop.END,
        "pause_turn": ModelStop.END,
        "of_the_future": ModelStop.END,
        "tool_use": ModelStop.END,  # says tools, has none
    },
    "openai": {
        "length": ModelStop.MAX_TOKENS,
        "max_tokens": ModelStop.MAX_TOKENS,
        "content_filter": ModelStop.REFUSAL,
        "eos": ModelStop.END,
        "end_turn": ModelStop.END,
        "of_the_future": ModelStop.END,
        "tool_calls": ModelStop.END,
    },
    "responses": {
        "max_output_tokens": ModelStop.MAX_TOKENS,
        "content_filter": ModelStop.REFUSAL,
        "refusal": ModelStop.REFUSAL,
        "max_messages": ModelStop.END,
        "of_the_future": ModelStop.END,
    },
    "ollama": {
        "stop": ModelStop.END,
        "length": ModelStop.MAX_TOKENS,
        "of_the_future": ModelStop.END,
    },
}


@each_row(
    "name, stop, expected",
    [(name, stop, expected) for name, stops in STOPS.items() for stop, expected in stops.items()],
)
async def test_stop_reasons_are_told_in_our_words(name: str, stop: str, expected: ModelStop) -> None:
    dialect = DIALECTS[name]
    async with dialect.serving(Reply.stream(dialect.stream(text=["x"], stop=stop))) as (provider, _):
        assert (await answer(provider)).stop is expected


@each_row("newline", ["\n", "\r\n", "\r"])
async def test_any_line_ending_will_do(dialect: Dialect, newline: str) -> None:
    stream = dialect.stream(text=["a\u2028b\u2029c\u0085d"], newline=newline)
    async with dialect.serving(Reply.stream(stream)) as (provider, _):
        assert (await answer(provider)).message.text == "a\u2028b\u2029c\u0085d"


async def test_a_compressed_stream_is_read(dialect: Dialect) -> None:
    async with dialect.serving(Reply.zipped(dialect.stream(text=["packed"]))) as (provider, _):
        assert (await answer(provider)).message.text == "packed"


async def test_bytes_that_come_one_at_a_time_give_the_same_answer(dialect: Dialect) -> None:
    stream = dialect.stream(text=["naïve 😀"])
    async with dialect.serving(Reply.stream(stream, range(len(stream)))) as (provider, _):
        assert (await answer(provider)).message.text == "naïve 😀"


async def test_lone_surrogates_become_replacement_characters(dialect: Dialect) -> None:
    stream = dialect.stream(text=["?", "!"]).replace(b'"?"', rb'"\ud83d"').replace(b'"!"', rb'"\ud83d\ude00"')
    stream = stream.replace(b'"?!"', rb'"\ud83d\ud83d\ude00"')  # where the whole is told again
    async with dialect.serving(Reply.stream(stream)) as (provider, _):
        text = (await answer(provider)).message.text
    assert text.encode()
    assert text == "\ufffd😀"


async def test_the_connection_serves_the_next_request_too(dialect: Dialect) -> None:
    async with dialect.serving(Reply.stream(dialect.stream(text=["x"]))) as (provider, server):
        for _ in range(3):
            await answer(provider)
    assert [request.connection for request in server.requests] == [1, 1, 1]


async def test_a_first_piece_is_told_before_the_second_was_sent(dialect: Dialect) -> None:
    stream = dialect.stream(text=["one", "two"])
    cut = stream.index(b'"two"') - 20
    told = anyio.Event()
    reply = Reply([Send(stream[:cut]), Until(told), Send(stream[cut:])])
    async with dialect.serving(reply) as (provider, _):
        texts: list[str] = []
        with anyio.fail_after(10):
            async for event in provider.stream(ASK):
                if isinstance(event, ModelText):
                    texts.append(event.text)
                    told.set()
    assert texts == ["one", "two"]


def joined(events: Sequence[ModelEvent]) -> list[ModelEvent]:
    """The events with adjacent pieces of one kind as one, since what arrives together may be one."""
    found: list[ModelEvent] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, ModelText) and isinstance(last, ModelText):
            found[-1] = ModelText(last.text + event.text)
        elif isinstance(event, ModelThought) and isinstance(last, ModelThought):
            found[-1] = ModelThought(last.text + event.text)
        else:
            found.append(event)
    return found


@pytest.mark.parametrize("name", DIALECTS)
@given(cuts=st.sets(st.integers(1, 8000), max_size=60))
def test_every_chunking_of_a_stream_gives_the_same_events(name: str, cuts: set[int]) -> None:
    dialect = DIALECTS[name]
    stream = dialect.stream(thought=["hm\u2028m"], text=["naïve ", "😀"], calls=[CALL, OTHER_CALL])
    whole, pieces = anyio.run(_both_ways, dialect, stream, [cut for cut in cuts if cut < len(stream)])
    assert joined(pieces) == joined(whole)


async def _both_ways(dialect: Dialect, stream: bytes, cuts: Sequence[int]) -> tuple[list[ModelEvent], list[ModelEvent]]:
    async with dialect.serving(Reply.stream(stream), Reply.stream(stream, cuts)) as (provider, _):
        return await collect(provider), await collect(provider)


# ---------------------------------------------------------------------------------------- faults


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


@each_row(
    "status, body, kind, telling",
    [
        (400, _error("invalid_request_error", "tools.0: bad schema"), ProviderErrorKind.INVALID_REQUEST, "bad schema"),
        (401, _error("authentication_error", f"invalid key {FAKE_KEY}"), ProviderErrorKind.AUTH, "check FAKE_API_KEY"),
        (402, _error("billing_error", "pay first"), ProviderErrorKind.INVALID_REQUEST, "no credit left"),
        (403, _error("permission_error", "not you"), ProviderErrorKind.AUTH, "check FAKE_API_KEY"),
        (404, _error("not_found_error", "model: some-model"), ProviderErrorKind.NOT_FOUND, "'some-model'"),
        (408, b"", ProviderErrorKind.TIMEOUT, "in time"),
        (413, _error("request_too_large", "33 MB"), ProviderErrorKind.CONTEXT_TOO_LONG, "too long for some-model"),
        (
            400,
            _error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            ProviderErrorKind.CONTEXT_TOO_LONG,
            "compact it or start a new session",
        ),
        (
            400,
            b'{"error": {"message": "too big", "code": "context_length_exceeded"}}',
            ProviderErrorKind.CONTEXT_TOO_LONG,
            "too long",
        ),
        (429, _error("rate_limit_error", "slow down"), ProviderErrorKind.RATE_LIMITED, "slow down"),
        (
            429,
            b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}',
            ProviderErrorKind.INVALID_REQUEST,
            "no credit left",
        ),
        (500, _error("api_error", "oops"), ProviderErrorKind.SERVER, "failed on its side"),
        (502, b"<html><body>Bad Gateway</body></html>", ProviderErrorKind.SERVER, "a web page"),
        (503, b"upstream connect error", ProviderErrorKind.OVERLOADED, "upstream connect error"),
        (504, b"", ProviderErrorKind.TIMEOUT, "504"),
        (529, _error("overloaded_error", "Overloaded"), ProviderErrorKind.OVERLOADED, "overloaded"),
        (418, b'{"detail": "teapot"}', ProviderErrorKind.INVALID_REQUEST, "teapot"),
    ],
)
async def test_a_refusal_says_what_happened_and_what_to_do(
    dialect: Dialect, status: int, body: bytes, kind: ProviderErrorKind, telling: str
) -> None:
    async with dialect.serving(Reply.plain(status, body)) as (provider, _):
        error = await failure(provider)
    assert error.kind is kind
    assert error.status == status
    assert telling in str(error)
    assert str(status) in str(error)


async def test_retry_after_is_told_in_seconds(dialect: Dialect) -> None:
    async with dialect.serving(Reply.plain(429, b"{}", retry_after="7")) as (provider, _):
        assert (await failure(provider)).retry_after == 7


async def test_a_huge_error_body_is_cut_and_told_in_one_line(dialect: Dialect) -> None:
    body = b"x\n\x1b[31m\xff" * 1_000_000
    async with dialect.serving(Reply.plain(500, body, "text/plain")) as (provider, _):
        error = await failure(provider)
    assert len(str(error)) < 500
    assert str(error).isprintable()


async def test_a_redirect_is_not_followed_and_names_the_target(dialect: Dialect) -> None:
    reply = Reply.plain(308, b"", location="https://elsewhere.invalid/v2?token=secret")
    async with dialect.serving(reply) as (provider, server):
        error = await failure(provider)
    assert error.kind is ProviderErrorKind.PROTOCOL
    assert "https://elsewhere.invalid/v2" in str(error)
    assert "secret" not in str(error)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/html; charset=utf-8", b"<!doctype html><title>Sign in</title>"), ("application/json", b'{"hello": 1}')],
)
async def test_a_page_instead_of_a_stream_is_told_as_such(dialect: Dialect, content_type: str, body: bytes) -> None:
    async with dialect.serving(Reply.plain(200, body, content_type)) as (provider, _):
        error = await failure(provider)
    assert error.kind is ProviderErrorKind.PROTOCOL
    assert content_type.partition(";")[0] in str(error)
    assert "base_url" in str(error)


async def test_an_error_inside_the_stream_counts_like_a_status(dialect: Dialect) -> None:
    stream = dialect.stream(text=["Hel"])
    end = re.compile(rb"\n+").search(stream, stream.index(b"Hel"))
    assert end
    async with dialect.serving(Reply.stream(stream[: end.end()] + dialect.overloaded)) as (provider, _):
        fault = await failure(provider)
    assert fault.kind is ProviderErrorKind.OVERLOADED
    assert fault.status == 529


async def test_a_truncated_stream_is_an_error_not_a_short_answer(dialect: Dialect) -> None:
    stream = dialect.stream(text=["Hel", "lo"])
    cut = stream.index(b'"lo"')
    async with dialect.serving(Reply.stream(stream[:cut])) as (provider, _):
        error = await failure(provider)
    assert error.kind is ProviderErrorKind.PROTOCOL
    assert "before it was whole" in str(error)


@pytest.mark.parametrize("fault", [Cut(), Reset()])
async def test_a_connection_lost_in_the_stream_is_a_network_error(dialect: Dialect, fault: Cut | Reset) -> None:
    stream = dialect.stream(text=["Hel", "lo"])
    cut = stream.index(b'"lo"')
    seen = anyio.Event()
    async with dialect.serving(Reply([Send(stream[:cut]), Until(seen), fault])) as (provider, _):

        async def consume() -> None:
            async for _ in provider.stream(ASK):
                seen.set()

        with pytest.raises(ProviderError) as caught:
            await consume()
    assert caught.value.kind is ProviderErrorKind.NETWORK


async def test_garbage_in_the_stream_is_a_protocol_error(dialect: Dialect) -> None:
    for garbage in (b"data: {oops\n\n", b"data: [1]\n\n", b"data: \xff\xfe\n\n", b"\x00\x01\x02" * 100):
        async with dialect.serving(Reply.stream(garbage)) as (provider, _):
            assert (await failure(provider)).kind is ProviderErrorKind.PROTOCOL


async def test_silence_before_the_answer_times_out(dialect: Dialect) -> None:
    async with dialect.serving(Reply([Hang()]), timeout=0.05) as (provider, _):
        error = await failure(provider)
    assert error.kind is ProviderErrorKind.TIMEOUT
    assert "acme sent nothing for 0.05 s" in str(error)


async def test_silence_inside_the_answer_times_out(dialect: Dialect) -> None:
    stream = dialect.stream(text=["Hel", "lo"])
    reply = Reply([Send(stream[: stream.index(b'"lo"')]), Hang()])
    async with dialect.serving(reply, timeout=0.05) as (provider, _):
        assert (await failure(provider)).kind is ProviderErrorKind.TIMEOUT


async def test_a_server_that_is_not_there_is_named(dialect: Dialect) -> None:
    async with dialect.serving(Reply()) as (provider, server):
        server._server.close()
        await server._server.wait_closed()
        error = await failure(provider)
    assert error.kind is ProviderErrorKind.NETWORK
    assert f"cannot reach acme at {server.url}" in str(error)


async def test_cancelling_the_task_closes_the_connection(dialect: Dialect) -> None:
    stream = dialect.stream(text=["Hel", "lo"])
    reply = Reply([Send(stream[: stream.index(b'"lo"')]), Hang()])
    async with dialect.serving(reply) as (provider, server):
        async with anyio.create_task_group() as tasks:

            async def consume() -> None:
                async for _ in provider.stream(ASK):
                    answered.set()

            answered = anyio.Event()
            tasks.start_soon(consume)
            await answered.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            await server.client_closed.wait()


async def test_cancelling_before_the_answer_closes_the_connection(dialect: Dialect) -> None:
    asked = anyio.Event()
    async with dialect.serving(Reply([Until(asked), Hang()])) as (provider, server):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(failure, provider)
            await server.received.wait()
            tasks.cancel_scope.cancel()
        asked.set()
        with anyio.fail_after(20):
            await server.client_closed.wait()


async def test_closing_the_iterator_closes_the_connection(dialect: Dialect) -> None:
    stream = dialect.stream(text=["Hel", "lo"])
    reply = Reply([Send(stream[: stream.index(b'"lo"')]), Hang()])
    async with dialect.serving(reply) as (provider, server):
        async with aclosing(provider.stream(ASK)) as events:
            await anext(events)
        with anyio.fail_after(20):
            await server.client_closed.wait()


async def test_a_failed_call_leaves_the_provider_usable(dialect: Dialect) -> None:
    good = Reply.stream(dialect.stream(text=["ok"]))
    async with dialect.serving(Reply.plain(500, b"{}"), Reply([Reset()]), good) as (provider, _):
        await failure(provider)
        await failure(provider)
        assert (await answer(provider)).message.text == "ok"


# -------------------------------------------------------------------------------------- scripted

SCRIPT = """
[[turns]]
[[turns.steps]]
thought = ["Let me ", "see."]
text = ["Hel", "lo"]
tools = [{ name = "bash", arguments = { command = "ls" } }, { name = "bash", raw_arguments = '{"a' }]
[[turns.steps]]
text = "Done."
"""


async def test_the_scripted_provider_keeps_the_same_contract(tmp_path: Any) -> None:
    (tmp_path / "s.toml").write_text(SCRIPT)
    catalog = Catalog([ProviderConfig("acme", ProviderType.SCRIPTED, script=str(tmp_path / "s.toml"))])
    provider = catalog.build(ModelRef("acme", "mine"))
    events = await collect(provider)
    assert [event.text for event in events if isinstance(event, ModelText)] == ["Hel", "lo"]
    done = events[-1]
    assert isinstance(done, ModelDone)
    assert done.stop is ModelStop.TOOL_USE
    assert [(use.name, use.arguments, use.raw_arguments) for use in done.message.tool_uses] == [
        ("bash", {"command": "ls"}, ""),
        ("bash", None, '{"a'),
    ]
    assert (await answer(provider, ModelRequest("", (*ASK.messages, done.message)))).message.text == "Done."
    await catalog.aclose()
