"""diagnostics: what is asked, what runs, and the one list that comes of it."""

import json

import anyio
import pytest

from acp_agent.core.backends import CommandRequest
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access, CommandSubject, Location, PathSubject, ToolKind, ToolResult
from acp_agent.tools.diagnostics import Diagnostics
from tests.fakes.fake_terminal import Script
from tests.rows import each_row
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

CARGO = "cargo check --message-format=json"
RUFF = "ruff check --no-fix --no-fix-only --exit-zero --output-format=json-lines"
MYPY = "mypy --show-column-numbers --no-pretty --no-color-output --no-error-summary ."
PYTHON = {"pyproject.toml": "[tool.ruff]\n[tool.mypy]\n"}


def bench(files: dict[str, str], scripts: dict[str, Script] | None = None, **settings: float) -> Workbench:
    made = Workbench(files, tools=[Diagnostics(**settings)])  # pyright: ignore[reportArgumentType]
    for line, script in (scripts or {}).items():
        made.programs.on(line, script)
    return made


def ruff(file: str, line: int, message: str, code: str = "F401") -> str:
    place = {"row": line, "column": 1}
    return json.dumps({"code": code, "filename": file, "message": message, "location": place}) + "\n"


async def test_several_checkers_make_one_list_errors_first_then_by_place():
    said = ruff("/project/b.py", 2, "two") + ruff("/project/b.py", 1, "one") + ruff("/elsewhere/c.py", 9, "far", "F821")
    project = bench(PYTHON, {RUFF: Script(said), MYPY: Script("a.py:3:4: error: wrong  [x]\n", exit_code=1)})

    result = await project.run("diagnostics")

    assert result.failure is None
    assert result.text == (
        "2 errors, 2 warnings\n"
        "/elsewhere/c.py:9:1: error: far [F821]\n"
        "a.py:3:4: error: wrong [x]\n"
        "b.py:1:1: warning: one [F401]\n"
        "b.py:2:1: warning: two [F401]"
    )
    assert result.envelope == {
        "diagnostics": [
            {"severity": "error", "message": "far [F821]", "file": "/elsewhere/c.py", "line": 9, "col": 1},
            {"severity": "error", "message": "wrong [x]", "file": "a.py", "line": 3, "col": 4},
            {"severity": "warning", "message": "one [F401]", "file": "b.py", "line": 1, "col": 1},
            {"severity": "warning", "message": "two [F401]", "file": "b.py", "line": 2, "col": 1},
        ],
        "total": 4,
        "warnings": [],
        "commands": [RUFF, MYPY],
    }
    assert result.locations == (
        Location("/project/a.py", 3),
        Location("/project/b.py", 1),
        Location("/project/b.py", 2),
    )


async def test_a_clean_project_says_what_looked_at_it():
    result = await bench(PYTHON, {RUFF: Script(), MYPY: Script()}).run("diagnostics")

    assert result.text == "No problems found (ruff check, mypy)."


async def test_the_same_problem_is_told_once_however_it_is_spelled():
    twice = ruff("/project/a.py", 1, "x") + ruff("./a.py", 1, "x")
    result = await bench({"setup.py": ""}, {RUFF: Script(twice)}).run("diagnostics")

    assert result.text == "1 warning\na.py:1:1: warning: x [F401]"


@pytest.mark.parametrize(("asked", "shown"), [(None, 3), (2, 2), (1000, 60)])
async def test_the_list_is_cut_and_says_of_how_many(asked: int | None, shown: int):
    said = "".join(ruff(f"f{number:02}.py", 1, "x") for number in range(60))
    project = bench({"setup.py": ""}, {RUFF: Script(said)}, max_diagnostics=3)

    result = await project.run("diagnostics", max_diagnostics=asked)

    assert result.envelope is not None
    assert result.envelope["total"] == 60
    entries = result.envelope["diagnostics"]
    assert isinstance(entries, list)
    assert len(entries) == shown
    header = result.text.split("\n")[0]
    assert header == ("60 warnings" if shown == 60 else f"60 warnings (showing {shown} of 60)")
    assert len(result.locations) == min(shown, 20)


async def test_a_problem_of_its_own_is_shown_before_the_same_one_in_many_files():
    said = "".join(ruff(f"f{number:02}.py", 1, "x") for number in range(60)) + ruff("z.py", 1, "y")
    project = bench({"setup.py": ""}, {RUFF: Script(said)}, max_diagnostics=3)

    shown = (await project.run("diagnostics")).text.split("\n")[1:]

    assert shown == [
        f"{name}.py:1:1: warning: {what} [F401]" for name, what in (("f00", "x"), ("f01", "x"), ("z", "y"))
    ]


async def test_the_gates_see_every_command_and_the_folder_and_the_user_reads_the_commands():
    invocation = await bench(PYTHON).understand("diagnostics")

    assert invocation.subjects == (CommandSubject(RUFF), CommandSubject(MYPY), PathSubject(".", Access.LIST))
    assert invocation.title.startswith(f"{RUFF} ⏎ mypy ")
    assert (invocation.spec.kind, invocation.spec.mutates) == (ToolKind.READ, False)


