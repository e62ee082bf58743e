"""The profile for macOS, compared with the one that was read and approved. It is not run here."""

import os
from pathlib import Path

from acp_agent.workspace.sandbox.seatbelt import SeatbeltSandbox, profile
from acp_agent.workspace.sandbox.walls import NetworkReach, Walls

GOLDEN = Path(__file__).with_name("seatbelt.sb")
WALLS = Walls(
    writable=("/Users/a/project",),
    readable=("/Users/a/.cargo", '/opt/with "quotes"'),
    pinned=("/Users/a/project/.git",),
    frozen=("/Users/a/project/.git/config", "/Users/a/project/.git/hooks"),
    hidden=("/Users/a/.cargo/credentials.toml", "/Users/a/project/.env"),
    home="/Users/a",
)


def test_the_profile_is_the_approved_one():
    made = profile(WALLS, ("/private/tmp/p/tmp", "/private/tmp/p/home"))
    if os.environ.get("ACP_AGENT_GOLDEN") == "write":
        GOLDEN.write_text(made)
    assert made == GOLDEN.read_text()


def test_rules_that_take_back_come_after_those_that_allow():
    made = profile(WALLS, ())
    allowed = made.index("(allow file-write*\n")
    assert allowed < made.index("(deny file-write*\n") < made.index("(deny file-read* file-write*\n")


def test_without_a_network_no_rule_allows_one():
    walls = Walls((), (), network=NetworkReach.NONE)
    assert "(allow network" not in profile(walls, ())


def test_a_command_is_started_by_sandbox_exec_with_private_folders(tmp_path):
    with SeatbeltSandbox(str(tmp_path)).launch(["true"], "/", WALLS) as launch:
        assert launch.arguments[:2] == ("/usr/bin/sandbox-exec", "-p")
        assert launch.arguments[-1] == "true"
        assert launch.variables["TMPDIR"] == str(tmp_path / "tmp")
