"""Files behind the editor: what is sent, in which order, and what becomes of every odd answer."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.core.backends import FileSystem, Lines
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory
from acp_agent.protocol.client import Client, EditorPaths
from acp_agent.protocol.client_files import ProxyFileSystem
from acp_agent.session.toolset.backends import CompositeFileSystem
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from tests.unit.protocol.scripted_editor import REFUSALS, Answer, Editor, editor, refuse, tell_nobody, write

pytestmark = pytest.mark.anyio


@pytest.fixture
def local_files() -> Iterator[Callable[[Path], LocalFileSystem]]:
    """Makes real local backends, whose folders stay open as long as the test."""
    with ExitStack() as open_roots:
        yield lambda folder: LocalFileSystem(open_roots.enter_context(Roots(str(folder))))


@pytest.fixture
def proxy_files(local_files: Callable[[Path], LocalFileSystem]) -> Callable[..., ProxyFileSystem]:
    def make(
        editing: Editor,
        folder: Path,
        client: Client | None = None,
        timeout: float = 2,
        looks: Sequence[float] = (0.0, 0.001),
    ) -> ProxyFileSystem:
        client = client or Client(read_text_file=True, write_text_file=True)
        local = local_files(folder)
        return ProxyFileSystem(editing.peer, "s1", client, local, EditorPaths(str(folder)), timeout, looks)

    return make


MakeFiles = Callable[..., FileSystem]


async def test_a_file_is_read_through_the_editor_by_its_absolute_path(tmp_path: Path, proxy_files: MakeFiles) -> None:
    async with editor(fs_read_text_file={"content": "\ufeffunsaved\r\n"}) as editing:
        assert await proxy_files(editing, tmp_path).read_text("a.txt") == "unsaved\r\n"
    assert editing.requests == [("fs/read_text_file", {"sessionId": "s1", "path": str(tmp_path.resolve() / "a.txt")})]


async def test_a_folder_opened_through_a_link_keeps_the_name_the_editor_knows(
    tmp_path: Path, proxy_files: MakeFiles
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    async with editor(fs_read_text_file={"content": ""}) as editing:
        await proxy_files(editing, tmp_path / "link").read_text("a.txt")
    assert editing.requests[0][1]["path"] == str(tmp_path / "link" / "a.txt")


async def test_the_editor_is_not_even_told_a_path_outside(tmp_path: Path, proxy_files: MakeFiles) -> None:
    async with editor() as editing:
        with pytest.raises(Refused):
            await proxy_files(editing, tmp_path).read_text("../outside")
        with pytest.raises(Refused):
            await proxy_files(editing, tmp_path).write_text("/etc/hosts", "x", expected=None)
    assert editing.requests == []


async def test_a_null_answer_to_a_write_is_fine(tmp_path: Path, proxy_files: MakeFiles) -> None:
    async with editor(fs_write_text_file=lambda params: write(params) and None) as editing:
        await proxy_files(editing, tmp_path).write_text("a.txt", "new", expected=None)
    assert editing.requests[0][1]["content"] == "new"


@pytest.mark.parametrize(
    ("answer", "permanent", "is_quiet"),
    [(refuse(-32002), False, True), (refuse(-32601), True, False), (Editor.NEVER, True, False)],
)
async def test_where_the_editor_cannot_read_another_backend_is_asked(
    tmp_path: Path, proxy_files: MakeFiles, answer: Any, permanent: bool, is_quiet: bool
) -> None:
    async with editor(fs_read_text_file=answer) as editing:
        files = proxy_files(editing, tmp_path, timeout=0.05)
        with pytest.raises(BackendUnavailable) as caught:
            await files.read_text("a.txt")
    assert (caught.value.permanent, caught.value.quiet) == (permanent, is_quiet)


async def test_where_the_editor_has_no_method_for_writes_another_backend_is_asked(
    tmp_path: Path, proxy_files: MakeFiles
) -> None:
    async with editor(fs_write_text_file=refuse(-32601)) as editing:
        with pytest.raises(BackendUnavailable) as caught:
            await proxy_files(editing, tmp_path).write_text("a.txt", "new", expected=None)
    assert caught.value.permanent


@pytest.mark.parametrize("code", REFUSALS)
async def test_any_other_refusal_of_a_read_or_write_is_final(
    tmp_path: Path, proxy_files: MakeFiles, local_files: Callable[[Path], LocalFileSystem], code: int
) -> None:
    (tmp_path / "old.txt").write_text("old")
    no = refuse(code, "Permission denied")
    async with editor(fs_read_text_file=no, fs_write_text_file=no) as editing:
        files = CompositeFileSystem([proxy_files(editing, tmp_path)], local_files(tmp_path), tell_nobody)
        for refused in (
            files.read_text("old.txt"),
            files.read_lines("old.txt", 0, 1),
            files.write_text("old.txt", "new", expected="old"),
            files.write_text("new.txt", "new", expected=None),
        ):
            with pytest.raises(ToolError, match="Permission denied") as caught:
                await refused
            assert caught.value.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert [path.name for path in tmp_path.iterdir()] == ["old.txt"]
    assert (tmp_path / "old.txt").read_text() == "old"


async def test_an_editor_that_does_not_know_where_to_write_has_not_said_that_it_cannot(
    tmp_path: Path, proxy_files: MakeFiles
) -> None:
    async with editor(fs_write_text_file=refuse(-32002)) as editing:
        with pytest.raises(ToolError):
            await proxy_files(editing, tmp_path).write_text("a.txt", "new", expected=None)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"content": 7}, "content: Input should be a valid string"),
        ({}, "content: Field required"),
        (None, "content: Field required"),
        ("nonsense", "all of it: Input should be"),
    ],
)
async def test_an_answer_that_does_not_fit_ends_the_call_and_is_told_by_its_method_and_what_was_expected(
    tmp_path: Path, proxy_files: MakeFiles, answer: Any, expected: str
) -> None:
    async with editor(fs_read_text_file=answer) as editing:
        with pytest.raises(ToolError) as caught:
            await proxy_files(editing, tmp_path).read_text("a.txt")
    assert f"the editor's answer to fs/read_text_file does not fit the protocol: {expected}" in str(caught.value)
    assert "_FileText" not in str(caught.value)


@pytest.mark.parametrize("content", ["text", "\ufefftext", "\n" * 1025])
async def test_an_empty_text_for_a_file_that_has_some_on_disk_is_told(
    tmp_path: Path, proxy_files: MakeFiles, content: str
) -> None:
    (tmp_path / "a.txt").write_text(content)
    async with editor(fs_read_text_file={"content": ""}) as editing:
        files = proxy_files(editing, tmp_path)
        for refused in (
            files.read_text("a.txt"),
            files.read_lines("a.txt", 0, 1),
            files.write_text("a.txt", "x", expected=""),
        ):
            with pytest.raises(ToolError, match=r"the editor gave an empty text for a\.txt, but the file on disk has"):
                await refused


@pytest.mark.parametrize("content", [None, "", "\ufeff", "\n"])
async def test_an_empty_text_for_a_file_without_any_is_one(
    tmp_path: Path, proxy_files: MakeFiles, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "a.txt").write_text(content)
    async with editor(fs_read_text_file={"content": ""}) as editing:
        assert await proxy_files(editing, tmp_path).read_text("a.txt") == ""


READS_TOO = Client(read_text_file=True, write_text_file=True)
ONLY_WRITES = Client(write_text_file=True)


@pytest.mark.parametrize("client", [READS_TOO, ONLY_WRITES], ids=["reads too", "only writes"])
@pytest.mark.parametrize("shown", [refuse(-32603), refuse(-32002), {"content": ""}, "nonsense"])
async def test_a_new_file_that_the_editor_did_not_write_is_told(
    tmp_path: Path, proxy_files: MakeFiles, client: Client, shown: Any
) -> None:
    async with editor(fs_write_text_file={}, fs_read_text_file=shown) as editing:
        with pytest.raises(ToolError, match=r"answered that it wrote a\.txt, but there is no such file"):
            await proxy_files(editing, tmp_path, client).write_text("a.txt", "new", expected=None)
    assert not (tmp_path / "a.txt").exists()


async def test_a_change_that_the_editor_did_not_make_is_told(tmp_path: Path, proxy_files: MakeFiles) -> None:
    (tmp_path / "a.txt").write_text("old")
    async with editor(fs_write_text_file={}, fs_read_text_file={"content": "old"}) as editing:
        with pytest.raises(ToolError, match=r"answered that it wrote a\.txt, but the file is as it was before"):
            await proxy_files(editing, tmp_path).write_text("a.txt", "new", expected="old")


@pytest.mark.parametrize("old", ["old", None])
@pytest.mark.parametrize("shown", ["new", "new, and formatted"])
async def test_a_change_that_the_editor_holds_unsaved_is_one(
    tmp_path: Path, proxy_files: MakeFiles, old: str | None, shown: str
) -> None:
    if old is not None:
        (tmp_path / "a.txt").write_text(old)
    texts = iter([*([] if old is None else [old]), shown])
    async with editor(fs_write_text_file={}, fs_read_text_file=lambda _p: {"content": next(texts)}) as editing:
        await proxy_files(editing, tmp_path).write_text("a.txt", "new", expected=old)
    assert [method for method in editing.methods if "write" in method] == ["fs/write_text_file"]


async def test_a_new_file_may_be_on_disk_a_moment_after_the_answer(tmp_path: Path, proxy_files: MakeFiles) -> None:
    async with editor(fs_write_text_file={}) as editing, anyio.create_task_group() as tasks:
        files = proxy_files(editing, tmp_path, ONLY_WRITES, looks=(0.0, 0.01, 0.02, 0.5))

        async def save_late() -> None:
            while not editing.requests:
                await editing.grown.wait()
            await anyio.sleep(0.02)
            (tmp_path / "a.txt").write_text("new")

        tasks.start_soon(save_late)
        await files.write_text("a.txt", "new", expected=None)


@pytest.mark.parametrize("answer", ["nonsense", 7, [], True])
@pytest.mark.parametrize("is_done", [True, False])
async def test_a_write_answered_with_rubbish_is_judged_by_what_is_on_disk_and_never_made_twice(
    tmp_path: Path,
    proxy_files: MakeFiles,
    local_files: Callable[[Path], LocalFileSystem],
    answer: Any,
    is_done: bool,
) -> None:
    (tmp_path / "old.txt").write_text("old")
    writes = (lambda params: write(params) and answer) if is_done else answer
    async with editor(fs_write_text_file=writes, fs_read_text_file={"content": "old"}) as editing:
        files = CompositeFileSystem([proxy_files(editing, tmp_path)], local_files(tmp_path), tell_nobody)
        for path, old in (("old.txt", "old"), ("new.txt", None)):
            if is_done:
                await files.write_text(path, "new", expected=old)
            elif path == "old.txt":
                with pytest.raises(ToolError, match=f"it is unknown whether {path} was written"):
                    await files.write_text(path, "new", expected=old)
    assert editing.methods.count("fs/write_text_file") == 1 + is_done
    assert (tmp_path / "old.txt").read_text() == ("new" if is_done else "old")


async def test_an_editor_is_not_asked_for_a_path_that_no_message_can_hold(
    tmp_path: Path, proxy_files: MakeFiles
) -> None:
    (tmp_path / "gr\udcfcn").mkdir()
    (tmp_path / "green").symlink_to("gr\udcfcn")
    async with editor(fs_read_text_file={"content": "x"}, fs_write_text_file={}) as editing:
        files = proxy_files(editing, tmp_path)
        with pytest.raises(BackendUnavailable, match="not UTF-8") as caught:
            await files.write_text("green/a.txt", "x", expected=None)
        (tmp_path / "green/a.txt").write_text("x")
        with pytest.raises(BackendUnavailable, match="not UTF-8"):
            await files.read_text("green/a.txt")
    assert (editing.requests, caught.value.permanent, caught.value.quiet) == ([], False, True)


async def test_utf_16_that_an_editor_takes_for_utf_8_is_read_from_disk(tmp_path: Path, proxy_files: MakeFiles) -> None:
    data = "name=wert\n".encode("utf-16")
    (tmp_path / "a.ini").write_bytes(data)
    (tmp_path / "a.bin").write_bytes(b"\0" + data)
    async with editor(fs_read_text_file={"content": data.decode("utf-8", "replace")}) as editing:
        files = proxy_files(editing, tmp_path)
        with pytest.raises(BackendUnavailable, match="not UTF-8") as caught:
            await files.read_text("a.ini")
        with pytest.raises(ToolError, match="a binary file"):
            await files.read_text("a.bin")
    assert caught.value.quiet


async def test_what_was_not_offered_is_not_asked(tmp_path: Path, proxy_files: MakeFiles) -> None:
    async with editor() as editing:
        files = proxy_files(editing, tmp_path, Client(read_text_file=True))
        with pytest.raises(BackendUnavailable):
            await files.write_text("a.txt", "x", expected=None)
    assert editing.requests == []


async def test_an_editor_silent_on_a_read_costs_one_wait_and_no_more(
    tmp_path: Path, proxy_files: MakeFiles, local_files: Callable[[Path], LocalFileSystem]
) -> None:
    (tmp_path / "a.txt").write_text("on the disk")
    async with editor(fs_read_text_file=Editor.NEVER) as editing:
        files = CompositeFileSystem([proxy_files(editing, tmp_path, timeout=0.05)], local_files(tmp_path), tell_nobody)
        assert [await files.read_text("a.txt") for _ in range(3)] == ["on the disk"] * 3
    assert editing.methods == ["fs/read_text_file"]


BINARY = b"\x89PNG\r\n\xff\xfe"  # without the NULs that every real picture has
AS_NODE_READS = BINARY.decode("utf-8", "replace")


async def test_a_file_with_nul_is_binary_also_when_the_editor_reads_it(tmp_path: Path, proxy_files: MakeFiles) -> None:
    async with editor(fs_read_text_file={"content": "a\0b"}) as editing:
        with pytest.raises(ToolError, match=r"a\.bin is a binary file"):
            await proxy_files(editing, tmp_path).read_text("a.bin")


async def test_bytes_the_editor_replaced_make_a_file_no_text(tmp_path: Path, proxy_files: MakeFiles) -> None:
    (tmp_path / "a.png").write_bytes(BINARY)
    async with editor(fs_read_text_file={"content": AS_NODE_READS}) as editing:
        with pytest.raises(ToolError, match=r"a\.png is text that is not UTF-8"):
            await proxy_files(editing, tmp_path).read_text("a.png")


async def test_a_file_in_another_encoding_is_read_and_written_on_disk(
    tmp_path: Path, proxy_files: MakeFiles, local_files: Callable[[Path], LocalFileSystem]
) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    async with editor(fs_read_text_file={"content": "caf\ufffd"}) as editing:
        files = CompositeFileSystem([proxy_files(editing, tmp_path)], local_files(tmp_path), tell_nobody)
        assert await files.read_text("a.txt") == "café"
        await files.write_text("a.txt", "thé", expected="café")
    assert (tmp_path / "a.txt").read_bytes() == b"th\xe9"
    assert "fs/write_text_file" not in editing.methods


@pytest.mark.parametrize("on_disk", [None, "honest \ufffd"])
async def test_a_replacement_character_somebody_typed_is_text(
    tmp_path: Path, proxy_files: MakeFiles, on_disk: str | None
) -> None:
    if on_disk is not None:
        (tmp_path / "a.txt").write_text(on_disk)
    async with editor(fs_read_text_file={"content": "honest \ufffd"}) as editing:
        assert await proxy_files(editing, tmp_path).read_text("a.txt") == "honest \ufffd"


@pytest.mark.parametrize(
    ("content", "told"),
    [(BINARY, "text that is not UTF-8"), (b"text\0", "a binary file")],
)
async def test_the_editor_is_not_asked_to_write_over_what_is_no_text(
    tmp_path: Path, proxy_files: MakeFiles, content: bytes, told: str
) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    async with editor() as editing:
        with pytest.raises(ToolError, match=rf"a\.bin is {told}"):
            await proxy_files(editing, tmp_path).write_text("a.bin", "new", expected="old")
    assert editing.requests == []


async def test_the_editor_may_write_new_files_also_below_new_folders_and_over_text(
    tmp_path: Path, proxy_files: MakeFiles
) -> None:
    (tmp_path / "old.txt").write_text("old")
    async with editor(fs_read_text_file={"content": "old"}) as editing:
        files = proxy_files(editing, tmp_path)
        for path, expected in (("old.txt", "old"), ("new.txt", None), ("folder/new.txt", None)):
            await files.write_text(path, "new", expected=expected)
    assert editing.methods == ["fs/read_text_file", *["fs/write_text_file"] * 3]


def swapped(folder: Path, answer: Answer) -> Answer:
    """Replace a folder by a link to another one, as a running command may, and then answer."""

    def swap(params: dict[str, Any]) -> Any:
        (folder / "sub").rename(folder / "kept")
        (folder / "sub").symlink_to(folder.parent / "outside")
        return answer(params)

    return swap


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with `sub/a.txt` to work in, beside a folder with another `a.txt`."""
    for name, text in (("work/sub", "old"), ("outside", "secret")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.txt").write_text(text)
    return tmp_path / "work"


async def test_what_the_editor_read_where_a_path_led_meanwhile_is_not_returned(
    work: Path, proxy_files: MakeFiles
) -> None:
    def read(params: dict[str, Any]) -> Any:
        return {"content": Path(params["path"]).read_text()}

    async with editor(fs_read_text_file=swapped(work, read)) as editing:
        with pytest.raises(Refused):
            await proxy_files(editing, work).read_text("sub/a.txt")


async def test_the_editor_is_not_asked_to_write_where_a_path_leads_meanwhile(
    work: Path, proxy_files: MakeFiles
) -> None:
    async with editor(fs_read_text_file=swapped(work, lambda _: {"content": "old"})) as editing:
        with pytest.raises(Refused):
            await proxy_files(editing, work).write_text("sub/a.txt", "new", expected="old")
    assert editing.methods == ["fs/read_text_file"]


async def test_a_write_is_no_success_if_the_path_led_elsewhere_meanwhile(work: Path, proxy_files: MakeFiles) -> None:
    async with editor(fs_read_text_file={"content": "old"}, fs_write_text_file=swapped(work, write)) as editing:
        with pytest.raises(ToolError, match=r"sub/a\.txt was replaced while the editor wrote it") as caught:
            await proxy_files(editing, work).write_text("sub/a.txt", "new", expected="old")
    assert caught.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    assert "Tell the user" in caught.value.failure.suggestion


CHANGED = r"a\.txt: file changed between diff preview and write; aborting"


@pytest.mark.parametrize(("on_disk", "shown"), [("old", "typed meanwhile"), ("changed", "changed"), (None, "changed")])
async def test_what_the_user_types_before_the_write_is_not_written_over(
    tmp_path: Path, proxy_files: MakeFiles, on_disk: str | None, shown: str
) -> None:
    if on_disk is not None:
        (tmp_path / "a.txt").write_text(on_disk)
    async with editor(fs_read_text_file={"content": shown}) as editing:
        with pytest.raises(ToolError, match=CHANGED) as caught:
            await proxy_files(editing, tmp_path).write_text("a.txt", "new", expected="old")
    assert caught.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    assert editing.methods == ["fs/read_text_file"]


@pytest.mark.parametrize("expected", ["old", None])
@pytest.mark.parametrize("reads", [False, True])
async def test_a_file_the_editor_does_not_show_is_compared_on_disk(
    tmp_path: Path, proxy_files: MakeFiles, expected: str | None, reads: bool
) -> None:
    async with editor(fs_read_text_file=refuse(-32002)) as editing:
        files = proxy_files(editing, tmp_path, Client(read_text_file=reads, write_text_file=True))
        (tmp_path / "a.txt").write_text("changed")
        with pytest.raises(ToolError, match=CHANGED):
            await files.write_text("a.txt", "new", expected=expected)
        assert "fs/write_text_file" not in editing.methods
        (tmp_path / "a.txt").write_text("old")
        await files.write_text("a.txt", "new", expected="old")
    assert editing.methods[-1] == "fs/write_text_file"


async def test_an_editor_silent_on_a_read_is_not_asked_again_before_a_write(
    tmp_path: Path, proxy_files: MakeFiles
) -> None:
    (tmp_path / "a.txt").write_text("old")
    async with editor(fs_read_text_file=Editor.NEVER) as editing:
        files = proxy_files(editing, tmp_path, timeout=0.05)
        for old, new in (("old", "new"), ("new", "newer")):
            await files.write_text("a.txt", new, expected=old)
    assert editing.methods == ["fs/read_text_file", "fs/write_text_file", "fs/write_text_file"]


@pytest.mark.parametrize(("shown", "written"), [("\ufeffold", "\ufeffnew"), ("old", "new")])
async def test_a_bom_the_editor_shows_is_written_back_and_one_it_hides_is_its_own(
    tmp_path: Path, proxy_files: MakeFiles, shown: str, written: str
) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfold")
    (tmp_path / "link.txt").symlink_to("a.txt")
    async with editor(fs_read_text_file={"content": shown}) as editing:
        files = proxy_files(editing, tmp_path)
        assert await files.read_text("link.txt") == "old"
        await files.write_text("a.txt", "new", expected="old")
        await files.write_text("other.txt", "other", expected=None)
    assert [params["content"] for method, params in editing.requests if "write" in method] == [written, "other"]


async def test_a_bom_the_user_took_out_meanwhile_stays_out(tmp_path: Path, proxy_files: MakeFiles) -> None:
    texts = iter(["\ufeffold", "old", "old"])
    async with editor(fs_read_text_file=lambda _p: {"content": next(texts)}) as editing:
        files = proxy_files(editing, tmp_path)
        await files.read_text("a.txt")
        await files.read_text("a.txt")
        await files.write_text("a.txt", "new", expected="old")
    assert editing.requests[-1][1]["content"] == "new"


@pytest.mark.parametrize(("old", "written"), [(b"\xef\xbb\xbfold", "\ufeffnew"), (b"old", "new"), (None, "new")])
async def test_an_editor_that_only_writes_is_given_the_bom_the_file_has(
    tmp_path: Path, proxy_files: MakeFiles, old: bytes | None, written: str
) -> None:
    if old is not None:
        (tmp_path / "a.txt").write_bytes(old)
    async with editor() as editing:
        files = proxy_files(editing, tmp_path, Client(write_text_file=True))
        await files.write_text("a.txt", "new", expected=None if old is None else "old")
    assert editing.requests[0][1]["content"] == written


async def test_lines_come_through_the_editor_in_one_request(tmp_path: Path, proxy_files: MakeFiles) -> None:
    (tmp_path / "a.txt").write_text("saved\n")
    async with editor(fs_read_text_file={"content": "\ufeff1\r\n2\nunsaved"}) as editing:
        files = proxy_files(editing, tmp_path)
        assert await files.read_lines("a.txt", -2, 1) == Lines(("2",), 1, 3)
        assert await files.read_lines("new.txt", 0, 1) == Lines(("1",), 0, 3)
    assert editing.methods == ["fs/read_text_file"] * 2


LARGEST = 8 * 1024 * 1024


async def test_lines_of_a_huge_file_come_from_disk_without_a_word(
    tmp_path: Path, proxy_files: MakeFiles, local_files: Callable[[Path], LocalFileSystem]
) -> None:
    told: list[BackendUnavailable] = []

    async def tell(error: BackendUnavailable) -> None:
        told.append(error)

    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * (LARGEST - 5) + b"\nend\n")
    async with editor(fs_read_text_file={"content": "unsaved"}) as editing:
        files = CompositeFileSystem([proxy_files(editing, tmp_path)], local_files(tmp_path), tell)
        assert (await files.read_lines("a.txt", -1, 1)).lines == ("unsaved",)
        with path.open("ab") as file:
            file.write(b"!")
        assert (await files.read_lines("a.txt", -1, 1)).lines == ("!",)
        assert await files.read_text("small.txt") == "unsaved"
    assert editing.methods == ["fs/read_text_file"] * 2
    assert told == []


