"""The `_acp_agent/...` methods over a host that remembers what it was asked."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.capabilities import EXT_METHODS
from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import TextDelta
from acp_agent.core.mcp import HttpServer, ListedServer, McpOrigin, McpServer, McpState
from acp_agent.core.messages import Usage
from acp_agent.core.session_options import Mode, SessionOptions
from acp_agent.core.sessions import HistoryState, SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import Access, CommandSubject, PathSubject, ToolKind, ToolSpec, UrlSubject
from acp_agent.protocol.extensions import Extensions
from acp_agent.protocol.jsonrpc import RpcError, session_not_found
from acp_agent.session.extension_host import SessionStatus
from acp_agent.session.verdicts import Finding
from acp_agent.store.session_json import event_row
from tests.rows import each_row
from tests.unit.protocol.wires import connected

pytestmark = [
    pytest.mark.anyio,
    # jsonrpcserver reads a file of its own in a way that was deprecated, and is not any more.
    pytest.mark.filterwarnings("ignore:(open|read)_text is deprecated:DeprecationWarning"),
]

S = {"sessionId": "s-1"}
TALLY = UsageTotals(10, 100, Usage(1, 2, 3, 4), 0.5, complete=False, calls=6, batches=5)
SERVER = McpServer("web", HttpServer("https://x.example/?key=secret", (("Authorization", "secret"),)), McpOrigin.EDITOR)
SAVED = SessionSnapshot(
    SessionRecord("s-1", "/p", ("/q",), "", 0, 1500, 2), SessionOptions(Mode.ASK), TALLY, HistoryState()
)
WIRE_CONDUCT = {
    "mode": "ask",
    "autoApprove": "suggest",
    "readonly": False,
    "model": None,
    "thoughtLevel": None,
    "temperature": None,
}
WIRE_TALLY = {
    "used": 10,
    "size": 100,
    "usage": {"inputTokens": 1, "outputTokens": 2, "cachedReadTokens": 3, "cachedWriteTokens": 4},
    "cost": {"amount": 0.5, "currency": "USD", "complete": False},
    "calls": 6,
    "batches": 5,
}


def event(seq: int) -> dict[str, Any]:
    body = {"text": f"text {seq}", "message_id": f"m{seq}"}
    return {"seq": seq, "at": 1000 * seq, "kind": event_row(TextDelta("", ""))[0], "body": body}


class FakeHost:
    """One session, `s-1`, with five events. `calls` has every call that reached it; `failure` is raised instead."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failure: BaseException | Callable[[], Any] | None = None

    async def _called(self, *call: Any) -> None:
        self.calls.append(call)
        if isinstance(self.failure, BaseException):
            raise self.failure
        if self.failure is not None:
            await self.failure()
        if call[0] not in ("import_session", "delete") and call[1] != "s-1":
            raise session_not_found(call[1])

    async def saved(self, session_id):
        await self._called("saved", session_id)
        return SAVED

    async def events(self, session_id, after):
        await self._called("events", session_id, after)
        for seq in range(after + 1, 6):
            yield StoredEvent(seq, 1000 * seq, TextDelta(f"text {seq}", f"m{seq}"))

    async def import_session(self, snapshot, events):
        await self._called("import_session", snapshot, events)
        return "s-2"

    async def delete(self, session_id):
        await self._called("delete", session_id)
        return session_id == "s-1"

    async def tools(self, session_id):
        await self._called("tools", session_id)
        own = ToolSpec("read", "Reads.", {"type": "object"}, ToolKind.READ, mutates=False)
        other = ToolSpec("mcp_web_x", "X.", {}, ToolKind.OTHER, mutates=True, external=True, server="web")
        return [own, other]

    async def move(self, session_id, cwd):
        await self._called("move", session_id, cwd)

    async def servers(self, session_id):
        await self._called("servers", session_id)
        return [ListedServer(SERVER, McpState.READY, ("mcp_web_x",))]

    async def add_server(self, session_id, server):
        await self._called("add_server", session_id, server)

    async def remove_server(self, session_id, name):
        await self._called("remove_server", session_id, name)
        return name == "web"

    async def judge(self, session_id, subject):
        await self._called("judge", session_id, subject)
        return Finding("deny", "policy", "rm *", ("because",))

    async def audit(self, session_id, count):
        await self._called("audit", session_id, count)
        return [{"seq": 7}]

    async def status(self, session_id):
        await self._called("status", session_id)
        return SessionStatus(("Model: x",), SessionOptions(Mode.ASK), TALLY, busy=True)


async def ask(method: str, host: FakeHost | None = None, /, **params: Any) -> dict[str, Any]:
    return await Extensions(host or FakeHost()).request(f"_acp_agent/{method}", params)


