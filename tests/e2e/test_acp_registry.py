"""The entry for the ACP registry, under the rules that the registry publishes and checks. No network is used.

https://github.com/agentclientprotocol/registry: CONTRIBUTING.md, AUTHENTICATION.md, agent.schema.json.
"""

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from acp_agent import __version__
from tests.fakes.home import Home

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "editors" / "registry"
AGENT = json.loads((FOLDER / "agent.json").read_text())
PACKAGE = AGENT["distribution"]["uvx"]
OPTIONAL = {"repository": str, "authors": list, "license": str, "icon": str}
VALIDATOR = {
    "protocolVersion": 1,
    "clientInfo": {"name": "ACP Registry Validator", "version": "1.0.0"},
    "clientCapabilities": {
        "terminal": True,
        "fs": {"readTextFile": True, "writeTextFile": True},
        "_meta": {"terminal_output": True, "terminal-auth": True},
    },
}


def test_the_entry_has_what_is_required_and_nothing_unknown():
    required = {"id": str, "name": str, "version": str, "description": str, "distribution": dict}
    for name, kind in {**required, **{key: OPTIONAL[key] for key in AGENT.keys() - required.keys()}}.items():
        assert isinstance(AGENT[name], kind)
        assert AGENT[name], name
    assert re.fullmatch(r"[a-z][a-z0-9-]*", AGENT["id"])
    assert AGENT["license"] == "Apache-2.0"


def test_the_version_is_a_pinned_one_and_the_one_of_this_package():
    assert re.fullmatch(r"\d+\.\d+\.\d+", AGENT["version"])
    assert AGENT["version"] == __version__
    assert PACKAGE["package"] == f"acp-agent=={__version__}"
    assert set(AGENT["distribution"]) == {"uvx"}
    assert set(PACKAGE) <= {"package", "args", "env"}


def test_the_package_is_called_as_the_entry_says_and_brings_a_program_of_that_name():
    project = (ROOT / "pyproject.toml").read_text()
    assert 'name = "acp-agent"' in project
    assert 'acp-agent = "acp_agent.__main__:main"' in project, "uvx runs the program that is called as the package"


def test_the_icon_is_16_by_16_and_has_no_colours_of_its_own():
    text = (FOLDER / AGENT["icon"]).read_text()
    svg = ET.fromstring(text)
    assert (svg.get("width"), svg.get("height"), svg.get("viewBox")) == ("16", "16", "0 0 16 16")
    colours = {each.get(name) for each in svg.iter() for name in ("fill", "stroke")} - {None}
    assert colours == {"currentColor", "none"}
    assert "style" not in text
    assert text == (ROOT / "acp_agent/cli/setup/icon.svg").read_text(), "the package carries the same one"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def without_network() -> list[str]:
    """The words in front of a command that take the network from it, where this machine can do that."""
    words = ["unshare", "--user", "--map-root-user", "--net"]
    able = (
        shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    )
    return words if able else []


@pytest.mark.parametrize("arguments", [PACKAGE["args"], []], ids=["as the entry says", "without arguments"])
def test_the_first_line_answers_initialize_with_a_way_to_log_in_without_network_or_key(home, arguments):
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": VALIDATOR}
    done = subprocess.run(
        [*without_network(), sys.executable, "-P", "-m", "acp_agent", *arguments],
        input=json.dumps(request) + "\n",
        env={**home.environment(), "TERM": "dumb"},
        cwd=home.root,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    answer = json.loads(done.stdout.partition("\n")[0])
    assert answer["id"] == 1
    assert answer["result"]["protocolVersion"] == 1
    methods = answer["result"]["authMethods"]
    kinds = {
        each.get("type") or ("terminal" if "terminal-auth" in each.get("_meta", {}) else "agent") for each in methods
    }
    assert kinds & {"agent", "terminal"}
    assert all(each["id"] and each["name"] for each in methods)


def test_it_starts_and_ends_cleanly_with_an_empty_stdin(home):
    command = [sys.executable, "-P", "-m", "acp_agent", *PACKAGE["args"]]
    environment = {**home.environment(), "TERM": "dumb"}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, env=environment, cwd=home.root, capture_output=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")
