"""Everything a model server does wrong: FAULTS end a turn with one message, ODDITIES have to be taken for an answer."""

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from acp_agent.core.messages import StopReason
from tests.contract.wire_formats import Endless, JsonDict, Played, Raw, WireFormat, rewritten, tool
from tests.fakes.scripted_http import Action, Cut, Hang, Reply, Reset, Send, Until

FAKE_KEY = "sk-fake-000000000000"
MEGABYTE = "x" * 1_000_000


@dataclass(frozen=True)
class Fault:
    """A fault that ends the turn, as long as it lasts.

    plays      what the server sends whenever it is asked; the event is set once the user has read a word
    says       what the one message tells the user: what happened, and what to do
    requests   how often the model is asked for one answer
    waits      seconds between them
    stop       how the turn ends
    kept       whether the prompt stays in the conversation, where nothing else of the turn is
    timeout    the provider's, in seconds
    """

    plays: Callable[[WireFormat, anyio.Event], Played]
    says: tuple[str, ...]
    requests: int = 1
    waits: tuple[float, ...] = ()
    stop: StopReason = StopReason.END_TURN
    kept: bool = True
    timeout: float = 5.0


_TRIED = {"requests": 3, "waits": (0.3, 0.6)}
_CONTINUE = 'say "continue" to try again'


def _status(status: int, kind: str, message: str = f"no: {FAKE_KEY}", **headers: str) -> Callable[..., Reply]:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    return lambda *_: Reply.plain(status, body, **headers)


def _limited(retry_after: str) -> Callable[..., Reply]:
    return _status(429, "rate_limit_error", retry_after=retry_after)


def _stream(build: Callable[[WireFormat], bytes]) -> Callable[[WireFormat, anyio.Event], Reply]:
    return lambda wire, _: Reply.stream(build(wire))


def _read_then(action: Action) -> Callable[[WireFormat, anyio.Event], Reply]:
    return lambda wire, read: Reply([Send(wire.begun()), Until(read), action])


def _zipped(spoil: Callable[[bytes], bytes]) -> Callable[[WireFormat, anyio.Event], Reply]:
    headers = (("content-type", "text/event-stream"), ("content-encoding", "gzip"))
    return lambda wire, _: Reply([Send(spoil(gzip.compress(wire.stream(text=["hi"]))))], headers=headers)


def _error(wire: WireFormat) -> bytes:
    return wire.frame(json.dumps(wire.error))


def _endless_text(wire: WireFormat) -> bytes:
    """An answer's beginning, with a megabyte of text in one event."""
    return wire.parted(wire.stream(text=[MEGABYTE]), b"xxx")[0]


def _cut_in_a_call(wire: WireFormat) -> Reply:
    return Reply.stream(wire.stream(calls=[{**_LOOK, "arguments": '{"no'}], stop=wire.cut))


