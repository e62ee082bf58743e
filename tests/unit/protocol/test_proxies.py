"""Files and terminals behind the editor: what is sent, in which order, and what becomes of every odd answer."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.core.backends import CommandOutcome, CommandRequest, FileSystem
from acp_agent.core.errors import BackendUnavailable, Refused
from acp_agent.core.types import Access
from acp_agent.protocol.client import Client
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.proxy_files import ProxyFileSystem
from acp_agent.protocol.proxy_terminal import ProxyTerminal
from tests.unit.protocol.wires import OtherEnd, connected

pytestmark = pytest.mark.anyio

Answer = Callable[[dict[str, Any]], Any]


class Refusal(Exception):
    """The editor answers with this error."""

    def __init__(self, code: int, message: str = "no") -> None:
        super().__init__(message)
        self.code = code


class Editor:
    """Answers by method; NEVER leaves a request open. Remembers every request in order."""

    NEVER = object()

    def __init__(self, peer: Peer, **answers: Any) -> None:
        self.peer = peer
        self.answers = {name.replace("_", "/", 1): answer for name, answer in answers.items()}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.grown = anyio.Event()

    async def serve(self, other: OtherEnd) -> None:
        while True:
            request = await other.receive()
            method, params = request["method"], request["params"]
            self.requests.append((method, params))
            self.grown.set()
            self.grown = anyio.Event()
            answer = self.answers.get(method, {})
            if answer is self.NEVER:
                continue
            try:
                result = answer(params) if callable(answer) else answer
            except Refusal as refusal:
                other.send(id=request["id"], error={"code": refusal.code, "message": str(refusal)})
            else:
                other.send(id=request["id"], result=result)

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]


@asynccontextmanager
async def editor(**answers: Any) -> AsyncIterator[Editor]:
    async with connected() as (peer, other):
        editing = Editor(peer, **answers)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(editing.serve, other)
            yield editing
            tasks.cancel_scope.cancel()


async def quiet(_output: str) -> None:
    pass


def refuse(code: int) -> Answer:
    def answer(_params: dict[str, Any]) -> Any:
        raise Refusal(code)

    return answer


# ------------------------------------------------------------------------------------------- files


class Sandbox:
    """Resolves like the local backend, below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def resolve(self, path: str, access: Access) -> str:
        resolved = (self.root / path).resolve()
        if not resolved.is_relative_to(self.root):
            raise Refused(f"{path} is outside")
        return str(resolved)


def proxy_files(editing: Editor, folder: Path, client: Client | None = None) -> FileSystem:
    client = client or Client(read_text_file=True, write_text_file=True)
    return ProxyFileSystem(editing.peer, "s1", client, Sandbox(folder), EditorPaths(str(folder)), timeout=2)  # type: ignore[arg-type]


async def test_a_file_is_read_through_the_editor_by_its_absolute_path(tmp_path: Path) -> None:
    async with editor(fs_read_text_file={"content": "\ufeffunsaved\r\n"}) as editing:
        assert await proxy_files(editing, tmp_path).read_text("a.txt") == "unsaved\r\n"
    assert editing.requests == [("fs/read_text_file", {"sessionId": "s1", "path": str(tmp_path.resolve() / "a.txt")})]


