"""The checkers that are on this machine, over real projects: no cargo, no ruff or no basedpyright, no test."""

import shutil
import sysconfig
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from acp_agent.core.events import ToolProgress
from acp_agent.core.ports import Backends, ToolContext
from acp_agent.core.types import ToolResult
from acp_agent.tools.diagnostics import Diagnostics
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.roots import Roots
from tests.fakes.fake_web import FakeWeb
from tests.unit.tools.workbench import call

pytestmark = pytest.mark.anyio

SCRIPTS = sysconfig.get_path("scripts")
MANIFEST = '[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2021"\n'

needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="no cargo")
needs_clippy = pytest.mark.skipif(shutil.which("cargo-clippy") is None, reason="no clippy")
needs_ruff = pytest.mark.skipif(shutil.which("ruff", path=SCRIPTS) is None, reason="no ruff")
needs_basedpyright = pytest.mark.skipif(shutil.which("basedpyright", path=SCRIPTS) is None, reason="no basedpyright")


async def nothing(event: ToolProgress) -> None:
    del event


async def diagnose(project: Path, **arguments: object) -> ToolResult:
    """One call of the tool, over the real backends, in a session whose folder is the project's."""
    deferred: list[Callable[[], Awaitable[None]]] = []
    with Roots(str(project)) as roots:
        files, terminal = LocalFileSystem(roots), LocalTerminal()
        backends = Backends(files, terminal, terminal, FakeWeb())
        asked = call("diagnostics", arguments)
        invocation = await Diagnostics().understand(asked, asked.arguments or {}, files)
        try:
            return await invocation.run(ToolContext("1", str(project), (), backends, nothing, deferred.append))
        finally:
            for release in deferred:
                await release()


def project(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "project"


@pytest.fixture
def own_cargo_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's cargo is used or changed but its programs."""
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))


@pytest.fixture
def scripts_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", SCRIPTS, prepend=":")


async def test_every_finding_of_a_long_report_is_read(tmp_path: Path):
    """The middle of a report over 64 KiB was once left out, and nothing said so."""
    place = '"location":{"row":%s,"column":1}'
    line = '{"code":"F401","filename":"a.py","message":"unused: %0200d",' + place + "}"
    folder = project(tmp_path, {"setup.py": "", ".venv/bin/ruff": f"#!/bin/sh\nexec cat '{tmp_path}/report'\n"})
    (folder / ".venv/bin/ruff").chmod(0o755)
    (tmp_path / "report").write_text("".join(f"{line % (row, row)}\n" for row in range(1, 1001)))

    result = await diagnose(folder)

    assert result.envelope is not None
    assert (result.envelope["total"], result.envelope["warnings"]) == (1000, [])


@needs_cargo
@pytest.mark.usefixtures("own_cargo_home")
async def test_cargo_check_finds_a_workspace_members_error_and_warning_and_the_use_of_a_broken_macro(tmp_path: Path):
    workspace = project(
        tmp_path,
        {
            "Cargo.toml": '[workspace]\nmembers = ["app", "mac"]\nresolver = "2"\n',
            "app/Cargo.toml": MANIFEST.format(name="app") + '[dependencies]\nmac = { path = "../mac" }\n',
            "app/src/main.rs": "mod inner;\nfn main() {\n    mac::boom!();\n    inner::f();\n}\n",
            "app/src/inner/mod.rs": "pub fn f() {\n    let x = 1;\n}\npub fn g() -> u8 {\n    true\n}\n",
            "mac/Cargo.toml": MANIFEST.format(name="mac"),
            "mac/src/lib.rs": '#[macro_export]\nmacro_rules! boom {\n    () => { let _: i32 = "s"; };\n}\n',
        },
    )

    result = await diagnose(workspace, path="app")

    assert result.envelope is not None
    assert result.envelope["warnings"] == []
    found = result.text.split("\n")
    assert found[1].startswith("src/inner/mod.rs:5:5: error: mismatched types")
    assert found[2].startswith("src/main.rs:3:5: error: mismatched types")
    assert any(line.startswith("src/inner/mod.rs:2:9: warning: unused variable: `x`") for line in found)
    assert {Path(location.path).is_file() for location in result.locations} == {True}


@needs_cargo
@needs_clippy
@pytest.mark.usefixtures("own_cargo_home")
async def test_clippy_finds_what_cargo_check_does_not(tmp_path: Path):
    crate = project(
        tmp_path,
        {
            "Cargo.toml": MANIFEST.format(name="one"),
            "src/main.rs": "fn one() -> u8 {\n    return 1;\n}\nfn main() {\n    one();\n}\n",
        },
    )

    assert (await diagnose(crate)).text == "No problems found (cargo check)."
    linted = await diagnose(crate, kind="clippy")
    assert linted.text == "1 warning\nsrc/main.rs:2:5: warning: unneeded `return` statement [clippy::needless_return]"


@needs_cargo
@pytest.mark.usefixtures("own_cargo_home")
async def test_a_manifest_that_is_broken_is_told_in_cargos_words(tmp_path: Path):
    result = await diagnose(project(tmp_path, {"Cargo.toml": "[package\n"}))

    assert result.shown.startswith("Could not check.\n[warning] cargo check failed (exit 101): error: ")


@needs_ruff
@pytest.mark.usefixtures("scripts_on_path")
async def test_ruff_reports_and_changes_nothing_though_the_project_is_set_to_fix(tmp_path: Path):
    unfixed = "import os\n\nprint(undefined)\n"
    folder = project(
        tmp_path, {"pyproject.toml": "[tool.ruff]\nfix = true\nfix-only = true\n", "a.py": unfixed, "b.py": "def f(:\n"}
    )

    result = await diagnose(folder)

    found = result.text.split("\n")
    assert "a.py:3:7: error: Undefined name `undefined` [F821]" in found
    assert "a.py:1:8: warning: `os` imported but unused [F401]" in found
    assert any(line.startswith("b.py:1:7: error: ") for line in found)
    assert (folder / "a.py").read_text() == unfixed


@needs_basedpyright
@pytest.mark.usefixtures("scripts_on_path")
async def test_basedpyright_finds_a_wrong_type(tmp_path: Path):
    folder = project(
        tmp_path,
        {"pyproject.toml": '[tool.basedpyright]\ntypeCheckingMode = "basic"\n', "a.py": 'x: int = 1\nx = "text"\n'},
    )

    result = await diagnose(folder)

    assert result.envelope is not None
    assert result.envelope["commands"] == ["basedpyright --outputjson"]
    assert result.text.startswith("1 error\na.py:2:5: error: Type ")
    assert result.text.endswith(" [reportAssignmentType]")


async def test_a_checker_that_is_nowhere_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bash").symlink_to(bash)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    result = await diagnose(project(tmp_path, {"go.mod": "module example.com/x\n"}))

    assert result.failure is not None
    assert result.shown == "Could not check.\n[warning] go is not installed"
