"""That the parts of a session pass on what others need, each alone with what stands around it."""

import os
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from acp_agent.config.settings import Settings
from acp_agent.core.events import ToolFinished
from acp_agent.core.types import Deny, ToolResult
from acp_agent.extend.sources import SourceFile, SourceKind
from acp_agent.gates.gate import Gate, Gates
from acp_agent.gates.rules.permission_rules import Action, Rule
from acp_agent.gates.shell.command import Command, Plain
from acp_agent.session import verdicts
from acp_agent.session.engine import SessionEngine
from acp_agent.session.foreign_session import _shown_texts
from acp_agent.session.manager import SessionManager
from acp_agent.session.models import SessionModels
from acp_agent.session.pool import KeyedLock
from acp_agent.session.session import Session
from acp_agent.session.slash.commands import CommandName
from acp_agent.session.slash.handler import SlashCommandHandler
from acp_agent.session.subagents import OtherAgents, SessionSubAgents
from acp_agent.session.titles import TitleWriter
from acp_agent.session.toolset import gate_factory
from acp_agent.session.toolset.extensions import SessionExtensions
from acp_agent.session.toolset.reloading import ReloadingToolset
from acp_agent.session.toolset.toolset import SessionTools
from acp_agent.session.verdicts import Finding, examined
from acp_agent.session.workspace_facts import ProjectNotes

pytestmark = pytest.mark.anyio


def made(kind: type, **parts: Any) -> Any:
    """Return an object of which nothing but these parts is made."""
    one = kind.__new__(kind)
    vars(one).update(parts)
    return one


def noting(log: list[Any], name: object) -> Callable[..., Any]:
    """Return a function that notes its name."""
    return lambda *_, **__: log.append(name)


def waiting(log: list[Any], name: object, result: object = None) -> Callable[..., Awaitable[Any]]:
    """Return an asynchronous function that notes its name."""

    async def note(*_: object, **__: object) -> object:
        log.append(name)
        return result

    return note


# ------------------------------------------------------------------------------------------- sessions


def test_every_turn_is_cancelled_when_the_editor_is_gone_and_no_scheduled_one_begins():
    log = list[Any]()
    slots = {each: SimpleNamespace(end_with_session=noting(log, each)) for each in "ab"}
    schedules = {"a": None, "b": SimpleNamespace(stop=noting(log, "stop"))}
    known = {each: made(Session, turns=slots[each], _schedule=schedules[each]) for each in "ab"}
    made(SessionManager, _known=known).cancel_all()
    assert log == ["a", "stop", "b"]


async def test_what_could_not_be_stored_is_stored_again_when_the_engine_is_closed():
    for failing in (True, False):
        log = list[Any]()
        transcript = SimpleNamespace(
            failing=failing, flush=waiting(log, "flush"), follow=noting(log, "follow"), store=log.append
        )
        engine = SimpleNamespace(kept=waiting(log, "kept", "state"), close=waiting(log, "close"))
        session = made(Session, _engine_lock=anyio.Lock(), _engine=engine, transcript=transcript)
        assert await session._close_engine(1.0) == "state"
        assert log == ["flush", "kept", "follow", *(["state"] if failing else []), "close"]


async def test_the_commands_that_a_turn_has_changed_are_told_after_it():
    begun, log = list[Any](), list[Any]()
    session = made(
        Session,
        _engine=SimpleNamespace(answered=waiting(log, "answered", True)),
        _dependencies=SimpleNamespace(background=begun.append),
        tell_commands=waiting(log, "commands"),
    )
    session.answered("the answer")
    (follow_up,) = begun
    await follow_up()
    assert log == ["answered", "commands"]


async def test_scheduled_prompts_begin_when_a_session_that_has_some_is_opened():
    for has_schedule, closed, begins in ((True, False, True), (False, False, False), (True, True, False)):
        log = list[Any]()
        session = made(
            Session,
            _tell_commands=waiting(log, "commands"),
            editor=SimpleNamespace(drops_early_updates=False),
            _has_schedule=has_schedule,
            turns=SimpleNamespace(closed=closed),
            _schedule=SimpleNamespace(begin=noting(log, "begin")),
            resident=False,
        )
        await session.announce()
        assert ("begin" in log) is begins, (has_schedule, closed)


async def test_a_session_that_may_run_nothing_says_why_a_call_is_denied():
    for fault, told in (("the rules are broken", "the rules are broken"), (None, "nothing runs in this session")):
        toolset = SimpleNamespace(specs=tuple, loaded=SimpleNamespace(fault=fault))
        engine = made(SessionEngine, _toolset=toolset, _handler=SimpleNamespace(gates=Gates))
        assert await engine.judged("subject") == Finding("deny", "", "", (told,))


