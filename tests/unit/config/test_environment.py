"""Every key by a variable, the aliases, and what is no key."""

import json
import subprocess
import sys

import pytest

from acp_agent.config.agents_settings import ExternalAgentSettings, QualityGateSettings
from acp_agent.config.call_settings import ToolNeeds
from acp_agent.config.layers import PROVIDERS, RULES, SettingKey, keys
from acp_agent.config.llm_settings import ModelSettings
from acp_agent.config.load import PREFIX, Flags, _reading, load
from acp_agent.config.mcp_settings import McpServerSettings
from acp_agent.config.rules import PolicyRuleSettings
from acp_agent.config.tool_settings import ModelTools
from acp_agent.shape import ValidationError
from tests.rows import each_row
from tests.unit.config.conftest import told

RULE = {"effect": "deny", "tool": "bash", "args_match": "sudo"}
# One good value for each key, spelled as a variable, and what it means.
VALUES = {
    "agent.max_tool_iterations": ("7", 7),
    "agent.max_tool_calls_per_answer": ("5", 5),
    "agent.max_parallel_tools": ("4", 4),
    "agent.context_budget_tokens": ("5000", 5000),
    "agent.facts": ("no", False),
    "agent.compaction": ("no", False),
    "agent.compaction_soft": ("0.5", 0.5),
    "agent.compaction_hard": ("0.85", 0.85),
    "agent.compress_provider": ("scripted:hello", "scripted:hello"),
    "agent.compress_context": ("yes", True),
    "agent.instructions.enabled": ("off", False),
    "agent.instructions.files": ("AGENTS.md, docs/agents.md", ("AGENTS.md", "docs/agents.md")),
    "agent.instructions.max_chars": ("2000", 2000),
    "agent.tool_filter.enabled": ("on", True),
    "agent.tool_filter.top_k": ("4", 4),
    "agent.tool_filter.min_description_words": ("2", 2),
    "agent.tool_filter.always_on": ("bash, read", ("bash", "read")),
    "memory.enabled": ("off", False),
    "agents.enabled": ("off", False),
    "agents.max_running": ("4", 4),
    "agents.max_children": ("2", 2),
    "agents.archive_minutes": ("5", 5.0),
    "agents.explore_model": ("scripted:hello", "scripted:hello"),
    "agents.evaluate": ("on", True),
    "agents.handoff": ("on", True),
    "agents.board": ("on", True),
    "scheduler.enabled": ("off", False),
    "scheduler.tool": ("on", True),
    "scheduler.timezone": ("Europe/Berlin", "Europe/Berlin"),
    "scheduler.max_entries": ("5", 5),
    "scheduler.max_prompt_chars": ("500", 500),
    "agents.gates": ('[{"name": "t", "command": "make"}]', (QualityGateSettings(name="t", command="make"),)),
    "agents.external": ('[{"name": "a", "command": "b"}]', (ExternalAgentSettings(name="a", command="b"),)),
    "skills.enabled": ("off", False),
    "skills.home": ("on", True),
    "skills.max_chars": ("100", 100),
    "memory.max_notes": ("10", 10),
    "memory.max_note_bytes": ("4096", 4096),
    "memory.sessions.titles": ("prompt", "prompt"),
    "memory.sessions.title_max_chars": ("40", 40),
    "memory.sessions.title_provider": ("scripted:hello", "scripted:hello"),
    "tools.tafc.enabled": ("on", True),
    "tools.tafc.complexity_threshold": ("0.3", 0.3),
    "tools.dependencies.enabled": ("on", True),
    "tools.dependencies.boost_per_dep": ("0.1", 0.1),
    "tools.dependencies.max_total_boost": ("0.4", 0.4),
    "tools.dependencies.rules": ('{"edit": {"requires": ["read"]}}', {"edit": ToolNeeds(requires=("read",))}),
    "llm.model": ("scripted:hello", "scripted:hello"),
    "llm.fallback": ("scripted:hello, scripted:demo", ("scripted:hello", "scripted:demo")),
    "llm.embedding_model": ("scripted:words", "scripted:words"),
    "llm.list_models": ("off", False),
    "llm.models": ('[{"id": "scripted:", "images": false}]', (ModelSettings(id="scripted:", images=False),)),
    "tools.enabled": ("off", False),
    "tools.shell.timeout": ("2.5", 2.5),
    "tools.shell.max_timeout": ("90", 90.0),
    "tools.shell.allowed_paths": ("/a, /b", ("/a", "/b")),
    "tools.shell.blocked_commands": ('["a b", "c"]', ("a b", "c")),
    "tools.shell.allowed_commands": ("curl", ("curl",)),
    "tools.shell.env_allow": ("5", ("5",)),
    "tools.shell.substitution": ("ask", "ask"),
    "tools.file.allowed_paths": ("[]", ()),
    "tools.file.deny_read": ("**/.env, ~/.ssh", ("**/.env", "~/.ssh")),
    "tools.file.allow_read": ('["src/**"]', ("src/**",)),
    "tools.file.read_policy": ("carve_out", "carve_out"),
    "tools.scrape.timeout": ("3", 3.0),
    "tools.scrape.max_body_bytes": ("2048", 2048),
    "tools.scrape.allowed_domains": ("*.example.com", ("*.example.com",)),
    "tools.scrape.denied_domains": ("a.example, b.example", ("a.example", "b.example")),
    "tools.scrape.ports": ("[443, 8443]", (443, 8443)),
    "tools.diagnostics.max_diagnostics": ("9", 9),
    "tools.diagnostics.timeout": ("8", 8.0),
    "tools.undo.enabled": ("off", False),
    "tools.undo.max_file_bytes": ("5000", 5000),
    "tools.undo.max_bytes": ("2000000", 2_000_000),
    "tools.undo.max_age_days": ("1.5", 1.5),
    "tools.overflow.threshold": ("1234", 1234),
    "tools.overflow.retention_days": ("30", 30),
    "tools.overflow.max_overflow_bytes": ("0", 0),
    "tools.overflow.max_conversation_bytes": ("1000000", 1_000_000),
    "tools.overflow.summarize_output": ("on", True),
    "tools.result_cache.enabled": ("off", False),
    "tools.result_cache.ttl_secs": ("0", 0),
    "tools.filters.enabled": ("no", False),
    "tools.filters.filters_path": ("/filters.toml", "/filters.toml"),
    "tools.filters.security.enabled": ("off", False),
    "tools.filters.security.extra_patterns": ('["corp-[0-9]{8}"]', ("corp-[0-9]{8}",)),
    "tools.autonomy_level": ("readonly", "readonly"),
    "tools.shell.confirm_patterns": ("rm *, git push*", ("rm *", "git push*")),
    "tools.profile": ("coding", "coding"),
    "tools.allow": ("group:fs, bash", ("group:fs", "bash")),
    "tools.deny": ("fetch", ("fetch",)),
    "tools.also_allow": ('["web_scrape"]', ("web_scrape",)),
    "tools.by_model": ('{"anthropic:*": {"deny": ["bash"]}}', {"anthropic:*": ModelTools(deny=("bash",))}),
    "tools.shell.blocked_groups": ("persistence, system", ("persistence", "system")),
    "tools.protection.protected_paths": ("deploy/**", ("deploy/**",)),
    "tools.protection.unprotected_paths": (".envrc", (".envrc",)),
    "tools.sandbox.mode": ("bwrap", "bwrap"),
    "tools.sandbox.profile": ("read-only", "read-only"),
    "tools.sandbox.strict": ("yes", True),
    "tools.sandbox.allow_write": ("/srv/cache", ("/srv/cache",)),
    "tools.sandbox.allow_read": ("/srv/data", ("/srv/data",)),
    "tools.sandbox.deny_read": ("/srv/keys", ("/srv/keys",)),
    "tools.sandbox.network_allow": ("pypi.org, *.example.com", ("pypi.org", "*.example.com")),
    "tools.max_tool_calls_per_session": ("50", 50),
    "tools.rate_limit.calls_per_hour": ("100", 100),
    "tools.anomaly.enabled": ("off", False),
    "tools.anomaly.window_size": ("10", 10),
    "tools.anomaly.failure_threshold": ("0.5", 0.5),
    "tools.anomaly.auto_block": ("no", False),
    "tools.verifiers.destructive": ("off", False),
    "tools.verifiers.injection": ("off", False),
    "tools.verifiers.firewall": ("off", False),
    "tools.verifiers.url_grounding": ("on", True),
    "tools.retry.max_attempts": ("0", 0),
    "tools.retry.base_ms": ("100", 100),
    "tools.retry.max_ms": ("900", 900),
    "tools.retry.budget_secs": ("9.5", 9.5),
    "tools.retry.parameter_reformat_provider": ("ollama:qwen3:8b", "ollama:qwen3:8b"),
    "tools.utility.enabled": ("on", True),
    "tools.utility.threshold": ("0.25", 0.25),
    "tools.utility.exempt_tools": ("read", ("read",)),
    "tools.adversarial_policy.enabled": ("on", True),
    "tools.adversarial_policy.policies": ("no", ("no",)),
    "tools.adversarial_policy.fail_open": ("on", True),
    "tools.adversarial_policy.exempt_tools": ("read", ("read",)),
    "tools.adversarial_policy.policy_provider": ("ollama:qwen3:8b", "ollama:qwen3:8b"),
    "tools.adversarial_policy.timeout_ms": ("900", 900),
    "tools.phases.enabled": ("on", True),
    "agent.hallucination_detection": ("on", True),
    "tools.policy.enabled": ("on", True),
    "tools.policy.default_effect": ("allow", "allow"),
    "tools.policy.policy_file": ("/policy.toml", "/policy.toml"),
    "tools.policy.rules": (json.dumps([RULE]), (PolicyRuleSettings.model_validate(RULE),)),
    "tools.authorization.enabled": ("on", True),
    "tools.authorization.rules": (json.dumps([RULE]), (PolicyRuleSettings.model_validate(RULE),)),
    "acp.terminal_timeout_secs": ("0", 0),
    "acp.terminal_form": ("exec", "exec"),
    "acp.request_timeout_secs": ("1", 1),
    "acp.mode": ("ask", "ask"),
    "acp.auto_approve": ("full-auto", "full-auto"),
    "acp.permission_file": ("/p", "/p"),
    "acp.rich_kinds": ("on", True),
    "tools.shell.show_changes": ("off", False),
    "tools.shell.transactional": ("on", True),
    "tools.shell.transaction_scope": ("src/**,*.py", ("src/**", "*.py")),
    "tools.shell.auto_rollback": ("on", True),
    "tools.shell.auto_rollback_exit_codes": ("1,3", (1, 3)),
    "tools.shell.snapshot_required": ("on", True),
    "tools.shell.max_snapshot_bytes": ("5000", 5000),
    "mcp.enabled": ("off", False),
    "mcp.unsandboxed": ("github, time", ("github", "time")),
    "mcp.servers": ('[{"name": "a", "command": "b"}]', (McpServerSettings(name="a", command="b"),)),
    "acp.question_timeout_secs": ("60", 60),
    "acp.elicitation": ("off", False),
    "acp.elicitation_timeout_secs": ("90", 90),
    "acp.available_models": ("scripted:a, scripted:b", ("scripted:a", "scripted:b")),
    "acp.max_sessions": ("3", 3),
    "acp.session_idle_timeout_secs": ("0", 0),
    "acp.lsp.enabled": ("off", False),
    "acp.lsp.auto_diagnostics_on_save": ("off", False),
    "acp.lsp.max_diagnostics_per_file": ("3", 3),
    "acp.lsp.max_diagnostic_files": ("2", 2),
    "acp.lsp.max_references": ("10", 10),
    "acp.lsp.max_workspace_symbols": ("9", 9),
    "acp.lsp.request_timeout_secs": ("2.5", 2.5),
    "audit.enabled": ("off", False),
    "audit.file": ("/a.jsonl", "/a.jsonl"),
    "audit.max_bytes": ("70000", 70_000),
    "logging.level": ("error", "error"),
    "logging.file": ("/l", "/l"),
}


