"""Drives the agent by clients that others wrote, one after the other: `make test-editors`.

Prints a line a part, why a part was skipped, and a table at the end. The exit code is 1 if a part that ran failed.
Nothing of this is part of `make test`: clients are installed, and a drive takes minutes.
"""

import argparse
import os
import tempfile
import time
from importlib import import_module
from pathlib import Path

from tests.editors.cache import NotHereError
from tests.editors.clients.vscode import tour
from tests.editors.drive import PARTS, Driver, Tour
from tests.editors.stage import Stage

CLIENTS = {
    "acpx": "acpx:Acpx",
    "typescript-sdk": "typescript_sdk:TypeScriptSdk",
    "toad": "toad:Toad",
    "emacs": "emacs:AgentShell",
    "neovim": "neovim:CodeCompanion",
    "jupyter": "jupyter:JupyterAi",
    "marimo": "marimo:Marimo",
    "vsix": "vsix:VsCodeExtension",
}
OURS = "vscode"
"""Our own extension. Its tour has other parts, so that it gets a line instead of a row."""


def _driver(name: str) -> type[Driver]:
    module, _, cls = CLIENTS[name].partition(":")
    return getattr(import_module(f"tests.editors.clients.{module}"), cls)


def _drive(name: str, folder: Path) -> tuple[str, dict[str, str]]:
    """Return the client's title with its version, and part -> result."""
    driver = _driver(name)
    try:
        title = f"{driver.title} {driver.install()}"
    except NotHereError as error:
        return driver.title, dict.fromkeys(PARTS, f"skipped: {error}")
    folder.mkdir(parents=True)
    return title, Tour(driver(Stage(folder))).take()


def _table(drives: dict[str, dict[str, str]]) -> str:
    width = max(map(len, drives))
    lines = ["  ".join(["client".ljust(width), *(part.ljust(9) for part in PARTS)])]
    for title, results in drives.items():
        words = [results[part].partition(":")[0].replace("skipped", "-") for part in PARTS]
        lines.append("  ".join([title.ljust(width), *(word.ljust(9) for word in words)]))
    return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    """Drive the clients that are named, else all. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.editors", description="Drive the agent by clients that others wrote."
    )
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join([*CLIENTS, OURS]))
    parser.add_argument("--out", type=Path, help="the folder for frames and screens (default: a new one)")
    arguments = parser.parse_args()
    names: list[str] = arguments.clients or [*CLIENTS, OURS]
    if not arguments.clients and not os.environ.get("VSIX"):
        names.remove("vsix")
    if unknown := [name for name in names if name not in (*CLIENTS, OURS)]:
        parser.error(f"no such client: {', '.join(unknown)} (there are {', '.join(CLIENTS)}, {OURS})")
    out = (arguments.out or Path(tempfile.mkdtemp(prefix="acp-editors-"))).resolve()
    drives: dict[str, dict[str, str]] = {}
    for name in [name for name in names if name != OURS]:
        begun = time.monotonic()
        title, results = _drive(name, out / name)
        drives[title] = results
        print(f"{title} ({time.monotonic() - begun:.0f} s)")
        for part in PARTS:
            print(f"  {part:10} {results[part]}", flush=True)
    ours = tour(out / OURS) if OURS in names else "skipped: not asked for"
    table = f"{_table(drives) if drives else ''}\n\n- : skipped\nOur extension for VS Code: {ours}"
    print(f"\n{table}")
    (out / "table.txt").write_text(table + os.linesep)
    print(f"Frames, screens and logs: {out}")
    told = [ours, *(result for results in drives.values() for result in results.values())]
    return int(any(result.startswith("failed") for result in told))


if __name__ == "__main__":
    raise SystemExit(main())
