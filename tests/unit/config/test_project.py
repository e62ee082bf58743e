"""A project's own file may only tighten: whatever it says, nothing gets looser."""

import os
from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.cli.config import toml_value
from acp_agent.config.layers import RULES, keys
from acp_agent.config.load import ProjectLoosens
from acp_agent.config.tool_settings import ReadRule
from acp_agent.core.types import Access
from acp_agent.gates.selection import Selection
from acp_agent.session.toolset.settings import permission_rules, tool_choice
from acp_agent.workspace.read_policy import ReadPolicy
from tests.unit.config.conftest import told

RANK = {"allow": 0, "ask": 1, "deny": 2}
STRICTNESS = {
    "tools.shell.substitution": ["inspect", "ask", "block"],
    "tools.file.read_policy": ["carve_out", "strict"],
    "acp.mode": ["code", "architect", "ask"],
    "acp.auto_approve": ["full-auto", "auto-edit", "suggest"],
    "tools.autonomy_level": ["full", "supervised", "readonly"],
    "tools.profile": ["full", "coding", "minimal"],
    "tools.sandbox.profile": ["off", "network-allow-all", "workspace", "read-only"],
}
# Keys a project has no say in.
USERS_ALONE = {
    "agents.archive_minutes",
    "agents.explore_model",
    "agents.external",
    "agents.gates",
    "agents.max_running",
    "mcp.unsandboxed",
    "tools.adversarial_policy.policies",
    "tools.adversarial_policy.policy_provider",
    "tools.adversarial_policy.timeout_ms",
    "llm.model",
    "agent.compaction",
    "agent.compaction_soft",
    "agent.compaction_hard",
    "agent.compress_provider",
    "agent.tool_filter.top_k",
    "agent.tool_filter.min_description_words",
    "agent.tool_filter.always_on",
    "memory.max_notes",
    "memory.max_note_bytes",
    "memory.sessions.titles",
    "memory.sessions.title_max_chars",
    "memory.sessions.title_provider",
    "tools.tafc.complexity_threshold",
    "tools.dependencies.enabled",
    "tools.dependencies.boost_per_dep",
    "tools.dependencies.max_total_boost",
    "tools.dependencies.rules",
    "llm.fallback",
    "llm.embedding_model",
    "llm.list_models",
    "llm.models",
    "llm.providers",
    "mcp.servers",
    "acp.available_models",
    "acp.terminal_form",
    "acp.request_timeout_secs",
    "acp.question_timeout_secs",
    "acp.elicitation_timeout_secs",
    "acp.max_sessions",
    "acp.session_idle_timeout_secs",
    "acp.permission_file",
    "scheduler.timezone",
    "tools.shell.confirm_patterns",
    "tools.anomaly.window_size",
    "tools.by_model",
    "tools.retry.base_ms",
    "tools.retry.max_ms",
    "tools.retry.parameter_reformat_provider",
    "tools.protection.unprotected_paths",
    "tools.sandbox.mode",
    "tools.shell.transactional",
    "tools.shell.transaction_scope",
    "tools.shell.auto_rollback",
    "tools.shell.auto_rollback_exit_codes",
    "tools.shell.snapshot_required",
    "tools.shell.max_snapshot_bytes",
    "tools.undo.enabled",
    "tools.undo.max_file_bytes",
    "tools.undo.max_bytes",
    "tools.undo.max_age_days",
    "tools.overflow.retention_days",
    "tools.overflow.max_overflow_bytes",
    "tools.overflow.max_conversation_bytes",
    "tools.filters.filters_path",
    "tools.filters.security.extra_patterns",
    "tools.authorization.enabled",
    "tools.policy.default_effect",
    "tools.policy.enabled",
    "tools.policy.policy_file",
    "audit.enabled",
    "audit.file",
    "audit.max_bytes",
    "logging.level",
    "logging.file",
}