def variable(name: str) -> str:
    return PREFIX + name.upper().replace(".", "__")


def test_every_key_has_an_example_here():
    assert set(VALUES) == set(keys()) - {PROVIDERS, RULES}


@each_row("name", VALUES)
def test_every_key_can_be_set_by_its_variable(loading, name):
    text, meaning = VALUES[name]
    loaded = loading(environ={variable(name): text})
    assert not loaded.problems
    value: object = loaded.settings
    for step in name.split("."):
        value = getattr(value, step)
    assert value == meaning
    assert loaded.origins[name] == variable(name)


def test_good_variables_load_no_pydantic():
    script = (
        "import json, sys\n"
        "from acp_agent.config.load import Flags, load\n"
        "loaded = load(Flags(), json.loads(sys.argv[1]))\n"
        "print(loaded.problems, 'pydantic' in sys.modules)\n"
    )
    environ = {variable(name): text for name, (text, _) in VALUES.items()}
    del environ[variable("tools.shell.auto_rollback_exit_codes")]  # the only list of numbers: pydantic reads the words
    told = subprocess.run(
        [sys.executable, "-c", script, json.dumps(environ)], capture_output=True, text=True, check=True
    ).stdout
    assert told == "() False\n"


@each_row("name", [name for name in keys() if not isinstance(keys()[name].default, tuple)])
def test_a_variable_means_the_first_that_is_valid_of_text_yes_or_no_and_json(name):
    key = keys()[name]
    for text in ("1", "0", "7", "100", "0.5", "1e3", "-1", "yes", "on", "off", "true", "False", "null", "ask", '"ask"'):
        parsed = json.loads(text) if text not in ("yes", "on", "off", "False", "ask") else text
        yes = {"1": True, "0": False, "yes": True, "on": True, "off": False, "true": True, "False": False}.get(text)
        meant = [value for each in (text, yes, parsed) if (value := read(key, each)) is not None]
        assert read(key, _reading(key, text)) == (meant[0] if meant else None), text