async def test_what_runs_is_what_the_gates_saw_whatever_the_project_became():
    project = bench({"Cargo.toml": ""}, {CARGO: Script('{"reason":"build-finished","success":true}\n')})
    invocation = await project.understand("diagnostics")
    project.files.remove("Cargo.toml")
    project.files.put("go.mod", "")

    result = await project.execute(invocation)

    assert [request.command for request in project.programs.requests] == [CARGO]
    assert result.text == "No problems found (cargo check)."


async def test_a_checker_runs_out_of_sight_in_the_projects_folder_and_is_given_back():
    said = ruff("/project/sub/a.py", 1, "x")
    project = bench({"sub/setup.py": ""}, {RUFF: Script(said)}, seconds=7)

    invocation = await project.understand("diagnostics", path="sub", kind="clippy")
    result = await project.execute(invocation)
    await project.finish()

    assert invocation.subjects == (CommandSubject(f"cd sub && {RUFF}"), PathSubject("sub", Access.LIST))
    assert project.programs.requests == [CommandRequest(RUFF, "/project/sub", 7, stream_limit=10 * 1024 * 1024)]
    assert result.text == "1 warning\na.py:1:1: warning: x [F401]"
    assert result.locations == (Location("/project/sub/a.py", 1),)
    assert project.programs.started[0].releases == 1
    assert project.terminal.requests == []
    assert project.progress == []


def not_checked(result: ToolResult) -> str:
    """What a failed check showed the user; the model reads the same reason."""
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    assert result.failure.message.startswith("could not check: ")
    assert result.failure.message in result.text
    assert result.envelope is not None
    assert result.envelope["diagnostics"] == []
    return result.shown


async def test_where_the_checker_is_missing_the_call_fails_and_says_that_it_could_not_check():
    result = await bench({"Cargo.toml": ""}).run("diagnostics")

    assert not_checked(result) == "Could not check.\n[warning] cargo is not installed"
    assert result.envelope is not None
    assert result.envelope["warnings"] == ["cargo is not installed"]


async def test_where_one_of_two_checkers_is_missing_the_result_says_so():
    result = await bench(PYTHON, {MYPY: Script()}).run("diagnostics")

    assert result.failure is None
    header, warning = result.text.split("\n")
    assert header == "No problems found (mypy); could not check with ruff check."
    assert warning == "[warning] ruff is not installed"


async def test_a_folder_without_a_project_runs_nothing_and_says_what_makes_one():
    project = bench({"docs/a.md": ""})
    invocation = await project.understand("diagnostics", path="docs")
    result = await project.execute(invocation)

    assert invocation.subjects == (PathSubject("docs", Access.LIST),)
    assert invocation.title == "check docs"
    assert not_checked(result).startswith("Could not check.\n[warning] no project in 'docs': none of Cargo.toml, ")
    assert project.programs.requests == []


async def test_what_a_checker_said_until_it_was_stopped_is_kept():
    stopped = Script(ruff("a.py", 1, "x"), timed_out=True, timeout=7.0, signal="SIGKILL")
    result = await bench({"setup.py": ""}, {RUFF: stopped}, seconds=7).run("diagnostics")

    assert result.failure is None
    assert result.text == (
        "1 warning\na.py:1:1: warning: x [F401]\n[warning] ruff check was stopped after 7s: its list is not complete"
    )


async def test_a_list_that_was_too_long_says_so():
    result = await bench({"setup.py": ""}, {RUFF: Script(truncated=True)}).run("diagnostics")

    assert not_checked(result) == (
        "Could not check.\n[warning] ruff check wrote too much to be read: its list is not complete"
    )


@each_row(
    "marker, line, script, warning",
    [
        (
            "setup.py",
            RUFF,
            Script(stderr="ruff failed\n  Cause: Failed to parse /project/ruff.toml\n", exit_code=2),
            "ruff check failed (exit 2): ruff failed; Cause: Failed to parse /project/ruff.toml",
        ),
        (
            "Cargo.toml",
            CARGO,
            Script(stderr="  Blocking waiting\nerror: failed to parse manifest\n\nCaused by:\n  x\n", exit_code=101),
            "cargo check failed (exit 101): error: failed to parse manifest; Caused by:; x",
        ),
        (
            "pyrightconfig.json",
            "pyright --outputjson",
            Script("No configuration file found.\n"),
            "pyright failed (exit 0): No configuration file found.",
        ),
        ("go.mod", "go vet ./...", Script(exit_code=1), "go vet failed (exit 1): it printed nothing"),
        ("go.mod", "go vet ./...", Script(exit_code=None), "go vet failed (exit unknown): it printed nothing"),
        (
            "setup.py",
            RUFF,
            Script(exit_code=137, signal="SIGKILL"),
            "ruff check was killed by SIGKILL: it printed nothing",
        ),
        (
            "setup.py",
            RUFF,
            Script(stderr="panicked \x1b[31m" + "x" * 900 + "\n" * 50 + "a\nb\nc\nd\ne\nf\n", exit_code=2),
            "ruff check failed (exit 2): panicked \\u001b[31m" + "x" * 181 + "… [719 more characters]; a; b; c; d",
        ),
    ],
)
async def test_a_checker_that_breaks_says_why_in_a_few_lines(marker: str, line: str, script: Script, warning: str):
    result = await bench({marker: ""}, {line: script}).run("diagnostics")

    assert not_checked(result) == f"Could not check.\n[warning] {warning}"


