"""One line of the stream, judged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.protocol.frames import Ignored, Malformed, Notification, Request, Response, parse


def line(message: object) -> bytes:
    return json.dumps(message).encode()


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"hello", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x"', -32700),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"x"}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":Infinity}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1e999}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[-1.5E+400]}}', -32700),
        (b'{"a":"\xff"}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"x"}', -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"x"}]', -32600),
        (b"42", -32600),
        (b'"text"', -32600),
        (b"null", -32600),
        (b"true", -32600),
        (b"{}", -32600),
        (b'{"id":1,"method":"x"}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":null}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}', -32602),
    ],
)
def test_what_is_no_message_gets_its_code(raw: bytes, code: int) -> None:
    frame = parse(raw)
    assert isinstance(frame, Malformed)
    assert frame.code == code


def test_the_id_of_an_invalid_request_is_kept_where_it_can_be_read() -> None:
    assert parse(b'{"jsonrpc":"2.0","id":"abc","method":7}') == Malformed(
        "abc", -32600, 'Invalid request: "method" must be a string'
    )


def test_errors_never_repeat_what_was_sent() -> None:
    frame = parse(b'{"secret": "sk-not-a-real-key" ')
    assert isinstance(frame, Malformed)
    assert "sk-not" not in frame.message


def test_members_nobody_asked_for_are_tolerated() -> None:
    raw = line({"jsonrpc": "2.0", "id": 3, "method": "m", "params": None, "type": "com.agentclientprotocol.rpc"})
    assert parse(raw) == Request(3, "m", {})


@pytest.mark.parametrize("raw", [b"", b"\r", b"  \t\r\n", b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}'])
def test_blank_lines_and_answers_to_nothing_are_ignored(raw: bytes) -> None:
    assert parse(raw) == Ignored()


def test_a_byte_order_mark_and_crlf_do_no_harm() -> None:
    assert parse(b"\xef\xbb\xbf" + line({"jsonrpc": "2.0", "method": "n"}) + b"\r\n") == Notification("n", {})


def test_an_error_answer_that_is_no_object_becomes_one() -> None:
    frame = parse(line({"jsonrpc": "2.0", "id": 5, "error": "broken"}))
    assert isinstance(frame, Response)
    assert frame.error is not None
    assert frame.error["code"] == -32603


def test_half_a_surrogate_pair_cannot_travel_on() -> None:
    frame = parse(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"t":"a\\ud800b"}}')
    assert frame == Request(1, "m", {"t": "a?b"})


@pytest.mark.parametrize("depth", [300, 480, 520, 700, 990, 2000])
def test_depth_and_half_characters_together_do_not_raise(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    raw = f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"b":"\\ud800","a":{nested}}}}}'
    assert isinstance(parse(raw.encode()), Request | Malformed)


def test_a_whole_surrogate_pair_is_one_character() -> None:
    frame = parse(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"t":"\\ud83d\\ude00"}}')
    assert frame == Request(1, "m", {"t": "\U0001f600"})


@given(st.binary(max_size=200))
def test_no_bytes_can_make_it_raise(raw: bytes) -> None:
    parse(raw)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.just("2.0") | _json,
            "id": _json,
            "method": st.sampled_from(["initialize", "session/prompt"]) | _json,
            "params": _json,
            "result": _json,
            "error": _json,
            "type": _json,
        },
    )
)
def test_no_object_can_make_it_raise_and_ids_are_echoed_as_sent(message: dict[str, object]) -> None:
    frame = parse(line(message))
    if isinstance(frame, Request):
        assert frame.id == message["id"]
        assert type(frame.id) is type(message["id"])