async def refused(method: str, host: FakeHost | None = None, /, **params: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await ask(method, host, **params)
    return caught.value


# ------------------------------------------------------------------------------------ what is asked


async def test_a_session_comes_with_a_page_of_its_events():
    host = FakeHost()

    answer = await ask("session/get", host, **S, after=1, limit=2)

    assert answer == {
        "session": {
            "sessionId": "s-1",
            "cwd": "/p",
            "additionalDirectories": ["/q"],
            "title": None,
            "createdAt": "1970-01-01T00:00:00.000Z",
            "updatedAt": "1970-01-01T00:00:01.500Z",
            "prompts": 2,
            "model": None,
        },
        "conduct": WIRE_CONDUCT,
        "tally": WIRE_TALLY,
        "events": [event(2), event(3)],
        "next": 3,
    }
    assert host.calls == [("saved", "s-1"), ("events", "s-1", 1)]


async def test_the_last_page_says_so():
    answer = await ask("session/get", **S, after=3, limit=2)

    assert [each["seq"] for each in answer["events"]] == [4, 5]
    assert "next" not in answer


async def test_what_was_exported_can_be_taken_in():
    host = FakeHost()
    exported = await ask("session/export", host, **S)

    assert exported["exportedAt"].endswith("Z")
    assert await ask("session/import", host, session=json.loads(json.dumps(exported["session"]))) == {
        "sessionId": "s-2"
    }
    _, saved, told = host.calls[-1]
    assert (saved, [one.event.text for one in told]) == (SAVED, [f"text {n}" for n in range(1, 6)])


async def test_a_document_that_is_no_whole_session_is_the_clients_mistake():
    host = FakeHost()
    good = (await ask("session/export", host, **S))["session"]
    events = good["events"]
    for spoilt in (
        {},
        {**good, "version": 2},
        {**good, "events": events * 2001},
        {**good, "events": [*events, {"kind": "nonsense"}]},
        {**good, "options": {"mode": 7}},
    ):
        error = await refused("session/import", host, session=spoilt)
        assert (error.code, error.data) == (-32602, {"key": "session"})
    assert [call[0] for call in host.calls] == ["saved", "events"]


async def test_deleting_says_whether_there_was_one():
    assert await ask("session/delete", **S) == {"deleted": True}
    assert await ask("session/delete", sessionId="other") == {"deleted": False}


async def test_a_session_moves_to_a_folder_that_exists(tmp_path):
    host = FakeHost()

    for cwd in (str(tmp_path), f"{tmp_path}/", f"{tmp_path.parent}//./{tmp_path.name}"):
        assert await ask("working_dir/update", host, **S, cwd=cwd) == {"updated": True}
    assert host.calls == 3 * [("move", "s-1", str(tmp_path))]  # so that session/list finds it by its folder


async def test_a_session_moves_nowhere_else(tmp_path):
    host, file = FakeHost(), tmp_path / "file"
    file.touch()

    for cwd in ("relative", f"{tmp_path}/../{tmp_path.name}", f"{tmp_path}/missing", str(file), "", "/\0"):
        assert (await refused("working_dir/update", host, **S, cwd=cwd)).data == {"key": "cwd"}
    assert host.calls == []


async def test_tools_come_as_in_the_catalogue():
    assert await ask("tools", **S) == {
        "tools": [
            {
                "name": "read",
                "description": "Reads.",
                "kind": "read",
                "mutates": False,
                "parameters": {"type": "object"},
            },
            {
                "name": "mcp_web_x",
                "description": "X.",
                "kind": "other",
                "mutates": True,
                "parameters": {},
                "server": "web",
            },
        ]
    }


async def test_servers_are_listed_without_what_may_be_secret():
    listed = {
        "name": "web",
        "type": "http",
        "origin": "editor",
        "state": "ready",
        "tools": ["mcp_web_x"],
        "problem": None,
    }
    assert await ask("mcp/list", **S) == {"servers": [listed]}


async def test_a_server_is_read_as_session_new_reads_it():
    host = FakeHost()
    server = {"name": "docs", "command": "/bin/docs", "args": ["-x"], "env": []}

    assert await ask("mcp/add", host, **S, server=server) == {"added": True}
    assert (host.calls[0][2].name, host.calls[0][2].reach.command) == ("docs", "/bin/docs")
    error = await refused("mcp/add", host, **S, server={"name": "docs", "type": "http", "url": "ftp://x"})
    assert (error.code, error.data) == (-32602, {"key": "server"})
    assert len(host.calls) == 1


async def test_removing_a_server_says_whether_there_was_one():
    assert await ask("mcp/remove", **S, name="web") == {"removed": True}
    assert await ask("mcp/remove", **S, name="other") == {"removed": False}


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        ({"command": "rm -rf x"}, CommandSubject("rm -rf x")),
        ({"path": "a"}, PathSubject("a", Access.READ)),
        ({"path": "a", "write": True}, PathSubject("a", Access.WRITE)),
        ({"url": "https://x.example"}, UrlSubject("https://x.example")),
    ],
)
async def test_a_command_a_path_or_a_url_is_judged(given, subject):
    host = FakeHost()

    assert await ask("policy/check", host, **S, **given) == {"verdict": "deny", "rule": "rm *", "reasons": ["because"]}
    assert host.calls == [("judge", "s-1", subject)]


@pytest.mark.parametrize("given", [{}, {"command": "a", "path": "b"}, {"command": "a", "write": True}])
async def test_exactly_one_thing_is_judged(given):
    assert (await refused("policy/check", **S, **given)).code == -32602


