"""The syntax trees of source files, for tests that look at the code."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the tree of a file, one for all tests of a process: they only look at it."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of a file: to walk through a tree takes as long as to parse it."""
    return list(ast.walk(tree_of(path)))
