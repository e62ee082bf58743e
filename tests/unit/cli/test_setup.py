"""`acp-agent setup EDITOR`: the settings of editors, merged into files as people really have them."""

import json
import os
import stat
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.capabilities import AUTH_METHOD
from acp_agent.cli.setup import command
from acp_agent.cli.setup.editors import AgentCommand, editor_setup
from acp_agent.cli.setup.jsonc import JsoncFault, parse, value_at, with_value, without_value
from tests.rows import each_row

LAUNCH = AgentCommand("/home/jörg/my tools/acp-agent")
JSON_EDITORS = ("zed", "vscode", "jetbrains")
KEYS = {"zed": "agent_servers", "vscode": "acp.agents", "jetbrains": "agent_servers"}

NASTY = {
    "an empty file": "",
    "only a line end": "\n",
    "only a comment": "// Zed settings\n",
    "only a comment without a line end": "/* nothing yet */",
    "an empty object": "{}",
    "an empty object with a blank": "{ }\n",
    "an empty object on two lines": "{\n}\n",
    "a comment in an empty object": "{ // mine\n  // all of it\n}\n",
    "a block comment in an empty object": "{ /* mine */ }",
    "no line end at the end": '{\n  "theme": "One Dark"\n}',
    "CRLF and tabs": '{\r\n\t"theme": "One Dark", // dark\r\n\t"vim_mode": true\r\n}\r\n',
    "a mark of the byte order": '\ufeff{\n    "theme": "One Dark"\n}\n',
    "a trailing comma": '{\n  "theme": "One Dark",\n}\n',
    "a trailing comma and comments": '{\n  "a": 1, // one\n  /* two */\n  // "b": 2,\n}\n',
    "a comment before the comma": '{\n  "a": 1 /* one */, // uno\n  "b": 2 // two\n  // three\n}\n',
    "everything on one line": '{"a": [1, 2], "b": {"c": null}}',
    "one line with a trailing comma": '{"a": 1 /* x */, /* y */}\n',
    "equal keys": '{\n  "a": 1,\n  "a": 2,\n  "KEY": {"x": {}},\n  "KEY": {"y": {"command": "y"}}\n}\n',
    "other agents": '{\n  "KEY": {\n    "x": { "command": "x", "args": [], },\n  },\n  "z": 1\n}\n',
    "an empty place for agents": '{\n  "KEY": {},\n  "z": "}"\n}\n',
    "a place for agents on one line": '{ "KEY": {"x": {"command": "x"}} }',
    "comments that look like settings": '{\n  // "KEY": {"acp-agent": {}},\n  "u": "https://x.y/*z*/" // {\n}\n',
    "escapes": '{\n  "a\\"b": "\\u007b\\\\",\n  "\\u0061": "ü 🦊"\n}\n',
    "strange indents": '{\n   "a": 1,\n \t"b": {\n"c": 2},\n      "KEY": {\n  "x": {}\n           }}\n\n\n',
    "old Mac line ends": '{\r  "a": 1\r}\r',
}
"""Files of which every byte must stay. KEY is where the editor keeps its agents."""


def plain(text: str) -> dict[str, object]:
    node = parse(text)
    assert node is None or isinstance(node.value, dict)
    return dict(node.value) if node is not None else {}


def is_within(old: str, new: str) -> bool:
    """Whether only something was added: the characters of the old text are in the new one, in order."""
    rest = iter(new)
    return all(character in rest for character in old)