rules = st.lists(
    st.fixed_dictionaries(
        {"pattern": st.sampled_from(["*", "a*", "*b", "ab", "b?", "a"]), "action": st.sampled_from(list(RANK))}
    ),
    max_size=5,
)
policy_rules = st.lists(
    st.fixed_dictionaries(
        {"effect": st.sampled_from(["allow", "deny"]), "tool": st.sampled_from(["*", "bash", "read"])}
    ),
    max_size=3,
)
SWITCHES_ON = {
    "tools.sandbox.strict",
    "tools.anomaly.enabled",
    "tools.anomaly.auto_block",
    "tools.verifiers.destructive",
    "tools.verifiers.injection",
    "tools.verifiers.firewall",
    "tools.verifiers.url_grounding",
    "tools.filters.security.enabled",
    "tools.utility.enabled",
    "tools.adversarial_policy.enabled",
    "agent.hallucination_detection",
}
SWITCHES_OFF = {
    "tools.adversarial_policy.fail_open",
    "agent.compress_context",
    "agent.facts",
    "agent.instructions.enabled",
    "agent.tool_filter.enabled",
    "memory.enabled",
    "agents.enabled",
    "agents.evaluate",
    "agents.handoff",
    "agents.board",
    "scheduler.enabled",
    "scheduler.tool",
    "skills.enabled",
    "skills.home",
    "mcp.enabled",
    "tools.enabled",
    "tools.tafc.enabled",
    "acp.elicitation",
    "acp.lsp.enabled",
    "acp.lsp.auto_diagnostics_on_save",
    "acp.rich_kinds",
    "tools.shell.show_changes",
    "tools.overflow.summarize_output",
    "tools.result_cache.enabled",
    "tools.filters.enabled",
    "tools.phases.enabled",
}
ZERO_IS_NO_LIMIT = {
    "agent.max_tool_iterations",
    "tools.rate_limit.calls_per_hour",
    "acp.terminal_timeout_secs",
    "tools.result_cache.ttl_secs",
}
words = st.lists(st.sampled_from(["curl", "sudo", "nc"]), max_size=3, unique=True)
paths = st.lists(st.sampled_from(["/", "/srv", "/srv/a", "/srv/ab", "/opt"]), max_size=3, unique=True)
globs = st.lists(st.sampled_from(["a*", "*b", "ab", "src", "src/a"]), max_size=3, unique=True)
hosts = st.lists(st.sampled_from(["a.example", "*.a.example", "b.example"]), max_size=3, unique=True)
seconds = st.sampled_from([0.5, 1, 30, 31, 86400])
VALUES = {
    "agent.max_tool_iterations": st.integers(0, 300),
    "agent.max_parallel_tools": st.integers(1, 64),
    "agent.max_tool_calls_per_answer": st.integers(1, 100),
    "agent.context_budget_tokens": st.integers(1000, 10_000),
    "agent.facts": st.booleans(),
    "agent.compaction": st.booleans(),
    "agent.compaction_soft": st.sampled_from([0.3, 0.6]),
    "agent.compaction_hard": st.sampled_from([0.7, 0.9]),
    "agent.compress_provider": st.sampled_from(["", "scripted:a"]),
    "agent.compress_context": st.booleans(),
    "agent.instructions.enabled": st.booleans(),
    "agent.instructions.files": st.lists(st.sampled_from(["AGENTS.md", "CLAUDE.md"]), max_size=2, unique=True),
    "agent.instructions.max_chars": st.sampled_from([1000, 16_384]),
    "agent.tool_filter.enabled": st.booleans(),
    "agent.tool_filter.top_k": st.integers(1, 20),
    "agent.tool_filter.min_description_words": st.integers(0, 5),
    "agent.tool_filter.always_on": st.lists(st.sampled_from(["bash", "read"]), max_size=2, unique=True),
    "memory.enabled": st.booleans(),
    "agents.enabled": st.booleans(),
    "agents.evaluate": st.booleans(),
    "agents.handoff": st.booleans(),
    "agents.board": st.booleans(),
    "scheduler.enabled": st.booleans(),
    "scheduler.tool": st.booleans(),
    "scheduler.timezone": st.sampled_from(["", "Europe/Berlin"]),
    "scheduler.max_entries": st.integers(1, 40),
    "scheduler.max_prompt_chars": st.sampled_from([1000, 20_000]),
    "agents.gates": st.just([{"name": "evil", "command": "evil"}]),
    "agents.external": st.just([{"name": "evil", "command": "evil"}]),
    "agents.max_running": st.integers(1, 10),
    "agents.max_children": st.integers(1, 10),
    "agents.archive_minutes": st.sampled_from([1, 60]),
    "agents.explore_model": st.sampled_from(["", "scripted:a"]),
    "skills.enabled": st.booleans(),
    "skills.home": st.booleans(),
    "skills.max_chars": st.integers(0, 10_000),
    "memory.max_notes": st.integers(10, 1000),
    "memory.max_note_bytes": st.sampled_from([1024, 8192]),
    "memory.sessions.titles": st.sampled_from(["model", "prompt"]),
    "memory.sessions.title_max_chars": st.integers(10, 100),
    "memory.sessions.title_provider": st.sampled_from(["", "scripted:a"]),
    "tools.tafc.enabled": st.booleans(),
    "tools.tafc.complexity_threshold": st.sampled_from([0.2, 0.6]),
    "tools.dependencies.enabled": st.booleans(),
    "tools.dependencies.boost_per_dep": st.sampled_from([0.1, 0.2]),
    "tools.dependencies.max_total_boost": st.sampled_from([0.1, 0.2]),
    "tools.dependencies.rules": st.just({"edit": {"requires": ["read"]}}),
    "llm.model": st.sampled_from(["scripted:a", "scripted:b"]),
    "llm.fallback": st.just(["scripted:evil"]),
    "llm.embedding_model": st.sampled_from(["scripted:a", "scripted:b"]),
    "llm.list_models": st.booleans(),
    "llm.models": st.just([{"id": "scripted:", "context_window": 1000}]),
    "llm.providers": st.just([{"name": "evil", "type": "openai", "base_url": "http://evil"}]),
    "mcp.enabled": st.booleans(),
    "mcp.unsandboxed": words,
    "mcp.servers": st.just([{"name": "evil", "command": "evil"}]),
    "tools.enabled": st.booleans(),
    "tools.shell.timeout": seconds,
    "tools.shell.max_timeout": seconds,
    "tools.shell.allowed_paths": paths,
    "tools.shell.blocked_commands": words,
    "tools.shell.allowed_commands": words,
    "tools.shell.env_allow": words,
    "tools.shell.confirm_patterns": words,
    "tools.autonomy_level": st.sampled_from(STRICTNESS["tools.autonomy_level"]),
    "acp.available_models": st.sampled_from([[], ["scripted:a"]]),
    "acp.question_timeout_secs": seconds,
    "acp.elicitation": st.booleans(),
    "acp.elicitation_timeout_secs": st.just(0) | seconds,
    "acp.max_sessions": st.integers(1, 20),
    "acp.session_idle_timeout_secs": st.just(0) | seconds,
    "acp.lsp.enabled": st.booleans(),
    "acp.lsp.auto_diagnostics_on_save": st.booleans(),
    "acp.lsp.max_diagnostics_per_file": st.integers(1, 30),
    "acp.lsp.max_diagnostic_files": st.integers(1, 9),
    "acp.lsp.max_references": st.integers(1, 200),
    "acp.lsp.max_workspace_symbols": st.integers(1, 200),
    "acp.lsp.request_timeout_secs": st.sampled_from([0.5, 10, 600]),
    "tools.shell.substitution": st.sampled_from(STRICTNESS["tools.shell.substitution"]),
    "tools.file.allowed_paths": paths,
    "tools.file.deny_read": globs,
    "tools.file.allow_read": globs,
    "tools.file.read_policy": st.sampled_from(STRICTNESS["tools.file.read_policy"]),
    "tools.scrape.timeout": seconds,
    "tools.scrape.max_body_bytes": st.integers(1024, 2 * 1024 * 1024),
    "tools.scrape.allowed_domains": hosts,
    "tools.scrape.denied_domains": hosts,
    "tools.scrape.ports": st.lists(st.sampled_from([443, 8443, 22]), min_size=1, max_size=3, unique=True),
    "tools.diagnostics.max_diagnostics": st.integers(1, 60),
    "tools.diagnostics.timeout": seconds,
    "tools.shell.transactional": st.booleans(),
    "tools.shell.transaction_scope": globs,
    "tools.shell.auto_rollback": st.booleans(),
    "tools.shell.auto_rollback_exit_codes": st.lists(st.integers(1, 3), max_size=2),
    "tools.shell.snapshot_required": st.booleans(),
    "tools.shell.max_snapshot_bytes": st.integers(0, 100),
    "tools.undo.enabled": st.booleans(),
    "tools.undo.max_file_bytes": st.integers(0, 100),
    "tools.undo.max_bytes": st.integers(1_000_000, 2_000_000),
    "tools.undo.max_age_days": st.sampled_from([1, 7.5]),
    "tools.overflow.threshold": st.integers(1000, 60_000),
    "tools.overflow.retention_days": st.integers(1, 30),
    "tools.overflow.max_overflow_bytes": st.integers(0, 100),
    "tools.overflow.max_conversation_bytes": st.integers(0, 100),
    "tools.overflow.summarize_output": st.booleans(),
    "tools.result_cache.enabled": st.booleans(),
    "tools.result_cache.ttl_secs": st.just(0) | seconds,
    "tools.filters.enabled": st.booleans(),
    "tools.filters.filters_path": st.sampled_from(["", "/a", "/b"]),
    "tools.filters.security.enabled": st.booleans(),
    "tools.filters.security.extra_patterns": words,
    "tools.permissions.bash": rules,
    "tools.profile": st.sampled_from(STRICTNESS["tools.profile"]),
    "tools.allow": words,
    "tools.deny": words,
    "tools.also_allow": words,
    "tools.by_model": st.just({"*": {"deny": ["bash"]}}),
    "tools.shell.blocked_groups": st.lists(st.sampled_from(["persistence", "system", "eval"]), max_size=3, unique=True),
    "tools.protection.protected_paths": globs,
    "tools.protection.unprotected_paths": globs,
    "tools.sandbox.mode": st.sampled_from(["auto", "off"]),
    "tools.sandbox.profile": st.sampled_from(STRICTNESS["tools.sandbox.profile"]),
    "tools.sandbox.strict": st.booleans(),
    "tools.sandbox.allow_write": paths,
    "tools.sandbox.allow_read": paths,
    "tools.sandbox.deny_read": paths,
    "tools.sandbox.network_allow": hosts,
    "tools.max_tool_calls_per_session": st.integers(1, 100),
    "tools.rate_limit.calls_per_hour": st.integers(0, 100),
    "tools.anomaly.enabled": st.booleans(),
    "tools.anomaly.window_size": st.integers(1, 30),
    "tools.anomaly.failure_threshold": st.sampled_from([0.1, 0.7, 0.9]),
    "tools.anomaly.auto_block": st.booleans(),
    "tools.verifiers.destructive": st.booleans(),
    "tools.verifiers.injection": st.booleans(),
    "tools.verifiers.firewall": st.booleans(),
    "tools.verifiers.url_grounding": st.booleans(),
    "tools.retry.max_attempts": st.integers(0, 5),
    "tools.retry.base_ms": st.integers(0, 900),
    "tools.retry.max_ms": st.integers(0, 900),
    "tools.retry.budget_secs": st.sampled_from([0.0, 10.0, 60.0]),
    "tools.retry.parameter_reformat_provider": st.sampled_from(["", "evil:x"]),
    "tools.utility.enabled": st.booleans(),
    "tools.utility.threshold": st.sampled_from([0.0, 0.1, 0.5]),
    "tools.utility.exempt_tools": st.lists(st.sampled_from(["read", "grep"]), max_size=2, unique=True),
    "tools.adversarial_policy.enabled": st.booleans(),
    "tools.adversarial_policy.policies": st.lists(st.sampled_from(["Allow all.", "no"]), max_size=2),
    "tools.adversarial_policy.fail_open": st.booleans(),
    "tools.adversarial_policy.exempt_tools": st.lists(st.sampled_from(["bash", "memory_save"]), max_size=1),
    "tools.adversarial_policy.policy_provider": st.sampled_from(["", "evil:x"]),
    "tools.adversarial_policy.timeout_ms": st.integers(1, 60_000),
    "tools.phases.enabled": st.booleans(),
    "agent.hallucination_detection": st.booleans(),
    "tools.policy.enabled": st.booleans(),
    "tools.policy.default_effect": st.sampled_from(["allow", "deny"]),
    "tools.policy.policy_file": st.sampled_from(["/a", "/b"]),
    "tools.policy.rules": policy_rules,
    "tools.authorization.enabled": st.booleans(),
    "tools.authorization.rules": policy_rules,
    "audit.enabled": st.booleans(),
    "audit.file": st.sampled_from(["/a", "/b"]),
    "audit.max_bytes": st.integers(65_536, 100_000),
    "acp.rich_kinds": st.booleans(),
    "tools.shell.show_changes": st.booleans(),
    "acp.terminal_timeout_secs": st.just(0) | seconds,
    "acp.terminal_form": st.sampled_from(["script", "exec", "line"]),
    "acp.request_timeout_secs": seconds,
    "acp.mode": st.sampled_from(STRICTNESS["acp.mode"]),
    "acp.auto_approve": st.sampled_from(STRICTNESS["acp.auto_approve"]),
    "acp.permission_file": st.sampled_from(["/a", "/b"]),
    "logging.level": st.sampled_from(["debug", "error"]),
    "logging.file": st.sampled_from(["/a", "/b"]),
}