def read(key: SettingKey, raw: object) -> object:
    """Return the value of a raw one; None if it is not valid."""
    try:
        return key.read(raw)
    except ValidationError:
        return None


def test_providers_and_rules_are_set_as_json(loading):
    loaded = loading(
        "[[llm.providers]]\nname = 'file'\ntype = 'ollama'",
        environ={
            "ACP_AGENT_LLM__PROVIDERS": json.dumps([{"name": "p", "type": "openai", "base_url": "http://h"}]),
            "ACP_AGENT_TOOLS__PERMISSIONS__BASH": json.dumps([{"pattern": "ls", "action": "allow"}]),
        },
    )
    assert not loaded.problems
    assert [provider.name for provider in loaded.settings.llm.providers] == ["p", "scripted"]
    assert loaded.settings.tools.permissions["bash"][0].action == "allow"


@pytest.mark.parametrize("text", ["true", "TRUE", "1", "yes", "On"])
def test_yes_has_several_spellings(loading, text):
    assert loading("[tools]\nenabled = false", environ={"ACP_AGENT_TOOLS__ENABLED": text}).settings.tools.enabled


def test_aliases_give_way_to_the_full_name(loading):
    alias = {"ACP_AGENT_MAX_TOOL_ITERATIONS": "3", "ACP_AGENT_MODEL": "scripted:a"}
    assert loading(environ=alias).settings.agent.max_tool_iterations == 3
    assert loading(environ=alias).settings.llm.model == "scripted:a"
    full = {"ACP_AGENT_AGENT__MAX_TOOL_ITERATIONS": "4", "ACP_AGENT_LLM__MODEL": "scripted:b"}
    assert loading(environ=full | alias).settings.agent.max_tool_iterations == 4
    assert loading(environ=alias | full).settings.llm.model == "scripted:b"