@pytest.mark.parametrize("name", JSON_EDITORS)
@each_row("case", NASTY)
def test_everything_else_in_a_settings_file_stays_byte_for_byte(in_process, tmp_path, name, case):
    old = NASTY[case].replace("KEY", KEYS[name])
    file = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
    file.write_bytes(old.encode())
    done = in_process("setup", name, "--write", "--file", str(file))
    assert done.returncode == 0, done.stderr
    new = file.read_bytes().decode()
    assert is_within(old, new)
    entry = value_at(new, (KEYS[name], "acp-agent"))
    assert entry["args"] == []
    assert os.path.isabs(entry["command"])
    agents = {**plain(old).get(KEYS[name], {}), "acp-agent": entry}
    alone = {"acpAgent.path": entry["command"]} if name == "vscode" else {}
    assert plain(new) == {**plain(old), KEYS[name]: agents, **alone}
    again = in_process("setup", name, "--write", "--file", str(file))
    assert "set up already" in again.stdout
    assert file.read_bytes().decode() == new
    assert in_process("setup", name, "--remove", "--file", str(file)).returncode == 0
    assert file.read_bytes().decode() == old
    assert [each.name for each in tmp_path.iterdir() if "before" in each.name] == []


@pytest.mark.parametrize("name", JSON_EDITORS)
@each_row("case", NASTY)
def test_what_was_edited_since_stays_when_the_settings_are_removed(name, case):
    editor = editor_setup(name, {"HOME": "/home/x"})
    old = NASTY[case].replace("KEY", KEYS[name])
    new = editor.applied(old, LAUNCH)
    edited = "// written later\n" + new.removeprefix("\ufeff")
    left = editor.withdrawn(edited, old)
    assert left is not None
    assert "acp-agent" not in plain(left).get(KEYS[name], {})
    assert plain(left) == plain(old)
    if plain(old) and "{}" not in old:
        assert left == "// written later\n" + old.removeprefix("\ufeff")


SPACES = st.sampled_from(["", " ", "\n", "\n  ", "\r\n\t", " // c\n", "/* { */", ' /* " */ \n', "\n// ,}\n    "])
SCALARS = st.sampled_from(["1", "-2.5e3", "true", "null", '"x"', '"// no"', '"\\"}"', '"é"'])


@st.composite
def jsonc(draw, depth: int = 2) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(SCALARS)
    keys = draw(st.lists(st.sampled_from(['"a"', '"b"', '"agent_servers"', '"acp-agent"', '"é"']), max_size=3))
    parts = [
        f"{draw(SPACES)}{key}{draw(SPACES)}:{draw(SPACES)}{draw(jsonc(depth=depth - 1))}{draw(SPACES)}" for key in keys
    ]
    return "{" + ",".join(parts) + ("," if parts and draw(st.booleans()) else "") + draw(SPACES) + "}"


@settings(max_examples=settings.default.max_examples * 2, deadline=None)
@given(jsonc(), SPACES, SPACES, st.sampled_from(["acp-agent", "x"]))
def test_any_text_keeps_what_is_not_the_entry(text: str, before: str, behind: str, key: str):
    text, path, value = before + text + behind, ("agent_servers", key), LAUNCH.as_json()
    try:
        new = with_value(text, path, value)
    except JsoncFault:
        root = plain_or_none(text)
        assert not isinstance(root, dict) or not isinstance(root.get("agent_servers", {}), dict)
        return
    entry = value_at(new, path)
    assert isinstance(entry, dict)
    assert {**entry, **value} == entry
    assert with_value(new, path, value) == new
    agents = plain(text).get("agent_servers", {})
    if key not in agents:
        assert is_within(text, new)
        assert plain(new) == {**plain(text), "agent_servers": {**agents, key: value}}
        assert plain(without_value(new, path)) == {**plain(text), "agent_servers": agents}


@settings(max_examples=settings.default.max_examples * 2, deadline=None)
@given(jsonc(), SPACES, SPACES)
def test_any_text_means_what_it_meant_when_the_settings_are_removed_after_an_edit(old: str, before: str, behind: str):
    old = before + old + behind
    for name in JSON_EDITORS:
        editor = editor_setup(name, {"HOME": "/home/x"})
        try:
            new = editor.applied(old, LAUNCH)
        except JsoncFault:
            continue
        assert editor.applied(new, LAUNCH) == new
        left = editor.withdrawn("/* later */" + new + "\n// later", old)
        assert left is not None
        assert plain_or_none(left) == plain_or_none(old)


