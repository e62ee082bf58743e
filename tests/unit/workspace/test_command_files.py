"""What a shell would put in place of a pattern: never less than bash does."""

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.types import Access
from acp_agent.workspace.command_files import MAX_ENTRIES, MAX_NAMES, shell_names
from acp_agent.workspace.roots import Roots

NAMES = ("a", "ab", "B", "é", "[x]", "a-b", "x.py", ".env", ".e", "docs/passwd", "docs/in/deep", "-x", "a b", "*")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("names")
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "out").symlink_to("/etc")
    (root / "inner").symlink_to("docs")
    return root


@pytest.fixture
def names(root: Path):
    with Roots(os.fspath(root)) as roots:
        yield partial(shell_names, resolve=roots.resolve)


@pytest.mark.parametrize(
    ("pattern", "folder", "found"),
    [
        ("a*", "", {"a", "ab", "a-b", "a b"}),
        ("?", "", {"a", "B", "é", "*"}),
        ("*.py", "", {"x.py"}),
        ("d*/passwd", "", {"docs/passwd"}),
        ("d*/i*/*", "", {"docs/in/deep"}),
        ("i[n]ner/*", "", {"inner/passwd", "inner/in"}),
        ("*", "docs", {"passwd", "in"}),
        ("../.e*", "docs", {"../.env", "../.e"}),
        (".[e]nv", "", {".env"}),
        (".[!.]*", "", {".env", ".e"}),
        (".*", "", {".env", ".e", ".."}),
        ("[[]x]", "", {"[x]"}),
        ("[x]", "", {"[x]"}),  # it may have been quoted
        ("[[:upper:]]", "", {"a", "B", "é", "*"}),
        ("d*/[[.period.]]*", "", {"docs/passwd", "docs/in"}),  # a character by its name may be any
        ("d*/[[=p=]]asswd", "", {"docs/passwd", "docs/in"}),
        ("d*/[a[[:=]*[[=b]", "", {"docs/passwd", "docs/in"}),
        ("x[[:punct:]]py", "", {"x.py"}),
        ("[a-c]", "", {"a", "B", "é"}),
        ("nothing*", "", set()),
        ("plain", "", set()),
        ("x.py/*", "", set()),
        ("o*/p*d", "", {"out/p*d"}),  # not read: it lies elsewhere
        ("out/*", "", {"out/*"}),
    ],
)
def test_the_names_a_pattern_stands_for(names, pattern: str, folder: str, found: set[str]):
    assert set(names(pattern, folder)) == found


def test_an_absolute_pattern_gives_absolute_names(names, root: Path):
    assert names(f"{root}/d*s", "") == (f"{root}/docs",)
    assert names("/e*c/passwd", "") == ("/e*c/passwd",)


def test_too_many_entries_or_names_are_none(tmp_path: Path):
    for number in range(MAX_NAMES + 1):
        (tmp_path / f"n{number}").touch()
    with Roots(os.fspath(tmp_path)) as roots:
        assert shell_names("*", "", resolve=roots.resolve) is None
        assert shell_names("n1?", "", resolve=roots.resolve) is not None
        many = "/".join(["*", *[".."] * 1, "*"] * (MAX_ENTRIES // MAX_NAMES))
        assert shell_names(many, "", resolve=roots.resolve) is None


def test_names_that_are_no_text_are_found(tmp_path: Path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")).touch()
    with Roots(os.fspath(tmp_path)) as roots:
        assert len(shell_names("??", "", resolve=roots.resolve) or ()) == 1


PARTS = (
    *"ab*?[]!^-.dx/py",
    "[[.",
    ".]",
    "[[=",
    "=]",
    "[[:",
    ":]",
    "[.period.]",
    "[.hyphen.]",
    "[=a=]",
    "[:punct:]",
    "[:alpha:]",
)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@given(st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map("".join), min_size=20, max_size=20))
@settings(max_examples=settings.default.max_examples // 3)
def test_bash_finds_nothing_that_is_not_found(names, root: Path, patterns: list[str]):
    relative = [each for each in patterns if not each.startswith(("/", "-")) and ".." not in each and "o" not in each]
    for pattern in relative:
        script = "shopt -s nullglob; printf '%s\\0' " + pattern.replace("!", "\\!")
        ran = subprocess.run(["bash", "-c", script], cwd=root, capture_output=True, check=False, timeout=10)
        expected = {os.path.normpath(os.fsdecode(each)) for each in ran.stdout.split(b"\0") if each}
        given_names = names(pattern, "")
        assert given_names is not None
        below = {os.path.normpath(each) for each in given_names}
        missed = expected - below - {os.path.normpath(pattern)}  # a pattern that is none stays
        assert all(each.startswith("out/") and any(one.startswith("out/") for one in below) for each in missed), pattern


def test_what_lies_behind_a_refused_folder_is_not_listed(root: Path):
    listed: list[str] = []

    def resolve(path: str, access: Access) -> str:
        listed.append(path)
        return os.path.join(root, path)

    assert shell_names("d*/in/*", "", resolve=resolve) == ("docs/in/deep",)
    assert listed == [".", "docs/in"]
