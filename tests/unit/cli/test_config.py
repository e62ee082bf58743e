"""`acp-agent config show|path|init`."""

import re
import stat
import tomllib

from acp_agent.cli.config import shown_lines, template, toml_value
from acp_agent.config.load import Flags, load
from acp_agent.text import visible
from tests.rows import each_row

KEY = "sk-obviously-fake-0123456789"
FULL = """
[agent]
context_budget_tokens = 9000
[llm]
model = "corp:m"
[[llm.providers]]
name = "corp"
type = "openai"
base_url = "http://h/v1"
api_key_env = "CORP_KEY"
[tools.shell]
timeout = 2.5
allowed_paths = ["/a b", "/c"]
[[tools.permissions.bash]]
pattern = 'say "hi" \\ *'
action = "allow"
[logging]
file = "/l"
"""


def test_path_is_the_platforms_unless_a_variable_or_flag_names_another(in_process, home):
    assert in_process("config", "path").stdout == f"{home}/.config/acp-agent/config.toml\n"
    assert in_process("config", "path", XDG_CONFIG_HOME=f"{home}/x").stdout == f"{home}/x/acp-agent/config.toml\n"
    assert in_process("config", "path", ACP_AGENT_CONFIG="c.toml").stdout == f"{home}/c.toml\n"
    assert in_process("--config", "d.toml", "config", "path", ACP_AGENT_CONFIG="c.toml").stdout == f"{home}/d.toml\n"


def test_init_writes_a_private_file_once(in_process, home):
    done = in_process("config", "init")
    file = home / ".config" / "acp-agent" / "config.toml"
    assert done.stdout == f"Wrote {file}\n"
    assert file.read_text() == template()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["config.toml"]
    file.write_text("# mine\n")
    again = in_process("config", "init")
    assert again.returncode == 1
    assert again.stderr == f"acp-agent: {file}: the file exists already; edit it, or name another file with --config\n"
    assert file.read_text() == "# mine\n"


def test_a_problem_with_a_file_of_a_hostile_name_moves_no_cursor(in_process, home):
    for name in ("a\x1b[2J\u202e", "b\x07"):
        (home / name).write_text("[agent]\nunknown = 1\n")
        (home / f"{name}.d").touch()
        for words in (("config", "show", "--config", name), ("config", "init", "--config", f"{name}.d/config.toml")):
            said = in_process(*words).stderr
            assert visible(name) in said
            assert all(line.isprintable() for line in said.splitlines())


def test_init_tells_when_it_cannot_write(in_process, home):
    (home / "file").touch()
    done = in_process("config", "init", "--config", "file/config.toml")
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"acp-agent: {home}/file/config.toml: expected a folder in which the file can be written: "
    )


def test_the_file_init_writes_loads_without_problems(in_process, home):
    in_process("config", "init")
    done = in_process("config", "show")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(
        line.endswith("# default") for line in done.stdout.splitlines() if re.match(r"[a-z]", line) and line[-1] != "["
    )


def test_and_so_it_does_with_every_setting_taken_in(tmp_path):
    text = re.sub(r"^#(?! |$)", "", template(), flags=re.MULTILINE)
    assert tomllib.loads(text)["tools"]["shell"]["timeout"] == 120
    file = tmp_path / "c.toml"
    file.write_text(text)
    loaded = load(Flags(config=str(file)), {"OLLAMA_HOST": "h"})
    assert not loaded.problems
    assert loaded.settings.llm.model == "ollama:qwen3:8b"
    assert "agent.max_tool_iterations" in loaded.origins


def test_what_show_prints_is_a_configuration_that_means_the_same(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(FULL)
    loaded = load(Flags(config=str(file)), {})
    again = tmp_path / "d.toml"
    again.write_text("\n".join(shown_lines(loaded)))
    reloaded = load(Flags(config=str(again)), {})
    assert not loaded.problems
    assert not reloaded.problems
    assert reloaded.settings == loaded.settings


def test_show_says_where_values_come_from_and_hides_keys(in_process, home):
    (home / ".acp-agent").mkdir()
    (home / ".acp-agent" / "config.toml").write_text("[acp]\nmode = 'ask'\nterminal_timeout_secs = 0\n")
    done = in_process(
        "config", "show", OPENAI_API_KEY=KEY, ACP_AGENT_MODEL="openai:m", ACP_AGENT_TOOLS__SHELL__TIMEOUT="5"
    )
    assert KEY not in done.stdout + done.stderr
    assert 'llm.model = "openai:m" # ACP_AGENT_MODEL\n' in done.stdout
    assert "tools.shell.timeout = 5 # ACP_AGENT_TOOLS__SHELL__TIMEOUT\n" in done.stdout
    assert 'api_key_env = "OPENAI_API_KEY", timeout = 300 }, # OPENAI_API_KEY\n' in done.stdout
    assert f'acp.mode = "ask" # {home}/.acp-agent/config.toml over default\n' in done.stdout
    assert done.returncode == 1, "the project asked for something it may not have"
    assert "acp.terminal_timeout_secs = 0.0: expected a smaller number" in done.stderr


@each_row("value", ["plain", 'quote " and \\', "line\nbreak", "\x7f\x00\u202e", "émoji 🙂", True, 3, 2.5, [1, "x"]])
def test_a_value_written_as_toml_reads_back(value):
    text = toml_value(value)
    assert tomllib.loads(f"x = {text}")["x"] == value
    assert text.isprintable()


def test_a_table_written_as_toml_reads_back():
    table = {"plain": 1, "with space": {"inner": ["a"]}}
    assert tomllib.loads(f"x = {toml_value(table)}")["x"] == table
