"""The turn engine: which prompts the model sees, and what the user is answered instead."""

import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import anyio
import pytest
from anyio import to_thread

from acp_agent.config.llm_settings import LlmSettings
from acp_agent.core.errors import AgentError, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.events import Event, Notice, TextDelta, UserMessage
from acp_agent.core.messages import LinkPart, Message, StopReason, TextPart
from acp_agent.core.ports import Backends
from acp_agent.core.sessions import DuePrompt
from acp_agent.core.types import CallOrigin, ToolCall, ToolResult
from acp_agent.llm.catalog import Catalog
from acp_agent.protocol.client import Client
from acp_agent.protocol.content import read_prompt
from acp_agent.session.engine import SessionEngine, TurnEngine
from acp_agent.session.slash import commands
from acp_agent.session.slash.commands import ALWAYS, CommandName
from acp_agent.session.slash.handler import SlashCommandHandler
from acp_agent.session.toolset.extensions import Expansion
from acp_agent.session.turn_slot import Answer, IdleWaiter, TurnSlot
from acp_agent.session.workspace_facts import FolderLook
from acp_agent.workspace import changed_files
from tests.fakes.fake_toolset import FakeToolset
from tests.fakes.fake_web import FakeWeb
from tests.fakes.home import move_in
from tests.fakes.memory_files import MemoryFileSystem
from tests.fakes.passing_time import all_tasks_blocked
from tests.fakes.repository import FakeRepository
from tests.fakes.scripted_http import Reply, ScriptedHttp
from tests.rows import each_row
from tests.unit.gates.ways import FolderShop, opened
from tests.unit.llm import streams

pytestmark = pytest.mark.anyio

SECRET = "ghp_fake"


class NothingBrought:
    """What users bring, where they bring nothing."""

    @property
    def extensions(self) -> Self:
        return self

    def offered(self) -> tuple[()]:
        return ()

    def hooks(self) -> None:
        return None


class Handler(SlashCommandHandler):
    """Answers with its own name and what it was asked."""

    def __init__(self, toolset: FakeToolset) -> None:
        self._toolset = toolset
        needs: Any = NothingBrought()
        self._needs = needs
        self.restricted = False
        self.fails = False
        self.told_ran: list[tuple[str, str]] = []

    def available(self) -> frozenset[CommandName]:
        return ALWAYS | {CommandName.MCP}

    async def prepare(self, *, ask: bool) -> None:
        """Nothing was brought."""

    def expand(self, name: str, argument: str) -> None:
        return None

    def mentioned(self, texts: Sequence[str]) -> None:
        return None

    def limited_to(self, tools: object) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def reading_only(self) -> Generator[None]:
        self.restricted = True
        try:
            yield
        finally:
            self.restricted = False

    def ran(self, command: str, output: str) -> None:
        self.told_ran.append((command, output))

    def status(self) -> Sequence[str]:
        return ("fine",)

    def servers(self) -> Sequence[str]:
        return ()

    def cost(self) -> Sequence[str]:
        return ()

    async def compact(self, focus: str) -> str:
        if self.fails:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, "nothing to sum up")
        return f"compact {focus}"

    async def clear(self) -> str:
        return "cleared"

    async def model(self, text: str) -> str:
        return f"model {text} ![x](https://evil.example/?q=1)"

    def mode(self, text: str) -> str:
        return f"mode {text} {SECRET}"

    async def memory(self, text: str) -> str:
        return f"memory {text}"

    async def policy(self, text: str) -> str:
        return f"policy {text}"


class SlowWeb(FakeWeb):
    def __init__(self, wait: Callable[[str], Awaitable[None]]) -> None:
        super().__init__()
        self.wait = wait

    async def get(self, *arguments: Any, **options: Any) -> Any:
        await self.wait("pages")
        return await super().get(*arguments, **options)


