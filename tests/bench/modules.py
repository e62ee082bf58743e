"""What is loaded at the moment `initialize` has been answered."""

import json
import subprocess
import sys

HEAVY = ("acp", "pydantic", "asyncio", "httpx", "anyio", "dataclasses")

# Runs the real command and stops it where boot, its answer given, reaches for the rest of the program.
_PROBE = """
import json, os, runpy, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "acp_agent.app":
            os.write(2, json.dumps(sorted(sys.modules)).encode())
            os._exit(0)

sys.meta_path.insert(0, Stop())
sys.argv = ["acp-agent"]
runpy.run_module("acp_agent", run_name="__main__")
"""
_INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'


def at_initialize() -> tuple[list[str], dict]:
    """(names of the loaded modules, the answer that was already out)."""
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE], input=_INITIALIZE, capture_output=True, check=True, timeout=30
    )
    return json.loads(probe.stderr), json.loads(probe.stdout)


def heavy_at_initialize() -> list[str]:
    """The heavy modules among them; empty is right."""
    loaded, _answer = at_initialize()
    return [name for name in HEAVY if name in loaded]
