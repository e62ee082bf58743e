"""`[mcp]`: servers of the user's own file, and of a project's."""

from pathlib import Path

import pytest

from acp_agent.cli.config import shown_lines
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.config.mcp_settings import McpSettings
from acp_agent.core.errors import ConfigError
from acp_agent.core.mcp import HttpServer, McpOrigin, McpServer, StdioServer

WHOLE = """
[[mcp.servers]]
name = "github"
command = "gh-mcp"
args = ["stdio", ""]
env = { TOKEN = "${MY_TOKEN}", MODE = "pre-${MODE}-post" }
startup_timeout = 5
tool_timeout = 7
allow_tools = ["a", "b"]
deny_tools = ["b"]
read_only_tools = ["a"]

[[mcp.servers]]
name = "remote"
url = "https://mcp.example/x/"
headers = { Authorization = "Bearer ${MY_TOKEN}" }
allow_private = true
enabled = false
"""
ENVIRON = {"MY_TOKEN": "fake-token", "MODE": "m"}


def loaded(tmp_path: Path, text: str, project: str = "") -> Loaded:
    file = tmp_path / "config.toml"
    file.write_text(text)
    place = tmp_path / "work" / ".acp-agent"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(project)
    return load(Flags(config=str(file)), {}, str(tmp_path / "work"))


def test_every_field_reaches_the_server(tmp_path: Path) -> None:
    got = loaded(tmp_path, WHOLE)
    assert got.problems == ()
    github, remote = got.settings.mcp.servers
    env = (("TOKEN", "fake-token"), ("MODE", "pre-m-post"))
    assert github.server(McpOrigin.CONFIG, ENVIRON, "/home/me") == McpServer(
        "github",
        StdioServer("gh-mcp", ("stdio", ""), env, "/home/me"),
        McpOrigin.CONFIG,
        5,
        7,
        ("a", "b"),
        ("b",),
        ("a",),
    )
    assert remote.server(McpOrigin.CONFIG, ENVIRON, "/").reach == HttpServer(
        "https://mcp.example/x/", (("Authorization", "Bearer fake-token"),), allow_private=True
    )
    assert (github.enabled, remote.enabled) == (True, False)
    assert github.referred(ENVIRON) == ("fake-token", "m")


def test_a_variable_that_is_not_set_is_named_with_its_key(tmp_path: Path) -> None:
    (github, _) = loaded(tmp_path, WHOLE).settings.mcp.servers
    with pytest.raises(ConfigError) as caught:
        github.server(McpOrigin.CONFIG, {"MODE": "m"}, "/")
    told = "[[mcp.servers]] github: env.TOKEN = ${MY_TOKEN}: expected the variable MY_TOKEN to be set"
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("name = 'x'", "expected either command or url"),
        ("name = 'x'\ncommand = 'c'\nurl = 'http://h'", "expected either command or url"),
        (
            "name = 'x'\nurl = 'http://h'\nargs = ['a']",
            "expected args, env, cwd and allow_write only together with command",
        ),
        (
            "name = 'x'\ncommand = 'c'\nheaders = { A = 'b' }",
            "expected headers and allow_private only together with url",
        ),
        ("command = 'c'", "mcp.servers[1].name: expected it to be set"),
        ("name = 'a b'\ncommand = 'c'", 'mcp.servers[1].name = "a b": expected text that matches'),
        ("name = 'x'\ncommand = ''", 'mcp.servers[1].command = "": expected text that is not empty'),
        ("name = 'x'\ncommand = 'c'\ncwd = 'rel'", 'mcp.servers[1].cwd = "rel": expected an absolute path'),
        ("name = 'x'\nurl = 'ftp://h'", 'mcp.servers[1].url = "ftp://h": expected an http:// or https:// address'),
        ("name = 'x'\nurl = 'https://u:p@h'", "mcp.servers[1].url"),
        ("name = 'x'\ncommand = 'c'\nenv = { 'A=B' = 'c' }", "expected names of variables without ="),
        ("name = 'x'\nurl = 'https://h'\nheaders = { A = \"b\\r\\nC: d\" }", "expected names of HTTP headers"),
        (
            "name = 'x'\nurl = 'https://h'\nheaders = { A = 'b', X-Key = 'geheim-ü' }",
            "expected ASCII values (the one of X-Key is not)",
        ),
        ("name = 'x'\ncommand = 'c'\ntool_timeout = 0", "mcp.servers[1].tool_timeout = 0: expected a number above 0"),
        ("name = 'x'\ncomand = 'c'", "mcp.servers[1].comand"),
        ("name = 'x'\ncommand = 'c'\nallow_tools = 'a'", "mcp.servers[1].allow_tools"),
    ],
)
def test_a_wrong_entry_is_named_and_the_others_count(tmp_path: Path, entry: str, told: str) -> None:
    got = loaded(tmp_path, f"[[mcp.servers]]\nname = 'good'\ncommand = 'c'\n[[mcp.servers]]\n{entry}\n")
    assert [server.name for server in got.settings.mcp.servers] == ["good"]
    assert told in "\n".join(map(str, got.problems))
    assert "u:p" not in "\n".join(map(str, got.problems))
    assert "geheim" not in "\n".join(map(str, got.problems))


