"""Searches of a real agent: what the model is told of matches, paths and symbols, and how it goes on."""

from pathlib import Path

import pytest

from tests.e2e.thoughts import Mind, go, inside, thinking

pytestmark = pytest.mark.anyio

SOURCES = {
    "a.py": "class Basket:\n    def total(self):\n        return 0\n",
    "a.ts": "export class Shop { open(): void {} }\n",
    "a.js": "function close() {}\n",
    "a.go": "package a\nfunc Sell(x int) error { return nil }\n",
    "a.rs": "fn weigh(a: u8) -> u8 { a }\n",
    "A.java": "class Till { int count() { return 1; } }\n",
    "a.c": "static int price(int x) { return x; }\n",
    "a.cpp": "template <class T> class Shelf {};\n",
}
SYMBOLS = ["Basket", "total", "Shop", "open", "close", "Sell", "weigh", "Till", "count", "price", "Shelf"]


async def test_matches_come_in_pages_with_lines_around_them_counted_and_their_total_told(tmp_path: Path):
    mind = Mind()
    ways = (
        {"max_results": 2},
        {"max_results": 2, "offset": 2},
        {"offset": 1, "before": 1, "after": 2},
        {"count": True},
    )
    calls = [("grep", {"pattern": "hit", "path": "src", **way}) for way in ways]
    async with thinking(tmp_path, mind.call(*calls)) as (editor, _):
        (editor.workspace / "src").mkdir()
        (editor.workspace / "src/a.txt").write_text("one hit\ntwo hit\nthree\nfour hit\nfive\nsix\nseven\n")
        await go(editor)
    first, rest, around, counted = (inside(said) for said in mind.said)
    assert first == "src/a.txt\n1:one hit\n2:two hit\n[showing 2 of 3 matches in 1 file: offset=2 for more]"
    assert rest == "src/a.txt\n4:four hit\n[showing 1 of 3 matches in 1 file]"
    assert around == "src/a.txt\n2:two hit\n3-three\n4:four hit\n5-five\n6-six\n[showing 2 of 3 matches in 1 file]"
    assert counted == "src/a.txt: 3\n[1 file with 3 matching lines]"


async def test_paths_are_found_with_their_sizes_and_the_symbols_of_every_language_with_their_lines(tmp_path: Path):
    mind = Mind()
    calls = [("find_path", {"pattern": "*.py"}), ("outline", {"path": "src"})]
    async with thinking(tmp_path, mind.call(*calls)) as (editor, _):
        (editor.workspace / "src").mkdir()
        for name, text in SOURCES.items():
            (editor.workspace / "src" / name).write_text(text)
        await go(editor)
    found, outlined = (inside(said) for said in mind.said)
    assert found == f"src/a.py ({len(SOURCES['a.py'])} B)\n[1 result]"
    assert [symbol for symbol in SYMBOLS if symbol not in outlined] == []
    assert "src/a.py\n    1  class Basket\n    2    def total(self)\n" in outlined + "\n"
