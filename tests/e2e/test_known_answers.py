"""A second process in a home answers `session/new` before it loads its configuration. What was promised holds."""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bench.agent import OURS, Agent
from tests.bench.modules import HEAVY, after_boot
from tests.fakes.model_script import says, write_script

INITIALIZE = {"protocolVersion": 1, "clientCapabilities": {}}


@dataclass
class UsedHome:
    """A home in which one process has opened a session, and what it was answered."""

    root: Path
    config: str
    answer: dict[str, Any]
    environment: dict[str, str]

    @property
    def kept(self) -> Path:
        return self.root / "data" / "new-session.json"

    @contextmanager
    def agent(self) -> Iterator[Agent]:
        agent = Agent(OURS, self.root, self.config, {})
        try:
            agent.initialize()
            yield agent
        finally:
            agent.end()

    def new(self, **members: Any) -> dict[str, Any]:
        return {"cwd": str(self.root / "work"), "mcpServers": [], **members}

    def answered_by_boot(self, **members: Any) -> dict[str, Any] | None:
        """Return what a process answers to `session/new` that is killed when it begins to load the rest."""
        requests = [("initialize", INITIALIZE), ("session/new", self.new(**members))]
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params})
            for method, params in requests
        ]
        loaded, answers = after_boot("\n".join([*lines, ""]).encode(), self.environment)
        assert answers[0]["id"] == "initialize"
        assert [name for name in HEAVY if name in loaded and name != "dataclasses"] == []
        return answers[1]["result"] if len(answers) == 2 else None


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> UsedHome:
    root = tmp_path_factory.mktemp("home")
    config = f'[llm]\nmodel = "{write_script(root, [says("hi")])}"\n'
    used = UsedHome(root, config, {}, {})
    with used.agent() as agent:
        used.environment = agent.environment
        used.answer = agent.request("session/new", used.new())
        deadline = time.monotonic() + 30
        while not used.kept.exists() and time.monotonic() < deadline:
            time.sleep(0.01)  # it is kept behind the answer, of which nobody is told
    return used


def rows(home: UsedHome, session: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(home.root / "data" / "acp-agent.db")) as database:
        return database.execute("SELECT cwd, prompts FROM conversations WHERE id = ?", (session,)).fetchall()


def test_a_known_answer_is_given_at_once_and_its_session_is_kept_even_if_the_process_dies_then(home):
    answer = home.answered_by_boot()
    assert answer is not None
    session = answer.pop("sessionId")
    assert answer == {name: value for name, value in home.answer.items() if name != "sessionId"}
    assert session != home.answer["sessionId"]
    assert rows(home, session) == [(str(home.root / "work"), 0)]
    with home.agent() as agent:
        agent.request("session/load", {**home.new(), "sessionId": session})
        assert agent.prompt(session, "go") == "end_turn"


def test_a_session_that_was_answered_at_once_is_one_like_others(home):
    updates: list[str] = []

    def watch(message: dict[str, Any]) -> None:
        updates.append(message["params"]["update"]["sessionUpdate"])

    with home.agent() as agent:
        session = agent.request("session/new", home.new(), watch)["sessionId"]
        assert agent.prompt(session, "go", watch) == "end_turn"
        assert not {"config_option_update", "current_mode_update"} & {*updates}, "nothing is different"
        assert "available_commands_update" in updates
        listed = agent.request("session/list", {})["sessions"]
        assert listed[0]["sessionId"] == session
        assert rows(home, session) == [(str(home.root / "work"), 1)]


def test_what_is_different_from_a_known_answer_is_told_and_in_force(home):
    honest = home.kept.read_text()
    home.kept.write_text(honest.replace('"currentModeId": "suggest"', '"currentModeId": "full-auto"'))
    told: list[dict[str, Any]] = []
    try:
        with home.agent() as agent:
            opened = agent.request("session/new", home.new())
            assert opened["modes"]["currentModeId"] == "full-auto", "it was answered from what was kept"
            while not any(each["sessionUpdate"] == "config_option_update" for each in told):
                told.append(agent.read()["params"]["update"])
            session = opened["sessionId"]
            assert agent.prompt(session, "go", lambda message: told.append(message["params"]["update"])) == "end_turn"
        modes = [each["currentModeId"] for each in told if each["sessionUpdate"] == "current_mode_update"]
        assert modes == ["suggest"]
        assert home.kept.read_text() == honest, "what was wrong is kept no longer"
    finally:
        home.kept.write_text(honest)


def test_a_request_that_is_refused_is_left_to_the_server(home):
    assert home.answered_by_boot(cwd="/nowhere") is None


def test_nothing_is_known_once_a_file_or_a_variable_says_something_else(home):
    project = home.root / "work" / ".acp-agent" / "config.toml"
    project.parent.mkdir()
    project.write_text("")
    try:
        assert home.answered_by_boot() is None
    finally:
        project.unlink()
        project.parent.rmdir()
    assert home.answered_by_boot() is not None