def toml(tree: dict[str, object]) -> str:
    return "".join(f"{name} = {toml_value(value)}\n" for name, value in tree.items())


trees = st.fixed_dictionaries({}, optional=VALUES).map(toml)
# What reading files goes by: made alone, every example says something about it, and costs a quarter.
file_trees = st.fixed_dictionaries(
    {}, optional={name: values for name, values in VALUES.items() if name.startswith("tools.file.")}
).map(toml)


def value_of(loaded, name: str) -> object:
    value: object = loaded.settings
    for step in name.split("."):
        value = value.get(step, ()) if isinstance(value, dict) else getattr(value, step)
    return value


def decide(rules, text: str) -> int:
    """First match wins, no match asks."""
    return RANK[next((rule.action for rule in rules if fnmatchcase(text, rule.pattern)), "ask")]


def below(path: str, roots) -> bool:
    return any(os.path.commonpath((path, root)) == root for root in roots)


def is_tighter_or_equal(name: str, before, after) -> bool:
    infinite = float("inf")
    match name:
        case _ if name in USERS_ALONE:
            return before == after
        case _ if name in STRICTNESS:
            return STRICTNESS[name].index(after) >= STRICTNESS[name].index(before)
        case "tools.permissions.bash":
            texts = ["".join(letters) for size in range(4) for letters in product("ab", repeat=size)]
            return all(decide(after, text) >= decide(before, text) for text in texts)
        case _ if name in SWITCHES_OFF:
            return before or not after
        case _ if name in SWITCHES_ON:
            return after or not before
        case "tools.policy.rules" | "tools.authorization.rules":  # denies in front, the user's own behind
            added = after[: len(after) - len(before)]
            return after[len(added) :] == before and all(rule.effect == "deny" for rule in added)
        case _ if name in ZERO_IS_NO_LIMIT:
            return (after or infinite) <= (before or infinite)
        case (
            "tools.shell.blocked_commands"
            | "tools.shell.blocked_groups"
            | "tools.file.deny_read"
            | "tools.sandbox.deny_read"
            | "tools.scrape.denied_domains"
            | "tools.deny"
            | "tools.protection.protected_paths"
        ):
            return set(after) >= set(before)
        case (
            "tools.shell.allowed_commands"
            | "tools.shell.env_allow"
            | "tools.sandbox.network_allow"
            | "tools.also_allow"
            | "tools.utility.exempt_tools"
            | "tools.adversarial_policy.exempt_tools"
            | "agent.instructions.files"
        ):
            return set(after) <= set(before)
        case "tools.utility.threshold":
            return after >= before
        case "tools.file.allow_read":  # none would allow everything, one more could be an exception
            return set(after) <= set(before) and bool(after) == bool(before)
        case "tools.scrape.ports":
            return bool(after) and set(after) <= set(before)
        case "tools.scrape.allowed_domains" | "tools.allow":
            return not before or (bool(after) and set(after) <= set(before))
        case (
            "tools.shell.allowed_paths"
            | "tools.file.allowed_paths"
            | "tools.sandbox.allow_write"
            | "tools.sandbox.allow_read"
        ):
            return all(below(path, before) for path in after)
        case _:
            return (infinite if after is None else after) <= (infinite if before is None else before)


