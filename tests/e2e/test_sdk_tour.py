"""The tour of tests/interop through the whole protocol, with a client on the official TypeScript SDK.

It needs node 20 and the SDK: `npm install --no-package-lock` in tests/interop, or INTEROP_NODE_MODULES names a folder
`node_modules` that has it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from acp_agent.cli.agent_process import Direction, RecordedFrame, Recording
from tests.wire import rules, schema

INTEROP = Path(__file__).resolve().parents[1] / "interop"
MODULES = Path(os.environ.get("INTEROP_NODE_MODULES", INTEROP / "node_modules"))
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (MODULES / "@agentclientprotocol" / "sdk").is_dir(),
        reason="the TypeScript SDK is not there: npm install --no-package-lock in tests/interop",
    ),
]
LOADER = "import runpy, sys; sys.path[0] = sys.argv.pop(1); runpy.run_module('acp_agent', run_name='__main__')"
"""Starts the agent of this checkout from any folder and with an environment of the tour's own."""


def recorded(file: Path) -> Recording:
    recording = Recording()
    for line in file.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        sender = Direction.FROM_AGENT if entry["from"] == "agent" else Direction.TO_AGENT
        recording.add(RecordedFrame(sender, entry["message"], 0.0))
    return recording


@pytest.mark.timeout(240)
def test_a_client_on_the_official_sdk_tours_the_whole_protocol(tmp_path):
    for script in INTEROP.glob("*.mjs"):
        shutil.copy(script, tmp_path)
    (tmp_path / "node_modules").symlink_to(MODULES)
    stage = tmp_path / "stage"
    agent = [sys.executable, "-c", LOADER, str(INTEROP.parents[1])]
    toured = subprocess.run(  # the tour ends its agents, or they end with it
        [str(NODE), str(tmp_path / "tour.mjs"), str(stage), *agent],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert toured.returncode == 0, toured.stdout + toured.stderr
    assert toured.stderr == ""
    wires = sorted(stage.glob("wire-*.jsonl"))
    assert len(wires) == 2, "one agent before, one after"
    for wire in wires:
        recording = recorded(wire)
        assert rules.broken(recording) == []
        assert schema.violations(recording, schema.UNSTABLE_FILE) == []
    print(toured.stdout)
