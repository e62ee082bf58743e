"""create_directory, delete_path, move_path and copy_path: what they touch, what they say."""

from dataclasses import replace
from pathlib import Path

import pytest

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access, Location, PathSubject, ToolKind, ToolResult
from acp_agent.tools.path_tools import CopyPath, CreateDirectory, DeletePath, MovePath
from acp_agent.tools.registry import Registry
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.seen_files import SeenFiles
from tests.rows import each_row
from tests.unit.tools.workbench import Workbench, call

pytestmark = pytest.mark.anyio

SEEN = SeenFiles()
TOOLS = (CreateDirectory(SEEN), DeletePath(SEEN), MovePath(SEEN), CopyPath(SEEN))
TWO_PATHS = {"source": "a", "destination": "b"}


def bench(files: dict[str, str | bytes] | None = None) -> Workbench:
    return Workbench(files, tools=TOOLS)


async def test_a_folder_is_created_once_and_twice_is_no_error():
    made = bench()

    first = await made.run("create_directory", path="a/b")
    second = await made.run("create_directory", path="a/b")

    assert (first.text, second.text) == ("Created directory: a/b", "Directory already exists: a/b")
    assert made.files.exists("a/b")


@each_row(
    "path, recursive, text",
    [
        ("file", False, "Deleted file: file"),
        ("file", True, "Deleted file: file"),
        ("link", False, "Deleted link: link"),
        ("empty", False, "Deleted directory: empty (0 entries)"),
        ("one", True, "Deleted directory: one (1 entry)"),
        ("many", True, "Deleted directory: many (3 entries)"),
    ],
)
async def test_what_was_deleted_is_told_by_its_kind(path: str, recursive: bool, text: str):
    made = bench({"file": "", "one/a": "", "many/a": "", "many/sub/b": ""})
    made.files.add_directory("empty")
    made.files.link("link", "many")

    result = await made.run("delete_path", path=path, recursive=recursive)

    assert result.text == text
    assert not made.files.exists(path)
    assert path == "many" or made.files.exists("many/sub/b")


async def test_a_folder_that_is_not_empty_stays_unless_recursive_is_said():
    made = bench({"many/a": ""})

    with pytest.raises(ToolError, match="recursive=true"):
        await made.run("delete_path", path="many")

    assert made.files.exists("many/a")


async def test_a_moved_file_is_at_its_new_path_only():
    made = bench({"a": "x"})

    result = await made.run("move_path", source="a", destination="new/b")

    assert result.text == "Moved a to new/b"
    assert made.files.text("new/b") == "x"
    assert not made.files.exists("a")


async def test_a_copied_file_can_be_opened_where_it_is_now():
    made = bench({"a": "x"})

    result = await made.run("copy_path", source="a", destination="new/b")

    assert result.text == "Copied a to new/b"
    assert result.locations == (Location("/project/new/b"),)
    assert (made.files.text("a"), made.files.text("new/b")) == ("x", "x")


@pytest.mark.parametrize(
    ("files", "links", "told"),
    [
        (["a"], [], "(1 file)"),
        (["a", "sub/b"], ["l"], "(2 files; 1 entry left out: links, special or unreadable files)"),
        (["a"], ["l", "m"], "(1 file; 2 entries left out: links, special or unreadable files)"),
    ],
)
async def test_a_copied_folder_tells_how_much_it_is_and_what_is_missing(files: list[str], links: list[str], told: str):
    made = bench({f"d/{name}": "x" for name in files})
    for name in links:
        made.files.link(f"d/{name}", "anywhere")

    result = await made.run("copy_path", source="d", destination="e")

    assert result.text == f"Copied d to e {told}"
    assert result.locations == ()


@pytest.mark.parametrize("name", ["move_path", "copy_path"])
async def test_nothing_at_the_destination_is_replaced_and_a_folder_there_is_answered_with_the_whole_path(name: str):
    made = bench({"a": "x", "b": "y", "d/x": ""})

    with pytest.raises(ToolError, match="b exists already"):
        await made.run(name, source="a", destination="b")
    with pytest.raises(ToolError, match="d is a directory") as raised:
        await made.run(name, source="a", destination="d")

    assert raised.value.failure.suggestion == "Give the whole new path: d/a"
    assert (made.files.text("a"), made.files.text("b")) == ("x", "y")


@pytest.mark.parametrize(
    ("name", "arguments", "subjects"),
    [
        ("create_directory", {"path": "./a/../b"}, [("./a/../b", Access.WRITE)]),
        ("delete_path", {"path": "b"}, [("b", Access.DELETE)]),
        ("move_path", TWO_PATHS, [("a", Access.MOVE), ("b", Access.WRITE)]),
        ("copy_path", TWO_PATHS, [("a", Access.LIST), ("b", Access.WRITE)]),
    ],
)
async def test_every_path_is_a_subject_as_the_model_wrote_it(
    name: str, arguments: dict[str, str], subjects: list[tuple[str, Access]]
):
    invocation = await bench({"a": ""}).understand(name, **arguments)

    assert invocation.subjects == tuple(PathSubject(path, access) for path, access in subjects)
    assert invocation.spec.mutates


