"""What the server process connects with what, without serving an editor."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent import app as module
from acp_agent.app import App, _options, _strict_observer
from acp_agent.config.files import FRAMES_VARIABLE, STRICT_VARIABLE
from acp_agent.core.errors import ConfigError
from acp_agent.core.session_options import SessionOptions

pytestmark = pytest.mark.anyio


def made(**parts: Any) -> Any:
    """Return a server process of which nothing but these parts is made."""
    app: Any = App.__new__(App)
    vars(app).update(parts)
    return app


class Noted:
    """Notes which of its methods were called, with what. `failing` raises its error."""

    def __init__(self, log: list[Any], name: str, **failing: BaseException) -> None:
        self._log, self._name, self._failing = log, name, failing

    def __getattr__(self, method: str) -> Any:
        def call(*given: Any, **named: Any) -> None:
            self._log.append((f"{self._name}.{method}", *given, *named.items()))
            if method in self._failing:
                raise self._failing[method]

        return call


class Awaited(Noted):
    """The same with coroutines."""

    def __getattr__(self, method: str) -> Any:
        note = super().__getattr__(method)

        async def call(*given: Any, **named: Any) -> None:
            note(*given, **named)

        return call


async def test_the_keys_of_a_login_are_forgotten_with_and_without_the_services(monkeypatch: pytest.MonkeyPatch):
    log = list[Any]()
    monkeypatch.setattr(module, "CredentialStore", lambda environ: Noted(log, "store") if environ is os.environ else 1)
    made(_process=None)._forget_keys()
    made(_process=Noted(log, "process"))._forget_keys()
    assert log == [("store.forget",), ("process.forget_keys",)]


async def test_texts_are_redacted_as_soon_as_there_is_a_redactor():
    assert made(_process=None)._redact("a key") == "a key"
    assert made(_process=SimpleNamespace(redactor=str.upper))._redact("a key") == "A KEY"


async def test_every_session_hears_of_new_models_and_of_problems():
    log, problems = list[Any](), list[str]()
    sessions = [SimpleNamespace(post_options=lambda: log.append("options"), notices=Noted(log, "notices"))] * 2
    app = made(_sessions=SimpleNamespace(all=lambda: sessions), _problems=problems)
    app._models_listed()
    app._warn_all("a problem")
    assert (log, problems) == (["options"] * 2 + [("notices.warn", "a problem")] * 2, [])
    sessions.clear()
    app._warn_all("a problem")
    assert problems == ["a problem"]


async def test_early_problems_are_told_to_the_first_session_once():
    log, problems = list[Any](), ["one", "two"]
    session = SimpleNamespace(notices=Noted(log, "notices"), announce=str)
    tasks = SimpleNamespace(start=lambda task: log.append((task.func, *task.args)))
    app = made(_problems=problems, tasks=tasks, _sessions=SimpleNamespace(all_opened="all"))
    app._warm_up(session)
    assert (log, problems) == ([("notices.warn", "one"), ("notices.warn", "two"), (str, "all")], [])


async def test_without_a_place_for_the_database_nothing_is_stored_and_the_reason_is_known(
    monkeypatch: pytest.MonkeyPatch,
):
    def nowhere(environ: Any) -> str:
        raise ConfigError("", "database", "x", "a path")

    monkeypatch.setattr(module, "SessionManager", lambda *given: given)
    app = made(_make_session="make", _limits="limits", _database=None)
    store, locks, make, limits, *_, trouble = app._session_manager()
    assert (store is None, locks is None, make, limits(), trouble) == (False, False, "make", "limits", "")
    assert app._database is not None
    monkeypatch.setattr(module, "database_file", nowhere)
    store, locks, *_, trouble = made(_make_session="make", _limits="limits", _database=None)._session_manager()
    assert (store, locks) == (None, None)
    assert "database" in trouble


async def test_however_serving_ends_the_sessions_are_stored_and_everything_is_closed(monkeypatch: pytest.MonkeyPatch):
    log, tasks = list[Any](), list[Any]()
    monkeypatch.setattr(module, "_report_crash", log.append)
    for failure, code in ((None, 0), (KeyboardInterrupt(), 1)):
        log.clear()
        tasks.clear()
        failing = {} if failure is None else {"serve": failure}
        app = made(
            exit_code=0,
            tasks=SimpleNamespace(start=tasks.append, cancel=lambda *spared: log.append(("tasks.cancel", *spared))),
            _handle_signals="signals",
            _opened="opened",
            _last_resort=SimpleNamespace(arm=lambda: log.append("armed")),
            _peer=SimpleNamespace(end=lambda: log.append("ended")),
            _server=Awaited(log, "server", **failing),
            _sessions=Awaited(log, "sessions"),
            _process=Awaited(log, "process"),
            _database=Awaited(log, "database"),
        )
        await app.run()
        crashed = [] if failure is None else ["armed", failure, "ended"]
        assert log == [
            ("server.serve", app._last_resort.arm, "opened"),
            *crashed,
            ("sessions.flush", ("within", module._LAST_SEND), ("patience", module._LAST_WRITE)),
            ("tasks.cancel", "signals"),
            ("process.aclose",),
            ("database.aclose",),
        ]
        assert app.exit_code == code
        signals, evicting = tasks
        assert (signals, evicting.func, evicting.args) == ("signals", module.evict_unused, (app._sessions,))
        app._process = app._database = None
        await app.run()


async def test_a_question_waits_until_the_updates_of_its_session_are_shown():
    log = list[Any]()
    transcript = Awaited(log, "transcript")
    sessions = {"s": SimpleNamespace(transcript=transcript)}
    app = made(_sessions=SimpleNamespace(find=sessions.get))
    transcript.is_behind = True
    waiting = app._shown("s")
    assert waiting is not None
    await waiting
    assert log == [("transcript.shown",)]
    transcript.is_behind = False
    assert app._shown("s") is app._shown("unknown") is None


def test_the_end_of_a_process_is_reported_and_is_its_exit_code(monkeypatch: pytest.MonkeyPatch):
    log = list[Any]()

    class Exit(BaseException):
        pass

    def leave(code: int) -> None:
        log.append(code)
        raise Exit

    monkeypatch.setattr(module, "raise_descriptor_limit", lambda: log.append("limit"))
    monkeypatch.setattr(module, "_report_crash", log.append)
    monkeypatch.setattr(os, "_exit", leave)
    crash = KeyError("a bug")
    for result, expected in ((143, ["limit", 143]), (crash, ["limit", crash, 1])):

        def run(serve: Any, handover: Any, flags: Any, result: Any = result) -> int:
            assert (serve, handover) == (module._serve, "handover")
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(module.anyio, "run", run)
        with pytest.raises(Exit):
            module.main("handover")  # type: ignore[arg-type]
        assert log == expected
        log.clear()


async def test_a_session_that_is_opened_has_its_options_and_says_what_was_changed(monkeypatch: pytest.MonkeyPatch):
    options, loaded, choices = SessionOptions(), object(), object()
    monkeypatch.setattr(module, "options_at_start", lambda of: options if of is loaded else None)
    monkeypatch.setattr(module, "options_opened", lambda of, saved: (saved, "tightened"))
    monkeypatch.setattr(module, "settle", lambda of, among: "settled" if among is choices else "")
    given: Any = (loaded, None, choices)
    assert _options(*given) == (options, ["settled"])
    saved: Any = SimpleNamespace(options="saved")
    given = (loaded, saved, None)
    assert _options(*given) == ("saved", ["tightened"])


def test_a_strict_observer_knows_the_handshake(monkeypatch: pytest.MonkeyPatch):
    log = list[Any]()
    strict = SimpleNamespace(StrictObserver=lambda: Noted(log, "observer"))  # the real one takes a second to load
    monkeypatch.setitem(sys.modules, "acp_agent.protocol.strict", strict)  # type: ignore[arg-type]
    _strict_observer(SimpleNamespace(initialized=None))  # type: ignore[arg-type]
    assert log == []
    _strict_observer(SimpleNamespace(initialized={"protocolVersion": 1}))  # type: ignore[arg-type]
    (_, request), (name, answer) = log
    assert (request.method, request.params) == ("initialize", {"protocolVersion": 1})
    assert (name, answer["id"]) == ("observer.sent", 0)
    assert "result" in answer


async def test_serving_ends_with_its_tasks_and_processes_and_a_summary_if_it_is_strict(monkeypatch: pytest.MonkeyPatch):
    log = list[Any]()

    class Tasks(Noted):
        async def __aenter__(self) -> None:
            log.append("begin")

        async def __aexit__(self, *_: object) -> None:
            log.append("end")

    class Served:
        exit_code = 7

        def __init__(self, handover: Any, flags: Any, strict: Any) -> None:
            self.tasks, self.failure = Tasks(log, "tasks"), handover
            log.append((flags, strict and strict._name))

        async def run(self) -> None:
            log.append("run")
            if self.failure:
                raise self.failure

        def kill_processes(self) -> None:
            log.append("kill")

        def remove_sandboxes(self) -> None:
            log.append("remove")

    flags: Any = "flags"
    monkeypatch.setattr(module, "App", Served)
    monkeypatch.setattr(module, "_strict_observer", lambda _: Noted(log, "strict"))
    monkeypatch.delenv(STRICT_VARIABLE, raising=False)
    plain = ["begin", "run", ("tasks.cancel",), "end", "kill", "remove"]
    assert (await module._serve(None, flags), log) == (7, [("flags", None), *plain])  # type: ignore[arg-type]
    log.clear()
    monkeypatch.setenv(STRICT_VARIABLE, "1")
    await module._serve(None, flags)  # type: ignore[arg-type]
    assert log == [("flags", "strict"), *plain, ("strict.summarize",)]
    log.clear()
    failure: Any = KeyError("a bug")
    with pytest.raises(KeyError):
        await module._serve(failure, flags)
    assert log == [("flags", "strict"), "begin", "run", "end", "kill", "remove"]


async def test_processes_are_killed_where_there_may_be_any():
    log = list[Any]()
    made(_process=None).kill_processes()
    made(_process=Noted(log, "process")).kill_processes()
    made(_process=Noted(log, "process")).kill_processes(0.4)
    assert log == [("process.kill_everything", 1.0), ("process.kill_everything", 0.4)]


async def test_a_signal_ends_the_connection_and_is_the_exit_code(monkeypatch: pytest.MonkeyPatch):
    log = list[Any]()

    async def signals() -> AsyncIterator[int]:
        yield 15

    def received(*numbers: int) -> Any:
        assert numbers == module._SIGNALS
        return nullcontext(signals())

    monkeypatch.setattr(module.anyio, "open_signal_receiver", received)
    app = made(exit_code=0, _peer=Noted(log, "peer"))
    await app._handle_signals()
    assert (app.exit_code, log) == (143, [("peer.end",)])


async def test_extensions_are_loaded_with_the_first_request_for_one(monkeypatch: pytest.MonkeyPatch):
    log = list[Any]()

    class Extensions:
        def __init__(self, host: Any) -> None:
            log.append(host)

        async def request(self, method: str, params: Any) -> Any:
            return method, params

    async def load_module(name: str) -> Any:
        assert name == "acp_agent.protocol.extensions"
        return SimpleNamespace(ExtensionHost=lambda *given: given[0], Extensions=Extensions)

    monkeypatch.setattr(module, "imported", load_module)
    app = made(_extensions=None, _sessions="sessions", _flags=None)
    assert [await app._extend("m", {"n": n}) for n in (1, 2)] == [("m", {"n": 1}), ("m", {"n": 2})]
    assert log == ["sessions"]


class Configurations:
    """The configurations that are read, in their order, and whether the last one is current."""

    def __init__(self) -> None:
        self.current = True
        self.read: list[tuple[str, Any]] = []

    def __call__(self, flags: Any, environ: Any, folder: str, before: Any = None) -> Any:
        acp = SimpleNamespace(max_sessions=len(self.read), session_idle_timeout_secs=9)
        settings = SimpleNamespace(acp=acp, llm="llm", scheduler=f"scheduler {len(self.read)}")
        number = len(self.read)
        self.read.append((folder, before and before.number))
        return SimpleNamespace(number=number, settings=settings, problems=(), is_current=lambda: self.current)


async def test_sessions_of_a_folder_share_a_configuration_while_it_is_current(monkeypatch: pytest.MonkeyPatch):
    log, load = list[Any](), Configurations()

    class Session(Noted):
        def __init__(self, dependencies: Any, opening: Any, *_: Any) -> None:
            super().__init__(log, "session")
            self.make_engine = dependencies.make_engine
            self.workspace = SimpleNamespace(cwd=opening.workspace.cwd)

        def share_languages(self, loaded: Any) -> None:
            log.append(("languages", loaded.number))

        def apply_config(self, loaded: Any) -> None:
            log.append(("apply", loaded.number))

    monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(module, "Session", Session)
    monkeypatch.setattr(module, "_options", lambda *_: ("options", []))

    async def load_process(loaded: Any) -> Any:
        def engine(session: Any, loaded: Any, reload: Any, saved: Any) -> Any:
            return loaded.number, reload.args[2], saved

        return SimpleNamespace(engine=engine)

    app = made(
        _flags="flags",
        _loaded=None,
        _choices=lambda loaded: None,
        _load_process=load_process,
        _sessions=SimpleNamespace(resume=None),
        tasks=SimpleNamespace(start=None),
    )

    def opened(cwd: str) -> Any:
        return app._make_session(SimpleNamespace(workspace=SimpleNamespace(cwd=cwd), saved=None))

    first, _ = opened("/a"), opened("/a")
    assert [folder for folder, _ in load.read] == ["/a"]
    assert app._limits == module.SessionLimits(0, 9)
    opened("/b")
    load.current = False
    opened("/b")
    assert [folder for folder, _ in load.read] == ["/a", "/b", "/b"]
    assert log == [("languages", number) for number in (0, 0, 1, 2)]
    log.clear()
    assert await first.make_engine(first, None) == (0, "/a", None)
    assert log == [], "a new session has its configuration"
    assert await first.make_engine(first, "saved") == (0, "/a", "saved")
    assert log == [("apply", 3)], "an evicted session takes up what has changed"
    first.workspace.cwd = "/moved"
    assert await first.make_engine(first, "saved") == (4, "/moved", "saved")
    assert log == [("apply", 3), ("apply", 4)]
    assert load.read[3:] == [("/a", 0), ("/moved", None)]


async def test_prompts_are_scheduled_where_they_can_be_stored(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.session.slash.schedule.session_schedule", lambda *given: given)
    load = Configurations()
    reload: Any = lambda: load(None, None, "/a")  # noqa: E731
    assert made(_database=None)._schedule(reload, "session") is None
    app = made(_database="database", tasks=SimpleNamespace(start="start"))
    session, database, settings, *rest = app._schedule(reload, "session")
    assert (session, database, settings(), rest[1]) == ("session", "database", "scheduler 0", "start")


async def test_only_the_first_answer_is_kept_for_the_next_process():
    kept, started = list[Any](), list[Any]()
    known = SimpleNamespace(keep=lambda *given: kept.append(given))
    app = made(_known=known, tasks=SimpleNamespace(start=started.append))
    session = SimpleNamespace(options=SessionOptions())
    for _ in range(2):
        app._keep({"cwd": "/"}, {"sessionId": "s"}, session)
    (task,) = started
    await task()
    ((params, answer, options, usage),) = kept
    assert (params, answer, type(options), type(usage)) == ({"cwd": "/"}, {"sessionId": "s"}, bytes, bytes)


async def test_the_services_are_loaded_once_for_all_sessions(monkeypatch: pytest.MonkeyPatch):
    log, started = list[Any](), list[Any]()

    class Services:
        def __init__(self, *given: Any) -> None:
            log.append(given)

        async def tidy_up(self, loaded: Any) -> None:
            log.append(("tidy up", loaded))

        def prepare(self) -> None:
            log.append("prepare")

    async def load_module(name: str) -> Any:
        log.append(name)
        return SimpleNamespace(ProcessServices=Services, contains_commands=log.append)

    monkeypatch.setattr(module, "imported", load_module)
    monkeypatch.setattr(module, "purge_unused", log.append)
    tasks = SimpleNamespace(start=started.append)
    app = made(_process=None, _sandbox_test_begun=False, _choices=1, _database=2, tasks=tasks, _sessions="sessions")
    loaded: Any = SimpleNamespace(settings="settings")
    process = await app._load_process(loaded)
    assert await app._load_process(loaded) is process is app._process
    names = ["acp_agent.session.toolset.sandboxing", *module._FIRST_TURN, "acp_agent.session.processes"]
    assert log == [*names, (loaded, started.append, 1, 2), "prepare"]
    trial, tidy_up, purge = started
    log.clear()
    await trial()
    await tidy_up()
    purge()
    assert log == ["settings", ("tidy up", loaded), "sessions"]
    log.clear()
    app._process = None
    await app._load_process(loaded)
    assert log[0] == module._FIRST_TURN[0], "the sandbox is tried once"


def test_the_last_resort_is_armed_once_and_kills_before_it_ends_the_process(monkeypatch: pytest.MonkeyPatch):
    log = list[Any]()
    resort = module.LastResort(lambda within: log.append(("kill", within)), lambda: 7)
    reserve: Any = Noted(log, "reserve")
    resort._reserve = reserve
    monkeypatch.setattr(module.signal, "signal", lambda *given: log.append(given))
    monkeypatch.setattr(module.signal, "alarm", log.append)
    monkeypatch.setattr(module.threading, "Thread", lambda **given: log.append(given) or Noted(log, "thread"))
    resort.arm()
    resort.arm()
    alarm = (signal.SIGALRM, signal.SIG_DFL)
    thread = {"target": resort._end, "daemon": True}
    assert log == [("reserve.release",), alarm, module._BY_SYSTEM, thread, ("thread.start",)]
    log.clear()
    monkeypatch.setattr(module.time, "sleep", log.append)
    monkeypatch.setattr(os, "_exit", lambda code: log.append(("exit", code)))
    resort._end()
    assert log == [module._BY_THREAD, ("kill", 0.4), ("exit", 7)]


async def test_no_garbage_is_collected_while_a_module_is_loaded_and_none_of_it_is_looked_at_later(
    monkeypatch: pytest.MonkeyPatch,
):
    log = list[Any]()
    monkeypatch.setattr(module, "gc", Noted(log, "gc"))
    monkeypatch.setattr(module.importlib, "import_module", lambda name: log.append(name) or SimpleNamespace())
    await module.imported("x")
    assert log == [("gc.disable",), "x", ("gc.freeze",), ("gc.enable",)]


def test_the_handshake_offers_what_the_process_offers(monkeypatch: pytest.MonkeyPatch):
    def forks() -> bool:
        result: Any = module._initialize_messages({"protocolVersion": 1})[1]["result"]
        return "fork" in result["agentCapabilities"].get("sessionCapabilities", {})

    monkeypatch.delenv("ACP_AGENT_ACP_FORK", raising=False)
    assert not forks()
    monkeypatch.setenv("ACP_AGENT_ACP_FORK", "1")
    assert forks()


def test_frames_are_logged_with_the_handshake_and_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    handover: Any = SimpleNamespace(initialized={"protocolVersion": 1})
    file = tmp_path / "frames"
    monkeypatch.delenv(FRAMES_VARIABLE, raising=False)
    assert made()._frame_log(handover) is None
    monkeypatch.setenv(FRAMES_VARIABLE, str(file))
    monkeypatch.setenv("OPENAI_API_KEY", "hunter2-0123456789")
    app = made(_process=None, _problems=[])
    log = app._frame_log(handover)
    log.sent(json.dumps({"key": "hunter2-0123456789", "other": "swordfish"}).encode())
    app._process = SimpleNamespace(redactor=SimpleNamespace(json=lambda frame: {"other": "redacted"}))
    log.sent(b'{"other": "swordfish"}')
    lines = file.read_text().splitlines()
    assert len(lines) == 4
    assert ["initialize" in line for line in lines] == [True, False, False, False]
    assert "hunter2" not in lines[2]
    assert "swordfish" in lines[2]
    assert "swordfish" not in lines[3]
    handover.initialized = None
    made(_process=None, _problems=[])._frame_log(handover)
    monkeypatch.setenv(FRAMES_VARIABLE, str(tmp_path))
    assert app._frame_log(handover) is None
    assert app._problems == [f"{FRAMES_VARIABLE}: {tmp_path} cannot be opened (Is a directory)"]


def test_a_crash_is_logged_with_its_traceback_and_the_lists_of_models_are_fetched_as_configured(
    monkeypatch: pytest.MonkeyPatch,
):
    log = list[Any]()
    monkeypatch.setattr(module, "_log", Noted(log, "log"))
    crash = KeyError("a bug")
    module._report_crash(crash)
    assert log == [("log.error", "acp-agent has crashed", ("exc_info", crash))]
    monkeypatch.setattr(module, "ModelChoices", lambda *given, **named: (*given, named))
    llm = SimpleNamespace(list_models="some")
    loaded = SimpleNamespace(settings=SimpleNamespace(llm=llm, acp=SimpleNamespace(available_models="available")))
    lists = SimpleNamespace(of=lambda of: ("lists of", of))
    assert made(_lists=lists)._choices(loaded) == (llm, "available", ("lists of", llm), {"fetches": "some"})
