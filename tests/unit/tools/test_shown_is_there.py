"""What read, grep, cat and git diff show is what the file holds, and an edit that copies what was shown applies."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from acp_agent.core.ports import Backends
from acp_agent.core.types import ToolResult
from acp_agent.execution.runner import ToolRunner
from acp_agent.execution.wrappers import OutputExecutor
from acp_agent.gates.gate import CallFacts
from acp_agent.output.filters.engine import FilterEngine, RuleSource
from acp_agent.output.pipeline import Pipeline, Sizes
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.redaction.rules import KnownSecrets
from acp_agent.output.sanitize import faithful
from acp_agent.text import unescaped
from acp_agent.tools.registry import Registry, ToolLimits, default_tools
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.roots import Roots
from tests.e2e.thoughts import FENCED
from tests.fakes.fake_web import FakeWeb
from tests.unit.tools.workbench import Workbench, call

pytestmark = pytest.mark.anyio

PIECES = st.sampled_from(
    [
        "a",
        "word",
        "  ",
        "\t",
        "é",
        "e\u0301",
        "日本",
        "\\u200b",
        "\\",
        "[line 3 holds U+200B]",
        " [line 1 holds U+200B]",
        "12:",
        "7-",
        "\u200b",
        "\u200c",
        "\u200d",
        "\u202e",
        "\ufeff",
        "\u2028",
        "\x0c",
        "\x1b[31m",
        "\x07",
        "\x85",
        "\xa0",
        "👩\u200d💻",
        "\U000e0041",
    ]
)
LINES = st.lists(st.lists(PIECES, min_size=1, max_size=5).map("".join), min_size=1, max_size=8)
ENDS = st.sampled_from(["\n", "\r\n"])
LIMITS = ToolLimits(line_chars=10_000, match_chars=10_000)
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def texts_of(shown: str) -> list[str]:
    """The lines of a read without their numbers."""
    return [line.partition("\t")[2] for line in unescaped(shown).split("\n")]


@given(LINES, ENDS)
@example(["\ufeff\ufeff"], "\n")
async def test_the_lines_of_a_read_and_of_a_search_are_the_files(lines: list[str], end: str):
    mark = "\ufeff" * lines[0].startswith("\ufeff")  # the first mark of a file is no part of its text
    bench = Workbench({"a": mark + end.join([*lines, ""])}, tools=default_tools(LIMITS))

    assert texts_of(faithful((await bench.run("read", path="a")).text, terminal=False)) == lines
    heading, *hits, _ = faithful((await bench.run("grep", pattern=".*")).text, terminal=False).split("\n")
    assert heading == "a"
    assert [unescaped(hit).partition(":")[2] for hit in hits] == lines


class Disk:
    """The tools over a folder and a shell of this machine, with all that happens to their results."""

    def __init__(self, folder: Path, roots: Roots) -> None:
        self.file = folder / "a"
        self._files = LocalFileSystem(roots)
        terminal = LocalTerminal()
        backends = Backends(self._files, terminal, terminal, FakeWeb())
        words = Pipeline(Sizes(), Redactor(KnownSecrets()), FilterEngine(RuleSource()))
        self._executor = OutputExecutor(ToolRunner(backends, str(folder), self._emit), words)
        self._registry = Registry(default_tools(LIMITS))

    async def _emit(self, event: object) -> None:
        del event

    async def run(self, name: str, **arguments: object) -> ToolResult:
        invocation = await self._registry.understand(call(name, arguments), self._files)
        return await self._executor.execute(CallFacts(invocation))

    async def shown(self, name: str, **arguments: object) -> str:
        """The text of a result, without its fence."""
        result = await self.run(name, **arguments)
        assert result.failure is None, result.text
        match = FENCED.search(result.text)
        assert match, result.text
        return match[2]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    """A repository in which `a` is committed without a line."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "a").touch()
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for args in (("init",), ("add", "a"), (*who, "commit", "-m", "first")):
        subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True)
    with Roots(str(folder)) as roots:
        yield Disk(folder, roots)


OLD = st.lists(st.sampled_from(["a", "é", "ü ", "… ", "“ ", "  ", "\\u00e9"]), min_size=1, max_size=5).map("".join)
ENCODED = st.tuples(LINES, st.sampled_from(["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"])) | st.tuples(
    st.lists(OLD, min_size=1, max_size=5), st.just("cp1252")
)
MARKS = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


