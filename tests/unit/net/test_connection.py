"""The dialler and the resolver of this machine, on real sockets, and what the backend will not do."""

import asyncio
import socket
import subprocess
import sys

import httpcore
import pytest

from acp_agent.core.errors import Refused
from acp_agent.net.connection import PinnedBackend, system_dial
from acp_agent.net.hosts import ResolvedTarget, WebTarget, system_resolve
from acp_agent.net.web import GuardedWeb, WebLimits

pytestmark = pytest.mark.anyio


def judged(address: str, port: int) -> ResolvedTarget:
    return ResolvedTarget(WebTarget("https://example.com/", "example.com", port, b"/"), (address,))


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_a_real_connection_leads_where_it_was_dialled(address: str) -> None:
    try:
        server = await asyncio.start_server(hang_up, address, 0)
    except OSError:
        pytest.skip(f"this machine has no {address}")
    async with server:
        port = server.sockets[0].getsockname()[1]
        backend = PinnedBackend(judged(address, port), system_dial)
        stream = await backend.connect_tcp("example.com", port)
        assert stream.get_extra_info("server_addr")[:2] == (address, port)
        assert backend.address == address
        await backend.aclose()


async def test_the_backend_dials_for_no_other_host_or_port_and_no_socket_file() -> None:
    async def dial(address: str, port: int) -> httpcore.AsyncNetworkStream:
        raise AssertionError("dialled")

    backend = PinnedBackend(judged("8.8.8.8", 443), dial)
    for host, port in (("example.org", 443), ("example.com", 444), ("127.0.0.1", 443)):
        with pytest.raises(Refused):
            await backend.connect_tcp(host, port)
    with pytest.raises(Refused):
        await backend.connect_unix_socket("/run/x.sock")
    await backend.aclose()


async def test_the_resolver_of_this_machine_gives_addresses_and_its_errors_are_errors() -> None:
    assert await system_resolve("127.0.0.1", 443) == ["127.0.0.1"]
    assert set(await system_resolve("localhost", 443)) <= {"127.0.0.1", "::1"}
    with pytest.raises(socket.gaierror):
        await system_resolve("no-such-host.invalid", 443)


async def test_a_name_of_this_machine_is_refused_with_everything_as_in_production() -> None:
    web = GuardedWeb(WebLimits(), record=lambda _: None)
    with pytest.raises(Refused):
        await web.judge("https://localhost/")
    with pytest.raises(Refused, match="cannot be resolved"):
        await web.judge("https://no-such-host.invalid/")


def test_a_session_that_reads_no_page_does_not_wait_for_httpx() -> None:
    code = (
        "import sys\nfrom acp_agent.net.web import GuardedWeb, WebLimits\n"
        "GuardedWeb(WebLimits(), allowed_domains=('*.example.com',), record=print)\n"
        "print([name for name in ('httpx', 'httpcore', 'idna') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
