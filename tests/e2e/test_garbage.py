"""Whatever a line holds, the answer is the right error and the agent stays alive (JSON-RPC 2.0; acp.md 3.1)."""

import json

import anyio
import pytest

from acp_agent import boot
from tests.fakes.editor import editing, from_agent
from tests.fakes.held import PATIENCE
from tests.fakes.model_script import says

pytestmark = pytest.mark.anyio

PARSE, INVALID, METHOD, PARAMS = -32700, -32600, -32601, -32602

SECRET = "obviously-fake-secret"


def authenticate(**members) -> dict:
    request = {"jsonrpc": "2.0", "id": 7, "method": "authenticate", "params": {"methodId": "acp-agent"}, **members}
    return {name: value for name, value in request.items() if value is not ...}


# (what, the line, the code of the answer, the id of the answer)
GARBAGE = [
    ("words", b"hello there " + SECRET.encode(), PARSE, None),
    ("half an object", b'{"jsonrpc":"2.0","id":1,"method":', PARSE, None),
    ("two objects", json.dumps(authenticate()).encode() * 2, PARSE, None),
    ("single quotes", b"{'jsonrpc':'2.0'}", PARSE, None),
    ("NaN", b'{"jsonrpc":"2.0","id":7,"method":"authenticate","params":{"a":NaN}}', PARSE, None),
    ("Infinity", b'{"jsonrpc":"2.0","id":7,"method":"authenticate","params":{"a":-Infinity}}', PARSE, None),
    ("an id of 5000 digits", b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"x"}', INVALID, None),
    ("a number of 5000 digits", b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":%s}}' % (b"9" * 5000), INVALID, 7),
    ("a number out of range", b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":1e999}}', INVALID, 7),
    ("an id out of range", b'{"jsonrpc":"2.0","id":1e999,"method":"x"}', INVALID, None),
    ("nesting without end", b"[" * 100_000, PARSE, None),
    ("nested objects", b'{"a":' * 100_000, PARSE, None),
    ("invalid UTF-8", b'{"jsonrpc":"2.0","id":7,"method":"\xff\xfe"}', PARSE, None),
    ("UTF-16", json.dumps(authenticate()).encode("utf-16").replace(b"\n", b" "), PARSE, None),
    ("NUL bytes", b"\x00\x00\x00", PARSE, None),
    ("a control character in a string", b'{"jsonrpc":"2.0","id":7,"method":"a\x01b"}', PARSE, None),
    ("HTTP", b"POST / HTTP/1.1\r", PARSE, None),
    ("a header", b"Content-Length: 120\r", PARSE, None),
    ("null", b"null", INVALID, None),
    ("a number", b"17", INVALID, None),
    ("a string", b'"initialize"', INVALID, None),
    ("a boolean", b"true", INVALID, None),
    ("an empty array", b"[]", INVALID, None),
    ("a batch", json.dumps([authenticate(), authenticate(id=8)]).encode(), INVALID, None),
    ("an empty object", b"{}", INVALID, None),
    ("no jsonrpc", authenticate(jsonrpc=...), INVALID, 7),
    ("jsonrpc 1.0", authenticate(jsonrpc="1.0"), INVALID, 7),
    ("jsonrpc as a number", authenticate(jsonrpc=2.0), INVALID, 7),
    ("no method", authenticate(method=...), INVALID, 7),
    ("method null", authenticate(method=None), INVALID, 7),
    ("method a number", authenticate(method=12), INVALID, 7),
    ("method an object", authenticate(method={"name": "authenticate"}), INVALID, 7),
    ("id null", authenticate(id=None), INVALID, None),
    ("id a fraction", authenticate(id=1.5), INVALID, 1.5),
    ("id a list", authenticate(id=[7]), INVALID, None),
    ("id an object", authenticate(id={"id": 7}), INVALID, None),
    ("id a boolean", authenticate(id=True), INVALID, None),
    ("params a string", authenticate(params=SECRET), INVALID, 7),
    ("params a number", authenticate(params=1), INVALID, 7),
    ("params a list", authenticate(params=["acp-agent", SECRET]), PARAMS, 7),
    ("an unknown method", authenticate(method="no/such/method"), METHOD, 7),
    ("an unknown method with half a character", b'{"jsonrpc":"2.0","id":7,"method":"\\ud800"}', METHOD, 7),
]


def bytes_of(line) -> bytes:
    return line if isinstance(line, bytes) else json.dumps(line).encode()


async def is_alive(editor) -> None:
    await editor.initialize()
    assert await editor.ask("authenticate", {"methodId": editor.auth_method}) == {}


async def refused(editor, what: str, line, code: int, request_id) -> None:
    """Send a line of garbage; the answer is its error, without what was sent."""
    start = len(editor.recording.frames)
    await editor.send_line(bytes_of(line))
    answer = (await editor.seen(lambda frame: from_agent(frame) and not frame.method, start)).message
    assert (answer["error"]["code"], answer["id"]) == (code, request_id), what
    assert "result" not in answer, what
    assert answer["error"]["message"], what
    assert SECRET not in json.dumps(answer), what


async def answered(editor, what: str, line, code: int, request_id) -> None:
    """Send a line of garbage; the answer is its error, once, without what was sent, and the agent goes on."""
    start = len(editor.recording.frames)
    await refused(editor, what, line, code, request_id)
    await is_alive(editor)
    answers = [f for f in editor.recording.frames[start:] if from_agent(f) and "error" in f.message]
    assert len(answers) == 1, what


def test_nothing_is_answered_before_the_reader_proper_has_seen_it(tmp_path):
    for what, line, _code, _id in GARBAGE:
        (tmp_path / "lines").write_bytes(bytes_of(line) + b"\n")
        with (tmp_path / "lines").open("rb") as lines, (tmp_path / "answers").open("wb") as answers:
            handover = boot.answer_first_line(lines.fileno(), answers.fileno())
            rest = lines.read()
        assert handover.unread + rest == bytes_of(line) + b"\n", what
        assert handover.initialized is None, what
        assert (tmp_path / "answers").read_bytes() == b"", what


# One of each kind to an agent of its own; before it all are the same to what reads first.
@pytest.mark.parametrize("what", ["words", "nesting without end", "invalid UTF-8", "null", "a batch", "params a list"])
async def test_garbage_as_the_first_line_is_answered_with_its_error_and_survived(tmp_path, what):
    (row,) = [row for row in GARBAGE if row[0] == what]
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        await answered(editor, *row)


async def test_garbage_before_initialize_is_answered_with_its_error_and_survived(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        for what, line, code, request_id in GARBAGE:
            # before `initialize` no method is looked up at all
            await refused(editor, what, line, INVALID if code == METHOD else code, request_id)
        await is_alive(editor)


async def test_garbage_later_is_answered_with_its_error_and_survived(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        session = await editor.open()
        await editor.updated("available_commands_update")
        for row in GARBAGE:
            await answered(editor, *row)
        assert await editor.say(session, "hi") == "end_turn"


SILENT = [
    b"",
    b"   ",
    b"\r",
    b'{"jsonrpc":"2.0","id":99,"result":{}}',
    b'{"jsonrpc":"2.0","id":"nobody","error":{"code":1,"message":"x"}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Toad does this"}}',
    b'{"jsonrpc":"2.0","id":99,"error":"not an object"}',
    b'{"jsonrpc":"2.0","method":"no/such/notification"}',
    b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":99}}',
    b'{"jsonrpc":"2.0","method":"$/cancel_request"}',
    b'{"jsonrpc":"2.0","method":"session/cancel"}',
]


@pytest.mark.parametrize("first", [True, False], ids=["as the first lines", "later"])
async def test_what_needs_no_answer_gets_none(tmp_path, first):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        if not first:
            await is_alive(editor)
        start = len(editor.recording.frames)
        for line in SILENT:
            await editor.send_line(line)
        await is_alive(editor)
        assert not [f for f in editor.recording.frames[start:] if "error" in f.message]


@pytest.mark.parametrize(
    "wrapped", [b"\xef\xbb\xbf%s", b"%s\r", b"  \t%s  "], ids=["byte order mark", "CRLF", "spaces"]
)
async def test_harmless_wrapping_is_tolerated(tmp_path, wrapped):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        await editor.send_line(wrapped % json.dumps(request).encode())
        assert (await editor.answer_to(1))["result"]["protocolVersion"] == 1


async def test_a_line_over_32_mebibytes_is_refused_whole_and_the_next_one_is_read(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        await is_alive(editor)
        start = len(editor.recording.frames)
        huge = authenticate(params={"methodId": "x" * (32 * 1024 * 1024)})
        await editor.send_line(json.dumps(huge))
        answer = (await editor.seen(from_agent, start)).message
        assert (answer["error"]["code"], answer["id"]) == (INVALID, None)
        await is_alive(editor)


async def test_a_line_that_is_large_but_allowed_is_served(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        await editor.initialize()
        await editor.send_line(authenticate(padding="x" * (20 * 1024 * 1024)))
        assert (await editor.answer_to(7))["result"] == {}


async def test_a_line_may_arrive_byte_by_byte(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        text = "Grüße, 世界 🎉"
        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": 1, "_meta": {"t": text}},
        }
        for byte in json.dumps(request, ensure_ascii=False).encode() + b"\n":
            await editor.agent.send_bytes(bytes([byte]))
        assert (await editor.answer_to(1))["result"]["protocolVersion"] == 1


async def test_a_thousand_lines_in_one_write_are_all_answered_once(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        await editor.initialize()
        start = len(editor.recording.frames)
        await editor.send_lines(*[authenticate(id=f"n{number}") for number in range(1000)])
        await editor.answer_to("n999", start)
        with anyio.fail_after(PATIENCE):
            while len(editor.recording.frames) < start + 1000:
                await editor.recording.until(from_agent, len(editor.recording.frames))
        answered = [f.message["id"] for f in editor.recording.frames[start:]]
        assert sorted(answered) == sorted(f"n{number}" for number in range(1000))


async def test_the_same_id_twice_is_answered_twice(tmp_path):
    async with editing(tmp_path, [says("hi")], lawful=False) as editor:
        await editor.initialize()
        start = len(editor.recording.frames)
        await editor.send_lines(authenticate(), authenticate())
        first = await editor.recording.until(from_agent, start)
        await editor.seen(from_agent, first + 1)
        assert [f.message for f in editor.recording.frames[start:]] == [{"jsonrpc": "2.0", "id": 7, "result": {}}] * 2


async def test_garbage_in_the_middle_of_a_turn_does_not_disturb_it(tmp_path):
    async with editing(tmp_path, [{"text": ["a", "b", "c"], "delay_ms": 30}], lawful=False) as editor:
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await editor.updated("agent_message_chunk")
            for _what, line, _code, _id in GARBAGE:
                await editor.send_line(bytes_of(line))
        assert turn.stop_reason == "end_turn"
        assert editor.text == "abc"