async def test_titles_show_the_path_or_both_and_a_long_source_cannot_hide_the_destination():
    made = bench()

    assert (await made.understand("delete_path", path="a\nb")).title == "delete a ⏎ b"
    assert (await made.understand("create_directory", path="new")).title == "create folder new"
    for name, verb in (("move_path", "move"), ("copy_path", "copy")):
        assert (await made.understand(name, **TWO_PATHS)).title == f"{verb} a -> b"
        long = await made.understand(name, source="x" * 500, destination="\u202eb")
        assert long.title == f"{verb} " + "x" * 120 + "… -> \\u202eb"


async def test_what_a_path_hides_is_shown_in_what_the_tools_say():
    made = bench({"a": ""})

    created = await made.run("create_directory", path="x\n[tool_error]")
    moved = await made.run("move_path", source="a", destination="\u202eb")

    assert created.text == "Created directory: x\\n[tool_error]"
    assert moved.text == "Moved a to \\u202eb"


@each_row(
    "name, arguments",
    [
        ("create_directory", {}),
        ("create_directory", {"path": ""}),
        ("create_directory", {"path": "a\0b"}),
        ("delete_path", {"path": "a", "recursive": "yes"}),
        ("delete_path", {"path": "a", "force": True}),
        ("move_path", {"source": "a"}),
        ("copy_path", {"source": "a", "destination": ""}),
    ],
)
async def test_arguments_that_do_not_fit_are_errors(name: str, arguments: dict[str, object]):
    with pytest.raises(ToolError) as raised:
        await bench().understand(name, **arguments)
    assert raised.value.failure.category in (ToolErrorCategory.INVALID_PARAMETERS, ToolErrorCategory.TYPE_MISMATCH)


@each_row(
    "name, arguments",
    [
        ("create_directory", {"path": "../x"}),
        ("delete_path", {"path": "/etc", "recursive": True}),
        ("delete_path", {"path": ".", "recursive": True}),
        ("move_path", {"source": "a", "destination": "/tmp/x"}),
        ("move_path", {"source": "/etc/passwd", "destination": "x"}),
        ("copy_path", {"source": "/etc/passwd", "destination": "x"}),
    ],
)
async def test_a_refusal_reaches_the_caller(name: str, arguments: dict[str, object]):
    with pytest.raises(Refused):
        await bench({"a": ""}).run(name, **arguments)


def test_kinds_are_plain_unless_the_catalogue_asks_for_rich_ones():
    assert {tool.spec().kind for tool in TOOLS} == {ToolKind.OTHER}
    rich = (
        CreateDirectory(SEEN, kind=ToolKind.EDIT),
        DeletePath(SEEN, kind=ToolKind.DELETE),
        MovePath(SEEN, kind=ToolKind.MOVE),
    )
    assert [tool.spec().kind for tool in rich] == [ToolKind.EDIT, ToolKind.DELETE, ToolKind.MOVE]
    assert CopyPath(SEEN, kind=ToolKind.EDIT).spec().kind is ToolKind.EDIT


# ------------------------------------------------------- what is known before anybody is asked


@each_row(
    "name, arguments, told",
    [
        ("delete_path", {"path": ".", "recursive": True}, "directory of this session"),
        ("delete_path", {"path": "docs/..", "recursive": True}, "directory of this session"),
        ("delete_path", {"path": "nope"}, "nope: no such file"),
        ("delete_path", {"path": "docs"}, "docs: the directory is not empty"),
        ("delete_path", {"path": "/etc"}, "outside"),
        ("move_path", {"source": "nope", "destination": "x"}, "nope: no such file"),
        ("move_path", {"source": ".", "destination": "x"}, "directory of this session"),
        ("move_path", {"source": "a", "destination": "docs"}, "docs: is a directory that exists already"),
        ("move_path", {"source": "a", "destination": "b"}, "b: exists already"),
        ("move_path", {"source": "docs", "destination": "docs/in"}, "a directory cannot hold itself"),
        ("move_path", {"source": "a", "destination": "b/"}, "a part of the path is a file"),
        ("move_path", {"source": "a", "destination": "b/c"}, "a part of the path is a file"),
        ("move_path", {"source": "a", "destination": "/tmp/x"}, "outside"),
        ("copy_path", {"source": "nope", "destination": "x"}, "nope: no such file"),
        ("copy_path", {"source": "a", "destination": "docs"}, "docs: is a directory that exists already"),
        ("copy_path", {"source": "a", "destination": "b"}, "b: exists already"),
        ("copy_path", {"source": "docs", "destination": "docs/"}, "a directory cannot hold itself"),
        ("copy_path", {"source": "/etc/passwd", "destination": "x"}, "outside"),
        ("create_directory", {"path": "a"}, "a: exists and is not a directory"),
        ("create_directory", {"path": "../x"}, "outside"),
    ],
)
async def test_what_is_known_to_fail_is_a_flaw_and_the_run_agrees(
    name: str, arguments: dict[str, object], told: str, tmp_path: Path
):
    for path in ("a", "b", "docs/x"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(path)
    with Roots(str(tmp_path)) as roots:
        files = LocalFileSystem(roots)
        invocation = await Registry(TOOLS).understand(call(name, arguments), files)

        assert invocation.predicted_failure is not None
        assert told in invocation.predicted_failure.text
        context = bench().context(invocation)
        context = replace(context, backends=replace(context.backends, files=files))
        with pytest.raises((ToolError, Refused)):
            await invocation.run(context)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "docs", "x"]


