"""Limits of calls, retries, checks and phases."""

import pytest

from acp_agent.config.call_settings import (
    AnomalySettings,
    PhaseSettings,
    RateLimitSettings,
    RetrySettings,
    UtilitySettings,
    VerifierSettings,
)
from acp_agent.config.layers import Reader, SettingKey, moved
from acp_agent.config.rules import PolicyRuleSettings
from acp_agent.config.section import Section
from acp_agent.config.settings import AgentSettings
from acp_agent.config.tool_settings import ToolSettings
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import Phase
from acp_agent.shape import ValidationError, fields
from tests.rows import each_row


def test_nothing_is_limited_and_all_but_grounding_is_watched_when_nobody_sets_anything():
    settings = ToolSettings()
    assert settings.max_tool_calls_per_session is None
    assert settings.rate_limit.calls_per_hour == 0
    assert settings.anomaly == AnomalySettings(enabled=True, window_size=20, failure_threshold=0.7, auto_block=True)
    assert settings.verifiers == VerifierSettings(destructive=True, injection=True, url_grounding=False, firewall=True)


@each_row(
    "table",
    [
        {"max_tool_calls_per_session": 0},
        {"max_tool_calls_per_session": -1},
        {"max_tool_calls_per_session": True},
        {"max_tool_calls_per_session": "50"},
        {"rate_limit": {"calls_per_hour": -1}},
        {"rate_limit": {"calls_per_hour": 1.5}},
        {"rate_limit": {"per_hour": 1}},
        {"anomaly": {"window_size": 0}},
        {"anomaly": {"window_size": 10**9}},
        {"anomaly": {"failure_threshold": float("nan")}},
        {"anomaly": {"failure_threshold": float("inf")}},
        {"anomaly": {"failure_threshold": -0.1}},
        {"anomaly": {"failure_threshold": 0}},
        {"anomaly": {"failure_threshold": 1}},  # no rate is above it: that is enabled = false
        {"anomaly": {"failure_threshold": 70}},
        {"anomaly": {"auto_block": "yes"}},
        {"verifiers": {"firewal": False}},
    ],
)
def test_what_cannot_be_meant_is_refused(table):
    with pytest.raises(ValidationError):
        ToolSettings.model_validate(table)


@each_row(
    "section, field, user, project, value",
    [
        (ToolSettings, "max_tool_calls_per_session", None, 50, 50),
        (ToolSettings, "max_tool_calls_per_session", 50, None, 50),
        (ToolSettings, "max_tool_calls_per_session", 50, 100, 50),
        (RateLimitSettings, "calls_per_hour", 0, 10, 10),
        (RateLimitSettings, "calls_per_hour", 10, 0, 10),
        (RateLimitSettings, "calls_per_hour", 10, 20, 10),
        (AnomalySettings, "enabled", True, False, True),
        (AnomalySettings, "enabled", False, True, True),
        (AnomalySettings, "auto_block", True, False, True),
        (AnomalySettings, "failure_threshold", 0.7, 0.9, 0.7),
        (AnomalySettings, "failure_threshold", 0.7, 0.5, 0.5),
        *((VerifierSettings, name, True, False, True) for name in fields(VerifierSettings)),
        *((VerifierSettings, name, False, True, True) for name in fields(VerifierSettings)),
    ],
)
def test_a_project_only_tightens(section, field, user, project, value):
    mark = SettingKey(field, section, field).project_may
    assert mark is not None
    tightened = mark.tighten(user, project)
    assert tightened.value == value
    assert bool(tightened.refused) == (value != project)


def test_the_size_of_the_window_is_the_users_alone():
    assert SettingKey("window_size", AnomalySettings, "window_size").project_may is None


@pytest.mark.parametrize("section", [ToolSettings, RateLimitSettings, AnomalySettings, VerifierSettings])
def test_every_setting_is_described(section):
    for name, info in fields(section).items():
        described = info.description or ""
        is_table = isinstance(info.type, type) and issubclass(info.type, Section)
        assert is_table or described.endswith("."), name


def test_only_retries_are_on_when_nobody_sets_anything():
    settings = ToolSettings()
    assert settings.retry == RetrySettings(
        max_attempts=2, base_ms=500, max_ms=5000, budget_secs=30, parameter_reformat_provider=""
    )
    assert settings.utility == UtilitySettings(enabled=False, threshold=0.0)
    assert not settings.phases.enabled
    assert not AgentSettings().hallucination_detection


@each_row(
    "table",
    [
        {"retry": {"max_attempts": -1}},
        {"retry": {"max_attempts": 11}},
        {"retry": {"max_attempts": 1.5}},
        {"retry": {"base_ms": -1}},
        {"retry": {"max_ms": -1}},
        {"retry": {"budget_secs": -1}},
        {"retry": {"budget_secs": float("nan")}},
        {"retry": {"budget_secs": float("inf")}},
        {"retry": {"parameter_reformat_provider": "ollama"}},
        {"retry": {"parameter_reformat_provider": ":qwen"}},
        {"utility": {"threshold": float("nan")}},
        {"utility": {"threshold": float("-inf")}},
        {"utility": {"threshold": 2}},
        {"utility": {"exempt_tools": [""]}},
        {"phases": {"enabled": "yes"}},
        {"phases": {"planner": True}},
    ],
)
def test_a_retry_utility_or_phase_that_cannot_be_meant_is_refused(table):
    with pytest.raises(ValidationError):
        ToolSettings.model_validate(table)