FAULTS = {
    "400": Fault(_status(400, "invalid_request_error"), ("refused the request", "start a new session"), kept=False),
    "401": Fault(_status(401, "authentication_error"), ("refused the API key", "check FAKE_API_KEY")),
    "403": Fault(_status(403, "permission_error"), ("refused the API key", "check FAKE_API_KEY")),
    "404 model": Fault(_status(404, "not_found_error"), ("'some-model'", "check model and base_url")),
    "413": Fault(
        _status(413, "request_too_large"),
        ("too long for some-model", "start a new session"),
        stop=StopReason.MAX_TOKENS,
        kept=False,
    ),
    "429": Fault(_status(429, "rate_limit_error"), ("limits the rate", "tried 3 times", _CONTINUE), **_TRIED),
    "429 with Retry-After": Fault(_limited("7"), ("asks to wait 7 s", _CONTINUE), requests=3, waits=(7, 7)),
    "429 with a long Retry-After": Fault(_limited("3600"), ("asks to wait 3600 s", _CONTINUE)),
    "429 with a Retry-After of no sense": Fault(_limited("soon"), ("limits the rate", _CONTINUE), **_TRIED),
    "429 with a Retry-After beyond all clocks": Fault(
        _limited("Mon, 01 Jan 2024 00:00:00 +9999999999999999"), ("limits the rate", _CONTINUE), **_TRIED
    ),
    "429 for the credit": Fault(_status(429, "insufficient_quota"), ("no credit left", "billing page"), kept=False),
    "500": Fault(_status(500, "api_error"), ("failed on its side", _CONTINUE), **_TRIED),
    "502 from a proxy": Fault(
        lambda *_: Reply.plain(502, b"<html>Bad Gateway", "text/html"), ("a web page", _CONTINUE), **_TRIED
    ),
    "503": Fault(_status(503, "overloaded_error"), ("is overloaded", _CONTINUE), **_TRIED),
    "504": Fault(_status(504, "timeout_error"), ("did not finish in time", _CONTINUE), **_TRIED),
    "529": Fault(_status(529, "overloaded_error"), ("is overloaded", _CONTINUE), **_TRIED),
    "silence": Fault(lambda *_: Raw(b"", Hang()), ("sent nothing for 0.05 s", _CONTINUE), timeout=0.05, **_TRIED),
    "silence after the head": Fault(
        lambda *_: Reply([Hang()]), ("sent nothing for 0.05 s", _CONTINUE), timeout=0.05, **_TRIED
    ),
    "silence in the stream": Fault(_read_then(Hang()), ("sent nothing for 0.5 s", _CONTINUE), timeout=0.5),
    "reset before the head": Fault(lambda *_: Raw(b"", Reset()), ("the connection to acme broke", _CONTINUE), **_TRIED),
    "reset in the stream": Fault(_read_then(Reset()), ("the connection to acme broke", _CONTINUE)),
    "hung up before the head": Fault(lambda *_: Raw(b"", Cut()), ("closed the connection", _CONTINUE), **_TRIED),
    "hung up in the stream": Fault(_read_then(Cut()), ("closed the connection", _CONTINUE)),
    "no HTTP": Fault(lambda *_: Raw(b"\x00\x01 hello\r\n\r\n", Cut()), ("closed the connection", _CONTINUE), **_TRIED),
    "nothing in the stream": Fault(_stream(lambda _: b""), ("before it was whole", _CONTINUE)),
    "a stream cut in a text": Fault(_stream(WireFormat.begun), ("before it was whole", _CONTINUE)),
    "a stream cut in a call": Fault(
        _stream(lambda wire: wire.begun(calls=[tool("write", note="@@@")])), ("before it was whole", _CONTINUE)
    ),
    "an error after a whole call": Fault(
        _stream(lambda wire: wire.begun(calls=[tool("write"), tool("look", "call_2", note="@@@")]) + _error(wire)),
        ("is overloaded", _CONTINUE),
        **_TRIED,
    ),
    "a garbage chunk": Fault(_stream(lambda wire: wire.begun() + wire.frame('{"oops')), ("cannot be read", _CONTINUE)),
    "a chunk that is no object": Fault(_stream(lambda wire: wire.frame("[1]")), ("cannot be read", _CONTINUE)),
    "a chunk of bytes": Fault(_stream(lambda _: b"\xff\xfe\x00\x01" * 1000 + b"\n\n"), ("acme", _CONTINUE)),
    "NaN in a chunk": Fault(_stream(lambda wire: wire.frame('{"index": NaN}')), ("cannot be read", _CONTINUE)),
    "an error in the stream": Fault(_stream(lambda wire: wire.begun() + _error(wire)), ("is overloaded", _CONTINUE)),
    "an error as the stream": Fault(_stream(_error), ("is overloaded", _CONTINUE), **_TRIED),
    "an error as JSON": Fault(
        lambda wire, _: Reply.plain(200, json.dumps(wire.error).encode()), ("is overloaded", _CONTINUE), **_TRIED
    ),
    "a web page": Fault(
        lambda *_: Reply.plain(200, b"<!doctype html><title>Sign in</title>", "text/html"),
        ("answered with text/html", "check base_url"),
    ),
    "JSON of something else": Fault(
        lambda *_: Reply.plain(200, b'{"hello": 1}'), ("answered with application/json", "check base_url")
    ),
    "gzip that is none": Fault(
        lambda wire, _: Reply([Send(wire.stream(text=["hi"]))], headers=(("content-encoding", "gzip"),)),
        ("does not match its content-encoding", _CONTINUE),
    ),
    "gzip that is damaged": Fault(
        _zipped(lambda packed: packed[:20] + b"\xff" * 20 + packed[40:]),
        ("does not match its content-encoding", _CONTINUE),
    ),
    "gzip that is cut": Fault(
        _zipped(lambda packed: packed[: len(packed) // 2]), ("whose end is missing", _CONTINUE), **_TRIED
    ),
    "a redirect": Fault(
        lambda *_: Reply.plain(308, b"", location=f"https://elsewhere.invalid/{FAKE_KEY}?key={FAKE_KEY}"),
        ("redirects (308) to https://elsewhere.invalid/", "set base_url"),
    ),
}

ENDLESS = Fault(lambda wire, _: Endless(_endless_text(wire)), ("does not end", _CONTINUE))
"""Text that only a bound ends. Apart from the others, for it moves as many bytes as that bound."""


# -------------------------------------------------------------------------------------- oddities


@dataclass(frozen=True)
class Oddity:
    """An odd answer that has to be taken for what it means.

    plays   the answers, in order; after them the model says "Done."
    ran     the tools that run for it, as (name, arguments)
    says    what the user reads
    stop    how the turn ends
    """

    plays: Callable[[WireFormat], Sequence[Played]]
    ran: Sequence[tuple[str, JsonDict | None]] = ()
    says: tuple[str, ...] = ("Done.",)
    stop: StopReason = StopReason.END_TURN


def _answers(*answers: JsonDict) -> Callable[[WireFormat], Sequence[Reply]]:
    return lambda wire: [Reply.stream(wire.stream(**answer)) for answer in answers]


def _changed(change: Callable[[JsonDict], JsonDict], **answer: Any) -> Callable[[WireFormat], Sequence[Reply]]:
    return lambda wire: [Reply.stream(rewritten(wire.stream(**answer), change))]


def _interspersed(wire: WireFormat) -> Sequence[Reply]:
    """Empty events between two pieces of a text."""
    before, after = wire.parted(wire.stream(text=["He", "llo"]), b'"He"')
    empty = b"".join(wire.frame(json.dumps(each)) for each in wire.empty)
    return [Reply.stream(before + empty + after)]


def _without(keys: Sequence[str], of: Callable[[JsonDict], bool] = lambda _: True) -> Callable[[JsonDict], JsonDict]:
    return lambda value: {key: item for key, item in value.items() if key not in keys} if of(value) else value


_LOOK = tool("look", note="a\u2028b\u2029 😀")
_LOOKED = ("look", {"note": "a\u2028b\u2029 😀"})
_NO_ANSWER = ("The model gave no answer.", "Try again")
_USAGE = ("usage", "prompt_eval_count", "eval_count")
_SIXTY = [tool("write", f"call_{number}", number=number) for number in range(60)]

ODDITIES = {
    "U+2028 in JSON": Oddity(_answers({"text": ["a\u2028b"], "calls": [_LOOK]}), [_LOOKED], ("a\u2028b", "Done.")),
    "characters split over chunks": Oddity(
        lambda wire: [Reply.stream(body := wire.stream(text=["naïve 😀"], calls=[_LOOK]), range(len(body)))],
        [_LOOKED],
        ("naïve 😀", "Done."),
    ),
    "gzip": Oddity(lambda wire: [Reply.zipped(wire.stream(text=["packed"]))], says=("packed",)),
    "the status 201": Oddity(
        lambda wire: [Reply([Send(wire.stream(text=["created"]))], 201)],
        says=("created",),
    ),
    "a careless content type": Oddity(
        lambda wire: [Reply([Send(wire.stream(text=["plain"]))], headers=(("content-type", "text/plain"),))],
        says=("plain",),
    ),
    "no usage": Oddity(_changed(_without(_USAGE), calls=[_LOOK]), [_LOOKED]),
    "missing ids": Oddity(
        _changed(
            _without(
                ("id", "call_id"),
                of=lambda value: "function" in value or value.get("type") in ("tool_use", "function_call"),
            ),
            calls=[_LOOK, tool("look", "call_2"), tool("write", "call_3")],
        ),
        [_LOOKED, ("look", {}), ("write", {})],
    ),
    "arguments in one piece": Oddity(lambda wire: [Reply.stream(wire.whole(_LOOK))], [_LOOKED]),
    "empty deltas": Oddity(_interspersed, says=("Hello",)),
    "an empty answer": Oddity(_answers({}), says=_NO_ANSWER),
    "a blank answer": Oddity(_answers({"text": [" ", "\n"]}), says=_NO_ANSWER),
    "only thinking": Oddity(_answers({"thought": ["Hm."]}), says=_NO_ANSWER),
    "bad JSON for arguments": Oddity(
        _answers({"calls": [{**_LOOK, "arguments": '{"note": "a'}, {**tool("write", "call_2"), "arguments": "[1]"}]}),
        [("look", None), ("write", None)],
    ),
    "an unknown tool": Oddity(_answers({"calls": [tool("frobnicate", x=1)]}), [("frobnicate", {"x": 1})]),
    "tools with impossible names": Oddity(
        _answers({"calls": [tool(" é/b.c:d", "call_1"), tool("x" * 5000, "call_2"), tool("", "call_3")]}),
        [("invalid_tool_name", {})] * 3,
    ),
    "tools named as in the model's own format": Oddity(
        _answers({"calls": [tool("functions.look", "call_1"), tool("write ", "call_2")]}),
        [("look", {}), ("write", {})],
    ),
    "sixty calls at once": Oddity(_answers({"calls": _SIXTY}), [("write", {"number": number}) for number in range(60)]),
    "a call sent twice": Oddity(_answers({"calls": [tool("write", note="x")] * 2}), [("write", {"note": "x"})]),
    "a call sent three times": Oddity(_answers({"calls": [tool("write", note="x")] * 3}), [("write", {"note": "x"})]),
    "calls with one id, each of them sent again": Oddity(
        _answers({"calls": [tool("write", note=note) for note in "xyyxzyz"]}),
        [("write", {"note": "x"}), ("write", {"note": "y"}), ("write", {"note": "z"})],
    ),
    "two calls with one id": Oddity(
        _answers({"calls": [tool("write", note="x"), tool("write", note="y")]}),
        [("write", {"note": "x"}), ("write", {"note": "y"})],
    ),
    "the same ids in every answer": Oddity(
        _answers({"calls": [tool("write", note="x")]}, {"calls": [tool("write", note="y")]}),
        [("write", {"note": "x"}), ("write", {"note": "y"})],
    ),
    "ids of any characters": Oddity(
        _answers({"calls": [tool("write", "functions.write:0"), tool("look", "ü 1")]}), [("write", {}), ("look", {})]
    ),
    "a refusal": Oddity(_answers({"text": ["I w"], "stop": "refusal"}), says=("refused",), stop=StopReason.REFUSAL),
    "an end in a call": Oddity(lambda wire: [_cut_in_a_call(wire)], says=("Done.",)),
    "three ends in a call": Oddity(
        lambda wire: [_cut_in_a_call(wire)] * 3, says=("output limit", "was not run"), stop=StopReason.MAX_TOKENS
    ),
    "a stop reason of the future": Oddity(
        _answers({"text": ["Well. "], "calls": [_LOOK], "stop": "tired"}), [_LOOKED], ("Well.", "Done.")
    ),
}
