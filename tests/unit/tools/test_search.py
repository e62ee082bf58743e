"""list_directory, find_path and grep: three thin tools over the file system port."""

import pytest

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access, PathSubject, ToolKind
from acp_agent.tools.registry import Registry, default_tools
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

TREE = {
    "README.md": "# Title\nSee docs\n",
    "src/app.py": "import os\n\n\ndef Main():\n    pass\n",
    "src/lib/util.py": "def main():\r\n    pass\r\n",
    ".gitignore": "build/\n*.log\n",
    "build/out.py": "def main(): built\n",
    "run.log": "main\n",
    ".env": "main=secret\n",
    "node_modules/x.py": "main\n",
    "logo.png": b"\x89PNG\0main",
}


async def test_a_listing_has_folders_files_links_each_sorted():
    bench = Workbench({"z.txt": "", "b/x": "", "a/x": "", "c.txt": ""})
    bench.files.link("link", "/outside")

    result = await bench.run("list_directory", path=".")

    assert result.text == "[dir] a\n[dir] b\n[file] c.txt\n[file] z.txt\n[symlink] link"


async def test_an_empty_folder_says_so():
    bench = Workbench()
    bench.files.add_directory("empty")

    assert (await bench.run("list_directory", path="empty")).text == "Empty directory: empty"


async def test_a_file_name_cannot_forge_a_line():
    bench = Workbench({"a\n[file] forged": "", "b\u202e": ""})

    assert (await bench.run("list_directory", path=".")).text == "[file] a\\n[file] forged\n[file] b\\u202e"


async def test_found_paths_are_relative_to_the_sessions_folder():
    bench = Workbench(TREE)

    assert (await bench.run("find_path", pattern="**/*.py")).text == "src/app.py\nsrc/lib/util.py"
    assert (await bench.run("find_path", pattern="lib/*", path="src")).text == "src/lib/util.py"


async def test_more_results_than_asked_for_are_announced():
    bench = Workbench({f"f{n}": "" for n in range(5)}, tools=default_tools(found_paths=3))

    more = "... and more results (showing first {})"
    assert (await bench.run("find_path", pattern="*")).text == f"f0\nf1\nf2\n{more.format(3)}"
    assert (await bench.run("find_path", pattern="*", max_results=1)).text == f"f0\n{more.format(1)}"
    assert (await bench.run("find_path", pattern="*", max_results=5)).text == "f0\nf1\nf2\nf3\nf4"


async def test_no_file_says_which_pattern():
    assert (await Workbench(TREE).run("find_path", pattern="*.rs")).text == "No files matching: *.rs"


@pytest.mark.parametrize("pattern", ["../*", "src/../../*", "/etc/*"])
async def test_a_pattern_that_leaves_its_folder_is_refused(pattern: str):
    with pytest.raises(ToolError, match="expected a pattern below path") as error:
        await Workbench(TREE).run("find_path", pattern=pattern)
    assert error.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS


async def test_dots_inside_a_name_are_no_way_up():
    bench = Workbench({"a..b": ""})

    assert (await bench.run("find_path", pattern="a..*")).text == "a..b"


async def test_matches_come_as_path_line_text():
    bench = Workbench(TREE)

    assert (await bench.run("grep", pattern="def main")).text == "src/lib/util.py:1: def main():"


async def test_case_is_ignored_on_request():
    bench = Workbench(TREE)

    result = await bench.run("grep", pattern="def main", case_sensitive=False, path="src")

    assert result.text == "src/app.py:4: def Main():\nsrc/lib/util.py:1: def main():"


async def test_a_file_given_by_name_is_searched_even_if_hidden():
    assert (await Workbench(TREE).run("grep", pattern="main", path=".env")).text == ".env:1: main=secret"


async def test_more_matches_than_the_limit_are_announced():
    bench = Workbench({"a": "x\n" * 5}, tools=default_tools(grep_matches=2))

    assert (await bench.run("grep", pattern="x")).text == "a:1: x\na:2: x\n... and more matches (showing first 2)"


async def test_a_long_matching_line_is_cut():
    bench = Workbench({"min.js": "x" * 30}, tools=default_tools(match_chars=10))

    assert (await bench.run("grep", pattern="x")).text == f"min.js:1: {'x' * 10}… [20 more characters]"


async def test_no_match_says_which_pattern():
    assert (await Workbench(TREE).run("grep", pattern="nowhere")).text == "No matches for: nowhere"


async def test_a_bad_pattern_is_an_error_for_the_model():
    with pytest.raises(ToolError, match="pattern"):
        await Workbench(TREE).run("grep", pattern="(")


@pytest.mark.parametrize("name", ["list_directory", "find_path", "grep"])
async def test_searches_stay_inside_the_roots(name: str):
    bench = Workbench()
    bench.files.link("out", "/etc")
    arguments = {"path": "out"} if name == "list_directory" else {"path": "out", "pattern": "x"}

    invocation = await bench.understand(name, **arguments)

    assert invocation.subjects == (PathSubject("out", Access.READ),)
    with pytest.raises(Refused):
        await bench.execute(invocation)


async def test_rich_kinds_show_listings_as_searches():
    plain = {spec.name: spec.kind for spec in Registry(default_tools()).specs()}
    rich = {spec.name: spec.kind for spec in Registry(default_tools(rich_kinds=True)).specs()}

    assert (plain["list_directory"], plain["find_path"], plain["grep"]) == (
        ToolKind.OTHER,
        ToolKind.OTHER,
        ToolKind.SEARCH,
    )
    assert (rich["list_directory"], rich["find_path"], rich["grep"]) == (ToolKind.SEARCH,) * 3
