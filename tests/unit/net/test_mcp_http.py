"""Headers given for an MCP server, before anything is sent."""

import pytest

from acp_agent.core.errors import Refused
from acp_agent.net.mcp_http import McpHttpClient


@pytest.mark.parametrize(
    "value", ["Bearer fäke", "fake-token\n", "a\r\nEvil: b", "\0", "\u2028", " fake", "fake\t", "\x7f"]
)
def test_a_value_that_cannot_be_sent_is_refused_by_the_name_of_its_header(value):
    with pytest.raises(Refused, match="X-Token") as refused:
        McpHttpClient("https://mcp.example.com/", {"X-Token": value})
    assert "cannot be sent" in str(refused.value)
    assert "ke" not in str(refused.value).replace("X-Token", "")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", ["", "two words", "größe", "a:", "a\r\nb", "x\0"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(Refused, match="no name of a header") as refused:
        McpHttpClient("https://mcp.example.com/", {name: "fake"})
    assert str(refused.value).isprintable()
    assert str(refused.value).isascii()


def test_ordinary_headers_pass():
    McpHttpClient(
        "https://mcp.example.com/", {"Authorization": "Bearer fake=", "X-A": "", "x.b!": "two  words\tand a tab"}
    )