class Talk:
    """An engine, all that its loop was asked, and all that it told."""

    def __init__(self, bash: Any = "done") -> None:
        self.events: list[Event] = []
        self.asked: list[tuple[str, bool]] = []
        self.failure: AgentError | None = None
        self.unset = False
        self.hangs = False
        self.toolset = FakeToolset({"bash": bash if callable(bash) else lambda _: bash}, mutating=["bash"])
        self.desk = Handler(self.toolset)
        self.diagnosed = 0
        self.waits = ""
        self.waiting = anyio.Event()
        self.begun: list[str] = []
        self.engine = TurnEngine(
            self._loop,
            self._backends,
            self._emit,
            self.desk,
            self.begun.append,
            redact=lambda text: text.replace(SECRET, "[REDACTED]"),
            diagnostics=self._complaints,
        )

    async def _wait(self, where: str) -> None:
        if self.waits == where:
            self.waiting.set()
            await anyio.sleep_forever()

    async def _complaints(self) -> str:
        self.diagnosed += 1
        await self._wait("complaints")
        return ""

    async def _loop(self) -> "Talk":
        if self.unset:
            raise AgentError("no model is configured")
        return self

    async def run(self, prompt: Message, facts: str) -> StopReason:
        assert not facts
        self.asked.append((prompt.text, self.desk.restricted))
        if self.hangs:
            await anyio.sleep_forever()
        return StopReason.END_TURN

    async def _backends(self) -> Backends:
        await self._wait("backends")
        nothing: Any = None
        return Backends(
            MemoryFileSystem({"src/a b/c.py": "x", "docs/d.md": "x"}),
            nothing,
            programs=nothing,
            web=SlowWeb(self._wait),
        )

    async def _emit(self, event: Event) -> None:
        self.events.append(event)

    async def say(self, *texts: str | dict[str, Any]) -> str:
        """What the user reads of one prompt. A text stands for its block."""
        before = len(self.events)
        prompt: Any = [{"type": "text", "text": text} if isinstance(text, str) else text for text in texts]
        answer = await self.engine.answer(partial(read_prompt, {"sessionId": "s", "prompt": prompt}))
        assert answer.reason is StopReason.END_TURN
        return "".join(event.text for event in self.events[before:] if isinstance(event, TextDelta))


@each_row(
    "text, told",
    [
        ("/compact tests", "compact tests"),
        ("/status", "- fine"),
        ("/mcp", "This session has no MCP servers."),
        ("/cost", "No model was asked yet."),
        ("/memory search a b", "memory search a b"),
        ("/policy", "policy "),
        ("/tools", "Tools in this mode:\n\n- `bash` The bash tool"),
        ("/run", "Usage: `/run COMMAND`"),
        ("/clear", "cleared"),
        ("/mode ask", "mode ask [REDACTED]"),
        ("/model x", "model x ![x]\\(https://evil.example/?q=1)"),
    ],
)
async def test_a_command_is_answered_and_the_model_never_hears_of_it(text: str, told: str):
    talk = Talk()
    assert await talk.say(text) == told
    assert talk.asked == []
    assert talk.diagnosed == 0


async def test_a_sentence_that_begins_like_a_command_forgets_nothing():
    talk = Talk()
    told = await talk.say("/clear the build folder and rebuild")
    assert told.startswith("Nothing was done: `/clear` takes no argument.")
    assert "leave out the slash" in told
    assert talk.asked == []


async def test_the_turn_of_a_scheduled_prompt_is_on_record_however_it_ends():
    due = DuePrompt("d1", "/clear", "run the tests", "Scheduled.", {"id": 7})
    for failure, unset, hangs, text in (
        (None, False, False, ""),
        (ToolError(ToolErrorCategory.TIMEOUT, "the model is slow"), False, False, "the model is slow"),
        (None, True, False, "no model is configured"),
        (None, False, True, "cancelled"),
    ):
        talk, recorded = Talk(), list[tuple[ToolCall, ToolResult]]()
        talk.failure, talk.unset, talk.hangs = failure, unset, hangs
        talk.desk.record = lambda call, result, _, recorded=recorded: recorded.append((call, result))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.engine.carry_out, due)
            await all_tasks_blocked()
            tasks.cancel_scope.cancel()
        ((call, result),) = recorded
        assert (call.id, call.name, call.arguments) == ("d1", "schedule", {"id": 7})
        assert (result.failure.message if result.failure else "") == text
        assert talk.asked == ([] if unset else [("/clear", False)]), "its text is no command"
        assert talk.begun == ["/schedule"]


async def test_the_turn_of_a_scheduled_prompt_that_a_bug_ends_is_no_success_on_record():
    talk, recorded = Talk(), list[ToolResult]()

    async def prepare(*, ask: bool) -> None:
        raise RuntimeError(f"a bug: {ask}")

    talk.desk.prepare = prepare
    talk.desk.record = lambda call, result, _: recorded.append(result)
    with pytest.raises(RuntimeError, match="a bug"):
        await talk.engine.carry_out(DuePrompt("d1", "/clear", "run the tests", "Scheduled.", {"id": 7}))
    assert [result.failure and result.failure.message for result in recorded] == ["ended by an error"]


