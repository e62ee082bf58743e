"""Which hosts commands reach within the walls: those of `network_allow`, through the proxy, and no other."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import anyio
import psutil
import pytest

from acp_agent.core.backends import CommandRequest
from acp_agent.core.services import Egress
from acp_agent.core.types import Access
from acp_agent.net.proxy import AllowlistProxy, allowed_hosts
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.sandbox import bubblewrap
from acp_agent.workspace.sandbox.bubblewrap import SessionNetwork
from acp_agent.workspace.sandbox.landlock import SCOPE_ABI, landlock_abi
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, tier_works, wall_named, why_missing
from acp_agent.workspace.sandbox.walls import NetworkReach, WallRules
from tests.rows import each_row
from tests.unit.net.tls_site import Internet
from tests.unit.workspace.trees import open_fds


def free(path: str) -> bool:
    del path
    return False


def readable(path: str, access: Access) -> None:
    del path, access


TIER = SandboxTier.BUBBLEWRAP
pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not tier_works(TIER), reason=why_missing(TIER))]

FETCH = "import urllib.request; print(urllib.request.urlopen('http://docs.example.com/').read())"
ESCAPES = """
import os, socket, sys, urllib.parse

proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])

def tell(what, got):
    print("ESCAPED" if got else "held", what)

def reached(family, kind, address):
    with socket.socket(family, kind) as made:
        made.settimeout(2)
        try:
            made.connect(address)
            made.send(b"x")
            if kind == socket.SOCK_DGRAM:
                made.recv(9)
            return True
        except OSError:
            return False

def answered(head):
    with socket.create_connection((proxy.hostname, proxy.port)) as made:
        made.sendall(head)
        return made.recv(99).split(b" ")[1]

port, private = int(sys.argv[1]), sys.argv[2:]
for address in ("127.0.0.1", *private):
    tell(f"a server of this machine at {address}", reached(socket.AF_INET, socket.SOCK_STREAM, (address, port)))