async def test_the_editor_is_not_asked_for_the_lines_of_a_binary_file_but_of_utf_16(
    tmp_path: Path, proxy_files: MakeFiles
) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (tmp_path / "a.txt").write_bytes("text\n".encode("utf-16"))
    async with editor(fs_read_text_file={"content": "text\n"}) as editing:
        files = proxy_files(editing, tmp_path)
        with pytest.raises(BackendUnavailable) as caught:
            await files.read_lines("a.png", 0, 1)
        assert (await files.read_lines("a.txt", 0, 1)).lines == ("text",)
    assert (caught.value.quiet, caught.value.permanent) == (True, False)
    assert editing.methods == ["fs/read_text_file"]


async def test_lines_of_what_is_no_file_or_lies_outside_are_not_asked_for(
    tmp_path: Path, proxy_files: MakeFiles
) -> None:
    os.mkfifo(tmp_path / "pipe")
    async with editor() as editing:
        files = proxy_files(editing, tmp_path)
        for path in ("pipe", "."):
            with pytest.raises(ToolError):
                await files.read_lines(path, 0, 1)
        with pytest.raises(Refused):
            await files.read_lines("../outside", 0, 1)
        with pytest.raises(BackendUnavailable):
            await proxy_files(editing, tmp_path, Client(write_text_file=True)).read_lines("a", 0, 1)
    assert editing.requests == []


async def test_a_write_nobody_answers_is_not_done_a_second_time(
    tmp_path: Path, proxy_files: MakeFiles, local_files: Callable[[Path], LocalFileSystem]
) -> None:
    async with editor(fs_write_text_file=Editor.NEVER) as editing:
        files = CompositeFileSystem([proxy_files(editing, tmp_path, timeout=0.05)], local_files(tmp_path), tell_nobody)
        with pytest.raises(ToolError, match=r"within 0\.05 s; it is unknown whether a\.txt was written") as caught:
            await files.write_text("a.txt", "first", expected=None)
        assert caught.value.failure.category is ToolErrorCategory.TIMEOUT
        assert not (tmp_path / "a.txt").exists()
        await files.write_text("a.txt", "second", expected=None)
    assert editing.methods == ["fs/write_text_file"]
    assert (tmp_path / "a.txt").read_text() == "second"
