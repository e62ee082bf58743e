"""That what a configuration says reaches the part of a session that it is about."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from acp_agent.config.load import Loaded
from acp_agent.config.policy_file import MergedRules
from acp_agent.config.settings import Settings
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import Deny, Phase
from acp_agent.execution.wrappers import ToolRetries
from acp_agent.gates.gate import Gates
from acp_agent.gates.rules.policy_rules import Effect, TrustLevel
from acp_agent.output.redaction.rules import KnownSecrets
from acp_agent.session.toolset.backends import SessionBackends
from acp_agent.session.toolset.gate_factory import ResultWrappers, build_executor
from acp_agent.session.toolset.settings import filter_engine, permission_rules, redactor, session_policy
from acp_agent.session.toolset.toolset import DenyAllToolset, SessionTools
from acp_agent.tools.registry import ToolLimits
from acp_agent.workspace.roots import Root, RootPool
from acp_agent.workspace.snapshots import SnapshotLimits
from acp_agent.workspace.undo import UndoError
from tests.unit.gates.chain import SPECS, call


def settings(**tables: Any) -> Settings:
    return Settings.model_validate(tables)


RETRY = {"max_attempts": 4, "base_ms": 250, "max_ms": 3000, "budget_secs": 7}
SHELL = {
    "transactional": True,
    "auto_rollback": True,
    "auto_rollback_exit_codes": [3],
    "snapshot_required": True,
    "transaction_scope": ["src/**"],
    "show_changes": False,
}


def test_calls_pass_their_executors_in_order_and_each_has_what_it_needs():
    state: Any = SimpleNamespace(overflow=object(), summarize=object(), auditor=object())
    parts: Any = (object(), object(), object(), SimpleNamespace(limit=0), object())
    wrappers, runner, gates = ResultWrappers(*parts), object(), SimpleNamespace(in_order=())
    given: Any = (gates, state, wrappers, runner)
    audit: Any = build_executor(settings(tools={"retry": RETRY, "shell": SHELL}), *given)
    assert audit._auditor is state.auditor
    cache = audit._wrapped._allowed
    assert (cache._cache, cache._stamp) == (wrappers.cache, wrappers.stamp)
    output = cache._wrapped
    assert (output._pipeline, output._overflow, output._summarize) == (
        wrappers.pipeline,
        state.overflow,
        state.summarize,
    )
    retry = output._wrapped
    assert retry._retries == ToolRetries(4, 0.25, 3.0, 7)
    changes = retry._wrapped
    assert (changes._watch, changes._later, changes._is_shown) == (wrappers.watch, wrappers.later, False)
    rules = changes._transaction
    assert (rules.rolls_back, rules.codes, rules.required) == (True, (3,), True)
    assert [each.matches("a/b") for each in rules.scope] == [True]
    assert changes._wrapped is runner
    shown: Any = build_executor(settings(), *given)
    changes = shown._wrapped._allowed._wrapped._wrapped._wrapped
    assert (changes._is_shown, changes._transaction) == (True, None)
    state.auditor, bare = None, ResultWrappers(*parts[:3])
    unwatched: Any = build_executor(settings(), gates, state, bare, runner)  # type: ignore[arg-type]
    assert unwatched._allowed._wrapped._wrapped._wrapped is runner


class Tools(SessionTools):
    """The tools of a session of which nothing else is made."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def test_the_backends_of_tools_are_those_of_the_session():
    backends = SimpleNamespace(terminal=object(), programs=object(), processes=object())
    plan = SimpleNamespace(show=object())
    needs = SimpleNamespace(
        memories=lambda _: None, past=object(), compressor=object(), plan=plan, elicitor=object(), agents=object()
    )
    state, languages = SimpleNamespace(overflow=object()), object()
    made: Any = Tools(_needs=needs, backends=backends, _state=state, _redactor=str, _languages=lambda _: languages)
    loaded, files, web = object(), object(), object()
    found = made._all_backends(loaded, files, web)
    assert (found.files, found.web, found.overflow, found.memories) == (files, web, state.overflow, None)
    assert (found.terminal, found.programs, found.processes) == (
        backends.terminal,
        backends.programs,
        backends.processes,
    )
    assert (found.past, found.compressor, found.elicitor, found.agents, found.languages) == (
        needs.past,
        needs.compressor,
        needs.elicitor,
        needs.agents,
        languages,
    )
    assert found.show_plan is plan.show
    needs.memories = lambda _: "memories"
    assert made._all_backends(loaded, files, web).memories._memories == "memories"