async def test_a_folder_opened_through_a_link_keeps_the_name_the_editor_knows(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    async with editor(fs_read_text_file={"content": ""}) as editing:
        await proxy_files(editing, tmp_path / "link").read_text("a.txt")
    assert editing.requests[0][1]["path"] == str(tmp_path / "link" / "a.txt")


async def test_the_editor_is_not_even_told_a_path_outside(tmp_path: Path) -> None:
    async with editor() as editing:
        with pytest.raises(Refused):
            await proxy_files(editing, tmp_path).read_text("../outside")
        with pytest.raises(Refused):
            await proxy_files(editing, tmp_path).write_text("/etc/hosts", "x")
    assert editing.requests == []


async def test_a_null_answer_to_a_write_is_fine(tmp_path: Path) -> None:
    async with editor(fs_write_text_file=None) as editing:
        await proxy_files(editing, tmp_path).write_text("a.txt", "new")
    assert editing.requests[0][1]["content"] == "new"


@pytest.mark.parametrize(
    ("answer", "permanent", "is_quiet"),
    [
        (refuse(-32002), False, True),
        (refuse(-32603), False, False),
        (refuse(-32601), True, False),
        ({"content": 7}, False, False),
        ("nonsense", False, False),
        (None, False, False),
        (Editor.NEVER, False, False),
    ],
)
async def test_whatever_else_the_editor_says_another_backend_is_asked(
    tmp_path: Path, answer: Any, permanent: bool, is_quiet: bool
) -> None:
    async with editor(fs_read_text_file=answer) as editing:
        files = proxy_files(editing, tmp_path)
        files._timeout = 0.05  # type: ignore[attr-defined]
        with pytest.raises(BackendUnavailable) as caught:
            await files.read_text("a.txt")
    assert (caught.value.permanent, caught.value.quiet) == (permanent, is_quiet)


async def test_what_was_not_offered_is_not_asked(tmp_path: Path) -> None:
    async with editor() as editing:
        files = proxy_files(editing, tmp_path, Client(read_text_file=True))
        with pytest.raises(BackendUnavailable):
            await files.write_text("a.txt", "x")
    assert editing.requests == []


# --------------------------------------------------------------------------------------- terminals


def terminal(editing: Editor, folder: Path, *, form: str = "script", timeout: float = 5) -> ProxyTerminal:
    return ProxyTerminal(
        editing.peer,
        "s1",
        EditorPaths("/w"),
        form=form,
        folder=lambda: str(folder),
        shell="bash",
        timeout=timeout,
        request_timeout=1,
    )


HAPPY = {
    "terminal_create": {"terminalId": "t1"},
    "terminal_wait_for_exit": {"exitCode": 3, "signal": None},
    "terminal_output": {"output": "a\r\nb\n", "truncated": True, "exitStatus": {"exitCode": 3}},
}


async def run(editing: Editor, folder: Path, **more: Any) -> CommandOutcome:
    command = await terminal(editing, folder, **more).start(CommandRequest("echo 'a b' | cat", "/w"))
    try:
        return await command.wait(quiet)
    finally:
        await command.release()


async def test_a_command_goes_as_a_private_script_and_comes_back_whole(tmp_path: Path) -> None:
    scripts: list[tuple[str, str, int]] = []

    def create(params: dict[str, Any]) -> Any:
        [path] = params["args"]
        scripts.append((path, Path(path).read_text(), os.stat(path).st_mode & 0o777))
        return {"terminalId": "t1"}

    async with editor(**{**HAPPY, "terminal_create": create}) as editing:
        outcome = await run(editing, tmp_path)
        await settled(editing, 4)
    assert (outcome.output, outcome.exit_code, outcome.truncated) == ("a\nb\n", 3, True)
    assert editing.methods == ["terminal/create", "terminal/wait_for_exit", "terminal/output", "terminal/release"]
    create_params = editing.requests[0][1]
    assert (create_params["command"], create_params["cwd"], create_params["sessionId"]) == ("bash", "/w", "s1")
    assert create_params["outputByteLimit"] > 0
    [(path, text, mode)] = scripts
    assert (text, mode) == ("echo 'a b' | cat\n", 0o600)
    assert not Path(path).exists()


async def settled(editing: Editor, count: int) -> None:
    with anyio.fail_after(5):
        while len(editing.requests) < count:
            await editing.grown.wait()


async def test_a_folder_with_special_characters_makes_the_command_an_argument(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    async with editor(**HAPPY) as editing:
        await run(editing, folder)
    assert editing.requests[0][1]["args"] == ["-c", "echo 'a b' | cat"]


async def test_the_line_form_is_one_quoted_command(tmp_path: Path) -> None:
    async with editor(**HAPPY) as editing:
        await run(editing, tmp_path, form="line")
    assert editing.requests[0][1]["command"] == """bash -c 'echo '"'"'a b'"'"' | cat'"""
    assert "args" not in editing.requests[0][1]


@pytest.mark.parametrize("answer", [refuse(-32603), {"terminalId": None}, "nonsense", Editor.NEVER])
async def test_an_editor_that_gives_no_terminal_is_not_asked_again(tmp_path: Path, answer: Any) -> None:
    async with editor(terminal_create=answer) as editing:
        with pytest.raises(BackendUnavailable) as caught:
            await run(editing, tmp_path)
    assert caught.value.permanent
    assert list(tmp_path.iterdir()) == []


async def test_output_comes_as_deltas_while_the_command_runs(tmp_path: Path) -> None:
    texts = iter(["one\n", "one\ntwo\n", "wo\nthree\n"])
    released = anyio.Event()
    seen: list[str] = []

    async with editor(
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=Editor.NEVER,
        terminal_output=lambda _p: {"output": next(texts), "truncated": False},
    ) as editing:

        async def collect(output: str) -> None:
            seen.append(output)
            if len(seen) == 3:
                released.set()

        async def wait(command: Any) -> None:
            await command.wait(collect)

        command = await terminal(editing, tmp_path).start(CommandRequest("x", "/w"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, command)
            with anyio.fail_after(5):
                await released.wait()
            tasks.cancel_scope.cancel()
        await command.release()
        await settled(editing, 7)
    assert seen == ["one\n", "two\n", "three\n"]
    assert editing.methods[-2:] == ["terminal/kill", "terminal/release"]


async def test_a_command_that_hangs_is_killed_and_its_output_kept(tmp_path: Path) -> None:
    waits: list[int] = []

    async with editor(
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=Editor.NEVER,
        terminal_output={"output": "partial", "truncated": False},
    ) as editing:

        def kill(_params: dict[str, Any]) -> Any:
            waits.append(1)
            editing.answers["terminal/wait_for_exit"] = {"exitCode": None, "signal": "SIGKILL"}
            return {}

        editing.answers["terminal/kill"] = kill
        outcome = await run(editing, tmp_path, timeout=0.05)
    assert (outcome.timed_out, outcome.exit_code, outcome.output, outcome.timeout) == (True, 124, "partial", 0.05)
    assert waits == [1]


@pytest.mark.parametrize(
    ("status", "code", "signal"),
    [
        ({"exitCode": None, "signal": "SIGTERM"}, 143, "SIGTERM"),
        ({"exitCode": None, "signal": "KILL"}, 137, "KILL"),
        ({"exitCode": None, "signal": "whatever"}, None, "whatever"),
        ({}, None, None),
        (None, None, None),
    ],
)
async def test_how_a_command_ended(tmp_path: Path, status: Any, code: int | None, signal: str | None) -> None:
    async with editor(**{**HAPPY, "terminal_wait_for_exit": status}) as editing:
        outcome = await run(editing, tmp_path)
    assert (outcome.exit_code, outcome.signal) == (code, signal)


async def test_a_terminal_that_breaks_under_a_command_is_an_error_and_still_released(tmp_path: Path) -> None:
    async with editor(**{**HAPPY, "terminal_output": refuse(-32603)}) as editing:
        with pytest.raises(BackendUnavailable):
            await run(editing, tmp_path)
        await settled(editing, 4)
    assert editing.methods[-1] == "terminal/release"


async def test_a_terminal_that_comes_too_late_is_given_back(tmp_path: Path) -> None:
    async with connected() as (peer, other):
        starting = ProxyTerminal(
            peer,
            "s1",
            EditorPaths("/w"),
            form="exec",
            folder=lambda: str(tmp_path),
            shell="sh",
            timeout=5,
            request_timeout=0.01,
        )
        with pytest.raises(BackendUnavailable):
            await starting.start(CommandRequest("x", "/w"))
        request = await other.receive()
        other.send(id=request["id"], result={"terminalId": "late"})
        assert [(await other.receive())["method"] for _ in range(2)] == ["terminal/kill", "terminal/release"]
