"""`acp-agent sandbox`, as a user starts it, and what the doctor says of the walls."""

import subprocess
import sys
from pathlib import Path

import pytest

from acp_agent.cli.doctor import CheckLevel, check_sandbox
from acp_agent.config.call_settings import SandboxMode, SandboxProfile, SandboxSettings
from acp_agent.config.settings import Settings
from acp_agent.config.tool_settings import ToolSettings
from acp_agent.workspace.sandbox.sandbox import SandboxTier, sandbox_tier, tier_limits, tier_works
from tests.fakes.forked_agent import CAN_FORK
from tests.fakes.forked_command import run_forked

needs_walls = pytest.mark.skipif(sandbox_tier() is SandboxTier.NONE, reason="no walls can be built on this machine")

FETCH = 'import urllib.request; urllib.request.urlopen("http://evil.example.net/")'


def ran(
    environment: dict[str, str], folder: Path, *words: str, cold: bool = False
) -> "subprocess.CompletedProcess[str]":
    """Run the subcommand. Where it can be forked, only a `cold` one is started anew."""
    if CAN_FORK and not cold:
        return run_forked(["sandbox", *words], environment, str(folder), 50, b"typed\n")
    command = [sys.executable, "-m", "acp_agent", "sandbox", *words]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, input="typed\n", timeout=50, check=False
    )


@needs_walls
def test_a_command_gets_this_input_and_its_code_comes_back(environment, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside").write_text("outside")
    done = ran(environment, folder, "--", "sh", "-c", "cat; echo x > made; cat made ../outside; exit 7", cold=True)
    assert (done.stdout, done.returncode) == ("typed\nx\n", 7)
    assert (folder / "made").exists()


@needs_walls
def test_with_the_read_only_profile_it_changes_nothing(environment, tmp_path):
    done = ran(environment, tmp_path, "--profile", "read-only", "--", "touch", "made")
    assert done.returncode == 1
    assert not (tmp_path / "made").exists()


@needs_walls
def test_the_user_is_told_which_host_a_command_may_not_reach(environment, tmp_path):
    listed = {**environment, "ACP_AGENT_TOOLS__SANDBOX__NETWORK_ALLOW": "docs.example.com"}
    done = ran(listed, tmp_path, "--", "sh", "-c", f"python3 -c '{FETCH}' 2>&1; exit 7")
    assert done.returncode == 7
    assert "acp-agent: in the sandbox evil.example.net:80 cannot be reached" in done.stderr
    assert "403" in done.stdout


def doctor_says(**fields) -> tuple[CheckLevel, str]:
    (found,) = check_sandbox(Settings(tools=ToolSettings(sandbox=SandboxSettings(**fields))))
    return found.level, found.text


def test_the_doctor_names_the_walls_and_what_they_cannot_do():
    for mode, tier in ((SandboxMode.BWRAP, SandboxTier.BUBBLEWRAP), (SandboxMode.LANDLOCK, SandboxTier.LANDLOCK)):
        if tier_works(tier):
            said = "; ".join((f"{tier}, profile read-only", *tier_limits(tier)))
            assert doctor_says(mode=mode, profile=SandboxProfile.READ_ONLY) == (CheckLevel.OK, said)


def test_the_doctor_warns_where_walls_are_wanted_and_missing_and_fails_where_they_are_demanded():
    if tier_works(SandboxTier.SEATBELT):
        pytest.skip("they work on this machine")
    assert doctor_says(mode=SandboxMode.SEATBELT)[0] is CheckLevel.WARN
    assert doctor_says(mode=SandboxMode.SEATBELT, strict=True)[0] is CheckLevel.FAIL
    assert doctor_says(mode=SandboxMode.OFF)[0] is CheckLevel.OK


def test_the_doctor_says_which_hosts_commands_reach_and_where_the_list_does_nothing():
    listed = {"network_allow": ("docs.example.com",)}
    if tier_works(SandboxTier.BUBBLEWRAP):
        assert "commands reach docs.example.com" in doctor_says(mode=SandboxMode.BWRAP, **listed)[1]
    if tier_works(SandboxTier.LANDLOCK):
        assert "`network_allow` does nothing with landlock" in doctor_says(mode=SandboxMode.LANDLOCK, **listed)[1]