async def test_the_audit_gives_its_last_records():
    host = FakeHost()

    assert await ask("audit/tail", host, **S, count=3) == {"records": [{"seq": 7}]}
    assert host.calls == [("audit", "s-1", 3)]


async def test_the_status_is_for_people_and_for_machines():
    assert await ask("status", **S) == {
        "lines": ["Model: x"],
        "busy": True,
        "conduct": WIRE_CONDUCT,
        "tally": WIRE_TALLY,
    }


# ------------------------------------------------------------------------------------- what goes wrong


def test_what_is_advertised_is_served():
    methods = importlib.import_module("acp_agent.protocol.extensions")
    assert set(methods.METHODS) == set(EXT_METHODS)


async def test_a_method_nobody_knows_is_not_found():
    for method in ("nothing", "session/get/", "SESSION/GET", ""):
        assert (await refused(method, **S)).code == -32601


@each_row("session_id", ["", "a" * 129, "a/b", "../x", "a b", "s-1\n", "ä", 7, None, ["s-1"]])
async def test_an_id_has_only_so_many_characters_of_a_few_kinds(session_id):
    host = FakeHost()

    error = await refused("session/delete", host, sessionId=session_id)

    assert (error.code, error.data, host.calls) == (-32602, {"key": "sessionId"}, [])


async def test_a_missing_member_is_named():
    error = await refused("mcp/remove", **S)

    assert (error.code, error.message) == (-32602, "Invalid params: name: Field required")


async def test_a_member_nobody_knows_is_refused_and_not_repeated():
    error = await refused("session/get", **S, password="hunter2")

    assert error.message == "Invalid params: params: expected no members but sessionId, after, limit"


async def test_what_is_named_like_our_own_arguments_is_just_another_member():
    for name in ("self", "params", "context", "method", "host", "session_id"):
        assert (await refused("tools", **S, **{name: "s-1"})).code == -32602


async def test_meta_may_be_in_any():
    assert await ask("session/delete", **S, _meta={"x": 1}) == {"deleted": True}


@pytest.mark.parametrize("params", [{"after": -1}, {"after": "1"}, {"limit": 0}, {"limit": 1001}, {"limit": True}])
async def test_a_page_has_sensible_bounds(params):
    assert (await refused("session/get", **S, **params)).code == -32602


async def test_a_session_nobody_knows_is_not_found():
    assert (await refused("status", sessionId="other")).code == -32002


async def test_an_error_of_ours_says_what_is_wrong():
    host = FakeHost()
    host.failure = StoreUnavailable("the database is locked")

    assert (await refused("session/delete", host, **S)).to_wire() == {
        "code": -32603,
        "message": "the database is locked",
    }


def served(host: FakeHost) -> dict[str, Any]:
    """As the server serves them."""
    extensions = Extensions(host)
    return {name: partial(_serve, extensions) for name in EXT_METHODS}


async def _serve(extensions: Extensions, params: Any, incoming: Any) -> Any:
    return await extensions.request(incoming.method, params)


@pytest.mark.parametrize("failure", [RuntimeError("secret"), TypeError("missing 1 required argument: secret")])
async def test_a_bug_has_no_words_on_the_wire(failure):
    host = FakeHost()
    host.failure = failure
    async with connected(served(host)) as (_peer, editor):
        editor.send(id=1, method="_acp_agent/tools", params=S)
        answer = await editor.receive()

    assert answer["error"] == {"code": -32603, "message": "Internal error"}


async def test_a_request_can_be_cancelled():
    host, begun = FakeHost(), anyio.Event()

    async def wait() -> None:
        begun.set()
        await anyio.sleep_forever()

    host.failure = wait
    async with connected(served(host)) as (_peer, editor):
        editor.send(id=1, method="_acp_agent/tools", params=S)
        await begun.wait()
        editor.send(method="$/cancel_request", params={"requestId": 1})
        answer = await editor.receive()
        assert answer["error"]["code"] == -32800
        host.failure = None
        editor.send(id=2, method="_acp_agent/session/delete", params=S)
        assert (await editor.receive())["result"] == {"deleted": True}


def test_nothing_is_loaded_before_the_first_call():
    code = (
        "import sys, acp_agent.app\n"
        "late = {'jsonrpcserver', 'oslash', 'acp_agent.protocol.client_lsp', 'acp_agent.protocol.extensions'}\n"
        "print(late & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("s-1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = [
    "sessionId",
    "after",
    "limit",
    "session",
    "cwd",
    "server",
    "name",
    "command",
    "path",
    "url",
    "write",
    "count",
]


@given(st.sampled_from(EXT_METHODS), st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=4))
@settings(max_examples=settings.default.max_examples * 2)
def test_whatever_comes_is_answered_or_refused_in_words_of_ours(method, params):
    async def run() -> None:
        try:
            answer = await Extensions(FakeHost()).request(method, params)
        except RpcError as error:
            assert error.code in (-32602, -32002)  # noqa: PT017 - either outcome is right
        else:
            assert isinstance(answer, dict)

    anyio.run(run)