def test_every_key_is_tried_below():
    assert set(VALUES) == set(keys()) - {RULES} | {"tools.permissions.bash"}
    assert {name for name, key in keys().items() if key.project_may is None} == USERS_ALONE


@given(user=trees, wish=trees)
def test_whatever_a_project_says_nothing_gets_looser(loading, user, wish):
    alone, together = loading(user, ""), loading(user, wish)
    for name in VALUES:
        before, after = value_of(alone, name), value_of(together, name)
        assert is_tighter_or_equal(name, before, after), (name, before, after)
    assert {problem.where for problem in together.problems} <= {
        f"{os.path.dirname(together.file)}/project/.acp-agent/config.toml"
    }


@given(
    user=file_trees, wish=file_trees, path=st.sampled_from(["a", "ab", "b", "src/a", "src/b", "src/a/b", "x/src", "c"])
)
def test_whatever_a_project_says_no_more_files_may_be_read(loading, user, wish, path):
    alone, together = (reading(loaded.settings.tools.file) for loaded in (loading(user, ""), loading(user, wish)))
    for access in Access:
        assert alone(f"/p/{path}", access) is None or together(f"/p/{path}", access) is not None


NAMES = ["bash", "shell", "BASH", "run_command", "read", "Cat"]
rule_tables = st.dictionaries(st.sampled_from([f"tools.permissions.{name}" for name in NAMES]), rules).map(toml)