tell("a public host", reached(socket.AF_INET, socket.SOCK_STREAM, ("93.184.216.34", 443)))
tell("a public host, IPv6", reached(socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700:4700::1111", 443)))
tell("a name server", reached(socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53)))
tell("the local name server", reached(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.53", 53)))
for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
    try:
        socket.socket(socket.AF_INET, kind, 1).sendto(b"x", ("8.8.8.8", 1))
        tell(f"ICMP {kind}", True)
    except OSError:
        tell(f"ICMP {kind}", False)
try:
    tell("DNS", socket.getaddrinfo("docs.example.com", 443))
except OSError:
    tell("DNS", False)
for place in (
    f"127.0.0.1:{port}", "127.0.0.1:443", "localhost:443", "169.254.169.254:80", "0.0.0.0:443", "[::1]:443",
    "[::ffff:127.0.0.1]:443", "inner.example.com:443", "metadata.example.com:80", "evil.com:443", "2130706433:443",
    f"docs.example.com:{port}", "docs.example.com:22", "docs.example.com@evil.com:443", "evil.com#docs.example.com:443",
    *(f"{address}:443" for address in private),
):
    for head in (f"CONNECT {place} HTTP/1.1", f"GET http://{place}/ HTTP/1.1"):
        got = answered(f"{head}\\r\\nHost: docs.example.com\\r\\n\\r\\n".encode())
        tell(f"{head}: {got}", got not in (b"400", b"403"))
"""


class Networked:
    """A terminal within the walls, and an internet of which one server plays every host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records: list[Egress] = []
        self.rules = WallRules(
            (str(root),),
            free,
            readable,
            hosts=allowed_hosts(("docs.example.com", "inner.example.com", "metadata.example.com")),
        )

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.net = Internet(self.server.sockets[0].getsockname()[1])
        self.net.names |= {"inner.example.com": [["127.0.0.1"]], "metadata.example.com": [["169.254.169.254"]]}
        proxy = partial(AllowlistProxy, record=self.records.append, resolve=self.net.resolve, dial=self.net.dial)
        self.sandbox = SessionSandbox(self.rules, child_environment(os.environ), TIER, proxy=proxy)
        self.terminal = LocalTerminal(sandbox=self.sandbox)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npage\n")
        await writer.drain()
        writer.close()

    async def output(self, command: str) -> str:
        running = await self.terminal.start(CommandRequest(command, str(self.root)))

        async def ignored(output: str) -> None:
            del output

        return (await running.wait(ignored)).output

    def line(self, *, read_only: bool = False) -> str:
        """Return what an editor's terminal runs."""
        request = CommandRequest("python3 tried.py", str(self.root), read_only=read_only)
        return self.sandbox.shell_text(request, {}).line

    async def python(self, script: str, *arguments: object) -> str:
        (self.root / "tried.py").write_text(script)
        return await self.output(f"python3 tried.py {' '.join(map(str, arguments))}")


@pytest.fixture
async def networked(tmp_path: Path) -> AsyncIterator[Networked]:
    made = Networked(tmp_path)
    await made.start()
    yield made
    await anyio.to_thread.run_sync(made.sandbox.close)
    made.server.close()


async def test_a_listed_host_is_reached_in_every_command_of_the_session(networked: Networked):
    assert await networked.python(FETCH) == "b'page\\n'\n"
    assert await networked.python(FETCH) == "b'page\\n'\n"
    assert [record.url for record in networked.records] == ["docs.example.com:80"] * 2


async def test_the_editors_terminal_reaches_it_as_well(networked: Networked):
    (networked.root / "tried.py").write_text(FETCH)
    line = networked.line()
    done = await anyio.run_process(["bash", "-c", line], check=False)
    assert done.stdout == b"b'page\\n'\n", done.stderr


async def test_no_command_gets_anywhere_else(networked: Networked):
    own = {address[4][0] for address in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    said = await networked.python(ESCAPES, networked.net.port, *own)
    assert "ESCAPED" not in said
    assert said.count("held") > 35, said
    assert networked.net.dialled == []
    assert set(networked.net.asked) == {"inner.example.com", "metadata.example.com"}


async def test_a_server_of_the_session_is_asked_without_the_proxy(networked: Networked):
    said = await networked.python(
        "import http.server, threading, urllib.request\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "print(urllib.request.urlopen(f'http://127.0.0.1:{server.server_port}/').status)"
    )
    assert said.splitlines()[-1] == "200"
    assert networked.records == []


async def test_the_list_in_force_counts_also_for_what_runs_already(networked: Networked):
    await networked.python(FETCH)
    old = networked.line()
    networked.sandbox.adopt(WallRules((str(networked.root),), free, readable))
    assert "HTTPS_PROXY" not in await networked.output("env")
    done = await anyio.run_process(["bash", "-c", old], check=False)
    assert b"docs.example.com is not in network_allow" in done.stderr


async def test_a_command_that_only_looks_reaches_nothing(networked: Networked):
    port = (await networked.output("echo ${HTTPS_PROXY##*:}")).strip()
    tried = f"import os, socket\nprint(os.environ.get('HTTPS_PROXY'))\nsocket.create_connection(('127.0.0.1', {port}))"
    (networked.root / "tried.py").write_text(tried)
    done = await anyio.run_process(["bash", "-c", networked.line(read_only=True)], check=False)
    assert done.stdout == b"None\n"
    assert b"ConnectionRefusedError" in done.stderr


async def test_only_a_command_that_may_change_something_is_looked_after(networked: Networked):
    looks = list[bool]()
    for read_only in (True, False):
        request = CommandRequest("true", str(networked.root), read_only=read_only)
        looks.append(networked.sandbox.shell_text(request, {}).afterwards is not None)
        with networked.sandbox.launch(["true"], str(networked.root), read_only=read_only) as launch:
            looks.append(launch.afterwards is not None)
    assert looks == [False, False, True, True]


NO_RETRIES = {"npm_config_fetch_retries": "0", "PIP_RETRIES": "0"}


@pytest.mark.parametrize(("network", "variables"), [(NetworkReach.NONE, NO_RETRIES), (NetworkReach.ALL, {})])
async def test_commands_without_the_sessions_network_have_no_proxy(
    networked: Networked, network: NetworkReach, variables: dict[str, str]
):
    with networked.sandbox.launch(["env"], str(networked.root), network) as launch:
        assert launch.variables == variables
    assert not [thread for thread in threading.enumerate() if thread.name == "sandbox proxy"]


async def test_with_an_empty_list_installers_do_not_try_again(tmp_path: Path):
    sandbox = SessionSandbox(WallRules((str(tmp_path),), free, readable), {}, TIER)
    with sandbox.launch(["env"], str(tmp_path)) as launch:
        assert launch.variables == NO_RETRIES
    await anyio.to_thread.run_sync(sandbox.close)


async def test_a_network_whose_process_was_killed_is_made_again(networked: Networked):
    assert await networked.python(FETCH) == "b'page\\n'\n"
    (holder,) = re.findall(r"--user=/proc/(\d+)/ns/user", networked.line())
    ended = os.pidfd_open(int(holder))
    os.kill(int(holder), signal.SIGKILL)
    await anyio.wait_readable(ended)
    os.close(ended)
    assert await networked.python(FETCH) == "b'page\\n'\n"


async def test_nothing_is_left_when_the_session_ends(networked: Networked):
    await networked.output("true")
    assert [thread for thread in threading.enumerate() if thread.name == "sandbox proxy"]
    await anyio.to_thread.run_sync(networked.sandbox.close)
    assert not [thread for thread in threading.enumerate() if thread.name == "sandbox proxy"]


AGENT = """
import sys, time
from acp_agent.net.proxy import allowed_hosts
from acp_agent.workspace.processes.tree import harden_process
from acp_agent.workspace.sandbox import bubblewrap
from acp_agent.workspace.sandbox.bubblewrap import SessionNetwork
from acp_agent.workspace.sandbox.landlock import SCOPE_ABI, landlock_abi
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox
from acp_agent.workspace.sandbox.walls import WallRules
harden_process()
rules = WallRules((sys.argv[1],), lambda _: False, lambda *_: None, hosts=allowed_hosts(("docs.example.com",)))
sandbox = SessionSandbox(rules, {}, SandboxTier.BUBBLEWRAP)
with sandbox.launch(["true"], sys.argv[1]) as launch:
    print(launch.variables["HTTPS_PROXY"], flush=True)
    time.sleep(60)
"""


async def test_an_agent_that_is_killed_leaves_no_process_of_the_network(tmp_path: Path):
    async with await anyio.open_process([sys.executable, "-c", AGENT, str(tmp_path)]) as agent:
        assert agent.stdout is not None
        assert b"http://127.0.0.1:" in await agent.stdout.receive()
        holders = psutil.Process(agent.pid).children(recursive=True)
        assert [holder.name() for holder in holders] == ["cat"]  # what has made the network is gone
        agent.kill()
    _, alive = await anyio.to_thread.run_sync(lambda: psutil.wait_procs(holders, timeout=10))
    assert [process.name() for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


@each_row(
    "output, wall",
    [
        ("curl: (56) CONNECT tunnel failed, response 403", "this host cannot be reached"),
        ("curl: (56) Received HTTP code 403 from proxy after CONNECT", "this host cannot be reached"),
        (
            "fatal: unable to access 'https://git.example.net/a.git/': CONNECT tunnel failed, response 403",
            "the host git.example.net cannot be reached",
        ),
        ("acp-agent: evil.com is not in network_allow\nCommands", "the host evil.com cannot be reached"),
        ("('Tunnel connection failed: 403 evil.com is not in network_allow')", "the host evil.com cannot be reached"),
    ],
)
def test_a_refused_host_is_named_as_a_wall(output: str, wall: str):
    assert wall_named(output, 1) == wall


def test_a_certificate_that_is_not_trusted_is_no_wall():
    said = "HTTPSConnectionPool(host='pypi.example.com', port=443): Max retries exceeded (Caused by SSLError(1))"
    assert wall_named(said, 1) == ""


async def test_the_editors_terminal_has_the_filter_of_system_calls(networked: Networked):
    assert "--seccomp 9 " in networked.line()


async def test_the_editors_terminal_runs_bash_where_there_is_one(networked: Networked):
    request = CommandRequest('echo "${BASH_VERSION:+bash}"', str(networked.root))
    done = await anyio.run_process(["sh", "-c", networked.sandbox.shell_text(request, {}).line], check=False)
    assert done.stdout == b"bash\n", done.stderr


@pytest.mark.skipif(landlock_abi() < SCOPE_ABI, reason="this kernel cannot close sockets without a path")
async def test_a_command_that_reaches_all_hosts_reaches_no_local_socket_of_others(tmp_path):
    rules = WallRules((str(tmp_path),), free, readable, network=NetworkReach.ALL)
    sandbox = SessionSandbox(rules, child_environment(os.environ), TIER)
    with socket.socket(socket.AF_UNIX) as display, socket.create_server(("127.0.0.1", 0)) as server:
        display.bind("")  # the kernel chooses a name without a path, such as X11 has
        display.listen()
        tries = (
            "import socket, sys\n"
            f"print(socket.socket(socket.AF_UNIX).connect_ex({display.getsockname()!r}) != 0)\n"
            f"print(socket.socket().connect_ex({server.getsockname()!r}))\n"
            "own = socket.socket(socket.AF_UNIX); own.bind(''); own.listen()\n"
            "print(socket.socket(socket.AF_UNIX).connect_ex(own.getsockname()))\n"
        )
        (tmp_path / "tries.py").write_text(tries)
        running = await LocalTerminal(sandbox=sandbox).start(CommandRequest("python3 tries.py", str(tmp_path)))

        async def ignored(output: str) -> None:
            del output

        outcome = await running.wait(ignored)
    sandbox.close()
    assert outcome.output == "True\n0\n0\n"


@pytest.mark.parametrize("told", ["", '{"child-pid": 1', "{}"])
def test_a_network_that_is_not_made_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch, told: str):
    """The first command of the session once waited for it for ever, and all others waited for that one."""
    started: list[subprocess.Popen[bytes]] = []

    def builder(words: Sequence[str], reading: int, writing: int) -> subprocess.Popen[bytes]:
        del words, reading
        os.write(writing, told.encode())
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(["sleep", "60"], bufsize=0, pass_fds=[writing], **pipes))
        return started[-1]

    monkeypatch.setattr(bubblewrap, "_holder_builder", builder)
    monkeypatch.setattr(bubblewrap, "_NEEDED", 0.2)
    before = open_fds()
    with pytest.raises(OSError, match="could not build namespaces"):
        SessionNetwork()
    assert started[0].returncode is not None, "it was ended and reaped"
    assert open_fds() == before
