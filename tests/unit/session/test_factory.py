"""What the factory of a session connects with what, over a session's real parts."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent.core.errors import AgentError, ConfigError, LoginRequired, ToolError
from acp_agent.core.events import BoardTask, Notice, PlanEntry, PlanStatus, Severity, UsageChanged
from acp_agent.session import factory as factories
from acp_agent.session.model_choices import ModelChoices
from acp_agent.subagents.board import abandoned
from acp_agent.workspace.local_files import LocalFileSystem
from tests.unit.session.live_session import LiveSession, Shop

pytestmark = pytest.mark.anyio


class Sandbox:
    """A sandbox that is only told apart from others, and what it was made from."""

    def __init__(self, words: tuple[Any, ...]) -> None:
        self.words = words


class Noted:
    """Notes which of its methods were called, with what."""

    def __init__(self, *, result: Any = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._result = result

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            self.calls.append((name, *given))
            return self._result

        return call


async def test_a_new_conversation_forgets_title_files_plan_and_what_is_stored(live: LiveSession):
    factory = live.open().factory
    (live.work / "a.txt").write_text("a\n")
    await live.reads("a.txt")
    await factory._plan.show((PlanEntry("do it"),), (BoardTask("1", "do it"),))
    live.session.transcript.rename("A title")
    factory._titles._title = "A title"
    assert len(factory._tools.seen.kept()) == 1
    live.peer.posted.clear()
    await factory._forget()
    assert (factory._titles._title, {**factory._tools.seen.kept()}, factory._plan.tasks) == ("", {}, ())
    assert live.session.transcript.record.title == ""


async def test_a_prompt_begins_a_turn_in_every_part(live: LiveSession):
    factory = live.open().factory
    parts = {name: Noted() for name in ("_tools", "_plan", "_titles")}
    memory = SimpleNamespace(learn=(learned := list[str]()).append, turn=Noted())
    vars(factory).update(parts, _gate_state=SimpleNamespace(memory=memory))
    factory._turn_began("what was typed")
    assert (learned, memory.turn.calls) == (["what was typed"], [("turn_began",)])
    assert {name: part.calls for name, part in parts.items()} == {
        "_tools": [("turn_began",)],
        "_plan": [("turn_began",)],
        "_titles": [("began", "what was typed")],
    }


async def test_models_are_fetched_again_only_where_they_can_be_chosen(live: LiveSession):
    class Choices(ModelChoices):
        def __init__(self) -> None:
            pass

        async def refresh(self, catalog: Any, provider: str) -> int:
            assert (catalog, provider) == (("catalog of", llm), "p")
            return 3

    factory = live.open().factory
    llm = factory.in_force().settings.llm
    vars(factory)["_process"] = SimpleNamespace(catalog=lambda settings: ("catalog of", settings))
    live.session.offer(choices := Choices())
    assert (factory._choices(), await factory._refresh_models("p")) == (choices, 3)
    unchangeable: Any = object()
    live.session.offer(unchangeable)
    assert (factory._choices(), await factory._refresh_models("p")) == (None, 0)


async def test_how_full_the_window_is_is_known_to_the_gates_and_shown_with_what_all_has_cost(live: LiveSession):
    factory = live.open().factory
    shown, measured, notice = list[Any](), Noted(), Notice(Severity.INFO, "hm")

    async def show(event: Any) -> None:
        shown.append(event)

    state = SimpleNamespace(measured=lambda event: UsageChanged(event.used, event.size, 7.0))
    memory = SimpleNamespace(turn=measured)
    vars(factory).update(_emit=show, _state=state, _gate_state=SimpleNamespace(memory=memory))
    await factory._measured(notice)
    await factory._measured(UsageChanged(5, 10))
    await factory._tell("again")
    assert shown == [notice, UsageChanged(5, 10, 7.0), Notice(Severity.INFO, "again")]
    assert measured.calls == [("measured", 5, 10)]


async def test_a_changed_configuration_reaches_models_options_and_servers(live: LiveSession):
    factory = live.open().factory
    session, mcp, loaded = Noted(), Noted(), object()
    vars(factory).update(_session=session, _mcp=mcp, _process=SimpleNamespace(choices=lambda of: ("choices", of)))
    factory._adopt(loaded)  # type: ignore[arg-type]
    assert session.calls == [("offer", ("choices", loaded)), ("apply_config", loaded)]
    assert mcp.calls == [("start", loaded)]


async def test_a_toolset_that_cannot_be_built_leaves_nothing_open(live: LiveSession, monkeypatch: pytest.MonkeyPatch):
    class Broken(factories.ReloadingToolset):
        def __init__(self, *_: Any) -> None:
            raise KeyboardInterrupt

    closed = list[Any]()
    monkeypatch.setattr(factories, "ReloadingToolset", Broken)
    monkeypatch.setattr(factories.SessionTools, "close", lambda self: closed.append(self))  # noqa: PLW0108
    with pytest.raises(KeyboardInterrupt):
        live.open()
    assert len(closed) == 1


async def test_the_audit_knows_of_each_call_where_it_runs_and_what_began_the_turn(
    live: LiveSession, monkeypatch: pytest.MonkeyPatch
):
    callers = list[Any]()
    monkeypatch.setattr(Shop, "auditor", lambda _self, caller, *_: callers.append(caller))
    factory = live.open().factory
    (caller,) = callers
    assert (caller.session_id, caller.cwd) == (live.session.id, str(live.work))
    vars(factory._tools)["backends"] = SimpleNamespace(sandbox_around=lambda *, editor: f"editor: {editor}")
    assert (caller.sandbox(True), caller.sandbox(False)) == ("editor: True", "editor: False")
    for busy, scheduled, began in (
        (True, True, "schedule"),
        (True, False, ""),
        (False, True, ""),
        (False, False, ""),
    ):
        vars(live.session)["turns"] = SimpleNamespace(busy=busy, scheduled=scheduled)
        assert caller.turn() == began


async def test_a_scope_that_leaves_the_folder_changes_nothing_and_is_told(live: LiveSession):
    transaction = "[tools.shell]\ntransactional = true\n"
    tools = live.open(transaction).factory._tools
    offered, parts = live.offered, (tools._cache, tools._filters, tools.gates)
    live.write(f"{transaction}transaction_scope = ['/etc/**']\n")
    assert (live.offered, (tools._cache, tools._filters, tools.gates)) == (offered, parts)
    (problem,) = live.tools._problems
    assert "[tools.shell]: transaction_scope = '/etc/**': expected a glob below the session's folder" in problem


async def test_forms_are_wanted_only_while_a_turn_goes_on(live: LiveSession, monkeypatch: pytest.MonkeyPatch):
    made, elicitor_made = list[Any](), SimpleNamespace(forms=True)

    def elicitor(_self: Any, redact: Any, timeout: float, wanted: Any) -> Any:
        made.append((redact, timeout, wanted))
        return elicitor_made

    monkeypatch.setattr("acp_agent.protocol.editor.EditorSession.elicitor", elicitor, raising=True)
    factory = live.open("[acp]\nelicitation_timeout_secs = 33\n").factory
    ((redact, timeout, wanted),) = made
    assert (factory.elicitor, redact, timeout) == (elicitor_made, factory._redactor, 33)
    for going_on in (True, False):
        vars(live.session)["turns"] = SimpleNamespace(going_on=going_on)
        assert wanted() == going_on
    assert live.open("[acp]\nelicitation = false\n").factory.elicitor is None


async def test_a_sandbox_is_built_from_the_rules_and_none_if_they_cannot_be_read(
    live: LiveSession, monkeypatch: pytest.MonkeyPatch
):
    factory = live.open().factory
    monkeypatch.setattr(factories, "session_sandbox", lambda *given: Sandbox(given))
    walls, made = object(), factory._sandbox
    settings = factory._loaded.settings

    def rules(result: Any) -> None:
        def found() -> Any:
            if isinstance(result, Exception):
                raise result
            return result

        vars(factory)["_rules"] = lambda _: SimpleNamespace(walls=found)

    rules(walls)
    sandbox: Any = made()
    assert sandbox.words[:3] == (walls, settings, factory._warn)
    assert factory._process.sandboxes == {sandbox}, "whose folders are removed at the end"
    for nothing in (None, ConfigError("", "", "", "x")):
        rules(nothing)
        assert made() is None


async def test_a_handoff_that_leaves_the_session_without_a_model_is_taken_back(live: LiveSession):
    factory = live.open().factory
    put = list[str]()

    class Handoff:
        name = "before"

        async def to(self, agent: str) -> str:
            return f"goes on as {agent}"

        def put(self, name: str) -> None:
            put.append(name)

    class Agent:
        failure: Exception | None = None

        async def agent(self) -> None:
            if self.failure is not None:
                raise self.failure

    agent = Agent()
    vars(factory).update(_handoff=Handoff(), _agent=agent)
    assert (await factory._hand_over("other"), put) == ("goes on as other", [])
    for failure in (AgentError("no model"), LoginRequired("no key")):
        agent.failure = failure
        with pytest.raises(ToolError, match=str(failure)):
            await factory._hand_over("other")
    assert put == ["before", "before"]


async def test_the_conversation_of_a_sub_agent_is_stored_without_secrets(
    live: LiveSession, monkeypatch: pytest.MonkeyPatch
):
    stored = list[str]()

    class Overflow:
        async def put(self, text: str) -> str:
            stored.append(text)
            return "reference"

    assert await live.open().factory._agents._keep("x") == ""
    monkeypatch.setattr(Shop, "overflow", lambda *_: Overflow())
    factory = live.open().factory
    factory._process.secrets.add(["hunter2-0123456789"])
    assert await factory._agents._keep("the hunter2-0123456789") == "reference"
    assert stored == ["the [REDACTED:known]"]


async def test_texts_are_found_by_their_words_where_no_model_can_compare_them(live: LiveSession):
    factory = live.open().factory
    warned = list[str]()

    def embedder(_: Any) -> Any:
        raise ConfigError("llm", "embedding_model", "x", "is not known")

    vars(factory).update(_models=SimpleNamespace(embedder=embedder), _warn_plainly=warned.append)
    assert factory._make_embedder() is None
    assert len(warned) == 1
    assert warned[0].startswith("configuration: ")
    assert warned[0].endswith("; texts are found by their words alone")
    vars(factory)["_models"] = SimpleNamespace(embedder=lambda llm: ("embedder of", llm))
    assert factory._make_embedder() == ("embedder of", factory._loaded.settings.llm)


async def test_what_the_language_servers_say_is_shown_to_the_model_without_secrets(
    live: LiveSession, monkeypatch: pytest.MonkeyPatch
):
    async def reported(languages: Any, files: Any) -> str:
        assert isinstance(files, LocalFileSystem)
        return f"{languages}: hunter2-0123456789"

    monkeypatch.setattr(factories, "reported_diagnostics", reported)
    factory = live.open().factory
    factory._process.secrets.add(["hunter2-0123456789"])
    assert await factory._diagnostics() == ""
    vars(factory)["_languages"] = "languages"
    assert await factory._diagnostics() == "languages: [REDACTED:known]"


async def test_the_folder_is_not_read_for_the_model_unless_the_user_trusts_it(live: LiveSession):
    factory = live.open().factory
    trust = SimpleNamespace(workspace=SimpleNamespace(counts=True))
    vars(factory)["_gate_state"] = SimpleNamespace(memory=SimpleNamespace(trust=trust))
    assert factory._trusted_roots() is factory._tools.roots is not None
    trust.workspace.counts = False
    assert factory._trusted_roots() is None


async def test_texts_for_the_user_are_redacted_and_visible(live: LiveSession):
    factory = live.open().factory
    factory._process.secrets.add(["hunter2-0123456789"])
    assert factory._plain("hunter2-0123456789\x1b[1m a\u202eb\rc") == "[REDACTED:known] ab\nc"


def noting(log: list[str], name: str, result: Any = None) -> Any:
    """Return an async function that notes that it was called."""

    async def call(*_: object) -> Any:
        log.append(name)
        return result

    return call


async def test_a_prompt_and_work_that_can_wait_wait_for_what_cleans_up_behind_calls(live: LiveSession):
    factory, log, started = live.open().factory, list[str](), list[Any]()
    clean_ups = SimpleNamespace(over=noting(log, "cleaned up"))
    watch = SimpleNamespace(is_large=True, prepare="prepare")
    vars(factory).update(
        _tools=SimpleNamespace(backends=SimpleNamespace(clean_ups=clean_ups), watch=watch),
        toolset=SimpleNamespace(backends=noting(log, "backends", "the backends")),
        _process=SimpleNamespace(background=started.append, quiet=noting(log, "quiet")),
    )
    assert (await factory._backends(), log) == ("the backends", ["cleaned up", "backends"])
    ((prepared, *_),) = [each.args for each in started]
    assert prepared == "prepare", "a large folder is looked at beside the prompt"
    watch.is_large = False
    await factory._backends()
    factory._tools.watch = None
    await factory._backends()
    assert len(started) == 1
    log.clear()
    await factory._quiet()
    assert log == ["quiet", "cleaned up"]


async def test_the_early_looks_are_at_notes_facts_and_an_index_that_may_have_changed(live: LiveSession):
    factory, asked = live.open().factory, list[Any]()

    class Looks:
        def __init__(self, look: Any) -> None:
            self.look = look

        def look_early(self, *given: Any, **named: Any) -> Any:
            asked.append((given, named))
            return self.look

    watch = SimpleNamespace(measure=lambda _: 1)
    vars(factory)["_notes"] = Looks("notes")
    vars(factory)["_tools"] = SimpleNamespace(roots="roots", watch=None)
    nothing, facts, devices = Looks(None), Looks("facts"), frozenset((1,))
    assert factory._early_looks(nothing, devices) == ["notes"]  # type: ignore[arg-type]
    instructions = factory.in_force().settings.agent.instructions
    assert asked == [
        ((instructions, "roots"), {"trusted": factory._gate_state.memory.trust.workspace.counts, "devices": devices}),
        ((), {"devices": devices}),
    ]
    factory._tools.watch = watch  # type: ignore[misc]
    notes, known, index = factory._early_looks(facts, devices)  # type: ignore[arg-type]
    assert (notes, known, index) == ("notes", "facts", factory._index_look)
    assert (index._after, index._look) == ((watch,), watch.measure)
    for renewed in (True, False):
        last = SimpleNamespace(
            renewed=lambda after, on, renewed=renewed: renewed and (after, on) == ((watch,), devices)
        )
        vars(factory)["_index_look"] = last
        assert len(factory._early_looks(facts, devices)) == (2 if renewed else 3)  # type: ignore[arg-type]
        assert (factory._index_look is last) is renewed


async def test_the_parts_of_a_conversation_are_those_of_its_session(live: LiveSession, monkeypatch: pytest.MonkeyPatch):
    trusted, looked = list[Any](), list[Any]()
    monkeypatch.setattr(factories.GateMemory, "trust_served", lambda _, trust: trusted.append(trust))
    monkeypatch.setattr(factories.TurnEngine, "look_around", lambda self: looked.append(self))  # noqa: PLW0108
    factory = live.open().factory
    assert (factory._conversation.hooks.reports, factory._conversation.hooks.checks) == (factory._agents,) * 2
    assert trusted == [factory._mcp.connections.trust]
    assert factory._gate_state.summarize is None
    factory.engine()
    assert len(looked) == 1
    shared, seen = factory._agents._shared, factory._tools.seen
    vars(factory._tools)["snapshots"] = SimpleNamespace(changes=7)
    assert shared.changes() == (None if factory._tools.watch is None else 7)
    vars(factory._tools)["watch"] = None if factory._tools.watch else object()
    assert shared.changes() == (None if factory._tools.watch is None else 7)
    facts = factory._make_facts()
    assert (facts._roots, facts._changed, facts._unchanged) == (factory._trusted_roots, seen.changed, seen.is_unchanged)
    assert (facts._messages, facts._clean) == (factory._conversation.history.messages, factory._plain)
    assert facts._wanted() is factory.in_force().settings.agent.facts
    vars(factory)["in_force"] = lambda: SimpleNamespace(settings=SimpleNamespace(agent=SimpleNamespace(facts="wanted")))
    assert facts._wanted() == "wanted"  # type: ignore[comparison-overlap]
    summing = live.open("[tools.overflow]\nsummarize_output = true\n").factory
    assert isinstance(summing._gate_state.summarize, factories.Summarizer)


async def test_the_slash_commands_have_the_parts_of_their_session(live: LiveSession):
    factory = live.open().factory
    auditor: Any = SimpleNamespace(record=object())
    vars(factory)["_gate_state"] = replace(factory._gate_state, auditor=auditor)
    vars(factory)["_early_looks"] = lambda *given: given
    vars(factory)["_process"] = SimpleNamespace(look_threads="limit", memories=lambda *given: given)
    facts: Any = "facts"
    made = factory._command_dependencies(facts)
    assert (made.forget, made.forget_results, made.models) == (factory._forget, factory._tools.clear, factory._choices)
    assert (made.refresh_models, made.more) == (factory._refresh_models, factory._more_status)
    assert (made.servers, made.restore) == (factory._mcp.connections.status, factory._tools.restore)
    assert (made.extensions, made.hooks, made.agents) == (factory._extensions, factory._hooks, factory._agents)
    assert (made.handoff, made.record, made.look_threads) == (factory._handoff, auditor.record, "limit")
    assert made.notes() == (factory.in_force(), factory._embedder)
    assert made.gates() is factory._tools.gates
    assert made.look_early(frozenset((1,))) == ("facts", frozenset((1,)))
    vars(factory)["_gate_state"] = replace(factory._gate_state, auditor=None)
    assert factory._command_dependencies(facts).record is None


async def test_an_agent_to_which_the_session_was_handed_answers_with_its_own_model_if_it_names_one(live: LiveSession):
    factory = live.open().factory
    definition = SimpleNamespace(model="")

    async def provider(of: Any) -> Any:
        return ("model of", of)

    async def prompt(of: Any, tools: Any) -> Any:
        return of, tools

    settled = list[Any]()
    handoff: Any = SimpleNamespace(settle=settled.pop)
    vars(factory).update(_handoff=handoff, _agents=SimpleNamespace(provider=provider, prompt=prompt))
    settled.append(None)
    assert factory._defined_agent() is None
    for model, found in (("", None), ("p:m", ("model of", definition))):
        definition.model = model
        settled.append(definition)
        agent = factory._defined_agent()
        assert agent is not None
        assert (await agent.provider(), await agent.prompt(())) == (found, (definition, ()))


async def test_the_board_of_an_earlier_process_has_no_owners_who_ended_with_it(live: LiveSession):
    factory = live.open().factory
    task = BoardTask("1", "do it", status=PlanStatus.IN_PROGRESS, owner="general-1")
    saved: Any = SimpleNamespace(plan=(PlanEntry("1: do it"),), tasks=(task,))
    plan = factory._make_plan(saved)
    assert (plan._entries, plan.tasks) == (saved.plan, abandoned((task,)))
    assert factory._make_plan(None).tasks == ()


async def test_the_names_of_servers_and_external_agents_are_those_of_the_enabled_ones(live: LiveSession):
    agent = "[[agents.external]]\nname = '{}'\ncommand = 'x'\nenabled = {}\n"
    factory = live.open(agent.format("on", "true") + agent.format("off", "false")).factory
    assert factory._external_agents() == ("on",)
    listed = [SimpleNamespace(server=SimpleNamespace(name=name)) for name in ("one", "two")]
    vars(factory)["_mcp"] = SimpleNamespace(connections=SimpleNamespace(listed=lambda: listed))
    assert factory._server_names() == ["one", "two"]


async def test_there_are_hooks_only_where_the_user_has_some_and_they_stay_the_same_object(live: LiveSession):
    factory = live.open().factory
    found = list[Any]()
    for library in (None, SimpleNamespace(all=()), SimpleNamespace(all=(1,)), SimpleNamespace(all=(2,))):
        vars(factory)["_extensions"] = SimpleNamespace(hooks=library)
        found.append(factory._hooks())
    assert found[:2] == [None, None]
    assert found[2] is found[3] is factory._session_hooks


async def test_the_status_of_optional_parts_is_complete(live: LiveSession):
    factory = live.open("[tools.retry]\nparameter_reformat_provider = 'p:m'\n").factory
    (said,) = factory._reformatter.status() if factory._reformatter else ("",)
    assert "p:m" in said
    lines = {
        "_tools": SimpleNamespace(undo_status=lambda: ["undo"]),
        "_mcp": SimpleNamespace(connections=SimpleNamespace(status=lambda: ["servers"])),
        "_extensions": SimpleNamespace(status=lambda: ["extensions"]),
        "_handoff": SimpleNamespace(status=lambda: ["agent"]),
    }
    vars(factory).update(lines)
    notes = SimpleNamespace(method="words")
    vars(factory)["_process"] = SimpleNamespace(memories=lambda *_: notes)
    sandbox = f"Sandbox: {factories.sandbox_status(factory._loaded.settings)}"
    rest = ("undo", "servers", "extensions", "agent")
    assert factory._more_status() == (sandbox, "Memory: notes are found by their words", said, *rest)
    vars(factory).update(_process=SimpleNamespace(memories=lambda *_: None), _reformatter=None)
    assert factory._more_status() == (sandbox, *rest)
    assert live.open().factory._reformatter is None


async def test_a_problem_is_told_once_when_a_turn_begins_or_ends(live: LiveSession):
    factory = live.open().factory
    factory._warn("a problem")
    assert [notice.text for notice in live.session.notices._waiting] == ["configuration: a problem"]
