"""One line of the stream, judged strictly; and errors as they are sent."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.protocol.jsonrpc import Ignored, Malformed, Notification, Request, Response, parse
from tests.rows import each_row


def line(message: object) -> bytes:
    return json.dumps(message).encode()


@each_row(
    "raw, code",
    [
        (b"hello", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x"', -32700),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"x"}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":Infinity}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1e999}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[-1.5E+400]}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1e999,"b":NaN}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1e999,"b":}}', -32700),
        (b'{"a":"\xff"}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":1e999,"method":"x"}', -32600),
        (b"1e999", -32600),
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


@each_row("depth", [300, 480, 520, 700, 990, 2000])
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


def _is_json(value: object) -> bool:
    """Whether Python writes nothing that is no JSON, such as NaN."""
    try:
        return bool(json.dumps(value, allow_nan=False))
    except ValueError:
        return False


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


NUMBERS = ["1e999", "-1E+999", "9" * 5000, "-" + "9" * 5000, "1" * 400 + ".5"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:8])
def test_a_number_out_of_range_is_refused_under_the_id_of_its_request(number: str) -> None:
    for request_id in (7, "seven", 0, ""):
        raw = f'{{"jsonrpc":"2.0","params":{{"a":[{number}]}},"method":"x","id":{json.dumps(request_id)}}}'
        assert parse(raw.encode()) == Malformed(request_id, -32600, "Invalid request: a number out of range")


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:8])
def test_an_answer_with_a_number_out_of_range_is_an_error_for_whoever_asked(number: str) -> None:
    frame = parse(f'{{"jsonrpc":"2.0","id":7,"result":{{"a":{number}}}}}'.encode())
    assert isinstance(frame, Response)
    assert (frame.id, frame.result) == (7, None)
    assert frame.error is not None


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:8])
def test_a_notification_with_a_number_out_of_range_is_heeded_without_it(number: str) -> None:
    frame = parse(f'{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"s","a":{number}}}}}'.encode())
    assert frame == Notification("session/cancel", {"sessionId": "s", "a": None})


@pytest.mark.parametrize("number", [1.5, -0.5, 2.0, 1e300])
def test_a_fraction_is_no_id_and_is_answered_as_it_was_sent(number: float) -> None:
    frame = parse(line({"jsonrpc": "2.0", "id": number, "method": "x"}))
    assert isinstance(frame, Malformed)
    assert (frame.id, frame.code) == (number, -32600)


@given(_json.filter(_is_json), st.just("2.0") | _json.filter(_is_json))
def test_nothing_is_ever_answered_to_a_notification(params: object, version: object) -> None:
    frame = parse(line({"jsonrpc": version, "method": "session/cancel", "params": params}))
    assert isinstance(frame, Notification | Ignored)
