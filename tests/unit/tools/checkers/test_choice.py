"""Which commands a project gets."""

import pytest

from acp_agent.gates.shell.command import Plain, analyse
from acp_agent.tools.checkers import MARKERS, choose
from tests.fakes.memory_files import MemoryFileSystem
from tests.rows import each_row

pytestmark = pytest.mark.anyio

RUFF = "ruff check --no-fix --no-fix-only --exit-zero --output-format=json-lines"
MYPY = "mypy --show-column-numbers --no-pretty --no-color-output --no-error-summary"


async def commands(files: dict[str, str], *, clippy: bool = False) -> list[str]:
    choice = await choose(MemoryFileSystem(files), ".", clippy=clippy)
    assert choice.warnings == ()
    assert choice.folder == "/project"
    return list(choice.commands)


@each_row(
    "files, wanted",
    [
        ({"Cargo.toml": ""}, ["cargo check --message-format=json"]),
        ({"go.mod": ""}, ["go vet ./..."]),
        ({"tsconfig.json": "{}"}, ["tsc --noEmit --pretty false"]),
        ({"tsconfig.json": '{"files": [], "references": []}'}, ["tsc --build --noEmit --pretty false"]),
        (
            {"tsconfig.json": "{}", "node_modules/.bin/tsc": "#!"},
            ["node_modules/.bin/tsc --noEmit --pretty false"],
        ),
        (
            {"Cargo.toml": "", "pyproject.toml": "", "go.mod": ""},
            ["cargo check --message-format=json", RUFF, "go vet ./..."],
        ),
    ],
)
async def test_a_marker_chooses_the_language(files: dict[str, str], wanted: list[str]):
    assert await commands(files) == wanted


@each_row(
    "files, wanted",
    [
        ({"setup.py": ""}, [RUFF]),
        ({"pyproject.toml": "[tool.ruff]"}, [RUFF]),
        ({"ruff.toml": ""}, [RUFF]),
        ({"pyproject.toml": "[tool.black]\n[tool.mypy]"}, [f"{MYPY} ."]),
        ({"pyproject.toml": '[tool.mypy]\nfiles = ["src"]'}, [MYPY]),
        ({"mypy.ini": "[mypy]\nstrict = True\n"}, [f"{MYPY} ."]),
        ({"mypy.ini": "[mypy]\nfiles: src\n"}, [MYPY]),
        ({"mypy.ini": "", "pyproject.toml": '[tool.mypy]\npackages = ["a"]'}, [f"{MYPY} ."]),
        ({".mypy.ini": "[mypy]\n[mypy-x.*]\nfiles = no\n"}, [f"{MYPY} ."]),
        ({"setup.cfg": "[options]\npackages = find:\n[mypy]\nstrict = True\n"}, [f"{MYPY} ."]),
        ({"setup.cfg": "[mypy]\nmodules = a\n[options]\n"}, [MYPY]),
        ({"setup.cfg": "[options]\npackages = find:\n"}, [RUFF]),
        ({"pyrightconfig.json": "{}"}, ["pyright --outputjson"]),
        ({"pyproject.toml": "[tool.pyright]\n[tool.mypy]\n"}, ["pyright --outputjson"]),
        ({"pyproject.toml": "[tool.basedpyright]\n[tool.pyright]\n"}, ["basedpyright --outputjson"]),
        ({"pyproject.toml": "[tool.ruff]\n[tool.pyright]\n"}, [RUFF, "pyright --outputjson"]),
        ({".ruff.toml": "", "setup.cfg": "[mypy]\n"}, [RUFF, f"{MYPY} ."]),
        ({"setup.py": "", ".venv/bin/ruff": "#!"}, [f".venv/bin/{RUFF}"]),
        ({"setup.py": "", "venv/bin/ruff": "#!"}, [f"venv/bin/{RUFF}"]),
        ({"setup.py": "", "venv/bin/ruff": "#!", ".venv/bin/ruff": "#!"}, [f".venv/bin/{RUFF}"]),
        ({"mypy.ini": "", "venv/bin/mypy": "#!", ".venv/bin/python": "#!"}, [f"venv/bin/{MYPY} ."]),
        (
            {"pyrightconfig.json": "", ".venv/bin/basedpyright": "#!"},
            [".venv/bin/basedpyright --outputjson"],
        ),
        (
            {"pyrightconfig.json": "", ".venv/bin/basedpyright": "#!", ".venv/bin/pyright": "#!"},
            [".venv/bin/pyright --outputjson"],
        ),
    ],
)
async def test_a_python_project_gets_what_it_is_set_up_for(files: dict[str, str], wanted: list[str]):
    assert await commands(files) == wanted


