"""Connections to real sockets: addresses, certificates, proxies, breaks and deadlines."""

import asyncio
import ssl

import anyio
import pytest
import trustme

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.services import BlockReason
from acp_agent.net.web import GuardedWeb, WebLimits
from tests.unit.net.tls_site import PUBLIC, redirect, reply
from tests.unit.net.world import CALLER, Category, World

pytestmark = pytest.mark.anyio


async def test_a_refused_connection_leads_to_the_next_address_of_the_same_answer(world: World) -> None:
    world.net.names["example.com"] = [["1.1.1.1", "8.8.8.8"], ["127.0.0.1"]]
    world.net.closed = {"1.1.1.1"}
    world.site.replies["/"] = reply(b"x")
    await world.get()
    assert world.net.dialled == ["1.1.1.1", "8.8.8.8"]
    assert world.net.asked == ["example.com"]
    assert world.records[0].address == "8.8.8.8"


async def test_a_dead_address_leads_to_the_next_one_and_only_dead_ones_are_a_timeout(world: World) -> None:
    world.net.names["example.com"] = [["1.1.1.1", "8.8.8.8"]]
    world.net.dead = {"1.1.1.1"}
    world.site.replies["/"] = reply(b"x")
    await world.get()
    world.net.dead = {"1.1.1.1", "8.8.8.8"}
    category, message = await world.category()
    assert (category, message) == (Category.TIMEOUT, "example.com did not take a connection in time")
    assert world.net.dialled == ["1.1.1.1", "8.8.8.8"] * 2


async def test_when_nobody_answers_anywhere_it_is_a_network_error(world: World) -> None:
    world.net.closed = {PUBLIC}
    category, message = await world.category()
    assert (category, message) == (Category.NETWORK_ERROR, "no connection to example.com (Connection refused)")
    assert world.records[0].address is None
    assert world.records[0].block_reason is None


async def test_a_connection_that_leads_elsewhere_than_dialled_is_closed_unused(world: World) -> None:
    world.net.honest = True  # so the socket says what it is: a connection to 127.0.0.1
    world.site.replies["/"] = reply(b"x")
    assert isinstance(await world.failure(), Refused)
    assert world.site.asked == []
    assert world.records[0].block_reason is BlockReason.SSRF


async def test_a_certificate_nobody_vouches_for_is_refused(world: World) -> None:
    with pytest.raises(ToolError) as caught:
        await world.web(trust=ssl.create_default_context()).get("https://example.com/", CALLER)
    assert caught.value.failure.category is Category.PERMANENT_FAILURE
    assert "the certificate of example.com is not valid: " in str(caught.value)
    assert world.site.asked == []
    assert world.records[0].address == PUBLIC
    assert world.records[0].status is None


async def test_a_certificate_for_another_name_is_refused(world: World) -> None:
    category, message = await world.category("https://deep.name.example.org/")
    assert category is Category.PERMANENT_FAILURE
    assert "not valid for 'deep.name.example.org'" in message
    assert world.site.asked == []


async def test_a_server_that_does_not_speak_tls_is_a_network_error(world: World) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        world.net.port = server.sockets[0].getsockname()[1]
        category, message = await world.category()
    assert category is Category.NETWORK_ERROR
    assert message.startswith("no secure connection to example.com")


@pytest.mark.parametrize(
    "answer", [b"", b"\x00\x01\x02 no HTTP\r\n\r\n", reply(b"half", content_length="8"), b"HTTP/1.1 200 OK\r\nX"]
)
async def test_a_broken_answer_is_a_network_error(world: World, answer: bytes) -> None:
    world.site.replies["/"] = answer
    category, message = await world.category()
    assert category is Category.NETWORK_ERROR
    assert "example.com" in message


async def test_a_reset_connection_is_a_network_error(world: World) -> None:
    async def reset(writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    world.site.replies["/"] = reset
    category, _ = await world.category()
    assert category is Category.NETWORK_ERROR


async def test_proxies_of_the_environment_are_never_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(await reader.read(100))
        writer.close()

    world.site.replies["/"] = reply(b"x")
    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, address)
        await world.get()
    assert calls == []
    assert len(world.site.asked) == 1


async def test_without_a_context_of_its_own_it_trusts_what_ssl_cert_file_names(
    world: World, ca: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.site.replies["/"] = reply(b"x")
    web = GuardedWeb(WebLimits(), record=world.records.append, resolve=world.net.resolve, dial=world.net.dial)
    with ca.cert_pem.tempfile() as path:
        monkeypatch.setenv("SSL_CERT_FILE", path)
        assert (await web.get("https://example.com/", CALLER)).text == "x"
    unusable = GuardedWeb(WebLimits(), record=world.records.append, resolve=world.net.resolve, dial=world.net.dial)
    with pytest.raises(ToolError, match="certificates of this machine cannot be read") as caught:
        await unusable.get("https://example.com/", CALLER)
    assert caught.value.failure.category is Category.PERMANENT_FAILURE


async def test_a_server_that_drips_is_ended_by_the_deadline_whatever_it_sends(world: World) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    world.site.replies["/"] = drip
    category, message = await world.category(timeout=0.5)
    assert (category, message) == (Category.TIMEOUT, "example.com did not give the whole page within 0.5 s")
    assert world.records[0].status == 200
    assert world.records[0].response_bytes > 0


async def test_a_server_that_says_nothing_is_ended_by_the_deadline(world: World) -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        await writer.wait_closed()

    world.site.replies["/"] = silence
    category, _ = await world.category(timeout=0.1)
    assert category is Category.TIMEOUT


async def test_a_request_cancelled_in_the_handshake_is_recorded_and_its_connection_closed(world: World) -> None:
    shaking, hung_up = anyio.Event(), anyio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        shaking.set()
        await reader.read()
        hung_up.set()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        world.net.port = server.sockets[0].getsockname()[1]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.web().get, "https://example.com/", CALLER)
            await shaking.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            await hung_up.wait()
    assert [(record.address, record.status) for record in world.records] == [(PUBLIC, None)]


async def test_the_deadline_is_for_all_hops_together(world: World) -> None:
    async def slowly(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.12)
        writer.write(redirect("/"))

    world.site.replies["/"] = slowly
    category, _ = await world.category(timeout=0.3)
    assert category is Category.TIMEOUT  # with one deadline a hop, it would be too many redirects


async def test_a_look_up_that_never_ends_is_ended_by_the_deadline(world: World) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await anyio.sleep_forever()
        return []

    web = GuardedWeb(WebLimits(0.05), record=world.records.append, resolve=resolve, dial=world.net.dial)
    with pytest.raises(ToolError, match=r"^example\.com did not give the whole page within 0\.05 s") as caught:
        await web.get("https://example.com/", CALLER)
    assert caught.value.failure.category is Category.TIMEOUT
    assert world.records[0].host == "example.com"


async def test_a_cancelled_request_is_recorded_and_its_connection_closed(world: World) -> None:
    started = anyio.Event()

    async def silence(writer: asyncio.StreamWriter) -> None:
        started.set()
        await writer.wait_closed()
        world.site.hung_up.set()

    world.site.replies["/"] = silence
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.web().get, "https://example.com/", CALLER)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert [(record.address, record.status) for record in world.records] == [(PUBLIC, None)]
    with anyio.fail_after(5):
        await world.site.hung_up.wait()
