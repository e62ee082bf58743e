"""Servers over HTTP that lure, flood, hang and lie. Real sockets on 127.0.0.1."""

import asyncio
import gzip
import json

import anyio
import psutil
import pytest

from acp_agent.core.errors import ToolErrorCategory as Category
from acp_agent.core.mcp import HttpServer, McpOrigin, McpServer, McpState
from acp_agent.net.connection import system_dial
from tests.mcp.stage import http, on_stage
from tests.mcp.web_server import event, reply, stream, web_server
from tests.rows import each_row

pytestmark = pytest.mark.anyio


def named(url, *, allow_private=False, **more):
    return McpServer("hostile", HttpServer(url, (), allow_private=allow_private), McpOrigin.EDITOR, **more)


def status(line, **headers):
    async def answer(request, writer):
        reply(writer, b"{}", line, **headers)

    return answer


# ------------------------------------------------------------------------------------- a good one


async def test_a_session_is_begun_used_and_ended_with_the_users_headers():
    async with web_server() as web:
        async with on_stage(http(web.port, headers=(("Authorization", "Bearer fake"), ("Host", "evil")))) as stage:
            assert await stage.reach(McpState.READY) == ""
            assert await stage.call("over http") == "over http"
        verbs = ["DELETE", "GET", "initialize", "notifications/initialized", "tools/call", "tools/list"]
        assert sorted(web.verbs()) == verbs
        assert web.verbs()[:2] == ["initialize", "notifications/initialized"]
        assert web.verbs()[-1] == "DELETE"
        first, *others = web.asked
        assert "mcp-session-id" not in first.headers
        assert {request.headers["mcp-session-id"] for request in others} == {"fake-session"}
        assert {request.headers["mcp-protocol-version"] for request in others} == {"2025-11-25"}
        assert {request.headers["authorization"] for request in web.asked} == {"Bearer fake"}
        assert {request.headers["host"] for request in web.asked} == {f"127.0.0.1:{web.port}"}


async def test_an_answer_may_come_as_events_after_others():
    async def call(request, writer):
        stream(writer)
        note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
        asked = b'{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}'
        writer.write(b": hello\n\n" + event(b"") + event(note) + event(asked) + event(request.text("at last")))

    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        assert await stage.call() == "at last"
        with anyio.fail_after(20):
            while not any("error" in request.message for request in web.asked):
                web.came.clear()
                await web.came.wait()


