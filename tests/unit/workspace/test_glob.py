import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wcmatch import glob as oracle

from acp_agent.core.errors import AgentError, Refused, ToolError, ToolErrorCategory
from acp_agent.workspace.glob import FileGlob, Glob
from tests.rows import each_row

FLAGS = oracle.GLOBSTAR | oracle.DOTGLOB | oracle.BRACE


def matches(pattern: str, path: str) -> bool:
    """Whether a path from the base matches, the pattern's plain beginning included."""
    glob = Glob(pattern)
    if not glob.prefix:
        return glob.matches(path)
    return path.startswith(f"{glob.prefix}/") and glob.matches(path[len(glob.prefix) + 1 :])


@each_row(
    "pattern, yes, no",
    [
        ("*.py", ["a.py", ".py", ".a.py"], ["a.pyc", "d/a.py", "py"]),
        ("**/*.py", ["a.py", "d/a.py", "d/e/a.py"], ["a.txt", "d/a.py/x"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "srcs/a", "a/src/b"]),
        ("**/b/**/c", ["b/c", "a/b/c", "b/x/y/c"], ["bc", "a/c"]),
        ("a?c", ["abc", "a.c"], ["ac", "a/c", "abbc"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x"]),
        ("[!a-c]x", ["dx"], ["ax", "/x"]),
        ("[]a]x", ["]x", "ax"], ["bx"]),
        ("x[+-9]y", ["x+y", "x.y", "x5y"], ["x/y", "xay"]),
        ("{a,b/c}.{py,txt}", ["a.py", "b/c.txt"], ["c.py", "a.pyc"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"], ["b", "ad"]),
        ("{**/a,b}", ["a", "x/y/a", "b"], ["x/b"]),
        ("a{b}c,{", ["a{b}c,{"], ["abc"]),
        (r"\*\[\{a", ["*[{a"], ["x[{a"]),
        ("a[b", ["a[b"], ["ab"]),
        ("./a//b/", ["a/b"], ["a"]),
        ("**.py", ["a.py"], ["d/a.py"]),
        ("a b\n[ü]", ["a b\nü"], ["a b"]),
    ],
)
def test_globs_mean_what_a_shell_means_by_them(pattern: str, yes: list[str], no: list[str]):
    assert [path for path in yes if not matches(pattern, path)] == []
    assert [path for path in no if matches(pattern, path)] == []


@pytest.mark.parametrize("pattern", ["../*", "a/../../b", "..", "/etc/*", "/"])
def test_a_pattern_that_leaves_its_base_is_refused(pattern: str):
    with pytest.raises(Refused, match="leaves"):
        Glob(pattern)


@each_row("pattern", ["", ".", "./", "a\0", "\ud800", "x" * 1025])
def test_what_is_no_pattern_is_an_error_of_the_caller(pattern: str):
    with pytest.raises(ToolError, match="pattern") as raised:
        Glob(pattern)
    assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    str(raised.value).encode()


@each_row(
    "pattern, prefix, depth",
    [
        ("*.py", "", 1),
        ("src/lib/*.py", "src/lib", 1),
        ("src/*/x/*.py", "src", 3),
        ("src/a.py", "src", 1),
        ("src/**/*.py", "src", None),
        ("{a,b/c}/x", "", None),
    ],
)
def test_a_search_starts_and_ends_where_matches_can_be(pattern: str, prefix: str, depth: int | None):
    glob = Glob(pattern)
    assert (glob.prefix, glob.depth) == (prefix, depth)


def test_a_trailing_slash_asks_for_directories():
    assert Glob("src/*/").directories_only
    assert not Glob("src/*").directories_only


@pytest.mark.parametrize("pattern", ["*a" * 500, "**/" * 300 + "x", "{" * 1000, "{a," * 300, "[" * 1000])
def test_a_hostile_pattern_costs_no_time(pattern: str):
    assert not Glob(pattern).matches("a" * 255)


pieces = st.sampled_from(["a", "b", ".", "*", "**", "?", "/", "[ab]", "[!a]", "{a,b}", "{a,*b}", "-", "é"])
paths = st.lists(st.text("ab.-é", min_size=1, max_size=3), min_size=1, max_size=4).map("/".join)


@settings(max_examples=settings.default.max_examples * 2)
@given(pattern=st.lists(pieces, min_size=1, max_size=6).map("".join), path=paths)
@example(pattern="**/a", path="a")
@example(pattern="a/**/b", path="a/b")
def test_it_agrees_with_wcmatch(pattern: str, path: str):
    try:
        ours = matches(pattern, path)
    except AgentError:
        return
    odd_stars = any("**" in name and name != "**" for name in pattern.split("/"))
    no_such_path = any(name in (".", "..") for name in path.split("/"))
    if odd_stars or no_such_path or pattern.endswith("/"):  # a slash at the end asks for directories
        return
    plain = "/".join(name for name in pattern.split("/") if name not in ("", "."))
    assert ours == oracle.globmatch(path, plain, flags=FLAGS), (pattern, path)


@given(
    pattern=st.lists(pieces, min_size=1, max_size=4).map("".join),
    many=st.lists(paths | st.text("ab/.\n\r\x85é", max_size=4), max_size=6),
    directory=st.sampled_from(["", "a/", "a/b/", "é/", "a\n/", "\ud800/"]),
)
@example(pattern="*", many=["", "a\nb", "a", "a"], directory="")
@example(pattern="**/a", many=["", "a\na", "a", "a"], directory="b\n/")
def test_many_paths_match_together_as_each_does_alone(pattern: str, many: list[str], directory: str):
    try:
        glob = Glob(pattern)
    except AgentError:
        return
    assert glob.matching(many, directory) == {path for path in many if glob.matches(directory + path)}


@given(st.text(max_size=12), st.text(max_size=12))
def test_any_text_is_a_pattern_or_an_error(pattern: str, path: str):
    try:
        glob = Glob(pattern)
    except (Refused, ToolError):
        return
    glob.matches(path.encode("utf-8", "replace").decode())


@given(st.lists(st.text("ab*?[]{},\\. $^+()|\n\t-", min_size=1, max_size=5), min_size=1, max_size=3))
def test_an_escaped_name_matches_itself_and_nothing_else(names: list[str]):
    if any(name in (".", "..") for name in names):
        return
    pattern = "/".join("".join(f"\\{character}" for character in name) for name in names)
    assert matches(pattern, "/".join(names))
    assert not matches(pattern, "/".join(names) + "x")


@each_row(
    "pattern, yes, no",
    [
        ("*.py", ["a.py", "d/e/a.py", ".a.py"], ["a.pyc", "a.py/b"]),
        ("{a,b}.c", ["a.c", "d/b.c"], ["c.c"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/d/a.py", "x/src/a.py"]),
        ("src/", ["src/a", "src/d/a"], ["src", "x/src/a"]),
        ("**/test_*.py", ["test_a.py", "d/test_a.py"], ["a.py"]),
        ("./*.py", ["a.py"], ["d/a.py"]),
        (r"\!a", ["!a", "d/!a"], ["a"]),
    ],
)
def test_a_glob_for_files_without_a_slash_means_any_depth(pattern: str, yes: list[str], no: list[str]):
    glob = FileGlob(pattern)
    assert [path for path in yes if not glob.matches(path)] == []
    assert [path for path in no if glob.matches(path)] == []


def test_a_glob_for_files_cannot_leave_files_out():
    with pytest.raises(ToolError, match=r"'!\*\.py': patterns that leave files out are not supported"):
        FileGlob("!*.py")