@given(user=rule_tables, wish=rule_tables)
def test_whatever_name_a_project_has_for_a_tool_its_rules_get_no_looser(loading, user, wish):
    alone, together = (permission_rules(loaded, told_nothing) for loaded in (loading(user, ""), loading(user, wish)))
    assert {*alone, *together} <= {"bash", "read"}
    for tool, text in product(("bash", "read"), ("a", "b", "ab", "aa", "ba", "bb", "c")):
        before, after = (first_match(compiled.get(tool, ()), text) for compiled in (alone, together))
        assert after >= before, (tool, text)


def first_match(compiled, text: str) -> int:
    return RANK[next((rule.action for rule in compiled if rule.matches_text(text)), "ask")]


def told_nothing(problem: str) -> None:
    del problem


entries = st.lists(st.sampled_from([*NAMES, "group:runtime", "group:fs", "write"]), max_size=3)
choices = st.fixed_dictionaries(
    {},
    optional={f"tools.{name}": entries for name in ("allow", "deny", "also_allow")}
    | {
        "tools.profile": st.sampled_from(STRICTNESS["tools.profile"]),
        "tools.by_model": st.builds(lambda deny: {"*": {"deny": deny}}, entries),
    },
).map(toml)


@given(user=choices, wish=choices)
def test_whatever_names_a_project_has_for_tools_no_more_of_them_are_offered(loading, user, wish):
    alone, together = (Selection(tool_choice(loaded, None)) for loaded in (loading(user, ""), loading(user, wish)))
    for tool in ("bash", "read", "write", "grep", "fetch"):
        assert not alone.objection(tool) or together.objection(tool), tool


