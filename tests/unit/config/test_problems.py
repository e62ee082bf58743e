"""What is wrong is told - file, key, value, what was expected - and the rest of the configuration works."""

import os

import pytest

from acp_agent.config.load import Flags, load
from tests.rows import each_row
from tests.unit.config.conftest import told

GOOD = "[logging]\nlevel = 'debug'\n"


SECTIONS = "agent, agents, llm, memory, skills, tools, mcp, acp, scheduler, audit, logging"


@each_row(
    "text, message",
    [
        ("top = 1", f"top = 1: expected one of {SECTIONS}"),
        ("[agnet]\nx = 1", f'agnet = {{"x": 1}}: expected one of {SECTIONS}'),
        ("[tools.shell]\ntime = 3", "tools.shell.time = 3: expected one of timeout, max_timeout, show_changes, "),
        ("agent = 3", "agent = 3: expected a table"),
        ('"tools.shell.timeout" = 3', f"tools.shell.timeout = 3: expected one of {SECTIONS}"),
        ("[tools.permissions]\n'a b' = []", "tools.permissions.a b = []: expected a tool's name in front of its rules"),
        (
            "[agent]\nmax_tool_iterations = 10001",
            "agent.max_tool_iterations = 10001: expected a whole number from 0 to 10000",
        ),
        (
            "[agent]\nmax_tool_iterations = -1",
            "agent.max_tool_iterations = -1: expected a whole number from 0 to 10000",
        ),
        (
            "[agent]\nmax_tool_iterations = '9'",
            'agent.max_tool_iterations = "9": expected a whole number from 0 to 10000',
        ),
        ("[agent]\nmax_tool_iterations = 9.0", "agent.max_tool_iterations = 9.0: expected a whole number"),
        ("[agent]\nmax_tool_iterations = true", "agent.max_tool_iterations = true: expected a whole number"),
        ("[tools]\nenabled = 'no'", 'tools.enabled = "no": expected true or false'),
        ("[tools.shell]\ntimeout = 0", "tools.shell.timeout = 0: expected a number above 0, at most 86400"),
        ("[tools.shell]\ntimeout = nan", "tools.shell.timeout = NaN: expected a number above 0"),
        ("[tools.shell]\ntimeout = inf", "tools.shell.timeout = Infinity: expected a number above 0"),
        ("[tools.shell]\nblocked_commands = 'a'", 'tools.shell.blocked_commands = "a": expected a list of texts'),
        ("[tools.shell]\nblocked_commands = [1]", "tools.shell.blocked_commands[0] = 1: expected text"),
        ("[tools.file]\nallowed_paths = ['x']", 'tools.file.allowed_paths[0] = "x": expected an absolute path'),
        ("[acp]\nmode = 'Code'", 'acp.mode = "Code": expected one of "code", "architect", "ask"'),
        ("[acp]\nterminal_timeout_secs = -1", "acp.terminal_timeout_secs = -1: expected a number from 0 to 86400"),
        ("[logging]\nfile = 2024-01-01", 'logging.file = "2024-01-01": expected text'),
        ("[llm]\nmodel = 'gpt'", 'llm.model = "gpt": expected "PROVIDER:MODEL"'),
        (
            "[llm]\nmodel = 'nowhere:gpt'",
            'llm.model = "nowhere:gpt": expected a provider before the colon: anthropic, ollama, openai, scripted, or',
        ),
        (f"[agent.instructions]\nfiles = ['{'x' * 201}']", ": expected at most 200 characters"),
        (f"[agent.instructions]\nfiles = {['a'] * 21}", ": expected at most 20 entries"),
        ("[tools.scrape]\nports = []", "tools.scrape.ports = []: expected at least one entry"),
        ("[tools.scrape]\nports = [0]", "tools.scrape.ports[0] = 0: expected a whole number from 1 to 65535"),
        (
            "agents.gates = [{name = 'a', command = 'x'}, {name = 'a', command = 'y'}]",
            "expected entries with different names, got 'a' twice",
        ),
        (
            "agents.external = [{name = 'back', command = 'x'}]",
            'agents.external[0].name = "back": expected a name besides explore, general, review, back',
        ),
        (
            "agents.external = [{name = 'a', command = 'x', direction = 'both'}]",
            'agents.external[0].direction = "both": expected outbound, since over ACP an agent cannot',
        ),
        ("[llm]\nproviders = 3", "llm.providers = 3: expected a list of tables"),
        ("[[llm.providers]]\nname = 'x'", "llm.providers[0].type: expected it to be set"),
        (
            "[[llm.providers]]\nname = 'x'\ntype = 'azure'",
            'llm.providers[0].type = "azure": expected one of "anthropic", "openai", "ollama", "scripted"',
        ),
        (
            "[[llm.providers]]\nname = 'x'\ntype = 'openai'\nbase_ur = 'http://x'",
            'llm.providers[0].base_ur = "http://x": expected one of name, type, base_url, api_key_env, ',
        ),
        (
            "[[llm.providers]]\nname = 'x'\ntype = 'openai'\nscript = '/x'",
            "expected no script: only a provider of type scripted plays one",
        ),
        ("[tools.permissions]\nbash = 'deny'", 'tools.permissions.bash = "deny": expected a list of tables'),
        (
            "[[tools.permissions.bash]]\npattern = '*'\naction = 'dney'",
            'tools.permissions.bash[0].action = "dney": expected one of "allow", "ask", "deny"',
        ),
        ("[[tools.permissions.bash]]\naction = 'deny'", "tools.permissions.bash[0].pattern: expected it to be set"),
    ],
)
def test_a_mistake_is_named_and_everything_else_holds(loading, text, message):
    loaded = loading(text + "\n" + GOOD if "[logging]" not in text else text + "\nlevel = 'debug'")
    (problem,) = told(loaded)
    assert problem.startswith("~/config.toml: ")
    assert message in problem
    assert loaded.settings.logging.level == "debug"


