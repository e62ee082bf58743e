"""The exact answers of small parts of a session."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from acp_agent.config.mcp_settings import McpServerSettings
from acp_agent.config.settings import Settings
from acp_agent.core.errors import (
    BackendUnavailable,
    ConfigError,
    ProviderError,
    RequestError,
    RequestFailed,
    SessionNotFound,
    StoreUnavailable,
    ToolError,
    ToolErrorCategory,
)
from acp_agent.core.session_options import AutoApprove, ModelChoice
from acp_agent.core.types import ToolResult
from acp_agent.extend.sources import SourceFile, SourceKind
from acp_agent.llm.catalog import ModelRef
from acp_agent.net.web import WebLimits
from acp_agent.session import extension_host, mcp_connections, model_choices, models
from acp_agent.session import manager as manager_module
from acp_agent.session import session as session_module
from acp_agent.session.engine import SessionEngine
from acp_agent.session.extension_host import ExtensionHost
from acp_agent.session.foreign_session import _plain, _words
from acp_agent.session.manager import DeferredRepository, SessionManager, evict_unused
from acp_agent.session.mcp_servers import _described
from acp_agent.session.model_choices import _named
from acp_agent.session.models import SessionModels
from acp_agent.session.pool import PendingLoads, SessionPool
from acp_agent.session.session import Session
from acp_agent.session.slash.commands import _is_clipped
from acp_agent.session.subagents import SessionSubAgents
from acp_agent.session.titles import TitleUpdater
from acp_agent.session.toolset import gate_factory, sandboxing, toolset
from acp_agent.session.toolset.backends import CleanUps, SessionBackends, _Fallback
from acp_agent.session.toolset.extensions import SessionExtensions
from acp_agent.session.toolset.settings import FolderRules
from acp_agent.session.toolset.toolset import SessionTools
from acp_agent.workspace.sandbox.sandbox import SandboxTier
from tests.fakes.passing_time import all_tasks_blocked
from tests.rows import each_row

pytestmark = pytest.mark.anyio


def made(kind: type, **parts: Any) -> Any:
    """Return an object of which nothing but these parts is made."""
    one = kind.__new__(kind)
    vars(one).update(parts)
    return one


def test_the_lines_of_a_foreign_sessions_texts_all_stay():
    assert (_plain("a\rb"), _words("a\rb")) == ("a\nb", "a\nb")


def test_a_result_says_whether_it_was_clipped():
    for envelope, clipped in ((None, False), ({}, False), ({"truncated": False}, False), ({"truncated": True}, True)):
        assert _is_clipped(ToolResult("x", envelope=envelope)) is clipped, envelope


def test_as_many_models_as_there_is_room_for_are_named_without_a_count_of_more():
    choices = [ModelChoice(f"m{number}", "") for number in range(model_choices._MOST_NAMED + 1)]
    assert _named(choices[:-1]) == ", ".join(choice.value for choice in choices[:-1])
    assert _named(choices) == f"{_named(choices[:-1])} and 1 more"


async def test_only_models_with_a_fallback_are_retried_briefly():
    async def tell(_: str) -> None: ...

    chain = [SimpleNamespace(name=name, model=name, context_window=1) for name in "abc"]
    catalog = SimpleNamespace(chain=lambda *_: chain)
    session = made(SessionModels, _configured=lambda: catalog, _counted=lambda _, model: model, _tell_status=tell)
    provider: Any = await session._asked([ModelRef("p", name) for name in "abc"])
    policies = [each._policy is models._IMPATIENT for each in provider._providers]
    assert policies == [True, True, False]


async def test_a_list_of_models_that_takes_too_long_is_said_to_be_late(monkeypatch: pytest.MonkeyPatch):
    async def asked(_: str) -> Any:
        raise TimeoutError

    lists = made(model_choices.KnownModels, _lists={}, version=0)
    with pytest.raises(ProviderError, match="p did not list its models within"):
        await lists._ask(SimpleNamespace(models=asked), "p", ())
    assert (lists._lists, lists.version) == ({}, 0)


async def test_a_backend_that_is_gone_for_good_is_not_asked_again():
    asked, told = list[str](), list[object]()

    async def fallen_back(error: BackendUnavailable) -> None:
        told.append(error)

    async def do(backend: str) -> str:
        asked.append(backend)
        if backend == "editor":
            raise error
        return backend

    for permanent, first in ((False, ["editor", "local"] * 2), (True, ["editor", "local", "local"])):
        error = BackendUnavailable("editor", "gone", permanent=permanent)
        backends = _Fallback(["editor", "local"], fallen_back)
        operation: Any = "read"
        assert [await backends.call(operation, do) for _ in range(2)] == ["local", "local"]
        assert (asked, told) == (first, [error]), permanent
        asked.clear()
        told.clear()


def test_rules_hold_for_their_own_configuration_and_folders_only(tmp_path):
    given: Any = object()
    folder = str(tmp_path)
    rules = made(FolderRules, given=given, folders=(folder,), _resolved=(folder,))
    assert rules.are_for(given, [folder])
    assert not rules.are_for(object(), [folder])
    assert not rules.are_for(given, [folder, "/"])
    vars(rules)["_resolved"] = ("/elsewhere",)
    assert not rules.are_for(given, [folder])


async def test_what_was_taken_back_is_brought_back_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch):
    asked = list[Any]()
    snapshots = SimpleNamespace(restore=lambda *given, redo: asked.append((*given, redo)) or "restored")
    monkeypatch.setattr(toolset, "report", lambda restored, cwd, *, redo: (restored, cwd, redo))
    cache = SimpleNamespace(changing=nullcontext)
    tools = made(
        SessionTools,
        watch=SimpleNamespace(limits="limits"),
        roots="roots",
        snapshots=snapshots,
        _cache=cache,
        _cwd="/w",
        _fault=None,
    )
    for redo in (True, False):
        assert await tools.restore(3, redo=redo) == ("restored", "/w", redo)
    assert asked == [("roots", "limits", 3, True), ("roots", "limits", 3, False)]


def test_what_a_turn_leaves_is_dropped_when_the_next_begins():
    log = list[str]()
    parts = {
        "_cache": SimpleNamespace(turn_began=lambda: log.append("cache")),
        "snapshots": SimpleNamespace(turn_began=lambda: log.append("snapshots")),
        "_folders": SimpleNamespace(close_replaced=lambda: log.append("folders")),
    }
    made(SessionTools, **parts).turn_began()
    assert log == ["cache", "snapshots", "folders"]


def test_pages_are_read_within_the_limits_of_the_configuration(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.session.toolset.backends.GuardedWeb", lambda limits, **more: (limits, more))
    scrape = SimpleNamespace(
        timeout=1.0, max_body_bytes=2, allowed_domains=("a",), denied_domains=("b",), ports=(8080,)
    )
    loaded = SimpleNamespace(settings=SimpleNamespace(tools=SimpleNamespace(scrape=scrape)))
    limits, more = SessionBackends.web(made(SessionBackends), loaded, None)  # type: ignore[arg-type, misc]
    del more["record"]
    assert limits == WebLimits(1.0, 2)
    assert more == {"allowed_domains": ("a",), "denied_domains": ("b",), "ports": (8080,)}


async def test_the_agents_that_can_be_given_a_task_and_their_runs_are_listed():
    listed = {
        "_library": SimpleNamespace(offered=lambda: ["own"]),
        "_others": SimpleNamespace(offered=lambda: ["other"]),
    }
    agents = made(SessionSubAgents, _made=None, **listed)
    assert (agents.offered(), agents.runs()) == (("own", "other"), ())
    agents._made = SimpleNamespace(runs=lambda: ["run"])
    assert agents.runs() == ["run"]


@each_row(
    "kind, text, told",
    [
        (
            SourceKind.COMMANDS,
            "---\ndescription: Fixes it.\nhooks:\n  pre_tool_use:\n    - command: x\n---\nx",
            "Fixes it.",
        ),
        (SourceKind.SKILLS, "---\ndescription: Lints.\n---\nx", "Lints."),
        (SourceKind.AGENTS, "---\nname: a\ndescription: Looks.\n---\nx", "Looks."),
        (
            SourceKind.AGENTS,
            "---\nname: a\ndescription: Looks.\nhooks:\n  pre_tool_use:\n    - command: x\n---\nx",
            "on pre_tool_use runs x; Looks.",
        ),
        (SourceKind.HOOKS, '[[pre_tool_use]]\ncommand="check"\n', "on pre_tool_use runs check"),
        (SourceKind.TOOLS, 'description="d"\ncommand="run"\n', 'runs "run": d'),
        (
            SourceKind.COMMANDS,
            "---\ndescription: a  secret\n---\nx",
            "a [gone]… [not all of it is shown: read the file before you answer]",
        ),
    ],
)
def test_a_file_that_waits_is_described_by_what_it_would_do(kind: SourceKind, text: str, told: str):
    file = SourceFile(kind, "one", "/u/one", "~/one", project=False, data=text.encode(), digest="")
    described = made(SessionExtensions, _clean=lambda words: words.replace("secret", "[gone]"))._described(file)
    assert described == f"{kind.value.removesuffix('s')} one (~/one): {told}"


async def test_files_about_which_nobody_answers_stay_unused():
    asked, refreshed = list[Any](), list[str]()
    failure: list[Exception] = []

    async def ask(*given: Any) -> None:
        asked.append(given)
        for each in failure:
            raise each

    extensions = made(
        SessionExtensions,
        _options=SimpleNamespace(auto_approve=AutoApprove.SUGGEST),
        sources=SimpleNamespace(ask=ask),
        _approver="approver",
        refresh=lambda: refreshed.append("refreshed"),
    )
    await extensions._ask()
    assert (asked, refreshed) == ([("approver", extensions._described)], ["refreshed"])
    failure.append(ToolError(ToolErrorCategory.TIMEOUT, "late"))
    await extensions._ask()
    assert (len(asked), refreshed) == (2, ["refreshed"])
    extensions._options.auto_approve = AutoApprove.FULL_AUTO
    await extensions._ask()
    assert len(asked) == 2


def test_only_the_first_prompt_gives_a_title():
    session = SimpleNamespace(id="s", transcript=SimpleNamespace(rename=(renamed := list[str]()).append))
    writer = SimpleNamespace(first=lambda typed, _: typed.upper())
    for done, title, prompt, named in (
        (False, "", "", ["WORDS"]),
        (True, "", "", []),
        (False, "A title", "", []),
        (False, "", "earlier", []),
    ):
        parts = {"_session": session, "_writer": writer, "_background": len, "_beginning": 0}
        updater = made(TitleUpdater, _done=done, _title=title, _prompt=prompt, **parts)
        updater._background = lambda _: None
        updater.began("words")
        assert renamed == named, (done, title, prompt)
        renamed.clear()


async def test_all_sessions_are_stored_within_the_same_time():
    flushed = list[Any]()

    def session(name: str) -> Any:
        async def flush(**given: Any) -> None:
            flushed.append((name, given))

        return SimpleNamespace(transcript=SimpleNamespace(flush=flush))

    manager = made(SessionManager, _known={name: session(name) for name in "ab"})
    await manager.flush(within=1.0, patience=2.0)
    assert flushed == [(name, {"within": 1.0, "patience": 2.0}) for name in "ab"]


async def test_a_session_that_is_loaded_is_resident_only_if_its_answer_was_sent_and_there_is_room():
    log = list[Any]()

    def session(name: str) -> Any:
        return SimpleNamespace(
            turns=SimpleNamespace(busy=False),
            transcript=SimpleNamespace(store=lambda change: log.append((change.cwd, change.additional))),
            suspend=lambda: log.append("suspend"),
            resumed=lambda: log.append("resumed"),
            reopen=lambda *given: log.append(("reopen", *given)),
            name=name,
        )

    class Pool:
        found = stored = True

        async def is_stored(self, _: str) -> bool:
            return self.stored

        @asynccontextmanager
        async def room(self, _: str, *, instead_of: Any) -> AsyncIterator[bool]:
            log.append(("room", instead_of and instead_of.name))
            yield self.found

        async def evict(self, session: Any) -> None:
            log.append(("evict", session.name))

        async def replace(self, session: Any) -> None:
            log.append(("replace", session.name))

    async def opened(*_: Any) -> Any:
        return session("opened")

    workspace = SimpleNamespace(cwd="/w", additional=("/x",))
    connection = SimpleNamespace(session=lambda *given: ("connected", *given))
    told, opened_now = ("/w", ("/x",)), ["suspend"]
    reopened = ("reopen", workspace, ("connected", "s", "/w"))
    for before, stored, found, failure, expected in (
        (None, True, True, None, [("room", None), *opened_now, told, "resumed"]),
        (None, True, False, None, [("room", None), *opened_now, told, ("evict", "opened")]),
        (None, True, True, KeyError, [("room", None), *opened_now, told, ("evict", "opened")]),
        ("old", True, True, None, [("room", "old"), ("replace", "old"), *opened_now, told, "resumed"]),
        ("old", False, True, None, [("room", "old"), ("evict", "old"), reopened, told, "resumed"]),
    ):
        pool = Pool()
        pool.stored, pool.found = stored, found
        known = {} if before is None else {"s": session(before)}
        manager = made(SessionManager, _known=known, _pool=pool, _opened=opened)
        log.clear()
        with nullcontext() if failure is None else pytest.raises(failure):
            async with manager._loaded("s", workspace, connection):
                if failure is not None:
                    raise failure
        assert log == expected, (before, stored, found, failure)


def noting(log: list[str], name: str) -> Callable[..., Awaitable[None]]:
    """Return a function that notes its name."""

    async def note(*_: object) -> None:
        log.append(name)

    return note


async def test_options_are_stored_before_that_is_answered_unless_the_session_was_opened_again():
    log = list[str]()
    transcript = SimpleNamespace(save=noting(log, "save"))
    for resident, known, expected in ((True, True, ["save"]), (False, True, ["pool"]), (False, False, [])):
        session: Any = SimpleNamespace(id="s", resident=resident, transcript=transcript, store_options=lambda: None)
        manager = made(
            SessionManager,
            _acts=SimpleNamespace(hold=lambda _: nullcontext_async()),
            _known={"s": session if known else None},
            _pool=SimpleNamespace(store_options=noting(log, "pool")),
        )
        log.clear()
        await manager.store_options(session)
        assert log == expected, (resident, known)


async def test_an_engine_ends_all_that_it_has_begun():
    log = list[str]()
    engine = made(
        SessionEngine,
        _titles=SimpleNamespace(close=lambda: log.append("titles")),
        _handler=SimpleNamespace(session_ended=noting(log, "hooks")),
        _mcp=SimpleNamespace(connections=SimpleNamespace(close=lambda: log.append("servers"))),
        _tools=SimpleNamespace(end=noting(log, "tools")),
    )
    await engine.close()
    assert log == ["titles", "hooks", "servers", "tools"]


async def test_nothing_can_be_forked_where_nothing_is_stored():
    acts = SimpleNamespace(hold=lambda _: nullcontext_async())
    manager = made(SessionManager, store=None, _acts=acts, _known={})
    with pytest.raises(SessionNotFound):
        await manager.fork("s", None, None)


@asynccontextmanager
async def nullcontext_async() -> AsyncIterator[None]:
    yield


async def test_what_is_stored_of_a_session_that_was_not_written_at_first_is_read_from_the_store():
    async def snapshot() -> str:
        return "saved"

    assert await made(DeferredRepository, _repository=SimpleNamespace(snapshot=snapshot)).snapshot() == "saved"


async def test_a_session_moves_as_one_that_is_resident_and_tells_the_new_problems_of_its_folder():
    log = list[Any]()

    async def resume(_: Any) -> None:
        log.append("resume")

    async def move(session_id: str, cwd: str, moved: Callable[[], None]) -> None:
        log.append((session_id, cwd))
        moved()

    session = SimpleNamespace(
        workspace=SimpleNamespace(cwd="/old"),
        notices=SimpleNamespace(warn=log.append),
        apply_config=lambda loaded: log.append(loaded.name),
        store_options=lambda: log.append("store"),
    )

    async def opened(_: str) -> Any:
        return session

    def configured(cwd: str) -> Any:
        return SimpleNamespace(name=cwd, problems=("both",) if cwd == "/old" else ("both", "new"))

    host = made(
        ExtensionHost, _open=opened, _resume=resume, _configured=configured, _sessions=SimpleNamespace(move=move)
    )
    await host.move("s", "/new")
    assert log == ["resume", ("s", "/new"), "/new", "store", "configuration: new"]


async def test_the_rounds_of_an_evaluation_are_shown_as_progress_of_its_call(monkeypatch: pytest.MonkeyPatch):
    async def evaluated(task: Any, give: Any, tell: Any) -> Any:
        await tell("round 1")
        return task, await give("general", "do it")

    shown = list[Any]()

    async def progress(event: Any) -> None:
        shown.append((event.call_id, event.output))

    async def run(*given: Any) -> Any:
        return given

    monkeypatch.setattr("acp_agent.subagents.quality_gates.evaluated", evaluated)
    parent: Any = SimpleNamespace(id="c1", progress=progress)
    agents = made(SessionSubAgents, _runs=lambda: SimpleNamespace(run=run), _worker="worker")
    assert await agents.evaluate("task", parent) == ("task", ("general", "do it", parent, "worker"))
    assert shown == [("c1", "\n\nround 1\n\n")]


async def test_a_load_ends_once_however_often_that_is_said():
    loads = PendingLoads()
    with loads.loading("one") as end, loads.loading("one"):
        end()
        end()
        with anyio.move_on_after(0.01) as waiting:
            await loads.wait("one")
        assert waiting.cancelled_caught
    assert await loads.wait("one")


async def test_a_session_is_opened_where_files_can_be_opened_when_others_are_evicted(monkeypatch: pytest.MonkeyPatch):
    can_open, evicted = [False, True, False], list[object]()

    async def evict_oldest(spared: object) -> bool:
        evicted.append(spared)
        return len(evicted) == 1

    monkeypatch.setattr("acp_agent.session.pool.can_open", lambda _: can_open.pop(0))
    pool = made(
        SessionPool, known={}, _opening=0, _limits=lambda: SimpleNamespace(resident=1), _evict_oldest=evict_oldest
    )
    assert await pool._make_room(("s",), None, patient=False) is True
    with pytest.raises(RequestError, match="too many files are open"):
        await pool._make_room(("s",), None, patient=False)
    assert evicted == [("s",), ("s",)]


async def test_a_session_goes_on_only_while_its_lock_is_held():
    log = list[str]()
    manager = made(SessionManager, _lock=SimpleNamespace(check=log.append))
    await manager.resume(SimpleNamespace(id="s", resident=True))
    assert log == ["s"]


async def test_idle_sessions_are_evicted_while_that_is_wanted(monkeypatch: pytest.MonkeyPatch):
    seconds, log = [0.0, 60.0], list[object]()

    class Ended(Exception):
        """The end of the test."""

    async def sleep(_: float) -> None:
        if not seconds:
            raise Ended

    async def evict_idle(idle: float) -> None:
        log.append(idle)

    monkeypatch.setattr("acp_agent.session.manager.anyio.sleep", sleep)
    sessions: Any = SimpleNamespace(
        limits=lambda: SimpleNamespace(idle_seconds=seconds.pop(0)),
        share_evicted=lambda: log.append("share"),
        evict_idle=evict_idle,
    )
    with pytest.raises(Ended):
        await evict_unused(sessions)
    assert log == ["share", "share", 60.0]


async def test_only_an_agent_that_a_quality_gate_asks_works_without_the_gates_and_without_a_place():
    async def run(*given: Any, judges: bool) -> Any:
        return given[-1], judges

    agents, other = made(SessionSubAgents, _runs=lambda: SimpleNamespace(run=run), _worker="worker"), (None, False)
    for gates, workers in ((None, [other, other]), (SimpleNamespace(calls=["gate"]), [("worker", True), other])):
        agents._gates = gates
        assert [await agents.run("scout", "look", SimpleNamespace(id=each)) for each in ("gate", "model")] == workers


async def test_a_session_that_is_opened_again_is_closed_and_its_lock_is_free_for_that():
    log = list[str]()

    class Lock:
        @asynccontextmanager
        async def taken(self, session_id: str) -> AsyncIterator[None]:
            log.append(f"take {session_id}")
            yield
            log.append(f"leave {session_id}")

        def release(self, session_id: str) -> None:
            log.append(f"release {session_id}")

    def noted(what: str) -> Any:
        async def note(**given: Any) -> None:
            log.append(f"{what} {given}")

        return note

    for stored, expected in (
        (True, ["take s", "flush {}", "close {'tell': False}", "leave s", "release s"]),
        (False, ["take s", "flush {}"]),
    ):
        before: Any = SimpleNamespace(
            id="s",
            chosen_while_evicted=False,
            transcript=SimpleNamespace(stored=stored, flush=noted("flush")),
            turns=SimpleNamespace(busy=False),
            close=noted("close"),
        )
        pool = made(SessionPool, _lock=Lock(), known={"s": before})
        with nullcontext() if stored else pytest.raises(RequestFailed):
            await pool.replace(before)
        assert (log, pool.known) == (expected, {} if stored else {"s": before}), stored
        log.clear()


async def test_other_requests_for_a_session_that_is_loaded_wait_until_it_is_known_and_no_longer():
    class Acts:
        hold = staticmethod(lambda _: nullcontext_async())

        def __contains__(self, _: str) -> bool:
            return False

    @asynccontextmanager
    async def loaded(*_: Any) -> AsyncIterator[str]:
        assert "s" in manager.loads._loading
        yield "loaded"

    parts = {"_acts": Acts(), "_known": {}, "_loaded": loaded, "get": lambda _: "in memory"}
    for store, session in ((object(), "loaded"), (None, "in memory")):
        manager = made(SessionManager, store=store, loads=PendingLoads(), **parts)
        async with manager.load("s", None, None) as found:
            assert (found, {**manager.loads._loading}) == (session, {}), store


async def test_unused_sessions_that_cannot_be_removed_stay():
    async def purge_unused(days: int, in_use: Any) -> int:
        asked.append((days, in_use))
        for each in failure:
            raise each
        return 1

    asked, failure = list[Any](), list[Exception]()
    for failing in ([], [StoreUnavailable("locked")]):
        failure[:] = failing
        await manager_module.purge_unused(made(SessionManager, store=SimpleNamespace(purge_unused=purge_unused)))
    await manager_module.purge_unused(made(SessionManager, store=None))
    assert [days for days, _ in asked] == [manager_module._UNUSED_DAYS] * 2


async def test_a_session_is_looked_for_in_the_store_once_its_last_events_are_there():
    log = list[str]()

    async def flush() -> None:
        log.append("flush")

    class Found(Exception):
        pass

    async def find(_: str) -> Any:
        log.append("find")
        raise Found

    before = SimpleNamespace(resident=True, transcript=SimpleNamespace(flush=flush, stored=True))
    pool = made(SessionPool, known={"s": before}, _store=SimpleNamespace(find=find))
    with pytest.raises(Found):
        await pool.is_stored("s")
    assert log == ["flush", "find"]


@each_row("resident, stored, fails", [(True, True, False), (False, False, False), (False, True, True)])
async def test_a_session_that_only_this_process_has_whole_opens_while_the_store_cannot_be_read(
    resident: bool, stored: bool, fails: bool
):
    async def flush() -> None:
        pass

    async def find(_: str) -> Any:
        raise StoreUnavailable("locked")

    before = SimpleNamespace(resident=resident, transcript=SimpleNamespace(flush=flush, stored=stored))
    pool = made(SessionPool, known={"s": before}, _store=SimpleNamespace(find=find))
    if fails:
        with pytest.raises(RequestError):
            await pool.is_stored("s")
    else:
        assert await pool.is_stored("s") is False


def test_a_question_about_a_server_of_the_project_shows_what_its_entry_says_and_nothing_else():
    entry = McpServerSettings(name="theirs", command="prog", args=("-x",))
    shown = 'theirs would start the program prog: {"args": ["-x"], "command": "prog", "name": "theirs"}'
    assert _described(entry) == shown
    entry = McpServerSettings(name="theirs", url="https://x.org/mcp")
    assert _described(entry).startswith("theirs would reach https://x.org/mcp: {")


async def test_the_end_of_a_cancelled_turn_waits_only_a_moment_for_the_store():
    log = list[Any]()

    async def flush(**given: Any) -> None:
        log.append(given)

    async def tell(*given: Any) -> None:
        log.append(given)

    session = made(
        Session,
        transcript=SimpleNamespace(flush=flush),
        notices=SimpleNamespace(tell=tell),
        emit="emit",
        redact="redact",
    )
    for cancelled, within in ((True, session_module._CANCELLED_FLUSH), (False, None)):
        await session._end_turn(cancelled)
        assert log == [{"within": within, "touch": True}, ("emit", "redact")]
        log.clear()


def test_an_unusable_list_of_variables_leaves_a_sandbox_with_the_usual_ones(monkeypatch: pytest.MonkeyPatch):
    asked = list[Any]()

    def environment(environ: Any, extra: Any = ()) -> Any:
        asked.append(extra)
        if extra:
            raise ConfigError("tools.shell", "env_allow", "x", "a variable")
        return {"A": "1"}

    monkeypatch.setattr(sandboxing, "child_environment", environment)
    monkeypatch.setattr(sandboxing, "sandbox_tier", lambda _: SandboxTier.BUBBLEWRAP)
    monkeypatch.setattr(sandboxing, "SessionSandbox", lambda *given, **named: (given, sorted(named)))
    settings = Settings.model_validate({"tools": {"shell": {"env_allow": ["x"]}}})
    made_of: Any = sandboxing.session_sandbox("walls", settings, len, len)  # type: ignore[arg-type]
    assert made_of == (("walls", {"A": "1"}, SandboxTier.BUBBLEWRAP), ["proxy"])
    assert asked == [("x",), ()]


def test_the_editors_terminal_has_what_the_session_gives_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    given = list[Any]()
    backends = made(
        SessionBackends,
        _settings=Settings.model_validate({"acp": {"terminal_timeout_secs": 11, "request_timeout_secs": 22}}),
        sandbox=None,
        _editor=SimpleNamespace(terminal=given.append),
        _watchdog="watchdog",
        _redact="redact",
        clean_ups=SimpleNamespace(start="start"),
        programs="programs",
    )
    assert backends._any_terminal("folder") == "programs"
    (settings,) = given
    assert (settings.script_folder, settings.shell, settings.watchdog, settings.redact, settings.contain) == (
        *("folder", "sh", "watchdog", "redact"),
        None,
    )
    assert (settings.timeout, settings.request_timeout, settings.background) == (11, 22, "start")


async def test_what_cleans_up_is_waited_for_until_all_of_it_is_over():
    started, log = list[Any](), list[str]()
    clean_ups = CleanUps(started.append)
    may_end = anyio.Event()

    async def clean_up() -> None:
        await may_end.wait()
        log.append("cleaned up")

    async def wait() -> None:
        await clean_ups.over()
        log.append("over")

    await clean_ups.over()
    clean_ups.start(clean_up)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(started[0])
        await all_tasks_blocked()
        assert log == []
        may_end.set()
    assert log == ["cleaned up", "over"]


async def test_a_connection_that_crashes_ends_alone_and_its_tools_are_listed_in_part(monkeypatch: pytest.MonkeyPatch):
    logged = list[Any]()
    log = SimpleNamespace(error=lambda *given, **named: logged.append((*given, named)))
    monkeypatch.setattr(mcp_connections, "_log", log)

    async def run() -> None:
        raise KeyError("a bug")

    connection: Any = SimpleNamespace(run=run, server=SimpleNamespace(name="theirs"))
    await mcp_connections._run(connection)
    assert logged == [("MCP connection crashed", {"exc_info": True, "server": "theirs"})]
    tools: list[Any] = [
        SimpleNamespace(definition=SimpleNamespace(name=f"t{number}")) for number in range(mcp_connections._MOST_LISTED)
    ]
    named = ", ".join(tool.definition.name for tool in tools)
    assert (mcp_connections._listed(()), mcp_connections._listed(tools)) == ("", f": {named}")
    assert mcp_connections._listed([*tools, tools[0]]) == f": {named} and 1 more"


async def test_an_audit_that_cannot_be_read_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch):
    def last_of(file: str, session_id: str, count: int) -> Any:
        assert (file, session_id, count) == ("audit.jsonl", "s", 3)
        raise PermissionError(13, "no way")

    monkeypatch.setattr(extension_host, "last_of", last_of)
    monkeypatch.setattr(extension_host, "audit_file", lambda *_: "audit.jsonl")
    settings = SimpleNamespace(audit=SimpleNamespace(file=None))
    session = SimpleNamespace(transcript=SimpleNamespace(record=SimpleNamespace(cwd="/")))
    host = made(
        ExtensionHost,
        _sessions=SimpleNamespace(find=lambda _: session),
        _configured=lambda _: SimpleNamespace(settings=settings),
    )
    with pytest.raises(StoreUnavailable, match="the audit cannot be read: no way"):
        await host.audit("s", 3)


def test_answers_for_a_session_outlast_a_change_of_its_configuration(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gate_factory, "permission_rules", lambda *_: "rules")
    monkeypatch.setattr(gate_factory, "reads_everything", lambda _: "everything")
    monkeypatch.setattr(gate_factory, "permission_gate", lambda *given, **named: (given, named))
    monkeypatch.setattr(gate_factory, "build_gates", lambda *given, **named: (given, named))
    state: Any = SimpleNamespace(
        servers=None,
        elicitor="elicitor",
        grants="grants",
        approver="approver",
        memory=SimpleNamespace(answers="answers"),
    )
    given: Any = ("loaded", "context", state, "tools", "warn")
    found: Any = gate_factory.session_gates(*given)
    (_, _, permission, _), more = found
    assert permission == (
        ("rules", "context", "grants", "approver", gate_factory.ours),
        {"all_readable": "everything", "elicitor": "elicitor", "answers": "answers"},
    )
    assert more == {"tools": "tools", "state": state, "exists": gate_factory.unknown}