def encoded(text: str, encoding: str) -> bytes:
    return MARKS.get(encoding, b"") + text.encode(encoding)


@given(ENCODED, ENDS)
@settings(max_examples=settings.default.max_examples // 4)
async def test_what_cat_and_git_diff_print_of_a_file_is_the_files_but_for_what_acts_on_a_terminal(
    disk: Disk, file: tuple[list[str], str], end: str
):
    lines, encoding = file
    assume(encoding in ("utf-8", "cp1252") and CONTROLS.search("".join(lines).replace("\x0c", "")) is None)
    disk.file.write_bytes(encoded(end.join([*lines, ""]), encoding))
    assert unescaped(await disk.shown("bash", command="cat a")).split("\n") == lines
    head, hunk, body = unescaped(await disk.shown("bash", command="git diff")).partition(
        f"@@ -0,0 +1{'' if len(lines) == 1 else f',{len(lines)}'} @@\n"
    )
    assert hunk, head
    assert body.split("\n") == [f"+{line}" for line in lines]


def units(line: str) -> list[tuple[str, str]]:
    """The smallest parts of a shown line that may be copied, each with what it stands for."""
    whole = unescaped(line)
    if whole == line:
        return [(char, char) for char in line]
    body, note, rest = line.rpartition(" [line ")
    parts = re.findall(r"\\ud[89ab]..\\ud[c-f]..|\\u[0-9a-f]{4}|.", body, re.DOTALL)
    return [(part, unescaped(part, every_line=True)) for part in parts] + [(note + rest, "")]


@given(ENCODED, ENDS, st.integers(0), st.integers(0))
@example((["a [line 1 holds U+200B]\u200b", "b [line 1 holds U+200B]word"], "utf-8"), "\n", 0, 48)
async def test_an_edit_that_copies_any_span_as_it_was_shown_applies(
    disk: Disk, file: tuple[list[str], str], end: str, one: int, two: int
):
    lines, encoding = file
    lines[0] = lines[0].lstrip("\ufeff") or "x"
    text = end.join([*lines, ""])
    assume(encoding != "cp1252" or any(ord(char) > 127 for char in text))
    disk.file.write_bytes(encoded(text, encoding))
    page = [line for line in (await disk.shown("read", path="a")).split("\n") if "\t" in line[:6]]
    parts = [part for line in page for part in (*units(line.partition("\t")[2]), ("\n", "\n"))]
    first, last = sorted((one % len(parts), two % len(parts)))
    shown, real = ("".join(pair[at] for pair in parts[first : last + 1]) for at in (0, 1))
    plain = text.replace(end, "\n")
    assume(real and len(re.findall(f"(?={re.escape(real)})", plain)) == 1)

    result = await disk.run("edit", path="a", old_string=shown, new_string="NEW")

    readings = {shown, unescaped(shown), unescaped(shown, every_line=True)}
    may_mean_two_places = any(each in plain for each in readings - {real, ""})
    assert may_mean_two_places or result.failure is None, result.text
    if result.failure is None:
        assert disk.file.read_bytes() == encoded(plain.replace(real, "NEW").replace("\n", end), encoding)


@given(LINES, ENDS, st.tuples(st.integers(0), st.integers(0)))
@example(["a", "12:a", "a"], "\n", (2, 2))
async def test_an_edit_that_copies_lines_as_they_were_shown_applies(lines: list[str], end: str, span: tuple[int, int]):
    lines = [f"{number}#{line}" for number, line in enumerate(lines)]  # unique, since no piece has a #
    text = end.join([*lines, ""])
    bench = Workbench({"a": text}, tools=default_tools(LIMITS))
    shown = [
        line.partition("\t")[2]
        for line in faithful((await bench.run("read", path="a")).text, terminal=False).split("\n")
    ]
    first, last = sorted(number % len(lines) for number in span)

    result = await bench.run("edit", path="a", old_string="\n".join(shown[first : last + 1]), new_string="new")

    assert result.failure is None
    assert bench.files.raw("a").decode() == end.join([*lines[:first], "new", *lines[last + 1 :], ""])