async def test_only_a_call_that_may_run_is_examined_for_what_git_would_bring(monkeypatch: pytest.MonkeyPatch):
    log, words = list[Any](), ["deny", "blocked", "ask", "allow"]
    monkeypatch.setattr(verdicts, "ProtectedGate", SimpleNamespace)
    monkeypatch.setattr(verdicts, "judged", lambda *_: Finding(words[0], "", "", ()))
    protected: Any = SimpleNamespace(examine=waiting(log, "examined", Deny("git would")), name="protected")
    while words:
        found = await examined(SimpleNamespace(asks=[]), (protected,))  # type: ignore[arg-type]
        assert (found.word, len(log)) == ((words[0], 0) if len(words) > 2 else ("deny", 3 - len(words)))
        del words[0]


def test_only_rules_that_allow_are_said_to_allow_a_command():
    line = Plain((Command(("git", "log")), Command(("cd", "a"))))
    for action, patterns in ((Action.ALLOW, ["git *"]), (Action.ASK, [])):
        assert verdicts._allowing(line, (Rule.parse("git *", action),)) == patterns


def test_the_model_in_force_is_the_one_that_answers_unless_another_was_chosen():
    built = SimpleNamespace(refs=["p:a"]), SimpleNamespace(name="p", model="b")
    for chosen, made_of, in_force in (("p:a", built, "p:b"), ("p:c", built, "p:c"), ("p:a", None, "p:a")):
        models = made(SessionModels, _chosen=lambda _, name=chosen: SimpleNamespace(model=name), _built=made_of)
        assert models.in_force == in_force


# ---------------------------------------------------------------------------------------------- tools


async def test_nothing_can_be_deleted_where_nothing_is_stored():
    manager = made(SessionManager, store=None, _known={}, _acts=KeyedLock(), find=lambda _: None)
    assert await manager.delete("s") is False


def test_only_new_problems_of_filter_rules_are_told():
    refreshed, filters = list[Any](), SimpleNamespace(warnings=("a",))
    state = SimpleNamespace(grants=SimpleNamespace(refresh=noting(refreshed, "refreshed")))
    tools = made(SessionTools, _state=state, _faults=(), _filters=filters)
    assert [*tools.look()] == ["a"]
    assert [*tools.look()] == []
    filters.warnings = ("a", "b")
    assert [*tools.look()] == ["b"]
    tools._filters = None
    assert [*tools.look()] == []
    assert len(refreshed) == 4


def test_a_toolset_that_is_closed_closes_its_folders():
    log = list[Any]()
    tools = made(
        SessionTools,
        snapshots=SimpleNamespace(close=noting(log, "snapshots")),
        _folders=SimpleNamespace(close=noting(log, "folders")),
    )
    tools.close()
    assert log == ["snapshots", "folders"]


async def test_a_call_that_was_announced_is_run_as_announced():
    given = list[Any]()

    async def run(call: object, *, announced: bool) -> None:
        given.append((call, announced))

    snapshot = SimpleNamespace(toolset=SimpleNamespace(run=run))
    toolset = made(ReloadingToolset, _current=lambda: snapshot, _problems=[])
    for announced in (True, False):
        await toolset.run("call", announced=announced)
    assert given == [("call", True), ("call", False)]


def test_an_adversarial_policy_without_policies_is_told():
    told = list[str]()
    for table, count in (({"enabled": True}, 1), ({"enabled": False}, 0), ({"enabled": True, "policies": ["x"]}, 0)):
        told.clear()
        settings = Settings.model_validate({"tools": {"adversarial_policy": table}})
        assert [*gate_factory._adversarial(settings, None, (), told.append)] == []
        assert len(told) == count, table


async def test_answers_are_listed_by_the_permission_gate_wherever_it_stands(monkeypatch: pytest.MonkeyPatch):
    class Permission(Gate):
        def answers(self) -> tuple[Any, ...]:
            return (SimpleNamespace(told="always allow ls"),)

    monkeypatch.setattr("acp_agent.session.slash.handler.PermissionGate", Permission)
    handler = made(SlashCommandHandler, gates=lambda: Gates((Gate(), Permission())))
    assert "1. always allow ls" in await handler.permissions("")
    handler.gates = lambda: Gates((Gate(),))
    assert "not answered" in await handler.permissions("")


def test_rules_are_a_command_where_there_are_some():
    for tools, offered in (
        ({}, False),
        ({"policy": {"enabled": True}}, True),
        ({"authorization": {"enabled": True}}, True),
        ({"permissions": {"bash": []}}, True),
    ):
        loaded = SimpleNamespace(settings=Settings.model_validate({"tools": tools}))
        needs = SimpleNamespace(extensions=SimpleNamespace(skills=SimpleNamespace(all=())))
        handler = made(SlashCommandHandler, _loaded=lambda loaded=loaded: loaded, servers=tuple, _needs=needs)
        assert (CommandName.POLICY in handler.available()) is offered, tools


