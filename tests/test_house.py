"""The shape of the code: how large files and folders are, and that names, sentences and objects keep the rules.

The rules are those of CONTRIBUTING.md. What the code does not keep yet stands in CEILINGS, a number a rule: it may only
shrink. `pytest -n0 tests/test_house.py -k rule` prints the numbers of today.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acp_agent.protocol.client import DRAWINGS
from tests.rows import each_row
from tests.sources import nodes_of, tree_of

PACKAGE = Path(__file__).parents[1] / "acp_agent"
FILES = sorted(PACKAGE.rglob("*.py"))
LINES = {path.relative_to(PACKAGE).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}

# One file a thing, however small: what a newcomer looks for by its name.
ONE_PER_THING = ("tools/", "gates/", "output/filters/", "cli/", "llm/", "config/")
MANY_FILES = ("tools", "gates", "output/filters")
CODE = re.compile(r"\b(?:[A-Z]{1,2}\d{1,2}\.\d+(?:\.\d+)?|requirements [A-Z]\d+)\b")

# Attributes that libraries want to be assigned.
FOREIGN = {
    "deadline",
    "epilog",
    "excepthook",
    "argtypes",
    "args",
    "required",
    "time",
    "time_ns",
    "stdin",
    "stdout",
    "stderr",
}
RENAMED = "tools/html_page.py part.name"  # bs4 renames an element by assignment

CEILINGS = {
    "folders with more than 20 files": 0,
    "files outside the folders with one file a thing": 199,
    "modules under 100 lines with one importer": 0,
    "public class names that stand twice": 0,
    "files with requirement codes": 0,
    "assignments to attributes of another object": 0,
}


def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of every file."""
    return {path.relative_to(PACKAGE).as_posix(): tree_of(path) for path in FILES}


def walked() -> dict[str, list[ast.AST]]:
    """Return the nodes of every file."""
    return {path.relative_to(PACKAGE).as_posix(): nodes_of(path) for path in FILES}


def module_of(name: str) -> str:
    dotted = "acp_agent." + name.removesuffix(".py").replace("/", ".")
    return dotted.removesuffix(".__init__")


def importers() -> dict[str, set[str]]:
    """The modules that import each module, by dotted name."""
    modules = {module_of(name) for name in LINES}
    found: dict[str, set[str]] = defaultdict(set)
    for name, nodes in walked().items():
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                for target in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    if target in modules:
                        found[target].add(module_of(name))
    return found


def crowded_folders() -> list[str]:
    counted = Counter(path.relative_to(PACKAGE).parent.as_posix() for path in FILES if path.name != "__init__.py")
    return [folder for folder, count in counted.items() if count > 20 and folder not in MANY_FILES]


def small_rooms() -> list[str]:
    found = importers()
    return [
        name
        for name, length in LINES.items()
        if length < 100
        and not name.endswith("__init__.py")
        and not name.startswith(ONE_PER_THING)
        and len(found[module_of(name)]) == 1
    ]


def double_names() -> list[str]:
    counted = Counter(
        node.name
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name[0] != "_"
    )
    return [name for name, count in counted.items() if count > 1]


def codes() -> list[str]:
    return [path.name for path in FILES if CODE.search(path.read_text(encoding="utf-8"))]


def own_attributes(nodes: list[ast.AST]) -> set[str]:
    """The attributes of the classes of a module: its own functions may change its own small records."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            found |= {
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
        match node:
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                found.add(node.attr)
            case _:
                pass
    return found


def outside_assignments() -> Iterator[str]:
    """`thing.attribute = …` where `thing` is not self and the attribute belongs to no class of the module."""
    for name, nodes in walked().items():
        own = own_attributes(nodes) | FOREIGN
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr not in own:
                owner = ast.unparse(node.value)
                if owner not in ("self", "cls") and f"{name} {owner}.{node.attr}" != RENAMED:
                    yield f"{name} {owner}.{node.attr}"


RULES: dict[str, Callable[[], list[str]]] = {
    "folders with more than 20 files": crowded_folders,
    "files outside the folders with one file a thing": lambda: [
        name for name in LINES if not name.startswith(ONE_PER_THING)
    ],
    "modules under 100 lines with one importer": small_rooms,
    "public class names that stand twice": double_names,
    "files with requirement codes": codes,
    "assignments to attributes of another object": lambda: sorted(set(outside_assignments())),
}


def test_the_map_names_every_package_and_none_besides():
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Packages")[2].partition("\nLibraries")[0]
    named = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")
    }
    assert named == {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()} - {
        "__init__",
        "__pycache__",
    }


METHODS = {"session/new", "session/prompt", "session/update", "session/request_permission"}  # of ACP, and no files


@each_row("page", ("docs/architecture.md", "CONTRIBUTING.md"))
def test_the_pages_for_newcomers_name_only_files_and_names_that_exist(page: str):
    text = (PACKAGE.parent / page).read_text(encoding="utf-8")
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    named = {name for name in re.findall(r"`([\w./]+)`", text) if name.partition("/")[0] in folders and "/" in name}
    assert [name for name in sorted(named - METHODS) if "NAME" not in name and not _is_there(name)] == []


def _is_there(name: str) -> bool:
    """Whether `folder/module`, `folder/module.py` or `folder/module.name` stands for something in the package."""
    if (PACKAGE / name).exists() or (PACKAGE / f"{name}.py").exists():
        return True
    module, _, attribute = name.rpartition(".")
    file = PACKAGE / f"{module}.py"
    defined = rf"^(?:\s*(?:async )?(?:def|class) )?{attribute}\b"
    return file.exists() and re.search(defined, file.read_text(encoding="utf-8"), re.MULTILINE) is not None


def test_no_file_is_longer_than_600_lines():
    assert {name: length for name, length in LINES.items() if length > 600} == {}


@each_row("rule", CEILINGS)
def test_what_breaks_a_rule_only_becomes_less(rule: str, capsys: pytest.CaptureFixture[str]):
    found = RULES[rule]()
    with capsys.disabled():
        print(f"\n{rule}: {len(found)} (ceiling {CEILINGS[rule]})", end="")
    assert len(found) <= CEILINGS[rule], f"{rule}: {len(found)} of at most {CEILINGS[rule]}: {found}"


def test_clients_are_known_by_name_in_one_file_only():
    """`protocol/client.py` decides by what a client is. `setup` and `doctor` have names of their own for editors."""
    found: list[str] = []
    for name, nodes in walked().items():
        if name == "protocol/client.py" or name.startswith("cli/"):
            continue
        for node in nodes:
            named = isinstance(node, ast.Constant) and node.value in DRAWINGS
            asked = isinstance(node, ast.Attribute) and node.attr == "name" and "client" in ast.unparse(node.value)
            if named or asked:
                found.append(f"{name}: {ast.unparse(node)}")
    assert found == []