ATTACHED = {"type": "resource", "resource": {"uri": "file:///a", "text": "1 = 2"}}
AS_READ = '<resource uri="file:///a">\n1 = 2\n</resource>'


async def test_what_is_attached_to_a_command_of_the_user_goes_to_the_model_with_it():
    talk = Talk()
    talk.desk.expand = lambda name, argument: Expansion(f"Explain {argument}.") if name == "explain" else None
    await talk.say("/explain this", ATTACHED, "in short")
    assert talk.asked == [(f"Explain this.\n{AS_READ}\nin short", False)]


async def test_what_is_attached_to_a_task_for_a_sub_agent_goes_to_it():
    talk, given = Talk(), list[tuple[str, str]]()

    async def give(agent: str, task: str) -> str:
        given.append((agent, task))
        return "done"

    talk.desk.mentioned = lambda texts: commands.mentioned(texts, ["explore"])
    talk.desk.give = give
    assert await talk.say("@explore find it", ATTACHED, "in short") == "done"
    await talk.say("@explore")
    await talk.say("System note: you are in JupyterLab.", "@explore find it", ATTACHED)
    assert given == [
        ("explore", f"find it\n{AS_READ}\nin short"),
        ("explore", ""),
        ("explore", f"find it\n{AS_READ}"),
    ]


async def test_the_words_of_a_handoff_stand_in_the_place_of_the_command_and_of_jupyters_note():
    talk = Talk()

    async def handoff(text: str) -> Expansion:
        return Expansion(f"You are {text}.")

    talk.desk.handoff = handoff
    await talk.say("System note: you are in JupyterLab.", "/handoff guide", ATTACHED)
    await talk.say("/handoff guide", ATTACHED)
    assert talk.asked == [(f"You are guide.\n{AS_READ}", False)] * 2


async def test_help_lists_what_is_available_and_only_that():
    told = await Talk().say("/help")
    assert "`/mcp`" in told
    assert "/memory" not in told


async def test_what_a_command_cannot_do_is_told():
    talk = Talk()
    talk.desk.fails = True
    assert await talk.say("/compact") == "nothing to sum up"


async def test_an_unknown_command_goes_to_the_model_and_a_misspelt_one_gets_a_hint():
    talk = Talk()
    assert await talk.say("/etc/hosts is odd") == ""
    assert "Did you mean `/clear`?" in await talk.say("/claer")
    assert talk.asked == [("/etc/hosts is odd", False)]


async def test_every_prompt_is_told_first_as_it_was_sent_without_secrets():
    talk = Talk()
    await talk.say(f"look {SECRET}", "b")
    await talk.say("/help")
    told = [event.parts for event in talk.events if isinstance(event, UserMessage)]
    assert told == [(TextPart("look [REDACTED]"), TextPart("b")), (TextPart("/help"),)]
    assert isinstance(talk.events[0], UserMessage)


async def test_what_the_user_ran_is_said_at_once_wherever_the_next_turn_runs():
    talk = Talk()
    await talk.say("/run ls")
    assert talk.desk.told_ran == [("ls", "done")]
    await talk.say("go on")
    assert talk.asked == [("go on", False)]


@pytest.mark.parametrize("waits", ["backends", "pages", "complaints"])
async def test_a_prompt_that_is_cancelled_while_it_is_read_was_said(waits: str):
    talk = Talk()
    talk.waits = waits
    blocks: list[Any] = [
        {"type": "text", "text": f"precious {SECRET} @diagnostics"},
        {"type": "resource_link", "uri": "https://e.example/", "name": "e"},
    ]
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.engine.answer, partial(read_prompt, {"sessionId": "s", "prompt": blocks}))
            await talk.waiting.wait()
            scope.cancel()
    [told] = talk.events
    assert isinstance(told, UserMessage)
    assert told.parts == (TextPart("precious [REDACTED] @diagnostics"), LinkPart("https://e.example/", "e"))
    assert talk.begun == [f"precious {SECRET} @diagnostics\nhttps://e.example/"]


async def test_a_prompt_that_is_cancelled_as_soon_as_it_has_come_was_said():
    talk = Talk()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await talk.say("precious")
    assert [type(event) for event in talk.events] == [UserMessage]