def plain_or_none(text: str) -> object:
    node = parse(text)
    return node.value if node is not None else {}


REFUSED = {
    "a value that is none": ('{\n  "a": tru\n}\n', "line 2, column 8: a value is expected"),
    "two values": ('{"a": 1 "b": 2}', "line 1, column 9: , or } is expected"),
    "an end too early": ('{\r\n\t"a": [1,\r\n', "line 3, column 1: the file ends here"),
    "an open comment": ('{"a": 1} /* x', "line 1, column 10: this comment does not end"),
    "a key without quotes": ("{a: 1}", "line 1, column 2: a key in double quotes or } is expected"),
    "single quotes behind a mark": ("\ufeff{'a': 1}", "line 1, column 2: a key in double quotes"),
    "a list": ("[1]\n", "line 1, column 1: an object is needed here"),
    "agents that are a list": ('{\n  "agent_servers": []\n}', "line 2, column 20: an object is needed here"),
    "two documents": ("{}\n{}\n", "line 2, column 1: nothing more is expected"),
    "an open text": ('{"a": "b}\n', "line 1, column 7: a value is expected"),
    "a wrong escape": ('{"a": "\\x"}\n', "line 1, column 7: this value cannot be read"),
    "a nest without end": ("[" * 300, "nested more than 200 deep"),
}


@each_row("case", REFUSED)
def test_a_syntax_error_is_named_with_its_place_and_the_file_is_untouched(in_process, tmp_path, case):
    text, words = REFUSED[case]
    file = tmp_path / "settings.json"
    file.write_bytes(text.encode())
    done = in_process("setup", "zed", "--write", "--file", str(file))
    assert done.returncode == 1
    assert words in done.stderr
    assert "nothing was changed" in done.stderr
    assert file.read_bytes() == text.encode()
    assert {each.name for each in tmp_path.iterdir()} == {"settings.json"}


def test_bytes_that_are_no_utf8_and_places_that_are_no_files_are_refused(in_process, tmp_path):
    utf16, pipe, loop = tmp_path / "16.json", tmp_path / "pipe", tmp_path / "loop"
    utf16.write_bytes('{"a": 1}'.encode("utf-16"))
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for file, words in ((utf16, "is not UTF-8"), (pipe, "not a regular file"), (loop, "cannot be read")):
        done = in_process("setup", "zed", "--write", "--file", str(file))
        assert done.returncode == 1
        assert words in done.stderr
    assert utf16.read_bytes() == '{"a": 1}'.encode("utf-16")


def test_a_read_only_file_is_left_alone(in_process, tmp_path):
    file = tmp_path / "settings.json"
    file.write_text("{}")
    file.chmod(0o444)
    done = in_process("setup", "zed", "--write", "--file", str(file))
    assert (done.returncode, file.read_text()) == (1, "{}")
    assert "is read-only" in done.stderr
    assert {each.name for each in tmp_path.iterdir()} == {"home", "settings.json"}


def test_a_link_to_nothing_gets_its_target(in_process, tmp_path):
    link = tmp_path / "settings.json"
    link.symlink_to("dotfiles/zed/settings.json")
    assert in_process("setup", "zed", "--write", "--file", str(link)).returncode == 0
    assert json.loads((tmp_path / "dotfiles/zed/settings.json").read_text())["agent_servers"]
    assert in_process("setup", "zed", "--remove", "--file", str(link)).returncode == 0
    assert link.is_symlink()
    assert not link.exists()


