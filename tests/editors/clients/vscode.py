"""Our own extension for VS Code: it has a tour of its own in editors/vscode, which is called here."""

import os
import subprocess
import sys
from pathlib import Path

from tests.editors.cache import NotHereError, program, run
from tests.editors.stage import CHECKOUT

EXTENSION = CHECKOUT / "editors" / "vscode"


def tour(folder: Path) -> str:
    """Build the extension and run its checks, tests and tour. Return "ok", "failed: ..." or "skipped: ..."."""
    try:
        npm = program("npm", "node 20 or later")
        run([npm, "ci", "--no-audit", "--no-fund"], cwd=EXTENSION)
    except NotHereError as error:
        return f"skipped: {error}"
    shots = folder / "screens"
    shots.mkdir(parents=True)
    log = folder / "verify.log"
    agent = str(Path(sys.executable).with_name("acp-agent"))
    with log.open("w") as output:
        done = subprocess.run(
            [npm, "run", "verify"],
            cwd=EXTENSION,
            env={**os.environ, "ACP_AGENT": agent, "SHOTS": str(shots)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    said = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("verify:")]
    if done.returncode != 0:
        return f"failed: {said[-1] if said else f'exit code {done.returncode}'} ({log})"
    last = said[-1] if said else "verify:"
    return f"skipped: {last}" if "skipped" in last else f"ok: {last.removeprefix('verify: ')}"