def reading(file) -> ReadPolicy:
    carve_out = file.read_policy is ReadRule.CARVE_OUT
    return ReadPolicy(file.deny_read, file.allow_read, carve_out=carve_out, folders=["/p"])


@pytest.mark.parametrize(
    ("user", "wish", "name", "value"),
    [
        ("", "agent.max_tool_iterations = 5", "agent.max_tool_iterations", 5),
        ("", "agent.context_budget_tokens = 5000", "agent.context_budget_tokens", 5000),
        ("acp.terminal_timeout_secs = 0", "acp.terminal_timeout_secs = 90", "acp.terminal_timeout_secs", 90),
        ("tools.shell.substitution = 'inspect'", "tools.shell.substitution = 'ask'", "tools.shell.substitution", "ask"),
        ("acp.auto_approve = 'full-auto'", "acp.auto_approve = 'suggest'", "acp.auto_approve", "suggest"),
        ("", "acp.mode = 'ask'", "acp.mode", "ask"),
        (
            "tools.file.read_policy = 'carve_out'",
            "tools.file.read_policy = 'strict'",
            "tools.file.read_policy",
            "strict",
        ),
        ("", "tools.enabled = false", "tools.enabled", False),
    ],
)
def test_a_project_can_tighten(loading, user, wish, name, value):
    loaded = loading(user, wish)
    assert not loaded.problems
    assert value_of(loaded, name) == value