def test_a_link_stays_a_link_and_the_file_behind_it_keeps_its_mode(in_process, tmp_path):
    dotfiles, link = tmp_path / "dotfiles", tmp_path / "settings.json"
    dotfiles.mkdir()
    (dotfiles / "zed.json").write_text('{\n  "key": "secret"\n}\n')
    (dotfiles / "zed.json").chmod(0o600)
    link.symlink_to("dotfiles/zed.json")
    assert in_process("setup", "zed", "--write", "--file", str(link)).returncode == 0
    assert os.readlink(link) == "dotfiles/zed.json"
    for name in ("zed.json", "zed.json.before-acp-agent"):
        assert stat.S_IMODE((dotfiles / name).stat().st_mode) == 0o600
    assert in_process("setup", "zed", "--remove", "--file", str(link)).returncode == 0
    assert link.is_symlink()
    assert link.read_text() == '{\n  "key": "secret"\n}\n'


def test_a_file_that_was_not_there_is_made_and_removed_again(in_process, home):
    (home / ".config" / "zed").mkdir(parents=True)
    file = home / ".config" / "zed" / "settings.json"
    assert in_process("setup", "zed", "--write").returncode == 0
    assert "acp-agent" in json.loads(file.read_text())["agent_servers"]
    assert "nothing else was in it" in in_process("setup", "zed", "--remove").stdout
    assert not file.exists()
    assert "nothing to remove" in in_process("setup", "zed", "--remove").stdout


def test_another_installation_is_replaced_and_named_and_what_the_user_set_beside_it_stays(in_process, tmp_path):
    file = tmp_path / "acp.json"
    old = '{"agent_servers": {"acp-agent": {"command": "/opt/old/acp-agent", "env": {"A": "b"}, "use_idea_mcp": true}}}'
    file.write_text(old)
    done = in_process("setup", "jetbrains", "--write", "--file", str(file))
    assert "It started /opt/old/acp-agent before." in done.stdout
    entry = json.loads(file.read_text())["agent_servers"]["acp-agent"]
    assert (entry["env"], entry["use_idea_mcp"]) == ({"A": "b"}, True)
    assert entry["command"] != "/opt/old/acp-agent"
    assert in_process("setup", "jetbrains", "--remove", "--file", str(file)).returncode == 0
    assert file.read_text() == old


def test_the_path_that_is_written_is_that_of_the_program_that_was_called(in_process, tmp_path, monkeypatch):
    script = tmp_path / "archive-v0" / "my bin" / "acp-agent"
    script.parent.mkdir(parents=True)
    script.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "argv", [str(script), "setup"])
    file = tmp_path / "acp.json"
    done = in_process("setup", "jetbrains", "--write", "--file", str(file))
    assert json.loads(file.read_text())["agent_servers"]["acp-agent"] == {"command": str(script), "args": []}
    assert "uvx made this installation for one run" in done.stdout


@each_row("name", ["zed", "vscode", "jetbrains", "neovim", "emacs", "marimo"])
def test_an_editor_that_is_not_installed_is_said_plainly_and_nothing_is_written(in_process, home, name):
    before = sorted(home.rglob("*"))
    done = in_process("setup", name, "--write", PATH="/nonexistent")
    assert done.returncode == 1
    assert "was not found" in done.stderr
    assert sorted(home.rglob("*")) == before


@each_row("name", ["qtcreator", "toad"])
def test_where_nothing_can_be_written_it_says_so(in_process, name):
    shown = in_process("setup", name)
    assert shown.returncode == 0
    assert "acp-agent" in shown.stdout
    for option in ("--write", "--remove"):
        done = in_process("setup", name, option)
        assert done.returncode == 1
        assert "nothing was written" in done.stderr


@each_row("name", [*JSON_EDITORS, "neovim", "emacs", "jupyter", "marimo", "qtcreator", "toad"])
def test_without_write_it_only_prints(in_process, home, name):
    before = sorted(home.rglob("*"))
    done = in_process("setup", name)
    assert done.returncode == 0
    assert done.stdout.strip()
    assert sorted(home.rglob("*")) == before


