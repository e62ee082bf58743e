"""What is loaded, and answered, at the moment at which boot loads the rest."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

HEAVY = ("acp", "pydantic", "asyncio", "httpx", "anyio", "dataclasses")

# Runs the real command and stops it where boot, its answer given, reaches for one of the modules in its arguments.
_PROBE = """
import json, os, runpy, sys

ends = sys.argv[1:]

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name in ends:
            os.write(2, json.dumps(sorted(sys.modules)).encode())
            os._exit(0)

sys.meta_path.insert(0, Stop())
sys.argv = ["acp-agent"]
runpy.run_module("acp_agent", run_name="__main__")
"""
_INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'


def at_initialize() -> tuple[list[str], dict]:
    """(names of the loaded modules, the answer that was already out)."""
    loaded, answers = _stopped_at(("acp_agent.store", "acp_agent.app"), _INITIALIZE)
    return loaded, answers[0]


def after_boot(sent: bytes, environment: Mapping[str, str]) -> tuple[list[str], list[Any]]:
    """(names of the loaded modules, the answers to what was sent), before the server is loaded."""
    return _stopped_at(("acp_agent.app",), sent, environment)


def _stopped_at(
    modules: Sequence[str], sent: bytes, environment: Mapping[str, str] | None = None
) -> tuple[list[str], list[Any]]:
    command = [sys.executable, "-c", _PROBE, *modules]
    probe = subprocess.run(command, input=sent, capture_output=True, check=True, timeout=30, env=environment)
    return json.loads(probe.stderr), [*map(json.loads, probe.stdout.splitlines())]


def heavy_at_initialize() -> list[str]:
    """The heavy modules among them; empty is right."""
    loaded, _answer = at_initialize()
    return [name for name in HEAVY if name in loaded]