@pytest.mark.parametrize(
    ("name", "users", "projects", "value"),
    [
        ("tools.shell.blocked_commands", ["a"], ["b", "a"], ("a", "b")),
        ("tools.shell.allowed_commands", ["a", "b"], ["b"], ("b",)),
        ("tools.shell.env_allow", ["a", "b"], [], ()),
        ("tools.file.allowed_paths", ["/srv", "/opt"], ["/srv/a"], ("/srv/a",)),
        ("tools.file.deny_read", ["a"], ["b", "a"], ("a", "b")),
        ("tools.file.allow_read", ["a", "b"], ["b"], ("b",)),
        ("tools.file.allow_read", ["a", "b"], [], ("a", "b")),
        ("tools.file.allow_read", [], [], ()),
        ("tools.scrape.ports", [443, 8443], [443], (443,)),
        ("tools.scrape.allowed_domains", [], ["a.example"], ("a.example",)),
        ("tools.scrape.allowed_domains", ["a.example"], [], ("a.example",)),
        ("tools.sandbox.network_allow", ["a.example", "*.b.example"], ["*.b.example"], ("*.b.example",)),
        ("tools.sandbox.network_allow", ["a.example"], [], ()),
    ],
)
def test_a_project_can_tighten_a_list(loading, name, users, projects, value):
    loaded = loading(f"{name} = {toml_value(users)}", f"{name} = {toml_value(projects)}")
    assert not loaded.problems
    assert value_of(loaded, name) == value


@pytest.mark.parametrize(
    ("user", "wish", "message"),
    [
        ("", "agent.max_tool_iterations = 201", "agent.max_tool_iterations = 201: expected a smaller number (0 is no"),
        (
            "",
            "agent.max_tool_iterations = 0",
            "agent.max_tool_iterations = 0: expected a smaller number (0 is no limit)",
        ),
        (
            "",
            "acp.terminal_timeout_secs = 0",
            "acp.terminal_timeout_secs = 0.0: expected a smaller number (0 is no limit)",
        ),
        ("", "acp.auto_approve = 'full-auto'", 'acp.auto_approve = "full-auto": expected a stricter value'),
        ("tools.enabled = false", "tools.enabled = true", "tools.enabled = true: expected false"),
        ("", "tools.file.allowed_paths = ['/']", 'tools.file.allowed_paths = "/": expected folders inside the user\'s'),
        ("", "tools.shell.allowed_commands = ['sudo']", 'tools.shell.allowed_commands = "sudo": expected some of'),
        ("", "tools.file.allow_read = ['src']", 'tools.file.allow_read = "src": expected some of the user\'s entries'),
        ("", "tools.file.read_policy = 'carve_out'", 'tools.file.read_policy = "carve_out": expected a stricter value'),
        ("", "tools.sandbox.network_allow = ['a.b']", 'network_allow = "a.b": expected some of the user\'s entries'),
        ("", "tools.scrape.ports = [22]", "tools.scrape.ports = 22: expected some of the user's entries"),
        ("", "logging.file = '/tmp/x'", 'logging.file = "/tmp/x": expected it only in the user\'s own configuration'),
        ("", "llm.model = 'scripted:x'", "expected it only in the user's own configuration"),
        (
            "",
            "tools.permissions.bash = [{ pattern = '*', action = 'allow' }]",
            'tools.permissions.bash = {"pattern": "*", "action": "allow"}: expected deny and ask rules',
        ),
    ],
)
def test_what_a_project_may_not_do_is_told_with_its_reason(loading, user, wish, message):
    loaded = loading(user, wish)
    (problem,) = loaded.problems
    assert isinstance(problem, ProjectLoosens)
    assert told(loaded)[0].startswith("~/project/.acp-agent/config.toml: ")
    assert message in told(loaded)[0]
    assert "ignored" in str(problem)