async def test_a_folder_that_is_there_is_answered_without_a_question():
    made = bench({"docs/x": ""})

    invocation = await made.understand("create_directory", path="docs")

    assert invocation.predicted_failure == ToolResult("Directory already exists: docs")
    assert (await made.understand("create_directory", path="new")).predicted_failure is None


@each_row(
    "name, arguments, summary",
    [
        ("create_directory", {"path": "new/x"}, "creates the folder new/x"),
        ("delete_path", {"path": "a"}, "deletes a"),
        ("delete_path", {"path": "empty"}, "deletes the empty folder empty"),
        ("delete_path", {"path": "one", "recursive": True}, "deletes one and everything in it (1 entry)"),
        ("delete_path", {"path": "src", "recursive": True}, "deletes src and everything in it (4 entries)"),
        ("delete_path", {"path": "link", "recursive": True}, "deletes the link link, not what it leads to"),
        ("move_path", {"source": "a", "destination": "new/b"}, "moves a to new/b"),
        ("move_path", {"source": "src", "destination": "one/"}, "moves src to one/src"),
        ("copy_path", {"source": "./src/", "destination": "one/"}, "copies ./src/ to one/src"),
        ("copy_path", {"source": "a", "destination": "x to y"}, "copies a to 'x to y'"),
        ("create_directory", {"path": "\u202ex"}, "creates the folder '\\u202ex'"),
    ],
)
async def test_the_summary_says_with_a_verb_what_would_happen(name: str, arguments: dict[str, object], summary: str):
    made = bench({"a": "", "one/x": "", "src/x": "", "src/sub/y": "", "src/sub/z": ""})
    made.files.add_directory("empty")
    made.files.link("link", "src")

    invocation = await made.understand(name, **arguments)

    assert (invocation.summary, invocation.predicted_failure) == (summary, None)


async def test_entries_are_counted_no_further_than_a_thousand():
    made = bench({f"many/{number}": "" for number in range(1000)})

    async def summary() -> str:
        return (await made.understand("delete_path", path="many", recursive=True)).summary

    assert await summary() == "deletes many and everything in it (1,000 entries)"
    made.files.put("many/one more", "")
    assert await summary() == "deletes many and everything in it (more than 1,000 entries)"


async def test_what_may_not_be_listed_is_not_counted_and_not_judged():
    made = bench({"src/x": "", "src/closed/y": "", "hidden/z": ""})
    made.files.fail("src/closed", Refused("src/closed: may not be listed"))

    half = await made.understand("delete_path", path="src", recursive=True)

    assert half.summary == "deletes src and everything in it (at least 2 entries)"


@pytest.mark.parametrize("target", ["/etc", "nowhere", "src"])
async def test_a_link_is_deleted_itself_wherever_it_leads(tmp_path: Path, target: str):
    (tmp_path / "src").mkdir()
    (tmp_path / "link").symlink_to(target)
    with Roots(str(tmp_path)) as roots:
        invocation = await Registry(TOOLS).understand(call("delete_path", {"path": "link"}), LocalFileSystem(roots))
    assert invocation.predicted_failure is None
    assert invocation.summary.startswith(("deletes link", "deletes the link link"))


@pytest.mark.parametrize("name", ["move_path", "copy_path"])
@pytest.mark.parametrize(("source", "wanted"), [("a", "docs/a"), ("./sub/b", "docs/b"), ("sub/", "docs/sub")])
@pytest.mark.parametrize("exists", [True, False])
async def test_a_destination_that_ends_in_a_slash_is_the_folder_to_go_into(
    name: str, source: str, wanted: str, exists: bool
):
    made = bench({"a": "x", "sub/b": "x"})
    if exists:
        made.files.add_directory("docs")

    invocation = await made.understand(name, source=source, destination="docs/")
    result = await made.execute(invocation)

    # The gates judge the path that is written, not the folder it is in.
    assert invocation.subjects[1] == PathSubject(wanted, Access.WRITE)
    assert invocation.title == f"{name.removesuffix('_path')} {source} -> {wanted}"
    assert f" {source} to {wanted}" in result.text
    assert made.files.exists(wanted)