@each_row("name, file", [("neovim", "a.lua"), ("emacs", "a.el"), ("jupyter", "a_persona.py")])
def test_a_file_of_our_own_is_written_read_again_and_removed(in_process, tmp_path, name, file):
    path = tmp_path / file
    option = ("--file", str(path))
    assert in_process("setup", name, "--write", *option).returncode == 0
    text = path.read_text()
    assert "set up already" in in_process("setup", name, "--write", *option).stdout
    assert in_process("setup", name, "--remove", *option).returncode == 0
    assert not path.exists()
    path.write_text("-- of the user\n")
    assert "was not written by" in in_process("setup", name, "--write", *option).stderr
    assert path.read_text() == "-- of the user\n"
    path.write_text(text + "# more\n")
    assert in_process("setup", name, "--remove", *option).returncode == 0
    assert (tmp_path / f"{file}.before-acp-agent").read_text() == text + "# more\n"


HARD = AgentCommand('/home/jörg/a "b" \\c/acp-agent', ("-m", "x y"))


def test_a_path_with_spaces_quotes_and_umlauts_reads_back_from_every_file():
    for name in (*JSON_EDITORS, "neovim", "emacs", "jupyter"):
        editor = editor_setup(name, {"HOME": "/home/x"})
        assert editor.launch_in(editor.applied(None, HARD)) == HARD


def test_codecompanion_is_told_the_method_of_authentication_that_the_agent_offers():
    """Its adapter for Gemini, which ours extends, names one of Gemini's, and CodeCompanion then refuses the agent."""
    text = editor_setup("neovim", {"HOME": "/home/x"}).applied(None, LAUNCH)
    assert f'defaults = {{ auth_method = "{AUTH_METHOD}",' in text


def test_the_persona_for_jupyter_is_python_that_starts_the_command():
    namespace: dict[str, object] = {}
    text = editor_setup("jupyter", {"HOME": "/home/x"}).applied(None, HARD)
    lines = [line for line in text.splitlines() if not line.startswith("from ")]
    fakes = (
        "class BaseAcpPersona:\n def __init__(self, executable): self.executable = executable\nPersonaDefaults = dict\n"
    )
    exec(fakes + "\n".join(lines), namespace)
    persona = namespace["AcpAgentPersona"]()
    assert persona.executable == HARD.words
    assert Path(persona.defaults["avatar_path"]).read_text().startswith("<svg")


MARIMO = {
    "no file": None,
    "empty": "",
    "other tables": '[display]\ntheme = "dark" # dark\n\n[ai]\nmode = "ask"',
    "CRLF": '[display]\r\ntheme = "dark"\r\n',
    "the table is there": '[experimental] # new things\nwasm_layouts = true\n\n[save]\nautosave = "off"\n',
    "an indented table": "  [ experimental ]\n  a = 1",
    "the table is last": "[a]\nb = 1\n[experimental]",
}