async def test_a_prompt_without_a_model_is_told_what_to_do():
    talk = Talk()
    talk.unset = True
    assert await talk.say("hello") == "no model is configured"


# ------------------------------------------------------------------------------------------- /review


def ran(stdout: str, code: int = 0) -> ToolResult:
    return ToolResult(stdout, envelope={"stdout": stdout, "exit_code": code})


def in_a_repository(changes: str, code: int = 0) -> Callable[[ToolCall], ToolResult]:
    """A shell in an ordinary repository: what git says of it, and of what has changed."""

    def shell(call: ToolCall) -> ToolResult:
        command = str((call.arguments or {})["command"])
        if "rev-parse" in command:
            return ran("true\n/work\n/work/.git\nworktree /work\nHEAD 0\n")
        return ran("") if command.startswith("find ") else ran(changes, code)

    return shell


async def test_a_review_is_a_turn_in_which_the_model_can_only_read():
    talk = Talk(in_a_repository(" M a.py\n-one\n+two\n"))
    assert await talk.say("/review") == ""
    [(asked, restricted)] = talk.asked
    assert restricted
    assert not talk.desk.restricted
    assert "+two" in asked
    assert {call.origin for call in talk.toolset.calls} == {CallOrigin.USER}


async def test_changes_in_which_a_message_of_git_is_quoted_are_reviewed():
    talk = Talk(in_a_repository("+fatal: bad revision 'HEAD'\n"))
    assert await talk.say("/review") == ""
    assert "+fatal: bad revision" in talk.asked[0][0]


async def test_a_review_of_a_path_runs_nothing():
    talk = Talk()
    for paths in ("src/a b/../a b/c.py", "docs src", "."):
        assert await talk.say(f"/review {paths}") == ""
        asked, restricted = talk.asked.pop()
        assert restricted
        assert asked.startswith(f"Review what is at `{paths}`.")
    assert talk.toolset.calls == []


@pytest.mark.parametrize(("path", "told"), [("nope/x.py", "nope/x.py"), ("docs and src", "and"), ("docs/d.mx", "d.mx")])
async def test_a_review_of_nothing_asks_nobody(path: str, told: str):
    talk = Talk()
    said = await talk.say(f"/review {path}")
    assert said.startswith("There is nothing at `")
    assert f"{told}`: `/review PATH` expects a path" in said
    assert talk.asked == []


@each_row("path", ["a;b", "a`b`", "ä", "$(x)", "a\nb", "x" * 513, "~"])
async def test_a_review_takes_nothing_but_a_plain_path(path: str):
    talk = Talk()
    assert (await talk.say(f"/review {path}")).startswith("Usage: `/review PATH`")
    assert talk.asked == []


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (in_a_repository(""), "There are no uncommitted changes."),
        (ran("fatal: not a git repository", 128), "cannot be seen: git exited with code 128"),
        (in_a_repository("fatal: bad revision 'HEAD'", 128), "cannot be seen: the repository has no commit yet"),
        (
            ToolResult.failed(ToolFailure(ToolErrorCategory.POLICY_BLOCKED, "'bash' is not available in ask mode")),
            "cannot be seen: 'bash' is not available in ask mode",
        ),
    ],
)
async def test_without_changes_to_see_the_model_is_not_asked(result: Any, why: str):
    talk = Talk(result)
    told = await talk.say("/review")
    assert why in told
    assert "`/review PATH`" in told
    assert talk.asked == []


async def test_a_review_that_is_cancelled_leaves_the_next_turn_free():
    talk = Talk()
    talk.hangs = True
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.say, "/review src")
            while not talk.asked:
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    assert talk.asked[0][1]
    assert not talk.desk.restricted


async def test_what_is_left_out_of_a_prompt_is_told():
    talk = Talk()
    blocks: Any = [{"type": "text", "text": "a"}, {"type": "audio", "data": "", "mimeType": "audio/wav"}]
    await talk.engine.answer(partial(read_prompt, {"sessionId": "s", "prompt": blocks}))
    assert any(isinstance(event, Notice) and "audio" in event.text for event in talk.events)


CONFIG = """
[llm]
model = "p:m"

[[llm.providers]]
name = "p"
type = "openai"
base_url = "{url}/v1"
"""