def test_calls_are_repaired_audited_and_redacted_as_the_session_says():
    record, emit, reformatter = object(), object(), SimpleNamespace(name="small")
    state: Any = SimpleNamespace(auditor=SimpleNamespace(record=record), emit=emit)
    made: Any = Tools(_state=state, _needs=SimpleNamespace(reformatter=reformatter), _redactor=str)
    parts = (object(), object(), object(), SimpleNamespace(files=object()))
    door = made._front_door(*parts)
    assert (door._catalogue, door._executor, door._gates, door._files) == (*parts[:3], parts[3].files)
    assert (door._misunderstood, door._emit, door._redact) == (record, emit, str)
    assert door._repairer is not None
    made._needs.reformatter = state.auditor = None
    door = made._front_door(*parts)
    assert (door._misunderstood, door._repairer) == (None, None)


def test_what_calls_change_is_looked_at_where_anything_needs_it():
    made: Any = Tools(snapshots=SimpleNamespace())
    roots = SimpleNamespace(cwd="/work")
    off = {"undo": {"enabled": False}}
    undo = {"enabled": True, "max_file_bytes": 11, "max_bytes": 50_000_000, "max_age_days": 3}
    for tools, limits in (
        ({**off, "shell": {"show_changes": False}}, "none"),
        ({**off, "shell": {"show_changes": True}}, None),
        ({**off, "shell": {"show_changes": False, "transactional": True}}, None),
        ({"undo": undo, "shell": {"show_changes": False}}, SnapshotLimits(11, 50_000_000, 3)),
        (
            {"undo": undo, "shell": {"transactional": True, "max_snapshot_bytes": 1_000_000}},
            SnapshotLimits(11, 1_000_000, 3),
        ),
    ):
        loaded = SimpleNamespace(settings=settings(tools=tools))
        watch = made._watch(loaded, roots)
        assert (watch is None) is (limits == "none"), tools
        if watch is not None:
            assert (watch.limits, watch.cwd) == (limits, "/work")


def tools_of(*, forms: bool | None = None, languages: bool = False, **tables: Any) -> dict[str, Any]:
    elicitor = None if forms is None else SimpleNamespace(forms=forms)
    offered = SimpleNamespace(offers=frozenset[str]())
    made: Any = Tools(
        _needs=SimpleNamespace(elicitor=elicitor, agents=SimpleNamespace(offered=tuple)),
        backends=SimpleNamespace(reached=("x.org",)),
        seen=None,
        _session=SimpleNamespace(scheduler="the schedule"),
        _languages=lambda _: offered if languages else None,
        _types_commands="types",
        _redactor=str,
    )
    found = made._tools(SimpleNamespace(settings=settings(**tables)))
    return {tool.name: tool for tool in found}


def test_each_optional_tool_is_there_where_its_setting_says_so():
    plain = set(tools_of(memory={"enabled": False}, agents={"enabled": False}))

    def more(**options: Any) -> set[str]:
        tables = {"memory": {"enabled": False}, "agents": {"enabled": False}} | options
        return set(tools_of(**tables)) ^ plain

    assert more(forms=False) == set()
    assert more(forms=True) == {"ask_user"}
    assert more(memory={"enabled": True}) == {"memory_save", "memory_search"}
    assert more(agent={"compress_context": True}) == {"compress_context"}
    assert more(scheduler={"tool": True, "enabled": True}) == {"scheduler"}
    assert more(scheduler={"tool": True, "enabled": False}) == more(scheduler={"tool": False, "enabled": True}) == set()
    agents = more(agents={"enabled": True})
    assert "agent" in agents
    assert "handoff" not in agents
    assert more(agents={"enabled": True, "handoff": True}) == agents | {"handoff"}
    board = more(agents={"enabled": True, "board": True})
    assert board == agents | {"tasks", "messages", "update_plan"}
    external = [{"name": "codex", "command": "prog"}]
    assert len(more(agents={"enabled": True, "external": external})) == len(agents) + 1