async def test_clippy_is_for_cargo_alone():
    files = {"Cargo.toml": "", "setup.py": ""}
    assert await commands(files, clippy=True) == ["cargo clippy --message-format=json", RUFF]


async def test_a_folder_without_a_marker_says_which_were_looked_for():
    choice = await choose(MemoryFileSystem({"docs/a.md": ""}), "docs", clippy=False)

    assert choice.checks == ()
    (warning,) = choice.warnings
    assert warning.startswith("no project in 'docs': none of Cargo.toml, pyproject.toml, ")
    assert all(marker in warning for marker in MARKERS)


@pytest.mark.parametrize("folder", ["Cargo.toml", "pyproject.toml"])
async def test_a_folder_of_a_markers_name_is_none(folder: str):
    assert not (await choose(MemoryFileSystem({f"{folder}/a": ""}), ".", clippy=False)).checks


@pytest.mark.parametrize("text", ["[tool", "a = " + "[" * 100_000, "n = " + "9" * 10_000, "\ud800"])
async def test_settings_that_are_broken_cost_a_warning(text: str):
    files = MemoryFileSystem({"pyproject.toml": text.encode("utf-8", "surrogatepass")})

    choice = await choose(files, ".", clippy=False)

    assert choice.commands == (RUFF,)
    (warning,) = choice.warnings
    assert warning.startswith(("pyproject.toml is not valid TOML: ", "pyproject.toml was not read: "))


@pytest.mark.parametrize("tool", ['tool = "x"', "[tool]\nmypy = 3\n", "[[tool.mypy]]\n"])
async def test_tables_of_a_wrong_shape_are_no_settings(tool: str):
    assert await commands({"pyproject.toml": tool}) == [RUFF]


async def test_settings_without_end_are_not_read():
    choice = await choose(MemoryFileSystem({"setup.py": "", "setup.cfg": "x" * 2**21}), ".", clippy=False)

    assert choice.commands == (RUFF,)
    assert "setup.cfg was not read: " in choice.warnings[0]


async def test_a_program_that_leads_out_of_the_session_is_not_the_projects_own():
    files = MemoryFileSystem({"setup.py": ""})
    files.link(".venv", "/opt/shared")

    choice = await choose(files, ".", clippy=False)

    assert choice.commands == (RUFF,)
    assert [check.unused for check in choice.checks] == [".venv"]


async def test_a_link_to_programs_in_the_session_is_the_projects_own():
    files = MemoryFileSystem({"setup.py": "", "env/bin/ruff": "#!"})
    files.link(".venv", "env")

    (check,) = (await choose(files, ".", clippy=False)).checks

    assert (check.line, check.unused) == (f".venv/bin/{RUFF}", "")


async def test_the_command_for_another_folder_names_it_and_runs_there():
    files = MemoryFileSystem({"crates/a b/Cargo.toml": "", "-x/go.mod": ""})

    quoted = await choose(files, "crates/a b", clippy=False)
    option = await choose(files, "./-x/", clippy=False)

    assert (quoted.folder, quoted.commands) == (
        "/project/crates/a b",
        ("cd 'crates/a b' && cargo check --message-format=json",),
    )
    assert quoted.checks[0].line == "cargo check --message-format=json"
    assert option.commands == ("cd ./-x && go vet ./...",)


async def test_every_command_is_one_the_gates_can_read():
    everything = {"Cargo.toml": "", "pyproject.toml": "[tool.ruff]\n[tool.mypy]", "tsconfig.json": "", "go.mod": ""}
    files = MemoryFileSystem({f"a\n'b/{name}": text for name, text in everything.items()})

    choice = await choose(files, "a\n'b", clippy=False)

    assert len(choice.commands) == 5
    for command in choice.commands:
        analysis = analyse(command)
        assert isinstance(analysis, Plain)
        assert list(analysis.commands[0].argv) == ["cd", "a\n'b"]