def test_a_skill_that_cannot_be_typed_is_told():
    def named(name: str) -> Any:
        file = SourceFile(SourceKind.SKILLS, name, f"/u/{name}", f"~/{name}", project=False, data=b"", digest="")
        return SimpleNamespace(name=name, file=file)

    extensions = made(
        SessionExtensions,
        skills=SimpleNamespace(all=[named("help"), named("fix"), named("free")]),
        commands=SimpleNamespace(find=lambda name: named("fix") if name == "fix" else None),
    )
    assert [(str(each).split(":")[0], each.minor) for each in extensions._hidden_skills()] == [
        ("~/help", False),
        ("~/fix", True),
    ]
    told = tuple(extensions._hidden_skills())
    extensions = made(SessionExtensions, problems=lambda: told, sources=SimpleNamespace(waiting=()))
    for minor, names in ((True, ["~/help", "~/fix"]), (False, ["~/help"])):
        assert [each.partition(":")[0] for each in extensions.troubles(minor=minor)] == names


# ------------------------------------------------------------------------------------------ sub-agents


def test_quality_gates_judge_only_the_changes_of_a_turn():
    log = list[Any]()
    for gates in (SimpleNamespace(begin=noting(log, "begin")), None):
        made(SessionSubAgents, _quality=lambda gates=gates: gates).begin()
    assert log == ["begin"]


def test_an_agent_of_another_program_is_contained_and_its_secrets_are_known(monkeypatch: pytest.MonkeyPatch):
    for contained, walls, within in ((True, "walls", True), (False, "walls", False), (True, None, False)):
        log, given = list[Any](), list[Any]()
        rules = SimpleNamespace(walls=lambda walls=walls: walls)
        monkeypatch.setattr("acp_agent.session.subagents.FolderRules", lambda *_, rules=rules: rules)
        monkeypatch.setattr(
            "acp_agent.subagents.external.ExternalAgent", lambda *parts, given=given: given.extend(parts)
        )
        monkeypatch.setattr("acp_agent.workspace.processes.program.ProgramStart", lambda *parts: parts)
        session = SimpleNamespace(workspace=SimpleNamespace(additional=()))
        shared = SimpleNamespace(
            loaded=lambda: SimpleNamespace(settings=""), learn=log.append, cwd="/w", session=session, homes="/h"
        )
        entry: Any = SimpleNamespace(
            name="a", identity="i", startup_timeout=1, idle_timeout=2, referred=lambda _: ["k"], program=lambda *_: "p"
        )
        agents = made(OtherAgents, _shared=shared, _contained=lambda _, yes=contained: yes)
        monkeypatch.setattr("acp_agent.session.subagents._server", lambda *_: "server")
        agents.agent(entry)
        environment, contain = given[3]
        assert (environment, log) == (os.environ, [["k"]])
        assert (contain is not None) is within, (contained, walls)


# ---------------------------------------------------------------------------------------------- texts


def test_the_lines_of_a_foreign_result_stay_as_they_are():
    found: Any = _shown_texts(ToolFinished("c", "", ToolResult("text", envelope={"a": "b\rc"}), 1.0))
    assert found.result.envelope == {"a": "b\nc"}


def test_only_the_front_matter_of_a_rule_is_no_part_of_it():
    notes = made(ProjectNotes, _clean=str)
    text = "---\npaths: ['src/**']\n---\nBe kind."
    for source, shown, paths in (
        (".claude/rules/a.md", "Be kind.", ("src/**",)),
        ("CLAUDE.md", text, ()),
    ):
        note = notes._note(SimpleNamespace(text=text, source=source, users=False, more=False))
        assert (note.text.strip(), note.paths) == (shown, paths), source


def test_a_title_is_cut_between_words_of_its_second_half():
    writer = made(TitleWriter, _settings=SimpleNamespace(title_max_chars=12))
    for line, title in (
        ("twelve chars", "twelve chars"),
        ("a longest word", "a longest…"),
        ("abcdef ghijklm", "abcdef…"),
        ("abcd fghijklm", "abcd fghijk…"),
        ("abcdefgh, ijk lm", "abcdefgh…"),
        ("abcdefghijk lm", "abcdefghijk…"),
    ):
        assert writer._cut(line) == title, line


def test_the_agents_of_a_session_share_one_board():
    agents = made(SessionSubAgents, _work=None, _plan=None)
    assert agents.board is agents.board
    assert agents.mail is agents.mail


async def test_a_lock_that_another_task_took_meanwhile_is_kept():
    acts, order, may_end = KeyedLock(), list[str](), {each: anyio.Event() for each in "abc"}

    async def act(name: str) -> None:
        async with acts.hold("k"):
            order.append(name)
            await may_end[name].wait()

    async with anyio.create_task_group() as tasks:
        for before, each in (("", "a"), ("", "b"), ("a", "c")):
            if before:
                may_end[before].set()
                await anyio.wait_all_tasks_blocked()
            tasks.start_soon(act, each)
            await anyio.wait_all_tasks_blocked()
        assert order == ["a", "b"]
        for event in may_end.values():
            event.set()
    assert order == ["a", "b", "c"]
    assert "k" not in acts