class ShopWithModels(FolderShop):
    """With the models of the configuration, beside the turns of another session."""

    def __init__(self, folder: str, start: Callable[..., object]) -> None:
        super().__init__(folder, start)
        self.other = TurnSlot()
        self.quiet = IdleWaiter(lambda: [self.other], patience=60)
        self.looked = anyio.Event()

    def catalog(self, settings: LlmSettings) -> Catalog:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Catalog.of(settings, {}, self.credentials)

    def folder_look(self, *_: Any) -> FolderLook:
        self.looked.set()
        return super().folder_look()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    move_in(monkeypatch, tmp_path)
    (tmp_path / "work").mkdir()
    return tmp_path.resolve()


async def test_no_model_is_asked_before_the_prompt_is_stored(home: Path):
    repository = FakeRepository()
    repository.held = anyio.Event()
    async with ScriptedHttp([Reply.stream(streams.openai(text=["hello"]))]) as server:
        (home / "config.toml").write_text(CONFIG.format(url=server.url))
        async with (
            opened(Client(), home / "work", home, shop_of=ShopWithModels) as here,
            anyio.create_task_group() as tasks,
        ):
            here.session.transcript.store_in(repository)
            tasks.start_soon(here.prompted, "go")
            await repository.waiting.wait()
            with anyio.move_on_after(0.3):
                await server.received.wait()
            early = len(server.requests)
            repository.held.set()
            with anyio.fail_after(10):
                await server.received.wait()
            assert isinstance(repository.kept[0], UserMessage)
        assert early == 0


async def test_a_disk_that_hangs_under_a_prompt_does_not_stop_the_event_loop(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    looking, answers, answered = threading.Event(), threading.Event(), list[bool]()

    def hang(_path: str) -> bool:
        looking.set()
        answered.append(answers.wait(5))
        return False

    monkeypatch.setattr(changed_files, "_is_large_file", hang)
    async with ScriptedHttp([Reply.stream(streams.openai(text=["hello"]))]) as server:
        (home / "config.toml").write_text(CONFIG.format(url=server.url))
        async with (
            opened(Client(), home / "work", home, shop_of=ShopWithModels) as here,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(here.prompted, "go")
            assert await to_thread.run_sync(looking.wait, 10)
            answers.set()
            with anyio.fail_after(10):
                await server.received.wait()
    assert set(answered) == {True}


async def test_titles_and_looks_wait_for_the_turns_of_other_sessions(home: Path):
    (home / "config.toml").write_text(CONFIG.format(url="http://127.0.0.1:9"))
    shops: list[ShopWithModels] = []

    class Shop(ShopWithModels):
        def __init__(self, folder: str, start: Callable[..., object]) -> None:
            super().__init__(folder, start)
            shops.append(self)

    async with (
        opened(Client(), home / "work", home, shop_of=Shop) as here,
        anyio.create_task_group() as tasks,
    ):
        looked = shops[0].looked = anyio.Event()

        async def settled(_cancelled: bool) -> None:
            assert not looked.is_set()

        async with shops[0].other.turn(settled):
            tasks.start_soon(here.turn_ended)
            await all_tasks_blocked()
        with anyio.fail_after(10):
            await looked.wait()


async def test_turns_that_end_while_an_earlier_one_waits_are_finished_together_with_it():
    log, free = list[str](), anyio.Event()

    async def ended(answer: Answer) -> None:
        log.append(f"hooks {answer.reason}")

    async def titled(answer: Answer) -> None:
        log.append(f"title {answer.reason}")

    nothing: Any = SimpleNamespace()
    turns: Any = SimpleNamespace(answer=None, carry_out=None, look_around=lambda: log.append("look"))
    state: Any = SimpleNamespace(state=None, kept=None, redact=None)
    titles: Any = SimpleNamespace(answered=titled)
    handler: Any = SimpleNamespace(offered=None, status=None, turn_ended=ended)
    toolset: Any = SimpleNamespace(specs=None)
    mcp: Any = SimpleNamespace(connections=SimpleNamespace(listed=None), remove=None)
    engine = SessionEngine(turns, state, titles, handler, toolset, mcp, nothing, free.wait)
    cancelled, done = Answer(StopReason.CANCELLED), Answer(StopReason.END_TURN)
    finished = list[bool]()

    async def finish() -> None:
        finished.append(await engine.answered(cancelled))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(finish)
            await all_tasks_blocked()
            assert not await engine.answered(done), "an earlier call finishes this turn"
            assert log == ["hooks cancelled", "hooks end_turn"]
            free.set()
    assert finished == [True]
    assert log[2:] == ["look", "title cancelled", "title end_turn"]
    assert await engine.answered(done), "the next turn is finished by itself"
