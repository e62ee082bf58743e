"""list_directory, find_path and grep: three thin tools over the file system port."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from acp_agent.core.backends import FoundPaths, GrepMatches, GrepQuery
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Access, PathSubject, ToolKind
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.tools.path_tools import ListDirectory
from acp_agent.tools.registry import Registry, ToolLimits, default_tools
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from tests.fakes.memory_files import MemoryFileSystem
from tests.rows import each_row
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


async def test_a_listing_without_a_path_is_of_the_sessions_folder():
    bench = Workbench({"a": ""})

    assert (await bench.run("list_directory")).text == "[file] a"
    assert (await bench.understand("list_directory")).title == "list ./"
    (listing,) = (each for each in bench.registry.specs() if each.name == "list_directory")
    assert "required" not in listing.parameters


async def test_of_a_long_listing_the_first_are_shown_and_the_others_counted():
    bench = Workbench({f"f{number:04}": "" for number in range(1001)} | {"z/x": ""})
    lines = (await bench.run("list_directory")).text.split("\n")

    assert (len(lines), lines[0], lines[1], lines[-2]) == (1001, "[dir] z", "[file] f0000", "[file] f0998")
    assert lines[-1] == "[2 more: the first 1000 are shown]"
    few = Workbench({"a": "", "b": ""}, tools=[ListDirectory(max_entries=2)])
    assert (await few.run("list_directory")).text == "[file] a\n[file] b"


async def test_a_file_name_cannot_forge_a_line():
    bench = Workbench({"a\n[file] forged": "", "b\u202e": ""})

    assert (await bench.run("list_directory", path=".")).text == "[file] a\\n[file] forged\n[file] b\\u202e"


async def test_found_paths_are_relative_to_the_sessions_folder():
    bench = Workbench(TREE)

    assert (
        await bench.run("find_path", pattern="**/*.py")
    ).text == "src/app.py (33 B)\nsrc/lib/util.py (23 B)\n[2 results]"
    assert (await bench.run("find_path", pattern="lib/*", path="src")).text == "src/lib/util.py (23 B)\n[1 result]"


async def test_more_results_than_asked_for_are_announced():
    bench = Workbench({f"f{n}": "" for n in range(5)}, tools=default_tools(ToolLimits(found_paths=3)))

    more = "[showing {} of 5 results: narrow the pattern or raise max_results]"
    assert (await bench.run("find_path", pattern="*")).text == f"f0 (0 B)\nf1 (0 B)\nf2 (0 B)\n{more.format(3)}"
    assert (await bench.run("find_path", pattern="*", max_results=1)).text == f"f0 (0 B)\n{more.format(1)}"
    assert (await bench.run("find_path", pattern="*", max_results=5)).text.endswith("\nf4 (0 B)\n[5 results]")


async def test_sizes_are_in_words_and_folders_have_none():
    bench = Workbench({"a/small": "x" * 1023, "a/kilo": "x" * 12_595, "a/mega": "x" * 1_600_000})

    assert (await bench.run("find_path", pattern="**")).text == (
        "a\na/kilo (12.3 KB)\na/mega (1.5 MB)\na/small (1023 B)\n[4 results]"
    )


async def test_a_pattern_without_a_slash_is_looked_for_at_any_depth_whatever_is_at_the_top():
    bench = Workbench({**TREE, "setup.py": ""})

    assert (
        await bench.run("find_path", pattern="*.py")
    ).text == "setup.py (0 B)\nsrc/app.py (33 B)\nsrc/lib/util.py (23 B)\n[3 results]"
    assert (
        await bench.run("find_path", pattern="*.py", path="src")
    ).text == "src/app.py (33 B)\nsrc/lib/util.py (23 B)\n[2 results]"
    assert (await bench.run("find_path", pattern="lib/*.py")).text == "No files matching: lib/*.py"


async def test_no_file_says_which_pattern():
    assert (await Workbench(TREE).run("find_path", pattern="*.rs")).text == "No files matching: *.rs, at any depth"
    assert (await Workbench(TREE).run("find_path", pattern="**/*.rs")).text == "No files matching: **/*.rs"


@pytest.mark.parametrize("tool", ["find_path", "grep"])
@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("../*", 'without ".."'),
        ("src/../../*", 'without ".."'),
        ("/etc/*", 'Give path = "/etc" and KEY = "\\*"'),
        ("/etc/**/a/*", 'Give path = "/etc" and KEY = "\\*\\*/a/\\*"'),
        ("/*", 'Give path = "/" and KEY = "\\*"'),
        ("/project/../x", "Give path"),
    ],
)
async def test_a_pattern_that_leaves_its_folder_is_refused_with_what_to_give_instead(
    tool: str, pattern: str, advice: str
):
    key = "pattern" if tool == "find_path" else "glob"
    with pytest.raises(ToolError, match=f"{key} = .*expected a pattern below path") as error:
        await Workbench(TREE).run(tool, **{"pattern": "x", key: pattern})
    assert error.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert re.search(advice.replace("KEY", key), error.value.failure.suggestion)


async def test_an_absolute_pattern_below_the_folder_means_what_it_says():
    bench = Workbench({**TREE, "setup.py": "main"})

    assert (await bench.run("find_path", pattern="/project/src/*.py")).text == "src/app.py (33 B)\n[1 result]"
    assert (
        await bench.run("find_path", pattern="/project/src/lib/*", path="src")
    ).text == "src/lib/util.py (23 B)\n[1 result]"
    assert (await bench.run("grep", pattern="main", glob="/project/src/**/*.py")).text.startswith("src/lib/util.py\n1:")


class Unfinished(MemoryFileSystem):
    """Files whose search passes large ones over and runs out of time."""

    def __init__(self, files: dict[str, str], large: Sequence[str], stopped: str | None) -> None:
        super().__init__(files)
        self._large = tuple(f"/project/{name}" for name in large)
        self._stopped = stopped

    async def find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        return replace(await super().find(path, pattern, limit), stopped=self._stopped)

    async def grep(self, query: GrepQuery) -> GrepMatches:
        found = await super().grep(query)
        return replace(found, too_large=self._large, size_limit=32 * 1024 * 1024, stopped=self._stopped)


@pytest.mark.parametrize("files_only", [False, True])
async def test_files_left_out_for_their_size_are_named(files_only: bool):
    one, many = (
        "was not searched: a.log; name it as path",
        "were not searched: a.log, b.log, c.log, ...; name one as path",
    )
    for large, expected in ((["a.log"], f"1 file over 32 MiB {one}"), ([*map("{}.log".format, "abcd")], many)):
        bench = Workbench()
        bench.files = Unfinished({"f": "x"}, large, None)
        assert expected in (await bench.run("grep", pattern="x", files_only=files_only)).text.splitlines()[-1]
        nothing = (await bench.run("grep", pattern="y", files_only=files_only)).text
        assert nothing.startswith("No matches for: y\n[")
        assert expected in nothing


async def test_a_search_that_ran_out_of_time_says_from_where_on():
    bench = Workbench()
    bench.files = Unfinished({"f": "x"}, [], "/project/src/g")

    for found in (await bench.run("grep", pattern="x"), await bench.run("find_path", pattern="*")):
        assert found.text.startswith("f")
        assert "\n[time ran out at src/g: " in found.text
    assert (await bench.run("find_path", pattern="y")).text.startswith("No files matching: y, at any depth\n[time ran")


async def test_dots_inside_a_name_are_no_way_up():
    bench = Workbench({"a..b": ""})

    assert (await bench.run("find_path", pattern="a..*")).text == "a..b (0 B)\n[1 result]"


async def test_matches_come_as_path_line_text():
    bench = Workbench(TREE)

    assert (await bench.run("grep", pattern="def main")).text == "src/lib/util.py\n1:def main():\n[1 match in 1 file]"


async def test_case_is_ignored_on_request():
    bench = Workbench(TREE)

    result = await bench.run("grep", pattern="def main", case_sensitive=False, path="src")

    assert result.text == "src/app.py\n4:def Main():\nsrc/lib/util.py\n1:def main():\n[2 matches in 2 files]"


async def test_a_file_given_by_name_is_searched_even_if_hidden():
    assert (
        await Workbench(TREE).run("grep", pattern="main", path=".env")
    ).text == ".env\n1:main=secret\n[1 match in 1 file]"


async def test_more_matches_than_the_limit_are_announced():
    bench = Workbench({"a": "x\n" * 5}, tools=default_tools(ToolLimits(grep_matches=2)))

    assert (await bench.run("grep", pattern="x")).text == (
        "a\n1:x\n2:x\n[showing 2 of 5 matches in 1 file: offset=2 for more]"
    )
    assert (await bench.run("grep", pattern="x", offset=4)).text == "a\n5:x\n[showing 1 of 5 matches in 1 file]"
    assert (await bench.run("grep", pattern="x", offset=5)).text == "Nothing at offset=5: 5 matches in 1 file"
    assert (await bench.run("grep", pattern="x", max_results=5)).text.endswith("\n5:x\n[5 matches in 1 file]")


async def test_a_long_matching_line_is_cut():
    bench = Workbench({"min.js": "x" * 60}, tools=default_tools(ToolLimits(match_chars=10)))

    assert (await bench.run("grep", pattern="x")).text == (
        f"min.js\n1:{'x' * 10}… [50 more characters]\n[1 match in 1 file]"
    )


async def test_lines_around_a_match_are_told_from_it_and_gaps_are_marked():
    bench = Workbench({"a": "1\n2\nx 3\n4\n5\n6\nx 7", "b": "x\n"})

    assert (await bench.run("grep", pattern="x", context=1)).text == (
        "a\n2-2\n3:x 3\n4-4\n--\n6-6\n7:x 7\nb\n1:x\n[3 matches in 2 files]"
    )
    assert "--" not in (await bench.run("grep", pattern="x")).text


async def test_context_does_not_count_as_matches():
    bench = Workbench({"a": "x\n2\n3\nx\nx\n"}, tools=default_tools(ToolLimits(grep_matches=1)))

    assert (await bench.run("grep", pattern="x", context=1)).text == (
        "a\n1:x\n2-2\n[showing 1 of 3 matches in 1 file: offset=1 for more]"
    )


async def test_files_alone_are_listed_and_counted():
    bench = Workbench({"a": "x\nx\n", "b": "x\n", "c": ""}, tools=default_tools(ToolLimits(grep_matches=2)))

    assert (await bench.run("grep", pattern="x", files_only=True)).text == "a\nb\n[2 files]"
    assert (await bench.run("grep", pattern="x", files_only=True, path="a")).text == "a\n[1 file]"
    bench.files.put("c", "x")
    assert (
        await bench.run("grep", pattern="x", files_only=True)
    ).text == "a\nb\n[showing 2 of 3 files: offset=2 for more]"


async def test_files_are_chosen_by_glob_and_type():
    bench = Workbench({"a.py": "x", "src/b.py": "x", "src/c.rs": "x"})

    assert (await bench.run("grep", pattern="x", glob="*.rs")).text == "src/c.rs\n1:x\n[1 match in 1 file]"
    assert (
        await bench.run("grep", pattern="x", glob="src/*", file_type="python")
    ).text == "src/b.py\n1:x\n[1 match in 1 file]"
    with pytest.raises(ToolError, match="file_type 'rst2' is not known; did you mean rst"):
        await bench.run("grep", pattern="x", file_type="rst2")


async def test_lines_before_and_after_are_asked_for_by_themselves():
    bench = Workbench({"a": "1\n2\nx 3\n4\n5\n"})

    assert (await bench.run("grep", pattern="x", before=2)).text == "a\n1-1\n2-2\n3:x 3\n[1 match in 1 file]"
    assert (await bench.run("grep", pattern="x", after=1)).text == "a\n3:x 3\n4-4\n[1 match in 1 file]"


async def test_matches_are_counted_by_file():
    bench = Workbench({"a": "x\nx\n", "b": "x\n", "c": "x\n"})

    assert (await bench.run("grep", pattern="x", path="b", count=True)).text == "b: 1\n[1 file with 1 matching line]"
    assert (
        await bench.run("grep", pattern="x", count=True)
    ).text == "a: 2\nb: 1\nc: 1\n[3 files with 4 matching lines]"
    assert (await bench.run("grep", pattern="x", count=True, max_results=1, offset=1)).text == (
        "b: 1\n[showing 1 of 3 files with 4 matching lines: offset=2 for more]"
    )


async def test_the_text_of_a_line_is_the_files_own_blanks_included():
    bench = Workbench({"a": "  two  \n\tx \n"})

    assert (await bench.run("grep", pattern="o|x")).text == "a\n1:  two  \n2:\tx \n[2 matches in 1 file]"


@pytest.mark.parametrize("context", [-1, "many"])
async def test_context_has_bounds(context: object):
    with pytest.raises(ToolError, match="expected a whole number from 0 to 20"):
        await Workbench(TREE).run("grep", pattern="x", context=context)


async def test_a_listing_says_why_a_name_that_is_not_utf_8_cannot_be_opened():
    bench = Workbench({"caf\ufffd": "x", "b": "x"})

    assert (await bench.run("list_directory")).text == (
        "[file] b\n[file] caf\ufffd\n"
        "[\ufffd stands for bytes that are not UTF-8: only commands open such an entry, and searches leave it out]"
    )


async def test_no_match_says_which_pattern():
    assert (await Workbench(TREE).run("grep", pattern="nowhere")).text == "No matches for: nowhere"
    assert (await Workbench(TREE).run("grep", pattern="日")).text == "No matches for: 日"
    assert "[files in Windows-1252 match" in (await Workbench(TREE).run("grep", pattern="für")).text


@pytest.mark.parametrize("pattern", ["a\nb", r"a\nb", r"[^x]\n", r"\\\n", r"[\n]", r"x\[^\n\]"])
async def test_no_match_of_a_pattern_with_a_line_break_says_that_lines_are_searched(pattern: str):
    found = await Workbench({"f": "a\nb\n"}).run("grep", pattern=pattern)
    assert found.text.split("\n")[-1].startswith("[each line is searched alone")


@pytest.mark.parametrize("pattern", [r"a[^\n]*z", r"a[^\]\r\n]+z", r"C:\\new", r"\\\\n"])
async def test_no_match_of_a_pattern_that_wants_no_line_break_says_nothing_of_lines(pattern: str):
    assert (await Workbench({"f": "a\nb\n"}).run("grep", pattern=pattern)).text == f"No matches for: {pattern}"


async def test_a_bad_pattern_is_an_error_for_the_model():
    with pytest.raises(ToolError, match="pattern"):
        await Workbench(TREE).run("grep", pattern="(")


@pytest.mark.parametrize("name", ["list_directory", "find_path", "grep"])
async def test_searches_stay_inside_the_roots(name: str):
    bench = Workbench()
    bench.files.link("out", "/etc")
    arguments = {"path": "out"} if name == "list_directory" else {"path": "out", "pattern": "x"}

    invocation = await bench.understand(name, **arguments)

    assert invocation.subjects == (PathSubject("out", Access.LIST),)
    with pytest.raises(Refused):
        await bench.execute(invocation)


async def test_listings_are_searches_unless_rich_kinds_is_off():
    plain = {spec.name: spec.kind for spec in Registry(default_tools(rich_kinds=False)).specs()}
    rich = {spec.name: spec.kind for spec in Registry(default_tools()).specs()}

    assert (plain["list_directory"], plain["find_path"], plain["grep"]) == (
        ToolKind.OTHER,
        ToolKind.OTHER,
        ToolKind.SEARCH,
    )
    assert (rich["list_directory"], rich["find_path"], rich["grep"]) == (ToolKind.SEARCH,) * 3


SECRETS = {"a.py": "KEY\n", "conf/secrets.json": "KEY\n", "k.pem": "KEY\n", ".aws/config": "KEY\n", ".env": "KEY\n"}


class Disk:
    """The tools over a folder on this machine."""

    def __init__(self, folder: Path, limits: ToolLimits | None = None) -> None:
        for name, text in {**SECRETS, ".ssh/id_rsa": "KEY\n"}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        self._roots = Roots(str(folder))
        self._bench = Workbench(tools=default_tools(limits or ToolLimits()))

    async def understand(self, name: str, **arguments: object) -> Invocation:
        return await self._bench.understand(name, **arguments)

    async def run(self, name: str, **arguments: object) -> str:
        invocation = await self.understand(name, **arguments)
        context = self._bench.context(invocation)
        backends = replace(context.backends, files=LocalFileSystem(self._roots))
        return (await invocation.run(replace(context, cwd=self._roots.cwd, backends=backends))).text


async def test_a_search_below_a_folder_passes_secrets_over_and_says_how_to_be_asked(tmp_path):
    disk = Disk(tmp_path)

    told = "[2 files that may hold secrets were not searched: conf/secrets.json, k.pem; name one as path to be asked]"
    assert await disk.run("grep", pattern="KEY") == f"a.py\n1:KEY\n[1 match in 1 file]\n{told}"
    told = "[1 file that may hold secrets was not searched: conf/secrets.json; name it as path to be asked]"
    assert (await disk.run("grep", pattern="nothing", glob="*.json", files_only=True)).endswith(f"\n{told}")
    assert "1:" not in await disk.run("grep", pattern="KEY", glob=".{env,x}", context=1)
    assert "1:" not in await disk.run("grep", pattern="KEY", glob="[.]env")


async def test_of_a_long_line_the_part_with_the_match_is_shown(tmp_path):
    (tmp_path / "min.js").write_text("ä;" * 5000 + 'VERSION="1.2.3";' + "b;" * 40_000 + 'LAST="9"')
    disk = Disk(tmp_path, ToolLimits(match_chars=40, redact=Redactor()))

    assert await disk.run("grep", pattern="version", path="min.js", case_sensitive=False) == (
        f'min.js\n1:[9990 characters] …{"ä;" * 5}VERSION="1.2.3";{"b;" * 7}… [over 10000 more characters]\n'
        "[1 match in 1 file]"
    )
    far = await disk.run("grep", pattern="LAST=", glob="*.js")
    assert "… [over 10000 more characters] [the match is further on: `grep -o` in bash shows it]\n" in far


@each_row("pattern", ["fake", "9{20}", "END", "later"])
async def test_of_a_long_line_with_a_secret_only_the_beginning_is_shown(tmp_path, pattern):
    """A part of it could show the rest of the secret without the beginning by which it is recognised."""
    key = "-----BEGIN PRIVATE KEY-----" + "fake" * 300 + "9" * 300 + "-----END PRIVATE KEY-----"
    (tmp_path / "line.json").write_text("ab " * 100 + key + " cd" * 100 + " later " + "ef " * 100)
    found = await Disk(tmp_path, ToolLimits(match_chars=40, redact=Redactor())).run(
        "grep", pattern=pattern, path="line.json"
    )
    assert found.splitlines()[1].startswith(f"1:{'ab ' * 13}a… [")
    assert "[the match is further on, behind " in found
    assert not any(part in found for part in ("fakefake", "999", "later"))


async def test_the_end_of_what_was_read_of_a_line_is_not_shown_as_that_of_the_line(tmp_path):
    """A secret that was cut there was not recognised, and nothing said that the line goes on."""
    key = "ghp_" + "Fake" * 9
    (tmp_path / "min.js").write_text("x;" * 32_600 + f"HERE {'y' * (65536 - 65200 - 5 - 30)} {key}" + "z;" * 5000)
    (tmp_path / "whole.js").write_text("x;" * 32_600 + "HERE")
    disk = Disk(tmp_path, ToolLimits(redact=Redactor()))
    found = await disk.run("grep", pattern="HERE", path="min.js")
    assert "… [over 10000 more characters] [the match is further on: `grep -o` in bash shows it]\n" in found
    assert "ghp_" not in found
    assert "x;HERE\n" in await disk.run("grep", pattern="HERE", path="whole.js")


async def test_without_a_redactor_only_the_beginning_of_a_long_line_is_shown(tmp_path):
    (tmp_path / "min.js").write_text("a;" * 1000 + "here")
    found = await Disk(tmp_path, ToolLimits(match_chars=40)).run("grep", pattern="here", path="min.js")
    assert (
        found.splitlines()[1]
        == f"1:{'a;' * 20}… [1964 more characters] [the match is further on, behind 2000 characters]"
    )


async def test_secrets_are_looked_for_in_a_limited_number_of_long_lines(tmp_path):
    (tmp_path / "min.js").write_text("\n".join(f"{number}{'a;' * 20_000}here" for number in range(40)))
    looked = list[str]()

    def redact(text: str) -> str:
        looked.append(text)
        return text

    found = await Disk(tmp_path, ToolLimits(match_chars=40, redact=redact)).run("grep", pattern="here", path="min.js")
    assert 20 < len(looked) < 30
    assert found.count("a;here") == len(looked)
    assert found.count("further on") == 40 - len(looked)


@each_row(
    "glob, path, subject, found",
    [
        (".env", ".", "./.env", ".env\n1:KEY\n[1 match in 1 file]"),
        (".env*", ".", "./.env*", ".env\n1:KEY\n[1 match in 1 file]"),
        ("*.pem", ".", "./*.pem", "k.pem\n1:KEY\n[1 match in 1 file]"),
        ("**/.aws/*", ".", "./**/.aws/*", ".aws/config\n1:KEY\n[1 match in 1 file]"),
        ("*.py", ".", None, "a.py\n1:KEY\n[1 match in 1 file]"),
        ("config", ".aws", None, ".aws/config\n1:KEY\n[1 match in 1 file]"),
    ],
)
async def test_a_glob_that_names_secrets_is_judged_as_they_are(tmp_path, glob, path, subject, found):
    disk = Disk(tmp_path)
    invocation = await disk.understand("grep", pattern="KEY", glob=glob, path=path)

    paths = [each.path for each in invocation.subjects if isinstance(each, PathSubject)]
    assert paths == [path, *([] if subject is None else [subject])]
    assert await disk.run("grep", pattern="KEY", glob=glob, path=path) == found


async def test_without_the_firewall_nothing_is_passed_over(tmp_path):
    disk = Disk(tmp_path, ToolLimits(guards_secrets=False))

    assert "not searched" not in await disk.run("grep", pattern="KEY")
    assert await disk.run("find_path", pattern="**/.aws/*") == ".aws/config (4 B)\n[1 result]"


async def test_names_in_folders_that_hold_secrets_are_found_when_the_folder_is_named(tmp_path):
    disk = Disk(tmp_path)

    left_out = "[1 entry of folders that hold secrets not shown: give the folder as path to be asked]"
    assert (await disk.run("find_path", pattern=".aws/*")).endswith(left_out)
    assert await disk.run("find_path", pattern="*", path=".aws") == ".aws/config (4 B)\n[1 result]"
    assert "id_rsa" not in await disk.run("find_path", pattern="**/.*/*")
    assert await disk.run("find_path", pattern=".env") == ".env (4 B)\n[1 result]"