@each_row("case", MARIMO)
def test_the_flag_of_marimo_is_set_and_taken_back(in_process, tmp_path, case):
    old, file = MARIMO[case], tmp_path / "marimo.toml"
    file.unlink(missing_ok=True)
    if old is not None:
        file.write_bytes(old.encode())
    done = in_process("setup", "marimo", "--write", "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert "sets external_agents" in done.stdout
    new = file.read_bytes().decode()
    assert is_within(old or "", new)
    assert tomllib.loads(new)["experimental"]["external_agents"] is True
    assert "set up already" in in_process("setup", "marimo", "--write", "--file", str(file)).stdout
    left = editor_setup("marimo", {}).withdrawn(new, old)
    assert (left or "").strip() == (old or "").strip()
    assert in_process("setup", "marimo", "--remove", "--file", str(file)).returncode == 0
    assert (file.read_bytes().decode() if file.exists() else None) == old


DEEP = f"a = {'[' * 5000}{']' * 5000}\n"


@each_row("text", ["experimental = {}\n", "experimental.a = 1\n", "[experimental\n", "a = 'x\n", DEEP])
def test_a_configuration_of_marimo_that_cannot_be_edited_is_left_alone(in_process, tmp_path, text):
    file = tmp_path / "marimo.toml"
    file.write_text(text)
    done = in_process("setup", "marimo", "--write", "--file", str(file))
    assert (done.returncode, file.read_text()) == (1, text)
    assert "nothing was changed" in done.stderr


FAKE_CODE = """#!{python}
import pathlib, sys
installed = pathlib.Path({state!r})
if sys.argv[1] == "--install-extension":
    assert pathlib.Path(sys.argv[2]).is_file()
    installed.write_text("acp-agent.acp-agent")
elif sys.argv[1] == "--uninstall-extension":
    installed.unlink()
else:
    print(installed.read_text() if installed.exists() else "ms-python.python")
"""


def test_vs_code_installs_the_extension_with_its_own_program(in_process, home, monkeypatch):
    monkeypatch.setattr(command, "_VSIX", "icon.svg")  # the extension is built for a wheel only
    state, settings_file = home / "installed", home / ".config/Code/User/settings.json"
    (home / "bin").mkdir()
    (home / "bin/code").write_text(FAKE_CODE.format(python=sys.executable, state=str(state)))
    (home / "bin/code").chmod(0o755)
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    assert "is installed in VS Code" in in_process("setup", "vscode", "--write", PATH=path).stdout
    assert settings_file.exists()
    works = in_process("doctor", "--editor", "vscode", PATH=path)
    assert "acp-agent.acp-agent is installed" in works.stdout
    assert in_process("setup", "vscode", "--remove", PATH=path).returncode == 0
    assert not settings_file.exists()
    assert not state.exists()
    assert "neither our extension" in in_process("doctor", "--editor", "vscode", PATH=path).stdout


def test_without_its_program_or_an_extension_vs_code_says_what_to_do(in_process, home, monkeypatch):
    (home / ".config/Code/User").mkdir(parents=True)
    monkeypatch.setattr(command, "_VSIX", "absent.vsix")
    assert "Install ACP Client" in in_process("setup", "vscode", "--write", PATH="/nonexistent").stdout
    monkeypatch.setattr(command, "_VSIX", "icon.svg")
    done = in_process("setup", "vscode", "--write", PATH="/nonexistent")
    assert "To finish, run: code --install-extension" in done.stdout


def test_a_path_alone_in_vs_code_is_found_and_removed(in_process, tmp_path):
    file = tmp_path / "settings.json"
    file.write_text('{\n  "acpAgent.path": "/opt/acp-agent",\n  "a": 1\n}\n')
    assert in_process("setup", "vscode", "--remove", "--file", str(file)).returncode == 0
    assert file.read_text() == '{\n  "a": 1\n}\n'


def test_doctor_talks_to_the_agent_that_the_editor_would_start(acp_agent, in_process, home):
    (home / ".config" / "zed").mkdir(parents=True)
    missing = in_process("doctor", "--editor", "zed")
    assert missing.returncode == 1
    assert "does not exist -> acp-agent setup zed --write" in missing.stdout
    assert acp_agent("setup", "zed", "--write").returncode == 0
    works = acp_agent("doctor", "--editor", "zed")
    assert works.returncode == 0, works.stdout
    assert "initialize, a session and /help are answered" in works.stdout
    assert in_process("sessions", "list").stdout.count("\n") <= 1


AGENTS = {
    "is not there": ("/nonexistent/acp-agent", "cannot be started"),
    "ends at once": ("/bin/true", "it ended before it answered initialize"),
    "prints a banner": ("/bin/pwd", "a line that is not JSON"),
}


@each_row("case", AGENTS)
def test_doctor_says_what_is_wrong_with_the_agent_of_an_editor(in_process, home, case):
    program, words = AGENTS[case]
    file = home / ".config" / "zed" / "settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"agent_servers": {"acp-agent": {"command": program}}}))
    done = in_process("doctor", "--editor", "zed")
    assert done.returncode == 1
    assert words in done.stdout
    assert "another installation" in done.stdout