async def test_definitions_that_change_are_told_over_the_listening_stream():
    go = anyio.Event()

    async def listen(request, writer):
        stream(writer)
        await writer.drain()
        await go.wait()
        web.tools = [{**web.tools[0], "description": "Pulled."}]
        writer.write(event(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'))
        await writer.drain()
        await asyncio.Event().wait()

    async with web_server(GET=listen) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        go.set()
        await stage.until(lambda: stage.connection.definitions()[0].description == "Pulled.")


async def test_a_call_that_is_given_up_is_cancelled_at_the_server_and_its_connection_closed():
    hung_up = anyio.Event()

    async def call(request, writer):
        try:
            await asyncio.Event().wait()
        finally:
            hung_up.set()

    async with web_server(tools_call=call) as web, on_stage(http(web.port, tool_timeout=0.2)) as stage:
        await stage.reach(McpState.READY)
        assert (await stage.failure()).category is Category.TIMEOUT
        with anyio.fail_after(20):
            while "notifications/cancelled" not in web.verbs():
                web.came.clear()
                await web.came.wait()


@each_row(
    "code, said",
    [
        ("404 Not Found", None),
        ("400 Bad Request", "Bad Request: No valid session ID provided"),
        ("400 Bad Request", "Bad Request: Server not initialized"),
    ],
)
async def test_a_forgotten_session_is_begun_anew(code, said):
    forgotten = []
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": said}}

    async def call(request, writer):
        if not forgotten:
            forgotten.append(request)
            reply(writer, json.dumps(error).encode() if said else b"", code)
        else:
            reply(writer, request.text("again"))

    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        assert "has forgotten the session, so the call did not run" in (await stage.failure()).message
        assert await stage.call() == "again"
        assert web.verbs().count("initialize") == 2


async def test_a_call_beside_one_that_finds_the_session_forgotten_may_have_run():
    came = anyio.Event()

    async def call(request, writer):
        if request.message["params"]["arguments"]["x"] == "slow":
            came.set()
            await asyncio.Event().wait()
        reply(writer, status="404 Not Found")

    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        slow = []

        async def call_slowly():
            slow.append(await stage.failure("slow"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_slowly)
            await came.wait()
            assert "did not run" in (await stage.failure("quick")).message
        assert "has forgotten the session; the call may have had effects" in slow[0].message


async def test_a_call_that_reached_no_server_is_not_said_to_have_run():
    refuses = []

    async def dial(address, port):
        if refuses:
            raise OSError(111, "refused")
        return await system_dial(address, port)

    async with web_server() as web, on_stage(http(web.port), dial=dial) as stage:
        await stage.reach(McpState.READY)
        refuses.append(True)
        failure = await stage.failure()
    assert failure.category is Category.NETWORK_ERROR
    assert "no connection to 127.0.0.1" in failure.message
    assert "may have had effects" not in failure.message


# ------------------------------------------------------------------------------------- where it may be


@each_row(
    "url",
    [
        "http://127.0.0.1:{port}/mcp",
        "https://127.0.0.1:{port}/mcp",
        "https://localhost:{port}/mcp",
        "https://[::1]:{port}/mcp",
        "https://169.254.169.254/mcp",
        "https://metadata.google.internal/mcp",
        "https://0x7f.1:{port}/mcp",
        "https://user:fake@example.com/mcp",
        "ftp://example.com/mcp",
        "https:///mcp",
        "https://exa mple.com/mcp",
        "https://example.com\\@127.0.0.1/mcp",
    ],
)
async def test_an_address_that_is_not_public_is_never_dialled_without_the_users_word(url):
    async with web_server() as web, on_stage(named(url.format(port=web.port))) as stage:
        assert await stage.reach(McpState.FAILED)
        assert stage.naps.waits() == []
        assert web.asked == []


@pytest.mark.parametrize("url", ["https://169.254.169.254/mcp", "http://93.184.216.34/mcp", "http://224.0.0.1/mcp"])
async def test_even_on_the_users_word_neither_clouds_nor_public_hosts_over_plain_http(url):
    dialled = []

    async def dial(address, port):
        dialled.append(address)
        raise OSError

    async with on_stage(named(url, allow_private=True), dial=dial) as stage:
        assert await stage.reach(McpState.FAILED)
        assert dialled == []


async def test_a_public_name_that_leads_to_a_private_address_is_refused():
    dialled = []

    async def dial(address, port):
        dialled.append(address)
        raise OSError

    async def resolve(host, port):
        return ["93.184.216.34", "10.0.0.7"]

    async with on_stage(named("https://mcp.example.com/"), dial=dial, resolve=resolve) as stage:
        assert "10.0.0.7, which is no public address" in await stage.reach(McpState.FAILED)
        assert dialled == []


async def test_a_name_that_moves_to_a_private_address_later_is_refused_then():
    answers = [["93.184.216.34"], ["127.0.0.1"]]
    dialled = []

    async def resolve(host, port):
        return answers.pop(0)

    async def dial(address, port):
        dialled.append(address)
        raise OSError(111, "refused")

    async with on_stage(named("https://mcp.example.com/"), dial=dial, resolve=resolve) as stage:
        assert "127.0.0.1, which is no public address" in await stage.reach(McpState.FAILED)
        assert dialled == ["93.184.216.34"]


async def test_a_name_that_cannot_be_resolved_is_tried_again():
    async def resolve(host, port):
        raise OSError

    async with on_stage(named("https://mcp.example.com/"), resolve=resolve) as stage:
        assert "cannot be resolved" in await stage.reach(McpState.FAILED)
        assert len(stage.naps.waits()) == 4


@pytest.mark.parametrize("code", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
async def test_a_redirect_to_metadata_is_not_followed(code):
    to = "http://169.254.169.254/latest/meta-data"
    async with web_server(initialize=status(code, location=to)) as web, on_stage(http(web.port)) as stage:
        assert "redirects to another address, which is not followed" in await stage.reach(McpState.FAILED)


async def test_a_redirect_of_a_call_to_itself_is_not_followed():
    call = status("307 Temporary Redirect", location="/mcp")
    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        assert (await stage.failure()).category is Category.PERMANENT_FAILURE
        assert web.verbs().count("tools/call") == 1


# ------------------------------------------------------------------------------------- what it answers


@pytest.mark.parametrize("code", ["401 Unauthorized", "403 Forbidden"])
async def test_who_may_not_enter_does_not_knock_again(code):
    async with web_server(initialize=status(code)) as web, on_stage(http(web.port)) as stage:
        assert code in await stage.reach(McpState.FAILED)
        assert web.verbs() == ["initialize"]


@each_row(
    "code, category",
    [
        ("401 Unauthorized", Category.POLICY_BLOCKED),
        ("403 Forbidden", Category.POLICY_BLOCKED),
        ("400 Bad Request", Category.INVALID_PARAMETERS),
        ("429 Too Many Requests", Category.RATE_LIMITED),
        ("500 Internal Server Error", Category.SERVER_ERROR),
        ("529 Overloaded", Category.SERVER_ERROR),
        ("202 Accepted", Category.SERVER_ERROR),
        ("204 No Content", Category.SERVER_ERROR),
    ],
)
async def test_a_status_fails_the_call_and_not_the_connection(code, category):
    async with web_server(tools_call=status(code)) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        assert (await stage.failure()).category is category
        assert stage.connection.state is McpState.READY


async def test_an_error_in_the_body_of_a_bad_status_is_told():
    async def call(request, writer):
        error = {"jsonrpc": "2.0", "id": request.message["id"], "error": {"code": -32602, "message": "no such x"}}
        reply(writer, json.dumps(error).encode(), "400 Bad Request")

    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        said = await stage.reply({})
        assert (said.is_error, said.text) == (True, "no such x")


async def test_an_error_that_names_no_request_is_about_the_one_that_it_answers():
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "no such x"}}

    async def call(request, writer):
        reply(writer, json.dumps(error).encode(), "400 Bad Request")

    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        said = await stage.reply({})
        assert (said.is_error, said.text) == (True, "no such x")
        assert stage.connection.state is McpState.READY


async def test_a_compressed_answer_is_refused_unseen():
    async def call(request, writer):
        reply(writer, gzip.compress(b"0" * 50_000_000, 1), content_encoding="gzip")

    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        failure = await stage.failure()
        assert failure.category is Category.PERMANENT_FAILURE
        assert "compressed" in failure.message


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_body_of_a_hundred_megabytes_is_not_read_to_its_end(kind):
    async def call(request, writer):
        reply(writer, content_type=kind, content_length="100000000")
        writer.write(b"data: ")
        for _ in range(1500):
            writer.write(b"x" * 65536)
            await writer.drain()

    before = psutil.Process().memory_info().rss
    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        assert (await stage.failure()).category is Category.PERMANENT_FAILURE
        assert stage.connection.state is McpState.READY
    assert psutil.Process().memory_info().rss - before < 60 * 1024 * 1024


async def test_events_without_end_cost_a_timeout():
    async def call(request, writer):
        stream(writer)
        while True:
            writer.write(event(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}') * 300)
            await writer.drain()

    async with web_server(tools_call=call) as web, on_stage(http(web.port, tool_timeout=0.3)) as stage:
        await stage.reach(McpState.READY)
        assert (await stage.failure()).category is Category.TIMEOUT


async def test_comments_without_end_are_slowed_down():
    async def listen(request, writer):
        stream(writer)
        while True:
            writer.write(b":\n" * 30_000)
            await writer.drain()

    async with web_server(GET=listen) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        with anyio.fail_after(10):
            while sum(0.05 <= nap < 0.5 for nap in stage.naps.taken) < 3:
                await stage.naps.napped()
        assert await stage.call("still there") == "still there"


async def test_an_answer_in_another_calls_stream_reaches_its_own_call():
    first = []

    async def call(request, writer):
        if not first:
            first.append(request)
            await asyncio.Event().wait()
        stream(writer)
        writer.write(event(first[0].text("first")) + event(request.text("second")))

    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        said = []

        async def ask():
            said.append(await stage.call())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            while not first:
                web.came.clear()
                await web.came.wait()
            assert await stage.call() == "second"
        assert said == ["first"]


async def test_events_that_end_without_an_answer_fail_the_call():
    async def call(request, writer):
        stream(writer)
        writer.write(event(b'{"jsonrpc":"2.0","id":99,"result":{}}'))

    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        failure = await stage.failure()
        assert (failure.category, failure.message) == (Category.SERVER_ERROR, "the server's answer held no result")


async def test_headers_without_end_are_cut_off():
    async def call(request, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(10_000):
            writer.write(b"X-%d: %s\r\n" % (number, b"y" * 1000))
            await writer.drain()

    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        assert "bytes of headers" in (await stage.failure()).message


@pytest.mark.parametrize("kind", ["text/html", "", "application/octet-stream"])
async def test_a_page_is_no_answer(kind):
    async with web_server(tools_call=status("200 OK", content_type=kind)) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        assert (await stage.failure()).category is Category.SERVER_ERROR


async def test_a_connection_that_breaks_in_a_call_is_made_anew():
    async def call(request, writer):
        if web.verbs().count("tools/call") == 1:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\nContent-Type: application/json\r\n\r\n{")
        else:
            reply(writer, request.text("back"))

    async with web_server(tools_call=call) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
        failure = await stage.failure()
        assert failure.category is Category.NETWORK_ERROR
        assert "broke off its answer" in failure.message
        assert "the call may have had effects" in failure.message
        assert failure.suggestion == "Check what it did before you repeat it."
        assert await stage.call() == "back"


async def test_a_session_id_that_is_none_is_not_sent_back():
    async with web_server() as web:
        web.session = "two words"
        async with on_stage(http(web.port)) as stage:
            await stage.reach(McpState.READY)
            assert await stage.call("x") == "x"
        assert all("mcp-session-id" not in request.headers for request in web.asked)


async def test_headers_of_the_user_that_cannot_be_sent_are_a_clear_error():
    async with web_server() as web, on_stage(http(web.port, headers=(("X-A", "a\r\nEvil: b"),))) as stage:
        assert "cannot be sent" in await stage.reach(McpState.FAILED)
        assert web.asked == []


async def test_a_header_outside_ascii_is_named_and_its_value_not():
    async with web_server() as web, on_stage(http(web.port, headers=(("X-A", "fäke"),))) as stage:
        problem = await stage.reach(McpState.FAILED)
        assert "the value of the header X-A cannot be sent" in problem
        assert "ke" not in problem
        assert web.asked == []


async def test_a_server_that_hangs_at_the_end_does_not_hold_up_closing(monkeypatch):
    monkeypatch.setattr("acp_agent.mcp.transports._END_TIMEOUT", 0.05)

    async def hang(request, writer):
        await asyncio.Event().wait()

    async with web_server(DELETE=hang) as web, on_stage(http(web.port)) as stage:
        await stage.reach(McpState.READY)