def test_the_detection_of_hallucinations_is_a_switch():
    with pytest.raises(ValidationError):
        AgentSettings.model_validate({"hallucination_detection": 1})


@each_row(
    "section, field, user, project, value",
    [
        (RetrySettings, "max_attempts", 2, 0, 0),
        (RetrySettings, "max_attempts", 2, 5, 2),
        (RetrySettings, "budget_secs", 30.0, 5.0, 5.0),
        (RetrySettings, "budget_secs", 30.0, 60.0, 30.0),
        (UtilitySettings, "enabled", False, True, True),
        (UtilitySettings, "enabled", True, False, True),
        (UtilitySettings, "threshold", 0.1, 0.3, 0.3),
        (UtilitySettings, "threshold", 0.1, 0.0, 0.1),
        (PhaseSettings, "enabled", False, True, False),
        (PhaseSettings, "enabled", True, False, False),
        (AgentSettings, "hallucination_detection", False, True, True),
        (AgentSettings, "hallucination_detection", True, False, True),
    ],
)
def test_a_project_may_only_tighten(section, field, user, project, value):
    may = SettingKey(field, section, field).project_may
    assert may is not None
    assert may.tighten(user, project).value == value


def test_a_project_exempts_no_further_tool():
    may = SettingKey("exempt_tools", UtilitySettings, "exempt_tools").project_may
    assert may is not None
    assert may.tighten(("read", "grep"), ("bash", "grep")).value == ("grep",)


@pytest.mark.parametrize("field", ["base_ms", "max_ms", "parameter_reformat_provider"])
def test_a_project_names_no_model_and_no_waits(field):
    assert SettingKey(field, RetrySettings, field).project_may is None


def test_a_policy_rule_may_name_phases():
    rule = PolicyRuleSettings.model_validate({"effect": "deny", "tool": "*", "phases": ["planner", "autonomous"]})
    assert rule.phases == (Phase.PLANNER, Phase.AUTONOMOUS)
    with pytest.raises(ValidationError):
        PolicyRuleSettings.model_validate({"effect": "deny", "tool": "*", "phases": ["later"]})


# ----------------------------------------------------------------------------------------------- moved keys


class Told:
    def __init__(self) -> None:
        self.reports: list[ConfigError] = []

    def __call__(self, where: str, name: str, value: object, expected: str) -> ConfigError:
        self.reports.append(ConfigError(where, name, str(value), expected))
        return self.reports[-1]


def test_the_two_old_keys_of_agent_count_under_their_new_names_and_are_told():
    told = Told()
    table = moved("c.toml", {"agent": {"max_tool_retries": 5, "max_retry_duration_secs": 9, "x": 1}, "llm": {}}, told)
    assert table == {"agent": {"x": 1}, "tools": {"retry": {"max_attempts": 5, "budget_secs": 9}}, "llm": {}}
    assert [str(each) for each in told.reports] == [
        "c.toml: agent.max_tool_retries = 5: expected the new name, tools.retry.max_attempts, which gets this value",
        (
            "c.toml: agent.max_retry_duration_secs = 9: "
            "expected the new name, tools.retry.budget_secs, which gets this value"
        ),
    ]


def test_the_new_name_counts_where_both_are_there():
    told = Told()
    table = moved(
        "c", {"agent": {"max_tool_retries": 5}, "tools": {"enabled": True, "retry": {"max_attempts": 1}}}, told
    )
    assert table == {"agent": {}, "tools": {"enabled": True, "retry": {"max_attempts": 1}}}
    assert told.reports[0].expected == "the new name, tools.retry.max_attempts, whose own value is used"


@each_row(
    "table",
    [
        {},
        {"agent": {"max_tool_iterations": 3}},
        {"agent": "x"},
        {"agent": [{"max_tool_retries": 1}]},
        {"agent": {"max_tool_retries": 1}, "tools": "x"},
        {"agent": {"max_tool_retries": 1}, "tools": {"retry": 3}},
    ],
)
def test_everything_else_stays_as_it_is(table):
    told = Told()
    assert moved("c", table, told) == table
    assert not told.reports


def test_a_tables_caller_keeps_its_own():
    given = {"agent": {"max_tool_retries": 1}, "tools": {"retry": {"base_ms": 1}}}
    moved("c", given, Told())
    assert given == {"agent": {"max_tool_retries": 1}, "tools": {"retry": {"base_ms": 1}}}


def test_a_file_is_read_that_way():
    reader = Reader()
    layer = reader.table("c.toml", {"agent": {"max_tool_iterations": 3}})
    assert layer.values == {"agent.max_tool_iterations": 3}
    assert not reader.problems
    reader.table("c.toml", {"agent": {"max_tool_retries": 3}})
    assert reader.problems[0].key == "agent.max_tool_retries"