def test_an_empty_variable_is_an_unset_one(loading):
    empty = dict.fromkeys(["ACP_AGENT_MODEL", "ACP_AGENT_ACP__MODE", "ACP_AGENT_TOOLS__SHELL__TIMEOUT"], "")
    loaded = loading("[acp]\nmode = 'ask'", environ=empty)
    assert not loaded.problems
    assert loaded.settings.acp.mode == "ask"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "ACP_AGENT_MAX_ITERATIONS",
            "3",
            'environment: ACP_AGENT_MAX_ITERATIONS = "3": expected ACP_AGENT_MAX_TOOL_ITERATIONS',
        ),
        ("ACP_AGENT_MODLE", "a:b", 'environment: ACP_AGENT_MODLE = "a:b": expected ACP_AGENT_MODEL'),
        ("ACP_AGENT_CONFGI", "x", 'environment: ACP_AGENT_CONFGI = "x": expected ACP_AGENT_CONFIG'),
        ("ACP_AGENT_TOOLS_DENY", "bash", 'environment: ACP_AGENT_TOOLS_DENY = "bash": expected ACP_AGENT_TOOLS__DENY'),
        ("ACP_AGENT_NONE__OF_OURS", "x", "expected a name such as ACP_AGENT_TOOLS__SHELL__TIMEOUT"),
        ("ACP_AGENT_TOOLS__SHELL__TIME", "3", "environment: ACP_AGENT_TOOLS__SHELL__TIME"),
        ("ACP_AGENT_TOOLS__SHELL", "{}", "environment: ACP_AGENT_TOOLS__SHELL"),
        ("ACP_AGENT_TOOLS__PERMISSIONS", "{}", "environment: ACP_AGENT_TOOLS__PERMISSIONS"),
        ("ACP_AGENT_TOOLS_SHELL_TIMEOUT", "3", "environment: ACP_AGENT_TOOLS_SHELL_TIMEOUT"),
        ("ACP_AGENT___", "3", "environment: ACP_AGENT___"),
        (
            "ACP_AGENT_TOOLS__ENABLED",
            "maybe",
            'ACP_AGENT_TOOLS__ENABLED: tools.enabled = "maybe": expected true or false',
        ),
        (
            "ACP_AGENT_MAX_TOOL_ITERATIONS",
            "50000",
            "ACP_AGENT_MAX_TOOL_ITERATIONS: agent.max_tool_iterations = 50000: expected a whole number from 0 to 10000",
        ),
        ("ACP_AGENT_TOOLS__SHELL__TIMEOUT", "NaN", "tools.shell.timeout = NaN: expected a number above 0"),
        ("ACP_AGENT_TOOLS__FILE__ALLOWED_PATHS", "x", 'tools.file.allowed_paths[0] = "x": expected an absolute path'),
        (
            "ACP_AGENT_TOOLS__FILE__ALLOWED_PATHS",
            '["/a"',
            'tools.file.allowed_paths = "[\\"/a\\"": expected a list of texts',
        ),
        ("ACP_AGENT_LLM__PROVIDERS", "[" * 100_000, "llm.providers = "),
    ],
)
def test_a_bad_variable_is_named_and_the_lower_layer_holds(loading, name, text, message):
    loaded = loading("[agent]\nmax_tool_iterations = 42", environ={name: text})
    (problem,) = told(loaded)
    assert message in problem
    assert loaded.settings.agent.max_tool_iterations == 42


@pytest.mark.parametrize(
    "name", ["COMMAND", "ARGS", "CMD", "NAME", "ID", "PATH", "ENV", "SOCKET", "DEBUG", "LOG", "URL"]
)
def test_a_variable_of_another_program_is_no_setting_of_ours(loading, name):
    assert loading("", environ={f"ACP_AGENT_{name}": "claude-code-acp"}).problems == ()


def test_the_variables_that_are_no_settings_are_no_problem(tmp_path):
    file = tmp_path / "c.toml"
    file.touch()
    environ = {"ACP_AGENT_CONFIG": str(file), "ACP_AGENT_DATA_DIR": "/x", "ACP_AGENT_ACP_FORK": "1", "ACP_AGENTS": "y"}
    assert not load(Flags(), environ).problems
