"""Checks of the services of a process. `test_processes` runs them in a process of its own and reads their errors.

The services change the process they are in (log, signals, who inherits orphans).
"""

import json
import math
import os
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
from anyio import from_thread

from acp_agent.config.llm_settings import ProviderSettings, ProviderType
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.core.errors import StoreUnavailable
from acp_agent.execution.audit import Caller
from acp_agent.session import processes
from acp_agent.session.model_choices import ModelChoices
from acp_agent.session.processes import ProcessServices
from acp_agent.store.db import Database
from acp_agent.workspace.processes.tree import is_subreaper

Made = Callable[..., tuple[ProcessServices, list[Any]]]


class FakeSession:
    """A session as the services see it."""

    def __init__(self, folder: str) -> None:
        self.id = "s"
        self.workspace = SimpleNamespace(folders=(folder,), secrets=())
        self.warned: list[str] = []
        self.notices = SimpleNamespace(warn=self.warned.append)
        self.choices: object = None


class NoFactory:
    """Stands for the factory of sessions: the services are looked at, and no engine is made."""

    def __init__(self, *_: object) -> None:
        pass

    def engine(self) -> None:
        """Make nothing."""


class Closing:
    """Something that is closed, and says so."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self._name, self._closed = name, closed

    def close(self) -> None:
        self._closed.append(self._name)

    async def aclose(self) -> None:
        self.close()


def no_choices(_: Loaded) -> Any:
    """Return the models that can be chosen: none."""


def changed(loaded: Loaded, section: str, **fields: object) -> Loaded:
    """Return the configuration with other values of `tools.overflow`, `memory` and the like."""
    outer, _, inner = section.partition(".")
    model = getattr(loaded.settings, outer)
    if inner:
        fields = {inner: getattr(model, inner).model_copy(update=fields)}
    settings = loaded.settings.model_copy(update={outer: model.model_copy(update=fields)})
    return replace(loaded, settings=settings)


def sessions_share_rules_and_looks_only_under_equal_settings_in_the_same_folders(made: Made, one: str, two: str):
    services, _ = made()
    loaded = load(Flags(), {}, one)
    rules = services.rules(loaded, (one,))
    assert services.rules(loaded, (one,)) is rules
    assert services.rules(loaded, (one, two)).folders == (one, two)
    assert services.rules(loaded, (two,)).folders == (two,)
    assert services.rules(replace(loaded), (two,)).given is not loaded
    os.symlink(one, link := two + "/link")
    rules = services.rules(loaded, (link,))
    os.unlink(link)
    os.symlink(two, link)
    assert services.rules(loaded, (link,)) is not rules, "denied paths are those below the folder to which a link leads"

    tools = loaded.settings.tools
    stricter = tools.model_copy(update={"file": tools.file.model_copy(update={"deny_read": ("secret",)})})
    strict = replace(loaded, settings=loaded.settings.model_copy(update={"tools": stricter}))
    look = services.folder_look(loaded, (one,))
    assert services.folder_look(loaded, (one,)) is look
    assert services.folder_look(strict, (one,)) is not look
    assert services.folder_look(loaded, (one, two)) is not look
    for number in range(40):
        services.folder_look(loaded, (f"{one}/{number}",))
        services.folder_look(strict, (one,))
    assert services.folder_look(loaded, (one,)) is not look, "those that nobody asks for are forgotten"


def sessions_with_equal_models_share_connections_which_are_closed_at_the_end_also_those_of_forgotten_keys(
    made: Made, one: str, two: str
):
    services, _ = made()
    llm = load(Flags(), {}, one).settings.llm
    catalog = services.catalog(llm)
    assert services.catalog(llm) is catalog
    asked: Any = SimpleNamespace(forget=lambda: closed.append("keys"))
    closed, services.credentials = list[str](), asked
    services.forget_keys()
    assert closed == ["keys"]
    folder = services.script_folder()
    assert os.path.isdir(folder)
    assert services.catalog(llm) is not catalog, "nor are models built with forgotten keys"
    provider = ProviderSettings(name="p", type=ProviderType.OPENAI)
    assert services.catalog(llm.model_copy(update={"providers": (provider,)})) is not services.catalog(llm)
    services._catalogs.popitem()
    closed.clear()
    outdated: Any = services._outdated
    assert outdated == [catalog]
    for each, name in ((catalog, "outdated"), (services.catalog(llm), "newest")):
        each._http = Closing(name, closed)
    services._database = Closing("database", closed)
    anyio.run(services.aclose)
    assert closed == ["newest", "outdated", "database"]
    assert not os.path.exists(folder)


def a_folder_is_cleaned_once_for_sessions_that_open_together(made: Made, one: str, two: str):
    services, tasks = made()
    loaded = load(Flags(), {}, one)
    for folder in (one, one, two):
        services.engine(FakeSession(folder), loaded, lambda each: each)
    services._swept = (two,), -math.inf
    services.engine(FakeSession(two), loaded, lambda each: each)
    assert [task.args[0] for task in tasks if task.func is processes._sweep] == [(one,), (two,), (two,)]


def what_is_not_there_is_not_tidied_up(made: Made, one: str, two: str):
    services, _ = made()
    services._database = Database(f"{one}/none.db", services._warn)
    anyio.run(services.tidy_up, load(Flags(), {}, one))
    assert not os.path.exists(f"{one}/none.db")


def stored_keys_are_known_from_the_start(made: Made, one: str, two: str):
    log = list[object]()

    def store(environ: object, learn: object) -> Any:
        log.append(environ is os.environ)
        return SimpleNamespace(introduce=lambda: log.append(learn))

    processes.CredentialStore = store
    services, _ = made()
    assert log == [True, services.secrets.add]


def old_outputs_that_cannot_be_removed_stay(made: Made, one: str, two: str):
    services, _ = made()
    purged = list[int]()

    async def purge(days: int) -> int:
        purged.append(days)
        raise StoreUnavailable("locked")

    store: Any = SimpleNamespace(purge=purge)
    services._store = lambda _: store
    (path := Path(f"{one}/old.db")).touch()
    services._database = Database(str(path), services._warn)
    loaded = load(Flags(), {}, one)
    anyio.run(services.tidy_up, loaded)
    assert purged == [loaded.settings.tools.overflow.retention_days]


def the_process_takes_orphans_and_hides_the_keys_of_every_configuration(made: Made, one: str, two: str):
    services, _ = made()
    assert is_subreaper() == (sys.platform == "linux")
    provider = SimpleNamespace(secrets=lambda _: ["c0nf1g-0123456789abcdef"])
    loaded: Any = SimpleNamespace(settings=SimpleNamespace(llm=SimpleNamespace(providers=[provider])))
    session = FakeSession(one)
    session.workspace.secrets = ("ed1t0r-9f8e7d6c5b4a3210",)
    introduced = list[str]()
    stored: Any = SimpleNamespace(introduce=lambda: introduced.append("stored keys"))
    services.credentials = stored
    services.engine(session, loaded, lambda each: each)
    assert introduced == ["stored keys"]
    assert services.redactor("ed1t0r-9f8e7d6c5b4a3210 c0nf1g-0123456789abcdef") == "[REDACTED:known] [REDACTED:known]"


def trouble_with_the_log_is_told(made: Made, one: str, two: str):
    processes.log = SimpleNamespace(configure=lambda *_, **__: "the log cannot be written")
    services, _ = made()
    session = FakeSession(one)
    services.engine(session, load(Flags(), {}, one), lambda each: each)
    assert session.warned == ["the log cannot be written"]


def problems_are_told_to_the_sessions_there_are_and_to_those_that_come(made: Made, one: str, two: str):
    services, _ = made()
    loaded = load(Flags(), {}, one)
    first, second = FakeSession(one), FakeSession(one)
    services.engine(first, loaded, lambda each: each)
    assert first.warned == []
    data = os.environ["ACP_AGENT_DATA_DIR"]
    assert services.data_file("x") == os.path.join(data, "x")
    os.environ["ACP_AGENT_DATA_DIR"] = "/dev/null/data"
    try:
        assert services.data_file("x") == services.data_file("x") == "/dev/null/x"
    finally:
        os.environ["ACP_AGENT_DATA_DIR"] = data
    (told,) = first.warned
    assert "is forgotten when the agent ends" in told
    services.engine(second, loaded, lambda each: each)
    assert second.warned == [told]


def stores_are_those_of_the_configuration_and_shared(made: Made, one: str, two: str):
    services, _ = made()
    loaded = load(Flags(), {}, one)
    assert services._database.path.startswith(os.environ["ACP_AGENT_DATA_DIR"])
    assert services.grants(None) is services.grants(None)
    assert services.grants(f"{one}/grants.toml") is not services.grants(None)
    embedder: Any = object()
    notes = services.memories(loaded, embedder)
    assert notes is not None
    assert notes._vectors is not None
    assert services.memories(changed(loaded, "memory", enabled=False)) is None
    caller = Caller("s", one, lambda *_: "trusted", lambda _: "")
    audited = changed(loaded, "audit", max_bytes=1_000_000)
    first, second = (services.auditor(caller, audited, str) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first._log is second._log
    assert first._log._max_bytes == 1_000_000
    assert services.auditor(caller, changed(loaded, "audit", enabled=False), str) is None
    store = services._store(changed(loaded, "tools.overflow", max_overflow_bytes=10, max_conversation_bytes=20))
    assert (store.max_bytes, store.conversation_bytes) == (10, 20)


def providers_are_asked_for_their_models(made: Made, one: str, two: str):
    class Choices(ModelChoices):
        def __init__(self) -> None:
            self.asked: list[object] = []

        async def fetch(self, catalog: object) -> None:
            self.asked.append(catalog)

    services, tasks = made()
    session, loaded = FakeSession(one), load(Flags(), {}, one)
    session.choices = choices = Choices()
    services.engine(session, loaded, lambda each: each)
    anyio.run(next(task for task in tasks if task.func == services._fetch_models))
    assert choices.asked == [services.catalog(loaded.settings.llm)]


def memory_is_given_back_once_the_rules_of_redaction_are_there(made: Made, one: str, two: str):
    services, _ = made()
    done = list[str]()
    services.redactor = lambda text: done.append("compiled") or text
    processes.give_back_memory = lambda: done.append("given back")
    services.prepare()
    assert done == ["compiled", "given back"]


def the_watchdog_stays_until_nothing_is_left_to_end(made: Made, one: str, two: str):
    services, _ = made()
    for all_ended, closed in ((False, []), (True, ["watchdog"])):
        watchdog: Any = Closing("watchdog", told := list[str]())
        watchdog.pid = 7
        services.watchdog = watchdog
        processes.kill_everything = lambda within, *, spared, all_ended=all_ended: all_ended and spared == 7
        services.kill_everything()
        assert told == closed


def who_leaves_waits_for_no_cleaning(made: Made, one: str, two: str):
    services, _ = made()
    loaded = load(Flags(), {}, one)

    async def leaving(cleaning: Callable[[], Awaitable[None]]) -> None:
        cleaned, may_end, began = list[object](), threading.Event(), anyio.Event()

        def slow(*_: object) -> list[str]:
            from_thread.run_sync(began.set)
            may_end.wait(5)
            cleaned.append(1)
            return []

        processes.sweep = processes.remove_abandoned = slow
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cleaning)
            await began.wait()
            tasks.cancel_scope.cancel()
        assert not cleaned
        may_end.set()

    for cleaning in (partial(processes._sweep, (one,)), partial(services.tidy_up, loaded)):
        anyio.run(leaving, cleaning)


CHECKS = (
    sessions_share_rules_and_looks_only_under_equal_settings_in_the_same_folders,
    sessions_with_equal_models_share_connections_which_are_closed_at_the_end_also_those_of_forgotten_keys,
    stores_are_those_of_the_configuration_and_shared,
    what_is_not_there_is_not_tidied_up,
    old_outputs_that_cannot_be_removed_stay,
    stored_keys_are_known_from_the_start,
    the_process_takes_orphans_and_hides_the_keys_of_every_configuration,
    trouble_with_the_log_is_told,
    a_folder_is_cleaned_once_for_sessions_that_open_together,
    problems_are_told_to_the_sessions_there_are_and_to_those_that_come,
    providers_are_asked_for_their_models,
    memory_is_given_back_once_the_rules_of_redaction_are_there,
    the_watchdog_stays_until_nothing_is_left_to_end,
    who_leaves_waits_for_no_cleaning,
)


def main(one: str, two: str) -> None:
    """Print the error of each check, "" where it passes."""
    errors: dict[str, str] = {}
    original = dict(vars(processes))
    for check in CHECKS:
        tasks: list[Any] = []

        def made(tasks: list[Any] = tasks) -> tuple[ProcessServices, list[Any]]:
            return ProcessServices(load(Flags(), os.environ, one), tasks.append, no_choices), tasks

        processes.SessionFactory = NoFactory
        try:
            check(made, one, two)
            errors[check.__name__] = ""
        except Exception:  # noqa: BLE001 - the test shows it
            errors[check.__name__] = traceback.format_exc()
        vars(processes).update(original)
    print(json.dumps(errors))


if __name__ == "__main__":
    main(*sys.argv[1:])