@pytest.mark.parametrize(
    ("address", "good"),
    [
        ("https://h/v1", True),
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080/v1", True),
        ("ftp://h", False),
        ("h:80", False),
        ("http://", False),
        ("http://user@h", False),
        ("http://h/?key=1", False),
        ("http://h/#x", False),
        ("http://h:0", False),
        ("http://h:99999", False),
        ("http://h/a b", False),
        ("http://[::1", False),
    ],
)
def test_an_address_is_a_plain_http_url(loading, address, good):
    loaded = loading(f"[[llm.providers]]\nname = 'x'\ntype = 'openai'\nbase_url = '{address}'")
    assert [p.key for p in loaded.problems] == ([] if good else ["llm.providers[0].base_url"])
    assert ("x" in [provider.name for provider in loaded.settings.llm.providers]) is good


def test_a_provider_that_is_wrong_goes_and_its_neighbours_stay(loading):
    loaded = loading(
        """
        [[llm.providers]]
        name = "one"
        type = "openai"
        [[llm.providers]]
        name = "two"
        type = "openai"
        unknown = 1
        [[llm.providers]]
        name = "three"
        type = "ollama"
        """
    )
    assert [provider.name for provider in loaded.settings.llm.providers] == ["one", "three", "scripted"]
    assert [problem.key for problem in loaded.problems] == ["llm.providers[1].unknown"]


def test_of_two_providers_with_one_name_the_first_counts(loading):
    loaded = loading(
        "[[llm.providers]]\nname = 'a'\ntype = 'openai'\n[[llm.providers]]\nname = 'a'\ntype = 'ollama'",
    )
    assert [(p.name, p.type) for p in loaded.settings.llm.providers][:1] == [("a", "openai")]
    assert "a name of its own" in told(loaded)[0]


def test_a_broken_rule_takes_the_allow_rules_with_it_since_it_may_have_been_a_deny(loading):
    loaded = loading(
        """
        [[tools.permissions.bash]]
        pattern = "rm *"
        action = "dney"
        [[tools.permissions.bash]]
        pattern = "git push*"
        action = "deny"
        [[tools.permissions.bash]]
        pattern = "*"
        action = "allow"
        """
    )
    rules = [(rule.pattern, rule.action) for rule in loaded.settings.tools.permissions["bash"]]
    assert rules == [("git push*", "deny"), ("*", "ask")]