@pytest.mark.parametrize("name", [".venv", "venv"])
async def test_a_missing_program_names_the_link_that_is_not_followed_to_it(name: str):
    project = bench({"setup.py": ""}, {RUFF: Script(stderr="ruff: not found\n", exit_code=127)})
    project.files.link(name, "/opt/shared")

    told = (await project.run("diagnostics")).shown

    assert told.endswith(f"ruff is not installed (a {name} that links outside the project is not used)")


async def test_a_build_that_fails_beside_its_warnings_says_so():
    span = {"is_primary": True, "file_name": "src/a.rs", "line_start": 1, "column_start": 2, "label": None}
    told = {"level": "warning", "message": "unused", "spans": [span], "code": None}
    line = json.dumps({"reason": "compiler-message", "target": {"src_path": "/project/src/a.rs"}, "message": told})
    failing = Script(line + "\n", stderr="error: failed to run custom build command\n", exit_code=101)

    result = await bench({"Cargo.toml": ""}, {CARGO: failing}).run("diagnostics")

    assert result.text == (
        "1 warning\nsrc/a.rs:1:2: warning: unused\n"
        "[warning] cargo check failed (exit 101): error: failed to run custom build command"
    )


async def test_the_projects_own_program_without_its_interpreter_is_not_called_missing():
    files = {"tsconfig.json": "", "node_modules/.bin/tsc": "#!"}
    script = Script(stderr="/usr/bin/env: 'node': No such file or directory\n", exit_code=127)

    result = await bench(files, {"node_modules/.bin/tsc --noEmit --pretty false": script}).run("diagnostics")

    assert "tsc failed (exit 127): /usr/bin/env: 'node': No such file or directory" in result.text


async def test_a_name_made_to_deceive_is_shown_with_its_tricks_and_not_opened():
    said = ruff("/project/a\n[warning] all is well\u202e.py", 1, "x\x1b[2J\ny")
    result = await bench({"setup.py": ""}, {RUFF: Script(said)}).run("diagnostics")

    assert result.text == ("1 warning\na\\n[warning] all is well\\u202e.py:1:1: warning: x\\u001b[2J y [F401]")
    assert result.locations == ()


async def test_a_folder_that_is_not_there_fails_without_a_question():
    project = bench({})
    invocation = await project.understand("diagnostics", path="nope")

    assert invocation.predicted_failure is not None
    with pytest.raises(ToolError, match="nope: no such directory"):
        await project.execute(invocation)


@pytest.mark.parametrize("error", [Refused("not this one"), BackendUnavailable("files", "gone")])
async def test_a_folder_that_cannot_be_looked_at_is_not_looked_at_again(error: Refused | BackendUnavailable):
    project = bench({"sub/setup.py": ""})
    project.files.fail("sub", error)
    invocation = await project.understand("diagnostics", path="sub")

    assert invocation.subjects == (PathSubject("sub", Access.LIST),)
    assert (invocation.predicted_failure is None) == isinstance(error, BackendUnavailable)
    with pytest.raises(type(error)):
        await project.execute(invocation)
    assert project.programs.requests == []


async def test_cancelling_ends_the_checker_and_starts_no_other():
    project = bench(PYTHON, {RUFF: Script(hangs=True)})
    invocation = await project.understand("diagnostics")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(project.execute, invocation)
            while not project.programs.started:
                await anyio.lowlevel.checkpoint()
            await project.programs.started[0].waiting.wait()
            tasks.cancel_scope.cancel()

    await project.finish()
    assert [command.killed for command in project.programs.started] == [True]
    assert project.programs.started[0].releases == 1


@pytest.mark.parametrize("arguments", [{"kind": "test"}, {"max_diagnostics": 0}, {"path": ""}, {"path": "a\0"}])
async def test_bad_arguments_are_refused_by_name(arguments: dict[str, object]):
    (name,) = arguments
    with pytest.raises(ToolError, match=name) as caught:
        await bench({}).understand("diagnostics", **arguments)
    assert caught.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS


async def test_it_may_be_called_without_any_argument():
    assert "required" not in Diagnostics().spec().parameters
    invocation = await bench({"Cargo.toml": ""}).understand("diagnostics", kind=None, path=None, max_diagnostics=None)
    assert invocation.title == CARGO


async def test_run_by_itself_chooses_and_checks():
    project = bench({"setup.py": ""}, {RUFF: Script()})
    invocation = await project.understand("diagnostics")
    tool = Diagnostics()

    result = await tool.run(tool.parse({}), project.context(invocation))

    assert result.text == "No problems found (ruff check)."
