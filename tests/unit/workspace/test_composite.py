import anyio
import pytest

from acp_agent.core.backends import CommandRequest, RunningCommand
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.session.toolset.backends import CompositeFileSystem, CompositeTerminal
from tests.fakes.fake_terminal import FakeTerminal, Script
from tests.fakes.memory_files import MemoryFileSystem

pytestmark = pytest.mark.anyio


def unavailable(reason: str = "broken", **more: bool) -> BackendUnavailable:
    return BackendUnavailable("editor", reason, **more)


class Told:
    """Remembers what the user would have been told."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    async def __call__(self, error: BackendUnavailable) -> None:
        await anyio.lowlevel.checkpoint()
        self.errors.append(error.reason)


@pytest.fixture
def told() -> Told:
    return Told()


async def test_the_first_backend_that_can_do_it_does_it(told: Told):
    editor, local = MemoryFileSystem({"a": "unsaved"}), MemoryFileSystem({"a": "saved"})
    files = CompositeFileSystem([editor], local, told)
    assert await files.read_text("a") == "unsaved"
    await files.write_text("a", "new", expected="unsaved")
    assert (editor.text("a"), local.text("a")) == ("new", "saved")
    assert told.errors == []


async def test_a_backend_that_cannot_is_passed_over_for_this_call_and_asked_again(told: Told):
    editor, local = MemoryFileSystem({"a": "unsaved", "b": "unsaved"}), MemoryFileSystem({"a": "saved"})
    editor.fail("a", unavailable())
    files = CompositeFileSystem([editor], local, told)
    assert await files.read_text("a") == "saved"
    assert await files.read_text("b") == "unsaved"


async def test_a_backend_that_never_will_is_not_asked_again_for_that_operation_only(told: Told):
    editor, local = MemoryFileSystem({"b": "unsaved"}), MemoryFileSystem({"a": "saved", "b": "saved"})
    editor.fail("a", unavailable(permanent=True))
    files = CompositeFileSystem([editor], local, told)
    assert await files.read_text("a") == "saved"
    assert await files.read_text("b") == "saved"
    await files.write_text("b", "new", expected="unsaved")
    assert (editor.text("b"), local.text("b")) == ("new", "saved")


async def test_the_user_is_told_once_for_each_kind_of_operation(told: Told):
    editor, local = MemoryFileSystem(), MemoryFileSystem({"a": "x", "b": "x"})
    editor.fail("a", unavailable("one"))
    editor.fail("b", unavailable("two"))
    files = CompositeFileSystem([editor], local, told)
    async with anyio.create_task_group() as tasks:
        for path in ("a", "b", "a"):
            tasks.start_soon(files.read_text, path)
    assert len(told.errors) == 1
    await files.list_directory(".")
    await files.write_text("b", "y", expected="x")
    assert told.errors == [told.errors[0], "two"]


async def test_an_ordinary_no_is_not_worth_telling(told: Told):
    editor, local = MemoryFileSystem({"b": "unsaved"}), MemoryFileSystem({"a": "saved", "b": "saved"})
    editor.fail("a", unavailable("not found", quiet=True))
    files = CompositeFileSystem([editor], local, told)
    assert await files.read_text("a") == "saved"
    assert told.errors == []
    editor.fail("b", unavailable("loud"))
    await files.read_text("b")
    assert told.errors == ["loud"]


async def test_the_next_backend_is_held_to_the_same_expectation(told: Told):
    editor, local = MemoryFileSystem(), MemoryFileSystem({"a": "saved"})
    editor.fail("a", unavailable())
    files = CompositeFileSystem([editor], local, told)
    for expected in ("unsaved", None):
        with pytest.raises(ToolError, match="file changed between diff preview and write; aborting"):
            await files.write_text("a", "new", expected=expected)
    await files.write_text("a", "new", expected="saved")
    assert local.writes == [("/project/a", "new")]


async def test_any_other_error_is_the_answer(told: Told):
    editor, local = MemoryFileSystem(), MemoryFileSystem({"a": "saved"})
    editor.fail("a", Refused("no"))
    with pytest.raises(Refused):
        await CompositeFileSystem([editor], local, told).read_text("a")


async def test_the_last_backend_has_the_last_word(told: Told):
    editor, local = MemoryFileSystem(root="/editor"), MemoryFileSystem(root="/local")
    editor.fail("a", unavailable("one"))
    local.fail("a", unavailable("two", permanent=True))
    files = CompositeFileSystem([editor], local, told)
    assert files.resolve("b", Access.READ) == "/local/b"
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match="two"):
            await files.read_text("a")


async def test_a_composite_of_nothing_is_a_mistake(told: Told):
    with pytest.raises(ValueError, match="at least 1"):
        CompositeTerminal([], told)


async def test_a_refused_terminal_is_left_for_the_next_one_for_good(told: Told):
    editor = FakeTerminal(
        {"true": Script(refuses=unavailable("refused", permanent=True)), "false": Script(exit_code=1)}
    )
    local = FakeTerminal({"true": Script(), "false": Script(exit_code=1)})
    terminal = CompositeTerminal([editor, local], told)
    for command in ("true", "false", "true"):
        await run(await terminal.start(CommandRequest(command, "/")))
    assert [request.command for request in editor.requests] == []
    assert [request.command for request in local.requests] == ["true", "false", "true"]
    assert told.errors == ["refused"]


async def test_a_command_that_breaks_under_way_is_never_run_a_second_time(told: Told):
    editor = FakeTerminal({"make": Script(breaks=unavailable())})
    local = FakeTerminal({"make": Script()})
    with pytest.raises(BackendUnavailable):
        await run(await CompositeTerminal([editor, local], told).start(CommandRequest("make", "/")))
    assert local.started == []


async def run(command: RunningCommand) -> None:
    async def ignore(_: str) -> None:
        return

    try:
        await command.wait(ignore)
    finally:
        await command.release()