@pytest.mark.parametrize(
    "text", ['[{"pattern": "*", "action": "allow"}, {"pattern": "x", "action": "dney"}]', "[", '[{"pattern": 3}]']
)
def test_broken_rules_in_a_variable_leave_the_files_deny_rules_and_allow_nothing(loading, text):
    loaded = loading(
        """
        tools.permissions.bash = [
          { pattern = "git status", action = "allow" }, { pattern = "git push*", action = "deny" },
        ]
        """,
        environ={"ACP_AGENT_TOOLS__PERMISSIONS__BASH": text},
    )
    assert loaded.problems
    rules = [(rule.pattern, rule.action) for rule in loaded.settings.tools.permissions["bash"]]
    assert rules == [("git push*", "deny"), ("*", "ask")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[agent\n", "expected TOML: Expected ']'"),
        (b"a = 1\na = 2\n", "expected TOML: Cannot overwrite a value (at line 2, column 6)"),
        (b"a = \xff\n", "expected TOML in UTF-8, but byte 4 is not"),
        (b"a = " + b"[" * 50_000, "expected TOML: nested more than 32 deep (at line 1)"),
        (b"#" * (1024 * 1024 + 1), "expected a file of at most 1 MiB"),
    ],
)
def test_a_file_that_is_no_toml_is_told_and_nothing_then_runs_without_asking(tmp_path, content, message):
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    environ = {"ACP_AGENT_ACP__AUTO_APPROVE": "full-auto", "ACP_AGENT_ACP__MODE": "ask"}
    loaded = load(Flags(config=str(file)), environ)
    (problem,) = loaded.problems
    assert str(problem).startswith(f"{file}: {message}")
    assert loaded.settings.acp.mode == "ask"
    assert loaded.settings.acp.auto_approve == "suggest", "the file may have held rules that deny"


def test_a_byte_order_mark_before_the_first_line_is_skipped(tmp_path):
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xef\xbb\xbf[acp]\nmode = 'ask'\n")
    loaded = load(Flags(config=str(file)), {})
    assert not loaded.problems
    assert loaded.settings.acp.mode == "ask"


def test_a_file_of_exactly_the_limit_is_read(tmp_path):
    file = tmp_path / "config.toml"
    file.write_bytes(b"[agent]\n#" + b"x" * (1024 * 1024 - 9))
    assert not load(Flags(config=str(file)), {}).problems


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_folder_or_a_fifo_is_refused_and_not_waited_for(tmp_path, kind):
    place = tmp_path / "config.toml"
    os.mkfifo(place) if kind == "fifo" else place.mkdir()
    (problem,) = load(Flags(config=str(place)), {}).problems
    assert str(problem) == f"{place}: expected a regular file"


def test_a_file_without_permission_is_told(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(GOOD)
    file.chmod(0)
    if os.access(file, os.R_OK):
        pytest.skip("root reads everything")
    (problem,) = load(Flags(config=str(file)), {}).problems
    assert "Permission denied" in str(problem)


def test_a_stranger_cannot_flood_the_user_with_problems(loading):
    loaded = loading(None, "\n".join(f"[[mcp.servers]]\nunknown{n} = 1" for n in range(200)))
    assert len(loaded.problems) == 50


def test_names_that_are_no_settings_make_one_notice(loading):
    tables = ("", "[tools.shell]", "[acp]", "[agnet]")
    odd = "\n".join(f"odd{n} = {n}" for n in range(5))
    text = "\n".join(f"{table}\n{odd}" for table in tables)
    loaded = loading(f"{text}\n{GOOD}", "a = 1\nb = 2")
    expected = "expected names of settings; `acp-agent config init` writes a file with all of them"
    assert told(loaded) == [
        f"~/config.toml: odd0, odd1, odd2, odd3, odd4 and 11 more: {expected}",
        f"~/project/.acp-agent/config.toml: a, b: {expected}",
    ]
    assert loaded.settings.logging.level == "debug"


def test_a_name_that_may_be_a_misspelt_ban_has_a_notice_of_its_own(loading):
    loaded = loading("odd = 1\nodder = 2\n[tools.file]\ndeny_raed = ['.env']\n[tools.policy]\nruels = []\n")
    assert [problem.key for problem in loaded.problems] == ["tools.file.deny_raed", "tools.policy.ruels", "odd, odder"]
    assert loaded.fault is not None


def test_what_a_message_quotes_can_move_no_cursor_and_is_short(loading):
    loaded = loading(r'"\u001b[2Jname" = 1' + "\n" + rf'plain = "\u001b]0;x\u0007\u202e{"y" * 5000}"')
    for problem in told(loaded):
        assert problem.isprintable()
        assert len(problem) < 400


def test_an_empty_file_and_dev_null_are_no_problem(loading):
    assert not loading("").problems
    assert not load(Flags(config=os.devnull), {}).problems
