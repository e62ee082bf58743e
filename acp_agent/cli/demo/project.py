"""The throw-away project of the demo: a small Python package with a bug, its test, and git."""

import os
import shutil
import subprocess
from pathlib import Path

BUGGY = "    return sum(item.price for item in items)\n"
MENDED = "    return sum(item.price * item.quantity for item in items)\n"

STOCK = "inventory/stock.py"
TESTS = "tests/test_stock.py"

_STOCK_TEXT = f'''"""What lies in the warehouse, and what it is worth."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """Pieces of one product; the price is for one piece, in cents."""

    name: str
    price: int
    quantity: int


def total(items):
    """What all the items together are worth, in cents."""
{BUGGY}'''

_TESTS_TEXT = """import unittest

from inventory.stock import Item, total


class StockTest(unittest.TestCase):
    def test_no_items(self):
        self.assertEqual(total([]), 0)

    def test_quantities(self):
        self.assertEqual(total([Item("cup", 450, 2), Item("plate", 800, 3)]), 3300)


if __name__ == "__main__":
    unittest.main()
"""

_FILES = {
    "README.md": "# Inventory\n\nWhat lies in the warehouse. Run the tests with `python3 -m unittest -v`.\n",
    ".gitignore": "__pycache__/\n",
    "inventory/__init__.py": "",
    STOCK: _STOCK_TEXT,
    "tests/__init__.py": "",
    TESTS: _TESTS_TEXT,
}


def make_project(folder: Path) -> bool:
    """Write the project into an empty folder; whether it is a git repository too. Raises OSError."""
    for name, text in _FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if shutil.which("git") is None:
        return False
    author = ("-c", "user.name=Demo", "-c", "user.email=demo@example.invalid")
    commands = (("init", "--quiet"), ("add", "."), (*author, "commit", "--quiet", "--message", "Inventory"))
    return all(_git(folder, *command).returncode == 0 for command in commands)


def changes(folder: Path) -> str:
    """What git says has changed, as a patch without context."""
    patch = _git(folder, "--no-pager", "diff", "--no-color", "--no-ext-diff", "--unified=0").stdout
    return patch[max(patch.find("---"), 0) :]


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Git without the user's configuration: no hooks, no signing, no other repository from the environment."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    plain |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return subprocess.run(["git", *arguments], cwd=folder, check=False, capture_output=True, text=True, env=plain)
