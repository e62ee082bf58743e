"""What is locked, what is shipped, and the set-up that `make` does by itself."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
ENTRY = re.compile(r"([a-z0-9-]+)==([^\s;]+)( ; [^\\\n]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")


def locked() -> dict[str, Version]:
    return {match[1]: Version(match[2]) for match in ENTRY.finditer(LOCK)}


def test_the_lock_holds_versions_and_hashes_and_nothing_else():
    rest = ENTRY.sub("", LOCK)
    assert rest == "", "no index, host, link, path or header belongs here"
    assert len(locked()) > 30


def test_the_lock_fits_what_the_project_asks_for():
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(locked()[requirement.name], prereleases=True), f"{requirement}: make lock"


def test_the_lock_serves_more_than_one_platform_and_python():
    """A compiled package needs the hashes of its wheels for Linux and macOS and for every Python from 3.11 on."""
    hashes = {match[1]: match[4].count("--hash") for match in ENTRY.finditer(LOCK)}
    for name in ("pydantic-core", "psutil", "google-re2", "tree-sitter-bash"):
        assert hashes[name] > 5


def test_no_other_lock_is_kept():
    names = {"uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml", "package-lock.json"}
    assert not names & {path.name for path in ROOT.iterdir()}


def test_the_build_needs_what_the_lock_has():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for requirement in map(Requirement, build):
        assert requirement.specifier.contains(locked()[requirement.name])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """The wheel, built from a copy of what is in the repository. The source archive is beside it."""
    if Version(version("setuptools")) < locked()["setuptools"]:
        pytest.skip("this environment was not made from the lock: run `make test`")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "acp_agent", source / "acp_agent", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools.build_meta import *; build_wheel({0!r}); build_sdist({0!r})".format(str(folder))
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True, timeout=50)
    (file,) = folder.glob("*.whl")
    return zipfile.Path(file)


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    shipped = {name for name in wheel.root.namelist() if ".dist-info/" not in name and name[-1] != "/"}
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "acp_agent").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == wanted


def test_the_wheel_has_the_command_and_no_foreign_metadata(wheel):
    (info,) = [path for path in wheel.iterdir() if path.name.endswith(".dist-info")]
    assert "acp-agent = acp_agent.__main__:main" in (info / "entry_points.txt").read_text()
    metadata = (info / "METADATA").read_text()
    assert "Requires-Python: >=3.11" in metadata
    assert str(ROOT) not in metadata


def test_the_registry_names_the_wheel_that_is_built(wheel):
    package = json.loads((ROOT / "editors/registry/agent.json").read_text())["distribution"]["uvx"]["package"]
    assert Path(wheel.root.filename).name.startswith(package.replace("-", "_").replace("==", "-") + "-py3")


def test_the_wheel_and_the_source_archive_hold_the_license_that_the_project_names(wheel):
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["license"] == "Apache-2.0"
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30", "the canonical text"
    (info,) = [path for path in wheel.iterdir() if path.name.endswith(".dist-info")]
    assert (info / "licenses" / "LICENSE").read_text() == text
    assert "License-Expression: Apache-2.0" in (info / "METADATA").read_text()

    (archive,) = Path(wheel.root.filename or "").parent.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        (member,) = [name for name in packed.getnames() if name.endswith("/LICENSE")]
        found = packed.extractfile(member)
        assert found is not None
        assert found.read().decode() == text


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("interpreter", "words"), [("old", "but ./old is 3.9"), ("missing", "but ./missing is not there")]
)
def test_make_says_in_one_line_which_python_it_wants(tmp_path, interpreter, words):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 3.9\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["make", f"PYTHON=./{interpreter}", "test"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert "python3 3.11 or newer" in done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("demo", "acp-agent demo"),
        ("test", "basedpyright"),
        ("test", "lint-imports"),
        ("test", "ruff check"),
        ("bench", "tests.bench"),
        ("soak", "tests.soak"),
        ("properties", "HYPOTHESIS_PROFILE=soak"),
        ("lock", "--generate-hashes"),
    ],
)
def test_every_target_sets_itself_up_from_nothing(tmp_path, target, command):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(
        ["make", "--dry-run", f"PYTHON={sys.executable}", target],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    order = [done.stdout.index(part) for part in ("-m venv", "--require-hashes", "--no-deps", command)]
    assert order == sorted(order)


def test_what_the_automatic_checks_run_is_make_test():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "exec make test"