def test_the_limits_of_tools_are_those_of_the_configuration():
    found = tools_of(
        acp={"rich_kinds": False},
        tools={
            "shell": {"max_timeout": 77},
            "overflow": {"threshold": 10_000},
            "diagnostics": {"max_diagnostics": 5, "timeout": 9},
            "verifiers": {"firewall": False},
        },
    )
    usual = tools_of()
    assert (found["bash"]._longest, found["bash"]._hosts) == (77, ("x.org",))
    assert found["process"]._types_commands == "types"
    assert found["read"]._max_chars == found["read_overflow"]._max_chars == 8000
    assert usual["read"]._max_chars <= ToolLimits().read_chars
    assert found["list_directory"].spec().kind != usual["list_directory"].spec().kind
    assert found["grep"]._guards_secrets is found["find_path"]._guards_secrets is False
    assert usual["grep"]._guards_secrets is usual["find_path"]._guards_secrets is True
    assert (found["diagnostics"]._max_diagnostics, found["diagnostics"]._seconds) == (5, 9)


def test_the_closed_toolset_opens_the_folder_as_the_session_does(tmp_path):
    opened = list[str]()

    def open_root(path: str) -> Root:
        opened.append(path)
        return Root(path)

    closed = DenyAllToolset(ConfigError("config.toml", "a", "b", "c"))
    with closed.backends(str(tmp_path), open_root).files._roots:
        assert opened == [str(tmp_path)]
    assert closed.specs() == ()
    assert closed.is_starting("x") is False
    (gate,) = closed.gates.in_order
    refused = gate.judge(Gates((gate,)).facts(call("read")))
    assert isinstance(refused, Deny)
    assert "Nothing runs until this is corrected" in refused.reason
    assert not gate.allows(SPECS["read"])


def test_undo_is_told_to_be_off_where_not_all_can_be_taken_back():
    off = ("Undo: off, at least in part (`tools.undo.enabled`)",)
    troubles = {"a": "no room", "b": "no room", "c": "no git"}
    for watch, why, told in (
        (None, {}, off),
        (SimpleNamespace(limits=None), {}, off),
        (SimpleNamespace(limits=5), {}, ()),
        (SimpleNamespace(limits=5), troubles, ("Undo: off, at least in part (no room; no git)",)),
    ):
        made: Any = Tools(watch=watch, snapshots=SimpleNamespace(troubles=why), _fault=None)
        assert made.undo_status() == told


def test_undo_names_the_configuration_where_that_is_unusable_and_its_setting_where_it_is_off(tmp_path):
    async def restored(tools: SessionTools) -> None:
        await tools.restore(None, redo=False)

    state = SimpleNamespace(auditor=None, emit=None)
    needs = SimpleNamespace(reformatter=None)
    made: Any = Tools(
        watch=None, roots=None, snapshots=SimpleNamespace(troubles={}), _fault=None,
        _cwd=str(tmp_path), _folders=RootPool(), _state=state, _needs=needs, _redactor=str,
    )  # fmt: skip
    with pytest.raises(UndoError, match=r"^Undo is off \(`tools\.undo\.enabled`\)\.$"):
        anyio.run(restored, made)
    made.closed(ConfigError("config.toml", "a", "b", "c"))
    made._folders.close()
    with pytest.raises(UndoError, match=r"^The configuration is unusable: "):
        anyio.run(restored, made)
    assert made.undo_status() == ("Undo: off while the configuration is unusable",)


def test_tools_are_outdated_as_soon_as_what_the_user_brings_is_another():
    parts: dict[str, Any] = {"brought": object(), "custom": object(), "skills": ["a"], "hooks": object()}
    for changed in (None, *parts):
        now = {**parts, **({changed: ["b"] if changed == "skills" else object()} if changed else {})}
        needs = SimpleNamespace(**{name: (lambda value=value: value) for name, value in now.items()})
        made: Any = Tools(_needs=needs, **{f"_{name}": value for name, value in parts.items()})
        assert made.is_outdated is bool(changed), changed