def test_a_header_that_is_not_ascii_once_it_is_filled_in_is_named_without_its_value(tmp_path: Path) -> None:
    (_, remote) = loaded(tmp_path, WHOLE).settings.mcp.servers
    for value in ("geheim-ü", "geheim\r\nX: y"):
        with pytest.raises(ConfigError) as caught:
            remote.server(McpOrigin.CONFIG, {"MY_TOKEN": value}, "/")
        assert "headers.Authorization" in str(caught.value)
        assert "geheim" not in str(caught.value)


def test_a_projects_servers_are_kept_apart_and_take_nothing_from_the_users(tmp_path: Path) -> None:
    mine, theirs = (f"[[mcp.servers]]\nname = '{name}'\ncommand = 'c'\n" for name in ("mine", "theirs"))
    got = loaded(tmp_path, mine, theirs)
    assert [server.name for server in got.settings.mcp.servers] == ["mine"]
    assert [server.name for server in got.servers] == ["theirs"]
    assert got.problems == ()


def test_a_project_may_switch_servers_off_and_not_on(tmp_path: Path) -> None:
    assert not loaded(tmp_path, "", "[mcp]\nenabled = false\n").settings.mcp.enabled
    refused = loaded(tmp_path, "[mcp]\nenabled = false\n", "[mcp]\nenabled = true\n")
    assert not refused.settings.mcp.enabled
    assert "a project may only tighten" in str(refused.problems[0])


def test_a_project_cannot_call_its_own_tools_harmless(tmp_path: Path) -> None:
    got = loaded(tmp_path, "", "[[mcp.servers]]\nname = 'x'\ncommand = 'c'\nread_only_tools = ['t']\n")
    assert got.servers[0].server(McpOrigin.PROJECT, {}, "/").read_only == ()


def test_show_names_references_and_hides_values(tmp_path: Path) -> None:
    text = "[[mcp.servers]]\nname = 'x'\ncommand = 'c'\nenv = { A = '${REF}', B = 'fake-secret' }\n"
    (line,) = (line for line in shown_lines(loaded(tmp_path, text)) if line.startswith("mcp.servers"))
    assert "${REF}" in line
    assert "fake-secret" not in line
    assert "fake-token" not in repr(McpSettings())


def test_rules_may_be_for_all_tools_of_a_server(tmp_path: Path) -> None:
    rule = '[[tools.permissions."{}"]]\npattern = "*"\naction = "deny"\n'
    got = loaded(tmp_path, rule.format("mcp_git_*"))
    assert got.problems == ()
    assert [*got.settings.tools.permissions] == ["mcp_git_*"]
    assert loaded(tmp_path, rule.format("ba*")).problems != ()