def test_where_a_projects_rules_go(loading):
    loaded = loading(
        """
        [tools.permissions]
        bash = [
          { pattern = "a", action = "deny" }, { pattern = "b", action = "allow" },
          { pattern = "c", action = "deny" }, { pattern = "d", action = "allow" },
        ]
        """,
        "tools.permissions.bash = [{ pattern = 'ask', action = 'ask' }, { pattern = 'deny', action = 'deny' }]",
    )
    assert [rule.pattern for rule in loaded.settings.tools.permissions["bash"]] == ["deny", "a", "b", "c", "ask", "d"]


def test_a_denial_under_another_name_of_a_tool_stays_one(loading):
    user = """
        [[tools.permissions.bash]]
        pattern = "ls *"
        action = "allow"
        [[tools.permissions.Shell]]
        pattern = "git push*"
        action = "deny"
        """
    loaded = loading(user, "tools.permissions.bash = [{ pattern = 'git push*', action = 'ask' }]")
    assert [(rule.pattern, rule.action) for rule in loaded.settings.tools.permissions["bash"]] == [
        ("ls *", "allow"),
        ("git push*", "deny"),
        ("git push*", "ask"),
    ]
    assert list(loaded.settings.tools.permissions) == ["bash"]


def test_a_mistake_in_rules_is_told_by_the_name_they_have_and_guards_all_rules_of_the_tool(loading):
    loaded = loading(
        "[tools.permissions]\nbash = [{ pattern = '*', action = 'allow' }]\n"
        "shell = [{ pattern = 'a', action = 'deni' }, { pattern = 'b', action = 'deny' }]"
    )
    assert told(loaded)[0].startswith('~/config.toml: tools.permissions.shell[0].action = "deni": expected one of')
    rules_in_force = [(rule.pattern, rule.action) for rule in loaded.settings.tools.permissions["bash"]]
    assert rules_in_force == [("b", "deny"), ("*", "ask")]


def test_variables_for_two_names_of_a_tool_count_together_and_are_both_named(loading):
    first, second = "ACP_AGENT_TOOLS__PERMISSIONS__BASH", "ACP_AGENT_TOOLS__PERMISSIONS__SHELL"
    loaded = loading(
        "tools.permissions.terminal = [{ pattern = '*', action = 'deny' }]",
        environ={
            first: '[{"pattern": "a", "action": "allow"}]',
            second: '[{"pattern": "b", "action": "deny"}]',
        },
    )
    assert [rule.pattern for rule in loaded.settings.tools.permissions["bash"]] == ["a", "b"]
    assert loaded.origins["tools.permissions.bash"] == f"{first} and {second}"


def test_a_link_in_the_project_opens_nothing_outside(loading, tmp_path):
    shared, outside = tmp_path / "shared", tmp_path / "outside"
    shared.mkdir()
    outside.mkdir()
    (shared / "link").symlink_to(outside)
    loaded = loading(
        f"tools.file.allowed_paths = ['{shared}']", f"tools.file.allowed_paths = ['{shared}/link', '{shared}/in']"
    )
    assert loaded.settings.tools.file.allowed_paths == (os.path.realpath(shared / "in"),)
    assert len(loaded.problems) == 1


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_project_file_that_is_a_link_out_of_the_project_is_not_read(loading, project, tmp_path, what):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.toml").write_text("acp.mode = 'ask'")
    if what == "folder":
        (project / ".acp-agent").symlink_to(outside)
    else:
        (project / ".acp-agent").mkdir()
        (project / ".acp-agent" / "config.toml").symlink_to(outside / "config.toml")
    loaded = loading()
    assert loaded.settings.acp.mode == "code"
    assert "not a link out of it" in told(loaded)[0]


def test_a_broken_project_file_is_told_and_the_users_settings_hold(loading):
    loaded = loading("acp.auto_approve = 'full-auto'", "[[[")
    assert loaded.settings.acp.auto_approve == "full-auto"
    assert told(loaded)[0].startswith("~/project/.acp-agent/config.toml: expected TOML: ")