def test_the_users_own_patterns_of_secrets_are_redacted_and_a_bad_one_is_told():
    told = list[str]()
    known = KnownSecrets()
    known.add(("a known value",))
    texts = dict[bool, str]()
    for enabled in (True, False):
        security = {"extra_patterns": ["corp-[0-9]{8}", "("], "enabled": enabled}
        loaded = Loaded(settings(tools={"filters": {"security": security}}), (), {}, "config.toml")
        texts[enabled] = redactor(loaded, known, told.append)("corp-12345678, a known value")
    assert texts == {
        True: "[REDACTED:custom], [REDACTED:known]",
        False: "corp-12345678, [REDACTED:known]",
    }
    assert [each.partition(": ")[0] for each in told] == ["tools.filters.security.extra_patterns"] * 2


def loaded_with(**tables: Any) -> Loaded:
    return Loaded(settings(**tables), (), {}, "config.toml")


def test_each_condition_of_a_policy_rule_is_in_the_rule_in_force():
    fields = {
        "paths": ["/etc/*"],
        "env": ["ACP_AGENT_TEST_UNSET"],
        "trust_level": "untrusted",
        "args_match": "x+",
        "capabilities": ["net"],
        "phases": ["verifier"],
    }
    found = session_policy(
        loaded_with(tools={"policy": {"enabled": True, "rules": [{"effect": "deny", "tool": "re*", **fields}]}}),
        "/work",
    )
    (made,) = found.rules
    (path,) = made.paths
    assert (made.effect, made.pattern, made.unset) == (Effect.DENY, "re*", ("ACP_AGENT_TEST_UNSET",))
    assert (made.trust, made.reserved, made.phases) == (TrustLevel.UNTRUSTED, True, {Phase.VERIFIER})
    assert path.literal == "/etc/"
    assert made.search is not None
    assert (made.search("axb"), made.search("b")) == (True, False)


def test_rules_of_a_policy_file_that_may_only_deny_are_told_if_they_allow(monkeypatch: pytest.MonkeyPatch):
    told = list[str]()
    refused: Any = MergedRules((), ("rules[0] allows",))
    monkeypatch.setattr("acp_agent.session.toolset.settings.merged_rules", lambda *_, **__: refused)
    assert session_policy(loaded_with(), "/work", told.append).rules == ()
    assert told == ["rules[0] allows"]


def test_rules_that_cannot_be_used_are_told():
    told = list[str]()
    rules = {"bash": [{"pattern": "[", "action": "deny"}, {"pattern": "ls", "action": "allow"}], "bsh": []}
    found = permission_rules(loaded_with(tools={"permissions": rules}), told.append, ("bash", "read"))
    assert [rule.pattern for rule in found["bash"]] != []
    assert ["bsh" in each for each in told] == [False, True]
    assert told[1] == "[tools.permissions.bsh]: there is no tool of that name (bash, read)"


def test_filters_know_whether_outputs_are_summed_up():
    for summed in (True, False):
        engine = filter_engine(loaded_with(tools={"overflow": {"summarize_output": summed}}))
        assert engine is not None
        assert engine._summarized is summed


def test_commands_of_a_session_take_as_long_as_its_configuration_says():
    for variables, problems in (((), 0), (("ACP_AGENT_MODEL",), 1)):
        warned = list[str]()
        shell = SimpleNamespace(env_allow=variables, timeout=77.0)
        given = SimpleNamespace(
            _settings=SimpleNamespace(tools=SimpleNamespace(shell=shell)), _watchdog="watchdog", sandbox="sandbox"
        )
        made: Any = SessionBackends._local_terminal(given, warned.append)  # type: ignore[arg-type]
        assert (made._default_timeout, made._watchdog, made._sandbox) == (77.0, "watchdog", "sandbox")
        assert len(warned) == problems, variables


def test_custom_tools_run_by_a_shell_of_their_own():
    offered = SimpleNamespace(name="mine", spec=lambda: SPECS["bash"])
    made: Any = Tools(
        _custom=(offered,), _brought=(), backends=SimpleNamespace(reached=("x.org",)), _tools=lambda _: ()
    )
    tool: Any = made._registry(SimpleNamespace(settings=settings(tools={"shell": {"max_timeout": 77}})))._tools["mine"]
    assert (tool._bash._longest, tool._bash._for_custom) == (77, True)
    made._brought = (SimpleNamespace(name="mine", spec=lambda: SPECS["read"]),)
    assert made._registry(SimpleNamespace(settings=settings()))._tools["mine"] is made._brought[0]
    assert made._registry(SimpleNamespace(settings=settings(tools={"enabled": False}))).names == ()
