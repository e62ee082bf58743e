"""`mcpServers` of session/new: the three kinds, and whatever else an editor may send."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.mcp import HttpServer, McpOrigin, StdioServer
from acp_agent.protocol.client import MAX_SERVERS, read_servers
from tests.rows import each_row

STDIO: dict[str, Any] = {"name": "s", "command": "/bin/s", "args": ["-x"], "env": [{"name": "A", "value": "1"}]}
HTTP: dict[str, Any] = {"type": "http", "name": "h", "url": "https://h/", "headers": [{"name": "K", "value": "v"}]}


def test_stdio_http_and_sse_are_read() -> None:
    read = read_servers([STDIO, HTTP, {**HTTP, "type": "sse", "name": "e"}])
    assert read.problems == ()
    stdio, http, sse = read.servers
    assert stdio.reach == StdioServer("/bin/s", ("-x",), (("A", "1"),))
    assert http.reach == sse.reach == HttpServer("https://h/", (("K", "v"),))
    assert {server.origin for server in read.servers} == {McpOrigin.EDITOR}
    assert stdio.startup_timeout == 300


def test_lists_that_are_left_out_are_empty_and_a_stdio_type_is_none() -> None:
    (server,) = read_servers([{"type": "stdio", "name": "s", "command": "c"}]).servers
    assert server.reach == StdioServer("c")


@each_row(
    "url, private",
    [
        ("http://localhost:64342/sse", True),
        ("http://127.0.0.1/", True),
        ("http://[::1]/", True),
        ("http://10.1.2.3/", True),
        ("http://169.254.169.254/", False),
        ("http://[fe80::1]/", False),
        ("http://0.0.0.0/", False),
        ("https://localhost.example/", False),
        ("https://mcp.example/", False),
    ],
)
def test_an_address_is_private_on_the_users_word_only_where_it_says_so_itself(url: str, private: bool) -> None:
    (server,) = read_servers([{**HTTP, "url": url}]).servers
    assert isinstance(server.reach, HttpServer)
    assert server.reach.allow_private is private


@each_row(
    "entry, told",
    [
        ({**HTTP, "type": "acp"}, "MCP server 'h' is not used: type = 'acp': expected stdio, http or sse"),
        ({**HTTP, "type": 7}, "MCP server 'h' is not used: type = '7': expected stdio, http or sse"),
        ("x", "mcpServers[0] is not used: expected an object"),
        ({"command": "c"}, "mcpServers[0] is not used: name: expected a text that is not empty"),
        ({**STDIO, "command": ""}, "MCP server 's' is not used: command: expected a text that is not empty"),
        ({**STDIO, "args": "x"}, "MCP server 's' is not used: args: expected a list of texts"),
        (
            {**STDIO, "env": {"A": "1"}},
            "MCP server 's' is not used: env: expected a list of objects with name and value",
        ),
        ({**STDIO, "env": [{"name": "A"}]}, "MCP server 's' is not used: env: expected a list of objects"),
        (
            {**HTTP, "headers": [{"name": "K", "value": "geheim-ü"}]},
            "MCP server 'h' is not used: headers: 'K': expected name and value in ASCII, on one line",
        ),
        ({**HTTP, "url": "file:///x"}, "MCP server 'h' is not used: url: expected an http:// or https:// address"),
    ],
)
def test_an_entry_that_cannot_be_used_is_told_and_the_next_one_counts(entry: Any, told: str) -> None:
    read = read_servers([entry, STDIO])
    assert [server.name for server in read.servers] == ["s"]
    (problem,) = read.problems
    assert problem.startswith(told)


def test_there_is_an_end_to_servers() -> None:
    read = read_servers([{**STDIO, "name": f"s{n}"} for n in range(MAX_SERVERS + 1)])
    assert len(read.servers) == MAX_SERVERS
    assert len(read.problems) == 1


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["stdio", "http", "sse"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "command", "args", "env", "url", "headers", "type", "value"])
            | st.text(max_size=3),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(st.lists(junk, max_size=4))
def test_nothing_an_editor_sends_breaks_a_session(entries: list[Any]) -> None:
    read = read_servers(entries)
    assert len(read.servers) + len(read.problems) == len(entries)
